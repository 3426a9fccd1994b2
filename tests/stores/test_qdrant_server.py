"""The index of a Qdrant server passes the conformance tests over REST and gRPC, and ranks as the exact one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import numpy as np
import pytest

from graphmem.model import EmbeddingSpec
from graphmem.plugins import VectorIndex
from graphmem.testing.conformance.vector_index import (
    DIMS,
    MULTILINGUAL_DIMS,
    VectorIndexContract,
    check_ranks_like_the_exact_index,
    point,
    search_dense,
    search_sparse,
    uid,
)

URL = os.environ.get("QDRANT_URL")
pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(URL is None, reason="set QDRANT_URL (and QDRANT_GRPC_PORT) to a Qdrant server's"),
]


def make_options(collection: str, **more: Any) -> Any:
    from graphmem.stores.qdrant.client import QdrantOptions

    port = int(os.environ.get("QDRANT_GRPC_PORT", "6334"))
    return QdrantOptions(URL or "", collection=collection, **{"grpc_port": port, **more})


@pytest.fixture(scope="module", params=[False, pytest.param(True, marks=pytest.mark.thorough)], ids=["rest", "grpc"])
def over_grpc(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(scope="module")
def shared_index(over_grpc: bool) -> Iterator[VectorIndex]:
    from qdrant_client import QdrantClient

    from graphmem.stores.qdrant.server import ServerIndex

    name = f"graphmem-test-{uuid4().hex}"
    spec = EmbeddingSpec("fake", DIMS, multilingual="fake-m", multilingual_dims=MULTILINGUAL_DIMS)
    index = ServerIndex(make_options(name, prefer_grpc=over_grpc), str(uuid4()), spec)
    yield index
    index.close()
    client = QdrantClient(URL, check_compatibility=False)
    client.delete_collection(name)
    client.close()


@pytest.fixture
def empty_index(shared_index: VectorIndex) -> Iterator[VectorIndex]:
    yield shared_index
    shared_index.wipe()
    assert shared_index.count() == 0


class TestQdrantIndex(VectorIndexContract):
    @pytest.fixture
    def index(self, empty_index: VectorIndex) -> VectorIndex:
        return empty_index

    def test_a_closed_index_is_unavailable(self, over_grpc: bool) -> None:
        """Of one of its own: the other tests share theirs."""
        from graphmem.stores.qdrant.server import ServerIndex

        spec = EmbeddingSpec("fake", DIMS, multilingual="fake-m", multilingual_dims=MULTILINGUAL_DIMS)
        options = make_options("graphmem-never-opened", prefer_grpc=over_grpc)
        super().test_a_closed_index_is_unavailable(ServerIndex(options, str(uuid4()), spec))


@pytest.mark.parametrize("seed", range(3))
def test_the_server_index_ranks_like_the_exact_index(empty_index: VectorIndex, seed: int) -> None:
    check_ranks_like_the_exact_index(empty_index, seed)


def test_equal_scores_come_in_the_order_of_ids(empty_index: VectorIndex) -> None:
    empty_index.upsert([point(n) for n in (5, 3, 9, 1)])
    assert search_dense(empty_index) == search_sparse(empty_index) == [uid(1), uid(3), uid(5), uid(9)]


def test_an_older_version_changes_nothing(empty_index: VectorIndex) -> None:
    newer = point(1, np.eye(DIMS)[0], np.eye(DIMS)[1], seq=9)
    empty_index.upsert([newer])
    empty_index.upsert([point(1, np.eye(DIMS)[2], weights={8: 1.0}, seq=8)])
    assert list(empty_index.list_held()) == [(uid(1), 9, 2)]
    assert search_sparse(empty_index) == [uid(1)]
