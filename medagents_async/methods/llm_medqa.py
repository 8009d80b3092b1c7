"""LLM-MedQA: MedAgents' consultation, with cases made up to illustrate the question.

Chen et al., arXiv 2501.05464, sections III-A to III-F and Algorithm 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from medagents_async import parsing
from medagents_async.fan_out import fan_out
from medagents_async.methods import method
from medagents_async.methods.consultation import Consultation
from medagents_async.methods.experts import recruit
from medagents_async.types import Ask, Completion, Count, Decision, Question, Temperature, Tokens

#: Section IV-B. The paper does not say how many experts, rounds and words there are.
PAPER: dict[str, Any] = {"temperature": 0.0, "top_p": 1.0}
NO_CASES: dict[str, Any] = {**PAPER, "cases": 0}


@method(
    "llm-medqa",
    presets={"paper": PAPER, "no-cases": NO_CASES},
    calls="19 when all agree at once, 87 when nobody does; 18 and 86 without cases",
    depth="6 and 20",
)
@dataclass(frozen=True, kw_only=True)
class LLMMedQA(Consultation):
    """The fields are the method's parameters; calling it answers one question.

    `cases` counts calls, each of which makes up one or two cases; 0 is the ablation of Table II.
    `recruiting` is one call that names all fields, or as many calls as experts that name one
    field each, as the paper's template has it.
    """

    cases: Count = 1
    recruiting: Literal["together", "singly"] = "together"
    recruit_words: Count = 50  # the reply's limit that the template states (section III-A)
    accumulate_advice: bool = True  # as Algorithm 1 has
    temperature: Temperature = 0.0
    case_tokens: Tokens = 1024

    async def __call__(self, question: Question, ask: Ask) -> Decision:
        """The decision (section III-F) from the report that the experts have arrived at.

        Raises CallError when a call that it cannot do without has no usable reply.
        """
        ask = self.sampled(ask)
        # A case reads the question and its options only, so it waits for no expert.
        panel, cases = await fan_out(self.panel(ask, self.question_experts), self._cases(ask))
        reply = await ask("summarise", max_tokens=self.report_tokens, cases=cases, **panel.analyses)
        report, record = await self.agree(ask, panel.experts, _report(reply), _report)
        reply = await ask(
            "decide",
            round=record["rounds"],
            max_tokens=self.decision_tokens,
            choice=tuple(question.options) if self.constrain else (),
            report=report,
        )
        option = parsing.option(reply.text, question.options, cut=reply.truncated)
        return Decision(option, {**panel.detail, "cases": len(cases), **record})

    async def _cases(self, ask: Ask) -> Sequence[str]:
        """Made-up cases (section III-C)."""

        async def case(n: int) -> str:
            return (await ask("case", n=n, max_tokens=self.case_tokens)).text

        return await fan_out(*(case(n) for n in range(self.cases)))

    async def recruit(self, ask: Ask, stage: str, count: int) -> tuple[list[str], dict[str, int]]:
        """Exactly `count` fields and the record of how they came about (section III-A)."""

        async def fields(number: int, n: int) -> tuple[list[str], dict[str, int]]:
            return await recruit(
                ask, stage, number, max_tokens=self.recruit_tokens, words=self.recruit_words, n=n
            )

        if self.recruiting == "together":
            return await fields(count, 0)
        replies = await fan_out(*(fields(1, n) for n in range(count)))
        record: Counter[str] = Counter(dict.fromkeys(replies[0][1], 0))
        for _, part in replies:
            record.update(part)
        return [names[0] for names, _ in replies], dict(record)


def _report(reply: Completion) -> str:
    """The report (section III-D) as every later call sees it."""
    knowledge, analysis = parsing.sections(reply.text)
    total = f"Total Analysis: {analysis}"
    return total if knowledge is None else f"Key Knowledge: {knowledge}\n\n{total}"
