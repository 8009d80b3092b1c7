"""What a vLLM server says of its own queue, from its `/metrics`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, fields

_SAMPLE = re.compile(
    r"^vllm:(num_requests_running|num_requests_waiting|kv_cache_usage_perc|num_preemptions_total"
    r"|prefix_cache_queries_total|prefix_cache_hits_total|prompt_tokens_total"
    r"|generation_tokens_total)(?:\{[^}\n]*\})? (\S+)",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Load:
    """Requests now, the share of the KV cache in use, and totals since the server's start.

    Prefix-cache queries and hits are counted in tokens.
    """

    running: int
    waiting: int
    kv_usage: float
    preemptions: int
    prefix_queries: int
    prefix_hits: int
    prompt_tokens: int
    generation_tokens: int

    @property
    def computed_tokens(self) -> int:
        """All tokens that passed through the model: prompts, as far as not cached, and replies."""
        return self.prompt_tokens - self.prefix_hits + self.generation_tokens


def total(loads: Iterable[Load | None]) -> Load | None:
    """Of several servers together; None where one does not tell."""
    all_loads = list(loads)
    told = [load for load in all_loads if load is not None]
    if not told or len(told) < len(all_loads):
        return None
    sums = {item.name: sum(getattr(load, item.name) for load in told) for item in fields(Load)}
    return Load(**{**sums, "kv_usage": sums["kv_usage"] / len(told)})


def read(text: str) -> Load | None:
    """The load in Prometheus text, added up over the engines of a server; None where there is none.

    A `-dp` server has one set of numbers an engine; the use of its caches is their mean.
    """
    sums: dict[str, float] = {}
    engines = 0
    for name, value in _SAMPLE.findall(text):
        try:
            number = float(value)
        except ValueError:
            return None
        if not math.isfinite(number):
            return None
        sums[name] = sums.get(name, 0.0) + number
        engines += name == "num_requests_running"
    if "num_requests_running" not in sums or "num_requests_waiting" not in sums:
        return None
    return Load(
        running=int(sums["num_requests_running"]),
        waiting=int(sums["num_requests_waiting"]),
        kv_usage=sums.get("kv_cache_usage_perc", 0.0) / engines,
        preemptions=int(sums.get("num_preemptions_total", 0)),
        prefix_queries=int(sums.get("prefix_cache_queries_total", 0)),
        prefix_hits=int(sums.get("prefix_cache_hits_total", 0)),
        prompt_tokens=int(sums.get("prompt_tokens_total", 0)),
        generation_tokens=int(sums.get("generation_tokens_total", 0)),
    )
