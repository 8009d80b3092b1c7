"""JAMA Clinical Challenge, as the scraper of its paper writes it."""

from __future__ import annotations

from medagents_async.datasets import dataset
from medagents_async.datasets.drafts import Draft
from medagents_async.datasets.medbullets import medbullets
from medagents_async.datasets.sources import Record


@dataset(
    "jama",
    files="jama_raw.csv or .json, which jama_scraper.py writes for those with access: "
    "link, question, opa … opd, diagnosis, answer_idx, answer, explanation, field",
    published="jamanetwork.com; links and scraper: github.com/HanjieChen/ChallengeClinicalQA",
    patterns=("jama_raw.csv",),
)
def jama(record: Record) -> Draft:
    """JAMA Clinical Challenge, 4 options; `diagnosis` tells the answer and is left out."""
    return medbullets(record)
