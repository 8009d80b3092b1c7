"""The servers of a run: who is there, and who joins and leaves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from medagents_async.engine.identity import Identity, identify
from medagents_async.engine.lanes import Lane
from medagents_async.engine.scheduler import Scheduler
from medagents_async.engine.servers import Server
from medagents_async.engine.steering import START, Steering
from medagents_async.errors import UsageError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is, the model wanted of it (None: its only one), and its pool's name."""

    url: str
    model: str | None = None
    pool: str = ""


class MakeServer(Protocol):
    """A server at `url` with the slots of `lane`."""

    def __call__(self, url: str, lane: Lane) -> Server: ...


@dataclass
class Fleet:
    """All servers of a run, each with slots of its own.

    `limit` is each one's calls in flight, None where that follows the server's own queue, up to
    `most`. `file`, with an address a line, is read again whenever it changes.
    """

    scheduler: Scheduler
    make: MakeServer
    limit: int | None
    most: int
    file: Path | None = None
    seen_before: Mapping[str, str] = field(default_factory=dict)  # `fingerprints` of an earlier run
    servers: list[Server] = field(default_factory=list)
    _tasks: dict[Lane, list[asyncio.Task[None]]] = field(default_factory=dict)

    FOLLOW_S = 2.0

    @property
    def answered(self) -> int:
        """Calls."""
        return sum(server.answered for server in self.servers)

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens of these calls."""
        return sum(server.tokens for server in self.servers)

    @property
    def fingerprints(self) -> dict[str, str]:
        """By the servers' names, those that have answered in this run first."""
        now = {server.name: server.fingerprint for server in self.servers if server.fingerprint}
        return now | {name: seen for name, seen in self.seen_before.items() if name not in now}

    @property
    def identities(self) -> dict[str, Identity]:
        """One for each pool: its servers have the same model."""
        found: dict[str, Identity] = {}
        for server in self.servers:
            if server.identity:
                found.setdefault(server.lane.pool, server.identity)
        return found

    def at(self, lane: Lane) -> Server:
        """The server whose slots these are."""
        return next(server for server in self.servers if server.lane is lane)

    async def gather(self, addresses: Sequence[Address], wait: float) -> None:
        """Take all in; of those in a file, some may still be missing. Raises UsageError."""
        missing: list[UsageError] = []
        for address in addresses:
            try:
                await self.join(address, wait)
            except UsageError as error:
                if address.pool or self.file is None:
                    raise
                missing.append(error)
        if missing and "" not in self.identities:
            raise missing[0]
        for absent in missing:
            log.warning("%s; it may join later", absent)

    async def join(self, address: Address, wait: float) -> Server:
        """Take a server in, once it has said what it serves; for `wait` seconds at most.

        Raises UsageError where it cannot be used.
        """
        lane = Lane(self.limit or min(START, self.most), address.pool)
        server = self.make(address.url, lane)
        before = self.identities.get(address.pool)
        model = address.model or (before.model if before else None)
        try:
            server.identity = await identify(server.client, model, wait)
        except BaseException as error:
            await server.client.close()
            other_model = isinstance(error, UsageError) and "does not serve" in str(error)
            if before is None or address.model or not other_model:
                raise
            raise UsageError(
                f"{error}. Servers of another model than {before.model}, which the others have, "
                "need a name: --server NAME=URL"
            ) from error
        self.servers.append(server)
        self.scheduler.add(lane)
        return server

    def leave(self, server: Server) -> None:
        """Send nothing more to a server; what is in flight there may end."""
        self.scheduler.remove(server.lane)
        for task in self._tasks.pop(server.lane):
            task.cancel()
        server.retire()

    async def close(self) -> None:
        """Give up all connections."""
        for server in self.servers:
            await server.client.close()

    async def watch(self) -> None:
        """Look after all servers for ever. Raises ServerGone, ServerChanged."""
        async with asyncio.TaskGroup() as tasks:
            for server in self.servers:
                self._look_after(server, tasks)
            if self.file is not None:
                await self._follow(self.file, tasks)

    def _look_after(self, server: Server, tasks: asyncio.TaskGroup) -> None:
        server.known = self._known(server)
        services = [server.watch()]
        if self.limit is None:
            services.append(Steering(server, self.most).steer())
        self._tasks[server.lane] = [tasks.create_task(service) for service in services]

    def _known(self, server: Server) -> set[str]:
        """Fingerprints that a server may have: its own of before, else any of an earlier run."""
        seen = self.fingerprints
        if server.name in seen:
            return {seen[server.name]}
        return {*self.seen_before.values()} if server.answered == self.answered == 0 else set()

    async def _follow(self, file: Path, tasks: asyncio.TaskGroup) -> None:
        seen = [server.name for server in self.servers if not server.lane.pool]
        while True:
            await asyncio.sleep(self.FOLLOW_S)
            try:
                wanted = addresses(file)
            except UsageError as error:
                log.warning("%s", error)
                continue
            here = {server.name: server for server in self.servers if not server.lane.pool}
            for url in [url for url in wanted if url not in seen]:
                try:
                    self._look_after(await self.join(Address(url), 0), tasks)
                    log.warning("%s has joined", url)
                except UsageError as error:
                    log.warning("%s has not joined: %s", url, error)
                    wanted.remove(url)  # it is tried again
            for url in [url for url in seen if url not in wanted and url in here]:
                if self.scheduler.alone(here[url].lane):
                    wanted.append(url)  # nobody could take its calls yet
                    continue
                self.leave(here[url])
                log.warning("%s has left", url)
            seen = wanted


def addresses(file: Path) -> list[str]:
    """The base URLs in a file, one a line; blank lines and those with # in front mean nothing.

    Raises UsageError where it cannot be read or names none.
    """
    try:
        lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--servers {file}: {error}") from error
    found = [line.rstrip("/") for line in lines if line and not line.startswith("#")]
    if any("@" in url for url in found):  # it would show in the manifest and in every trace
        raise UsageError(f"--servers {file} holds a password; give a key in $MEDAGENTS_API_KEY")
    if not found:
        raise UsageError(f"--servers {file} names no server")
    return list(dict.fromkeys(found))


def named(text: str) -> Address:
    """`NAME=URL` or `NAME=URL#MODEL`. Raises UsageError."""
    name, equals, rest = text.partition("=")
    url, _, model = rest.partition("#")
    if not (equals and name.isidentifier() and url):
        raise UsageError(f"--server {text}: want NAME=URL or NAME=URL#MODEL")
    return Address(url, model or None, name)


def described(servers: Iterable[Server]) -> Sequence[Mapping[str, object]]:
    """What a manifest keeps of each server."""
    return [
        {
            "url": server.name,
            "name": server.lane.pool or None,
            "model": server.identity.model if server.identity else None,
            "version": server.identity.version if server.identity else None,
            "max_model_len": server.identity.max_model_len if server.identity else None,
        }
        for server in servers
    ]
