"""Relations from a dependency parse: who does what to whom, who is what, whose sister somebody is.

Left out on purpose: questions, conditions, wishes and what "would" be; pronouns other than "I" (nothing here knows whom
they mean). What can, will or wants to be keeps that word in its predicate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias

from graphmem.model import Statement

if TYPE_CHECKING:
    from spacy.tokens import Doc, Span, Token

    Key: TypeAlias = Callable[[Token], str]
    Triple: TypeAlias = tuple[str, str, str]

FIRST_PERSON = frozenset(("i", "me", "my", "mine", "myself"))
VERBS = frozenset(("VERB", "AUX"))
SUBJECTS = frozenset(("nsubj", "nsubjpass"))
OBJECTS = frozenset(("dobj", "obj", "attr", "oprd"))
CONDITIONS = frozenset(("if", "unless", "whether"))
UNREAL = frozenset(("would", "'d", "’d", "could", "might", "may", "should"))
DOUBTS = frozenset(("maybe", "perhaps", "possibly"))
WISHES = frozenset(("wish", "hope", "imagine", "dream", "pretend", "doubt"))
# "I don't think she smokes" says that she does not; "I didn't know she smokes" that she does.
RAISING = frozenset(("think", "believe", "suppose", "guess"))
# The parser takes "rice" for an adjective in "my favorite food is rice".
COPULA_ENDS = frozenset(("attr", "oprd", "acomp"))
FAVORITES = frozenset(("favorite", "favourite"))
# Verbs that only say when or how another is meant, before "to".
LEADS = {"going": "will", "gon": "will", "used": "used to"}
QUOTES = frozenset('"“”«»')


def statements(doc: Doc, text: str, entity: Callable[[Token], str]) -> Iterator[Statement]:
    """What each sentence of a parsed text states.

    `text` are the words as written, to quote facts from; `entity` gives the key a token stands for, "" for none.
    """
    for sentence in doc.sents:
        fact = text[sentence.start_char : sentence.end_char].strip()
        if "?" in fact[-3:]:
            continue
        key = _without_speaker(entity) if QUOTES & set(fact) else entity
        for subject, predicate, target in _triples(sentence, key):
            if subject and target and subject != target:
                yield Statement(subject, predicate, target, fact)


def _without_speaker(entity: Key) -> Key:
    # The "I" of a quotation is whoever is quoted.
    return lambda token: "" if token.lower_ in FIRST_PERSON else entity(token)


def _triples(sentence: Span, key: Key) -> Iterator[Triple]:
    for token in sentence:
        if token.pos_ in VERBS and token.dep_ not in ("aux", "auxpass") and not _is_unreal(token):
            yield from _clause(token, key)
        for relative, name in _relatives(token):
            yield from ((_owner(relative, name, key), _role(relative), key(each)) for each in _all(name))


def _clause(verb: Token, key: Key) -> Iterator[Triple]:
    subjects = [key(token) for token in _subjects(verb)]
    if not any(subjects):
        return
    for predicate, target in _complements(verb):
        found = key(target)
        yield from ((subject, predicate, found) for subject in subjects)
    for agent in _agents(verb) if _is_passive(verb) else ():
        predicate = _negation(verb) + _modal(verb) + verb.lemma_.lower()
        yield from ((key(agent), predicate, subject) for subject in subjects)


def _all(token: Token) -> Iterator[Token]:
    """A token and what is joined to it: "Anna, Tom and Sara"."""
    yield token
    if token.dep_ != "conj":
        yield from token.conjuncts


def _subjects(verb: Token) -> list[Token]:
    for child in verb.children:
        if child.dep_ in SUBJECTS:
            meant = verb.head if verb.dep_ == "relcl" and child.tag_ in ("WP", "WDT") else _bearer(child)
            return list(_all(meant))
    if verb.dep_ in ("conj", "xcomp") and verb.head.pos_ in VERBS:
        return _subjects(verb.head)
    if verb.dep_ == "acl" and verb.tag_ == "VBN":
        return [verb.head]
    return []


def _bearer(subject: Token) -> Token:
    """Whose name it is, in "my dog's name is Rex"; any other subject is itself."""
    if subject.lemma_ == "name":
        return next((child for child in subject.children if child.dep_ == "poss"), subject)
    return subject


def _complements(verb: Token) -> Iterator[tuple[str, Token]]:
    base = _predicate(verb)
    for child in verb.children:
        if child.dep_ in OBJECTS:
            yield from ((_denied(base, child), token) for token in _all(child))
        if child.dep_ == "dative" and child.pos_ != "ADP":
            yield f"{base} to", child
        if child.dep_ == "xcomp" and child.tag_ == "VBG" and not any(each.dep_ == "dobj" for each in child.children):
            yield base, child
        if child.dep_ in ("acomp", "attr") and not child.ent_type_:
            # "allergic to nuts", "CEO of Acme"
            yield from _prepositional(f"{base} {child.lemma_.lower()}", child)
    yield from _prepositional(base, verb)


def _prepositional(base: str, holder: Token) -> Iterator[tuple[str, Token]]:
    for preposition in holder.children:
        if preposition.dep_ == "prep" or (preposition.dep_ == "dative" and preposition.pos_ == "ADP"):
            predicate = f"{base} {preposition.lower_}"
            for child in preposition.children:
                if child.dep_ == "pobj":
                    yield from ((predicate, token) for token in _all(child))
            yield from _prepositional(predicate, preposition)


def _agents(verb: Token) -> Iterator[Token]:
    by = (child for child in verb.children if child.dep_ == "agent")
    return (token for each in by for child in each.children if child.dep_ == "pobj" for token in _all(child))


def _predicate(verb: Token) -> str:
    """Such as "not want to pick up": negation, modal, the verbs that lead to this one, particle."""
    return _negation(verb) + _modal(verb) + _lemma(verb)


def _lemma(verb: Token) -> str:
    if any(child.dep_ in SUBJECTS and child.lemma_ == "name" for child in verb.children) and verb.lemma_ == "be":
        return "be named"
    words = f"be {verb.lower_}" if _is_passive(verb) else verb.lemma_.lower()
    words = " ".join([words, *(child.lower_ for child in verb.children if child.dep_ == "prt")])
    if verb.dep_ == "xcomp" and verb.head.pos_ in VERBS:
        return f"{_lead(verb)} {words}"
    return words


def _lead(verb: Token) -> str:
    if not any(child.tag_ == "TO" for child in verb.children):
        return _lemma(verb.head)
    return LEADS.get(verb.head.lower_) or f"{_lemma(verb.head)} to"


def _modal(verb: Token) -> str:
    modals = [child.norm_ for child in verb.children if child.tag_ == "MD"]
    if not modals and _shares_subject(verb):
        return _modal(verb.head)
    return "".join(f"{modal} " for modal in modals)


def _negation(verb: Token) -> str:
    return "not " if _is_negated(verb) else ""


def _denied(base: str, target: Token) -> str:
    # "I have no siblings"
    none = any(child.dep_ == "det" and child.lower_ == "no" for child in target.children)
    return f"not {base}" if none and not base.startswith("not ") else base


def _is_negated(verb: Token) -> bool:
    if any(child.dep_ == "neg" or (child.lower_ == "longer" and _says_no(child)) for child in verb.children):
        return True
    if verb.dep_ == "xcomp" or (verb.dep_ == "ccomp" and verb.head.lemma_ in RAISING):
        return _is_negated(verb.head)
    alternative = any(child.dep_ == "cc" and child.lower_ in ("or", "nor") for child in verb.head.children)
    return verb.dep_ == "conj" and alternative and _shares_subject(verb) and _is_negated(verb.head)


def _says_no(longer: Token) -> bool:
    return any(child.lower_ == "no" for child in longer.children)


def _shares_subject(verb: Token) -> bool:
    own = any(child.dep_ in SUBJECTS for child in verb.children)
    return verb.dep_ in ("conj", "xcomp") and not own and verb.head.pos_ in VERBS


def _is_passive(verb: Token) -> bool:
    return verb.tag_ == "VBN" and (verb.dep_ == "acl" or any(child.dep_ == "auxpass" for child in verb.children))


def _is_unreal(verb: Token) -> bool:
    for child in verb.children:
        if (child.norm_ in UNREAL and child.dep_ == "aux") or child.lower_ in DOUBTS:
            return True
        if _is_condition(child) or (child.dep_ == "advcl" and any(map(_is_condition, child.children))):
            return True
    if verb.dep_ in ("ccomp", "xcomp") and verb.head.lemma_ in WISHES:
        return True
    return verb.dep_ in ("conj", "xcomp") and verb.head.pos_ in VERBS and _is_unreal(verb.head)


def _is_condition(token: Token) -> bool:
    return token.dep_ == "mark" and token.lower_ in CONDITIONS


def _relatives(token: Token) -> Iterator[tuple[Token, Token]]:
    """Pairs of (sister, Anna): "my sister Anna", "my dog is called Rex", "my favorite food is rice"."""
    if token.dep_ in ("appos", "compound", "nmod"):
        yield from _told_apart(token, token.head)
    is_copula = token.lemma_ == "be" or (token.lemma_ in ("call", "name") and _is_passive(token))
    if is_copula and token.dep_ != "auxpass" and not _is_negated(token) and not _is_unreal(token):
        subjects = [_bearer(child) for child in token.children if child.dep_ in SUBJECTS]
        others = [child for child in token.children if child.dep_ in COPULA_ENDS]
        yield from (pair for subject in subjects for other in others for pair in _told_apart(subject, other))


def _told_apart(one: Token, other: Token) -> Iterator[tuple[Token, Token]]:
    if one.pos_ == "NOUN" and (other.pos_ == "PROPN" or _favorite(one)):
        yield one, other
    elif one.pos_ == "PROPN" and other.pos_ == "NOUN":
        yield other, one


def _favorite(token: Token) -> str:
    return next((f"{child.lower_} " for child in token.lefts if child.lower_ in FAVORITES), "")


def _role(relative: Token) -> str:
    return _favorite(relative) + relative.lemma_.lower()


def _owner(relative: Token, name: Token, key: Key) -> str:
    """Whose sister: the speaker or somebody with a name."""
    holders = (relative, name) if relative.head == name else (relative,)
    owners = (child for holder in holders for child in holder.children if child.dep_ == "poss")
    return next((key(owner) for owner in owners if owner.pos_ in ("PRON", "PROPN")), "")
