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
from graphmem.commands.lifecycle import CHANGED_SINCE
from graphmem.commands.types import Command, CompleteJob, ComposeMemory, Outcome, OutcomeType
from graphmem.errors import LLMUnusable
from graphmem.extraction.language_detection import is_english
from graphmem.ingest.facts.extraction import common_value
from graphmem.ingest.facts.structured_output import as_json, object_schema, single_line
from graphmem.ingest.facts.summaries import MAX_SUMMARY_CHARS
from graphmem.ingest.model_jobs import JobResult
from graphmem.lifecycle.compression import sequence, wording
from graphmem.lifecycle.decay import Operation
from graphmem.model import Kind, Layer, MemoryRecord, Scope, optional_from_micros
from graphmem.plugins import Prompt, Usage
from graphmem.prompts import load
from graphmem.retrieval.temporal import strip_all_times
from graphmem.retrieval.temporal.chinese import is_chinese
from graphmem.retrieval.temporal.english import plain_text
from graphmem.stores.ledger import Ledger, memories
from graphmem.stores.ledger.jobs import AT, BATCH, HIDES, LEVEL, OPERATION, VERSIONS, Job
from graphmem.stores.ledger.sessions import OF_EVENTS
from graphmem.text import (
    FUNCTION_CHARACTERS,
    STOP_WORDS,
    approximate_length,
    claims,
    cut_line,
    folded_key,
    is_question,
    is_unspaced,
)
from graphmem.tracing import span

if TYPE_CHECKING:
    from graphmem.ingest.facts.pipeline import FactPipeline

SCHEMA = object_schema(text={"type": ["string", "null"]})
# §5.1 and §5.2: the most words, or characters of scripts without spaces, of a merged memory and of an abstraction.
MOST_WORDS: Mapping[Operation, int] = {Operation.MERGE: 50, Operation.ABSTRACT: 30}
# The most characters that a request shows of one memory, and of all: what is beyond is left for another composition.
SHOWN_CHARS, MOST_SHOWN_CHARS = 1_000, 24_000
# The share of a summary's words, without those of grammar, that its sources have; of a merged memory all. Two words are
# forms of one if so many letters at the beginning are the same, and at most so many follow.
SAID_SHARE, STEM, LONGEST_ENDING = 0.5, 3, 3
# The least cosine of an abstraction to one of its sources. With the default embedders twelve of memories in three
# languages have 0.17 to 0.74, instructions and claims about something else in their place -1 to 0.18.
NEAREST_ABSTRACTION = 0.15
_MARKUP = re.compile(r"https?:|www\.|[<>\[\]{}`|@\\]|\*\*|^#")
# In a language that writes all nouns with a capital, a capital does not tell a name.
MOST_CAPITALS = 0.25
_CAPITAL = re.compile(r"(?<=[^\W_.!?] )[A-ZÀ-Þ][^\W\d_]+|(?<=[,;:] )[A-ZÀ-Þ][^\W\d_]+")
_WORD = re.compile(r"[^\W\d_]+")
# What is left where a time was cut out: the preposition before it, and the space around it.
_PLACE_OF_TIME = re.compile(r"(?:\b(?:on|in|at|during|since|until|by|from)\b)?(?:\s{2,}|^\s+|\s+$)", re.IGNORECASE)
_SPACE_BEFORE_SIGN = re.compile(r"\s+(?=[.,;:!?])|(?<=^)[\s,;:]+")
# The fewest words that a text has without its times.
FEWEST_WORDS = 3
# How often the model is asked: what it was asked about may have faded by the next cycle.
ATTEMPTS = 2
TOO_FEW, NOTHING, UNUSABLE = "sources erased", "no common statement", "no text"
SWITCHED_OFF = "the lifecycle was switched off meanwhile"


def common_scope(scopes: Sequence[Scope]) -> Scope:
    """Returns the parts that scopes of one partition have in common."""
    first = scopes[0].parts
    return Scope(**{name: value for name, value in first.items() if all(s.parts.get(name) == value for s in scopes)})


