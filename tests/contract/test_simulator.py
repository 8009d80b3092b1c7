"""The simulator against recordings of a real vLLM server, and against what it promises."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import aiohttp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medagents_async.errors import UsageError
from medagents_async.simulator import (
    Reply,
    Request,
    Script,
    Simulator,
    load_script,
    plausible,
    realistic,
    running,
)
from medagents_async.simulator.plausible import LENGTHS, SPECIALTIES
from medagents_async.simulator.profiles import find
from medagents_async.simulator.vllm import cut

SAMPLES = os.environ.get("MEDAGENTS_VLLM_SAMPLES", "")
needs_samples = pytest.mark.skipif(
    not Path(SAMPLES or "/nonexistent").is_dir(),
    reason="MEDAGENTS_VLLM_SAMPLES names no folder with recordings of a real server",
)
QUESTION = "A 5-year-old has a rash.\n(A) measles\n(B) rubella\n(C) scarlet fever"


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=60)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as client:
        yield client


def body(text: str = "Hello", **fields: object) -> dict[str, Any]:
    return {"model": "simulator", "messages": [{"role": "user", "content": text}], **fields}


def ask(text: str = "", stage: str = "", **fields: object) -> str:
    """What the default model says."""
    reply = plausible(Request(body=body(text, **fields), stage=stage))
    assert isinstance(reply.text, str)
    return reply.text


async def post(
    client: aiohttp.ClientSession,
    simulator: Simulator,
    text: str = "Hello",
    *,
    request_id: str | None = None,
    **fields: object,
) -> tuple[int, Any]:
    headers = {"X-Request-Id": request_id} if request_id else {}
    url = f"{simulator.url}/chat/completions"
    async with client.post(url, json=body(text, **fields), headers=headers) as response:
        return response.status, await response.json()


async def get(client: aiohttp.ClientSession, simulator: Simulator, path: str) -> tuple[int, str]:
    async with client.get(simulator.url.removesuffix("/v1") + path) as response:
        return response.status, await response.text()


def shape(value: object) -> object:
    """Keys and types, all the way down; lists by their first element."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shape(item) for item in value[:1]]
    return "number" if type(value) in (int, float) else type(value).__name__


# -- the bodies ------------------------------------------------------------------------------

IN_VLLMS_WORDS = (
    "auth_missing auth_models_missing auth_wrong err_empty_messages err_method err_n0 "
    "err_not_found_route err_unknown_model health so_empty_choice so_two version"
)
IN_VLLMS_SHAPE = (
    "auth_ok auth_tokenize_missing chat_basic chat_content_parts chat_length chat_n3 "
    "chat_no_system chat_request_id chat_weird_role err_bad_json err_max_tokens_0 "
    "err_max_tokens_str err_missing_messages err_prompt_plus_max_tokens err_prompt_too_long "
    "err_temperature_negative err_top_p err_unknown_param so_choice so_json "
    "so_legacy_guided_choice so_response_format_json_object so_response_format_json_schema "
    "tokenize_prompt"
)


