"""Scripts as JSON files, for the command line and for tests in other languages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from medagents_async.errors import UsageError

from .plausible import plausible
from .script import Reply, Request, Script


class Rule(BaseModel):
    """Every condition given must hold; `contains` looks into the texts of all messages.

    `times` bounds how often the rule is used, in the order of arrival; `attempt` is the better
    choice where that order must not matter.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    reply: Reply
    stage: str | None = None
    contains: str | None = None
    question: str | None = None
    repeat: int | None = None
    n: int | None = None
    attempt: int | None = None
    times: int | None = None

    def matches(self, request: Request) -> bool:
        """Tell whether every condition holds for `request`; `times` is not looked at."""
        wanted = (self.stage, self.question, self.repeat, self.n, self.attempt)
        found = (
            request.stage,
            request.question_id,
            request.repeat,
            request.n,
            request.attempt,
        )
        return all(
            want is None or want == have for want, have in zip(wanted, found, strict=True)
        ) and (self.contains is None or self.contains in request.text)


class Rules(BaseModel):
    """The whole file. Without `default`, what no rule matches is answered by `plausible`."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    rules: list[Rule] = []
    default: Reply | None = None


def load_script(path: str | Path) -> Script:
    """Read the script in the JSON file at `path`: the first rule that matches answers.

    `{"rules": [{"stage": "vote", "n": 3, "attempt": 0, "reply": {"status": 503}}, ...],
    "default": {"text": "OK"}}`; the keys are those of `Rule` and `Reply`.

    Raises UsageError for a file that is missing, no JSON, or holds unknown keys or wrong types.
    """
    try:
        parsed = Rules.model_validate_json(Path(path).read_bytes())
    except OSError as error:
        raise UsageError(f"cannot read the script {path}: {error.strerror}") from error
    except ValidationError as error:
        problems = (
            f"  {'.'.join(map(str, problem['loc'])) or 'file'}: {problem['msg']}"
            for problem in error.errors()
        )
        raise UsageError(f"{path} is no usable script:\n" + "\n".join(problems)) from error
    used: Counter[int] = Counter()

    def script(request: Request) -> Reply | Awaitable[Reply]:
        for index, rule in enumerate(parsed.rules):
            if (rule.times is None or used[index] < rule.times) and rule.matches(request):
                used[index] += 1
                return rule.reply
        return parsed.default or plausible(request)

    return script
