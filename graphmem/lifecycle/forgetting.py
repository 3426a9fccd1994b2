"""The forgetting curve (seed 002 §4.1): R = e^(-t/S), with t in whole days and S from importance and accesses."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import MappingProxyType

# §4.1: preferences and facts are kept longer.
TYPE_FACTORS: Mapping[str, float] = MappingProxyType({"preference": 1.5, "fact": 1.3})
# Digits to which the retention is rounded (§4.1).
DIGITS = 4


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
        return 1.0 if days <= 0 else round(math.exp(-days / strength), DIGITS)

    def is_forgettable(self, retention: float) -> bool:
        """Returns whether a memory with this retention may be forgotten."""
        return retention < self.min_retention
