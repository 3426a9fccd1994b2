"""Derives the entity type of a name from the words around it, which is more reliable than the label of spaCy's model.

The name in "my sister Greta" is a person's; the object of "live in" is a place, that of "work for" an organization.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from graphmem.extraction.spacy.possessive_relations import NAMING_VERBS, NOUN_TYPES, is_naming, role_name_pairs
from graphmem.extraction.spacy.predicates import SUBJECTS, is_passive
from graphmem.model import EntityType

if TYPE_CHECKING:
    from spacy.tokens import Token

TITLES = frozenset("mr mrs ms miss mx dr prof professor sir madam aunt uncle grandma grandpa".split())
# Verbs whose subject is a person.
HUMAN_VERBS = frozenset(
    "marry speak cook eat drink wash bake knit sing laugh cry smile think study teach love hate meet drive".split()
)
# Verbs whose subject mostly is a person: they decide for names that spaCy's model does not label.
AGENT_VERBS = frozenset(
    """
    live play move go come want need buy sell own visit enjoy like prefer know call ask tell say send bring help join
    start finish adopt invite write read paint run walk travel fly drive ride swim wear try feel remember forget
    """.split()
)
BIRTH_VERBS = frozenset(("born", "raised", "married"))
MEETING_VERBS = frozenset("meet marry date invite hug kiss phone".split())
CREATION_VERBS = frozenset("write paint compose design found invent discover direct sculpt".split())
RESIDENCE_VERBS = frozenset("live move grow bear raise travel fly settle stay study arrive relocate".split())
EMPLOYMENT_VERBS = frozenset(("work", "intern"))
TALK_VERBS = frozenset(("talk", "speak", "chat"))
PURCHASE_VERBS = frozenset("buy drive own sell order rent wear".split())
TYPES_BY_FIRST_WORD = {
    "lake": EntityType.PLACE,
    "mount": EntityType.PLACE,
    "mt": EntityType.PLACE,
    "battle": EntityType.EVENT,
}
_LAST_WORDS = {
    EntityType.PLACE: "river lake mountains island islands street avenue road square park bridge airport beach bay",
    EntityType.ORGANIZATION: "university college school inc ltd gmbh corp foundation hospital orchestra",
    EntityType.EVENT: "festival marathon olympics championship championships cup games war",
}
_WORDS_BEFORE_OF = {
    EntityType.PLACE: "republic isle gulf bay cape kingdom",
    EntityType.ORGANIZATION: "university college bank institute ministry museum academy house",
    EntityType.EVENT: "battle siege",
}
TYPES_BEFORE_OF = {word: type_ for type_, words in _WORDS_BEFORE_OF.items() for word in words.split()}
TYPES_BY_LAST_WORD = {word: type_ for type_, words in _LAST_WORDS.items() for word in words.split()}


def typed_names(token: Token) -> Iterator[tuple[Token, EntityType]]:
    """Yields names, each by one of its tokens, with the entity type that the syntax around `token` shows."""
    if token.pos_ == "PROPN":
        yield from _types_by_own_words(token)
        yield from _types_by_syntax(token)
    for role, name in role_name_pairs(token):
        if type_ := NOUN_TYPES.get(role.lemma_.lower()):
            yield name, type_
    if token.lemma_ in NAMING_VERBS and is_naming(token):
        # "Bo" of "call me Bo"
        yield from ((child, EntityType.PERSON) for child in token.children if child.dep_ == "oprd")


def _types_by_own_words(name: Token) -> Iterator[tuple[Token, EntityType]]:
    """Types Dr. Patel, Lake Garda, the Rhine River, the Battle of Hastings."""
    first_words = [child.lower_.rstrip(".") for child in name.lefts if child.dep_ == "compound"]
    if first_words and first_words[0] in TITLES:
        yield name, EntityType.PERSON
    elif first_words and first_words[0] in TYPES_BY_FIRST_WORD:
        yield name, TYPES_BY_FIRST_WORD[first_words[0]]
    elif first_words and name.lower_ in TYPES_BY_LAST_WORD:
        yield name, TYPES_BY_LAST_WORD[name.lower_]
    elif name.lower_ in TYPES_BEFORE_OF and any(child.lower_ == "of" and child.ent_type_ for child in name.rights):
        yield name, TYPES_BEFORE_OF[name.lower_]


def _types_by_syntax(name: Token) -> Iterator[tuple[Token, EntityType]]:
    """Types a name by the verb or preposition of which it is subject or object."""
    token = name.head if name.dep_ == "conj" else name
    governor = token.head
    if token.dep_ in SUBJECTS:
        is_agent = governor.lemma_ in HUMAN_VERBS or (governor.lemma_ in AGENT_VERBS and not name.ent_type_)
        is_employed = governor.lemma_ in EMPLOYMENT_VERBS and any(
            child.lower_ in ("at", "for", "as") for child in governor.children
        )
        if governor.lower_ in BIRTH_VERBS or (is_agent and not is_passive(governor)) or is_employed:
            yield name, EntityType.PERSON
    elif token.dep_ == "dobj" and governor.lemma_ in MEETING_VERBS:
        yield name, EntityType.PERSON
    elif (
        token.dep_ == "dobj" and governor.lemma_ in PURCHASE_VERBS and any(child.dep_ == "det" for child in token.lefts)
    ):
        yield name, EntityType.OBJECT
    elif token.dep_ == "pobj" and (type_ := _type_by_preposition(name, governor)):
        yield name, type_


def _type_by_preposition(name: Token, preposition: Token) -> EntityType | None:
    verb, word = preposition.head, preposition.lower_
    if word == "in" and (verb.lemma_ == "be" or not name.ent_type_):
        return EntityType.PLACE
    if word in ("in", "from", "to") and verb.lemma_ in RESIDENCE_VERBS:
        return EntityType.PLACE
    if word == "from" and (verb.lemma_ in ("be", "come") or NOUN_TYPES.get(verb.lemma_) is EntityType.PERSON):
        return EntityType.PLACE
    if word in ("for", "at") and verb.lemma_ in EMPLOYMENT_VERBS:
        return EntityType.ORGANIZATION
    if word in ("to", "with") and verb.lemma_ in TALK_VERBS:
        return EntityType.PERSON
    is_creator = preposition.dep_ == "agent" and verb.lemma_ in CREATION_VERBS
    return EntityType.PERSON if is_creator and any(child.dep_ == "compound" for child in name.lefts) else None
