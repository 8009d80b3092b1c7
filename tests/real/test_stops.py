"""A real vLLM, stopped in each way that it knows in the middle of a run, and started again."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.real.server import KEY, Vllm
from tests.real.test_vllm import SHORT
from tests.support.command import Run, finish, until

Rows = Callable[[int], list[dict[str, Any]]]
MakeRun = Callable[..., Run]

pytestmark = pytest.mark.real

WAYS: dict[str, Callable[[Vllm], None]] = {
    "told to drain": Vllm.interrupt,
    "terminated without a drain": lambda server: server.signal_server(signal.SIGTERM),
    "killed": lambda server: server.signal_server(signal.SIGKILL),
    "engine killed": Vllm.kill_engine,
}


@pytest.fixture(scope="module")
def server(installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vllm]:
    """Started for the first way; each test leaves it started again for the next."""
    server = Vllm(tmp_path_factory.mktemp("stops"))
    try:
        server.start()
        yield server
    finally:
        server.interrupt()
        server.gone()


@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_lost(server: Vllm, run: MakeRun, rows: Rows, way: str) -> None:
    job = run(server.url, rows(12))
    # With fewer tries a call may use them up before the run has made out that all are refused.
    options = [*SHORT, "--set", "analysis_tokens=200", "--set", "constrain=true", "--retries", "9"]
    process = job.start(*options, "--concurrency", "16", env={"MEDAGENTS_API_KEY": KEY})
    journal = job.folder / "out.journal"
    until(lambda: journal.exists() and len(list(journal.iterdir())) >= 4)
    WAYS[way](server)
    server.gone()
    assert process.poll() is None, "the run ended before the server did"
    # vLLM's default, with which calls in flight hang; the first way is for the one that drains.
    server.extra = "--shutdown-timeout=0"
    server.start()
    result = finish(process)
    errors = [row["error"] for row in job.rows() if row["error"]]
    assert not errors, errors
    assert result.code == 0
    assert Counter(row["id"] for row in job.rows()) == Counter(f"q{n}" for n in range(12))
    assert {row["status"] for row in job.rows()} == {"ok"}
    assert "is back" in result.err
