"""How far a run is, on stderr: one line redrawn in a terminal, plain lines elsewhere."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from rich.console import Console
from rich.live import Live
from rich.text import Text

from medagents_async.engine.fleet import Fleet
from medagents_async.engine.runner import Totals
from medagents_async.engine.scheduler import Scheduler

REDRAW_S = 0.25
PLAIN_LINE_S = 5.0


class Progress:
    """Draws where a run is until cancelled."""

    def __init__(
        self, totals: Totals, scheduler: Scheduler, fleet: Fleet, console: Console
    ) -> None:
        self._totals = totals
        self._scheduler = scheduler
        self._fleet = fleet
        self._console = console

    async def keep_drawing(self) -> None:
        clock = asyncio.get_running_loop().time
        begun = clock()
        if self._console.is_terminal:
            with Live(console=self._console, auto_refresh=False, transient=True) as live:
                while True:
                    live.update(Text(self.line(clock() - begun)), refresh=True)
                    await asyncio.sleep(REDRAW_S)
        while True:
            await asyncio.sleep(PLAIN_LINE_S)
            self._console.print(Text(self.line(clock() - begun)), soft_wrap=True)

    def line(self, elapsed: float) -> str:
        """What is done, what is under way, how fast it goes. `elapsed` in seconds."""
        totals, calls = self._totals, self._scheduler.statistics()
        rate = totals.here / elapsed if elapsed > 0 else 0.0
        speed = self._fleet.tokens / elapsed if elapsed > 0 else 0.0
        left = totals.expected - totals.done
        eta = str(timedelta(seconds=round(left / rate))) if rate > 0 else "?"
        return (
            f"{totals.done}/{totals.expected} questions"
            f" · {self._fleet.answered} calls done, {calls.in_flight} in flight, "
            f"{calls.ready} waiting"
            f" · {rate * 3600:,.0f} questions/h · {speed:,.0f} tokens/s"
            f" · ETA {eta}"
            f" · {totals.counts['error']} errors, {totals.counts['unparsed']} unparsed"
        )
