"""Both embedded vector indexes pass the conformance tests, and rank alike."""

from __future__ import annotations

import json
import mmap
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from qdrant_edge import EdgeShard

from graphmem.errors import StoreLocked, StoreUnavailable
from graphmem.plugins import StoreLost, VectorIndex
from graphmem.stores import projection
from graphmem.stores.numpy_index import NumpyIndex
from graphmem.stores.qdrant import embedded, file_ends
from graphmem.stores.qdrant.embedded import DiskFull, EmbeddedIndex
from graphmem.testing.conformance.vector_index import (
    DIMS,
    MULTILINGUAL_DIMS,
    VectorIndexContract,
    check_ranks_like_the_exact_index,
    in_both_spaces,
    in_multilingual_space,
    point,
    search_dense,
    search_multilingual,
    search_sparse,
    uid,
    unit_vector,
    view,
)


class TestExactIndex(VectorIndexContract):
    @pytest.fixture
    def index(self) -> Iterator[VectorIndex]:
        index = NumpyIndex()
        yield index
        index.close()


@pytest.fixture(scope="module")
def memory_folder() -> Iterator[Path]:
    """A folder in memory where there is one: Edge syncs many files, and no test here needs a disk."""
    shm = Path("/dev/shm")
    with TemporaryDirectory(dir=shm if shm.is_dir() and os.access(shm, os.W_OK) else None) as name:
        yield Path(name)


@pytest.fixture(scope="module")
def shared_index(memory_folder: Path) -> Iterator[VectorIndex]:
    index = EmbeddedIndex(memory_folder / "opened" / "one", DIMS, MULTILINGUAL_DIMS)
    yield index
    index.close()


class TestEdgeIndex(VectorIndexContract):
    @pytest.fixture
    def index(self, shared_index: VectorIndex) -> Iterator[VectorIndex]:
        yield shared_index  # shared, because opening one takes most of a second on a slow disk
        shared_index.delete([memory for memory, _, _ in shared_index.list_held()])
        assert shared_index.count() == 0


@pytest.fixture
def folder(memory_folder: Path) -> Path:
    return memory_folder / uuid4().hex / "one"


def write_index(folder: Path) -> None:
    index = EmbeddedIndex(folder, DIMS)
    index.upsert([point(1, unit_vector(1), unit_vector(0, 1)), point(2, unit_vector(0, 1))])
    index.delete([uid(2)])
    index.close()


def test_edge_keeps_its_contents_when_closed(folder: Path) -> None:
    write_index(folder)
    again = EmbeddedIndex(folder, DIMS)
    assert list(again.list_held()) == [(uid(1), 2, 2)]
    assert search_dense(again) == search_sparse(again) == [uid(1)]
    again.close()


def test_edge_keeps_flushed_writes_when_the_process_dies(folder: Path) -> None:
    program = (
        "import os, sys; from graphmem.testing.conformance.vector_index import *; "
        "from pathlib import Path\n"
        "from graphmem.stores.qdrant.embedded import EmbeddedIndex\n"
        "index = EmbeddedIndex(Path(sys.argv[1]), DIMS); index.upsert([point(1), point(2)]); index.delete([uid(2)])\n"
        "index.flush(); index.upsert([point(3)]); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", program, str(folder)], check=True)
    again = EmbeddedIndex(folder, DIMS)
    assert list(again.list_held()) == [(uid(1), 2, 1)]
    again.close()


def test_edge_can_be_opened_once_at_a_time(folder: Path) -> None:
    first = EmbeddedIndex(folder, DIMS)
    with pytest.raises(StoreLocked, match="another process"):
        EmbeddedIndex(folder, DIMS)
    first.upsert([point(1)])
    assert search_dense(first) == [uid(1)]
    first.close()
    EmbeddedIndex(folder, DIMS).close()


