"""Matches of a query's characters and words with texts, for scripts that the embedder does not read. Pure.

Replaces `token_matching` there. In a script without spaces each character of the query matches a memory that has it
next to the same character as the query does, and partly one that has it anywhere. In other scripts each word of the
query matches itself and partly, as endings change, words with the same beginning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import log

import numpy as np
import numpy.typing as npt

from graphmem.folding import fold, without_marks
from graphmem.retrieval.token_matching import MatchMatrix
from graphmem.text import (
    FUNCTION_CHARACTERS,
    UNSPACED_RUN,
    approximate_length,
    bare_terms,
    term_id,
    tokens,
    tokens_with_and_without_marks,
)

# The match of a character without its neighbour, of a word in another spelling. Chinese chats, R@10: .3 51.4, .7 59.9,
# .85 58.7 (benchmarks/ABLATIONS.md, "Scripts that are not read").
PARTIAL_WEIGHT = 0.7
# A word between spaces weighs as much as this many characters, the usual length of a word in scripts without spaces.
CHARACTERS_PER_WORD = 2
# The least letters of a word's beginning, and its share of the word's letters.
MIN_STEM, STEM_SHARE = 4, 2 / 3
# Parts of a query that are compared, and characters of a text that are read.
MAX_PARTS, MAX_CHARS_READ = 64, 20_000


@dataclass(frozen=True, slots=True)
class QueryPart:
    """A character or word of a query: any of `whole` in a text is a full match, `prefix` a partial one ("": none).

    For a character, `whole` has the pairs of characters in which it stands, and `prefix` is the character. For a word,
    `whole` has the word as `text.tokens` gives it, and `prefix` is its beginning.
    """

    whole: tuple[str, ...]
    prefix: str
    is_word: bool = False


@dataclass(frozen=True, slots=True)
class CharacterMatches(MatchMatrix):
    """The matches of a query's characters and words with memories."""

    parts: Sequence[QueryPart] = field(kw_only=True)

    def with_texts(self, ids: Sequence[str], texts: Sequence[str]) -> CharacterMatches:
        """Returns these matches with memories, by their texts."""
        return self.with_rows(ids, self.nearest(texts), [approximate_length(text) for text in texts]) if ids else self

    def nearest(self, texts: Sequence[str]) -> npt.NDArray[np.float64]:
        """Returns how well each text matches each part of the query: (texts x parts), 0..1."""
        return np.array([self._row_of(fold(text[:MAX_CHARS_READ])) for text in texts]).reshape(
            len(texts), len(self.parts)
        )

    def _row_of(self, text: str) -> list[float]:
        characters = {*text, *map("".join, pairwise(text))}
        # Splitting a text into words is slow, so it is left out for a text that contains no word of the query, not even
        # without its last letter. Words with the same beginning are missed in such a text.
        bare_text = without_marks(text)
        may_match = any(part.is_word and without_marks(part.whole[0])[:-1] in bare_text for part in self.parts)
        words, bare_words = map(set, tokens_with_and_without_marks(text) if may_match else ((), ()))
        return [
            _word_match(part, words, bare_words) if part.is_word else _character_match(part, characters)
            for part in self.parts
        ]


def _character_match(part: QueryPart, characters: set[str]) -> float:
    if any(pair in characters for pair in part.whole):
        return 1.0
    return PARTIAL_WEIGHT if part.prefix in characters else 0.0


def _word_match(part: QueryPart, words: set[str], bare_words: set[str]) -> float:
    if part.whole[0] in words:
        return 1.0
    if not bare_words.isdisjoint(bare_terms(part.whole[0])):
        return PARTIAL_WEIGHT
    return PARTIAL_WEIGHT if part.prefix and any(word.startswith(part.prefix) for word in words) else 0.0


def character_matches(query: str, size: int, frequencies: Mapping[int, int]) -> CharacterMatches | None:
    """Returns the weighted parts of a query, with no memories added yet; None for a query without parts.

    A character weighs ln(1 + n / (df + 1)), as a token does, and a word `CHARACTERS_PER_WORD` times that. n is `size`,
    the number of memories in the partition; df is the least of the `frequencies` (by term id) of `QueryPart.whole`.
    Beyond `MAX_PARTS` only the heaviest parts are kept.
    """

    def weight(part: QueryPart) -> float:
        df = min((frequencies.get(term_id(term), 0) for term in part.whole), default=size)
        return log(1 + max(size, 1) / (df + 1)) * (CHARACTERS_PER_WORD if part.is_word else 1)

    part_weights = {part: weight(part) for part in _parts(fold(query))}
    parts = sorted(part_weights, key=lambda part: -part_weights[part])[:MAX_PARTS]
    if not parts:
        return None
    weights = np.array([part_weights[part] for part in parts])
    return CharacterMatches(weights / weights.sum(), parts=parts)


def _parts(query: str) -> Iterator[QueryPart]:
    for match in UNSPACED_RUN.finditer(query):
        run = match.group()
        for position, character in enumerate(run):
            if character not in FUNCTION_CHARACTERS:
                pairs = (run[start : start + 2] for start in (position - 1, position) if 0 <= start < len(run) - 1)
                yield QueryPart(tuple(pairs) or (character,), character)
    for word in tokens(UNSPACED_RUN.sub(" ", query)):
        yield QueryPart((word,), stem_prefix(word), is_word=True)


def stem_prefix(word: str) -> str:
    """Returns the beginning that a word shares with its inflected forms; "" for a word too short to cut."""
    beginning = word[: max(MIN_STEM, round(STEM_SHARE * len(word)))]
    return beginning if len(beginning) < len(word) else ""
