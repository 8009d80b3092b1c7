"""Everything that a report says of one run, as plain values that are JSON as they stand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from medagents_async.scoring import accuracy
from medagents_async.scoring.accuracy import Bin, Letter, Macro, Repeats, Score
from medagents_async.scoring.consultation import Consultations, consultations
from medagents_async.scoring.cost import Cost, Rates, cost
from medagents_async.scoring.runs import Run


@dataclass(frozen=True, slots=True)
class Summary:
    """`run` is what the manifest says: name, method, preset, model, dataset, seed, times.

    `score` is over all rows, that is (question, repeat); `repeats` is None without repeats, and
    `macro` without an answer key. `subject_mean` is unweighted. `warnings` are for people.
    """

    run: Mapping[str, Any]
    questions: int
    without_key: int
    score: Score
    repeats: Repeats | None
    macro: Macro | None
    subjects: dict[str, Score]
    subject_mean: float | None
    letters: list[Letter]
    errors: Mapping[str, int]
    cost: Cost
    consultation: Consultations
    by_tokens: list[Bin]
    warnings: list[str]

    def as_json(self) -> dict[str, Any]:
        """Objects, lists, numbers, text and null; no NaN."""
        return asdict(self)


def summarise(run: Run, rates: Rates | None = None) -> Summary:
    """Score one run. Total: of no rows at all, too."""
    records = run.records
    wall, estimated = run.wall()
    subjects = accuracy.by_subject(records)
    found = Summary(
        run=run.facts,
        questions=len({record.id for record in records}),
        without_key=sum(record.answer is None for record in records),
        score=accuracy.score(records),
        repeats=accuracy.repeats(records),
        macro=accuracy.macro(records),
        subjects=subjects,
        subject_mean=accuracy.unweighted_mean(each.accuracy for each in subjects.values()),
        letters=accuracy.letters(records),
        errors=accuracy.error_kinds(records),
        cost=cost(records, rates or Rates(), wall, estimated=estimated),
        consultation=consultations(records),
        by_tokens=accuracy.by_tokens(records),
        warnings=[],
    )
    found.warnings.extend(_warnings(found, run))
    return found


def _warnings(summary: Summary, run: Run) -> list[str]:
    found = []
    letter = accuracy.one_letter(summary.letters)
    if letter is not None:
        said = sum(each.predicted for each in summary.letters if each.letter is not None)
        found.append(
            f"{letter.predicted} of {said} answers are {letter.letter}, and the answer key has it "
            f"{letter.key} times: look at some replies (--show ID) before using this accuracy"
        )
    if summary.without_key:
        found.append(f"{summary.without_key} rows have no answer key: accuracy leaves them out")
    if run.manifest.get("stopped"):
        found.append(f"this run stopped early ({run.manifest['stopped']}): run it again to resume")
    if summary.cost.wall_estimated:
        found.append("this run was resumed: its time is estimated from the pace of its last part")
    return found
