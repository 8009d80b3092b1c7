"""One run's summary as tables."""

from __future__ import annotations

from collections.abc import Iterator

from medagents_async.reporting.layout import Cell, Quantity, Table
from medagents_async.scoring.accuracy import Score
from medagents_async.scoring.cost import Amount
from medagents_async.scoring.summary import Summary

#: Stands beside every accuracy.
HIDDEN = ("answered", "errors", "unparsed", "truncated")


def accuracy(score: Score) -> Quantity:
    """An accuracy with its interval."""
    return Quantity(score.accuracy, interval=score.interval)


def hidden(score: Score) -> tuple[Cell, ...]:
    """What an accuracy hides, in the order of `HIDDEN`."""
    rates = (score.answered, score.errors, score.unparsed, score.truncated)
    return tuple(Quantity(rate) for rate in rates)


def run(summary: Summary) -> Iterator[Table]:
    """The tables of one run; those that have nothing to say are left out."""
    yield _head(summary)
    if summary.repeats:
        yield Table(
            "Repeats",
            ("repeat", "accuracy"),
            [(str(n), Quantity(value)) for n, value in enumerate(summary.repeats.accuracies)],
        )
    if summary.subjects:
        yield _subjects(summary)
    yield _letters(summary)
    if summary.errors:
        yield Table("Errors", ("kind", "rows"), [*summary.errors.items()])
    yield _cost(summary)
    yield from _consultations(summary)
    yield Table(
        "Accuracy against tokens",
        ("tokens a question", "rows", "accuracy", *HIDDEN),
        [
            (
                f"{part.low:,}–{part.high:,}",
                part.score.rows,
                accuracy(part.score),
                *hidden(part.score),
            )
            for part in summary.by_tokens
        ],
        note="as many rows in each line, the cheapest first",
    )


def _head(summary: Summary) -> Table:
    score, repeats, macro = summary.score, summary.repeats, summary.macro
    facts = summary.run
    lines: list[tuple[str, Cell]] = [
        (name, str(facts[name]))
        for name in ("method", "preset", "model", "dataset", "seed")
        if facts[name] is not None
    ]
    lines += [
        ("questions", summary.questions),
        ("rows", score.rows),
        ("with an answer key", score.keyed),
        ("right", score.right),
        ("accuracy", accuracy(score)),
    ]
    if repeats:
        lines += [
            ("accuracy over repeats", Quantity(repeats.mean, sd=repeats.sd)),
            (
                "accuracy, interval by question",
                Quantity(score.accuracy, interval=repeats.clustered),
            ),
        ]
    lines += [
        ("error rate", Quantity(score.errors)),
        ("unparsed rate", Quantity(score.unparsed)),
        ("truncated rate", Quantity(score.truncated)),
        ("accuracy over answered", Quantity(score.answered)),
    ]
    if macro:
        lines += [
            ("macro precision", Quantity(macro.precision)),
            ("macro recall", Quantity(macro.recall)),
            ("macro F1", Quantity(macro.f1)),
        ]
    return Table(
        str(facts["name"]),
        ("", "value"),
        lines,
        note="errors and unparsed replies count as wrong; intervals are of 95 %",
    )


def _subjects(summary: Summary) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (name, score.rows, accuracy(score), *hidden(score))
        for name, score in summary.subjects.items()
    ]
    rows.append(("unweighted mean", None, Quantity(summary.subject_mean), *[None] * len(HIDDEN)))
    return Table("Subjects", ("subject", "rows", "accuracy", *HIDDEN), rows)


def _letters(summary: Summary) -> Table:
    return Table(
        "Predictions against the answer key",
        ("letter", "predicted", "key"),
        [(each.letter or "none", each.predicted, each.key) for each in summary.letters],
    )


def _cost(summary: Summary) -> Table:
    cost = summary.cost

    def line(name: str, amount: Amount) -> tuple[Cell, ...]:
        return (name, amount.mean, amount.median, amount.p95, amount.total)

    rows: list[tuple[Cell, ...]] = [
        line("calls", cost.calls),
        line("prompt tokens", cost.prompt_tokens),
        line("of these cached", cost.cached_tokens),
        line("completion tokens", cost.completion_tokens),
        line("seconds", cost.seconds),
    ]
    each = max(summary.score.rows, 1)
    for name, total in (("GPU cost", cost.gpu_cost), ("token cost", cost.token_cost)):
        if total is not None:
            rows.append(
                (name, Quantity(total / each, "money"), None, None, Quantity(total, "money"))
            )
    if cost.gpu_hours is not None:
        rows.append(("GPU hours", cost.gpu_hours / each, None, None, cost.gpu_hours))
    return Table("Cost", ("of a question", "mean", "median", "p95", "in all"), rows)


def _consultations(summary: Summary) -> Iterator[Table]:
    found = summary.consultation
    if found.complexity:
        yield Table(
            "Complexity",
            ("level", "rows", "accuracy", *HIDDEN),
            [
                (level, score.rows, accuracy(score), *hidden(score))
                for level, score in found.complexity.items()
            ],
        )
    if found.rounds:
        share = "" if found.agreed is None else f"{found.agreed:.1%} ended in agreement"
        yield Table("Rounds", ("rounds", "rows"), [*found.rounds.items()], note=share or None)
    if found.votes:
        yield Table(
            "Votes on the report",
            ("round", "rows", "yes", "no", "unclear"),
            [(str(v.round), v.questions, v.yes, v.no, v.unclear) for v in found.votes],
        )
    if found.entropy:
        yield Table(
            f"Consensus entropy of {found.entropy_of}",
            ("round", "rows", "mean, bits"),
            [(str(each.round), each.questions, each.mean) for each in found.entropy],
            note="of the questions that came to that round; 0 is consensus",
        )
    if found.experts:
        yield Table(
            "Experts most often recruited",
            ("expert", "times"),
            found.experts,
            note=f"{found.distinct_experts:,} different ones in all",
        )
    flips = found.flips
    if flips:
        yield Table(
            "Flips by the consultation",
            ("first answer → decision", "rows"),
            [
                ("right → wrong", flips.right_to_wrong),
                ("wrong → right", flips.wrong_to_right),
                ("right → right", flips.stayed_right),
                ("wrong → wrong", flips.stayed_wrong),
            ],
        )
    elif found.rounds:
        yield Table(
            "Flips by the consultation",
            ("first answer → decision", "rows"),
            [("any", None)],
            note=found.no_flips,
        )
