from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmem.errors import ConfigError
from graphmem.extraction import Extractor
from graphmem.model import EntityType, MentionKind, Utterance
from graphmem.plugins import Embedder, TokenEmbedder
from graphmem.testing import HashEmbedder, WordExtractor

EMBEDDER: Embedder = HashEmbedder()
EXTRACTOR: Extractor = WordExtractor()


def list_triples(text: str, speaker: str | None = "Mel") -> list[tuple[str, str, str]]:
    (extraction,) = EXTRACTOR.extract([Utterance(text, speaker)])
    assert {key for statement in extraction.statements for key in (statement.subject, statement.object)} <= {
        m.key for m in extraction.mentions
    }
    return [(statement.subject, statement.predicate, statement.object) for statement in extraction.statements]


@given(st.lists(st.text()), st.integers(2, 100))
def test_rows_are_unit_vectors(texts: list[str], dims: int) -> None:
    embedder = HashEmbedder(dims)
    rows = embedder.embed(texts)
    assert len(rows) == len(texts)
    for text, matrix in zip(texts, rows, strict=True):
        assert matrix.shape == (1, dims)
        assert matrix.dtype == np.float32
        assert np.allclose(np.linalg.norm(matrix, axis=1), 1, atol=1e-5)
        assert np.array_equal(embedder.embed_query(text), matrix[0])


def test_texts_with_common_words_are_similar() -> None:
    near, far = (EMBEDDER.embed_query(text) for text in ("my painted sunrise", "tax forms for accountants"))
    query = EMBEDDER.embed_query("who was painting a sunrise?")
    assert query @ near > 0.9
    assert query @ far < 0.5


def test_a_long_text_has_several_windows() -> None:
    (matrix,) = EMBEDDER.embed(["word " * 401])
    assert matrix.shape == (3, 64)


def test_vectors_are_equal_on_every_machine() -> None:
    assert np.flatnonzero(EMBEDDER.embed_query("sunrise")).tolist() == [47]


def test_token_vectors_depend_on_the_word_only() -> None:
    embedder = HashEmbedder()
    assert isinstance(embedder, TokenEmbedder)
    (text,) = embedder.embed_tokens(["my painted sunrise"])
    question = embedder.embed_question("who was painting a sunrise?")
    near = question.tokens @ (text.tokens[0].T.astype(np.float32) / 127)
    assert near.max(axis=1).tolist() == [1.0, 1.0]
    assert (text.vectors == embedder.embed(["my painted sunrise"])[0]).all()
    assert [len(part) for part in embedder.embed_tokens(["word " * 401])[0].tokens] == [200, 200, 1]


def test_one_dimension_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least 2"):
        HashEmbedder(1)


def test_names_and_the_speaker_are_mentions() -> None:
    (extraction,) = EXTRACTOR.extract([Utterance("The new Mayor met Anna Smith. Painting, for Bob!", "Mel")])
    assert [mention.key for mention in extraction.mentions] == ["mel", "mayor", "anna smith", "painting", "bob"]
    assert extraction.mentions[0].type is EntityType.PERSON
    assert {mention.kind for mention in extraction.mentions} == {MentionKind.NAME}
    assert extraction.mentions[2].name == "Anna Smith"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Anna works at Google.", [("anna", "works at", "google")]),
        ("I like Paris!", [("mel", "like", "paris")]),
        ("Anna doesn't like Tom and Bob.", [("anna", "not like", "tom")]),
        ("Alice likes Bob, and Bob likes Carol", [("alice", "likes", "bob"), ("bob", "likes", "carol")]),
        ("Does Anna like Tom?", []),
        ("Anna and Tom", []),
        ("Anna. Tom", []),
        ("我喜欢北京", []),
        ("", []),
    ],
)
def test_statements(text: str, expected: list[tuple[str, str, str]]) -> None:
    assert list_triples(text) == expected


def test_without_a_speaker_i_is_nobody() -> None:
    assert list_triples("I like Paris!", None) == []
