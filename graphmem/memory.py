"""The public class `Memory`: each method checks its arguments, makes one call to the engine or the ledger, and returns
plain dicts.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import IO, TYPE_CHECKING, Any, Literal, NoReturn, Self, TypeVar, cast

from pydantic import BaseModel

from graphmem import administration, background, responses, types
from graphmem.boundary import filters as filtering
from graphmem.boundary import validation
from graphmem.commands.types import (
    UNSET,
    AddAlias,
    AddMessage,
    Command,
    DeleteItems,
    DeleteMemory,
    DeleteSettings,
    DropHeldMessages,
    EnqueueExtraction,
    EntityCommand,
    ErasureReport,
    ForgetMemory,
    HoldMessage,
    JudgeMemory,
    Outcome,
    OutcomeType,
    PinMemory,
    RemoveAlias,
    RenameEntity,
    UndoEvent,
    Unset,
    UpdateMemory,
)
from graphmem.commands.unit_of_work import NOT_FOUND
from graphmem.engine import PROJECTION_NAMES, Engine
from graphmem.errors import ConfigError, NotFoundError, PartialWrite, StoreError, ValidationError
from graphmem.events_bus import Subscription
from graphmem.folding import fold
from graphmem.given import Given
from graphmem.ingest.hooks import BeforeStore, apply_before_store, kept_question
from graphmem.ingest.messages import message_commands
from graphmem.jobs.worker import JobFailure
from graphmem.lifecycle.compression import HIGHEST_LEVEL, MOST_SUMMARISED
from graphmem.model import (
    ALL_KINDS,
    LISTED_KINDS,
    Judgement,
    Kind,
    MemoryEvent,
    MemoryRecord,
    Message,
    MinRelevance,
    Scope,
    Verdict,
    View,
)
from graphmem.queries.graph import build_graph, find_entity, list_entities
from graphmem.queries.history import events_of_memory, list_forgotten, read_lifecycle, trace_origin, words_of
from graphmem.queries.memories import count_by_day, find_memory, list_memories, read_profile, read_standing
from graphmem.retrieval.types import SearchOutcome, SearchQuery
from graphmem.settings import Settings
from graphmem.stores.ledger import events, graph_reads, jobs, judgements, memories
from graphmem.stores.ledger.jobs import JobKind
from graphmem.stores.projection import Progress
from graphmem.text import estimate_tokens, normalise_key
from graphmem.times import shown
from graphmem.tracing import operation as traced_operation
from graphmem.working import turns_before

if TYPE_CHECKING:
    import networkx as nx
    from sqlalchemy import Connection

    from graphmem.plugins import Embedder, LanguageModel, Reranker, VectorIndex
    from graphmem.retrieval.context import Size

R = TypeVar("R", types.AddResult, types.SearchResult, types.ListResult)
TOP_K, CONTEXT_MEMORIES, CONTEXT_CHARS = 10, 20, 2000
# A longer context considers a memory for each so many characters, or tokens, up to `scoring.AUTO_MAX`.
CHARS_PER_MEMORY, TOKENS_PER_MEMORY = 100, 25
DEFAULT_LIST_LIMIT, MAX_LIST_LIMIT = 100, 100_000
DELETE_BATCH = 500
MAX_REPEAT_SECONDS = 86_400
# Tokens of a profile (seed 002 §7.1).
PROFILE_TOKENS = 1000


class Memory:
    """A graph-augmented memory for agents: it stores conversations and finds them again, also over several hops.

    `Memory()` stores in $GRAPHMEM_HOME (default ~/.graphmem), `Memory("./folder")` in that folder, `Memory(":memory:")`
    only in this process. Needs no server, key or network. Safe to use from several threads, and from several processes
    on one folder.

    Scope: all calls except those by id and the administrative ones take at least one of `user_id`, `agent_id`,
    `run_id`, and see only memories that carry those values. Calls by id take them optionally: an id outside the scope
    reads like one that does not exist.

    Times without a UTC offset, and bare dates, are local to the setting `timezone`, by default to the time zone of this
    machine; the log says so once. Results have times in UTC. The days in a prompt block are those of the asker's zone.

    All methods raise only errors of `graphmem.errors`: ValidationError for an unusable argument, StoreError when the
    ledger fails, StoreUnavailable after `close()`. The attribute `limits` holds the largest input that one call
    accepts; `engine` is for the parts of graphmem that build on this class, and may change in any version.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | Mapping[str, Any] | BaseModel | None = None,
        *,
        settings: Settings | None = None,
        config: Mapping[str, Any] | BaseModel | None = None,
        vector_index: VectorIndex | None = None,
        embedder: Embedder | None = None,
        llm: LanguageModel | None = None,
        reranker: Reranker | None = None,
    ) -> None:
        """Opens or creates a memory in a folder, which is readable only by its owner.

        `path` is the folder. `config` is a configuration as `from_config` takes it and may stand in the place of
        `path`; beside it `path` counts as its `home`, and it names no ledger elsewhere. `settings` is for callers that
        build a `Settings` in code. `vector_index`, `embedder`, `llm` and `reranker` are objects of `graphmem.plugins`
        in place of what is configured; whoever made one closes it, after the memory. Raises ConfigError for an unusable
        configuration and for an object of the wrong shape, StoreError for an unusable folder.
        """
        given = Given(vector_index, embedder, llm, reranker)
        if isinstance(path, Mapping | BaseModel):
            if config is not None:
                raise ConfigError("config: two configurations are given; give one, by Memory.from_config(…)")
            path, config = None, path
        if config is not None:
            if settings is not None:
                raise ConfigError("config: settings are given as well; give config or settings, not both")
            settings = Settings.from_dict(config)
            if path is not None and (settings.ledger_url is not None or settings.history_db_path is not None):
                raise ConfigError(
                    "path: a folder was named, but history_db_path or ledger_url in config puts the ledger elsewhere; "
                    "leave out path, or that key"
                )
        in_memory = path is not None and validation.folder(path) == ":memory:"
        folder = None if path is None or in_memory else validation.home(path)
        if settings is None:
            settings = Settings.from_env(home=folder)
        if not isinstance(settings, Settings):
            raise ConfigError(
                f"settings: must be a Settings, not {type(settings).__name__}; open a dict with Memory.from_config, "
                "a file with Memory.from_file"
            )
        if folder is not None:
            settings = settings.model_copy(update={"home": folder})
        for warning in settings.without_effect(has_llm=llm is not None):
            warnings.warn(warning, stacklevel=2)
        self._version = settings.version
        self.limits = validation.InputLimits(**settings.limits.model_dump(), timezone=settings.zone)
        self.engine = Engine(settings, given, in_memory=in_memory)

    @classmethod
    def from_config(
        cls,
        config_dict: Mapping[str, Any] | BaseModel,
        *,
        vector_index: VectorIndex | None = None,
        embedder: Embedder | None = None,
        llm: LanguageModel | None = None,
        reranker: Reranker | None = None,
    ) -> Memory:
        """Opens a memory that a dict in mem0's shape or a `MemoryConfig` of mem0 configures.

        The keys are in docs/reference/configuration.md ("Configuration" in the documentation); the objects are those of
        the constructor. Raises ConfigError.
        """
        return cls(
            settings=Settings.from_dict(config_dict),
            vector_index=vector_index,
            embedder=embedder,
            llm=llm,
            reranker=reranker,
        )

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Memory:
        """Opens a memory that a TOML, YAML or JSON file configures, with the keys of `from_config`.

        Raises ConfigError.
        """
        return cls(settings=Settings.from_file(validation.folder(path)))

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a Memory cannot be pickled or copied, for it has files and threads; open one in each process, and share "
            "one between threads"
        )

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
        repeat_window: float | None = None,
        importance: float | None = None,
    ) -> types.AddResult:
        """Stores messages as memories and, with a language model, the facts drawn from them.

        `messages`: a string, one `{"role", "content", "name"?, "timestamp"?, "id"?, "metadata"?}`, or a list of them;
        other keys are ignored. A message's own metadata overrides the call's. `timestamp` is the time of the messages
        (default: now): a datetime, ISO 8601 text or epoch seconds; its UTC offset is kept. `infer`: draw facts
        (default: if a language model is configured). `prompt` replaces the configured instructions for drawing facts.
        `memory_type="procedural_memory"` draws one summary of a procedure instead. A message with neither id nor time
        is always new; with a `repeat_window` (seconds) a call that only repeats the words of that time stores nothing.
        `importance` (0 to 1) is that of the new memories for the lifecycle, which computes it otherwise.

        The words are durable when this returns. `wait=False` leaves all else to the background, and models always
        describe attachments there; `flush()` waits for it. `skipped` names messages without text.

        Returns `{"results": [{"id", "memory", "event", "kind", …}], "relations": […], "pending"?: […]}`. Without a
        model: one result for each message with text (a caption or transcript of an attachment is some), in order,
        except those of the roles "system" and "developer", which are not stored; `event` is ADD, or NONE for a message
        already stored. With a model: one result for each change, which is ADD (a new fact), UPDATE (with
        "previous_memory"), DELETE (a retired memory, with "valid_to", "reason", "replaced_by") or NONE (already
        stated), and `usage` with the model's calls, tokens and cost, the parts into which long input was split
        (`chunks`) and the `repeated_decisions`, as `graphmem.types.UsageDict` documents them; `sources` has the ids of
        the messages stored, also if no fact was found in them. If the model fails, the words are kept, `pending` names
        "facts", `failed` the error and `causes` its cause.
        With the setting `extract: "session"` the facts are drawn when the session ends, and `sources` is all there is.

        Raises ValidationError (nothing is stored), ConfigError for `infer=True` without a model, and with `strict=True`
        PartialWrite when a projection or the facts are pending (not with `wait=False`).
        """
        self.engine.check_open()
        uses_llm = self._uses_llm(infer)
        if prompt is not None:
            validation.content(prompt, "prompt")
        wait, strict = validation.flag(wait, "wait"), validation.flag(strict, "strict")
        scope, _ = validation.required_scope(user_id, agent_id, run_id)
        parsed = validation.parse_messages(messages, timestamp=timestamp, now=datetime.now(UTC), limits=self.limits)
        window = (
            None
            if repeat_window is None
            else timedelta(seconds=validation.seconds(repeat_window, "repeat_window", MAX_REPEAT_SECONDS))
        )
        given = None if importance is None else validation.share(importance, "importance")
        commands = message_commands(
            parsed,
            scope,
            self.engine.ledger.digests,
            metadata=validation.metadata(metadata, limits=self.limits, copies=len(parsed)),
            memory_type=validation.memory_type(memory_type),
            expires_at=validation.expiration(expiration_date, zone=self.limits.timezone),
            before_store=self.engine.settings.before_store,
            describer=self.engine.describer,
            repeat_window=window,
            importance=given,
        )
        extraction = self._extraction(scope, prompt, memory_type, given) if uses_llm else None
        with traced_operation("upsert_memory" if uses_llm else "create_memory") as span:
            if extraction is None:
                result = self._add_verbatim(commands, scope, wait=wait)
            else:
                result = self._add_with_extraction(commands, extraction, wait=wait)
            span.set_attributes(**{"gen_ai.memory.record.count": len(result["results"])})
        if any(one.later is not None for one in commands):
            background.schedule_jobs(self.engine)
        pending = result.get("pending", [])
        if pending and strict and wait:
            raise PartialWrite(f"stored, but not yet in {' and '.join(pending)}; repair() delivers it", result)
        return self._shaped(result)

    def _uses_llm(self, infer: object) -> bool:
        """Returns True if a language model is to draw facts, as `infer` says; by default if one is configured."""
        if infer is None:
            return self.engine.llm is not None
        is_wanted = validation.flag(infer, "infer")
        if is_wanted and self.engine.llm is None:
            raise ConfigError(
                "infer: is true, which needs a language model, and none is configured: set llm "
                "(docs/reference/configuration.md, 'Configuration' in the documentation), or set infer to false, or "
                "leave it out, to remember the words as spoken"
            )
        return is_wanted

    def _extraction(
        self, scope: Scope, prompt: str | None, memory_type: str | None, importance: float | None
    ) -> EnqueueExtraction:
        is_procedure = memory_type == validation.PROCEDURAL_MEMORY
        return EnqueueExtraction(
            scope,
            prompt,
            procedure=is_procedure,
            summarise=self.engine.settings.summary_messages > 0 and not is_procedure,
            importance=importance,
            at_session_end=self.engine.extracts_at_session_end and not is_procedure,
        )

    def _add_verbatim(self, added: Sequence[AddMessage], scope: Scope, *, wait: bool) -> types.AddResult:
        """Stores the messages as episodes, without a language model."""
        commands, held = _with_words(added)
        outcomes = self.engine.commit([*held, *commands])
        known, outcomes = _known(held, outcomes), outcomes[len(held) :]
        new_records = _new_records(outcomes)
        pending = self.engine.enrich_and_deliver(new_records, wait=wait) if new_records else []
        result = types.AddResult(
            results=[
                responses.add_result_item(command, outcome) for command, outcome in _in_order(commands, outcomes, known)
            ],
            relations=self._relations_stated_by(new_records, scope) if wait else [],
        )
        if pending:
            result["pending"] = pending
        return _with_skipped(result, added, known)

    def _add_with_extraction(
        self, added: Sequence[AddMessage], extraction: EnqueueExtraction, *, wait: bool
    ) -> types.AddResult:
        """Stores the messages as source messages, and the facts that a language model draws from them."""
        sources = []
        for one in added:
            later = one.later
            if later is not None and not extraction.procedure:  # facts are drawn after it; no procedure is drawn twice
                later = replace(later, extraction=extraction)
            sources.append(replace(one, source_only=True, later=later))
        commands, held = _with_words(sources)
        *outcomes, job_outcome = self.engine.commit([*held, *commands, extraction])
        known, outcomes = _known(held, outcomes), outcomes[len(held) :]
        duplicates = [
            responses.add_result_item(command, outcome)
            for command, outcome in _in_order(commands, outcomes, known)
            if outcome.event is OutcomeType.NONE
        ]
        new_records = _new_records(outcomes)
        if not new_records:
            return _with_skipped(types.AddResult(results=duplicates, relations=[]), added, known)
        if extraction.at_session_end:
            result = types.AddResult(results=duplicates, relations=[], sources=[record.id for record in new_records])
            if pending := self.engine.enrich_and_deliver(new_records, wait=wait):
                result["pending"] = pending
            return _with_skipped(result, added, known)
        kind = JobKind.PROCEDURE if extraction.procedure else JobKind.FACTS
        job_result, pending = self.engine.run_job(int(job_outcome.id), new_records, kind, wait=wait)
        result = types.AddResult(results=duplicates, relations=[], sources=[record.id for record in new_records])
        if isinstance(job_result, JobFailure):
            result["failed"] = {kind.value: job_result.error}
            if job_result.cause is not None:
                result["causes"] = {kind.value: job_result.cause}
        else:
            result["results"] += responses.fact_result_items(job_result.outcomes)
            result["relations"] = self._relations_stated_by(
                _new_records(job_result.outcomes, OutcomeType.UPDATE), extraction.scope
            )
            result["usage"] = responses.usage(job_result)
            if unusable := job_result.unusable:
                result["failed"] = {"answer": ", ".join(f"{reason}: {count}" for reason, count in unusable.items())}
        if pending:
            result["pending"] = pending
        return _with_skipped(result, added, known)

    def _relations_stated_by(self, records: Sequence[MemoryRecord], scope: Scope) -> list[types.RelationDict]:
        view = View(scope, datetime.now(UTC), scope.partition, show_expired=True)
        try:
            with self.engine.ledger.read_once() as connection:  # a name may be newer than its relation
                return responses.relations(graph_reads.relations_stated_by(connection, view, [r.id for r in records]))
        except StoreError:  # closed meanwhile: the write succeeded, and the call reports that
            return []

    def update(
        self,
        memory_id: str,
        data: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        *,
        text: str | None = None,
        expiration_date: datetime | str | float | Unset | None = UNSET,
        replace_metadata: bool = False,
        user_id: Any = None,
        agent_id: Any = None,
        run_id: Any = None,
    ) -> types.MemoryDict:
        """Changes a memory in place: its text, metadata or expiration date. The history keeps the former text.

        `data` (or `text`) is the new text. `metadata` sets its keys, and the others stay; with `replace_metadata` it
        replaces the former metadata as a whole. `expiration_date=None` removes the expiration. Search no longer finds
        the former text. Returns the memory after the change, with "message" and, if a projection lags, "pending".
        Raises NotFoundError, and ValidationError when there is nothing to change.
        """
        change = {
            "data": data,
            "text": text,
            "metadata": metadata,
            "expiration_date": expiration_date,
            "replace_metadata": replace_metadata,
        }
        return update_together(
            self.engine, self.limits, [(memory_id, change)], _optional_scope(user_id, agent_id, run_id)
        )[0]

    def undo(self, event_id: str, *, user_id: Any = None, agent_id: Any = None, run_id: Any = None) -> types.MemoryDict:
        """Reverts one update, retirement, forgetting or promotion: the fields that the event changed return to their
        former values. Of a memory that was made of others it forgets that one, and shows those again.

        `event_id` comes from `history` or `explain`. Changes by other events stay (metadata, for example, after an
        update of the text), and the history keeps both events. Returns the memory after the change, with "message".

        Raises NotFoundError for an unknown event; ValidationError for an event of another kind, or one whose fields
        (text, metadata, expiration_date, retirement, layer) have neither the values it set nor those before it.
        """
        self.engine.check_open()
        checked_id, scope = validation.memory_id(event_id, "event_id"), _optional_scope(user_id, agent_id, run_id)
        outcome = self.engine.commit([UndoEvent(checked_id)], scope)[0]
        pending = self.engine.enrich_and_deliver([outcome.required_record], wait=True)
        result = responses.memory(outcome.required_record)
        result["message"] = "Taken back."
        if pending:
            result["pending"] = pending
        return result

    def forget(
        self,
        memory_id: str,
        *,
        reason: str | None = None,
        user_id: Any = None,
        agent_id: Any = None,
        run_id: Any = None,
    ) -> types.MemoryDict:
        """Hides a memory from searches, lists and blocks; nothing of it is erased, and `undo` shows it again.

        A fact's source messages are hidden with it, unless another fact shows them. `search` and `get_all` find it
        with `show_forgotten`, and with an `as_of` before. If it is said again, it comes back. `delete` is the call for
        words that have to be gone. `reason` is kept in the history. Returns the memory, with "message", "event_id"
        for `undo` and, if a projection lags, "pending". Raises NotFoundError.
        """
        why = "asked" if reason is None else validation.stored_name(reason, "reason")
        command = ForgetMemory(validation.memory_id(memory_id), why)
        return self._change_state(command, _optional_scope(user_id, agent_id, run_id), "Memory forgotten.")

    def pin(self, memory_id: str, *, user_id: Any = None, agent_id: Any = None, run_id: Any = None) -> types.MemoryDict:
        """Pins a memory: no cycle of the lifecycle forgets or merges it. Returns it, as `forget` does."""
        command = PinMemory(validation.memory_id(memory_id), pinned=True)
        return self._change_state(command, _optional_scope(user_id, agent_id, run_id), "Memory pinned.")

    def unpin(
        self, memory_id: str, *, user_id: Any = None, agent_id: Any = None, run_id: Any = None
    ) -> types.MemoryDict:
        """Takes back `pin`. Returns the memory, as `forget` does."""
        command = PinMemory(validation.memory_id(memory_id), pinned=False)
        return self._change_state(command, _optional_scope(user_id, agent_id, run_id), "Memory unpinned.")

    def _change_state(self, command: Command, scope: Scope | None, message: str) -> types.MemoryDict:
        self.engine.check_open()
        (outcome,) = self.engine.commit([command], scope)
        record = outcome.required_record
        result = responses.memory(record)
        is_changed = outcome.event is not OutcomeType.NONE
        result["message"] = message if is_changed else f"Nothing to change: it is {outcome.reason}."
        if outcome.event_id is not None:
            result["event_id"] = outcome.event_id
        if is_changed and (pending := self.engine.deliver([record.partition])):
            result["pending"] = pending
        return result

    def tend(
        self,
        *,
        user_id: Any = None,
        agent_id: Any = None,
        run_id: Any = None,
        dry_run: bool = False,
        now: datetime | str | float | None = None,
        force: bool = False,
    ) -> types.CycleDict:
        """Runs a cycle of the lifecycle over a user's memories: rates new ones, moves important ones to the long-term
        layer, and forgets those that have faded. `dry_run` only says what it would do, also where the lifecycle is off.

        The cycle runs over the whole partition of the scope, and must be named by it: a `user_id`, or what stands for
        it. `now` is the moment for which it decides and, if it is past, as of which it forgets; by default the present.
        One of a time to come forgets now what will have faded by then, and erases nothing before its time. A cycle that
        would hide more than the settings' `brake_share` does nothing but say so, unless `force`; a dry run lists all
        the same what it would do with `force`.

        With a language model like memories become one, many events a summary, and what the long-term layer has no room
        for an abstraction; the call waits for it.

        Returns `{"cycle", "processed", "decayed", "forgotten", "merged", "promoted", "summarized", "abstracted",
        "saved_bytes", "skipped", "purged"}`: the id for `undo_cycle`, None for a dry run, and numbers of memories.
        `merged` ones are forgotten because another one stands for them, `summarized` and `abstracted` are new ones;
        `purged` ones had been forgotten for longer than `purge_after_days`, and are erased. `skipped` says, by step,
        what was left out and why ("changed": memories that were changed or found meanwhile). With `dry_run` there are
        "changes": `[{"id", "memory", "change", "reason"}]`, and with the brake "brake".
        Raises ConfigError where the lifecycle is off (`lifecycle.enabled`).
        """
        self.engine.check_open()
        is_dry, is_forced = validation.flag(dry_run, "dry_run"), validation.flag(force, "force")
        if not is_dry and not self.engine.settings.lifecycle.enabled:
            raise ConfigError(
                "lifecycle.enabled is false, so nothing is forgotten by itself; set it to true, or make a dry run to "
                "see what would be"
            )
        partition = self._whole_partition(user_id, agent_id, run_id)
        moment = None if now is None else validation.moment(now, "now", self.limits.timezone)
        self.engine.check_embedder()
        result = administration.run_cycle(self.engine, partition, moment, dry_run=is_dry, force=is_forced)
        if result.id is not None:
            self.engine.deliver([partition])
        rows = [*(one.row for one in result.plan.changed), *result.purged]
        words = words_of(self.engine.ledger, rows) if is_dry else {}
        return responses.cycle(result, words)

    def abstract(
        self,
        ids: Sequence[str] | None = None,
        *,
        level: int = 1,
        user_id: Any = None,
        agent_id: Any = None,
        run_id: Any = None,
    ) -> types.AbstractionResult:
        """Stores what memories have in common, in one sentence: without times (`level` 1), by the kind of thing (2), or
        as a habit (3). The memories stay.

        With `ids` one abstraction is made of these, which belong to one user; else one of each group of like memories
        of the scope, at least three, that has none yet. The scope is that of `tend`. Without a language model, level 1
        cuts the times out of the most central memory, and levels 2 and 3 are skipped.

        Returns `{"cycle", "results", "skipped"}`: the id for `undo_cycle`, the new memories, each with the ids that it
        "abstracts", and by step why something was left out. Raises NotFoundError for an unknown id.
        """
        self.engine.check_open()
        checked_level = validation.count(level, "level", 1, HIGHEST_LEVEL)
        uids = None if ids is None else validation.memory_ids(ids, "ids", MOST_SUMMARISED)
        if uids is None:
            partition = self._whole_partition(user_id, agent_id, run_id)
        else:
            scope = _optional_scope(user_id, agent_id, run_id)
            found = {uid: find_memory(self.engine.ledger, uid, scope) for uid in uids}
            for uid in (uid for uid, record in found.items() if record is None):
                raise NotFoundError(NOT_FOUND.format(id=uid))
            partitions = {record.partition for record in found.values() if record is not None}
            if len(partitions) > 1:
                raise ValidationError("ids: are of memories of several users; give those of one")
            (partition,) = partitions
        self.engine.check_embedder()
        cycle, outcomes, skipped = background.ready_cycle(self.engine, None).abstract(
            partition, uids, checked_level, datetime.now(UTC)
        )
        if outcomes:
            self.engine.enrich_and_deliver([outcome.required_record for outcome in outcomes], wait=True)
        return responses.abstractions(cycle, outcomes, skipped)

    def undo_cycle(
        self, cycle: str, *, user_id: Any = None, agent_id: Any = None, run_id: Any = None
    ) -> dict[str, Any]:
        """Takes back what a cycle did, by the id that `tend` returned, and cancels what it left for a language model.

        Returns `{"undone", "skipped", "erased"}`: the ids of the memories that are as before, the number of changes
        that stay because of later ones, and the number of memories that are erased, by it or since, and cannot be
        brought back.
        Raises NotFoundError for a cycle that changed nothing in this scope, ValidationError for one of which nothing
        can be taken back any more; its text says why.
        """
        self.engine.check_open()
        uid, scope = validation.memory_id(cycle, "cycle"), _optional_scope(user_id, agent_id, run_id)
        undone: list[Outcome] = []
        with self.engine.ledger.read() as connection:
            found = events.events_of_cycle(connection, uid, scope)
        with self.engine.ledger.write() as connection:
            cancelled = jobs.cancel_compositions(connection, uid, scope)
        if not found and not cancelled:
            raise NotFoundError(
                f"no cycle {uid!r:.80} that changed anything in this scope: it found nothing to do, or all that it "
                "forgot has been purged, or it is unknown here; lifecycle_status lists those that did"
            )
        standing = [event.id for event in found if not event.is_erased]
        for start in range(0, len(standing), DELETE_BATCH):
            batch = [UndoEvent(event, is_lenient=True) for event in standing[start : start + DELETE_BATCH]]
            undone += self.engine.commit(batch, scope)
        done = [outcome for outcome in undone if outcome.event is not OutcomeType.NONE]
        if not done and not cancelled:
            raise ValidationError(f"cycle: {_why_nothing_is_taken_back(undone)}")
        self.engine.deliver(sorted({outcome.required_record.partition for outcome in done}))
        return {
            "undone": list(dict.fromkeys(outcome.id for outcome in done)),
            "skipped": len(undone) - len(done),
            "erased": len({event.memory for event in found if event.is_erased}),
        }

    def lifecycle_status(
        self, *, user_id: Any = None, agent_id: Any = None, run_id: Any = None, limit: int = 50
    ) -> types.LifecycleDict:
        """Tells how the lifecycle of a scope is: the numbers of memories, and its last `limit` cycles, newest first.

        Returns `{"enabled", "layers": {"short_term", "long_term"}, "pinned", "forgotten", "cycled_at",
        "cycle_changed", "held", "next_cycle", "lifecycle_since", "purge_after_days", "cycles"}`. The layers count
        memories that take part in the lifecycle and are in lists, `pinned` those of them that no cycle forgets,
        `forgotten` what `pending_deletion` lists. `cycled_at` is the time of the last cycle over the user (None: there
        was none), `cycle_changed` how many memories that one forgot, promoted, made of others and erased. If the brake
        held it, a `held` of `{"forgotten", "memories", "reason"}` says what it would have forgotten and what to do,
        until one runs. Both are None for a part of a user's memories. `next_cycle` is the time at which this program
        runs one by itself, if any memory may fade or is to be erased (None: it runs none), `lifecycle_since` that
        before which nothing fades, `purge_after_days` the setting. `cycles` has those that changed memories of the
        scope: `{"cycle", "at", "forgotten", "merged", "promoted", "undone"}`, as `graphmem.types.PastCycleDict`
        documents them.
        """
        self.engine.check_open()
        scope = validation.required_scope(user_id, agent_id, run_id)[0]
        most = validation.count(limit, "limit", 1, MAX_LIST_LIMIT)
        settings, now = self.engine.settings, datetime.now(UTC)
        lifecycle, nights = settings.lifecycle, settings.lifecycle.nights(settings.zone)
        state = read_lifecycle(self.engine.ledger, scope, now, documents=lifecycle.documents, limit=most)
        return responses.lifecycle(state, lifecycle, None if nights is None else nights.next(now))

    def pending_deletion(
        self, *, user_id: Any = None, agent_id: Any = None, run_id: Any = None, limit: int = 100
    ) -> types.ForgottenResult:
        """Lists the memories of a scope that are forgotten and not erased, the last forgotten first.

        Returns `{"results", "total"}`, each memory with the "reason" for which it was forgotten and the "event_id" by
        which `undo` shows it again. `purge` erases them.
        """
        self.engine.check_open()
        scope = validation.required_scope(user_id, agent_id, run_id)[0]
        most = validation.count(limit, "limit", 1, MAX_LIST_LIMIT)
        return responses.forgotten(list_forgotten(self.engine.ledger, scope, datetime.now(UTC), most))

    def purge(
        self,
        *,
        user_id: Any = None,
        agent_id: Any = None,
        run_id: Any = None,
        forgotten_before: datetime | str | float | None = None,
        confirm: bool = False,
    ) -> types.Receipt:
        """Erases the memories of a scope that are forgotten, all or those forgotten before a time.

        It saves room: what still shows their words stays, unlike with `delete`, such as the memory that one was merged
        into, or a summary. That cannot be taken back: `confirm=True` says that it is meant. Returns a receipt as
        `delete` does.
        """
        self.engine.check_open()
        scope = validation.required_scope(user_id, agent_id, run_id)[0]
        before = datetime.now(UTC)
        if forgotten_before is not None:
            before = validation.moment(forgotten_before, "forgotten_before", self.limits.timezone)
        if not validation.flag(confirm, "confirm"):
            raise ValidationError(
                "confirm: is false, and what is erased cannot be brought back; look at pending_deletion, then set it "
                "to true"
            )
        return self._delete_in_batches(
            lambda connection: list(memories.each_forgotten(connection, scope, before, DELETE_BATCH)),
            ErasureReport(),
            forgotten_before=before,
        )

    def _delete_in_batches(
        self,
        read_batch: Callable[[Connection], list[MemoryRecord]],
        erased: ErasureReport,
        run_id: str | None = None,
        forgotten_before: datetime | None = None,
    ) -> types.Receipt:
        """Erases the memories that `read_batch` returns until it returns none, and returns a receipt.

        `run_id` and `forgotten_before` are those of `DeleteMemory`. `erased` was erased before and counts in the
        receipt.
        """
        partitions: set[str] = set()
        while True:
            with self.engine.ledger.read() as connection:
                batch = read_batch(connection)
            if not batch:
                break
            partitions |= {record.partition for record in batch}
            commands = [
                DeleteMemory(record.id, missing_ok=True, run_id=run_id, forgotten_before=forgotten_before)
                for record in batch
            ]
            erased = sum((outcome.erased for outcome in self.engine.commit(commands)), erased)
        message = f"{len(erased.ids)} memories deleted successfully!"
        return responses.receipt(erased, self.engine.deliver(sorted(partitions)), message)

    def _whole_partition(self, user_id: Any, agent_id: Any, run_id: Any) -> str:
        scope = validation.required_scope(user_id, agent_id, run_id)[0]
        if len(scope.parts) > 1:
            raise ValidationError(
                "agent_id and run_id: a cycle runs over all memories of a user together; give the user_id alone"
            )
        return scope.partition

    def delete(self, memory_id: str, *, user_id: Any = None, agent_id: Any = None, run_id: Any = None) -> types.Receipt:
        """Erases a memory from all stores: words, vectors, nodes and edges. The history keeps its events without the
        words.

        Whatever else has the words goes with it: memories that were merged into it, the source messages of a fact, and
        what was made of these: summaries, merged texts and abstractions, which are made again of the rest. A memory
        that only stands for it has words of its own, and stays.

        Returns a receipt: `{"message", "deleted", "erased": {"ledger", "vectors", "graph", "derived"}, "pending"?}`. A
        projection in `pending` cannot be reached and has 0 in `erased`; it erases its part as soon as it can. Raises
        NotFoundError.
        """
        scope = _optional_scope(user_id, agent_id, run_id)
        return delete_together(self.engine, [memory_id], scope, "Memory deleted successfully!")

    def delete_all(self, *, user_id: Any = None, agent_id: Any = None, run_id: Any = None) -> types.Receipt:
        """Erases all memories and items of a scope, of every kind and state, in batches; a call that was interrupted
        can be repeated. With nothing but a `user_id` it erases this user's settings of the service as well.

        With a `run_id`, a fact that was also said in other runs stays in those. Returns a receipt as `delete` does.
        """
        self.engine.check_open()
        scope = validation.required_scope(user_id, agent_id, run_id)[0]
        erasing: list[Command] = [DeleteItems(scope), DropHeldMessages(scope)]
        if scope.user_id is not None and len(scope.parts) == 1:
            erasing.append(DeleteSettings(scope.user_id))
        erased = sum((outcome.erased for outcome in self.engine.commit(erasing)), ErasureReport())
        return self._delete_in_batches(
            lambda connection: memories.records_in_scope(connection, scope, DELETE_BATCH), erased, scope.run_id
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
        min_relevance: MinRelevance = None,
        kinds: str | Sequence[str] | None = None,
        as_of: datetime | str | float | None = None,
        reference_date: datetime | str | float | None = None,
        show_expired: bool = False,
        show_retired: bool = False,
        show_forgotten: bool = False,
        explain: bool = False,
        rerank: bool = False,
    ) -> types.SearchResult:
        """Returns the memories that answer a question best, also over several hops.

        `top_k` (`limit` is the same): 1 to 1000 hits, default 10; "auto" gives all above the default relevance of
        `context`, at most 50. `min_relevance`: the lowest relevance of a hit, 0 to 1, or "default" for that of
        `context`; by default all hits are returned. `filters`: conditions on metadata and on `at` (when it was said),
        `created_at`, `updated_at`, `kind`, `memory_type`, `actor_id`, `role`, `tags`, `hash`. `threshold`: the lowest
        cosine similarity (-1 to 1) of a hit, or of the memory at which its path starts. `kinds`: any of "episode",
        "fact", "summary". `as_of`: search the memories valid at that time (a bare date is its first moment).
        `reference_date`: the moment from which "last week" and the like are counted (default: `as_of`, else now), in
        its own time zone, else in the configured `timezone`, else in UTC. `show_expired` finds expired memories as
        well, `show_retired` those that are no longer true (a hit's "valid_to" says since when) and the source messages
        hidden with them, `show_forgotten` those that were forgotten.

        Returns `{"results": [{"id", "memory", "score", "similarity", "relevance", "sources"?, …}], "relations": […],
        "degraded"?: […]}`. `score` orders the hits of one search; `relevance` is the probability that a hit helps to
        answer, and can be compared between searches. `sources` are the source messages of a fact that were found as
        well; they are hits of their own only if `kinds` is given. `degraded` names what the search had to do without:
        "vectors" (the embedder or the vector index), "graph" or "reranker". `explain=True` adds `{"arms",
        "path", "why", "shares", "relevance"}` to each hit ("shares" are what each feature adds to its score,
        "relevance" what spoke for and against it), and to a long one "part", the matching sentences. `rerank=True` lets
        the reranker order the best memories (50, or its `candidates`); if it fails, their order stays. Raises
        ConfigError for `rerank=True` without a reranker.
        """
        self.engine.check_open()
        search_query = self._search_query(
            query,
            (user_id, agent_id, run_id),
            (top_k, limit),
            filters,
            threshold=threshold,
            min_relevance=min_relevance,
            kinds=kinds,
            as_of=as_of,
            reference_date=reference_date,
            show_expired=show_expired,
            show_retired=show_retired,
            show_forgotten=show_forgotten,
            rerank=rerank,
        )
        search_query = replace(search_query, explain=validation.flag(explain, "explain"))
        from graphmem.retrieval.pipeline import search  # noqa: PLC0415  (what only a search needs)

        with traced_operation("search_memory") as span:
            outcome = search(search_query, self.engine.search_deps)
            span.set_attributes(**{"gen_ai.memory.record.count": len(outcome.hits)})
        if not search_query.explain:
            self.engine.note_found((hit.record for hit in outcome.hits), search_query.view)
        return self._shaped(responses.search_result(outcome))

    def why_not(
        self,
        query: str,
        memory_id: str,
        *,
        user_id: Any = None,
        agent_id: Any = None,
        run_id: Any = None,
        top_k: int | str | None = None,
        limit: int | None = None,
        filters: Mapping[str, Any] | None = None,
        threshold: float | None = None,
        min_relevance: MinRelevance = None,
        kinds: str | Sequence[str] | None = None,
        as_of: datetime | str | float | None = None,
        reference_date: datetime | str | float | None = None,
        show_expired: bool = False,
        show_retired: bool = False,
        show_forgotten: bool = False,
        rerank: bool = False,
    ) -> types.AbsenceDict:
        """Tells why `search` with the same arguments does not find a memory, or at which place it does.

        Returns `{"id", "step", "why", "details", "degraded"?}`: `step` is where the memory falls out, "not_visible"
        (retired, forgotten, expired, of another time, kind or scope), "filtered" (`details` names the conditions),
        "not_found" (no arm gives it to the search: its `ranks` in each, and their `limits`), "threshold", "grouped"
        (it stands under the hit of a fact), "relevance", "reranked" (the reranker moved it out), or "rank" (its place,
        its score with the `shares` of each feature, and the last hit's score); "hit" if it is found. `why` says it in a
        sentence. Raises NotFoundError if the user, or whoever the ids name, has no memory of this id.
        """
        self.engine.check_open()
        uid = validation.memory_id(memory_id)
        search_query = self._search_query(
            query,
            (user_id, agent_id, run_id),
            (top_k, limit),
            filters,
            threshold=threshold,
            min_relevance=min_relevance,
            kinds=kinds,
            as_of=as_of,
            reference_date=reference_date,
            show_expired=show_expired,
            show_retired=show_retired,
            show_forgotten=show_forgotten,
            rerank=rerank,
        )
        scope = search_query.view.scope
        record = find_memory(self.engine.ledger, uid, Scope(scope.user_id) if scope.user_id is not None else scope)
        if record is None:
            raise NotFoundError(NOT_FOUND.format(id=uid))
        from graphmem.retrieval import explanation  # noqa: PLC0415  (what only a search needs)
        from graphmem.retrieval.pipeline import search  # noqa: PLC0415

        _, conditions = validation.required_scope(user_id, agent_id, run_id, filters=filters)
        refusing = filtering.refusing_conditions(conditions, record, self.limits)
        told = explanation.hidden(record, search_query.view) or explanation.filtered(refusing)
        degraded: tuple[str, ...] = ()
        if told is None:
            outcome = search(replace(search_query, traced=uid), self.engine.search_deps)
            degraded = outcome.degraded
            told = explanation.left_out(
                outcome.trace or explanation.Trace(), search_query.limit, search_query.threshold
            )
        return responses.absence(uid, told, degraded)

    def judge(
        self,
        query: str,
        memory_id: str,
        verdict: str | None,
        *,
        user_id: Any = None,
        agent_id: Any = None,
        run_id: Any = None,
    ) -> types.JudgementDict:
        """Keeps what somebody says of a memory as an answer to a question: an example for `graphmem bench mine`.

        `verdict`: "right" (`search` found it, and it answers), "wrong" (found, and it does not answer), "missing" (it
        answers, and was not found); None takes back what was said. Of the same question in the same scope and the same
        memory the last verdict counts. Searches do not change by it. The question, of at most 4,000 characters, is kept
        as `before_store` returns it, until the memory is erased; an export has it. Raises NotFoundError if the scope
        has no memory of this id.
        """
        self.engine.check_open()
        scope, _ = validation.required_scope(user_id, agent_id, run_id)
        uid = validation.memory_id(memory_id)
        taking_back = "; None takes back what was said"
        said = None if verdict is None else Verdict(validation.one_of(verdict, "verdict", Verdict, taking_back))
        now = datetime.now(UTC)
        asked = kept_question(self.engine.settings.before_store, query, now)
        if asked is None:
            raise ValidationError("query: before_store refuses it; nothing is kept")
        judged = Judgement(scope, asked, uid, said, now)
        self.engine.commit([JudgeMemory(judged)], scope)
        return responses.judgement(judged)

    def judgements(
        self,
        *,
        user_id: Any = None,
        agent_id: Any = None,
        run_id: Any = None,
        query: str | None = None,
        limit: int = DEFAULT_LIST_LIMIT,
        offset: int = 0,
    ) -> types.JudgementList:
        """Lists what was said by `judge`, of one question or (None) of all, the latest first.

        The question is looked up as `judge` keeps it: as `before_store` returns it.

        Returns `{"results": [{"query", "memory_id", "verdict", "judged_at", "user_id", "agent_id", "run_id"}, …],
        "total"}`.
        """
        self.engine.check_open()
        scope, _ = validation.required_scope(user_id, agent_id, run_id)
        checked_limit, checked_offset = _checked_page(limit, offset)
        asked = None if query is None else kept_question(self.engine.settings.before_store, query, datetime.now(UTC))
        if asked is None and query is not None:
            return {"results": [], "total": 0}
        with self.engine.ledger.read() as connection:
            found = judgements.find(connection, scope, asked, checked_limit, checked_offset)
            total = judgements.count(connection, scope, asked)
            return {"results": list(map(responses.judgement, found)), "total": total}

    def _search_query(
        self,
        query: str,
        ids: tuple[Any, Any, Any],
        numbers: tuple[int | str | None, int | None],
        filters: Mapping[str, Any] | None,
        *,
        threshold: float | None,
        min_relevance: MinRelevance,
        kinds: str | Sequence[str] | None,
        as_of: datetime | str | float | None,
        reference_date: datetime | str | float | None,
        show_expired: bool,
        show_retired: bool,
        show_forgotten: bool,
        rerank: bool,
    ) -> SearchQuery:
        """Checks the arguments of a search; `ids` are those of user, agent and run, `numbers` `top_k` and `limit`."""
        if validation.flag(rerank, "rerank") and not self.engine.has_reranker:
            raise ConfigError(
                "rerank=True needs a reranker, and none is configured: set reranker (docs/reference/configuration.md, "
                "'Configuration' in the documentation), give one by Memory(reranker=…), or leave rerank out"
            )
        scope, conditions = validation.required_scope(*ids, filters=filters)
        top_k, limit = numbers
        requested = validation.merge_aliases(top_k, limit, ("top_k", "limit"))
        most: int | None = TOP_K
        if requested is not None:
            most = validation.top_k(requested, "limit" if top_k is None else "top_k", self.limits.max_top_k)
        least = validation.min_relevance(min_relevance)
        view = self._view(
            scope,
            kinds,
            as_of,
            show_expired=show_expired,
            show_retired=show_retired,
            show_forgotten=show_forgotten,
        )
        return SearchQuery(
            text=validation.query(query),
            view=view,
            limit=most,
            filter=filtering.parse(conditions, limits=self.limits),
            threshold=validation.threshold(threshold),
            min_relevance="default" if most is None and least is None else least,
            now=validation.asked_at(reference_date, view.moment, self.limits.timezone),
            rerank=rerank,
        )

    def context(
        self,
        query: str,
        *,
        user_id: Any = None,
        agent_id: Any = None,
        run_id: Any = None,
        filters: Mapping[str, Any] | None = None,
        max_chars: int = CONTEXT_CHARS,
        max_tokens: int | None = None,
        whole: bool = False,
        profile: bool = False,
        threshold: float | Unset | None = UNSET,
        min_relevance: MinRelevance | Unset = UNSET,
        reference_date: datetime | str | float | None = None,
    ) -> str:
        """Returns a prompt block for a question: the sentences that help to answer, newest first, marked as data.

        The block has at most `max_chars` characters, about 90 of which frame it, or in their place at most `max_tokens`
        tokens, estimated rather too high; it is "" when nothing is found or nothing fits. It is made of the best 20
        memories, a longer one of a memory for each 100 characters or 25 tokens, at most 50. Of each memory it has the
        sentences that are worth most for their length, or with `whole` all. What was said twice stands there once,
        "yesterday" and the like have their date behind them, a short reply the question before it. Facts come before
        the messages that they were drawn from. With `profile` the block begins with the standing facts of `profile()`,
        in at most 300 characters and half of its room, also if nothing else is found. With the setting `working` a
        question that may depend on what was said just before ("And when is it?"), and finds too little, is searched
        again together with that.

        Only memories with a relevance of at least `min_relevance` (0 to 1; None: all) are in it. The default,
        "default", is the relevance from which on a memory helps more than it distracts: .15 (.23 for a question that
        only the multilingual encoder reads), or half of the best memory's, in a partition of up to twenty memories,
        less in larger ones, a twentieth of the best at the least. A stored question with the query's own words gives
        its place to the reply to it. The user's requests to an assistant that tell nothing ("Tell me a joke"; in
        English and Chinese) are left out, unless the query asks for what was asked. A query that is nothing but a
        greeting, thanks, a goodbye or a nod ("Good morning!", "ok, thanks") asks nothing: no memory is found for it.
        `filters`, as in `search`, narrow the memories that are searched; the standing facts are those of the scope.
        `threshold` is the lowest cosine similarity, as in `search`; with it there is no default of `min_relevance`.
        `reference_date`: the moment from which "last week" and the like are counted, as in `search`; the days in the
        block are those of its time zone.
        """
        from graphmem.retrieval.context import context_block  # noqa: PLC0415  (what only a search needs)
        from graphmem.retrieval.dependence import depends_on_conversation  # noqa: PLC0415
        from graphmem.retrieval.fallback import (  # noqa: PLC0415
            ConversationQuery,
            search_with_fallback,
            without_turns,
        )
        from graphmem.retrieval.pipeline import search  # noqa: PLC0415
        from graphmem.retrieval.scoring import AUTO_MAX  # noqa: PLC0415

        self.engine.check_open()
        most, size, considered = _context_room(max_chars, max_tokens)
        whole, wants_profile = validation.flag(whole, "whole"), validation.flag(profile, "profile")
        scope, conditions = validation.required_scope(user_id, agent_id, run_id, filters=filters)
        view = self._view(scope, None, None)
        now = validation.asked_at(reference_date, view.now, self.limits.timezone)
        search_query = SearchQuery(
            validation.query(query),
            view,
            min(considered, AUTO_MAX),
            filter=filtering.parse(conditions, limits=self.limits),
            threshold=None if isinstance(threshold, Unset) else validation.threshold(threshold),
            min_relevance=least_relevance(threshold, min_relevance),
            for_prompt=True,
            now=now,
        )
        question, deps = search_query.text, self.engine.search_deps
        turns = turns_before(self.engine.said_before(scope), question) if depends_on_conversation(question) else []

        def find(query: str) -> SearchOutcome:
            outcome = search(replace(search_query, text=query), deps)
            return outcome if query == question else without_turns(outcome, turns)

        conversation = ConversationQuery(question, turns)
        *_, found = search_with_fallback(conversation, find, model=None, seconds_left=lambda: math.inf)
        self.engine.note_found((hit.record for hit in found.hits), view)
        standing = (
            read_standing(
                self.engine.ledger, view, self.engine.settings.lifecycle.read_rules(), self.engine.embedding_spec
            )
            if wants_profile
            else ()
        )
        return context_block(found.hits, most, now.tzinfo, size, whole=whole, standing=standing)

    def profile(
        self, *, user_id: Any = None, agent_id: Any = None, run_id: Any = None, max_tokens: int = PROFILE_TOKENS
    ) -> types.ProfileDict:
        """Returns what is known of a user, for the beginning of a conversation: without a question, model or search.

        Returns `{"context", "profile_summary", "recent_topics"}`. `context` is a prompt block of at most `max_tokens`
        tokens, estimated rather too high: first the memories of the long-term layer, the most important first, then
        ten others, those that were found last first. Where no cycle of the lifecycle has kept any, preferences, facts
        about the user and life events among the newest 1,000 memories, as a cycle tells them by their words and stored
        vectors, take the place of the first, those worth most before the others. `profile_summary` has the newest
        summaries of sessions or, without a language model, the first standing facts; `recent_topics` the three names
        that the recent memories mention most. It counts as no access. With the setting `working` the block ends with
        what was said just before under exactly these ids, in at most a third of its tokens.
        """
        self.engine.check_open()
        most = validation.count(max_tokens, "max_tokens", 1, validation.MAX_CONTEXT_CHARS)
        scope = validation.required_scope(user_id, agent_id, run_id)[0]
        rules, spec = self.engine.settings.lifecycle.read_rules(), self.engine.embedding_spec
        found = read_profile(self.engine.ledger, self._view(scope, None, None), rules, spec)
        return responses.profile(found, self.engine.said_before(scope), most, self.limits.timezone)

    def get(
        self, memory_id: str, *, user_id: Any = None, agent_id: Any = None, run_id: Any = None
    ) -> types.MemoryDict | None:
        """Returns a memory by its id, also a retired, expired or forgotten one; None if it is not in the scope."""
        self.engine.check_open()
        uid, scope = validation.memory_id(memory_id), _optional_scope(user_id, agent_id, run_id)
        record = find_memory(self.engine.ledger, uid, scope)
        return None if record is None else responses.memory(record)

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
        show_retired: bool = False,
        retired_only: bool = False,
        show_forgotten: bool = False,
    ) -> types.ListResult:
        """Lists a scope's memories, newest observation first.

        Without `kinds` these are facts and episodes; source messages and summaries are listed only when `kinds` names
        them. `limit` (`top_k` is the same) is 1 to 100,000, default 100; `offset` skips so many. `filters`, `as_of`,
        `show_expired`, `show_retired` and `show_forgotten` work as in `search`; with `show_retired`, source messages
        that are hidden with their facts are listed as well; `retired_only` lists only these.

        Returns `{"results", "relations", "total", "retired"?}`: `total` counts all matching memories, `relations` are
        the newest 100 that the listed memories state. `retired` is there if matching memories are no longer true, and
        counts them: without `show_retired` or `retired_only` they are neither in the list nor in `total`.
        """
        self.engine.check_open()
        scope, conditions = validation.required_scope(user_id, agent_id, run_id, filters=filters)
        requested = validation.merge_aliases(limit, top_k, ("limit", "top_k"))
        page_size, start = _checked_page(DEFAULT_LIST_LIMIT if requested is None else requested, offset)
        only_retired = validation.flag(retired_only, "retired_only")
        view = self._view(
            scope,
            kinds,
            as_of,
            show_expired=show_expired,
            show_retired=only_retired or validation.flag(show_retired, "show_retired"),
            show_forgotten=show_forgotten,
            default=LISTED_KINDS,
        )
        metadata_filter = filtering.parse(conditions, limits=self.limits)
        page = list_memories(
            self.engine.ledger,
            view,
            metadata_filter,
            start=start,
            limit=page_size,
            with_sources=kinds is not None,
            retired_only=only_retired,
        )
        result = types.ListResult(
            results=[responses.memory(record) for record in page.records],
            relations=responses.relations(page.relations),
            total=page.total,
        )
        if page.retired:
            result["retired"] = page.retired
        return self._shaped(result)

    def history(
        self, memory_id: str, *, user_id: Any = None, agent_id: Any = None, run_id: Any = None
    ) -> list[types.HistoryDict]:
        """Returns a memory's events, oldest first, in mem0's ten columns and `is_retired`; [] if the scope has no such
        memory.

        The events of an erased memory remain, without the words; of one that was purged, by hand or by a cycle, its
        erasure alone. A retirement, which `add` reports as DELETE as mem0
        does, is a RETIRE here, with `is_retired`; `is_deleted` means erased.
        """
        self.engine.check_open()
        uid, scope = validation.memory_id(memory_id), _optional_scope(user_id, agent_id, run_id)
        return [responses.event(event) for event in events_of_memory(self.engine.ledger, uid, scope)]

    def explain(
        self, memory_id: str, *, user_id: Any = None, agent_id: Any = None, run_id: Any = None
    ) -> dict[str, Any]:
        """Explains where a memory comes from; why a search finds it, `search(…, explain=True)` tells.

        Returns `{"id", "memory", "messages", "note"?, "mentions", "relations", "replaces", "replaced_by", "compresses",
        "compressed_by", "abstracts", "abstracted_by", "events"}`: `messages` are its source messages (an episode is its
        own), `replaces` the ids of memories that it retired, `replaced_by` of those that retired it, `compresses` of
        those that were forgotten because it stands for them, `compressed_by` of what it was forgotten for, `abstracts`
        of those that it is an abstraction of, `abstracted_by` of its abstractions, `events` its changes with ids and
        reasons. The `rule` of an event says which of two facts that contradict each other counts: "time", the one that
        was said later, "confidence", the surer one, or "merge", both as one text; None where no conflict was decided.
        `replaced_by` of the event that retired it is the id of the other memory. A fact or summary has a `note` if
        none of its source messages is stored: they were deleted, or it was imported without them. Raises NotFoundError.
        """
        self.engine.check_open()
        uid, scope = validation.memory_id(memory_id), _optional_scope(user_id, agent_id, run_id)
        record = find_memory(self.engine.ledger, uid, scope)
        if record is None:
            raise NotFoundError(NOT_FOUND.format(id=uid))
        return responses.origin(record, trace_origin(self.engine.ledger, record, scope, datetime.now(UTC)))

    def entities(
        self,
        *,
        user_id: Any = None,
        agent_id: Any = None,
        run_id: Any = None,
        query: str | None = None,
        type: str | None = None,  # noqa: A002  (the contract's name)
        limit: int = 100,
        show_retired: bool = False,
        show_forgotten: bool = False,
    ) -> list[types.EntityDict]:
        """Lists the entities that a scope's memories mention, those with the most memories first.

        An entity with several names is listed once, with its `aliases`. `query` keeps the names that contain it. `type`
        is one of Person, Organization, Place, Event, Object, Concept, Time, Other. `limit` is 1 to 100,000.
        `show_retired` counts the memories that are no longer true as well, `show_forgotten` those that were forgotten.
        """
        self.engine.check_open()
        scope = validation.required_scope(user_id, agent_id, run_id)[0]
        view = self._view(scope, None, None, show_retired=show_retired, show_forgotten=show_forgotten)
        name_part = None if query is None else normalise_key(validation.query(query)) or fold(query)
        max_entities = validation.count(limit, "limit", 1, MAX_LIST_LIMIT)
        entity_type = None if type is None else validation.entity_type(type)
        entities = list_entities(self.engine.ledger, view, name_part=name_part, type_=entity_type, limit=max_entities)
        return [responses.entity(entity) for entity in entities]

    def entity(
        self,
        key: str,
        *,
        user_id: Any = None,
        agent_id: Any = None,
        run_id: Any = None,
        limit: int = 100,
        as_of: datetime | str | float | None = None,
        show_retired: bool = False,
        show_forgotten: bool = False,
    ) -> types.EntityDetails | None:
        """Returns an entity with its memories and relations, by any of its names; None if no memory of the scope
        mentions it.

        The result is `{"key", "name", "type", "aliases", "memories", "relations"}`. `memories` are those under all its
        names, newest first, at most `limit` (1 to 100,000); `aliases` its further names, `[{"key", "name", "origin"}]`.
        `as_of` keeps the memories valid at that time, and the relations that they state; names and aliases are today's.
        `show_retired` shows the memories that are no longer true as well, `show_forgotten` those that were forgotten.
        """
        self.engine.check_open()
        scope = validation.required_scope(user_id, agent_id, run_id)[0]
        view = self._view(scope, None, as_of, show_retired=show_retired, show_forgotten=show_forgotten)
        normalised_key = normalise_key(validation.entity_key(key, "key"))
        details = find_entity(
            self.engine.ledger, view, normalised_key, validation.count(limit, "limit", 1, MAX_LIST_LIMIT)
        )
        return None if details is None else responses.entity_details(details)

    def alias(
        self, a: str, b: str, *, user_id: Any = None, agent_id: Any = None, run_id: Any = None
    ) -> types.EntityDetails:
        """Links two names that mean one entity: they are shown as one, and a question with either name is answered from
        both.

        The link applies to the partition of this scope; `unalias` removes it. Returns the entity as `entity` does.
        Raises NotFoundError for a name that no memory of the scope mentions.
        """
        self.engine.check_open()
        scope = validation.required_scope(user_id, agent_id, run_id)[0]
        return self._commit_for_entity(AddAlias(scope, *_two_keys(a, b)))

    def unalias(
        self, a: str, b: str, *, user_id: Any = None, agent_id: Any = None, run_id: Any = None
    ) -> types.EntityDetails:
        """Removes the link between two names, whether a user or a rule made it; no rule links them again, `alias` can.

        Returns the entity `a` as `entity` does. Raises NotFoundError if the two are not linked to each other.
        """
        self.engine.check_open()
        scope = validation.required_scope(user_id, agent_id, run_id)[0]
        return self._commit_for_entity(RemoveAlias(scope, *_two_keys(a, b)))

    def rename_entity(
        self, key: str, name: str, *, user_id: Any = None, agent_id: Any = None, run_id: Any = None
    ) -> types.EntityDetails:
        """Sets the name under which an entity is displayed, in place of its name in the texts.

        `name` has 1 to 256 characters in one line. Memories keep their words, and the former names still find the
        entity. Returns it as `entity` does. Raises NotFoundError for an entity that no memory of the scope mentions.
        """
        self.engine.check_open()
        scope = validation.required_scope(user_id, agent_id, run_id)[0]
        normalised_key = normalise_key(validation.entity_key(key, "key"))
        return self._commit_for_entity(RenameEntity(scope, normalised_key, validation.entity_name(name, "name")))

    def _commit_for_entity(self, command: EntityCommand) -> types.EntityDetails:
        key = self.engine.commit([command])[0].id
        view = self._view(command.scope, None, None)
        details = find_entity(self.engine.ledger, view, key, DEFAULT_LIST_LIMIT)
        if details is None:  # another caller erased it after the commit
            raise NotFoundError(f"{key!r} was erased meanwhile; entities() lists the entities of a scope")
        return responses.entity_details(details)

    def graph(
        self,
        *,
        user_id: Any = None,
        agent_id: Any = None,
        run_id: Any = None,
        around: str | None = None,
        hops: int = 2,
        limit: int = 10_000,
        as_of: datetime | str | float | None = None,
        show_retired: bool = False,
        show_forgotten: bool = False,
    ) -> nx.MultiDiGraph[str]:
        """Returns a scope's memories (the newest `limit`), entities and relations as a networkx.MultiDiGraph.

        Each entity key is a node; SAME_AS edges join the keys of one entity. The attributes of the graph are `ledger`,
        its UUID, and `partition`, that of the scope. `around` (an entity's name or a memory's id) keeps only nodes at
        most `hops` (0 to 10) edges away. `as_of` keeps the memories valid at that time, and the entities and relations
        in them; names and SAME_AS edges are today's. With `show_retired` the memories that are no longer true are there
        as well, with `show_forgotten` those that were forgotten, each with the source messages hidden with them.
        """
        self.engine.check_open()
        scope = validation.required_scope(user_id, agent_id, run_id)[0]
        view = self._view(scope, None, as_of, show_retired=show_retired, show_forgotten=show_forgotten)
        centre = None if around is None else validation.entity_key(around, "around")
        max_hops = validation.count(hops, "hops", 0, 10)
        max_memories = validation.count(limit, "limit", 1, MAX_LIST_LIMIT)
        return build_graph(self.engine.ledger, view, centre, max_hops, max_memories)

    def count_by_day(
        self,
        *,
        user_id: Any = None,
        agent_id: Any = None,
        run_id: Any = None,
        utc_offset: int | None = None,
        show_retired: bool = False,
        show_forgotten: bool = False,
    ) -> list[types.DayCount]:
        """Counts the memories of a scope, source messages included, by the day since which they are valid.

        Returns `[{"day": "2025-06-02", "memories": 3}, …]`, the earliest day first, without days that have none. Days
        begin `utc_offset` minutes (-1,440 to 1,440) before they begin in UTC; by default as many as they do now in the
        configured time zone. `show_retired` and `show_forgotten` count more memories, as in `graph`.
        """
        self.engine.check_open()
        scope = validation.required_scope(user_id, agent_id, run_id)[0]
        view = self._view(scope, None, None, show_retired=show_retired, show_forgotten=show_forgotten)
        if utc_offset is None:
            offset = shown(view.now, self.limits.timezone).utcoffset() or timedelta(0)
        else:
            offset = timedelta(minutes=validation.count(utc_offset, "utc_offset", -1440, 1440))
        return [
            {"day": day.isoformat(), "memories": count} for day, count in count_by_day(self.engine.ledger, view, offset)
        ]

    # --- events -------------------------------------------------------------------------------------------------

    def on(self, event: str, handler: Callable[[MemoryEvent], object], *, name: str | None = None) -> Subscription:
        """Calls `handler` with a `MemoryEvent` whenever something happens; returns the subscription, which can be
        closed, also by `with`.

        Events, and what their `payload` has beside `event_id` and the `agent_id` and `run_id` that are set:
        "memory.added": a memory was added or changed (`memory_id`, and `change`: the type of the entry in its history,
        "ADD", "UPDATE", …). "session.end": nothing was added to a scope for `session_gap` minutes, or `end_session` was
        called (`messages`: how many were added); told once, in one process. "memory.accessed": searches have found
        memories (`memory_ids`, `accesses`); told when the counts are written, at most once a minute. "schedule.daily":
        a nightly cycle of the lifecycle has ended (`held`, and the counts of `tend`).

        Without `name`, the handler is told what this process does from now on, after the commit, by one thread for all
        handlers. One that fails is logged by the type of its error, and the next one is called.

        With a `name`, nothing is lost with a process: the ledger keeps where the name is, for each event. Whoever
        subscribes with it is told, in order, all since then, whichever process did it; a new name begins now. One
        process at a time calls its handler. One that fails is called again with the same event after a pause, so a
        handler has to bear repetition: `event_id` tells it. Erased memories are not told of any more. Events other than
        "memory.added" are kept for 30 days for a name that nobody serves.

        Raises ValidationError for an unknown event or an unusable name.
        """
        self.engine.check_open()
        event_type, function = validation.event_type(event), validation.handler(handler)
        subscriber = None if name is None else validation.subscriber_name(name)
        return background.subscribe(self.engine, event_type, function, subscriber)

    def end_session(self, *, user_id: Any = None, agent_id: Any = None, run_id: Any = None) -> dict[str, bool]:
        """Ends the session of exactly this scope, as a silence of `session_gap` minutes does: handlers of "session.end"
        are told, and with the setting `extract: "session"` the language model draws its facts, in the background.

        Returns `{"ended": …}`, False if nothing was added since the last end, or if nobody is to know of it: sessions
        are recorded only where that setting or a handler asks for them.
        """
        self.engine.check_open()
        scope, _ = validation.required_scope(user_id, agent_id, run_id)
        return {"ended": background.end_session(self.engine, scope)}

    def forget_subscriber(self, name: str) -> dict[str, list[str]]:
        """Deletes where a name of `on` is, in all events that it follows, and ends its subscriptions here.

        For a name that nobody will use again: until then events are recorded for it. "webhook:NAME" is that of a
        webhook; raises ValidationError for one that is configured. Returns `{"forgotten": […]}`, the events that it
        followed; none for an unknown name.
        """
        self.engine.check_open()
        followed = validation.followed_name(name)
        self.engine.webhooks.check_not_configured(followed)
        return {"forgotten": self.engine.events.forget(followed)}

    def dead_letters(self, *, limit: int = DEFAULT_LIST_LIMIT, offset: int = 0) -> types.DeadLetterList:
        """Lists the events that webhooks did not take, by type, webhook and time, the oldest first.

        Returns `{"results": [{"id", "webhook", "event_type", "error", "user_id", "timestamp"}, …], "total"}`. `error`
        is the status of the last answer, or that there was none. `timestamp` None: the event cannot be told any more,
        because its memory was erased, or it is more than 30 days old.
        """
        self.engine.check_open()
        checked_limit, checked_offset = _checked_page(limit, offset)
        found, total = self.engine.webhooks.dead_letters(checked_limit, checked_offset)
        return {"results": [responses.dead_letter(one) for one in found], "total": total}

    def retry_dead_letter(self, event_id: str, *, webhook: str) -> types.RetriedDict:
        """Posts an event once more to a webhook that did not take it; if it does now, it is no dead letter any more.

        Returns `{"delivered": True}`, or `{"delivered": False, "error"}`. Raises NotFoundError for an unknown dead
        letter, ValidationError for one whose memory was erased since, and for a webhook that is not configured.
        """
        self.engine.check_open()
        uid, name = validation.stored_key(event_id, "event_id"), validation.subscriber_name(webhook, "webhook")
        error = self.engine.webhooks.retry(uid, name)
        return {"delivered": True} if error is None else {"delivered": False, "error": error}

    def drop_dead_letter(self, event_id: str, *, webhook: str) -> dict[str, bool]:
        """Drops an event that a webhook did not take. Returns `{"dropped": True}`; raises NotFoundError."""
        self.engine.check_open()
        uid, name = validation.stored_key(event_id, "event_id"), validation.subscriber_name(webhook, "webhook")
        self.engine.webhooks.drop(uid, name)
        return {"dropped": True}

    # --- housekeeping -------------------------------------------------------------------------------------------

    def flush(self) -> dict[str, list[str]]:
        """Finishes background work and waits for it.

        Where the setting `workers` leaves jobs to other processes, waits for these, and half a minute for one to begin.
        Then waits until the handlers of this process were told of what happened, but not for those that fail. Returns
        `{"pending": […]}`, the unfinished projections ("vectors", "graph") and kinds of jobs ("facts", "procedure",
        "summary", "composition", "description"; "session" for an end of one that failed and is tried again).
        """
        self.engine.check_open()
        return {"pending": administration.flush(self.engine)}

    def retry_failed(self) -> dict[str, Any]:
        """Runs all recorded jobs of models now, and waits for them; then finishes background work.

        Also runs jobs that wait after a failure, and jobs that another process has claimed, because that process may
        have died. Returns `{"done": n, "failed": {error class: n}, "pending": […]}`: how many jobs succeeded, how many
        failed with which error, and the projections and kinds of jobs that are still unfinished, as `flush` names them.
        `causes`, if a job failed, has by error class the cause and the remedy of one such failure. Raises ConfigError
        without a model.
        """
        self.engine.check_open()
        return administration.retry_failed(self.engine)

    def stats(self, *, user_id: Any = None, agent_id: Any = None, run_id: Any = None) -> dict[str, Any]:
        """Returns counts, the sizes of the ledger's file and of its embeddings (bytes), the pending work and the
        models' usage.

        `memories` counts all that are stored, `listed` those that `get_all` lists, of all users together. `retired` are
        no longer true, `source_messages` are source messages of facts that still are, and `forgotten` ones are hidden:
        lists show none of these unless they are asked to.
        `embedder` is the model of the ledger's vectors, `embedder_dims` their length; `configured_embedder` and
        `configured_embedder_dims` are there if another one is configured: `rebuild` changes to it.
        `multilingual_embedder` is the model of the second vector that all texts have (None: not all have one).
        `unguarded` counts erased messages that would not be recognised if they came again, because the ledger's secret
        key was lost. `working_provider` and `working_available` (whether its server answered when it was last asked)
        are there if working memory is configured.
        `stores` describes the ledger and each projection: `{"name", "provider", "available", "seq", "pending",
        "oldest_pending_at", "dead_letters"}`. `seq` is the last sequence number that the store has (None for
        a projection in the memory of this process, which catches up before each read), `pending` the sequence numbers
        that it lacks, `oldest_pending_at` the time of the first event among them, `dead_letters` the number of rows
        that it refused. `job_counts` has a line for each kind and state of pending work: `{"kind", "state", "number",
        "oldest_seconds"}`, with the kinds "enrichment", "facts", "procedure", "summary", "composition" and
        "description", the states "waiting", "running" (claimed) and "failed" (waiting for another attempt), and the
        seconds since the oldest was recorded.
        `last_cycles` tells of the last cycles of the lifecycle, one of each partition: `{"ended_at", "partitions",
        "changed", "held"}`, when the latest ended (None: there was none), of how many partitions they are, how many
        memories they changed, and how many of them the brake held.
        `dead_letters` has the number of events that a webhook did not take, by its name.
        `usage` has a line for each operation and model: `{"operation", "model", "calls", "prompt_tokens",
        "completion_tokens", "cached_tokens", "seconds", "cost"}`; with a scope, only the calls made for it. All else is
        about the whole ledger.
        """
        self.engine.check_open()
        return administration.stats(self.engine, _optional_scope(user_id, agent_id, run_id))

    def verify(self, repair: bool = False) -> dict[str, Any]:  # noqa: FBT001, FBT002  (the contract's form)
        """Checks the ledger's file, derived columns and texts, and compares each projection with the ledger.

        Returns `{"ok", "ledger", "damaged", "derived", "failed", "projections": {name: {"missing", "extra", "stale",
        "dead_letters", "unreadable", "unreachable"}}, "blobs"?, "repaired"?}`.

        `ledger` has the number of rows by table. `damaged` has lines about a broken file and ids of memories that
        cannot be read, whose words were changed outside graphmem, or whose history was changed or lost: restore them
        from a backup, or `update` a memory with changed words with the right ones, or `delete` it, then call
        `repair()`. `derived` names wrong derived columns, which are computed from other rows,
        such as `entities.mentions`, the number of memories that mention an entity. `failed` counts memories whose last
        enrichment failed. `projections` has lists of ids: rows `missing` from the projection, `extra` rows, which the
        ledger does not have, `stale` rows, whose sequence number differs from the ledger's, and `dead_letters`, which
        the store refused; `unreadable` or `unreachable` has the reason why the projection could not be compared.
        Without a vector index of its own, `vectors` has in `missing` the memories whose vectors the ledger has lost.
        `blobs` has the digests of data of attachments that is "missing" from its folder, and "unused" there.

        `repair=True` repairs the differences (not the damage) and reports the state afterwards, with the first report
        as "repaired".
        """
        self.engine.check_open()
        repair = validation.flag(repair, "repair")
        report = administration.verify(self.engine)
        if not repair or report["ok"]:
            return report
        administration.repair(self.engine)
        return {**administration.verify(self.engine), "repaired": report}

    def repair(self) -> dict[str, Any]:
        """Finishes pending work, delivers it and repairs the projections; returns the report of `verify` afterwards.

        After erasures it also rewrites the ledger's file, so that no copy of the words remains in its unused space.
        """
        self.engine.check_open()
        administration.repair(self.engine)
        return administration.verify(self.engine)

    def rebuild(
        self, projection: Literal["vectors", "graph"] | None = None, progress: Progress | None = None
    ) -> dict[str, Any]:
        """Drops a projection ("vectors", "graph"; default: all) and fills it again from the ledger, without calling a
        model.

        After a change of the embedder it embeds every text again, unless only the graph is rebuilt.
        `progress(name, done, total)` is called after each batch, in sequence numbers. Returns the report of `verify`
        afterwards.
        """
        self.engine.check_open()
        if projection is not None and (not isinstance(projection, str) or projection not in PROJECTION_NAMES):
            validation.refuse("projection", projection, "use 'vectors', 'graph', or leave it out for all")
        administration.rebuild(self.engine, projection, _checked_progress(progress))
        return administration.verify(self.engine)

    def export(
        self,
        path_or_file: str | os.PathLike[str] | IO[Any],
        *,
        user_id: Any = None,
        agent_id: Any = None,
        run_id: Any = None,
        progress: Progress | None = None,
    ) -> types.ExportResult:
        """Writes a scope's memories, or without a scope the whole ledger, as JSON Lines that `import_` reads.

        The file holds ids, times, history, links, entities, embeddings and what the lifecycle knows, all of one moment;
        of erased memories only the tombstones. Without a scope it also holds the settings of the service, and its keys
        without their secrets.
        A path becomes a complete file or none, readable only by its owner; a link, or a path where the memory itself is
        stored, is refused. An open file (text or bytes) is written to and stays open. `progress("export", done, total)`
        is called every few memories.

        Returns `{"memories", "erased", "aliases", "names", "items", "settings", "keys", "path"}`. Raises StoreError
        when the file cannot be written.
        """
        self.engine.check_open()
        scope, progress = _optional_scope(user_id, agent_id, run_id), _checked_progress(progress)
        from graphmem.transfer import jsonl  # noqa: PLC0415  (what only exports need)
        from graphmem.transfer.exporter import export_records  # noqa: PLC0415

        self.engine.accesses.write()
        with jsonl.open_writer(path_or_file, self.engine.storage_paths) as write:
            writer = jsonl.JsonlWriter(write)
            export_records(self.engine.ledger, scope, writer.write, progress)
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
        """Reads an export into this memory, which may be empty (then it becomes a copy) or hold other memories.

        A memory whose id or message is already here stays unchanged, so an interrupted import can be repeated. Memories
        erased here stay erased, unless `restore=True` brings them back with their history. No model is called for data
        that the export brings; embeddings of another model are computed again. A path is refused as a whole if the file
        was cut off or altered; an open file is read line by line. An iterable of dicts is accepted as well, for example
        from a converter; `graphmem.transfer.records` and docs/reference/export-format.md document their fields.
        `progress("import", done, total)` is called every few records; where the total is unknown, `done` stands for it.

        Settings of the service that are not set here are restored. No key is: `keys` of the result counts those to be
        made anew.

        Returns `{"added", "known", "erased", "refused", "tombstones", "named", "skipped_links", "skipped_data",
        "items", "settings", "keys", "unenriched", "pending"?}`, documented in `graphmem.types.ImportResult`.
        Raises ValidationError that names the line and the number of memories added before it.
        """
        self.engine.check_open()
        restore, progress = validation.flag(restore, "restore"), _checked_progress(progress)
        from graphmem.transfer import jsonl  # noqa: PLC0415  (what only imports need)
        from graphmem.transfer.importer import import_records  # noqa: PLC0415

        if jsonl.is_record_iterable(path_or_file):
            return import_records(self.engine, path_or_file, restore=restore, progress=progress)
        with jsonl.open_reader(path_or_file) as (records, total):
            return import_records(
                self.engine, records, restore=restore, progress=progress, total=total, record_name="line"
            )

    def reset(self) -> dict[str, list[str]]:
        """Erases everything in this memory, and nothing else in its stores.

        Returns `{"pending": […]}`: projections that are not emptied within `delivery_wait` seconds, because their
        server is out of reach or a delivery is in progress. They are emptied as soon as possible.
        """
        self.engine.check_open()
        return {"pending": administration.reset(self.engine)}

    def close(self, *, wait: bool = True) -> None:
        """Waits for background work and releases files and threads. A second call does nothing.

        A text of more than 50,000 characters that is not enriched yet stays recorded, as at the end of a program that
        does not close: the next Memory of this folder enriches it. `flush` waits for such texts, too. Without `wait`
        all texts that are not enriched yet stay recorded, and all jobs of the language model that have not begun.
        """
        self.engine.close(wait=wait)

    def _view(
        self,
        scope: Scope,
        kinds: object,
        as_of: object,
        *,
        show_expired: bool = False,
        show_retired: bool = False,
        show_forgotten: bool = False,
        default: Iterable[Kind] = ALL_KINDS,
    ) -> View:
        return View(
            scope=scope,
            now=datetime.now(UTC),
            partition=scope.read_partition,
            kinds=validation.kinds(kinds) or frozenset(default),
            as_of=None if as_of is None else validation.moment(as_of, "as_of", self.limits.timezone),
            show_expired=validation.flag(show_expired, "show_expired"),
            show_retired=validation.flag(show_retired, "show_retired"),
            show_forgotten=validation.flag(show_forgotten, "show_forgotten"),
        )

    def _shaped(self, result: R) -> R:
        if self._version != "v1.0":
            return result
        warnings.warn(
            'version "v1.0" returns bare lists; set version "v1.1" for {"results": …}', DeprecationWarning, stacklevel=3
        )
        if failures := responses.failure_texts(cast("dict[str, Any]", result)):
            reasons = ", ".join(f"{name}: {why}" for name, why in failures.items())
            warnings.warn(f"add: the language model's work failed ({reasons})", RuntimeWarning, stacklevel=3)
        return cast("R", types.ResultList(result))


