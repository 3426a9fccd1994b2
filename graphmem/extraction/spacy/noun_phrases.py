"""Finds the tokens of a name, and the content words of a noun phrase, in a parse."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from graphmem.extraction.prose import INTERJECTIONS

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
# What follows a person's name and is none: generations and degrees.
NAME_SUFFIXES = frozenset("jr sr ii iii iv phd ph.d md m.d esq mba".split())
_NUMBER = re.compile(r"\d+(?:\.\d+)*[A-Za-z]?")
_YEAR = re.compile(r"1[5-9]\d\d|20\d\d")
# A number that the parser labels as a date by itself may be anything.
_MEASURES = QUANTITY_LABELS - {"CARDINAL", "DATE"}
# Without an article, a number behind one of these is an age or a score.
_UNNUMBERED_LABELS = frozenset(("PERSON", "GPE"))


def is_name(token: Token) -> bool:
    """Whether a token is a name or a part of one."""
    # Interjections are in lower case here: see `normalize_for_parser`.
    is_interjection = token.is_sent_start and token.text in INTERJECTIONS
    if token.pos_ != "PROPN" or token.ent_type_ in QUANTITY_LABELS or is_interjection:
        return False
    return token.lower_.rstrip(".") not in NAME_SUFFIXES or (token.i > 0 and is_name(token.nbor(-1)))


def bearer_of_suffix(token: Token) -> Token | None:
    """Returns "Whitford" for "Jr." in "Elias Whitford, Jr."; None for any other token."""
    is_suffix = token.i > 1 and token.lower_.rstrip(".") in NAME_SUFFIXES and token.nbor(-1).text == ","
    return token.nbor(-2) if is_suffix and is_name(token.nbor(-2)) else None


def name_span(token: Token) -> Span:
    """Returns all words of the name that contains `token`, with its numbers: "iPhone 15 Pro"."""
    doc, start, end = token.doc, token.i, token.i + 1
    while start > 0 and _are_one_name(doc[start - 1], doc[start]):
        start -= 1
    while end < len(doc) and _are_one_name(doc[end - 1], doc[end]):
        end += 1
    return doc[start:end]


def with_number(span: Span) -> Span:
    """Returns a name together with the number that follows and belongs to it: "Boeing 737"."""
    doc, end = span.doc, span.end
    while end < len(doc) and (is_number_of_name(doc[end]) or _continues_after_number(doc[end])):
        end += 1
    return doc[span.start : end]


def is_number_of_name(token: Token) -> bool:
    """Whether a number belongs to the word before it ("iPhone 14", "room 101") and counts nothing ("Paris 3 times")."""
    if token.i == 0 or not _NUMBER.fullmatch(token.text):
        return False
    named = token.nbor(-1)
    if named.whitespace_ != " " or named.pos_ not in ("PROPN", "NOUN") or named.lemma_ in EMPTY_NOUNS:
        return False
    if token.ent_iob_ == "I" and named.ent_type_ == token.ent_type_:
        return token.ent_type_ not in QUANTITY_LABELS
    return not _measures(token) and named.ent_type_ not in QUANTITY_LABELS and _is_attached(token, named)


def _measures(number: Token) -> bool:
    """Whether a number is a year, a part of a date, a score or a telephone number, or has a unit."""
    following = number.doc[number.i + 1 : number.i + 2]
    if number.ent_type_ in _MEASURES or _YEAR.fullmatch(number.text):
        return True
    is_part_of_date = number.ent_type_ == "DATE" and any(each.ent_iob_ == "I" for each in following)
    is_model = number.ent_type_ == "PRODUCT"  # "Boeing 737-800" is no score
    is_joined = not (number.whitespace_ or is_model) and following.text[:1] in tuple("-–/:%+")
    return is_part_of_date or is_joined or following.text[:1].isdigit()


def _is_attached(number: Token, named: Token) -> bool:
    """Whether the parse attaches a number to the word before it; a number behind a person mostly is an age."""
    if named.pos_ == "NOUN":
        return number.head == named and named.tag_ == "NN"
    if named.ent_type_ in _UNNUMBERED_LABELS and not any(child.dep_ in ("det", "poss") for child in named.lefts):
        return False
    # In "my iPhone 14 case", both belong to the case; in "Anna 2 cats", the number counts cats.
    return number.head.i < number.i or named.head in (number, number.head)


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
    if is_number_of_name(right):
        return is_name(left)
    if is_number_of_name(left):
        return is_name(left.nbor(-1)) and _continues_after_number(right)
    if _is_hyphen(left) or _is_hyphen(right):
        hyphen = left if _is_hyphen(left) else right
        return is_name(hyphen.nbor(-1)) and is_name(hyphen.nbor())
    two_entities = left.ent_type_ and right.ent_iob_ == "B"
    return is_name(left) and is_name(right) and not two_entities


def _continues_after_number(token: Token) -> bool:
    """Whether a word belongs to the name before a number: "Pro" of "iPhone 15 Pro"."""
    if token.i <= 1 or not token.text[0].isupper() or not is_number_of_name(token.nbor(-1)):
        return False
    named = token.nbor(-2)
    return token.pos_ in ("PROPN", "NOUN") and (named.head == token or token.head == named)


def _is_hyphen(token: Token) -> bool:
    """Whether a token is the hyphen of a word in two parts: "new-york"."""
    is_inside = 0 < token.i < len(token.doc) - 1
    return token.text == "-" and is_inside and not token.whitespace_ and not token.nbor(-1).whitespace_


def content_words(chunk: Span) -> list[Token]:
    """Returns the nouns, names and adjectives of a noun phrase that are no stop words, and numbers of names."""
    return [token for token in chunk if (token.pos_ in CONTENT_POS and not token.is_stop) or is_number_of_name(token)]


def lemmas(tokens: Sequence[Token]) -> str:
    """Returns the dictionary forms of words, joined by spaces."""
    return " ".join(token.lemma_ for token in tokens)


def partitive_head(token: Token) -> Token | None:
    """Returns "books" for "lot" in "a lot of books"; None without such a noun."""
    prepositions = (child for child in token.rights if child.lower_ == "of")
    return next((child for of in prepositions for child in of.rights if child.dep_ == "pobj"), None)