def test_edge_cannot_be_opened_by_a_second_process(folder: Path) -> None:
    first = EmbeddedIndex(folder, DIMS)
    program = (
        "import sys; from pathlib import Path; from graphmem.stores.qdrant.embedded import EmbeddedIndex\n"
        "from graphmem.errors import StoreLocked\n"
        "try: EmbeddedIndex(Path(sys.argv[1]), 8)\n"
        "except StoreLocked: print('locked')"
    )
    process = subprocess.run([sys.executable, "-c", program, str(folder)], check=True, capture_output=True, text=True)
    first.close()
    assert process.stdout.strip() == "locked"


def test_edge_without_its_folder_opens_empty(folder: Path) -> None:
    write_index(folder)
    shutil.rmtree(folder)
    again = EmbeddedIndex(folder, DIMS)
    assert again.count() == 0
    again.upsert([point(3)])
    assert search_dense(again) == [uid(3)]
    again.close()


@pytest.fixture
def free_room(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """`free_room(count)`: from now on so many bytes of each disk are free."""

    def set_free_room(count: int) -> None:
        monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=count))

    return set_free_room


@pytest.mark.parametrize("takes_blocks", [False, True])
def test_edge_is_opened_only_with_the_room_that_it_needs(
    folder: Path, monkeypatch: pytest.MonkeyPatch, free_room: Callable[[int], None], takes_blocks: bool
) -> None:
    """On a disk in memory even the reading of a file's holes takes room."""
    monkeypatch.setattr(embedded, "_takes_blocks_for_reading", lambda _: takes_blocks)
    new = 160 * 2**20 if takes_blocks else 32 * 2**20
    free_room(new - 1)
    with pytest.raises(DiskFull, match="1 MB more than there are") as caught:
        EmbeddedIndex(folder, DIMS)
    assert str(folder.parent) in str(caught.value)
    assert not folder.exists()
    free_room(new)
    EmbeddedIndex(folder, DIMS).close()
    free_room(32 * 2**20 - 1)
    with pytest.raises(DiskFull):
        EmbeddedIndex(folder, DIMS)
    free_room(32 * 2**20)
    if takes_blocks:
        with pytest.raises(DiskFull):
            EmbeddedIndex(folder, DIMS)
    else:
        EmbeddedIndex(folder, DIMS).close()


def test_edge_takes_no_batch_that_the_disk_has_no_room_for(folder: Path, free_room: Callable[[int], None]) -> None:
    index = EmbeddedIndex(folder, DIMS)
    free_room(33 * 2**20)
    index.upsert([point(1)])
    long = point(2, *[unit_vector(1)] * 1000)  # more than 1 MB
    with pytest.raises(DiskFull):
        index.upsert([long])
    assert index.count() == 1
    free_room(40 * 2**20)
    index.upsert([long])
    assert index.count() == 1001
    index.close()


class CountingShard:
    """A shard that counts how often it is merged."""

    def __init__(self, shard: EdgeShard) -> None:
        self._shard, self.merges = shard, 0

    def optimize(self) -> bool:
        self.merges += 1
        return self._shard.optimize()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._shard, name)


def test_edge_is_merged_less_often_as_it_grows(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "_OPTIMIZE_AFTER", 2)
    monkeypatch.setattr(embedded, "_OPTIMIZE_SHARE", 0.5)
    index = EmbeddedIndex(folder, DIMS)
    index._shard = shard = CountingShard(index._shard)
    for number in range(64):
        index.upsert([point(number + 1, unit_vector(1, number))])
    # After 2, 4, 8, 16, 32 and 64 points.
    assert shard.merges == 6
    assert index.count() == 64
    index.close()


