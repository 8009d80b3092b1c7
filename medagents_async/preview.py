"""What can be seen without a server: `--list-methods`, and `--dry-run` on the first question."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import orjson
from annotated_types import Ge, Gt, Le
from rich.console import Console
from rich.text import Text

from medagents_async.engine.ask import Asker, Pool
from medagents_async.engine.journal import Record
from medagents_async.engine.lanes import Priority, Seat
from medagents_async.engine.retry import Attempts
from medagents_async.errors import BadImage, UsageError
from medagents_async.methods import Method
from medagents_async.plan import Plan
from medagents_async.reporting.tables import printable
from medagents_async.simulator import Request, plausible
from medagents_async.types import Call, Completion, Usage


def described(method: Method) -> Iterator[str]:
    """Lines on a method: calls and their depth for one question, presets, parameters."""
    yield method.name
    yield f"    calls a question: {method.calls}"
    yield f"    one after another: {method.depth}"
    for name, values in method.presets.items():
        changes = " ".join(f"{key}={value}" for key, value in values.items()) or "the defaults"
        yield f"    --preset {name}: {changes}"
    for name, default in method.defaults.items():
        yield f"    --set {name}={default}  ({_type(method.hints[name])})"


def _type(hint: Any) -> str:
    """A parameter's annotated type, in a user's words."""
    kind, parts = get_origin(hint), get_args(hint)
    if kind is Annotated:
        return " ".join([_type(parts[0]), *map(_limit, parts[1:])])
    if kind is Literal:
        return "|".join(str(part) for part in parts)
    if kind in (Union, UnionType):
        return " or ".join(_type(part) for part in parts)
    if kind is list:
        return f"list of {_type(parts[0])}, as a|b|c"
    names = {NoneType: "None", Path: "file", bool: "True or False"}
    return names[hint] if hint in names else str(getattr(hint, "__name__", hint))


def _limit(limit: object) -> str:
    match limit:
        case Ge(bound):
            return f">= {bound}"
        case Gt(bound):
            return f"> {bound}"
        case Le(bound):
            return f"<= {bound}"
    return str(limit)


def _read(content: str | list[dict[str, Any]]) -> str:
    """A message's text, with images by name."""
    if isinstance(content, str):
        return content
    return "\n\n".join(part.get("text") or part["image_url"]["url"] for part in content)


async def show(plan: Plan, console: Console) -> None:
    """Print every call that the first question makes when invented replies answer it."""

    async def invented(call: Call, _: Priority, seat: Seat, attempts: Attempts) -> Completion:
        attempts.attempts, attempts.server = 1, seat.pool
        request = Request(orjson.loads(call.body), call.stage, call.question_id, n=call.n)
        texts = [plausible(replace(request, sample=n)).text or "" for n in range(call.samples)]
        more = tuple((text, "stop") for text in texts[1:])
        return Completion(texts[0], "stop", Usage(), more=more)

    item = next(plan.source.items(), None)
    if item is None:
        console.print("no question is selected; nothing was sent")
        return
    pools = {server.pool: Pool(server.model or "MODEL") for server in plan.addresses()}
    desk = plan.desk(pools, invented)
    asker = Asker(desk, item.question, 0, 0, Record(), lambda: None)
    try:
        await plan.method.solver(plan.parameters)(item.question, asker)
    except BadImage as error:
        raise UsageError(str(error)) from error
    for step in sorted(asker.steps, key=lambda step: step.order):
        body = orjson.loads(step.call.body)
        messages = body.pop("messages")
        console.rule(Text(printable(f"{step.call.stage} {step.call.n} {step.agent or ''}")))
        console.print(Text(printable(orjson.dumps(body).decode()), style="dim"))
        for message in messages:
            console.print(Text(printable(f"[{message['role']}]\n{_read(message['content'])}\n")))
    questions = len(plan.source) * plan.job.repeats
    console.print(
        f"{len(plan.source)} questions x {plan.job.repeats}; {len(asker.steps)} calls for the "
        f"first with invented replies, so about {questions * len(asker.steps):,} in all; "
        "nothing was sent",
        highlight=False,
    )
