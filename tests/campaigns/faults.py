"""`make faults`: every fault that a server can have, in the middle of real runs of the command.

Passing faults hit one call in `EVERY` on its first tries and must leave no trace in the results;
lasting ones hit one call of some questions on every try and must end just those, as errors.
"""

from __future__ import annotations

import sys
import tempfile
import zlib
from pathlib import Path
from typing import Any

from medagents_async.simulator import Reply, Request, plausible, running
from tests.campaigns.ledger import Line, Sound, judge, show
from tests.conftest import question_row
from tests.support.command import Run

QUESTIONS = 40
EVERY = 20

PASSING: dict[str, Reply] = {
    "500": Reply(status=500, error="EngineCore encountered an issue"),
    "502": Reply(status=502, body=b"<html>Bad Gateway</html>"),
    "503 queue full": Reply(status=503, error="The engine is currently busy"),
    "429 with Retry-After": Reply(status=429, headers={"retry-after": "0.2"}),
    "408": Reply(status=408),
    "reset after the request": Reply(fault="reset"),
    "body cut short": Reply(fault="truncate"),
    "broken off by the server": Reply("The patient", finish_reason="abort"),
    "no byte, ever": Reply(fault="hang"),
    "late": Reply(delay=60.0),
}
LASTING: dict[str, tuple[Reply, str]] = {
    "always 503": (Reply(status=503), "unavailable"),
    "always reset": (Reply(fault="reset"), "unavailable"),
    "always silent": (Reply(fault="hang"), "timeout"),
    "400 bad request": (Reply(status=400, error="prompt too long"), "refused"),
    "401 in mid-run": (Reply(status=401), "refused"),
    "404 model is gone": (Reply(status=404, error="no such model"), "refused"),
    "422": (Reply(status=422, error="bad parameter"), "refused"),
    "redirect": (Reply(status=302, headers={"location": "http://127.0.0.1:9/"}), "refused"),
    "200, not JSON": (Reply(fault="garbage"), "malformed"),
    "200, no choices": (Reply(body=b'{"choices": []}'), "malformed"),
    "200, choices of another shape": (Reply(body=b'{"choices": [[]]}'), "malformed"),
    "200, a list": (Reply(body=b"[]"), "malformed"),
    "200, an error object": (Reply(body=b'{"error": {"message": "late"}}'), "malformed"),
    "empty text": (Reply(""), "empty"),
    "null text": (Reply(None), "empty"),
    "only reasoning": (Reply(None, reasoning="Let me think."), "reasoning_only"),
    "only reasoning, older name": (
        Reply(None, reasoning="Let me think.", reasoning_field="reasoning_content"),
        "reasoning_only",
    ),
    "<think> never closed": (Reply("<think>A or B"), "reasoning_only"),
    "cut while thinking": (Reply("<think>A or B", finish_reason="length"), "truncated"),
    "cut before any text": (Reply(None, finish_reason="length"), "truncated"),
}
OPTIONS = ("--concurrency", "32", "--timeout", "2", "--retries", "4", "--trace", "full")
STRUCK = "summarise"


def struck(request: Request) -> bool:
    """One call in EVERY, the same ones in every run."""
    return zlib.crc32(request.request_id.encode()) % EVERY == 0


def passing(fault: Reply) -> Sound:
    return Sound(
        lambda request: fault if request.attempt < 2 and struck(request) else plausible(request),
        [fault],
    )


def lasting(fault: Reply, victims: set[str]) -> Sound:
    return Sound(
        lambda request: (
            fault
            if request.stage == STRUCK and request.question_id in victims
            else plausible(request)
        ),
        [fault],
    )


def one(name: str, script: Sound, clean: dict[str, Any], expected: dict[str, str]) -> Line:
    with tempfile.TemporaryDirectory() as folder, running(script) as simulator:
        job = Run(Path(folder), simulator.url, [question_row(n) for n in range(QUESTIONS)])
        result = job(*OPTIONS)
        line = judge(name, job, QUESTIONS, clean, expected)
        line.bad["repeated"] = script.repeated
        line.bad["exit"] = abs(result.code - (1 if expected else 0))
        line.bad["journal"] = len(job.journal())
        return line


def main() -> int:
    with tempfile.TemporaryDirectory() as folder, running(plausible) as simulator:
        job = Run(Path(folder), simulator.url, [question_row(n) for n in range(QUESTIONS)])
        assert job(*OPTIONS).code == 0
        clean = {row["id"]: job.steady(row) for row in job.rows()}
    victims = {f"q{n}" for n in range(0, QUESTIONS, 7)}
    lines = [one(name, passing(fault), clean, {}) for name, fault in PASSING.items()]
    for name, (fault, kind) in LASTING.items():
        expected = dict.fromkeys(victims, kind)
        lines.append(one(name, lasting(fault, victims), clean, expected))
    return 0 if show(f"Faults: {len(lines)} runs of {QUESTIONS} questions", lines) else 1


if __name__ == "__main__":
    sys.exit(main())
