"""Draws facts from messages: extracts them, finds near memories, decides about each, and commits all at once.

`graphmem.jobs.worker` runs it for jobs whose messages are in the ledger. A failure leaves the job recorded, to be tried
again. If another call stores a near fact before the commit, the decision is made again, so that two calls never store
the same fact.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Any, NamedTuple
from uuid import uuid4

from sqlalchemy import Connection

from graphmem.commands.dispatch import commit
from graphmem.commands.facts import DecisionConflict, JobAlreadyDone
from graphmem.commands.lifecycle import COMPRESSES, MADE_OF
from graphmem.commands.types import ChangeSet, Command, CompleteJob, Outcome, OutcomeType, StoreEnrichment
from graphmem.errors import LLMUnavailable, NotFoundError, StoreUnavailable
from graphmem.ingest.enrichment import Enricher, first_vector
from graphmem.ingest.facts import decision, extraction
from graphmem.ingest.facts.change_builder import ChangeBuilder, add_to_extraction
from graphmem.ingest.facts.decision import Action, DecisionType, FactDraft, KnownMemory
from graphmem.ingest.facts.extraction import AlsoSummarise, Fact, common_value
from graphmem.ingest.facts.summaries import summary_beside_facts, summary_command
from graphmem.ingest.model_jobs import CountedModel, JobResult
from graphmem.lifecycle.conflicts import CONFLICT_SIMILARITY
from graphmem.lifecycle.rules import Rules
from graphmem.model import NEUTRAL_IMPORTANCE, VECTOR, EmbeddingSpec, Kind, MemoryRecord, Scope, SpaceVector, View
from graphmem.observers import Observers
from graphmem.plugins import LanguageModel, Prompt, Usage, VectorSearch
from graphmem.stores.ledger import Ledger, embeddings, graph_reads, memories, outbox, sessions
from graphmem.stores.ledger.jobs import IMPORTANCE, INSTRUCTIONS, Job
from graphmem.stores.ledger.sequence import Extent
from graphmem.stores.projection_worker import ProjectionWorker
from graphmem.text import normalise_key
from graphmem.tracing import span

logger = logging.getLogger("graphmem")
# Earlier messages shown for context: mem0's paper (arXiv 2504.19413, section 2.1) has ten; together with a summary, six
# suffice to resolve pronouns. After a pause the summary has what was said before, and two show what "yes" answers: in
# thirty sessions of 10 to 30 messages with 28 tokens each, six would add 350 tokens to a request, two 115.
CONTEXT_MESSAGES, CONTEXT_AFTER_PAUSE = 6, 2
# So many messages of one call are summarised in the same request, as their words are sent only once then: a request of
# its own when the next sitting begins would take 229 tokens and these words again, this takes 149. Fewer messages are
# mostly not the whole sitting.
SUMMARISED_WITH_FACTS = 10
# Each new fact is compared with at most so many nearest ones, of at least this cosine. Measured with MiniLM on 50 pairs
# of a memory and a fact that repeats, changes or ends it, among the 80 to 170 facts of each of eight speakers of
# LOCOMO: 94 % of the memories are among the nearest five, 97 % among ten. 88 % have this cosine (0.3: 80 %), and so do
# 42 % of any two facts of a speaker (0.3: 30 %) and 6 % of facts about unrelated things (0.3: 2 %). With the speaker's
# name before both texts, 99 % of a speaker's facts would have it; of speakers without a name the figures are alike.
NEAREST_LIMIT, MIN_SIMILARITY = 10, 0.25
# Of these only those whose cosine is at most so much below the nearest one's: so were all 22 memories that facts of
# thirty sessions repeated, changed or ended. A request shows 4.5 memories for each fact, without this limit 5.4.
# Neither limit holds above CONFLICT_SIMILARITY: a cosine of 0.8 is outside of this one only beside one of 0.95.
NEAREST_SPREAD = 0.15
# The index cannot filter by speaker: so many are read, enough for the ten of each of six speakers.
NEAREST_READ = 60
# One request compares at most so many facts with so many memories: of more, a model may overlook some. The facts of a
# session of LOCOMO, six in the mean, have 26 near memories: each of thirty sessions took one request, of 47 at most.
FACTS_PER_REQUEST, MEMORIES_PER_REQUEST = 12, 60
# Attempts to decide and commit: each fails if near facts were stored meanwhile. After the last the job is left.
MAX_ATTEMPTS = 4
# Number of locks, shared by all partitions.
LOCK_STRIPES = 64
# Seconds to wait for the vector index to catch up before the search for near facts.
CATCH_UP_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class PipelineConfig:
    """Settings of the pipeline.

    `extraction` and `decision` are instructions (None: those of graphmem). A session is summarised after each
    `summarise_every` messages (0: never). A pause longer than `session_gap` begins a new sitting. `by_confidence`: the
    surer one of two facts that contradict each other may count although it was said earlier. With `matching`, the model
    is asked about messages only if one of them matches a rule, and not one of small talk. `may_hide`: a memory may be
    made of others that it hides, as the lifecycle does.
    """

    extraction: str | None = None
    decision: str | None = None
    summarise_every: int = 0
    session_gap: timedelta = timedelta(minutes=30)
    by_confidence: bool = False
    matching: Rules | None = None
    may_hide: bool = False

    def is_asked_about(self, subject: str, messages: Sequence[MemoryRecord]) -> bool:
        """Tells whether the model is asked for the facts of messages, about `subject`."""
        if self.matching is None:
            return True
        matched = (self.matching.match(one.text) for one in messages if extraction.may_be_source(subject, one.role))
        return any(rule is not None and rule.importance >= NEUTRAL_IMPORTANCE for rule in matched)


class SessionContext(NamedTuple):
    """What was said before a message: a summary, and the last messages, oldest first.

    The summary begins with the day up to which it goes; it is "" if there is none. `has_summary`: it is that of the
    message's session, not the latest one of the same user and agent, which takes its place. `is_summarised`: it has all
    that the session has before the message. The messages are those of the session or, before its first message, the
    last ones of the session before. After a pause there are fewer.
    """

    summary: str
    earlier: list[MemoryRecord]
    has_summary: bool
    is_summarised: bool


class FactPipeline:
    """Draws facts from messages with a language model. Safe to call from several threads."""

    def __init__(
        self,
        ledger: Ledger,
        model: LanguageModel,
        enricher: Enricher,
        index: VectorSearch,
        index_worker: ProjectionWorker | None,
        config: PipelineConfig,
        observers: Observers,
    ) -> None:
        self._ledger = ledger
        self._model = model
        self._enricher = enricher
        self._index = index
        self._index_worker = index_worker
        self._config = config
        self._observers = observers
        self._locks = tuple(Lock() for _ in range(LOCK_STRIPES))
        self.may_hide = config.may_hide

    def run(self, job: Job) -> JobResult:
        """Draws facts from the messages of a job, and completes it.

        Raises LLMError, EmbeddingError or StoreError; then nothing is stored, and the job stays recorded.
        """
        with self._ledger.read() as connection:
            records = memories.records(connection, job.memories)
        messages = [records[uid] for uid in job.memories if uid in records]
        return _PipelineRun(self, job, messages).run()

    def ask_model(self, prompt: Prompt, job: Job) -> tuple[Any, Usage]:
        """Returns the model's answer and its usage, which is recorded in the ledger, also if the request fails."""
        reply = CountedModel(self._model, self._ledger, job.scope).answer(prompt)
        return reply.value, reply.usage

    # --- reads and writes of a run ------------------------------------------------------------------------------

    def session_context(self, first: MemoryRecord) -> SessionContext:
        """Reads what was said before a message."""
        with self._ledger.read() as connection:
            own = sessions.summary_of(connection, first.scope, first.session)
            shown = own or sessions.latest_summary(connection, first.scope, first.at)
            last_row = sessions.last_summarised_row(connection, own)
            has_gap = sessions.has_episodes(connection, first.scope, first.session, 1, last_row, first.row)
            earlier = sessions.messages_before(connection, first, CONTEXT_MESSAGES)
        if earlier and sessions.begins_sitting(first, earlier[-1], self._config.session_gap):
            earlier = earlier[-CONTEXT_AFTER_PAUSE:]
        text = "" if shown is None else f"{shown.said_at:%a %Y-%m-%d}: {shown.text}"
        return SessionContext(text, earlier, own is not None, not has_gap)

    def session_summary(self, message: MemoryRecord) -> MemoryRecord | None:
        """Returns the running summary of a message's session, None if there is none."""
        with self._ledger.read() as connection:
            return sessions.summary_of(connection, message.scope, message.session)

    def partition_lock(self, partition: str) -> Lock:
        """Returns the lock that serialises repeated decisions about facts of a partition.

        Without it several calls, such as saves of one chat, would conflict with each other until all give up.
        """
        return self._locks[hash(partition) % LOCK_STRIPES]

    @property
    def config(self) -> PipelineConfig:
        """The settings of this pipeline."""
        return self._config

    def name_keys(self, names: Iterable[str]) -> dict[str, str]:
        """Returns the keys under which the extractor finds entities of these names, by name."""
        return self._enricher.name_keys(names)

    def enrich(self, records: Sequence[MemoryRecord]) -> list[StoreEnrichment]:
        """Computes vectors, entities and relations of texts that are not stored yet."""
        return list(self._enricher.compute(records))

    def vectors_of(self, texts: Sequence[str]) -> list[SpaceVector]:
        """Returns the vectors by which texts are compared; nothing is stored."""
        return self._enricher.embed_first_windows(texts)

    @property
    def spec(self) -> EmbeddingSpec:
        """The embeddings stored for each text."""
        return self._enricher.spec

    def comparison_vectors(
        self, drafts: Sequence[FactDraft], enrichments: Sequence[StoreEnrichment]
    ) -> list[SpaceVector]:
        """Returns the vector by which each fact is compared with memories: of its text without the speaker's name.

        Memories are embedded after their speaker's name. With the name before the fact as well, all memories of a
        speaker are near to it. Without a speaker, a fact has the vector of its enrichment or of the ledger.
        """
        stored_hashes = [enrichment.text_hash for enrichment in enrichments if enrichment.embedded is None]
        with self._ledger.read() as connection:
            stored = embeddings.first_vectors(connection, self.spec, stored_hashes) if stored_hashes else {}
        vectors = [
            stored[enrichment.text_hash]
            if enrichment.embedded is None
            else first_vector(self.spec, enrichment.embedded)
            for enrichment in enrichments
        ]
        texts = {n: draft.nameless_text for n, draft in enumerate(drafts) if draft.record.speaker}
        for n, vector in zip(texts, self._enricher.embed_first_windows(list(texts.values())), strict=True):
            vectors[n] = vector
        return vectors

    def near_memories(
        self, job: Job, drafts: Sequence[FactDraft], vectors: Sequence[SpaceVector]
    ) -> tuple[Extent, list[list[str]], dict[str, KnownMemory]]:
        """Returns the extent of the snapshot that it reads, the ids of the facts near to each new one, and these by id.

        The ids are those of valid facts in the job's scope by the same speaker, nearest first; a fact whose speaker is
        unknown is compared with everybody's. A forgotten fact is among them, unless another memory stands for it: said
        again, it comes back. Facts stored after the sequence number may be missing. Raises
        StoreUnavailable if the index does not catch up: a decision without the near facts would store duplicates.
        """
        with self._ledger.read() as connection:
            extent = outbox.extent(connection)
        worker = self._index_worker
        if worker is not None and not worker.catch_up([job.partition], CATCH_UP_SECONDS):
            raise StoreUnavailable("the vector index is behind; new facts are compared once it has caught up")
        now, scope = datetime.now(UTC), _compared_scope(job)
        view = View(scope, now, job.partition, frozenset({Kind.FACT}), show_forgotten=True)

        def read() -> list[list[tuple[str, float]]]:
            return [
                (self._index.dense if space == VECTOR else self._index.multilingual)(view, vector, NEAREST_READ)
                for space, vector in vectors
            ]

        hits = read() if worker is None else worker.read(read)
        with self._ledger.read() as connection:
            uids = dict.fromkeys(
                uid for hits_of_one in hits for uid, similarity in hits_of_one if similarity >= MIN_SIMILARITY
            )
            records = memories.visible_records(connection, View(scope, now, job.partition, show_forgotten=True), uids)
            for uid, record in list(records.items()):
                if record.forgotten_at is not None and memories.records_linking_to(connection, record.row, COMPRESSES):
                    del records[uid]
            near = [
                _nearest(
                    (uid, similarity)
                    for uid, similarity in hits_of_one
                    if uid in records and not decision.have_different_speakers(records[uid], draft.record)
                )
                for draft, hits_of_one in zip(drafts, hits, strict=True)
            ]
            used = {uid: records[uid] for uids_of_one in near for uid in uids_of_one}
            # In order: the same memories make the same request, and those of one day stand together.
            in_order = sorted(used.values(), key=lambda record: (record.at, record.row))
            known = _with_relations(connection, in_order)
        return extent, near, {memory.record.id: memory for memory in known}

    def former_facts(self, record: MemoryRecord) -> list[KnownMemory]:
        """Returns the facts that a fact has replaced, directly or not, the last one first."""
        with self._ledger.read() as connection:
            found = {record.id: record}
            unvisited = [record]
            while unvisited:
                replaced = memories.records_linked_from(connection, unvisited.pop(0).row, "replaces")
                new = {one.id: one for one in replaced if one.kind is Kind.FACT and one.id not in found}
                found |= new
                unvisited += new.values()
            del found[record.id]
            return _with_relations(connection, list(found.values()))

    def exact_duplicates(self, job: Job, drafts: Sequence[FactDraft]) -> dict[int, MemoryRecord]:
        """Returns valid facts with exactly the text and speaker of a new one, by the number of the new one.

        A stored fact without an agent (or run) counts for a job that has one. Facts of user and assistant differ, even
        in the same words.
        """
        with self._ledger.read() as connection:
            records = sessions.facts_with_text(connection, job.partition, [draft.fact.text for draft in drafts])
        scope = _compared_scope(job)
        candidates = [
            record
            for record in records
            if all(getattr(record.scope, name) in {None, value} for name, value in scope.parts.items())
            or record.is_in(scope)
        ]
        return {
            n: record
            for n, draft in enumerate(drafts)
            for record in candidates
            if (record.text, record.speaker) == (draft.fact.text, draft.record.speaker)
            and not decision.have_different_speakers(record, draft.record)
        }

    def commit(self, commands: Sequence[Command], now: datetime | None = None) -> list[Outcome]:
        """Commits a job's commands together, as of `now` (None: the present).

        Raises DecisionConflict, JobAlreadyDone and NotFoundError.
        """
        with span("commit"):
            change_set = ChangeSet(tuple(commands), now or datetime.now(UTC))
            return commit(self._ledger, change_set, timedelta(0), self._observers)


