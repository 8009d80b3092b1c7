"""Rows of OUT with consultations of any size, made without a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

import orjson

from medagents_async.datasets import reader
from tests.conftest import question_row

EXPERTS = ("Cardiology", "Neurology", "Oncology", "Urology", "Nephrology", "Surgery", "Radiology")
_LEXICON_WORDS = 3000


def lexicon(chance: Random) -> list[str]:
    """Invented words of 3 to 9 letters, which compress no better than a language."""
    letters = "aeiourstlnmdcph"
    return ["".join(chance.choices(letters, k=chance.randint(3, 9))) for _ in range(_LEXICON_WORDS)]


def step(stage: str, reply: str | None, **more: Any) -> dict[str, Any]:
    """A row of a trace; `prompt` is what was asked."""
    prompt = more.pop("prompt", None)
    messages = [{"role": "system", "content": "You are a doctor."}] if prompt else []
    messages += [{"role": "user", "content": prompt}] if prompt else []
    return {
        "stage": stage,
        "agent": None,
        "round": 0,
        "n": 0,
        "request": {"model": "m", "messages": messages, "temperature": 1.0} if prompt else None,
        "reply": reply,
        "reasoning": None,
        "finish_reason": "stop",
        "usage": {"prompt_tokens": 900, "completion_tokens": 300, "cached_tokens": 0},
        "error": None,
        "asked_s": 0.0,
        "queued_s": 0.1,
        "seconds": 2.0,
        "attempts": 1,
        "server": "http://127.0.0.1:8000/v1",
        **more,
    }


def panel_row(number: int, words: list[str]) -> dict[str, Any]:
    """MedAgents on question `number`: 27 calls at a chat model's length, two rounds of votes."""
    chance = Random(number)

    def prose(count: int) -> str:
        return " ".join(chance.choices(words, k=count)).capitalize() + "."

    question = question_row(number)
    asked = question["question"] + "\n\n" + "\n".join(question["options"].values())
    steps = [step(f"recruit_{kind}", " | ".join(EXPERTS), prompt=asked) for kind in ("question",)]
    steps.append(step("recruit_option", " | ".join(EXPERTS[5:]), prompt=asked))
    analyses: list[str] = []
    for place, expert in enumerate(EXPERTS):
        stage = "analyse_question" if place < 5 else "analyse_option"
        shown = "\n\n".join([asked, *(analyses if place >= 5 else ()), f"You know {expert}."])
        made = step(stage, prose(230), agent=expert, n=place, prompt=shown, asked_s=2.0)
        analyses.append(made["reply"])
        steps.append(made)
    report = f"Key Knowledge: {prose(90)}\nTotal Analysis: {prose(250)}"
    steps.append(step("summarise", report, prompt="\n\n".join([asked, *analyses]), asked_s=4.0))
    for turn in (1, 2):
        for place, expert in enumerate(EXPERTS):
            no = turn == 1 and place == 3
            told = f"{report}\n\nDo you agree?"
            vote = step("vote", "NO" if no else "YES", agent=expert, round=turn, prompt=told)
            steps.append({**vote, "n": place, "asked_s": 2.0 + 4 * turn})
        if turn == 1:
            steps.append(step("advise", prose(100), agent=EXPERTS[3], round=1, prompt=report))
            parts = report.split(" ")
            parts[40:60] = prose(25).split(" ")
            before, report = report, " ".join(parts)
            steps.append(step("revise", report, round=1, prompt=before, asked_s=8.0))
    said = chance.choice([*question["options"]])
    steps.append(step("decide", f"Option: {said}", round=2, prompt=report, asked_s=12.0))
    votes = [dict.fromkeys(EXPERTS, "yes") | {EXPERTS[3]: "no"}, dict.fromkeys(EXPERTS, "yes")]
    detail = {"question_experts": EXPERTS[:5], "option_experts": EXPERTS[5:], "rounds": 2}
    return outcome(number, said, question["answer"], steps, {**detail, "votes": votes})


def outcome(
    number: int,
    said: str | None,
    key: str | None,
    steps: list[dict[str, Any]],
    detail: Mapping[str, Any] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """A row of OUT around these calls."""
    tokens = {"prompt_tokens": 900 * len(steps), "completion_tokens": 300 * len(steps)}
    return {
        "id": f"q{number}",
        "index": number,
        "repeat": 0,
        "status": "ok" if said else "unparsed",
        "prediction": said,
        "answer": key,
        "correct": None if key is None else said == key,
        "subject": "step1",
        "error": None,
        "method": "medagents",
        "calls": len(steps),
        "truncated": 0,
        "retries": 0,
        "usage": {**tokens, "cached_tokens": 0},
        "seconds": 14.0,
        "detail": detail or {},
        "trace": steps,
        **more,
    }


def written(folder: Path, rows: Iterator[dict[str, Any]], questions: int) -> Path:
    """OUT with its manifest and input, as a run leaves them."""
    source, output = folder / "in.jsonl", folder / "out.jsonl"
    with source.open("wb") as file:
        for number in range(questions):
            file.write(orjson.dumps(question_row(number)) + b"\n")
    with output.open("wb") as file:
        for row in rows:
            file.write(orjson.dumps(row) + b"\n")
    digest = reader.check(source, reader.Selection()).digest
    manifest = {"input": str(source), "configuration": {"input": digest, "method": "medagents"}}
    (folder / "out.run.json").write_bytes(orjson.dumps(manifest))
    return output
