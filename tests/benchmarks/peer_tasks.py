"""The same questions as a task of each peer, in the words that its own documentation uses."""

from __future__ import annotations

from pathlib import Path

import orjson

from tests.benchmarks import questions

NAME = "bench_questions"

_LM_EVAL = """\
task: {name}
dataset_path: json
dataset_kwargs:
  data_files:
    test: {rows}
test_split: test
output_type: generate_until
doc_to_text: "Question:\\n{{{{question}}}}\\n\\nOptions:\\n(A) {{{{options.A}}}}\\n\
(B) {{{{options.B}}}}\\n(C) {{{{options.C}}}}\\n(D) {{{{options.D}}}}\\n\\n\
Answer this medical multiple-choice question.\\n\
Reply with the letter only, one of A, B, C, D, in exactly this format:\\nOption: [letter]"
doc_to_target: "{{{{answer}}}}"
generation_kwargs:
  until: []
  max_gen_toks: 1024
  temperature: 0.0
  do_sample: false
filter_list:
  - name: option
    filter:
      - function: regex
        regex_pattern: "Option: ([A-D])"
      - function: take_first
metric_list:
  - metric: exact_match
    aggregation: mean
    higher_is_better: true
metadata:
  version: 1.0
"""

_INSPECT = """\
from inspect_ai import Task, task
from inspect_ai.dataset import Sample, json_dataset
from inspect_ai.scorer import choice
from inspect_ai.solver import multiple_choice


def sample(row):
    return Sample(
        input=row["question"],
        choices=list(row["options"].values()),
        target=row["answer"],
        id=row["id"],
    )


@task
def {name}():
    return Task(
        dataset=json_dataset({rows!r}, sample), solver=multiple_choice(), scorer=choice()
    )
"""


def write(folder: Path, count: int, length: int) -> Path:
    """The rows, which our command reads as they are, and beside them the tasks that read them."""
    rows = questions.write(folder / "questions.jsonl", count, length)
    (folder / "task.yaml").write_text(_LM_EVAL.format(name=NAME, rows=rows))
    (folder / "task.py").write_text(_INSPECT.format(name=NAME, rows=str(rows)))
    return rows


def lm_eval(folder: Path, python: Path, url: str, model: str, in_flight: int) -> list[str]:
    arguments = (
        f"model={model},base_url={url}/chat/completions,num_concurrent={in_flight},"
        "max_retries=1,tokenized_requests=False"
    )
    command = [str(python), "-m", "lm_eval", "--model", "local-chat-completions"]
    command += ["--model_args", arguments, "--tasks", NAME, "--include_path", str(folder)]
    return [*command, "--apply_chat_template", "--output_path", str(folder / "lm_eval")]


def inspect(folder: Path, python: Path, model: str, in_flight: int) -> list[str]:
    """To be run in `folder`: it takes no absolute path of a task.

    Its provider is called `bench`, so it reads BENCH_BASE_URL and BENCH_API_KEY.
    """
    command = [str(python.with_name("inspect")), "eval", "task.py"]
    command += ["--model", f"openai-api/bench/{model}", "--max-connections", str(in_flight)]
    command += ["--temperature", "0", "--max-tokens", "1024", "--display", "none"]
    return [*command, "--log-dir", str(folder / "inspect")]


def lm_eval_accuracy(folder: Path) -> float:
    results = max((folder / "lm_eval").rglob("results_*.json"))
    accuracy: float = orjson.loads(results.read_bytes())["results"][NAME]["exact_match,option"]
    return accuracy
