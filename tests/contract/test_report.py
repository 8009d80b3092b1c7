"""`report`, as users see it: on what real runs leave, and on rows in their shape."""

from __future__ import annotations

import csv
import importlib.util
import io
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from math import comb
from pathlib import Path
from typing import Any

import orjson
import pytest

from medagents_async.reporting import files
from medagents_async.simulator import running
from tests.support.command import PATIENCE_S, Result, Run

ROOT = Path(__file__).resolve().parents[2]
Rows = Callable[[int], list[dict[str, Any]]]
MakeRun = Callable[..., Run]


def report(*words: object, strict: bool = True, env: Mapping[str, str] | None = None) -> Result:
    command = [sys.executable, *(["-W", "error"] if strict else []), "-m", "medagents_async.report"]
    done = subprocess.run(
        [*command, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env={**os.environ, **(env or {})},
    )
    assert "Traceback" not in done.stderr, done.stderr
    return Result(done.returncode, done.stdout, done.stderr)


def scored(*words: object) -> dict[str, Any]:
    result = report(*words, "--format", "json")
    assert result.code == 0, result.err
    document: dict[str, Any] = orjson.loads(result.out)  # strict: it knows no NaN
    return document


def row(number: int, said: str | None, key: str | None, **more: Any) -> dict[str, Any]:
    """A row in the shape of OUT, without a trace."""
    return {
        "id": f"q{number}",
        "index": number,
        "repeat": 0,
        "status": "ok" if said else "unparsed",
        "prediction": said,
        "answer": key,
        "correct": None if key is None else said == key,
        "subject": None,
        "error": None,
        "method": "cot",
        "calls": 1,
        "truncated": 0,
        "retries": 0,
        "usage": {"prompt_tokens": 100, "completion_tokens": 10, "cached_tokens": 0},
        "seconds": 1.0,
        "detail": {},
        "trace": [],
        **more,
    }


def written(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    path.write_bytes(b"".join(orjson.dumps(each) + b"\n" for each in rows))
    return path


FAILED = {"status": "error", "error": {"kind": "timeout", "message": "…", "stage": "vote"}}
TEN = [
    *(row(n, "A", "A") for n in range(5)),
    *(row(n, "B", "A", truncated=1) for n in (5, 6)),
    row(7, None, "A"),
    *(row(n, None, "A", **FAILED) for n in (8, 9)),
]


def test_a_real_run_of_a_panel(run: MakeRun, rows: Rows) -> None:
    with running() as simulator:
        job = run(simulator.url, rows(12))
        assert job("--repeats", "2").code == 0
    (summary,) = scored(job.output)["runs"]
    out = job.rows()
    assert summary["score"]["rows"] == len(out) == 24
    assert summary["score"]["right"] == sum(each["correct"] for each in out)
    assert summary["run"]["method"] == "medagents"
    assert summary["run"]["dataset"] == "in"
    assert len(summary["repeats"]["accuracies"]) == 2
    assert summary["cost"]["calls"]["total"] == sum(each["calls"] for each in out)
    assert summary["cost"]["wall_s"] > 0
    votes = [vote for each in out for vote in each["detail"]["votes"][0].values()]
    assert summary["consultation"]["votes"][0]["no"] == votes.count("no")
    assert summary["consultation"]["flips"] is None
    table = report(job.output).out
    for words in ("accuracy over repeats", "interval by question", "Votes on the report"):
        assert words in table
    shown = report(job.output, "--show", "q3").out
    assert shown.count("Consultation of question q3") == 2
    assert "Decision:" in shown


def test_two_real_systems_and_a_seed_more(run: MakeRun, rows: Rows) -> None:
    with running() as simulator:
        jobs = []
        for name, *options in (
            ("md", "--method", "mdagents"),
            ("sc", "--method", "self-consistency"),
            ("sc1", "--method", "self-consistency", "--seed", "1"),
        ):
            job = run(simulator.url, rows(16), name)
            assert job(*options).code == 0
            job.output.rename(job.folder / f"{name}.jsonl")
            (job.folder / "out.run.json").rename(job.folder / f"{name}.run.json")
            jobs.append(job.folder / f"{name}.jsonl")
    document = scored(*jobs)
    comparison = document["comparison"]
    assert comparison["systems"] == ["mdagents", "self-consistency"]
    assert comparison["datasets"] == ["in"]
    marks = [
        {each["id"]: each["correct"] for each in map(orjson.loads, path.read_bytes().splitlines())}
        for path in jobs
    ]
    (pair,) = comparison["pairs"]
    only_a = sum(marks[0][name] and not marks[1][name] for name in marks[0])
    only_b = sum(marks[1][name] and not marks[0][name] for name in marks[0])
    assert (pair["result"]["only_a"], pair["result"]["only_b"]) == (only_a, only_b)
    flips = document["runs"][0]["consultation"]["flips"]
    moderate = [
        r for r in map(orjson.loads, jobs[0].read_bytes().splitlines()) if "answers" in r["detail"]
    ]
    assert flips["rows"] == sum(each["prediction"] is not None for each in moderate)
    assert "±" in report(*jobs).out


def test_failures_count_as_wrong_and_are_shown(tmp_path: Path) -> None:
    (summary,) = scored(written(tmp_path / "out.jsonl", TEN))["runs"]
    score = summary["score"]
    assert (score["accuracy"], score["answered"]) == (0.5, 5 / 7)
    assert (score["errors"], score["unparsed"], score["truncated"]) == (0.2, 0.1, 0.2)
    assert summary["errors"] == {"timeout": 2}
    result = report(tmp_path / "out.jsonl")
    assert "50.0% (23.7–76.3)" in result.out
    assert "accuracy over answered" in result.out
    assert "error (timeout)" in result.out


def test_a_worked_pair(tmp_path: Path) -> None:
    """30 against 52 of 1,000 questions: the exact binomial, from its definition."""
    a = [row(n, "A" if n < 600 or 900 <= n < 930 else "B", "A") for n in range(1000)]
    b = [row(n, "A" if n < 600 or 930 <= n < 982 else "B", "A") for n in range(1000)]
    paths = written(tmp_path / "a.jsonl", a), written(tmp_path / "b.jsonl", b)
    (pair,) = scored(*paths)["comparison"]["pairs"]
    exact = 2 * sum(comb(82, k) for k in range(31)) / 2**82
    assert pair["result"]["p"] == pytest.approx(exact, rel=1e-12)
    assert pair["p_holm"] == pair["result"]["p"]
    shown = report(*paths).out
    assert f"{exact:.3f}" in shown
    assert "+2.2" in shown
    assert "… and 62 more" in shown
    assert report(*paths, "--format", "csv").out.count("Flips: ") == 82 * 5


def test_costs(tmp_path: Path) -> None:
    output = written(tmp_path / "out.jsonl", TEN)
    totals = {"seconds": 1800.0, "questions_per_hour": 20.0}
    (tmp_path / "out.run.json").write_bytes(orjson.dumps({"totals": totals}))
    prices = ("--gpu-rate", "2.5", "--gpus", "8", "--price-in", "1000", "--price-out", "5000")
    (summary,) = scored(output, *prices)["runs"]
    assert summary["cost"]["gpu_hours"] == 4
    assert summary["cost"]["gpu_cost"] == 10
    assert summary["cost"]["token_cost"] == pytest.approx(1.0 + 0.5)
    assert "GPU cost" in report(output, *prices).out


def test_one_letter_for_everything_is_warned_of(tmp_path: Path) -> None:
    output = written(tmp_path / "out.jsonl", [row(n, "A", "ABCD"[n % 4]) for n in range(20)])
    assert "20 of 20 answers are A" in report(output).err


NASTY = r"50% of_all & more #1 {x} ~^\ $|` <b>" + "\x1b[31m"


def test_tables_are_escaped(tmp_path: Path) -> None:
    rows = [row(n, "A", "A", subject=NASTY) for n in range(3)]
    output = written(tmp_path / "out.jsonl", rows)
    latex = report(output, "--format", "latex").out
    line = next(line for line in latex.splitlines() if line.startswith("50"))
    assert line.startswith(
        r"50\% of\_all \& more \#1 \{x\} \textasciitilde{}\textasciicircum{}\textbackslash{} "
        r"\$\textbar{}` \textless{}b\textgreater{}"
    )
    assert latex.count(r"\begin{tabular}") == latex.count(r"\end{tabular}")
    for line in latex.splitlines():
        columns = line.replace(r"\&", "").count("&")
        assert not line.endswith(r"\\") or columns > 0
    markdown = report(output, "--format", "markdown").out
    line = next(line for line in markdown.splitlines() if line.startswith("| 50"))
    assert line.replace(r"\|", "").count("|") == 8
    for form in ("table", "markdown", "latex", "csv"):
        assert "\x1b[31m" not in report(output, "--format", form).out
    table = [*csv.DictReader(io.StringIO(report(output, "--format", "csv").out))]
    (accuracy,) = [
        each
        for each in table
        if (each["table"], each["row"], each["column"]) == ("out", "accuracy", "value")
    ]
    assert float(accuracy["value"]) == 1
    assert float(accuracy["low"]) < 1


def test_long_runs_are_not_listed_unless_asked_for(tmp_path: Path) -> None:
    output = written(tmp_path / "out.jsonl", [row(n, "A", "A") for n in range(50)])
    assert "q49" not in report(output).out
    assert "q49" in report(output, "--outcomes").out
    short = written(tmp_path / "short.jsonl", TEN)
    assert "q9" in report(short).out
    assert "q9" not in report(short, "--no-outcomes").out


def test_a_run_that_goes_on_can_be_scored(tmp_path: Path) -> None:
    output = written(tmp_path / "out.jsonl", TEN)
    with output.open("ab") as file:
        file.write(orjson.dumps(row(10, "A", "A"))[:-20])
    (summary,) = scored(output)["runs"]
    assert summary["score"]["rows"] == 10


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "no such file"),
        (b"{}\n", "line 1 is no row of a run"),
        (b'{"id": 1\n{}\n', "line 1 is not JSON"),
        (b"[]\n", "line 1 is no JSON object"),
        (b"".join(orjson.dumps(row(1, "A", "A")) + b"\n" for _ in range(2)), "is in line 1, too"),
    ],
)
def test_what_is_no_run_is_refused(tmp_path: Path, content: bytes | None, complaint: str) -> None:
    output = tmp_path / "out.jsonl"
    if content is not None:
        output.write_bytes(content)
    result = report(output)
    assert result.code == 2
    assert complaint in result.err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--show", "q99"), "has no question 'q99'"),
        (("--to", "wandb", "x"), "want inspect or lm-eval"),
        (("--to", "inspect", "x.txt"), "NAME.eval or NAME.json"),
        (("--format", "yaml"), "Invalid value"),
    ],
)
def test_what_cannot_be_done_is_said(tmp_path: Path, words: Sequence[str], complaint: str) -> None:
    result = report(written(tmp_path / "out.jsonl", TEN), *words)
    assert result.code == 2
    assert complaint in result.err


