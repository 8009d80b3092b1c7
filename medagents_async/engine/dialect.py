"""What a server understands of a request, found out from its refusals, once for a run."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from medagents_async.errors import Refused
from medagents_async.types import Call

log = logging.getLogger(__name__)

#: Words of a refusal that mean the constraint itself, not what it constrains.
NO_CHOICE = ("structured_outputs", "extra inputs", "unexpected", "unknown", "unrecognized")


@dataclass
class Dialect:
    """Parts of a request that may have to be left out."""

    system: bool = True  # a system message: some chat templates have no such role
    choice: bool = True  # a constrained choice: replies are parsed all the same

    def learn(self, call: Call, refusal: Refused) -> bool:
        """Whether the call, made anew, leaves out what the server refused."""
        words = str(refusal).casefold()
        if refusal.status not in (400, 422):
            return False
        if b'"role":"system"' in call.body and ("system role" in words or "alternate" in words):
            if self.system:
                log.warning("the model has no system role; roles go into the user's message")
            self.system = False
            return True
        if b'"structured_outputs"' in call.body and any(word in words for word in NO_CHOICE):
            if self.choice:
                log.warning("the server cannot constrain a choice; replies are only parsed")
            self.choice = False
            return True
        return False
