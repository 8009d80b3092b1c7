"""OUT.shards/: the outputs of the parts of one job, under names that Slurm arrays use, too."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from medagents_async.errors import UsageError


@dataclass
class Shards:
    """`count` shards of the job that writes `output`: I-of-N.jsonl, N noted in a file `count`.

    Raises UsageError where the folder is there with another N: the same names would stand for
    other questions.
    """

    output: Path
    count: int
    _seen: dict[int, tuple[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder = self.output.with_name(self.output.name.removesuffix(".jsonl") + ".shards")
        self.folder.mkdir(parents=True, exist_ok=True)
        note = self.folder / "count"
        try:
            with note.open("x") as file:
                file.write(f"{self.count}\n")
        except FileExistsError:
            there = note.read_text().strip()
            if there != str(self.count):
                raise UsageError(
                    f"{self.folder} is cut into {there} shards, not {self.count}: say --shards "
                    f"{there}, or write elsewhere"
                ) from None

    def path(self, index: int) -> Path:
        return self.folder / f"{index}-of-{self.count}.jsonl"

    def paths(self) -> list[Path]:
        return [self.path(index) for index in range(self.count)]

    def rows(self) -> int:
        """How many rows there are so far; only what is new since the last look is read."""
        for index, path in enumerate(self.paths()):
            place, rows = self._seen.get(index, (0, 0))
            try:
                with path.open("rb") as file:
                    if path.stat().st_size < place:
                        place = rows = 0  # rows that ended in an error left the file
                    file.seek(place)
                    while block := file.read(1 << 20):
                        place, rows = place + len(block), rows + block.count(b"\n")
            except FileNotFoundError:
                continue
            self._seen[index] = place, rows
        return sum(rows for _, rows in self._seen.values())