def update_together(
    engine: Engine,
    limits: validation.InputLimits,
    changes: Sequence[tuple[str, Mapping[str, Any]]],
    scope: Scope | None,
) -> list[types.MemoryDict]:
    """Changes memories, each by its id and the arguments of `update`, in one transaction: all of them or none."""
    engine.check_open()
    commands = [_update_command(engine, limits, memory_id, scope, **change) for memory_id, change in changes]
    engine.check_embedder()
    outcomes = engine.commit(commands, scope)
    updated = [outcome.required_record for outcome in outcomes if outcome.event is OutcomeType.UPDATE]
    pending = engine.enrich_and_deliver(updated, wait=True) if updated else []
    results = []
    for outcome in outcomes:
        result = responses.memory(outcome.required_record)
        changed = outcome.event is OutcomeType.UPDATE
        result["message"] = "Memory updated successfully!" if changed else "Nothing to change: the memory is like that."
        if pending:
            result["pending"] = pending
        results.append(result)
    return results


def _update_command(
    engine: Engine,
    limits: validation.InputLimits,
    memory_id: object,
    scope: Scope | None,
    *,
    data: object = None,
    text: object = None,
    metadata: object = None,
    expiration_date: object = UNSET,
    replace_metadata: object = False,
) -> UpdateMemory:
    """Returns the checked command of an update, as the `before_store` hook changes it."""
    new_text = validation.merge_aliases(data, text, ("data", "text"))
    if new_text is None and metadata is None and isinstance(expiration_date, Unset):
        raise ValidationError("update: nothing to change; give text, metadata or expiration_date")
    name = "data" if text is None else "text"
    command = UpdateMemory(
        validation.memory_id(memory_id),
        text=None if new_text is None else validation.content(new_text, name, limits.max_message_chars),
        metadata=None if metadata is None else validation.metadata(metadata, limits=limits),
        expires_at=expiration_date
        if isinstance(expiration_date, Unset)
        else validation.expiration(expiration_date, zone=limits.timezone),
        merges_metadata=not validation.flag(replace_metadata, "replace_metadata"),
        corrects=True,
    )
    hook = engine.settings.before_store
    if command.metadata is None and (hook is None or command.text is None):
        return command
    record = find_memory(engine.ledger, command.id, scope)
    if record is None:  # the commit raises NotFoundError
        return command
    afterwards = command.metadata_after(record.metadata)
    if command.metadata is not None and command.merges_metadata:
        validation.metadata(afterwards, limits=limits)  # what many updates add has the limit of one
    return command if hook is None else _after_before_store(command, hook, record, afterwards)


