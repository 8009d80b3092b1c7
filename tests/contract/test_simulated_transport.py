"""The simulator without sockets, under the engine's own client, in simulated time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

import orjson
import pytest

from medagents_async.engine.client import Client
from medagents_async.errors import Malformed, Refused, Unavailable
from medagents_async.simulator import (
    Reply,
    Request,
    Script,
    Service,
    SimulatedTransport,
    clock,
    plausible,
    realistic,
)
from medagents_async.simulator.profiles import find
from medagents_async.types import Call

T = TypeVar("T")
PROFILE = "llama-3.1-8b-h100"


def client_of(service: Service, key: str | None = None) -> Client:
    transport = SimulatedTransport(service)
    return Client(transport, transport, "http://simulated/v1", key)


def call(text: str = "Hello", stage: str = "vote", n: int = 0) -> Call:
    body = {"model": "simulator", "messages": [{"role": "user", "content": text}]}
    return Call("q", 0, stage, n, orjson.dumps(body), 1024)


def ask(script: Script, work: Callable[[Client, Service], Awaitable[T]], profile: str | None) -> T:
    async def main() -> T:
        service = Service(script, profile=profile)
        return await work(client_of(service), service)

    return clock.run(main())


@pytest.mark.parametrize("profile", [None, PROFILE])
def test_the_engines_client_works_over_it(profile: str | None) -> None:
    async def work(client: Client, service: Service) -> None:
        completion = await client.complete(call(stage="vote", n=3))
        assert completion.text in ("YES", "NO")
        assert completion.usage.completion_tokens == 1
        (request,) = service.requests
        assert (request.stage, request.n, request.request_id) == ("vote", 3, "q/0/vote/3")
        assert (service.served, service.in_flight) == (1, 0)
        for path, status in (("/health", 200), ("/version", 200), ("models", 200), ("/no", 404)):
            assert (await client.get(path)).status_code == status
        assert (await client.get("models")).json()["data"][0]["id"] == "simulator"
        assert "vllm:num_requests_running" in (await client.get("/metrics")).text

    ask(plausible, work, profile)


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (Reply(status=503), Unavailable),
        (Reply(status=400), Refused),
        (Reply(fault="reset"), Unavailable),
        (Reply(fault="truncate"), Unavailable),
        (Reply(fault="garbage"), Malformed),
    ],
)
def test_faults_are_what_they_are_over_sockets(reply: Reply, error: type[Exception]) -> None:
    async def work(client: Client, _: Service) -> None:
        with pytest.raises(error):
            await client.complete(call())

    ask(lambda _: reply, work, PROFILE)


def test_a_call_that_hangs_can_be_given_up() -> None:
    async def work(client: Client, service: Service) -> tuple[int, int]:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1000):
                await client.complete(call())
        return service.in_flight, service.disconnected

    assert ask(lambda _: Reply(fault="hang"), work, PROFILE) == (0, 1)


def test_a_key_is_asked_for() -> None:
    async def main() -> None:
        service = Service(api_key="k")
        with pytest.raises(Refused, match="Unauthorized"):
            await client_of(service).complete(call())
        assert (await client_of(service, "k").complete(call())).text

    clock.run(main())


@pytest.mark.parametrize("state", ["stopped", "frozen", "draining"])
def test_a_server_that_is_down_or_leaving_takes_no_call(state: str) -> None:
    async def work(client: Client, service: Service) -> None:
        service.state = state  # type: ignore[assignment]
        with pytest.raises(Unavailable):
            await client.complete(call())
        service.state = "up"
        assert (await client.complete(call())).text

    ask(plausible, work, None)


@pytest.mark.parametrize(("state", "error"), [("stopped", Unavailable), ("frozen", TimeoutError)])
def test_a_server_that_goes_answers_nothing_more(state: str, error: type[Exception]) -> None:
    async def work(client: Client, service: Service) -> None:
        async with asyncio.timeout(3600):
            waiting = asyncio.create_task(client.complete(call()))
            await asyncio.sleep(0)
            service.state = state  # type: ignore[assignment]
            await waiting

    with pytest.raises(error):
        ask(plausible, work, PROFILE)


def test_simulated_hours_of_a_fleet_are_the_same_every_time() -> None:
    """Two servers, 400 calls at each, 32 in flight: what takes minutes there takes none here."""

    def script(request: Request) -> Reply:
        return realistic(replace(request, stage="analyse_question"))

    async def serve(service: Service) -> list[float]:
        client, loop = client_of(service), asyncio.get_running_loop()
        numbers, ends = iter(range(400)), []

        async def worker() -> None:
            for n in numbers:
                await client.complete(call(f"Case {n}: {'fever and cough ' * (n % 50)}", n=n))
                ends.append(loop.time())

        await asyncio.gather(*(worker() for _ in range(32)))
        return ends

    async def main() -> list[list[float]]:
        fleet = [Service(script, profile=name, keep=0) for name in (PROFILE, "cpu-tiny")]
        return list(await asyncio.gather(*map(serve, fleet)))

    first = clock.run(main())
    assert first == clock.run(main())
    assert [len(ends) for ends in first] == [400, 400]
    assert 10 < first[0][-1] < first[1][-1]


def test_work_for_threads_is_done_at_once_in_simulated_time() -> None:
    async def main() -> tuple[int, float]:
        loop = asyncio.get_running_loop()
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 // 0)
        return await asyncio.to_thread(sum, (1, 2)), loop.time()

    assert clock.run(main()) == (3, 0.0)


def test_a_deadlock_in_simulated_time_is_told() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(RuntimeError, match="a deadlock"):
        clock.run(main())


def test_a_profile_that_is_given_can_be_changed() -> None:
    async def main() -> float:
        service = Service(profile=replace(find(PROFILE), request_s=5.0))
        await client_of(service).complete(call())
        return asyncio.get_running_loop().time()

    assert 5 < clock.run(main()) < 5.1