def sample(name: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((Path(SAMPLES) / f"{name}.json").read_text())
    return read


async def replay(client: aiohttp.ClientSession, name: str) -> tuple[dict[str, Any], int, Any]:
    """Send what the real server was sent; (what it answered, our status, our body)."""
    recorded = sample(name)
    sent, answered = recorded["request"], recorded["response"]
    details = isinstance(answered["body"], dict) and answered["body"].get("usage", {}).get(
        "prompt_tokens_details"
    )
    async with Simulator(
        model="smollm2-135m-instruct",
        max_model_len=4096,
        api_key="sk-test" if name.startswith("auth_") else None,
        prefix_cache=bool(details),
    ) as simulator:
        raw = sent["body"] if isinstance(sent["body"], str) else json.dumps(sent["body"])
        url = simulator.url.removesuffix("/v1") + sent["path"]
        async with client.request(
            sent["method"], url, data=raw, headers=sent["headers"]
        ) as response:
            text = await response.text()
            return answered, response.status, json.loads(text) if text else text


@needs_samples
@pytest.mark.parametrize("name", IN_VLLMS_WORDS.split())
async def test_says_what_vllm_says(session: aiohttp.ClientSession, name: str) -> None:
    real, status, ours = await replay(session, name)
    assert (status, ours) == (real["status"], real["body"])


@needs_samples
@pytest.mark.parametrize("name", IN_VLLMS_SHAPE.split())
async def test_bodies_have_vllms_shape(session: aiohttp.ClientSession, name: str) -> None:
    real, status, ours = await replay(session, name)
    assert (status, shape(ours)) == (real["status"], shape(real["body"]))


@needs_samples
async def test_metrics_are_vllms(session: aiohttp.ClientSession) -> None:
    real = {line.rpartition(" ")[0] for line in sample("metrics")["response"]["body"].splitlines()}
    real |= set(sample("metrics")["response"]["body"].splitlines())
    for profile in (None, "cpu-tiny"):
        async with Simulator(model="smollm2-135m-instruct", profile=profile) as simulator:
            _, text = await get(session, simulator, "/metrics")
        for line in text.splitlines():
            assert (line if line.startswith("#") else line.rpartition(" ")[0]) in real


async def test_completion_shape(session: aiohttp.ClientSession) -> None:
    async with Simulator(lambda _: Reply("Option: B", reasoning="B it is")) as simulator:
        status, answer = await post(session, simulator, request_id="q%2F1/0/decide/0")
    assert status == 200
    assert shape(answer) == {
        "id": "str",
        "object": "str",
        "created": "number",
        "model": "str",
        "choices": [
            {
                "index": "number",
                "message": {
                    "role": "str",
                    "content": "str",
                    "refusal": "NoneType",
                    "annotations": "NoneType",
                    "audio": "NoneType",
                    "function_call": "NoneType",
                    "reasoning": "str",
                },
                "logprobs": "NoneType",
                "finish_reason": "str",
                "stop_reason": "NoneType",
                "token_ids": "NoneType",
                "routed_experts": "NoneType",
            }
        ],
        "service_tier": "NoneType",
        "system_fingerprint": "str",
        "usage": {
            "prompt_tokens": "number",
            "total_tokens": "number",
            "completion_tokens": "number",
            "prompt_tokens_details": "NoneType",
            "completion_tokens_details": "NoneType",
        },
        "prompt_logprobs": "NoneType",
        "prompt_token_ids": "NoneType",
        "prompt_text": "NoneType",
        "kv_transfer_params": "NoneType",
        "ec_transfer_params": "NoneType",
        "metrics": "NoneType",
    }
    assert answer["id"] == "chatcmpl-q%2F1/0/decide/0"
    assert answer["choices"][0]["message"]["content"] == "Option: B"
    assert answer["usage"]["completion_tokens"] == cut("Option: B B it is", 99)[1]


@pytest.mark.parametrize(
    ("fields", "status", "words"),
    [
        ({"model": "nope"}, 404, "The model `nope` does not exist. Valid aliases: simulator."),
        ({"messages": []}, 400, "Cannot apply chat template to an empty conversation."),
        ({"messages": "hi"}, 400, "Input should be a valid array"),
        ({"temperature": -1}, 400, "Input should be greater than or equal to 0"),
        ({"temperature": "hot"}, 400, "Input should be a valid number"),
        ({"top_p": 0}, 400, "Input should be greater than 0"),
        ({"top_p": 1.1}, 400, "Input should be less than or equal to 1"),
        ({"max_tokens": 0}, 400, "Input should be greater than or equal to 1"),
        ({"n": 0}, 400, "n must be at least 1, got 0."),
        ({"n": 2, "temperature": 0}, 400, "n must be 1 when using greedy sampling, got 2."),
        ({"structured_outputs": {"choice": []}}, 400, "cannot be an empty list"),
        ({"structured_outputs": {"choice": ["A"], "regex": "A"}}, 400, "only use one kind"),
    ],
)
async def test_refusals(
    session: aiohttp.ClientSession, fields: dict[str, object], status: int, words: str
) -> None:
    async with Simulator() as simulator:
        url = f"{simulator.url}/chat/completions"
        async with session.post(url, json=body() | fields) as response:
            answer = await response.json()
        assert (response.status, simulator.served, len(simulator.requests)) == (status, 0, 1)
    assert shape(answer["error"]) in (
        {"message": "str", "type": "str", "param": "str", "code": "number"},
        {"message": "str", "type": "str", "param": "NoneType", "code": "number"},
    )
    assert words in answer["error"]["message"]


@pytest.mark.parametrize("raw", [b"", b"[1]", b"{", b"{}", b"\xff"])
async def test_bodies_that_are_no_request_are_refused(
    session: aiohttp.ClientSession, raw: bytes
) -> None:
    async with Simulator() as simulator:
        headers = {"Content-Type": "application/json"}
        url = f"{simulator.url}/chat/completions"
        async with session.post(url, data=raw, headers=headers) as response:
            answer = await response.json()
    assert (response.status, answer["error"]["type"]) == (400, "Bad Request")


async def test_api_key_guards_v1_only(session: aiohttp.ClientSession) -> None:
    async with Simulator(api_key="k") as simulator:
        assert await post(session, simulator) == (401, {"error": "Unauthorized"})
        assert (await get(session, simulator, "/v1/models"))[0] == 401
        for path in ("/health", "/version", "/metrics", "/simulator/stats"):
            assert (await get(session, simulator, path))[0] == 200
        session.headers["Authorization"] = "Bearer k"
        assert (await post(session, simulator))[0] == 200


async def test_limits_on_length(session: aiohttp.ClientSession) -> None:
    words = "fever " * 40
    async with Simulator(lambda _: Reply("a b c d e f g h"), max_model_len=44) as simulator:
        status, answer = await post(session, simulator, "fever", max_tokens=3)
        assert answer["choices"][0]["message"]["content"] == "a b c"
        assert answer["choices"][0]["finish_reason"] == "length"
        assert answer["usage"]["completion_tokens"] == 3
        status, answer = await post(session, simulator, words, max_tokens=1000)  # cut in silence
        assert (status, answer["usage"]["total_tokens"]) == (200, 44)
        status, answer = await post(session, simulator, words * 2)
        assert (status, answer["error"]["param"]) == (400, "input_tokens")
        assert "maximum context length is 44 tokens" in answer["error"]["message"]


async def test_thought_may_use_up_all_tokens(session: aiohttp.ClientSession) -> None:
    thinking = Reply("Option: B", reasoning="well " * 9, reasoning_field="reasoning_content")
    async with Simulator(lambda _: thinking) as simulator:
        _, answer = await post(session, simulator, max_tokens=4)
    choice = answer["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == (None, "length")
    assert choice["message"]["reasoning_content"] == "well well well well"
    assert "reasoning" not in choice["message"]


async def test_prefix_cache_only_on_demand(session: aiohttp.ClientSession) -> None:
    text = "fever " * 100
    async with Simulator(prefix_cache=True) as simulator:
        cached = []
        for tail in ("", "", "and a cough"):
            _, answer = await post(session, simulator, text + tail)
            cached.append(answer["usage"]["prompt_tokens_details"]["cached_tokens"])
        assert cached == [0, 96, 96]  # whole blocks of 16, never the last token
        _, metrics = await get(session, simulator, "/metrics")
        hits = 'vllm:prefix_cache_hits_total{engine="0",model_name="simulator"} 192.0'
        assert hits in metrics.splitlines()


async def test_a_profile_takes_time_and_fills_the_metrics(session: aiohttp.ClientSession) -> None:
    quick = replace(find("cpu-tiny"), step_s=0.001, sequence_s=0, token_s=0, request_s=0)
    async with Simulator(profile=quick, prefix_cache=True) as simulator:
        assert simulator.max_model_len == 4096
        text = "fever " * 100
        begun = simulator.loop.time()
        for cached in (0, 96):  # blocks of 32 tokens
            _, answer = await post(session, simulator, text, max_tokens=10)
            assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == cached
        tokens = answer["usage"]["completion_tokens"]
        assert simulator.loop.time() - begun >= 2 * tokens * 0.001 * 0.999
        await post(session, simulator, "a short one")
        _, metrics = await get(session, simulator, "/metrics")
    values = dict(line.rsplit(" ", 1) for line in metrics.splitlines() if line[0] != "#")
    told = {name.partition("{")[0].removeprefix("vllm:"): float(x) for name, x in values.items()}
    assert told["prefix_cache_queries_total"] == 203
    assert told["prefix_cache_hits_total"] == told["prompt_tokens_cached_total"] == 96
    assert told["request_queue_time_seconds_count"] == 3
    assert told["num_requests_running"] == told["num_preemptions_total"] == 0
    reasons = 'vllm:request_success_total{engine="0",finished_reason="length"'
    assert values[f'{reasons},model_name="simulator"}}'] == "2.0"


async def test_a_profile_limits_seats_and_queue(session: aiohttp.ClientSession) -> None:
    slow = replace(find("cpu-tiny"), max_num_seqs=1, step_s=0.05)
    async with Simulator(profile=slow, max_queued=1) as simulator:
        tasks = []
        for text in "ab":
            tasks.append(asyncio.create_task(post(session, simulator, text)))
            await simulator.until(lambda: simulator.in_flight == len(tasks))
        assert (await post(session, simulator, "one too many"))[0] == 503
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await simulator.until(lambda: simulator.in_flight == 0)
        assert (await post(session, simulator, "again", max_tokens=1))[0] == 200
        await simulator.until(lambda: simulator.engine.running == 0)


async def test_n_samples_are_n_choices(session: aiohttp.ClientSession) -> None:
    def script(request: Request) -> Reply:
        return Reply(f"sample {request.sample}" + " more" * request.sample)

    for profile in (None, "cpu-tiny"):
        async with Simulator(script, profile=profile) as simulator:
            _, answer = await post(session, simulator, n=3, max_tokens=3)
        said = [choice["message"]["content"] for choice in answer["choices"]]
        assert said == ["sample 0", "sample 1 more", "sample 2 more"]
        assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
        reasons = [choice["finish_reason"] for choice in answer["choices"]]
        assert reasons == ["stop", "stop", "length"]
        assert answer["usage"]["completion_tokens"] == 2 + 3 + 3


# -- replies and faults ----------------------------------------------------------------------


async def test_request_fields(session: aiohttp.ClientSession) -> None:
    async with Simulator() as simulator:
        for _ in range(2):
            await post(session, simulator, "Is it?", request_id=f"{quote('ä/1', '')}/2/vote/3")
        await post(session, simulator, request_id="other")
        first, second, third = simulator.requests
        assert (first.question_id, first.repeat, first.stage, first.n) == ("ä/1", 2, "vote", 3)
        assert (first.user, first.system, first.body["model"]) == ("Is it?", "", "simulator")
        assert first.headers["content-type"] == "application/json"
        assert [r.attempt for r in (first, second, third)] == [0, 1, 0]
        assert [r.arrival for r in (first, second, third)] == [0, 1, 2]
        assert (third.stage, third.question_id, third.request_id) == ("", "", "other")
        _, stats = await get(session, simulator, "/simulator/stats")
        assert json.loads(stats) == {
            "requests": 3,
            "in_flight": 0,
            "max_in_flight": 1,
            "served": 3,
            "disconnected": 0,
            "repeated": 1,
        }
        async with session.post(simulator.url.replace("/v1", "/simulator/reset")):
            assert (simulator.requests, simulator.served, simulator.repeated) == ([], 0, 0)


@pytest.mark.parametrize(
    ("reply", "status", "answer"),
    [
        (Reply(status=401), 401, {"error": "Unauthorized"}),
        (Reply(status=429, error="slow down"), 429, "slow down"),
        (Reply(status=500), 500, "Internal Server Error"),
        (Reply(status=503), 503, "Service Unavailable"),
        (Reply(body=b'{"choices": []}'), 200, {"choices": []}),
    ],
)
async def test_scripted_status(
    session: aiohttp.ClientSession, reply: Reply, status: int, answer: str | dict[str, object]
) -> None:
    async with Simulator(lambda _: reply) as simulator:
        got, said = await post(session, simulator)
    assert got == status
    if isinstance(answer, str):
        assert answer in said["error"]["message"]
        assert said["error"]["code"] == status
    else:
        assert said == answer


async def test_scripted_headers_and_usage(session: aiohttp.ClientSession) -> None:
    reply = Reply(
        headers={"Retry-After": "7"}, prompt_tokens=11, completion_tokens=5, cached_tokens=3
    )
    async with Simulator(lambda _: reply) as simulator:
        url = f"{simulator.url}/chat/completions"
        async with session.post(url, json=body(), headers={"X-Request-Id": "x"}) as response:
            usage = (await response.json())["usage"]
            assert response.headers["Retry-After"] == "7"
            assert response.headers["X-Request-Id"] == "x"
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (11, 5)
    assert (usage["total_tokens"], usage["prompt_tokens_details"]["cached_tokens"]) == (16, 3)


async def raw_exchange(simulator: Simulator) -> bytes:
    """Everything that the server sends for one request, without an HTTP client in between."""
    reader, writer = await asyncio.open_connection(simulator.host, simulator.port)
    content = json.dumps(body()).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(content)}\r\n\r\n"
    )
    writer.write(head.encode() + content)
    try:
        return await reader.read()
    finally:
        writer.close()


