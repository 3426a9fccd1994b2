"""The handlers of commands about messages, for `graphmem.commands.dispatch`: stores them as episodes, in their
sessions, and the jobs that have attachments described.

Such a job is recorded with a message, or holds one that has no words yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

from graphmem.commands import lifecycle
from graphmem.commands.types import (
    AddMessage,
    DescribeLater,
    DropHeldMessages,
    EnqueueExtraction,
    HoldMessage,
    MessageIdReused,
    Outcome,
    OutcomeType,
    RememberMemory,
)
from graphmem.commands.unit_of_work import UnitOfWork
from graphmem.model import (
    NEUTRAL_IMPORTANCE,
    Kind,
    MemoryRecord,
    Message,
    Scope,
    embedded_text,
    from_micros,
    micros,
    optional_from_micros,
    optional_micros,
)
from graphmem.stores.ledger import attachments, events, jobs, memories, tombstones, vitals
from graphmem.stores.ledger.jobs import EXTRACTION, MESSAGE, SOURCES, Job, JobKind
from graphmem.stores.ledger.memories import LatestSession
from graphmem.text import content_hash

# Of an attachment of a held message: data that no model gets, and that is to be kept.
DATA = "data"
_PLAIN = ("role", "content", "name", "id", "utc_offset", "has_own_time")


def add_messages(commands: Sequence[AddMessage], uow: UnitOfWork) -> list[Outcome]:
    """Stores messages as episodes, but for those whose message key (`key`) shows that they were stored before.

    Messages without a key, but with a `repeat_window`, are those of one call: they were stored before if all of them
    were said by the same speakers within that time, for a part of them may be turns of a chat that are said again. For
    a repeated message the outcome is NONE, with the reason "known", or "erased" if the memory of the first one was
    erased. A message that only repeats a forgotten memory brings that one back. Raises MessageIdReused if the first
    message with an id had other words, EmbedderChanged for a new message in a ledger with another embedder's vectors.
    """
    new, earlier = _NewEpisodes(commands, uow), _EarlierMessages(commands, uow)
    outcomes: list[Outcome | str] = []  # the id of a new memory, until all are written
    for place, command in enumerate(commands):
        repeated = earlier.outcome_of(place, command, new)
        outcomes.append(new.add(command) if repeated is None else repeated)
    added = new.write()
    return [
        Outcome(OutcomeType.ADD, outcome, record=added[outcome]) if isinstance(outcome, str) else outcome
        for outcome in outcomes
    ]


class _EarlierMessages:
    """What is stored of messages already: read for all of them together, before the first one."""

    def __init__(self, commands: Sequence[AddMessage], uow: UnitOfWork) -> None:
        self._uow = uow
        keys = [command.key for command in commands if command.key is not None]
        self._stored = tombstones.stored_messages(uow.connection, keys) if keys else {}
        ids = [memory for memory, digest in self._stored.values() if digest is not None]
        self._records = memories.records(uow.connection, ids) if ids else {}
        hashes: dict[str, tuple[Scope, list[str]]] = {}
        for command in commands:
            _, of_partition = hashes.setdefault(command.scope.partition, (command.scope, []))
            of_partition.append(_text_hash(command))
        self._forgotten = {
            partition: memories.forgotten_episodes(uow.connection, uow.partition_row(scope), of_partition)
            if uow.has_forgotten(scope)
            else {}
            for partition, (scope, of_partition) in hashes.items()
        }
        self._just_said = self._find_just_said(commands)

    def outcome_of(self, place: int, command: AddMessage, new: _NewEpisodes) -> Outcome | None:
        """Returns the outcome of the command at a place if it repeats an earlier message or one of `new`, else None."""
        if (
            command.key is not None
            and (stored := self._stored.get(command.key) or new.message(command.key)) is not None
        ):
            return self._known(command, *stored, new)
        if (said := self._just_said.get(place)) is not None:
            return Outcome(OutcomeType.NONE, said.id, record=said, reason="known")
        for one in self._forgotten[command.scope.partition].get(_text_hash(command), ()):
            if one.scope == command.scope and _is_repetition(command, one) and self._is_still_forgotten(one):
                return self._remember(one, new)
        return None

    def _known(self, command: AddMessage, memory_id: str, stored_digest: str | None, new: _NewEpisodes) -> Outcome:
        if stored_digest is None:
            return Outcome(OutcomeType.NONE, memory_id, reason="erased")
        if stored_digest != command.content_digest:
            raise MessageIdReused(str(command.message.id))
        record = self._records.get(memory_id) or new.write().get(memory_id)
        if record is not None and record.forgotten_at is not None:
            if self._is_still_forgotten(record):
                return self._remember(record, new)
            record = memories.find(self._uow.connection, memory_id)
        return Outcome(OutcomeType.NONE, memory_id, record=record, reason="known")

    def _is_still_forgotten(self, record: MemoryRecord) -> bool:
        """Returns whether no message before this one brought a forgotten memory back, or one that it is a source of."""
        current = memories.find(self._uow.connection, record.id)
        return current is not None and current.forgotten_at is not None

    def _remember(self, record: MemoryRecord, new: _NewEpisodes) -> Outcome:
        """Shows a forgotten memory again; in the place of a source message the facts that were drawn from it."""
        new.write()  # the events stay in the order of the messages
        drawn = (
            memories.records_linking_to(self._uow.connection, record.row, "drawn_from") if record.source_only else []
        )
        facts = [fact for fact in drawn if fact.kind is Kind.FACT and fact.forgotten_at is not None]
        outcomes = [
            lifecycle.remember_memory(RememberMemory(one.id, lifecycle.SAID_AGAIN), self._uow)
            for one in facts or [record]
        ]
        return outcomes[0]

    def _find_just_said(self, commands: Sequence[AddMessage]) -> dict[int, MemoryRecord]:
        """Returns the memories that all commands with a repeat window would only repeat, by the commands' places.

        Empty if one of them would not. A source message does not stand for one that is to be a memory of its own.
        """
        windows = {
            place: command.repeat_window for place, command in enumerate(commands) if command.repeat_window is not None
        }
        if not windows:
            return {}
        first = commands[min(windows)]  # all are of one scope and time
        said = memories.episodes_saying(
            self._uow.connection,
            self._uow.partition_row(first.scope),
            first.scope,
            {commands[place].message.text for place in windows},
            first.message.at,
            max(windows.values()),
        )
        found: dict[int, MemoryRecord] = {}
        for place in windows:
            one = next((one for one in said if _is_repetition(commands[place], one)), None)
            if one is None:
                return {}
            said.remove(one)
            found[place] = one
        return found


def _text_hash(command: AddMessage) -> str:
    return content_hash(command.scope.partition, embedded_text(command.speaker, command.message.text))


def _is_repetition(command: AddMessage, stored: MemoryRecord) -> bool:
    message = command.message
    # A cycle of the lifecycle names the type of a memory that was stored without one.
    memory_type = command.memory_type or stored.memory_type
    wanted = (message.role, message.name, memory_type, command.expires_at, dict(command.metadata))
    found = (stored.role, stored.actor_id, stored.memory_type, stored.expires_at, dict(stored.metadata))
    said_before = stored.message()
    return (
        said_before.content == message.content
        and [one.identity for one in stored.attachments] == [one.identity for one in message.attachments]
        and found == wanted
        and stored.valid_to is None
        and (command.source_only or not stored.source_only)
    )


class _NewEpisodes:
    """New episodes, which are collected and written by statements for all of them.

    Messages mostly come in order, at the end of their sessions: then the session is looked for once, before the first
    one. Before any other message those that were collected are written, and the ledger is read for it alone.
    """

    def __init__(self, commands: Sequence[AddMessage], uow: UnitOfWork) -> None:
        self._uow = uow
        self._gap = uow.session_gap // timedelta(microseconds=1)
        self._collected: list[MemoryRecord] = []
        self._written: dict[str, MemoryRecord] = {}
        self._messages: dict[str, tuple[str, str]] = {}  # id and content digest by message key
        self._given: set[str] = set()  # ids of those whose importance the caller gave
        self._later: dict[str, DescribeLater] = {}  # what is to be described of them, by id
        self._new_keys: list[str] = []  # those that are not written yet
        # The time of the last message of each scope, in microseconds.
        self._last: dict[Scope, int] = {}
        for command in commands:
            at = micros(command.message.at)
            self._last[command.scope] = max(at, self._last.get(command.scope, at))
        # Up to when, in microseconds, all episodes of a scope or of a session are known to be, stored or collected; for
        # a scope with the session of the last one. Those of a scope have to be known no further than the last message
        # can reach.
        self._scope_ends: dict[Scope, tuple[int, str]] = {}
        self._session_ends: dict[tuple[str, str], int] = {}
        # The last session of the first message's scope from a time on (microseconds), read with the partition.
        self._first_looked_up: dict[Scope, tuple[int, LatestSession | None]] = {}
        scope, message = commands[0].scope, commands[0].message
        if uow.own_session(scope, message.name, message.content, message.document) is None:
            start = micros(message.at) - self._gap
            self._first_looked_up[scope] = start, self._read_latest(scope, start)

    def add(self, command: AddMessage) -> str:
        """Adds a message and returns the id of its memory."""
        message, scope, now = command.message, command.scope, self._uow.now
        record = MemoryRecord(
            id=str(uuid4()),
            partition=scope.partition,
            scope=scope,
            kind=Kind.EPISODE,
            text=message.text,
            at=message.at,
            utc_offset=message.utc_offset,
            valid_from=message.at,
            created_at=now,
            updated_at=now,
            session=self._session_for(command),
            expires_at=command.expires_at,
            memory_type=command.memory_type,
            metadata=command.metadata,
            speaker=command.speaker,
            actor_id=message.name,
            role=message.role,
            message_id=message.id,
            source_only=command.source_only,
            importance=NEUTRAL_IMPORTANCE if command.importance is None else command.importance,
            attachments=self._uow.kept(message.attachments),
        )
        if command.later is not None:
            self._later[record.id] = command.later
        if command.importance is not None and not command.source_only:
            self._given.add(record.id)
        is_last = self._is_last_of_session(record)
        if not is_last:
            self.write()
        self._collected.append(record)
        if command.key is not None:
            self._messages[command.key] = record.id, command.content_digest
            self._new_keys.append(command.key)
        if not is_last:
            self._uow.insert_into_session(self.write()[record.id])
        return record.id

    def message(self, key: str) -> tuple[str, str] | None:
        """Returns the id and the content digest of the episode with this message key, or None."""
        return self._messages.get(key)

    def write(self) -> dict[str, MemoryRecord]:
        """Writes what was collected since the last time, with events, message keys and jobs.

        Returns all episodes that were written, by id, in order.
        """
        if self._collected:
            uow = self._uow
            seqs = uow.next_seqs(len(self._collected))
            records = [replace(record, seq=seq) for record, seq in zip(self._collected, seqs, strict=True)]
            rows = memories.insert_all(uow.connection, [(record, uow.partition_row(record)) for record in records])
            records = [replace(record, row=row) for record, row in zip(records, rows, strict=True)]
            vitals.give_importance(uow.connection, [record.row for record in records if record.id in self._given])
            for event_id, record in events.add_first_events(uow.connection, records, now=uow.now):
                uow.tell_of(event_id, "ADD", record)
            if self._new_keys:
                tombstones.add_message_keys(uow.connection, [(key, *self._messages[key]) for key in self._new_keys])
            uow.enqueue_enrichments(records)
            for record in records:
                if (later := self._later.pop(record.id, None)) is not None:
                    enqueue_description(later, record, uow)
            uow.new_messages.update(record.scope for record in records)
            uow.new_source_messages += [record for record in records if record.source_only]
            self._written |= {record.id: record for record in records}
            self._collected, self._new_keys = [], []
        return self._written

    def _session_for(self, command: AddMessage) -> str:
        """Returns the session of a message, as `UnitOfWork.session_for` does."""
        uow, message, scope = self._uow, command.message, command.scope
        at, gap = micros(message.at), self._gap
        session = uow.own_session(scope, message.name, message.content, message.document)
        if session is not None:
            if session != scope.run_id and message.document is None:  # a new one
                self._session_ends[scope.partition, session] = at
            return session
        end = self._scope_ends.get(scope)
        if end is None:
            latest = self._latest_session(scope, at - gap)
            if latest is not None and latest.at > at:
                return self._session_among_others(command)
            if latest is not None:
                session = latest.session
                if not latest.goes_on:
                    self._session_ends.setdefault((scope.partition, session), latest.at)
        elif at < end[0]:
            return self._session_among_others(command)
        else:
            session = end[1] if at - end[0] <= gap else None
        if session is None:
            session = str(uuid4())
            self._session_ends[scope.partition, session] = at
        self._scope_ends[scope] = at, session
        return session

    def _latest_session(self, scope: Scope, start: int) -> LatestSession | None:
        """Returns the last session of a scope that has an episode at `start` (microseconds) or later."""
        known_from, latest = self._first_looked_up.pop(scope, (start + 1, None))
        if known_from <= start:
            return latest if latest is not None and latest.at >= start else None
        self.write()
        return self._read_latest(scope, start)

    def _read_latest(self, scope: Scope, start: int) -> LatestSession | None:
        return self._uow.latest_session(scope, start, self._last[scope] + self._gap)

    def _session_among_others(self, command: AddMessage) -> str:
        self.write()
        message = command.message
        return self._uow.session_for(command.scope, message.at, message.name, message.content, message.document)

    def _is_last_of_session(self, record: MemoryRecord) -> bool:
        """Returns whether no episode of its session is later than a record, and remembers that."""
        place, at = (record.partition, record.session), micros(record.at)
        end = self._session_ends.get(place)
        if end is None:
            row = memories.first_episode_after(self._uow.connection, record, self._uow.partition_row(record))
            is_last = row is None
        else:
            is_last = at >= end
        if is_last:
            self._session_ends[place] = at
        return is_last


def enqueue_description(later: DescribeLater, record: MemoryRecord, uow: UnitOfWork) -> None:
    """Records the job that has the attachments of a new memory described."""
    job = Job(JobKind.DESCRIPTION, record.scope, record.session, (record.id,), _request(later))
    jobs.enqueue(uow.connection, job, record.row)


def hold_message(command: HoldMessage, uow: UnitOfWork) -> Outcome:
    """Records the job that has a message without words described, and holds it. The outcome's id is the job's row.

    It replaces a job that holds the same message. For one that is a memory, or was, the outcome is NONE as for
    `AddMessage`. Raises MessageIdReused and EmbedderChanged as that does.
    """
    uow.check_embedder()
    held, message = command.message, command.message.message
    stored = {} if held.key is None else tombstones.stored_messages(uow.connection, [held.key])
    for memory_id, digest in stored.values():
        if digest not in {None, held.content_digest}:
            raise MessageIdReused(str(message.id))
        record = memories.find(uow.connection, memory_id)
        return Outcome(OutcomeType.NONE, memory_id, record=record, reason="erased" if digest is None else "known")
    later = held.later or DescribeLater({})
    encoded = {
        **{name: getattr(message, name) for name in _PLAIN},
        "at": micros(message.at),
        "attachments": [
            {**attachments.encode(one), DATA: one.source if uow.keeps_data and place not in later.sources else None}
            for place, one in enumerate(message.attachments)
        ],
        "metadata": dict(held.metadata),
        "key": held.key,
        "content_digest": held.content_digest,
        "speaker": held.speaker,
        "memory_type": held.memory_type,
        "expires_at": optional_micros(held.expires_at),
        "source_only": held.source_only,
        "importance": held.importance,
    }
    request = {**_request(later), MESSAGE: encoded}
    job = jobs.enqueue(uow.connection, Job(JobKind.DESCRIPTION, held.scope, "", (), request))
    return Outcome(OutcomeType.ENQUEUE_JOB, str(job.row))


def drop_held_messages(command: DropHeldMessages, uow: UnitOfWork) -> Outcome:
    """Deletes the jobs that hold messages of a scope."""
    if jobs.delete_held(uow.connection, command.scope):
        uow.has_erased = True
    return Outcome(OutcomeType.NONE, "", reason="held messages dropped")


def _request(later: DescribeLater) -> dict[str, Any]:
    extraction = later.extraction
    asked = {} if extraction is None else {name: value for name, value in asdict(extraction).items() if name != "scope"}
    sources = {str(position): source for position, source in later.sources.items()}
    return {SOURCES: sources, **({} if extraction is None else {EXTRACTION: asked})}


def sources_of(job: Job) -> dict[int, str]:
    """Returns the URLs or data that a job has described, by the position of their attachments."""
    return {int(position): source for position, source in job.request[SOURCES].items()}


def extraction_after(job: Job) -> EnqueueExtraction | None:
    """Returns the command by which facts are drawn from what a job has had described; None for no facts."""
    asked = job.request.get(EXTRACTION)
    return None if asked is None else EnqueueExtraction(job.scope, **asked)


def held_message(job: Job) -> AddMessage | None:
    """Returns the message that a job holds, as it was to be added; None if its attachments are a memory's."""
    held = job.request.get(MESSAGE)
    if held is None:
        return None
    sources = sources_of(job)
    found = tuple(
        replace(attachments.decode(one), source=sources.get(position, one[DATA]))
        for position, one in enumerate(held["attachments"])
    )
    return AddMessage(
        scope=job.scope,
        message=Message(**{name: held[name] for name in _PLAIN}, at=from_micros(held["at"]), attachments=found),
        key=held["key"],
        content_digest=held["content_digest"],
        speaker=held["speaker"],
        metadata=held["metadata"],
        memory_type=held["memory_type"],
        expires_at=optional_from_micros(held["expires_at"]),
        source_only=held["source_only"],
        importance=held["importance"],
    )