def test_an_empty_run(tmp_path: Path) -> None:
    (tmp_path / "out.jsonl").write_bytes(b"")
    (summary,) = scored(tmp_path / "out.jsonl")["runs"]
    assert summary["score"]["accuracy"] is None
    assert report(tmp_path / "out.jsonl").code == 0


def test_traces_are_read_past(tmp_path: Path) -> None:
    """40 MB of traces; what stays is a small record of each row."""
    trace = [{"stage": "vote", "reply": "x" * 200_000}]
    output = written(tmp_path / "out.jsonl", [row(n, "A", "A", trace=trace) for n in range(200)])
    files.load(output)  # imports and caches come first
    tracemalloc.start()
    try:
        loaded = files.load(output)
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(loaded.records) == 200
    assert kept < 200 * 2_000
    assert peak < 8_000_000


def test_lm_eval_samples(run: MakeRun, rows: Rows, tmp_path: Path) -> None:
    with running() as simulator:
        job = run(simulator.url, [*rows(4), rows(5)[4] | {"answer": None}])
        assert job("--method", "cot", "--model", "simulator").code == 0
    assert report(job.output, "--to", "lm-eval", tmp_path / "logs").code == 0
    folder = tmp_path / "logs" / "simulator"
    (samples,) = folder.glob("samples_in_*.jsonl")
    lines = sorted(map(orjson.loads, samples.read_bytes().splitlines()), key=lambda s: s["doc_id"])
    assert [each["doc_id"] for each in lines] == [0, 1, 2, 3, 4]
    out = {each["id"]: each for each in job.rows()}
    for each in lines[:4]:
        mine = out[each["doc"]["id"]]
        assert each["exact_match"] == float(mine["correct"])
        assert each["filtered_resps"] == [mine["prediction"] or ""]
        assert each["resps"] == [[mine["trace"][-1]["reply"]]]
        assert each["doc"]["question"].startswith("Patient")
        assert "Patient" in each["arguments"]["gen_args_0"]["arg_0"]
    assert lines[4]["metrics"] == []
    (results,) = folder.glob("results_*.json")
    share = sum(bool(each["correct"]) for each in out.values()) / 4
    assert orjson.loads(results.read_bytes())["results"]["in"]["exact_match,none"] == share


