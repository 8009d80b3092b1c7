"""Reading replies: total functions from any text to what it says; None or empty when in doubt.

A wrong reading is worse than none: an unread reply is counted as `unparsed`, a guess is counted
as the model's word. So every rule names its evidence, and what no rule covers stays unread. Time
is linear in the length of a reply: repetitions in the patterns are possessive, bounded, or of what
cannot begin the next part.
"""

from __future__ import annotations

from medagents_async.parsing.complexity import Complexity, complexity
from medagents_async.parsing.confidence import confidence
from medagents_async.parsing.fields import fields
from medagents_async.parsing.messages import messages
from medagents_async.parsing.options import option
from medagents_async.parsing.rankings import ranking
from medagents_async.parsing.reports import sections, trim_analysis
from medagents_async.parsing.teams import Member, Team, members, teams
from medagents_async.parsing.thinking import visible
from medagents_async.parsing.votes import vote

__all__ = [
    "Complexity",
    "Member",
    "Team",
    "complexity",
    "confidence",
    "fields",
    "members",
    "messages",
    "option",
    "ranking",
    "sections",
    "teams",
    "trim_analysis",
    "visible",
    "vote",
]
