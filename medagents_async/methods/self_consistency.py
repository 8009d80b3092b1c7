"""Self-consistency: many chains of thought, and the answer that most of them come to.

Wang et al., arXiv 2203.11171, with the settings of Tang et al., arXiv 2311.10537 (5 samples at
temperature 0.7), and of Kim et al., arXiv 2404.15155, section 4.4 (5 examples, 6 calls).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from medagents_async.methods import method
from medagents_async.methods.exemplars import Shots
from medagents_async.methods.samples import Samples, draw, refuse_copies
from medagents_async.methods.tally import plurality
from medagents_async.types import Ask, Count, Decision, Question, Temperature

PAPER: dict[str, Any] = {"samples": 5, "temperature": 0.7, "top_p": 1.0}
MDAGENTS: dict[str, Any] = {"samples": 6, "temperature": 0.7, "shots": 5}


@method(
    "self-consistency",
    presets={"paper": PAPER, "mdagents": MDAGENTS},
    calls="samples (5, 6 with preset mdagents); 1 with one_request",
    depth="1",
)
@dataclass(frozen=True, kw_only=True)
class SelfConsistency(Shots):
    """`samples` chains of thought for one prompt, zero-shot unless `shots` says otherwise."""

    samples: Samples = 5
    shots: Count = 0
    temperature: Temperature = 0.7
    one_request: bool = False  # True: one request for all samples, where the server can do that

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_copies(self.temperature, self.samples)

    async def __call__(self, question: Question, ask: Ask) -> Decision:
        """Raises CallError when a call failed, or no reply has a word."""
        shown, detail = self.shown(question)
        samples = await draw(
            self.sampled(ask),
            "answer",
            self.samples,
            question.options,
            one_request=self.one_request,
            exemplars=shown,
        )
        tally = plurality([sample.option for sample in samples], question.options)
        return Decision(tally.winner, detail | tally.record())
