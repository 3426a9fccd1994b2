"""Summaries by a language model: the running one of a session, made anew from how it stood and what was said since,
outside the caller's path; and the procedural one of an agent's work, which mem0 calls a procedural memory.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from graphmem.boundary import validation
from graphmem.commands.facts import JobAlreadyDone
from graphmem.commands.types import AddFact, Command, CompleteJob, UpdateMemory
from graphmem.errors import LLMUnusable
from graphmem.ingest.facts.extraction import MessagePart, message_view, split_messages
from graphmem.ingest.facts.pipeline import FactPipeline, JobResult
from graphmem.ingest.facts.structured_output import as_json, checked_or, object_schema, single_line
from graphmem.model import Kind, MemoryRecord
from graphmem.models.protocols import Prompt, Usage
from graphmem.prompts import load
from graphmem.stores.ledger import Ledger, memories, sessions
from graphmem.stores.ledger.jobs import Job
from graphmem.tracing import span

OPERATION = "summary"
# Characters a summary may have; about 120 words are asked for.
MAX_SUMMARY_CHARS = 1_200
# Messages that one summary takes in at most: what is left makes the next one.
BATCH = 200

_SENTENCE = re.compile(r"[.;!?。；！？]\s*")
SCHEMA = object_schema(summary={"type": "string"})

PROCEDURE = "procedure"
# Characters that the record of a procedure may have: it keeps what was found to the letter.
MAX_PROCEDURE_CHARS = 8_000


def summary_request(summary: str, pieces: Sequence[MessagePart]) -> Prompt:
    """Asks for the summary of how it stood and of what was said since."""
    told = {"summary": summary, "messages": [message_view(one.record, one.text) for one in pieces]}
    return Prompt(OPERATION, load("summary"), as_json(told), SCHEMA)


def read_summary(value: Any) -> str:
    """The summary of an answer, in one line of at most `MAX_SUMMARY_CHARS` characters.

    Raises LLMUnusable for what is no answer.
    """
    return _shortened(single_line(_told(value)), MAX_SUMMARY_CHARS)


def _told(value: Any) -> Any:
    return value.get("summary") if isinstance(value, dict) else value


def _shortened(text: str | None, longest: int) -> str:
    """At most so many characters, which end a sentence where they can."""
    if text is None:
        raise LLMUnusable("the model's answer has no summary; it is asked again later")
    if len(text) <= longest:
        return text
    ends = [found.end() for found in _SENTENCE.finditer(text, 0, longest)]
    return text[: ends[-1] if ends else longest].strip()


def summarise(job: Job, pipeline: FactPipeline, ledger: Ledger) -> None:
    """Brings the summary of a session up to date, once; what is said meanwhile is for the next.

    Raises LLMError or StoreError: the work stays on the list then.
    """
    with ledger.read() as connection:
        known = sessions.summary_of(connection, job.scope, job.session)
        after = sessions.last_summarised_row(connection, known)
        records = sessions.session_episodes(connection, job.scope, job.session, after, BATCH)
    text = "" if known is None else known.text
    with span("summarise"):
        for pieces in split_messages(records):
            text = read_summary(pipeline.ask_model(summary_request(text, pieces), job)[0])
    settle = CompleteJob(job, pipeline.spec)
    try:
        pipeline.commit([settle, *_steps(job, known, text, records)])
    except JobAlreadyDone:
        return


def _steps(job: Job, known: MemoryRecord | None, text: str, records: Sequence[MemoryRecord]) -> list[Command]:
    if not records:
        return []
    sources = tuple(record.id for record in records)
    made = _record(job, text, records, "episodic")
    return [AddFact(made, sources)] if known is None else [UpdateMemory(known.id, text=text, sources=sources)]


def _record(job: Job, text: str, records: Sequence[MemoryRecord], memory_type: str) -> MemoryRecord:
    last, now = max(records, key=lambda record: record.at), datetime.now(UTC)
    return MemoryRecord(
        id=str(uuid4()), partition=job.partition, scope=job.scope, kind=Kind.SUMMARY, text=text, at=last.at,
        valid_from=last.at, created_at=now, updated_at=now, session=job.session, memory_type=memory_type,
    )  # fmt: skip


# --- procedures -----------------------------------------------------------------------------------------------------


def procedure_request(before: str, pieces: Sequence[MessagePart], instructions: str | None) -> Prompt:
    """Asks for the record of what an agent did, going on from the part `before`. `instructions` replace ours."""
    told = {"record": before, "messages": [message_view(one.record, one.text) for one in pieces]}
    system = f"{instructions or load(PROCEDURE)}\n\n{load(f'{PROCEDURE}_contract')}"
    return Prompt(PROCEDURE, system, as_json(told), SCHEMA)


def read_procedure(value: Any) -> str:
    """The record of an answer, line by line, of at most `MAX_PROCEDURE_CHARS` characters.

    Raises LLMUnusable for what is no answer.
    """
    told = _told(value)
    text = told.strip() if isinstance(told, str) else ""
    return _shortened(checked_or(validation.content, text, None) if text else None, MAX_PROCEDURE_CHARS)


def record_procedure(job: Job, pipeline: FactPipeline, ledger: Ledger) -> JobResult:
    """Stores the record of a procedure: one summary of the job's messages, one request for each chunk of them.

    Raises LLMError or StoreError: the work stays on the list then.
    """
    with ledger.read() as connection:
        known = memories.records(connection, job.memories)
    records = [known[uid] for uid in job.memories if uid in known]
    text, used, parts = "", Usage(), split_messages(records)
    with span("record the procedure"):
        for pieces in parts:
            answer, took = pipeline.ask_model(procedure_request(text, pieces, job.request.get("prompt")), job)
            text, used = read_procedure(answer), used + took
    steps: list[Command] = [CompleteJob(job, pipeline.spec)]
    if records:
        sources = [record.id for record in records]
        made = _given(_record(job, text, records, sessions.PROCEDURAL), records)
        steps += [AddFact(made, tuple(sources)), *pipeline.enrich([made])]
    try:
        outcomes = pipeline.commit(steps)[1:2]
    except JobAlreadyDone:
        return JobResult()
    return JobResult(tuple(outcomes), {PROCEDURE: used}, chunks=len(parts))


def _given(record: MemoryRecord, records: Sequence[MemoryRecord]) -> MemoryRecord:
    """A record with the metadata and expiration that were given for its messages."""
    last = max(records, key=lambda one: one.at)
    metadata = {name: value for name, value in last.metadata.items() if name != "attachments"}
    return replace(record, metadata=metadata, expires_at=last.expires_at)
