"""Measures of rankings and of probabilities, and confidence intervals of differences. Pure functions.

A ranking is a list of different message ids, best first; gold is the non-empty set of ids that answer the question.
Every measure of a ranking is between 0 and 1; a figure is its mean over questions.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from graphmem.errors import ValidationError

# Ranks up to which recall, any and all are measured.
DEPTHS = (5, 10, 20)
NDCG_DEPTH = 10
# Tokens of context within which recall is measured.
BUDGETS = (500, 1000, 2000)
# The average of English texts. A tokenizer would need a download.
TOKENS_PER_WORD = 1.3
RESAMPLES, SEED, CONFIDENCE_LEVEL = 10_000, 0, 95
# Bins of a reliability diagram.
BINS, CALIBRATION_DECIMALS = 10, 4
# Resamples drawn at once: some megabytes for thousands of questions.
_RESAMPLE_BATCH = 500


def recall(ranking: Sequence[str], gold: Collection[str], k: int) -> float:
    """Returns the share of gold that is among the first k."""
    return sum(key in gold for key in ranking[:k]) / len(gold)


def any_found(ranking: Sequence[str], gold: Collection[str], k: int) -> float:
    """Returns 1 if some of gold is among the first k, else 0."""
    return float(any(key in gold for key in ranking[:k]))


def all_found(ranking: Sequence[str], gold: Collection[str], k: int) -> float:
    """Returns 1 if all of gold is among the first k (impossible if gold has more than k), else 0."""
    return float(set(gold) <= set(ranking[:k]))


def reciprocal_rank(ranking: Sequence[str], gold: Collection[str]) -> float:
    """Returns 1 / rank of the first gold id, 0 without one. Its mean is MRR (Voorhees, TREC-8, 1999)."""
    return next((1 / rank for rank, key in enumerate(ranking, 1) if key in gold), 0.0)


def ndcg(ranking: Sequence[str], gold: Collection[str], k: int) -> float:
    """Returns the discounted gain of the first k, divided by the best possible one (Järvelin and Kekäläinen, 2002).

    Gains are 1 for gold and 0 otherwise, the discount of rank r is log2(r + 1).
    """
    gain = sum(1 / math.log2(rank + 1) for rank, key in enumerate(ranking[:k], 1) if key in gold)
    return gain / sum(1 / math.log2(rank + 1) for rank in range(1, min(k, len(gold)) + 1))


def recall_within(ranking: Sequence[str], gold: Collection[str], words: Mapping[str, int], budget: float) -> float:
    """Returns the recall of the longest beginning of the ranking that fits into `budget` tokens.

    `words` has the length of each message in words; a word counts for TOKENS_PER_WORD tokens.
    """
    totals = accumulate(words[key] for key in ranking)
    return recall(ranking, gold, sum(total * TOKENS_PER_WORD <= budget for total in totals))


def scores(ranking: Sequence[str], gold: Collection[str], words: Mapping[str, int]) -> dict[str, float]:
    """Returns every measure of one question by name. Raises ValidationError without gold: recall is undefined then."""
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


def calibration(predicted: npt.NDArray[np.float64], is_positive: npt.NDArray[np.bool_]) -> dict[str, Any]:
    """Returns how good probabilities are, of which some are of positives: `n`, `positives`, `area`, `brier`, `bins`.

    `area` is that under the ROC curve, the chance that a positive has a higher probability than a negative (equal ones
    count half); `brier` the mean squared error (Brier, 1950); `bins` the reliability diagram: for each tenth of the
    scale that occurs, the mean probability (`predicted`), the share of positives (`observed`), and `n`. There is at
    least one positive and one negative.
    """
    negatives, positives = np.sort(predicted[~is_positive]), predicted[is_positive]
    below = [np.searchsorted(negatives, positives, side).mean() for side in ("left", "right")]
    places = np.minimum((predicted * BINS).astype(int), BINS - 1)
    return {
        "n": len(predicted),
        "positives": len(positives),
        "area": round(float(np.mean(below)) / len(negatives), CALIBRATION_DECIMALS),
        "brier": round(float(np.mean((predicted - is_positive) ** 2)), CALIBRATION_DECIMALS),
        "bins": [
            {
                "predicted": round(float(predicted[places == place].mean()), CALIBRATION_DECIMALS),
                "observed": round(float(is_positive[places == place].mean()), CALIBRATION_DECIMALS),
                "n": int((places == place).sum()),
            }
            for place in np.unique(places)
        ],
    }


@dataclass(frozen=True, slots=True)
class Difference:
    """The mean of paired differences over questions, and its interval: None for a single question."""

    mean: float
    low: float | None
    high: float | None


def paired_difference(
    first: Sequence[float], second: Sequence[float], *, resamples: int = RESAMPLES, seed: int = SEED
) -> Difference:
    """Returns the mean of first − second over questions, with its 95 % bootstrap interval.

    It is the percentile interval over questions drawn with replacement (Efron and Tibshirani, "An Introduction to the
    Bootstrap", 1993, ch. 13); the same seed gives the same interval. Raises ValidationError for sequences that are
    empty or of different lengths.
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
        indices = random.integers(
            len(differences), size=(min(_RESAMPLE_BATCH, resamples - len(means)), len(differences))
        )
        means.extend(differences[indices].mean(axis=1))
    return Difference(mean, *_percentile_interval(means))


def clustered_interval(
    clusters: Sequence[Sequence[float]], *, resamples: int = RESAMPLES, seed: int = SEED
) -> tuple[float, float] | None:
    """Returns the 95 % bootstrap interval of the mean of all values, where whole clusters are drawn with replacement.

    A cluster has the values of the questions about one conversation, at least one: they have more in common than those
    about different ones (Davison and Hinkley, "Bootstrap Methods and their Application", 1997, ch. 3.8). The same seed
    gives the same interval. None for fewer than two clusters.
    """
    number = len(clusters)
    if number < 2:  # noqa: PLR2004
        return None
    sums, counts = (np.asarray([measure(values) for values in clusters], dtype=np.float64) for measure in (sum, len))
    drawn = _draws(number, resamples, seed)
    return _percentile_interval((drawn @ sums) / (drawn @ counts))


@lru_cache(maxsize=8)
def _draws(number: int, resamples: int, seed: int) -> npt.NDArray[np.int32]:
    """Returns how often each of `number` clusters is drawn (resamples x number), each row with the sum `number`."""
    random = np.random.default_rng(seed)
    return random.multinomial(number, np.full(number, 1 / number), size=resamples).astype(np.int32)


def _percentile_interval(means: Sequence[float] | npt.NDArray[np.float64]) -> tuple[float, float]:
    low, high = np.percentile(means, [(100 - CONFIDENCE_LEVEL) / 2, (100 + CONFIDENCE_LEVEL) / 2])
    return float(low), float(high)
