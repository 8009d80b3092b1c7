"""A client's bare call, so many in flight: a script of its own.

`openai`: AsyncOpenAI, for the peers' environment. `aiohttp`: aiohttp alone, the floor for all that
sends over it. It reads the questions that our command reads, keeps nothing and writes nothing.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

Send = Callable[[dict[str, Any]], Awaitable[str]]


def requests(path: Path, model: str) -> Iterator[dict[str, Any]]:
    with path.open() as file:
        for line in file:
            row = json.loads(line)
            choices = "\n".join(f"({letter}) {text}" for letter, text in row["options"].items())
            prompt = f"Question:\n{row['question']}\n\nOptions:\n{choices}\n\nEnd with `Option: X`."
            yield {
                "model": model,
                "messages": [
                    {"role": "system", "content": "You answer multiple-choice questions."},
                    {"role": "user", "content": prompt},
                ],
                "temperature": 0.0,
                "top_p": 1.0,
                "max_tokens": 1024,
            }


@asynccontextmanager
async def by_openai(url: str) -> AsyncIterator[Send]:
    openai: Any = import_module("openai")  # this package's environment does not have it
    async with openai.AsyncOpenAI(base_url=url, api_key="none", timeout=600) as client:

        async def send(request: dict[str, Any]) -> str:
            reply = await client.chat.completions.create(**request)
            return str(reply.choices[0].message.content)

        yield send


@asynccontextmanager
async def by_aiohttp(url: str) -> AsyncIterator[Send]:
    aiohttp, orjson = import_module("aiohttp"), import_module("orjson")
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), cookie_jar=aiohttp.DummyCookieJar()
    ) as session:

        async def send(request: dict[str, Any]) -> str:
            headers = {"Content-Type": "application/json"}
            async with session.post(
                f"{url}/chat/completions", data=orjson.dumps(request), headers=headers
            ) as response:
                reply = orjson.loads(await response.read())
            return str(reply["choices"][0]["message"]["content"])

        yield send


CLIENTS = {"openai": by_openai, "aiohttp": by_aiohttp}


async def main(name: str, path: Path, url: str, model: str, in_flight: int, limit: int) -> None:
    source = requests(path, model)
    async with CLIENTS[name](url) as send:

        async def worker() -> int:
            done = 0
            for request in source:
                assert "Option: B" in await send(request)
                done += 1
            return done

        done = sum(await asyncio.gather(*(worker() for _ in range(in_flight))))
    assert done == limit, done


if __name__ == "__main__":
    _name, _path, _url, _model, _in_flight, _limit = sys.argv[1:]
    _loop: Any = import_module("uvloop")
    _loop.run(main(_name, Path(_path), _url, _model, int(_in_flight), int(_limit)))
