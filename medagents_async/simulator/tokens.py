"""Tokens without a tokenizer: near enough for limits, usage and the prefix cache."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Sequence
from itertools import islice

# English clinical text takes about 1.4 tokens a word in the usual vocabularies; pieces of up to
# eight letters, with punctuation counted apart, come close to that.
_TOKEN = re.compile(r"\w{1,8}|[^\w\s]")

Contents = Iterable[tuple[str, str]]


def count_tokens(text: str) -> int:
    """Count the tokens of `text`: pieces of words of up to 8 characters, and punctuation."""
    return len(_TOKEN.findall(text))


def cut(text: str, limit: int) -> tuple[str, int, bool]:
    """(`text` up to its first `limit` tokens, their number, whether anything was cut off)."""
    if len(text) <= limit:  # no token is shorter than a character
        return text, count_tokens(text), False
    total = count_tokens(text)
    if total <= limit:
        return text, total, False
    if limit <= 0:
        return "", 0, True
    last = next(islice(_TOKEN.finditer(text), limit - 1, None))
    return text[: last.end()], limit, True


def chat_tokens(contents: Contents) -> list[str]:
    """Split a chat into tokens, with a chat template's marks around each message."""
    tokens: list[str] = []
    for role, text in contents:
        tokens += ("<|im_start|>", role, "\n", *_TOKEN.findall(text), "<|im_end|>", "\n")
    return [*tokens, "<|im_start|>", "assistant", "\n"]


def count_chat(contents: Contents) -> int:
    """Count what `chat_tokens` would give."""
    return 3 + sum(5 + len(_TOKEN.findall(text)) for _, text in contents)


def text_tokens(text: str) -> list[str]:
    """Split `text` into tokens."""
    return _TOKEN.findall(text)


def token_ids(tokens: Iterable[str]) -> list[int]:
    """Give every token a number below 49,152, the same one each time."""
    return [zlib.crc32(token.encode()) % 49_152 for token in tokens]


class PrefixCache:
    """Which prefixes were seen, in blocks of 16 tokens; the oldest block is dropped first."""

    BLOCK = 16

    def __init__(self, blocks: int = 65_536) -> None:
        self.capacity = blocks
        self.queries = self.hits = 0  # tokens
        self._seen: dict[int, None] = {}

    @property
    def usage(self) -> float:
        """Share of the capacity that is filled, from 0 to 1."""
        return len(self._seen) / self.capacity

    def admit(self, tokens: Sequence[str]) -> int:
        """Remember this prompt; how many of its tokens were cached already.

        As in vLLM, the last token is always computed, so a prompt seen before is never cached
        in whole.
        """
        cached = parent = 0
        unbroken = True
        for start in range(0, len(tokens) - self.BLOCK + 1, self.BLOCK):
            parent = hash((parent, *tokens[start : start + self.BLOCK]))
            unbroken = unbroken and parent in self._seen
            if unbroken and start + self.BLOCK < len(tokens):
                cached += self.BLOCK
            self._seen.pop(parent, None)
            self._seen[parent] = None
        while len(self._seen) > self.capacity:
            del self._seen[next(iter(self._seen))]
        self.queries += len(tokens)
        self.hits += cached
        return cached
