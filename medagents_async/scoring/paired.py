"""Two runs on the same questions."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy

from medagents_async.scoring.accuracy import WITHOUT_SUBJECT
from medagents_async.scoring.intervals import CONFIDENCE, Interval
from medagents_async.scoring.records import Record

RESAMPLES = 10_000


@dataclass(frozen=True, slots=True)
class Flip:
    """A (question, repeat) that one of two runs has right; the predictions are None for none."""

    id: str
    repeat: int
    answer: str
    a: str | None
    b: str | None
    right: Literal["a", "b"]


@dataclass(frozen=True, slots=True)
class Subject:
    """Questions of one subject that only one of two runs has right, of `shared` ones."""

    shared: int
    only_a: int
    only_b: int


@dataclass(frozen=True, slots=True)
class Paired:
    """What two runs did with the `shared` (question, repeat) that both have, with answer key.

    `difference` is accuracy of b minus that of a, with its bootstrap interval by question; `p` is
    McNemar's, exact.
    """

    questions: int
    shared: int
    both_right: int
    only_a: int
    only_b: int
    both_wrong: int
    difference: float
    interval: Interval
    p: float
    subjects: dict[str, Subject]
    flips: list[Flip]


def mcnemar(only_a: int, only_b: int) -> float:
    """Two-sided exact p of the discordant pairs under a fair coin; 1 where there are none.

    McNemar, Psychometrika 12 (1947) 153-157, with the exact binomial in place of chi square.
    """
    pairs = only_a + only_b
    return float(scipy.stats.binomtest(only_a, pairs).pvalue) if pairs else 1.0


def bootstrap(
    questions: Sequence[tuple[int, int]],
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval:
    """Percentile interval of the mean difference when questions are drawn with replacement.

    `questions` has (sum of differences, pairs) of each. Efron and Tibshirani, An Introduction to
    the Bootstrap (1993), chapter 13. Questions with equal entries are interchangeable, so how
    often each kind is drawn is multinomial: the same distribution, at a cost that does not depend
    on the number of questions.
    """
    kinds = Counter(questions)
    differences, pairs = np.array([*kinds], dtype=float).T
    weights = np.array([*kinds.values()]) / len(questions)
    drawn = np.random.default_rng(seed).multinomial(len(questions), weights, size=resamples)
    means = (drawn @ differences) / (drawn @ pairs)
    low, high = np.quantile(means, ((1 - confidence) / 2, (1 + confidence) / 2))
    return Interval(float(low), float(high))


def paired(a: Mapping[Any, Record], b: Mapping[Any, Record]) -> Paired | None:
    """Compare records under equal keys that have the same answer key; None where there are none."""
    both = [(a[key], b[key]) for key in a if key in b]
    both = [(one, two) for one, two in both if one.answer is not None and one.answer == two.answer]
    if not both:
        return None
    table = Counter((bool(one.correct), bool(two.correct)) for one, two in both)
    questions: defaultdict[str, list[int]] = defaultdict(list)
    subjects: defaultdict[str, Counter[tuple[bool, bool]]] = defaultdict(Counter)
    for one, two in both:
        result = (bool(one.correct), bool(two.correct))
        questions[one.id].append(result[1] - result[0])
        subjects[one.subject or WITHOUT_SUBJECT][result] += 1
    only_a, only_b = table[True, False], table[False, True]
    return Paired(
        questions=len(questions),
        shared=len(both),
        both_right=table[True, True],
        only_a=only_a,
        only_b=only_b,
        both_wrong=table[False, False],
        difference=(only_b - only_a) / len(both),
        interval=bootstrap([(sum(each), len(each)) for each in questions.values()]),
        p=mcnemar(only_a, only_b),
        subjects={
            name: Subject(counts.total(), counts[True, False], counts[False, True])
            for name, counts in sorted(subjects.items())
        },
        flips=[_flip(one, two) for one, two in both if one.correct is not two.correct],
    )


def _flip(one: Record, two: Record) -> Flip:
    right: Literal["a", "b"] = "a" if one.correct else "b"
    answer = one.answer or ""
    return Flip(one.id, one.repeat, answer, one.prediction, two.prediction, right)


def holm(values: Sequence[float]) -> list[float]:
    """Significance (p) values corrected for how many there are, in their order.

    Holm, Scandinavian Journal of Statistics 6 (1979) 65-70.
    """
    order = np.argsort(values)
    steps = np.array(values)[order] * np.arange(len(values), 0, -1)
    corrected = np.empty(len(values))
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(steps))
    return [float(value) for value in corrected]
