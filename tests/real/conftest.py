"""One real vLLM, started as users start one, for all tests that leave it alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.real.server import INSTALLED, KEY, Vllm


@dataclass(frozen=True)
class RealServer:
    url: str
    env: dict[str, str]


@pytest.fixture(scope="session")
def installed() -> None:
    if not INSTALLED:
        pytest.skip("vLLM is not installed here; `make test` installs it where it can")


@pytest.fixture(scope="session")
def vllm(installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    server = Vllm(tmp_path_factory.mktemp("vllm"), make=True)
    try:
        server.start()
        yield RealServer(server.url, {"MEDAGENTS_API_KEY": KEY})
    finally:
        server.interrupt()
        server.gone()
    assert "the server has stopped" in server.log
