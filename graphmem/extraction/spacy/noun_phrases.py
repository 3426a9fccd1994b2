"""Finds the tokens of a name, and the content words of a noun phrase, in a parse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from graphmem.extraction.segments import INTERJECTIONS

if TYPE_CHECKING:
    from spacy.tokens import Span, Token

# Amounts and dates are no entities: they would link memories that have nothing else in common.
QUANTITY_LABELS = frozenset(("CARDINAL", "ORDINAL", "PERCENT", "QUANTITY", "TIME", "DATE", "MONEY"))
CONTENT_POS = frozenset(("NOUN", "PROPN", "ADJ"))
# Nouns that name nothing by themselves: "a lot of books" is about books, "a lot" about nothing.
EMPTY_NOUNS = frozenset(
    """
    lot load ton plenty bunch couple kind sort type piece cup bit pair variety number thing stuff other way while much
    many more most enough few little less thank
    """.split()
)


def is_name(token: Token) -> bool:
    """Whether a token is a name or a part of one."""
    # Interjections are in lower case here: see `normalize_for_parser`.
    is_interjection = token.is_sent_start and token.text in INTERJECTIONS
    return token.pos_ == "PROPN" and token.ent_type_ not in QUANTITY_LABELS and not is_interjection


def name_span(token: Token) -> Span:
    """Returns all words of the name that contains `token`."""
    doc, start, end = token.doc, token.i, token.i + 1
    while start > 0 and _are_one_name(doc[start - 1], doc[start]):
        start -= 1
    while end < len(doc) and _are_one_name(doc[end - 1], doc[end]):
        end += 1
    return doc[start:end]


def is_brand_modifier(token: Token) -> bool:
    """Whether a token is like "Toyota" in "a Toyota Corolla"."""
    return is_name(token) and token.dep_ == "compound"


def is_list(entity: Span) -> bool:
    """Whether spaCy took several names for one entity: "my cats, Miso and Tofu", "my cats are Miso and Tofu"."""
    root = entity.root
    nouns = [root.head] if root.dep_ == "appos" else []
    if root.dep_ == "attr":
        nouns = [child for child in root.head.children if child.dep_ == "nsubj"]
    return any(noun.tag_ == "NNS" for noun in nouns) and any(token.dep_ == "cc" for token in entity)


def _are_one_name(left: Token, right: Token) -> bool:
    two_entities = left.ent_type_ and right.ent_iob_ == "B"
    return is_name(left) and is_name(right) and not two_entities


def content_words(chunk: Span) -> list[Token]:
    """Returns the nouns, names and adjectives of a noun phrase that are no stop words."""
    return [token for token in chunk if token.pos_ in CONTENT_POS and not token.is_stop]


def lemmas(tokens: Sequence[Token]) -> str:
    """Returns the dictionary forms of words, joined by spaces."""
    return " ".join(token.lemma_ for token in tokens)


def partitive_head(token: Token) -> Token | None:
    """Returns "books" for "lot" in "a lot of books"; None without such a noun."""
    prepositions = (child for child in token.rights if child.lower_ == "of")
    return next((child for of in prepositions for child in of.rights if child.dep_ == "pobj"), None)
