"""Fixtures for all tests: question rows, the real sets, a run of the command."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tests.support.command import Run

LETTERS = "ABCDE"

# A slow machine is no fault, and every run tries the same examples.
hypothesis.settings.register_profile("here", deadline=None, derandomize=True)
hypothesis.settings.load_profile("here")


def question_row(number: int) -> dict[str, Any]:
    """A row in the published MedQA shape with an id."""
    letters = LETTERS[: 2 + number % 4]
    return {
        "id": f"q{number}",
        "question": f"Patient {number} has a fever and a rash. What is the next step?",
        "options": {letter: f"Measure {letter.lower()}{number}" for letter in letters},
        "answer": letters[number % len(letters)],
        "subject": "step1",
    }


@pytest.fixture
def rows() -> Callable[[int], list[dict[str, Any]]]:
    return lambda count: [question_row(number) for number in range(count)]


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Run]:
    """`run(url, rows, name=…)`: a run in a folder of its own."""

    def make(url: str, rows: Sequence[Mapping[str, Any]] | bytes, name: str = "run") -> Run:
        folder = tmp_path / name
        folder.mkdir()
        return Run(folder, url, rows)

    return make


@pytest.fixture
def data() -> Path:
    """The folder of real evaluation sets."""
    folder = os.environ.get("MEDAGENTS_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("MEDAGENTS_DATA names no folder with the real evaluation sets")
    return Path(folder)
