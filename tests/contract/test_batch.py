"""The main job, as `batch` users see it: rows, manifest, requests, resume, exit status."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import orjson
import pytest

from medagents_async.simulator import Reply, Request, Simulator, plausible, running
from tests.support.command import Run, finish, kill, until

Rows = Callable[[int], list[dict[str, Any]]]
MakeRun = Callable[..., Run]


def agreeing(request: Request) -> Reply:
    """Everyone agrees at once, so that a question takes 18 calls."""
    return Reply("YES") if request.stage == "vote" else plausible(request)


def completed(simulator: Simulator) -> Counter[str]:
    return Counter(request.request_id for request in simulator.requests)


def test_a_run_leaves_one_row_a_question(run: MakeRun, rows: Rows) -> None:
    with running(agreeing) as simulator:
        job = run(simulator.url, rows(5))
        result = job("--json")
    assert (result.code, Counter(row["status"] for row in job.rows())) == (0, {"ok": 5})
    row = min(job.rows(), key=lambda row: row["index"])
    assert list(row)[:4] == ["id", "index", "repeat", "status"]
    assert row["id"] == "q0"
    assert row["calls"] == len(row["trace"]) == 18
    assert row["correct"] is (row["prediction"] == row["answer"])
    assert row["error"] is None
    assert row["method"] == "medagents"
    assert row["usage"]["prompt_tokens"] == sum(
        step["usage"]["prompt_tokens"] for step in row["trace"]
    )
    assert [step["stage"] for step in row["trace"]] == (
        ["recruit_question", "recruit_option"]
        + ["analyse_question"] * 5
        + ["analyse_option"] * 2
        + ["summarise"]
        + ["vote"] * 7
        + ["decide"]
    )
    assert {"agent", "round", "reply", "finish_reason", "queued_s", "seconds", "attempts"} < set(
        row["trace"][0]
    )
    assert row["trace"][-1]["request"]["messages"][-1]["role"] == "user"
    summary = orjson.loads(result.out)
    assert (summary["questions"], summary["ok"], summary["calls"]) == (5, 5, 90)
    assert job.journal() == []


def test_manifest_says_what_was_run(run: MakeRun, rows: Rows) -> None:
    with running(agreeing, api_key="sk-sentinel") as simulator:
        job = run(simulator.url, rows(2))
        assert job("--seed", "7", env={"MEDAGENTS_API_KEY": "sk-sentinel"}).code == 0
    manifest = job.manifest()
    assert manifest["configuration"]["seed"] == 7
    assert manifest["configuration"]["parameters"]["rounds"] == 5
    assert manifest["configuration"]["model"] == "simulator"
    assert manifest["server_version"] == "0.32.0"
    assert manifest["system_fingerprint"].startswith("vllm-0.32.0")
    assert manifest["totals"]["done"] == manifest["rows"] == 2
    assert manifest["started"] <= manifest["ended"]
    for path in job.folder.rglob("*"):
        assert path.is_dir() or b"sk-sentinel" not in path.read_bytes()


def test_run_again_sends_nothing(run: MakeRun, rows: Rows) -> None:
    with running(agreeing) as simulator:
        job = run(simulator.url, rows(3))
        assert job().code == 0
        before, sent = job.output.read_bytes(), len(simulator.requests)
        assert job().code == 0
        assert len(simulator.requests) == sent
        assert job.output.read_bytes() == before
        job.write(list(reversed(rows(3))))  # the same questions in another order
        assert job().code == 0
        assert len(simulator.requests) == sent


def test_limit_then_all_then_repeats(run: MakeRun, rows: Rows) -> None:
    with running(agreeing) as simulator:
        job = run(simulator.url, rows(6))
        assert job("--limit", "2").code == 0
        assert {row["id"] for row in job.rows()} == {"q0", "q1"}
        assert job().code == 0
        assert job("--repeats", "2").code == 0
        assert max(completed(simulator).values()) == 1
    keys = Counter((row["id"], row["repeat"]) for row in job.rows())
    assert keys == Counter((f"q{n}", repeat) for n in range(6) for repeat in range(2))


def test_shards_are_a_partition_and_samples_are_seeded(run: MakeRun, rows: Rows) -> None:
    with running(agreeing) as simulator:
        parts = []
        for shard in range(3):
            job = run(simulator.url, rows(20), f"shard{shard}")
            assert job("--shard", f"{shard}/3", "--set", "stages=direct").code == 0
            parts.append({row["id"] for row in job.rows()})
        samples = []
        for name in ("one", "two"):
            job = run(simulator.url, rows(20), name)
            assert job("--sample", "7", "--seed", "3", "--set", "stages=direct").code == 0
            samples.append({row["id"] for row in job.rows()})
    assert sum(map(len, parts)) == 20
    assert set().union(*parts) == {f"q{n}" for n in range(20)}
    assert len(samples[0]) == 7
    assert samples[0] == samples[1]


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        (["--seed", "1"], "seed: 0 there, 1 now"),
        (["--set", "rounds=2"], "parameters.rounds: 5 there, 2 now"),
        (["--preset", "code"], "parameters.temperature: 1.0 there, 0.0 now"),
        (["--max-tokens", "100"], "max_tokens: null there, 100 now"),
    ],
)
def test_another_configuration_may_not_share_out(
    run: MakeRun, rows: Rows, changes: list[str], difference: str
) -> None:
    with running(agreeing) as simulator:
        job = run(simulator.url, rows(2))
        assert job().code == 0
        before = job.output.read_bytes()
        result = job(*changes)
    assert result.code == 2
    assert "comes from another configuration" in result.err
    assert difference in result.err
    assert job.output.read_bytes() == before


def test_another_input_may_not_share_out(run: MakeRun, rows: Rows) -> None:
    with running(agreeing) as simulator:
        job = run(simulator.url, rows(2))
        assert job().code == 0
        job.write([{**row, "answer": "B"} for row in rows(2)])
        result = job()
    assert (result.code, "input:" in result.err) == (2, True)


@pytest.mark.parametrize("faulty", [False, True])
def test_results_do_not_depend_on_scheduling(run: MakeRun, rows: Rows, faulty: bool) -> None:
    def script(request: Request) -> Reply:
        if faulty and request.attempt == 0 and request.arrival % 3 == 0:
            faults = (Reply(status=503), Reply(fault="reset"), Reply(fault="truncate"))
            return faults[request.arrival % 9 // 3]
        return plausible(request)

    seen = []
    for concurrency in ("1", "64"):
        with running(script, latency=(0.0, 0.01)) as simulator:
            job = run(simulator.url, rows(6), concurrency)
            assert job("--concurrency", concurrency, "--retries", "9").code == 0
            seen.append(job.canonical())
    assert seen[0] == seen[1]


@pytest.mark.parametrize("after", [1, 20, 45, 70, 88])
def test_killed_and_resumed(run: MakeRun, rows: Rows, after: int) -> None:
    reached = threading.Event()

    def script(request: Request) -> Reply:
        if request.arrival >= after and not reached.is_set():
            reached.set()
        return agreeing(request)

    with running(agreeing) as simulator:
        undisturbed = run(simulator.url, rows(5), "undisturbed")
        assert undisturbed("--concurrency", "8").code == 0
    with running(script, latency=0.02) as simulator:
        job = run(simulator.url, rows(5))
        process = job.start("--concurrency", "8")
        reached.wait()
        kill(process)
        until(lambda: simulator.in_flight == 0)
        first = {request.request_id for request in simulator.requests}
        assert job("--concurrency", "8").code == 0
        again = [name for name, count in completed(simulator).items() if count > 1]
    # Only calls whose reply had not come yet were sent a second time: at most those in flight.
    assert len(again) <= 8
    assert set(again) <= first
    assert job.canonical() == undisturbed.canonical()
    assert job.journal() == []


def test_torn_last_line_is_kept_aside_and_owed_again(run: MakeRun, rows: Rows) -> None:
    with running(agreeing) as simulator:
        job = run(simulator.url, rows(3))
        assert job().code == 0
        whole, lines = job.canonical(), job.output.read_bytes().splitlines(keepends=True)
        job.output.write_bytes(b"".join(lines[:2]) + lines[2][:100])
        assert job().code == 0
    assert job.canonical() == whole
    assert (job.folder / "out.jsonl.torn").read_bytes() == lines[2][:100] + b"\n"


def test_second_run_onto_the_same_out_is_refused(run: MakeRun, rows: Rows) -> None:
    released = asyncio.Event()

    async def script(request: Request) -> Reply:
        await released.wait()
        return agreeing(request)

    async def release() -> None:
        released.set()

    with running(script) as simulator:
        job = run(simulator.url, rows(1))
        process = job.start()
        until(lambda: simulator.in_flight)
        second = job()
        simulator.call(release())
        assert finish(process).code == 0
    assert second.code == 2
    assert "another run" in second.err


def test_requests_are_complete_and_named(run: MakeRun, rows: Rows) -> None:
    with running() as simulator:
        job = run(simulator.url, [{**row, "id": f"å/{row['id']} \n"} for row in rows(3)])
        assert job("--repeats", "2").code == 0
        requests = list(simulator.requests)
    assert {"model", "messages", "temperature", "top_p", "max_tokens", "seed"} <= set.intersection(
        *(set(request.body) for request in requests)
    )
    seeds = Counter(request.body["seed"] for request in requests)
    names = Counter(request.request_id for request in requests)
    assert max(seeds.values()) == max(names.values()) == 1
    stages: dict[tuple[str, int, str], list[int]] = {}
    for request in requests:
        assert unquote(request.headers["x-session-id"]) == request.question_id
        assert request.question_id.startswith("å/q")
        roles = [role for role, _ in request.contents]
        assert roles in (["system", "user"], ["user"])
        assert all(text for _, text in request.contents)
        key = (request.question_id, request.repeat, request.stage)
        stages.setdefault(key, []).append(request.n)
    assert all(
        sorted(numbers) == list(range(len(numbers)))
        for (_, _, stage), numbers in stages.items()
        if stage not in ("vote", "advise")
    )


def test_nothing_of_the_answer_key_reaches_a_prompt(run: MakeRun, rows: Rows) -> None:
    leaks = {"exp": "S3NTINEL", "LONG_ANSWER": "S3NTINEL", "meta": {"x": "S3NTINEL"}}
    secret = [
        {**row, **leaks, "answer_idx": row["answer"], "answer": "S3NTINEL"} for row in rows(4)
    ]
    with running() as simulator:
        job = run(simulator.url, [{**row, "subject": "S3NTINEL"} for row in secret])
        assert job().code == 0
        assert all(b"S3NTINEL" not in request.raw for request in simulator.requests)


def test_text_passes_through_unharmed(run: MakeRun, rows: Rows) -> None:
    text = (
        "{{ options }} {% if %} {0} %s ## task\nOption: C \\boxed{B} <think> \u202e 🩺 \u2028 \x00"
        + "ы" * 100_000  # 200 KB
    )
    row = {**rows(1)[0], "question": text, "options": {"A": text + "a", "B": "🫀"}, "answer": "B"}
    with running(lambda _: Reply(text), max_model_len=10**6) as simulator:
        job = run(simulator.url, [row])
        assert job("--set", "stages=direct").code == 0
        assert text in simulator.requests[0].user
        assert text + "a" in simulator.requests[0].user
    assert job.rows()[0]["trace"][0]["request"]["messages"][-1]["content"].count(text) == 2


def test_256_calls_are_in_flight_at_once(run: MakeRun, rows: Rows) -> None:
    all_there = asyncio.Event()

    async def script(request: Request) -> Reply:
        if request.arrival == 255:
            all_there.set()
        await all_there.wait()  # with fewer calls in flight, none would ever be answered
        return Reply("Option: A")

    with running(script) as simulator:
        job = run(simulator.url, rows(256))
        assert job("--concurrency", "256", "--set", "stages=direct").code == 0
        assert simulator.max_in_flight == 256


@pytest.mark.parametrize("status", [500, 503, 429])
def test_retries_do_not_multiply_and_failures_are_data(
    run: MakeRun, rows: Rows, status: int
) -> None:
    def script(request: Request) -> Reply:
        if request.question_id == "q1" and request.stage == "summarise":
            return Reply(status=status, error="busy, try later")
        return agreeing(request)

    with running(script) as simulator:
        job = run(simulator.url, rows(3))
        result = job("--retries", "2")
        tries = [r for r in simulator.requests if (r.question_id, r.stage) == ("q1", "summarise")]
    assert (result.code, len(tries)) == (1, 3)
    failed = next(row for row in job.rows() if row["id"] == "q1")
    assert failed["status"] == "error"
    assert failed["error"]["kind"] == "unavailable"
    assert failed["error"]["stage"] == "summarise"
    assert "busy, try later" in failed["error"]["message"]
    assert (failed["prediction"], failed["correct"]) == (None, False)
    assert {row["status"] for row in job.rows() if row is not failed and row["id"] != "q1"} == {
        "ok"
    }


def test_questions_in_error_are_owed_again(run: MakeRun, rows: Rows) -> None:
    healthy: list[bool] = []

    def script(request: Request) -> Reply:
        if request.question_id == "q1" and not healthy:
            return Reply(status=400, error="no")
        return agreeing(request)

    with running(script) as simulator:
        job = run(simulator.url, rows(3))
        assert job().code == 1
        healthy.append(True)
        assert job().code == 0
        assert {r.question_id for r in simulator.requests if r.attempt > 0} == {"q1"}
    assert sorted(row["id"] for row in job.rows()) == ["q0", "q1", "q2"]


def test_retry_after_is_obeyed(run: MakeRun, rows: Rows) -> None:
    def script(request: Request) -> Reply:
        busy = request.stage == "decide" and request.attempt == 0
        return Reply(status=429, headers={"retry-after": "1"}) if busy else agreeing(request)

    with running(script) as simulator:
        job = run(simulator.url, rows(1))
        assert job().code == 0
    assert job.rows()[0]["retries"] == 1
    assert job.rows()[0]["seconds"] >= 1


REFUSALS = {
    "unknown model": (["--model", "nope"], {"OPENAI_API_KEY": "sk-right"}, "does not serve 'nope'"),
    "no key": ([], {}, "API key"),
    "wrong key": ([], {"MEDAGENTS_API_KEY": "sk-wr0ng"}, "API key"),
    "no room": (["--set", "report_tokens=16384"], {"OPENAI_API_KEY": "sk-right"}, "no room"),
    "unknown method": (["--method", "nope"], {}, "medagents"),
    "unknown preset": (["--preset", "nope"], {}, "paper"),
    "unknown parameter": (["--set", "nope=1"], {}, "rounds"),
    "bad parameter": (["--set", "rounds=many"], {}, "rounds"),
    "no parameter": (["--set", "rounds"], {}, "KEY=VALUE"),
    "bad concurrency": (["--concurrency", "0"], {}, "whole number"),
    "bad shard": (["--shard", "3/3"], {}, "I/N"),
    "no such prompts": (["--prompts", "nowhere"], {}, "no such folder"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_can_be_known_before_stops_the_run(run: MakeRun, rows: Rows, case: str) -> None:
    options, env, words = REFUSALS[case]
    with running(agreeing, api_key="sk-right") as simulator:
        job = run(simulator.url, rows(2))
        result = job(*options, env=env)
        assert simulator.requests == []
    assert result.code == 2
    assert words in " ".join(result.err.split())
    assert "sk-" not in result.err
    assert not job.output.exists()


def test_base_url_that_is_no_api(run: MakeRun, rows: Rows) -> None:
    with running(agreeing) as simulator:
        result = run(simulator.url.removesuffix("/v1"), rows(1))()
    assert (result.code, "/v1?" in result.err) == (2, True)


def test_no_server(run: MakeRun, rows: Rows) -> None:
    with running(agreeing) as simulator:
        url = simulator.url
    result = run(url, rows(1))()
    assert (result.code, "make serve" in result.err) == (2, True)


BAD_LINES = {
    b"{": "not JSON",
    b"[1]": "not a JSON object",
    b'{"question": "x"}': "options",
    b'{"options": {"A": "a", "B": "b"}}': "question",
    b'{"question": "x", "options": {"A": "a"}}': "options",
    b'{"question": "x", "options": {"A": "a", "B": "b"}, "answer": "C"}': "among the options",
    b'{"question": "x", "options": {"A": "a", "B": 5}}': "options.B",
    b'{"question": "x", "options": {"yes": "a", "no": "b"}}': "options",
    b'{"question": " ", "options": {"A": "a", "B": "b"}}': "blank",
    b'{"id": "q0", "question": "x", "options": {"A": "a", "B": "b"}}': "taken by line 1",
    b'{"id": true, "question": "x", "options": {"A": "a", "B": "b"}}': "id",
    b'{"question": "x\\ud800", "options": {"A": "a", "B": "b"}}': "not JSON",
    b'{"question": "x", "options": {"A": "a", "B": "b"},}': "not JSON",
}


def test_bad_rows_are_all_named(run: MakeRun, rows: Rows) -> None:
    good = orjson.dumps(rows(1)[0])
    content = good + b"\n\n" + b"\r\n".join(BAD_LINES) + b"\n" + orjson.dumps(rows(2)[1])
    with running(agreeing) as simulator:
        job = run(simulator.url, content)
        result = job()
        assert (result.code, simulator.requests) == (2, [])
        for number, reason in enumerate(BAD_LINES.values(), 3):
            line = next(line for line in result.err.splitlines() if f"line {number}:" in line)
            assert reason in line
        assert job("--skip-bad-rows").code == 0
    assert sorted(row["id"] for row in job.rows()) == ["q0", "q1"]
    assert job.manifest()["skipped_rows"] == len(BAD_LINES)


def test_published_shapes(run: MakeRun) -> None:
    options = {"A": "one", "B": "two"}
    shapes = [
        {"question": "medqa?", "options": options, "answer": "two", "answer_idx": "B"},
        {"id": 7, "question": "ten?", "options": {c: c for c in "ABCDEFGHIJ"}, "answer": "J"},
        {
            "id": "Text-1",
            "question": "medxpertqa?",
            "options": [{"letter": "A", "content": "one"}, {"letter": "B", "content": "two"}],
            "label": ["B"],
        },
        {"question": "listed?", "options": ["one", "two", "None"], "answer": None},
    ]
    content = b"\xef\xbb\xbf" + b"\r\n".join(orjson.dumps(shape) for shape in shapes)
    with running(agreeing) as simulator:
        job = run(simulator.url, content)
        assert job("--set", "stages=direct").code == 0
    found = sorted(job.rows(), key=lambda row: row["index"])
    assert [row["id"] for row in found] == ["1", "7", "Text-1", "4"]
    assert [row["answer"] for row in found] == ["B", "J", "B", None]


def test_interrupt_finishes_what_is_in_flight(run: MakeRun, rows: Rows) -> None:
    with running(agreeing, latency=0.2) as simulator:
        undisturbed = run(simulator.url, rows(4), "undisturbed")
        assert undisturbed().code == 0
    with running(agreeing, latency=0.2) as simulator:
        job = run(simulator.url, rows(4))
        process = job.start("--concurrency", "4")
        until(lambda: len(simulator.requests) >= 30)
        process.send_signal(signal.SIGINT)
        result = finish(process)
        assert result.code == 130
        assert "resume" in result.err
        assert job("--concurrency", "4").code == 0
        assert max(completed(simulator).values()) == 1
    assert job.canonical() == undisturbed.canonical()


def test_second_signal_ends_at_once_and_files_stay_valid(run: MakeRun, rows: Rows) -> None:
    def script(request: Request) -> Reply:
        hangs = request.stage == "summarise" and request.question_id != "q0"
        return Reply(fault="hang") if hangs and request.attempt == 0 else agreeing(request)

    with running(agreeing) as simulator:
        undisturbed = run(simulator.url, rows(4), "undisturbed")
        assert undisturbed().code == 0
    with running(script) as simulator:
        job = run(simulator.url, rows(4))
        process = job.start("--drain", "1000")
        until(lambda: simulator.in_flight == 3 and job.output.exists() and len(job.rows()) == 1)
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)
        assert finish(process).code == 130
        assert job().code == 0
    assert job.canonical() == undisturbed.canonical()


def test_drain_is_bounded(run: MakeRun, rows: Rows) -> None:
    with running(lambda _: Reply(fault="hang")) as simulator:
        job = run(simulator.url, rows(2))
        process = job.start("--drain", "0.2")
        until(lambda: simulator.in_flight == 4)
        process.send_signal(signal.SIGTERM)
        result = finish(process)
    assert result.code == 130
    assert "gave up calls" in result.err


def test_dry_run_shows_and_sends_nothing(run: MakeRun, rows: Rows) -> None:
    with running(agreeing) as simulator:
        job = run(simulator.url, rows(3))
        result = job("--dry-run", "--preset", "code")
        assert simulator.requests == []
    assert result.code == 0
    assert "Patient 0 has a fever" in result.out
    assert "nothing was sent" in " ".join(result.out.split())
    assert not job.output.exists()


def test_own_method_and_own_prompts(run: MakeRun, rows: Rows, tmp_path: Path) -> None:
    method = tmp_path / "mine.py"
    method.write_text(
        "from medagents_async.types import Ask, Decision, Prompt, Question\n"
        "async def first(question: Question, ask: Ask, *, shout: bool = False) -> Decision:\n"
        "    reply = await ask('answer', prompt=Prompt('', question.text, 'Answer.'))\n"
        "    return Decision(next(iter(question.options)), {'reply': reply.text, 'shout': shout})\n"
        "async def broken(question: Question, ask: Ask) -> Decision:\n"
        "    return Decision('Z')\n"
    )
    pack = tmp_path / "pack"
    pack.mkdir()
    (pack / "direct.md").write_text("## task\nMY WORDS {{ question }}\n")
    with running(lambda request: Reply(request.user)) as simulator:
        job = run(simulator.url, rows(2))
        assert job("--method", f"{method}:first", "--set", "shout=yes").code == 0
        assert {row["prediction"] for row in job.rows()} == {"A"}
        assert job.rows()[0]["detail"]["shout"] is True
        own = run(simulator.url, rows(1), "own")
        assert own("--prompts", str(pack), "--set", "stages=direct").code == 0
        assert own.rows()[0]["trace"][0]["reply"].startswith("MY WORDS Patient 0")
        broken = run(simulator.url, rows(1), "broken")
        assert finish(broken.start("--method", f"{method}:broken"), traceback=True).code == 1
        assert broken.rows()[0]["error"]["kind"] == "method"


def test_rate_bounds_the_calls_started(run: MakeRun, rows: Rows) -> None:
    with running(agreeing) as simulator:
        job = run(simulator.url, rows(10))
        assert job("--rate", "20", "--set", "stages=direct").code == 0
    assert job.manifest()["totals"]["seconds"] >= 9 / 20 - 0.05


def test_first_twenty_questions_of_medqa(run: MakeRun, data: Path) -> None:
    lines = (data / "medqa_us" / "test_5opt.jsonl").read_bytes().splitlines(keepends=True)[:20]
    with running(agreeing) as simulator:
        job = run(simulator.url, b"".join(lines))
        assert job().code == 0
        sent = len(simulator.requests)
        assert job().code == 0
        assert len(simulator.requests) == sent == 360
    assert Counter(row["status"] for row in job.rows()) == {"ok": 20}
