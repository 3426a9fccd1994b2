"""Measures of an answer by its words, and of the agreement of two judges. Pure functions."""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Sequence
from statistics import fmean

import Stemmer

# Of LOCOMO: no other data has these names of categories.
_MULTI_HOP, _OPEN_DOMAIN = "1", "3"
# Words that LOCOMO leaves out, and those by which an answer says that nothing is told.
_LEFT_OUT = re.compile(r"\b(?:a|an|the|and)\b")
_NOT_TOLD = ("no information available", "not mentioned")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_WORD_OR_SIGN = re.compile(r"\w+|[^\w\s]")


def answer_f1(given: str, right: str, category: str, *, is_answerable: bool) -> float:
    """Returns LOCOMO's measure of an answer, 0 to 1, as its published evaluation computes it by category.

    In category 1 the parts of the right answer between commas count alike, each by the best part of the given answer;
    in category 3 only what is before a semicolon counts. An answer to what nothing answers is 1 if it says so in
    LOCOMO's words. Every other is `token_f1` (Maharana et al., 2024, section 4.1; `task_eval/evaluation.py`).
    """
    if not is_answerable:
        return float(any(words in given.lower() for words in _NOT_TOLD))
    if category == _MULTI_HOP:
        return fmean(max(token_f1(one, part) for one in given.split(",")) for part in right.split(","))
    return token_f1(given, right.partition(";")[0] if category == _OPEN_DOMAIN else right)


def token_f1(given: str, right: str) -> float:
    """Returns the harmonic mean of precision and recall of the stems, repetitions counted; 0 if none is common."""
    ours, theirs = (Counter(stems(text)) for text in (given, right))
    common = (ours & theirs).total()
    return 2 * common / (ours.total() + theirs.total()) if common else 0.0


def stems(text: str) -> list[str]:
    """Returns the stems of a text in lower case without punctuation, articles and "and".

    They are those of Porter (1980). LOCOMO's are NLTK's variant, which differs in few words ("dies", "sky").
    """
    words = _LEFT_OUT.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split()
    return list(Stemmer.Stemmer("porter").stemWords(words))


def bleu_1(given: str, right: str) -> float:
    """Returns the precision of the words in lower case, times the brevity penalty (Papineni et al., 2002), 0 to 1.

    Words and signs are as they stand, without stemming, as in the figures published for LOCOMO. A word counts at most
    as often as it is in the right answer. The penalty for g words, fewer than the r of the right answer, is
    exp(1 - r/g).
    """
    ours, theirs = (_WORD_OR_SIGN.findall(text.lower()) for text in (given, right))
    if not ours:
        return 0.0
    precision = (Counter(ours) & Counter(theirs)).total() / len(ours)
    return precision * min(1.0, math.exp(1 - len(theirs) / len(ours)))


def cohens_kappa(pairs: Sequence[tuple[bool, bool]]) -> float | None:
    """Returns the agreement of two judges beyond chance (Cohen, 1960), at most 1, for at least one pair.

    None if chance alone explains full agreement: both always gave one and the same verdict.
    """
    observed = fmean(first == second for first, second in pairs)
    first, second = (fmean(pair[place] for pair in pairs) for place in (0, 1))
    expected = first * second + (1 - first) * (1 - second)
    return None if expected == 1 else (observed - expected) / (1 - expected)
