"""Derives the answer types of a parsed text from its named entities. The scoring weights were measured with these."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from graphmem.folding import fold
from graphmem.model import AnswerType

if TYPE_CHECKING:
    from spacy.tokens import Doc

# spaCy's entity labels.
ANSWER_LABELS = {
    AnswerType.WHEN: frozenset(("DATE", "TIME")),
    AnswerType.NUMBER: frozenset(("CARDINAL", "ORDINAL", "QUANTITY", "MONEY")),
    AnswerType.DURATION: frozenset(("DATE", "TIME", "CARDINAL")),
    AnswerType.PLACE: frozenset(("GPE", "LOC", "FAC", "ORG")),
}
PERSON_LABELS = frozenset(("PERSON", "ORG", "NORP"))
# The parser does not label all of these as dates.
_RELATIVE_TIMES = re.compile(
    r"\b(?:yesterday|today|tonight|tomorrow|now|recently|lately|ago|last|next|soon|later|earlier|since|"
    r"(?:day|week|weekend|month|year)s?|morning|evening)\b",
    re.IGNORECASE,
)


def answer_types_of(doc: Doc, speaker: str) -> AnswerType:
    """Returns the answer types of a text. The name of `speaker` ("" for nobody) does not count as a person."""
    entities = doc.ents
    labels = {entity.label_ for entity in entities}
    types = AnswerType(0)
    for answer_type, type_labels in ANSWER_LABELS.items():
        if labels & type_labels:
            types |= answer_type
    if _RELATIVE_TIMES.search(doc.text):
        types |= AnswerType.WHEN
    first_name = fold(speaker.partition(" ")[0])
    if any(
        entity.label_ in PERSON_LABELS and not (first_name and first_name in fold(entity.text)) for entity in entities
    ):
        types |= AnswerType.PERSON
    return types
