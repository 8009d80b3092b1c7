"""Prompt templates: one file a stage, three parts each, filled in with Jinja."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template, TemplateError

from medagents_async.errors import UsageError
from medagents_async.types import Prompt, Question

PARTS = ("role", "material", "task")
_SHIPPED = Path(__file__).parent


class PromptPack:
    """The templates of one method, by stage name.

    A file `STAGE.md` has the sections `## role`, `## material` and `## task`; a missing one is
    empty. Files in `override` replace the method's own by name. A template sees `question`,
    `options` (letter to text), `context` and what the method passes; an unknown name is an
    error, never an empty string. Fields are inserted as they are: braces in them mean nothing.
    """

    def __init__(self, method: str, override: Path | None = None) -> None:
        own = [_SHIPPED / "shared", _SHIPPED / method.replace("-", "_")]
        known = {path.name for folder in own for path in folder.glob("*.md")}
        folders = own if override is None else [*own, _checked(override, known)]
        self._sources = {
            path.stem: path.read_text(encoding="utf-8")
            for folder in folders
            for path in sorted(folder.glob("*.md"))
        }
        self._environment = Environment(  # noqa: S701 - chat text, not HTML
            loader=FileSystemLoader([str(folder) for folder in reversed(folders)]),
            undefined=StrictUndefined,
            keep_trailing_newline=True,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._parsed: dict[str, dict[str, Template]] = {}

    @cached_property
    def digest(self) -> str:
        """A fingerprint of every template's text, 16 hex digits."""
        state = hashlib.sha256()
        for name, source in sorted(self._sources.items()):
            state.update(f"{name}\0{source}\0".encode())
        return state.hexdigest()[:16]

    def render(self, name: str, question: Question, fields: Mapping[str, object]) -> Prompt:
        """Raises UsageError when there is no such template or it wants a field that is missing."""
        values = {
            "question": question.text,
            "options": question.options,
            "context": question.context,
            **fields,
        }
        try:
            parts = self._template(name)
            return Prompt(*(parts[part].render(values).strip() for part in PARTS))
        except TemplateError as error:
            raise UsageError(f"prompt template {name}.md: {error}") from error

    def _template(self, name: str) -> dict[str, Template]:
        if name not in self._parsed:
            if name not in self._sources:
                raise UsageError(f"there is no prompt template {name}.md")
            sections = _split(self._sources[name])
            self._parsed[name] = {
                part: self._environment.from_string(sections[part]) for part in PARTS
            }
        return self._parsed[name]


def _checked(override: Path, known: set[str]) -> Path:
    if not override.is_dir():
        raise UsageError(f"--prompts {override}: no such folder")
    strangers = sorted(path.name for path in override.glob("*.md") if path.name not in known)
    if strangers:
        raise UsageError(
            f"--prompts {override}: {', '.join(strangers)} replaces no template of this method; "
            f"it has {', '.join(sorted(known))}"
        )
    return override


def _split(source: str) -> dict[str, str]:
    # Before rendering, so that a question that contains "## task" cannot change the structure.
    sections = dict.fromkeys(PARTS, "")
    part: str | None = None
    for line in source.splitlines(keepends=True):
        heading = line.strip().removeprefix("## ").lower()
        if line.startswith("## ") and heading in PARTS:
            part = heading
        elif part is not None:
            sections[part] += line
    return sections