async def test_reset_breaks_the_connection_before_any_byte() -> None:
    async with Simulator(lambda _: Reply(fault="reset")) as simulator:
        with pytest.raises(ConnectionResetError):
            await raw_exchange(simulator)
        assert (len(simulator.requests), simulator.served, simulator.disconnected) == (1, 0, 0)


async def test_truncate_sends_half_of_the_body() -> None:
    async with Simulator(lambda _: Reply(fault="truncate")) as simulator:
        head, _, half = (await raw_exchange(simulator)).partition(b"\r\n\r\n")
        assert simulator.served == 0
    (length,) = (line for line in head.split(b"\r\n") if line.startswith(b"Content-Length"))
    assert head.startswith(b"HTTP/1.1 200")
    assert len(half) == int(length.split(b":")[1]) // 2


async def test_garbage_is_a_200_without_json(session: aiohttp.ClientSession) -> None:
    async with Simulator(lambda _: Reply(fault="garbage")) as simulator:
        async with session.post(f"{simulator.url}/chat/completions", json=body()) as response:
            text = await response.text()
        assert response.status == 200
        with pytest.raises(json.JSONDecodeError):
            json.loads(text)


async def test_hang_ends_when_the_server_stops(session: aiohttp.ClientSession) -> None:
    async with Simulator(lambda _: Reply(fault="hang")) as simulator:
        hanging = asyncio.create_task(post(session, simulator))
        await simulator.until(lambda: simulator.in_flight == 1)
        assert not hanging.done()
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await hanging


