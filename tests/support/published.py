"""Records in the shapes that publishers use, made up; GOLD is what must never come through."""

from __future__ import annotations

from typing import Any

PNG = b"\x89PNG\r\n\x1a\n and so on"
CHOICES = {"choices": ["one", "two", "three", "four"]}
MCQA = {"question": "Which?", "opa": "a", "opb": "b", "opc": "None", "opd": "Na", "exp": "GOLD"}
PUBMED = {
    "QUESTION": "Does it?",
    "CONTEXTS": ["First.", "Then."],
    "LABELS": ["AIM", "RESULTS"],
    "YEAR": None,
    "final_decision": "maybe",
    "LONG_ANSWER": "GOLD",
}
BULLET = {
    "question": "What next?",
    **{f"op{letter}": f"do {letter}" for letter in "abcde"},
    "answer_idx": "E",
    "answer": "do e, GOLD",
    "explanation": "GOLD",
}
FIGURE = {
    "Figure_path": "f.png",
    "Question": " What is it? ",
    "Choice A": " A: x",
    "Choice B": "B:y",
    "Choice C": " C: z ",
    "Choice D": "D:w",
    "Caption": "GOLD",
}
XRAY = {
    "idx": 7,
    "image_path": "f.png",
    "question": "Is it?",
    "semantic_type": "verify",
    "content_type": "presence",
    "template_arguments": {"object": {"0": "left lung"}, "attribute": {}},
    "answer": ["no"],
}
TWO = {"object": {"0": "left lung", "1": "right lung"}, "attribute": {"0": "edema"}}

