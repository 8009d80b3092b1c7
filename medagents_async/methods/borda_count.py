"""Borda count: each agent ranks the options, and the one with the most points wins.

A baseline of Kim et al., arXiv 2404.15155, Table 2.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal

from medagents_async import parsing
from medagents_async.methods import method
from medagents_async.methods.tally import leader
from medagents_async.methods.voters import Voters
from medagents_async.types import Ask, Decision, Question

Unlisted = Literal["average", "zero"]


def points(
    rankings: Iterable[Sequence[str]], options: Sequence[str], unlisted: Unlisted
) -> dict[str, float]:
    """Points of every option, in the question's order; none where there is no ranking.

    With K options the first place is worth K - 1 points, the next K - 2 and so on, however few a
    ranking lists. Options that it does not list share what is left of its points equally, as if
    each of their orders were as likely, or get none.
    """
    scores: dict[str, float] = {}
    last = len(options) - 1
    for ranking in rankings:
        rest = (last - len(ranking)) / 2 if unlisted == "average" else 0.0
        for option in options:
            place = ranking.index(option) if option in ranking else None
            scores[option] = scores.get(option, 0.0) + (rest if place is None else last - place)
    return scores


@method("borda-count", presets={"paper": {}}, calls="agents (5)", depth="1")
@dataclass(frozen=True, kw_only=True)
class BordaCount(Voters):
    """`unlisted` is what options get that a ranking leaves out.

    Of options with equal points the one wins that the earliest ballot ranks higher, in the order
    of the voters' numbers.
    """

    unlisted: Unlisted = "average"

    async def __call__(self, question: Question, ask: Ask) -> Decision:
        """Raises CallError where a call failed, and where no voter says a word."""
        ballots = [
            None
            if reply is None
            else parsing.ranking(reply.text, question.options, cut=reply.truncated)
            for reply in await self.ballots(ask, "rank")
        ]
        rankings = [ballot for ballot in ballots if ballot is not None]
        scores = points(rankings, [*question.options], self.unlisted)
        winner, tied = leader(scores, chain(*rankings, question.options))
        detail = {
            "rankings": dict(zip((voter.name for voter in self.panel), ballots, strict=True)),
            "points": scores,
            "invalid": len(ballots) - len(rankings),
            "tied": list(tied),
        }
        return Decision(winner, detail)
