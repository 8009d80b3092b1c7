#!/usr/bin/env python3
"""Start vLLM with the flags that this project wants, and stay with it until Ctrl-C.

Prints the base URL on stdout as soon as the server has answered with a token; everything else goes
to stderr. Every option may come from the environment instead (MODEL, TP, DP, PORT, HOST,
MAX_MODEL_LEN, SERVED_MODEL_NAME, EXTRA), or from a file in recipes/ that RECIPE names; the key only
from the environment (API_KEY): a command line can be read by everyone on the machine.

Exit status: 0 stopped by Ctrl-C or SIGTERM; 1 the server ended by itself or never got ready;
2 it cannot be started like this, nothing was run.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import socket
import sys
import time
from pathlib import Path

from layout import LOGS, SERVE, SMALL_MODEL, STAMP, VENV, last_lines, read_json, say, write_whole
from server import Server
from wait import RefusedError, wait

VLLM = VENV / "bin" / "vllm"
GPU_MODEL = "meta-llama/Llama-3.1-8B-Instruct"
DRAIN_S = 60  # requests in flight get this long to finish when the server is asked to stop
LOG_MESSAGE = re.compile(r" INFO \S+ \S+ \[\S+\] ([A-Z].*\S)")

FLAGS = [
    "--enable-prompt-tokens-details",  # else usage never says how many tokens the cache saved
    "--enable-request-id-headers",  # replies carry the request's id: one id from trace to log
    "--generation-config=vllm",  # a request's sampling is what it says, not what the model ships
    "--scheduling-policy=priority",  # honours `priority` in a request; without any it is a queue
    f"--shutdown-timeout={DRAIN_S}",  # by default requests in flight hang when the server stops
]
GPU_FLAGS = {
    # Llama's own limit is 131,072: at 128 KiB a token one runaway prompt would take 16 GiB of the
    # cache from all others. No prompt of the methods here comes near 16,384.
    "--max-model-len": "16384",
}
CPU_FLAGS = {
    "--max-model-len": "4096",  # prompts of a question stay below; the cache is 1 GB
    "--dtype": "float32",  # bfloat16 is two to four times slower without AVX-512
    "--block-size": "32",  # the CPU default of 128 caches no shared prefix shorter than that
}
ENVIRONMENT = {
    # The default of 5 s closes connections that a client is about to use again between two calls.
    "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "300",
    "VLLM_NO_USAGE_STATS": "1",  # nothing about a run leaves the machine
    "DO_NOT_TRACK": "1",
}
CPU_ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GB: some 23,000 tokens of the small model
    "VLLM_CPU_OMP_THREADS_BIND": "auto",  # of two cores it leaves one to the client
    "TORCH_COMPILE_DISABLE": "1",  # else the first request with logprobs compiles for 10 s
}


class UsageError(Exception):
    """The server cannot be started like this; the text says what to change."""


class StoppedError(Exception):
    """The server ended, or was asked to, before it was ready."""


def main() -> int:
    """Start the server on the command line, stay with it, return the exit status."""
    options = parse()
    try:
        argv, added = command(options)
        if options.check:
            print(shlex.join([*(f"{name}={value}" for name, value in added.items()), *argv]))
            return 0
        check_startable(options)
    except UsageError as reason:
        print(f"cannot start vLLM: {reason}", file=sys.stderr)
        return 2
    log, ready = options.log, options.ready_file
    if ready:
        ready.unlink(missing_ok=True)
    # A variable that is set wins over the default here; the key never shows on a command line.
    env = {**added, **os.environ, "PATH": f"{VENV / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    env["PYTHONDONTWRITEBYTECODE"] = ""  # bytecode saves each of its processes 8 s a start
    if options.api_key:
        env["VLLM_API_KEY"] = options.api_key
    server = Server(argv, env, log, grace=DRAIN_S + 15)
    say(f"starting vLLM, process {server.pid}, log {log}")
    try:
        model = wait_until_ready(server, options)
        server.is_ready = True
        announce(model, options)
        server.wait()
    except (StoppedError, RefusedError, TimeoutError) as reason:
        if not server.asked_to_stop:
            say(f"the server is not ready: {reason}")
            server.stop()
            server.wait()
            print(f"the last lines of {log}:\n{last_lines(log, 30)}", file=sys.stderr)
            return 1
        server.wait()
    finally:
        if ready:
            ready.unlink(missing_ok=True)
    if server.asked_to_stop:
        say("the server has stopped")
        return 0
    print(f"the server ended by itself; {log} ends:\n{last_lines(log, 30)}", file=sys.stderr)
    return 1


def parse() -> argparse.Namespace:
    """Return the options, from the command line, else from variables that are set and not empty."""
    given = recipe(os.environ.get("RECIPE", ""))
    given |= {name: value for name, value in os.environ.items() if value}
    device = read_json(STAMP).get("device", "gpu")
    parser = argparse.ArgumentParser(description="Start vLLM and stay with it until Ctrl-C.")
    add = parser.add_argument
    add("--model", default=given.get("MODEL", str(SMALL_MODEL) if device == "cpu" else GPU_MODEL))
    add("--tp", type=int, default=given.get("TP", "1"), help="GPUs that share one copy")
    add("--dp", type=int, default=given.get("DP", "1"), help="copies of the model")
    add("--host", default=given.get("HOST", "127.0.0.1"))
    add("--port", type=int, default=given.get("PORT", "8000"))
    add("--max-model-len", default=given.get("MAX_MODEL_LEN"), help="tokens, prompt and reply")
    add("--served-model-name", default=given.get("SERVED_MODEL_NAME"))
    add("--extra", default=given.get("EXTRA", ""), help="more flags for `vllm serve`, quoted")
    add("--timeout", type=float, default=3600.0, help="seconds to get ready in, downloads included")
    add("--log", type=Path, help="the server's output (default .serve/server.log)")
    add("--ready-file", type=Path, help="gets the base URL while the server is ready")
    add("--check", action="store_true", help="print the command and do nothing")
    options = parser.parse_args()
    options.device, options.api_key = device, given.get("API_KEY", "")
    suffix = "" if options.port == 8000 else f"-{options.port}"
    options.log = options.log or LOGS / f"server{suffix}.log"
    options.url = f"http://{reachable(options.host)}:{options.port}/v1"
    return options


def recipe(name: str) -> dict[str, str]:
    """Return the settings in the file NAME, or in the one of that name in recipes/."""
    if not name:
        return {}
    path = Path(name) if Path(name).is_file() else SERVE / "recipes" / f"{name}.env"
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        known = ", ".join(sorted(file.stem for file in path.parent.glob("*.env"))) or "none"
        print(f"RECIPE={name}: {error.strerror}; there are: {known}", file=sys.stderr)
        sys.exit(2)
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return {name: value.strip() for name, _, value in pairs if value.strip()}


def reachable(host: str) -> str:
    """Return how a client on this machine names a server that listens on `host`."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 (compared, not bound)
    return f"[{host}]" if ":" in host else host


