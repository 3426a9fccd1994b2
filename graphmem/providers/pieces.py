"""What is parsed at once: a text's title, and its paragraphs in pieces. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

# Characters parsed as one document: spaCy refuses a million, and takes some 5 kB of memory for each.
PIECE = 2_000

# The model was trained on straight apostrophes and takes "I\u2019m" for a name; lone surrogates, which JSON can carry,
# are no text to it. One character for another, so that offsets hold.
PLAIN = {ord("’"): "'", ord("ʼ"): "'"} | dict.fromkeys(range(0xD800, 0xE000), "\ufffd")

# Verbs of notes in which "I" is left out: the tagger takes "Met Greta" for a name.
_STARTS = re.compile(
    r"(?:^|(?<=[.!?] )|(?<=\n))(?:Met|Saw|Visited|Called|Phoned|Texted|Emailed|Messaged|Invited|Hired|Married|Asked"
    r"|Told|Helped|Interviewed|Contacted|Joined|Bought|Watched|Finished|Started|Adopted|Introduced|Hosted)(?= [A-Z])"
)
_BRACKETS = re.compile(r"\s*\([^)]*\)")
_PARAGRAPH = re.compile(r"\n\s*\n")


def title_forms(title: str) -> tuple[str, ...]:
    """Under what names a title is known: "Paris (Texas), a film" as well as "Paris (Texas)"."""
    return title, _BRACKETS.sub("", title), title.partition(",")[0]


def pieces(text: str) -> Iterator[str]:
    """The paragraphs of a text, those that are too long cut at the end of a sentence."""
    for paragraph in _PARAGRAPH.split(text):
        rest = paragraph.strip()
        while rest:
            end = _piece_end(rest)
            yield rest[:end].strip()
            rest = rest[end:].strip()


def _piece_end(text: str) -> int:
    if len(text) <= PIECE:
        return len(text)
    return max(text.rfind(mark, 1, PIECE) for mark in (". ", ".\n")) + 1 or text.rfind(" ", 1, PIECE) + 1 or PIECE


def plain(text: str) -> str:
    """A text as the parser reads it best, of the same length."""
    return _STARTS.sub(lambda found: found.group().lower(), text.translate(PLAIN))
