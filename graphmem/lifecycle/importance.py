"""How important a memory is (seed 002 §3.2), and how it is forgotten (§4.1).

Importance is a weighted sum of scarcity, impact, recency and certainty. The forgetting curve is R = e^(-t/S), with t in
whole days and S from importance and accesses.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import MappingProxyType

from graphmem.folding import fold
from graphmem.model import Kind

# §3.2.
WEIGHTS: Mapping[str, float] = MappingProxyType({"scarcity": 0.25, "impact": 0.35, "recency": 0.20, "certainty": 0.20})
IMPACT: Mapping[str, float] = MappingProxyType({"preference": 0.9, "fact": 0.8, "semantic": 0.7, "episodic": 0.5})
UNKNOWN_IMPACT = 0.5
# Days in which the recency falls to 0, and the digits to which the sum is rounded.
RECENT_DAYS, DIGITS = 30, 3
# Words by which a speaker says that he is not sure, and the certainty of what they stand in.
HEDGES = ("maybe", "perhaps", "i think", "might", "probably", "not sure")
SIGNS_OF_DOUBT = ("也许", "可能", "大概", "好像", "应该", "似乎")
HEDGED_CERTAINTY = 0.6
_HEDGE = re.compile("|".join([rf"(?<!\w){hedge}(?!\w)" for hedge in HEDGES] + list(SIGNS_OF_DOUBT)))
# §4.1: preferences and facts are kept longer.
TYPE_FACTORS: Mapping[str, float] = MappingProxyType({"preference": 1.5, "fact": 1.3})


def counted_type(kind: Kind, level: int, memory_type: str | None) -> str | None:
    """Returns the type by which a memory is rated and fades (seed 002 §2.2).

    A fact that a language model drew and calls semantic is "objective information", which the seed calls a fact; its
    semantic memories are abstractions.
    """
    return "fact" if kind is Kind.FACT and level == 0 and memory_type == "semantic" else memory_type


def importance(scarcity: float, memory_type: str | None, recency: float, certainty: float) -> float:
    """Returns the importance (0..1) of a memory from its terms (each 0..1) and its type."""
    terms = {
        "scarcity": scarcity,
        "impact": IMPACT.get(memory_type or "", UNKNOWN_IMPACT),
        "recency": recency,
        "certainty": certainty,
    }
    return round(sum(WEIGHTS[name] * value for name, value in terms.items()), DIGITS)


def scarcity(highest_similarity: float | None) -> float:
    """Returns how unlike all others a memory is (0..1), from the highest cosine to one of them; None: it has none."""
    return 1.0 if highest_similarity is None else min(1.0, max(0.0, 1 - highest_similarity))


def recency(created_at: datetime, now: datetime) -> float:
    """Returns how new a memory is (0..1): 0 after thirty days."""
    return min(1.0, max(0.0, 1 - ((now - created_at) // timedelta(days=1)) / RECENT_DAYS))


def certainty(text: str, question_share: float) -> float:
    """Returns how sure a text sounds (0..1); `question_share` (0..1) is the share of questions in it."""
    return (1 - question_share) * (HEDGED_CERTAINTY if _HEDGE.search(fold(text)) else 1.0)


# Digits to which the retention is rounded (§4.1).
RETENTION_DIGITS = 4


@dataclass(frozen=True, slots=True)
class ForgettingCurve:
    """The numbers of the curve; the defaults are those of seed 002 §4.1."""

    base_strength: float = 1.0
    importance_multiplier: float = 2.0
    access_bonus: float = 0.1
    type_factors: Mapping[str, float] = field(default_factory=lambda: TYPE_FACTORS)
    max_strength: float = 10.0
    min_retention: float = 0.1

    def strength(self, importance: float, accesses: int, memory_type: str | None) -> float:
        """Returns S, at most `max_strength`: the higher it is, the more slowly a memory fades."""
        strength = self.base_strength + importance * self.importance_multiplier + accesses * self.access_bonus
        return min(self.max_strength, strength * self.type_factors.get(memory_type or "", 1.0))

    def retention(self, since: datetime, now: datetime, strength: float) -> float:
        """Returns R (0..1): 1 on the first day, and for a memory of the future."""
        days = (now - since) // timedelta(days=1)
        return 1.0 if days <= 0 else round(math.exp(-days / strength), RETENTION_DIGITS)

    def is_forgettable(self, retention: float) -> bool:
        """Returns whether a memory with this retention may be forgotten."""
        return retention < self.min_retention
