"""DDXPlus: synthetic patients, each with a pathology and coded evidences."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, field_validator

from medagents_async.datasets import dataset
from medagents_async.datasets.drafts import Draft, Making, read
from medagents_async.datasets.rows import BadRow
from medagents_async.datasets.sources import Record, Sources
from medagents_async.errors import UsageError


class Patient(BaseModel):
    """A record; its list is written as Python writes lists. The differential is left out."""

    AGE: int
    SEX: Literal["M", "F"]
    PATHOLOGY: str
    EVIDENCES: list[str]
    INITIAL_EVIDENCE: str

    @field_validator("EVIDENCES", mode="before")
    @classmethod
    def _parsed(cls, value: Any) -> Any:
        try:
            return ast.literal_eval(value) if isinstance(value, str) else value
        except (SyntaxError, MemoryError, RecursionError) as error:
            raise ValueError("no list as Python writes it") from error


@dataclass(frozen=True)
class Codes:
    """What the codes mean in English, and how to make options."""

    conditions: tuple[str, ...]
    evidences: Mapping[str, Any]
    making: Making

    def told(self, code: str, values: list[str]) -> str:
        """An evidence as question and answer. Raises BadRow."""
        if code not in self.evidences:
            raise BadRow(f"EVIDENCES: release_evidences.json has no {code}")
        evidence = self.evidences[code]
        meanings = evidence.get("value_meaning") or {}
        texts = [meanings[value]["en"] if value in meanings else value for value in values]
        return f"{evidence['question_en'].strip()} {', '.join(texts) or 'yes'}"


def codes(sources: Sources, making: Making) -> Codes:
    """Raises UsageError where one of the two files is missing."""
    conditions, evidences = (sources.document(f"*{name}*") for name in ("conditions", "evidences"))
    if conditions is None or evidences is None:
        raise UsageError(
            "name release_conditions.json and release_evidences.json, too: the patients' file "
            "has only codes"
        )
    return Codes(tuple(_english(one) for one in conditions.values()), evidences, making)


def _english(condition: Mapping[str, str]) -> str:
    return condition.get("cond-name-eng") or condition["condition_name"]


@dataset(
    "ddxplus",
    files="release_test_patients (unzipped CSV: AGE, SEX, PATHOLOGY, EVIDENCES, "
    "INITIAL_EVIDENCE, …), release_conditions.json, release_evidences.json",
    published="figshare.com, DDXPlus Dataset (English); github.com/mila-iqia/ddxplus",
    study=codes,
    patterns=("*test_patients", "*test_patients.csv"),
    aside=("*conditions*.json", "*evidences*.json"),
)
def ddxplus(record: Record, known: Codes) -> Draft:
    """DDXPlus: which pathology has this patient? The others' names are the wrong options."""
    patient = read(Patient, record)
    if patient.PATHOLOGY not in known.conditions:
        raise BadRow(f"PATHOLOGY: release_conditions.json has no {patient.PATHOLOGY}")
    found: dict[str, list[str]] = {}
    for evidence in patient.EVIDENCES:
        code, _, value = evidence.partition("_@_")
        found.setdefault(code, []).extend([value] if value else [])
    history = {code for code in found if known.evidences.get(code, {}).get("is_antecedent")}
    first = patient.INITIAL_EVIDENCE
    parts = {
        "Complaint": [first],
        "Symptoms": [code for code in found if code not in history and code != first],
        "History": [code for code in found if code in history and code != first],
    }
    lines = [f"Patient: {patient.AGE} years old, {'male' if patient.SEX == 'M' else 'female'}."]
    for title, listed in parts.items():
        told = [f"- {known.told(code, found.get(code, []))}" for code in listed]
        lines += [f"{title}:", *told] if told else []
    lines.append("What is the most likely diagnosis?")
    options, answer = known.making.options(patient.PATHOLOGY, known.conditions, record.name)
    return Draft(
        question="\n".join(lines), options=options, answer=answer, subject=patient.PATHOLOGY
    )