class _PipelineRun:
    """One job in progress. The source of a fact is a number among the job's messages."""

    def __init__(self, pipeline: FactPipeline, job: Job, messages: Sequence[MemoryRecord]) -> None:
        self._pipeline = pipeline
        self._job = job
        self._messages = messages
        self._usage: dict[str, Usage] = {}
        self._dropped: dict[str, int] = {}
        self._chunks = 0
        # The summary that the answers about facts brought.
        self._summary: str | None = None

    def run(self) -> JobResult:
        with span("find facts") as traced:
            facts = self._with_shared_keys(self._extract_facts()) if self._messages else []
            traced.set_attributes(**{"gen_ai.memory.record.count": len(facts)})
        drafts = [FactDraft(fact, self._record_of(fact)) for fact in facts]
        computed = self._pipeline.enrich([draft.record for draft in drafts]) if drafts else []
        enrichments = [
            add_to_extraction(enrichment, draft.fact.mentions, draft.fact.statements)
            for draft, enrichment in zip(drafts, computed, strict=True)
        ]
        vectors = self._pipeline.comparison_vectors(drafts, enrichments)
        lock = self._pipeline.partition_lock(self._job.partition)
        dropped_in_extraction = dict(self._dropped)
        for repetition in range(MAX_ATTEMPTS):
            self._dropped = dict(dropped_in_extraction)
            try:
                with lock if repetition or lock.locked() else nullcontext():
                    outcomes = self._decide_and_commit(drafts, enrichments, vectors)
            except JobAlreadyDone:
                return self._result((), repetition)
            except (DecisionConflict, NotFoundError):
                continue
            return self._result(outcomes, repetition)
        raise LLMUnavailable(f"others were faster {MAX_ATTEMPTS} times; the facts are decided upon later")

    def _result(self, outcomes: Sequence[Outcome], repeated_decisions: int) -> JobResult:
        result = JobResult(tuple(outcomes), self._usage, self._dropped, repeated_decisions, self._chunks)
        if unusable := sum(result.unusable.values()):  # of a job in the background nobody sees the result
            logger.warning("%d parts of a language model's answers could not be used", unusable)
        return result

    def _ask(self, prompt: Prompt) -> Any:
        value, usage = self._pipeline.ask_model(prompt, self._job)
        self._usage[prompt.operation] = self._usage.get(prompt.operation, Usage()) + usage
        return value

    def _count_dropped(self, dropped: Mapping[str, int]) -> None:
        for reason, count in dropped.items():
            self._dropped[reason] = self._dropped.get(reason, 0) + count

    # --- extraction ---------------------------------------------------------------------------------------------

    def _extract_facts(self) -> list[Fact]:
        subject = extraction.subject_of(self._job.scope, self._messages)
        if not self._pipeline.config.is_asked_about(subject, self._messages):
            return []
        instructions = self._job.request.get(INSTRUCTIONS) or self._pipeline.config.extraction
        context = self._pipeline.session_context(self._messages[0])
        summary, earlier, also = context.summary, context.earlier, self._summary_to_ask_for(context)
        facts: list[Fact] = []
        for parts in extraction.split_messages(self._messages):
            self._chunks += 1
            prompt = extraction.build_request(
                parts, subject, instructions=instructions, summary=summary, earlier=earlier, also=also
            )
            answer = self._ask(prompt)
            numbers = [part.number for part in parts]
            extracted = extraction.parse_answer(answer, self._messages, subject, numbers)
            self._count_dropped(extracted.dropped)
            facts += extracted.facts
            # The next request shows the messages just before its own, and the summary up to them.
            earlier = [part.record for part in parts][-CONTEXT_MESSAGES:]
            if also is not None:
                self._summary = summary_beside_facts(answer)
                # Without one, a later request makes the summary.
                summary, also = (self._summary, AlsoSummarise.NEXT) if self._summary else (summary, None)
        return extraction.deduplicate(facts, self._messages)

    def _with_shared_keys(self, facts: Sequence[Fact]) -> list[Fact]:
        """Gives the entities of facts the keys that the extractor gives these names in messages and questions.

        A speaker keeps the key of the name that messages have.
        """
        speakers = {normalise_key(record.speaker) for record in self._messages if record.speaker is not None}
        names = {one.key: one.name for fact in facts for one in fact.mentions if one.key not in speakers}
        found = self._pipeline.name_keys(names.values())
        keys = {key: found[name] for key, name in names.items()}
        return [fact.with_keys(keys) for fact in facts]

    def _summary_to_ask_for(self, context: SessionContext) -> AlsoSummarise | None:
        """Returns the summary that the answers about facts shall bring, None if none.

        A new one is not to go on from the summary of another session: erasing that session's messages would not reach
        what it took over.
        """
        is_long = len(self._messages) >= SUMMARISED_WITH_FACTS
        of_one_session = self._messages[0].session == self._messages[-1].session
        if not (self._pipeline.config.summarise_every and is_long and of_one_session and context.is_summarised):
            return None
        return AlsoSummarise.NEXT if context.has_summary else AlsoSummarise.NEW

    def _record_of(self, fact: Fact) -> MemoryRecord:
        """Returns the memory that a fact would become, with metadata, expiration and type of its latest message."""
        said_by = fact.of_speaker(self._messages)
        last = max((self._messages[n] for n in fact.sources), key=lambda record: record.at)
        now = datetime.now(UTC)
        return MemoryRecord(
            id=str(uuid4()), partition=self._job.partition, scope=self._job.scope, kind=Kind.FACT, text=fact.text,
            at=last.at, utc_offset=last.utc_offset, valid_from=last.at, created_at=now, updated_at=now,
            session=last.session,
            expires_at=last.expires_at, memory_type=last.memory_type or fact.memory_type, metadata=last.metadata,
            speaker=common_value(said_by, "speaker"), actor_id=common_value(said_by, "actor_id"),
            role=common_value(said_by, "role"), confidence=fact.confidence,
        )  # fmt: skip

    # --- decision -----------------------------------------------------------------------------------------------

    def _decide_and_commit(
        self, drafts: Sequence[FactDraft], enrichments: Sequence[StoreEnrichment], vectors: Sequence[SpaceVector]
    ) -> list[Outcome]:
        summary = self._summary_commands()
        summarise_every = 0 if summary else self._pipeline.config.summarise_every
        complete = CompleteJob(self._job, self._pipeline.spec, summarise_every=summarise_every)
        if not drafts:
            self._pipeline.commit([complete, *summary])
            return []
        # The sequence number is read before everything else: the commit then notices all facts stored after it.
        with span("find near memories"):
            extent, near_ids, near_memories = self._pipeline.near_memories(self._job, drafts, vectors)
        duplicates = self._pipeline.exact_duplicates(self._job, drafts)
        actions: dict[int, list[Action]] = {}
        for n in range(len(drafts)):
            if n in duplicates:
                actions[n] = []
            elif not near_ids[n]:
                actions[n] = [Action(DecisionType.ADD, n)]
        undecided = [n for n in range(len(drafts)) if n not in actions]
        with span("decide") as traced:
            traced.set_attributes(**{"gen_ai.memory.record.count": len(undecided)})
            for action in self._ask_decisions(drafts, near_memories, near_ids, undecided):
                actions.setdefault(action.fact, []).append(action)
        complete = replace(complete, seen=extent, vectors=tuple(vectors), min_similarity=MIN_SIMILARITY)
        compared = list(near_memories.values())
        for n in undecided:
            actions[n] = self._place(drafts[n], actions[n], compared)
        importance = self._job.request.get(IMPORTANCE)
        builder = ChangeBuilder(self._pipeline.enrich, drafts, enrichments, self._messages, compared, importance)
        for n in range(len(drafts)):
            if n in duplicates:
                builder.reaffirm(duplicates[n], n)
            else:
                builder.add_actions(actions[n])
        self._count_dropped(builder.dropped)
        outcomes = self._pipeline.commit([complete, *summary, *builder.commands])[1 + len(summary) :]
        return _in_one([
            outcome
            for command, outcome in zip(builder.commands, outcomes, strict=True)
            if not isinstance(command, StoreEnrichment)
        ])  # fmt: skip

    def _place(self, draft: FactDraft, actions: Sequence[Action], compared: list[KnownMemory]) -> list[Action]:
        """Returns the actions about a fact, one that has ended in its place among those that were true before.

        Appends these to `compared`.
        """
        placed: list[Action] = []
        for action in actions:
            if action.type is DecisionType.ADD and action.memory is not None:
                former = self._pipeline.former_facts(compared[action.memory].record)
                numbered = dict(enumerate(former, len(compared)))
                compared += former
                config = self._pipeline.config
                placed += decision.place_among_former(draft, action, numbered, by_confidence=config.by_confidence)
            else:
                placed.append(action)
        return placed

    def _summary_commands(self) -> list[Command]:
        if self._summary is None:
            return []
        previous = self._pipeline.session_summary(self._messages[0])
        return [summary_command(self._job, self._summary, self._messages, previous)]

    def _ask_decisions(
        self,
        drafts: Sequence[FactDraft],
        near_memories: Mapping[str, KnownMemory],
        near_ids: Sequence[Sequence[str]],
        undecided: Sequence[int],
    ) -> list[Action]:
        """Asks the model about the undecided facts, in several requests if one would compare too many.

        `near_ids` are the ids of the near memories of each fact. The numbers in the returned actions are positions in
        `drafts` and `near_memories`.
        """
        memory_numbers = {uid: n for n, uid in enumerate(near_memories)}
        actions: list[Action] = []
        for numbers in _request_groups(undecided, near_ids):
            compared_ids = {uid for n in numbers for uid in near_ids[n]}
            uids = [uid for uid in near_memories if uid in compared_ids]
            facts, compared = [drafts[n] for n in numbers], [near_memories[uid] for uid in uids]
            config = self._pipeline.config
            answer = self._ask(decision.build_request(facts, compared, config.decision))
            decided = decision.parse_answer(answer, facts, compared, by_confidence=config.by_confidence)
            self._count_dropped(decided.dropped)
            actions += decision.renumber(decided, numbers, [memory_numbers[uid] for uid in uids])
        return actions


