"""Nouns of a parse: which tokens make one name, which words of a noun chunk say something."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from graphmem.extraction.segments import INTERJECTIONS

if TYPE_CHECKING:
    from spacy.tokens import Span, Token

# Amounts and dates are no entities: they would link memories that have nothing else in common.
QUANTITY_LABELS = frozenset(("CARDINAL", "ORDINAL", "PERCENT", "QUANTITY", "TIME", "DATE", "MONEY"))
CONTENT_POS = frozenset(("NOUN", "PROPN", "ADJ"))
# Words that name nothing by themselves: "a lot of books" is about books, "a lot" about nothing.
EMPTY_NOUNS = frozenset(
    """
    lot load ton plenty bunch couple kind sort type piece cup bit pair variety number thing stuff other way while much
    many more most enough few little less thank
    """.split()
)


def is_name(token: Token) -> bool:
    """Whether a word is (part of) a name."""
    # What is called out is in small letters by then: see `plain`.
    is_called_out = token.is_sent_start and token.text in INTERJECTIONS
    return token.pos_ == "PROPN" and token.ent_type_ not in QUANTITY_LABELS and not is_called_out


def name_span(token: Token) -> Span:
    """The words of a name around one of them."""
    doc, start, end = token.doc, token.i, token.i + 1
    while start > 0 and _are_one_name(doc[start - 1], doc[start]):
        start -= 1
    while end < len(doc) and _are_one_name(doc[end - 1], doc[end]):
        end += 1
    return doc[start:end]


def is_brand_modifier(token: Token) -> bool:
    """Toyota, of a Toyota Corolla."""
    return is_name(token) and token.dep_ == "compound"


def is_list(entity: Span) -> bool:
    """Two cats, taken for a company: "my cats, Miso and Tofu", "my cats are Miso and Tofu"."""
    root = entity.root
    described = [root.head] if root.dep_ == "appos" else []
    if root.dep_ == "attr":
        described = [child for child in root.head.children if child.dep_ == "nsubj"]
    return any(each.tag_ == "NNS" for each in described) and any(each.dep_ == "cc" for each in entity)


def _are_one_name(left: Token, right: Token) -> bool:
    two_entities = left.ent_type_ and right.ent_iob_ == "B"
    return is_name(left) and is_name(right) and not two_entities


def content_words(chunk: Span) -> list[Token]:
    """The words of a noun chunk that say something."""
    return [token for token in chunk if token.pos_ in CONTENT_POS and not token.is_stop]


def lemmas(tokens: Sequence[Token]) -> str:
    """Words as a dictionary has them."""
    return " ".join(token.lemma_ for token in tokens)


def partitive_head(token: Token) -> Token | None:
    """Books, in "a lot of books"."""
    of = (child for child in token.rights if child.lower_ == "of")
    return next((child for each in of for child in each.rights if child.dep_ == "pobj"), None)
