"""What is parsed at once: a text's title, and its paragraphs in pieces. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

# Characters parsed as one document: spaCy refuses a million, and takes some 5 kB of memory for each.
SEGMENT_CHARS = 2_000

# The model was trained on straight apostrophes and takes "I\u2019m" for a name; lone surrogates, which JSON can carry,
# are no text to it. One character for another, so that offsets hold.
PLAIN_CHARACTERS = {ord("’"): "'", ord("ʼ"): "'"} | dict.fromkeys(range(0xD800, 0xE000), "\ufffd")

# Verbs of notes in which "I" is left out: the tagger takes "Met Greta" for a name.
_STARTS = re.compile(
    r"(?:^|(?<=[.!?] )|(?<=\n))(?:Met|Saw|Visited|Called|Phoned|Texted|Emailed|Messaged|Invited|Hired|Married|Asked"
    r"|Told|Tell|Ask|Remember|Helped|Interviewed|Contacted|Joined|Bought|Watched|Finished|Started|Adopted|Introduced"
    r"|Hosted)(?= [A-Z])"
)

# What is called out before anything is said: "Congrats Anna", "Wow".
OPENINGS = frozenset(
    """
    wow yep yup yeah nope nah hey hi hello thanks congrats congratulations glad lol haha ok okay oh hmm bye yay woohoo
    hooray woah whoa aw aww awww phew oof oops ouch yum damn dang gosh geez jeez yikes ugh omg fyi gotcha lemme
    y'all cheers awesome agreed sorry please honestly seriously anytime
    """.split()
)
# May also begin a name, unless a comma or an exclamation mark follows: "Imagine, Greta is moving".
_CALLS = frozenset(
    """
    imagine guess listen look see wait remember believe trust dude man bro buddy super cool good great brave well
    """.split()
)
INTERJECTIONS = OPENINGS | _CALLS
_CALLED_OUT = re.compile(
    rf"(?:^|(?<=[.!?] )|(?<=\n))(?:(?:{'|'.join(sorted(OPENINGS))})\b|(?:{'|'.join(sorted(_CALLS))})(?=[,!]))",
    re.IGNORECASE,
)
_BRACKETS = re.compile(r"\s*\([^)]*\)")
_PARAGRAPH = re.compile(r"\n\s*\n")


def title_forms(title: str) -> tuple[str, ...]:
    """Under what names a title is known: "Paris (Texas), a film" as well as "Paris (Texas)"."""
    return title, _BRACKETS.sub("", title), title.partition(",")[0]


def segments(text: str) -> Iterator[str]:
    """The paragraphs of a text, those that are too long cut at the end of a sentence."""
    for paragraph in _PARAGRAPH.split(text):
        rest = paragraph.strip()
        while rest:
            end = _piece_end(rest)
            yield rest[:end].strip()
            rest = rest[end:].strip()


def _piece_end(text: str) -> int:
    if len(text) <= SEGMENT_CHARS:
        return len(text)
    return (
        max(text.rfind(mark, 1, SEGMENT_CHARS) for mark in (". ", ".\n")) + 1
        or text.rfind(" ", 1, SEGMENT_CHARS) + 1
        or SEGMENT_CHARS
    )


def normalize_for_parser(text: str) -> str:
    """A text as the parser reads it best, of the same length."""
    straight = text.translate(PLAIN_CHARACTERS)
    for pattern in (_STARTS, _CALLED_OUT):
        straight = pattern.sub(lambda found: found.group().lower(), straight)
    return straight
