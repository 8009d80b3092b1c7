"""From a set's published records to canonical lines, and an account of what became of each."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from medagents_async.datasets import Dataset
from medagents_async.datasets.drafts import Draft, LeftOut, Making, canonical
from medagents_async.datasets.rows import BadRow
from medagents_async.datasets.sources import Broken, Sources
from medagents_async.errors import InputError, UsageError


class BadRecords(UsageError):
    """Records that make no row: (file, line, reason) each."""

    def __init__(self, problems: Sequence[tuple[str, int, str]]) -> None:
        self.problems = list(problems)
        shown = self.problems[: InputError.SHOWN]
        lines = [f"  {label} line {line}: {reason}" for label, line, reason in shown]
        if len(self.problems) > len(shown):
            lines.append(f"  … and {len(self.problems) - len(shown)} more")
        count = len(self.problems)
        super().__init__(
            f"{count} record{'s' if count > 1 else ''} cannot be converted; nothing was written.\n"
            + "\n".join(lines)
            + "\nMend them, or leave them out with --skip-bad-rows."
        )


@dataclass
class Account:
    """What became of the records. Counters are by source, by subject or by what was done."""

    read: Counter[str] = field(default_factory=Counter)
    written: Counter[str] = field(default_factory=Counter)
    subjects: Counter[str] = field(default_factory=Counter)
    mended: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    noted: Counter[str] = field(default_factory=Counter)
    problems: list[tuple[str, int, str]] = field(default_factory=list)
    asked: dict[bytes, Counter[str]] = field(default_factory=dict)

    def note(self, draft: Draft) -> None:
        """Count what a reader of results should know, and nothing here mends."""
        texts = list(draft.options.values())
        if len(set(texts)) < len(texts):
            self.noted["two options are the same text"] += 1
            if draft.answer is not None and texts.count(draft.options[draft.answer]) > 1:
                self.noted["two options are the same text, one of them the answer"] += 1
        elif len({text.casefold() for text in texts}) < len(texts):
            self.noted["two options differ in letter case only"] += 1
        answer = draft.options[draft.answer] if draft.answer else ""
        self.asked.setdefault(_digest(draft.context, draft.question), Counter())[answer] += 1

    def repeats(self) -> tuple[int, int, int]:
        """Questions that stand in several rows, these rows, those whose answers are not equal."""
        several = [answers for answers in self.asked.values() if answers.total() > 1]
        differ = sum(len(answers) > 1 for answers in several)
        return len(several), sum(answers.total() for answers in several), differ


def convert(
    dataset: Dataset, sources: Sources, making: Making, account: Account, *, explanations: bool
) -> Iterator[bytes]:
    """Canonical rows as JSON lines, in the order of the sources.

    A record that makes none is counted in `account`, with its line where it ought to have.
    Raises UsageError where the sources as a whole are not usable.
    """
    make = dataset.maker(sources, making)
    taken: dict[str, tuple[bytes, str]] = {}
    for source in sources.rows:
        for record in source.records():
            account.read[source.label] += 1
            try:
                if isinstance(record, Broken):
                    raise BadRow(record.reason)
                draft = make(record)
                name = draft.id or record.name
                row = canonical(draft, name)
                content = _digest(row["context"], row["question"], row["options"], row["answer"])
                earlier, place = taken.setdefault(name, (content, f"{source.label} {record.line}"))
                if place != f"{source.label} {record.line}":
                    if earlier == content:
                        raise LeftOut("read before: the same id, question and answer")
                    raise BadRow(f"id {name!r} is taken by {place}")
            except LeftOut as reason:
                account.left_out[str(reason)] += 1
            except BadRow as reason:
                account.problems.append((source.label, record.line, str(reason)))
            else:
                account.written[source.label] += 1
                account.subjects[draft.subject or ""] += 1
                account.mended.update(draft.mended)
                account.note(draft)
                if explanations and draft.explanation:
                    row["explanation"] = draft.explanation
                yield orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)


def _digest(*parts: Any) -> bytes:
    return hashlib.blake2b(orjson.dumps(parts), digest_size=16).digest()
