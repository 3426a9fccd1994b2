"""Memory: the front door. It checks arguments, asks the rooms behind it, and gives back plain dicts."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from typing import IO, TYPE_CHECKING, Any, Literal, Self, TypeVar, cast

from pydantic import BaseModel

from graphmem import responses, types
from graphmem.boundary import filters as filtering
from graphmem.boundary import validation
from graphmem.commands.types import (
    UNSET,
    AddAlias,
    AddMessage,
    DeleteMemory,
    EnqueueExtraction,
    EntityCommand,
    ErasureReport,
    Outcome,
    RemoveAlias,
    RenameEntity,
    UndoEvent,
    Unset,
    UpdateMemory,
)
from graphmem.engine import PROJECTION_NAMES, Engine
from graphmem.errors import ConfigError, NotFoundError, PartialWrite, StoreError, ValidationError
from graphmem.ingest.hooks import apply_before_store
from graphmem.ingest.messages import message_commands
from graphmem.model import ALL_KINDS, Event, Kind, MemoryRecord, Message, Scope, View, iso
from graphmem.queries import graph
from graphmem.retrieval import context
from graphmem.retrieval.pipeline import search
from graphmem.retrieval.sentence_matching import UNSPLIT_CHARS
from graphmem.retrieval.types import SearchQuery
from graphmem.settings import Settings
from graphmem.stores.ledger import entity_queries, events, graph_reads, memories, tombstones
from graphmem.stores.ledger.jobs import JobKind
from graphmem.stores.projection import Progress
from graphmem.text import normalise_key
from graphmem.tracing import operation as traced_as
from graphmem.transfer import jsonl
from graphmem.transfer.exporter import export_records
from graphmem.transfer.importer import import_records

if TYPE_CHECKING:
    import networkx as nx

R = TypeVar("R", types.AddResult, types.SearchResult, types.ListResult)
TOP_K, CONTEXT_MEMORIES = 10, 20
DEFAULT_LIST_LIMIT, MAX_LIST_LIMIT = 100, 100_000
# Relations that a listing shows, newest first; `graph()` has them all.
RELATION_LIMIT = 100
DELETE_BATCH = 500


class Memory:
    """A graph-augmented memory: give it conversations, find them again across several hops, with their history.

    `Memory()` lives in $GRAPHMEM_HOME (default ~/.graphmem), `Memory("./folder")` there, `Memory(":memory:")` nowhere.
    Needs no server, key or network. Safe to use from several threads, and from several processes on one folder.

    Scope: every call but those by id and the administrative ones takes at least one of `user_id`, `agent_id`,
    `run_id`, and sees only memories that carry those values. By-id calls take them optionally: an id outside reads
    like one that does not exist. All methods raise errors of `graphmem.errors` only: ValidationError for an argument
    that cannot be used, StoreError when the ledger fails, StoreUnavailable after `close()`. `limits` says how much one
    call may bring.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | Mapping[str, Any] | BaseModel | None = None,
        *,
        settings: Settings | None = None,
        config: Mapping[str, Any] | BaseModel | None = None,
    ) -> None:
        """Opens or makes a memory in a folder (created readable by its owner only).

        `settings` is for those who build them in code; `from_config` and `from_file` are the usual ways. `config`, also
        in the place of `path`, is a configuration as `from_config` takes it. Raises ConfigError for a configuration
        that cannot be used, StoreError for a folder that cannot.
        """
        if isinstance(path, Mapping | BaseModel):
            if config is not None:
                raise ConfigError("config: is given twice; give one, by Memory.from_config(…)")
            path, config = None, path
        if config is not None:
            if settings is not None:
                raise ConfigError("config: settings are given, too; give one of the two")
            settings = Settings.from_dict(config)
        in_memory = path is not None and validation.folder(path) == ":memory:"
        named = None if path is None or in_memory else validation.home(path)
        chosen = Settings.from_env(home=named) if settings is None else settings
        if not isinstance(chosen, Settings):
            raise ConfigError(
                f"settings: must be a Settings, not {type(chosen).__name__}; open a dict with Memory.from_config, "
                "a file with Memory.from_file"
            )
        if named is not None:
            chosen = chosen.model_copy(update={"home": named})
        for told in chosen.without_effect:
            warnings.warn(told, stacklevel=2)
        self._version = chosen.version
        self.limits = validation.InputLimits(**chosen.limits.model_dump())
        self._engine = Engine(chosen, in_memory=in_memory)

    @classmethod
    def from_config(cls, config_dict: Mapping[str, Any] | BaseModel) -> Memory:
        """Opens a memory as configured by a dict in mem0's shape (README, "Configuration"). Raises ConfigError.

        A `MemoryConfig` of mem0's will do, too.
        """
        return cls(settings=Settings.from_dict(config_dict))

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Memory:
        """The same from a TOML, YAML or JSON file."""
        return cls(settings=Settings.from_file(validation.folder(path)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- writing ------------------------------------------------------------------------------------------------

    def add(
        self,
        messages: str | Mapping[str, Any] | Sequence[Any],
        *,
        user_id: Any = None,
        agent_id: Any = None,
        run_id: Any = None,
        metadata: Mapping[str, Any] | None = None,
        timestamp: datetime | str | float | None = None,
        infer: bool | None = None,
        memory_type: str | None = None,
        expiration_date: datetime | str | float | None = None,
        prompt: str | None = None,
        strict: bool = False,
        wait: bool = True,
    ) -> types.AddResult:
        """Remembers what was said.

        `messages`: a string, one `{"role", "content", "name"?, "timestamp"?, "id"?, "metadata"?}`, or a list of them; a
        message's own metadata goes over that of the call, and other keys are ignored. `timestamp` is when it was said
        (default: now), as a datetime, ISO 8601 text or epoch seconds. The words are durable when this returns;
        `wait=False` leaves the rest to the background, `flush()` waits for it. `prompt` is the instruction by which a
        language model draws facts from this call's messages, instead of the configured one.

        Returns `{"results": [{"id", "memory", "event", "kind", …}], "relations": […], "pending"?: […]}`. Without a
        model there is one result for each message with text, in order, but for those of the roles "system" and
        "developer", which are no memories; `event` is ADD, or NONE for one that is known.
        With one (`infer`) there is one for each thing that became of what was said: a fact is an ADD; a memory an
        UPDATE (with its "previous_memory"), a DELETE (it is retired: "valid_to", "reason", "replaced_by") or, if it
        says that already, NONE; `usage` says what the model took. If the model fails, the words are kept, `pending`
        names "facts" and `failed` why.

        Raises ValidationError (nothing is stored then), ConfigError for `infer=True` without a model, PartialWrite with
        `strict=True` when something is pending.
        """
        self._engine.check_open()
        infers = self._infers(infer)
        if prompt is not None:
            validation.content(prompt, "prompt")
        waits, strictly = validation.flag(wait, "wait"), validation.flag(strict, "strict")
        scope, _ = validation.required_scope(user_id, agent_id, run_id)
        heard = validation.parse_messages(messages, timestamp=timestamp, now=datetime.now(UTC), limits=self.limits)
        steps = self._said(heard.messages, scope, metadata, memory_type, expiration_date)
        self._engine.check_embedder()
        kind = JobKind.PROCEDURE if memory_type == validation.PROCEDURAL_MEMORY else JobKind.FACTS
        with traced_as("upsert_memory" if infers else "create_memory") as traced:
            result = (
                self._add_with_extraction(
                    steps, EnqueueExtraction(scope, prompt, procedure=kind is JobKind.PROCEDURE), kind, waits=waits
                )
                if infers
                else self._add_verbatim(steps, scope, waits=waits)
            )
            traced.set_attributes(**{"gen_ai.memory.record.count": len(result["results"])})
        if heard.attachment_only:
            result["skipped"] = responses.skipped(heard.attachment_only)
        pending = result.get("pending", [])
        if pending and strictly and waits:
            raise PartialWrite(f"stored, but not yet in {' and '.join(pending)}; repair() brings it there", result)
        return self._shaped(result)

    def _infers(self, infer: object) -> bool:
        """Whether a language model is asked: if there is one, unless the caller does not want it."""
        if infer is None:
            return self._engine.llm is not None
        wanted = validation.flag(infer, "infer")
        if wanted and self._engine.llm is None:
            raise ConfigError(
                "infer=True needs a language model, and none is configured: set llm (README, 'Configuration'), "
                "or leave infer out (or False) to remember the words as spoken"
            )
        return wanted

    def _add_verbatim(self, steps: Sequence[AddMessage], scope: Scope, *, waits: bool) -> types.AddResult:
        """The words as spoken."""
        outcomes = self._engine.commit(steps)
        fresh = _fresh(outcomes)
        pending = self._engine.enrich_and_deliver(fresh, wait=waits) if fresh else []
        result = types.AddResult(
            results=[responses.add_result_item(step, outcome) for step, outcome in zip(steps, outcomes, strict=True)],
            relations=self._stated(fresh, scope) if waits else [],
        )
        if pending:
            result["pending"] = pending
        return result

    def _add_with_extraction(
        self, steps: Sequence[AddMessage], assign: EnqueueExtraction, kind: JobKind, *, waits: bool
    ) -> types.AddResult:
        """The words, as mere sources, and what a language model makes of them."""
        said = [replace(step, source_only=True) for step in steps]
        *outcomes, assigned = self._engine.commit([*said, assign])
        known = [responses.add_result_item(s, o) for s, o in zip(steps, outcomes, strict=True) if o.event == "NONE"]
        fresh = _fresh(outcomes)
        if not fresh:
            return types.AddResult(results=known, relations=[])
        learned, pending = self._engine.run_job(int(assigned.id), fresh, kind, wait=waits)
        result = types.AddResult(results=known, relations=[])
        if isinstance(learned, str):
            result["failed"] = {kind.value: learned}
        else:
            result["results"] += responses.fact_result_items(learned.outcomes)
            result["relations"] = self._stated(_fresh(learned.outcomes, "UPDATE"), assign.scope)
            result["usage"] = responses.usage(learned)
            if unusable := responses.dropped_summary(learned.dropped):
                result["failed"] = {"answer": unusable}
        if pending:
            result["pending"] = pending
        return result

    def _said(
        self,
        messages: Sequence[Message],
        scope: Scope,
        metadata: object,
        memory_type: object,
        expiration_date: object,
    ) -> tuple[AddMessage, ...]:
        return message_commands(
            messages,
            scope,
            self._engine.ledger.digests,
            metadata=validation.metadata(metadata, max_bytes=self.limits.max_metadata_bytes),
            memory_type=validation.memory_type(memory_type),
            expires_at=validation.expiration(expiration_date),
            before_store=self._engine.settings.before_store,
        )

    def _stated(self, records: Sequence[MemoryRecord], scope: Scope) -> list[types.RelationDict]:
        view = View(scope, datetime.now(UTC), scope.partition, show_expired=True)
        try:
            with self._engine.ledger.read() as connection:
                return responses.relations(graph_reads.relations_stated_by(connection, view, [r.id for r in records]))
        except StoreError:  # closed since: what was stored is stored, and that is what the call has to say
            return []

    def update(
        self,
        memory_id: str,
        data: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        *,
        text: str | None = None,
        expiration_date: datetime | str | float | Unset | None = UNSET,
        user_id: Any = None,
        agent_id: Any = None,
        run_id: Any = None,
    ) -> types.MemoryDict:
        """Corrects or refines a memory in place; history keeps the old words, search does not find them any more.

        `metadata` replaces what was there; `expiration_date=None` takes an expiration away. Returns the memory as it
        is now, plus `"message"`. Raises NotFoundError, and ValidationError when there is nothing to change.
        """
        self._engine.check_open()
        words, limits = validation.merge_aliases(data, text, ("data", "text")), self.limits
        if words is None and metadata is None and isinstance(expiration_date, Unset):
            raise ValidationError("update: nothing to change; give data, metadata or expiration_date")
        step = UpdateMemory(
            validation.memory_id(memory_id),
            text=None if words is None else validation.content(words, "data", limits.max_message_chars),
            metadata=None if metadata is None else validation.metadata(metadata, max_bytes=limits.max_metadata_bytes),
            expires_at=expiration_date
            if isinstance(expiration_date, Unset)
            else validation.expiration(expiration_date),
            corrects=True,
        )
        within = _within(user_id, agent_id, run_id)
        step = self._redacted(step, within)
        self._engine.check_embedder()
        outcome = self._engine.commit([step], within)[0]
        record = outcome.required_record
        pending = self._engine.enrich_and_deliver([record], wait=True) if outcome.event == "UPDATE" else []
        shown = responses.memory(record)
        changed = outcome.event == "UPDATE"
        shown["message"] = "Memory updated successfully!" if changed else "Nothing to change: the memory is like that."
        if pending:
            shown["pending"] = pending
        return shown

    def _redacted(self, step: UpdateMemory, within: Scope | None) -> UpdateMemory:
        """A revision as `before_store` lets it pass, which sees the memory's message as it would be."""
        hook = self._engine.settings.before_store
        if hook is None or (step.text is None and step.metadata is None):
            return step
        record = self._find(step.id, within)
        if record is None:  # which the commit says better
            return step
        text = record.text if step.text is None else step.text
        metadata = record.metadata if step.metadata is None else step.metadata
        said = Message(record.role or "user", text, record.at, name=record.actor_id, id=record.message_id)
        found = apply_before_store(hook, said, metadata)
        if found is None:
            raise ValidationError("update: before_store refuses it; the memory is as it was")
        # What was not given and is not changed here stays out of it: somebody else may be changing it now.
        return replace(
            step,
            text=step.text if found[0].content == text else found[0].content,
            metadata=step.metadata if found[1] == metadata else found[1],
        )

    def undo(self, event_id: str, *, user_id: Any = None, agent_id: Any = None, run_id: Any = None) -> types.MemoryDict:
        """Takes an update or a retirement back: what that event changed is as it was before; its history keeps both.

        `event_id` as `history` and `explain` give it. What other events changed stays (metadata, say, after an update
        of the words). Returns the memory as it is now. Raises NotFoundError for an event that is not there,
        ValidationError for one that cannot be taken back: another kind of event, or one whose fields (text, metadata,
        expiration_date, retirement) are by now neither as it left them nor as they were before it.
        """
        self._engine.check_open()
        wanted, within = validation.memory_id(event_id, "event_id"), _within(user_id, agent_id, run_id)
        outcome = self._engine.commit([UndoEvent(wanted)], within)[0]
        pending = self._engine.enrich_and_deliver([outcome.required_record], wait=True)
        shown = responses.memory(outcome.required_record)
        shown["message"] = "Taken back."
        if pending:
            shown["pending"] = pending
        return shown

    def delete(self, memory_id: str, *, user_id: Any = None, agent_id: Any = None, run_id: Any = None) -> types.Receipt:
        """Erases a memory from every store: its words, vectors, nodes and edges; history keeps that it was.

        Returns a receipt (`{"message", "deleted", "erased": {"ledger", "vectors", "graph", "derived"}, "pending"?}`):
        what `pending` names loses its share once it can be reached. Raises NotFoundError.
        """
        self._engine.check_open()
        step = DeleteMemory(validation.memory_id(memory_id))
        outcome = self._engine.commit([step], _within(user_id, agent_id, run_id))[0]
        return responses.receipt(
            outcome.erased, self._engine.deliver([outcome.required_record.partition]), "Memory deleted successfully!"
        )

    def delete_all(self, *, user_id: Any = None, agent_id: Any = None, run_id: Any = None) -> types.Receipt:
        """Erases every memory of a scope, of every kind and state, in steps that can be taken up again.

        With a `run_id`, a fact that was said elsewhere, too, stays there. Returns a receipt as `delete` does.
        """
        self._engine.check_open()
        scope = validation.required_scope(user_id, agent_id, run_id)[0]
        erased, partitions = ErasureReport(), set[str]()
        while True:
            with self._engine.ledger.read() as connection:
                found = memories.in_scope(connection, scope, DELETE_BATCH)
            if not found:
                break
            partitions |= {record.partition for record in found}
            steps = [DeleteMemory(record.id, missing_ok=True, run_id=scope.run_id) for record in found]
            erased = sum((outcome.erased for outcome in self._engine.commit(steps)), erased)
        return responses.receipt(
            erased, self._engine.deliver(sorted(partitions)), f"{len(erased.ids)} memories deleted successfully!"
        )

    # --- reading ------------------------------------------------------------------------------------------------

    def search(
        self,
        query: str,
        *,
        user_id: Any = None,
        agent_id: Any = None,
        run_id: Any = None,
        top_k: int | str | None = None,
        limit: int | None = None,
        filters: Mapping[str, Any] | None = None,
        threshold: float | None = None,
        kinds: str | Sequence[str] | None = None,
        as_of: datetime | str | float | None = None,
        reference_date: datetime | str | float | None = None,
        show_expired: bool = False,
        explain: bool = False,
        rerank: bool = False,
    ) -> types.SearchResult:
        """Finds what belongs to a question, also several hops away.

        `top_k` (1..1000, default 10; `limit` means the same; "auto": those not far behind the best, 3 to 50).
        `filters`: conditions on metadata and on `kind`, `memory_type`, `created_at`, `actor_id`, `role`, `tags`.
        `threshold`: a least cosine similarity (-1..1), of a hit or of the memory its path starts from. `as_of`: the
        state of the world at that time (a bare date is its first moment). `reference_date`: the moment the question is
        asked from, for "last week" and the like, whose days are those of its zone (default: `as_of`, else now, in UTC).

        Returns `{"results": [{"id", "memory", "score", "similarity", "sources"?, …}], "relations": […], "degraded"?:
        […]}`; `sources` are the words that a fact was drawn from, where these were found too: unless `kinds` are
        chosen, they are no hits of their own. `explain=True` adds to each hit `{"arms", "path", "why"}`, and to a long
        one `"part"`, the sentences that match. Raises ConfigError for `rerank=True`: there is no reranker yet.
        """
        self._engine.check_open()
        if validation.flag(rerank, "rerank"):
            raise ConfigError("rerank=True needs a reranker, and none is configured; leave rerank out")
        scope, rest = validation.required_scope(user_id, agent_id, run_id, filters=filters)
        asked, named = validation.merge_aliases(top_k, limit, ("top_k", "limit")), "limit" if top_k is None else "top_k"
        question = SearchQuery(
            text=validation.query(query),
            view=_view(scope, kinds, as_of, show_expired=show_expired),
            limit=TOP_K if asked is None else validation.top_k(asked, named, self.limits.max_top_k),
            filter=filtering.parse(rest, limits=self.limits),
            threshold=validation.threshold(threshold),
            explain=validation.flag(explain, "explain"),
            match_sentences_over=UNSPLIT_CHARS if explain else None,
            now=None if reference_date is None else validation.zoned_moment(reference_date, "reference_date"),
        )
        self._engine.check_embedder()
        with traced_as("search_memory") as traced:
            found = search(question, self._engine.search_deps)
            traced.set_attributes(**{"gen_ai.memory.record.count": len(found.hits)})
        return self._shaped(responses.search_result(found))

    def context(
        self,
        query: str,
        *,
        user_id: Any = None,
        agent_id: Any = None,
        run_id: Any = None,
        max_chars: int = 1200,
        threshold: float | Unset | None = UNSET,
    ) -> str:
        """The prompt block for a question: what is relevant, delimited and marked as data, the newest first.

        Facts and summaries have the room first, what is left is for words as they were spoken. At most `max_chars`
        characters; "" when nothing is found, or nothing fits (the block itself takes about 90).

        What has nothing to do with the question is left out: it shares no word with it, is not near in meaning, is not
        beside such a memory in its session, and no path leads to it from one or from what the question names. A
        question without any word that names something ("What do you know?"; told by English and Chinese words) gets all
        that is found. `threshold`: a least cosine similarity instead, as in `search`; None: all that is found.
        """
        self._engine.check_open()
        room = validation.count(max_chars, "max_chars", 1, 1_000_000)
        scope = validation.required_scope(user_id, agent_id, run_id)[0]
        view = _view(scope, None, None, show_expired=False)
        self._engine.check_embedder()
        question = SearchQuery(validation.query(query), view, CONTEXT_MEMORIES, match_sentences_over=context.MIN_CHARS)
        if isinstance(threshold, Unset):
            hits = search(replace(question, with_relevance=True), self._engine.search_deps).related
        else:
            least = validation.threshold(threshold)
            hits = search(replace(question, threshold=least), self._engine.search_deps).hits
        return context.context_block(hits, room)

    def get(
        self, memory_id: str, *, user_id: Any = None, agent_id: Any = None, run_id: Any = None
    ) -> types.MemoryDict | None:
        """A memory by its id, also a retired or expired one; None if there is none in this scope."""
        self._engine.check_open()
        record = self._find(validation.memory_id(memory_id), _within(user_id, agent_id, run_id))
        return None if record is None else responses.memory(record)

    def _find(self, memory_id: str, within: Scope | None) -> MemoryRecord | None:
        with self._engine.ledger.read() as connection:
            record = memories.find(connection, memory_id)
        return record if record is not None and (within is None or record.is_in(within)) else None

    def get_all(
        self,
        *,
        user_id: Any = None,
        agent_id: Any = None,
        run_id: Any = None,
        filters: Mapping[str, Any] | None = None,
        kinds: str | Sequence[str] | None = None,
        limit: int | None = None,
        top_k: int | None = None,
        offset: int = 0,
        as_of: datetime | str | float | None = None,
        show_expired: bool = False,
    ) -> types.ListResult:
        """A scope's memories, newest observation first: facts and episodes; mere sources of facts, and summaries,
        when `kinds` names them.

        `limit` 1..100,000 (default 100; `top_k` means the same). Returns `{"results", "relations", "total"}`.
        """
        self._engine.check_open()
        scope, rest = validation.required_scope(user_id, agent_id, run_id, filters=filters)
        asked = validation.merge_aliases(limit, top_k, ("limit", "top_k"))
        most = 100 if asked is None else validation.count(asked, "limit", 1, MAX_LIST_LIMIT)
        skip = validation.count(offset, "offset", 0, 2**31)
        view = _view(scope, kinds, as_of, show_expired=show_expired, default={Kind.FACT, Kind.EPISODE})
        only = filtering.parse(rest, limits=self.limits)
        with self._engine.ledger.read() as connection:
            listed = memories.list_records(connection, view, with_sources=kinds is not None)
            found = [record for record in listed if only is None or only.matches(filtering.fields_of(record))]
            shown = graph_reads.relations_in(connection, view, RELATION_LIMIT)
        page = [responses.memory(record) for record in islice(found, skip, skip + most)]
        return self._shaped(types.ListResult(results=page, relations=responses.relations(shown), total=len(found)))

    def history(
        self, memory_id: str, *, user_id: Any = None, agent_id: Any = None, run_id: Any = None
    ) -> list[types.HistoryDict]:
        """What happened to a memory, oldest first, in mem0's ten columns and `is_retired`; [] if there is none in this
        scope.

        Of an erased memory the events remain, without the words. What `add` calls DELETE has retired a memory, and is a
        RETIRE here, with `is_retired`; `is_deleted` means erased.
        """
        self._engine.check_open()
        uid = validation.memory_id(memory_id)
        return [responses.event(event) for event in self._events(uid, _within(user_id, agent_id, run_id))]

    def _events(self, memory_id: str, within: Scope | None) -> list[Any]:
        with self._engine.ledger.read() as connection:
            record = memories.find(connection, memory_id)
            if record is None:
                gone = tombstones.find_tombstone(connection, memory_id)
                is_seen = gone is not None and (within is None or within.sees(gone.scope))
            else:
                is_seen = within is None or record.is_in(within)
            return events.history(connection, memory_id) if is_seen else []

    def explain(
        self, memory_id: str, *, user_id: Any = None, agent_id: Any = None, run_id: Any = None
    ) -> dict[str, Any]:
        """Why this is remembered: `{"id", "memory", "messages", "mentions", "relations", "replaces", "replaced_by",
        "events"}`.

        `messages` are what it was drawn from, `replaces` and `replaced_by` the memories (ids) that it made untrue and
        that did so to it, `events` its changes with ids and reasons. Raises NotFoundError.
        """
        self._engine.check_open()
        uid, within = validation.memory_id(memory_id), _within(user_id, agent_id, run_id)
        record = self._find(uid, within)
        if record is None:
            raise NotFoundError(f"no memory {uid!r:.80} in this scope; search() and get_all() give the ids that exist")
        view = View(within or record.scope, datetime.now(UTC), show_expired=True, as_of=record.valid_from)

        def seen(found: Sequence[MemoryRecord]) -> list[MemoryRecord]:
            return [one for one in found if within is None or one.is_in(within)]

        with self._engine.ledger.read() as connection:
            drawn_from = memories.link_targets(connection, record.row, "drawn_from")
            mentioned = [entity for _, entity, _ in graph_reads.mentions_of(connection, [uid], view.scope.partition)]
            stated = graph_reads.relations_stated_by(connection, view, [uid])
            history = events.history(connection, uid)
            older = memories.link_targets(connection, record.row, "replaces")
            newer = memories.link_sources(connection, record.row, "replaces")
        sources = seen(drawn_from) if drawn_from else [record]
        return {
            "id": uid,
            "memory": record.text,
            "messages": [_message(source, _said_first(source, history)) for source in sources],
            "mentions": [{"key": e.key, "name": e.name, "type": e.type.value} for e in mentioned],
            "relations": responses.relations(stated),
            "replaces": [one.id for one in seen(older)],
            "replaced_by": [one.id for one in seen(newer)],
            "events": [{**responses.event(event), "reason": event.reason} for event in history],
        }

    def entities(
        self,
        *,
        user_id: Any = None,
        agent_id: Any = None,
        run_id: Any = None,
        query: str | None = None,
        type: str | None = None,  # noqa: A002  (the contract's name)
        limit: int = 100,
    ) -> list[types.EntityDict]:
        """The people and things a scope's memories mention, those most memories mention first; one that has several
        names is listed once, with its `aliases`.

        `query` keeps the names that contain it; `type` is one of Person, Organization, Place, Event, Object,
        Concept, Time, Other.
        """
        self._engine.check_open()
        scope = validation.required_scope(user_id, agent_id, run_id)[0]
        view = _view(scope, None, None, show_expired=False)
        words = None if query is None else normalise_key(validation.query(query)) or query.casefold()
        most = validation.count(limit, "limit", 1, MAX_LIST_LIMIT)
        kind = None if type is None else validation.entity_type(type)
        with self._engine.ledger.read() as connection:
            found = entity_queries.entities_in(connection, view, words=words, kind=kind, limit=most)
        return [responses.entity(one) for one in found]

    def entity(
        self, key: str, *, user_id: Any = None, agent_id: Any = None, run_id: Any = None, limit: int = 100
    ) -> types.EntityDetails | None:
        """What is known about someone or something, by any name: `{"key", "name", "type", "aliases", "memories",
        "relations"}`.

        `memories` are its memories under all its names, newest first, at most `limit`; `aliases` its further names,
        `[{"key", "name", "origin"}]`. None if nothing in this scope mentions it.
        """
        self._engine.check_open()
        scope = validation.required_scope(user_id, agent_id, run_id)[0]
        view = _view(scope, None, None, show_expired=False)
        wanted = normalise_key(validation.entity_key(key, "key"))
        return self._known(view, wanted, validation.count(limit, "limit", 1, MAX_LIST_LIMIT))

    def _known(self, view: View, key: str, limit: int) -> types.EntityDetails | None:
        with self._engine.ledger.read() as connection:
            found = entity_queries.entity_in(connection, view, key)
            if found is None:
                return None
            ids = entity_queries.memories_mentioning(connection, view, found.keys, limit)
            records = memories.records(connection, ids)
            relations = graph_reads.relations_about(connection, view, found.keys)
        return responses.entity_details(found, [records[uid] for uid in ids], relations)

    def alias(
        self, a: str, b: str, *, user_id: Any = None, agent_id: Any = None, run_id: Any = None
    ) -> types.EntityDetails:
        """Says that two names mean one person or thing: from now on they are shown as one, and a question that names
        either is answered from both.

        It is a link between the two, in the partition of this scope, and `unalias` takes it back. Returns the entity as
        `entity` shows it. Raises NotFoundError for a name that no memory of the scope mentions.
        """
        self._engine.check_open()
        scope = validation.required_scope(user_id, agent_id, run_id)[0]
        return self._named(AddAlias(scope, *_two_names(a, b)))

    def unalias(
        self, a: str, b: str, *, user_id: Any = None, agent_id: Any = None, run_id: Any = None
    ) -> types.EntityDetails:
        """Takes back that two names mean one, whoever said so; no rule will link these two again, `alias` can.

        Returns the entity `a` as `entity` shows it. Raises NotFoundError where the two are not linked to each other.
        """
        self._engine.check_open()
        scope = validation.required_scope(user_id, agent_id, run_id)[0]
        return self._named(RemoveAlias(scope, *_two_names(a, b)))

    def rename_entity(
        self, key: str, name: str, *, user_id: Any = None, agent_id: Any = None, run_id: Any = None
    ) -> types.EntityDetails:
        """Chooses what an entity is called in what people see, whatever the texts call it.

        `name` has 1..256 characters in one line. Memories keep their words, and the entity is found by its old names
        as well. Returns it as `entity` shows it. Raises NotFoundError for one that no memory of the scope mentions.
        """
        self._engine.check_open()
        scope = validation.required_scope(user_id, agent_id, run_id)[0]
        wanted = normalise_key(validation.entity_key(key, "key"))
        return self._named(RenameEntity(scope, wanted, validation.entity_name(name, "name")))

    def _named(self, step: EntityCommand) -> types.EntityDetails:
        key = self._engine.commit([step])[0].id
        found = self._known(_view(step.scope, None, None, show_expired=False), key, DEFAULT_LIST_LIMIT)
        if found is None:  # erased by somebody else since
            raise NotFoundError(f"{key!r} was erased meanwhile; entities() lists what is known")
        return found

    def graph(
        self,
        *,
        user_id: Any = None,
        agent_id: Any = None,
        run_id: Any = None,
        around: str | None = None,
        hops: int = 2,
        limit: int = 10_000,
    ) -> nx.MultiDiGraph[str]:
        """A scope's memories (the newest `limit`), entities and relations as a networkx.MultiDiGraph.

        Each key is a node of its own; edges SAME_AS join those that mean one entity. The graph's own attributes are the
        `ledger`'s UUID and the scope's `partition`.

        `around` (an entity's name or a memory's id) keeps what is at most `hops` (0..10) edges away.
        """
        self._engine.check_open()
        scope = validation.required_scope(user_id, agent_id, run_id)[0]
        view = _view(scope, None, None, show_expired=False)
        centre = None if around is None else validation.entity_key(around, "around")
        reach = validation.count(hops, "hops", 0, 10)
        most = validation.count(limit, "limit", 1, MAX_LIST_LIMIT)
        return graph.build_graph(self._engine.ledger, view, centre, reach, most)

    # --- housekeeping -------------------------------------------------------------------------------------------

    def flush(self) -> dict[str, list[str]]:
        """Does and waits for background work; `{"pending": […]}` names the projections that still lack something."""
        self._engine.check_open()
        return {"pending": self._engine.flush()}

    def retry_failed(self) -> dict[str, Any]:
        """Does a language model's work now that failed, or that a process left behind which has died.

        Returns `{"done": n, "failed": {name of the error: n}, "pending": […]}`. Raises ConfigError without a model.
        """
        self._engine.check_open()
        return self._engine.retry_failed()

    def stats(self, *, user_id: Any = None, agent_id: Any = None, run_id: Any = None) -> dict[str, Any]:
        """Counts, the size of the ledger's file and of the embeddings in it (bytes), what is pending.

        `unguarded`: how many erased messages are not recognised when they come again, because the ledger's secret was
        lost.

        `usage` is what models took, a line for each operation and model: `{"operation", "model", "calls",
        "prompt_tokens", "completion_tokens", "cached_tokens", "seconds", "cost"}`; with a scope only what was done for
        that. The rest is about the whole ledger.
        """
        self._engine.check_open()
        return self._engine.stats(_within(user_id, agent_id, run_id))

    def verify(self, repair: bool = False) -> dict[str, Any]:  # noqa: FBT001, FBT002  (the contract's form)
        """Compares the projections with the ledger, by ids and versions, and derived columns with their rows.

        Returns `{"ok", "ledger", "damaged", "derived", "failed", "projections": {name: {"missing", "extra", "stale",
        "dead_letters", "unreadable", "unreachable"}}, "repaired"?}`. `damaged` are lines about a broken file and ids of
        memories whose words have changed without graphmem: a backup has them as they were; without one, `update` such a
        memory with the right words or `delete` it, then `repair()`. `failed` counts memories that could not be enriched
        when it was last tried. `repair=True` mends what it finds (damage it cannot) and reports what is left.
        """
        self._engine.check_open()
        mend = validation.flag(repair, "repair")
        found = self._engine.verify()
        if not mend or found["ok"]:
            return found
        self._engine.repair()
        return {**self._engine.verify(), "repaired": found}

    def repair(self) -> dict[str, Any]:
        """Does what is owed, delivers, mends; returns what `verify` says afterwards."""
        self._engine.check_open()
        self._engine.repair()
        return self._engine.verify()

    def rebuild(
        self, projection: Literal["vectors", "graph"] | None = None, progress: Progress | None = None
    ) -> dict[str, Any]:
        """Throws a projection (default: all) away and fills it again from the ledger, without calling a model.

        After a change of the embedding model it embeds everything anew. `progress(name, done, total)` is called
        after each batch, in sequence numbers. Returns what `verify` says afterwards.
        """
        self._engine.check_open()
        if projection is not None and (not isinstance(projection, str) or projection not in PROJECTION_NAMES):
            validation.refuse("projection", projection, "use 'vectors', 'graph', or leave it out for all")
        self._engine.rebuild(projection, _progress(progress))
        return self._engine.verify()

    def export(
        self,
        path_or_file: str | os.PathLike[str] | IO[Any],
        *,
        user_id: Any = None,
        agent_id: Any = None,
        run_id: Any = None,
        progress: Progress | None = None,
    ) -> types.ExportResult:
        """Writes a scope's memories, or without a scope everything, as JSON Lines that `import_` takes in again.

        With ids, times, history, links, entities and embeddings; of what was erased there is that it was. All of it is
        one moment's state. A path is a whole file in the end or none, readable by its owner only, and is refused where
        it is a link or leads to where the memory itself is kept; an open file (text or bytes) is written on and stays
        open. `progress("export", done, total)` is called after some memories
        each. Returns `{"memories", "erased", "aliases", "names", "path"}`. Raises StoreError when it cannot be written.
        """
        self._engine.check_open()
        scope, heard = _within(user_id, agent_id, run_id), _progress(progress)
        with jsonl.open_writer(path_or_file, self._engine.kept) as write:
            writer = jsonl.JsonlWriter(write)
            export_records(self._engine.ledger, scope, writer.write, heard)
            counts = writer.close()
        path = os.fspath(path_or_file) if isinstance(path_or_file, str | os.PathLike) else None
        return responses.export_result(counts, path)

    def import_(
        self,
        path_or_file: str | os.PathLike[str] | IO[Any] | Iterable[Mapping[str, Any]],
        *,
        restore: bool = False,
        progress: Progress | None = None,
    ) -> types.ImportResult:
        """Takes in what `export` has written: into an empty memory the same as it was, or beside what is there.

        A memory whose id or message is known stays as it is, so a broken off import is simply repeated. What was
        erased here stays out, unless `restore=True` brings it back, with its history. No model is asked for what
        comes along; embeddings of another model are made anew. A path is refused as a whole when it was cut off or
        altered; an open file is taken as it comes, and so are records themselves: an iterable of dicts, such as a
        converter from another program makes (`graphmem.transfer.format` says what has to be in them).
        `progress("import", done, total)` is called after some records each; where the total is not known before,
        what is done stands for it.

        Returns `{"added", "known", "erased", "refused", "tombstones", "named", "skipped_links", "unenriched",
        "pending"?}` (`graphmem.types.ImportResult` says what they count). Raises ValidationError naming
        the line, and saying how many memories from before it were added.
        """
        self._engine.check_open()
        back, heard = validation.flag(restore, "restore"), _progress(progress)
        if jsonl.is_record_iterable(path_or_file):
            return import_records(self._engine, path_or_file, restore=back, progress=heard)
        with jsonl.open_reader(path_or_file) as (records, total):
            return import_records(self._engine, records, restore=back, progress=heard, total=total, record_name="line")

    def reset(self) -> dict[str, list[str]]:
        """Removes everything this memory holds, and nothing else in its stores.

        `{"pending": […]}` names projections on servers that are out of reach and emptied when they can be reached.
        """
        self._engine.check_open()
        return {"pending": self._engine.reset()}

    def close(self) -> None:
        """Waits for background work and lets go of files and threads. Calling it again does nothing."""
        self._engine.close()

    def _shaped(self, result: R) -> R:
        if self._version != "v1.0":
            return result
        warnings.warn(
            'version "v1.0" returns bare lists; set version "v1.1" for {"results": …}', DeprecationWarning, stacklevel=3
        )
        if failed := cast("dict[str, Any]", result).get("failed"):
            told = ", ".join(f"{name}: {why}" for name, why in failed.items())
            warnings.warn(f"add: the language model's work failed ({told})", RuntimeWarning, stacklevel=3)
        return cast("R", types.ResultList(result))


def _fresh(outcomes: Iterable[Outcome], *also: str) -> list[MemoryRecord]:
    """The memories that are new by these outcomes."""
    return [one.record for one in outcomes if one.event in {"ADD", *also} and one.record is not None]


def _within(user_id: object, agent_id: object, run_id: object) -> Scope | None:
    """The scope that a by-id call is bound to, if it gives one."""
    return validation.scope(user_id, agent_id, run_id)[0]


def _progress(given: Progress | None) -> Progress | None:
    if given is not None and not callable(given):
        validation.refuse("progress", given, "must be a function of (name, done, total), or left out")
    return given


def _view(
    scope: Scope, kinds: object, as_of: object, *, show_expired: bool, default: Iterable[Kind] = ALL_KINDS
) -> View:
    return View(
        scope=scope,
        now=datetime.now(UTC),
        partition=scope.partition if scope.user_id is not None else None,
        kinds=validation.kinds(kinds) or frozenset(default),
        as_of=None if as_of is None else validation.moment(as_of, "as_of"),
        show_expired=validation.flag(show_expired, "show_expired"),
    )


def _two_names(a: object, b: object) -> tuple[str, str]:
    """Two different keys."""
    key, other = (normalise_key(validation.entity_key(name, argument)) for name, argument in ((a, "a"), (b, "b")))
    if key == other:
        validation.refuse("b", b, "is the same name as a; give two names that memories use")
    return key, other


def _said_first(record: MemoryRecord, events: Sequence[Event]) -> str:
    """The words as they were spoken: an update changes the memory, not what was said."""
    first = events[0] if events and events[0].memory_id == record.id else None
    return record.text if first is None or first.new_text is None else first.new_text


def _message(record: MemoryRecord, content: str) -> dict[str, Any]:
    return {
        "id": record.message_id,
        "memory_id": record.id,
        "role": record.role,
        "name": record.actor_id,
        "content": content,
        "at": iso(record.at),
    }
