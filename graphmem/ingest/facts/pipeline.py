"""Facts from messages: find them, look what is near, decide, and commit it all at once.

The words are in the ledger before any of this begins. What fails leaves the work on the list, to be tried again; what
somebody else stores in the meantime is decided upon again, so that two calls never store the same fact.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Any
from uuid import uuid4

import numpy as np

from graphmem.commands.facts import DecisionConflict, JobAlreadyDone
from graphmem.commands.types import (
    AddFact,
    ChangeSet,
    Command,
    CompleteJob,
    Outcome,
    ReaffirmFact,
    RetireMemory,
    StoreEnrichment,
    UpdateMemory,
)
from graphmem.commands.unit_of_work import commit
from graphmem.errors import LLMError, LLMUnavailable, NotFoundError, StoreUnavailable
from graphmem.ingest.enrichment import Enricher
from graphmem.ingest.facts import decision, extraction
from graphmem.ingest.facts.decision import Action, DecisionType, FactDraft, KnownMemory
from graphmem.ingest.facts.extraction import Fact
from graphmem.model import EmbeddingSpec, Extraction, Kind, MemoryRecord, Mention, MentionKind, Scope, Statement, View
from graphmem.models.protocols import LanguageModel, Matrix, Prompt, Usage
from graphmem.stores.ledger import Ledger, embeddings, graph_reads, memories, model_usage, outbox, sessions
from graphmem.stores.ledger.jobs import Job
from graphmem.stores.projection_worker import ProjectionWorker
from graphmem.stores.protocols import VectorIndex
from graphmem.tracing import span

logger = logging.getLogger("graphmem")
# Messages of the session before the new ones that are shown for context: mem0's paper (arXiv 2504.19413, section 2.1)
# has ten; with a summary in front, six turns resolve what pronouns refer to.
CONTEXT_MESSAGES = 6
# How many of the nearest memories each fact is compared with (as many as mem0), and how near they must be. Measured
# with MiniLM: a fact and what it updates or contradicts are at least this near (0.3 to 0.9), unrelated ones mostly not.
NEAREST_LIMIT, MIN_SIMILARITY = 5, 0.3
# Facts and memories that one request compares: more of them are parted, so that each is looked at.
FACTS_PER_REQUEST, MEMORIES_PER_REQUEST = 12, 40
# How often it is decided again because somebody else was faster, before the work is left for later.
MAX_ATTEMPTS = 4
# Locks that partitions share.
LOCK_STRIPES = 64
# Seconds that the vector index may take to catch up before near memories are looked for.
CATCH_UP_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class JobResult:
    """What came of a piece of work.

    `usage` by operation; `dropped` counts what of the answers could not be used; `retries` how often it had to be
    decided anew.
    """

    outcomes: tuple[Outcome, ...] = ()
    usage: Mapping[str, Usage] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)
    retries: int = 0
    chunks: int = 0


@dataclass(frozen=True, slots=True)
class PipelineConfig:
    """What a configuration says: instructions that replace ours, and when a session is summarised (0: never)."""

    extraction: str | None = None
    decision: str | None = None
    summarise_every: int = 0


class FactPipeline:
    """Draws facts from messages with a language model. Safe to call from several threads."""

    def __init__(
        self,
        ledger: Ledger,
        model: LanguageModel,
        enricher: Enricher,
        index: VectorIndex,
        vectors: ProjectionWorker,
        rules: PipelineConfig,
    ) -> None:
        self._ledger = ledger
        self._model = model
        self._enricher = enricher
        self._index = index
        self._vectors = vectors
        self._config = rules
        self._turns = tuple(Lock() for _ in range(LOCK_STRIPES))

    def run(self, job: Job) -> JobResult:
        """Does one piece of work.

        Raises LLMError, EmbeddingError or StoreError: nothing is stored then, and the work stays on the list.
        """
        with self._ledger.read() as connection:
            known = memories.records(connection, job.memories)
        records = [known[uid] for uid in job.memories if uid in known]
        return _PipelineRun(self, job, records).run()

    def ask_model(self, prompt: Prompt, job: Job) -> tuple[Any, Usage]:
        """One answer; what it took is put down, also when it fails."""
        try:
            reply = self._model.answer(prompt)
        except LLMError as error:
            self._spend(prompt.operation, job, error.usage or Usage(calls=1))
            raise
        self._spend(prompt.operation, job, reply.usage)
        return reply.value, reply.usage

    def _spend(self, operation: str, job: Job, used: Usage) -> None:
        with self._ledger.write() as connection:
            model_usage.record_usage(connection, operation, self._model.name, job.scope, used)

    # --- what a piece of work reads and writes -------------------------------------------------------------------

    def context(self, first: MemoryRecord) -> tuple[str, list[MemoryRecord]]:
        """The summary of the session so far, and the last messages before this one.

        Of a session without a summary yet: the user's latest one, so that a new session begins with what is known.
        """
        with self._ledger.read() as connection:
            summary = sessions.summary_of(connection, first.scope, first.session)
            summary = summary or sessions.latest_summary(connection, first.scope)
            return ("" if summary is None else summary.text), sessions.preceding_messages(
                connection, first, CONTEXT_MESSAGES
            )

    def partition_lock(self, partition: str) -> Lock:
        """Who decides anew about facts of a partition holds this, and whoever comes then waits for it.

        Otherwise several, such as the savings of one chat, would spoil each other's decisions until all give up.
        """
        return self._turns[hash(partition) % LOCK_STRIPES]

    @property
    def config(self) -> PipelineConfig:
        """What the configuration says."""
        return self._config

    def enrich(self, records: Sequence[MemoryRecord]) -> list[StoreEnrichment]:
        """Vectors, entities and relations of texts that are not stored yet."""
        return list(self._enricher.compute(records))

    @property
    def spec(self) -> EmbeddingSpec:
        """What is kept of each text."""
        return self._enricher.spec

    def vectors(self, read: Sequence[StoreEnrichment]) -> list[Matrix]:
        """The first window's vector of each text."""
        lacking = [one.text_hash for one in read if one.embedded is None]
        with self._ledger.read() as connection:
            known = embeddings.first_vectors(connection, self.spec.model, lacking) if lacking else {}
        return [known[one.text_hash] if one.embedded is None else one.embedded.vectors[0] for one in read]

    def nearest_facts(self, job: Job, vectors: Sequence[Matrix]) -> tuple[int, list[list[str]]]:
        """Which known facts are near to each of these, and the sequence number up to which that is known.

        Raises StoreUnavailable: what is near cannot be known without the index, and nothing is decided blindly.
        """
        with self._ledger.read() as connection:
            seen = outbox.last_change(connection)
        if not self._vectors.catch_up([job.partition], CATCH_UP_SECONDS):
            raise StoreUnavailable("the vector index is behind; new facts are compared once it has caught up")
        view = View(_whose(job), datetime.now(UTC), job.partition, frozenset({Kind.FACT}))
        found = self._vectors.read(lambda: [self._index.dense(view, vector, NEAREST_LIMIT) for vector in vectors])
        return seen, [[uid for uid, nearness in one if nearness >= MIN_SIMILARITY] for one in found]

    def known_memories(self, job: Job, uids: Iterable[str]) -> dict[str, KnownMemory]:
        """Memories by id with what they state, as far as they are current and may be compared."""
        view = View(_whose(job), datetime.now(UTC), job.partition)
        with self._ledger.read() as connection:
            seen = memories.visible_records(connection, view, uids)
            stated = graph_reads.statements_of(connection, list(seen))
        # In the order they came, which is also the same each time.
        found = {record.id: KnownMemory(record) for record in sorted(seen.values(), key=lambda record: record.row)}
        for uid, statement, *ends in stated:
            one = found[uid]
            found[uid] = replace(one, statements=(*one.statements, statement), mentions=(*one.mentions, *ends))
        return found

    def exact_duplicates(self, job: Job, drafts: Sequence[FactDraft]) -> dict[int, MemoryRecord]:
        """Current facts in the very words of new ones, also those that have no agent (or run) where one is asked for.

        By the number of the new fact. What two people say of themselves is not the same.
        """
        with self._ledger.read() as connection:
            found = sessions.facts_with_text(connection, job.partition, [draft.fact.text for draft in drafts])
        whose = _whose(job)
        mine = [
            record
            for record in found
            if all(getattr(record.scope, name) in {None, value} for name, value in whose.parts.items())
            or record.is_in(whose)
        ]
        return {
            n: record
            for n, draft in enumerate(drafts)
            for record in mine
            if (record.text, record.speaker) == (draft.fact.text, draft.record.speaker)
            and not decision.have_different_speakers(record, draft.record)
        }

    def commit(self, steps: Sequence[Command]) -> list[Outcome]:
        """Carries a plan out. Raises DecidedAnew and DoneAlready."""
        with span("commit"):
            return commit(self._ledger, ChangeSet(tuple(steps), datetime.now(UTC)), timedelta(0))


