"""Where a bench runs: on a real server and the real clock, or on simulated ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol, TypeVar

import httpx

from medagents_async.engine.client import open_pair
from medagents_async.simulator import Script, clock, plausible
from medagents_async.simulator.profiles import Profile
from medagents_async.simulator.service import Service
from medagents_async.simulator.transport import SimulatedTransport

T = TypeVar("T")
Transports = tuple[httpx.AsyncBaseTransport, httpx.AsyncBaseTransport]


class Ground(Protocol):
    """A server whose caches are cold for every run."""

    base_url: str
    name: str
    look_s: float  # between looks at the server

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """What `main` gives, run on the loop that belongs here."""
        ...

    def connect(self) -> Transports:
        """Transports for calls and probes."""
        ...

    def cold(self) -> Mapping[str, Any]:
        """Fields for the bodies of the next run's requests, so that no cache knows them."""
        ...


@dataclass
class RealServer:
    """A server on the real clock; vLLM keeps what it caches apart by `cache_salt`."""

    base_url: str
    loop_factory: Callable[[], asyncio.AbstractEventLoop]

    look_s = 0.25

    def __post_init__(self) -> None:
        self.name = self.base_url
        self._runs = count()

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        with asyncio.Runner(loop_factory=self.loop_factory) as runner:
            return runner.run(main)

    def connect(self) -> Transports:
        return open_pair()

    def cold(self) -> Mapping[str, Any]:
        return {"cache_salt": f"bench-{next(self._runs)}"}


@dataclass
class SimulatedServer:
    """A new simulated server for every run, on a simulated clock."""

    profile: Profile | str
    script: Script = plausible

    base_url = "http://simulated/v1"
    look_s = 1.0

    def __post_init__(self) -> None:
        named = self.profile if isinstance(self.profile, str) else self.profile.name
        self.name = f"a simulated {named}"

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        return clock.run(main)

    def connect(self) -> Transports:
        service = Service(self.script, profile=self.profile, prefix_cache=True, keep=0)
        transport = SimulatedTransport(service)
        return transport, transport

    def cold(self) -> Mapping[str, Any]:
        return {}
