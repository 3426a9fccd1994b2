"""Extracts relational nouns with names ("my sister Anna"), and names that a verb gives ("call me Bo").

A relational noun denotes somebody or something by a relation to an owner: "sister" and "dog" in "my sister Anna's dog
Max", "cat" in "I have a cat named Tofu", "food" in "my favorite food is rice". Parameters call the relational noun
`role`, and the name of the person or thing ("Anna", "Max", "Tofu", "rice") `name`.

A common noun tells the type of an entity: "sister" denotes a person, and so does the name in "my sister Greta".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from graphmem.extraction.spacy.predicates import (
    EXPLICIT,
    INDIRECT,
    SUBJECTS,
    VERBS,
    EntityKeys,
    Triple,
    is_hypothetical,
    is_negated,
    is_passive,
    negation,
)
from graphmem.model import EntityType

if TYPE_CHECKING:
    from spacy.tokens import Token

_NOUNS = {
    EntityType.PERSON: """
        sister brother mother father mom mum dad parent grandma grandpa grandmother grandfather aunt uncle cousin niece
        nephew son daughter child kid baby twin wife husband spouse partner girlfriend boyfriend fiancé fiancée fiance
        fiancee ex friend buddy pal mate roommate flatmate housemate neighbour neighbor colleague coworker boss manager
        mentor mentee teacher professor tutor coach trainer student pupil classmate doctor dentist nurse therapist
        lawyer judge landlord tenant client assistant intern secretary ceo cto cfo founder director president chairman
        king queen prince princess emperor pope saint minister senator mayor governor captain soldier general admiral
        author writer poet novelist journalist painter sculptor artist musician singer composer guitarist drummer
        pianist actor actress dancer filmmaker photographer architect engineer scientist physicist chemist biologist
        mathematician philosopher historian economist psychologist inventor explorer astronaut pilot driver carpenter
        plumber electrician mechanic farmer baker butcher chef cook waiter waitress barista hairdresser priest monk nun
        rabbi imam footballer player athlete swimmer runner politician activist man woman boy girl guy lady owner
        stepfather stepmother stepson stepdaughter stepbrother stepsister granddaughter grandson godmother godfather
    """,
    EntityType.PLACE: """
        city town village capital country state province county region district neighbourhood neighborhood suburb
        island continent mountain hill valley river lake sea ocean bay beach desert forest park square street airport
        station port harbour harbor castle palace bridge tower hometown
    """,
    EntityType.ORGANIZATION: """
        company startup firm business corporation bank band orchestra choir team club university college school
        employer agency ministry party charity foundation newspaper magazine publisher brand union
    """,
    EntityType.OBJECT: """
        movie film book novel song album poem painting show series game app laptop phone car bike motorbike bicycle
        boat guitar camera tablet console perfume anime podcast opera play musical
    """,
    EntityType.EVENT: "festival concert conference war battle tournament competition race marathon holiday ceremony",
    EntityType.CONCEPT: "language religion sport subject hobby dish cuisine colour color genre",
    EntityType.OTHER: """
        dog puppy pup cat kitten hamster rabbit bunny parrot budgie turtle tortoise horse pony goldfish snake lizard
        pet pig
    """,
}
NOUN_TYPES = {noun: type_ for type_, nouns in _NOUNS.items() for noun in nouns.split()}


# With "acomp", because the parser takes "rice" for an adjective in "my favorite food is rice".
COPULA_COMPLEMENTS = frozenset(("attr", "oprd", "acomp"))
FAVORITES = frozenset(("favorite", "favourite"))
NAMING_VERBS = frozenset(("call", "name", "nickname", "dub"))
# Entity types whose members mostly (BEARER_TYPES: people, pets) or often (NAMED_TYPES) have a name. After a noun of any
# other type, a name behind a comma more likely addresses somebody.
BEARER_TYPES = frozenset((EntityType.PERSON, EntityType.OTHER))
NAMED_TYPES = BEARER_TYPES | {EntityType.PLACE, EntityType.ORGANIZATION}
SECOND_PERSON = frozenset("you your yours yourself yourselves".split())
# Dependencies between a noun and the name behind it.
NOUN_DEPENDENCIES = frozenset(("appos", "compound", "nmod", "poss"))
POSSESSION_VERBS = frozenset(("have", "get", "own", "adopt", "keep"))


def possessive_triples(token: Token, keys: EntityKeys) -> Iterator[Triple]:
    """Yields the triples of the relational nouns that a token shows: (Mel, sister, Anna) for Mel's "my sister Anna"."""
    for role, name in role_name_pairs(token):
        confidence = EXPLICIT if role.lemma_ in NOUN_TYPES or _favorite_prefix(role) else INDIRECT
        predicate = _favorite_prefix(role) + role.lemma_.lower()
        names = [name]
        # Names joined by "and" are in the role as well if it is plural (both of "my cats Miso and Tofu", but only Sam
        # of "my brother Sam and Ken"), or if they are common nouns ("my favorite food is rice and fish").
        if name.dep_ != "conj" and (role.tag_ == "NNS" or name.pos_ != "PROPN"):
            names += [each for each in name.conjuncts if each.pos_ == name.pos_]
        for each in names:
            yield Triple(_owner_key(role, name, keys), predicate, keys.key_of(each), confidence)


