"""Questions with images, from a published record to OUT, against the simulator."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest

from medagents_async.datasets import find
from medagents_async.datasets.conversion import Account, convert
from medagents_async.datasets.drafts import Making
from medagents_async.datasets.pictures import Pictures
from medagents_async.datasets.sources import File, Sources
from medagents_async.simulator import Reply, Request, plausible, running
from tests.support.command import Run, kill, until
from tests.support.drawings import noise, opened
from tests.support.published import FIGURE

Rows = Callable[[int], list[dict[str, Any]]]
MakeRun = Callable[..., Run]
SCAN = noise(300, 200)
ONE_CALL = ("--method", "zero-shot")


def agreeing(request: Request) -> Reply:
    return Reply("YES") if request.stage == "vote" else plausible(request)


def illustrated(run: MakeRun, url: str, rows: list[dict[str, Any]], **names: Any) -> Run:
    """A run whose first row has the image scan.png."""
    first, *others = rows
    job = run(url, [{**first, "images": ["scan.png"]}, *others], **names)
    (job.folder / "scan.png").write_bytes(SCAN)
    return job


def images(request: Request) -> list[str]:
    """The URLs in the user's message, which has to be a text where there is none."""
    content = request.body["messages"][-1]["content"]
    if isinstance(content, str):
        return []
    *pictures, text = content
    assert text["type"] == "text"
    return [part["image_url"]["url"] for part in pictures]


def decoded(url: str) -> bytes:
    return base64.b64decode(url.partition("base64,")[2])


@pytest.mark.parametrize("layout", ["paper", "shared-prefix"])
def test_every_call_that_shows_the_question(run: MakeRun, rows: Rows, layout: str) -> None:
    with running(agreeing) as simulator:
        job = illustrated(run, simulator.url, rows(2))
        assert job("--set", f"layout={layout}").code == 0
        requests = simulator.requests
    assert len(requests) == 36
    for request in requests:
        system, *user = request.body["messages"]
        assert (system["role"] == "system") == (layout == "paper")
        assert isinstance(system["content"], str) or not user
        shows = request.question_id == "q0" and "Patient 0 has a fever" in request.text
        assert [decoded(url) for url in images(request)] == [SCAN] * shows
    stages = {request.stage for request in requests if images(request)}
    assert {"analyse_question", "analyse_option", "decide"} <= stages
    assert "vote" not in stages


def test_rows_without_images_send_what_they_always_did(run: MakeRun, rows: Rows) -> None:
    def sent(job: Run) -> dict[str, bytes]:
        assert job().code == 0
        return {r.request_id: r.raw for r in simulator.requests if r.question_id == "q1"}

    with running(agreeing) as simulator:
        beside = sent(illustrated(run, simulator.url, rows(2)))
        simulator.reset()
        alone = sent(run(simulator.url, rows(2)[1:], name="alone"))
    assert beside == alone
    assert len(alone) == 18
    contents = [m["content"] for raw in alone.values() for m in orjson.loads(raw)["messages"]]
    assert all(isinstance(content, str) for content in contents)


def test_the_cap_is_an_option(run: MakeRun, rows: Rows) -> None:
    with running() as simulator:
        job = illustrated(run, simulator.url, rows(1))
        assert job(*ONE_CALL, "--image-side", "100").code == 0
        (url,) = images(simulator.requests[0])
        assert opened(decoded(url)).size == (100, 67)
        result = job(*ONE_CALL)
    assert (result.code, "images.side: 100 there, 1024 now" in result.err) == (2, True)


def test_remote_images_need_the_flag(run: MakeRun, rows: Rows) -> None:
    url = "https://example.org/scan.png"
    with running() as simulator:
        job = run(simulator.url, [{**rows(1)[0], "images": [url]}])
        result = job(*ONE_CALL)
        assert (result.code, simulator.requests) == (2, [])
        assert "line 1: images.0" in result.err
        assert "--allow-remote-images" in result.err
        assert job(*ONE_CALL, "--allow-remote-images").code == 0
        assert images(simulator.requests[0]) == [url]


def test_bad_images_are_bad_rows(run: MakeRun, rows: Rows) -> None:
    names = ["scan.png", "gone.png", "text.png"]
    listed = [{**row, "images": [name]} for row, name in zip(rows(3), names, strict=True)]
    with running() as simulator:
        job = run(simulator.url, listed)
        (job.folder / "scan.png").write_bytes(SCAN)
        (job.folder / "text.png").write_text("no image at all")
        result = job(*ONE_CALL)
        assert (result.code, simulator.requests) == (2, [])
        reasons = [line for line in result.err.splitlines() if line.startswith("  line ")]
        assert [line.split(":")[0] for line in reasons] == ["  line 2", "  line 3"]
        assert "no such file" in reasons[0]
        assert "no image that can be read" in reasons[1]
        assert job(*ONE_CALL, "--skip-bad-rows").code == 0
    assert [row["id"] for row in job.rows()] == ["q0"]
    assert job.manifest()["skipped_rows"] == 2


def test_an_image_that_breaks_off_ends_its_question_alone(run: MakeRun, rows: Rows) -> None:
    with running() as simulator:
        job = illustrated(run, simulator.url, rows(2))
        (job.folder / "scan.png").write_bytes(SCAN[:-9000])
        assert job(*ONE_CALL).code == 1
        assert [request.question_id for request in simulator.requests] == ["q1"]
        bad, good = sorted(job.rows(), key=lambda row: row["index"])
        assert (bad["status"], bad["error"]["kind"], bad["prediction"]) == ("error", "image", None)
        assert bad["error"]["stage"] == "answer"
        assert good["status"] != "error"
        dry = job(*ONE_CALL, "--dry-run")
        assert (dry.code, "scan.png" in dry.err) == (2, True)


