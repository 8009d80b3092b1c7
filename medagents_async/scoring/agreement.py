"""How far the members of a panel agree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import log2


def entropy(counts: Iterable[float]) -> float | None:
    """H = -sum p log2 p in bits, over the distinct answers of a round; 0 is consensus.

    Kim et al., arXiv 2404.15155, equation B.1. None where there is no answer at all.
    """
    some = [count for count in counts if count > 0]
    total = sum(some)
    return sum(count / total * log2(total / count) for count in some) if some else None


def plurality(ballots: Mapping[str, float]) -> str | None:
    """The answer with the most ballots; of equals the one that comes first in `ballots`."""
    return max(ballots, key=ballots.__getitem__, default=None)
