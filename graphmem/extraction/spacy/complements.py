"""Finds the complements of a verb: objects, complements of "be", and nouns attached to either by prepositions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from graphmem.extraction.spacy.possessive_relations import referent
from graphmem.extraction.spacy.predicates import VERBS, is_passive, predicate
from graphmem.extraction.spacy.triples import DIRECT, INDIRECT

if TYPE_CHECKING:
    from spacy.tokens import Token

OBJECTS = frozenset(("dobj", "obj", "attr", "oprd"))
# Adjectives that are a complement of "be" by themselves. Moods and looks are left out as no lasting facts.
TRAIT_ADJECTIVES = frozenset(
    """
    vegetarian vegan pregnant diabetic asthmatic autistic dyslexic blind deaf married divorced widowed engaged single
    retired unemployed left-handed religious
    """.split()
)
# Prepositions that hedge or open a sentence; they yield no relation.
LOOSE_PREPOSITIONS = frozenset("besides despite except regarding unlike including because due since".split())
IDIOMS = frozenset(
    """
    on_note on_hand by_way on_way in_way of_course in_fact in_meantime in_hope in_case on_top at_moment at_time for_sure
    at_end in_end to_end on_side in_corner in_mind at_least for_sake
    """.split()
)
ROLE_VERBS = frozenset("work serve act volunteer train study start live know regard describe".split())
SIMILE_VERBS = frozenset("be look sound feel taste smell seem act become".split())
LOCATIVE_PREPOSITIONS = frozenset(("in", "at", "near", "from"))
# Verbs without a place of action: "I love the Louvre in Paris" does not state where I love.
STATIVE_VERBS = frozenset("be love like hate prefer know want need miss remember recommend mean mention".split())


@dataclass(frozen=True, slots=True)
class Complement:
    """A predicate, with the preposition if there is one, and the token of its object."""

    predicate: str
    target: Token
    confidence: float = DIRECT


def complements(verb: Token) -> Iterator[Complement]:
    """Yields the complements of a verb, each with its predicate."""
    base = predicate(verb)
    is_existential = any(child.dep_ == "expl" for child in verb.children)
    for child in verb.children:
        if child.dep_ in OBJECTS and not is_existential:
            yield from (Complement(negated(base) if _is_negated(token) else base, token) for token in conjuncts(child))
            yield from _complements_of_object(base, verb, child)
        if child.dep_ == "dative" and child.pos_ != "ADP":
            yield Complement(f"{base} to", child)
        if child.dep_ == "xcomp" and child.tag_ == "VBG" and not any(token.dep_ == "dobj" for token in child.children):
            yield Complement(base, child)
        if child.dep_ == "acomp" and _is_trait(child):
            yield Complement(base, child)
        if child.dep_ in ("acomp", "attr") and not child.ent_type_:
            # "allergic to nuts", "CEO of Acme"
            yield from prepositional(base if is_existential else f"{base} {child.lemma_.lower()}", child)
    for complement in prepositional(base, verb):
        yield replace(complement, confidence=min(complement.confidence, INDIRECT))


def _is_trait(adjective: Token) -> bool:
    has_preposition = any(child.dep_ == "prep" for child in adjective.children)
    return not has_preposition and (adjective.lower_ in TRAIT_ADJECTIVES or adjective.ent_type_ == "NORP")


def prepositional(base: str, head: Token) -> Iterator[Complement]:
    """Yields the prepositional objects of `head`, verb or noun; the predicate is `base` with the preposition."""
    for preposition in head.children:
        if preposition.lower_ in ("next", "close") and preposition.dep_ == "advmod":
            yield from prepositional(f"{base} {preposition.lower_}", preposition)
        if _is_relevant(preposition, head):
            words = f"{base} {preposition.lower_}"
            for child in preposition.children:
                if child.dep_ == "pobj":
                    yield from (Complement(words, token) for token in conjuncts(child))
                    yield from _place_of_name(base, child)
            yield from prepositional(words, preposition)


def _is_relevant(preposition: Token, head: Token) -> bool:
    """Whether a preposition introduces an object; False for "on another note", "because of rain"."""
    word = preposition.lower_
    if preposition.dep_ != "prep":
        return preposition.dep_ == "dative" and preposition.pos_ == "ADP"
    if head.pos_ in VERBS and not {"like": _takes_like, "as": _takes_as}.get(word, _takes_any)(head):
        return False
    return word not in LOOSE_PREPOSITIONS and not any(
        f"{word}_{child.lemma_}" in IDIOMS for child in preposition.children
    )


def _takes_any(_: Token) -> bool:
    return True


def _takes_like(verb: Token) -> bool:
    return verb.lemma_ in SIMILE_VERBS


def _takes_as(verb: Token) -> bool:
    # With an object or another preposition beside it, "as" may belong to that: "show my path as a nurse".
    attached = sum(child.dep_ in ("dobj", "prep") for child in verb.children)
    return verb.lemma_ in ROLE_VERBS or is_passive(verb) or attached == 1


def _complements_of_object(base: str, verb: Token, object_: Token) -> Iterator[Complement]:
    """Yields names that prepositions attach to the object: "get a job at Acme", "join the Red Cross in Manila"."""
    if verb.lemma_ == "be":
        return
    if object_.pos_ == "PROPN":
        yield from _place_of_name(base, object_) if verb.lemma_ not in STATIVE_VERBS else ()
    elif object_.pos_ in ("NOUN", "ADJ"):
        for complement in prepositional(f"{base} {object_.lemma_.lower()}", object_):
            if referent(complement.target).pos_ == "PROPN":
                yield replace(complement, confidence=INDIRECT)


def _place_of_name(base: str, name: Token) -> Iterator[Complement]:
    """Yields Eindhoven for "works for Philips in Eindhoven", where the parser attaches it to Philips."""
    for preposition in name.children if name.pos_ == "PROPN" else ():
        if preposition.lower_ in LOCATIVE_PREPOSITIONS and not preposition.ent_type_:
            for child in preposition.children:
                if child.dep_ == "pobj" and child.pos_ == "PROPN":
                    yield Complement(f"{base} {preposition.lower_}", child, INDIRECT)


def conjuncts(token: Token) -> Iterator[Token]:
    """Yields a token and those joined to it: "Anna, Tom and Sara", "my partner Sam and our kids"."""
    yield token
    if token.dep_ != "conj":
        yield from token.conjuncts
    if token.pos_ == "NOUN" and (name := referent(token)).dep_ == "appos":
        yield from name.conjuncts


def negated(words: str) -> str:
    """Puts "not" in front of a predicate that does not begin with it."""
    return words if words.startswith("not ") else f"not {words}"


def _is_negated(target: Token) -> bool:
    first = target.head if target.dep_ == "conj" else target
    return (
        is_negative_determiner(target)
        or is_negative_determiner(first)
        or any(child.dep_ == "neg" for child in target.children)
    )


def is_negative_determiner(token: Token) -> bool:
    """Whether a noun has a negative determiner: "no siblings", "neither Tom"."""
    return any(child.lower_ in ("no", "neither") and child.dep_ in ("det", "preconj", "cc") for child in token.children)