def _inspect() -> tuple[dict[str, str], list[str]]:
    """The environment that has inspect-ai, and its command; skips where it is not installed."""
    peers = ROOT / ".venv-peers"
    packages = peers / f"lib/python3.{sys.version_info.minor}/site-packages"
    if importlib.util.find_spec("inspect_ai"):
        return {}, [str(Path(sys.executable).with_name("inspect"))]
    if (packages / "inspect_ai").is_dir():
        return {"PYTHONPATH": str(packages)}, [str(peers / "bin" / "inspect")]
    pytest.skip("inspect-ai is not installed here: pip install -e '.[inspect]'")


def test_an_inspect_log_without_inspect(tmp_path: Path) -> None:
    if importlib.util.find_spec("inspect_ai"):
        pytest.skip("inspect-ai is installed here")
    result = report(written(tmp_path / "out.jsonl", TEN), "--to", "inspect", tmp_path / "x.eval")
    assert result.code == 2
    assert "pip install 'inspect-ai" in result.err


def test_an_inspect_log(run: MakeRun, rows: Rows) -> None:
    env, inspect = _inspect()
    with running() as simulator:
        job = run(simulator.url, rows(3))
        assert job("--repeats", "2").code == 0
    rows_out = job.rows()
    rows_out[0] |= FAILED | {"prediction": None, "correct": False}
    rows_out[1] |= {"answer": None, "correct": None}
    written(job.output, rows_out)
    log = job.folder / "out.eval"
    result = report(job.output, "--to", "inspect", log, strict=False, env=env)
    assert result.code == 0, result.err
    dumped = subprocess.run(
        [*inspect, "log", "dump", "--resolve-attachments", "full", str(log)],
        capture_output=True,
        timeout=PATIENCE_S,
    )
    assert dumped.returncode == 0, dumped.stderr
    document = orjson.loads(dumped.stdout)
    assert document["status"] == "success"
    assert document["eval"]["solver"] == "medagents"
    assert len(document["samples"]) == len(rows_out)
    (score,) = document["results"]["scores"]
    right = sum(each["correct"] is True for each in rows_out)
    assert score["metrics"]["accuracy"]["value"] == pytest.approx(right / 5)
    samples = {(each["id"], each["epoch"]): each for each in document["samples"]}
    for mine in rows_out:
        sample = samples[mine["id"], mine["repeat"] + 1]
        assert sample["input"].startswith("Patient")
        calls = [each for each in sample["events"] if each["event"] == "model"]
        assert len(calls) == len(mine["trace"])
        assert calls[-1]["output"]["completion"] == mine["trace"][-1]["reply"]
        assert (sample.get("error") is not None) is (mine["error"] is not None)
        if mine["answer"] is None:
            assert not sample.get("scores")
        else:
            assert (sample["scores"]["choice"]["value"] == "C") is mine["correct"]