def _after_before_store(
    command: UpdateMemory, hook: BeforeStore, record: MemoryRecord, metadata: Mapping[str, Any]
) -> UpdateMemory:
    """Returns the update as the hook changes it, which gets the message as it would be afterwards.

    `metadata` is that of the memory afterwards.
    """
    text = record.text if command.text is None else command.text
    message = Message(
        record.role or "user",
        text,
        record.at,
        name=record.actor_id,
        id=record.message_id,
        utc_offset=record.utc_offset,
    )
    accepted = apply_before_store(hook, message, metadata)
    if accepted is None:
        raise ValidationError("update: before_store refuses it; the memory is as it was")
    # A field that neither the caller nor the hook changes stays out of the command: it may be changing elsewhere.
    is_kept = accepted[1] == metadata
    return replace(
        command,
        text=command.text if accepted[0].content == text else accepted[0].content,
        metadata=command.metadata if is_kept else accepted[1],
        merges_metadata=command.merges_metadata and is_kept,
    )


def delete_together(engine: Engine, memory_ids: Sequence[str], scope: Scope | None, message: str) -> types.Receipt:
    """Erases memories in one transaction, all of them or none, and returns a receipt with this message."""
    engine.check_open()
    checked_ids = dict.fromkeys(map(validation.memory_id, memory_ids))
    outcomes = engine.commit([DeleteMemory(memory_id) for memory_id in checked_ids], scope)
    erased = sum((outcome.erased for outcome in outcomes), ErasureReport())
    # One that was erased with another of them has no record.
    partitions = {outcome.record.partition for outcome in outcomes if outcome.record is not None}
    return responses.receipt(erased, engine.deliver(sorted(partitions)), message)


