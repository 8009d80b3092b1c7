"""Few-shot chain of thought: `few-shot` whose examples reason before they answer.

The baseline of Tang et al., arXiv 2311.10537, Table 1, and of Kim et al., arXiv 2404.15155,
section 4.1.
"""

from __future__ import annotations

from dataclasses import dataclass

from medagents_async.methods import method
from medagents_async.methods.few_shot import PRESETS, FewShot


@method("few-shot-cot", presets=PRESETS, calls="1", depth="1")
@dataclass(frozen=True, kw_only=True)
class FewShotChainOfThought(FewShot):
    """The examples show how they came to their answers, and so shall the reply."""

    think = True
