"""MedAgents: a panel of specialists writes, votes on and revises a report, then decides.

Tang et al., arXiv 2311.10537, sections 2.1 to 2.5 and Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from medagents_async import parsing
from medagents_async.fan_out import fan_out
from medagents_async.methods import method
from medagents_async.methods.experts import (
    SILENT,
    Contribution,
    Expert,
    analyse,
    named,
    recruit,
)
from medagents_async.types import (
    Ask,
    Completion,
    Count,
    Decision,
    Layout,
    Question,
    Share,
    Temperature,
    Tokens,
)

Stages = Literal["direct", "cot", "analysis", "summary", "consultation"]
Vote = Literal["yes", "no", "unclear"]

PUBMEDQA_OPTIONS = {"yes", "no", "maybe"}

VOTES = ("YES", "NO")

PAPER: dict[str, Any] = {"temperature": 1.0, "top_p": 1.0, "rounds": 5}
#: What the published code does where it differs from the paper.
CODE: dict[str, Any] = {
    "temperature": 0.0,
    "rounds": 3,
    "pubmedqa_question_experts": 5,
    "keep_key_knowledge": False,
    "question_in_report": True,
    "moderator_roles": False,
    "repeat_option_task": True,
    "unclear_vote": "yes",
    "trim_analyses": True,
    "recruit_tokens": 50,
    "analysis_tokens": 300,
    "report_tokens": 2500,
    "vote_tokens": 30,
    "advice_tokens": 500,
    "decision_tokens": 2500,
}


@method("medagents", presets={"paper": PAPER, "code": CODE})
@dataclass(frozen=True, kw_only=True)
class MedAgents:
    """The fields are the method's parameters; calling it answers one question.

    `stages` is how far to go, as in the ablation of Table 3: `direct` and `cot` are one call;
    `analysis` decides from the experts' analyses, `summary` from the report, `consultation` from
    the report after up to `rounds` rounds of votes. `domains` and `option_domains` force the
    fields and with them the number of experts (Table 6); otherwise the model names
    `question_experts` and `option_experts` of them (Tables 5 and 7, Figure 3).
    """

    stages: Stages = "consultation"
    question_experts: Count = 5
    pubmedqa_question_experts: Count = 4  # where the options are yes, no and maybe (section 3.1)
    option_experts: Count = 2
    domains: list[str] | None = None
    option_domains: list[str] | None = None
    rounds: Count = 5
    accumulate_advice: bool = False  # True: a revision sees all earlier advice, as Algorithm 1 has
    keep_key_knowledge: bool = True
    question_in_report: bool = False  # True: voters see the question and its options, too
    moderator_roles: bool = True  # False: revision and decision have no system message
    repeat_option_task: bool = False  # True: the task follows each analysis, not just the last
    unclear_vote: Vote = "no"  # what a vote counts as that stays unclear when asked again
    trim_analyses: bool = False
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

    async def __call__(self, question: Question, ask: Ask) -> Decision:
        """Raises CallError when a call that it cannot do without has no usable reply."""
        sampled = partial(ask, layout=self.layout, temperature=self.temperature, top_p=self.top_p)
        return await _Consultation(self, question, sampled).decide()


@dataclass
class _Consultation:
    """One question on its way through the stages."""

    settings: MedAgents
    question: Question
    ask: Ask
    detail: dict[str, Any] = field(default_factory=dict)

    async def decide(self) -> Decision:
        """The decision (section 2.5), from what the stages before it have to offer."""
        settings = self.settings
        if settings.stages in ("direct", "cot"):
            return await self._choose(settings.stages)
        experts, analyses = await self._panel()
        if settings.stages == "analysis":
            return await self._choose("decide_analyses", **analyses)
        reply = await self.ask("summarise", max_tokens=settings.report_tokens, **analyses)
        report = self._report(reply)
        if settings.stages == "consultation":
            report = await self._agree(experts, report)
        return await self._choose(
            "decide", report=report, question_in_report=settings.question_in_report
        )

    async def _choose(self, template: str, **fields: Any) -> Decision:
        constrained = self.settings.constrain and template != "cot"  # which is to think first
        reply = await self.ask(
            "decide",
            template=template,
            round=self.detail.get("rounds", 0),
            max_tokens=self.settings.decision_tokens,
            choice=tuple(self.question.options) if constrained else (),
            moderator_roles=self.settings.moderator_roles,
            **fields,
        )
        chosen = parsing.option(reply.text, self.question.options, cut=reply.truncated)
        return Decision(chosen, self.detail)

    # Expert gathering and analyses (sections 2.1 and 2.2)

    async def _panel(self) -> tuple[list[Expert], dict[str, Any]]:
        """All experts and what they wrote; an analysis waits for nothing that it does not read."""
        settings = self.settings
        write = partial(
            analyse, self.ask, max_tokens=settings.analysis_tokens, trim=settings.trim_analyses
        )
        count = settings.question_experts
        if {text.strip().lower() for text in self.question.options.values()} == PUBMEDQA_OPTIONS:
            count = settings.pubmedqa_question_experts

        async def question_side() -> tuple[
            list[Expert], Sequence[Contribution], dict[str, int] | None
        ]:
            fields, record = await self._fields("recruit_question", count, settings.domains)
            experts = named(fields)
            return experts, await write("analyse_question", experts), record

        (
            (on_question, question_analyses, question_record),
            (option_fields, option_record),
        ) = await fan_out(
            question_side(),
            self._fields("recruit_option", settings.option_experts, settings.option_domains),
        )
        on_options = named(option_fields, beside=on_question)
        option_analyses = await write(
            "analyse_option",
            on_options,
            analyses=question_analyses,
            repeat_task=settings.repeat_option_task,
        )
        # Not noted as replies arrive: their order must not show.
        self.detail |= {"recruit_question": question_record, "recruit_option": option_record}
        self.detail["question_experts"] = [expert.name for expert in on_question]
        self.detail["option_experts"] = [expert.name for expert in on_options]
        return [*on_question, *on_options], {
            "question_analyses": question_analyses,
            "option_analyses": option_analyses,
        }

    async def _fields(
        self, stage: str, count: int, forced: list[str] | None
    ) -> tuple[list[str], dict[str, int] | None]:
        if forced is not None or count == 0:
            return list(forced or ()), None
        return await recruit(self.ask, stage, count, max_tokens=self.settings.recruit_tokens)

    # The report and the consultation over it (sections 2.3 and 2.4, Algorithm 1)

    def _report(self, reply: Completion) -> str:
        """The report as every later call sees it."""
        knowledge, analysis = parsing.sections(reply.text)
        parts = [f"Total Analysis: {analysis}"]
        if knowledge is not None and self.settings.keep_key_knowledge:
            parts.insert(0, f"Key Knowledge: {knowledge}")
        if self.settings.question_in_report:
            question = self.question
            options = "\n".join(f"({letter}) {text}" for letter, text in question.options.items())
            parts[:0] = [f"Question: {question.text}", f"Options:\n{options}"]
            if question.context:
                parts.insert(0, f"Context: {question.context}")
        return "\n\n".join(parts)

    async def _agree(self, experts: Sequence[Expert], report: str) -> str:
        """The report after the consultation.

        Where the last round still has an objector, its revision goes to the decision without a
        vote, as in Algorithm 1.
        """
        settings = self.settings
        advice: list[Contribution] = []
        votes: list[dict[str, Vote]] = []
        agreed = False
        while not agreed and len(votes) < settings.rounds:
            number = len(votes) + 1
            opinions = await fan_out(
                *(
                    self._opinion(report, expert, number, place, len(experts))
                    for place, expert in enumerate(experts)
                )
            )
            votes.append(
                {expert.name: vote for expert, (vote, _) in zip(experts, opinions, strict=True)}
            )
            fresh = [piece for _, piece in opinions if piece is not None]
            advice = [*advice, *fresh] if settings.accumulate_advice else fresh
            agreed = not fresh
            if fresh:
                report = await self._revise(report, advice, number)
        self.detail |= {"rounds": len(votes), "agreed": agreed, "votes": votes}
        return report

    async def _opinion(
        self, report: str, expert: Expert, number: int, place: int, size: int
    ) -> tuple[Vote, Contribution | None]:
        """A vote, and advice at once where it objects: no other vote has to be waited for."""
        n = (number - 1) * size + place
        # A second try is numbered after the first ones of all rounds: none depends on another.
        vote = await self._vote(report, expert, number, (n, self.settings.rounds * size + n))
        if (self.settings.unclear_vote if vote == "unclear" else vote) != "no":
            return vote, None
        reply = await self.ask(
            "advise",
            agent=expert.name,
            round=number,
            n=n,
            max_tokens=self.settings.advice_tokens,
            field=expert.field,
            report=report,
        )
        return vote, Contribution(expert.field, reply.text)

    async def _vote(
        self, report: str, expert: Expert, number: int, numbers: tuple[int, int]
    ) -> Vote:
        """Asked once more, with the choice constrained, when the first reply is unclear."""
        first = VOTES if self.settings.constrain else ()
        for choice, n in zip((first, VOTES), numbers, strict=True):
            try:
                reply = await self.ask(
                    "vote",
                    agent=expert.name,
                    round=number,
                    n=n,
                    max_tokens=self.settings.vote_tokens,
                    choice=choice,
                    field=expert.field,
                    report=report,
                )
            except SILENT:
                continue
            verdict = parsing.vote(reply.text)
            if verdict is not None:
                return "yes" if verdict else "no"
        return "unclear"

    async def _revise(self, report: str, advice: Sequence[Contribution], number: int) -> str:
        reply = await self.ask(
            "revise",
            round=number,
            n=number - 1,
            max_tokens=self.settings.report_tokens,
            report=report,
            advice=advice,
            keep_key_knowledge=self.settings.keep_key_knowledge,
            moderator_roles=self.settings.moderator_roles,
        )
        return self._report(reply)