def role_name_pairs(token: Token) -> Iterator[tuple[Token, Token]]:
    """Yields (relational noun, name) pairs: (sister, Anna) for "my sister Anna", (dog, Rex) for "my dog is called Rex",
    (food, rice) for "my favorite food is rice".
    """
    if token.pos_ == "NOUN" and (name := next_name(token)):
        yield token, name
    elif token.dep_ == "appos" and is_apposition(token):
        # The parser may attach both Anna and Max to the sister in "my sister Anna's dog Max".
        earlier = (child for child in token.head.children if child.dep_ == "appos" and child.i < token.i)
        if not any(mark.tag_ == "POS" for each in earlier for mark in each.children):
            yield from _role_and_name(token, token.head)
    equates = token.lemma_ == "be" or (token.lemma_ in NAMING_VERBS and is_passive(token))
    if not equates or token.pos_ not in VERBS or token.dep_ == "auxpass":
        return
    if not is_negated(token) and not is_hypothetical(token):
        subjects = [name_bearer(child) for child in token.children if child.dep_ in SUBJECTS]
        complements = [child for child in token.children if child.dep_ in COPULA_COMPLEMENTS]
        # The title of a book or a film may consist of any words: "my favorite movie is Spirited Away".
        complements = complements or [each for each in token.doc[token.i + 1 : token.i + 2] if each.ent_iob_ == "B"]
        for subject in [token.head] if token.dep_ == "acl" else subjects:
            for complement in complements:
                yield from _role_and_name(subject, complement)


def is_favorite(noun: Token) -> bool:
    """Returns True for the noun of a favourite, which is no entity: "food" in "my favorite food is rice"."""
    return bool(_favorite_prefix(noun)) and noun.dep_ in SUBJECTS and noun.head.lemma_ == "be"


def is_addressed(name: Token) -> bool:
    """Returns True for a name that addresses somebody but is parsed as an apposition: "Tomas" in "my car, Tomas"."""
    noun, start, end = name.head, name.left_edge.i, name.right_edge.i + 1
    sentence = name.sent
    if name.dep_ != "appos" or name.pos_ != "PROPN" or name.doc[start - 1].text != "," or _favorite_prefix(noun):
        return False
    is_last = all(token.is_punct or token.is_space for token in name.doc[end : sentence.end])
    noun_type = NOUN_TYPES.get(noun.lemma_)
    if noun_type in BEARER_TYPES:
        return is_last and any(child.lower_ == "your" for child in noun.children)
    if any(token.lower_ in SECOND_PERSON for token in sentence):
        return True
    if not is_last or name.ent_type_ == "WORK_OF_ART":
        return False
    return name.ent_type_ == "PERSON" or (
        noun_type not in NAMED_TYPES and any(child.dep_ == "poss" for child in noun.children)
    )


def is_apposition(token: Token) -> bool:
    """Returns True for a noun that describes the noun before it: "a nurse" in "Ana, a nurse", but not "my family" in
    "Anna, my family is well".
    """
    if token.dep_ != "appos" or token.i < token.head.i or is_addressed(token):
        return False
    if token.pos_ == "PROPN" or token.head.pos_ != "PROPN":
        return True
    # In "Paris, France, the capital", or "Tom and Ana, a nurse", it is ambiguous which name the noun describes.
    words = {child.lower_ for child in token.children}
    is_role = "of" in words and token.lemma_ in NOUN_TYPES  # "CEO of Acme"
    is_determined = is_role or words & {"a", "an", "the"} or any(child.dep_ == "poss" for child in token.children)
    is_unambiguous = is_determined and token.head.dep_ not in ("appos", "conj")
    following = token.doc[token.right_edge.i + 1 : token.right_edge.i + 2]
    return bool(is_unambiguous) and all(each.is_punct or each.dep_ == "cc" for each in following)


def is_naming(verb: Token) -> bool:
    """Returns True for a verb that gives its object a name: "call me Bo"."""
    dependencies = {child.dep_ for child in verb.children}
    return (
        verb.lemma_ in NAMING_VERBS
        and not is_passive(verb)
        and "oprd" in dependencies
        and bool(dependencies & {"dobj", "obj"})
    )


