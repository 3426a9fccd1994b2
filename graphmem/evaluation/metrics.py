"""How good a ranking is, and how sure a difference. Pure.

A ranking is a question's memories as keys, best first, each once; gold is the set of keys that answer it, never empty.
Every measure of a ranking is a share, 0 to 1; a figure is its mean over questions.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from graphmem.errors import ValidationError

DEPTHS = (5, 10, 20)
NDCG_DEPTH = 10
BUDGETS = (500, 1000, 2000)
# What an English word costs a language model on average; no tokenizer is asked, so that figures need no download.
TOKENS_PER_WORD = 1.3
RESAMPLES, SEED, CONFIDENCE_LEVEL = 10_000, 0, 95
# Resamples drawn at once: some megabytes for thousands of questions.
_DRAWN = 500


def recall(ranking: Sequence[str], gold: Collection[str], k: int) -> float:
    """The share of gold among the first k."""
    return sum(key in gold for key in ranking[:k]) / len(gold)


def any_found(ranking: Sequence[str], gold: Collection[str], k: int) -> float:
    """1 if some of gold is among the first k."""
    return float(any(key in gold for key in ranking[:k]))


def all_found(ranking: Sequence[str], gold: Collection[str], k: int) -> float:
    """1 if all of gold is among the first k (never, if gold has more)."""
    return float(set(gold) <= set(ranking[:k]))


def reciprocal_rank(ranking: Sequence[str], gold: Collection[str]) -> float:
    """1 / the rank of the first of gold, 0 if there is none. Its mean is MRR (Voorhees, TREC-8, 1999)."""
    return next((1 / rank for rank, key in enumerate(ranking, 1) if key in gold), 0.0)


def ndcg(ranking: Sequence[str], gold: Collection[str], k: int) -> float:
    """Discounted gain of the first k over the best possible one (Järvelin and Kekäläinen, 2002).

    Gains are 1 for gold and 0 otherwise, the discount of rank r is log2(r + 1).
    """
    gained = sum(1 / math.log2(rank + 1) for rank, key in enumerate(ranking[:k], 1) if key in gold)
    return gained / sum(1 / math.log2(rank + 1) for rank in range(1, min(k, len(gold)) + 1))


def recall_within(ranking: Sequence[str], gold: Collection[str], words: Mapping[str, int], budget: float) -> float:
    """Recall of as many of the first as fit into `budget` tokens together; the first that does not fit ends it.

    `words` has each memory's length in words; a word counts for TOKENS_PER_WORD tokens.
    """
    totals = accumulate(words[key] for key in ranking)
    return recall(ranking, gold, sum(total * TOKENS_PER_WORD <= budget for total in totals))


def scores(ranking: Sequence[str], gold: Collection[str], words: Mapping[str, int]) -> dict[str, float]:
    """Every measure of one question, by name. Raises ValidationError without gold: nothing could be found then."""
    if not gold:
        raise ValidationError("gold=[]: nothing answers this question; leave it out, it has no recall")
    return {
        **{f"recall@{k}": recall(ranking, gold, k) for k in DEPTHS},
        **{f"any@{k}": any_found(ranking, gold, k) for k in DEPTHS},
        **{f"all@{k}": all_found(ranking, gold, k) for k in DEPTHS},
        "mrr": reciprocal_rank(ranking, gold),
        f"ndcg@{NDCG_DEPTH}": ndcg(ranking, gold, NDCG_DEPTH),
        **{f"recall within {budget} tokens": recall_within(ranking, gold, words, budget) for budget in BUDGETS},
    }


@dataclass(frozen=True, slots=True)
class Difference:
    """The mean of paired differences over questions and its interval; a single question has none."""

    mean: float
    low: float | None
    high: float | None


def paired_difference(
    first: Sequence[float], second: Sequence[float], *, resamples: int = RESAMPLES, seed: int = SEED
) -> Difference:
    """What `first` has ahead of `second`, question by question, with a 95 % bootstrap interval of the mean.

    The percentile interval over questions drawn with replacement (Efron and Tibshirani, "An Introduction to the
    Bootstrap", 1993, ch. 13); the same seed gives the same one. Raises ValidationError for sequences that are empty
    or of different lengths.
    """
    if len(first) != len(second) or not first:
        raise ValidationError(
            f"first, second: {len(first)} and {len(second)} questions; a pair needs the same questions, at least one"
        )
    differences = np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)
    mean = float(differences.mean())
    if len(differences) == 1:
        return Difference(mean, None, None)
    random = np.random.default_rng(seed)
    means: list[float] = []
    while len(means) < resamples:
        drawn = random.integers(len(differences), size=(min(_DRAWN, resamples - len(means)), len(differences)))
        means.extend(differences[drawn].mean(axis=1))
    low, high = np.percentile(means, [(100 - CONFIDENCE_LEVEL) / 2, (100 + CONFIDENCE_LEVEL) / 2])
    return Difference(mean, float(low), float(high))