class _PipelineRun:
    """One piece of work being done."""

    def __init__(self, pipeline: FactPipeline, job: Job, records: Sequence[MemoryRecord]) -> None:
        self._pipeline = pipeline
        self._job = job
        self._records = records
        self._usage: dict[str, Usage] = {}
        self._dropped: dict[str, int] = {}
        self._chunks = 0

    def run(self) -> JobResult:
        with span("find facts") as traced:
            facts = self._facts() if self._records else []
            traced.set_attributes(**{"gen_ai.memory.record.count": len(facts)})
        drafts = [FactDraft(fact, self._record(fact)) for fact in facts]
        read = [self._with_found(draft, one) for draft, one in zip(drafts, self._read(drafts), strict=True)]
        vectors = self._pipeline.vectors(read)
        turn = self._pipeline.partition_lock(self._job.partition)
        dropped = dict(self._dropped)
        for again in range(MAX_ATTEMPTS):
            self._dropped = dict(dropped)
            try:
                with turn if again or turn.locked() else nullcontext():
                    outcomes = self._decided(drafts, read, vectors)
            except JobAlreadyDone:
                return self._told((), again)
            except (DecisionConflict, NotFoundError):
                continue
            return self._told(outcomes, again)
        raise LLMUnavailable(f"others were faster {MAX_ATTEMPTS} times; the facts are decided upon later")

    def _told(self, outcomes: Sequence[Outcome], again: int) -> JobResult:
        if self._dropped:
            logger.info("%d parts of a language model's answers could not be used", sum(self._dropped.values()))
        return JobResult(tuple(outcomes), self._usage, self._dropped, again, self._chunks)

    def _ask(self, prompt: Prompt) -> Any:
        value, used = self._pipeline.ask_model(prompt, self._job)
        self._usage[prompt.operation] = self._usage.get(prompt.operation, Usage()) + used
        return value

    def _drop(self, dropped: Mapping[str, int]) -> None:
        for why, count in dropped.items():
            self._dropped[why] = self._dropped.get(why, 0) + count

    # --- finding ------------------------------------------------------------------------------------------------

    def _facts(self) -> list[Fact]:
        whose = extraction.subject_of(self._job.scope, self._records)
        instructions = self._job.request.get("prompt") or self._pipeline.config.extraction
        summary, earlier = self._pipeline.context(self._records[0])
        found: list[Fact] = []
        for pieces in extraction.split_messages(self._records):
            self._chunks += 1
            prompt = extraction.build_request(
                pieces, whose, instructions=instructions, summary=summary, earlier=earlier
            )
            answer = extraction.parse_answer(
                self._ask(prompt), self._records, whose, (piece.number for piece in pieces)
            )
            self._drop(answer.dropped)
            found += answer.facts
            # What follows is understood from what came just before.
            earlier = [piece.record for piece in pieces][-CONTEXT_MESSAGES:]
        return extraction.deduplicate(found, self._records)

    def _record(self, fact: Fact) -> MemoryRecord:
        """A fact as the memory it would become; what was given for its messages holds for it."""
        sources = [self._records[n] for n in fact.sources]
        last = max(sources, key=lambda record: record.at)
        now = datetime.now(UTC)
        metadata = {name: value for name, value in last.metadata.items() if name != "attachments"}
        return MemoryRecord(
            id=str(uuid4()), partition=self._job.partition, scope=self._job.scope, kind=Kind.FACT, text=fact.text,
            at=last.at, valid_from=last.at, created_at=now, updated_at=now, session=last.session,
            expires_at=last.expires_at, memory_type=last.memory_type or fact.memory_type, metadata=metadata,
            speaker=_common(sources, "speaker"), actor_id=_common(sources, "actor_id"),
            role=_common(sources, "role"), confidence=fact.confidence,
        )  # fmt: skip

    def _read(self, drafts: Sequence[FactDraft]) -> list[StoreEnrichment]:
        return self._pipeline.enrich([draft.record for draft in drafts]) if drafts else []

    def _with_found(self, draft: FactDraft, read: StoreEnrichment) -> StoreEnrichment:
        return replace(read, extraction=_merged(read.extraction, draft.fact.mentions, draft.fact.statements))

    # --- deciding -----------------------------------------------------------------------------------------------

    def _decided(
        self, drafts: Sequence[FactDraft], read: Sequence[StoreEnrichment], vectors: Sequence[Matrix]
    ) -> list[Outcome]:
        settle = CompleteJob(self._job, self._pipeline.spec, summarise_every=self._pipeline.config.summarise_every)
        if not drafts:
            return self._pipeline.commit([settle])[1:]
        # First of all `seen`: what is stored after that is noticed at the commit, whatever is read below.
        with span("find near memories"):
            seen, near = self._pipeline.nearest_facts(self._job, vectors)
        said = self._pipeline.exact_duplicates(self._job, drafts)
        known = self._pipeline.known_memories(self._job, dict.fromkeys(uid for uids in near for uid in uids))
        actions: dict[int, list[Action]] = {}
        for n in range(len(drafts)):
            if n in said:
                actions[n] = []
            elif not any(uid in known for uid in near[n]):
                actions[n] = [Action(DecisionType.ADD, n)]
        uids = list(known)
        open_ = [n for n in range(len(drafts)) if n not in actions]
        with span("decide") as traced:
            traced.set_attributes(**{"gen_ai.memory.record.count": len(open_)})
            for action in self._asked(drafts, known, near, open_):
                actions.setdefault(action.fact, []).append(action)
        settle = replace(settle, last_seq_seen=seen, vectors=np.stack(vectors), min_similarity=MIN_SIMILARITY)
        changes = _ChangeBuilder(self._pipeline, drafts, read, self._records, [known[uid] for uid in uids])
        for n in range(len(drafts)):
            if n in said:
                changes.reaffirm(said[n], n)
            else:
                changes.add_actions(actions[n])
        self._drop(changes.dropped)
        outcomes = self._pipeline.commit([settle, *changes.steps])
        return [
            outcome
            for step, outcome in zip(changes.steps, outcomes[1:], strict=True)
            if not isinstance(step, StoreEnrichment)
        ]

    def _asked(
        self,
        drafts: Sequence[FactDraft],
        known: Mapping[str, KnownMemory],
        near: Sequence[Sequence[str]],
        open_: Sequence[int],
    ) -> list[Action]:
        """What the model makes of these facts: a request for as many as can be compared well in one."""
        places = {uid: n for n, uid in enumerate(known)}
        found: list[Action] = []
        for numbers in _parted(open_, near):
            shown = {uid for n in numbers for uid in near[n]}
            uids = [uid for uid in known if uid in shown]
            facts, compared = [drafts[n] for n in numbers], [known[uid] for uid in uids]
            prompt = decision.build_request(facts, compared, self._pipeline.config.decision)
            decided = decision.parse_answer(self._ask(prompt), facts, compared)
            self._drop(decided.dropped)
            found += decision.renumber(decided, numbers, [places[uid] for uid in uids])
        return found