def naming_triples(verb: Token, keys: EntityKeys) -> Iterator[Triple]:
    """Yields (Mel, be called, Bo) for Mel's "call me Bo", whoever the subject of the verb is."""
    bearers = [child for child in verb.children if child.dep_ in ("dobj", "obj")]
    names = [child for child in verb.children if child.dep_ == "oprd"]
    words = f"{negation(verb)}be called"
    yield from (Triple(keys.key_of(bearer), words, keys.key_of(name), EXPLICIT) for bearer in bearers for name in names)


def name_bearer(subject: Token) -> Token:
    """Returns "dog" for the subject "name" of "my dog's name is Rex"; any other subject unchanged."""
    if subject.lemma_ == "name":
        return next((child for child in subject.children if child.dep_ == "poss"), subject)
    return subject


def next_name(noun: Token) -> Token | None:
    """Returns the last word of the name that follows a noun in its phrase: Waits of "my old friend Tom Waits"."""
    doc, end = noun.doc, noun.i + 1
    while end < len(doc) and doc[end].pos_ == "PROPN":
        end += 1
    if end == noun.i + 1 or (end < len(doc) and doc[end].pos_ == "NOUN"):
        return None
    name = doc[end - 1]
    is_same_phrase = (name.dep_ in NOUN_DEPENDENCIES and noun.is_ancestor(name)) or (
        noun.dep_ in NOUN_DEPENDENCIES and name.is_ancestor(noun)
    )
    return name if is_same_phrase else None


def referent(noun: Token) -> Token:
    """Returns the name that a noun phrase denotes: Max of "my sister Anna's dog Max"; without one the noun itself."""
    name = next_name(noun)
    if name is None or not noun.is_ancestor(name):
        if noun.tag_ != "NN" or noun.doc[noun.i + 1 : noun.i + 2].text != ",":
            return noun
        # "Dahl" for "boss" in "my boss, Henrik Dahl, lives in Malmö"
        apposed = (child for child in noun.rights if child.dep_ == "appos" and child.pos_ == "PROPN")
        names = (each for each in apposed if not is_addressed(each))
        return next((each for each in names if each.left_edge.i == noun.i + 2), noun)
    possession = _noun_after_possessive(name)
    while possession is not None and noun.is_ancestor(possession):
        name = next_name(possession) or possession
        possession = _noun_after_possessive(name)
    return name


def _noun_after_possessive(name: Token) -> Token | None:
    """Returns "dog" for "Anna" in "Anna's old dog"."""
    doc, index = name.doc, name.i + 1
    if index >= len(doc) or doc[index].tag_ != "POS":
        return None
    while index + 1 < len(doc) and doc[index + 1].pos_ == "ADJ":
        index += 1
    return doc[index + 1] if index + 1 < len(doc) and doc[index + 1].pos_ == "NOUN" else None


def _role_and_name(token: Token, other: Token) -> Iterator[tuple[Token, Token]]:
    """Yields (relational noun, name) if one of two tokens is a noun and the other a name, or the value of a favourite.

    Both ("sister", "Anna") and ("Anna", "sister") yield (sister, Anna).
    """
    if token.pos_ == "NOUN" and (other.pos_ == "PROPN" or _favorite_prefix(token)):
        yield token, other
    elif token.pos_ == "PROPN" and other.pos_ == "NOUN":
        yield other, token


def _favorite_prefix(noun: Token) -> str:
    return next((f"{child.lower_} " for child in noun.lefts if child.lower_ in FAVORITES), "")


def _owner_key(role: Token, name: Token, keys: EntityKeys) -> str:
    """Returns the entity key of the owner of a relational noun: Mel for "sister" when Mel says "my sister Anna".

    Looks for the owner ("my") at `name` ("Anna") as well, because the parser may attach it there; without one the
    subject of a verb of possession owns its object. Returns "" without an owner, and for an owner that is neither a
    pronoun nor a name.
    """
    heads = (role, name) if role.head == name else (role,)
    owners = [child for head in heads for child in head.children if child.dep_ == "poss"]
    before = role.i - 1  # Anna of "Anna's old dog" is an owner wherever the parser attaches her
    while before > 0 and role.doc[before].pos_ == "ADJ":
        before -= 1
    if before > 0 and role.doc[before].tag_ == "POS":
        owners.append(role.doc[before - 1])
    if owners:
        return next((keys.key_of(owner) for owner in owners if owner.pos_ in ("PRON", "PROPN")), "")
    verb = role.head  # "I have a cat named Tofu"
    if role.dep_ not in ("dobj", "obj") or verb.lemma_ not in POSSESSION_VERBS or verb.pos_ not in VERBS:
        return ""
    if is_negated(verb) or is_hypothetical(verb):
        return ""
    return next((keys.key_of(child) for child in verb.children if child.dep_ in SUBJECTS), "")
