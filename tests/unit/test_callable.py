"""The embedder that calls the user's function: which results it refuses, and how it says so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphmem.errors import EmbeddingError
from graphmem.models.callable import CallableEmbedder

TEXTS = ["I drink matcha", "I ride a bicycle"]


class TooManyRequests(Exception):
    """As HTTP clients raise it."""

    status_code = 429


def embedder_returning(vectors: Any) -> CallableEmbedder:
    return CallableEmbedder(lambda _: vectors, 3, "mine")


@pytest.mark.parametrize(
    ("vectors", "cause"),
    [
        ([[1.0, 2.0]] * 2, "vectors of 2 numbers where 3 are expected; embedder.config.embedding_dims: set it to 2"),
        ([[1.0, 2.0], [1.0] * 4], "vectors of 2 and 4 numbers where 3 are expected"),
        ([[1.0] * 3] * 5, "5 vectors for 2 texts"),
        ([], "0 vectors for 2 texts"),
        ([[0.0] * 3, [1.0] * 3], "1 of 2 vectors with numbers that are not finite, or with zeros alone"),
        ([[float("nan")] * 3] * 2, "2 of 2 vectors with numbers that are not finite"),
        (None, "something else than a vector of numbers for each text"),
        ([1.0, 2.0], "something else than a vector of numbers for each text"),
        (TEXTS, "something else than a vector of numbers for each text"),
    ],
)
def test_unusable_vectors_are_refused_with_the_cause(vectors: Any, cause: str) -> None:
    with pytest.raises(EmbeddingError) as caught:
        embedder_returning(vectors).embed(TEXTS)
    assert str(caught.value).startswith("the embedder function returned ")
    assert cause in str(caught.value)
    assert not any(text in str(caught.value) for text in TEXTS)


@pytest.mark.parametrize("vectors", [[[3, 0, 0], [0, 4, 0]], np.array([[3.0, 0, 0], [0, 4, 0]], np.float64)])
def test_vectors_are_scaled_to_length_one(vectors: Any) -> None:
    first, second = embedder_returning(vectors).embed(TEXTS)
    assert (first.tolist(), second.tolist()) == ([[1, 0, 0]], [[0, 1, 0]])


def test_a_failing_function_is_reported_with_the_status_of_its_request() -> None:
    def embed(texts: list[str]) -> Any:
        raise TooManyRequests(f"no room for {texts}")

    with pytest.raises(EmbeddingError) as caught:
        CallableEmbedder(embed, 3, "mine").embed(TEXTS)
    assert str(caught.value) == "the embedder function failed with TooManyRequests (HTTP 429)"
