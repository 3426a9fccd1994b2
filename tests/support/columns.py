"""Compares the columns in memory with the tables that they are of."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import numpy as np
from sqlalchemy import Connection, select

from graphmem.folding import without_marks
from graphmem.model import EmbeddingSpec, GraphBounds, Kind, Scope, Seeds, View
from graphmem.stores.ledger import Ledger, change_feed, embedded_graph, entity_names, term_stats
from graphmem.stores.ledger import memories as memory_rows
from graphmem.stores.ledger.candidate_rows import CandidateReader
from graphmem.stores.ledger.columns import Columns, PartitionColumns, VisibleColumns
from graphmem.stores.ledger.embedded_index import EmbeddedIndex
from graphmem.stores.ledger.schema import entities, memories, partitions
from graphmem.testing import NumpyIndex
from graphmem.text import term_counts

BOUNDS = GraphBounds(seed_mentions=3, frontier=4, frontier_mentions=2, memories=8)


def reader_of(clerk: Any) -> CandidateReader:
    """Returns a reader of a clerk's tables whose view spans all partitions."""
    return CandidateReader(View(Scope(user_id="alice"), datetime.now(UTC)), None, clerk.spec)


def views_of(key: str) -> list[View]:
    """Returns views of a partition that differ in each condition."""
    kind, _, name = key.partition(":")
    own = Scope(**{f"{kind}_id": name})
    now = datetime.now(UTC)
    view = View(own, now, key)
    return [
        view,
        replace(view, as_of=now - timedelta(days=1)),
        replace(view, show_expired=True, show_retired=True, show_forgotten=True),
        replace(view, kinds=frozenset({Kind.FACT})),
        replace(view, scope=replace(own, agent_id="helper")),
        replace(view, scope=replace(own, run_id="run-1")),
        replace(view, scope=Scope(agent_id="helper", run_id="run-1")),
    ]


def assert_columns_agree(ledger: Ledger, spec) -> int:
    """Asserts that the columns of every partition answer as its tables do; returns how many were compared."""
    compared = 0
    with ledger.read() as connection:
        for partition, key in connection.execute(select(partitions.c.id, partitions.c.key)).all():
            columns = ledger.columns.of(connection, key)
            if columns is None:  # not searched before
                columns = ledger.columns.of(connection, key)
            assert columns is not None
            fresh = Columns(2**30)
            fresh.of(connection, key)
            assert_equal_columns(columns, fresh.of(connection, key))
            uids = list(connection.scalars(select(memories.c.uid).order_by(memories.c.id)))
            rows = list(connection.scalars(select(memories.c.id).order_by(memories.c.id)))
            keys = list(connection.scalars(select(entities.c.key).order_by(entities.c.id)))
            asked = {*keys, *map(without_marks, keys), "bob", "nobody"}
            alike = entity_names.same_and_similar(connection, partition, asked)
            assert entity_names.same_and_similar(connection, partition, asked, columns) == alike
            for reads in (entity_names.existing_entities, entity_names.mention_kinds):
                assert reads(connection, partition, asked, columns) == reads(connection, partition, asked)
            for _ in range(2):  # the second time from what the first has kept
                for some in (keys[:1], keys):
                    links = entity_names.linked_keys(connection, partition, some, columns)
                    assert links.keys() == entity_names.linked_keys(connection, partition, some).keys()
            asked = [*term_counts("Ann likes Böb and tea"), *term_counts("nothing of it")]
            counted = term_stats.statistics_of(connection, [key], asked[:2], columns)[key].with_terms(connection, asked)
            assert counted == term_stats.statistics_of(connection, [key], asked)[key]
            for view in views_of(key):
                visible = VisibleColumns(columns, view)
                mine = CandidateReader(view, partition, spec, visible)
                theirs = CandidateReader(view, partition, spec)
                assert sorted(mine.by_id(connection, uids)) == sorted(theirs.by_id(connection, uids))
                assert sorted(mine.by_row(connection, rows)) == sorted(theirs.by_row(connection, rows))
                own = [one.row for one in theirs.by_id(connection, uids)]
                assert mine.mentions(connection, own) == theirs.mentions(connection, own)
                assert mine.tokens(connection, own) == theirs.tokens(connection, own)
                for reads, size in (("cosines", spec.dims), ("multilingual_cosines", spec.multilingual_dims)):
                    vector = unit_vector(size)
                    for asked_for in (own[:2], own):  # what was compared is not compared again
                        found = getattr(mine, reads)(connection, asked_for, vector)
                        assert found == getattr(theirs, reads)(connection, asked_for, vector)
                ours, expected = mine.multilingual(connection, own), theirs.multilingual(connection, own)
                assert dict(zip(ours[0], ours[1].tolist(), strict=True)) == dict(
                    zip(expected[0], expected[1].tolist(), strict=True)
                )
                _assert_indexes_agree(connection, ledger, spec, view, visible)
                for seeds in (Seeds(tuple(keys[:2]), tuple(uids[-2:])), Seeds(tuple(keys), ()), Seeds((), tuple(uids))):
                    assert embedded_graph.neighbourhood(
                        connection, view, seeds, BOUNDS, visible
                    ) == embedded_graph.neighbourhood(connection, view, seeds, BOUNDS)
                compared += 1
    return compared


