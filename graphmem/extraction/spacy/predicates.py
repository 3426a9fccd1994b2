"""The words of a predicate: "not want to pick up", "used to live in", "will move to".

A lemma with its particle; in front the verbs that lead to it, what can, will or must be, "not". The simple tenses and
the perfect leave no trace; what is over or to come says so: "used to", "will". What would or might be is not stated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spacy.tokens import Token

SUBJECTS = frozenset(("nsubj", "nsubjpass"))
VERBS = frozenset(("VERB", "AUX"))
CONDITIONS = frozenset(("if", "unless", "whether"))
HYPOTHETICAL_MODALS = frozenset(("would", "'d", "’d", "could", "might", "may", "should"))
DOUBT_ADVERBS = frozenset(("maybe", "perhaps", "possibly"))
# The lemmatizer takes "hoping" for hopping.
WISH_VERBS = frozenset(("wish", "hope", "hop", "imagine", "dream", "pretend", "doubt"))
# "I don't think she smokes" says that she does not; "I didn't know she smokes" that she does.
RAISING_VERBS = frozenset(("think", "believe", "suppose", "guess"))
# Verbs that only say when or how another is meant, before "to".
TENSE_MARKERS = {"going": "will", "gon": "will", "used": "used to"}
# "I was going to visit Rome" does not say that I did.
INTENTIONS = frozenset(("going", "supposed", "meant"))
HARDLY = frozenset(("hardly", "scarcely", "barely"))
SELDOM = frozenset(("rarely", "seldom"))


def predicate(verb: Token) -> str:
    """Such as "not want to pick up": negation, modal, the verbs that lead to this one, particle."""
    return negation(verb) + modal(verb) + _lemma(verb)


def negation(verb: Token) -> str:
    """What is put in front of a predicate that is denied."""
    return "not " if is_negated(verb) else ""


def modal(verb: Token) -> str:
    """Can, will, must, with a partition behind."""
    modals = [child.norm_ for child in verb.children if child.tag_ == "MD"]
    if not modals and shares_subject(verb):
        return modal(verb.head)
    return "".join(f"{word} " for word in modals)


def is_negated(verb: Token) -> bool:
    """Whether the sentence says that it is not so."""
    if any(child.dep_ == "neg" or _says_no(child) for child in verb.children):
        return True
    if verb.dep_ == "xcomp" or (verb.dep_ == "ccomp" and verb.head.lemma_ in RAISING_VERBS):
        return is_negated(verb.head)
    alternative = any(child.dep_ == "cc" and child.lower_ in ("or", "nor") for child in verb.head.children)
    return verb.dep_ == "conj" and alternative and shares_subject(verb) and is_negated(verb.head)


def is_passive(verb: Token) -> bool:
    """Whether the subject of a verb is what it is done to."""
    return (
        verb.tag_ == "VBN"
        and verb.lemma_ != "be"
        and (verb.dep_ == "acl" or any(child.dep_ == "auxpass" for child in verb.children))
    )


def is_hypothetical(verb: Token) -> bool:
    """Whether something is only wished, supposed or conditional."""
    for child in verb.children:
        if (child.norm_ in HYPOTHETICAL_MODALS and child.dep_ == "aux") or child.lower_ in DOUBT_ADVERBS:
            return True
        if _is_condition(child) or (child.dep_ == "advcl" and any(map(_is_condition, child.children))):
            return True
    if verb.dep_ in ("ccomp", "xcomp") and (verb.head.lemma_ in WISH_VERBS or _was_intended(verb)):
        return True
    return verb.dep_ in ("conj", "xcomp") and verb.head.pos_ in VERBS and is_hypothetical(verb.head)


def is_rare(verb: Token) -> bool:
    """Whether something is so, but rarely."""
    return any(child.lower_ in SELDOM for child in verb.children)


def shares_subject(verb: Token) -> bool:
    """Whether a verb has its subject from the one it hangs on."""
    own = any(child.dep_ in SUBJECTS for child in verb.children)
    return verb.dep_ in ("conj", "xcomp") and not own and verb.head.pos_ in VERBS


def _lemma(verb: Token) -> str:
    if verb.lemma_ == "be" and any(child.dep_ in SUBJECTS and child.lemma_ == "name" for child in verb.children):
        return "be named"
    if _is_over(verb):
        return "used to be"
    words = f"be {verb.lower_}" if is_passive(verb) else verb.lemma_.lower()
    words = " ".join([words, *(child.lower_ for child in verb.children if child.dep_ == "prt")])
    if verb.dep_ == "xcomp" and verb.head.pos_ in VERBS:
        return f"{_lead(verb)} {words}"
    return words


def _is_over(verb: Token) -> bool:
    """Was, in "when I was a student"."""
    return verb.lemma_ == "be" and verb.tag_ == "VBD" and any(child.lower_ == "when" for child in verb.children)


def _lead(verb: Token) -> str:
    if not any(child.tag_ == "TO" for child in verb.children):
        return _lemma(verb.head)
    state = next((f" {child.lower_}" for child in verb.head.children if child.dep_ == "acomp"), "")
    return TENSE_MARKERS.get(verb.head.lower_) or f"{_lemma(verb.head)}{state} to"


def _says_no(adverb: Token) -> bool:
    if adverb.dep_ != "advmod":
        return False
    if adverb.lower_ in HARDLY or any(child.lower_ in HARDLY for child in adverb.children):
        return True
    return adverb.lower_ == "longer" and any(child.lower_ == "no" for child in adverb.children)


def _was_intended(verb: Token) -> bool:
    past = any(child.dep_ in ("aux", "auxpass") and child.lower_ in ("was", "were") for child in verb.head.children)
    return past and verb.head.lower_ in INTENTIONS


def _is_condition(token: Token) -> bool:
    return token.dep_ == "mark" and token.lower_ in CONDITIONS
