"""Zero-shot chain of thought: one call that reasons before it answers.

The baseline of Tang et al., arXiv 2311.10537, Table 1. Its rows, with their traces, are also what
`medprompt` takes its exemplars' reasoning from.
"""

from __future__ import annotations

from dataclasses import dataclass

from medagents_async.methods import method
from medagents_async.methods.answering import PAPER, Answering
from medagents_async.types import Ask, Decision, Question


@method(
    "cot",
    presets={"paper": PAPER, "code": {"temperature": 0.0, "answer_tokens": 300}},
    calls="1",
    depth="1",
)
@dataclass(frozen=True, kw_only=True)
class ChainOfThought(Answering):
    """Asks for a chain of thought, then for the letter."""

    async def __call__(self, question: Question, ask: Ask) -> Decision:
        """Raises CallError when the call has no usable reply."""
        return Decision(await self.answer(question, ask))
