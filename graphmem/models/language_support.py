"""Tells which texts MiniLM reads; the multilingual encoder reads them all."""

from __future__ import annotations

import re

from graphmem.models.minilm import MiniLM
from graphmem.models.script_support import script_of
from graphmem.models.use_multilingual import UseMultilingual

# MiniLM divides words of other languages than English into smaller pieces than the multilingual vocabulary does.
# Medians of this ratio: English .94 to 1, Spanish 1.3, German 1.5. Above this value are 97 % of everyday sentences in
# German, 84 % in Spanish, 1.5 % in English; .7 % of LOCOMO's questions, .05 % of its turns, .3 % of MuSiQue's passages.
MAX_PIECE_RATIO = 1.12
# The multilingual vocabulary has more numbers as one piece. With their digits, 1 % of MuSiQue's passages were above it.
_DIGIT = re.compile(r"\d")


def reads(text: str) -> bool:
    """Tells whether MiniLM reads a text: it is in Latin script and, by its words, in English. Raises EmbeddingError.

    A text without letters counts as read.
    """
    if script_of(text) is not None:
        return False
    words = _DIGIT.sub(" ", text)
    return MiniLM().count_pieces(words) <= MAX_PIECE_RATIO * UseMultilingual().count_pieces(words)
