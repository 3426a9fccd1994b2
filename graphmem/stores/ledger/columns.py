"""The cache of searches: keeps in memory what they read of a partition, its rows, mentions, entities and embeddings.

The ledger stays the truth: at each use one statement compares the ledger's state with that of the columns, and what
changed since is read. Columns never change; a change makes new ones, which share what is the same, so a search reads
one state throughout. They answer as the tables do (tests/unit/test_columns.py compares both), which serve all that
is not kept here.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from math import inf
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, Select, Transaction, bindparam, select

from graphmem.folding import meant_spellings, typed_spellings, without_marks
from graphmem.model import ALL_KINDS, CandidateRow, Entity, Link, MentionKind, View, micros
from graphmem.stores.ledger.embeddings import OF_MEMORIES, decode_usable
from graphmem.stores.ledger.index_blocks import (
    KeptIndex,
    Positions,
    Scores,
    TermBlock,
    VectorBlock,
    cosines,
    document_frequencies,
    vectors_of,
)
from graphmem.stores.ledger.ledger_state import SPACES
from graphmem.stores.ledger.memories import sized_partition
from graphmem.stores.ledger.outbox import RecordedSpaces
from graphmem.stores.ledger.schema import entities, further_runs, ledger, memories, mentions
from graphmem.stores.ledger.schema import tombstones as tombstones_table
from graphmem.stores.ledger.sequence import Extent, seq_extent
from graphmem.stores.ledger.sql import CorruptValue, entity_type, in_array, mention_kind, moment

if TYPE_CHECKING:
    from graphmem.plugins import Matrix

# Changes after which a partition is read anew, instead of looking through the changes of all partitions.
MAX_CHANGES = 2_000
# Bytes of a memory with its mentions, and of token matrices beside their data; measured.
MEMORY_BYTES, ENTRY_BYTES = 2_500, 250
# Partitions whose first search is remembered. A partition is kept from its second search on: a command asks once.
MAX_REMEMBERED = 10_000
_NEVER = 2**63 - 1

Flags = npt.NDArray[np.bool_]
# A mention of an entity as it is ranked: its kind, the negative time of the memory, the memory's row.
Posting = tuple[int, int, int]


class _State(NamedTuple):
    """The state of a ledger: the sequence numbers of its rows, how often it was reset, and how often repaired.

    `spaces` is what its vectors are of.
    """

    extent: Extent
    epoch: int
    repairs: int
    spaces: RecordedSpaces


class KeptTokens:
    """Encoded token matrices, by model and form, then by row, of the memories of a partition that searches read."""

    def __init__(self) -> None:
        self._windows: dict[tuple[str, str], dict[int, list[bytes]]] = defaultdict(dict)
        self.size_bytes = 0

    def of(self, model: str, form: str) -> Mapping[int, list[bytes]]:
        """Returns the token matrices of each memory's windows."""
        return self._windows[model, form]

    def add(self, model: str, form: str, windows_by_row: Mapping[int, list[bytes]]) -> None:
        """Keeps token matrices."""
        self._windows[model, form].update(windows_by_row)
        self.size_bytes += sum(ENTRY_BYTES + sum(map(len, windows)) for windows in windows_by_row.values())

    def without(self, rows: Iterable[int]) -> KeptTokens:
        """Returns these without those of some memories."""
        kept, left_out = KeptTokens(), set(rows)
        for (model, form), windows in list(self._windows.items()):
            kept.add(model, form, {row: own for row, own in list(windows.items()) if row not in left_out})
        return kept


