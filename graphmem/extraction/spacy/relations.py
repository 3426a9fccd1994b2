"""Extracts statements from a dependency parse: verbs with subject and object, "be", appositions, kin and names.

The agent of a passive is the subject: "designed by Ana" states that Ana designs. "We" stands for the speaker. "She"
stands for the subject of the governing clause, or for nobody. Questions, conditions, wishes and clauses with "would"
are left out on purpose; "can", "will" and "want" stay in the predicate. The rules are frozen: extend none of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from graphmem.extraction.spacy.complements import complements, conjuncts, is_negative_determiner, negated, prepositional
from graphmem.extraction.spacy.possessive_relations import (
    is_apposition,
    is_favorite,
    is_naming,
    name_bearer,
    naming_triples,
    possessive_triples,
    referent,
)
from graphmem.extraction.spacy.predicates import SUBJECTS, VERBS, is_hypothetical, is_passive, is_rare, modal, negation
from graphmem.extraction.spacy.triples import CONTENT_POS, DIRECT, INDIRECT, INFERRED, EntityKeys, Triple
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
    if not subjects or _is_encouragement(verb):
        return
    max_confidence = INFERRED if is_rare(verb) else 1.0
    for complement in verb_complements:
        object_key = keys.key_of(complement.target)
        for subject in subjects:
            words = negated(complement.predicate) if subject.is_negated else complement.predicate
            confidence = min(subject.confidence, complement.confidence, max_confidence)
            yield Triple(subject.key, words, object_key, confidence)
    for agent in _agents(verb) if is_passive(verb) else ():
        active = negation(verb) + modal(verb) + verb.lemma_.lower()
        for subject in subjects:
            words = negated(active) if subject.is_negated else active
            yield Triple(keys.key_of(agent), words, subject.key, min(subject.confidence, max_confidence))


def _is_encouragement(verb: Token) -> bool:
    """True for "we can make a difference"."""
    words = {child.lower_ for child in verb.children}
    return "we" in words and "can" in words


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
        if _is_urged(verb) or _is_imperative(verb):
            return []
        shared = _subjects(verb.head, keys)
        return [replace(subject, confidence=min(subject.confidence, INDIRECT)) for subject in shared]
    if verb.dep_ == "acl" and verb.tag_ == "VBN":
        return [Subject(keys.key_of(verb.head))]
    return [Subject(keys.speaker, confidence=INDIRECT)] if _omits_i(verb) else []


def _is_urged(verb: Token) -> bool:
    return verb.head.lemma_ in URGE_VERBS and any(child.dep_ == "dobj" for child in verb.head.children)


def _is_imperative(verb: Token) -> bool:
    """True for "keep" in "you did well, keep it up"."""
    if verb.dep_ != "conj" or verb.tag_ != "VB" or verb.head.tag_ not in ("VBD", "VBN"):
        return False
    return not any(child.tag_ in ("MD", "TO") for token in (verb, verb.head) for child in token.children)


def _resolved_subjects(subject: Token, verb: Token, keys: EntityKeys) -> list[Subject]:
    """Resolves pronouns, "nobody in …", relative clauses and conjunctions to the entities that act."""
    if subject.lower_ in ("he", "she"):
        antecedent = _antecedent(verb)
        return [Subject(keys.key_of(antecedent), confidence=INFERRED)] if antecedent is not None else []
    if subject.lower_ in NEGATED_SUBJECTS:
        return [Subject(keys.key_of(member), is_negated=True) for member in _negated_group(subject)]
    token = verb.head if verb.dep_ == "relcl" and subject.tag_ in ("WP", "WDT") else name_bearer(subject)
    confidence = INDIRECT if token.lower_ == "we" else DIRECT
    return [Subject(keys.key_of(each), is_negative_determiner(token), confidence) for each in conjuncts(token)]


def _negated_group(pronoun: Token) -> list[Token]:
    """Returns "friends" for "none of my friends", "family" for "nobody in my family"."""
    prepositions = (child for child in pronoun.children if child.lower_ in ("of", "in", "from"))
    return [child for preposition in prepositions for child in preposition.children if child.dep_ == "pobj"]


def _antecedent(verb: Token) -> Token | None:
    """Returns the subject of the clause that governs a verb's, if it is the only one and has a name."""
    governor = verb.head
    is_governed = verb.dep_ == "conj" or (verb.dep_ == "ccomp" and governor.lemma_ in SPEECH_VERBS)
    subjects = [child for child in governor.children if child.dep_ == "nsubj"] if is_governed else []
    if len(subjects) != 1 or any(True for _ in subjects[0].conjuncts):
        return None
    return subjects[0] if referent(subjects[0]).pos_ == "PROPN" else None


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


def _agents(verb: Token) -> Iterator[Token]:
    prepositions = (child for child in verb.children if child.dep_ == "agent")
    objects = (child for by in prepositions for child in by.children if child.dep_ == "pobj")
    return (token for child in objects for token in conjuncts(child))