def command(options: argparse.Namespace) -> tuple[list[str], dict[str, str]]:
    """Return the server's command line and the variables that it needs. Raises UsageError."""
    folder = Path(options.model)
    local = folder.is_dir()
    if not local and (folder.is_absolute() or options.model.startswith(".")):
        raise UsageError(
            f"there is no model in {folder}. The small ones are made by "
            "`.venv-serve/bin/python serve/model.py` (and `--tiny`)."
        )
    cpu = options.device == "cpu"
    flags = dict(CPU_FLAGS if cpu else GPU_FLAGS)
    if options.max_model_len:
        flags["--max-model-len"] = options.max_model_len
    if options.tp > 1:
        flags["--tensor-parallel-size"] = str(options.tp)
    if options.dp > 1:
        flags["--data-parallel-size"] = str(options.dp)
    # A folder is served under its name, not under a path that is different on every machine.
    name = options.served_model_name or (folder.resolve().name if local else "")
    if name:
        flags["--served-model-name"] = name
    argv = [str(VLLM), "serve", str(folder.resolve()) if local else options.model]
    argv += [f"--host={options.host}", f"--port={options.port}"]
    argv += [f"{flag}={value}" for flag, value in flags.items()] + FLAGS
    if cpu:
        argv.append("--enforce-eager")  # compiling takes two to five minutes and gains nothing
        # vLLM 0.32 dies on the CPU of a seeded request whose prompt is computed in two pieces
        # ("CPU Generator does not use offset"), and every sampled call of a run has a seed.
        argv += ["--no-enable-chunked-prefill", "--max-num-batched-tokens"]
        argv.append(flags["--max-model-len"])
    argv += shlex.split(options.extra)  # last, so that it wins
    env = {**ENVIRONMENT, **(CPU_ENVIRONMENT if cpu else {})}
    if local:
        env["HF_HUB_OFFLINE"] = "1"  # everything is in the folder; do not ask the hub
    return argv, env


def check_startable(options: argparse.Namespace) -> None:
    """Raise UsageError if there is no vLLM here or the port is taken."""
    if not VLLM.exists() or not STAMP.exists():
        raise UsageError("it is not installed, or not wholly. Run: python3 serve/install.py")
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((options.host, options.port))
        except (OSError, OverflowError) as error:
            raise UsageError(
                f"port {options.port} on {options.host} is not to be had ({error}). Another server "
                "may be running; choose another port with PORT=… or --port."
            ) from None


def wait_until_ready(server: Server, options: argparse.Namespace) -> str:
    """Return the model's name once the server gave a token, telling the progress meanwhile.

    Raises: StoppedError if it ended or was asked to; RefusedError; TimeoutError.
    """
    due = 0.0

    def waiting(_reason: str) -> None:
        nonlocal due
        if server.asked_to_stop or not server.is_running():
            raise StoppedError("it ended while starting")
        if time.monotonic() >= due:
            messages = LOG_MESSAGE.findall(last_lines(options.log, 40)) or ["loading vLLM"]
            say(f"   … {messages[-1][:110]}")
            due = time.monotonic() + 5.0

    return wait(options.url, options.api_key, options.timeout, waiting)


def announce(model: str, options: argparse.Namespace) -> None:
    """Say that the server is ready and how to use it."""
    key = "MEDAGENTS_API_KEY=… " if options.api_key else ""
    say(f"ready: {model} has answered. In another terminal:")
    say(f"   {key}python -m medagents_async.batch IN.jsonl OUT.jsonl --base-url {options.url}")
    say("Ctrl-C here stops the server.")
    print(options.url, flush=True)
    if options.ready_file:
        write_whole(options.ready_file, options.url + "\n")


if __name__ == "__main__":
    sys.exit(main())
