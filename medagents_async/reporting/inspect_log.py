"""`--to inspect FILE`: a log that `inspect view` and `inspect log` read, by inspect-ai itself.

The library writes a log from memory, so the whole run is held there, traces included.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from medagents_async import __version__
from medagents_async.errors import UsageError
from medagents_async.reporting import exports, files
from medagents_async.scoring.accuracy import score
from medagents_async.scoring.records import record
from medagents_async.scoring.runs import Run
from medagents_async.types import Item

SCORER = "choice"
STOPS = {"stop": "stop", "length": "max_tokens", "content_filter": "content_filter"}


def write(output: Path, to: Path) -> Path:
    """Write the log of one run; `to` ends in `.eval` or `.json`. Raises UsageError."""
    if to.suffix not in (".eval", ".json"):
        raise UsageError(f"{to}: an inspect log is called NAME.eval or NAME.json")
    try:
        from inspect_ai import log
    except ImportError as error:
        raise UsageError(
            "an inspect log is written by inspect-ai itself: pip install 'inspect-ai>=0.3.285'"
        ) from error
    manifest = files.described(output)
    known = exports.questions(output, manifest)
    rows = [row for _, row in files.rows(output)]
    rows.sort(key=lambda row: (row["index"], row["repeat"]))
    run = Run(output.name.removesuffix(".jsonl"), [record(row) for row in rows], manifest)
    to.parent.mkdir(parents=True, exist_ok=True)
    log.write_eval_log(_log(run, rows, known), str(to))
    return to


def _log(run: Run, rows: list[dict[str, Any]], known: Mapping[str, Item]) -> Any:
    from inspect_ai import log

    facts, manifest = run.facts, run.manifest
    begun = facts["started"] or datetime.now(UTC).isoformat(timespec="seconds")
    model = facts["model"] or "unknown"
    found = score(run.records)
    samples = [_sample(row, known.get(row["id"]), model, begun) for row in rows]
    usage = sum((each.model_usage[model] for each in samples[1:]), samples[0].model_usage[model])
    numbers = {
        "accuracy": found.accuracy,
        "error_rate": found.errors,
        "unparsed_rate": found.unparsed,
    }
    return log.EvalLog(
        status="success" if facts["ended"] and not manifest.get("stopped") else "cancelled",
        eval=log.EvalSpec(
            created=begun,
            task=run.dataset,
            solver=facts["method"],
            solver_args=run.configured("parameters"),
            dataset=log.EvalDataset(
                name=run.dataset,
                location=manifest.get("input"),
                samples=len({row["id"] for row in rows}),
                sample_ids=[*dict.fromkeys(row["id"] for row in rows)],
            ),
            model=model,
            config=log.EvalConfig(epochs=max(row["repeat"] for row in rows) + 1),
            packages={"medagents_async": manifest.get("version") or __version__},
            metadata={
                name: manifest[name]
                for name in ("preset", "git_commit", "configuration_digest", "server_version")
                if manifest.get(name) is not None
            },
        ),
        results=log.EvalResults(
            total_samples=len(rows),
            completed_samples=sum(row["status"] != "error" for row in rows),
            scores=[
                log.EvalScore(
                    name=SCORER,
                    scorer=SCORER,
                    scored_samples=found.keyed,
                    unscored_samples=found.rows - found.keyed,
                    metrics={
                        name: log.EvalMetric(name=name, value=value)
                        for name, value in numbers.items()
                        if value is not None
                    },
                )
            ],
        ),
        stats=log.EvalStats(
            started_at=begun, completed_at=facts["ended"] or "", model_usage={model: usage}
        ),
        samples=samples,
    )


def _sample(row: Mapping[str, Any], item: Item | None, model: str, begun: str) -> Any:
    from inspect_ai import log
    from inspect_ai.model import ModelUsage

    events = [_event(step, model, begun) for step in row["trace"]]
    last = events[-1] if events else None
    first = exports.messages(row["trace"][0]) if row["trace"] else ()
    prompt = exports.wording(first[-1]) if first else f"question {row['id']}"
    usage, error = row["usage"], row["error"]
    cached = usage["cached_tokens"]
    spent = ModelUsage(
        input_tokens=usage["prompt_tokens"] - cached,  # there, cached tokens are counted apart
        output_tokens=usage["completion_tokens"],
        total_tokens=usage["prompt_tokens"] + usage["completion_tokens"],
        input_tokens_cache_read=cached,
    )
    said = [*last.input, last.output.message] if last and last.output.choices else []
    return log.EvalSample(
        id=row["id"],
        epoch=row["repeat"] + 1,
        input=item.question.text if item else prompt,
        choices=[*item.question.options.values()] if item else None,
        target=row["answer"] or "",
        messages=said,
        **({"output": last.output} if last else {}),
        scores=_scores(row),
        metadata={
            "subject": row.get("subject"),
            "status": row["status"],
            "method": row["method"],
            "detail": row["detail"],
        },
        events=events,
        model_usage={model: spent},
        total_time=row["seconds"],
        error=log.EvalError(message=_complaint(error), traceback="", traceback_ansi="")
        if error
        else None,
    )


def _complaint(error: Mapping[str, Any]) -> str:
    return f"{error.get('kind')} at {error.get('stage')}: {error.get('message')}"


def _scores(row: Mapping[str, Any]) -> dict[str, Any] | None:
    """C, I, or N for no answer, which counts as wrong; None without an answer key."""
    from inspect_ai.scorer import Score

    mark = record(row)
    if mark.correct is None:
        return None
    value = "C" if mark.correct else "I" if mark.prediction else "N"
    reason = "invalid_response_format" if row["status"] == "unparsed" else None
    return {SCORER: Score(value=value, answer=mark.prediction, reason=reason)}


def _event(step: Mapping[str, Any], model: str, begun: str) -> Any:
    """One call. Its clock time counts from the start of the run: OUT has none of questions."""
    from inspect_ai import event
    from inspect_ai import model as models

    usage = step["usage"] or {}
    spent = models.ModelUsage(
        input_tokens=usage.get("prompt_tokens", 0) - usage.get("cached_tokens", 0),
        output_tokens=usage.get("completion_tokens", 0),
        total_tokens=usage.get("prompt_tokens", 0) + usage.get("completion_tokens", 0),
        input_tokens_cache_read=usage.get("cached_tokens", 0),
    )
    replies = step.get("replies") or ([] if step["reply"] is None else [step["reply"]])
    choices = [
        models.ChatCompletionChoice(
            message=models.ChatMessageAssistant(content=reply, source="generate"),
            stop_reason=STOPS.get(step["finish_reason"], "unknown"),
        )
        for reply in replies
    ]
    request = step.get("request") or {}
    waited = step.get("asked_s", 0.0) + step["queued_s"]
    started = datetime.fromisoformat(begun) + timedelta(seconds=waited)
    roles = {
        "system": models.ChatMessageSystem,
        "user": models.ChatMessageUser,
        "assistant": models.ChatMessageAssistant,
    }
    return event.ModelEvent(
        timestamp=started,
        working_start=waited,
        completed=started + timedelta(seconds=step["seconds"]),
        working_time=step["seconds"],
        model=model,
        role=" · ".join(str(part) for part in (step["stage"], step["agent"]) if part),
        input=[
            roles[message["role"]](content=exports.wording(message))
            for message in exports.messages(step)
        ],
        tools=[],
        tool_choice="none",
        config=models.GenerateConfig(
            **{name: request.get(name) for name in ("temperature", "top_p", "max_tokens", "seed")}
        ),
        output=models.ModelOutput(
            model=model, choices=choices, usage=spent, time=step["seconds"], error=step["error"]
        ),
        retries=step["attempts"] - 1,
        error=step["error"],
        metadata={"round": step["round"], "server": step["server"]},
    )
