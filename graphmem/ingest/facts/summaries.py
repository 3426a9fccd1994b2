"""Summaries by a language model: the requests, their answers, the memories made of them, and the jobs that make them.

`graphmem.jobs.worker` runs the jobs. A running summary is that of a session; the record of a procedure summarises an
agent's work (mem0: procedural memory).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from graphmem.boundary import validation
from graphmem.commands.facts import JobAlreadyDone
from graphmem.commands.types import AddFact, Command, CompleteJob, UpdateMemory
from graphmem.errors import LLMUnusable
from graphmem.ingest.facts.extraction import MessagePart, messages_view, split_messages
from graphmem.ingest.facts.structured_output import build_prompt, checked_or, object_schema, single_line
from graphmem.ingest.model_jobs import JobResult
from graphmem.model import Kind, MemoryRecord
from graphmem.plugins import Prompt, Usage
from graphmem.stores.ledger import Ledger, memories, sessions
from graphmem.stores.ledger.jobs import BEFORE, IMPORTANCE, INSTRUCTIONS, Job
from graphmem.tracing import span

if TYPE_CHECKING:
    from graphmem.ingest.facts.pipeline import FactPipeline

OPERATION = "summary"
# Maximal characters of a summary; the prompt asks for about 120 words.
MAX_SUMMARY_CHARS = 1_200
_SENTENCE_END = re.compile(r"[.;!?。；！？]\s*")
SUMMARY_SCHEMA = object_schema(summary={"type": "string"})
# Maximal messages per summary job; later ones are left for the next.
BATCH = 200

PROCEDURE = "procedure"
# Maximal characters of the record of a procedure, which quotes results literally.
MAX_PROCEDURE_CHARS = 8_000


def summary_request(summary: str, parts: Sequence[MessagePart]) -> Prompt:
    """Builds the request for a new summary from the previous one and the messages since then."""
    return build_prompt(OPERATION, {"summary": summary, **messages_view(parts)}, SUMMARY_SCHEMA)


def read_summary(value: Any) -> str:
    """Returns the summary of an answer in one line, shortened to `MAX_SUMMARY_CHARS` characters.

    Raises LLMUnusable for an answer without one.
    """
    return _shortened(single_line(_summary_value(value)), MAX_SUMMARY_CHARS)


def summary_beside_facts(value: Any) -> str | None:
    """Returns the summary of an answer that has facts as well, as `read_summary` does; None if it has none."""
    return read_summary(value) if isinstance(value, Mapping) and single_line(value.get("summary")) else None


def _summary_value(value: Any) -> Any:
    return value.get("summary") if isinstance(value, Mapping) else value


def _shortened(text: str | None, max_chars: int) -> str:
    """Shortens a text after its last sentence within `max_chars` characters, if there is one."""
    if text is None:
        raise LLMUnusable("the model's answer has no summary; it is asked again later")
    if len(text) <= max_chars:
        return text
    ends = [match.end() for match in _SENTENCE_END.finditer(text, 0, max_chars)]
    return text[: ends[-1] if ends else max_chars].strip()


def summary_command(
    job: Job, text: str, messages: Sequence[MemoryRecord], previous: MemoryRecord | None
) -> AddFact | UpdateMemory:
    """Returns the command that stores the new running summary of a job's session in place of the previous one.

    `messages` are those that are new in it.
    """
    sources = tuple(message.id for message in messages)
    if previous is None:
        return AddFact(summary_record(job, text, messages, "episodic"), sources)
    last = max((previous, *messages), key=lambda record: record.at)
    return UpdateMemory(previous.id, text=text, sources=sources, at=last.at, utc_offset=last.utc_offset)


def summary_record(job: Job, text: str, messages: Sequence[MemoryRecord], memory_type: str) -> MemoryRecord:
    """Returns the memory of a summary, at the time of its last message."""
    last, now = max(messages, key=lambda message: message.at), datetime.now(UTC)
    return MemoryRecord(
        id=str(uuid4()), partition=job.partition, scope=job.scope, kind=Kind.SUMMARY, text=text, at=last.at,
        utc_offset=last.utc_offset, valid_from=last.at, created_at=now, updated_at=now, session=job.session,
        memory_type=memory_type,
    )  # fmt: skip


def procedure_request(previous: str, parts: Sequence[MessagePart], instructions: str | None) -> Prompt:
    """Builds the request that extends the `previous` record of an agent's work. `instructions` replace ours."""
    data = {"record": previous, **messages_view(parts)}
    return build_prompt(PROCEDURE, data, SUMMARY_SCHEMA, instructions)


def read_procedure(value: Any) -> str:
    """Returns the summary of a procedure from a model's answer, cut to at most `MAX_PROCEDURE_CHARS` characters.

    Line breaks are kept. Raises LLMUnusable for an answer without a summary.
    """
    summary = _summary_value(value)
    text = summary.strip() if isinstance(summary, str) else ""
    return _shortened(checked_or(validation.content, text, None) if text else None, MAX_PROCEDURE_CHARS)


# --- jobs -----------------------------------------------------------------------------------------------------------


def summarise(job: Job, pipeline: FactPipeline, ledger: Ledger) -> JobResult:
    """Updates the summary of a session with the messages since the last one, and completes the job.

    Messages stored after those that the job names, or during the request, are left for the next summary. Raises
    LLMError or StoreError; then the job stays recorded.
    """
    with ledger.read() as connection:
        previous = sessions.summary_of(connection, job.scope, job.session)
        last_row = sessions.last_summarised_row(connection, previous)
        before = job.request.get(BEFORE)
        messages = sessions.session_episodes(connection, job.scope, job.session, last_row, BATCH, before)
    text, usage = "" if previous is None else previous.text, Usage()
    with span("summarise"):
        for parts in split_messages(messages):
            answer, request_usage = pipeline.ask_model(summary_request(text, parts), job)
            text, usage = read_summary(answer), usage + request_usage
    commands: list[Command] = [CompleteJob(job, pipeline.spec)]
    if messages:
        commands.append(summary_command(job, text, messages, previous))
    with suppress(JobAlreadyDone):
        pipeline.commit(commands)
    return JobResult(usage={OPERATION: usage} if messages else {})


def record_procedure(job: Job, pipeline: FactPipeline, ledger: Ledger) -> JobResult:
    """Stores the record of a procedure, a summary of the job's messages, with one request for each chunk of them.

    Raises LLMError or StoreError; then the job stays recorded.
    """
    with ledger.read() as connection:
        records = memories.records(connection, job.memories)
    messages = [records[uid] for uid in job.memories if uid in records]
    text, usage, chunks = "", Usage(), split_messages(messages)
    with span("record the procedure"):
        for parts in chunks:
            answer, request_usage = pipeline.ask_model(
                procedure_request(text, parts, job.request.get(INSTRUCTIONS)), job
            )
            text, usage = read_procedure(answer), usage + request_usage
    commands: list[Command] = [CompleteJob(job, pipeline.spec)]
    if messages:
        last = max(messages, key=lambda message: message.at)
        record = summary_record(job, text, messages, sessions.PROCEDURAL)
        record = replace(record, metadata=last.metadata, expires_at=last.expires_at)
        sources = tuple(message.id for message in messages)
        commands += [AddFact(record, sources, job.request.get(IMPORTANCE)), *pipeline.enrich([record])]
    try:
        outcomes = pipeline.commit(commands)[1:2]
    except JobAlreadyDone:
        return JobResult()
    return JobResult(tuple(outcomes), {PROCEDURE: usage}, chunks=len(chunks))
