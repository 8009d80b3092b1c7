"""What a sweep would take and cost, before it is started."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Simulated over measured time, the least and the most, of loads that profile `cpu-tiny` was not
#: fitted to, on the real CPU server (`python -m tests.campaigns.fit`). No GPU has been measured.
SEEN_ERROR = (-0.14, -0.04)


def planned(
    result: Mapping[str, Any], questions: int, gpus: int, rate: float, *, simulated: bool
) -> dict[str, Any]:
    """Hours, GPU-hours and their price for `questions`, at the pace of the knee of a bench.

    The bench should have had questions enough to fill the slots for a while: some hundred.
    """
    knee = result["knee_run"]
    hours = questions * knee["calls"] / knee["questions"] / knee["body_calls_per_s"] / 3600
    plan = {
        "questions": questions,
        "hours": round(hours, 2),
        "gpu_hours": round(hours * gpus, 2),
        "cost": round(hours * gpus * rate, 2),
    }
    if simulated:
        low, high = SEEN_ERROR
        plan["error"] = (
            f"simulated times were {low:+.0%} to {high:+.0%} off on the CPU server; "
            "GPU profiles come from data sheets"
        )
    return plan
