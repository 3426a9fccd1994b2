"""An Embedder and an Extractor without a model: equal results on every machine, in microseconds."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from graphmem.errors import ConfigError
from graphmem.model import EntityType, Extraction, Mention, MentionKind, Statement, Utterance
from graphmem.plugins import Embedded, EmbeddedQuestion
from graphmem.text import ARTICLES, STOP_WORDS, display_form, mostly_latin, normalise_key, term_id, tokens

if TYPE_CHECKING:
    from graphmem.plugins import Matrix, Tokens

# Tokens of one window. Windows do not overlap.
WINDOW = 200
# Words of a predicate between two names, at most: "works at", "is a good friend of".
LONGEST_PREDICATE = 5

_SENTENCE = re.compile(r"[^.!?\n]+[.!?]?")
_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*|[^\w\s]")
_FILLERS = ARTICLES | {"do", "does", "did"}
_CONJUNCTIONS = frozenset(("and", "or", "nor", "but"))


class HashEmbedder:
    """A TokenEmbedder by feature hashing: each token's hash selects one of `dims` components, and a sign."""

    def __init__(self, dims: int = 64) -> None:
        """`dims` is the length of the vectors. Raises ConfigError if it is less than 2."""
        if dims < 2:  # noqa: PLR2004 - in one dimension every text has the same direction
            raise ConfigError(f"HashEmbedder needs at least 2 dims, not {dims}")
        self._dims = dims

    @property
    def model(self) -> str:
        """The name under which vectors are stored."""
        return f"hash-{self._dims}"

    @property
    def dims(self) -> int:
        """The length of a vector."""
        return self._dims

    def embed(self, texts: Sequence[str]) -> list[Matrix]:
        """Returns one matrix (windows x dims, float32, unit rows) for each text, in order; 200 tokens make a row."""
        return [self._rows(tokens(text)) for text in texts]

    def embed_query(self, text: str) -> Matrix:
        """Returns one unit vector (dims,) of all tokens of a question."""
        return self._vector(tokens(text))

    @property
    def token_form(self) -> str:
        """The name under which token matrices are stored."""
        return f"tokens-{self._dims}"

    @property
    def token_dims(self) -> int:
        """The length of a token's vector."""
        return self._dims

    def embed_tokens(self, texts: Sequence[str]) -> list[Embedded]:
        """Returns the matrices of `embed`, and int8 vectors for each token, which do not depend on its context."""
        windows = [_windows(tokens(text)) for text in texts]
        return [
            Embedded(
                self._rows([word for window in text_windows for word in window]),
                tuple(self._tokens(window) for window in text_windows),
            )
            for text_windows in windows
        ]

    def embed_question(self, text: str) -> EmbeddedQuestion:
        """Returns the vector of `embed_query`, and the question's tokens with their vectors (float32)."""
        words = tokens(text)
        vectors = (self._tokens(words) / np.float32(127)).astype(np.float32)
        return EmbeddedQuestion(self._vector(words), vectors, tuple(words))

    def _rows(self, words: Sequence[str]) -> Matrix:
        return np.stack([self._vector(window) for window in _windows(words)])

    def _tokens(self, words: Sequence[str]) -> Tokens:
        matrix = np.zeros((len(words), self._dims), np.int8)
        for row, word in enumerate(words):
            number, sign = divmod(term_id(word), 2)
            matrix[row, number % self._dims] = 127 if sign else -127
        return matrix

    def _vector(self, words: Sequence[str]) -> Matrix:
        vector = np.zeros(self._dims, np.float32)
        for word in words:
            number, sign = divmod(term_id(word), 2)
            vector[number % self._dims] += 1 if sign else -1
        length = np.linalg.norm(vector)
        if length == 0:
            # Without tokens, or with tokens that cancel out: a fixed unit vector, as a zero vector has no direction.
            vector[0] = length = np.float32(1)
        return np.asarray(vector / length, dtype=np.float32)


def _windows(words: Sequence[str]) -> list[list[str]]:
    return [list(words[start : start + WINDOW]) for start in range(0, max(len(words), 1), WINDOW)]


class WordExtractor:
    """An Extractor: runs of capitalised words are names; the words between two names of a sentence are a predicate."""

    @property
    def name(self) -> str:
        """The constant "words"; no model's name is part of it, as no model is used."""
        return "words"

    def extract(self, utterances: Sequence[Utterance]) -> list[Extraction]:
        """Returns one extraction for each utterance, in order. "I" is the speaker."""
        return [_extract(utterance) for utterance in utterances]


def _extract(utterance: Utterance) -> Extraction:
    mentions: dict[str, Mention] = {}
    speaker = _add_mention(mentions, utterance.speaker or "", EntityType.PERSON)
    statements: dict[Statement, None] = {}
    for sentence in _SENTENCE.findall(utterance.text):
        parts = [(_add_mention(mentions, part) if is_name else "", part) for is_name, part in _parts(sentence)]
        if not sentence.endswith("?"):
            keys = [(speaker if part == "I" else key, part) for key, part in parts]
            statements.update(dict.fromkeys(_statements(keys, sentence.strip())))
    return Extraction(tuple(mentions.values()), tuple(statements))


def _add_mention(mentions: dict[str, Mention], name: str, type_: EntityType = EntityType.OTHER) -> str:
    """Adds a name to the mentions; returns its key, "" if it has none."""
    key = normalise_key(name)
    if key:
        mentions.setdefault(key, Mention(key, display_form(name), type_, MentionKind.NAME))
    return key


def _parts(sentence: str) -> Iterator[tuple[bool, str]]:
    """Splits a sentence into (True, name) and (False, other word or sign)."""
    name_words: list[str] = []
    for word in _WORD.findall(sentence):
        is_capitalised = word[0].isupper() and mostly_latin(word[0])
        if is_capitalised and word.casefold().partition("'")[0] not in STOP_WORDS:
            name_words.append(word)
            continue
        if name_words:
            yield True, " ".join(name_words)
            name_words = []
        yield False, word
    if name_words:
        yield True, " ".join(name_words)


def _statements(parts: Sequence[tuple[str, str]], fact: str) -> Iterator[Statement]:
    """Yields a statement for each pair of successive names with a predicate between them.

    `parts` are (key, text); the key of words between names is "". `fact` is the sentence.
    """
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
    content_words = ["not" if word.endswith(("n't", "n’t")) else word for word in words if word not in _FILLERS]
    all_plain = all(word[0].isalpha() and word not in _CONJUNCTIONS for word in content_words)
    return " ".join(content_words) if all_plain and len(content_words) <= LONGEST_PREDICATE else ""
