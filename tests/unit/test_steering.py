"""How many calls are in flight with `--concurrency auto`, against simulated servers."""

from __future__ import annotations

import os
from pathlib import Path

import orjson
import pytest

from medagents_async.engine import load as loads
from medagents_async.engine.load import Load
from medagents_async.engine.steering import LEAST, QueueRule


def seen(running: int, waiting: int, kv: float = 0.2, preemptions: int = 0) -> Load:
    return Load(running, waiting, kv, preemptions, 0, 0, 0, 0)


class Queue:
    """A server that runs `seats` requests; the rest of what is in flight waits."""

    def __init__(self, seats: int, limit: int = 64) -> None:
        self.seats, self.limit, self.rule = seats, limit, QueueRule(most=1024)
        self.answered = 0
        self.kv = 0.2

    def look(
        self, times: int, *, neighbours: int = 0, used_up: bool = True, answers: float = 1.0
    ) -> int:
        """`answers`: the share of our calls that is answered between two looks."""
        for _ in range(times):
            asked = self.limit + neighbours
            running = min(self.seats, asked)
            self.answered += int(self.limit * answers)
            self.limit = self.rule.next(
                self.limit,
                seen(running, asked - running, self.kv),
                in_flight=self.limit,
                answered=self.answered,
                used_up=used_up,
            )
        return self.limit


@pytest.mark.parametrize("seats", [16, 100, 256, 700])
def test_finds_what_the_server_runs(seats: int) -> None:
    limit = Queue(seats).look(40)
    assert seats <= limit <= seats * 1.15 + 4


def test_never_beyond_the_most_nor_below_the_least() -> None:
    assert Queue(5000).look(60) == 1024
    assert Queue(1).look(60) == LEAST


def test_calls_that_are_still_young_do_not_show_what_there_is_room_for() -> None:
    queue = Queue(1000)
    assert queue.look(3, answers=0.25) == 64
    assert queue.look(1, answers=0.25) > 64
    assert queue.limit == queue.look(3, answers=0.25)


def test_a_cache_that_is_nearly_empty_is_not_waited_for() -> None:
    queue = Queue(1000)
    queue.kv = 0.05
    assert queue.look(3, answers=0) > 256


def test_slots_that_are_not_used_are_no_reason_to_want_more() -> None:
    assert Queue(1000).look(30, used_up=False) == 64


def test_gives_way_to_a_neighbour_and_comes_back() -> None:
    queue = Queue(256)
    alone = queue.look(40)
    beside = queue.look(40, neighbours=128)
    again = queue.look(80)
    assert beside < alone - 64
    assert again >= 256


def test_calls_that_were_just_added_are_not_a_full_server() -> None:
    rule = QueueRule(most=1024)
    limit = rule.next(64, seen(60, 0), in_flight=0, answered=5000, used_up=True)
    assert 64 < limit <= 128
    for running in (64, 76, 88, 100):  # prefill of the new ones: more run at each look
        assert (
            rule.next(
                limit, seen(running, limit - running), in_flight=0, answered=5000, used_up=True
            )
            == limit
        )


def test_preemptions_lower_the_number() -> None:
    rule = QueueRule(most=1024)
    rule.next(400, seen(400, 0), in_flight=0, answered=5000, used_up=False)
    limit = rule.next(
        400, seen(380, 20, 1.0, preemptions=12), in_flight=0, answered=5000, used_up=True
    )
    assert limit < 400


def test_full_cache_is_no_reason_to_grow() -> None:
    rule = QueueRule(most=1024)
    limit = 300
    rule.next(limit, seen(280, 18, 1.0), in_flight=0, answered=5000, used_up=True)
    rule.next(limit, seen(280, 18, 1.0, preemptions=1), in_flight=0, answered=5000, used_up=True)
    for _ in range(10):
        assert (
            rule.next(limit, seen(limit, 0, 0.99, 1), in_flight=0, answered=5000, used_up=True)
            == limit
        )


def test_engines_of_one_server_are_added_up() -> None:
    text = "".join(
        f'vllm:{name}{{engine="{engine}",model_name="m"}} {value}\n'
        for engine in (0, 1)
        for name, value in (
            ("num_requests_running", 3.0),
            ("num_requests_waiting", 1.0),
            ("kv_cache_usage_perc", 0.25 + engine / 2),
            ("prompt_tokens_total", 1e3),
            ("prefix_cache_hits_total", 400.0),
            ("generation_tokens_total", 10.0),
        )
    )
    load = loads.read(text)
    assert load is not None
    assert (load.running, load.waiting, load.kv_usage) == (6, 2, 0.5)
    assert load.computed_tokens == 2000 - 800 + 20


def test_metrics_of_others_are_none() -> None:
    assert loads.read("# HELP go_threads\ngo_threads 8\n") is None


def test_reads_what_a_real_server_tells() -> None:
    folder = os.environ.get("MEDAGENTS_VLLM_SAMPLES")
    if not folder:
        pytest.skip("MEDAGENTS_VLLM_SAMPLES names no folder with recorded replies")
    sample = orjson.loads(Path(folder, "metrics.json").read_bytes())
    load = loads.read(sample["response"]["body"])
    assert load is not None
    assert (load.running, load.waiting) == (0, 0)
    assert (load.prompt_tokens, load.generation_tokens) == (4592, 1409)
