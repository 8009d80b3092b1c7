#!/usr/bin/env python3
"""Say in one page what a server is, what it has on, and what to change for these runs.

`python3 serve/check.py http://127.0.0.1:8000/v1 [--model NAME] [--json]`. A key is read from
$API_KEY, else $MEDAGENTS_API_KEY. Sends a dozen short requests.

Exit status: 0 nothing to change; 1 something to change; 2 usage, or no server that answers.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# Servers are reached directly: a proxy that the environment names is for the world outside.
_open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open
ENOUGH_CONTEXT = 8192  # prompts of these methods stay below, replies of the longest stage included
# Nothing that a model would say by itself, so that a constraint that is ignored shows.
CHOICES = ["amber-17", "cobalt-42"]
STORY = "A patient comes back with the same complaint, and nothing has been found so far. " * 40


@dataclass
class Answer:
    """What came back: `status` 0 is no connection, whose reason is then `text`."""

    status: int
    text: str
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def body(self) -> dict[str, Any]:
        """The JSON object of an answer, empty where it is none."""
        try:
            found = json.loads(self.text)
        except json.JSONDecodeError:
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def content(self) -> str:
        """The text of a completion."""
        return str(self._message.get("content") or "")

    @property
    def reasoning(self) -> str:
        """The thinking of a completion, by either of its names."""
        message = self._message
        return str(message.get("reasoning") or message.get("reasoning_content") or "")

    @property
    def _message(self) -> dict[str, Any]:
        choices = self.body.get("choices") or [{}]
        return dict(choices[0].get("message") or {})

    def usage(self, name: str) -> int:
        """A count of `usage`, 0 where it is not told."""
        return int((self.body.get("usage") or {}).get(name) or 0)

    @property
    def cached(self) -> int | None:
        """Cached prompt tokens, None where the server does not tell."""
        details = (self.body.get("usage") or {}).get("prompt_tokens_details")
        return None if details is None else int(details.get("cached_tokens") or 0)


@dataclass
class Page:
    """What was found, and what to change."""

    found: dict[str, str] = field(default_factory=dict)
    change: list[str] = field(default_factory=list)


class Server:
    """Requests to one server."""

    def __init__(self, url: str, key: str, timeout: float) -> None:
        self.url, self.root = url.rstrip("/"), url.rstrip("/").removesuffix("/v1")
        self.model = ""
        self._key, self._timeout = key, timeout

    def get(self, url: str, body: object = None, **headers: str) -> Answer:
        """Send one request; never raises."""
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        headers["Content-Type"] = "application/json"
        data = None if body is None else json.dumps(body).encode()
        try:
            request = urllib.request.Request(url, data, headers)
            with _open(request, timeout=self._timeout) as reply:
                names = {name.lower(): value for name, value in reply.headers.items()}
                return Answer(reply.status, reply.read().decode(errors="replace"), names)
        except urllib.error.HTTPError as error:
            return Answer(error.code, error.read(2000).decode(errors="replace"))
        except (OSError, ValueError) as error:
            return Answer(0, str(error))

    def chat(self, text: str, system: str = "", headers: Any = None, **more: Any) -> Answer:
        """Ask for a completion of a few tokens."""
        messages = [{"role": "system", "content": system}] if system else []
        messages.append({"role": "user", "content": text})
        body = {"model": self.model, "messages": messages, "temperature": 0, "max_tokens": 8}
        return self.get(f"{self.url}/chat/completions", body | more, **(headers or {}))


def identity(server: Server, page: Page, wanted: str) -> bool:
    """Who is it, and does it answer at all? The other checks need that."""
    models = server.get(f"{server.url}/models")
    if models.status != 200 or not models.body.get("data"):
        page.change.append(f"{server.url}/models answers {models.status}: {models.text[:200]}")
        return False
    entries = {str(entry["id"]): entry for entry in models.body["data"]}
    server.model = wanted or next(iter(entries))
    version = server.get(f"{server.root}/version").body.get("version")
    page.found["server"] = f"vLLM {version}" if version else "not vLLM, or behind a gateway"
    page.found["model"] = server.model
    if len(entries) > 1:
        page.found["models"] = ", ".join(entries)
    first = server.chat("Say yes.", headers={"X-Request-Id": "check/0/answer/0"})
    if first.status != 200:
        page.change.append(f"a chat completion gets {first.status}: {first.text[:300]}")
        return False
    length = entries.get(server.model, {}).get("max_model_len")
    page.found["context"] = f"{length:,} tokens" if length else "not told"
    if length and length < ENOUGH_CONTEXT:
        page.change.append(
            f"MAX_MODEL_LEN={ENOUGH_CONTEXT} or more: with {length:,} long questions and reports "
            "are refused or cut; on a small machine lower the methods' …_tokens instead"
        )
    echoed = "check/0/answer/0" in str(first.body.get("id")) + str(
        first.headers.get("x-request-id")
    )
    page.found["request ids"] = "kept" if echoed else "not kept"
    if not echoed:
        page.change.append("--enable-request-id-headers: one id from a row's trace to the log")
    return True


def template(server: Server, page: Page) -> None:
    """Whether system messages arrive, and whether the model thinks aloud."""
    plain = server.chat("Name a colour.", max_tokens=64)
    long = server.chat("Name a colour.", system=STORY[:600])
    short = server.chat("Name a colour.", system="Hi.")
    if long.status != 200:
        page.found["system messages"] = f"refused ({long.status})"
        page.change.append(
            "nothing: the run notices that the chat template has no system role and puts such text "
            "into the user's message"
        )
    elif long.usage("prompt_tokens") < plain.usage("prompt_tokens") + 50:
        page.found["system messages"] = "ignored"
        page.change.append("another --chat-template: this one drops system messages in silence")
    else:
        page.found["system messages"] = "taken"
        added = plain.usage("prompt_tokens") - short.usage("prompt_tokens")
        if added > 0:
            page.found["system messages"] += f"; without one the template adds its own (+{added})"
    if plain.reasoning or "<think>" in plain.content:
        parsed = "apart from the answer" if plain.reasoning else "in the answer's text"
        page.found["thinking"] = parsed
        page.change.append(
            "--set vote_tokens=… and its like: a model that thinks uses up short limits before it "
            "answers"
        )
        if not plain.reasoning:
            page.change.append("--reasoning-parser NAME: thinking comes apart from the answer")


def cache(server: Server, page: Page) -> None:
    """Whether a prompt that was seen before is computed again, and how many fit."""
    before = hits(server)
    server.chat(STORY)
    again = server.chat(STORY)
    page.found["token details"] = "told" if again.cached is not None else "not told"
    if again.cached is None:
        page.change.append(
            "--enable-prompt-tokens-details: else no run can say what the prefix cache saved"
        )
    saved = again.cached if again.cached is not None else hits(server) - before
    if saved:
        page.found["prefix cache"] = f"on: {saved:,} of {again.usage('prompt_tokens'):,} tokens"
    elif again.cached is not None or server.get(f"{server.root}/metrics").status == 200:
        page.found["prefix cache"] = "off"
        page.change.append(
            "--enable-prefix-caching: experts share long prompts, and with --set "
            "layout=shared-prefix most of each"
        )
    else:
        page.found["prefix cache"] = "cannot be told"
    metrics = server.get(f"{server.root}/metrics").text
    room = 0
    for labels in re.findall(r"^vllm:cache_config_info\{(.*)\}", metrics, re.MULTILINE):
        numbers = dict(re.findall(r'(\w+)="(\d+)"', labels))
        blocks = int(numbers.get("num_gpu_blocks", 0)) * int(numbers.get("block_size", 0))
        room += int(numbers.get("kv_cache_size_tokens", blocks))
    if room:
        page.found["KV cache"] = f"{room:,} tokens: some {room // 2500:,} calls of 2,500 at once"


def hits(server: Server) -> int:
    """How many prompt tokens came from the prefix cache so far."""
    text = server.get(f"{server.root}/metrics").text
    counts = re.findall(r"^vllm:prefix_cache_hits(?:_total)?\{.*\} (\S+)$", text, re.MULTILINE)
    return sum(int(float(count)) for count in counts)


def constraints(server: Server, page: Page) -> None:
    """Which way of constraining a reply works, rather than being ignored in silence."""
    schema = {"type": "string", "enum": CHOICES}
    wrapped = {"type": "json_schema", "json_schema": {"name": "choice", "schema": schema}}
    ways: dict[str, Any] = {
        "structured_outputs": {"choice": CHOICES},
        "guided_choice": CHOICES,
        "response_format": wrapped,
    }
    works = []
    for name, value in ways.items():
        answer = server.chat("Say something.", max_tokens=24, **{name: value})
        if answer.status == 200 and answer.content.strip().strip('"') in CHOICES:
            works.append(name)
    page.found["constrained replies"] = ", ".join(works) or "none"
    if not works:
        page.change.append("no --set constrain=true: this server ignores or refuses constraints")


def seeds(server: Server, page: Page) -> None:
    """Whether a seed decides a sample."""
    ask = "Invent a name for a town, and say two words about it."
    one, same, other = (
        server.chat(ask, temperature=1.0, max_tokens=24, seed=seed).content for seed in (1, 1, 2)
    )
    if one != same:
        page.found["seeds"] = "not honoured"
        page.change.append("nothing to set: samples cannot be repeated on this server")
    elif one == other:
        page.found["seeds"] = "cannot be told: two seeds gave the same text"
    else:
        page.found["seeds"] = "honoured"


def main() -> int:
    """Check the server on the command line and return the exit status."""
    parser = argparse.ArgumentParser(description="Say what a server is and what to change.")
    parser.add_argument("url", help="such as http://127.0.0.1:8000/v1")
    parser.add_argument("--model", default="", help="default: the first that is listed")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds for each request")
    parser.add_argument("--json", action="store_true", help="the page as one JSON object")
    options = parser.parse_args()
    if not options.url.startswith(("http://", "https://")):
        parser.error(f"{options.url} is no URL such as http://127.0.0.1:8000/v1")
    key = os.environ.get("API_KEY") or os.environ.get("MEDAGENTS_API_KEY") or ""
    server, page = Server(options.url, key, options.timeout), Page()
    answers = identity(server, page, options.model)
    if answers:
        for check in (template, cache, constraints, seeds):
            check(server, page)
    if options.json:
        print(json.dumps({"url": options.url, **page.__dict__}))
    else:
        print(options.url)
        for name, value in page.found.items():
            print(f"  {name:20} {value}")
        print("To change for these runs:" if page.change else "Nothing to change for these runs.")
        for line in page.change:
            print(f"  * {line}")
    return (1 if page.change else 0) if answers else 2


if __name__ == "__main__":
    sys.exit(main())
