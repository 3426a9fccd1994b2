"""Jobs of a language model that summarise, run by `graphmem.jobs.worker`: running summaries, and procedures."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from graphmem.commands.facts import JobAlreadyDone
from graphmem.commands.types import AddFact, Command, CompleteJob
from graphmem.ingest.facts.extraction import split_messages
from graphmem.ingest.facts.summary_requests import (
    OPERATION,
    PROCEDURE,
    procedure_request,
    read_procedure,
    read_summary,
    summary_command,
    summary_record,
    summary_request,
)
from graphmem.ingest.model_jobs import JobResult
from graphmem.plugins import Usage
from graphmem.stores.ledger import Ledger, memories, sessions
from graphmem.stores.ledger.jobs import BEFORE, IMPORTANCE, INSTRUCTIONS, Job
from graphmem.tracing import span

if TYPE_CHECKING:
    from graphmem.ingest.facts.pipeline import FactPipeline

# Maximal messages per summary job; later ones are left for the next.
BATCH = 200


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
