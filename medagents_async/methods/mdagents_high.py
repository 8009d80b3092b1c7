"""MDAgents' high path: teams of specialists, each of which hands on a report.

Kim et al., arXiv 2404.15155, section 3.4 and Algorithm 1, lines 24 to 31; Table 8.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from medagents_async import parsing
from medagents_async.fan_out import fan_out
from medagents_async.methods.answering import Answering
from medagents_async.methods.experts import named
from medagents_async.methods.specialists import Said, Specialist, list_from, specialists
from medagents_async.types import Ask, Count, Tokens

INITIAL, DIAGNOSTIC, FINAL = range(3)
#: The teams that the paper's text has, in their order: who works where too few are named.
TEAMS = ("Initial Assessment Team", "Diagnostic Evidence Team", "Final Review and Decision Team")


@dataclass(frozen=True, slots=True)
class CareTeam:
    """A team by what it is for; the first member leads it. `name` is its own in records."""

    goal: str
    name: str
    members: Sequence[Specialist]


@dataclass(frozen=True, slots=True)
class Report:
    """What a team hands on."""

    goal: str
    text: str


@dataclass(frozen=True, kw_only=True)
class CareTeams(Answering):
    """`teams` of `team_size` work one after the other, and each reads the earlier reports.

    Table 8: `team_order=parallel` has them work at once and read none, `team_discussion=False`
    leaves out that a lead first tells its team what to look into.
    """

    teams: Count = 3
    team_size: Count = 3
    team_order: Literal["sequential", "parallel"] = "sequential"
    team_discussion: bool = True
    teams_tokens: Tokens = 1024
    report_tokens: Tokens = 1536

    async def reports(self, ask: Ask, **shown: Any) -> tuple[list[Report], dict[str, Any]]:
        """Every team's report in order, and the record. `shown` is what all prompts show.

        Raises CallError where a call failed.
        """
        listed = await list_from(
            ask,
            "recruit_teams",
            max_tokens=self.teams_tokens,
            count=self.teams,
            size=self.team_size,
        )
        chosen, record = care_teams(parsing.teams(listed), self.teams, self.team_size)
        work = partial(self._work, partial(ask, **shown))
        if self.team_order == "parallel":
            numbered = enumerate(chosen, 1)
            reports = [*await fan_out(*(work(team, number, ()) for number, team in numbered))]
        else:
            reports = []
            for number, team in enumerate(chosen, 1):
                reports.append(await work(team, number, tuple(reports)))
        people = {team.name: [member.name for member in team.members] for team in chosen}
        return reports, {"recruit": record, "teams": people}

    async def _work(
        self, ask: Ask, team: CareTeam, number: int, reports: Sequence[Report]
    ) -> Report:
        """One team's report: the lead assigns, the others look into it, the lead sums up."""
        lead, *others = team.members
        tell = partial(ask, round=number, team=team, reports=reports)
        first = (number - 1) * len(team.members)
        assignment = None
        if others and self.team_discussion:
            reply = await tell("discuss", template="assign", agent=lead.name, n=first, member=lead)
            assignment = reply.text

        async def finding(member: Specialist) -> Said:
            reply = await tell(
                "discuss",
                template="investigate",
                agent=member.name,
                n=first + member.number - 1,
                member=member,
                assignment=assignment,
            )
            return Said(member, reply.text)

        findings = await fan_out(*(finding(member) for member in others))
        reply = await tell(
            "report",
            agent=lead.name,
            n=number - 1,
            max_tokens=self.report_tokens,
            member=lead,
            findings=findings,
        )
        return Report(team.goal, reply.text)


def care_teams(
    listed: Sequence[parsing.Team], count: int, size: int
) -> tuple[list[CareTeam], dict[str, Any]]:
    """Exactly `count` teams of `size`, in the paper's order, and how they came about.

    Of too many the last diagnostic ones are left out; missing ones are the paper's.
    """
    chosen = sorted(listed, key=lambda team: _kind(team.name))
    while len(chosen) > count:
        middle = [team for team in chosen if _kind(team.name) == DIAGNOSTIC]
        chosen.remove((middle or chosen)[-1])
    missing = [name for name in TEAMS if _kind(name) not in {_kind(team.name) for team in chosen}]
    padded = count - len(chosen)
    names = [*missing, *[TEAMS[DIAGNOSTIC]] * padded][:padded]
    chosen = [*chosen, *(parsing.Team(name, ()) for name in names)]
    chosen.sort(key=lambda team: _kind(team.name))

    teams: list[CareTeam] = []
    records: list[dict[str, int]] = []
    people: list[Specialist] = []
    labels = [team.name for team in named([team.name for team in chosen])]
    for team, label in zip(chosen, labels, strict=True):
        # A stable sort: the lead first, or else whom the recruiter has put first.
        by_rank = sorted(team.members, key=lambda member: not member.lead)
        members, record = specialists(by_rank, size, beside=people)
        teams.append(CareTeam(team.name, label, members))
        records.append(record)
        people += members
    detail = {"named": len(listed), "padded": padded, "cut": max(0, len(listed) - count)}
    return teams, {**detail, "members": dict(zip(labels, records, strict=True))}


def _kind(name: str) -> int:
    words = name.casefold()
    if "initial" in words:
        return INITIAL
    return FINAL if any(word in words for word in ("final", "review", "decision")) else DIAGNOSTIC
