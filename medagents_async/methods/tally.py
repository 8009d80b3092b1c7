"""Counting votes: the same winner whatever the order of arrival, and no vote from no answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Tally:
    """`votes` maps each option that got any to what it got, in the question's order.

    `winner` is None where nobody named an option; `invalid` counts the ballots that did not;
    `tied` are the options that shared the first place, empty where one had it alone.
    """

    winner: str | None
    votes: Mapping[str, float]
    invalid: int
    tied: tuple[str, ...]

    def record(self) -> dict[str, Any]:
        """What goes into a row's `detail`."""
        return {"votes": dict(self.votes), "invalid": self.invalid, "tied": list(self.tied)}


def plurality(
    ballots: Sequence[str | None],
    options: Iterable[str],
    weights: Sequence[float] | None = None,
) -> Tally:
    """The option with the most votes, or with the most weight; a plurality is enough.

    `ballots` are letters, or None for a reply that names no option, in the order of the calls'
    numbers. Of options with equal votes the one wins that the earliest of these ballots names:
    fixed like the numbers, and in favour of no letter.
    """
    weighed = list(zip(ballots, weights or [1] * len(ballots), strict=True))
    votes = {
        option: sum(weight for ballot, weight in weighed if ballot == option)
        for option in options
        if option in ballots
    }
    winner, tied = leader(votes, [ballot for ballot in ballots if ballot is not None])
    return Tally(winner, votes, sum(ballot is None for ballot in ballots), tied)


def leader(
    scores: Mapping[str, float], preference: Iterable[str]
) -> tuple[str | None, tuple[str, ...]]:
    """The option with the highest score, and which ones share it, empty where none do.

    Of those that share it the first in `preference` leads, which must name one of them. None
    where there are no scores.
    """
    best = [option for option, score in scores.items() if score == max(scores.values())]
    if len(best) < 2:
        return (best[0] if best else None), ()
    return next(option for option in preference if option in best), tuple(best)
