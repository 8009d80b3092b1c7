"""Majority voting: independent agents with roles answer, and the most frequent answer wins.

A baseline of Kim et al., arXiv 2404.15155, Table 2.
"""

from __future__ import annotations

from dataclasses import dataclass

from medagents_async.methods import method
from medagents_async.methods.samples import read
from medagents_async.methods.tally import plurality
from medagents_async.methods.voters import Voters
from medagents_async.types import Ask, Decision, Question


@method("majority-vote", presets={"paper": {}}, calls="agents (5)", depth="1")
@dataclass(frozen=True, kw_only=True)
class MajorityVote(Voters):
    """One vote each; ties as `tally.plurality` breaks them."""

    async def __call__(self, question: Question, ask: Ask) -> Decision:
        """Raises CallError where a call failed, and where no voter says a word."""
        replies = await self.ballots(ask, "answer")
        answers = [read(reply, question.options).option for reply in replies]
        tally = plurality(answers, question.options)
        named = zip((voter.name for voter in self.panel), answers, strict=True)
        return Decision(tally.winner, {"answers": dict(named), **tally.record()})