async def test_a_failing_script_is_told_and_raised(session: aiohttp.ClientSession) -> None:
    def script(_: Request) -> Reply:
        raise LookupError("unexpected")

    simulator = Simulator(script)
    await simulator.start()
    status, answer = await post(session, simulator)
    assert status == 500
    assert "unexpected" in answer["error"]["message"]
    with pytest.raises(LookupError, match="unexpected"):
        await simulator.__aexit__(None, None, None)


# -- load and life ---------------------------------------------------------------------------


async def test_256_in_flight_at_once(session: aiohttp.ClientSession) -> None:
    barrier = asyncio.Barrier(256)  # no reply before all are there

    async def script(_: Request) -> Reply:
        await barrier.wait()
        return Reply()

    async with Simulator(script) as simulator:
        answers = await asyncio.gather(*(post(session, simulator) for _ in range(256)))
        assert {status for status, _ in answers} == {200}
        assert (simulator.max_in_flight, simulator.in_flight, simulator.served) == (256, 0, 256)


async def test_seats_and_queue(session: aiohttp.ClientSession) -> None:
    go = asyncio.Event()
    order: list[str] = []

    async def script(request: Request) -> Reply:
        order.append(request.user)
        await go.wait()
        return Reply()

    async with Simulator(script, max_num_seqs=2, max_queued=2) as simulator:
        tasks: list[asyncio.Task[Any]] = []
        for number in range(4):
            tasks.append(asyncio.create_task(post(session, simulator, str(number))))
            await simulator.until(lambda: simulator.in_flight == len(tasks))
        assert (simulator.engine.running, order) == (2, ["0", "1"])
        _, metrics = await get(session, simulator, "/metrics")
        assert 'vllm:num_requests_running{engine="0",model_name="simulator"} 2.0' in metrics
        assert 'vllm:num_requests_waiting{engine="0",model_name="simulator"} 2.0' in metrics
        status, answer = await post(session, simulator, "one too many")
        assert (status, answer["error"]["type"]) == (503, "Service Unavailable")
        go.set()
        await asyncio.gather(*tasks)
        assert order == ["0", "1", "2", "3"]


