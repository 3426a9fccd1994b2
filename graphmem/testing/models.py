"""An Embedder and an Extractor that need no model: the same answer on every machine, in microseconds."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from graphmem.errors import ConfigError
from graphmem.model import EntityType, Extraction, Mention, MentionKind, Statement, Utterance
from graphmem.models.protocols import Embedded, EmbeddedQuestion
from graphmem.text import ARTICLES, STOP_WORDS, display_form, mostly_latin, normalise_key, term_id, tokens

if TYPE_CHECKING:
    from graphmem.models.protocols import Matrix, Tokens

# Tokens of one window; the windows of a longer text follow one another without overlap.
WINDOW = 200
# Words between two names that still read as a predicate: "works at", "is a good friend of".
LONGEST_PREDICATE = 5

_SENTENCE = re.compile(r"[^.!?\n]+[.!?]?")
_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*|[^\w\s]")
_FILLERS = ARTICLES | {"do", "does", "did"}
_JOINTS = frozenset(("and", "or", "nor", "but"))


class HashEmbedder:
    """A TokenEmbedder: each token counts, with a sign of its own, in one of `dims` places."""

    def __init__(self, dims: int = 64) -> None:
        """`dims` is the length of the vectors. ConfigError if it is less than 2."""
        if dims < 2:  # noqa: PLR2004 - in one dimension every text has the same direction
            raise ConfigError(f"HashEmbedder needs at least 2 dims, not {dims}")
        self._dims = dims

    @property
    def model(self) -> str:
        """The name vectors are filed under."""
        return f"hash-{self._dims}"

    @property
    def dims(self) -> int:
        """The length of a vector."""
        return self._dims

    def embed(self, texts: Sequence[str]) -> list[Matrix]:
        """One matrix (windows x dims, float32, unit rows) for each text, in order: a row for each 200 tokens."""
        return [self._rows(tokens(text)) for text in texts]

    def embed_query(self, text: str) -> Matrix:
        """One unit vector (dims,), of all the tokens of a question."""
        return self._vector(tokens(text))

    @property
    def token_form(self) -> str:
        """The name token matrices are filed under."""
        return f"tokens-{self._dims}"

    @property
    def token_dims(self) -> int:
        """The length of a token's vector."""
        return self._dims

    def embed_tokens(self, texts: Sequence[str]) -> list[Embedded]:
        """`embed`, with a vector for each token: alike for the same token, whatever stands around it."""
        windows = [_windows(tokens(text)) for text in texts]
        return [
            Embedded(
                self._rows([word for words in part for word in words]), tuple(self._tokens(words) for words in part)
            )
            for part in windows
        ]

    def embed_question(self, text: str) -> EmbeddedQuestion:
        """`embed_query`, with the question's tokens."""
        words = tokens(text)
        vectors = (self._tokens(words) / np.float32(127)).astype(np.float32)
        return EmbeddedQuestion(self._vector(words), vectors, tuple(words))

    def _rows(self, words: Sequence[str]) -> Matrix:
        return np.stack([self._vector(part) for part in _windows(words)])

    def _tokens(self, words: Sequence[str]) -> Tokens:
        found = np.zeros((len(words), self._dims), np.int8)
        for row, word in enumerate(words):
            place, sign = divmod(term_id(word), 2)
            found[row, place % self._dims] = 127 if sign else -127
        return found

    def _vector(self, words: Sequence[str]) -> Matrix:
        vector = np.zeros(self._dims, np.float32)
        for word in words:
            place, sign = divmod(term_id(word), 2)
            vector[place % self._dims] += 1 if sign else -1
        length = np.linalg.norm(vector)
        if length == 0:
            # No tokens, or tokens that cancel out: one direction for all of them, as a zero has none.
            vector[0] = length = np.float32(1)
        return np.asarray(vector / length, dtype=np.float32)


def _windows(words: Sequence[str]) -> list[list[str]]:
    return [list(words[start : start + WINDOW]) for start in range(0, max(len(words), 1), WINDOW)]


class WordExtractor:
    """An Extractor: runs of capitalised words are names, what stands between two names of a sentence relates them."""

    @property
    def name(self) -> str:
        """The extractor's name."""
        return "words"

    def extract(self, utterances: Sequence[Utterance]) -> list[Extraction]:
        """One extraction for each utterance, in order. "I" is the speaker."""
        return [_extraction(utterance) for utterance in utterances]

    def keys(self, question: str) -> list[Mention]:
        """What a question names, one mention for each key."""
        return list(_extraction(Utterance(question)).mentions)


def _extraction(utterance: Utterance) -> Extraction:
    mentions: dict[str, Mention] = {}
    speaker = _note(mentions, utterance.speaker or "", EntityType.PERSON)
    statements: dict[Statement, None] = {}
    for sentence in _SENTENCE.findall(utterance.text):
        parts = [(_note(mentions, part) if is_name else "", part) for is_name, part in _parts(sentence)]
        if not sentence.endswith("?"):
            keys = [(speaker if part == "I" else key, part) for key, part in parts]
            statements.update(dict.fromkeys(_statements(keys, sentence.strip())))
    return Extraction(tuple(mentions.values()), tuple(statements))


def _note(mentions: dict[str, Mention], words: str, type_: EntityType = EntityType.OTHER) -> str:
    key = normalise_key(words)
    if key:
        mentions.setdefault(key, Mention(key, display_form(words), type_, MentionKind.NAME))
    return key


def _parts(sentence: str) -> Iterator[tuple[bool, str]]:
    """A sentence as (True, a name) and (False, a word or sign)."""
    name: list[str] = []
    for word in _WORD.findall(sentence):
        if _is_name(word):
            name.append(word)
            continue
        if name:
            yield True, " ".join(name)
            name = []
        yield False, word
    if name:
        yield True, " ".join(name)


def _is_name(word: str) -> bool:
    return word[0].isupper() and mostly_latin(word[0]) and word.casefold().partition("'")[0] not in STOP_WORDS


def _statements(parts: Sequence[tuple[str, str]], fact: str) -> Iterator[Statement]:
    """`parts` are the keys, "" for words in between, with their words."""
    subject, between = "", list[str]()
    for key, word in parts:
        if not key:
            between.append(word.casefold())
            continue
        predicate = _predicate(between)
        if subject and predicate and key != subject:
            yield Statement(subject, predicate, key, fact)
        subject, between = key, []


def _predicate(words: Sequence[str]) -> str:
    told = ["not" if word.endswith(("n't", "n’t")) else word for word in words if word not in _FILLERS]
    plain = all(word[0].isalpha() and word not in _JOINTS for word in told)
    return " ".join(told) if plain and len(told) <= LONGEST_PREDICATE else ""
