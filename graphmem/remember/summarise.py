"""The running summary of a session: made anew from how it stood and what was said since, outside the caller's path."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from graphmem.errors import LLMUnusable
from graphmem.model import Kind, MemoryRecord
from graphmem.prompts import load
from graphmem.providers.base import Prompt
from graphmem.remember.asking import data, line, object_of
from graphmem.remember.extract import Piece, chunks, shown
from graphmem.remember.learn import Learner
from graphmem.remember.plan import Learn, Revise, Settle, Step
from graphmem.remember.settle import DoneAlready
from graphmem.stores.ledger import Ledger, jobs
from graphmem.stores.ledger.jobs import Job
from graphmem.tracing import span

OPERATION = "summary"
# Characters a summary may have; about 120 words are asked for.
LONGEST = 1_200
# Messages that one summary takes in at most: what is left makes the next one.
AT_ONCE = 200

_SENTENCE = re.compile(r"[.;!?。；！？]\s*")
SCHEMA = object_of(summary={"type": "string"})


def request(summary: str, pieces: Sequence[Piece]) -> Prompt:
    """Asks for the summary of how it stood and of what was said since."""
    told = {"summary": summary, "messages": [shown(one.record, one.text) for one in pieces]}
    return Prompt(OPERATION, load("summary"), data(told), SCHEMA)


def read(value: Any) -> str:
    """The summary of an answer, in one line of at most `LONGEST` characters, which end a sentence where they can.

    Raises LLMUnusable for what is no answer.
    """
    text = line(value.get("summary") if isinstance(value, dict) else value)
    if text is None:
        raise LLMUnusable("the model's answer has no summary; it is asked again later")
    if len(text) <= LONGEST:
        return text
    ends = [found.end() for found in _SENTENCE.finditer(text, 0, LONGEST)]
    return text[: ends[-1] if ends else LONGEST].strip()


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
    last, now = max(records, key=lambda record: record.at), datetime.now(UTC)
    made = MemoryRecord(
        id=str(uuid4()), space=job.space, scope=job.scope, kind=Kind.SUMMARY, text=text, at=last.at,
        valid_from=last.at, created_at=now, updated_at=now, session=job.session, memory_type="episodic",
    )  # fmt: skip
    return [Learn(made, sources)] if known is None else [Revise(known.id, text=text, sources=sources)]
