"""The subject that a fact leaves out, which is its speaker: "Lives in Paris" is read as "I live in Paris".

Without one the parser takes "Lives" for a noun, and "Name" of "Name is John" for whom it is about.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from graphmem.extraction.segments import normalize_for_parser
from graphmem.extraction.spacy.complements import TRAIT_ADJECTIVES
from graphmem.extraction.spacy.entity_typing import BIRTH_VERBS
from graphmem.extraction.spacy.noun_types import NOUN_TYPES
from graphmem.extraction.spacy.predicates import SUBJECTS, VERBS

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.tokens import Doc, Token

_USER = re.compile(r"(?:the )?user('s)? ", re.IGNORECASE)
# What may stand between a subject and its verb.
_BETWEEN = frozenset(("ADV", "PART", "AUX", "VERB"))


def complete_subjects(nlp: Language, texts: Sequence[str]) -> list[list[tuple[str, str]]]:
    """The sentences of each text: as they are to be read, and as they are written."""
    written = [
        [said for sentence in doc.sents if (said := text[sentence.start_char : sentence.end_char].strip())]
        for text, doc in zip(texts, nlp.pipe(map(normalize_for_parser, texts)), strict=True)
    ]
    bare = [_without_user(normalize_for_parser(sentence)) for sentences in written for sentence in sentences]
    with_she = nlp.pipe(f"She {_lowered(sentence)}" for sentence in bare)
    read = iter([_completed(doc, tried) for doc, tried in zip(nlp.pipe(bare), with_she, strict=True)])
    return [[(next(read), sentence) for sentence in sentences] for sentences in written]


def _without_user(sentence: str) -> str:
    """Likes tea, of "The user likes tea": the user is the speaker."""
    found = _USER.match(sentence)
    if found is None:
        return sentence
    return ("My " if found[1] else "") + sentence[found.end() :]


def _completed(doc: Doc, with_she: Doc) -> str:
    subject = _subject(doc)
    if subject is not None:
        return f"My {_lowered(doc.text)}" if _is_of_speaker(subject) else doc.text
    if doc and ((doc[0].tag_ == "JJ" and doc[0].dep_ == "ROOT") or doc[0].lower_ in TRAIT_ADJECTIVES | BIRTH_VERBS):
        return f"I am {_lowered(doc.text)}"
    return _first_person(with_she) or doc.text


def _subject(doc: Doc) -> Token | None:
    """The subject that stands before the main verb."""
    subjects = (token for token in doc if token.dep_ in SUBJECTS and token.i < token.head.i)
    return next((token for token in subjects if token.head.dep_ == "ROOT"), None)


def _is_of_speaker(subject: Token) -> bool:
    """Whether it is the speaker's: a noun of which nobody says whose or which it is."""
    first = subject.doc[0]
    if subject.left_edge.i > 0 or any(child.lower_ == "of" for child in subject.rights):
        return False
    is_common = subject.pos_ == "NOUN" and not subject.ent_type_ and first.pos_ in ("NOUN", "ADJ")
    return is_common or first.lower_ in NOUN_TYPES


def _first_person(with_she: Doc) -> str:
    """What was tried with "she", with "I"; "" if what follows her is not what she does."""
    she, verb = with_she[0], with_she[0].head
    words = with_she[1 : verb.i + 1]
    if she.dep_ not in SUBJECTS or verb.pos_ not in VERBS or any(token.pos_ not in _BETWEEN for token in words):
        return ""
    first = next(token for token in words if token.pos_ in VERBS)
    rest = with_she[first.i + 1 :].text
    before, after = with_she[1 : first.i].text_with_ws, first.whitespace_ + rest
    if first.tag_ == "VBZ":
        return f"I {before}{'am' if first.lemma_ == 'be' else first.lemma_}{after}"
    if first.tag_ == "VBG":
        return f"I am {before}{first.text}{after}"
    is_finite = first.tag_ == "VBD" or (first.tag_ == "MD" and verb.tag_ == "VB")
    return f"I {before}{first.text}{after}" if is_finite else ""


def _lowered(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]
