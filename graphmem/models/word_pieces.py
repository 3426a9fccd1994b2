"""BERT's division of a text into word pieces, as MiniLM was trained with it: lower case, no accents.

Words are what stands between blanks; a Chinese character or a sign of punctuation is a word of its own. Each word is
divided into the longest pieces of a vocabulary, from its beginning. Source: Devlin et al. (2019), BERT, and
`tokenization.py` of https://github.com/google-research/bert.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from string import punctuation
from unicodedata import category, normalize

UNKNOWN = "[UNK]"
# A longer word is unknown.
MAX_WORD_CHARS = 100
# What stands between blanks is divided the same wherever it stands: of so many short runs the division is remembered,
# as a context divides the same words over and over.
MAX_REMEMBERED_CHARS, MAX_REMEMBERED = 32, 16_384
# Han alone: kana and Hangul form words.
_CHINESE = re.compile(
    "[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002a6df\U0002a700-\U0002b81f\U0002b920-\U0002ceaf\U0002f800-\U0002fa1f]"
)


class WordPieces:
    """A vocabulary, by the ids of its pieces. A piece that continues a word begins with "##". Thread-safe."""

    def __init__(self, vocabulary: Mapping[str, int]) -> None:
        self._vocabulary = vocabulary
        self._remembered = lru_cache(MAX_REMEMBERED)(self._divide)

    def encode(self, text: str) -> tuple[list[int], list[int]]:
        """Returns the ids of a text's word pieces, and for each the offset of its first character in the text."""
        ids, offsets = list[int](), list[int]()
        start = 0
        for run in text.replace("\n", " ").split(" "):
            if run:
                divide = self._remembered if len(run) <= MAX_REMEMBERED_CHARS else self._divide
                run_ids, places = divide(run)
                ids += run_ids
                if len(places) == 1:  # as nearly all words
                    offsets.append(start + places[0])
                else:
                    offsets += [start + place for place in places]
            start += len(run) + 1
        return ids, offsets

    def _divide(self, run: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        pieces = [(piece, places[start]) for word, places in _words(run) for piece, start in self._pieces(word)]
        return tuple(piece for piece, _ in pieces), tuple(place for _, place in pieces)

    def _pieces(self, word: str) -> list[tuple[int, int]]:
        """Returns the ids of a word's pieces with their offsets in it: one for the whole word if a part is unknown."""
        unknown = [(self._vocabulary[UNKNOWN], 0)]
        if len(word) > MAX_WORD_CHARS:
            return unknown
        pieces = list[tuple[int, int]]()
        start = 0
        while start < len(word):
            prefix = "##" if start else ""
            for end in range(len(word), start, -1):
                if (piece := self._vocabulary.get(prefix + word[start:end])) is not None:
                    break
            else:
                return unknown
            pieces.append((piece, start))
            start = end
        return pieces


def _words(run: str) -> Iterator[tuple[str, list[int]]]:
    """Yields normalised words, each with its characters' offsets in the run."""
    word, places = "", list[int]()
    for place, char in enumerate(run):
        for normalised, stands_alone in _normalise(char):
            if word and (stands_alone or normalised == " "):
                yield word, places
                word, places = "", []
            if stands_alone:
                yield normalised, [place]
            elif normalised != " ":
                word += normalised
                places.append(place)
    if word:
        yield word, places


@lru_cache(MAX_REMEMBERED)
def _normalise(char: str) -> list[tuple[str, bool]]:
    """Returns what a character becomes, mostly one character or none, and whether each is a word of its own."""
    if char in "\t\r":
        return [(" ", False)]
    if char == "\ufffd" or category(char) in {"Cc", "Cf", "Co", "Cs"}:
        return []
    if char.isspace():
        return [(" ", False)]
    is_chinese = _CHINESE.match(char) is not None
    letters = "".join(part for part in normalize("NFD", char) if category(part) != "Mn").lower()
    return [(letter, is_chinese or letter in punctuation or category(letter)[0] == "P") for letter in letters]
