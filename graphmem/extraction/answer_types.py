"""Which kinds of questions a parsed text may answer, from its named entities. The classes are the measured recipe's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from graphmem.model import AnswerType

if TYPE_CHECKING:
    from spacy.tokens import Doc

ANSWER_LABELS = {
    AnswerType.WHEN: frozenset(("DATE", "TIME")),
    AnswerType.NUMBER: frozenset(("CARDINAL", "ORDINAL", "QUANTITY", "MONEY")),
    AnswerType.DURATION: frozenset(("DATE", "TIME", "CARDINAL")),
    AnswerType.PLACE: frozenset(("GPE", "LOC", "FAC", "ORG")),
}
PERSON_LABELS = frozenset(("PERSON", "ORG", "NORP"))
# The parser does not take all of these for dates.
_RELATIVE = re.compile(
    r"\b(?:yesterday|today|tonight|tomorrow|now|recently|lately|ago|last|next|soon|later|earlier|since|"
    r"(?:day|week|weekend|month|year)s?|morning|evening)\b",
    re.IGNORECASE,
)


def answer_types_of(doc: Doc, speaker: str) -> AnswerType:
    """What a text tells of; `speaker` is whose own name tells nothing new ("" for nobody)."""
    entities = doc.ents
    labels = {entity.label_ for entity in entities}
    found = AnswerType(0)
    for tell, wanted in ANSWER_LABELS.items():
        if labels & wanted:
            found |= tell
    if _RELATIVE.search(doc.text):
        found |= AnswerType.WHEN
    first = speaker.partition(" ")[0].casefold()
    if any(entity.label_ in PERSON_LABELS and not (first and first in entity.text.casefold()) for entity in entities):
        found |= AnswerType.PERSON
    return found
