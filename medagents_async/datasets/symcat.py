"""SymCat: synthetic patients out of its symptom frequencies, as Synthea exports them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel

from medagents_async.datasets import dataset
from medagents_async.datasets.drafts import Draft, LeftOut, Making, read
from medagents_async.datasets.sources import Record, Sources


class Patient(BaseModel):
    """A record. SYMPTOMS is `name:severity` or `name_@_detail:severity`, joined by `;`."""

    PATIENT: str | None = None
    GENDER: Literal["M", "F"]
    AGE_BEGIN: int
    PATHOLOGY: str
    SYMPTOMS: str = ""

    def symptoms(self) -> list[str]:
        """Names, with the detail in brackets; severities are random numbers, not kept."""
        parts = (entry.rpartition(":") for entry in self.SYMPTOMS.split(";") if entry.strip())
        names = ((name or whole).partition("_@_") for name, _, whole in parts)
        return [f"{name} ({detail})" if detail else name for name, _, detail in names]


@dataclass(frozen=True)
class Known:
    """Every pathology of the files, and how to make options."""

    pathologies: frozenset[str]
    making: Making


def pathologies(sources: Sources, making: Making) -> Known:
    """What there is to tell apart."""
    names = (record.fields.get("PATHOLOGY") for record in sources.records())
    return Known(frozenset(name for name in names if isinstance(name, str) and name), making)


@dataset(
    "symcat",
    files="symptoms.csv: PATIENT, GENDER, RACE, ETHNICITY, AGE_BEGIN, AGE_END, PATHOLOGY, "
    "NUM_SYMPTOMS, SYMPTOMS",
    published="symcat.com (frequencies); patients by Synthea's symptoms export from them",
    study=pathologies,
    patterns=("*symptoms*.csv",),
)
def symcat(record: Record, known: Known) -> Draft:
    """SymCat: which disease has this patient? The files' other diseases are the wrong options."""
    patient = read(Patient, record)
    symptoms = patient.symptoms()
    if not symptoms:
        raise LeftOut("a patient without symptoms")
    options, answer = known.making.options(patient.PATHOLOGY, known.pathologies, record.name)
    sex = "male" if patient.GENDER == "M" else "female"
    listed = "\n".join(f"- {name}" for name in symptoms)
    return Draft(
        question=f"Patient: {patient.AGE_BEGIN} years old, {sex}.\nSymptoms:\n{listed}\n"
        "What is the most likely diagnosis?",
        options=options,
        answer=answer,
        subject=patient.PATHOLOGY,
    )
