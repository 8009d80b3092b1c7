"""MDAgents: a triage decides whether one clinician, a team or several teams answer.

Kim et al., arXiv 2404.15155, section 3 and Algorithm 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

from medagents_async import parsing
from medagents_async.methods import method
from medagents_async.methods.exemplars import Shots
from medagents_async.methods.experts import SILENT
from medagents_async.methods.mdagents_high import CareTeams
from medagents_async.methods.mdagents_moderate import Discussion
from medagents_async.methods.passages import Corpus, corpus
from medagents_async.methods.samples import poll, read
from medagents_async.methods.tally import plurality
from medagents_async.types import Ask, Count, Decision, Layout, Question, Temperature, Tokens

#: The settings of the published code where they differ; its faults are not settings.
CODE: dict[str, Any] = {"rounds": 5, "turns": 5, "review": False, "shots": 5}


@method(
    "mdagents",
    presets={
        "paper": {},
        "code": CODE,
        "no-review": {"review": False},
        "ensemble": {"decision_temperatures": [0.0, 0.3, 0.7, 1.0, 1.2]},
    },
    calls="2 low; 8 to 53 moderate; 15 high",
    depth="2 low; 4 to 13 moderate; 12 high",
)
@dataclass(frozen=True, kw_only=True)
class MDAgents(Discussion, CareTeams, Shots):
    """The fields are the method's parameters; calling it answers one question.

    `complexity` forces a path (Figure 5), without a triage. `corpus` names a JSONL file whose
    passages, the `passages` best for the question, are shown to everyone who answers (Table 3).
    `decision_temperatures` are those of the final answers, whose plurality is the decision
    (section 3.5); `temperature` is that of all other calls.
    """

    complexity: Literal["auto", "low", "moderate", "high"] = "auto"
    corpus: Path | None = None
    passages: Count = 3
    decision_temperatures: list[Temperature] | None = None  # None: 0 alone
    shots: Count = 3
    layout: Layout = "paper"
    temperature: Temperature = 1.0
    triage_tokens: Tokens = 256
    decision_tokens: Tokens = 1024

    def __post_init__(self) -> None:
        """Raises UsageError where exemplars or corpus cannot be used."""
        super().__post_init__()
        _ = self.library

    @cached_property
    def library(self) -> Corpus | None:
        """What knowledge is retrieved from."""
        return corpus(self.corpus) if self.corpus and self.passages else None

    async def __call__(self, question: Question, ask: Ask) -> Decision:
        """Raises CallError when a call that it cannot do without has no usable reply."""
        ask = partial(self.sampled(ask), layout=self.layout)
        level, triage = await self._triage(ask)
        found = self.library.about(question.text, self.passages) if self.library else []
        shown = {"passages": [passage.text for passage in found]}
        detail: dict[str, Any] = {"complexity": level, "triage": triage}
        if self.library:
            detail["passages"] = [passage.id for passage in found]
        decide = partial(self._decide, question, partial(ask, **shown))
        if level == "low":
            exemplars, record = self.shown(question)
            option, tally = await decide(
                "answer", "answer_primary", agent="Primary Care Clinician", exemplars=exemplars
            )
        elif level == "moderate":
            rounds, record = await self.discussion(question, ask, **shown)
            option, tally = await decide(
                "decide", "decide_discussion", round=len(rounds), rounds=rounds
            )
        else:
            reports, record = await self.reports(ask, **shown)
            option, tally = await decide(
                "decide", "decide_reports", round=len(reports), reports=reports
            )
        return Decision(option, {**detail, **record, **tally})

    async def _triage(self, ask: Ask) -> tuple[str, str]:
        """The level (section 3.2), and how it came about; moderate where the reply is unclear."""
        if self.complexity != "auto":
            return self.complexity, "forced"
        try:
            reply = await ask("triage", agent="Moderator", max_tokens=self.triage_tokens)
        except SILENT:
            return "moderate", "unclear"
        level = parsing.complexity(reply.text)
        return (level, "clear") if level else ("moderate", "unclear")

    async def _decide(
        self, question: Question, ask: Ask, stage: str, template: str, **fields: Any
    ) -> tuple[str | None, dict[str, Any]]:
        """The final answer (section 3.5), and the record where it is an ensemble's."""
        temperatures = self.decision_temperatures or [0.0]
        speak = partial(ask, stage, template=template, max_tokens=self.decision_tokens)
        replies = await poll(
            *(
                speak(n=n, temperature=temperature, **fields)
                for n, temperature in enumerate(temperatures)
            )
        )
        options = [read(reply, question.options).option for reply in replies]
        tally = plurality(options, question.options)
        record = {"ensemble": {"options": options, **tally.record()}} if len(options) > 1 else {}
        return tally.winner, record
