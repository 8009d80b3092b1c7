"""MedAgents: a panel of specialists writes, votes on and revises a report, then decides.

Tang et al., arXiv 2311.10537, sections 2.1 to 2.5 and Algorithm 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from medagents_async import parsing
from medagents_async.methods import method
from medagents_async.methods.consultation import Consultation
from medagents_async.types import Ask, Completion, Count, Decision, Question

Stages = Literal["direct", "cot", "analysis", "summary", "consultation"]

PUBMEDQA_OPTIONS = {"yes", "no", "maybe"}

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

#: The paper's stages at a fraction of its cost: siblings share the longest prefix, votes and the
#: choice are one word each, and replies are no longer than what the next stage makes use of.
FAST: dict[str, Any] = PAPER | {
    "layout": "shared-prefix",
    "constrain": True,
    "trim_analyses": True,
    "recruit_tokens": 64,
    "analysis_tokens": 200,
    "report_tokens": 400,
    "vote_tokens": 4,
    "advice_tokens": 128,
    "decision_tokens": 8,
}
#: How far each row of Table 3 goes.
ABLATION = {
    stages: PAPER | {"stages": stages} for stages in ("direct", "cot", "analysis", "summary")
}


@method(
    "medagents",
    presets={"paper": PAPER, "code": CODE, "fast": FAST, **ABLATION},
    calls="18 when all agree at once; 86 when nobody does, 56 with preset code",
    depth="6; 20, 14 with preset code",
)
@dataclass(frozen=True, kw_only=True)
class MedAgents(Consultation):
    """The fields are the method's parameters; calling it answers one question.

    `stages` is how far to go, as in the ablation of Table 3: `direct` and `cot` are one call;
    `analysis` decides from the experts' analyses, `summary` from the report, `consultation` from
    the report after up to `rounds` rounds of votes. The numbers of experts are those of Tables 5
    and 7 and Figure 3, `domains` and `option_domains` what Table 6 varies.
    """

    stages: Stages = "consultation"
    pubmedqa_question_experts: Count = 4  # where the options are yes, no and maybe (section 3.1)
    keep_key_knowledge: bool = True
    question_in_report: bool = False  # True: voters see the question and its options, too
    moderator_roles: bool = True  # False: revision and decision have no system message
    repeat_option_task: bool = False  # True: the task follows each analysis, not just the last
    trim_analyses: bool = False

    async def __call__(self, question: Question, ask: Ask) -> Decision:
        """The decision (section 2.5), from what the stages before it have to offer.

        Raises CallError when a call that it cannot do without has no usable reply.
        """
        ask = partial(
            self.sampled(ask),
            show_question=self.question_in_report,
            keep_key_knowledge=self.keep_key_knowledge,
            moderator_roles=self.moderator_roles,
        )
        if self.stages in ("direct", "cot"):
            return await self._choose(question, ask, {}, self.stages)
        panel = await self.panel(
            ask,
            self._experts_on(question),
            trim=self.trim_analyses,
            repeat_task=self.repeat_option_task,
        )
        detail = panel.detail
        if self.stages == "analysis":
            return await self._choose(question, ask, detail, "decide_analyses", **panel.analyses)
        report = self._report(
            await ask("summarise", max_tokens=self.report_tokens, **panel.analyses)
        )
        if self.stages == "consultation":
            report, record = await self.agree(ask, panel.experts, report, self._report)
            detail |= record
        return await self._choose(question, ask, detail, "decide", report=report)

    def _experts_on(self, question: Question) -> int:
        answers = {text.strip().lower() for text in question.options.values()}
        return (
            self.pubmedqa_question_experts if answers == PUBMEDQA_OPTIONS else self.question_experts
        )

    async def _choose(
        self, question: Question, ask: Ask, detail: dict[str, Any], template: str, **fields: Any
    ) -> Decision:
        constrained = self.constrain and template != "cot"  # which is to think first
        reply = await ask(
            "decide",
            template=template,
            round=detail.get("rounds", 0),
            max_tokens=self.decision_tokens,
            choice=tuple(question.options) if constrained else (),
            **fields,
        )
        return Decision(parsing.option(reply.text, question.options, cut=reply.truncated), detail)

    def _report(self, reply: Completion) -> str:
        """The report (section 2.3) as every later call sees it."""
        knowledge, analysis = parsing.sections(reply.text)
        parts = [f"Total Analysis: {analysis}"]
        if knowledge is not None and self.keep_key_knowledge:
            parts.insert(0, f"Key Knowledge: {knowledge}")
        return "\n\n".join(parts)