def least_relevance(threshold: float | Unset | None, min_relevance: MinRelevance | Unset) -> MinRelevance:
    """Returns the checked least relevance of a memory in a prompt block.

    If none is given, that is the default one, or with a `threshold` None. Raises ValidationError.
    """
    if isinstance(min_relevance, Unset):
        return "default" if isinstance(threshold, Unset) else None
    return validation.min_relevance(min_relevance)


def _with_words(commands: Sequence[AddMessage]) -> tuple[list[AddMessage], list[HoldMessage]]:
    """Returns the messages to be stored now, and those to be held until their attachments are described."""
    stored = [one for one in commands if one.message.text]
    return stored, [HoldMessage(one) for one in commands if not one.message.text and one.later is not None]


def _known(held: Sequence[HoldMessage], outcomes: Sequence[Outcome]) -> list[tuple[AddMessage, Outcome]]:
    """Returns those of the messages to be held that are memories already, or were, with the outcome for each."""
    return [
        (one.message, outcome)
        for one, outcome in zip(held, outcomes, strict=False)
        if outcome.event is OutcomeType.NONE
    ]


def _in_order(
    commands: Sequence[AddMessage], outcomes: Sequence[Outcome], known: Sequence[tuple[AddMessage, Outcome]]
) -> list[tuple[AddMessage, Outcome]]:
    """Returns messages with their outcomes, in the order in which they were given."""
    return sorted([*zip(commands, outcomes, strict=True), *known], key=lambda one: one[0].message.index)


