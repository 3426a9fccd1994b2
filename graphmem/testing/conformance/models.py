"""Conformance tests of models: `Embedder` (shapes, unit length, and independence of the other texts of a call),
`LanguageModel` (text, JSON by a schema, and usage), `Reranker` (one finite score for each text, whatever the others
are).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphmem.plugins import Embedder, LanguageModel, Prompt, Reply, Reranker

TEXTS = ("Clara paints boats in Bergen.", "The kettle is red.", "我喜欢喝茶", "x")
LONG = "Clara paints boats in Bergen. " * 400
# Of a cosine between two runs of the same text: batches of other lengths move the last digits.
TOLERANCE = 1e-3


class EmbedderContract:
    """One test for each promise of the protocol. An embedder's tests subclass it and give a fixture `embedder`."""

    @pytest.fixture
    def embedder(self) -> Any:
        """Returns the embedder."""
        raise NotImplementedError

    def test_it_has_a_name_and_a_length(self, embedder: Embedder) -> None:
        assert isinstance(embedder.model, str)
        assert embedder.model.strip()
        assert type(embedder.dims) is int
        assert embedder.dims > 0

    def test_each_text_has_a_matrix_of_unit_rows(self, embedder: Embedder) -> None:
        matrices = embedder.embed([*TEXTS, LONG])
        assert len(matrices) == len(TEXTS) + 1
        for matrix in matrices:
            assert matrix.dtype == np.float32
            assert matrix.ndim == 2
            assert matrix.shape[1] == embedder.dims
            assert len(matrix) >= 1
            assert np.allclose(np.linalg.norm(matrix, axis=1), 1, atol=TOLERANCE)

    def test_a_short_text_has_one_row(self, embedder: Embedder) -> None:
        assert [len(matrix) for matrix in embedder.embed(TEXTS)] == [1] * len(TEXTS)

    def test_no_texts_give_no_matrices(self, embedder: Embedder) -> None:
        assert list(embedder.embed([])) == []

    def test_a_text_without_words_has_a_vector(self, embedder: Embedder) -> None:
        for matrix in embedder.embed(["", " ", "…", "\U0001f642"]):
            assert np.isfinite(matrix).all()
            assert np.allclose(np.linalg.norm(matrix, axis=1), 1, atol=TOLERANCE)

    def test_rows_do_not_depend_on_the_other_texts(self, embedder: Embedder) -> None:
        together = embedder.embed([*TEXTS, LONG])
        for text, matrix in zip((*TEXTS, LONG), together, strict=True):
            (alone,) = embedder.embed([text])
            assert alone.shape == matrix.shape
            assert np.allclose((alone * matrix).sum(axis=1), 1, atol=TOLERANCE)

    def test_a_question_has_one_unit_vector(self, embedder: Embedder) -> None:
        vector = embedder.embed_query("Who paints boats?")
        assert vector.shape == (embedder.dims,)
        assert float(np.linalg.norm(vector)) == pytest.approx(1, abs=TOLERANCE)

    def test_a_question_is_nearest_to_the_text_with_its_words(self, embedder: Embedder) -> None:
        question = embedder.embed_query("Who paints boats in Bergen?")
        near, far = (float((matrix @ question).max()) for matrix in embedder.embed(TEXTS[:2]))
        assert near > far


SCHEMA = {
    "type": "object",
    "properties": {"colour": {"type": "string"}},
    "required": ["colour"],
    "additionalProperties": False,
}


class LanguageModelContract:
    """One test for each promise of the protocol. A model's tests subclass it and give a fixture `model`."""

    @pytest.fixture
    def model(self) -> Any:
        """Returns the model."""
        raise NotImplementedError

    def test_it_has_a_name(self, model: LanguageModel) -> None:
        assert isinstance(model.name, str)
        assert model.name.strip()

    def test_without_a_schema_the_answer_is_text(self, model: LanguageModel) -> None:
        reply = model.answer(Prompt("test", "Answer in one word.", "What colour is the sky?"))
        self.check_usage(reply)
        assert isinstance(reply.value, str)
        assert reply.value.strip()

    def test_with_a_schema_the_answer_is_a_json_value(self, model: LanguageModel) -> None:
        reply = model.answer(Prompt("test", "Answer in JSON.", "What colour is the sky?", SCHEMA))
        self.check_usage(reply)
        assert isinstance(reply.value, dict)

    def check_usage(self, reply: Reply) -> None:
        """Checks that a reply counts the calls, tokens and seconds that it took."""
        assert reply.usage.calls >= 1
        assert min(reply.usage.prompt_tokens, reply.usage.completion_tokens) >= 0
        assert reply.usage.seconds >= 0


QUERY = "Who paints boats?"
RANKED = ["The kettle is red.", "ana: Clara paints boats.", "我喜欢喝茶", "word " * 4_000]


class RerankerContract:
    """One test for each promise of the protocol. A reranker's tests subclass it and give a fixture `reranker`."""

    @pytest.fixture
    def reranker(self) -> Any:
        """Returns the reranker."""
        raise NotImplementedError

    def test_each_text_has_a_finite_score(self, reranker: Reranker) -> None:
        scores = np.asarray(reranker(QUERY, list(RANKED)), dtype=np.float64)
        assert scores.shape == (len(RANKED),)
        assert np.isfinite(scores).all()

    def test_one_text_has_a_score(self, reranker: Reranker) -> None:
        assert np.asarray(reranker(QUERY, RANKED[:1]), dtype=np.float64).shape == (1,)

    def test_scores_are_in_the_order_of_the_texts(self, reranker: Reranker) -> None:
        scores = np.asarray(reranker(QUERY, list(RANKED)), dtype=np.float64)
        backwards = np.asarray(reranker(QUERY, RANKED[::-1]), dtype=np.float64)
        assert backwards[::-1].tolist() == pytest.approx(scores.tolist(), rel=TOLERANCE, abs=TOLERANCE)

    def test_the_text_that_answers_is_better_than_one_about_something_else(self, reranker: Reranker) -> None:
        other, answer = np.asarray(reranker(QUERY, RANKED[:2]), dtype=np.float64)
        assert answer > other
