"""Several runs side by side, as tables."""

from __future__ import annotations

from collections.abc import Iterator

from medagents_async.reporting.layout import Cell, Quantity, Table
from medagents_async.reporting.sections import HIDDEN, accuracy, hidden
from medagents_async.scoring.compare import Comparison, Pair

#: Flips that a screen shows of each pair.
SHOWN = 20
OUTCOME = ("shared", "only a right", "only b right", "b - a, points")


def comparison(found: Comparison, *, flips: bool = True) -> Iterator[Table]:
    """The tables of a comparison, the papers' first; `flips` lists them for each pair."""
    yield _systems(found)
    yield Table(
        "Runs",
        ("system", "data set", "rows", "accuracy", *HIDDEN, "calls", "tokens", "seconds", "cost"),
        [
            (
                each.system,
                each.dataset,
                each.score.rows,
                accuracy(each.score),
                *hidden(each.score),
                each.calls,
                each.tokens,
                each.seconds,
                Quantity(each.cost, "money"),
            )
            for each in found.standings
        ],
        note="calls, tokens and cost are means of a question, seconds its median",
    )
    yield _frontier(found)
    if not found.pairs:
        return
    yield Table(
        "Pairs",
        ("a", "b", "data set", *OUTCOME, "p", "p (Holm)"),
        [
            (
                pair.a,
                pair.b,
                pair.dataset,
                pair.result.shared,
                pair.result.only_a,
                pair.result.only_b,
                Quantity(pair.result.difference, "points", pair.result.interval),
                Quantity(pair.result.p, "p"),
                Quantity(pair.p_holm, "p"),
            )
            for pair in found.pairs
        ],
        note="McNemar's exact test; paired bootstrap of the difference, by question",
    )
    for pair in found.pairs:
        if len(pair.result.subjects) > 1:
            yield _subjects(pair)
        if flips and pair.result.flips:
            yield _flips(pair)


def _systems(found: Comparison) -> Table:
    cells = {(each.system, each.dataset): each for each in found.standings}
    average = ("Avg.",) if len(found.datasets) > 1 else ()
    rows: list[tuple[Cell, ...]] = []
    for system in found.systems:
        standings = [cells.get((system, dataset)) for dataset in found.datasets]
        row = tuple(
            # Of one run alone: its own interval, where several show their spread.
            None
            if each is None
            else accuracy(each.score)
            if each.sd is None
            else Quantity(each.mean, sd=each.sd)
            for each in standings
        )
        rows.append((system, *row, *(Quantity(found.averages[system]) for _ in average)))
    return Table(
        "Accuracy",
        ("system", *found.datasets, *average),
        rows,
        note="mean ± standard deviation over seeds and repeats, or one run's 95 % interval "
        "(Wilson); Avg. is unweighted",
    )


def _frontier(found: Comparison) -> Table:
    priced = all(each.cost is not None for each in found.standings)
    by_cost = sorted(
        found.standings,
        key=lambda each: (
            found.datasets.index(each.dataset),
            each.tokens if each.cost is None or not priced else each.cost,
        ),
    )
    return Table(
        "Accuracy against cost",
        ("system", "data set", "cost" if priced else "tokens", "accuracy", "on the frontier"),
        [
            (
                each.system,
                each.dataset,
                Quantity(each.cost, "money") if priced else each.tokens,
                Quantity(each.mean),
                "yes" if each.efficient else "no",
            )
            for each in by_cost
        ],
        note="on the frontier: nothing else here is as accurate for as little",
    )


def _named(pair: Pair) -> str:
    return f"a = {pair.a}, b = {pair.b}, {pair.dataset}"


def _subjects(pair: Pair) -> Table:
    return Table(
        f"By subject: {_named(pair)}",
        ("subject", *OUTCOME),
        [
            (
                name,
                each.shared,
                each.only_a,
                each.only_b,
                Quantity((each.only_b - each.only_a) / each.shared, "points"),
            )
            for name, each in pair.result.subjects.items()
        ],
    )


def _flips(pair: Pair) -> Table:
    return Table(
        f"Flips: {_named(pair)}",
        ("id", "repeat", "key", "a", "b", "right"),
        [
            (flip.id, str(flip.repeat), flip.answer, flip.a, flip.b, flip.right)
            for flip in pair.result.flips
        ],
        limit=SHOWN,
    )