class Columns:
    """The columns of the partitions that were searched last, up to a number of bytes. Safe to use from threads."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lock = Lock()
        self._kept: OrderedDict[str, PartitionColumns] = OrderedDict()
        self._searched: OrderedDict[str, bool] = OrderedDict()  # whether a partition alone needs too many bytes
        self._being_read: set[str] = set()
        self._sizes: dict[str, int] = {}  # bytes by partition, and of all
        self._bytes = 0
        # What a snapshot has read of them, until it ends.
        self._read: WeakKeyDictionary[Transaction | None, Mapping[View, VisibleColumns | None]] = WeakKeyDictionary()

    def visible(self, connection: Connection, view: View) -> VisibleColumns | None:
        """Returns the columns of a view's partition as the view shows them; None for a partition that is not kept.

        The same ones for the same view throughout a snapshot.
        """
        snapshot = connection.get_transaction()
        with self._lock:
            read = self._read.get(snapshot, {})
        if view in read:
            visible = read[view]
            if visible is not None and visible.columns.size_bytes != self._sizes.get(visible.columns.key):
                self._keep(visible.columns.key, visible.columns, if_kept=True)
            return visible
        columns = self.of(connection, view.partition)
        visible = None if columns is None else VisibleColumns(columns, view)
        with self._lock:
            self._read[snapshot] = {**read, view: visible}
        return visible

    def of(self, connection: Connection, key: str | None) -> PartitionColumns | None:
        """Returns the columns of a partition as the connection's snapshot shows it.

        None for one that is not kept: without memories, too large, searched for the first time, while another thread
        reads it, or with a damaged row, which is reported by whoever reads it from the tables.
        """
        if key is None or not self._max_bytes:
            return None
        with self._lock:
            columns = self._kept.get(key)
            if columns is None and key not in self._searched:
                self._searched[key] = False
                while len(self._searched) > MAX_REMEMBERED:
                    self._searched.popitem(last=False)
                return None
            if columns is None and (key in self._being_read or self._searched[key]):
                return None
            self._being_read.add(key)
        try:
            columns = self._updated(connection, key, columns)
        except CorruptValue:
            columns = None
        finally:
            with self._lock:
                self._being_read.discard(key)
        self._keep(key, columns)
        return columns

    def _keep(self, key: str, columns: PartitionColumns | None, *, if_kept: bool = False) -> None:
        """Keeps columns (None: forgets them); forgets those that were searched least recently if all are too large.

        `if_kept`: counts them anew, with what was read since, unless they were forgotten meanwhile.
        """
        with self._lock:
            if if_kept and self._kept.get(key) is not columns:
                return
            self._kept.pop(key, None)
            self._bytes -= self._sizes.pop(key, 0)
            if columns is None:
                return
            size = columns.size_bytes  # tokens that are read now count at the next use
            if size > self._max_bytes:  # else each search would read them anew
                self._searched[key] = True
                return
            self._kept[key] = columns
            self._sizes[key] = size
            self._bytes += self._sizes[key]
            while self._bytes > self._max_bytes:
                oldest, _ = self._kept.popitem(last=False)
                self._bytes -= self._sizes.pop(oldest)

    @property
    def size_bytes(self) -> int:
        """The approximate size in memory."""
        with self._lock:
            return sum(columns.size_bytes for columns in self._kept.values())

    def clear(self) -> None:
        """Forgets everything, as after an erasure."""
        with self._lock:
            self._kept.clear()
            self._sizes.clear()
            self._bytes = 0

    def _updated(self, connection: Connection, key: str, columns: PartitionColumns | None) -> PartitionColumns | None:
        """Returns the columns of a partition in the ledger's present state, made from these if they are of use."""
        extent, epoch, repairs, *spaces = connection.execute(_STATE).one()
        state = _State(extent, epoch, repairs, RecordedSpaces.of(*spaces))
        if columns is not None and columns.state == state:
            return columns
        if columns is not None and columns.state[1:] == state[1:]:
            after = columns.state.extent.last
            # Numbers have gaps on PostgreSQL. There are no more changes than numbers. Counts one above the most.
            if (
                state.extent.newest - after <= MAX_CHANGES
                or len(connection.scalars(_SOME_CHANGED, {"after": after}).all()) <= MAX_CHANGES
            ):
                return columns.updated(connection, state)
        partition, size = sized_partition(connection, key)
        most = self._max_bytes // MEMORY_BYTES
        if partition is None or size > most:
            return None
        rows = connection.execute(_ROWS, {"partition": partition, "limit": most + 1}).all()
        if len(rows) > most:
            return None
        return PartitionColumns(key, partition, state).with_changes(connection, rows, (), state)


class _Row(NamedTuple):
    """A memory's columns that a view's conditions read."""

    kind: str
    user_id: str | None
    agent_id: str | None
    run_id: str | None


_ERASED = _Row("", None, None, None)


