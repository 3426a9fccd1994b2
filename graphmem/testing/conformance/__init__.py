"""Conformance classes of `graphmem.plugins`, for the tests of whoever writes a backend. They need pytest.

Each class has one test for each promise of a protocol: subclass it and give its fixture.
`check_ranks_like_the_exact_index(index, seed)` compares an empty vector index with an exact search of random points.
"""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite(*(f"{__name__}.{module}" for module in ("graph_index", "models", "vector_index")))

from graphmem.testing.conformance.graph_index import GraphIndexContract  # noqa: E402  (its assertions are rewritten)
from graphmem.testing.conformance.models import EmbedderContract, LanguageModelContract, RerankerContract  # noqa: E402
from graphmem.testing.conformance.vector_index import (  # noqa: E402
    VectorIndexContract,
    check_ranks_like_the_exact_index,
)

__all__ = [
    "EmbedderContract",
    "GraphIndexContract",
    "LanguageModelContract",
    "RerankerContract",
    "VectorIndexContract",
    "check_ranks_like_the_exact_index",
]
