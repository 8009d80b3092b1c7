"""The nouns, all frozen: what travels between commands, methods and the engine."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import blake2b
from typing import Annotated, Any, Literal, Protocol
from urllib.parse import quote

from annotated_types import Ge, Gt, Le

from medagents_async.errors import CallError

Role = Literal["system", "user", "assistant"]
Layout = Literal["paper", "shared-prefix"]
Status = Literal["ok", "unparsed", "error"]
# The ranges that parameters of methods may have; pydantic reads them from the annotations.
Count = Annotated[int, Ge(0)]
Tokens = Annotated[int, Ge(1)]
Temperature = Annotated[float, Ge(0)]
Share = Annotated[float, Gt(0), Le(1)]

MAX_SESSION_ID = 200  # characters: servers refuse header lines of more than some 8,000
#: Stage names in reading order; a trace is sorted by them, since arrival order means nothing.
STAGES = (
    "triage recruit recruit_question recruit_option analyse_question analyse_option case "
    "summarise answer debate refine rank discuss feedback report vote advise revise decide"
).split()


@dataclass(frozen=True, slots=True)
class Question:
    """A multiple-choice question as a method sees it: without its answer key.

    `index` counts the rows of the input from 0; `options` maps letter to text, in input order.
    `images` are paths or URLs as the row has them; prompts that show the question carry them.
    """

    id: str
    index: int
    text: str
    options: Mapping[str, str]
    context: str | None = None
    images: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Item:
    """A question with what only scoring may see."""

    question: Question
    answer: str | None = None
    subject: str | None = None


@dataclass(frozen=True, slots=True)
class Image:
    """An image as a request has it: `url` is sent, `name` stands for it in OUT."""

    url: str
    name: str


@dataclass(frozen=True, slots=True)
class Message:
    """`content` is a text, or a list of content parts where there are images."""

    role: Role
    content: str | Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Prompt:
    """Who speaks, what is shared with the sibling calls, and what this call must do."""

    role: str
    material: str
    task: str
    images: tuple[Image, ...] = field(default=(), kw_only=True)

    def messages(
        self, layout: Layout, *, system: bool = True, named: bool = False
    ) -> tuple[Message, ...]:
        """Chat messages; an empty part leaves no trace, an empty system message is never made.

        `paper` puts the role into the system message, as the papers do, or without `system`, for
        models that know no such role, in front of the user's. `shared-prefix` puts the material
        first and the role last, so that sibling calls share the longest prefix, which a server
        with prefix caching computes once.

        Images are part of the material and come before all text of the user's message: siblings
        share them, too. `named` has their names instead.
        """
        images = [image.name if named else image.url for image in self.images]
        if layout == "paper" and system and self.role:
            return (Message("system", self.role), _user(images, self.material, self.task))
        if layout == "paper":
            return (_user(images, self.role, self.material, self.task),)
        return (_user(images, self.material, self.task, self.role),)


def _user(images: Sequence[str], *parts: str) -> Message:
    text = "\n\n".join(part for part in parts if part)
    if not images:
        return Message("user", text)
    shown = [{"type": "image_url", "image_url": {"url": url}} for url in images]
    return Message("user", [*shown, {"type": "text", "text": text}])


@dataclass(frozen=True, slots=True)
class Sampling:
    """Always sent in full, never left to the server. `max_tokens` in tokens."""

    temperature: float = 0.0
    top_p: float = 1.0
    max_tokens: int = 1024


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the server counts them."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0


@lru_cache(maxsize=4096)  # a question has many calls, and each is named more than once
def _session_id(question_id: str) -> str:
    quoted = quote(question_id, safe="")
    if len(quoted) <= MAX_SESSION_ID:
        return quoted
    return quoted[:MAX_SESSION_ID] + "~" + blake2b(quoted.encode(), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class Call:
    """One request, fully decided. (`stage`, `n`) names it within its question and repeat."""

    question_id: str
    repeat: int
    stage: str
    n: int
    body: bytes  # the JSON request, encoded once
    max_tokens: int
    samples: int = 1
    brief: bytes | None = None  # the request with images named, where there are some

    @property
    def kept(self) -> Call:
        """What is left of it once it is answered: images would fill memory and OUT."""
        return self if self.brief is None else replace(self, body=self.brief, brief=None)

    @property
    def session_id(self) -> str:
        """The question's id, fit for a header: any text of any length may be an id."""
        return _session_id(self.question_id)

    @property
    def request_id(self) -> str:
        """Names this call among all of a run."""
        return f"{self.session_id}/{self.repeat}/{self.stage}/{self.n}"


