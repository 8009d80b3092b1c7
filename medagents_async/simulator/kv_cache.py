"""Blocks of KV cache: who holds them, which prefixes they keep, which go first.

The rules are those of vLLM's block pool (V1): full blocks are named by their contents and all
before them; a named block that nobody holds any more keeps its contents until it is needed, the
least recently released first; blocks without a name are reused before any of those.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence


class KvCache:
    """`capacity` blocks. Only named ones are told apart; of the others, the number is enough."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._blank = capacity  # free, without a name
        self._idle: OrderedDict[int, None] = OrderedDict()  # free, named, oldest first
        self._held: set[int] = set()  # named
        self._shared: dict[int, int] = {}  # held by how many sequences, where it is more than one

    @property
    def free(self) -> int:
        """How many blocks can be taken."""
        return self._blank + len(self._idle)

    @property
    def usage(self) -> float:
        """The share of blocks that are held, 0 to 1."""
        return 1 - self.free / self.capacity

    def prefix(self, keys: Sequence[int], limit: int) -> int:
        """How many of the first `limit` keys are cached, up to the first that is not."""
        held, idle, limit = self._held, self._idle, min(limit, len(keys))
        for index in range(limit):
            if keys[index] not in held and keys[index] not in idle:
                return index
        return limit

    def idle(self, keys: Iterable[int]) -> int:
        """How many of these cached blocks nobody holds: holding them takes free ones."""
        return sum(key in self._idle for key in keys)

    def hold(self, keys: Iterable[int]) -> None:
        """Hold cached blocks, one more time each."""
        for key in keys:
            if key in self._held:
                self._shared[key] = self._shared.get(key, 1) + 1
            else:
                del self._idle[key]
                self._held.add(key)

    def take(self, count: int) -> None:
        """Take `count` free blocks, at most `free`; what named ones kept is forgotten."""
        blank = min(count, self._blank)
        self._blank -= blank
        for _ in range(count - blank):
            self._idle.popitem(last=False)

    def name(self, keys: list[int]) -> list[int]:
        """Name blocks that were taken, now that they are full.

        Gives those that got their name: where another block has it, one stays without.
        """
        if not (self._held.isdisjoint(keys) and self._idle.keys().isdisjoint(keys)):
            keys = [key for key in keys if key not in self._held and key not in self._idle]
        self._held.update(keys)
        return keys

    def release(self, keys: Sequence[int], unnamed: int) -> None:
        """Give a sequence's blocks back; the last of `keys` will be needed least, so goes first."""
        self._blank += unnamed
        if not self._shared.keys().isdisjoint(keys):
            keys = [key for key in keys if not self._release_shared(key)]
        self._held.difference_update(keys)
        self._idle.update(dict.fromkeys(reversed(keys)))

    def _release_shared(self, key: int) -> bool:
        count = self._shared.pop(key, 1) - 1
        if count > 1:
            self._shared[key] = count
        return count > 0

    def forget(self) -> None:
        """Forget the contents of all blocks that nobody holds."""
        self._blank += len(self._idle)
        self._idle.clear()
