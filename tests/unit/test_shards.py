"""Shards that several workers share: their names, their rows, who has which."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.ray.board import Board
from jobs.shards import Shards
from medagents_async.errors import RunStopped, UsageError


def test_shards_have_the_names_of_a_slurm_array(tmp_path: Path) -> None:
    shards = Shards(tmp_path / "out.jsonl", 3)
    assert shards.path(2) == tmp_path / "out.shards" / "2-of-3.jsonl"
    assert (tmp_path / "out.shards" / "count").read_text() == "3\n"
    Shards(tmp_path / "out.jsonl", 3)
    with pytest.raises(UsageError, match="cut into 3 shards, not 4"):
        Shards(tmp_path / "out.jsonl", 4)


def test_rows_are_counted_as_they_come(tmp_path: Path) -> None:
    shards = Shards(tmp_path / "out.jsonl", 2)
    assert shards.rows() == 0
    shards.path(0).write_text("{}\n{}\n{")
    shards.path(1).write_text("{}\n")
    assert shards.rows() == 3
    shards.path(0).write_text("{}\n{}\n{}\n{}\n")
    assert shards.rows() == 5
    shards.path(0).write_text("{}\n")
    assert shards.rows() == 2


def test_a_shard_that_comes_back_waits_behind_the_others() -> None:
    board = Board(3, tries=2)
    assert board.take() == 0
    board.give_back(0, "lost")
    assert [board.take(), board.take(), board.take(), board.take()] == [1, 2, 0, None]
    for shard in (1, 2):
        board.finish(shard)
    assert board.open
    with pytest.raises(RunStopped, match="shard 0/3 came back 2 times, last: lost"):
        board.give_back(0, "lost")
