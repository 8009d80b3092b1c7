"""An OpenAI-compatible server that answers like vLLM, from a script: for tests and planning.

`async with Simulator(script) as simulator` in a test that owns the event loop,
`with running(script) as simulator` beside a command that runs as a process of its own,
`python -m medagents_async.simulator --port 8000` by hand.
"""

from medagents_async.simulator.plausible import plausible
from medagents_async.simulator.rules import load_script
from medagents_async.simulator.script import Reply, Request, Script
from medagents_async.simulator.server import Simulator, running

__all__ = ["Reply", "Request", "Script", "Simulator", "load_script", "plausible", "running"]
