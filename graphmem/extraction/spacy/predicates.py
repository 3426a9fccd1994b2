"""Composes the predicate of a verb ("not want to pick up", "used to live in", "will move to"), and the triple that
extraction rules yield: the keys of its subject and object, and the confidence of each rule.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spacy.tokens import Token

SUBJECTS = frozenset(("nsubj", "nsubjpass"))
VERBS = frozenset(("VERB", "AUX"))
CONDITIONS = frozenset(("if", "unless", "whether"))
HYPOTHETICAL_MODALS = frozenset(("would", "'d", "’d", "could", "might", "may", "should"))
DOUBT_ADVERBS = frozenset(("maybe", "perhaps", "possibly"))
# With "hop", because the lemmatizer takes "hoping" for hopping.
WISH_VERBS = frozenset(("wish", "hope", "hop", "imagine", "dream", "pretend", "doubt"))
# Verbs whose negation applies to their clause: "I don't think she smokes" states that she does not, while "I didn't
# know she smokes" states that she does.
RAISING_VERBS = frozenset(("think", "believe", "suppose", "guess"))
# Verbs before "to" that mark the tense of another verb, and their replacement in the predicate.
TENSE_MARKERS = {"going": "will", "gon": "will", "used": "used to"}
# With "was" or "were", these yield no statement: "I was going to visit Rome" does not state that I did.
INTENTIONS = frozenset(("going", "supposed", "meant"))
HARDLY = frozenset(("hardly", "scarcely", "barely"))
SELDOM = frozenset(("rarely", "seldom"))
# The words that denote the speaker. Not "us": "brings us joy" is about everybody.
FIRST_PERSON = frozenset("i me my mine myself we our".split())
# Parts of speech of the tokens to which the rules apply.
CONTENT_POS = frozenset(("NOUN", "PROPN", "VERB", "AUX"))
# `Statement.confidence`: the share of correct statements, by rule. Estimated from the dev half of benchmarks/entities
# and a manual count over chats of other people, rounded; the numbers are in the README of benchmarks/entities.
EXPLICIT = 0.95  # fixed wordings: kin, pets, bosses, statements of a name
DIRECT = 0.9  # a verb with its own subject and object, or "be" with its complement
# Rules where the parser errs more often: prepositional complements, a subject from another verb, an omitted "I", "we",
# appositions, relational nouns other than kin and pets.
INDIRECT = 0.8
INFERRED = 0.6  # "she" resolved to the subject before; "rarely", which is neither yes nor no


def predicate(verb: Token) -> str:
    """Returns the predicate of a verb: negation, modal, governing verbs, lemma, particle ("not want to pick up")."""
    return negation(verb) + modal(verb) + _lemma(verb)


def negation(verb: Token) -> str:
    """Returns the prefix of a predicate: "not " if the verb is negated, else ""."""
    return "not " if is_negated(verb) else ""


def modal(verb: Token) -> str:
    """Returns a verb's modals ("can ", "will ", "must "), each with a trailing space, or those of the verb it joins."""
    modals = [child.norm_ for child in verb.children if child.tag_ == "MD"]
    if not modals and shares_subject(verb):
        return modal(verb.head)
    return "".join(f"{word} " for word in modals)


def is_negated(verb: Token) -> bool:
    """Whether a verb is negated, by itself or by a verb that governs it."""
    if any(child.dep_ == "neg" or _is_negative_adverb(child) for child in verb.children):
        return True
    if verb.dep_ == "xcomp" or (verb.dep_ == "ccomp" and verb.head.lemma_ in RAISING_VERBS):
        return is_negated(verb.head)
    alternative = any(child.dep_ == "cc" and child.lower_ in ("or", "nor") for child in verb.head.children)
    return verb.dep_ == "conj" and alternative and shares_subject(verb) and is_negated(verb.head)


def is_passive(verb: Token) -> bool:
    """Whether a verb is in the passive voice, also as a participle after a noun ("a house built by Ana")."""
    return (
        verb.tag_ == "VBN"
        and verb.lemma_ != "be"
        and (verb.dep_ == "acl" or any(child.dep_ == "auxpass" for child in verb.children))
    )


