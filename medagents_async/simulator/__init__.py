"""An OpenAI-compatible server that answers like vLLM, from a script: for tests and planning.

In a test that owns the event loop::

    async with Simulator(lambda request: Reply("Option: B")) as simulator:
        ... simulator.url, simulator.requests ...

beside a command that runs as a process of its own::

    with running(script, max_num_seqs=256) as simulator:
        subprocess.run([..., "--base-url", simulator.url])

and by hand: `python -m medagents_async.simulator --port 8000`.
"""

from .plausible import SPECIALTIES, plausible
from .rules import load_script
from .script import Reply, Request, Script
from .server import Simulator
from .threaded import running
from .tokens import count_tokens

__all__ = [
    "SPECIALTIES",
    "Reply",
    "Request",
    "Script",
    "Simulator",
    "count_tokens",
    "load_script",
    "plausible",
    "running",
]
