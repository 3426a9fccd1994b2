"""The jobs that have attachments described: recorded with a message, or holding one that has no words yet.

`graphmem.commands.dispatch` calls the handlers; `graphmem.jobs.describing` does the jobs.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from graphmem.commands.types import (
    AddMessage,
    DescribeLater,
    DropHeldMessages,
    EnqueueExtraction,
    HoldMessage,
    MessageIdReused,
    Outcome,
    OutcomeType,
)
from graphmem.commands.unit_of_work import UnitOfWork
from graphmem.model import MemoryRecord, Message, from_micros, micros, optional_from_micros, optional_micros
from graphmem.stores.ledger import attachments, jobs, memories, tombstones
from graphmem.stores.ledger.jobs import EXTRACTION, MESSAGE, SOURCES, Job, JobKind

# Of an attachment of a held message: data that no model gets, and that is to be kept.
DATA = "data"
_PLAIN = ("role", "content", "name", "id", "utc_offset", "has_own_time")


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
