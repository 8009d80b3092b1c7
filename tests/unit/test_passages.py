"""Knowledge from a corpus: who is shown it, and what is no corpus."""

from __future__ import annotations

from pathlib import Path

import pytest

from medagents_async.errors import UsageError
from medagents_async.methods.passages import corpus
from tests.unit.test_mdagents import model, solve


@pytest.mark.parametrize("level", ["low", "moderate", "high"])
def test_knowledge_is_shown_to_all_who_answer(level: str, tmp_path: Path) -> None:
    library = tmp_path / "corpus.jsonl"
    library.write_text(
        '{"id": "x", "content": "Bread is baked."}\n\n{"contents": "Chest pain: ECG first."}\n'
    )
    seen = solve(model(level, agree=2), corpus=str(library), passages=1)
    assert seen.decision.detail["passages"] == ["3"]
    for name in seen.bodies:
        shows = not name.startswith(("triage", "recruit"))
        assert ("ECG first." in seen.prompt(name)) is shows, name
        assert "Bread" not in seen.prompt(name)


@pytest.mark.parametrize("content", [None, "", "{", '{"title": "x"}', "[]"])
def test_a_corpus_that_cannot_be_used_is_a_usage_error(content: str | None, tmp_path: Path) -> None:
    library = tmp_path / "corpus.jsonl"
    if content is not None:
        library.write_text(content)
    with pytest.raises(UsageError, match="corpus"):
        solve(model(), corpus=str(library))


def test_a_corpus_is_read_again_where_it_has_changed(tmp_path: Path) -> None:
    library = tmp_path / "corpus.jsonl"
    library.write_text('{"text": "Chest pain."}')
    assert corpus(library) is corpus(library)
    library.write_text('{"text": "Knee pain, and more."}')
    (passage,) = corpus(library).about("pain", 1)
    assert (passage.id, passage.text) == ("1", "Knee pain, and more.")