def _with_relations(connection: Connection, records: Sequence[MemoryRecord]) -> list[KnownMemory]:
    """Returns memories, in order, with their relations."""
    by_id = {
        # Only one that is valid later than it was said may be composed, which has to be looked up.
        record.id: KnownMemory(
            record,
            is_composed=record.valid_from > record.at
            and bool(memories.records_linked_from(connection, record.row, MADE_OF)),
        )
        for record in records
    }
    for uid, statement, *ends in graph_reads.statements_of(connection, list(by_id)):
        memory = by_id[uid]
        by_id[uid] = replace(memory, statements=(*memory.statements, statement), mentions=(*memory.mentions, *ends))
    return list(by_id.values())


def _in_one(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Returns outcomes with one ADD for a fact that was added and retired at once: as retired, with the reason."""
    added = {outcome.id for outcome in outcomes if outcome.event is OutcomeType.ADD}
    ended = {one.id: one for one in outcomes if one.event is OutcomeType.RETIRE and one.id in added}
    return [
        replace(ended[one.id], event=OutcomeType.ADD) if one.id in ended else one
        for one in outcomes
        if ended.get(one.id) is not one
    ]


def _compared_scope(job: Job) -> Scope:
    """Returns the scope whose facts are compared with new ones: all runs of a user, else the job's own scope."""
    return job.scope if job.scope.user_id is None else replace(job.scope, run_id=None)


def _nearest(hits: Iterable[tuple[str, float]]) -> list[str]:
    """Returns the ids of those hits (id and cosine, nearest first) that a fact is compared with.

    Those are the nearest, and all others that may be in conflict with it.
    """
    near = [(uid, similarity) for uid, similarity in hits if similarity >= MIN_SIMILARITY]
    return [
        uid
        for n, (uid, similarity) in enumerate(near)
        if similarity > CONFLICT_SIMILARITY or (n < NEAREST_LIMIT and similarity >= near[0][1] - NEAREST_SPREAD)
    ]


def _request_groups(facts: Sequence[int], near_ids: Sequence[Sequence[str]]) -> list[list[int]]:
    """Splits facts (numbers) into groups for one request each; `near_ids` has the ids compared with each fact."""
    groups: list[list[int]] = []
    compared: set[str] = set()
    for n in facts:
        with_next = compared | set(near_ids[n])
        if not groups or len(groups[-1]) >= FACTS_PER_REQUEST or len(with_next) > MEMORIES_PER_REQUEST:
            groups.append([])
            with_next = set(near_ids[n])
        groups[-1].append(n)
        compared = with_next
    return groups
