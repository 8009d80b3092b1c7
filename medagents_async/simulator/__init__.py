"""An OpenAI-compatible server that answers like vLLM, from a script: for tests and planning.

`async with Simulator(script) as simulator` in a test that owns the event loop,
`with running(script) as simulator` beside a command that runs as a process of its own,
`python -m medagents_async.simulator --port 8000` by hand,
`SimulatedTransport(Service(script, profile="llama-3.1-8b-h100"))` without sockets, in simulated
time, inside `clock.run`.
"""

from medagents_async.simulator.plausible import plausible, realistic
from medagents_async.simulator.rules import load_script
from medagents_async.simulator.script import Reply, Request, Script
from medagents_async.simulator.server import Simulator, running
from medagents_async.simulator.service import Service
from medagents_async.simulator.transport import SimulatedTransport

__all__ = [
    "Reply",
    "Request",
    "Script",
    "Service",
    "SimulatedTransport",
    "Simulator",
    "load_script",
    "plausible",
    "realistic",
    "running",
]
