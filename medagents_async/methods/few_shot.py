"""Few-shot: solved questions first, then one call for the letter.

The baseline of Tang et al., arXiv 2311.10537, Table 1 (five examples), and of Kim et al.,
arXiv 2404.15155, section 4.1 (three).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from medagents_async.methods import method
from medagents_async.methods.answering import PAPER
from medagents_async.methods.exemplars import Shots
from medagents_async.types import Ask, Decision, Question

PRESETS: dict[str, dict[str, Any]] = {"paper": PAPER, "mdagents": {"shots": 3}}


@method("few-shot", presets=PRESETS, calls="1", depth="1")
@dataclass(frozen=True, kw_only=True)
class FewShot(Shots):
    """The examples show their answers only."""

    think = False

    async def __call__(self, question: Question, ask: Ask) -> Decision:
        """Raises CallError when the call has no usable reply."""
        shown, detail = self.shown(question)
        return Decision(await self.answer(question, ask, exemplars=shown), detail)
