"""What a server says of itself."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import httpx

from medagents_async.engine import replies
from medagents_async.engine.client import Client
from medagents_async.errors import Unavailable, UsageError

PROBE_S = 10.0  # for one look


@dataclass(frozen=True, slots=True)
class Identity:
    """`max_model_len` in tokens; None where the server does not say."""

    model: str
    max_model_len: int | None
    version: str | None


async def identify(client: Client, model: str | None, wait: float) -> Identity:
    """Ask a server what it serves, for up to `wait` seconds while it does not answer.

    Raises UsageError, with what to do, where it cannot be reached, refuses the key, has no
    `/v1/models` there, does not serve `model`, or serves several and none was named.
    """
    name = client.base_url
    response = await _models(client, wait)
    if response.status_code in (401, 403):
        raise UsageError(
            f"{name} refuses the API key (HTTP {response.status_code}); "
            "give the right one in $MEDAGENTS_API_KEY"
        )
    try:
        if response.status_code != 200:
            raise ValueError(f"HTTP {response.status_code}")
        entries = replies.load(response.content)["data"]
        served = {str(entry["id"]): entry.get("max_model_len") for entry in entries}
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        hint = "" if name.endswith("/v1") else f"; did you mean {name}/v1?"
        raise UsageError(f"{name}/models is no list of models ({error}){hint}") from error
    if model is None and len(served) == 1:
        model = next(iter(served))
    if model is None or model not in served:
        asked = f"does not serve {model!r}" if model else "does not serve just one model"
        names = ", ".join(served) or "it serves none"
        raise UsageError(f"{name} {asked}; choose one with --model: {names}")
    limit = served[model] if isinstance(served[model], int) else None
    return Identity(model, limit, await _version(client))


async def _models(client: Client, wait: float) -> httpx.Response:
    clock = asyncio.get_running_loop().time
    deadline = clock() + wait
    while True:
        try:
            async with asyncio.timeout(PROBE_S):
                response = await client.get("models")
            if response.status_code < 500 or clock() >= deadline:
                return response
        except (Unavailable, TimeoutError) as error:
            if clock() >= deadline:
                raise UsageError(
                    f"no server at {client.base_url} ({str(error) or 'no answer'}); start one with "
                    "`make serve`, or name yours with --base-url; --wait-server S waits for it"
                ) from error
        await asyncio.sleep(0.5)


async def _version(client: Client) -> str | None:
    try:
        async with asyncio.timeout(PROBE_S):
            response = await client.get("/version")
        version = replies.load(response.content)["version"]
    except (Unavailable, TimeoutError, ValueError, LookupError, TypeError):
        return None
    return version if isinstance(version, str) else None
