"""A server so cheap that only its client is measured: `python -m tests.benchmarks.server`.

It reads as much HTTP as its clients write (keep-alive, Content-Length, no chunks) and answers
every chat completion with the same bytes, after a time that is evenly spread over a range.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import re
from collections.abc import Callable
from typing import ClassVar, cast

import orjson
import uvloop

MODEL = "bench"
GATE_PATIENCE_S = 10.0
_ROUTE = re.compile(rb"([A-Z]+) ([^ ]+) HTTP/1\.1\r\n")
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_GOLDEN = 0.618033988749895  # multiples of it, modulo 1, are spread evenly however many there are

_TEXT = (
    "The history points to one mechanism, and every finding is weighed against it in turn. The "
    "time course is too short for a degenerative process and too long for an embolic one. The "
    "laboratory values show a mixed picture: the first is at the upper limit of normal, the second "
    "is clearly raised, and the third would be expected in either case. Imaging adds that the "
    "lesion is confined to one compartment. Option A would explain the pain but not the fever. "
    "Option C needs an exposure that the history denies. Option D is a complication of the "
    "condition rather than its cause, and would come later. That leaves a single choice, which "
    "accounts for all findings without a further assumption and has a treatment that is safe to "
    "begin at once.\n\nANSWER: B\n\nOption: B"
)


def _http(status: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


def completion() -> bytes:
    """A chat completion as vLLM writes it, 1.2 KB."""
    return orjson.dumps(
        {
            "id": "chatcmpl-0123456789abcdef0123456789abcdef",
            "object": "chat.completion",
            "created": 1_700_000_000,
            "model": MODEL,
            "choices": [
                {
                    "index": 0,
                    "message": {
                        "role": "assistant",
                        "content": _TEXT,
                        "refusal": None,
                        "reasoning": None,
                    },
                    "logprobs": None,
                    "finish_reason": "stop",
                    "stop_reason": None,
                }
            ],
            "usage": {
                "prompt_tokens": 700,
                "total_tokens": 880,
                "completion_tokens": 180,
                "prompt_tokens_details": {"cached_tokens": 0},
            },
            "system_fingerprint": "bench-1",
            "prompt_logprobs": None,
            "kv_transfer_params": None,
        }
    )


class Desk:
    """What all connections share: the counters, and when a reply is due."""

    def __init__(self, low: float, high: float) -> None:
        self._low, self._spread = low, high - low
        self._loop = asyncio.get_running_loop()
        self.reset(0)

    def reset(self, gate: int) -> None:
        """Count anew; hold the first replies back until `gate` requests are in flight at once.

        So it is seen what a client can have in flight, however slow it is compared with the
        replies. One that cannot have so many is let in after a while, with its lower peak.
        """
        self.requests = self.peak = self.in_flight = self.bytes = 0
        self._gate = gate
        self._held: list[Callable[[], None]] = []
        self._turn = itertools.count()

    def counters(self) -> bytes:
        return orjson.dumps(
            {
                "requests": self.requests,
                "peak": self.peak,
                "in_flight": self.in_flight,
                "bytes": self.bytes,
            }
        )

    def arrived(self, length: int, answer: Callable[[], None]) -> None:
        self.requests += 1
        self.bytes += length
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        if self._gate:
            if not self._held:
                self._timer = self._loop.call_later(GATE_PATIENCE_S, self._open)
            self._held.append(answer)
            if self.in_flight >= self._gate:
                self._open()
        else:
            self._later(answer)

    def _open(self) -> None:
        self._timer.cancel()  # else it would open the gate of a later run
        self._gate, held, self._held = 0, self._held, []
        for one in held:
            self._later(one)

    def _later(self, answer: Callable[[], None]) -> None:
        share = next(self._turn) * _GOLDEN % 1.0
        self._loop.call_later(self._low + self._spread * share, answer)


class Connection(asyncio.Protocol):
    """One client connection; a request at a time, as HTTP/1.1 clients send them."""

    CHAT = _http("200 OK", completion())
    NOT_FOUND = _http("404 Not Found", b'{"detail":"Not Found"}')
    FIXED: ClassVar = {
        b"/health": _http("200 OK", b""),
        b"/version": _http("200 OK", b'{"version":"bench"}'),
        b"/v1/models": _http(
            "200 OK", orjson.dumps({"data": [{"id": MODEL, "max_model_len": 131_072}]})
        ),
    }

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one by its methods only

    def data_received(self, data: bytes) -> None:
        received = self._received + data if self._received else data
        end = received.find(b"\r\n\r\n")
        if end >= 0:
            found = _LENGTH.search(received, 0, end)
            length = int(found[1]) if found else 0
            if len(received) >= end + 4 + length:
                self._received = b""
                self._handle(received, length)
                return
        self._received = received

    def _handle(self, request: bytes, length: int) -> None:
        route = _ROUTE.match(request)
        method, path = (route[1], route[2]) if route else (b"", b"")
        if method == b"POST" and path == b"/v1/chat/completions":
            self._desk.arrived(length, self._complete)
        elif method == b"GET" and path == b"/peak":
            self._transport.write(_http("200 OK", self._desk.counters()))
        elif method == b"POST" and path.startswith(b"/reset/"):
            self._desk.reset(int(path.removeprefix(b"/reset/")))
            self._transport.write(_http("200 OK", b"{}"))
        else:
            self._transport.write(self.FIXED.get(path, self.NOT_FOUND))

    def _complete(self) -> None:
        self._desk.in_flight -= 1
        self._transport.write(self.CHAT)  # into nothing where the client is gone


async def serve(low: float, high: float) -> None:
    """Print the port and serve until the process is ended; replies take `low` to `high` s."""
    desk = Desk(low, high)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(desk), "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser("python -m tests.benchmarks.server", description=__doc__)
    parser.add_argument("low", type=float, help="seconds")
    parser.add_argument("high", type=float, help="seconds")
    options = parser.parse_args()
    uvloop.run(serve(options.low, options.high))


if __name__ == "__main__":
    main()
