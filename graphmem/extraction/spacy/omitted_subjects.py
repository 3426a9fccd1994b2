"""Completes the omitted subject of facts, which is the speaker: "Lives in Paris" is parsed as "I live in Paris".

Without a subject the parser takes "Lives" for a noun, and "Name" for the entity of "Name is John".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from graphmem.extraction.prose import normalize_for_parser
from graphmem.extraction.spacy.entity_typing import BIRTH_VERBS
from graphmem.extraction.spacy.possessive_relations import NOUN_TYPES
from graphmem.extraction.spacy.predicates import SUBJECTS, VERBS
from graphmem.extraction.spacy.relations import TRAIT_ADJECTIVES

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.tokens import Doc

_USER = re.compile(r"(?:the )?user('s)? ", re.IGNORECASE)
# Parts of speech allowed from the subject to its verb.
_VERB_GROUP_POS = frozenset(("ADV", "PART", "AUX", "VERB"))


def complete_subjects(nlp: Language, texts: Sequence[str]) -> list[list[tuple[str, str]]]:
    """Returns for each fact its sentences as (text with the omitted subject added, for the parser; text as written)."""
    written = [
        [stripped for sentence in doc.sents if (stripped := text[sentence.start_char : sentence.end_char].strip())]
        for text, doc in zip(texts, nlp.pipe(map(normalize_for_parser, texts)), strict=True)
    ]
    without_user = [_without_user(normalize_for_parser(sentence)) for sentences in written for sentence in sentences]
    docs_with_she = nlp.pipe(f"She {_lower_first_letter(sentence)}" for sentence in without_user)
    docs = zip(nlp.pipe(without_user), docs_with_she, strict=True)
    completed = iter([_complete(doc, doc_with_she) for doc, doc_with_she in docs])
    return [[(next(completed), sentence) for sentence in sentences] for sentences in written]


def _without_user(sentence: str) -> str:
    """Reduces "The user likes tea" to "likes tea", and "The user's dog" to "My dog": the user is the speaker."""
    match = _USER.match(sentence)
    if match is None:
        return sentence
    return ("My " if match[1] else "") + sentence[match.end() :]


def _complete(doc: Doc, doc_with_she: Doc) -> str:
    before_verb = (token for token in doc if token.dep_ in SUBJECTS and token.i < token.head.i)
    subject = next((token for token in before_verb if token.head.dep_ == "ROOT"), None)
    if subject is not None:
        # "My" is omitted before a noun at the start without article, owner, or "of".
        is_bare = subject.left_edge.i == 0 and not any(child.lower_ == "of" for child in subject.rights)
        is_common = subject.pos_ == "NOUN" and not subject.ent_type_ and doc[0].pos_ in ("NOUN", "ADJ")
        lacks_owner = is_bare and (is_common or doc[0].lower_ in NOUN_TYPES)
        return f"My {_lower_first_letter(doc.text)}" if lacks_owner else doc.text
    if doc and ((doc[0].tag_ == "JJ" and doc[0].dep_ == "ROOT") or doc[0].lower_ in TRAIT_ADJECTIVES | BIRTH_VERBS):
        return f"I am {_lower_first_letter(doc.text)}"
    return _in_first_person(doc_with_she) or doc.text


def _in_first_person(doc_with_she: Doc) -> str:
    """Turns a sentence with "She" into one with "I"; returns "" if "She" is not the subject of its verb."""
    she, verb = doc_with_she[0], doc_with_she[0].head
    verb_group = doc_with_she[1 : verb.i + 1]
    if she.dep_ not in SUBJECTS or verb.pos_ not in VERBS:
        return ""
    if any(token.pos_ not in _VERB_GROUP_POS for token in verb_group):
        return ""
    first_verb = next(token for token in verb_group if token.pos_ in VERBS)
    before = doc_with_she[1 : first_verb.i].text_with_ws
    after = first_verb.whitespace_ + doc_with_she[first_verb.i + 1 :].text
    if first_verb.tag_ == "VBZ":
        return f"I {before}{'am' if first_verb.lemma_ == 'be' else first_verb.lemma_}{after}"
    if first_verb.tag_ == "VBG":
        return f"I am {before}{first_verb.text}{after}"
    is_finite = first_verb.tag_ == "VBD" or (first_verb.tag_ == "MD" and verb.tag_ == "VB")
    return f"I {before}{first_verb.text}{after}" if is_finite else ""


def _lower_first_letter(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]
