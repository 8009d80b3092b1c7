"""Which shard is whose, and how often it was tried."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

from medagents_async.errors import RunStopped


@dataclass
class Board:
    """`count` shards, each to be finished once.

    A shard that comes back is handed out after those that nobody has tried yet, so that one which
    always fails does not keep the others waiting; after `tries` it ends the job.
    """

    count: int
    tries: int = 5
    waiting: deque[int] = field(init=False)
    done: set[int] = field(default_factory=set)
    came_back: Counter[int] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.waiting = deque(range(self.count))

    @property
    def open(self) -> bool:
        return len(self.done) < self.count

    def take(self) -> int | None:
        return self.waiting.popleft() if self.waiting else None

    def finish(self, shard: int) -> None:
        self.done.add(shard)

    def give_back(self, shard: int, why: str) -> None:
        """Raises RunStopped after too many tries."""
        self.came_back[shard] += 1
        if self.came_back[shard] >= self.tries:
            raise RunStopped(
                f"shard {shard}/{self.count} came back {self.tries} times, last: {why}. "
                "Run the same command again to resume"
            )
        self.waiting.append(shard)
