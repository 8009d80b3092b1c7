"""What a run must survive, or refuse, beside a bad server: methods, files, replies, options."""

from __future__ import annotations

import os
import shutil
import signal
import ssl
import subprocess
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import orjson
import pytest

from medagents_async.simulator import Reply, Request, plausible, running
from tests.support.command import Run, finish, until

Rows = Callable[[int], list[dict[str, Any]]]
MakeRun = Callable[..., Run]

METHODS = """
import asyncio, sys
from medagents_async.types import Decision, Prompt
async def cancelled(question, ask):
    raise asyncio.CancelledError
async def exits(question, ask):
    sys.exit(0)
async def unwritable(question, ask):
    return Decision(None, {"names": {1, 2}})
async def surrogate(question, ask):
    return Decision(None, {"name": "\\ud800"})
async def twice(question, ask):
    await ask("answer", prompt=Prompt("", "a", "b"), n=0)
    await ask("answer", prompt=Prompt("", "a", "b"), n=0)
async def group(question, ask):
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(ask("answer", prompt=Prompt("", question.text, "b")))
    return Decision(None)
async def slow_starter(question, ask):
    started.append(question.id)
    while len(started) < 4:  # each waits for the others before it asks anything
        await asyncio.sleep(0)
    await ask("answer", prompt=Prompt("", question.text, "b"))
    return Decision("A")
started = []
"""


def agreeing(request: Request) -> Reply:
    return Reply("YES") if request.stage == "vote" else plausible(request)


@pytest.fixture
def methods(tmp_path: Path) -> Path:
    path = tmp_path / "odd.py"
    path.write_text(METHODS)
    return path


@pytest.mark.parametrize("name", ["cancelled", "exits", "unwritable", "surrogate", "twice"])
def test_faulty_method_costs_its_questions_and_no_more(
    run: MakeRun, rows: Rows, methods: Path, name: str
) -> None:
    with running(agreeing) as simulator:
        job = run(simulator.url, rows(3))
        result = finish(job.start("--method", f"{methods}:{name}"), traceback=None)
    assert result.code == 1
    assert [row["error"]["kind"] for row in job.rows()] == ["method"] * 3


def test_method_with_its_own_task_group_tells_the_real_error(
    run: MakeRun, rows: Rows, methods: Path
) -> None:
    with running(lambda _: Reply(status=400, error="no")) as simulator:
        simulator.fingerprint = None  # type: ignore[assignment]  # as another server sends none
        job = run(simulator.url, rows(2))
        assert job("--method", f"{methods}:group").code == 1
    assert {row["error"]["kind"] for row in job.rows()} == {"refused"}


def test_method_that_is_slow_to_ask_holds_up_nobody(
    run: MakeRun, rows: Rows, methods: Path
) -> None:
    with running(agreeing) as simulator:
        job = run(simulator.url, rows(4))
        assert job("--method", f"{methods}:slow_starter").code == 0


FAILING: dict[str, Callable[[Request], bool]] = {
    "one analysis": lambda request: (request.stage, request.n) == ("analyse_question", 2),
    "two siblings": lambda request: request.stage == "analyse_question" and request.n in (1, 4),
    "an option analysis": lambda request: request.stage == "analyse_option",
    "advice": lambda request: request.stage == "advise",
}


@pytest.mark.parametrize("failing", FAILING)
@pytest.mark.parametrize("reply", [Reply(status=400, error="no"), Reply("")])
def test_rows_that_end_in_an_error_do_not_depend_on_scheduling(
    run: MakeRun, rows: Rows, failing: str, reply: Reply
) -> None:
    def script(request: Request) -> Reply:
        return reply if FAILING[failing](request) else plausible(request)

    seen = []
    for concurrency in ("1", "64"):
        with running(script, latency=(0.0, 0.01)) as simulator:
            job = run(simulator.url, rows(5), concurrency)
            assert job("--concurrency", concurrency).code == 1
            seen.append(job.canonical())
    assert seen[0] == seen[1]


def test_input_that_shrinks_meanwhile_is_no_success(run: MakeRun, rows: Rows) -> None:
    shrunk = threading.Event()

    def script(request: Request) -> Reply:
        if not shrunk.is_set():
            job.write(rows(1))
            shrunk.set()
        return Reply("Option: A")

    with running(script, max_model_len=10**7) as simulator:
        # Larger than any buffer that the reader could hold.
        big = [{**row, "context": "word " * 20_000} for row in rows(20)]
        job = run(simulator.url, big)
        result = job("--concurrency", "1", "--set", "stages=direct")
    assert result.code == 3
    assert "have no outcome" in result.err


def test_out_that_is_deleted_meanwhile_ends_the_run(run: MakeRun, rows: Rows) -> None:
    def script(request: Request) -> Reply:
        if request.question_id == "q1":
            job.output.unlink(missing_ok=True)
        return Reply("Option: A")

    with running(script) as simulator:
        job = run(simulator.url, rows(3))
        result = job("--concurrency", "1", "--set", "stages=direct")
    assert result.code == 3
    assert "was deleted" in result.err