def unit_vector(size: int) -> np.ndarray:
    vector = np.random.default_rng(7).normal(size=size).astype(np.float32)
    return vector / max(np.linalg.norm(vector), 1)


def _assert_indexes_agree(
    connection: Connection, ledger: Ledger, spec: EmbeddingSpec, view: View, visible: VisibleColumns
) -> None:
    """Asserts that the embedded index finds in the columns what it finds in the tables, and what an exact one does."""
    exact = NumpyIndex()
    uids = list(connection.scalars(select(memories.c.uid)))
    exact.upsert(change_feed.points(connection, spec, list(memory_rows.records(connection, uids).values())))
    by_columns, by_tables = embedded_index(ledger, spec, visible), embedded_index(ledger, spec, None)
    vector, multilingual = unit_vector(spec.dims), unit_vector(spec.multilingual_dims)
    for asked in (
        lambda index, limit: index.dense(view, vector, limit),
        lambda index, limit: index.multilingual(view, multilingual, limit),
        lambda index, limit: index.multilingual(view, multilingual, limit, without_dense=True),
        lambda index, limit: index.sparse(view, dict.fromkeys(term_counts("Ann likes Böb and tea"), 1.5), limit),
    ):
        every = rounded(asked(exact, 99))
        assert dict(rounded(asked(by_columns, 99))) == dict(every)
        assert dict(rounded(asked(by_tables, 99))) == dict(every)
        for limit in (1, 3, 99):
            assert asked(by_columns, limit) == asked(by_tables, limit)
            found = rounded(asked(by_columns, limit))
            assert [score for _, score in found] == [score for _, score in every[:limit]]


def embedded_index(ledger: Ledger, spec: EmbeddingSpec, visible: VisibleColumns | None) -> EmbeddedIndex:
    """Returns an index that reads these columns, or (None) the tables."""
    return EmbeddedIndex(SimpleNamespace(read=ledger.read, columns=SimpleNamespace(visible=lambda *_: visible)), spec)


def rounded(found: list[tuple[str, float]]) -> list[tuple[str, float]]:
    """Returns what an index found without the digits in which sums of the same numbers differ."""
    return [(uid, round(score, 4)) for uid, score in found]


def assert_equal_columns(one: PartitionColumns, other: PartitionColumns | None) -> None:
    """Asserts that columns that were kept up to date are those that are read anew."""
    assert other is not None
    for values_of in (_memories, _mentions, lambda columns: (columns.state, columns.further_runs, columns.entity_rows)):
        assert values_of(one) == values_of(other)
    assert (one.postings, one.entities, one.names) == (other.postings, other.entities, other.names)
    marked, others = ({key: keys for key, keys in each.marked.items() if keys} for each in (one, other))
    assert marked == others
    assert one.positions_by_id.keys() == other.positions_by_id.keys()


def _memories(columns: PartitionColumns) -> dict:
    return {
        row: (columns.candidates[position], columns.rows[position], columns.times[:, position].tolist())
        for row, position in columns.positions.items()
    }


def _mentions(columns: PartitionColumns) -> dict:
    return {row: sorted(own) for row, own in columns.mentioned.items()}
