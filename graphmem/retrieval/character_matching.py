"""Words compared by their signs, for questions in a script that the embedder does not read. Pure.

What `tokens` does by vectors, this does by the text itself: of a script written without spaces each sign of the
question is matched by a memory that has it beside the same sign as the question, and in part by one that has it at all;
of other scripts each word, and in part its beginning, as endings change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import log

import numpy as np
import numpy.typing as npt

from graphmem.retrieval.token_matching import MatchMatrix
from graphmem.text import FUNCTION_CHARACTERS, UNSPACED_RUN, approximate_length, case_folded, term_id, tokens

# What a sign by itself, or the beginning of a word, counts (benchmarks/ABLATIONS.md, "Scripts that are not read").
PARTIAL_WEIGHT = 0.7
# Signs that a word of a script without spaces mostly has: beside them, a word between spaces tells as much as so many.
CHARACTERS_PER_WORD = 2
# The least letters of a word's beginning, and the share of the word that it is.
MIN_STEM, STEM_SHARE = 4, 2 / 3
# Parts of a question that are compared, and characters that are read of a text.
MAX_PARTS, MAX_CHARS_READ = 64, 20_000


@dataclass(frozen=True, slots=True)
class QueryPart:
    """A sign or word of a question: matched by one of `whole`, and in part by `prefix` ("": by nothing).

    Of a script without spaces `whole` are the pairs of signs that it stands in, and `prefix` is the sign; of others
    `whole` is the word, as `text.tokens` gives it, and `prefix` its beginning.
    """

    whole: tuple[str, ...]
    prefix: str
    is_word: bool = False


@dataclass(slots=True)
class CharacterMatches(MatchMatrix):
    """The parts of a question compared with texts."""

    parts: Sequence[QueryPart] = field(kw_only=True)

    def add(self, ids: Sequence[str], texts: Sequence[str]) -> None:
        """Compares memories, given by their texts."""
        if ids:
            self.add_rows(ids, self.nearest(texts), [approximate_length(text) for text in texts])

    def nearest(self, texts: Sequence[str]) -> npt.NDArray[np.float64]:
        """How well each text matches each part of the question: a row for each text, 0..1 for each part."""
        return np.array([self._row(case_folded(text[:MAX_CHARS_READ])) for text in texts]).reshape(
            len(texts), len(self.parts)
        )

    def _row(self, text: str) -> list[float]:
        signs = {*text, *map("".join, pairwise(text))}
        # What a word begins with stands in most texts nowhere, which is seen at once.
        said = [part for part in self.parts if part.is_word and part.whole[0][: len(part.whole[0]) - 1] in text]
        words = set(tokens(text)) if said else set()
        return [_word(part, words) if part.is_word else _sign(part, signs) for part in self.parts]


def _sign(part: QueryPart, signs: set[str]) -> float:
    if any(one in signs for one in part.whole):
        return 1.0
    return PARTIAL_WEIGHT if part.prefix in signs else 0.0


def _word(part: QueryPart, words: set[str]) -> float:
    if part.whole[0] in words:
        return 1.0
    return PARTIAL_WEIGHT if part.prefix and any(word.startswith(part.prefix) for word in words) else 0.0


def character_matches(question: str, size: int, frequencies: Mapping[int, int]) -> CharacterMatches | None:
    """The parts of a question, in a partition of `size` memories of which `frequencies` hold each term; None: it has
    none.

    A sign tells ln(1 + n / (df + 1)) of its rarest term, as a token does, a word `CHARACTERS_PER_WORD` times that; of
    very many parts the most telling are taken.
    """

    def tells(part: QueryPart) -> float:
        held = min((frequencies.get(term_id(one), 0) for one in part.whole), default=size)
        return log(1 + max(size, 1) / (held + 1)) * (CHARACTERS_PER_WORD if part.is_word else 1)

    found = {part: tells(part) for part in _parts(case_folded(question))}
    parts = sorted(found, key=lambda part: -found[part])[:MAX_PARTS]
    if not parts:
        return None
    weights = np.array([found[part] for part in parts])
    return CharacterMatches(weights / weights.sum(), parts=parts)


def _parts(question: str) -> Iterator[QueryPart]:
    for found in UNSPACED_RUN.finditer(question):
        run = found.group()
        for place, sign in enumerate(run):
            if sign not in FUNCTION_CHARACTERS:
                pairs = (run[start : start + 2] for start in (place - 1, place) if 0 <= start < len(run) - 1)
                yield QueryPart(tuple(pairs) or (sign,), sign)
    for word in tokens(UNSPACED_RUN.sub(" ", question)):
        yield QueryPart((word,), stem_prefix(word), is_word=True)


def stem_prefix(word: str) -> str:
    """What other forms of a word begin with, as its ending changes; "" if it is too short to have any."""
    begun = word[: max(MIN_STEM, round(STEM_SHARE * len(word)))]
    return begun if len(begun) < len(word) else ""
