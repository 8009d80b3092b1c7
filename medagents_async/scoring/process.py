"""How one question was decided, as far as a row's `detail` tells.

`detail` is free-form: each method writes what it decided on the way. What is read here goes by
shape and not by method, so that a user's own method is read, too, where it uses the same names.
A shape that is not known is no error: then the fact is not defined.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

from medagents_async.scoring.agreement import entropy, plurality

VOTES = ("yes", "no", "unclear")
_NUMBERED = re.compile(r" \(\d+\)$")  # the second expert of a field is called "Cardiology (2)"


@dataclass(frozen=True, slots=True)
class Process:
    """`votes` has (yes, no, unclear) of each round of votes on a report.

    `entropies` has each round's consensus entropy in bits, None where nobody said anything that
    counts, over `counted`: the answers where the method records them, else the votes. `first` is
    the answer before anyone had heard the others.
    """

    rounds: int | None = None
    agreed: bool | None = None
    complexity: str | None = None
    experts: tuple[str, ...] = ()
    votes: tuple[tuple[int, int, int], ...] = ()
    counted: Literal["answers", "votes"] | None = None
    entropies: tuple[float | None, ...] = ()
    first: str | None = None


def process(detail: Mapping[str, Any]) -> Process:
    """Total: whatever `detail` holds."""
    answers, votes = _ballots(detail.get("answers")), _ballots(detail.get("votes"))
    by_letter = answers or _tally(detail.get("votes"))
    ballots = by_letter or votes
    rounds, agreed = detail.get("rounds"), detail.get("agreed", detail.get("consensus"))
    level = detail.get("complexity")
    on_report = all(vote in VOTES for ballot in votes for vote in ballot)
    return Process(
        rounds=rounds if isinstance(rounds, int) else None,
        agreed=agreed if isinstance(agreed, bool) else None,
        complexity=sys.intern(level) if isinstance(level, str) else None,
        experts=tuple(sys.intern(_NUMBERED.sub("", name)) for name in _experts(detail)),
        votes=tuple((vote["yes"], vote["no"], vote["unclear"]) for vote in votes)
        if on_report
        else (),
        counted=("answers" if by_letter else "votes") if ballots else None,
        entropies=tuple(entropy(ballot.values()) for ballot in ballots),
        first=_first(detail, answers),
    )


def _ballots(value: Any) -> list[Counter[str]]:
    """A count of each round's ballots. A ballot without a word, or without an option, is none."""
    rounds = value if isinstance(value, list) else [value]
    if not all(isinstance(part, dict) for part in rounds):
        return []
    if any(isinstance(ballot, (int, float)) for part in rounds for ballot in part.values()):
        return []
    return [
        Counter(ballot for ballot in part.values() if isinstance(ballot, str)) for part in rounds
    ]


def _tally(value: Any) -> list[Counter[str]]:
    """The one round of a method that only records how many votes, or what weight, each got."""
    if not isinstance(value, dict) or not value:
        return []
    if not all(isinstance(number, (int, float)) for number in value.values()):
        return []
    return [Counter(value)]


def _first(detail: Mapping[str, Any], answers: list[Counter[str]]) -> str | None:
    """The plurality before anyone heard the others; of equals the one that was named first.

    A method without rounds has no before and after, unless it has drafts; a tie between those is
    not defined, since they are recorded without their order.
    """
    if isinstance(detail.get("answers"), list) and answers:
        return plurality(answers[0])
    drafts = detail.get("drafts")
    if isinstance(drafts, dict) and not drafts.get("tied"):
        votes = _tally(drafts.get("votes"))
        return plurality(votes[0]) if votes else None
    return None


def _experts(detail: Mapping[str, Any]) -> Iterator[str]:
    teams = detail.get("teams")
    groups: Iterable[Any] = (
        *(detail.get(name) for name in ("question_experts", "option_experts", "experts")),
        *(teams.values() if isinstance(teams, dict) else ()),
    )
    named = chain.from_iterable(group for group in groups if isinstance(group, list))
    return (name for name in named if isinstance(name, str))
