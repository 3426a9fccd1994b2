"""The context: a delimited prompt block of the sentences that help to answer, marked as data. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import tzinfo
from typing import TYPE_CHECKING

from graphmem.retrieval.context.frame import (
    CLOSE,
    OPEN,
    Placement,
    block,
    inject_block,
    memory_line,
    one_line,
    speaker_of,
    strip_block,
)
from graphmem.retrieval.context.packing import Size, pack
from graphmem.retrieval.context.sentence_values import Sentence
from graphmem.retrieval.sentence_matching import UNSPLIT_CHARS

if TYPE_CHECKING:
    from graphmem.retrieval.types import Hit

# What a sentence of a long memory has to be worth beside the best of its sentences.
LEAST_SHARE = 0.1

__all__ = [
    "CLOSE",
    "OPEN",
    "Placement",
    "Size",
    "block",
    "context_block",
    "inject_block",
    "memory_line",
    "one_line",
    "speaker_of",
    "strip_block",
]


def context_block(
    hits: Sequence[Hit], most: int, zone: tzinfo | None = None, size: Size = len, *, whole: bool = False
) -> str:
    """Returns the sentences of hits that are worth most as a block of at most `most` (in units of `size`); "" if empty.

    Each line begins with the day in `zone` (None: UTC), which is the asker's. `hits` have their `sentences`. `whole`
    takes memories as a whole.
    """
    sentences = [sentence for hit in hits for sentence in (_whole(hit) if whole else _worth_showing(hit))]
    lines = pack(sentences, most - size(OPEN) - size(CLOSE), zone, size)
    return block(lines) if lines else ""


def _worth_showing(hit: Hit) -> list[Sentence]:
    """Returns the sentences of a hit; of a long one those that are worth a good part of the best."""
    if len(hit.record.text) <= UNSPLIT_CHARS:
        return list(hit.sentences)
    least = LEAST_SHARE * max(sentence.value for sentence in hit.sentences)
    return [sentence for sentence in hit.sentences if sentence.value >= least]


def _whole(hit: Hit) -> list[Sentence]:
    best = max(hit.sentences, key=lambda sentence: sentence.value)
    return [replace(best, number=0, span=(0, len(hit.record.text)))]
