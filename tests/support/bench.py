"""A question on the workbench: a method run against scripted replies, on a virtual clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from medagents_async import methods
from medagents_async.engine.ask import Asker, Desk, Pool
from medagents_async.engine.journal import Record
from medagents_async.engine.lanes import Priority, Seat
from medagents_async.engine.retry import Attempts
from medagents_async.prompts import PromptPack
from medagents_async.simulator import clock
from medagents_async.types import Call, Completion, Decision, Question, Sampling, Step, Usage

#: A reply's text, one for each sample, or the error that the call raises.
Said = str | Sequence[str] | Exception
Model = Callable[[Call], Said]

QUESTION = Question(
    "q1",
    0,
    "A 60-year-old man has crushing chest pain. Which test comes first?",
    {"A": "Electrocardiogram", "B": "Chest radiograph", "C": "Spirometry", "D": "Biopsy"},
)


@dataclass
class Seen:
    """What happened: the decision, each call's (start, end), and the steps in reading order."""

    decision: Decision
    spans: dict[str, tuple[float, float]]
    steps: list[Step]
    bodies: dict[str, dict[str, Any]] = field(default_factory=dict)

    def count(self, stage: str) -> int:
        return sum(name.startswith(f"{stage}:") for name in self.spans)

    @property
    def makespan(self) -> float:
        return max(end for _, end in self.spans.values())

    def prompt(self, name: str) -> str:
        return "\n".join(message["content"] for message in self.bodies[name]["messages"])


def answer(
    model: Model,
    *,
    method: str = "medagents",
    preset: str | None = None,
    question: Question = QUESTION,
    seconds: Callable[[Call], float] = lambda _: 1.0,
    **settings: Any,
) -> Seen:
    """Run one question; every call takes `seconds` and says what `model` does.

    Calls are named `stage:n`.
    """
    found = methods.find(method)
    spans: dict[str, tuple[float, float]] = {}
    bodies: dict[str, dict[str, Any]] = {}

    async def complete(
        call: Call, priority: Priority, seat: Seat, attempts: Attempts
    ) -> Completion:
        del priority
        attempts.attempts, attempts.server = 1, seat.pool
        clock = asyncio.get_running_loop().time
        begun, name = clock(), f"{call.stage}:{call.n}"
        await asyncio.sleep(seconds(call))
        spans[name], bodies[name] = (begun, clock()), orjson.loads(call.body)
        said = model(call)
        if isinstance(said, Exception):
            raise said
        first, *more = [said] if isinstance(said, str) else said
        return Completion(
            first, "stop", Usage(100, 10, 0), more=tuple((text, "stop") for text in more)
        )

    desk = Desk(
        prompts=PromptPack(found.name),
        pools={"": Pool("m")},
        sampling=Sampling(),
        complete=complete,
    )
    solve = found.solver(found.parameters(preset, settings))

    async def main() -> tuple[Decision, list[Step]]:
        asker = Asker(desk, question, 0, 0, Record(), lambda: None)
        decision = await solve(question, asker)
        return decision, sorted(asker.steps, key=lambda step: step.order)

    decision, steps = clock.run(main())
    return Seen(decision, spans, steps, bodies)
