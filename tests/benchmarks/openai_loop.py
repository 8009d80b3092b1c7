"""AsyncOpenAI's bare call, so many in flight: a script for the peers' environment.

It reads the questions that our command reads, keeps nothing and writes nothing.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any


def prompts(path: Path) -> Iterator[str]:
    with path.open() as file:
        for line in file:
            row = json.loads(line)
            choices = "\n".join(f"({letter}) {text}" for letter, text in row["options"].items())
            yield f"Question:\n{row['question']}\n\nOptions:\n{choices}\n\nEnd with `Option: X`."


async def main(path: Path, url: str, model: str, in_flight: int, limit: int) -> None:
    openai: Any = import_module("openai")  # this package's environment does not have it
    source = prompts(path)
    async with openai.AsyncOpenAI(base_url=url, api_key="none", timeout=600) as client:

        async def worker() -> int:
            done = 0
            for prompt in source:
                reply = await client.chat.completions.create(
                    model=model,
                    messages=[
                        {"role": "system", "content": "You answer multiple-choice questions."},
                        {"role": "user", "content": prompt},
                    ],
                    temperature=0.0,
                    top_p=1.0,
                    max_tokens=1024,
                )
                assert "Option: B" in reply.choices[0].message.content
                done += 1
            return done

        done = sum(await asyncio.gather(*(worker() for _ in range(in_flight))))
    assert done == limit, done


if __name__ == "__main__":
    _path, _url, _model, _in_flight, _limit = sys.argv[1:]
    _loop: Any = import_module("uvloop")
    _loop.run(main(Path(_path), _url, _model, int(_in_flight), int(_limit)))
