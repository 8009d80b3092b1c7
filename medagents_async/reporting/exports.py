"""A run as other tools' logs: what they share, and which there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from medagents_async.datasets import reader
from medagents_async.errors import UsageError
from medagents_async.types import Item


def write(tool: str, output: Path, to: Path) -> Path:
    """Write the run in `output` for `tool`, and return where. Raises UsageError."""
    # Each is imported when it is asked for: a report needs neither.
    try:
        if tool == "inspect":
            from medagents_async.reporting import inspect_log

            return inspect_log.write(output, to)
        if tool == "lm-eval":
            from medagents_async.reporting import lm_eval_samples

            return lm_eval_samples.write(output, to)
    except OSError as error:
        raise UsageError(f"cannot write {to}: {error.strerror}") from error
    raise UsageError(f"--to {tool}: want inspect or lm-eval")


def questions(output: Path, manifest: Mapping[str, Any]) -> dict[str, Item]:
    """The questions by id, from the input that the run read; empty where that is gone or changed.

    OUT keeps prompts but no questions.
    """
    named = Path(manifest.get("input") or "")
    for path in (named, output.parent / named.name):
        if not path.is_file():
            continue
        try:
            source = reader.check(path, reader.Selection(), skip_bad_rows=True)
        except UsageError:
            continue
        if source.digest == (manifest.get("configuration") or {}).get("input"):
            return {item.question.id: item for item in source.items()}
    return {}


def messages(step: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """What was sent; empty where the run kept no requests (`--trace brief`)."""
    request = step.get("request") or {}
    sent: Sequence[Mapping[str, Any]] = request.get("messages") or ()
    return sent


def wording(message: Mapping[str, Any]) -> str:
    """A message's text; of one with images, what is text in it."""
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(str(part.get("text")) for part in content if part.get("type") == "text")