class _ChangeBuilder:
    """Actions as steps. A memory that several requests would change is changed by the first."""

    def __init__(
        self,
        pipeline: FactPipeline,
        drafts: Sequence[FactDraft],
        read: Sequence[StoreEnrichment],
        records: Sequence[MemoryRecord],
        known: Sequence[KnownMemory],
    ) -> None:
        self._pipeline = pipeline
        self._drafts = drafts
        self._read = read
        self._records = records
        self._known = known
        self._changed: set[int] = set()
        self.dropped: Counter[str] = Counter()
        self.steps: list[Command] = []

    def reaffirm(self, record: MemoryRecord, fact: int) -> None:
        """A fact that is known already."""
        self.steps.append(ReaffirmFact(record.id, self._drafts[fact].record.scope, self._sources(fact)))

    def add_actions(self, actions: Sequence[Action]) -> None:
        """What is to be done about one fact. What retires a memory comes after what takes its place."""
        ends = [one for one in actions if one.type is DecisionType.DELETE and self._is_first(one)]
        successor: str | None = None
        for one in actions:
            if one.type is DecisionType.UPDATE and not self._is_first(one):
                one = replace(one, type=DecisionType.ADD, memory=None)  # noqa: PLW2901
            if one.type is DecisionType.ADD:
                successor = self._add(one)
            elif one.type is DecisionType.UPDATE:
                successor = self._update(one)
            elif one.type is DecisionType.NONE and one.memory is not None:
                self.reaffirm(self._known[one.memory].record, one.fact)
        for one in ends:
            self._end(one, successor)

    def _is_first(self, one: Action) -> bool:
        if one.memory is None or one.memory in self._changed:
            self.dropped["repeated id"] += 1
            return False
        self._changed.add(one.memory)
        return True

    def _sources(self, fact: int) -> tuple[str, ...]:
        return tuple(self._records[n].id for n in self._drafts[fact].fact.sources)

    def _add(self, one: Action) -> str:
        draft, read = self._drafts[one.fact], self._read[one.fact]
        record = replace(draft.record, text=one.text or draft.record.text, valid_to=one.ended_at)
        if record.text != draft.record.text:
            found = self._pipeline.enrich([record])[0]
            read = replace(found, extraction=_merged(found.extraction, draft.fact.mentions, draft.fact.statements))
        self.steps += [AddFact(record, self._sources(one.fact)), read]
        return record.id

    def _update(self, one: Action) -> str:
        old, fact = self._known[one.memory or 0], self._drafts[one.fact].fact
        if self._is_extracted(old):
            old = KnownMemory(old.record)
        record = replace(old.record, text=one.text, version=old.record.version + 1)
        read = self._pipeline.enrich([record])[0]
        kept = () if one.corrects else old.statements
        stated = tuple(replace(said, fact=one.text) for said in dict.fromkeys((*kept, *fact.statements)))
        found = _merged(read.extraction, (*old.mentions, *fact.mentions), stated)
        revise = UpdateMemory(
            record.id, text=one.text, reason=one.reason, corrects=one.corrects, sources=self._sources(one.fact),
            scope=self._drafts[one.fact].record.scope,
        )  # fmt: skip
        self.steps += [revise, replace(read, extraction=found)]
        return record.id

    def _is_extracted(self, known: KnownMemory) -> bool:
        """Whether all that a memory states was read in its words by the extractor."""
        read = self._pipeline.enrich([known.record])[0].extraction if known.statements else Extraction()
        found = {(said.subject, said.predicate, said.object) for said in read.statements}
        return all((said.subject, said.predicate, said.object) in found for said in known.statements)

    def _end(self, one: Action, successor: str | None) -> None:
        """Retires a memory in favour of the new fact or, of one that only denies, of the message that does."""
        sources = self._sources(one.fact)
        at, old = self._drafts[one.fact].record.at, self._known[one.memory or 0].record
        self.steps.append(RetireMemory(old.id, at, one.reason or "", successor or sources[-1], sources))


