"""Several simulated servers, in simulated time: speed-up, a slow one, one that dies meanwhile."""

from __future__ import annotations

import asyncio
import io
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from medagents_async import job as jobs
from medagents_async.bench.ground import SimulatedServers, Transports
from medagents_async.bench.measure import Recorder
from medagents_async.datasets.reader import Selection
from medagents_async.engine import jsonl
from medagents_async.engine.fleet import Fleet
from medagents_async.engine.runner import Totals
from medagents_async.engine.scheduler import Scheduler
from medagents_async.plan import Job
from medagents_async.simulator import profiles, realistic
from medagents_async.simulator.profiles import Profile
from medagents_async.simulator.service import Service
from medagents_async.simulator.transport import SimulatedTransport
from tests.benchmarks import questions
from tests.benchmarks.rows import Findings, bounds

PART = "fleet"
PROFILE = profiles.find("llama-3.1-8b-h100")
IN_FLIGHT = 64  # for each server
PER_SERVER = {"medagents": 400, "cot": 700}  # questions: enough to keep all busy
#: More would only take longer to simulate; `cot` shows the same for one call a question.
SPEED_UPS = {"medagents": (1, 2, 4, 8), "cot": (16, 32, 64)}


class Servers(SimulatedServers):
    """Keeps its services, so that they can be stopped and their ledgers read."""

    def connect(self, url: str) -> Transports:
        profile = self.profiles[self.base_urls.index(url)]
        service = Service(realistic, profile=profile, prefix_cache=True, keep=0)
        self.services.append(service)
        transport = SimulatedTransport(service)
        return transport, transport

    def __post_init__(self) -> None:
        super().__post_init__()
        self.services: list[Service] = []


def fleet() -> Findings:
    found, held = Findings(PART), bounds(PART)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = folder / "in.jsonl"
        questions.write(source, 64 * PER_SERVER["cot"], 700)
        one = {
            method: _run(folder, source, [PROFILE], method)["body_calls_per_s"]
            for method in SPEED_UPS
        }
        for method, counts in SPEED_UPS.items():
            for count in counts[method == "medagents" :]:
                run = _run(folder, source, [PROFILE] * count, method)
                found.at_least(
                    f"{count} servers, {method}: times one server",
                    run["body_calls_per_s"] / one[method],
                    held["speed_up"] * count,
                    f"{run['questions_per_hour']:,.0f} questions/h; {_nothing_lost(found, run)}",
                )
        slow = _run(folder, source, [PROFILE, _half(PROFILE)], "medagents")
        found.at_least(
            "2 servers, one at half speed: times one server",
            slow["body_calls_per_s"] / one["medagents"],
            held["with_a_slow_one"],
            _nothing_lost(found, slow),
        )
        both = _run(folder, source, [PROFILE] * 2, "medagents")
        killed = _run(folder, source, [PROFILE] * 2, "medagents", kill_at=both["seconds"] / 2)
        found.at_most(
            "2 servers, one killed half-way: time over half of each",
            killed["seconds"] / (1.5 * both["seconds"]),
            held["killed"],
            _nothing_lost(found, killed),
        )
    return found


def _half(profile: Profile) -> Profile:
    return replace(
        profile,
        name=f"{profile.name}, half",
        flops=profile.flops / 2,
        bandwidth=profile.bandwidth / 2,
        step_s=2 * profile.step_s,
        sequence_s=2 * profile.sequence_s,
        request_s=2 * profile.request_s,
    )


def _run(
    folder: Path,
    source: Path,
    servers: Sequence[Profile],
    method: str,
    kill_at: float | None = None,
) -> dict[str, Any]:
    """Figures of one run; `kill_at` is when the last server dies, in simulated seconds."""
    ground = Servers(servers)
    output = folder / "out.jsonl"
    output.unlink(missing_ok=True)
    output.with_suffix(".run.json").unlink(missing_ok=True)
    recorder = Recorder()

    async def kill(scheduler: Scheduler, fleet: Fleet, totals: Totals) -> None:
        del scheduler, fleet, totals
        if kill_at is not None:
            await asyncio.sleep(kill_at)
            ground.services[-1].state = "stopped"
        await asyncio.Event().wait()

    wanted = PER_SERVER[method] * len(servers)
    job = Job(
        input=source,
        output=output,
        base_urls=ground.base_urls,
        method=method,
        concurrency=IN_FLIGHT * len(servers),
        server_grace=1e6,
        selection=Selection(wanted, None, 0, None),
    )
    summary = ground.run(
        jobs.run(
            job,
            Console(file=io.StringIO()),
            connect=ground.connect,
            observers=[recorder, kill] if kill_at else [recorder],
        )
    )
    result = recorder.result(summary, output)
    ids = [row["id"] for _, row in jsonl.read(output)]
    result["lost"] = wanted - len(set(ids)) + summary["error"]
    result["doubled"] = len(ids) - len(set(ids))
    result["repeated"] = sum(service.repeated for service in ground.services)
    return result


def _nothing_lost(found: Findings, run: dict[str, Any]) -> str:
    """The three counts, each held to 0."""
    counts = {name: run[name] for name in ("lost", "doubled", "repeated")}
    if any(counts.values()):
        found.exactly("lost, doubled or repeated", sum(counts.values()), 0, str(counts))
    return ", ".join(f"{count} {name}" for name, count in counts.items())