async def test_a_client_that_leaves_frees_its_seat(session: aiohttp.ClientSession) -> None:
    def script(request: Request) -> Reply:
        return Reply(fault="hang") if request.user == "slow" else Reply()

    async with Simulator(script, max_num_seqs=1) as simulator:
        slow = [asyncio.create_task(post(session, simulator, "slow"))]
        await simulator.until(lambda: simulator.in_flight == 1)
        slow.append(asyncio.create_task(post(session, simulator, "slow")))
        await simulator.until(lambda: simulator.in_flight == 2)
        for task in reversed(slow):  # the one in the queue, then the one that runs
            task.cancel()
            await asyncio.wait([task])
        assert (await post(session, simulator, "quick"))[0] == 200
        await simulator.until(lambda: simulator.in_flight == 0)
        assert (simulator.disconnected, simulator.engine.running) == (2, 0)


async def test_drain_finishes_what_runs(session: aiohttp.ClientSession) -> None:
    go = asyncio.Event()

    async def script(_: Request) -> Reply:
        await go.wait()
        return Reply()

    async with Simulator(script) as simulator:
        running_request = asyncio.create_task(post(session, simulator))
        await simulator.until(lambda: simulator.in_flight == 1)
        draining = asyncio.create_task(simulator.drain())
        await asyncio.sleep(0)
        assert (await post(session, simulator))[0] == 503
        assert (await get(session, simulator, "/health"))[0] == 200
        assert not draining.done()
        go.set()
        await draining
        assert (await running_request)[0] == 200


