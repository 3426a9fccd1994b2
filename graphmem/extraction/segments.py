"""Prepares text for the parser: splits it into segments, lists forms of its title, normalises characters. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

# Maximum length of a document for the parser: spaCy refuses a million characters, and takes some 5 kB of memory for
# each.
SEGMENT_CHARS = 2_000

# The model was trained on straight apostrophes and takes "I\u2019m" for a name; it refuses lone surrogates, which JSON
# may contain. One character replaces one, so that offsets stay valid.
PLAIN_CHARACTERS = {ord("’"): "'", ord("ʼ"): "'"} | dict.fromkeys(range(0xD800, 0xE000), "\ufffd")

# Verbs that begin notes without "I"; the tagger takes "Met Greta" for a name.
_LEADING_VERBS = re.compile(
    r"(?:^|(?<=[.!?] )|(?<=\n))(?:Met|Saw|Visited|Called|Phoned|Texted|Emailed|Messaged|Invited|Hired|Married|Asked"
    r"|Told|Tell|Ask|Remember|Helped|Interviewed|Contacted|Joined|Bought|Watched|Finished|Started|Adopted|Introduced"
    r"|Hosted)(?= [A-Z])"
)

# Interjections that never begin a name: "Congrats Anna", "Wow".
OPENINGS = frozenset(
    """
    wow yep yup yeah nope nah hey hi hello thanks congrats congratulations glad lol haha ok okay oh hmm bye yay woohoo
    hooray woah whoa aw aww awww phew oof oops ouch yum damn dang gosh geez jeez yikes ugh omg fyi gotcha lemme
    y'all cheers awesome agreed sorry please honestly seriously anytime
    """.split()
)
# Interjections before a comma or an exclamation mark ("Imagine, Greta is moving"); otherwise they may begin a name.
_AMBIGUOUS_OPENINGS = frozenset(
    """
    imagine guess listen look see wait remember believe trust dude man bro buddy super cool good great brave well
    """.split()
)
INTERJECTIONS = OPENINGS | _AMBIGUOUS_OPENINGS
_LEADING_INTERJECTIONS = re.compile(
    rf"(?:^|(?<=[.!?] )|(?<=\n))"
    rf"(?:(?:{'|'.join(sorted(OPENINGS))})\b|(?:{'|'.join(sorted(_AMBIGUOUS_OPENINGS))})(?=[,!]))",
    re.IGNORECASE,
)
_BRACKETS = re.compile(r"\s*\([^)]*\)")
_PARAGRAPH = re.compile(r"\n\s*\n")


def title_forms(title: str) -> tuple[str, ...]:
    """Returns a title as written, without brackets, and up to its first comma: other texts may use either form."""
    return title, _BRACKETS.sub("", title), title.partition(",")[0]


def segments(text: str) -> Iterator[str]:
    """Yields the paragraphs of a text; cuts those over `SEGMENT_CHARS` at the end of a sentence, else at a space."""
    for paragraph in _PARAGRAPH.split(text):
        rest = paragraph.strip()
        while rest:
            end = _segment_end(rest)
            yield rest[:end].strip()
            rest = rest[end:].strip()


def _segment_end(text: str) -> int:
    if len(text) <= SEGMENT_CHARS:
        return len(text)
    return (
        max(text.rfind(mark, 1, SEGMENT_CHARS) for mark in (". ", ".\n")) + 1
        or text.rfind(" ", 1, SEGMENT_CHARS) + 1
        or SEGMENT_CHARS
    )


def normalize_for_parser(text: str) -> str:
    """Returns a text of equal length with straight apostrophes, and leading verbs and interjections in lower case."""
    normalized = text.translate(PLAIN_CHARACTERS)
    for pattern in (_LEADING_VERBS, _LEADING_INTERJECTIONS):
        normalized = pattern.sub(lambda match: match.group().lower(), normalized)
    return normalized
