"""What a run took: calls, tokens, time, money."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from medagents_async.scoring.records import Record


@dataclass(frozen=True, slots=True)
class Rates:
    """Prices in any one currency: of a GPU's hour, and of a million tokens in and out.

    A server's cached prompt tokens cost as much as others.
    """

    gpu_hour: float | None = None
    gpus: int = 1
    tokens_in: float | None = None
    tokens_out: float | None = None


@dataclass(frozen=True, slots=True)
class Amount:
    """A run's total, and what one (question, repeat) took."""

    total: float
    mean: float
    median: float
    p95: float


@dataclass(frozen=True, slots=True)
class Cost:
    """`seconds` of a question run from its first call to its outcome, beside many others.

    `wall_s` is how long the whole run took, estimated from the pace of its last part where it was
    resumed (`wall_estimated`). Costs are totals in the currency of the rates, None where their
    rate or the time is not known; `gpu_cost` is GPU-hours x rate.
    """

    calls: Amount
    prompt_tokens: Amount
    completion_tokens: Amount
    cached_tokens: Amount
    seconds: Amount
    retries: int
    wall_s: float | None
    wall_estimated: bool
    gpu_hours: float | None
    gpu_cost: float | None
    token_cost: float | None


def amount(records: Sequence[Record], value: Callable[[Record], float]) -> Amount:
    """Of no rows: zeros. The 95th percentile is interpolated."""
    values = np.array([value(record) for record in records] or [0.0])
    median, p95 = np.quantile(values, (0.5, 0.95))
    return Amount(float(values.sum()), float(values.mean()), float(median), float(p95))


def cost(
    records: Sequence[Record],
    rates: Rates,
    wall_s: float | None = None,
    *,
    estimated: bool = False,
) -> Cost:
    """What these rows took, at these rates."""
    prompt = amount(records, lambda record: record.prompt_tokens)
    completion = amount(records, lambda record: record.completion_tokens)
    hours = None if wall_s is None else wall_s / 3600 * rates.gpus
    priced = rates.tokens_in is not None or rates.tokens_out is not None
    tokens = prompt.total * (rates.tokens_in or 0) + completion.total * (rates.tokens_out or 0)
    return Cost(
        calls=amount(records, lambda record: record.calls),
        prompt_tokens=prompt,
        completion_tokens=completion,
        cached_tokens=amount(records, lambda record: record.cached_tokens),
        seconds=amount(records, lambda record: record.seconds),
        retries=sum(record.retries for record in records),
        wall_s=wall_s,
        wall_estimated=estimated,
        gpu_hours=hours,
        gpu_cost=None if hours is None or rates.gpu_hour is None else hours * rates.gpu_hour,
        token_cost=tokens / 1e6 if priced else None,
    )


def frontier(points: Sequence[tuple[float, float]]) -> list[bool]:
    """Which (cost, accuracy) points no other one beats.

    One is beaten by another that costs no more and is no less accurate, and better in either.
    """
    return [
        not any(
            other_cost <= cost and other >= accuracy and (other_cost, other) != (cost, accuracy)
            for other_cost, other in points
        )
        for cost, accuracy in points
    ]