async def test_killed_and_back_on_the_same_port(session: aiohttp.ClientSession) -> None:
    async def script(request: Request) -> Reply:
        if request.attempt == 0:
            await simulator.kill()
        return Reply()

    async with Simulator(script) as simulator:
        with pytest.raises(aiohttp.ClientError):
            await post(session, simulator, request_id="q/0/vote/0")
        with pytest.raises(aiohttp.ClientConnectorError):
            await get(session, simulator, "/health")
        await simulator.start()
        assert (await post(session, simulator, request_id="q/0/vote/0"))[0] == 200


async def test_frozen_says_nothing_and_refuses_newcomers(session: aiohttp.ClientSession) -> None:
    go = asyncio.Event()

    async def script(_: Request) -> Reply:
        await go.wait()
        return Reply()

    async with Simulator(script) as simulator:
        waiting = asyncio.create_task(post(session, simulator))
        await simulator.until(lambda: simulator.in_flight == 1)
        await simulator.freeze()
        go.set()
        await simulator.until(lambda: simulator.in_flight == 0)
        with pytest.raises(aiohttp.ClientConnectorError):
            await get(session, simulator, "/health")
        assert not waiting.done()
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await waiting


async def test_health_can_be_set(session: aiohttp.ClientSession) -> None:
    async with Simulator() as simulator:
        simulator.set_health(False)
        assert (await get(session, simulator, "/health"))[0] == 503


async def test_keep_bounds_what_is_remembered(session: aiohttp.ClientSession) -> None:
    async with Simulator(keep=2) as simulator:
        for number in range(5):
            await post(session, simulator, str(number))
        assert [request.user for request in simulator.requests] == ["3", "4"]
        assert simulator.arrivals == 5


def exchange(url: str, headers: Mapping[str, str] | None = None) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    try:
        headers = {"Content-Type": "application/json", **(headers or {})}
        connection.request("POST", "/v1/chat/completions", json.dumps(body()), headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def test_running_in_a_thread() -> None:
    texts = iter(["first", "second"])
    with running(lambda _: Reply(next(texts)), model="a-model") as simulator:
        assert exchange(simulator.url)[0] == 404  # the body asks for another model
    with running(lambda _: Reply(next(texts))) as simulator:
        assert exchange(simulator.url)[1]["choices"][0]["message"]["content"] == "first"
        simulator.call(simulator.kill())
        with pytest.raises(ConnectionRefusedError):
            exchange(simulator.url)
        simulator.call(simulator.start())
        assert exchange(simulator.url)[1]["choices"][0]["message"]["content"] == "second"
        assert len(simulator.requests) == 2


def test_running_raises_what_the_script_raised() -> None:
    def script(_: Request) -> Reply:
        raise LookupError("not in the script")

    with pytest.raises(LookupError), running(script) as simulator:
        assert exchange(simulator.url)[0] == 500


def test_running_on_a_taken_port_fails_at_once() -> None:
    with (
        running() as simulator,
        pytest.raises(OSError, match="address already in use"),
        running(port=simulator.port),
    ):
        pass


# -- scripts as files ------------------------------------------------------------------------


def script_file(path: Path, content: object) -> Path:
    path.write_text(json.dumps(content))
    return path


def answer_of(script: Script, request: Request) -> Reply:
    reply = script(request)
    assert isinstance(reply, Reply)
    return reply


def test_the_first_rule_that_matches_answers(tmp_path: Path) -> None:
    rules = [
        {"stage": "vote", "n": 1, "attempt": 0, "reply": {"status": 503}},
        {"stage": "vote", "contains": "rash", "times": 2, "reply": {"text": "NO"}},
        {"question": "q7", "repeat": 1, "reply": {"fault": "reset", "delay": 0.5}},
        {"stage": "vote", "reply": {"text": "YES", "headers": {"X": "y"}, "body": "raw"}},
    ]
    file = script_file(tmp_path / "s.json", {"rules": rules, "default": {"text": "default"}})
    script = load_script(file)
    assert answer_of(script, Request(stage="vote", n=1)).status == 503
    assert answer_of(script, Request(stage="vote", n=1, attempt=1)).body == b"raw"
    votes = [answer_of(script, Request(stage="vote", body=body("a rash"))).text for _ in range(3)]
    assert votes == ["NO", "NO", "YES"]
    assert answer_of(script, Request(question_id="q7", repeat=1)).fault == "reset"
    assert answer_of(script, Request(question_id="q7")).text == "default"


def test_without_a_default_the_rest_is_plausible(tmp_path: Path) -> None:
    script = load_script(script_file(tmp_path / "s.json", {}))
    assert answer_of(script, Request(stage="vote")).text in ("YES", "NO")


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ({"rulez": []}, "rulez"),
        ({"rules": [{"stag": "vote", "reply": {}}]}, "rules.0.stag"),
        ({"rules": [{"stage": "vote"}]}, "rules.0.reply"),
        ({"rules": [{"reply": {"txt": "x"}}]}, "rules.0.reply.txt"),
        ({"default": {"status": "503"}}, "default.status"),
        ({"default": {"fault": "explode"}}, "default.fault"),
        ([], "file"),
    ],
)
def test_a_wrong_script_names_the_place(tmp_path: Path, content: object, place: str) -> None:
    with pytest.raises(UsageError, match=rf"s\.json is no usable script:\n  {place}: "):
        load_script(script_file(tmp_path / "s.json", content))