def test_edge_is_merged_once_behind_full_batches(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert embedded._FULL_BATCH == projection.BATCH
    monkeypatch.setattr(embedded, "_OPTIMIZE_AFTER", 2)
    monkeypatch.setattr(embedded, "_FULL_BATCH", 4)
    index = EmbeddedIndex(folder, DIMS)
    index._shard = shard = CountingShard(index._shard)
    for first in range(1, 13, 4):
        index.upsert([point(number, unit_vector(1, number)) for number in range(first, first + 4)])
    assert shard.merges == 0
    index.upsert([point(13, unit_vector(1, 13))])
    assert (shard.merges, index.count()) == (1, 13)
    index.close()


def test_edge_of_other_dimensions_opens_empty(folder: Path) -> None:
    write_index(folder)
    again = EmbeddedIndex(folder, DIMS * 2)
    assert again.count() == 0
    again.upsert([point(1, np.ones(DIMS * 2, np.float32))])
    assert again.dense(view(), np.ones(DIMS * 2, np.float32) / 4, 5)[0][0] == uid(1)
    again.close()


def test_edge_of_one_space_serves_without_the_other_until_it_is_wiped(folder: Path) -> None:
    write_index(folder)
    index = EmbeddedIndex(folder, DIMS, MULTILINGUAL_DIMS)
    index.upsert([in_both_spaces(3, 0), in_multilingual_space(4, 0)])
    assert (search_dense(index), search_multilingual(index)) == ([uid(1), uid(3)], [])
    assert search_sparse(index) == [uid(1), uid(3), uid(4)]
    assert sorted(index.list_held()) == [(uid(1), 2, 2), (uid(3), 4, 1), (uid(4), 5, 1)]
    index.wipe()
    index.upsert([in_both_spaces(3, 0), in_multilingual_space(4, 0)])
    assert search_multilingual(index) == [(uid(3), 1.0), (uid(4), 1.0)]
    index.close()
    again = EmbeddedIndex(folder, DIMS, MULTILINGUAL_DIMS)
    assert search_multilingual(again) == [(uid(3), 1.0), (uid(4), 1.0)]
    again.close()


def test_edge_takes_no_points_of_another_length_among_its_own(folder: Path) -> None:
    write_index(folder)
    index = EmbeddedIndex(folder, DIMS)
    with pytest.raises(StoreLost):
        index.upsert([point(1, np.ones(DIMS * 2, np.float32))])
    index.close()


def test_an_empty_edge_takes_the_length_of_the_first_points(folder: Path) -> None:
    index = EmbeddedIndex(folder, DIMS)
    index.upsert([point(1, np.ones(DIMS * 2, np.float32))])
    assert index.dense(view(), np.ones(DIMS * 2, np.float32) / 4, 5)[0][0] == uid(1)
    index.close()


@pytest.mark.parametrize("damage", ["half", "flipped", "nothing left"])
@pytest.mark.parametrize("name", ["edge_config.json", "segment.json"])
def test_a_damaged_edge_opens_empty_and_usable(folder: Path, name: str, damage: str) -> None:
    write_index(folder)
    files = [path for path in folder.rglob(name) if path.is_file()]
    assert files
    for path in files:
        whole = path.read_bytes()
        path.write_bytes(
            {"half": whole[: len(whole) // 2], "flipped": bytes(b ^ 0xFF for b in whole), "nothing left": b""}[damage]
        )
    again = EmbeddedIndex(folder, DIMS)
    again.upsert([point(3)])
    assert uid(3) in search_dense(again)
    again.close()


@pytest.mark.parametrize("name", ["vector_storage-dense/deleted/status.dat", "vector_storage-dense/vectors/status.dat"])
def test_an_edge_that_panics_on_opening_opens_empty(folder: Path, name: str) -> None:
    write_index(folder)
    file = next(folder.glob(f"segments/*/{name}"))
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    again = EmbeddedIndex(folder, DIMS)
    assert again.count() == 0
    again.close()


def total_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


linux_only = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="files are cut where /proc tells mappings")


@pytest.mark.thorough
@linux_only
def test_a_closed_edge_is_as_long_as_its_contents(folder: Path, memory_folder: Path) -> None:
    write_index(folder)
    closed = total_bytes(folder)
    assert closed < 2**20
    copied = memory_folder / f"copy-{uuid4()}"
    shutil.copytree(folder, copied)
    again = EmbeddedIndex(copied, DIMS)
    assert total_bytes(copied) > 100 * closed
    assert sorted(again.list_held()) == [(uid(1), 2, 2)]
    again.upsert([point(3)])
    again.close()
    assert total_bytes(copied) < 2**20
    once_more = EmbeddedIndex(copied, DIMS)
    assert once_more.count() == 3
    assert set(search_dense(once_more)) == {uid(1), uid(3)}
    once_more.close()


@pytest.mark.thorough
@linux_only
@pytest.mark.parametrize("parity", [0, 1])
def test_an_edge_whose_process_died_while_its_files_were_cut_opens(folder: Path, parity: int) -> None:
    write_index(folder)
    sizes = json.loads((folder / file_ends.SIZES).read_text())
    for name in list(sizes)[parity::2]:
        os.truncate(folder / name, sizes[name])
    again = EmbeddedIndex(folder, DIMS)
    assert sorted(again.list_held()) == [(uid(1), 2, 2)]
    again.close()


@linux_only
def test_an_edge_that_is_still_mapped_is_not_cut(folder: Path) -> None:
    """A search that has not ended would die by SIGBUS."""
    write_index(folder)
    file_ends.restore(folder)
    whole = total_bytes(folder)
    with max(folder.rglob("*.mmap")).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ):
        file_ends.cut(folder)
        assert total_bytes(folder) == whole
    file_ends.cut(folder)
    assert total_bytes(folder) < 2**20


def list_public_files(folder: Path) -> list[str]:
    return [path.name for path in [folder, *folder.rglob("*")] if stat.S_IMODE(path.stat().st_mode) & 0o077]


def test_edge_files_are_their_owners_only_once_closed(folder: Path) -> None:
    write_index(folder)
    assert list_public_files(folder) == []


def test_edge_files_are_their_owners_only_while_open(folder: Path) -> None:
    index = EmbeddedIndex(folder, DIMS)
    index.upsert([point(1)])
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700  # keeps new files from others until they are flushed
    index.flush()
    public_files = list_public_files(folder)
    index.close()
    assert public_files == []


def test_edge_files_contain_no_texts(folder: Path) -> None:
    index = EmbeddedIndex(folder, DIMS)
    index.upsert([point(1, text="xylophone", metadata={"note": "quagmire"})])
    index.close()
    contents = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    assert b"xylophone" not in contents and b"quagmire" not in contents


@pytest.mark.parametrize("seed", range(3))
def test_both_rank_random_points_alike(folder: Path, seed: int) -> None:
    edge = EmbeddedIndex(folder, DIMS)
    check_ranks_like_the_exact_index(edge, seed)
    edge.close()


@pytest.mark.parametrize("kind", ["exact", "edge"])
def test_equal_scores_come_in_the_order_of_ids(folder: Path, kind: str) -> None:
    index: VectorIndex = NumpyIndex() if kind == "exact" else EmbeddedIndex(folder, DIMS)
    index.upsert([point(n) for n in (5, 3, 9, 1)])
    assert search_dense(index) == search_sparse(index) == [uid(1), uid(3), uid(5), uid(9)]
    index.close()


@pytest.mark.parametrize("kind", ["edge", "exact"])
def test_a_closed_index_is_unavailable(kind: str, folder: Path) -> None:
    """Not a refusal: a write that a close cancels in another thread must not become a dead letter."""
    index = EmbeddedIndex(folder, DIMS) if kind == "edge" else NumpyIndex()
    index.close()
    index.close()
    with pytest.raises(StoreUnavailable):
        index.upsert([point(1)])
    with pytest.raises(StoreUnavailable):
        index.dense(view(), unit_vector(1), 1)