def _with_skipped(
    result: types.AddResult, added: Sequence[AddMessage], known: Sequence[tuple[AddMessage, Outcome]]
) -> types.AddResult:
    """Returns the result of `add` with the messages that are no memories."""
    indexes = {one.message.index for one, _ in known}
    skipped = [one for one in added if not one.message.text and one.message.index not in indexes]
    if skipped:
        held = {one.message.index for one in skipped if one.later is not None}
        result["skipped"] = responses.skipped([one.message.index for one in skipped], held)
    return result


def _new_records(outcomes: Iterable[Outcome], *further_events: OutcomeType) -> list[MemoryRecord]:
    """Returns the memories that these outcomes added, or changed by one of `further_events`."""
    return [
        outcome.record
        for outcome in outcomes
        if outcome.event in {OutcomeType.ADD, *further_events} and outcome.record is not None
    ]


def _why_nothing_is_taken_back(outcomes: Sequence[Outcome]) -> str:
    """Says why no event of a cycle could be taken back; `outcomes` are those of the memories that are not erased."""
    if not outcomes:
        return "all memories that it changed are erased, by it or since, and cannot be brought back"
    if any(outcome.record is not None for outcome in outcomes):
        return "it has been taken back already; lifecycle_status says so of each cycle"
    return "all that it did was changed again since; history shows by which events, and undo takes these back first"