def test_a_missing_script_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        load_script(tmp_path / "none.json")


def test_the_command(tmp_path: Path) -> None:
    script = script_file(tmp_path / "s.json", {"rules": [{"reply": {"fault": "reset"}, "n": 1}]})
    ready = tmp_path / "ready"
    command = [sys.executable, "-W", "error", "-m", "medagents_async.simulator", "--port", "0"]
    command += ["--script", str(script), "--ready-file", str(ready), "--latency", "0:0.01"]
    command += ["--profile", "cpu-tiny"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().decode().strip()
            assert ready.read_text() == url + "\n"
            assert exchange(url)[0] == 200
            with pytest.raises(ConnectionResetError, match="reset by peer"):
                exchange(url, {"X-Request-Id": "q/0/vote/1"})
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=30)
        finally:
            process.kill()
    assert (process.returncode, errors) == (0, b"")


def test_the_command_refuses_an_unknown_profile() -> None:
    command = [sys.executable, "-m", "medagents_async.simulator", "--profile", "tpu"]
    done = subprocess.run(command, capture_output=True, check=False, timeout=60)
    assert done.returncode == 2
    assert b"no profile 'tpu'; there are llama-3.1-8b-h100, " in done.stderr


def test_the_command_refuses_a_bad_script(tmp_path: Path) -> None:
    script = script_file(tmp_path / "s.json", {"rules": 1})
    command = [sys.executable, "-m", "medagents_async.simulator", "--script", str(script)]
    done = subprocess.run(command, capture_output=True, check=False, timeout=60)
    assert done.returncode == 2
    assert b"rules: Input should be a valid" in done.stderr


# -- the default model -----------------------------------------------------------------------


@settings(deadline=None, derandomize=True, database=None)
@given(
    text=st.text(),
    seed=st.none() | st.integers(-(2**63), 2**63 - 1),
    stage=st.sampled_from(["", "vote", "case", "decide", "recruit_option"]),
)
def test_plausible_depends_on_the_content_alone(text: str, seed: int | None, stage: str) -> None:
    request = Request(body=body(text, seed=seed), stage=stage)
    later = Request(body=body(text, seed=seed), stage=stage, arrival=7, attempt=1, n=5)
    assert plausible(request) == plausible(later)
    assert plausible(request).text


@settings(deadline=None, derandomize=True, database=None)
@given(text=st.text(), limit=st.integers(0, 50))
def test_cut_gives_a_prefix(text: str, limit: int) -> None:
    left, tokens = cut(text, limit)
    assert text.startswith(left)
    assert (left, tokens) == cut(left, limit)
    assert tokens == min(limit, cut(text, len(text))[1])


def test_plausible_is_the_same_in_every_process() -> None:
    assert ask(QUESTION, "decide") == "Option: C"
    assert ask("2 fields?", "recruit_option") == "Medical Field: Dermatology | Infectious Disease"


