"""Judges prompt blocks by what has to be in them, and what must not be. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from graphmem.retrieval.context import CLOSE, OPEN
from graphmem.retrieval.sentence_matching import sentences

# What a block may add inside a sentence, such as the date of "yesterday".
_ADDED = re.compile(r" ?\[[^\]]*\]")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a block shows: whether all that is needed, how many memories, and how many of these rightly.

    `shown` counts a memory as often as it is repeated; `right` counts it once. `characters` are those of the block.
    """

    is_in: bool
    shown: int
    right: int
    characters: int

    @property
    def is_silent(self) -> bool:
        """Whether the block is empty."""
        return not self.characters

    @property
    def is_exact(self) -> bool:
        """Whether the block shows all that is needed and nothing else, no memory twice."""
        return self.is_in and self.shown == self.right


def judge(block: str, stored: Iterable[str], needed: Collection[str], right: Collection[str]) -> Verdict:
    """Returns what `block` shows of the texts `stored`.

    `needed`: texts that have to be in it, memories or sentences of them (none if nothing answers); `right`: memories
    that may be in it. A block need not show memories whole or one to a line: a memory is shown if one of its sentences
    is, and what a block adds in square brackets does not count.
    """
    counts = shown_memories(block, stored)
    body = plain(block)
    return Verdict(
        is_in=bool(needed) and all(plain(part) in body for part in needed),
        shown=counts.total(),
        right=sum(text in right for text in counts),
        characters=len(block),
    )


def shown_memories(block: str, stored: Iterable[str]) -> Counter[str]:
    """Returns how often the block shows each memory: as often as the most frequent of its sentences.

    A sentence that is part of a longer one which is shown, is not shown by that.
    """
    holders = {plain(text[start:end]): text for text in stored for start, end in sentences(text)}
    body, counts = plain(block), Counter[str]()
    for sentence in sorted(holders, key=len, reverse=True):
        if times := body.count(sentence):
            counts[holders[sentence]] = max(counts[holders[sentence]], times)
            body = body.replace(sentence, "\n")
    return counts


def plain(text: str) -> str:
    """Returns a text or block without frame and additions in brackets, its white space joined."""
    return " ".join(_ADDED.sub("", text.removeprefix(OPEN).removesuffix(CLOSE)).split())
