"""What all methods have in common that ask for the answer itself, not for steps towards it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from medagents_async import parsing
from medagents_async.types import Ask, Question, Share, Temperature, Tokens

#: Tang et al., arXiv 2311.10537, section 3.1: for all generations.
PAPER: dict[str, Any] = {"temperature": 1.0, "top_p": 1.0}


@dataclass(frozen=True, kw_only=True)
class Answering:
    """The sampling of calls that answer the question."""

    temperature: Temperature = 0.0
    top_p: Share = 1.0
    answer_tokens: Tokens = 1024

    def sampled(self, ask: Ask) -> Ask:
        """`ask` with this method's sampling."""
        return partial(
            ask,
            temperature=self.temperature,
            top_p=self.top_p,
            max_tokens=self.answer_tokens,
        )

    async def answer(self, question: Question, ask: Ask, **fields: Any) -> str | None:
        """The option that one call names. Raises CallError when it has no usable reply."""
        reply = await self.sampled(ask)("answer", **fields)
        return parsing.option(reply.text, question.options, cut=reply.truncated)
