"""The main job against a real vLLM: what it really answers, and what becomes of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.real.conftest import RealServer
from tests.support.command import Run

Rows = Callable[[int], list[dict[str, Any]]]
MakeRun = Callable[..., Run]

pytestmark = pytest.mark.real

DOMAINS = "Cardiology|Neurology|Urology|Oncology|Genetics"
SHORT = [
    *("--set", "recruit_tokens=16"),
    *("--set", "analysis_tokens=24"),
    *("--set", "report_tokens=32"),
    *("--set", "vote_tokens=8"),
    *("--set", "advice_tokens=16"),
    *("--set", "decision_tokens=16"),
    *("--set", "rounds=1"),
]


def test_main_job_with_constrained_votes_and_choice(
    vllm: RealServer, run: MakeRun, rows: Rows
) -> None:
    job = run(vllm.url, rows(2))
    result = job(*SHORT, "--set", "constrain=true", env=vllm.env)
    assert result.code == 0
    for row in job.rows():
        assert row["status"] == "ok"
        assert row["calls"] in range(18, 27)
        votes = [step for step in row["trace"] if step["stage"] == "vote"]
        assert len(votes) == 7  # none was unclear
        assert {step["reply"] for step in votes} <= {"YES", "NO"}
        assert row["prediction"] == row["trace"][-1]["reply"]
        assert row["usage"]["prompt_tokens"] > 18 * 50
    manifest = job.manifest()
    assert manifest["server_version"] == "0.32.0"
    assert manifest["max_model_len"] == 4096
    assert manifest["system_fingerprint"].startswith("vllm-0.32.0")
    assert manifest["configuration"]["model"] == "tiny-random-llama"


def test_unconstrained_gibberish_is_unclear_and_unparsed(
    vllm: RealServer, run: MakeRun, rows: Rows
) -> None:
    job = run(vllm.url, rows(2))
    assert job(*SHORT, env=vllm.env).code == 0
    for row in job.rows():
        assert (row["status"], row["prediction"]) == ("unparsed", None)
        assert row["detail"]["recruit_question"]["padded"] == 5
        assert set(row["detail"]["votes"][0].values()) <= {"yes", "no"}  # constrained second try


def test_many_seeded_prompts_at_once(vllm: RealServer, run: MakeRun, rows: Rows) -> None:
    """More prompt tokens than the server takes in one step: it must not fall over its seeds."""
    wide = [{**row, "question": row["question"] + " fever" * 900} for row in rows(12)]
    job = run(vllm.url, wide)
    assert job(*SHORT, "--set", "stages=cot", env=vllm.env).code == 0


def test_over_long_prompt_is_refused_once_and_costs_no_other_question(
    vllm: RealServer, run: MakeRun, rows: Rows
) -> None:
    long, other = rows(2)
    job = run(vllm.url, [{**long, "question": "fever " * 5000}, other])
    result = job(*SHORT, "--set", "stages=direct", env=vllm.env)
    assert result.code == 1
    failed, fine = sorted(job.rows(), key=lambda row: row["index"])
    assert (failed["status"], failed["error"]["kind"]) == ("error", "refused")
    assert "maximum context length is 4096" in failed["error"]["message"]
    assert failed["trace"][0]["attempts"] == 1
    assert fine["status"] != "error"


def test_limit_that_the_server_cuts_in_silence_is_told(
    vllm: RealServer, run: MakeRun, rows: Rows
) -> None:
    row = {**rows(1)[0], "question": "fever " * 3900}
    job = run(vllm.url, [row])
    result = job("--set", "stages=direct", "--set", "decision_tokens=1000", env=vllm.env)
    assert result.code == 0
    assert job.rows()[0]["truncated"] == job.rows()[0]["cut_by_context"] == 1
    assert "MAX_MODEL_LEN" in result.err


@pytest.mark.parametrize(
    ("options", "key", "words"),
    [
        (["--model", "nope"], None, "tiny-random-llama"),
        ([], "sk-wr0ng", "API key"),
        ([], "", "API key"),
        (["--set", "report_tokens=4096"], None, "no room"),
    ],
)
def test_what_can_be_known_before_stops_the_run(
    vllm: RealServer, run: MakeRun, rows: Rows, options: list[str], key: str | None, words: str
) -> None:
    env = vllm.env if key is None else {"MEDAGENTS_API_KEY": key}
    result = run(vllm.url, rows(1))(*options, env=env)
    assert (result.code, words in " ".join(result.err.split())) == (2, True)


def test_shared_prefix_is_cached(vllm: RealServer, run: MakeRun, rows: Rows) -> None:
    cached = {}
    for layout in ("paper", "shared-prefix"):
        # A question of its own: another test's prompts would be in the cache already.
        fresh = {**rows(1)[0], "question": f"What does {layout} save in a server that caches?"}
        job = run(vllm.url, [fresh], layout)
        panel = ["--set", f"domains={DOMAINS}", "--set", "option_domains=Surgery|Radiology"]
        layout_of = ["--set", f"layout={layout}", "--set", "constrain=true"]
        assert job(*SHORT, *panel, *layout_of, env=vllm.env).code == 0
        cached[layout] = job.rows()[0]["usage"]["cached_tokens"]
    assert cached["shared-prefix"] > cached["paper"]
