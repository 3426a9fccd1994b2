"""The transaction that carries a change set out. The handlers of the commands read and write through it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection

from graphmem.boundary.content_parts import data_of
from graphmem.commands.types import ChangeSet
from graphmem.errors import NotFoundError
from graphmem.model import Attachment, Extraction, MemoryEvent, MemoryRecord, Scope
from graphmem.stores.ledger import Ledger, events, graph_writes, jobs, ledger_state, memories, outbox
from graphmem.stores.ledger.attachments import BLOBS
from graphmem.stores.ledger.jobs import DeferredFacts
from graphmem.text import is_passage

NOT_FOUND = "no memory {id!r:.80} in this scope; a search or a list of it gives the ids that exist"


class UnitOfWork:
    """The transaction that carries a change set out: its connection, its time, and reads that several handlers need."""

    def __init__(self, connection: Connection, ledger: Ledger, change_set: ChangeSet, session_gap: timedelta) -> None:
        self.connection = connection
        self.digests = ledger.digests
        self._job_holder = ledger.job_holder
        self._blobs = ledger.blobs
        self._ledger_uuid = ledger.uuid
        self._embedding = change_set.embedding
        self.now = change_set.now
        self.visible_scope = change_set.visible_scope
        self.session_gap = session_gap
        # Rows of partitions that may have aliases or chosen names of entities without a mention.
        self.partitions_with_stale_names: set[int] = set()
        # Whether this change set erased words.
        self.has_erased = False
        # Digests of the data of attachments that it erased.
        self.erased_data: set[str] = set()
        # The memories that it erased: one erased with another may be named by a further command.
        self.erased_ids: set[str] = set()
        # Source messages that this change set stored as new, or with new words: `EnqueueExtraction` records a job.
        self.new_source_messages: list[MemoryRecord] = []
        # Whether somebody is to know when sessions end; for these, by scope, the number of new messages and the facts
        # that are drawn then.
        self.ends_sessions = change_set.ends_sessions
        self.new_messages: Counter[Scope] = Counter()
        self.deferred_facts: dict[Scope, list[DeferredFacts]] = {}
        # What subscribers are told of once this change set is committed.
        self.events: list[MemoryEvent] = []
        self._partitions: dict[str, memories.EnsuredPartition] = {}

    def find(self, uid: str) -> MemoryRecord:
        """Returns the memory of an id. Raises NotFoundError for an unknown id, or one outside `visible_scope`."""
        return self._visible(uid, memories.find(self.connection, uid))

    def find_to_erase(self, uid: str) -> MemoryRecord:
        """Returns the memory of an id as `find` does, also one that is damaged (`memories.records_to_erase`)."""
        return self._visible(uid, next(iter(memories.records_to_erase(self.connection, [uid])), None))

    def _visible(self, uid: str, record: MemoryRecord | None) -> MemoryRecord:
        if record is None or (self.visible_scope is not None and not record.is_in(self.visible_scope)):
            raise NotFoundError(NOT_FOUND.format(id=uid))
        return record

    def next_seq(self) -> int:
        """Takes the next sequence number."""
        return self.next_seqs(1)[0]

    def next_seqs(self, number: int) -> Sequence[int]:
        """Takes the next `number` sequence numbers. Raises EmbedderChanged, as `check_embedder` does."""
        if not number:
            return ()
        taken = outbox.take_seqs(self.connection, number)
        self.ends_sessions = self.ends_sessions or taken.is_followed
        self._check_embedder(taken.spaces)
        return taken.seqs

    def check_embedder(self) -> None:
        """Raises EmbedderChanged if the ledger's vectors are of another embedder than the change set's.

        Records the first one. For a change that takes no sequence number, which would do the same.
        """
        if self._embedding is not None:
            self._check_embedder(ledger_state.recorded_spaces(self.connection))

    def _check_embedder(self, spaces: outbox.RecordedSpaces) -> None:
        spec, self._embedding = self._embedding, None
        if spec is not None and not ledger_state.are_of(spaces, spec, self._ledger_uuid):
            ledger_state.ensure_embedder(self.connection, spec, self._ledger_uuid)

    def enqueue_enrichments(self, records: Sequence[MemoryRecord]) -> None:
        """Stores the jobs to enrich the texts of memories; they replace earlier ones."""
        rows = [(record.row, self.partition_row(record)) for record in records]
        if rows:
            jobs.enqueue_enrichments(self.connection, rows, self._job_holder)

    def add_to_graph(self, record: MemoryRecord, extraction: Extraction) -> None:
        """Adds the mentions and statements of a memory's text to the graph, without the rules for aliases."""
        partition = self.partition_row(record)
        seqs = self.next_seqs(graph_writes.count_relations([(partition, extraction)]))
        graph_writes.add(self.connection, [graph_writes.GraphAddition(record, partition, extraction)], seqs)

    def partition_row(self, owner: MemoryRecord | Scope) -> int:
        """Returns the row of a partition and inserts it if needed."""
        return self._partition(owner).row

    def has_forgotten(self, owner: MemoryRecord | Scope) -> bool:
        """Returns whether a partition had forgotten memories when it was first read."""
        return self._partition(owner).forgotten > 0

    def _partition(self, owner: MemoryRecord | Scope) -> memories.EnsuredPartition:
        """Returns a partition. Cached: with PostgreSQL each statement is a round trip."""
        key = owner.partition
        if key not in self._partitions:
            self._partitions[key] = memories.ensure_partition(self.connection, key)
        return self._partitions[key]

    def latest_session(self, scope: Scope, start: int, end: int) -> memories.LatestSession | None:
        """Returns the last of the sessions of a scope; see `memories.latest_session`."""
        partition, latest = memories.latest_session(self.connection, scope, start, end)
        if scope.partition not in self._partitions:
            self._partitions[scope.partition] = partition or memories.insert_partition(self.connection, scope.partition)
        return latest

    @property
    def keeps_data(self) -> bool:
        """Whether the data of attachments is kept in a folder."""
        return self._blobs is not None and self._blobs.keeps_new

    def kept(self, attachments: Sequence[Attachment]) -> tuple[Attachment, ...]:
        """Returns attachments as they are to be stored: with a folder for blobs, after writing their data there."""
        if self._blobs is None or not self._blobs.keeps_new:
            return tuple(attachments)
        kept = []
        for one in attachments:
            data = None if one.source is None else data_of(one.source)
            if data is not None and one.sha256 is not None:
                self._blobs.write(one.sha256, data)
                one = replace(one, ref=f"{BLOBS}{one.sha256}")  # noqa: PLW2901
            kept.append(one)
        return tuple(kept)

    def session_for(
        self, scope: Scope, at: datetime, name: str | None, content: str, document: str | None = None
    ) -> str:
        """Returns the id of the session that a message of this scope, said at `at`, belongs to, whoever says it.

        That is its own one (`own_session`), else that of the nearest episode at most `session_gap` away, else a new
        one.
        """
        own = self.own_session(scope, name, content, document)
        if own is not None:
            return own
        nearest = memories.nearest_session(self.connection, self.partition_row(scope), scope, at, self.session_gap)
        return nearest or str(uuid4())

    def own_session(self, scope: Scope, name: str | None, content: str, document: str | None) -> str | None:
        """Returns the id of the session that a message belongs to whenever it is said; None if its time decides.

        A passage of a document (`content`; without the `name` of a speaker) gets a session of its own. A paragraph of a
        document belongs to the session of that document (`document` is its id), any other message to its run.
        """
        if name is None and is_passage(content):
            # Passages that are imported one after the other are not messages that were said one after the other.
            return f"{memories.SINGLE_SESSION}{uuid4()}"
        if document is not None:
            return f"{memories.SINGLE_SESSION}{document}"
        return scope.run_id

    def insert_into_session(self, record: MemoryRecord) -> None:
        """Inserts a new episode into its session's order: it becomes the predecessor of the next later episode."""
        next_row = memories.first_episode_after(self.connection, record, self.partition_row(record))
        if next_row is not None:
            memories.set_previous(self.connection, next_row, record.row, self.next_seq())

    def remove_from_session(self, record: MemoryRecord) -> None:
        """Removes an episode from its session's order: its successor gets its predecessor."""
        next_row = memories.next_row(self.connection, record.row)
        if next_row is not None:
            previous_row = memories.previous_row(self.connection, record.row)
            memories.set_previous(self.connection, next_row, previous_row, self.next_seq())

    def add_event(self, event: str, record: MemoryRecord, **values: Any) -> str | None:
        """Adds an entry to a memory's history, with the time of the change set; see `events.add_event`."""
        event_id = events.add_event(self.connection, event, record, now=self.now, **values)
        if event_id is not None:
            self.tell_of(event_id, event, record)
        return event_id

    def tell_of(self, event_id: str, event: str, record: MemoryRecord, at: datetime | None = None) -> None:
        """Lets subscribers know of an entry of a memory's history, unless the memory was erased."""
        if event != events.ERASED:
            self.events.append(MemoryEvent.added(event_id, event, record.id, record.scope, at or self.now))
