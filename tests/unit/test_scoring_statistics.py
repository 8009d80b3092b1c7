"""Intervals and tests against scipy and statsmodels, and against numbers worked by hand."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.regression.linear_model import OLS
from statsmodels.stats.contingency_tables import mcnemar as reference_mcnemar
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import proportion_confint

from medagents_async.scoring.agreement import entropy
from medagents_async.scoring.cost import Rates, cost, frontier
from medagents_async.scoring.intervals import Interval, clustered, spread, wilson
from medagents_async.scoring.paired import bootstrap, holm, mcnemar, paired
from medagents_async.scoring.records import Record
from tests.support.records import made, records

relaxed = settings(deadline=None, max_examples=50)


@given(st.integers(1, 2000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
@relaxed
def test_wilson(drawn: tuple[int, int]) -> None:
    low, high = proportion_confint(*drawn, method="wilson")
    found = wilson(*drawn)
    assert found is not None
    assert [found.low, found.high] == pytest.approx([low, high], abs=1e-9)


def test_wilson_of_nothing() -> None:
    assert wilson(0, 0) is None


@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=4), min_size=2, max_size=30))
@relaxed
def test_clustered_interval_is_that_of_a_regression_on_a_constant(
    questions: list[list[bool]],
) -> None:
    marks = np.array([mark for each in questions for mark in each], dtype=float)
    groups = np.array([number for number, each in enumerate(questions) for _ in each])
    found = clustered((sum(each), len(each)) for each in questions)
    assert found is not None
    if len({*marks}) == 1:  # no variance: statsmodels divides by it
        assert found == Interval(marks[0], marks[0])
        return
    model = OLS(marks, np.ones(len(marks)))
    fitted = model.fit(cov_type="cluster", cov_kwds={"groups": groups}, use_t=True)
    low, high = fitted.conf_int()[0]
    assert found.low == pytest.approx(max(0, low), abs=1e-9)
    assert found.high == pytest.approx(min(1, high), abs=1e-9)


def test_clustered_interval_wants_two_questions() -> None:
    assert clustered([(1, 3)]) is None
    assert clustered([]) is None


def test_spread() -> None:
    assert spread([0.5]) == (0.5, None)
    assert [*spread([0.6, 0.7, 0.8])] == pytest.approx([0.7, 0.1])


@given(st.integers(0, 60), st.integers(0, 60))
@relaxed
def test_mcnemar(only_a: int, only_b: int) -> None:
    if only_a + only_b == 0:
        assert mcnemar(only_a, only_b) == 1
        return
    reference = reference_mcnemar([[5, only_a], [only_b, 7]], exact=True).pvalue
    assert mcnemar(only_a, only_b) == pytest.approx(reference)


def test_a_worked_case() -> None:
    """1,000 questions, 30 that only one run has right against 52 that only the other has."""
    a = [made(n, "A" if n < 600 or 900 <= n < 930 else "B") for n in range(1000)]
    b = [made(n, "A" if n < 600 or 930 <= n < 982 else "B") for n in range(1000)]
    found = paired({each.key: each for each in a}, {each.key: each for each in b})
    assert found is not None
    exact = 2 * sum(comb(82, k) for k in range(31)) / 2**82
    assert found.p == pytest.approx(exact, rel=1e-12)
    assert (found.both_right, found.only_a, found.only_b, found.both_wrong) == (600, 30, 52, 318)
    assert found.difference == pytest.approx(0.022)
    assert found.interval.low < 0.022 < found.interval.high
    assert sum(flip.right == "a" for flip in found.flips) == 30
    assert len(found.flips) == 82


@given(
    st.lists(
        st.integers(1, 3).flatmap(lambda n: st.tuples(st.integers(-n, n), st.just(n))),
        min_size=5,
        max_size=60,
    )
)
@settings(deadline=None, max_examples=15)
def test_bootstrap_by_kinds_is_the_bootstrap_by_questions(questions: list[tuple[int, int]]) -> None:
    """The quantiles agree with scipy's to within the noise of two independent bootstraps."""
    sums, pairs = np.array(questions, dtype=float).T

    def share(d: np.ndarray, n: np.ndarray, axis: int = -1) -> np.ndarray:
        return np.asarray(d.sum(axis=axis) / n.sum(axis=axis))

    options = {"method": "percentile", "n_resamples": 5000, "paired": True, "vectorized": True}
    theirs = scipy.stats.bootstrap((sums, pairs), share, rng=1, **options)
    ours = bootstrap(questions, resamples=20_000)
    noise = 6 * theirs.standard_error / np.sqrt(5000) * 3 + 2 / pairs.sum()
    assert ours.low == pytest.approx(theirs.confidence_interval.low, abs=noise)
    assert ours.high == pytest.approx(theirs.confidence_interval.high, abs=noise)