def test_journal_may_be_deleted_or_spoilt_at_any_time(run: MakeRun, rows: Rows) -> None:
    def script(request: Request) -> Reply:
        if request.stage == "summarise" and request.question_id == "q1":
            for path in job.journal():
                path.unlink()
            (job.folder / "out.journal").rmdir()
        return agreeing(request)

    with running(script) as simulator:
        job = run(simulator.url, rows(3))
        assert job("--concurrency", "1").code == 0
    with running(agreeing, latency=0.05) as simulator:
        spoilt = run(simulator.url, rows(3), "spoilt")
        process = spoilt.start("--concurrency", "6")
        until(lambda: len(simulator.requests) > 20)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        for path, content in zip(
            spoilt.journal(), [b"garbage\n", b'{"call": 1}\n', b"[]\n\n"], strict=False
        ):
            path.write_bytes(content)
        assert spoilt("--concurrency", "6").code == 0
    assert spoilt.canonical() == job.canonical()


def test_interrupted_questions_outlive_a_smaller_run(run: MakeRun, rows: Rows) -> None:
    with running(agreeing, latency=0.05) as simulator:
        job = run(simulator.url, rows(4))
        process = job.start("--concurrency", "8")
        until(lambda: len(simulator.requests) > 40)
        process.send_signal(signal.SIGINT)
        assert finish(process).code == 130
        assert job("--limit", "1").code == 0
        assert job().code == 0
        assert simulator.repeated == 0


def test_error_rows_outside_the_selection_stay(run: MakeRun, rows: Rows) -> None:
    def script(request: Request) -> Reply:
        return Reply(status=400, error="no") if request.question_id != "q0" else agreeing(request)

    with running(script) as simulator:
        job = run(simulator.url, rows(3))
        assert job().code == 1
        assert job("--limit", "2").code == 1
    assert sorted((row["id"], row["status"]) for row in job.rows()) == [
        ("q0", "ok"),
        ("q1", "error"),
        ("q2", "error"),
    ]


ODD_REPLIES = {
    "reasoning is a list": b'{"choices":[{"message":{"content":"x","reasoning":["a"]}}]}',
    "usage is huge": b'{"choices":[{"message":{"content":"x"}}],"usage":{"prompt_tokens":1e400}}',
    "finish reason is an object": b'{"choices":[{"message":{"content":"x"},"finish_reason":{}}]}',
    "nested beyond reason": b"[" * 100_000,
    "fingerprint is a number": b'{"choices":[{"message":{"content":"x"}}],"system_fingerprint":7}',
    "content is a number": b'{"choices":[{"message":{"content":5}}]}',
}


@pytest.mark.parametrize("case", ODD_REPLIES)
def test_odd_reply_is_malformed_or_read(run: MakeRun, rows: Rows, case: str) -> None:
    with running(lambda _: Reply(body=ODD_REPLIES[case])) as simulator:
        job = run(simulator.url, rows(1))
        job("--set", "stages=direct")
    (row,) = job.rows()
    assert row["calls"] == 1
    assert row["error"] is None or row["error"]["kind"] == "malformed"


@pytest.mark.parametrize("wish", ["inf", "1e9", "nan", "tomorrow", "-5"])
def test_absurd_retry_after_is_no_order(wish: str) -> None:
    from medagents_async.engine import replies
    from medagents_async.errors import Unavailable

    with pytest.raises(Unavailable) as caught:
        replies.read(429, {"retry-after": wish}, b"{}")
    assert 0 <= (caught.value.retry_after or 0) <= replies.LONGEST_WISH_S


REFUSED_OPTIONS = {
    "two servers": ["--base-url", "http://127.0.0.1:1/v1"],
    "seed beyond a header's integers": ["--seed", str(2**63)],
    "endless rate": ["--rate", "inf"],
    "negative temperature": ["--set", "temperature=-1"],
    "negative rounds": ["--set", "rounds=-3"],
    "no tokens": ["--set", "vote_tokens=0"],
}


@pytest.mark.parametrize("case", REFUSED_OPTIONS)
def test_option_that_makes_no_sense(run: MakeRun, rows: Rows, case: str) -> None:
    with running(agreeing) as simulator:
        job = run(simulator.url, rows(1))
        assert job(*REFUSED_OPTIONS[case]).code == 2
        assert simulator.requests == []


def test_password_in_the_url_is_refused(run: MakeRun, rows: Rows) -> None:
    with running(agreeing) as simulator:
        job = run(simulator.url.replace("http://", "http://me:s3cret@"), rows(1))
        result = job()
    assert (result.code, "s3cret" in result.err) == (2, False)


