"""Jobs of a language model that make one memory of several: merges, summaries of many events, abstractions.

`graphmem.lifecycle.compression` says of which, for a cycle; seed 002 §5.1 and §5.2 say how. An answer is untrusted: a
text that is too long, says a number, a name or a denial that none of the memories has, or is of another script, is
dropped, and the memories stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from graphmem.commands.facts import JobAlreadyDone
from graphmem.commands.types import Command, CompleteJob, ComposeMemory, Outcome, OutcomeType
from graphmem.errors import LLMUnusable
from graphmem.ingest.facts.extraction import common_value
from graphmem.ingest.facts.job_result import JobResult
from graphmem.ingest.facts.structured_output import as_json, object_schema, single_line
from graphmem.ingest.facts.summary_requests import MAX_SUMMARY_CHARS
from graphmem.lifecycle.decay import Composition, Operation
from graphmem.model import Kind, Layer, MemoryRecord, Scope, optional_from_micros
from graphmem.models.protocols import Prompt
from graphmem.prompts import load
from graphmem.retrieval.temporal import strip_all_times
from graphmem.retrieval.temporal.english_phrases import plain_text
from graphmem.stores.ledger import Ledger, memories
from graphmem.stores.ledger.jobs import AT, BATCH, HIDES, LEVEL, OPERATION, Job, JobKind
from graphmem.stores.ledger.sessions import OF_EVENTS
from graphmem.text import approximate_length, claims, cut_line, folded_key, is_question, is_unspaced, tokens
from graphmem.tracing import span

if TYPE_CHECKING:
    from graphmem.ingest.facts.pipeline import FactPipeline

SCHEMA = object_schema(text={"type": ["string", "null"]})
# §5.1 and §5.2: the most words, or characters of scripts without spaces, of a merged memory and of an abstraction.
MOST_WORDS: Mapping[Operation, int] = {Operation.MERGE: 50, Operation.ABSTRACT: 30}
# The most characters that a request shows of one memory, and of all: what is beyond is left for another composition.
SHOWN_CHARS, MOST_SHOWN_CHARS = 1_000, 24_000
# The share of the words of a merged memory or a summary that its sources have, counted by their first letters.
SAID_SHARE, STEM = 0.5, 4
# In a language that writes all nouns with a capital, a capital does not tell a name.
MOST_CAPITALS = 0.25
_CAPITAL = re.compile(r"(?<=[^\W_.!?] )[A-ZÀ-Þ][^\W\d_]+|(?<=[,;:] )[A-ZÀ-Þ][^\W\d_]+")
_WORD = re.compile(r"[^\W\d_]+")
# What is left where a time was cut out: the preposition before it, and the space around it.
_PLACE_OF_TIME = re.compile(r"(?:\b(?:on|in|at|during|since|until|by|from)\b)?(?:\s{2,}|^\s+|\s+$)", re.IGNORECASE)
_SPACE_BEFORE_SIGN = re.compile(r"\s+(?=[.,;:!?])|(?<=^)[\s,;:]+")
TOO_FEW, NOTHING, UNUSABLE = "sources erased", "no common statement", "no text"


def composition_job(composition: Composition, batch: str | None) -> Job:
    """Returns the job that carries a composition out; `batch` is the id of the cycle."""
    request = {
        OPERATION: composition.operation.value,
        LEVEL: composition.level,
        HIDES: composition.hides,
        BATCH: batch,
    }
    sources = composition.sources
    return Job(
        JobKind.COMPOSITION, common_scope([one.scope for one in sources]), "", tuple(s.id for s in sources), request
    )


def common_scope(scopes: Sequence[Scope]) -> Scope:
    """Returns the parts that scopes of one partition have in common."""
    first = scopes[0].parts
    return Scope(**{name: value for name, value in first.items() if all(s.parts.get(name) == value for s in scopes)})


def compose(job: Job, pipeline: FactPipeline, ledger: Ledger) -> JobResult:
    """Makes the memory that a job asks for, and completes the job; an unusable answer makes none.

    Raises LLMUnavailable or StoreError; then the job stays recorded.
    """
    operation = Operation(job.request[OPERATION])
    with ledger.read() as connection:
        found = memories.records(connection, job.memories)
    sources = sorted((found[uid] for uid in job.memories if uid in found), key=lambda one: (one.at, one.row))
    sources = _shown(sources)
    usage, text, reason = None, None, TOO_FEW
    if len(sources) >= (1 if operation is Operation.ABSTRACT else 2):
        with span(operation.value):
            try:
                answer, usage = pipeline.ask_model(request(operation, job.request[LEVEL], sources), job)
                text, reason = read(operation, answer, sources)
            except LLMUnusable:
                reason = UNUSABLE
    commands: list[Command] = [CompleteJob(job, pipeline.spec)]
    if text is not None:
        record = composed(operation, job.request[LEVEL], text, sources)
        commands += [
            compose_command(record, sources, job.request[BATCH], hides=job.request[HIDES]),
            *pipeline.enrich([record]),
        ]
    outcomes: tuple[Outcome, ...] = ()
    with suppress(JobAlreadyDone):
        outcomes = tuple(pipeline.commit(commands, optional_from_micros(job.request.get(AT)))[1:2])
    return JobResult(outcomes, {} if usage is None else {operation.value: usage}, {reason: 1} if reason else {})


def compose_command(
    record: MemoryRecord, sources: Sequence[MemoryRecord], batch: str | None = None, *, hides: bool
) -> ComposeMemory:
    """Returns the command that stores a memory made of others as they are now."""
    event = OutcomeType.ABSTRACT if record.level else OutcomeType.COMPRESS
    return ComposeMemory(record, tuple((one.id, one.version) for one in sources), event, hides, batch)


def request(operation: Operation, level: int, sources: Sequence[MemoryRecord]) -> Prompt:
    """Builds the request to make one text of several memories."""
    rows = [[f"{one.said_at:%Y-%m-%d}", one.speaker or "", cut_line(one.text, SHOWN_CHARS)] for one in sources]
    data = {"level": level, "memories": rows} if operation is Operation.ABSTRACT else {"memories": rows}
    return Prompt(operation.value, load(operation.value), as_json(data), SCHEMA)


def read(operation: Operation, answer: Any, sources: Sequence[MemoryRecord]) -> tuple[str | None, str]:
    """Returns the text of an answer and "", or None and why it is not used."""
    value = answer.get("text", ...) if isinstance(answer, Mapping) else answer
    if value is None:
        return None, NOTHING
    text = single_line(value)
    if text is None:
        return None, UNUSABLE
    reason = _fault(operation, text, sources)
    return (None, reason) if reason else (text, "")


def _fault(operation: Operation, text: str, sources: Sequence[MemoryRecord]) -> str:
    """Returns what is wrong with a text that was made of memories, "" for nothing."""
    said = "\n".join(one.text for one in sources)
    shown = "\n".join(f"{one.said_at:%Y-%m-%d} {one.speaker or ''} {one.text}" for one in sources)
    numbers, denies = claims(text)
    known = {number.lstrip("0") for number in claims(shown)[0]}
    denials = [claims(one.text)[1] for one in sources]
    most = MOST_WORDS.get(operation)
    is_merged, is_summary = operation is Operation.MERGE, operation is Operation.SUMMARIZE
    faults = (
        ("too long", len(text) > MAX_SUMMARY_CHARS or (most is not None and approximate_length(text) > most)),
        ("a question", is_question(text)),
        ("another script", is_unspaced(said) != is_unspaced(text)),
        ("a number that nobody said", any(number.lstrip("0") not in known for number in numbers)),
        ("a denial that nobody said", denies and not is_summary and not any(denials)),
        ("a denial left out", is_merged and not denies and all(denials)),
        ("a name that nobody said", bool(_names_beyond(text, said, shown))),
        ("words that nobody said", operation is not Operation.ABSTRACT and _said_share(text, shown) < SAID_SHARE),
    )
    return next((fault for fault, is_so in faults if is_so), "")


def _names_beyond(text: str, said: str, shown: str) -> set[str]:
    """Returns the words in capitals, within sentences, of a text that are not shown; none where all nouns have them.

    Names of months and days are none: a day that is shown in digits is named in words.
    """
    if len(_CAPITAL.findall(said)) > MOST_CAPITALS * len(said.split()):
        return set()
    known = set(map(folded_key, _WORD.findall(shown)))
    named = _CAPITAL.findall(strip_all_times(text, datetime.now(UTC)))
    return {word for word in map(folded_key, named) if word not in known}


def _said_share(text: str, said: str) -> float:
    known = {token[:STEM] for token in tokens(said)}
    own = [token[:STEM] for token in tokens(text)]
    return sum(token in known for token in own) / len(own) if own else 0.0


def composed(operation: Operation, level: int, text: str, sources: Sequence[MemoryRecord]) -> MemoryRecord:
    """Returns the memory with a text that was made of others: as important as the most important, as new as the newest.

    It is valid from now on, so that an earlier moment shows the sources and not both. It expires with the first of
    them.
    """
    now = datetime.now(UTC)
    newest = max(sources, key=lambda one: one.at)
    metadata = {
        name: value
        for name, value in newest.metadata.items()
        if name != "attachments" and all(one.metadata.get(name) == value for one in sources)
    }
    record = MemoryRecord(
        id=str(uuid4()), partition=newest.partition, scope=common_scope([one.scope for one in sources]), kind=Kind.FACT,
        text=text, at=newest.at, utc_offset=newest.utc_offset, valid_from=now,
        created_at=max(one.created_at for one in sources), updated_at=now, session=newest.session,
        expires_at=min((one.expires_at for one in sources if one.expires_at is not None), default=None),
        memory_type=newest.memory_type, metadata=metadata, confidence=min(one.confidence for one in sources),
        speaker=common_value(sources, "speaker"), actor_id=common_value(sources, "actor_id"),
        role=common_value(sources, "role"), layer=Layer.LONG_TERM,
        importance=max(one.importance for one in sources), level=level,
    )  # fmt: skip
    if operation is Operation.SUMMARIZE:
        return replace(record, kind=Kind.SUMMARY, memory_type=OF_EVENTS, session=str(uuid4()), speaker=None)
    if operation is Operation.ABSTRACT:
        return replace(record, memory_type=OF_EVENTS, metadata={**metadata, "tags": [f"abstraction_level_{level}"]})
    return record


def without_times(text: str, now: datetime) -> str:
    """Returns a text without its expressions of time, in English and Chinese (§5.2, level 1, without a model)."""
    cut = strip_all_times(text, now)
    if cut.split() == plain_text(text).split():
        return text
    cut = _SPACE_BEFORE_SIGN.sub("", _PLACE_OF_TIME.sub(" ", cut)).strip()
    return cut[:1].upper() + cut[1:]


def _shown(sources: Sequence[MemoryRecord]) -> list[MemoryRecord]:
    """Returns as many of the sources, the oldest, as one request shows."""
    shown: list[MemoryRecord] = []
    room = MOST_SHOWN_CHARS
    for one in sources:
        room -= min(len(one.text), SHOWN_CHARS)
        if room < 0 and shown:
            break
        shown.append(one)
    return shown
