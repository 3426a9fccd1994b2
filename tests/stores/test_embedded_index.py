"""The embedded vector index finds what an exact index with the same points finds, in memory and in the tables.

It has no contents of its own: here the points of the conformance tests are written as rows of a ledger.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from itertools import product
from typing import Any

import numpy as np
import pytest
from sqlalchemy import select
from support.databases import POSTGRES, SQLITE, postgres
from support.fakes import NOON, Clerk, two_space_embedder

from graphmem.commands.types import DeleteMemory, RetireMemory, UpdateMemory
from graphmem.concurrency import Pool
from graphmem.errors import StoreUnavailable
from graphmem.model import AnswerType, EmbeddingSpec, Kind, Scope, View
from graphmem.plugins import Embedded, Point
from graphmem.stores.ledger import Ledger, change_feed, embeddings, integrity, memories, outbox
from graphmem.stores.ledger.embedded_index import EmbeddedIndex
from graphmem.stores.ledger.index_blocks import encode_terms
from graphmem.stores.ledger.postgres import parse_url
from graphmem.stores.ledger.schema import memories as memories_table
from graphmem.testing import NumpyIndex
from graphmem.testing.conformance.vector_index import (
    DIMS,
    MULTILINGUAL_DIMS,
    VectorIndexContract,
    at_cosine,
    check_ranks_like_the_exact_index,
    in_both_spaces,
    in_multilingual_space,
    multilingual_vector,
    point,
    search_dense,
    search_multilingual,
    search_sparse,
    uid,
    view,
)
from graphmem.text import term_counts

SPEC = EmbeddingSpec("axes", DIMS, multilingual="multilingual", multilingual_dims=MULTILINGUAL_DIMS)
SEARCHES = [search_dense, search_sparse]


class LedgerPoints(EmbeddedIndex):
    """A ledger whose memories are points: a `VectorIndex` whose reads are those of the embedded index.

    `in_memory`: whether searches of one partition have to be answered by its columns.
    """

    def __init__(self, ledger: Ledger, pool: Pool, *, in_memory: bool) -> None:
        super().__init__(ledger, SPEC)
        self.ledger = ledger
        self._clerk = Clerk(ledger, pool)
        self._in_memory = in_memory
        self._held: dict[str, Point] = {}

    def upsert(self, points: Sequence[Point]) -> None:
        self._read_all()
        self.delete([one.record.id for one in points if self._is_elsewhere(one)])
        with self.ledger.write() as connection:
            for one in points:
                self._put(connection, one)
        self._held |= {one.record.id: one for one in points}

    def _is_elsewhere(self, one: Point) -> bool:
        held = self._held.get(one.record.id)
        return held is not None and held.record.partition != one.record.partition

    def _put(self, connection: Any, one: Point) -> None:
        key = one.record.partition
        partition = memories.ensure_partition(connection, key).row
        record = replace(one.record, seq=outbox.next_seq(connection))
        stored = memories.find(connection, record.id)
        if stored is None:
            row = memories.insert(connection, record, partition)
        else:
            row = stored.row
            memories.update(connection, replace(record, row=row))
            memories.set_further_runs(connection, row, record.further_runs)
            embeddings.release_reference(connection, record.id)
        embedded = Embedded(one.vectors, (), one.multilingual)
        enriched = embeddings.Enriched(replace(record, row=row), partition, record.id, AnswerType(0), embedded)
        windows = embeddings.add_references(connection, SPEC, [enriched])[record.id]
        values = {"embedding": record.id, "windows": windows, "terms": encode_terms(one.weights)}
        connection.execute(memories_table.update().where(memories_table.c.id == row).values(values))

    def delete(self, ids: Sequence[str]) -> int:
        self._read_all()
        held = [self._held.pop(one) for one in dict.fromkeys(ids) if one in self._held]
        self._clerk.commit(*(DeleteMemory(one.record.id) for one in held))
        return sum(one.windows for one in held)

    def _read_all(self) -> None:
        """Searches what is there, so that what is written now changes columns and blocks that were read."""
        for key in {one.record.partition for one in self._held.values()}:
            kind, _, name = key.partition(":")
            shown = view(Scope(**{f"{kind}_id": name}))
            search_dense(self, shown), search_sparse(self, shown), self.multilingual(shown, multilingual_vector(0), 1)

    def flush(self) -> None:
        """Does nothing: each commit is durable."""

    def count(self) -> int:
        with self.ledger.read() as connection:
            return embeddings.total_windows(connection)

    def list_held(self, partitions: Sequence[str] | None = None) -> Iterator[tuple[str, int, int]]:
        """With the sequence numbers of the points, in place of those that the ledger gave the rows."""
        with self.ledger.read() as connection:
            rows = list(change_feed.expected_points(connection, partitions))
        return iter([(one, self._held[one].record.seq, windows) for one, _, windows in rows])

    def wipe(self) -> None:
        with self.ledger.write() as connection:
            integrity.wipe(connection)
        self._held.clear()

    def close(self) -> None:
        self.ledger.close()

    def dense(self, view: View, vector: Any, limit: int) -> list[tuple[str, float]]:
        self._expect_columns(view)
        return super().dense(view, vector, limit)

    def multilingual(
        self, view: View, vector: Any, limit: int, *, without_dense: bool = False
    ) -> list[tuple[str, float]]:
        self._expect_columns(view)
        return super().multilingual(view, vector, limit, without_dense=without_dense)

    def sparse(self, view: View, weights: Mapping[int, float], limit: int) -> list[tuple[str, float]]:
        self._expect_columns(view)
        return super().sparse(view, weights, limit)

    def _expect_columns(self, view: View) -> None:
        with self.ledger.read() as connection:
            has_any = view.partition is not None and memories.partition_row(connection, view.partition) is not None
            self.ledger.columns.of(connection, view.partition)  # a partition is kept from its second search on
            are_kept = self.ledger.columns.visible(connection, view) is not None
        assert are_kept == (self._in_memory and has_any)


@pytest.fixture(params=[SQLITE, POSTGRES])
def database(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=[True, False], ids=["in memory", "by tables"])
def index(request: pytest.FixtureRequest, database: str) -> Iterator[LedgerPoints]:
    with ExitStack() as stack:
        pool = stack.enter_context(Pool(2, thread_name_prefix="clerk"))
        location = None if database == SQLITE else parse_url(stack.enter_context(postgres()))
        ledger = Ledger(location, column_bytes=2**30 if request.param else 0)
        stack.callback(ledger.close)
        yield LedgerPoints(ledger, pool, in_memory=request.param)


class TestEmbeddedIndex(VectorIndexContract):
    @pytest.fixture
    def index(self, index: LedgerPoints) -> LedgerPoints:
        return index


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [0, 1])
def test_random_points_rank_as_in_an_exact_index(index: LedgerPoints, seed: int) -> None:
    check_ranks_like_the_exact_index(index, seed)


@pytest.mark.parametrize("scope", [Scope("alice"), Scope(agent_id="helper")], ids=["one partition", "several"])
def test_random_points_rank_as_in_an_exact_index_of_the_multilingual_space(index: LedgerPoints, scope: Scope) -> None:
    numbers, exact, shown = np.random.default_rng(5), NumpyIndex(), view(scope, anywhere=scope.user_id is None)
    makers = [point, in_both_spaces, in_multilingual_space]
    points = [
        make(number, *([] if make is point else [0]), scope=Scope(("alice", "bob")[number % 2], "helper"))
        for number, make in enumerate(makers * 12)
    ]
    points = [
        one if one.multilingual is None else replace(one, multilingual=stored_multilingual(numbers)) for one in points
    ]
    for one in (exact, index):
        one.upsert(points)
    vector = stored_multilingual(numbers)
    for limit, without_dense in product((3, 99), (False, True)):
        found = index.multilingual(shown, vector, limit, without_dense=without_dense)
        expected = exact.multilingual(shown, vector, limit, without_dense=without_dense)
        assert [one for one, _ in found] == [one for one, _ in expected]
        assert [cosine for _, cosine in found] == pytest.approx([cosine for _, cosine in expected], abs=1e-5)
    assert len(expected) == (6 if scope.user_id else 12)


def stored_multilingual(numbers: np.random.Generator) -> Any:
    """A random unit vector in the multilingual space, as precise as the ledger stores it."""
    vector = numbers.normal(size=MULTILINGUAL_DIMS).astype(np.float32)
    return embeddings.decode_multilingual([embeddings.encode_multilingual(vector)])[0]


@pytest.mark.parametrize("arm", SEARCHES)
@pytest.mark.parametrize("anywhere", [False, True], ids=["one partition", "several"])
def test_equal_scores_come_in_the_order_of_storing(index: LedgerPoints, arm: Any, anywhere: bool) -> None:
    numbers = [5, 1, 9, 3]
    for number in numbers:
        index.upsert([point(number), point(number + 20, at_cosine(0.1), weights={7: 0.1})])
    shown = view(anywhere=anywhere)
    assert arm(index, shown, 4) == [uid(number) for number in numbers]
    assert arm(index, shown, 2) == [uid(5), uid(1)]
    index.upsert([point(5, seq=99)])  # a new version keeps its place
    assert arm(index, shown, 2) == [uid(5), uid(1)]


def test_vectors_of_another_length_are_left_out(index: LedgerPoints) -> None:
    """Those of an embedder that was exchanged for another one of the same name."""
    index.upsert(
        [point(1, np.ones(DIMS + 1)), replace(point(2), multilingual=np.ones(MULTILINGUAL_DIMS + 1, np.float32))]
    )
    for shown in (view(), view(anywhere=True)):
        assert search_dense(index, shown) == [uid(2)]
        assert index.multilingual(shown, multilingual_vector(0), 5) == []
        assert search_sparse(index, shown) == [uid(1), uid(2)]


def test_without_a_multilingual_space_nothing_is_found_in_it(index: LedgerPoints) -> None:
    index.upsert([in_both_spaces(1, 0)])
    assert search_multilingual(EmbeddedIndex(index.ledger, EmbeddingSpec(SPEC.model, DIMS))) == []


@pytest.mark.parametrize("arm", [*SEARCHES, search_multilingual])
def test_a_closed_ledger_is_unavailable(index: LedgerPoints, arm: Any) -> None:
    index.upsert([in_both_spaces(1, 0)])
    assert arm(index)
    index.ledger.close()
    with pytest.raises(StoreUnavailable):
        arm(EmbeddedIndex(index.ledger, SPEC))


def test_what_a_clerk_stored_is_found_as_its_delivered_points_are(clerk: Clerk) -> None:
    """Of texts in one window, in several and in the other space, before and after they change."""
    clerk.use(two_space_embedder())
    long = " ".join(f"Anna paints picture {number}." for number in range(200))
    texts = ["Anna paints", "Bob sings in Bergen", "安娜 画画", long, "Anna paints", "Анна рисует", "Bob and Anna sing"]
    scopes = [Scope("alice"), Scope("alice", "helper"), Scope("alice", run_id="r"), Scope("bob", "helper")]
    records = [clerk.say(text, at=far, scope=scope) for far, (scope, text) in enumerate(product(scopes, texts))]
    unread = clerk.say("Anna paints a harbour", at=99, enrich=False)
    index = EmbeddedIndex(clerk.ledger, clerk.spec)
    assert_as_delivered(clerk, index)
    assert unread.id not in dict(index.sparse(clerk.view(), weights_of("Anna harbour"), 99))
    clerk.commit(
        UpdateMemory(records[0].id, text="Carol sings"),
        RetireMemory(records[1].id, at=NOON + timedelta(hours=1), reason="x"),
        DeleteMemory(records[2].id),
    )
    clerk.enrich()
    assert_as_delivered(clerk, index)
    assert next(iter(dict(index.sparse(clerk.view(), weights_of("harbour"), 99)))) == unread.id


def assert_as_delivered(clerk: Clerk, index: EmbeddedIndex) -> None:
    """Asserts that an exact index finds the same once it has the points of all memories; their columns are read."""
    exact = NumpyIndex()
    with clerk.ledger.read() as connection:
        ids = list(connection.scalars(select(memories_table.c.uid)))
        exact.upsert(change_feed.points(connection, clerk.spec, list(memories.records(connection, ids).values())))
    own = clerk.view()
    shown = [
        own,
        own,  # by the columns
        clerk.view(Scope("alice", "helper")),
        clerk.view(Scope("alice", run_id="r")),
        clerk.view(Scope("bob")),
        replace(own, kinds=frozenset({Kind.FACT})),
        replace(own, as_of=NOON + timedelta(minutes=8), show_retired=True),
        replace(own, scope=Scope(agent_id="helper"), partition=None),
    ]
    questions = ["Who paints?", "Anna paints", "安娜 画画", "Bob sings"]
    for view_, question, limit in product(shown, questions, (2, 99)):
        asked = two_space_embedder().embed_question(question)
        for ask in (
            lambda one: [] if asked.vector is None else one.dense(view_, asked.vector, limit),
            lambda one: one.multilingual(view_, asked.multilingual, limit),
            lambda one: one.multilingual(view_, asked.multilingual, limit, without_dense=True),
            lambda one: one.sparse(view_, weights_of(question), limit),
        ):
            found, expected = ask(index), ask(exact)
            assert [score for _, score in found] == pytest.approx([score for _, score in expected], abs=1e-4)
            if limit > len(found):
                assert {one for one, _ in found} == {one for one, _ in expected}


def weights_of(question: str) -> dict[int, float]:
    return dict.fromkeys(term_counts(question), 1.0)
