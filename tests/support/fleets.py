"""Whole runs against several simulated servers, in simulated time."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console

from medagents_async import job as jobs
from medagents_async.engine.fleet import Fleet
from medagents_async.engine.runner import Totals
from medagents_async.engine.scheduler import Scheduler
from medagents_async.job import Transports
from medagents_async.plan import Job
from medagents_async.simulator import Reply, Request, Service, SimulatedTransport, clock, plausible
from tests.conftest import question_row

#: What happens meanwhile.
Story = Callable[[Scheduler], Awaitable[None]]


def agreeing(request: Request) -> Reply:
    return Reply("YES") if request.stage == "vote" else plausible(request)


@dataclass
class World:
    """Servers by letter, at http://LETTER/v1, and a folder to run in."""

    folder: Path
    servers: dict[str, Service]
    opened: int = 0
    file: Path = field(init=False)

    def __post_init__(self) -> None:
        self.file = self.folder / "servers.txt"

    def url(self, letter: str) -> str:
        return f"http://{letter}/v1"

    def write_file(self, letters: str) -> None:
        """Write the servers file."""
        self.file.write_text("".join(f"{self.url(letter)}\n" for letter in letters))

    def connect(self, url: str) -> Transports:
        self.opened += 1
        transport = SimulatedTransport(self.servers[url.split("/")[2]])
        return transport, transport

    def run(
        self, questions: int, story: Story | None = None, *, within: float = 20_000, **options: Any
    ) -> dict[str, Any]:
        """The summary. Raises what the run does, TimeoutError when it takes too long."""
        source = self.folder / "in.jsonl"
        lines = [
            orjson.dumps(question_row(n), option=orjson.OPT_APPEND_NEWLINE)
            for n in range(questions)
        ]
        source.write_bytes(b"".join(lines))
        options.setdefault("base_urls", [self.url(letter) for letter in self.servers])
        options.setdefault("method", "zero-shot")
        job = Job(input=source, output=self.folder / "out.jsonl", **options)

        async def tell(scheduler: Scheduler, fleet: Fleet, totals: Totals) -> None:
            del fleet, totals
            if story is not None:
                await story(scheduler)
            await asyncio.Event().wait()

        async def main() -> dict[str, Any]:
            async with asyncio.timeout(within):
                return await jobs.run(
                    job, Console(file=io.StringIO()), connect=self.connect, observers=[tell]
                )

        return clock.run(main())

    def rows(self) -> list[dict[str, Any]]:
        lines = (self.folder / "out.jsonl").read_bytes().splitlines()
        return sorted(map(orjson.loads, lines), key=lambda row: row["index"])
