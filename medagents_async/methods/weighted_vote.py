"""Weighted voting: each agent says how sure it is, and its vote weighs as much.

A baseline of Kim et al., arXiv 2404.15155, Table 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Le

from medagents_async import parsing
from medagents_async.methods import method
from medagents_async.methods.samples import read
from medagents_async.methods.tally import plurality
from medagents_async.methods.voters import Voters
from medagents_async.types import Ask, Decision, Question

Percent = Annotated[int, Ge(0), Le(100)]


@method("weighted-vote", presets={"paper": {}}, calls="agents (5)", depth="1")
@dataclass(frozen=True, kw_only=True)
class WeightedVote(Voters):
    """Weights are whole percents, so that their sums are exact and ties are ties.

    `unstated_confidence` is the weight, in percent, of an answer without a readable one.
    """

    unstated_confidence: Percent = 50

    async def __call__(self, question: Question, ask: Ask) -> Decision:
        """Raises CallError where a call failed, and where no voter says a word."""
        samples = [read(reply, question.options) for reply in await self.ballots(ask, "answer")]
        stated = [parsing.confidence(sample.text) for sample in samples]
        percents = [None if share is None else round(100 * share) for share in stated]
        answers = [sample.option for sample in samples]
        weights = [self.unstated_confidence if part is None else part for part in percents]
        tally = plurality(answers, question.options, weights)
        names = [voter.name for voter in self.panel]
        detail = {
            "answers": dict(zip(names, answers, strict=True)),
            "confidences": dict(zip(names, percents, strict=True)),
            **tally.record(),
        }
        return Decision(tally.winner, detail)
