"""What follows a verb: its objects, what "be" says, and what hangs on them by prepositions."""

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
# States that may hang on "be" without more; moods and looks are no facts to keep.
TRAIT_ADJECTIVES = frozenset(
    """
    vegetarian vegan pregnant diabetic asthmatic autistic dyslexic blind deaf married divorced widowed engaged single
    retired unemployed left-handed religious
    """.split()
)
# They hedge or open a sentence, and lead to nothing that is worth an edge.
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
# "I love the bars of Rome" does not say where I love.
STATIVE_VERBS = frozenset("be love like hate prefer know want need miss remember recommend mean mention".split())


@dataclass(frozen=True, slots=True)
class Complement:
    """What follows a verb: the predicate with its preposition, and the token it leads to."""

    predicate: str
    target: Token
    confidence: float = DIRECT


def complements(verb: Token) -> Iterator[Complement]:
    """What a verb leads to, each with its predicate."""
    base = predicate(verb)
    exists = any(child.dep_ == "expl" for child in verb.children)
    for child in verb.children:
        if child.dep_ in OBJECTS and not exists:
            yield from (Complement(negated(base) if _is_denied(token) else base, token) for token in conjuncts(child))
            yield from _attached(base, verb, child)
        if child.dep_ == "dative" and child.pos_ != "ADP":
            yield Complement(f"{base} to", child)
        if child.dep_ == "xcomp" and child.tag_ == "VBG" and not any(each.dep_ == "dobj" for each in child.children):
            yield Complement(base, child)
        if child.dep_ == "acomp" and _is_trait(child):
            yield Complement(base, child)
        if child.dep_ in ("acomp", "attr") and not child.ent_type_:
            # "allergic to nuts", "CEO of Acme"
            yield from prepositional(base if exists else f"{base} {child.lemma_.lower()}", child)
    for each in prepositional(base, verb):
        yield replace(each, confidence=min(each.confidence, INDIRECT))


def _is_trait(adjective: Token) -> bool:
    more = any(child.dep_ == "prep" for child in adjective.children)
    return not more and (adjective.lower_ in TRAIT_ADJECTIVES or adjective.ent_type_ == "NORP")


def prepositional(base: str, holder: Token) -> Iterator[Complement]:
    """What a word leads to by its prepositions: the predicate is `base` with the preposition."""
    for preposition in holder.children:
        if preposition.lower_ in ("next", "close") and preposition.dep_ == "advmod":
            yield from prepositional(f"{base} {preposition.lower_}", preposition)
        if _leads(preposition, holder):
            words = f"{base} {preposition.lower_}"
            for child in preposition.children:
                if child.dep_ == "pobj":
                    yield from (Complement(words, token) for token in conjuncts(child))
                    yield from _placed(base, child)
            yield from prepositional(words, preposition)


def _leads(preposition: Token, holder: Token) -> bool:
    """Whether a preposition leads to something that matters: not "on another note", "as for me"."""
    word = preposition.lower_
    if preposition.dep_ != "prep":
        return preposition.dep_ == "dative" and preposition.pos_ == "ADP"
    if holder.pos_ in VERBS and not {"like": _likens, "as": _serves}.get(word, _any)(holder):
        return False
    return word not in LOOSE_PREPOSITIONS and not any(
        f"{word}_{child.lemma_}" in IDIOMS for child in preposition.children
    )


def _any(_: Token) -> bool:
    return True


def _likens(verb: Token) -> bool:
    return verb.lemma_ in SIMILE_VERBS


def _serves(verb: Token) -> bool:
    # With an object or another preposition beside it, it may be about that: "show my path as a nurse".
    beside = sum(child.dep_ in ("dobj", "prep") for child in verb.children)
    return verb.lemma_ in ROLE_VERBS or is_passive(verb) or beside == 1


def _attached(base: str, verb: Token, held: Token) -> Iterator[Complement]:
    """What hangs on the object, if it is a name: "get a job at Acme", "join the Red Cross in Manila"."""
    if verb.lemma_ == "be":
        return
    if held.pos_ == "PROPN":
        yield from _placed(base, held) if verb.lemma_ not in STATIVE_VERBS else ()
    elif held.pos_ in ("NOUN", "ADJ"):
        for each in prepositional(f"{base} {held.lemma_.lower()}", held):
            if referent(each.target).pos_ == "PROPN":
                yield replace(each, confidence=INDIRECT)


def _placed(base: str, name: Token) -> Iterator[Complement]:
    """Eindhoven, in "works for Philips in Eindhoven", which the parser hangs on Philips."""
    for preposition in name.children if name.pos_ == "PROPN" else ():
        if preposition.lower_ in LOCATIVE_PREPOSITIONS and not preposition.ent_type_:
            for child in preposition.children:
                if child.dep_ == "pobj" and child.pos_ == "PROPN":
                    yield Complement(f"{base} {preposition.lower_}", child, INDIRECT)


def conjuncts(token: Token) -> Iterator[Token]:
    """A token and what is joined to it: "Anna, Tom and Sara", "my partner Sam and our kids"."""
    yield token
    if token.dep_ != "conj":
        yield from token.conjuncts
    if token.pos_ == "NOUN" and (named := referent(token)).dep_ == "appos":
        yield from named.conjuncts


def negated(words: str) -> str:
    """A predicate with "not" in front, once."""
    return words if words.startswith("not ") else f"not {words}"


def _is_denied(target: Token) -> bool:
    first = target.head if target.dep_ == "conj" else target
    return (
        is_negative_determiner(target)
        or is_negative_determiner(first)
        or any(child.dep_ == "neg" for child in target.children)
    )


def is_negative_determiner(token: Token) -> bool:
    """As in "no siblings", "neither Tom"."""
    return any(child.lower_ in ("no", "neither") and child.dep_ in ("det", "preconj", "cc") for child in token.children)