def compose(job: Job, pipeline: FactPipeline, ledger: Ledger) -> JobResult:
    """Makes the memory that a job asks for, and completes the job; an unusable answer makes none.

    Makes none either if a source was changed since the job was recorded, or if it would hide its sources and the
    lifecycle is off by now. Raises LLMUnavailable or StoreError; then the job stays recorded.
    """
    operation = Operation(job.request[OPERATION])
    with ledger.read() as connection:
        found = memories.records(connection, job.memories)
    sources = sorted((found[uid] for uid in job.memories if uid in found), key=lambda one: (one.at, one.row))
    versions = dict(zip(job.memories, job.request[VERSIONS], strict=True))
    is_changed = any(one.version != versions[one.id] for one in sources)
    sources = _shown(sources)
    level, usage = int(job.request[LEVEL]), Usage()
    text, reason = None, CHANGED_SINCE if is_changed else TOO_FEW
    if job.request[HIDES] and not pipeline.may_hide:
        reason = SWITCHED_OFF
    elif not is_changed and len(sources) >= (1 if operation is Operation.ABSTRACT else 2):
        with span(operation.value):
            for _ in range(ATTEMPTS):
                text, reason, used = _ask(operation, level, sources, job, pipeline)
                usage += used
                if text is not None or reason == NOTHING:
                    break
    commands: list[Command] = [CompleteJob(job, pipeline.spec)]
    if text is not None:
        record = composed(operation, level, text, sources)
        commands += [
            compose_command(record, sources, job.request[BATCH], hides=job.request[HIDES]),
            *pipeline.enrich([record]),
        ]
    outcomes: tuple[Outcome, ...] = ()
    with suppress(JobAlreadyDone):
        outcomes = tuple(pipeline.commit(commands, optional_from_micros(job.request.get(AT)))[1:2])
    return JobResult(outcomes, {operation.value: usage} if usage.calls else {}, {reason: 1} if reason else {})


def _ask(
    operation: Operation, level: int, sources: Sequence[MemoryRecord], job: Job, pipeline: FactPipeline
) -> tuple[str | None, str, Usage]:
    """Asks once; returns the text, or None and why there is none, and the usage."""
    try:
        answer, usage = pipeline.ask_model(request(operation, level, sources), job)
    except LLMUnusable as error:
        return None, UNUSABLE, error.usage or Usage(calls=1)
    text, reason = read(operation, answer, sources)
    if text is not None and operation is Operation.ABSTRACT:
        made, *others = pipeline.vectors_of([text, *(one.text for one in sources)])
        if max(made.cosine(other) for other in others) < NEAREST_ABSTRACTION:
            text, reason = None, "nothing that they have in common"
        elif level == 1 and without_times(text, sources[-1].at) != text:
            text, reason = None, "a time"
    return text, reason, usage


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
    is_merged, is_abstract = operation is Operation.MERGE, operation is Operation.ABSTRACT
    own, shown_words = sequence(text), sequence(shown)
    content = [word for word in own if word not in STOP_WORDS and not set(word) <= FUNCTION_CHARACTERS]
    unsaid = [word for word in content if not any(_is_like(word, other) for other in set(shown_words))]
    changes = wording().changes(text, own) - wording().changes(shown, shown_words)
    faults = (
        ("too long", len(text) > MAX_SUMMARY_CHARS or (most is not None and approximate_length(text) > most)),
        ("a question", is_question(text)),
        ("markup or an address", _MARKUP.search(text) is not None),
        ("another script", is_unspaced(said) != is_unspaced(text)),
        ("a number that nobody said", any(number.lstrip("0") not in known for number in numbers)),
        ("a denial that nobody said", denies and not any(denials)),
        ("a denial left out", is_merged and not denies and all(denials)),
        ("a name that nobody said", bool(_names_beyond(text, said, shown))),
        ("a word that changes what was said", bool(changes) and operation is not Operation.SUMMARIZE),
        ("words that nobody said", is_merged and bool(unsaid)),
        ("words that nobody said", not is_abstract and len(unsaid) > (1 - SAID_SHARE) * len(content)),
        ("what one of them says", is_abstract and text in {one.text for one in sources}),
    )
    return next((fault for fault, is_so in faults if is_so), "")


def _is_like(word: str, other: str) -> bool:
    """Tells whether two words are forms of one: they begin alike, and the rest is an ending ("eats", "eaten")."""
    alike = next((n for n, (a, b) in enumerate(zip(word, other, strict=False)) if a != b), min(len(word), len(other)))
    return word == other or (alike >= STEM and max(len(word), len(other)) - alike <= LONGEST_ENDING)


def _names_beyond(text: str, said: str, shown: str) -> set[str]:
    """Returns the words in capitals, within sentences, of a text that are not shown; none where all nouns have them.

    Names of months and days are none: a day that is shown in digits is named in words.
    """
    if len(_CAPITAL.findall(said)) > MOST_CAPITALS * len(said.split()):
        return set()
    known = set(map(folded_key, _WORD.findall(shown)))
    named = _CAPITAL.findall(strip_all_times(text, datetime.now(UTC)))
    return {word for word in map(folded_key, named) if word not in known}


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
        if all(one.metadata.get(name) == value for one in sources)
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
    """Returns a text without its expressions of time, in English and Chinese (§5.2, level 1, without a model).

    A text of which too little would be left, or whose end would be a word of grammar ("My birthday is"), stays. So do
    texts in other languages, whose order of words may change with the time ("Gestern war ich", "Ich war").
    """
    if not (is_english(text) or is_chinese(text)):
        return text
    cut = strip_all_times(text, now)
    if cut.split() == plain_text(text).split():
        return text
    cut = _SPACE_BEFORE_SIGN.sub("", _PLACE_OF_TIME.sub(" ", cut)).strip()
    words = sequence(cut)
    if len(words) < FEWEST_WORDS or words[-1] in STOP_WORDS:
        return text
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