@dataclass(slots=True)
class KeptLinks:
    """The aliases of a partition by key, as far as they were read in one state of the ledger.

    `are_all`: whether these are all of the partition's, so that a key without any is not asked for (None: not known).
    """

    by_key: dict[str, Sequence[Link]] = field(default_factory=dict)
    are_all: bool | None = None

    def put(self, keys: Iterable[str], links: Iterable[Link]) -> None:
        """Keeps the links of these keys, and that the others of them have none."""
        by_key: dict[str, list[Link]] = {key: [] for key in keys}
        for link in links:
            by_key.setdefault(link.key, []).append(link)
        self.by_key.update(by_key)


@dataclass(frozen=True, slots=True)
class PartitionColumns:
    """The columns of a partition in one state of the ledger.

    `candidates` are its memories, None in place of erased ones, and `rows` their further values; `times` (4 x memories,
    microseconds) the times from which they are valid, retired, expired and forgotten. `positions` finds a memory in
    these by its row, `positions_by_id` by its id. `further_runs` has the rows of memories that were said again in a
    run. `mentioned` has the mentions of each memory by its row, as (entity, kind), `postings` those of each entity,
    ranked. `entities` has the key and the document frequency of each entity, `entity_rows` the entity of each key.
    `names` has the name and the type of each entity, `marked` the keys with marks of Latin letters by those without.
    `lacking` has the memories that were found to have no tokens in this state, by model and form, `links` the aliases
    as far as they were read in it. `is_enriched` flags the memories that a vector index holds, and `index` has
    their vectors and terms as far as they were read.
    """

    key: str
    partition: int
    state: _State
    candidates: Sequence[CandidateRow | None] = ()
    rows: Sequence[_Row] = ()
    times: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty((4, 0), np.int64))
    positions: Mapping[int, int] = field(default_factory=dict)
    positions_by_id: Mapping[str, int] = field(default_factory=dict)
    further_runs: Mapping[str, frozenset[int]] = field(default_factory=dict)
    mentioned: Mapping[int, Sequence[tuple[int, int]]] = field(default_factory=dict)
    postings: Mapping[int, Sequence[Posting]] = field(default_factory=dict)
    entities: Mapping[int, tuple[str, int]] = field(default_factory=dict)
    entity_rows: Mapping[str, int] = field(default_factory=dict)
    names: Mapping[int, tuple[str, str]] = field(default_factory=dict)
    marked: Mapping[str, frozenset[str]] = field(default_factory=dict)
    tokens: KeptTokens = field(default_factory=KeptTokens)
    lacking: dict[tuple[str, str], set[int]] = field(default_factory=dict)
    links: KeptLinks = field(default_factory=KeptLinks)
    is_enriched: Flags = field(default_factory=lambda: np.empty(0, np.bool_))
    index: KeptIndex = field(default_factory=KeptIndex)

    def entities_alike(self, keys: Collection[str]) -> dict[str, Entity]:
        """Returns the entities whose keys are these or other spellings of them, by key."""
        bare = {spelling for key in keys for spelling in (*meant_spellings(key), *typed_spellings(key))}
        alike = {*keys, *bare, *chain.from_iterable(self.marked.get(key, ()) for key in bare)}
        found = self.entities_of(sorted(alike))
        return dict(sorted(found.items(), key=lambda one: -one[1].mentions))  # those with the most first, then by key

    def entities_of(self, keys: Iterable[str]) -> dict[str, Entity]:
        """Returns the entities that have these keys, by key."""
        rows = {key: self.entity_rows[key] for key in keys if key in self.entity_rows}
        return {
            key: Entity(key, self.names[row][0], entity_type(self.names[row][1]), self.entities[row][1])
            for key, row in rows.items()
        }

    def best_kinds(self, keys: Iterable[str]) -> dict[str, MentionKind]:
        """Returns the most valuable kind of mention of each of these entities, by key."""
        postings = ((key, self.postings.get(self.entity_rows[key])) for key in keys if key in self.entity_rows)
        return {key: mention_kind(ranked[0][0]) for key, ranked in postings if ranked}

    def candidates_of(self, rows: Iterable[int]) -> dict[int, CandidateRow]:
        """Returns those of these memories that are there, by row."""
        found = ((row, self.candidates[self.positions[row]]) for row in rows if row in self.positions)
        return {row: candidate for row, candidate in found if candidate is not None}

    @property
    def size_bytes(self) -> int:
        """The approximate size in memory."""
        return MEMORY_BYTES * len(self.candidates) + self.tokens.size_bytes + self.index.size_bytes

    @property
    def size(self) -> int:
        """The number of enriched memories."""
        return int(self.is_enriched.sum())

    @property
    def kept(self) -> int:
        """The number of enriched memories that are not forgotten."""
        return int((self.is_enriched & (self.times[3] == _NEVER)).sum())

    def frequencies(self, connection: Connection, terms: Sequence[int]) -> dict[int, int]:
        """Returns the document frequency of each term among the enriched memories."""
        return document_frequencies(self.term_blocks(connection), terms, len(self.rows))

    def term_blocks(self, connection: Connection) -> Sequence[TermBlock]:
        """Returns the terms of the enriched memories, and perhaps of others."""
        unread = self.index.terms.unread(self.is_enriched)
        if len(unread):
            pairs = self.read(connection, _TERMS, unread, {})
            block = TermBlock.of([self.positions[row] for row, _ in pairs], [data for _, data in pairs])
            self.index.terms.add(unread, block)
        return self.index.terms.blocks

    def vector_blocks(
        self, connection: Connection, kind: tuple[str, str], dims: int, wanted: Flags
    ) -> Sequence[VectorBlock]:
        """Returns the vectors (of a model and form) of the flagged memories, and perhaps of others."""
        kept = self.index.vectors(*kind)
        unread = kept.unread(wanted)
        if len(unread):
            model, form = kind
            read = self.read(connection, OF_MEMORIES, unread, {"model": model, "form": form})
            kept.add(
                unread, VectorBlock(*decode_usable([(self.positions[row], data) for row, data in read], form, dims))
            )
        return kept.blocks

    def vectors(
        self, connection: Connection, kind: tuple[str, str], dims: int, rows: Iterable[int]
    ) -> tuple[list[int], Matrix]:
        """Returns the vectors (of a model and form) of these memories as (rows, matrix): one of each for every window.

        The windows of a memory are in order; memories without a vector of this length are left out.
        """
        row_at = {self.positions[row]: row for row in rows if row in self.positions}
        wanted = np.zeros(len(self.rows), np.bool_)
        wanted[list(row_at)] = True
        positions, vectors = vectors_of(self.vector_blocks(connection, kind, dims, wanted), wanted, dims)
        return [row_at[position] for position in positions.tolist()], vectors

    def read(
        self, connection: Connection, statement: Select[Any], positions: Positions, values: Mapping[str, Any]
    ) -> list[tuple[int, bytes]]:
        """Returns what a statement selects, a row and its data, of the memories in these positions."""
        rows = [one.row for one in map(self.candidates.__getitem__, positions.tolist()) if one is not None]
        if len(rows) == len(self.positions):  # most of the time it is read for the first time
            of_partition = statement.where(_IN_PARTITION)
            return [tuple(row) for row in connection.execute(of_partition, {**values, "partition": self.partition})]
        of_rows = statement.where(in_array(_m.id, "rows"))
        return [tuple(row) for row in connection.execute(of_rows, {**values, "rows": rows})]

    def visible(self, view: View) -> Flags:
        """Returns for each memory whether a view of this partition shows it, as `visibility.conditions` does."""
        now = micros(view.moment)
        valid_from, valid_to, expires_at, forgotten_at = self.times
        shown = np.ones(len(self.rows), np.bool_)
        if not view.show_retired:
            shown &= valid_to > now
        if view.as_of is not None:
            shown &= valid_from <= now
        if not view.show_expired:
            shown &= expires_at > now
        if not view.show_forgotten:
            shown &= forgotten_at > now
        if view.kinds != ALL_KINDS:
            shown &= self._flags(row.kind in view.kinds for row in self.rows)
        parts = view.scope.parts
        if (run := parts.pop("run_id", None)) is not None:
            own = self._flags(row.run_id == run for row in self.rows)
            own[[self.positions[row] for row in self.further_runs.get(run, ())]] = True
            shown &= own
        if view.scope.read_partition == self.key:
            parts.pop("user_id")  # all are this user's
        for name, value in parts.items():
            shown &= self._flags(getattr(row, name) == value for row in self.rows)
        return shown

    def _flags(self, values: Iterable[bool]) -> Flags:
        return np.fromiter(values, np.bool_, len(self.rows))

    def updated(self, connection: Connection, state: _State) -> PartitionColumns:
        """Returns the columns with what has changed up to the ledger's state."""
        values = {"partition": self.partition, "key": self.key, "after": self.state.extent.last}
        changed = connection.execute(_CHANGED, values).all()
        erased = [uid for uid in connection.scalars(_ERASED_IDS, values) if uid in self.positions_by_id]
        if not changed and not erased:
            return replace(self, state=state, lacking={}, links=KeptLinks())
        return self.with_changes(connection, changed, erased, state)

    def with_changes(
        self, connection: Connection, changed: Sequence[Any], erased: Sequence[str], state: _State
    ) -> PartitionColumns:
        """Returns the columns with these memories (rows of `_ROWS`) in place of theirs, without the erased ones (ids).

        Raises CorruptValue.
        """
        draft = _Draft(self, [row for row, *_ in changed])
        for uid in erased:
            draft.erase(uid)
        for values in changed:
            draft.put(*values)
        draft.link_neighbours()
        values = {"partition": self.partition, "rows": list(draft.touched)}
        is_first = not self.rows
        # A search that still reads the earlier columns may keep what a memory's embedding was; it knows no new memory.
        former = draft.touched & self.positions.keys()
        draft.set_runs(connection.execute(_RUNS if is_first else _RUNS_OF, values).all())
        changed_entities = draft.set_mentions(connection.execute(_MENTIONS if is_first else _MENTIONS_OF, values).all())
        values["entities"] = changed_entities
        draft.set_entities(changed_entities, connection.execute(_ENTITIES if is_first else _ENTITIES_OF, values).all())
        index = self.index
        if former:
            index = index.without(np.array([self.positions[row] for row in former], np.int32))
        return replace(
            self,
            state=state,
            lacking={},
            links=KeptLinks(),
            candidates=draft.candidates,
            rows=draft.rows,
            times=draft.times,
            positions=draft.positions,
            positions_by_id=draft.positions_by_id,
            further_runs=draft.further_runs,
            mentioned=draft.mentioned,
            postings=draft.postings,
            entities=draft.entities,
            entity_rows=draft.entity_rows,
            names=draft.names,
            marked=draft.marked,
            tokens=self.tokens.without(former) if former else self.tokens,
            is_enriched=draft.is_enriched,
            index=index.followed_by(len(self.rows), draft.added),
        )


