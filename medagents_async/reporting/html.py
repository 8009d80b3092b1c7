"""Runs as one page that needs no network: scores, plots, every question, every consultation.

A page holds what models have said, and nothing of that is ever markup: tables and plots are
escaped here, the rest reaches the browser as compressed JSON and is shown as text. A policy in
the page forbids every script and style but its own, and every request.
"""

from __future__ import annotations

import base64
import hashlib
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from medagents_async.errors import UsageError
from medagents_async.reporting import exports, files, sections, svg
from medagents_async.reporting.comparison import comparison
from medagents_async.reporting.layout import Cell, Quantity, text
from medagents_async.reporting.packing import Blocks, kept, packed
from medagents_async.reporting.tables import printable
from medagents_async.scoring.accuracy import Score
from medagents_async.scoring.compare import Comparison
from medagents_async.scoring.records import Record
from medagents_async.scoring.runs import Run
from medagents_async.scoring.summary import Summary
from medagents_async.types import Item

#: The page's script, in this order in one element: no module is fetched from anywhere.
SCRIPTS = "dom difference timeline replies consultation questions start".split()
PAGE = Path(__file__).with_name("page")
ENVIRONMENT = Environment(
    loader=FileSystemLoader(PAGE),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
ENVIRONMENT.filters["cell"] = lambda value: printable(text(value))
ENVIRONMENT.filters["printable"] = printable


def write(
    path: Path,
    outputs: Sequence[Path],
    runs: Sequence[Run],
    summaries: Sequence[Summary],
    found: Comparison | None,
) -> None:
    """Write the page of `runs`, whose rows are read once more from `outputs`.

    Memory holds one block of consultations, the records and the texts of the questions. Raises
    UsageError where the page cannot be written.
    """
    names = _names(outputs, runs)
    style = (PAGE / "page.css").read_text("utf-8")
    script = "".join((PAGE / f"{name}.js").read_text("utf-8") for name in SCRIPTS)
    scratch = path.with_name(path.name + ".tmp")
    try:
        with tempfile.TemporaryFile() as spool:
            blocks, index = Blocks(spool), _Index()
            for number, (output, run) in enumerate(zip(outputs, runs, strict=True)):
                index.take_in(number, output, run, blocks)
            page = ENVIRONMENT.get_template("page.html").stream(
                names=names,
                facts=[_facts(run) for run in runs],
                figures=_figures(summaries[0]) if found is None else (),
                plots=[*_plots(names, summaries, found)],
                tables=[*(comparison(found) if found else sections.run(summaries[0]))],
                singles=[sections.run(summary) for summary in summaries] if found else (),
                warnings=_warnings(names, summaries, found),
                policy=_policy(style, script),
                style=Markup(style),  # noqa: S704
                script=Markup(script),  # noqa: S704
                index=index.packed(names),
                blocks=blocks.all(),
            )
            with scratch.open("wb") as file:
                page.dump(file, encoding="utf-8")
        scratch.replace(path)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error
    finally:
        scratch.unlink(missing_ok=True)


def _policy(style: str, script: str) -> str:
    """Nothing is loaded, sent or run but the page's own style and script, known by their hash."""

    def digest(source: str) -> str:
        return base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()

    return (
        f"default-src 'none'; style-src 'sha256-{digest(style)}'; "
        f"script-src 'sha256-{digest(script)}'; base-uri 'none'; form-action 'none'; "
        "require-trusted-types-for 'script'"
    )


def _names(outputs: Sequence[Path], runs: Sequence[Run]) -> list[str]:
    """The runs' names, with their folders where two are equal."""
    taken = Counter(run.name for run in runs)
    return [
        printable(
            run.name if taken[run.name] == 1 else f"{output.resolve().parent.name}/{run.name}"
        )
        for output, run in zip(outputs, runs, strict=True)
    ]


class _Index:
    """Every question with the outcome of each of its rows, and where that is packed."""

    def __init__(self) -> None:
        self._questions: dict[tuple[str, str | None], list[dict[str, Any]]] = {}

    def take_in(self, number: int, output: Path, run: Run, blocks: Blocks) -> None:
        """Read the rows of a run again and pack them. Rows that came meanwhile wait."""
        known = exports.questions(output, run.manifest)
        records = {record.key: record for record in run.records}
        for _, row in files.rows(output):
            record = records.pop((str(row.get("id")), row.get("repeat", -1)), None)
            if record is not None:
                block, place = blocks.add(kept(row))
                question = self._question(record, known.get(record.id))
                entry = {"run": number, "block": block, "place": place, **_outcome(record)}
                question["rows"].append(entry)

    def _question(self, record: Record, item: Item | None) -> dict[str, Any]:
        """One entry for all runs: data sets number their questions, so an id alone says little."""
        words = item.question.text if item else ""
        alike = self._questions.setdefault((record.id, record.answer), [])
        found = next(
            (each for each in alike if words in ("", each["text"]) or not each["text"]), None
        )
        if found is None:
            found = {name: getattr(record, name) for name in ("id", "index", "subject", "answer")}
            found |= {"text": "", "context": None, "options": {}, "images": (), "rows": []}
            alike.append(found)
        if item and not found["text"]:
            asked = item.question
            found |= {"text": words, "context": asked.context, "options": dict(asked.options)}
            found["images"] = asked.images
        return found

    def packed(self, names: Sequence[str]) -> str:
        """Questions in the order of the input; the rows of each by run and repeat."""
        found = [each for alike in self._questions.values() for each in alike]
        for each in found:
            each["rows"].sort(key=lambda row: (row["run"], row["repeat"]))
        found.sort(key=lambda each: each["index"])
        return packed(orjson.dumps({"runs": names, "questions": found})).decode()


def _outcome(record: Record) -> dict[str, Any]:
    return {
        "repeat": record.repeat,
        "status": record.status,
        "said": record.prediction,
        "correct": record.correct,
        "first": record.process.first,
        "rounds": record.process.rounds,
        "tokens": record.tokens,
        "seconds": record.seconds,
    }


def _facts(run: Run) -> str:
    """What ran, in a line."""
    names = ("method", "preset", "model", "dataset", "started")
    return " · ".join(printable(run.facts[name]) for name in names if run.facts[name])


def _figures(summary: Summary) -> list[tuple[str, Cell]]:
    """What a reader of one run wants to know first."""
    score, cost = summary.score, summary.cost
    return [
        ("accuracy", sections.accuracy(score)),
        ("questions", summary.questions),
        ("errors", Quantity(score.errors)),
        ("unparsed", Quantity(score.unparsed)),
        ("calls a question", cost.calls.mean),
        ("tokens a question", round(cost.prompt_tokens.mean + cost.completion_tokens.mean)),
    ]


def _plots(
    names: Sequence[str], summaries: Sequence[Summary], found: Comparison | None
) -> Iterator[tuple[str, Markup]]:
    """(title, drawing) of what there is to plot."""
    scores: dict[str, Score]
    if found is None:
        scores = {"all": summaries[0].score, **summaries[0].subjects}
    else:
        several = len(found.datasets) > 1
        scores = {
            f"{each.system}, {each.dataset}" if several else each.system: each.score
            for each in found.standings
        }
    points = _points(scores)
    if points:
        yield "Accuracy, with 95 % intervals", svg.bars("Accuracy", points)
    for dataset in found.datasets if found else ():
        yield from _frontier(found, dataset) if found else ()
    rounds = {
        name: [(each.round, each.mean) for each in summary.consultation.entropy]
        for name, summary in zip(names, summaries, strict=True)
        if summary.consultation.entropy
    }
    if rounds:
        drawn = svg.lines("Consensus entropy by round", "round", rounds)
        yield "Consensus entropy by round, bits", drawn


def _points(scores: Mapping[str, Score]) -> list[svg.Point]:
    return [
        svg.Point(printable(name), score.accuracy, score.interval.low, score.interval.high)
        for name, score in scores.items()
        if score.accuracy is not None and score.interval is not None
    ]


def _frontier(found: Comparison, dataset: str) -> Iterator[tuple[str, Markup]]:
    standings = [each for each in found.standings if each.dataset == dataset]
    priced = all(each.cost is not None for each in found.standings)
    points = [
        svg.Point(
            printable(each.system),
            each.mean,
            each.score.interval.low,
            each.score.interval.high,
            x=each.cost if priced and each.cost is not None else each.tokens,
            marked=each.efficient,
        )
        for each in standings
        if each.mean is not None and each.score.interval is not None
    ]
    if len(points) > 1:
        of = f", {printable(dataset)}" if len(found.datasets) > 1 else ""
        label = f"Accuracy against {'cost' if priced else 'tokens'} a question{of}"
        yield label, svg.frontier(label, "cost" if priced else "tokens", points)


def _warnings(
    names: Sequence[str], summaries: Sequence[Summary], found: Comparison | None
) -> list[str]:
    of_runs = [
        f"{name}: {warning}"
        for name, summary in zip(names, summaries, strict=True)
        for warning in summary.warnings
    ]
    return [*of_runs, *(found.notes if found else ())]
