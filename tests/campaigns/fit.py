"""`python -m tests.campaigns.fit`: the profile `cpu-tiny` against the real server it stands for.

Starts vLLM with the tiny random model on this machine's CPU, keeps some requests in flight, as
many as each load says, with prompts that share nothing and replies of a fixed length, and takes
the time, twice. Then fits the profile's four free times to it: Gauss-Newton on their logarithms,
least squares of the relative errors of the simulated seconds. Prints what to put into
`profiles.py`, and measured against simulated, for loads that the fit has not seen, too. Three
minutes.

Numbers are good only where nothing else runs: the server computes on one core, and its API server
and this client share the other.
"""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice
from pathlib import Path

import numpy as np
import orjson
from rich.console import Console
from rich.table import Table

from medagents_async.engine.client import Client, DirectTransport
from medagents_async.simulator import clock
from medagents_async.simulator.engine import BatchingEngine
from medagents_async.simulator.profiles import Profile, find
from medagents_async.simulator.script import Reply, Request
from medagents_async.simulator.vllm import Output
from medagents_async.types import Call
from tests.real.server import INSTALLED, KEY, MODEL, Vllm

FREE = ("step_s", "sequence_s", "token_s", "request_s")


@dataclass(frozen=True)
class Load:
    """`count` requests, `in_flight` at a time, of (words of prompt, tokens of reply) in turn."""

    in_flight: int
    count: int
    sizes: tuple[tuple[int, int], ...]
    held_out: bool = False

    def requests(self) -> Iterator[tuple[int, int, int]]:
        """(number, words, tokens)."""
        for number, (words, output) in enumerate(islice(cycle(self.sizes), self.count)):
            yield number, words, output


WRITES, READS = ((170, 120),), ((700, 4),)
#: A question's calls, much as they come: recruiting, analyses, a report, votes.
MIXED = ((200, 30), (350, 200), (400, 200), (900, 250), (450, 3), (450, 3), (450, 3))
LOADS = (
    *(Load(n, count, WRITES) for n, count in ((1, 4), (4, 12), (16, 48), (64, 96), (128, 128))),
    *(Load(n, count, READS) for n, count in ((1, 10), (4, 30), (16, 64), (64, 128), (128, 128))),
    *(Load(n, count, MIXED, held_out=True) for n, count in ((8, 35), (32, 70), (100, 105))),
)
WORDS = tuple(
    "acute chronic fever cough pain edema rash fatigue nausea syncope anemia sepsis".split()
)


@dataclass(frozen=True)
class Measured:
    load: Load
    seconds: float
    prompts: tuple[int, ...]  # tokens, as the server counts them


async def measure(url: str, load: Load, seed: int) -> Measured:
    transport = DirectTransport()
    client = Client(transport, transport, url, KEY)
    chance = random.Random(seed)
    prompts = [0] * load.count
    bodies = []
    for number, words, output in load.requests():
        text = f"{chance.random()} {' '.join(chance.choices(WORDS, k=words))}"
        messages = [{"role": "user", "content": text}]
        fields = {"max_tokens": output, "min_tokens": output, "ignore_eos": True}
        body = orjson.dumps({"model": MODEL.name, "messages": messages, **fields})
        bodies.append(Call("fit", seed, "load", number, body, output))
    todo = iter(bodies)

    async def worker() -> None:
        for call in todo:
            completion = await client.complete(call)
            assert completion.usage.completion_tokens == call.max_tokens
            prompts[call.n] = completion.usage.prompt_tokens

    begun = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(load.in_flight)))
    seconds = time.perf_counter() - begun
    await transport.aclose()
    return Measured(load, seconds, tuple(prompts))


def measure_all(url: str) -> list[Measured]:
    """Every load twice, the better time of the two: what disturbs only ever adds."""
    asyncio.run(measure(url, Load(8, 24, MIXED), seed=-1))  # warm up
    runs = [asyncio.run(measure(url, load, seed)) for seed, load in enumerate(2 * LOADS)]
    pairs = zip(runs[: len(LOADS)], runs[len(LOADS) :], strict=True)
    return [min(pair, key=lambda run: run.seconds) for pair in pairs]


def simulate(profile: Profile, measured: Measured) -> float:
    """Seconds that the same requests take on the simulated engine."""
    chance = random.Random(1)
    todo = iter(
        [
            (chance.randbytes(8 * tokens), Output(Reply(), "", None, "length", output, b""))
            for tokens, (_, _, output) in zip(
                measured.prompts, measured.load.requests(), strict=True
            )
        ]
    )

    async def main() -> float:
        engine = BatchingEngine(profile)

        async def worker() -> None:
            for prompt, output in todo:

                async def produce(output: Output = output) -> list[Output]:
                    return [output]

                await engine.run(Request(), prompt, produce)

        await asyncio.gather(*(worker() for _ in range(measured.load.in_flight)))
        return asyncio.get_running_loop().time()

    return clock.run(main())


def fit(profile: Profile, measured: Sequence[Measured]) -> Profile:
    """The profile with the free times that suit `measured` best."""
    logs = np.log([5e-3, 1e-4, 5e-5, 3e-3])

    def made(values: np.ndarray) -> Profile:
        return replace(profile, **dict(zip(FREE, np.exp(values).tolist(), strict=True)))

    def residuals(values: np.ndarray) -> np.ndarray:
        simulated = made(values)
        return np.array([np.log(simulate(simulated, one) / one.seconds) for one in measured])

    errors = residuals(logs)
    for _ in range(8):
        slopes = np.stack(
            [(residuals(logs + step) - errors) / 0.05 for step in 0.05 * np.eye(len(logs))], axis=1
        )
        # A little damping: a time that hardly matters must not run away.
        damped = np.vstack([slopes, 0.05 * np.eye(len(logs))])
        change = np.linalg.lstsq(damped, -np.append(errors, np.zeros(len(logs))), rcond=None)[0]
        for share in (1.0, 0.5, 0.25, 0.1):
            better = residuals(logs + share * change)
            if better @ better < errors @ errors:
                logs, errors = logs + share * change, better
                break
        else:
            break
    return made(logs)


def main() -> int:
    """Exit status: 0 fitted, 2 where vLLM is not installed."""
    console = Console()
    if not INSTALLED:
        console.print("vLLM is not installed here: run `make setup-serve` first")
        return 2
    with tempfile.TemporaryDirectory() as folder:
        server = Vllm(Path(folder))
        try:
            server.start()
            measured = measure_all(server.url)
        finally:
            server.interrupt()
            server.gone()
    profile = fit(find("cpu-tiny"), [one for one in measured if not one.load.held_out])
    table = Table("in flight", "prompt", "reply", "requests", "measured s", "simulated s", "error")
    for one in measured:
        load, seconds = one.load, simulate(profile, one)
        error = f"{seconds / one.seconds - 1:+.0%}{' held out' if load.held_out else ''}"
        sizes = f"{np.mean(one.prompts):.0f}", f"{np.mean([n for _, _, n in load.requests()]):.0f}"
        counts = str(load.in_flight), *sizes, str(load.count)
        table.add_row(*counts, f"{one.seconds:.2f}", f"{seconds:.2f}", error)
    console.print(table)
    for name in FREE:
        console.print(f"{name}={getattr(profile, name):.3g},")
    return 0


if __name__ == "__main__":
    sys.exit(main())
