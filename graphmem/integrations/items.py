"""The exact values of adapters: what a framework stores, it reads back unchanged, and the text in it is remembered.

An item is no memory: it has a table of its own in the ledger. It and the memory of its text change in one transaction.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection

from graphmem.async_memory import AsyncMemory
from graphmem.background import schedule_background_work
from graphmem.boundary import validation
from graphmem.commands.types import (
    Command,
    DeleteItem,
    EnqueueExtraction,
    ItemCommand,
    Outcome,
    OutcomeType,
    PutItem,
)
from graphmem.ingest.messages import message_commands
from graphmem.integrations.base import sync_memory
from graphmem.memory import Memory
from graphmem.model import Item, MinRelevance, Scope, View
from graphmem.retrieval.pipeline import search
from graphmem.retrieval.types import Hit, SearchQuery
from graphmem.stores.ledger import items
from graphmem.stores.ledger.jobs import JobKind

logger = logging.getLogger("graphmem")

# Seconds that a search waits for the vectors of what this process stored before: as long as loading the models takes on
# a slow machine. LangGraph has no way to say that results are incomplete.
ENRICHMENT_WAIT = 60.0


class ItemStore:
    """Reads and writes the items of a memory. Safe to use from several threads.

    Methods raise StoreError when the ledger fails, StoreUnavailable after the memory was closed.
    """

    def __init__(self, memory: Memory | AsyncMemory) -> None:
        self.memory = sync_memory(memory)
        self._engine = self.memory.engine
        # Makes the ids of messages.
        self.keyed = self._engine.ledger.digests.keyed

    # --- writing ----------------------------------------------------------------------------------------------------

    def put_command(
        self,
        scope: Scope,
        namespace: Sequence[str],
        key: str,
        value: object,
        *,
        message: Mapping[str, Any] | None = None,
        ttl_minutes: float | None = None,
        argument: str = "value",
    ) -> PutItem:
        """Returns the command that stores a JSON value under a namespace and a key.

        `message`, a message for `Memory.add`, has the text to remember. Characters that no store can keep are left out
        of it, and it is cut at `Memory.limits.max_message_chars`; the value keeps all. A message without an id is new
        with every item. Raises ValidationError for unusable arguments; it names `argument` for an unusable value.
        """
        place = validation.namespace(namespace), validation.item_key(key)
        stored, remember = validation.json_value(value, argument), None
        if message is not None:
            limits, engine = self.memory.limits, self._engine
            content = validation.storable_part(message["content"], limits.max_message_chars)
            messages = validation.message_list({**message, "content": content}, now=datetime.now(UTC), limits=limits)
            hook = engine.settings.before_store
            # None without text, or if the hook refuses it.
            remember = next(iter(message_commands(messages, scope, engine.ledger.digests, before_store=hook)), None)
        ttl = None if ttl_minutes is None else validation.minutes(ttl_minutes, "ttl_minutes")
        return PutItem(scope, *place, stored, remember, ttl)

    def write(self, commands: Sequence[ItemCommand], *, extract_for: Scope | None = None) -> list[Outcome]:
        """Carries out commands in one transaction, and returns their outcomes; what they remember is enriched later.

        `extract_for`: a language model, if one is configured, draws facts from the remembered messages, which are all
        of this scope.
        """
        engine = self._engine
        engine.check_open()
        if any(isinstance(command, PutItem) and command.remember is not None for command in commands):
            engine.check_embedder()
        extraction: list[Command] = []
        if extract_for is not None and engine.llm is not None:
            extraction = [
                EnqueueExtraction(
                    extract_for,
                    summarise=engine.settings.summary_messages > 0,
                    at_session_end=engine.extracts_at_session_end,
                )
            ]
        if extraction:
            commands = [_as_source(command) for command in commands]
        outcomes = engine.commit([*commands, *extraction])
        new_records = [outcome.record for outcome in outcomes if outcome.record is not None]
        if outcomes and outcomes[-1].event is OutcomeType.ENQUEUE_JOB:
            engine.run_job(int(outcomes[-1].id), new_records, JobKind.FACTS, wait=False)
        elif new_records:
            engine.enrich_and_deliver(new_records, wait=False)
        else:
            schedule_background_work(engine)
        return list(outcomes[: len(commands)])

    def clear(self, scope: Scope, namespace: Sequence[str]) -> None:
        """Deletes the items of exactly this scope and namespace, and leaves their memories.

        `DeleteItems` would also delete those of narrower scopes, for example of the user's agents.
        """
        stored = self.last_stored(scope, namespace)
        self.write([DeleteItem(scope, item.namespace, item.key, with_memory=False) for item in stored])

    # --- reading ----------------------------------------------------------------------------------------------------

    def get(self, scope: Scope, namespace: Sequence[str], key: str) -> Item | None:
        """Returns the item under a namespace and a key of exactly this scope; None if it is absent or expired."""
        with self.reading() as connection:
            return items.find(connection, scope, namespace, key, datetime.now(UTC))

    def last_stored(self, scope: Scope, namespace: Sequence[str], limit: int | None = None) -> list[Item]:
        """Returns the items of exactly this scope and namespace, in the order in which they were stored.

        With a `limit`, the last ones.
        """
        with self.reading() as connection:
            return items.last_stored(connection, scope, namespace, datetime.now(UTC), limit)

    def search(
        self,
        query: str,
        scope: Scope,
        namespace: Sequence[str],
        limit: int | None = None,
        min_relevance: MinRelevance = None,
    ) -> dict[str, Hit]:
        """Returns the hits among the memories of items in a namespace or below it, by memory id, best first.

        These are the hits of `Memory.search`: `limit`, at most and by default `Memory.limits.max_top_k`.
        Waits up to `ENRICHMENT_WAIT` seconds for the enrichment of this process's writes, then logs that these are not
        found yet. Raises ValidationError for an unusable query.
        """
        engine, now = self._engine, datetime.now(UTC)
        engine.check_open()
        waited = max(engine.settings.delivery_wait, ENRICHMENT_WAIT)
        if not engine.job_worker.wait_for_texts(waited, also_long=False):
            logger.warning("degraded search: items stored last have no vectors yet and stand behind all others")
        max_limit = self.memory.limits.max_top_k
        search_query = SearchQuery(
            validation.query(query),
            View(scope, now, scope.read_partition),
            max_limit if limit is None else min(limit, max_limit),
            accepted=lambda connection, ids: items.memories_below(connection, scope, namespace, ids, now),
            min_relevance=min_relevance,
        )
        return {hit.record.id: hit for hit in search(search_query, engine.search_deps).hits}

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Opens a snapshot for reads of `graphmem.stores.ledger.items`; the reads of this thread share it."""
        self._engine.check_open()
        with self._engine.ledger.read() as connection:
            yield connection


def _as_source(command: ItemCommand) -> ItemCommand:
    if not isinstance(command, PutItem) or command.remember is None:
        return command
    return replace(command, remember=replace(command.remember, source_only=True))