def is_hypothetical(verb: Token) -> bool:
    """Whether a verb is only wished, supposed, intended or conditional."""
    for child in verb.children:
        if (child.norm_ in HYPOTHETICAL_MODALS and child.dep_ == "aux") or child.lower_ in DOUBT_ADVERBS:
            return True
        if _is_condition(child) or (child.dep_ == "advcl" and any(map(_is_condition, child.children))):
            return True
    if verb.dep_ in ("ccomp", "xcomp"):
        governor = verb.head
        is_past = any(each.dep_ in ("aux", "auxpass") and each.lower_ in ("was", "were") for each in governor.children)
        if governor.lemma_ in WISH_VERBS or (is_past and governor.lower_ in INTENTIONS):
            return True
    return verb.dep_ in ("conj", "xcomp") and verb.head.pos_ in VERBS and is_hypothetical(verb.head)


def is_rare(verb: Token) -> bool:
    """Whether an adverb like "rarely" modifies a verb."""
    return any(child.lower_ in SELDOM for child in verb.children)


def shares_subject(verb: Token) -> bool:
    """Whether a verb takes its subject from the verb that governs it."""
    has_subject = any(child.dep_ in SUBJECTS for child in verb.children)
    return verb.dep_ in ("conj", "xcomp") and not has_subject and verb.head.pos_ in VERBS


def _lemma(verb: Token) -> str:
    if verb.lemma_ == "be" and any(child.dep_ in SUBJECTS and child.lemma_ == "name" for child in verb.children):
        return "be named"
    if verb.lemma_ == "be" and verb.tag_ == "VBD" and any(child.lower_ == "when" for child in verb.children):
        return "used to be"  # "when I was a student"
    words = f"be {verb.lower_}" if is_passive(verb) else verb.lemma_.lower()
    words = " ".join([words, *(child.lower_ for child in verb.children if child.dep_ == "prt")])
    if verb.dep_ != "xcomp" or verb.head.pos_ not in VERBS:
        return words
    if not any(child.tag_ == "TO" for child in verb.children):
        return f"{_lemma(verb.head)} {words}"
    state = next((f" {child.lower_}" for child in verb.head.children if child.dep_ == "acomp"), "")
    governing_verbs = TENSE_MARKERS.get(verb.head.lower_) or f"{_lemma(verb.head)}{state} to"
    return f"{governing_verbs} {words}"


def _is_negative_adverb(adverb: Token) -> bool:
    """True for "hardly" and its like, and for "longer" in "no longer"."""
    if adverb.dep_ != "advmod":
        return False
    if adverb.lower_ in HARDLY or any(child.lower_ in HARDLY for child in adverb.children):
        return True
    return adverb.lower_ == "longer" and any(child.lower_ == "no" for child in adverb.children)


def _is_condition(token: Token) -> bool:
    return token.dep_ == "mark" and token.lower_ in CONDITIONS


@dataclass(frozen=True, slots=True)
class Triple:
    """The keys of subject and object with a predicate, and the confidence of the rule that found it."""

    subject: str
    predicate: str
    object: str
    confidence: float


@dataclass(frozen=True, slots=True)
class EntityKeys:
    """Maps tokens to entity keys. `speaker` is the key of "I" and "we", `entity` finds the key of any other token."""

    entity: Callable[[Token], str]
    speaker: str

    def key_of(self, token: Token) -> str:
        """Returns the key of the entity that a token denotes, "" if there is none."""
        return self.speaker if token.lower_ in FIRST_PERSON else self.entity(token)

    def owner_key(self, noun: Token) -> str:
        """Returns the key of a noun's owner ("my", "Anna's"), "" without one that is a name or a pronoun."""
        owners = (child for child in noun.children if child.dep_ == "poss" and child.pos_ in ("PRON", "PROPN"))
        return next((self.key_of(owner) for owner in owners), "")
