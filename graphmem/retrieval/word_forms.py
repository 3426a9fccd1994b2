"""Tells whether two words may be forms of one, in languages whose words the embedder does not read.

They begin alike, have one stem, or are one Arabic word with and without a prefix ("and", "in the"). Pure.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Collection, Iterable
from functools import lru_cache

import Stemmer  # type: ignore[import-not-found, unused-ignore]  # a C extension without stubs

from graphmem.retrieval.matching import MIN_STEM, stem_prefix
from graphmem.text import script_of

# Snowball's algorithm for most texts in a script. Its Arabic one leaves "والكتاب" as it is.
_ALGORITHMS = {"CYRILLIC": "russian", "GREEK": "greek", "DEVANAGARI": "hindi"}
# Arabic "and", "so", "in", "like", "for" before the article, of words of three letters, and alone, of words of four:
# fewer are mostly the word's own (ولد, كتاب).
_ARABIC_CLITICS = re.compile("[وف]?(?:[بك]?ال|لل)(?=.{3})|[وف]?[بكل](?=.{4})|[وف](?=.{4})")
_CACHE_SIZE = 2**14

_thread_local = threading.local()


def forms_of(words: Iterable[str]) -> frozenset[str]:
    """Returns folded words and their stems, by which `is_form` compares them."""
    return frozenset(form for word in words for form in word_forms(word))


def is_form(word: str, forms: Collection[str]) -> bool:
    """Whether a folded word may be a form of one of those of which these are `forms_of`."""
    own, beginnings = set(word_forms(word)), _beginnings(word)
    return any(form in own or form.startswith(beginnings) for form in forms)


@lru_cache(maxsize=_CACHE_SIZE)
def word_forms(word: str) -> tuple[str, ...]:
    """Returns a folded word and, if they are others, its stem and what is left of it without Arabic clitics."""
    script = None if word.isascii() else script_of(word)
    if script == "ARABIC":
        return tuple(dict.fromkeys((word, _ARABIC_CLITICS.sub("", word, count=1))))
    return tuple(dict.fromkeys((word, _stem(word, _ALGORITHMS[script])))) if script in _ALGORITHMS else (word,)


@lru_cache(maxsize=_CACHE_SIZE)
def _beginnings(word: str) -> tuple[str, ...]:
    """Returns what forms of a word begin with; nothing of one that is too short."""
    return tuple(stem_prefix(form) or form for form in word_forms(word) if len(form) >= MIN_STEM)


def _stem(word: str, algorithm: str) -> str:
    # A Stemmer has a buffer and must not be shared between threads.
    stemmer = getattr(_thread_local, algorithm, None)
    if stemmer is None:
        stemmer = Stemmer.Stemmer(algorithm)
        setattr(_thread_local, algorithm, stemmer)
    return str(stemmer.stemWord(word))
