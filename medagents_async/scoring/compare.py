"""Several runs side by side: systems on data sets, pairs of systems, cost against accuracy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain, combinations
from typing import Any

from medagents_async.scoring.accuracy import Score, score, unweighted_mean
from medagents_async.scoring.cost import Rates, cost, frontier
from medagents_async.scoring.intervals import spread
from medagents_async.scoring.paired import Paired, holm, paired
from medagents_async.scoring.records import Record
from medagents_async.scoring.runs import Run, labels


@dataclass(frozen=True, slots=True)
class Standing:
    """One system on one data set: `files` hold its runs: seeds, or shards.

    `mean` and `sd` are over the accuracies of seeds and repeats, `score` is over all their rows.
    The rest are means of a (question, repeat); `cost` is None without rates. `efficient`: no
    other system of the data set is as accurate for as little (cost, or tokens without rates).
    """

    system: str
    dataset: str
    files: list[str]
    score: Score
    mean: float | None
    sd: float | None
    calls: float
    tokens: float
    seconds: float
    cost: float | None
    efficient: bool = False


@dataclass(frozen=True, slots=True)
class Pair:
    """`p_holm` is corrected for all pairs of the comparison."""

    dataset: str
    a: str
    b: str
    result: Paired
    p_holm: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """`averages` has each system's unweighted mean over `datasets`, None where one is missing."""

    datasets: list[str]
    systems: list[str]
    standings: list[Standing]
    averages: dict[str, float | None]
    pairs: list[Pair]
    notes: list[str]

    def as_json(self) -> dict[str, Any]:
        """Objects, lists, numbers, text and null; no NaN."""
        return asdict(self)


def compare(runs: Sequence[Run], rates: Rates | None = None) -> Comparison:
    """Order of systems and data sets is that of the runs."""
    sets, notes = _datasets(runs)
    cells = _cells(runs, sets)
    datasets = [*dict.fromkeys(dataset for dataset, _ in cells)]
    systems = [*dict.fromkeys(system for _, system in cells)]
    standings = list(
        chain.from_iterable(
            _efficient(
                [
                    _standing(system, dataset, cells[dataset, system], rates or Rates())
                    for system in systems
                    if (dataset, system) in cells
                ]
            )
            for dataset in datasets
        )
    )
    found: list[tuple[str, str, str, Paired]] = []
    for dataset in datasets:
        for a, b in combinations([name for name in systems if (dataset, name) in cells], 2):
            result = _paired(cells[dataset, a], cells[dataset, b])
            if result is None:
                notes.append(f"{a} and {b} share no question and seed of {dataset}: no pair")
            else:
                found.append((dataset, a, b, result))
    corrected = holm([result.p for *_, result in found])
    if any(result.shared > result.questions for *_, result in found):
        notes.append(
            "repeats of a question are not independent, which McNemar's test takes pairs to be: "
            "go by the interval of the difference, which is by question"
        )
    means = {(each.system, each.dataset): each.mean for each in standings}
    return Comparison(
        datasets=datasets,
        systems=systems,
        standings=standings,
        averages={
            system: unweighted_mean(means[system, dataset] for dataset in datasets)
            if all((system, dataset) in means for dataset in datasets)
            else None
            for system in systems
        },
        pairs=[Pair(*each, p) for each, p in zip(found, corrected, strict=True)],
        notes=notes,
    )


