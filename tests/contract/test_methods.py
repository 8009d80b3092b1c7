"""The methods as `batch` users see them: what is refused, and files that parameters name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from medagents_async import methods
from medagents_async.simulator import Reply, Request, Simulator, plausible, running
from tests.support.command import Run

MakeRun = Callable[..., Run]
Rows = Callable[[int], list[dict[str, Any]]]

OWN = methods.every_method()


def script(request: Request) -> Reply:
    """Good manners, and as an answer the first option that the prompt's last list shows."""
    return plausible(request) if request.stage != "answer" else Reply("Thought: So.\nOption: A")


@pytest.fixture(scope="module")
def server() -> Iterator[Simulator]:
    with running(script) as simulator:
        yield simulator


def solved(folder: Path, name: str, count: int) -> str:
    """A file of so many solved questions."""
    path = folder / name
    lines = (
        {
            "id": f"{name}-{n}",
            "question": f"Does patient {n} need rest?",
            "options": {"A": "Yes", "B": "No"},
            "answer": "AB"[n % 3 == 2],
            "explanation": f"Patient {n} is tired.",
        }
        for n in range(count)
    )
    path.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    return str(path)


REFUSED = {
    "self-consistency temperature=0": "at temperature 0 all samples say the same",
    "ensemble-refinement refine_temperature=0": "at temperature 0 all samples say the same",
    "self-consistency samples=0": "greater than or equal to 1",
    "few-shot exemplars=nowhere.jsonl": "cannot read nowhere.jsonl: No such file or directory",
    "few-shot shots=6": "exemplars.jsonl has 5 solved questions, and shots is 6",
    "few-shot exemplars=torn.jsonl": "line 2: not JSON",
    "few-shot-cot exemplar_seed=x": "valid integer",
    "medprompt training=nowhere.jsonl": "cannot read nowhere.jsonl",
    "medprompt solutions=good.jsonl": "--set training=FILE",
    "medprompt training=good.jsonl solutions=good.jsonl": "good.jsonl, line 1 is no row of a run",
    "zero-shot shots=5": "has no parameter 'shots'; it has: temperature, top_p",
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_before_anything_is_sent(
    server: Simulator, run: MakeRun, rows: Rows, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    job = run(server.url, rows(1))
    monkeypatch.chdir(job.folder)
    good = Path(solved(job.folder, "good.jsonl", 5))
    (job.folder / "torn.jsonl").write_bytes(good.read_bytes().replace(b"}\n{", b"}\n", 1))
    name, *settings = case.split()
    before = len(server.requests)
    result = job("--method", name, *(part for text in settings for part in ("--set", text)))
    assert result.code == 2
    assert REFUSED[case] in " ".join(result.err.split())
    assert len(server.requests) == before
    assert not job.output.exists()


def test_temperature_0_on_the_command_line_is_refused_too(
    server: Simulator, run: MakeRun, rows: Rows
) -> None:
    result = run(server.url, rows(1))("--method", "self-consistency", "--temperature", "0")
    assert (result.code, "at temperature 0" in result.err) == (2, True)


def test_content_of_a_file_belongs_to_the_configuration(
    server: Simulator, run: MakeRun, rows: Rows, tmp_path: Path
) -> None:
    job = run(server.url, rows(2))
    path = Path(solved(tmp_path, "one.jsonl", 9))

    def again(exemplars: Path) -> tuple[int, str]:
        result = job("--method", "few-shot", "--set", f"exemplars={exemplars}")
        return result.code, result.err

    assert again(path)[0] == 0
    assert job.manifest()["configuration"]["parameters"]["exemplars"].startswith("sha256:")
    assert again(path.rename(tmp_path / "moved.jsonl"))[0] == 0
    path = Path(solved(tmp_path, "moved.jsonl", 8))
    code, err = again(path)
    assert (code, "parameters.exemplars: " in err) == (2, True)


@pytest.mark.parametrize("name", OWN)
def test_every_method_answers(server: Simulator, run: MakeRun, rows: Rows, name: str) -> None:
    job = run(server.url, rows(3))
    assert job("--method", name).code == 0
    found = job.rows()
    assert len(found) == 3
    assert {row["method"] for row in found} == {name}
    assert {row["status"] for row in found} <= {"ok", "unparsed"}


def test_samples_of_one_request(server: Simulator, run: MakeRun, rows: Rows) -> None:
    job = run(server.url, rows(2))
    assert job("--method", "self-consistency", "--set", "one_request=true").code == 0
    for row in job.rows():
        (step,) = row["trace"]
        assert (step["request"]["n"], len(step["replies"])) == (5, 5)
        assert row["detail"]["votes"] == {"A": 5}


def test_medprompt_from_training_to_answers(
    server: Simulator, run: MakeRun, rows: Rows, tmp_path: Path
) -> None:
    training = Path(solved(tmp_path, "training.jsonl", 9))
    prepared = run(server.url, training.read_bytes(), name="prepared")
    assert prepared("--method", "cot", "--trace", "brief").code == 0
    right = {row["id"] for row in prepared.rows() if row["correct"]}
    assert 0 < len(right) < 9

    job = run(server.url, rows(2))
    settings = ("--set", f"training={training}", "--set", f"solutions={prepared.output}")
    assert job("--method", "medprompt", *settings).code == 0
    for row in job.rows():
        assert row["detail"]["pool"] == "training"
        assert set(row["detail"]["exemplars"]) <= right
        assert len(row["detail"]["exemplars"]) == 5
        content = row["trace"][0]["request"]["messages"][-1]["content"]
        assert content.count("Thought: So.\nOption: A") == 5

    # A training question is not shown to itself.
    again = run(server.url, training.read_bytes(), name="again")
    assert again("--method", "medprompt", *settings).code == 0
    assert all(row["id"] not in row["detail"]["exemplars"] for row in again.rows())


def test_list_of_methods(server: Simulator, run: MakeRun, rows: Rows) -> None:
    result = run(server.url, rows(1))("--list-methods")
    assert result.code == 0
    lines = result.out.splitlines()
    assert [line for line in lines if not line.startswith(" ")] == list(OWN)
    assert sum("not stated" in line for line in lines) == 0
    for known in OWN.values():
        for name, default in known.defaults.items():
            assert any(line.startswith(f"    --set {name}={default}  (") for line in lines)
        assert all(f"    --preset {preset}: " in result.out for preset in known.presets)
