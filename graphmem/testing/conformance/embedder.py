"""Conformance tests of `Embedder`: shapes, unit length, and independence of the other texts of a call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphmem.plugins import Embedder

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
