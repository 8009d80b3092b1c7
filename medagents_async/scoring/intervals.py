"""Intervals for a share of right answers. All are of 95 % unless said otherwise."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """Both ends are shares of 1, or differences between such."""

    low: float
    high: float


def wilson(right: int, count: int, confidence: float = CONFIDENCE) -> Interval | None:
    """The score interval of a binomial share, for independent rows; None without any.

    Wilson, JASA 22 (1927) 209-212, without continuity correction.
    """
    if count == 0:
        return None
    found = scipy.stats.binomtest(right, count).proportion_ci(confidence, method="wilson")
    return Interval(float(found.low), float(found.high))


def clustered(
    clusters: Iterable[tuple[int, int]], confidence: float = CONFIDENCE
) -> Interval | None:
    """The interval of a share whose rows are alike within clusters: repeats of one question.

    `clusters` has (right, rows) of each question. The standard error is the cluster-robust one of
    a mean (Liang and Zeger, Biometrika 73 (1986) 13-22; for evaluations Miller, arXiv 2411.00640),
    its square times the usual G / (G - 1) for G clusters, with Student's t of G - 1 degrees.
    Cut off at 0 and 1. None for fewer than two clusters.
    """
    right, rows = np.array([*clusters], dtype=float).reshape(-1, 2).T
    groups = len(rows)
    if groups < 2:
        return None
    share = right.sum() / rows.sum()
    residuals = right - share * rows
    error = np.sqrt(groups / (groups - 1) * np.square(residuals).sum()) / rows.sum()
    reach = float(scipy.stats.t.ppf((1 + confidence) / 2, groups - 1) * error)
    return Interval(max(0.0, float(share) - reach), min(1.0, float(share) + reach))


def spread(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and sample standard deviation (n - 1 below), None for a single value."""
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else None
