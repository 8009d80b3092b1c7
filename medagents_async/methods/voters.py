"""Independent agents, each with a role of its own, who answer the same question.

The voting baselines of Kim et al., arXiv 2404.15155, Tables 1 and 2: the paper names them and says
that they have several roles and one model, and nothing more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from typing import Annotated

from annotated_types import Ge

from medagents_async.methods.answering import Answering
from medagents_async.methods.experts import Expert, named
from medagents_async.methods.samples import poll
from medagents_async.types import Ask, Completion, Layout, Temperature

#: Who votes where the user names nobody; broad fields, so that any question has someone's.
ROLES = (
    "Internal Medicine",
    "Emergency Medicine",
    "General Surgery",
    "Paediatrics",
    "Clinical Pharmacology",
    "Pathology",
    "Family Medicine",
)


@dataclass(frozen=True, kw_only=True)
class Voters(Answering):
    """`agents` voters; their fields are `roles` in turn, begun again where they run out."""

    agents: Annotated[int, Ge(1)] = 5
    roles: list[str] | None = None
    layout: Layout = "paper"
    temperature: Temperature = 0.7

    @property
    def panel(self) -> Sequence[Expert]:
        """The voters, in the order that numbers their calls."""
        return named([*islice(cycle(self.roles or ROLES), self.agents)])

    async def ballots(self, ask: Ask, stage: str) -> list[Completion | None]:
        """Every voter's reply in the panel's order, None for one without a word.

        Raises CallError where a call failed, and where no reply has a word.
        """
        vote = partial(self.sampled(ask), stage, layout=self.layout)
        return await poll(
            *(vote(n=n, agent=voter.name, field=voter.field) for n, voter in enumerate(self.panel))
        )
