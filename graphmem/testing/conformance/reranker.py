"""Conformance tests of `Reranker`: one finite score for each text, whatever the others are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphmem.plugins import Reranker

QUERY = "Who paints boats?"
TEXTS = ["The kettle is red.", "ana: Clara paints boats.", "我喜欢喝茶", "word " * 4_000]
# Batches of other lengths move the last digits.
TOLERANCE = 1e-3


class RerankerContract:
    """One test for each promise of the protocol. A reranker's tests subclass it and give a fixture `reranker`."""

    @pytest.fixture
    def reranker(self) -> Any:
        """Returns the reranker."""
        raise NotImplementedError

    def test_each_text_has_a_finite_score(self, reranker: Reranker) -> None:
        scores = np.asarray(reranker(QUERY, list(TEXTS)), dtype=np.float64)
        assert scores.shape == (len(TEXTS),)
        assert np.isfinite(scores).all()

    def test_one_text_has_a_score(self, reranker: Reranker) -> None:
        assert np.asarray(reranker(QUERY, TEXTS[:1]), dtype=np.float64).shape == (1,)

    def test_scores_are_in_the_order_of_the_texts(self, reranker: Reranker) -> None:
        scores = np.asarray(reranker(QUERY, list(TEXTS)), dtype=np.float64)
        backwards = np.asarray(reranker(QUERY, TEXTS[::-1]), dtype=np.float64)
        assert backwards[::-1].tolist() == pytest.approx(scores.tolist(), rel=TOLERANCE, abs=TOLERANCE)

    def test_the_text_that_answers_is_better_than_one_about_something_else(self, reranker: Reranker) -> None:
        other, answer = np.asarray(reranker(QUERY, TEXTS[:2]), dtype=np.float64)
        assert answer > other
