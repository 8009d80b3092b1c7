"""vLLM's scheduler (V1), as far as time and memory depend on it.

Each step serves every running sequence: one token where it writes, a piece of the prompt where it
reads, within `max_num_batched_tokens`. Waiting ones are admitted first come, first served, when a
seat and blocks for all of their tokens are free. Where a running one finds no block, the last
admitted gives up its own and starts anew, at the head of the queue.

Steps in which sequences only write are planned many at once, up to the next in which one ends or
memory runs out, and nothing is done per sequence in them: writing sequences are counted, by the
place in a block that they are at, and their ends are kept in a heap.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from dataclasses import dataclass, field

from medagents_async.simulator.kv_cache import KvCache
from medagents_async.simulator.profiles import Batch, Profile


@dataclass(eq=False, slots=True)
class Sequence:
    """One text in the making: `prompt` tokens to read, then `output` tokens, at least 1, to write.

    `keys` name its full blocks, of prompt and output (`tokens.block_keys`); those that are missing
    at the end are never found again. Times are those that `Scheduler.add` and `schedule` are told.
    """

    prompt: int
    output: int
    keys: list[int] = field(default_factory=list)
    arrived: float = 0.0
    begun: float | None = None  # first in a step
    cached: int = 0  # tokens of the prompt that were, then
    written: int = 0
    preempted: int = 0  # times
    # What follows is the scheduler's. While a sequence writes, `computed` and `written` stand still
    # and follow from `end` and `shift`.
    computed: int = 0  # tokens in the KV cache
    blocks: int = 0
    held: list[int] = field(default_factory=list)  # keys of those blocks that have one
    order: int = -1  # of admission; -1: not running
    writes: bool = False
    end: int = 0  # the step, counted by the scheduler, after which all is written
    shift: int = 0  # computed tokens less that count


@dataclass
class Totals:
    """What vLLM counts."""

    steps: int = 0
    tokens: int = 0  # worked on in them
    preemptions: int = 0
    queries: int = 0  # tokens looked up in the prefix cache
    hits: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    queued_s: float = 0.0
    begun: int = 0  # sequences that left the queue


class Scheduler:
    """Plans steps with `schedule` and does them with `advance`; has no clock."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.cache = KvCache(profile.kv_blocks)
        self.totals = Totals()
        self.waiting: deque[Sequence] = deque()
        self.running: OrderedDict[Sequence, None] = OrderedDict()  # in the order of admission
        self.writing = 0
        self._size = profile.block_size
        self._reader: Sequence | None = None  # in the middle of its prompt: the last one running
        self._chunks: list[tuple[Sequence, int]] = []  # what is read in the planned step: tokens
        self._steps = self._admissions = 0
        self._context = 0  # tokens that the writing ones will attend to in the next step
        self._shifts = [0] * self._size  # writing ones by `shift`, modulo a block
        self._ends: list[tuple[int, int, Sequence]] = []  # (end, order, sequence); may be stale

    @property
    def takes_more(self) -> bool:
        """Whether a sequence added now might be in the next step."""
        return not self.waiting and len(self.running) < self.profile.max_num_seqs

    def add(self, sequence: Sequence, now: float = 0.0) -> None:
        """Put `sequence` at the end of the queue."""
        sequence.arrived = now
        self.waiting.append(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Give `sequence` up, wherever it is; not between `schedule` and `advance`."""
        if sequence.order >= 0:
            self._leave(sequence)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)

    def schedule(self, now: float = 0.0) -> tuple[Batch, int] | None:
        """Plan what comes next: a batch and for how many steps it may go on like that, at most.

        None: there is nothing to do. More than one step is only for batches that write alone.
        """
        if not self.running and not self.waiting:
            return None
        before = self.totals.preemptions
        taken = 0  # by those admitted first; what they take is gone before any is preempted
        while (missing := self._blocks_needed(self._steps) - taken) > self.cache.free:
            taken += self.cache.free
            self.cache.take(self.cache.free)
            self._preempt()
        self.cache.take(missing)
        budget = self.profile.max_num_batched_tokens - self.writing
        self._chunks = []
        if (reader := self._reader) is not None:
            size = min(reader.prompt + reader.written - reader.computed, budget)
            if self._blocks(reader.computed + size) - reader.blocks > self.cache.free:
                self._preempt()
            else:
                budget -= self._read(reader, size)
        settled = self.totals.preemptions == before
        while settled and budget and (size := self._admit(budget, now)):
            budget -= size
        return self._batch(), self._steps_ahead() if settled and not self._chunks else 1

    def advance(self, steps: int) -> list[Sequence]:
        """Do the first `steps` of what was planned. Gives the sequences that are done with it."""
        self.cache.take(self._blocks_needed_in(self._steps + 1, steps - 1))
        self._steps += steps
        self._context += steps * self.writing
        totals = self.totals
        totals.steps += steps
        totals.tokens += steps * self.writing + sum(size for _, size in self._chunks)
        totals.generation_tokens += steps * self.writing
        done = []
        while (first := self._next_end()) is not None and first.end <= self._steps:
            self._leave(first)
            done.append(first)
        self._reader = None
        for sequence, size in self._chunks:
            sequence.computed += size
            if sequence.computed < sequence.prompt + sequence.written:
                self._reader = sequence
                continue
            totals.generation_tokens += 1  # the step that reads the last token writes the next
            totals.prompt_tokens += sequence.prompt if not sequence.written else 0
            sequence.written += 1
            if sequence.written == sequence.output:
                self._leave(sequence)
                done.append(sequence)
            else:
                self._write(sequence)
        self._chunks = []
        return done

    # Reading

    def _admit(self, budget: int, now: float) -> int:
        """Let the head of the queue begin; how many tokens it reads, 0 where none can."""
        if not self.waiting or len(self.running) == self.profile.max_num_seqs:
            return 0
        sequence, cache, size = self.waiting[0], self.cache, self._size
        total = sequence.prompt + sequence.written
        known = 0
        if self.profile.prefix_caching:  # never the last token: its output is wanted
            known = cache.prefix(sequence.keys, (total - 1) // size)
        prefix = sequence.keys[:known]
        tokens = min(total - known * size, budget)
        if self._blocks(total) - known + cache.idle(prefix) > cache.free or (
            tokens < total - known * size and not self.profile.chunked_prefill
        ):
            return 0
        self.waiting.popleft()
        self.running[sequence] = None
        cache.hold(prefix)
        sequence.held, sequence.blocks, sequence.computed = prefix, known, known * size
        sequence.order, self._admissions = self._admissions, self._admissions + 1
        if sequence.begun is None:
            sequence.begun, sequence.cached = now, known * size
            self.totals.begun += 1
            self.totals.queued_s += now - sequence.arrived
            self.totals.queries += total
            self.totals.hits += known * size
        return self._read(sequence, tokens)

    def _read(self, sequence: Sequence, tokens: int) -> int:
        """Let `sequence` read so many in the planned step; others find its blocks at once."""
        self._chunks.append((sequence, tokens))
        end = sequence.computed + tokens
        blocks = self._blocks(end)
        self.cache.take(blocks - sequence.blocks)
        sequence.blocks = blocks
        self._name(sequence, sequence.computed // self._size, end)
        return tokens

    def _name(self, sequence: Sequence, first: int, end: int) -> None:
        """Name the blocks that are full with `end` tokens, from the `first` on."""
        if self.profile.prefix_caching:
            sequence.held += self.cache.name(sequence.keys[first : end // self._size])

    # Writing

    def _write(self, sequence: Sequence) -> None:
        sequence.writes = True
        sequence.end = self._steps + sequence.output - sequence.written
        sequence.shift = sequence.computed - self._steps
        self.writing += 1
        self._context += sequence.computed + 1
        self._shifts[sequence.shift % self._size] += 1
        heapq.heappush(self._ends, (sequence.end, sequence.order, sequence))

    def _stop_writing(self, sequence: Sequence) -> None:
        sequence.writes = False
        self.writing -= 1
        self._shifts[sequence.shift % self._size] -= 1
        read = sequence.computed
        sequence.computed = self._steps + sequence.shift
        sequence.written = sequence.output - (sequence.end - self._steps)
        sequence.blocks = self._blocks(sequence.computed)
        self._context -= sequence.computed + 1
        self._name(sequence, read // self._size, sequence.computed)

    def _next_end(self) -> Sequence | None:
        """Which writing sequence is the next to end; entries of those that left are dropped."""
        while self._ends:
            _, order, sequence = self._ends[0]
            if sequence.writes and sequence.order == order:
                return sequence
            heapq.heappop(self._ends)
        return None

    # Blocks and steps

    def _leave(self, sequence: Sequence) -> None:
        """Take `sequence` out of the running ones; its blocks are free."""
        if sequence.writes:
            self._stop_writing(sequence)
        elif sequence is self._reader:
            self._reader = None
        del self.running[sequence]
        self.cache.release(sequence.held, sequence.blocks - len(sequence.held))
        sequence.held, sequence.blocks, sequence.order = [], 0, -1

    def _preempt(self) -> None:
        """Send the sequence that was admitted last back to the head of the queue."""
        sequence = next(reversed(self.running))
        self._leave(sequence)
        sequence.computed = 0
        sequence.preempted += 1
        self.totals.preemptions += 1
        self.waiting.appendleft(sequence)

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self._size)

    def _blocks_needed(self, step: int) -> int:
        """How many of the writing ones begin a block in that step."""
        return self._shifts[-step % self._size]

    def _blocks_needed_in(self, first: int, steps: int) -> int:
        """The same in `steps` steps; in as many as a block has tokens, each begins one."""
        rounds, rest = divmod(max(0, steps), self._size)
        return rounds * self.writing + sum(map(self._blocks_needed, range(first, first + rest)))

    def _steps_ahead(self) -> int:
        """How many steps, the planned one included, until a sequence ends or blocks run out."""
        first = self._next_end()
        limit = first.end - self._steps if first is not None else 1
        free, steps = self.cache.free, 1
        if self.writing:
            rounds = free // self.writing
            steps += rounds * self._size
            free -= rounds * self.writing
        while steps < limit:
            free -= self._blocks_needed(self._steps + steps)
            if free < 0:
                break
            steps += 1
        return min(steps, limit)

    def _batch(self) -> Batch:
        tokens, reads = self.writing, self._context
        attended = reads
        for sequence, size in self._chunks:
            tokens += size
            reads += sequence.computed + size
            attended += size * sequence.computed + size * (size + 1) // 2
        return Batch(self.writing + len(self._chunks), tokens, reads, attended)
