"""Scripts as JSON files, for the command line and for tests in other languages."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from pydantic import BaseModel, Field, ValidationError

from medagents_async.errors import UsageError
from medagents_async.simulator.plausible import plausible
from medagents_async.simulator.script import Reply, Request, Script


class Rule(BaseModel, extra="forbid", strict=True):
    """Every condition given must hold; `contains` looks into the texts of all messages.

    `times` bounds how often the rule is used, in the order of arrival; `attempt` is the better
    choice where that order must not matter.
    """

    reply: Reply
    stage: str | None = None
    question_id: str | None = Field(None, alias="question")
    repeat: int | None = None
    n: int | None = None
    attempt: int | None = None
    contains: str = ""
    times: float = float("inf")

    def matches(self, request: Request) -> bool:
        """Tell whether every condition holds for `request`; `times` is not looked at."""
        return self.contains in request.text and all(
            getattr(self, name) in (None, getattr(request, name))
            for name in ("stage", "question_id", "repeat", "n", "attempt")
        )


class Rules(BaseModel, extra="forbid", strict=True):
    """The whole file. Without `default`, what no rule matches is answered by `plausible`."""

    rules: list[Rule] = []
    default: Reply | None = None


def load_script(path: str | Path) -> Script:
    """Read the script in the JSON file at `path`: the first rule that matches answers.

    `{"rules": [{"stage": "vote", "n": 3, "attempt": 0, "reply": {"status": 503}}, ...],
    "default": {"text": "OK"}}`; the keys are those of `Rule` and `Reply`.

    Raises UsageError for a file that is missing, no JSON, or holds unknown keys or wrong types.
    """
    try:
        file = Rules.model_validate_json(Path(path).read_bytes())
    except OSError as error:
        raise UsageError(f"cannot read the script {path}: {error.strerror}") from error
    except ValidationError as error:
        problems = (
            f"\n  {'.'.join(map(str, problem['loc'])) or 'file'}: {problem['msg']}"
            for problem in error.errors()
        )
        raise UsageError(f"{path} is no usable script:{''.join(problems)}") from error
    used: Counter[int] = Counter()

    def script(request: Request) -> Reply:
        for index, rule in enumerate(file.rules):
            if used[index] < rule.times and rule.matches(request):
                used[index] += 1
                return rule.reply
        return file.default or plausible(request)

    return script
