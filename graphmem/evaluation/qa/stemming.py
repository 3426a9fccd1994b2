"""Stems of English words, as LOCOMO's evaluation takes them: by the PorterStemmer of NLTK in its default mode.

It is the algorithm of Porter (1980, "An algorithm for suffix stripping") with NLTK's changes (`nltk/stem/porter.py`,
NLTK_EXTENSIONS): a word of two letters is its own stem ("is" is not "i"), a "y" after a vowel stays ("play"), one after
a consonant becomes "i" in short words, too ("fly" as "flies"), and some words are irregular.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache

_IRREGULAR = {
    "skies": "sky", "sky": "sky", "dying": "die", "lying": "lie", "tying": "tie", "news": "news", "innings": "inning",
    "inning": "inning", "outings": "outing", "outing": "outing", "cannings": "canning", "canning": "canning",
    "howe": "howe", "proceed": "proceed", "exceed": "exceed", "succeed": "succeed",
}  # fmt: skip
_SHORT, _SHORT_WITH_ENDING = 2, 4
_PLURALS = (("sses", "ss"), ("ies", "i"), ("ss", "ss"), ("s", ""))
_AFTER_ED_AND_ING = (("at", "ate"), ("bl", "ble"), ("iz", "ize"))
_STEP_2 = (
    ("ational", "ate"), ("tional", "tion"), ("enci", "ence"), ("anci", "ance"), ("izer", "ize"), ("bli", "ble"),
    ("alli", "al"), ("entli", "ent"), ("eli", "e"), ("ousli", "ous"), ("ization", "ize"), ("ation", "ate"),
    ("ator", "ate"), ("alism", "al"), ("iveness", "ive"), ("fulness", "ful"), ("ousness", "ous"), ("aliti", "al"),
    ("iviti", "ive"), ("biliti", "ble"), ("fulli", "ful"),
)  # fmt: skip
_STEP_3 = (
    ("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic"), ("ical", "ic"), ("ful", ""), ("ness", ""),
)  # fmt: skip
_STEP_4 = tuple(
    (ending, "") for ending in "al ance ence er ic able ible ant ement ment ent ion ou ism ate iti ous ive ize".split()
)


@cache
def stem(word: str) -> str:
    """Returns the stem of a word in lower case."""
    if word in _IRREGULAR or len(word) <= _SHORT:
        return _IRREGULAR.get(word, word)
    word = _without_plural(word)
    word = _without_past(word)
    if word.endswith("y") and len(word) > _SHORT and _sounds(word)[-2] == "c":
        word = f"{word[:-1]}i"
    word = _step_2(word)
    word = _replaced(word, _STEP_3, _has_syllable)
    word = _replaced(word, _STEP_4, _has_two)
    if word.endswith("e") and (_has_two(word[:-1]) or (_has_syllable(word[:-1]) and not _ends_short(word[:-1]))):
        word = word[:-1]
    return word[:-1] if word.endswith("ll") and _has_two(word[:-1]) else word


def _sounds(word: str) -> str:
    """Returns "c" for each consonant of a word and "v" for each vowel; a "y" after a consonant is a vowel."""
    sounds = ""
    for letter in word:
        is_vowel = letter in "aeiou" or (letter == "y" and sounds.endswith("c"))
        sounds += "v" if is_vowel else "c"
    return sounds


def _syllables(stem: str) -> int:
    """Returns Porter's measure m: how often a vowel is followed by a consonant."""
    return _sounds(stem).count("vc")


def _has_syllable(stem: str) -> bool:
    return _syllables(stem) > 0


def _has_two(stem: str) -> bool:
    return _syllables(stem) > 1


def _ends_short(stem: str) -> bool:
    """Whether a stem ends in consonant, vowel and consonant as "hop" does, or is as "us" (Porter's *o)."""
    sounds = _sounds(stem)
    return sounds == "vc" or (sounds.endswith("cvc") and stem[-1] not in "wxy")


def _replaced(word: str, endings: Sequence[tuple[str, str]], may: Callable[[str], bool]) -> str:
    """Returns the word with the first of its endings replaced, if `may` allows it for what is before; else as it is."""
    for ending, other in endings:
        if word.endswith(ending):
            before = word.removesuffix(ending)
            allowed = may(before) and (ending != "ion" or before[-1] in "st")
            return before + other if allowed else word
    return word


def _without_plural(word: str) -> str:
    if len(word) == _SHORT_WITH_ENDING and word.endswith("ies"):
        return word[:-1]
    return _replaced(word, _PLURALS, lambda _: True)


def _without_past(word: str) -> str:
    if word.endswith("ied"):
        return word[:-1] if len(word) == _SHORT_WITH_ENDING else word[:-2]
    if word.endswith("eed"):
        return word[:-1] if _has_syllable(word[:-3]) else word
    stem = re.sub("(?:ed|ing)$", "", word)
    if stem == word or "v" not in _sounds(stem):
        return word
    if (longer := _replaced(stem, _AFTER_ED_AND_ING, lambda _: True)) != stem:
        return longer
    if stem[-1:] == stem[-2:-1] and _sounds(stem).endswith("c"):
        return stem if stem[-1] in "lsz" else stem[:-1]
    return f"{stem}e" if _syllables(stem) == 1 and _ends_short(stem) else stem


def _step_2(word: str) -> str:
    if word.endswith("alli") and _has_syllable(word[:-4]):
        return _step_2(word[:-2])
    if word.endswith("logi"):
        return word[:-1] if _has_syllable(word[:-3]) else word
    return _replaced(word, _STEP_2, _has_syllable)