def test_key_with_a_newline_works_and_with_odd_characters_is_refused(
    run: MakeRun, rows: Rows
) -> None:
    with running(agreeing, api_key="sk-right") as simulator:
        job = run(simulator.url, rows(1))
        assert job(env={"MEDAGENTS_API_KEY": "sk-right\n"}).code == 0
        assert job(env={"MEDAGENTS_API_KEY": "sk-ключ"}).code == 2


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl for a certificate")
def test_server_without_a_trusted_certificate_gets_no_key(
    run: MakeRun, rows: Rows, tmp_path: Path
) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"),
            *("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    received = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            received.append(self.headers)

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.handle_error = lambda *_: None  # type: ignore[method-assign]  # broken handshakes
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        job = run(f"https://127.0.0.1:{server.server_port}/v1", rows(1))
        result = job(env={"MEDAGENTS_API_KEY": "sk-right"})
        server.shutdown()
    assert (result.code, received) == (2, [])
    assert "certificate" in result.err


@pytest.mark.parametrize("given", [["--api-key", "sk-right"], ["--api-key=sk-right"]])
def test_key_on_the_command_line_does_not_stay_there(
    run: MakeRun, rows: Rows, given: list[str]
) -> None:
    seen = []

    def script(request: Request) -> Reply:
        seen.append(Path(f"/proc/{process.pid}/cmdline").read_bytes())
        return agreeing(request)

    with running(script, api_key="sk-right", latency=0.05) as simulator:
        job = run(simulator.url, rows(1))
        process = job.start(*given, "--set", "stages=direct")
        assert finish(process).code == 0
    assert seen
    assert all(b"sk-right" not in line and b"stages=direct" in line for line in seen)


@pytest.mark.parametrize("target", ["/dev/null", "/dev/stdout", "folder"])
def test_out_must_be_a_file(run: MakeRun, rows: Rows, target: str) -> None:
    with running(agreeing) as simulator:
        job = run(simulator.url, rows(1))
        (job.folder / "folder").mkdir()
        job.output = job.folder / target
        assert job().code == 2
        job.output = job.source
        assert job().code == 2
        assert simulator.requests == []


def test_long_id_fits_into_a_header(run: MakeRun, rows: Rows) -> None:
    long = [{**row, "id": "ü" * 9000 + row["id"]} for row in rows(2)]
    with running(agreeing) as simulator:
        job = run(simulator.url, long)
        assert job().code == 0
        assert len({request.request_id for request in simulator.requests}) == 36


BAD_TEMPLATES: dict[str, str | bytes] = {
    "syntax": "## task\n{% if %}",
    "filter": "## task\n{{ question | nope }}",
    "field": "## task\n{{ nobody }}",
    "no section": "just words {{ question }}",
    "no text": b"## task\n\xff",
}


@pytest.mark.parametrize("case", BAD_TEMPLATES)
def test_bad_template_is_found_before_anything_is_sent(run: MakeRun, rows: Rows, case: str) -> None:
    content = BAD_TEMPLATES[case]
    with running(agreeing) as simulator:
        job = run(simulator.url, rows(1))
        pack = job.folder / "pack"
        pack.mkdir()
        (pack / "advise.md").write_bytes(
            content if isinstance(content, bytes) else content.encode()
        )
        result = job("--prompts", str(pack))
        assert simulator.requests == []
    assert result.code == 2
    assert "advise" in result.err


def test_a_missing_image_is_refused_rather_than_left_out(run: MakeRun, rows: Rows) -> None:
    with running(agreeing) as simulator:
        job = run(simulator.url, [{**rows(1)[0], "images": ["scan.png"]}])
        result = job()
    assert (result.code, "images" in result.err) == (2, True)


@pytest.mark.parametrize("parent", [signal.default_int_handler, signal.SIG_IGN])
def test_signal_before_the_run_has_begun(run: MakeRun, rows: Rows, parent: Any) -> None:
    """Also where the shell ignores SIGINT, as it does for what it starts in the background."""
    with running(agreeing) as simulator:
        simulator.call(simulator.stop())
        job = run(simulator.url, rows(1))
        before = signal.signal(signal.SIGINT, parent)
        try:
            process = job.start("--wait-server", "100")
        finally:
            signal.signal(signal.SIGINT, before)
        # Its handler is in place once the process has begun to look for the server.
        until(lambda: b"medagents" in Path(f"/proc/{process.pid}/cmdline").read_bytes())
        until(lambda: _catches(process.pid, signal.SIGTERM))
        os.kill(process.pid, signal.SIGTERM)
        assert finish(process, traceback=None).code == 130


def _catches(pid: int, number: signal.Signals) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


def test_summary_is_told_however_the_run_ends(run: MakeRun, rows: Rows) -> None:
    with running(agreeing, latency=0.2) as simulator:
        job = run(simulator.url, rows(3))
        process = job.start("--json", "--concurrency", "2")
        until(lambda: len(simulator.requests) > 3)
        process.send_signal(signal.SIGTERM)
        result = finish(process)
    assert result.code == 130
    assert orjson.loads(result.out)["questions"] == 3
    assert job.manifest()["stopped"].startswith("interrupted")
