"""What a sentence claims, with the keys of its ends, and how far each way of reading is to be trusted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spacy.tokens import Token

# Not "us": what brings us joy brings it to everybody.
FIRST_PERSON = frozenset("i me my mine myself we our".split())

# The words that can say anything: a sentence is gone through by these.
CONTENT_POS = frozenset(("NOUN", "PROPN", "VERB", "AUX"))

# How often a statement read in a way is right: `Statement.confidence`. Estimated from the dev half of
# benchmarks/entities and from a hand count over chats by others, rounded: the numbers are in its README.
EXPLICIT = 0.95  # kin, pets, bosses, and names that are given: fixed wordings
DIRECT = 0.9  # a verb with its own subject and object, or what "be" says of its subject
# What hangs on a verb by a preposition, has its subject from another verb or has "I" left out, what "we" do,
# appositions, roles that are neither kin nor pet: where the parser errs more often.
INDIRECT = 0.8
INFERRED = 0.6  # "she" for the subject before; "rarely", which is neither yes nor no


@dataclass(frozen=True, slots=True)
class Triple:
    """A triple of keys, and the share of such readings that are right."""

    subject: str
    predicate: str
    object: str
    confidence: float


@dataclass(frozen=True, slots=True)
class EntityKeys:
    """The keys that tokens stand for: `speaker` is that of "I", and of "we", who is the speaker among others."""

    entity: Callable[[Token], str]
    speaker: str

    def key_of(self, token: Token) -> str:
        """The key, "" for a token that stands for nothing in particular."""
        return self.speaker if token.lower_ in FIRST_PERSON else self.entity(token)

    def owner_key(self, noun: Token) -> str:
        """The key of whose it is, as far as that is said by a name or a pronoun."""
        owners = (child for child in noun.children if child.dep_ == "poss" and child.pos_ in ("PRON", "PROPN"))
        return next((self.key_of(owner) for owner in owners), "")
