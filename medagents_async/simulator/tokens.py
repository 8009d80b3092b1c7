"""Tokens without a vocabulary: texts cut into pieces about as long as a real tokenizer's."""

from __future__ import annotations

import re
from array import array
from functools import lru_cache

# English clinical text takes about 1.4 tokens a word in the usual vocabularies; pieces of up to
# eight letters, with punctuation counted apart, come close to that.
_TOKEN = re.compile(r"\w{1,8}|[^\w\s]")
_BYTES = 8  # of a token in `encode`'s result: its hash, which is enough to tell prompts apart


def encode(text: str) -> bytes:
    """Give the tokens of `text`, for `count` and `block_keys`; the values differ between processes.

    No token spans lines, and a run's prompts repeat each other's lines (templates, questions,
    reports), so lines are what is remembered. Simulated prose repeats sentences, too.
    """
    return b"".join(map(_encode_line, text.split("\n")))


def count(tokens: bytes) -> int:
    """How many tokens."""
    return len(tokens) // _BYTES


def cut(text: str, limit: int) -> tuple[str, bytes]:
    """(`text` up to its first `limit` tokens, these tokens)."""
    tokens = encode(text)
    if count(tokens) <= limit:
        return text, tokens
    ends = [token.end() for token in _TOKEN.finditer(text)]
    return text[: ends[limit - 1]] if limit else "", tokens[: limit * _BYTES]


def block_keys(tokens: bytes, block_size: int) -> list[int]:
    """Name each full block of `block_size` tokens by its contents and all before it.

    A chain of hashes, as in vLLM's prefix cache: equal keys mean equal prefixes.
    """
    size = block_size * _BYTES
    key, keys = 0, []
    for start in range(0, len(tokens) - size + 1, size):
        key = hash((key, tokens[start : start + size]))
        keys.append(key)
    return keys


@lru_cache(maxsize=16_384)
def _encode_line(line: str) -> bytes:
    return _encode_piece(".").join(map(_encode_piece, line.split(". ")))


@lru_cache(maxsize=16_384)
def _encode_piece(piece: str) -> bytes:
    return array("q", map(hash, _TOKEN.findall(piece))).tobytes()