#: Set, file's name, record, and of the row that must come out the parts named.
SHAPES: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    (
        "medqa",
        "test.jsonl",
        {
            "question": " Q?\n",
            "options": {"A": "x", "B": "y"},
            "answer": "y",
            "answer_idx": "B",
            "meta_info": "step1",
        },
        {"id": "test-0", "question": " Q?\n", "answer": "B", "subject": "step1"},
    ),
    (
        "medmcqa",
        "dev.json",
        {**MCQA, "cop": 4, "id": "u-1", "choice_type": "multi", "subject_name": "Skin"},
        {
            "id": "u-1",
            "answer": "D",
            "options": {"A": "a", "B": "b", "C": "None", "D": "Na"},
            "subject": "Skin",
        },
    ),
    ("medmcqa", "hub.jsonl", {**MCQA, "cop": 0, "exp": None}, {"answer": "A", "id": "hub-0"}),
    (
        "pubmedqa",
        "ori_pqal.json",
        {"123": PUBMED},
        {"id": "123", "context": "First.\nThen.", "question": "Does it?", "answer": "C"},
    ),
    (
        "pubmedqa-question-only",
        "ori_pqal.json",
        {"123": PUBMED},
        {"id": "123-question-only", "context": None, "answer": "C"},
    ),
    (
        "pubmedqa",
        "hub.jsonl",
        {
            "pubid": 5,
            "question": "Does it?",
            "context": {"contexts": ["First."], "labels": ["AIM"]},
            "long_answer": "GOLD",
            "final_decision": "yes",
        },
        {"id": "5", "context": "First.", "answer": "A"},
    ),
    (
        "mmlu",
        "anatomy_test.jsonl",
        {"question": "Q?", **CHOICES, "answer": 3, "subject": "anatomy"},
        {"answer": "D", "options": {"A": "one", "B": "two", "C": "three", "D": "four"}},
    ),
    (
        "mmlu-pro",
        "test.jsonl",
        {
            "question_id": 70,
            "question": "Q?",
            "options": ["x", "y", "z", "N/A", "N/A"],
            "answer": "C",
            "answer_index": 2,
            "category": "health",
            "src": "s",
        },
        {"id": "70", "answer": "C", "options": {"A": "x", "B": "y", "C": "z"}},
    ),
    (
        "medxpertqa",
        "test.jsonl",
        {
            "id": "Text-1",
            "question": "Q?\nAnswer Choices: (A) give Rh(B) x (B) y",
            "options": [
                {"letter": "A", "content": "give Rh(B) x"},
                {"letter": "B", "content": "y"},
            ],
            "label": ["B"],
            "question_type": "Reasoning",
        },
        {"id": "Text-1", "question": "Q?", "answer": "B", "subject": "Reasoning"},
    ),
    (
        "medagentsbench",
        "pubmedqa_test_hard.jsonl",
        {
            "realidx": "9",
            "question": "First.\nThen.\nDoes it?",
            "options": {"A": "yes", "B": "no", "C": "maybe"},
            "answer_idx": "B",
            "answer": "no",
            "answer_rationale": "GOLD",
        },
        {"id": "pubmedqa-9", "context": "First.\nThen.", "question": "Does it?", "answer": "B"},
    ),
    (
        "medagentsbench",
        "MMLU_test_hard.jsonl",
        {"realidx": 9, "question": "Q?", "options": {"A": "x", "B": "y"}, "answer_idx": "B"},
        {"id": "mmlu-9", "subject": "mmlu"},
    ),
    ("medbullets", "medbullets_op5.jsonl", BULLET, {"answer": "E", "id": "medbullets_op5-0"}),
    (
        "medbullets",
        "op4_test.jsonl",
        {
            "question": "What next?",
            "options": {"A": "x", "B": "y", "C": "z", "D": "w", "E": ""},
            "answer": "D",
        },
        {"answer": "D", "options": {"A": "x", "B": "y", "C": "z", "D": "w"}},
    ),
    (
        "jama",
        "jama_raw.jsonl",
        {**BULLET, "ope": None, "answer_idx": "D", "diagnosis": "GOLD", "field": "Dermatology"},
        {"answer": "D", "subject": "Dermatology"},
    ),
    (
        "path-vqa",
        "test.jsonl",
        {"image": "f.png", "question": "is it?", "answer": "No"},
        {"images": ["pictures/f.png"], "answer": "B", "options": {"A": "yes", "B": "no"}},
    ),
    (
        "pmc-vqa",
        "test.jsonl",
        {**FIGURE, "Answer": "z", "Answer_label": "C"},
        {
            "answer": "C",
            "options": {"A": "x", "B": "y", "C": "z", "D": "w"},
            "question": "What is it?",
            "images": ["pictures/f.png"],
        },
    ),
    ("pmc-vqa", "test_2.jsonl", {**FIGURE, "Answer": "B"}, {"answer": "B"}),
    ("pmc-vqa", "clean.jsonl", {**FIGURE, "Answer": "w"}, {"answer": "D"}),
    ("mimic-cxr-vqa", "test.jsonl", XRAY, {"id": "test-7", "answer": "B", "subject": "presence"}),
    (
        "mimic-cxr-vqa",
        "test.jsonl",
        {**XRAY, "semantic_type": "choose", "template_arguments": TWO, "answer": []},
        {
            "answer": "D",
            "options": {"A": "left lung", "B": "right lung", "C": "both", "D": "neither"},
        },
    ),
    (
        "mimic-cxr-vqa",
        "test.jsonl",
        {
            **XRAY,
            "semantic_type": "choose",
            "template_arguments": TWO,
            "answer": ["right lung", "left lung"],
        },
        {"answer": "C"},
    ),
]

#: What is no row, and the word of the reason.
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("medqa", {"question": "Q?", "options": {"A": "x", "B": "y"}, "answer": "y"}, "answer"),
    (
        "medqa",
        {"question": "Q?", "options": {"A": "x", "B": "y"}, "answer_idx": "A", "answer": "y"},
        "text",
    ),
    ("medmcqa", {**MCQA, "cop": "1"}, "cop"),
    ("medmcqa", {**MCQA, "cop": 4, "opb": None}, "opb"),
    ("mmlu", {"question": "Q?", **CHOICES, "answer": "E", "subject": "anatomy"}, "answer"),
    ("mmlu", {"question": "Q?", "A": "x", "answer": "A", "subject": "anatomy"}, "choices"),
    ("medagentsbench", {"question": "Q?", "options": {"A": "x", "B": "y"}}, "name"),
    ("medbullets", {**BULLET, "ope": ""}, "answer"),
    ("path-vqa", {"image": "gone.png", "question": "is it?", "answer": "no"}, "--images"),
    ("path-vqa", {"image": {"bytes": None}, "question": "is it?", "answer": "no"}, "bytes"),
    ("pmc-vqa", {**FIGURE, "Answer": "v"}, "Answer"),
    ("mimic-cxr-vqa", {**XRAY, "answer": ["maybe"]}, "answer"),
]
