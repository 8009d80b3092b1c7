#!/usr/bin/env python3
"""Wait until an OpenAI-compatible server really answers: with one token, not just on /health.

`python3 serve/wait.py http://127.0.0.1:8000/v1 --timeout 600`. A key is read from $API_KEY.

Exit status: 0 it answers; 1 it did not within the time, or refuses in a way that waiting does not
cure (a wrong key, a model without a chat template); 2 usage; 130 interrupted.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

from layout import say

# Servers are reached directly: a proxy that the environment names is for the world outside.
_open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open
_FOR_GOOD = (400, 401, 403, 404, 422)  # what the server will not answer differently later


class NotReadyError(Exception):
    """The server does not answer yet; the text says what it does instead."""


class RefusedError(Exception):
    """The server answers and will not take a chat completion, now or later; the text says why."""


def one_token(base_url: str, api_key: str = "", timeout: float = 60.0) -> str:
    """Ask the server's first model for one token.

    Args:
        base_url: with the `/v1`.
        api_key: sent as a bearer token unless empty.
        timeout: seconds for each of the two requests.

    Returns: the model's name.
    Raises: NotReadyError if there is no answer yet, RefusedError if waiting will not help.
    """
    base = base_url.rstrip("/")
    models = _request(f"{base}/models", api_key, timeout)
    try:
        model = str(models["data"][0]["id"])
    except (LookupError, TypeError):
        raise RefusedError(
            f"{base}/models lists no model; is that an OpenAI-compatible URL?"
        ) from None
    body = {"model": model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
    _request(f"{base}/chat/completions", api_key, timeout, body)
    return model


def wait(
    base_url: str,
    api_key: str = "",
    timeout: float = 600.0,
    waiting: Callable[[str], None] | None = None,
) -> str:
    """Ask for one token again and again until the server gives it.

    Args:
        base_url: with the `/v1`.
        api_key: sent as a bearer token unless empty.
        timeout: seconds in all.
        waiting: called after each try in vain with what came instead; what it raises ends the wait.

    Returns: the model's name.
    Raises: TimeoutError with the last reason; RefusedError if waiting will not help.
    """
    deadline = time.monotonic() + timeout
    while True:
        left = deadline - time.monotonic()
        try:
            return one_token(base_url, api_key, timeout=max(1.0, min(60.0, left)))
        except NotReadyError as reason:
            if waiting:
                waiting(str(reason))
            if time.monotonic() + 0.5 > deadline:
                message = f"{base_url} did not answer within {timeout:.0f} s: {reason}"
                raise TimeoutError(message) from None
        time.sleep(0.5)


def _request(url: str, api_key: str, timeout: float, body: object = None) -> Any:
    headers = {"Content-Type": "application/json"}
    if api_key:
        headers["Authorization"] = f"Bearer {api_key}"
    data = None if body is None else json.dumps(body).encode()
    try:
        request = urllib.request.Request(url, data, headers)
        with _open(request, timeout=timeout) as reply:
            return json.load(reply)
    except urllib.error.HTTPError as error:
        text = error.read(500).decode(errors="replace")
        kind = RefusedError if error.code in _FOR_GOOD else NotReadyError
        raise kind(f"{url} answers {error.code}: {text}") from None
    except json.JSONDecodeError:
        raise RefusedError(f"{url} answers with something that is not JSON") from None
    except urllib.error.URLError as error:
        raise NotReadyError(f"no connection ({error.reason})") from None
    except (OSError, http.client.HTTPException) as error:
        raise NotReadyError(f"no answer ({str(error) or type(error).__name__})") from None


def main() -> int:
    """Wait for the server on the command line and return the exit status."""
    parser = argparse.ArgumentParser(description="Wait until a server gives one token.")
    parser.add_argument("url", help="such as http://127.0.0.1:8000/v1")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds (default 600)")
    arguments = parser.parse_args()
    if not arguments.url.startswith(("http://", "https://")):
        parser.error(f"{arguments.url} is no URL such as http://127.0.0.1:8000/v1")
    due = time.monotonic()

    def waiting(reason: str) -> None:
        nonlocal due
        if time.monotonic() >= due:
            say(f"waiting for {arguments.url}: {reason}")
            due = time.monotonic() + 10.0

    try:
        model = wait(arguments.url, os.environ.get("API_KEY", ""), arguments.timeout, waiting)
    except (TimeoutError, RefusedError) as reason:
        say(str(reason))
        return 1
    except KeyboardInterrupt:
        return 130
    say(f"{arguments.url} answers as {model}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
