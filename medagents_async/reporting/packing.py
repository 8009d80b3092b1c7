"""Rows as the page keeps them: without what it does not show, in blocks that a browser unpacks."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator, Mapping
from typing import IO, Any

import orjson

from medagents_async.reporting import exports

#: A block is unpacked when one of its rows is opened: small enough to be there at once.
BLOCK_ROWS = 20
BLOCK_BYTES = 1 << 20
KEPT = ("error", "calls", "truncated", "retries", "usage", "seconds", "detail")


def packed(document: bytes) -> bytes:
    """JSON as base64 of its zlib stream (`DecompressionStream("deflate")`)."""
    return base64.b64encode(zlib.compress(document))


def kept(row: Mapping[str, Any]) -> bytes:
    """What the page shows of a row, as JSON.

    Prompts of one question repeat the question, the analyses and the report again and again, too
    far apart for deflate: each paragraph is kept once in `paragraphs`, and a prompt is a list of
    [role, places there].
    """
    places: dict[str, int] = {}
    steps = []
    for step in row.get("trace") or ():
        prompt = [
            [
                message.get("role"),
                [
                    places.setdefault(part, len(places))
                    for part in exports.wording(message).split("\n\n")
                ],
            ]
            for message in exports.messages(step)
        ]
        steps.append({**step, "request": None, "prompt": prompt})
    document = {name: row.get(name) for name in KEPT}
    return orjson.dumps({**document, "trace": steps, "paragraphs": [*places]})


class Blocks:
    """Packs documents into `spool` as they come; only one block is ever held."""

    def __init__(self, spool: IO[bytes]) -> None:
        self._spool = spool
        self._documents: list[bytes] = []
        self._size = 0
        self._number = 0

    def add(self, document: bytes) -> tuple[int, int]:
        """Returns where it will be found: the number of its block and its place in that."""
        where = (self._number, len(self._documents))
        self._documents.append(document)
        self._size += len(document)
        if len(self._documents) == BLOCK_ROWS or self._size >= BLOCK_BYTES:
            self._flush()
        return where

    def _flush(self) -> None:
        self._spool.write(packed(b"[" + b",".join(self._documents) + b"]") + b"\n")
        self._documents, self._size = [], 0
        self._number += 1

    def all(self) -> Iterator[str]:
        """Every block in order, read back one by one."""
        if self._documents:
            self._flush()
        self._spool.seek(0)
        for line in self._spool:
            yield line.decode("ascii").rstrip("\n")
