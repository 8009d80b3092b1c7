"""`--dry-run`: the first question's prompts and the calls to expect, without a server."""

from __future__ import annotations

import orjson
from rich.console import Console
from rich.text import Text

from medagents_async.engine.ask import Asker
from medagents_async.engine.journal import Record
from medagents_async.engine.retry import Attempts
from medagents_async.engine.scheduler import Priority
from medagents_async.plan import Plan
from medagents_async.reporting.tables import printable
from medagents_async.simulator import Request, plausible
from medagents_async.types import Call, Completion, Usage


async def show(plan: Plan, console: Console) -> None:
    """Print every call that the first question makes when invented replies answer it."""

    async def invented(call: Call, _: Priority, attempts: Attempts) -> Completion:
        attempts.attempts = 1
        request = Request(orjson.loads(call.body), call.stage, call.question_id, n=call.n)
        return Completion(plausible(request).text or "", "stop", Usage())

    item = next(plan.source.items(), None)
    if item is None:
        console.print("no question is selected; nothing was sent")
        return
    desk = plan.desk(plan.job.model or "MODEL", invented, plan.job.base_url)
    asker = Asker(desk, item.question, 0, 0, Record(None), lambda: None)
    await plan.method.solver(plan.parameters)(item.question, asker)
    for step in sorted(asker.steps, key=lambda step: step.order):
        body = orjson.loads(step.call.body)
        messages = body.pop("messages")
        console.rule(Text(printable(f"{step.call.stage} {step.call.n} {step.agent or ''}")))
        console.print(Text(printable(orjson.dumps(body).decode()), style="dim"))
        for message in messages:
            console.print(Text(printable(f"[{message['role']}]\n{message['content']}\n")))
    questions = len(plan.source) * plan.job.repeats
    console.print(
        f"{len(plan.source)} questions x {plan.job.repeats}; {len(asker.steps)} calls for the "
        f"first with invented replies, so about {questions * len(asker.steps):,} in all; "
        "nothing was sent",
        highlight=False,
    )
