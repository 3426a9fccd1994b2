"""Relations from a dependency parse: who does what to whom, who is what, whose sister somebody is.

The agent of a passive is the subject: "designed by Ana" says that Ana designs. "We" are the speaker, who is among
them; "she" is the subject of the clause that hers hangs on, or nobody. Left out on purpose: questions, conditions,
wishes and what "would" be. What can, will or wants to be keeps that word in its predicate.
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
    names_given,
    possessive_triples,
    referent,
)
from graphmem.extraction.spacy.predicates import SUBJECTS, VERBS, is_hypothetical, is_passive, is_rare, modal, negation
from graphmem.extraction.spacy.triples import CONTENT_POS, DIRECT, INDIRECT, INFERRED, EntityKeys, Triple
from graphmem.model import Statement

if TYPE_CHECKING:
    from spacy.tokens import Doc, Span, Token

NEGATED_SUBJECTS = frozenset(("nobody", "none", "neither"))
# "She asked Tom to call" does not say that he did, nor that she called.
URGE_VERBS = frozenset(
    """
    ask tell encourage motivate help let make want remind allow force invite teach persuade convince push inspire order
    advise enable need
    """.split()
)
SPEECH_VERBS = frozenset("say tell think believe know feel mention explain admit claim".split())
CLAUSE_OPENERS = frozenset(("ADV", "INTJ", "PUNCT", "CCONJ", "SPACE"))
# Participles that begin a sentence whose "I" is left out, rather than one whose "I am" is.
ACTIVITY_VERBS = frozenset("talk speak move go work live walk travel fly drive start graduate stay".split())
QUOTES = frozenset('"“”«»')


@dataclass(frozen=True, slots=True)
class Subject:
    """A subject's key; `is_negated`: "nobody in my family", "neither Tom"."""

    key: str
    is_negated: bool = False
    confidence: float = DIRECT


def statements(doc: Doc, text: str, keys: EntityKeys) -> Iterator[Statement]:
    """What each sentence of a parsed text states; `text` are the words as written, to quote facts from."""
    for sentence in doc.sents:
        fact = text[sentence.start_char : sentence.end_char].strip()
        if "?" in fact[-3:]:
            continue
        # The "I" of a quotation is whoever is quoted.
        said = replace(keys, speaker="") if QUOTES & set(fact) else keys
        for claim in _claims(sentence, said):
            if claim.subject and claim.object and claim.subject != claim.object:
                yield Statement(claim.subject, claim.predicate, claim.object, fact, claim.confidence)


def _claims(sentence: Span, keys: EntityKeys) -> Iterator[Triple]:
    for token in sentence:
        if token.pos_ in VERBS and token.dep_ not in ("aux", "auxpass") and not is_hypothetical(token):
            yield from names_given(token, keys) if is_naming(token) else _clause(token, keys)
        if token.pos_ in CONTENT_POS:
            yield from possessive_triples(token, keys)
        if token.dep_ == "appos" and is_apposition(token):
            yield from _apposition(token, keys)


def _clause(verb: Token, keys: EntityKeys) -> Iterator[Triple]:
    ends = list(complements(verb))
    if any(is_favorite(child) and keys.owner_key(child) for child in verb.children):
        # That sushi is my favorite food, not that a food is sushi: see `possessive_triples`.
        ends = [end for end in ends if end.predicate != "be"]
        if not ends:
            return
    subjects = [subject for subject in _subjects(verb, keys) if subject.key]
    if not subjects or _is_cheer(verb):
        return
    doubt = INFERRED if is_rare(verb) else 1.0
    for complement in ends:
        found = keys.key_of(complement.target)
        for subject in subjects:
            words = negated(complement.predicate) if subject.is_negated else complement.predicate
            yield Triple(subject.key, words, found, min(subject.confidence, complement.confidence, doubt))
    for agent in _agents(verb) if is_passive(verb) else ():
        words = negation(verb) + modal(verb) + verb.lemma_.lower()
        for subject in subjects:
            done = negated(words) if subject.is_negated else words
            yield Triple(keys.key_of(agent), done, subject.key, min(subject.confidence, doubt))


def _is_cheer(verb: Token) -> bool:
    """Whether it is said to cheer up: "we can make a difference"."""
    has = {child.lower_ for child in verb.children}
    return "we" in has and "can" in has