@pytest.mark.parametrize(
    ("task", "count"),
    [
        ("Which fields matter?", 5),
        ("Sort it into 3 different subfields of medicine.", 3),
        ("1. Sort the options into 1 distinct subfields.\n2. Reply with 1 line.", 1),
    ],
)
def test_plausible_recruits_as_many_as_asked(task: str, count: int) -> None:
    marker, _, fields = ask(f"{QUESTION}\n{task}", "recruit_question").partition(": ")
    assert marker == "Medical Field"
    assert len(set(fields.split(" | ")) & set(SPECIALTIES)) == count == fields.count("|") + 1
    assert len(ask(task, "recruit").splitlines()) == count


def test_plausible_shapes() -> None:
    report = ask(stage="summarise")
    assert report.startswith("Key Knowledge: ")
    assert "\nTotal Analysis: " in report
    assert 120 <= len(ask(QUESTION, "analyse_question").split()) <= 270
    options = ("Option: A", "Option: B", "Option: C")
    assert ask(QUESTION, "decide") in options
    asking = f"{QUESTION}\nReply with\nOption: [letter]"
    assert ask(asking, "answer", max_tokens=8) in options
    for stage in ("answer", "some other"):  # with reasons before it
        assert ask(asking, stage).split("\n\n")[1] in options
    assert ask(stage="vote") in ("YES", "NO")
    assert ask(stage="triage") in ("Complexity: low", "Complexity: moderate", "Complexity: high")
    ranking = ask(QUESTION, "rank").removeprefix("Ranking: ")
    assert sorted(ranking.split(" > ")) == ["A", "B", "C"]


def test_plausible_votes_yes_mostly() -> None:
    votes = [ask(f"Report {n}", "vote") for n in range(1000)]
    assert set(votes) == {"YES", "NO"}
    assert 800 < votes.count("YES") < 900


def test_plausible_obeys_a_choice() -> None:
    for n in range(20):
        text = f"{QUESTION} {n}"
        assert ask(text, "decide", structured_outputs={"choice": ["D", "E"]}) in ("D", "E")
        assert ask(text, "vote", structured_outputs={"choice": ["Yes", "No"]}) in ("Yes", "No")


SCHEMA = {
    "type": "object",
    "properties": {
        "answer": {"enum": ["A", "B"]},
        "score": {"type": "integer", "minimum": 1, "maximum": 5},
        "sure": {"type": "boolean"},
        "share": {"type": "number", "maximum": 0.5},
        "reasons": {"type": "array", "items": {"type": "string"}, "minItems": 3},
        "next": {"anyOf": [{"const": "biopsy"}, {"type": "null"}]},
        "note": {"type": ["string", "null"], "maxLength": 2},
        "rest": {},
    },
}


def test_plausible_obeys_a_schema() -> None:
    for fields in (
        {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}},
        {"structured_outputs": {"json": SCHEMA}},
        {"structured_outputs": {"json": json.dumps(SCHEMA)}},
    ):
        said = json.loads(ask(QUESTION, "decide", **fields))
        assert list(said) == list(SCHEMA["properties"])
        assert said["answer"] in ("A", "B")
        assert 1 <= said["score"] <= 5
        assert type(said["sure"]) is bool
        assert 0 <= said["share"] <= 0.5
        assert [type(reason) for reason in said["reasons"]] == [str] * 3
        assert (said["next"], len(said["note"]), said["rest"]) == ("biopsy", 2, None)
    said = json.loads(ask(QUESTION, response_format={"type": "json_object"}))
    assert isinstance(said["answer"], str)


def test_plausible_samples_differ() -> None:
    request = Request(body=body(QUESTION, seed=1), stage="analyse_question")
    texts = {plausible(replace(request, sample=n)).text for n in range(5)}
    assert len(texts) == 5


@pytest.mark.parametrize("stage", LENGTHS)
def test_realistic_replies_are_as_long_as_a_models(stage: str) -> None:
    low, high = LENGTHS[stage]
    lengths = []
    for n in range(100):
        reply = realistic(Request(body=body(f"{QUESTION} {n}"), stage=stage))
        assert reply.text is not None
        assert reply.completion_tokens == cut(reply.text, 9999)[1] + 1
        lengths.append(reply.completion_tokens)
    assert low - 20 < min(lengths) < max(lengths) < high + 20
    assert abs(sum(lengths) / len(lengths) - (low + high) / 2) < 25
    vote = realistic(Request(body=body(QUESTION), stage="vote"))
    assert (vote.text in ("YES", "NO"), vote.completion_tokens) == (True, 2)


def test_what_vllm_ignores_is_ignored() -> None:
    # The real server answers a body with the old field as if it were not there.
    assert ask(QUESTION, "decide", guided_choice=["X", "Y"]) == ask(QUESTION, "decide")
