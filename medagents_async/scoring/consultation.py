"""What the consultations of a run were like, and what they changed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from medagents_async.scoring.accuracy import Score, grouped, score
from medagents_async.scoring.records import Record

#: How many experts a report names.
MOST_EXPERTS = 20
NO_FIRST_ANSWER = (
    "not defined: this method records no answer from before its members had heard each other; "
    "compare it with a run that leaves the consultation out"
)


@dataclass(frozen=True, slots=True)
class VoteRound:
    """Votes on the report in this round, over all questions that came so far."""

    round: int
    questions: int
    yes: int
    no: int
    unclear: int


@dataclass(frozen=True, slots=True)
class EntropyRound:
    """Mean consensus entropy in bits over the questions that came so far."""

    round: int
    questions: int
    mean: float


@dataclass(frozen=True, slots=True)
class Flips:
    """From the first plurality to the decision, over rows with both and an answer key."""

    rows: int
    right_to_wrong: int
    wrong_to_right: int
    stayed_right: int
    stayed_wrong: int


@dataclass(frozen=True, slots=True)
class Consultations:
    """`rounds` counts rows by their number of rounds, `complexity` scores them by level.

    `agreed` is the share of those that ended in agreement. `entropy_of` says whether entropy is
    that of answers or of votes. Where `flips` is None, `no_flips` says why. `experts` are the most
    frequent of `distinct_experts`, letter case aside.
    """

    rounds: dict[str, int]
    agreed: float | None
    complexity: dict[str, Score]
    votes: list[VoteRound]
    entropy_of: str | None
    entropy: list[EntropyRound]
    experts: list[tuple[str, int]]
    distinct_experts: int
    flips: Flips | None
    no_flips: str | None = field(default=None)


def consultations(records: Sequence[Record]) -> Consultations:
    """Of any method's rows: what a method does not record is empty or None."""
    counts = Counter(r.process.rounds for r in records if r.process.rounds is not None)
    agreements = [r.process.agreed for r in records if r.process.agreed is not None]
    names, spellings = Counter[str](), dict[str, str]()
    for record in records:
        for expert in record.process.experts:
            names[spellings.setdefault(expert.casefold(), expert)] += 1
    flips = _flips(records)
    return Consultations(
        rounds={str(number): counts[number] for number in sorted(counts)},
        agreed=sum(agreements) / len(agreements) if agreements else None,
        complexity={
            level: score(group)
            for level, group in grouped(records, lambda r: r.process.complexity).items()
        },
        votes=_votes(records),
        entropy_of=next((r.process.counted for r in records if r.process.counted), None),
        entropy=_entropy(records),
        experts=sorted(names.items(), key=lambda item: (-item[1], item[0]))[:MOST_EXPERTS],
        distinct_experts=len(names),
        flips=flips,
        no_flips=None if flips else NO_FIRST_ANSWER,
    )


def _votes(records: Iterable[Record]) -> list[VoteRound]:
    rounds: defaultdict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for record in records:
        for number, votes in enumerate(record.process.votes, 1):
            rounds[number].append(votes)
    return [
        VoteRound(number, len(votes), *map(sum, zip(*votes, strict=True)))
        for number, votes in sorted(rounds.items())
    ]


def _entropy(records: Iterable[Record]) -> list[EntropyRound]:
    rounds: defaultdict[int, list[float]] = defaultdict(list)
    for record in records:
        for number, value in enumerate(record.process.entropies, 1):
            if value is not None:
                rounds[number].append(value)
    return [
        EntropyRound(number, len(values), sum(values) / len(values))
        for number, values in sorted(rounds.items())
    ]


def _flips(records: Iterable[Record]) -> Flips | None:
    """What did not come to a decision has not been flipped by it, and is left out."""
    pairs = Counter(
        (record.process.first == record.answer, record.correct)
        for record in records
        if record.process.first and record.prediction and record.answer
    )
    if not pairs:
        return None
    return Flips(
        rows=pairs.total(),
        right_to_wrong=pairs[True, False],
        wrong_to_right=pairs[False, True],
        stayed_right=pairs[True, True],
        stayed_wrong=pairs[False, False],
    )