def test_bootstrap_is_the_same_each_time() -> None:
    questions = [(1, 1)] * 52 + [(-1, 1)] * 30 + [(0, 1)] * 918
    assert bootstrap(questions) == bootstrap(questions)


@given(st.lists(st.floats(0, 1), min_size=0, max_size=20))
@relaxed
def test_holm(values: list[float]) -> None:
    reference = multipletests(values, method="holm")[1] if values else []
    assert holm(values) == pytest.approx([*reference])


@given(st.lists(st.integers(0, 20), min_size=1, max_size=6))
@relaxed
def test_entropy(counts: list[int]) -> None:
    """Equation B.1 of arXiv 2404.15155."""
    if not sum(counts):
        assert entropy(counts) is None
        return
    assert entropy(counts) == pytest.approx(float(scipy.stats.entropy(counts, base=2)), abs=1e-12)


def test_entropy_of_consensus_and_of_a_split() -> None:
    assert entropy([5]) == 0
    assert entropy([2, 2]) == 1
    assert entropy([1, 1, 1, 1]) == 2


@given(records(repeats=2), records(repeats=2))
@relaxed
def test_pairs_are_those_that_both_have_with_the_same_key(a: list[Record], b: list[Record]) -> None:
    one, two = ({each.key: each for each in run} for run in (a, b))
    found = paired(one, two)
    keys = [key for key in one if key in two and one[key].answer == two[key].answer is not None]
    if not keys:
        assert found is None
        return
    assert found is not None
    assert found.shared == len(keys)
    assert found.questions == len({name for name, _ in keys})
    counts = (found.both_right, found.only_a, found.only_b, found.both_wrong)
    assert sum(counts) == found.shared
    assert len(found.flips) == found.only_a + found.only_b
    assert found.interval.low <= found.difference <= found.interval.high or found.shared < 20
    assert sum(each.shared for each in found.subjects.values()) == found.shared


def test_frontier() -> None:
    points = [(1.0, 0.6), (2.0, 0.7), (3.0, 0.65), (2.0, 0.7), (2.0, 0.5), (1.0, 0.4)]
    assert frontier(points) == [True, True, False, True, False, False]


def test_cost() -> None:
    usage = {"prompt_tokens": 1_000_000, "completion_tokens": 500_000, "cached_tokens": 900_000}
    run = [made(n, usage=usage, calls=n, seconds=float(n)) for n in range(1, 5)]
    found = cost(run, Rates(gpu_hour=2.5, gpus=8, tokens_in=0.1, tokens_out=0.4), 1800.0)
    assert found.gpu_hours == 4
    assert found.gpu_cost == 10
    assert found.token_cost == pytest.approx(4 * 0.1 + 2 * 0.4)
    assert (found.calls.total, found.calls.mean, found.calls.median) == (10, 2.5, 2.5)
    assert found.seconds.p95 == pytest.approx(np.quantile([1, 2, 3, 4], 0.95))
    unknown = cost(run, Rates(gpu_hour=2.5))
    assert (unknown.gpu_cost, unknown.token_cost) == (None, None)
