"""Several runs: which are one system, which are on one data set, who is paired with whom."""

from __future__ import annotations

from typing import Any

import pytest

from medagents_async.scoring.compare import compare
from medagents_async.scoring.cost import Rates
from medagents_async.scoring.records import Record
from medagents_async.scoring.runs import Run, labels
from tests.support.records import made

KEY = "ABCDE" * 4


def run(
    name: str,
    right: int,
    *,
    dataset: str = "medqa",
    key: str = KEY,
    first: int = 0,
    totals: Any = None,
    **configuration: Any,
) -> Run:
    """The first `right` rows are right; questions count from `first`."""
    records: list[Record] = [
        made(first + n, letter if n < right else "ABCDE"[(ord(letter) - 64) % 5], letter)
        for n, letter in enumerate(key)
    ]
    settings = {"method": "cot", "seed": 0, "input": dataset, "model": "org/m8b"} | configuration
    manifest = {"configuration": settings, "input": f"/d/{dataset}.jsonl", "totals": totals}
    return Run(name, records, manifest)


def test_labels_are_as_short_as_they_can_be() -> None:
    assert [*labels([run("a", 1), run("b", 1, seed=1)]).values()] == ["cot"]
    assert [*labels([run("a", 1), run("b", 1, method="medagents")]).values()] == [
        "cot",
        "medagents",
    ]
    assert [*labels([run("a", 1), run("b", 1, model="org/m70b")]).values()] == [
        "cot m8b",
        "cot m70b",
    ]
    assert [*labels([run("a", 1), run("b", 1, parameters={"shots": 3})]).values()] == ["a", "b"]
    assert [*labels([Run("a", ()), Run("b", ())]).values()] == ["a", "b"]
    assert len({*labels([Run("a", (), {"configuration": {"x": n}}) for n in "12"]).values()}) == 2


def test_seeds_are_one_system_with_a_deviation() -> None:
    """The papers draw 300 samples three times, or 50 with three seeds."""
    found = compare([run("a", 12), run("b", 14, seed=1), run("c", 16, seed=2)])
    (standing,) = found.standings
    assert standing.files == ["a", "b", "c"]
    assert [standing.mean, standing.sd] == pytest.approx([0.7, 0.1])
    assert standing.score.rows == 60
    assert found.pairs == []


def test_shards_of_one_seed_are_one_run() -> None:
    found = compare([run("a", 20), run("b", 10, first=20)])
    (standing,) = found.standings
    assert (standing.mean, standing.sd, standing.score.rows) == (0.75, None, 40)


def test_the_same_run_again_is_a_rival() -> None:
    found = compare([run("a", 20), run("b", 10)])
    assert found.systems == ["cot", "b"]
    assert found.pairs[0].result.only_a == 10


def test_systems_on_data_sets_with_the_unweighted_mean() -> None:
    found = compare(
        [
            run("a", 20),
            run("b", 4, dataset="pubmedqa", key="ABC" * 4),
            run("c", 10, method="medagents"),
        ]
    )
    assert found.datasets == ["medqa", "pubmedqa"]
    assert found.systems == ["cot", "medagents"]
    assert found.averages == {"cot": pytest.approx((1 + 4 / 12) / 2), "medagents": None}
    assert [(pair.dataset, pair.a, pair.b) for pair in found.pairs] == [
        ("medqa", "cot", "medagents")
    ]


def test_equal_ids_do_not_make_one_data_set() -> None:
    """Two sets that number their questions from 1, or four options against five."""
    other = run("b", 3, method="medagents", key="BCDEA" * 4, input="another digest")
    found = compare([run("a", 3), other])
    assert found.pairs == []
    assert found.datasets == ["medqa (a)", "medqa (b)"]
    assert any("answer keys differ in 20 of 20" in note for note in found.notes)


def test_a_part_of_a_data_set_is_paired_whatever_its_file_is_called() -> None:
    part = run("b", 2, dataset="medqa_300", key=KEY[:5], method="medagents")
    found = compare([run("a", 20), part])
    assert found.datasets == ["medqa"]
    assert found.pairs[0].result.shared == 5


def test_seeds_are_paired_with_their_like() -> None:
    a = [run("a0", 12), run("a1", 14, seed=1)]
    b = [run("b1", 16, seed=1, method="medagents"), run("b2", 16, seed=2, method="medagents")]
    found = compare([*a, *b])
    (pair,) = found.pairs
    assert (pair.result.shared, pair.result.only_b) == (20, 2)
    alone = compare([run("a0", 12), run("b1", 16, seed=1, method="medagents")])
    assert alone.pairs[0].result.shared == 20
    apart = compare([*a, run("b2", 1, seed=2, method="m"), run("b3", 1, seed=3, method="m")])
    assert apart.pairs == []
    assert any("share no question and seed" in note for note in apart.notes)


def test_holm_counts_all_pairs() -> None:
    found = compare([run(name, n, method=name) for name, n in (("x", 2), ("y", 10), ("z", 20))])
    assert len(found.pairs) == 3
    smallest = min(found.pairs, key=lambda pair: pair.result.p)
    assert smallest.p_holm == pytest.approx(min(1, 3 * smallest.result.p))


def test_the_frontier_goes_by_cost_where_all_have_one() -> None:
    totals = {"seconds": 3600.0, "questions_per_hour": 20.0}
    cheap = run("a", 12, totals={**totals, "seconds": 360.0, "questions_per_hour": 200.0})
    dear = run("b", 12, method="medagents", totals=totals)
    found = compare([cheap, dear], Rates(gpu_hour=2.0, gpus=4))
    assert [each.cost for each in found.standings] == [pytest.approx(0.04), pytest.approx(0.4)]
    assert [each.efficient for each in found.standings] == [True, False]
    assert all(each.cost is None for each in compare([cheap, dear]).standings)


@pytest.mark.parametrize(
    ("totals", "wall"),
    [
        ({"seconds": 100.0, "questions_per_hour": 720.0}, (100.0, False)),
        ({"seconds": 50.0, "questions_per_hour": 720.0}, (100.0, True)),  # half came before
        ({"seconds": 0.5, "questions_per_hour": 0.0}, (None, False)),  # run again for nothing
        (None, (None, False)),
    ],
)
def test_time_of_a_run_that_was_resumed(
    totals: dict[str, float] | None, wall: tuple[float | None, bool]
) -> None:
    found = run("a", 1, totals=totals).wall()
    assert found == (pytest.approx(wall[0]) if wall[0] else None, wall[1])


def test_repeats_are_not_independent_and_that_is_said() -> None:
    twice = [made(n, "A", repeat=r) for n in range(5) for r in range(2)]
    found = compare([Run("a", twice), Run("b", twice)])
    assert any("not independent" in note for note in found.notes)
    assert found.pairs[0].result.questions == 5
