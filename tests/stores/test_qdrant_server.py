"""A Qdrant server's index keeps the contract over REST and over gRPC, and ranks as the exact one does."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from vector_index_conformance import (
    DIMS,
    VectorIndexContract,
    changed,
    near,
    point,
    random_points,
    random_views,
    uid,
    worded,
)

from graphmem.errors import StoreUnavailable
from graphmem.stores.numpy_index import NumpyIndex
from graphmem.stores.protocols import VectorIndex

URL = os.environ.get("QDRANT_URL")
pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(URL is None, reason="set QDRANT_URL (and QDRANT_GRPC_PORT) to a Qdrant server's"),
]


def server(collection: str, **more: Any) -> Any:
    from graphmem.stores.qdrant.client import QdrantOptions

    port = int(os.environ.get("QDRANT_GRPC_PORT", "6334"))
    return QdrantOptions(URL or "", collection=collection, **{"grpc_port": port, **more})


@pytest.fixture(scope="module", params=[False, pytest.param(True, marks=pytest.mark.thorough)], ids=["rest", "grpc"])
def over_grpc(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(scope="module")
def opened(over_grpc: bool) -> Iterator[VectorIndex]:
    from qdrant_client import QdrantClient

    from graphmem.stores.qdrant.server import ServerIndex

    name = f"graphmem-test-{uuid4().hex}"
    index = ServerIndex(server(name, prefer_grpc=over_grpc), str(uuid4()), "fake", DIMS)
    yield index
    index.close()
    client = QdrantClient(URL, check_compatibility=False)
    client.delete_collection(name)
    client.close()


@pytest.fixture
def emptied(opened: VectorIndex) -> Iterator[VectorIndex]:
    yield opened
    opened.wipe()
    assert opened.count() == 0


class TestQdrantIndex(VectorIndexContract):
    @pytest.fixture
    def index(self, emptied: VectorIndex) -> VectorIndex:
        return emptied


@pytest.mark.parametrize("seed", range(3))
def test_the_server_index_ranks_like_the_exact_index(emptied: VectorIndex, seed: int) -> None:
    chance, numbers = random.Random(seed), np.random.default_rng(seed + 100)
    exact, points = NumpyIndex(), random_points(seed)
    for index in (exact, emptied):
        index.upsert(points)
        index.upsert([changed(one, 1000 + n) for n, one in enumerate(points[::7])])
    gone = [one.record.id for one in chance.sample(points, 30)]
    assert exact.delete(gone) == emptied.delete(gone)
    assert sorted(exact.list_held()) == sorted(emptied.list_held())
    assert exact.count() == emptied.count()
    for seen in random_views(seed):
        question = numbers.normal(size=DIMS).astype(np.float32)
        question /= np.linalg.norm(question)
        words = {term: chance.uniform(0.1, 2) for term in chance.sample(range(30), 4)}
        for limit in (3, 100):
            _same(exact.dense(seen, question, limit), emptied.dense(seen, question, limit))
            _same(exact.sparse(seen, words, limit), emptied.sparse(seen, words, limit))


def _same(one: list[tuple[str, float]], other: list[tuple[str, float]]) -> None:
    assert [found for found, _ in one] == [found for found, _ in other]
    assert [score for _, score in one] == pytest.approx([score for _, score in other], abs=1e-5)


def test_equal_scores_come_in_the_order_of_ids(emptied: VectorIndex) -> None:
    emptied.upsert([point(n) for n in (5, 3, 9, 1)])
    assert near(emptied) == worded(emptied) == [uid(1), uid(3), uid(5), uid(9)]


def test_an_older_version_changes_nothing(emptied: VectorIndex) -> None:
    newer = point(1, np.eye(DIMS)[0], np.eye(DIMS)[1], seq=9)
    emptied.upsert([newer])
    emptied.upsert([point(1, np.eye(DIMS)[2], weights={8: 1.0}, seq=8)])
    assert list(emptied.list_held()) == [(uid(1), 9, 2)]
    assert worded(emptied) == [uid(1)]


def test_a_closed_server_index_is_unavailable(over_grpc: bool) -> None:
    from graphmem.stores.qdrant.server import ServerIndex

    index = ServerIndex(server("graphmem-never-opened", prefer_grpc=over_grpc), str(uuid4()), "fake", DIMS)
    index.close()
    index.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        index.upsert([point(1)])
    with pytest.raises(StoreUnavailable, match="closed"):
        near(index)
