"""Accuracy and its companions: what counts as wrong, what is left out, what is counted apart."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings

from medagents_async.scoring import accuracy
from medagents_async.scoring.records import Record, record
from medagents_async.scoring.runs import Run
from medagents_async.scoring.summary import summarise
from tests.support.records import LETTERS, made, records


def test_failures_stay_in_the_denominator() -> None:
    """Ten questions, two fail, one is unparsed, five are right: 5/10, and 5/7 as an extra."""
    run = [made(n) for n in range(5)] + [made(n, "B") for n in (5, 6)]
    run += [made(7, None), *(made(n, None, status="error") for n in (8, 9))]
    found = accuracy.score(run)
    assert (found.rows, found.keyed, found.right, found.accuracy) == (10, 10, 5, 0.5)
    assert found.answered == 5 / 7
    assert (found.errors, found.unparsed) == (0.2, 0.1)


def test_an_error_never_has_a_prediction() -> None:
    """Whatever its row says."""
    failed = made(1, "A", status="error", error={"kind": "timeout", "message": ""})
    assert (failed.prediction, failed.correct, failed.error) == (None, False, "timeout")
    assert accuracy.letters([failed]) == [
        accuracy.Letter("A", 0, 1),
        accuracy.Letter(None, 1, 0),
    ]


def test_rows_without_an_answer_key_are_counted_apart() -> None:
    run = [made(1), made(2, "B", None), made(3, None, None, status="error")]
    found = summarise(Run("run", run))
    assert run[1].correct is None
    assert run[2].correct is None
    assert (found.score.keyed, found.score.accuracy, found.without_key) == (1, 1.0, 2)
    assert found.score.answered == 1.0
    assert any("2 rows have no answer key" in each for each in found.warnings)


def test_a_run_without_rows_or_without_keys_has_no_accuracy() -> None:
    for run in ([], [made(1, "A", None)]):
        found = summarise(Run("run", run))
        assert found.score.accuracy is None
        assert found.macro is None
        assert found.repeats is None


@given(records())
@settings(deadline=None)
def test_every_row_is_counted_once(run: list[Record]) -> None:
    found = summarise(Run("run", run))
    assert found.score.rows == len(run) == found.score.keyed + found.without_key
    assert sum(each.predicted for each in found.letters) == len(run)
    assert sum(each.key for each in found.letters) == found.score.keyed
    assert sum(part.score.rows for part in found.by_tokens) == len(run)


@given(records(keyed=True))
@settings(deadline=None)
def test_macro_scores_are_those_of_the_confusion_matrix(run: list[Record]) -> None:
    letters = sorted(
        {*(r.answer for r in run), *(r.prediction for r in run if r.prediction)} - {None}, key=str
    )
    matrix = np.array(
        [
            [sum(r.answer == key and r.prediction == said for r in run) for said in letters]
            for key in letters
        ]
    )
    hits, said = np.diag(matrix), matrix.sum(axis=0)
    keys = np.array([sum(r.answer == key for r in run) for key in letters])
    with np.errstate(invalid="ignore", divide="ignore"):
        precision, recall = np.nan_to_num(hits / said), np.nan_to_num(hits / keys)
        f1 = np.nan_to_num(2 * precision * recall / (precision + recall))
    found = accuracy.macro(run)
    assert found is not None
    assert found.classes == len(letters)
    assert found.precision == pytest.approx(precision.mean())
    assert found.recall == pytest.approx(recall.mean())
    assert found.f1 == pytest.approx(f1.mean())


def test_subjects_and_their_unweighted_mean() -> None:
    run = [made(n, subject="anatomy") for n in range(9)] + [made(9, "B", subject="virology")]
    found = summarise(Run("run", run))
    assert {name: each.accuracy for name, each in found.subjects.items()} == {
        "anatomy": 1.0,
        "virology": 0.0,
    }
    assert found.subject_mean == 0.5
    assert found.score.accuracy == 0.9
    assert summarise(Run("run", [made(1)])).subjects == {}


@pytest.mark.parametrize(
    ("said", "keys", "suspect"),
    [
        ("A" * 20, LETTERS * 4, True),
        ("A" * 19 + "B", LETTERS * 4, True),
        ("A" * 17 + "BCD", LETTERS * 4, False),
        ("A" * 20, "A" * 18 + "BB", False),  # the answer key asks for it
        ("A" * 9, (LETTERS * 2)[:9], False),  # too few to tell
    ],
)
def test_a_run_that_always_says_one_letter_is_warned_of(
    said: str, keys: str, suspect: bool
) -> None:
    run = [made(n, *pair) for n, pair in enumerate(zip(said, keys, strict=True))]
    warnings = summarise(Run("run", run)).warnings
    assert any("answers are A" in each for each in warnings) is suspect


def test_repeats_have_mean_and_deviation() -> None:
    run = [
        made(n, "A" if n < right else "B", repeat=r)
        for r, right in enumerate((6, 8, 7))
        for n in range(10)
    ]
    found = accuracy.repeats(run)
    assert found is not None
    assert found.accuracies == [0.6, 0.8, 0.7]
    assert [found.mean, found.sd] == pytest.approx([0.7, 0.1])
    assert accuracy.repeats(run[:10]) is None


def test_bins_by_tokens_start_with_the_cheap() -> None:
    run = [
        made(n, usage={"prompt_tokens": 100 * n, "completion_tokens": n, "cached_tokens": 0})
        for n in reversed(range(8))
    ]
    found = accuracy.by_tokens(run)
    assert [(part.low, part.high, part.score.rows) for part in found] == [
        (0, 101, 2),
        (202, 303, 2),
        (404, 505, 2),
        (606, 707, 2),
    ]


def test_error_kinds() -> None:
    kinds = ["timeout", "empty", "timeout"]
    run = [made(n, None, status="error", error={"kind": kind}) for n, kind in enumerate(kinds)]
    assert accuracy.error_kinds(run) == Counter(timeout=2, empty=1)


@pytest.mark.parametrize("row", [{}, {"id": "1", "index": 0, "repeat": 0, "status": "fine"}])
def test_what_is_no_row_is_refused(row: dict[str, object]) -> None:
    with pytest.raises((LookupError, ValueError)):
        record(row)
