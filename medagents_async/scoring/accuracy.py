"""Accuracy and its companions. An error or an unparsed reply is a wrong answer."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from medagents_async.scoring.intervals import Interval, clustered, spread, wilson
from medagents_async.scoring.records import Record

#: A run that gives one letter to so large a share of its answers is suspect …
ONE_LETTER = 0.9
#: … where it has this many answers, and where the key asks for the letter less often than this.
ENOUGH_ANSWERS = 10
ASKED_FOR = 0.75
WITHOUT_SUBJECT = "(no subject)"


@dataclass(frozen=True, slots=True)
class Score:
    """Accuracy, always with what it hides.

    `accuracy` is `right` of the `keyed` rows, those with an answer key, and `interval` Wilson's.
    `answered` is the named extra: the share of right ones among rows with a prediction. The rates
    are shares of all `rows`; `truncated` of those in which a reply was cut at a token limit.
    """

    rows: int
    keyed: int
    right: int
    accuracy: float | None
    interval: Interval | None
    answered: float | None
    errors: float
    unparsed: float
    truncated: float


def score(records: Sequence[Record]) -> Score:
    """The score of these rows; of none at all, too."""
    marks = [record.correct for record in records if record.correct is not None]
    answered = [r.correct for r in records if r.prediction is not None and r.correct is not None]
    statuses = Counter(record.status for record in records)
    return Score(
        rows=len(records),
        keyed=len(marks),
        right=sum(marks),
        accuracy=_share(sum(marks), len(marks)),
        interval=wilson(sum(marks), len(marks)),
        answered=_share(sum(answered), len(answered)),
        errors=_share(statuses["error"], len(records)) or 0.0,
        unparsed=_share(statuses["unparsed"], len(records)) or 0.0,
        truncated=_share(sum(record.truncated > 0 for record in records), len(records)) or 0.0,
    )


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def grouped(
    records: Iterable[Record], name: Callable[[Record], str | None]
) -> dict[str, list[Record]]:
    """Records by `name`, in the names' order, without those that have none."""
    groups: defaultdict[str, list[Record]] = defaultdict(list)
    for record in records:
        if (found := name(record)) is not None:
            groups[found].append(record)
    return dict(sorted(groups.items()))


def by_subject(records: Iterable[Record]) -> dict[str, Score]:
    """The score of each subject; empty where no row has one."""
    groups = grouped(records, lambda record: record.subject or WITHOUT_SUBJECT)
    return {} if [*groups] == [WITHOUT_SUBJECT] else {n: score(g) for n, g in groups.items()}


def unweighted_mean(values: Iterable[float | None]) -> float | None:
    """The mean over subjects or data sets, whatever their size: the papers' "Avg."."""
    some = [value for value in values if value is not None]
    return sum(some) / len(some) if some else None


@dataclass(frozen=True, slots=True)
class Repeats:
    """Accuracy of each repeat, their mean and standard deviation, the interval by question."""

    accuracies: list[float]
    mean: float
    sd: float | None
    clustered: Interval | None


def repeats(records: Sequence[Record]) -> Repeats | None:
    """None for a run without repeats, or without an answer key."""
    marks: defaultdict[int, list[bool]] = defaultdict(list)
    questions: defaultdict[str, list[bool]] = defaultdict(list)
    for record in records:
        if record.correct is not None:
            marks[record.repeat].append(record.correct)
            questions[record.id].append(record.correct)
    if len(marks) < 2:
        return None
    accuracies = [sum(marks[number]) / len(marks[number]) for number in sorted(marks)]
    interval = clustered((sum(each), len(each)) for each in questions.values())
    return Repeats(accuracies, *spread(accuracies), interval)


@dataclass(frozen=True, slots=True)
class Macro:
    """Means over `classes`, the letters in the answer key and in predictions."""

    precision: float
    recall: float
    f1: float
    classes: int


def macro(records: Iterable[Record]) -> Macro | None:
    """Macro precision, recall and F1; None without an answer key.

    Chen et al., arXiv 2501.05464, section IV-A and equation 9; the classes, and 0 where a share
    is of nothing, as in scikit-learn. A row without a prediction is missed for its own letter and
    a false alarm for none.
    """
    pairs = [(r.answer, r.prediction) for r in records if r.answer is not None]
    keys, said = Counter(key for key, _ in pairs), Counter(word for _, word in pairs if word)
    hits = Counter(key for key, word in pairs if key == word)
    classes = {*keys, *said}
    if not classes:
        return None
    precision = [hits[name] / said[name] if said[name] else 0.0 for name in classes]
    recall = [hits[name] / keys[name] if keys[name] else 0.0 for name in classes]
    f1 = [2 * hits[name] / (said[name] + keys[name]) for name in classes]
    means = [sum(values) / len(classes) for values in (precision, recall, f1)]
    return Macro(means[0], means[1], means[2], len(classes))


@dataclass(frozen=True, slots=True)
class Letter:
    """How many rows said it, and in how many it is the key; `letter` is None for no prediction."""

    letter: str | None
    predicted: int
    key: int


def letters(records: Sequence[Record]) -> list[Letter]:
    """Predictions against the answer key, over all rows, those without a prediction last."""
    said = Counter(record.prediction for record in records)
    keys = Counter(record.answer for record in records)
    names = sorted({name for name in (*said, *keys) if name is not None})
    counts = [Letter(name, said[name], keys[name]) for name in names]
    return [*counts, Letter(None, said[None], 0)] if said[None] else counts


def one_letter(histogram: Sequence[Letter]) -> Letter | None:
    """The letter that nearly all answers are, where the answer key does not ask for that."""
    named = [letter for letter in histogram if letter.letter is not None]
    said, keys = sum(each.predicted for each in named), sum(each.key for each in named)
    top = max(named, key=lambda each: each.predicted, default=None)
    if top is None or said < ENOUGH_ANSWERS or top.predicted < ONE_LETTER * said:
        return None
    return None if keys and top.key >= ASKED_FOR * keys else top


@dataclass(frozen=True, slots=True)
class Bin:
    """Rows that took between `low` and `high` tokens."""

    low: int
    high: int
    score: Score


def by_tokens(records: Sequence[Record], bins: int = 4) -> list[Bin]:
    """Accuracy against tokens: as many rows in each bin, as far as that goes; the cheap first."""
    ordered = sorted(records, key=lambda record: record.tokens)
    edges = np.linspace(0, len(ordered), bins + 1).astype(int)
    parts = [ordered[low:high] for low, high in pairwise(edges)]
    return [Bin(part[0].tokens, part[-1].tokens, score(part)) for part in parts if part]


def error_kinds(records: Iterable[Record]) -> Mapping[str, int]:
    """How many rows ended in an error of each kind, the most frequent first."""
    kinds = Counter(record.error for record in records if record.error is not None)
    return dict(kinds.most_common())