def test_a_run_goes_on_only_onto_the_same_images(run: MakeRun, rows: Rows) -> None:
    with running() as simulator:
        job = illustrated(run, simulator.url, rows(2))
        assert job(*ONE_CALL, "--limit", "1").code == 0
        (job.folder / "elsewhere.png").write_bytes(SCAN)
        first, second = rows(2)
        job.write([{**first, "images": ["elsewhere.png"]}, second])
        assert job(*ONE_CALL).code == 0  # the content is the same
        assert simulator.arrivals == 2
        (job.folder / "elsewhere.png").write_bytes(noise(300, 200, seed=1))
        result = job(*ONE_CALL)
        assert simulator.arrivals == 2
    assert (result.code, "input: " in result.err) == (2, True)


def test_out_names_images(run: MakeRun, rows: Rows) -> None:
    """18 calls would hold the picture a dozen times; `sha256sum` finds the file by its name."""
    with running(agreeing) as simulator:
        job = illustrated(run, simulator.url, rows(1))
        assert job().code == 0
        sent = {request.request_id: request for request in simulator.requests}
    (row,) = job.rows()
    named = f"sha256:{hashlib.sha256(SCAN).hexdigest()}"
    assert (
        job.output.stat().st_size
        < len(SCAN)
        < 12 * len(SCAN)
        < sum(len(r.raw) for r in sent.values())
    )
    assert b"base64" not in job.output.read_bytes()
    for step in row["trace"]:
        request = sent[f"q0/0/{step['stage']}/{step['n']}"]
        pictures = [
            part["image_url"]["url"]
            for message in step["request"]["messages"]
            if not isinstance(message["content"], str)
            for part in message["content"][:-1]
        ]
        assert pictures == [named] * len(images(request))
        assert list(step["request"]) == list(request.body)
    dry = job("--dry-run")
    assert (dry.code, named in dry.out, "base64" in dry.out) == (0, True, False)


def test_a_killed_run_repeats_no_call_with_images(run: MakeRun, rows: Rows) -> None:
    alive = True

    def hanging(request: Request) -> Reply:
        return Reply(fault="hang") if alive and request.stage == "decide" else agreeing(request)

    with running(hanging) as simulator:
        job = illustrated(run, simulator.url, rows(1))
        process = job.start()
        until(lambda: any(request.stage == "decide" for request in simulator.requests))
        kill(process)
        before, alive = simulator.arrivals, False
        assert job().code == 0
        assert (simulator.repeated, simulator.arrivals) == (0, before + 1)
    assert len(job.rows()[0]["trace"]) == 18


def test_a_model_without_eyes(run: MakeRun, rows: Rows) -> None:
    words = "simulator is not a multimodal model"

    def blind(request: Request) -> Reply:
        return Reply(status=400, error=words) if images(request) else agreeing(request)

    with running(blind) as simulator:
        job = illustrated(run, simulator.url, rows(2))
        assert job("--method", "zero-shot", "--set", "constrain=true").code == 1
        assert simulator.arrivals == 2
    failed = next(row for row in job.rows() if row["status"] == "error")
    assert (failed["id"], failed["error"]["kind"]) == ("q0", "refused")
    assert words in failed["error"]["message"]


def test_tokens_are_those_that_the_server_counts(run: MakeRun, rows: Rows) -> None:
    with running(
        lambda r: Reply("Option: A", prompt_tokens=50 + 1340 * len(images(r)))
    ) as simulator:
        job = illustrated(run, simulator.url, rows(2))
        assert job(*ONE_CALL).code == 0
    usage = {row["id"]: row["usage"]["prompt_tokens"] for row in job.rows()}
    assert usage == {"q0": 1390, "q1": 50}


PUBLISHED: dict[str, tuple[str, Mapping[str, Any]]] = {
    "path-vqa": ("test.jsonl", {"image": "f.png", "question": "is it?", "answer": "No"}),
    "pmc-vqa": ("test.jsonl", {**FIGURE, "Answer": "z", "Answer_label": "C"}),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_converted_rows(run: MakeRun, tmp_path: Path, name: str) -> None:
    file, record = PUBLISHED[name]
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    (pictures / "f.png").write_bytes(SCAN)
    (tmp_path / file).write_bytes(orjson.dumps(record))
    with running(lambda _: Reply("Option: B")) as simulator:
        job = run(simulator.url, [])
        making = Making(pictures=Pictures(job.source, pictures))
        lines = convert(
            find(name), Sources([File(tmp_path / file)]), making, Account(), explanations=False
        )
        job.write(b"".join(line.rstrip(b"\n") + b"\n" for line in lines))
        assert job("--method", "cot").code == 0
        assert [decoded(url) for url in images(simulator.requests[0])] == [SCAN]
    assert [row["prediction"] for row in job.rows()] == ["B"]


def test_examples_with_images_are_refused(run: MakeRun, rows: Rows) -> None:
    """They would be shown without them."""
    with running() as simulator:
        job = run(simulator.url, rows(1))
        path = job.folder / "solved.jsonl"
        path.write_bytes(orjson.dumps({**rows(1)[0], "images": ["scan.png"]}))
        result = job("--method", "few-shot", "--set", f"exemplars={path}", "--set", "shots=1")
        assert simulator.requests == []
    assert (result.code, "line 1: images:" in result.err) == (2, True)
