"""Which kinds of questions a parsed text may answer, from its named entities. The classes are the measured recipe's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from graphmem.model import Tells

if TYPE_CHECKING:
    from spacy.tokens import Doc

LABELS = {
    Tells.WHEN: frozenset(("DATE", "TIME")),
    Tells.NUMBER: frozenset(("CARDINAL", "ORDINAL", "QUANTITY", "MONEY")),
    Tells.DURATION: frozenset(("DATE", "TIME", "CARDINAL")),
    Tells.PLACE: frozenset(("GPE", "LOC", "FAC", "ORG")),
}
PEOPLE = frozenset(("PERSON", "ORG", "NORP"))
# The parser does not take all of these for dates.
_RELATIVE = re.compile(
    r"\b(?:yesterday|today|tonight|tomorrow|now|recently|lately|ago|last|next|soon|later|earlier|since|"
    r"(?:day|week|weekend|month|year)s?|morning|evening)\b",
    re.IGNORECASE,
)


def tells_of(doc: Doc, speaker: str) -> Tells:
    """What a text tells of; `speaker` is whose own name tells nothing new ("" for nobody)."""
    entities = doc.ents
    labels = {entity.label_ for entity in entities}
    found = Tells(0)
    for tell, wanted in LABELS.items():
        if labels & wanted:
            found |= tell
    if _RELATIVE.search(doc.text):
        found |= Tells.WHEN
    first = speaker.partition(" ")[0].casefold()
    if any(entity.label_ in PEOPLE and not (first and first in entity.text.casefold()) for entity in entities):
        found |= Tells.PERSON
    return found