@dataclass(frozen=True, slots=True)
class Completion:
    """What the model said. `text` holds no thinking; `ask` never returns an empty one.

    A call for several samples has those after the first in `more`, as (text, finish reason), where
    texts may be empty; `usage` is of all together.
    """

    text: str
    finish_reason: str
    usage: Usage
    reasoning: str | None = None
    fingerprint: str | None = None
    more: tuple[tuple[str, str], ...] = ()

    @property
    def samples(self) -> tuple[tuple[str, bool], ...]:
        """Every sample's text, and whether it was cut."""
        pairs = ((self.text, self.finish_reason), *self.more)
        return tuple((text, reason == "length") for text, reason in pairs)

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(text for text, _ in self.samples)

    @property
    def truncated(self) -> bool:
        """Whether it, or any of its samples, was cut."""
        return self.finish_reason == "length" or any(reason == "length" for _, reason in self.more)


@dataclass(frozen=True, slots=True)
class Step:
    """One call of a trace: the completion and how it came about (times in seconds).

    It was asked for `asked_s` after its question began, then queued, then held a slot.
    """

    call: Call
    agent: str | None
    round: int
    completion: Completion | None
    error: CallError | None
    asked_s: float
    queued_s: float
    seconds: float
    attempts: int
    server: str

    @property
    def cut_by_context(self) -> bool:
        """The server cut `max_tokens` in silence, since the prompt left no room for so many."""
        completion = self.completion
        return (
            completion is not None
            and completion.truncated
            and not completion.more
            and 0 < completion.usage.completion_tokens < self.call.max_tokens
        )

    @property
    def order(self) -> tuple[int, int, str, int]:
        """Reading order within a question, the same whatever the order of arrival."""
        stage = self.call.stage
        rank = STAGES.index(stage) if stage in STAGES else len(STAGES)
        return (self.round, rank, stage, self.call.n)


@dataclass(frozen=True, slots=True)
class Decision:
    """What a method returns: an option's letter, or None where the reply named none.

    `detail` is free-form and must be JSON: experts, votes, rounds.
    """

    option: str | None
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one (question, repeat) ended."""

    item: Item
    repeat: int
    status: Status
    prediction: str | None
    detail: Mapping[str, Any]
    error: Mapping[str, Any] | None
    steps: tuple[Step, ...]
    seconds: float


class Ask(Protocol):
    """The only door to a model."""

    def __call__(
        self,
        stage: str,
        *,
        prompt: Prompt | None = None,
        template: str | None = None,
        agent: str | None = None,
        round: int = 0,
        n: int | None = None,
        layout: Layout | None = None,
        temperature: float | None = None,
        top_p: float | None = None,
        max_tokens: int | None = None,
        choice: Sequence[str] = (),
        samples: int = 1,
        server: str = "",
        **fields: Any,
    ) -> Awaitable[Completion]:
        """Send one call and wait for its completion.

        The prompt is `prompt`, or the template named `template` (default: the stage's name),
        rendered with the question and `fields`. `n` says which call of its stage this is,
        counted from 0; it names the call in headers, seeds and the journal, so it must not
        depend on the order in which replies arrive: leave it out only where the stage's calls
        are made in a fixed order. `choice` asks the server to allow only these replies; a server
        may ignore it, so the reply is parsed all the same. `samples` asks for so many replies to
        one prompt in one request, each with a seed of its own. `server` is one that the user
        has given that name.

        Raises CallError when there is no usable reply.
        """


Solve = Callable[[Question, Ask], Awaitable[Decision]]
