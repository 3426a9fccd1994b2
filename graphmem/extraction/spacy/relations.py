"""Extracts statements from a dependency parse: verbs with subject and object, "be", appositions, kin and names.

The agent of a passive is the subject: "designed by Ana" states that Ana designs. "We" stands for the speaker. "She"
stands for the subject of the governing clause, or for nobody. Questions, conditions, wishes and clauses with "would"
are left out on purpose; "can", "will" and "want" stay in the predicate. The rules are frozen: extend none of them.

Complements of a verb are its objects, those of "be", and nouns attached to either by prepositions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from graphmem.extraction.spacy.possessive_relations import (
    is_apposition,
    is_favorite,
    is_naming,
    name_bearer,
    naming_triples,
    possessive_triples,
    referent,
)
from graphmem.extraction.spacy.predicates import (
    CONTENT_POS,
    DIRECT,
    INDIRECT,
    INFERRED,
    SUBJECTS,
    VERBS,
    EntityKeys,
    Triple,
    is_hypothetical,
    is_passive,
    is_rare,
    modal,
    negation,
    predicate,
)
from graphmem.model import Statement

if TYPE_CHECKING:
    from spacy.tokens import Doc, Span, Token

NEGATED_SUBJECTS = frozenset(("nobody", "none", "neither"))
# Verbs whose complement yields no statement: "She asked Tom to call" does not state that he did, nor that she called.
URGE_VERBS = frozenset(
    """
    ask tell encourage motivate help let make want remind allow force invite teach persuade convince push inspire order
    advise enable need
    """.split()
)
SPEECH_VERBS = frozenset("say tell think believe know feel mention explain admit claim".split())
CLAUSE_OPENERS = frozenset(("ADV", "INTJ", "PUNCT", "CCONJ", "SPACE"))
# Participles at the start of a sentence without an object that omit "I" ("Moved to Rome") rather than "I am".
ACTIVITY_VERBS = frozenset("talk speak move go work live walk travel fly drive start graduate stay".split())
QUOTES = frozenset('"“”«»')
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
class Subject:
    """The key of a subject. `is_negated` for "nobody in my family", "neither Tom"."""

    key: str
    is_negated: bool = False
    confidence: float = DIRECT


def statements(doc: Doc, text: str, keys: EntityKeys) -> Iterator[Statement]:
    """Yields the statements of each sentence that is no question. `text` is the text as written, quoted as `fact`."""
    for sentence in doc.sents:
        fact = text[sentence.start_char : sentence.end_char].strip()
        if "?" in fact[-3:]:
            continue
        # In a quotation, "I" is not the speaker.
        sentence_keys = replace(keys, speaker="") if QUOTES & set(fact) else keys
        for triple in _triples(sentence, sentence_keys):
            if triple.subject and triple.object and triple.subject != triple.object:
                yield Statement(triple.subject, triple.predicate, triple.object, fact, triple.confidence)


def _triples(sentence: Span, keys: EntityKeys) -> Iterator[Triple]:
    for token in sentence:
        if token.pos_ in VERBS and token.dep_ not in ("aux", "auxpass") and not is_hypothetical(token):
            yield from naming_triples(token, keys) if is_naming(token) else _clause_triples(token, keys)
        if token.pos_ in CONTENT_POS:
            yield from possessive_triples(token, keys)
        if token.dep_ == "appos" and is_apposition(token):
            yield from _apposition_triples(token, keys)


def _clause_triples(verb: Token, keys: EntityKeys) -> Iterator[Triple]:
    verb_complements = list(complements(verb))
    if any(is_favorite(child) and keys.owner_key(child) for child in verb.children):
        # `possessive_triples` yields that sushi is my favorite food; here would follow that a food is sushi.
        verb_complements = [complement for complement in verb_complements if complement.predicate != "be"]
        if not verb_complements:
            return
    subjects = [subject for subject in _subjects(verb, keys) if subject.key]
    around = {child.lower_ for child in verb.children}
    if not subjects or {"we", "can"} <= around:  # "we can make a difference" encourages
        return
    max_confidence = INFERRED if is_rare(verb) else 1.0
    for complement in verb_complements:
        object_key = keys.key_of(complement.target)
        for subject in subjects:
            words = negated(complement.predicate) if subject.is_negated else complement.predicate
            confidence = min(subject.confidence, complement.confidence, max_confidence)
            yield Triple(subject.key, words, object_key, confidence)
    if not is_passive(verb):
        return
    active = negation(verb) + modal(verb) + verb.lemma_.lower()
    prepositions = (child for child in verb.children if child.dep_ == "agent")
    agents = (child for by in prepositions for child in by.children if child.dep_ == "pobj")
    for agent in (token for child in agents for token in conjuncts(child)):
        for subject in subjects:
            words = negated(active) if subject.is_negated else active
            yield Triple(keys.key_of(agent), words, subject.key, min(subject.confidence, max_confidence))


def _apposition_triples(token: Token, keys: EntityKeys) -> Iterator[Triple]:
    """Yields for "Bjorn, a carpenter from Bergen": Bjorn "be" carpenter, and Bjorn "be carpenter from" Bergen."""
    name = token.head
    if token.pos_ != "NOUN" or name.pos_ != "PROPN":
        return
    yield Triple(keys.key_of(name), "be", keys.key_of(token), INDIRECT)
    for complement in prepositional(f"be {token.lemma_.lower()}", token):
        yield Triple(keys.key_of(name), complement.predicate, keys.key_of(complement.target), INDIRECT)


def _subjects(verb: Token, keys: EntityKeys) -> list[Subject]:
    for child in verb.children:
        if child.dep_ in SUBJECTS:
            return _resolved_subjects(child, verb, keys)
        if child.dep_ == "expl":
            # "There is a bakery behind my flat."
            return [Subject(keys.key_of(attribute)) for attribute in verb.children if attribute.dep_ == "attr"]
    if verb.dep_ in ("conj", "xcomp") and verb.head.pos_ in VERBS:
        governor = verb.head
        is_urged = governor.lemma_ in URGE_VERBS and any(child.dep_ == "dobj" for child in governor.children)
        # "keep" in "you did well, keep it up"
        may_be_imperative = verb.dep_ == "conj" and verb.tag_ == "VB" and governor.tag_ in ("VBD", "VBN")
        siblings = (child for token in (verb, governor) for child in token.children)
        if is_urged or (may_be_imperative and not any(child.tag_ in ("MD", "TO") for child in siblings)):
            return []
        shared = _subjects(verb.head, keys)
        return [replace(subject, confidence=min(subject.confidence, INDIRECT)) for subject in shared]
    if verb.dep_ == "acl" and verb.tag_ == "VBN":
        return [Subject(keys.key_of(verb.head))]
    return [Subject(keys.speaker, confidence=INDIRECT)] if _omits_i(verb) else []


def _resolved_subjects(subject: Token, verb: Token, keys: EntityKeys) -> list[Subject]:
    """Resolves pronouns, "nobody in …", relative clauses and conjunctions to the entities that act."""
    if subject.lower_ in ("he", "she"):
        # Stands for the subject of the clause that governs the verb's, if it is the only one and has a name.
        governor = verb.head
        is_governed = verb.dep_ == "conj" or (verb.dep_ == "ccomp" and governor.lemma_ in SPEECH_VERBS)
        antecedents = [child for child in governor.children if child.dep_ == "nsubj"] if is_governed else []
        is_only_one = len(antecedents) == 1 and not any(True for _ in antecedents[0].conjuncts)
        if not is_only_one or referent(antecedents[0]).pos_ != "PROPN":
            return []
        return [Subject(keys.key_of(antecedents[0]), confidence=INFERRED)]
    if subject.lower_ in NEGATED_SUBJECTS:
        # "friends" of "none of my friends", "family" of "nobody in my family"
        prepositions = (child for child in subject.children if child.lower_ in ("of", "in", "from"))
        members = [child for each in prepositions for child in each.children if child.dep_ == "pobj"]
        return [Subject(keys.key_of(member), is_negated=True) for member in members]
    token = verb.head if verb.dep_ == "relcl" and subject.tag_ in ("WP", "WDT") else name_bearer(subject)
    confidence = INDIRECT if token.lower_ == "we" else DIRECT
    return [Subject(keys.key_of(each), is_negative_determiner(token), confidence) for each in conjuncts(token)]


def _omits_i(verb: Token) -> bool:
    """Whether a sentence omits its subject "I": "Met Greta at the fair"."""
    if verb.dep_ != "ROOT" or verb.tag_ not in ("VBD", "VBN") or verb.lemma_ == "be":
        return False
    dependencies = {child.dep_ for child in verb.children}
    if dependencies & {"agent", "auxpass", "aux"} or (
        verb.tag_ == "VBN" and "dobj" not in dependencies and verb.lemma_ not in ACTIVITY_VERBS
    ):
        return False
    return all(token.pos_ in CLAUSE_OPENERS for token in verb.doc[verb.sent.start : verb.i])


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
        is_trait = child.dep_ == "acomp" and (child.lower_ in TRAIT_ADJECTIVES or child.ent_type_ == "NORP")
        if is_trait and not any(each.dep_ == "prep" for each in child.children):
            yield Complement(base, child)
        if child.dep_ in ("acomp", "attr") and not child.ent_type_:
            # "allergic to nuts", "CEO of Acme"
            yield from prepositional(base if is_existential else f"{base} {child.lemma_.lower()}", child)
    for complement in prepositional(base, verb):
        yield replace(complement, confidence=min(complement.confidence, INDIRECT))


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
    if word == "like" and head.pos_ in VERBS and head.lemma_ not in SIMILE_VERBS:
        return False
    if word == "as" and head.pos_ in VERBS:
        # With an object or another preposition beside it, "as" may belong to that: "show my path as a nurse".
        attached = sum(child.dep_ in ("dobj", "prep") for child in head.children)
        if attached != 1 and head.lemma_ not in ROLE_VERBS and not is_passive(head):
            return False
    return word not in LOOSE_PREPOSITIONS and not any(
        f"{word}_{child.lemma_}" in IDIOMS for child in preposition.children
    )


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