def _apposition(token: Token, keys: EntityKeys) -> Iterator[Triple]:
    """Bjorn, a carpenter from Bergen: he is one, and he is one from there."""
    name = token.head
    if token.pos_ != "NOUN" or name.pos_ != "PROPN":
        return
    yield Triple(keys.key_of(name), "be", keys.key_of(token), INDIRECT)
    for each in prepositional(f"be {token.lemma_.lower()}", token):
        yield Triple(keys.key_of(name), each.predicate, keys.key_of(each.target), INDIRECT)


def _subjects(verb: Token, keys: EntityKeys) -> list[Subject]:
    for child in verb.children:
        if child.dep_ in SUBJECTS:
            return _meant_by(child, verb, keys)
        if child.dep_ == "expl":
            # "There is a bakery behind my flat."
            return [Subject(keys.key_of(each)) for each in verb.children if each.dep_ == "attr"]
    if verb.dep_ in ("conj", "xcomp") and verb.head.pos_ in VERBS:
        if _is_urged(verb) or _is_order(verb):
            return []
        return [replace(each, confidence=min(each.confidence, INDIRECT)) for each in _subjects(verb.head, keys)]
    if verb.dep_ == "acl" and verb.tag_ == "VBN":
        return [Subject(keys.key_of(verb.head))]
    return [Subject(keys.speaker, confidence=INDIRECT)] if _drops_i(verb) else []


def _is_urged(verb: Token) -> bool:
    return verb.head.lemma_ in URGE_VERBS and any(child.dep_ == "dobj" for child in verb.head.children)


def _is_order(verb: Token) -> bool:
    """Keep, in "you did well, keep it up"."""
    if verb.dep_ != "conj" or verb.tag_ != "VB" or verb.head.tag_ not in ("VBD", "VBN"):
        return False
    return not any(child.tag_ in ("MD", "TO") for each in (verb, verb.head) for child in each.children)


def _meant_by(subject: Token, verb: Token, keys: EntityKeys) -> list[Subject]:
    if subject.lower_ in ("he", "she"):
        antecedent = _antecedent(verb)
        return [Subject(keys.key_of(antecedent), confidence=INFERRED)] if antecedent is not None else []
    if subject.lower_ in NEGATED_SUBJECTS:
        return [Subject(keys.key_of(each), is_negated=True) for each in _inside(subject)]
    token = verb.head if verb.dep_ == "relcl" and subject.tag_ in ("WP", "WDT") else name_bearer(subject)
    trust = INDIRECT if token.lower_ == "we" else DIRECT
    return [Subject(keys.key_of(each), is_negative_determiner(token), trust) for each in conjuncts(token)]


def _inside(nobody: Token) -> list[Token]:
    """Those of whom it is nobody: "none of my friends", "nobody in my family"."""
    links = (child for child in nobody.children if child.lower_ in ("of", "in", "from"))
    return [child for link in links for child in link.children if child.dep_ == "pobj"]


def _antecedent(verb: Token) -> Token | None:
    """The only subject, with a name, of the clause that this verb's hangs on."""
    governor = verb.head
    hangs = verb.dep_ == "conj" or (verb.dep_ == "ccomp" and governor.lemma_ in SPEECH_VERBS)
    subjects = [child for child in governor.children if child.dep_ == "nsubj"] if hangs else []
    if len(subjects) != 1 or any(True for _ in subjects[0].conjuncts):
        return None
    return subjects[0] if referent(subjects[0]).pos_ == "PROPN" else None


def _drops_i(verb: Token) -> bool:
    """As people write of themselves: "Met Greta at the fair"."""
    if verb.dep_ != "ROOT" or verb.tag_ not in ("VBD", "VBN") or verb.lemma_ == "be":
        return False
    has = {child.dep_ for child in verb.children}
    if has & {"agent", "auxpass", "aux"} or (
        verb.tag_ == "VBN" and "dobj" not in has and verb.lemma_ not in ACTIVITY_VERBS
    ):
        return False
    return all(token.pos_ in CLAUSE_OPENERS for token in verb.doc[verb.sent.start : verb.i])


def _agents(verb: Token) -> Iterator[Token]:
    by = (child for child in verb.children if child.dep_ == "agent")
    return (token for each in by for child in each.children if child.dep_ == "pobj" for token in conjuncts(child))
