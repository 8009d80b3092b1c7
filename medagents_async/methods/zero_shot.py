"""Zero-shot: one call, the letter at once.

The baseline of Tang et al., arXiv 2311.10537, Table 1, and of Kim et al., arXiv 2404.15155,
section 4.1.
"""

from __future__ import annotations

from dataclasses import dataclass

from medagents_async.methods import method
from medagents_async.methods.answering import PAPER, Answering
from medagents_async.types import Ask, Decision, Question


@method(
    "zero-shot",
    presets={"paper": PAPER, "code": {"temperature": 0.0, "answer_tokens": 50}},
    calls="1",
    depth="1",
)
@dataclass(frozen=True, kw_only=True)
class ZeroShot(Answering):
    """Asks for the letter only."""

    constrain: bool = False  # True: the server allows only the letters

    async def __call__(self, question: Question, ask: Ask) -> Decision:
        """Raises CallError when the call has no usable reply."""
        choice = tuple(question.options) if self.constrain else ()
        return Decision(await self.answer(question, ask, choice=choice))