def _context_room(max_chars: object, max_tokens: object) -> tuple[int, Size, int]:
    """Returns the size of a context, the function that measures it, and the number of memories that it considers."""
    most = validation.count(max_chars, "max_chars", 1, validation.MAX_CONTEXT_CHARS)
    if max_tokens is None:
        return most, len, max(CONTEXT_MEMORIES, most // CHARS_PER_MEMORY)
    most = validation.count(max_tokens, "max_tokens", 1, validation.MAX_CONTEXT_CHARS)
    return most, estimate_tokens, max(CONTEXT_MEMORIES, most // TOKENS_PER_MEMORY)


def _optional_scope(user_id: object, agent_id: object, run_id: object) -> Scope | None:
    """Returns the scope of a call by id, None if the caller gives no ids."""
    return validation.scope(user_id, agent_id, run_id)[0]


def _checked_page(limit: object, offset: object) -> tuple[int, int]:
    """Returns how many rows a list is to have, and how many come before them."""
    return validation.count(limit, "limit", 1, MAX_LIST_LIMIT), validation.count(offset, "offset", 0, 2**31)


def _checked_progress(progress: Progress | None) -> Progress | None:
    if progress is not None and not callable(progress):
        validation.refuse("progress", progress, "must be a function of (name, done, total), or left out")
    return progress


def _two_keys(a: object, b: object) -> tuple[str, str]:
    """Returns the normalised keys of two names; refuses two names with one key."""
    key, other = (normalise_key(validation.entity_key(name, argument)) for name, argument in ((a, "a"), (b, "b")))
    if key == other:
        validation.refuse("b", b, "is the same name as a; give two names that memories use")
    return key, other
