"""OUT.run.json: what was run, on what, with which result; and whether a run may go on from it."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from medagents_async import __version__
from medagents_async.engine import jsonl
from medagents_async.errors import UsageError


def path_for(output: Path) -> Path:
    """`OUT.jsonl` has `OUT.run.json` beside it."""
    return output.with_name(output.name.removesuffix(".jsonl") + ".run.json")


def digest(configuration: Mapping[str, Any]) -> str:
    """16 hex digits that change whenever a result could."""
    encoded = orjson.dumps(configuration, option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(encoded).hexdigest()[:16]


class Manifest:
    """The manifest of one OUT file, written at the start and at the end of each run onto it.

    `configuration` is all that decides a result; two runs may share an OUT only where it is
    equal. Everything else (where the server is, how many calls at once, which rows) may change.
    """

    def __init__(self, output: Path, configuration: Mapping[str, Any]) -> None:
        self._path = path_for(output)
        self._output = output
        self._configuration = dict(configuration)
        self._document: dict[str, Any] = {}

    def check(self) -> dict[str, Any]:
        """The manifest of the run that this one goes on from, empty where there is none.

        Raises UsageError, naming the fields, where OUT comes from another configuration.
        """
        if not self._output.exists() or self._output.stat().st_size == 0:
            return {}
        fresh = "write to another file, or move that one away"
        if not self._path.exists():
            raise UsageError(f"{self._output} has rows but no {self._path.name} beside it; {fresh}")
        try:
            document: dict[str, Any] = orjson.loads(self._path.read_bytes())
            before = _flat(document["configuration"])
        except (orjson.JSONDecodeError, LookupError, TypeError, AttributeError) as error:
            raise UsageError(f"{self._path} is no manifest ({error}); {fresh}") from error
        now = _flat(orjson.loads(orjson.dumps(self._configuration)))
        changes = [
            f"  {name}: {_short(before.get(name))} there, {_short(now.get(name))} now"
            for name in sorted({*before, *now})
            if before.get(name) != now.get(name)
        ]
        if changes:
            raise UsageError(
                f"{self._output} comes from another configuration; {fresh}:\n" + "\n".join(changes)
            )
        return document

    def start(self, arguments: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
        """Raises OutputFailed."""
        self._document = {
            "arguments": dict(arguments),
            "configuration": self._configuration,
            "configuration_digest": digest(self._configuration),
            "version": __version__,
            "git_commit": _commit(),
            **facts,
            "started": _now(),
            "ended": None,
            "totals": None,
        }
        self._write()

    def end(self, totals: Mapping[str, Any], **facts: Any) -> None:
        """Raises OutputFailed."""
        self._document |= {**facts, "ended": _now(), "totals": dict(totals)}
        self._write()

    def _write(self) -> None:
        options = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
        jsonl.replace(self._path, orjson.dumps(self._document, default=str, option=options))


def _flat(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """`parameters.rounds` and its like, so that a difference is named where it is."""
    flat: dict[str, Any] = {}
    for name, value in configuration.items():
        inner = value if isinstance(value, dict) else None
        flat |= {f"{name}.{key}": part for key, part in inner.items()} if inner else {name: value}
    return flat


def _short(value: Any) -> str:
    text = orjson.dumps(value).decode()
    return text if len(text) <= 200 else text[:200] + "…"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _commit() -> str | None:
    """The commit of the checkout that this package lies in, None where it was installed."""
    folder = Path(__file__).parent
    command = ["git", "-C", str(folder), "rev-parse", "HEAD"]
    if not (folder.parent / ".git").exists():
        return None
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip()
