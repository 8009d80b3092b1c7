"""The simulated vLLM engine: its scheduler against a step-by-step one, its clock, its cache."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence as Items
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from medagents_async.errors import UsageError
from medagents_async.simulator import clock, tokens
from medagents_async.simulator.batching import Scheduler, Sequence
from medagents_async.simulator.engine import BatchingEngine
from medagents_async.simulator.kv_cache import KvCache
from medagents_async.simulator.profiles import PROFILES, Batch, Profile, find
from medagents_async.simulator.script import Reply, Request
from medagents_async.simulator.vllm import Output

#: A step takes 1 s and no token takes longer: times can be counted on fingers.
SECONDS = Profile(
    name="seconds",
    token_flops=0,
    attention_flops=0,
    flops=1,
    weight_bytes=0,
    kv_bytes=0,
    bandwidth=1,
    step_s=1.0,
    sequence_s=0,
    kv_blocks=64,
    block_size=4,
    max_model_len=256,
    max_num_seqs=8,
    max_num_batched_tokens=16,
)
#: Every term counts, and memory leads before compute does.
ROOFLINE = replace(
    SECONDS,
    token_flops=3,
    attention_flops=0.5,
    flops=10,
    weight_bytes=7,
    kv_bytes=0.2,
    bandwidth=4,
    sequence_s=0.01,
    token_s=0.003,
)


def sequence(prompt: int, output: int, text: str = "") -> Sequence:
    """Its tokens are numbered after `text`: equal texts share all that they can."""
    words = " ".join(f"{text}{n}" for n in range(prompt + output))
    return Sequence(prompt, output, tokens.block_keys(tokens.encode(words), 4))


def run_all(scheduler: Scheduler) -> list[tuple[Sequence, float]]:
    """(sequence, when it was done), as planned; what runs, waits and fits is checked each time."""
    now, done = 0.0, []
    profile, cache = scheduler.profile, scheduler.cache
    while (planned := scheduler.schedule(now)) is not None:
        batch, steps = planned
        assert 0 < len(scheduler.running) <= profile.max_num_seqs
        assert batch.tokens <= profile.max_num_batched_tokens
        assert 0 <= cache.free <= cache.capacity
        now += profile.seconds(batch, steps)
        done += [(ended, now) for ended in scheduler.advance(steps)]
    assert cache.free == cache.capacity
    assert not scheduler.running
    return done


# -- the reference: each step, each sequence, each block on its own ---------------------------


@dataclass
class Block:
    key: int | None = None
    holders: int = 0


@dataclass(eq=False)
class Walker:
    """A sequence of the reference."""

    prompt: int
    output: int
    keys: list[int]
    computed: int = 0
    written: int = 0
    reads: bool = True
    named: int = 0  # blocks, where the name was not another's
    blocks: list[Block] = field(default_factory=list)


@dataclass
class Reference:
    """vLLM's scheduler written out: free blocks in one list, everything one step at a time."""

    profile: Profile
    free: list[Block] = field(default_factory=list)
    named: dict[int, Block] = field(default_factory=dict)
    waiting: list[Walker] = field(default_factory=list)
    running: list[Walker] = field(default_factory=list)
    preemptions: int = 0
    hits: int = 0

    def __post_init__(self) -> None:
        self.free = [Block() for _ in range(self.profile.kv_blocks)]

    def grow(self, walker: Walker, end: int) -> bool:
        need = -(-end // self.profile.block_size) - len(walker.blocks)
        if need > len(self.free):
            return False
        for _ in range(need):
            block = self.free.pop(0)
            if block.key is not None:
                del self.named[block.key]
            block.key, block.holders = None, 1
            walker.blocks.append(block)
        return True

    def name(self, walker: Walker, end: int) -> None:
        full = end // self.profile.block_size
        for key, block in list(zip(walker.keys, walker.blocks, strict=False))[walker.named : full]:
            if key not in self.named:
                block.key, self.named[key] = key, block
        walker.named = max(walker.named, full)

    def release(self, walker: Walker) -> None:
        last = []
        for block in reversed(walker.blocks):
            block.holders -= 1
            if block.holders == 0:
                if block.key is None:
                    self.free.insert(0, block)
                else:
                    last.append(block)
        self.free += last
        walker.blocks = []
        self.running.remove(walker)

    def preempt(self) -> Walker:
        walker = self.running[-1]
        self.name(walker, walker.computed)
        self.release(walker)
        walker.computed, walker.reads = 0, True
        self.preemptions += 1
        self.waiting.insert(0, walker)
        return walker

    def step(self) -> tuple[Batch, list[Walker]]:
        work, budget = self.go_on(self.profile.max_num_batched_tokens)
        if budget >= 0:
            work += self.admit(budget)
        batch = Batch(
            len(work),
            sum(count for _, count in work),
            sum(walker.computed + count for walker, count in work),
            sum(walker.computed + n + 1 for walker, count in work for n in range(count)),
        )
        done = []
        for walker, count in work:
            walker.computed += count
            walker.reads = walker.computed < walker.prompt + walker.written
            if not walker.reads:
                walker.written += 1
                if walker.written == walker.output:
                    done.append(walker)
        for walker in done:
            self.name(walker, walker.computed)
            self.release(walker)
        return batch, done

    def go_on(self, budget: int) -> tuple[list[tuple[Walker, int]], int]:
        """(what running ones do, the budget left; -1 where one was preempted)."""
        work: list[tuple[Walker, int]] = []
        preempted, index = False, 0
        while index < len(self.running) and budget:
            walker = self.running[index]
            count = min(walker.prompt + walker.written - walker.computed, budget)
            while not self.grow(walker, walker.computed + count):
                preempted = True
                if self.preempt() is walker:
                    break
            else:
                if walker.reads:  # what is being written is named when it is left
                    self.name(walker, walker.computed + count)
                work.append((walker, count))
                budget -= count
                index += 1
                continue
            break
        return work, -1 if preempted else budget

    def admit(self, budget: int) -> list[tuple[Walker, int]]:
        size = self.profile.block_size
        work: list[tuple[Walker, int]] = []
        while self.waiting and budget and len(self.running) < self.profile.max_num_seqs:
            walker = self.waiting[0]
            total, known = walker.prompt + walker.written, 0
            while known < min((total - 1) // size, len(walker.keys)):
                if walker.keys[known] not in self.named:
                    break
                known += 1
            hits = [self.named[key] for key in walker.keys[:known]]
            need = -(-total // size) - known + sum(block.holders == 0 for block in hits)
            if need > len(self.free):
                break
            self.running.append(self.waiting.pop(0))
            for block in hits:
                if block.holders == 0:
                    self.free.remove(block)
                block.holders += 1
            walker.blocks, walker.computed, walker.named = hits, known * size, known
            self.hits += known * size
            count = min(total - known * size, budget)
            assert self.grow(walker, walker.computed + count)
            self.name(walker, walker.computed + count)
            work.append((walker, count))
            budget -= count
        return work


def walk(reference: Reference) -> dict[Walker, float]:
    now = 0.0
    done: dict[Walker, float] = {}
    while reference.running or reference.waiting:
        batch, ended = reference.step()
        now += reference.profile.seconds(batch)
        done |= dict.fromkeys(ended, now)
    return done


@pytest.mark.parametrize("seed", range(150))
def test_many_steps_at_once_are_as_many_single_ones(seed: int) -> None:
    chance = random.Random(seed)
    profile = replace(
        ROOFLINE,
        kv_blocks=chance.choice((9, 14, 30, 200)),
        max_model_len=36,
        max_num_seqs=chance.randrange(1, 7),
        max_num_batched_tokens=chance.choice((7, 16, 64)),
        prefix_caching=chance.random() < 0.8,
    )
    scheduler, reference = Scheduler(profile), Reference(profile)
    walkers, sequences = [], []
    for _ in range(chance.randrange(1, 16)):
        prompt = chance.randrange(1, 30)
        one = sequence(prompt, chance.randrange(1, 37 - prompt), chance.choice("abc"))
        sequences.append(one)
        scheduler.add(one)
        keys = one.keys if profile.prefix_caching else []
        walkers.append(Walker(one.prompt, one.output, keys))
    reference.waiting = list(walkers)
    expected = walk(reference)
    done = dict(run_all(scheduler))
    assert len(done) == len(sequences)
    for one, walker in zip(sequences, walkers, strict=True):
        assert done[one] == pytest.approx(expected[walker])
    totals = scheduler.totals
    assert totals.preemptions == reference.preemptions
    assert totals.generation_tokens == sum(one.output for one in sequences)
    assert totals.prompt_tokens == sum(one.prompt for one in sequences)
    if not reference.preemptions:  # of those that begin anew, look-ups are not counted
        assert totals.hits == reference.hits


def test_cases_above_include_preemptions_hits_and_evictions() -> None:
    """A comparison says little where nothing happens."""
    profile = replace(ROOFLINE, kv_blocks=9, max_model_len=36)
    scheduler = Scheduler(profile)
    for text in "aabbaa":
        scheduler.add(sequence(16, 20, text))
    done = run_all(scheduler)
    assert len({ended for ended, _ in done}) == 6
    assert scheduler.totals.preemptions > 0
    assert scheduler.totals.hits > 0
    assert any(ended.preempted > 1 for ended, _ in done)


# -- the scheduler by hand --------------------------------------------------------------------


def test_a_reply_takes_a_step_a_token_and_one_prompt_step_per_budget() -> None:
    scheduler = Scheduler(SECONDS)
    scheduler.add(sequence(40, 5))  # 16 + 16 + 8 tokens of prompt, the last with the first written
    assert [now for _, now in run_all(scheduler)] == [3 + 4]


def test_decoding_is_planned_up_to_the_next_end() -> None:
    scheduler = Scheduler(SECONDS)
    for output in (10, 4):
        scheduler.add(sequence(4, output, str(output)))
    plans = []
    while (planned := scheduler.schedule()) is not None:
        plans.append(planned[1])
        scheduler.advance(planned[1])
    assert plans == [1, 3, 6]


def test_seats_are_limited_and_first_come_first_served() -> None:
    scheduler = Scheduler(replace(SECONDS, max_num_seqs=2))
    order = [sequence(2, 3, text) for text in "abcdef"]
    for one in order:
        scheduler.add(one)
    done = run_all(scheduler)
    assert [ended for ended, _ in done] == order
    assert [now for _, now in done] == [3, 3, 6, 6, 9, 9]
    assert [one.begun for one in order] == [0, 0, 3, 3, 6, 6]
    assert scheduler.totals.queued_s == 3 + 3 + 6 + 6


def test_without_chunks_a_prompt_waits_until_it_fits_whole() -> None:
    whole = replace(SECONDS, chunked_prefill=False, max_num_batched_tokens=256)
    for profile, end in ((whole, 1), (replace(whole, max_num_batched_tokens=257), 1)):
        scheduler = Scheduler(profile)
        for text in "ab":
            scheduler.add(sequence(200, 1, text))
        times = [now for _, now in run_all(scheduler)]
        assert times == [end, end + 1]


def test_prefix_hits_are_whole_blocks_and_never_the_last_token() -> None:
    scheduler = Scheduler(SECONDS)
    cached = []
    for length in (12, 12, 13, 30):  # of the same text
        one = sequence(length, 1, "a")
        scheduler.add(one)
        run_all(scheduler)
        cached.append(one.cached)
    assert cached == [0, 8, 12, 12]
    assert (scheduler.totals.queries, scheduler.totals.hits) == (67, 32)


def test_siblings_that_come_together_share_what_is_being_computed() -> None:
    scheduler = Scheduler(replace(SECONDS, max_num_batched_tokens=64))
    siblings = [sequence(20, 2, "a") for _ in range(3)]
    for one in siblings:
        scheduler.add(one)
    planned = scheduler.schedule()
    assert planned is not None
    assert planned[0].tokens == 20 + 4 + 4
    scheduler.advance(1)
    assert [one.cached for one in siblings] == [0, 16, 16]
    run_all(scheduler)


def test_replies_are_cached_for_the_next_turn() -> None:
    scheduler = Scheduler(SECONDS)
    scheduler.add(sequence(8, 9, "a"))
    run_all(scheduler)
    second = sequence(24, 1, "a")
    scheduler.add(second)
    run_all(scheduler)
    assert second.cached == 16  # the last token written was never read


def test_nothing_is_cached_where_caching_is_off() -> None:
    scheduler = Scheduler(replace(SECONDS, prefix_caching=False))
    for _ in range(2):
        scheduler.add(sequence(12, 1, "a"))
    run_all(scheduler)
    assert scheduler.totals.hits == 0


def test_the_last_admitted_is_preempted_and_finishes_later() -> None:
    scheduler = Scheduler(replace(SECONDS, kv_blocks=6, max_model_len=24))
    first, last = sequence(8, 9, "a"), sequence(8, 9, "b")  # 4 blocks each in the end
    for one in (first, last):
        scheduler.add(one)
    done = run_all(scheduler)
    assert [ended for ended, _ in done] == [first, last]
    assert (first.preempted, last.preempted) == (0, 1)


def test_a_sequence_can_be_given_up_wherever_it_is() -> None:
    scheduler = Scheduler(replace(SECONDS, max_num_seqs=2))
    reads, writes, waits = sequence(40, 5, "a"), sequence(2, 9, "b"), sequence(2, 9, "c")
    for one in (writes, reads, waits):
        scheduler.add(one)
    for _ in range(2):
        scheduler.schedule()
        scheduler.advance(1)
    assert (scheduler.writing, len(scheduler.running), len(scheduler.waiting)) == (1, 2, 1)
    for one in (waits, reads, writes, writes):
        scheduler.remove(one)
    assert scheduler.schedule() is None
    assert scheduler.cache.free == scheduler.cache.capacity


# -- blocks and profiles ----------------------------------------------------------------------


def test_the_least_recently_released_block_goes_first_and_tails_before_heads() -> None:
    cache = KvCache(4)
    cache.take(4)
    assert cache.name([1, 2]) == [1, 2]
    assert cache.name([2, 3, 4]) == [3, 4]
    cache.hold([1])
    cache.release([1, 2], 0)
    assert (cache.free, cache.usage) == (1, 0.75)
    cache.release([1], 0)
    cache.release([3, 4], 0)
    for kept in ([1, 3, 4], [3, 4], [3], []):
        cache.take(1)
        assert [key for key in (1, 2, 3, 4) if cache.prefix([key], 1)] == kept


def test_blocks_without_a_name_are_used_before_cached_ones() -> None:
    cache = KvCache(3)
    cache.take(2)
    cache.release(cache.name([1]), 1)
    cache.take(2)
    assert cache.prefix([1], 1) == 1
    cache.forget()
    assert (cache.prefix([1], 1), cache.free) == (0, 1)


@pytest.mark.parametrize("seed", range(50))
def test_a_sum_over_steps_is_the_sum_of_the_steps(seed: int) -> None:
    chance = random.Random(seed)
    profile = replace(ROOFLINE, kv_bytes=chance.random(), weight_bytes=chance.uniform(0, 90))
    count, context, steps = (chance.randrange(1, n) for n in (9, 99, 60))
    single = sum(
        profile.seconds(Batch(count, count, context + n * count, context + n * count))
        for n in range(steps)
    )
    together = profile.seconds(Batch(count, count, context, context), steps)
    assert together == pytest.approx(single)


def test_profiles_are_like_the_machines_they_are_named_for() -> None:
    h100, h200 = find("llama-3.1-8b-h100"), find("llama-3.1-8b-h200")
    large = find("llama-3.1-70b-4xh100")
    assert (h100.kv_bytes, large.kv_bytes) == (131_072, 327_680)
    assert 400_000 < h100.kv_blocks * 16 < 450_000
    assert 0.8e6 < h200.kv_blocks * 16 < 1.1e6
    one = Batch(1, 1, 500, 500)
    assert 100 < 1 / h100.seconds(one) < 200  # tokens a second for one reader
    assert h200.seconds(one) < h100.seconds(one) < large.seconds(one)
    prompt = Batch(1, 8192, 8192, 8192 * 4096)
    assert 20_000 < 8192 / h100.seconds(prompt) < 45_000
    assert all(profile.name == name for name, profile in PROFILES.items())


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"max_num_batched_tokens": 7}, "max_num_batched_tokens must be at least 8"),
        ({"chunked_prefill": False}, "must be at least 256"),
        ({"kv_blocks": 63}, "cannot hold max_model_len, 256"),
    ],
)
def test_a_profile_that_cannot_serve_is_refused(wrong: dict[str, int], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        replace(SECONDS, **wrong)  # type: ignore[arg-type]


def test_an_unknown_profile_is_refused() -> None:
    with pytest.raises(UsageError, match=r"no profile 'h100'; there are llama-3\.1-8b-h100, "):
        find("h100")


# -- tokens -----------------------------------------------------------------------------------


def test_equal_prefixes_have_equal_keys() -> None:
    one, other = (tokens.encode(text) for text in ("a b c d\ne. f g", "a b c d\ne. f h"))
    assert tokens.count(one) == tokens.count(other) == 8
    keys, others = tokens.block_keys(one, 4), tokens.block_keys(other, 4)
    assert (len(keys), keys[0]) == (2, others[0])
    assert keys[1] != others[1]
    swapped = tokens.block_keys(tokens.encode("e. f g\na b c d"), 4)
    assert not set(keys) & set(swapped)


# -- the engine and its clock -----------------------------------------------------------------


def output(count: int, text: str = "") -> Output:
    return Output(Reply(), text, None, "stop", count, tokens.encode(text))


async def generate(engine: BatchingEngine, prompt: int, *counts: int, text: str = "") -> float:
    """Seconds until all of its samples are done."""
    loop = asyncio.get_running_loop()
    begun = loop.time()

    async def produce() -> list[Output]:
        return [output(count, f"{text} {n}") for n, count in enumerate(counts)]

    words = tokens.encode(" ".join(f"{text}{n}" for n in range(prompt)))
    await engine.run(Request(), words, produce)
    return loop.time() - begun


def times(profile: Profile, *requests: tuple[float, int, int]) -> list[float]:
    """How long each of (at, prompt, output) takes."""

    async def main() -> list[float]:
        engine = BatchingEngine(profile)

        async def one(at: float, prompt: int, count: int, text: str) -> float:
            await asyncio.sleep(at)
            return await generate(engine, prompt, count, text=text)

        made = [one(*request, text=chr(97 + n)) for n, request in enumerate(requests)]
        return list(await asyncio.gather(*made))

    return clock.run(main())


def test_an_arrival_joins_the_next_step() -> None:
    assert times(SECONDS, (0, 4, 10), (2.5, 4, 3)) == [10, 3.5]


def test_the_api_server_takes_one_request_after_the_other() -> None:
    slow = replace(SECONDS, request_s=0.25)
    assert times(slow, (0, 4, 10), (0, 4, 2), (0, 4, 2)) == [10.25, 3.25, 3.25]
    assert times(slow, *[(0, 1, 1)] * 3) == [1.25, 2.25, 2.25]


def test_an_arrival_that_cannot_run_changes_nothing() -> None:
    one = replace(SECONDS, max_num_seqs=1)
    assert times(one, (0, 4, 10), (2.5, 4, 3), (3, 4, 3)) == [10, 10.5, 13]


@pytest.mark.parametrize("name", ["llama-3.1-8b-h100", "cpu-tiny"])
def test_simulated_time_is_the_same_every_time(name: str) -> None:
    chance = random.Random(5)
    requests = [
        (chance.uniform(0, 3), chance.randrange(1, 2000), chance.randrange(1, 400))
        for _ in range(60)
    ]
    first = times(find(name), *requests)
    assert first == times(find(name), *requests)
    assert min(first) > 0


def test_looking_at_the_metrics_changes_no_time() -> None:
    async def main(look: bool) -> tuple[list[float], list[Any]]:
        engine = BatchingEngine(ROOFLINE)
        tasks = [
            asyncio.create_task(generate(engine, 5, count, text=str(count)))
            for count in (30, 50, 90)
        ]
        written: list[Any] = []
        while look and not all(task.done() for task in tasks):
            written.append(engine.metrics()["generation_tokens_total"])
            await asyncio.sleep(0.7)
        return [await task for task in tasks], written

    plain, _ = clock.run(main(look=False))
    watched, written = clock.run(main(look=True))
    assert plain == watched
    assert written == sorted(written)
    assert len(set(written)) > 50
    assert 160 < written[-1] <= 170


def test_samples_share_their_prompt_and_end_together() -> None:
    async def main() -> tuple[float, dict[str, object]]:
        engine = BatchingEngine(replace(SECONDS, max_num_batched_tokens=64))
        seconds = await generate(engine, 20, 3, 7, 5)
        return seconds, {**engine.metrics()}

    seconds, metrics = clock.run(main())
    assert seconds == 7
    assert metrics["prefix_cache_hits_total"] == 2 * 16
    assert metrics["prompt_tokens_total"] == 3 * 20
    assert metrics["generation_tokens_total"] == 15
    assert metrics["request_success_total"] == {"stop": 3, "length": 0, "abort": 0}
    assert metrics["iteration_tokens_total"] == (20 + 4 + 4 + 12, 7)
    assert metrics["request_queue_time_seconds"] == (0, 3)
    assert metrics["kv_cache_usage_perc"] == 0


def test_a_client_that_leaves_frees_its_seat_at_the_next_step() -> None:
    async def main() -> tuple[float, dict[str, object], int]:
        engine = BatchingEngine(replace(SECONDS, max_num_seqs=1))
        impatient = asyncio.create_task(generate(engine, 4, 50, text="a"))
        waiting = asyncio.create_task(generate(engine, 4, 50, text="b"))
        patient = asyncio.create_task(generate(engine, 4, 2, text="c"))
        await asyncio.sleep(3.5)
        assert (engine.running, engine.metrics()["num_requests_waiting"]) == (1, 2)
        for task in (waiting, impatient):
            task.cancel()
            await asyncio.wait([task])
        seconds = await patient
        return seconds, {**engine.metrics()}, engine.scheduler.cache.free

    seconds, metrics, free = clock.run(main())
    assert (seconds, free) == (4 + 2, 64)
    assert metrics["request_success_total"] == {"stop": 1, "length": 0, "abort": 2}


def test_reset_forgets_prefixes_and_counters() -> None:
    async def main() -> Items[object]:
        engine = BatchingEngine(SECONDS)
        await generate(engine, 12, 1)
        engine.reset()
        before = engine.metrics()["generation_tokens_total"]
        await generate(engine, 12, 1)
        return before, engine.metrics()["prefix_cache_hits_total"]

    assert clock.run(main()) == (0, 0)


async def test_real_time_is_simulated_time() -> None:
    quick = replace(SECONDS, step_s=0.002)
    engine = BatchingEngine(quick)
    seconds = await asyncio.gather(*(generate(engine, 4, 5, text=text) for text in "abc"))
    assert all(value >= 0.01 * 0.999 for value in seconds)
    assert engine.metrics()["generation_tokens_total"] == 15
