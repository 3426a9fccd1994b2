"""The triple that extraction rules yield, the keys of its subject and object, and the confidence of each rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spacy.tokens import Token

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
