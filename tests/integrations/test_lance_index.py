"""The example of a vector index outside the package, examples/lance_index: where LanceDB is installed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.contract import added, ids
from support.fakes import fake_models

from graphmem import Memory, Settings
from graphmem.plugins import VectorIndex
from graphmem.testing.conformance import VectorIndexContract, check_ranks_like_the_exact_index
from graphmem.testing.conformance.vector_index import MULTILINGUAL_DIMS, point, search_dense, uid

pytest.importorskip("lancedb")
sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "lance_index"))

from lance_index import LanceIndex  # noqa: E402

pytestmark = pytest.mark.thorough


class TestLanceIndex(VectorIndexContract):
    @pytest.fixture
    def index(self, tmp_path: Path) -> Iterator[VectorIndex]:
        index = LanceIndex(tmp_path / "vectors", multilingual_dims=MULTILINGUAL_DIMS)
        yield index
        index.close()


@pytest.mark.parametrize("seed", range(2))
def test_it_ranks_random_points_as_an_exact_search(tmp_path: Path, seed: int) -> None:
    index = LanceIndex(tmp_path / "vectors")
    check_ranks_like_the_exact_index(index, seed)
    index.close()


def test_what_is_written_is_there_when_it_is_opened_again(tmp_path: Path) -> None:
    index = LanceIndex(tmp_path)
    index.upsert([point(1), point(2)])
    index.delete([uid(2)])
    again = LanceIndex(tmp_path)  # as another process
    assert search_dense(again) == [uid(1)]
    index.close()
    assert search_dense(again) == [uid(1)]
    again.close()


def test_a_memory_uses_it_without_an_embedded_engine(tmp_path: Path) -> None:
    ana: dict[str, Any] = {"user_id": "u1"}

    def opened(index: LanceIndex) -> Memory:
        return Memory(tmp_path / "home", settings=Settings.from_dict(fake_models()), vector_index=index)

    index = LanceIndex(tmp_path / "lance")
    with opened(index) as memory:
        tea, kettle = added(memory, "green tea"), added(memory, "a red kettle")
        assert ids(memory.search("green tea", **ana))[0] == tea
        memory.delete(kettle, **ana)
        assert memory.verify()["ok"]
    index.close()
    index = LanceIndex(tmp_path / "lance")
    with opened(index) as memory:
        assert ids(memory.search("green tea", **ana)) == [tea]
        memory.rebuild()
        assert (memory.verify()["ok"], index.count()) == (True, 1)
    index.close()
    assert not (tmp_path / "home" / "vectors").exists()
