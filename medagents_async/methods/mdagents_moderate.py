"""MDAgents' moderate path: a multi-disciplinary team that talks until it agrees.

Kim et al., arXiv 2404.15155, section 3.4 and Algorithm 1, lines 6 to 23.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from medagents_async import parsing
from medagents_async.fan_out import fan_out
from medagents_async.methods.answering import Answering
from medagents_async.methods.experts import SILENT
from medagents_async.methods.specialists import Said, Specialist, list_from, specialists
from medagents_async.types import Ask, Count, Question, Tokens


@dataclass(frozen=True, slots=True)
class Note:
    """A message from one member of the team to another."""

    sender: Specialist
    recipient: Specialist
    text: str


@dataclass(slots=True)
class Round:
    """What a round has brought: answers first, then talk and feedback where they differ."""

    answers: Sequence[Said]
    options: Sequence[str | None]
    notes: list[Note] = field(default_factory=list)
    feedback: Sequence[Said] = ()
    unclear: list[str] = field(default_factory=list)  # who said something, to nobody in particular

    @property
    def agreed(self) -> bool:
        """Whether all name the same option; an unread answer agrees with none."""
        return len({*self.options}) == 1 and self.options[0] is not None


@dataclass(frozen=True, kw_only=True)
class Discussion(Answering):
    """`experts` answer; where they differ, they talk, hear the moderator and answer again.

    `rounds` is how often, `turns` how many times each may speak in a round, and `review` whether
    the moderator gives feedback (Table 3).
    """

    experts: Count = 5
    rounds: Count = 3
    turns: Count = 1
    review: bool = True
    recruit_tokens: Tokens = 1024
    message_tokens: Tokens = 512
    feedback_tokens: Tokens = 512

    async def discussion(
        self, question: Question, ask: Ask, **shown: Any
    ) -> tuple[list[Round], dict[str, Any]]:
        """All rounds, and the record of them. `shown` is what all prompts show.

        Raises CallError where a call failed, and where an expert has no answer.
        """
        listed = await list_from(
            ask, "recruit_experts", max_tokens=self.recruit_tokens, count=self.experts
        )
        team, record = specialists(parsing.members(listed), self.experts)
        meeting = _Meeting(self, question, partial(ask, **shown), team)
        await meeting.hold()
        rounds = meeting.rounds
        names = [member.name for member in team]
        return rounds, {
            "recruit": record,
            "experts": names,
            "rounds": len(rounds) - 1,
            "consensus": rounds[-1].agreed,
            "answers": [dict(zip(names, part.options, strict=True)) for part in rounds],
            "messages": [
                [[note.sender.name, note.recipient.name] for note in part.notes] for part in rounds
            ],
            "unclear_messages": [part.unclear for part in rounds],
        }


@dataclass
class _Meeting:
    """One team on its way through the rounds."""

    settings: Discussion
    question: Question
    ask: Ask
    team: Sequence[Specialist]
    rounds: list[Round] = field(default_factory=list)

    async def hold(self) -> None:
        answers = await fan_out(*(self._answer(member) for member in self.team))
        self._open(answers)
        while not self.rounds[-1].agreed and len(self.rounds) <= self.settings.rounds:
            if not await self._talk():
                break  # a new round begins only where someone wants it (section 3.4)
            # An expert waits for its own feedback only, not for that of the others.
            heard = await fan_out(*(self._review_and_answer(member) for member in self.team))
            self.rounds[-1].feedback = [feedback for feedback, _ in heard if feedback]
            self._open([answer for _, answer in heard])

    def _open(self, answers: Sequence[tuple[Said, str | None]]) -> None:
        said, options = [said for said, _ in answers], [option for _, option in answers]
        self.rounds.append(Round(said, options))

    async def _answer(
        self, member: Specialist, feedback: Said | None = None
    ) -> tuple[Said, str | None]:
        """An answer, given what this member has said, written and heard before."""
        place, before = member.number - 1, self.rounds
        reply = await self.ask(
            "answer",
            agent=member.name,
            round=len(before) + 1,
            n=len(before) * len(self.team) + place,
            member=member,
            previous=before[-1].answers[place].text if before else None,
            notes=self._notes(member),
            feedback=feedback.text if feedback else None,
        )
        option = parsing.option(reply.text, self.question.options, cut=reply.truncated)
        return Said(member, reply.text), option

    async def _talk(self) -> bool:
        """The round's turns, each of which reads the ones before; False where nobody will talk."""
        now = self.rounds[-1]
        for turn in range(self.settings.turns):
            replies = await fan_out(*(self._speak(member, turn) for member in self.team))
            if all(reply == [] for reply in replies):
                return turn > 0
            for member, reply in zip(self.team, replies, strict=True):
                if reply is None:
                    now.unclear.append(member.name)
                else:
                    now.notes += [Note(member, self.team[to - 1], text) for to, text in reply]
        return True

    async def _speak(self, member: Specialist, turn: int) -> list[tuple[int, str]] | None:
        """A member's messages by recipient; [] where it has none, None where that is unclear."""
        number = len(self.rounds)
        try:
            reply = await self.ask(
                "discuss",
                agent=member.name,
                round=number,
                n=((number - 1) * self.settings.turns + turn) * len(self.team) + member.number - 1,
                max_tokens=self.settings.message_tokens,
                member=member,
                team=self.team,
                answers=self.rounds[-1].answers,
                notes=self._notes(member),
            )
        except SILENT:
            return None
        return parsing.messages(reply.text, len(self.team), member.number)

    async def _review_and_answer(
        self, member: Specialist
    ) -> tuple[Said | None, tuple[Said, str | None]]:
        feedback = await self._review(member) if self.settings.review else None
        return feedback, await self._answer(member, feedback)

    async def _review(self, member: Specialist) -> Said:
        """What the moderator, who has read everything, tells one member."""
        number = len(self.rounds)
        reply = await self.ask(
            "feedback",
            agent="Moderator",
            round=number,
            n=(number - 1) * len(self.team) + member.number - 1,
            max_tokens=self.settings.feedback_tokens,
            rounds=self.rounds,
            member=member,
        )
        return Said(member, reply.text)

    def _notes(self, member: Specialist) -> list[Note]:
        """Every message that `member` has sent or got."""
        return [
            note
            for part in self.rounds
            for note in part.notes
            if member in (note.sender, note.recipient)
        ]
