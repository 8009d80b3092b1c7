"""A panel's consultation: specialists analyse, then vote on a report and revise it.

What MedAgents (Tang et al., arXiv 2311.10537, sections 2.1 to 2.4, Algorithm 1) and the methods
that build on it share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from medagents_async import parsing
from medagents_async.fan_out import fan_out
from medagents_async.methods.experts import (
    SILENT,
    Contribution,
    Expert,
    analyse,
    named,
    recruit,
)
from medagents_async.types import Ask, Completion, Count, Layout, Share, Temperature, Tokens

Vote = Literal["yes", "no", "unclear"]
VOTES = ("YES", "NO")

#: Turns a reply into the report as every later call sees it.
ReadReport = Callable[[Completion], str]


@dataclass(frozen=True, slots=True)
class Panel:
    """The experts, what they wrote, and what goes into the record of it."""

    experts: Sequence[Expert]
    question_analyses: Sequence[Contribution]
    option_analyses: Sequence[Contribution]
    detail: dict[str, Any]

    @property
    def analyses(self) -> dict[str, Any]:
        """By the names that templates give them."""
        return {
            "question_analyses": self.question_analyses,
            "option_analyses": self.option_analyses,
        }


@dataclass(frozen=True, kw_only=True)
class Consultation:
    """The parameters of a consultation, and its stages up to the agreed report.

    `domains` and `option_domains` force the fields and with them the number of experts; otherwise
    the model names `question_experts` and `option_experts` of them.
    """

    question_experts: Count = 5
    option_experts: Count = 2
    domains: list[str] | None = None
    option_domains: list[str] | None = None
    rounds: Count = 5
    accumulate_advice: bool = False  # True: a revision sees all earlier advice, as Algorithm 1 has
    unclear_vote: Vote = "no"  # what a vote counts as that stays unclear when asked again
    constrain: bool = False  # True: the server allows a vote only YES and NO, a choice only letters
    layout: Layout = "paper"
    temperature: Temperature = 1.0
    top_p: Share = 1.0
    recruit_tokens: Tokens = 256
    analysis_tokens: Tokens = 1024
    report_tokens: Tokens = 2048
    vote_tokens: Tokens = 64
    advice_tokens: Tokens = 1024
    decision_tokens: Tokens = 1024

    def sampled(self, ask: Ask) -> Ask:
        """`ask` as every call of this method uses it."""
        return partial(ask, layout=self.layout, temperature=self.temperature, top_p=self.top_p)

    # Expert gathering and analyses (sections 2.1 and 2.2)

    async def panel(self, ask: Ask, count: int, *, trim: bool = False, **options: Any) -> Panel:
        """`count` experts on the question and those on its options, and what they all write.

        An analysis waits for nothing that it does not read. `options` is what the prompts of the
        option experts show beside the analyses of the question.
        """
        write = partial(analyse, ask, max_tokens=self.analysis_tokens, trim=trim)

        async def question_side() -> tuple[
            list[Expert], Sequence[Contribution], dict[str, int] | None
        ]:
            fields, record = await self._fields(ask, "recruit_question", count, self.domains)
            experts = named(fields)
            return experts, await write("analyse_question", experts), record

        (
            (on_question, question_analyses, question_record),
            (option_fields, option_record),
        ) = await fan_out(
            question_side(),
            self._fields(ask, "recruit_option", self.option_experts, self.option_domains),
        )
        on_options = named(option_fields, beside=on_question)
        option_analyses = await write(
            "analyse_option", on_options, analyses=question_analyses, **options
        )
        # Not noted as replies arrive: their order must not show.
        detail = {
            "recruit_question": question_record,
            "recruit_option": option_record,
            "question_experts": [expert.name for expert in on_question],
            "option_experts": [expert.name for expert in on_options],
        }
        return Panel([*on_question, *on_options], question_analyses, option_analyses, detail)

    async def _fields(
        self, ask: Ask, stage: str, count: int, forced: list[str] | None
    ) -> tuple[list[str], dict[str, int] | None]:
        if forced is not None or count == 0:
            return list(forced or ()), None
        return await self.recruit(ask, stage, count)

    async def recruit(self, ask: Ask, stage: str, count: int) -> tuple[list[str], dict[str, int]]:
        """See `experts.recruit`."""
        return await recruit(ask, stage, count, max_tokens=self.recruit_tokens)

    # The consultation over the report (section 2.4, Algorithm 1)

    async def agree(
        self,
        ask: Ask,
        experts: Sequence[Expert],
        report: str,
        read: ReadReport,
    ) -> tuple[str, dict[str, Any]]:
        """The report after the consultation, and the record of its votes.

        Where the last round still has an objector, its revision goes to the decision without a
        vote, as in Algorithm 1.
        """
        advice: list[Contribution] = []
        votes: list[dict[str, Vote]] = []
        agreed = False
        while not agreed and len(votes) < self.rounds:
            number = len(votes) + 1
            opinions = await fan_out(
                *(
                    self._opinion(ask, report, expert, number, place, len(experts))
                    for place, expert in enumerate(experts)
                )
            )
            votes.append(
                {expert.name: vote for expert, (vote, _) in zip(experts, opinions, strict=True)}
            )
            fresh = [piece for _, piece in opinions if piece is not None]
            advice = [*advice, *fresh] if self.accumulate_advice else fresh
            agreed = not fresh
            if fresh:
                reply = await ask(
                    "revise",
                    round=number,
                    n=number - 1,
                    max_tokens=self.report_tokens,
                    report=report,
                    advice=advice,
                )
                report = read(reply)
        return report, {"rounds": len(votes), "agreed": agreed, "votes": votes}

    async def _opinion(
        self, ask: Ask, report: str, expert: Expert, number: int, place: int, size: int
    ) -> tuple[Vote, Contribution | None]:
        """A vote, and advice at once where it objects: no other vote has to be waited for."""
        n = (number - 1) * size + place
        speak = partial(ask, agent=expert.name, round=number, field=expert.field, report=report)
        # A second try is numbered after the first ones of all rounds: none depends on another.
        vote = await self._vote(speak, (n, self.rounds * size + n))
        if (self.unclear_vote if vote == "unclear" else vote) != "no":
            return vote, None
        reply = await speak("advise", n=n, max_tokens=self.advice_tokens)
        return vote, Contribution(expert.field, reply.text)

    async def _vote(self, speak: Ask, numbers: tuple[int, int]) -> Vote:
        """Asked once more, with the choice constrained, when the first reply is unclear."""
        first = VOTES if self.constrain else ()
        for choice, n in zip((first, VOTES), numbers, strict=True):
            try:
                reply = await speak("vote", n=n, max_tokens=self.vote_tokens, choice=choice)
            except SILENT:
                continue
            verdict = parsing.vote(reply.text)
            if verdict is not None:
                return "yes" if verdict else "no"
        return "unclear"