def _whose(job: Job) -> Scope:
    """Whose facts new ones are compared with: a user says the same of themselves in every run."""
    return job.scope if job.scope.user_id is None else replace(job.scope, run_id=None)


def _merged(found: Extraction, mentions: Iterable[Mention], statements: tuple[Statement, ...]) -> Extraction:
    """What an extractor found in a text, with what the model did: its names count more, its relations instead.

    The nouns that only end relations go with the extractor's.
    """
    named = [mention for mention in found.mentions if not statements or mention.kind is not MentionKind.THING]
    by_key = {mention.key: mention for mention in (*named, *mentions)}
    stated = statements or found.statements
    return replace(found, mentions=tuple(by_key.values()), statements=stated)


def _common(records: Sequence[MemoryRecord], name: str) -> Any:
    """A value that all of them have."""
    values = {getattr(record, name) for record in records}
    return values.pop() if len(values) == 1 else None


def _parted(facts: Sequence[int], near: Sequence[Sequence[str]]) -> list[list[int]]:
    """Facts in groups small enough for one request."""
    groups: list[list[int]] = []
    shown: set[str] = set()
    for n in facts:
        together = shown | set(near[n])
        if not groups or len(groups[-1]) >= FACTS_PER_REQUEST or len(together) > MEMORIES_PER_REQUEST:
            groups.append([])
            together = set(near[n])
        groups[-1].append(n)
        shown = together
    return groups
