"""Where a bench runs: on a real server and the real clock, or on simulated ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from secrets import token_hex
from typing import Any, Protocol, TypeVar

import httpx

from medagents_async.engine.client import open_pair
from medagents_async.simulator import Script, clock, realistic
from medagents_async.simulator.profiles import Profile
from medagents_async.simulator.service import Service
from medagents_async.simulator.transport import SimulatedTransport

T = TypeVar("T")
Transports = tuple[httpx.AsyncBaseTransport, httpx.AsyncBaseTransport]


class Ground(Protocol):
    """Servers whose caches are cold for every run."""

    base_urls: Sequence[str]
    name: str
    look_s: float  # between looks at the server

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """What `main` gives, run on the loop that belongs here."""
        ...

    def connect(self, url: str) -> Transports:
        """Transports for calls and probes of the server at `url`."""
        ...

    def cold(self) -> Mapping[str, Any]:
        """Fields for the bodies of the next run's requests, so that no cache knows them."""
        ...


@dataclass
class RealServers:
    """Servers on the real clock; vLLM keeps what it caches apart by `cache_salt`."""

    base_urls: Sequence[str]
    loop_factory: Callable[[], asyncio.AbstractEventLoop]

    # A look takes 35 ms of a vLLM on two cores: four a second took a tenth of its work.
    look_s = 1.0

    def __post_init__(self) -> None:
        self.name = ", ".join(self.base_urls)
        # A server may have answered another bench before, whose prompts its cache still has.
        self._token = token_hex(4)
        self._runs = count()

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        with asyncio.Runner(loop_factory=self.loop_factory) as runner:
            return runner.run(main)

    def connect(self, url: str) -> Transports:
        return open_pair(url)

    def cold(self) -> Mapping[str, Any]:
        return {"cache_salt": f"bench-{self._token}-{next(self._runs)}"}


@dataclass
class SimulatedServers:
    """New simulated servers for every run, on a simulated clock: one for each profile."""

    profiles: Sequence[Profile | str]
    script: Script = realistic
    name: str = field(init=False)
    base_urls: Sequence[str] = field(init=False)

    look_s = 1.0

    def __post_init__(self) -> None:
        names = [p if isinstance(p, str) else p.name for p in self.profiles]
        self.name = f"simulated {', '.join(names)}"
        self.base_urls = [f"http://simulated-{n}/v1" for n in range(len(names))]

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        return clock.run(main)

    def connect(self, url: str) -> Transports:
        profile = self.profiles[self.base_urls.index(url)]
        service = Service(self.script, profile=profile, prefix_cache=True, keep=0, ledger=False)
        transport = SimulatedTransport(service)
        return transport, transport

    def cold(self) -> Mapping[str, Any]:
        return {}
