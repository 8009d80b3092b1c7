"""Prompt templates: one file a stage, three parts each, filled in with Jinja."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path

from jinja2 import Environment, StrictUndefined, Template, TemplateError, meta

from medagents_async.errors import UsageError
from medagents_async.types import Layout, Prompt, Question

PARTS = ("role", "material", "task")
#: What every template may show, beside what the method passes.
GIVEN = {"question", "options", "context", "layout", "range"}
_SHIPPED = Path(__file__).parent
_INCLUDE = re.compile(r"""\{%-?\s*include\s+["'](?P<name>[\w-]+)\.md["']\s*-?%\}\n?""")


class PromptPack:
    """The templates of one method, by stage name.

    A file `STAGE.md` has the sections `## role`, `## material` and `## task`; a missing one is
    empty. Files in `override` replace the method's own by name. A template sees `question`,
    `options` (letter to text), `context`, `layout` and what the method passes; an unknown name is
    an error, never an empty string. Fields are inserted as they are: braces in them mean nothing.
    """

    def __init__(self, method: str, override: Path | None = None) -> None:
        own = _sources([_SHIPPED / method.replace("-", "_")])
        shared = _sources([_SHIPPED / "shared"])
        shipped = {name: text for name, text in shared.items() if name in _included(own, shared)}
        shipped |= own
        replaced = {} if override is None else _checked(override, shipped)
        self._sources = {**shipped, **replaced}
        self._environment = Environment(  # noqa: S701 - chat text, not HTML
            undefined=StrictUndefined,
            keep_trailing_newline=True,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.globals.clear()  # what is there is copied at each render
        self._parsed = {name: self._parse(name) for name in self._sources}
        fields = GIVEN | self._fields(shipped)
        for name in replaced:
            strange = self._fields({name: replaced[name]}) - fields
            if strange:
                raise UsageError(
                    f"--prompts {override}/{name}.md wants {', '.join(sorted(strange))}, which "
                    f"nobody fills in; there are: {', '.join(sorted(fields))}"
                )

    def _parse(self, name: str) -> dict[str, Template]:
        try:
            return {
                part: self._environment.from_string(self._whole(text))
                for part, text in _split(self._sources[name]).items()
                if text.strip()
            }
        except TemplateError as error:
            raise UsageError(f"prompt template {name}.md: {error}") from error

    def _whole(self, text: str, depth: int = 0) -> str:
        """The text with what it includes in its place, which renders twice as fast.

        Raises TemplateError where that is not there or never ends.
        """

        def piece(found: re.Match[str]) -> str:
            source = self._sources.get(found["name"])
            if source is None or depth > 10:
                raise TemplateError(f"cannot include {found['name']}.md")
            return self._whole(source, depth + 1)

        return _INCLUDE.sub(piece, text)

    def _fields(self, sources: Mapping[str, str]) -> set[str]:
        return set().union(
            *(
                meta.find_undeclared_variables(self._environment.parse(text))
                for text in sources.values()
            )
        )

    @cached_property
    def digest(self) -> str:
        """A fingerprint of every template's text, 16 hex digits."""
        state = hashlib.sha256()
        for name, source in sorted(self._sources.items()):
            state.update(f"{name}\0{source}\0".encode())
        return state.hexdigest()[:16]

    def render(
        self,
        name: str,
        question: Question,
        fields: Mapping[str, object],
        layout: Layout = "paper",
    ) -> Prompt:
        """Raises UsageError when there is no such template or it wants a field that is missing."""
        values = {
            "range": range,
            "question": question.text,
            "options": question.options,
            "context": question.context,
            "layout": layout,
            **fields,
        }
        parts = self._parsed.get(name)
        if parts is None:
            raise UsageError(f"there is no prompt template {name}.md")
        try:
            return Prompt(
                *(parts[part].render(values).strip() if part in parts else "" for part in PARTS)
            )
        except TemplateError as error:
            raise UsageError(f"prompt template {name}.md: {error}") from error


def _included(own: Mapping[str, str], shared: Mapping[str, str]) -> set[str]:
    """The shared pieces that a method's own templates include, and what those include."""
    found: set[str] = set()
    texts = list(own.values())
    while texts:
        names = {match["name"] for match in _INCLUDE.finditer(texts.pop())} - found
        found |= names
        texts += [shared[name] for name in names if name in shared]
    return found


def _sources(folders: Iterable[Path]) -> dict[str, str]:
    """Template name to text; raises UsageError at one that is no text."""
    found = {}
    for path in (path for folder in folders for path in sorted(folder.glob("*.md"))):
        try:
            found[path.stem] = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"prompt template {path}: {error}") from error
    return found


def _checked(override: Path, shipped: Mapping[str, str]) -> dict[str, str]:
    if not override.is_dir():
        raise UsageError(f"--prompts {override}: no such folder")
    sources = _sources([override])
    strangers = sorted(set(sources) - set(shipped))
    if strangers:
        raise UsageError(
            f"--prompts {override}: {', '.join(strangers)} replaces no template of this method; "
            f"it has {', '.join(sorted(shipped))}"
        )
    for name, source in sources.items():
        # A piece that others include has no parts; whatever replaces a whole one must have some.
        if any(_split(shipped[name]).values()) and not any(_split(source).values()):
            raise UsageError(
                f"--prompts {override}/{name}.md has none of the sections "
                f"{', '.join(f'## {part}' for part in PARTS)}"
            )
    return sources


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