class _Draft:
    """Copies of a partition's columns into which changes of some memories (rows) are entered."""

    def __init__(self, columns: PartitionColumns, changed: Sequence[int]) -> None:
        self._key = columns.key
        self.positions, self.positions_by_id = dict(columns.positions), dict(columns.positions_by_id)
        self.added = added = [row for row in changed if row not in self.positions]
        self.positions.update((row, len(columns.rows) + place) for place, row in enumerate(added))
        self.candidates = [*columns.candidates, *[None] * len(added)]
        self.rows = [*columns.rows, *[_ERASED] * len(added)]
        self.times = np.concatenate([columns.times, np.zeros((4, len(added)), np.int64)], axis=1)
        self.is_enriched = np.concatenate([columns.is_enriched, np.zeros(len(added), np.bool_)])
        self.further_runs, self.mentioned = dict(columns.further_runs), dict(columns.mentioned)
        self.postings, self.entities = dict(columns.postings), dict(columns.entities)
        self.entity_rows = dict(columns.entity_rows)
        self.names, self.marked = dict(columns.names), dict(columns.marked)
        # The rows of changed and erased memories; what their `previous` says now, and what it said before.
        self.touched: set[int] = set()
        self._followers: dict[int, int] = {}
        self._former_followers: dict[int, int] = {}

    def erase(self, uid: str) -> None:
        """Takes out a memory."""
        position = self.positions_by_id.pop(uid)
        if (erased := self.candidates[position]) is not None:
            self._note(erased)
            del self.positions[erased.row]
        self.candidates[position], self.rows[position] = None, _ERASED
        self.is_enriched[position] = False

    def put(
        self, row: int, uid: str, speaker: str | None, at: int, answer_types: int, question_share: float,
        previous: int | None, source_only: bool, role: str | None,  # noqa: FBT001
        valid_from: int, valid_to: int | None, expires_at: int | None, forgotten_at: int | None, windows: int,
        *further: Any,
    ) -> None:  # fmt: skip
        """Enters a memory, as `_ROWS` reads it. Raises CorruptValue."""
        moment(at)  # raises for a corrupt date
        position = self.positions_by_id[uid] = self.positions[row]
        former = self.candidates[position]
        if former is not None:
            self._note(former)
        self.touched.add(row)
        if previous is not None:
            self._followers[previous] = row
        self.candidates[position] = CandidateRow(
            row, uid, self._key, speaker, at, answer_types, question_share, previous,
            None if former is None else former.after, source_only, role,
        )  # fmt: skip
        self.rows[position] = _Row(*further)
        ends = (_NEVER if end is None else end for end in (valid_to, expires_at, forgotten_at))
        self.times[:, position] = [valid_from, *ends]
        self.is_enriched[position] = windows > 0

    def _note(self, former: CandidateRow) -> None:
        self.touched.add(former.row)
        if former.before is not None:
            self._former_followers[former.before] = former.row

    def link_neighbours(self) -> None:
        """Sets the memory after each one before which something changed."""
        for row in self._followers.keys() | self._former_followers.keys():
            position = self.positions.get(row)
            if position is not None and (candidate := self.candidates[position]) is not None:
                is_over = candidate.after == self._former_followers.get(row)
                after = self._followers.get(row, None if is_over else candidate.after)
                self.candidates[position] = candidate._replace(after=after)

    def set_runs(self, further: Iterable[tuple[int, str]]) -> None:
        """Replaces the further runs of the touched memories, as (row, run)."""
        runs = {run: set(rows - self.touched) for run, rows in self.further_runs.items()}
        for row, run in further:
            runs.setdefault(run, set()).add(row)
        self.further_runs = {run: frozenset(rows) for run, rows in runs.items() if rows}

    def set_mentions(self, mentioned: Iterable[tuple[int, int, int, int]]) -> list[int]:
        """Replaces the mentions of the touched memories, as (row, entity, kind, time); returns their entities."""
        changed: dict[int, list[Posting]] = {}
        for row in self.touched:
            for entity, _ in self.mentioned.pop(row, ()):
                if entity not in changed:
                    changed[entity] = [posting for posting in self.postings[entity] if posting[2] not in self.touched]
        own: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for row, entity, kind, at in mentioned:
            own[row].append((entity, kind))
            if entity not in changed:
                changed[entity] = list(self.postings.get(entity, ()))
            changed[entity].append((kind, -at, row))
        for kind in {kind for mentions_of_one in own.values() for _, kind in mentions_of_one}:
            mention_kind(kind)  # raises for a corrupt kind
        self.mentioned.update(own)
        for entity, postings in changed.items():
            self.postings[entity] = sorted(postings)
            if not postings:
                del self.postings[entity]
        return list(changed)

    def set_entities(self, changed: Sequence[int], found: Iterable[tuple[int, str, int, str, str, str | None]]) -> None:
        """Replaces entities; those that are not found are gone.

        An entity is (row, key, document frequency, name, type, key without marks). Raises CorruptValue.
        """
        for entity in changed:
            key, _ = self.entities.pop(entity, ("", 0))
            self.entity_rows.pop(key, None)
            self.names.pop(entity, None)
            bare = without_marks(key)
            if key in (marked := self.marked.get(bare, frozenset())):
                self.marked[bare] = marked - {key}
        for entity, key, frequency, name, type_, bare_key in found:
            self.entities[entity], self.entity_rows[key] = (key, frequency), entity
            self.names[entity] = name, entity_type(type_).value  # one text for all; raises for a corrupt type
            if bare_key is not None:
                self.marked[bare_key] = self.marked.get(bare_key, frozenset()) | {key}


