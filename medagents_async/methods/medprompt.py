"""Medprompt: similar solved questions, the model's own reasoning on them, and shuffled options.

Nori et al., arXiv 2311.16452, section 4. The preparation is a batch run of its own, over a file
of training questions: `batch TRAINING.jsonl SOLUTIONS.jsonl --method cot`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from medagents_async.errors import UsageError
from medagents_async.methods import method
from medagents_async.methods.exemplars import Exemplar, Shots, ids, read, with_thoughts
from medagents_async.methods.retrieval import Index
from medagents_async.methods.samples import Samples, poll
from medagents_async.methods.samples import read as said
from medagents_async.methods.shuffling import fixed_by, presented, shuffled, unshuffled
from medagents_async.methods.solutions import solved
from medagents_async.methods.tally import plurality
from medagents_async.types import Ask, Decision, Question, Temperature

PAPER: dict[str, Any] = {"shots": 5, "shuffles": 5, "temperature": 0.7}
CODE: dict[str, Any] = {"shots": 5, "shuffles": 5, "temperature": 0.0, "answer_tokens": 500}


@method(
    "medprompt",
    presets={"paper": PAPER, "code": CODE},
    calls="shuffles (5); 1 at temperature 0 where options keep their order",
    depth="1",
)
@dataclass(frozen=True, kw_only=True)
class Medprompt(Shots):
    """`shuffles` calls, each with the options in another order; the plurality wins.

    The exemplars are the `shots` questions of `training` that are the most like the one to
    answer, out of those that the run in `solutions` answered right, with what it wrote; without
    `solutions` those with an explanation of their own. Without `training` they are the fixed ones.
    """

    training: Path | None = None
    solutions: Path | None = None
    shuffles: Samples = 5
    temperature: Temperature = 0.7

    def __post_init__(self) -> None:
        if self.solutions and not self.training:
            raise UsageError(
                f"solutions={self.solutions} has no questions: name the file that was solved, "
                "too, with --set training=FILE"
            )
        super().__post_init__()

    @property
    def source(self) -> Path:
        """Where the exemplars come from."""
        return self.solutions or self.training or super().source

    @cached_property
    def pool(self) -> tuple[Exemplar, ...]:
        """All exemplars that may be shown."""
        if self.training is None or self.shots == 0:
            return super().pool
        questions = read(self.training)
        if self.solutions is not None:
            questions = solved(questions, self.solutions)
        return with_thoughts(questions, True)

    @cached_property
    def _index(self) -> Index:
        return Index([exemplar.question.text for exemplar in self.pool])

    def shown(self, question: Question) -> tuple[tuple[Exemplar, ...], dict[str, Any]]:
        """The most similar questions, the most similar one last, next to the one to answer."""
        if self.training is None or self.shots == 0:
            chosen, detail = super().shown(question)
            return chosen, {"pool": "fixed"} | detail
        ranked = (self.pool[n] for n in self._index.top(question.text, len(self.pool)))
        others = (exemplar for exemplar in ranked if not exemplar.is_about(question))
        chosen = tuple(islice(others, self.shots))[::-1]
        return chosen, {"pool": "training", "exemplars": ids(chosen)}

    async def __call__(self, question: Question, ask: Ask) -> Decision:
        """Raises CallError when a call failed, or no reply has a word."""
        ask = self.sampled(ask)
        exemplars, detail = self.shown(question)
        reason = fixed_by(question)
        # At temperature 0 there is nothing to learn from the same prompt again.
        rounds = range(1 if reason and self.temperature == 0 else self.shuffles)
        orders = [unshuffled(question) if reason else shuffled(question, n) for n in rounds]
        shown = [presented(question, order) for order in orders]
        calls = (
            ask("answer", n=n, exemplars=exemplars, options=options)
            for n, options in enumerate(shown)
        )
        picked = [said(*pair).option for pair in zip(await poll(*calls), shown, strict=True)]
        # Back by position, never by text: two options may read the same.
        ballots = [letter and order[letter] for letter, order in zip(picked, orders, strict=True)]
        tally = plurality(ballots, question.options)
        record = {"fixed_order": reason, "orders": ["".join(order.values()) for order in orders]}
        return Decision(tally.winner, detail | record | tally.record())
