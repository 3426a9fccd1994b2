"""Judges prompt blocks: which sentences of the gold messages answer a question, and whether a block shows them; and
whether it has what it must have, and nothing of what it must not.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import fmean

import numpy as np

from graphmem.evaluation.datasets import BenchmarkQuestion
from graphmem.plugins import Matrix
from graphmem.retrieval.context import CLOSE, OPEN, one_line
from graphmem.retrieval.sentence_matching import sentences
from graphmem.retrieval.temporal import periods_in
from graphmem.text import mostly_latin, query_tokens, split_title, tokens

# Only whether a sentence names a time counts, not which.
_ANY_DAY = datetime(2023, 6, 15, tzinfo=UTC)
Embed = Callable[[Sequence[str]], Sequence[Matrix]]
# What a block may add inside a sentence, such as the date of "yesterday".
_ADDED = re.compile(r" ?\[[^\]]*\]")


@dataclass(frozen=True, slots=True)
class Evidence:
    """A gold message and the sentences of it that answer, as a block shows them: one line, no angle brackets."""

    message: str
    sentences: tuple[str, ...]


def evidence_of(text: str, case: BenchmarkQuestion, embed: Embed) -> Evidence:
    """Returns what of a gold message answers a question.

    Of a message with several sentences these are: those that name a time if the answer is one; else those that have a
    word of the answer which is not in the question; else, and without an answer, the one nearest to question and
    answer: by cosine, or by shared words in a script that the default embedder does not read. A title does not count.
    """
    _, body = split_title(text)
    candidates = list(dict.fromkeys(one_line(body[start:end]) for start, end in sentences(body)))
    message = one_line(body)
    if len(candidates) < 2:  # noqa: PLR2004
        return Evidence(message, (message,))
    words = set(tokens(case.answer)) - set(tokens(case.question))
    answering: list[str] = []
    if case.answer and periods_in(case.answer, _ANY_DAY):
        answering = [sentence for sentence in candidates if periods_in(sentence, _ANY_DAY)]
    answering = answering or [sentence for sentence in candidates if words & set(tokens(sentence))]
    return Evidence(
        message, tuple(answering or [_nearest(candidates, f"{case.question} {case.answer}".strip(), embed)])
    )


def _nearest(candidates: Sequence[str], question: str, embed: Embed) -> str:
    if not mostly_latin(question):
        terms = set(query_tokens(question))
        return max(candidates, key=lambda sentence: len(terms & set(tokens(sentence))))
    asked, *told = (matrix.mean(axis=0) for matrix in embed([question, *candidates]))
    cosines = [float(asked @ vector) / float(np.linalg.norm(asked) * np.linalg.norm(vector) or 1) for vector in told]
    return candidates[int(np.argmax(cosines))]


def shares(block: str, evidence: Sequence[Evidence]) -> tuple[float, float]:
    """Returns the share of gold messages whose answering sentences are in the block, and of those in it as a whole.

    What a block adds in square brackets, such as the date of "yesterday", does not count; a sentence that is nothing
    but brackets, such as the caption of a picture, has to be in it as it is.
    """
    literal, body = one_line(block), plain(block)

    def is_in(text: str) -> bool:
        return text in literal or (plain(text) or text) in body

    return (
        fmean(all(map(is_in, one.sentences)) for one in evidence),
        fmean(is_in(one.message) for one in evidence),
    )


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
