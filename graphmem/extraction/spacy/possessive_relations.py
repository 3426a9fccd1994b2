"""Who is whose what, and who is called what: "my sister Anna's dog Max", "I have a cat named Tofu", "call me Bo"."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from graphmem.extraction.spacy.noun_types import NOUN_TYPES
from graphmem.extraction.spacy.predicates import SUBJECTS, VERBS, is_hypothetical, is_negated, is_passive, negation
from graphmem.extraction.spacy.triples import EXPLICIT, INDIRECT, EntityKeys, Triple
from graphmem.model import EntityType

if TYPE_CHECKING:
    from spacy.tokens import Token

# The parser takes "rice" for an adjective in "my favorite food is rice".
COPULA_ENDS = frozenset(("attr", "oprd", "acomp"))
FAVORITES = frozenset(("favorite", "favourite"))
NAMING_VERBS = frozenset(("call", "name", "nickname", "dub"))
# What mostly has a name, and what often has: of anything else a name behind a comma is rather somebody spoken to.
BEARER_TYPES = frozenset((EntityType.PERSON, EntityType.OTHER))
NAMED_TYPES = BEARER_TYPES | {EntityType.PLACE, EntityType.ORGANIZATION}
SECOND_PERSON = frozenset("you your yours yourself yourselves".split())
# How a noun and the name behind it hang together.
NOUN_DEPENDENCIES = frozenset(("appos", "compound", "nmod", "poss"))
POSSESSION_VERBS = frozenset(("have", "get", "own", "adopt", "keep"))


def possessive_triples(token: Token, keys: EntityKeys) -> Iterator[Triple]:
    """What a token says of kin, pets, bosses and favourites: (Mel, sister, Anna)."""
    for relative, name in role_name_pairs(token):
        trust = EXPLICIT if relative.lemma_ in NOUN_TYPES or _favorite(relative) else INDIRECT
        for each in _named_alike(relative, name):
            yield Triple(_owner(relative, name, keys), _role(relative), keys.key_of(each), trust)


def role_name_pairs(token: Token) -> Iterator[tuple[Token, Token]]:
    """Pairs of (sister, Anna): "my sister Anna", "my dog is called Rex", "my favorite food is rice"."""
    if token.pos_ == "NOUN" and (name := next_name(token)):
        yield token, name
    elif token.dep_ == "appos" and is_apposition(token) and not _belongs_to_another(token):
        yield from _told_apart(token, token.head)
    if token.pos_ in VERBS and _is_equation(token) and not is_negated(token) and not is_hypothetical(token):
        ends = [child for child in token.children if child.dep_ in COPULA_ENDS]
        yield from (
            pair for one in _equated(token) for other in ends or _title_after(token) for pair in _told_apart(one, other)
        )


def is_favorite(noun: Token) -> bool:
    """Whether a noun is a role that something has for somebody ("my favorite food is rice"), and no thing."""
    return bool(_favorite(noun)) and noun.dep_ in SUBJECTS and noun.head.lemma_ == "be"


def is_called(name: Token) -> bool:
    """Whether somebody is spoken to by a name that the parser takes for another word of a noun: "my car, Tomas"."""
    noun, start, end = name.head, name.left_edge.i, name.right_edge.i + 1
    sentence = name.sent
    if name.dep_ != "appos" or name.pos_ != "PROPN" or name.doc[start - 1].text != "," or _favorite(noun):
        return False
    is_last = all(token.is_punct or token.is_space for token in name.doc[end : sentence.end])
    kind = NOUN_TYPES.get(noun.lemma_)
    if kind in BEARER_TYPES:
        return is_last and any(child.lower_ == "your" for child in noun.children)
    if any(token.lower_ in SECOND_PERSON for token in sentence):
        return True
    if not is_last or name.ent_type_ == "WORK_OF_ART":
        return False
    return name.ent_type_ == "PERSON" or (
        kind not in NAMED_TYPES and any(child.dep_ == "poss" for child in noun.children)
    )


def is_apposition(token: Token) -> bool:
    """Whether a noun tells more of the one before: not "my family" in "Anna, my family is well"."""
    if token.dep_ != "appos" or token.i < token.head.i or is_called(token):
        return False
    if token.pos_ == "PROPN" or token.head.pos_ != "PROPN":
        return True
    # In "Paris, France, the capital", or "Tom and Ana, a nurse", nobody can tell whom it describes.
    described = _is_described(token) and token.head.dep_ not in ("appos", "conj")
    after = token.doc[token.right_edge.i + 1 : token.right_edge.i + 2]
    return described and all(each.is_punct or each.dep_ == "cc" for each in after)


def _is_described(noun: Token) -> bool:
    words = {child.lower_ for child in noun.children}
    is_role = "of" in words and noun.lemma_ in NOUN_TYPES
    return is_role or bool(words & {"a", "an", "the"}) or any(child.dep_ == "poss" for child in noun.children)


def is_naming(verb: Token) -> bool:
    """Whether somebody is given a name: "call me Bo"."""
    has = {child.dep_ for child in verb.children}
    return verb.lemma_ in NAMING_VERBS and not is_passive(verb) and "oprd" in has and bool(has & {"dobj", "obj"})


def names_given(verb: Token, keys: EntityKeys) -> Iterator[Triple]:
    """Whoever does it, the one it is done to is called that."""
    called = [child for child in verb.children if child.dep_ in ("dobj", "obj")]
    names = [child for child in verb.children if child.dep_ == "oprd"]
    words = f"{negation(verb)}be called"
    yield from (Triple(keys.key_of(one), words, keys.key_of(name), EXPLICIT) for one in called for name in names)


def name_bearer(subject: Token) -> Token:
    """Whose name it is, in "my dog's name is Rex"; any other subject is itself."""
    if subject.lemma_ == "name":
        return next((child for child in subject.children if child.dep_ == "poss"), subject)
    return subject


def next_name(noun: Token) -> Token | None:
    """The last word of the name right behind a noun, of the same phrase: "my old friend Tom Waits"."""
    doc, end = noun.doc, noun.i + 1
    while end < len(doc) and doc[end].pos_ == "PROPN":
        end += 1
    if end == noun.i + 1 or (end < len(doc) and doc[end].pos_ == "NOUN"):
        return None
    name = doc[end - 1]
    linked = (name.dep_ in NOUN_DEPENDENCIES and noun.is_ancestor(name)) or (
        noun.dep_ in NOUN_DEPENDENCIES and name.is_ancestor(noun)
    )
    return name if linked else None


def referent(noun: Token) -> Token:
    """Whom a noun means by the names behind it: Max of "my sister Anna's dog Max", else the noun itself."""
    name = next_name(noun)
    if name is None or not noun.is_ancestor(name):
        return _apposed_name(noun)
    after = _possessed(name)
    while after is not None and noun.is_ancestor(after):
        name = next_name(after) or after
        after = _possessed(name)
    return name


def _apposed_name(noun: Token) -> Token:
    """Henrik Dahl of "my boss, Henrik Dahl, lives in Malmö"."""
    comma = noun.doc[noun.i + 1 : noun.i + 2].text
    if noun.tag_ != "NN" or comma != ",":
        return noun
    names = (child for child in noun.rights if child.dep_ == "appos" and child.pos_ == "PROPN" and not is_called(child))
    return next((name for name in names if name.left_edge.i == noun.i + 2), noun)


def _possessed(name: Token) -> Token | None:
    doc, place = name.doc, name.i + 1
    if place >= len(doc) or doc[place].tag_ != "POS":
        return None
    while place + 1 < len(doc) and doc[place + 1].pos_ == "ADJ":
        place += 1
    return doc[place + 1] if place + 1 < len(doc) and doc[place + 1].pos_ == "NOUN" else None


def _belongs_to_another(token: Token) -> bool:
    # The parser may hang both Anna and Max on the sister in "my sister Anna's dog Max".
    before = (child for child in token.head.children if child.dep_ == "appos" and child.i < token.i)
    return any(mark.tag_ == "POS" for child in before for mark in child.children)


def _is_equation(token: Token) -> bool:
    is_copula = token.lemma_ == "be" or (token.lemma_ in NAMING_VERBS and is_passive(token))
    return is_copula and token.dep_ != "auxpass"


def _equated(verb: Token) -> list[Token]:
    if verb.dep_ == "acl":
        return [verb.head]
    return [name_bearer(child) for child in verb.children if child.dep_ in SUBJECTS]


def _title_after(verb: Token) -> list[Token]:
    # The title of a book or a film may be of any words: "my favorite movie is Spirited Away".
    after = verb.doc[verb.i + 1 : verb.i + 2]
    return [token for token in after if token.ent_iob_ == "B"]


def _told_apart(one: Token, other: Token) -> Iterator[tuple[Token, Token]]:
    if one.pos_ == "NOUN" and (other.pos_ == "PROPN" or _favorite(one)):
        yield one, other
    elif one.pos_ == "PROPN" and other.pos_ == "NOUN":
        yield other, one


def _named_alike(relative: Token, name: Token) -> Iterator[Token]:
    """Miso and Tofu of "my cats Miso and Tofu"; not Ken of "my brother Sam and Ken"."""
    yield name
    if name.dep_ != "conj" and (relative.tag_ == "NNS" or name.pos_ != "PROPN"):
        yield from (token for token in name.conjuncts if token.pos_ == name.pos_)


def _favorite(token: Token) -> str:
    return next((f"{child.lower_} " for child in token.lefts if child.lower_ in FAVORITES), "")


def _role(relative: Token) -> str:
    return _favorite(relative) + relative.lemma_.lower()


def _owner(relative: Token, name: Token, keys: EntityKeys) -> str:
    """Whose sister: the speaker or somebody with a name."""
    holders = (relative, name) if relative.head == name else (relative,)
    owners = [child for holder in holders for child in holder.children if child.dep_ == "poss"]
    owners += _before(relative)
    known = next((keys.key_of(owner) for owner in owners if owner.pos_ in ("PRON", "PROPN")), "")
    return known if owners else _possessor(relative, keys)


def _before(relative: Token) -> list[Token]:
    """Anna, in "Anna's old dog", wherever the parser hangs her."""
    place = relative.i - 1
    while place > 0 and relative.doc[place].pos_ == "ADJ":
        place -= 1
    return [relative.doc[place - 1]] if place > 0 and relative.doc[place].tag_ == "POS" else []


def _possessor(relative: Token, keys: EntityKeys) -> str:
    """Who has it, in "I have a cat named Tofu"."""
    verb = relative.head
    if relative.dep_ not in ("dobj", "obj") or verb.lemma_ not in POSSESSION_VERBS or verb.pos_ not in VERBS:
        return ""
    if is_negated(verb) or is_hypothetical(verb):
        return ""
    return next((keys.key_of(child) for child in verb.children if child.dep_ in SUBJECTS), "")
