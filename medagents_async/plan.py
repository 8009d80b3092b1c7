"""A batch run's options, and what can be checked of them before any server is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from medagents_async import methods
from medagents_async.datasets import reader
from medagents_async.engine.ask import Complete, Desk, Pool
from medagents_async.engine.dialect import FORMS
from medagents_async.engine.fleet import Address, addresses
from medagents_async.engine.identity import Identity
from medagents_async.engine.sink import Trace
from medagents_async.errors import UsageError
from medagents_async.images import MOST_BYTES, SIDE, Album
from medagents_async.prompts import PromptPack
from medagents_async.types import STAGES, Sampling

#: Fields of a request that are not left to `--extra-body`.
DECIDED = {
    "model",
    "messages",
    "temperature",
    "top_p",
    "max_tokens",
    "max_completion_tokens",
    "seed",
    "n",
    "stream",
    *FORMS,
}


@dataclass(frozen=True, kw_only=True)
class Job:
    """The options of a run, named as on the command line; times in seconds."""

    input: Path
    output: Path
    base_urls: Sequence[str] = ("http://127.0.0.1:8000/v1",)
    servers_file: Path | None = None  # instead of `base_urls`
    named_servers: Sequence[Address] = ()
    api_key: str | None = field(default=None, repr=False)
    model: str | None = None
    method: str = "medagents"
    preset: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    prompts: Path | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    reasoning: int = 0
    seed: int = 0
    concurrency: int | Literal["auto"] = "auto"
    rate: float | None = None
    timeout: float = 600.0
    retries: int = 5
    selection: reader.Selection = field(default_factory=reader.Selection)
    repeats: int = 1
    trace: Trace = "full"
    skip_bad_rows: bool = False
    wait_server: float = 0.0
    server_grace: float = 600.0
    accept_server_change: bool = False
    drain: float = 30.0
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    image_side: int = SIDE  # pixels
    allow_remote_images: bool = False

    def album(self) -> Album:
        return Album(
            folder=self.input.parent, side=self.image_side, remote=self.allow_remote_images
        )


@dataclass(frozen=True)
class Plan:
    """A job whose every part has been checked, as far as that goes without a server."""

    job: Job
    source: reader.Source
    method: methods.Method
    parameters: dict[str, Any]
    preset: str | None
    prompts: PromptPack
    sampling: Sampling
    routes: Mapping[str, str]  # stage to the name of the server that it goes to

    def addresses(self) -> list[Address]:
        """Every server of the run. Raises UsageError."""
        job = self.job
        urls = addresses(job.servers_file) if job.servers_file else job.base_urls
        return [*(Address(url, job.model) for url in urls), *job.named_servers]

    def desk(self, pools: Mapping[str, Pool], complete: Complete) -> Desk:
        return Desk(
            prompts=self.prompts,
            pools=pools,
            sampling=self.sampling,
            complete=complete,
            max_tokens=self.job.max_tokens,
            reasoning=self.job.reasoning,
            seed=self.job.seed,
            extra_body=self.job.extra_body,
            routes=self.routes,
            album=self.job.album(),
        )

    def configuration(self, models: Mapping[str, str]) -> dict[str, Any]:
        """All that decides a result: see `Manifest`."""
        job = self.job
        own = Path(job.method.rpartition(":")[0])
        sent = {"side": job.image_side, "bytes": MOST_BYTES}
        # Named only where they are used, so that outputs of earlier versions can be gone on with.
        optional = {
            "other_models": {name: model for name, model in models.items() if name},
            "routes": self.routes,
            "reasoning": job.reasoning,
            "extra_body": job.extra_body,
            "images": sent if self.source.illustrated else None,
        }
        return {
            "method": job.method,
            "method_source": sha256(own.read_bytes()).hexdigest()[:16] if own.is_file() else None,
            "parameters": {name: _content(value) for name, value in self.parameters.items()},
            "prompts": self.prompts.digest,
            "model": models.get("", ""),
            "sampling": asdict(self.sampling),
            "max_tokens": job.max_tokens,
            "seed": job.seed,
            "input": self.source.digest,
            **{name: value for name, value in optional.items() if value},
        }

    def largest_limit(self) -> int:
        """The most tokens that any call may ask for: the parameters called `…_tokens` say."""
        limits = [
            value
            for name, value in self.parameters.items()
            if name.endswith("_tokens") and isinstance(value, int)
        ]
        largest = max(limits, default=self.sampling.max_tokens)
        cap = largest if self.job.max_tokens is None else self.job.max_tokens
        return min(largest, cap) + self.job.reasoning

    def check_room(self, server: Identity) -> None:
        """Raises UsageError where a call could leave no room for its prompt."""
        limit, context = self.largest_limit(), server.max_model_len
        if context is not None and limit >= context:
            raise UsageError(
                f"{server.model} has a context of {context} tokens and a reply may take {limit}: "
                "that leaves no room for a prompt. Lower it with --max-tokens, or serve the model "
                "with a larger MAX_MODEL_LEN"
            )


def _content(value: Any) -> Any:
    """A file that a parameter names as a digest of what it holds: that decides, not its place."""
    if not isinstance(value, Path):
        return value
    try:
        return f"sha256:{sha256(value.read_bytes()).hexdigest()[:16]}"
    except OSError as error:
        raise UsageError(f"cannot read {value}: {error.strerror}") from error


def plan(job: Job) -> Plan:
    """Check the input, the method, its parameters and its prompts. Raises UsageError."""
    if job.output.exists() and not job.output.is_file():
        raise UsageError(f"{job.output} is no file that rows can be read back from")
    if job.output.exists() and job.input.exists() and job.output.samefile(job.input):
        raise UsageError(f"{job.output} is the input; write to another file")
    decided = sorted(DECIDED & set(job.extra_body))
    if decided:
        raise UsageError(f"--extra-body: {', '.join(decided)} have options or are decided here")
    method = methods.find(job.method)
    flags = {"temperature": job.temperature, "top_p": job.top_p}
    given = {name: value for name, value in flags.items() if value is not None}
    preset = job.preset or ("paper" if "paper" in method.presets else None)
    own = {name: value for name, value in given.items() if name in method.defaults}
    settings = dict(job.settings)
    routes = _routes(settings, job.named_servers)
    parameters = method.parameters(preset, {**own, **settings})
    base = Sampling()
    sampling = Sampling(
        given.get("temperature", base.temperature), given.get("top_p", base.top_p), base.max_tokens
    )
    source = reader.check(
        job.input, job.selection, skip_bad_rows=job.skip_bad_rows, album=job.album()
    )
    prompts = PromptPack(method.name, job.prompts)
    return Plan(job, source, method, parameters, preset, prompts, sampling, routes)


def _routes(settings: dict[str, str], servers: Sequence[Address]) -> dict[str, str]:
    """Takes `STAGE.server=NAME` out of the settings. Raises UsageError."""
    routes = {}
    known = [server.pool for server in servers]
    for key in [key for key in settings if key.endswith(".server")]:
        stage, name = key.removesuffix(".server"), settings.pop(key)
        if stage not in STAGES:
            raise UsageError(
                f"--set {key}: there is no stage {stage}; there are {' '.join(STAGES)}"
            )
        if name not in known:
            raise UsageError(f"--set {key}={name}: name that server with --server {name}=URL")
        routes[stage] = name
    return routes
