"""Ensemble refinement: chains of thought, then refined ones that have read them all, then a vote.

Singhal et al., arXiv 2305.09617 (Med-PaLM 2), section 3.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from medagents_async.methods import method
from medagents_async.methods.exemplars import Shots
from medagents_async.methods.samples import Samples, draw, refuse_copies
from medagents_async.methods.tally import plurality
from medagents_async.types import Ask, Decision, Question, Temperature

PAPER: dict[str, Any] = {"drafts": 11, "refinements": 33}
SCALED: dict[str, Any] = {"drafts": 5, "refinements": 9}
#: The reimplementation in DebateLLM (arXiv 2311.17371); the paper's own code is not public.
CODE: dict[str, Any] = {
    "drafts": 3,
    "refinements": 1,
    "refine_temperature": 0.5,
    "refine_shots": False,
    "top_p": 0.5,
    "answer_tokens": 300,
}


@method(
    "ensemble-refinement",
    presets={"paper": PAPER, "scaled": SCALED, "code": CODE},
    calls="drafts + refinements (44, 14 with preset scaled, 4 with code); 2 with one_request",
    depth="2",
)
@dataclass(frozen=True, kw_only=True)
class EnsembleRefinement(Shots):
    """`drafts` chains of thought, and `refinements` that see all of them and vote."""

    drafts: Samples = 11
    refinements: Samples = 33
    temperature: Temperature = 0.7
    refine_temperature: Temperature = 0.7
    refine_shots: bool = True  # whether refinements see the examples, too
    one_request: bool = False  # True: one request for all samples of a stage

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_copies(self.temperature, self.drafts)
        refuse_copies(self.refine_temperature, self.refinements)

    async def __call__(self, question: Question, ask: Ask) -> Decision:
        """Raises CallError when a call failed, or no reply of a stage has a word."""
        shown, detail = self.shown(question)
        sampled = partial(
            draw, self.sampled(ask), options=question.options, one_request=self.one_request
        )
        drafts = await sampled(stage="answer", count=self.drafts, exemplars=shown)
        refined = await sampled(
            stage="refine",
            count=self.refinements,
            temperature=self.refine_temperature,
            exemplars=shown if self.refine_shots else (),
            drafts=[draft.text for draft in drafts if draft.text],
        )
        first, final = (
            plurality([sample.option for sample in stage], question.options)
            for stage in (drafts, refined)
        )
        return Decision(final.winner, detail | {"drafts": first.record()} | final.record())
