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

from graphmem import arguments
from graphmem.errors import LLMUnusable
from graphmem.model import Kind, MemoryRecord
from graphmem.prompts import load
from graphmem.providers.base import Prompt, Usage
from graphmem.remember.asking import checked, data, line, object_of
from graphmem.remember.extract import Piece, chunks, shown
from graphmem.remember.learn import Learned, Learner
from graphmem.remember.plan import Learn, Revise, Settle, Step
from graphmem.remember.settle import DoneAlready
from graphmem.stores.ledger import Ledger, jobs, memories
from graphmem.stores.ledger.jobs import PROCEDURAL, Job
from graphmem.tracing import span

OPERATION = "summary"
# Characters a summary may have; about 120 words are asked for.
LONGEST = 1_200
# Messages that one summary takes in at most: what is left makes the next one.
AT_ONCE = 200

_SENTENCE = re.compile(r"[.;!?。；！？]\s*")
SCHEMA = object_of(summary={"type": "string"})

PROCEDURE = "procedure"
# Characters that the record of a procedure may have: it keeps what was found to the letter.
LONGEST_PROCEDURE = 8_000


def request(summary: str, pieces: Sequence[Piece]) -> Prompt:
    """Asks for the summary of how it stood and of what was said since."""
    told = {"summary": summary, "messages": [shown(one.record, one.text) for one in pieces]}
    return Prompt(OPERATION, load("summary"), data(told), SCHEMA)


def read(value: Any) -> str:
    """The summary of an answer, in one line of at most `LONGEST` characters.

    Raises LLMUnusable for what is no answer.
    """
    return _shortened(line(_told(value)), LONGEST)


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


def summarise(job: Job, learner: Learner, ledger: Ledger) -> None:
    """Brings the summary of a session up to date, once; what is said meanwhile is for the next.

    Raises LLMError or StoreError: the work stays on the list then.
    """
    with ledger.read() as connection:
        known = jobs.summary_of(connection, job.scope, job.session)
        after = jobs.last_summarised(connection, known)
        records = jobs.session_episodes(connection, job.scope, job.session, after, AT_ONCE)
    text = "" if known is None else known.text
    with span("summarise"):
        for pieces in chunks(records):
            text = read(learner.ask(request(text, pieces), job)[0])
    settle = Settle(job, learner.forms)
    try:
        learner.commit([settle, *_steps(job, known, text, records)])
    except DoneAlready:
        return


def _steps(job: Job, known: MemoryRecord | None, text: str, records: Sequence[MemoryRecord]) -> list[Step]:
    if not records:
        return []
    sources = tuple(record.id for record in records)
    made = _record(job, text, records, "episodic")
    return [Learn(made, sources)] if known is None else [Revise(known.id, text=text, sources=sources)]


def _record(job: Job, text: str, records: Sequence[MemoryRecord], memory_type: str) -> MemoryRecord:
    last, now = max(records, key=lambda record: record.at), datetime.now(UTC)
    return MemoryRecord(
        id=str(uuid4()), space=job.space, scope=job.scope, kind=Kind.SUMMARY, text=text, at=last.at,
        valid_from=last.at, created_at=now, updated_at=now, session=job.session, memory_type=memory_type,
    )  # fmt: skip


# --- procedures -----------------------------------------------------------------------------------------------------


def procedure_request(before: str, pieces: Sequence[Piece], instructions: str | None) -> Prompt:
    """Asks for the record of what an agent did, going on from the part `before`. `instructions` replace ours."""
    told = {"record": before, "messages": [shown(one.record, one.text) for one in pieces]}
    system = f"{instructions or load(PROCEDURE)}\n\n{load(f'{PROCEDURE}_contract')}"
    return Prompt(PROCEDURE, system, data(told), SCHEMA)


def read_procedure(value: Any) -> str:
    """The record of an answer, line by line, of at most `LONGEST_PROCEDURE` characters.

    Raises LLMUnusable for what is no answer.
    """
    told = _told(value)
    text = told.strip() if isinstance(told, str) else ""
    return _shortened(checked(arguments.content, text, None) if text else None, LONGEST_PROCEDURE)


def record_procedure(job: Job, learner: Learner, ledger: Ledger) -> Learned:
    """Stores the record of a procedure: one summary of the job's messages, one request for each chunk of them.

    Raises LLMError or StoreError: the work stays on the list then.
    """
    with ledger.read() as connection:
        known = memories.records(connection, job.memories)
    records = [known[uid] for uid in job.memories if uid in known]
    text, used, parts = "", Usage(), chunks(records)
    with span("record the procedure"):
        for pieces in parts:
            answer, took = learner.ask(procedure_request(text, pieces, job.request.get("prompt")), job)
            text, used = read_procedure(answer), used + took
    steps: list[Step] = [Settle(job, learner.forms)]
    if records:
        sources = [record.id for record in records]
        made = _given(_record(job, text, records, PROCEDURAL), records)
        steps += [Learn(made, tuple(sources)), *learner.read([made])]
    try:
        outcomes = learner.commit(steps)[1:2]
    except DoneAlready:
        return Learned()
    return Learned(tuple(outcomes), {PROCEDURE: used}, chunks=len(parts))


def _given(record: MemoryRecord, records: Sequence[MemoryRecord]) -> MemoryRecord:
    """A record with the metadata and expiration that were given for its messages."""
    last = max(records, key=lambda one: one.at)
    metadata = {name: value for name, value in last.metadata.items() if name != "attachments"}
    return replace(record, metadata=metadata, expires_at=last.expires_at)