class _Compared(NamedTuple):
    """The cosines of memories with a vector, -inf for one without vectors, and which memories were compared."""

    vector: Matrix
    cosines: Scores
    flags: Flags


class VisibleColumns:
    """Reads the columns of a partition through a view of it, in one snapshot."""

    def __init__(self, columns: PartitionColumns, view: View) -> None:
        self.columns = columns
        self.flags = columns.visible(view)  # of the memories that the view shows
        self._shown = self.flags.tobytes()  # read one by one faster than an array is, and made faster than a list
        self._compared: dict[tuple[str, str], _Compared] = {}

    def cosines(self, connection: Connection, kind: tuple[str, str], vector: Matrix, wanted: Flags) -> Scores:
        """Returns the cosines of the flagged memories' best windows (of a model and form) with a unit vector.

        -inf for a memory without a vector of this length; any number for those that are not flagged. What was compared
        with the last vector is not compared again.
        """
        compared = self._compared.get(kind)
        if compared is None or compared.vector is not vector:
            compared = _Compared(vector, np.full(len(wanted), -np.inf), np.zeros(len(wanted), np.bool_))
        new = wanted & ~compared.flags
        if new.any():
            blocks = self.columns.vector_blocks(connection, kind, len(vector), new)
            known = np.where(new, cosines(blocks, vector, new), compared.cosines)
            compared = _Compared(vector, known, compared.flags | new)
            self._compared[kind] = compared
        return compared.cosines

    def cosines_of(
        self, connection: Connection, kind: tuple[str, str], vector: Matrix, rows: Sequence[int]
    ) -> dict[int, float]:
        """Returns the `cosines` of these memories, by row; those without a vector are left out."""
        positions = [self.columns.positions[row] for row in rows]
        wanted = np.zeros(len(self.flags), np.bool_)
        wanted[positions] = True
        found = self.cosines(connection, kind, vector, wanted)[positions].tolist()
        return {row: cosine for row, cosine in zip(rows, found, strict=True) if cosine > -inf}

    def shown(self, rows: Iterable[int]) -> Iterator[int]:
        """Yields those of these memories (rows) that the view shows, in order."""
        shown, position_of = self._shown, self.columns.positions.get
        return (row for row in rows if (position := position_of(row)) is not None and shown[position])

    def by_row(self, rows: Iterable[int]) -> list[CandidateRow]:
        """Returns those of these memories that the view shows."""
        return self._visible(map(self.columns.positions.get, rows))

    def by_id(self, uids: Iterable[str]) -> list[CandidateRow]:
        """Returns those of these memories that the view shows."""
        return self._visible(map(self.columns.positions_by_id.get, uids))

    def _visible(self, positions: Iterable[int | None]) -> list[CandidateRow]:
        candidates, shown = self.columns.candidates, self._shown
        return [
            candidate
            for one in positions
            if one is not None and shown[one] and (candidate := candidates[one]) is not None
        ]