def _datasets(runs: Sequence[Run]) -> tuple[list[str], list[str]]:
    """The data set of each run, and what a user should know of it.

    Runs are on the same one where their inputs are equal, or where they share questions and agree
    on every answer: ids alone tell nothing, since many sets number their questions.
    """
    leaders: list[Run] = []  # the first run on each data set, and all that is known of its key
    keys: list[dict[str, str]] = []
    places: list[int] = []
    notes: list[str] = []
    for run in runs:
        mine = {each.id: each.answer for each in run.records if each.answer is not None}
        digest = run.configured("input")
        for place, leader in enumerate(leaders):
            shared = mine.keys() & keys[place].keys()
            differing = sum(mine[each] != keys[place][each] for each in shared)
            if (digest and digest == leader.configured("input")) or (shared and not differing):
                keys[place] |= mine
                places.append(place)
                break
            if differing and leader.dataset == run.dataset:
                notes.append(
                    f"{run.name} and {leader.name} are taken for different data sets: their "
                    f"answer keys differ in {differing} of {len(shared)} questions with equal ids"
                )
        else:
            places.append(len(leaders))
            leaders.append(run)
            keys.append(mine)
    taken = Counter(leader.dataset for leader in leaders)
    names = [
        f"{leader.dataset} ({leader.name})" if taken[leader.dataset] > 1 else leader.dataset
        for leader in leaders
    ]
    return [names[place] for place in places], notes


def _cells(runs: Sequence[Run], datasets: Sequence[str]) -> dict[tuple[str, str], list[Run]]:
    """The runs of each (data set, system).

    Runs of a system that differ by seed, or are shards, go together; the same one made again is
    a rival and called by its file.
    """
    named = labels(runs)
    cells: dict[tuple[str, str], list[Run]] = {}
    seen: dict[tuple[str, str], set[tuple[Any, ...]]] = {}
    for run, dataset in zip(runs, datasets, strict=True):
        mine = {*_keyed([run], by_seed=True)}
        place = (dataset, named[run.system])
        if seen.get(place, set()) & mine:
            place = (dataset, run.name)
        cells.setdefault(place, []).append(run)
        seen.setdefault(place, set()).update(mine)
    return cells


def _standing(system: str, dataset: str, runs: Sequence[Run], rates: Rates) -> Standing:
    records = [record for run in runs for record in run.records]
    marks: dict[tuple[int | None, int], list[bool]] = {}
    for run in runs:
        for record in run.records:
            if record.correct is not None:
                marks.setdefault((run.seed, record.repeat), []).append(record.correct)
    accuracies = [sum(each) / len(each) for each in marks.values()]
    mean, sd = spread(accuracies) if accuracies else (None, None)
    taken = cost(records, rates)
    walls = [run.wall()[0] for run in runs]
    hours = [wall / 3600 * rates.gpus for wall in walls if wall is not None]
    money: float | None = taken.token_cost
    if rates.gpu_hour is not None:
        whole = len(hours) == len(walls)
        money = (money or 0.0) + sum(hours) * rates.gpu_hour if whole else None
    return Standing(
        system=system,
        dataset=dataset,
        files=[run.name for run in runs],
        score=score(records),
        mean=mean,
        sd=sd,
        calls=taken.calls.mean,
        tokens=taken.prompt_tokens.mean + taken.completion_tokens.mean,
        seconds=taken.seconds.median,
        cost=None if money is None or not records else money / len(records),
    )


def _efficient(standings: Sequence[Standing]) -> list[Standing]:
    """Marks those on the frontier of one data set."""
    priced = all(each.cost is not None for each in standings)
    points = [
        ((each.cost if priced else each.tokens) or 0.0, -1.0 if each.mean is None else each.mean)
        for each in standings
    ]
    marks = frontier(points)
    return [replace(each, efficient=mark) for each, mark in zip(standings, marks, strict=True)]


def _paired(a: Sequence[Run], b: Sequence[Run]) -> Paired | None:
    """By (id, repeat), and by seed where either system ran with several."""
    several = max(len({run.seed for run in runs}) for runs in (a, b)) > 1
    return paired(_keyed(a, by_seed=several), _keyed(b, by_seed=several))


def _keyed(runs: Sequence[Run], *, by_seed: bool) -> dict[tuple[Any, ...], Record]:
    return {
        (*record.key, run.seed if by_seed else None): record
        for run in runs
        for record in run.records
    }
