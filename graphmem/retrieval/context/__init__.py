"""The context: a delimited prompt block of the sentences that help to answer, marked as data. Pure.

Which memories it is made of is decided before, by their relevance (`retrieval.ranking`: `may_be_hits`, `_floor`); which
of their sentences it shows, by `packing`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import tzinfo
from typing import TYPE_CHECKING

from graphmem.retrieval.context.frame import (
    CLOSE,
    OPEN,
    Placement,
    block,
    inject_block,
    line_head,
    memory_line,
    one_line,
    said_once,
    speaker_of,
    speaker_shown,
    strip_block,
)
from graphmem.retrieval.context.packing import Size, pack
from graphmem.retrieval.context.sentence_values import Sentence
from graphmem.retrieval.sentence_matching import UNSPLIT_CHARS
from graphmem.text import body_start, cut_line
from graphmem.times import shown

if TYPE_CHECKING:
    from graphmem.model import MemoryRecord, SaidMessage
    from graphmem.retrieval.types import Hit

# Characters of the standing facts in a context, and of a memory in a line that answers no question.
STANDING_CHARS, LINE_CHARS = 300, 400
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
    "plain_lines",
    "said_once",
    "speaker_of",
    "strip_block",
]


def context_block(
    hits: Sequence[Hit],
    most: int,
    zone: tzinfo | None = None,
    size: Size = len,
    *,
    whole: bool = False,
    standing: Sequence[MemoryRecord] = (),
) -> str:
    """Returns the sentences of hits that are worth most as a block of at most `most` (in units of `size`); "" if empty.

    Each line begins with the day in `zone` (None: UTC), which is the asker's. `hits` have their `sentences`. `whole`
    takes memories as a whole. `standing` facts come first, in at most `STANDING_CHARS` characters, beside hits in at
    most half of the room; one that is among the hits stands there alone.
    """
    room = most - size(OPEN) - size(CLOSE)
    found = {hit.record.id for hit in hits}
    of_head = min(room // 2 if hits else room, size("x" * STANDING_CHARS))
    head = plain_lines((one for one in standing if one.id not in found), of_head, zone, size)
    sentences = list[Sentence]()
    for hit in hits:
        if whole:
            best, text = max(hit.sentences, key=lambda sentence: sentence.value), hit.record.text
            sentences.append(replace(best, number=0, span=(body_start(text), len(text))))
        elif len(hit.record.text) <= UNSPLIT_CHARS:
            sentences += hit.sentences
        else:  # of a long one those that are worth a good part of the best
            least = LEAST_SHARE * max(sentence.value for sentence in hit.sentences)
            sentences += [sentence for sentence in hit.sentences if sentence.value >= least]
    lines = head + pack(sentences, room - sum(map(size, head)), zone, size)
    return block(lines) if lines else ""


def plain_lines(
    records: Iterable[MemoryRecord | SaidMessage], most: int, zone: tzinfo | None = None, size: Size = len
) -> list[str]:
    """Returns memories as lines of a block, in this order, as many as have room in `most` (in units of `size`).

    Each begins with the day in `zone` (None: UTC). A text of more than `LINE_CHARS` characters is cut.
    """
    lines = []
    for record in records:
        text = cut_line(one_line(record.text), LINE_CHARS)
        day, speaker = shown(record.at, zone).date().isoformat(), speaker_shown(record.speaker, record.role)
        line = f"{line_head(day, speaker)}{text}\n"
        if (cost := size(line)) <= most:
            most -= cost
            lines.append(line)
    return lines