_m = memories.c
_STATE = select(seq_extent(), ledger.c.epoch, ledger.c.repairs, *SPACES)
_SELECTED = select(
    _m.id, _m.uid, _m.speaker, _m.at, _m.answer_types, _m.question_share, _m.previous, _m.source_only, _m.role,
    _m.valid_from, _m.valid_to, _m.expires_at, _m.forgotten_at, _m.windows,
    _m.kind, _m.user_id, _m.agent_id, _m.run_id,
)  # fmt: skip
_ROWS = _SELECTED.where(_m.partition == bindparam("partition")).order_by(_m.id).limit(bindparam("limit"))
# By the sequence number: an index on the partition would lead through all of it, the order of rows through all rows.
_CHANGED = _SELECTED.where(_m.seq > bindparam("after"), _m.partition + 0 == bindparam("partition")).order_by(_m.id + 0)
_SOME_CHANGED = select(_m.id).where(_m.seq > bindparam("after")).limit(MAX_CHANGES + 1)
_ERASED_IDS = select(tombstones_table.c.uid).where(
    tombstones_table.c.seq > bindparam("after"), tombstones_table.c.partition == bindparam("key")
)
_IN_PARTITION = _m.partition == bindparam("partition")
_TERMS = select(_m.id, _m.terms).where(_m.terms.is_not(None))
_ALL_RUNS = select(further_runs.c.memory, further_runs.c.run_id)
_RUNS = _ALL_RUNS.join(memories, _m.id == further_runs.c.memory).where(_IN_PARTITION)
_RUNS_OF = _ALL_RUNS.where(in_array(further_runs.c.memory, "rows"))
_ALL_MENTIONS = select(mentions.c.memory, mentions.c.entity, mentions.c.kind, mentions.c.at)
_MENTIONS = _ALL_MENTIONS.join(memories, _m.id == mentions.c.memory).where(_IN_PARTITION)
_MENTIONS_OF = _ALL_MENTIONS.where(in_array(mentions.c.memory, "rows"))
_e = entities.c
_ALL_ENTITIES = select(_e.id, _e.key, _e.mentions, _e.name, _e.type, _e.bare_key)
_ENTITIES = _ALL_ENTITIES.where(entities.c.partition == bindparam("partition"))
_ENTITIES_OF = _ALL_ENTITIES.where(in_array(entities.c.id, "entities"))
