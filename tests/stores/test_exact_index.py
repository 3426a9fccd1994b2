"""The exact index of `graphmem.testing` passes the conformance tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from graphmem.plugins import VectorIndex
from graphmem.testing import NumpyIndex
from graphmem.testing.conformance.vector_index import VectorIndexContract, point, search_dense, search_sparse, uid


class TestExactIndex(VectorIndexContract):
    @pytest.fixture
    def index(self) -> Iterator[VectorIndex]:
        index = NumpyIndex()
        yield index
        index.close()


def test_equal_scores_come_in_the_order_of_ids() -> None:
    index = NumpyIndex()
    index.upsert([point(number) for number in (3, 1, 2)])
    assert search_dense(index) == search_sparse(index) == [uid(1), uid(2), uid(3)]
