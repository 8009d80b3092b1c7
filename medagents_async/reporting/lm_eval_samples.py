"""`--to lm-eval DIR`: the files that lm-eval leaves with `--log_samples --output_path DIR`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from math import sqrt
from pathlib import Path
from typing import Any

from medagents_async.reporting import exports, files
from medagents_async.scoring.records import record
from medagents_async.scoring.runs import Run
from medagents_async.types import Item

METRIC = "exact_match"
_NOT_IN_A_FOLDER = re.compile(r"[\"<>:/|\\?*\[\]]+")


@dataclass
class _Sums:
    """What the results file needs of the rows that stream by."""

    rows: int = 0
    marks: list[bool] = field(default_factory=list)


def write(output: Path, to: Path) -> Path:
    """Write `DIR/MODEL/samples_TASK_DATE.jsonl` and `results_DATE.json`; returns their folder.

    A line is a (question, repeat) and says so in `repeat`, which lm-eval does not have. A row
    without an answer key has no metric. Rows are written as they are read.
    """
    run = Run(output.name.removesuffix(".jsonl"), (), files.described(output))
    known = exports.questions(output, run.manifest)
    model = run.configured("model") or "unknown"
    folder = to / _NOT_IN_A_FOLDER.sub("__", model)
    folder.mkdir(parents=True, exist_ok=True)
    date = (run.facts["ended"] or run.facts["started"] or "undated").replace(":", "-")
    sums = _Sums()
    with (folder / f"samples_{run.dataset}_{date}.jsonl").open("w", encoding="utf-8") as file:
        for _, row in files.rows(output):
            file.write(json.dumps(_sample(row, known.get(row["id"]), sums), ensure_ascii=False))
            file.write("\n")
    results = json.dumps(_results(run, model, sums), indent=2, ensure_ascii=False)
    (folder / f"results_{date}.json").write_text(results + "\n", encoding="utf-8")
    return folder


def _sample(row: Mapping[str, Any], item: Item | None, sums: _Sums) -> dict[str, Any]:
    mark = record(row)
    sums.rows += 1
    last = row["trace"][-1] if row["trace"] else {}
    request = last.get("request") or {}
    prompt = json.dumps(list(exports.messages(last)), ensure_ascii=False)
    settings = {key: value for key, value in request.items() if key not in ("messages", "model")}
    doc: dict[str, Any] = {"id": row["id"], "answer": row["answer"], "subject": row.get("subject")}
    if item:
        question = item.question
        doc |= {"question": question.text, "options": dict(question.options)}
    target = row["answer"] or ""
    sample: dict[str, Any] = {
        "doc_id": row["index"],
        "doc": doc,
        "target": target,
        "arguments": {"gen_args_0": {"arg_0": prompt, "arg_1": settings}},
        "resps": [[last.get("reply") or ""]],
        "filtered_resps": [mark.prediction or ""],
        "filter": "none",
        "metrics": [],
        "doc_hash": _hash(json.dumps(doc, indent=2, ensure_ascii=False)),
        "prompt_hash": _hash(prompt),
        "target_hash": _hash(target),
        "repeat": row["repeat"],
    }
    if mark.correct is not None:
        sums.marks.append(mark.correct)
        sample |= {"metrics": [METRIC], METRIC: float(mark.correct)}
    return sample


def _hash(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def _results(run: Run, model: str, sums: _Sums) -> dict[str, Any]:
    """The aggregate in lm-eval's layout; its standard error is that of a mean of single rows."""
    task, count = run.dataset, len(sums.marks)
    share = sum(sums.marks) / count if count else None
    error = sqrt(share * (1 - share) / (count - 1)) if share is not None and count > 1 else None
    return {
        "results": {
            task: {
                "alias": task,
                f"{METRIC},none": share,
                f"{METRIC}_stderr,none": error,
            }
        },
        "configs": {task: {"task": task, "metadata": {"method": run.configured("method")}}},
        "versions": {task: run.manifest.get("version")},
        "n-shot": {task: 0},
        "n-samples": {task: {"original": run.manifest.get("rows"), "effective": sums.rows}},
        "config": {"model": "medagents-async", "model_args": {"model": model}},
        "git_hash": run.manifest.get("git_commit"),
        "model_name": model,
        "model_name_sanitized": _NOT_IN_A_FOLDER.sub("__", model),
    }
