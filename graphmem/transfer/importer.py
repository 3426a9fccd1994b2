"""Imports records in batches, each stored in one transaction; an import that broke off can simply be repeated.

A user's `before_store` is applied to each memory, to its text and to the earlier texts of its history, and to each
judged question.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing
from contextvars import copy_context
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from graphmem import types
from graphmem.commands.imports import LACKING_KEY
from graphmem.commands.types import ImportCommand, ImportItem, ImportMemory, OutcomeType
from graphmem.concurrency import Pool
from graphmem.digests import Digests
from graphmem.engine import PROJECTION_NAMES, Engine
from graphmem.errors import ConfigError, ValidationError
from graphmem.ingest import messages
from graphmem.ingest.hooks import BeforeStore, apply_before_store, kept_question, log_refused
from graphmem.model import Event, Item, MemoryRecord, Message
from graphmem.stores.ledger import jobs, judgements
from graphmem.stores.projection import Progress
from graphmem.text import content_hash
from graphmem.transfer.format import ImportTarget, RecordReader

# The largest batch: its number of records and the characters of its memories. A single memory may be longer.
BATCH, BATCH_CHARS = 200, 1_000_000
# Stored batches that are enriched at a time: one by the models, one that they take next.
BATCHES_IN_WORK = 2
# The remedies for the errors that end an import; repeating the import unchanged would fail at the same record.
_REMEDIES = {
    "line": "the file itself is bad: copy or export it again, and import that",
    "record": "correct that record, and import all records again",
    "hook": "correct before_store, and import all of it again",
}


def import_records(
    engine: Engine,
    records: Iterable[Mapping[str, Any]],
    *,
    restore: bool = False,
    progress: Progress | None = None,
    total: int | None = None,
    record_name: str = "record",
) -> types.ImportResult:
    """Imports records of the export format (`transfer.format`) from a file or from a converter of another program.

    With `restore`, also imports memories that were erased here. Calls `progress("import", records done, total)` after
    each batch, without header and trailer, and with the records done in place of an unknown `total`. `record_name` is
    the word for a record in errors: "line" (of a file) or "record". Raises ValidationError for an invalid record, and
    ConfigError if `before_store` fails; the records before it stay imported.
    """
    engine.check_embedder()
    import_progress = _ImportProgress(engine)
    done = 0
    batches = _CommandBatches(
        records,
        RecordReader(
            ImportTarget(engine.ledger.digests, engine.embedding_spec, engine.settings.zone),
            datetime.now(UTC),
            restore=restore,
        ),
        engine.settings.before_store,
        record_name,
    )
    with closing(import_progress):
        for batch in batches:
            import_progress.store(batch)
            done = batches.commands_read
            if progress is not None:
                progress("import", done, total or done)
    log_refused(batches.refused, batches.hook_calls)
    if batches.error is not None:
        remedy = _REMEDIES["hook" if isinstance(batches.error, ConfigError) else record_name]
        after = f"{import_progress.progress_text()}. {remedy[0].upper()}{remedy[1:]}; the memories added so far stay"
        end = f"; {after if done else 'nothing was imported'}"
        raise _with_text(batches.error, "", end) from batches.error
    return import_progress.result(batches.refused)


def _with_text(error: ValidationError | ConfigError, before: str, after: str = "") -> ValidationError | ConfigError:
    """Returns an error of the same class with more text before and after its own."""
    text = f"{before}{error}{after}"
    if isinstance(error, ConfigError):
        return ConfigError(text)
    return ValidationError(text, f"{before}{error.without_value}{after}")


class _CommandBatches:
    """Iterates over batches of commands read from records, up to the first record that fails; `error` is its error.

    `commands_read` leaves out header and trailer. `hook_calls`: memories for which `before_store` was called;
    `refused`: how many of them it refused.
    """

    def __init__(
        self, records: Iterable[Mapping[str, Any]], reader: RecordReader, hook: BeforeStore | None, record_name: str
    ) -> None:
        self.records_read = self.commands_read = self.refused = self.hook_calls = 0
        self.error: ValidationError | ConfigError | None = None
        self._records = records
        self._reader = reader
        self._hook = hook
        self._record_name = record_name

    def __iter__(self) -> Iterator[list[ImportCommand]]:
        batch: list[ImportCommand] = []
        chars = 0
        try:
            for record in self._records:
                command = self._next_command(record)
                length = len(command.record.text) if isinstance(command, ImportMemory) else 0
                if batch and (len(batch) == BATCH or chars + length > BATCH_CHARS):
                    yield batch
                    batch, chars = [], 0
                self.records_read += 1
                chars += length
                if command is not None:
                    self.commands_read += 1
                    batch.append(command)
        except (ValidationError, ConfigError) as error:
            self.error = error
        yield batch

    def _next_command(self, record: Mapping[str, Any]) -> ImportCommand | None:
        try:
            command = self._reader.command(record)
            if isinstance(command, ImportItem) and judgements.is_judgement(command.item):
                return _kept_judgement(self._hook, command.item)
            if not isinstance(command, ImportMemory):
                return command
            allowed = apply_hook(self._hook, command, self._reader.digests)
        except (ValidationError, ConfigError) as error:
            raise _with_text(error, f"{self._record_name} {self.records_read + 1}: ") from error
        self.hook_calls += 1
        self.refused += allowed is None
        return allowed


class _ImportProgress:
    """Stores batches of commands, and counts their outcomes.

    Up to BATCHES_IN_WORK stored batches are enriched while the next one is stored, so that neither waits for the other.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._pool = Pool(BATCHES_IN_WORK, thread_name_prefix="graphmem-import")
        self._in_work: deque[Future[int]] = deque()
        self._keeps_data = engine.ledger.blobs is not None and engine.ledger.blobs.keeps_new
        self._counts: Counter[str] = Counter()
        self._partitions: set[str] = set()
        self._unenriched = 0

    def store(self, commands: list[ImportCommand]) -> None:
        """Stores a batch in one transaction, and has its new memories enriched and delivered to the projections."""
        outcomes = self._engine.commit(commands) if commands else []
        for outcome in outcomes:
            self._counts[outcome.reason or outcome.event] += 1
            self._counts["skipped"] += outcome.skipped_links
        added_records = [outcome.record for outcome in outcomes if outcome.record is not None]
        if not self._keeps_data:
            brought = [one for record in added_records for one in record.attachments if one.source is not None]
            self._counts["skipped_data"] += len(brought)
        self._partitions |= {record.partition for record in added_records}
        if added_records:
            # Those that came with their enrichment have no task.
            if owed := self._unenriched_of(added_records):
                self._in_work.append(self._pool.submit(copy_context().run, self._enrich, owed))
                self._wait_for_batches(BATCHES_IN_WORK - 1)
            partitions = {record.partition for record in added_records} - {record.partition for record in owed}
            if partitions:
                self._engine.deliver(list(partitions))

    def _enrich(self, records: Sequence[MemoryRecord]) -> int:
        """Enriches and delivers memories; returns how many of them are not enriched then."""
        self._engine.enrich_and_deliver(records, wait=True)
        return len(self._unenriched_of(records))

    def _wait_for_batches(self, most: int) -> None:
        """Waits until at most so many batches are in work."""
        while len(self._in_work) > most:
            self._unenriched += self._in_work.popleft().result()

    def close(self) -> None:
        """Waits for the batches in work, and ends their threads."""
        with self._pool:
            self._wait_for_batches(0)

    def _unenriched_of(self, records: Sequence[MemoryRecord]) -> list[MemoryRecord]:
        with self._engine.ledger.read() as connection:
            rows = jobs.unenriched(connection, [record.row for record in records])
        return [record for record in records if record.row in rows]

    def progress_text(self) -> str:
        """Returns the number of memories added so far, for an error message."""
        added_count, known_count = self._counts[OutcomeType.ADD], self._counts["known"]
        text = f"before that {added_count:,} {'memory was' if added_count == 1 else 'memories were'} added"
        return f"{text} ({known_count:,} known already)" if known_count else text

    def result(self, refused: int) -> types.ImportResult:
        """Delivers pending changes, and returns the result of `Memory.import_`."""
        counts = self._counts
        result = types.ImportResult(
            added=counts[OutcomeType.ADD],
            known=counts["known"],
            erased=counts["erased"],
            refused=refused,
            tombstones=counts[OutcomeType.IMPORT_TOMBSTONE],
            named=counts[OutcomeType.NAME_ENTITY],
            skipped_links=counts["skipped"],
            skipped_data=counts["skipped_data"],
            items=counts[OutcomeType.PUT_ITEM],
            settings=counts[OutcomeType.CHANGE_SETTINGS],
            keys=counts[LACKING_KEY],
            unenriched=self._unenriched,
        )
        pending = list(PROJECTION_NAMES) if self._unenriched else self._engine.deliver(sorted(self._partitions))
        if pending:
            result["pending"] = pending
        return result


# --- before_store ---------------------------------------------------------------------------------------------------


HookResult = tuple[Message, Mapping[str, Any]]


def apply_hook(hook: BeforeStore | None, command: ImportMemory, digests: Digests) -> ImportMemory | None:
    """Returns the command with the text, name and metadata that the hook allows; None if the hook refuses the memory.

    If the hook changes the memory, the imported extraction and embeddings are dropped, and computed later, as is its
    importance. Raises ConfigError if the hook fails.
    """
    if hook is None:
        return command
    memory = _HookedMemory(hook, command.record)
    name = memory.stored_name(command.record.actor_id, command.record.speaker)
    attachments = command.record.attachments
    said = replace(memory.as_message(command.record.message().content, name), attachments=attachments)
    if attachments:
        allowed = apply_before_store(hook, said, command.record.metadata)
    else:
        allowed = memory.allowed(command.record.text, name, command.record.metadata)
    if allowed is None or not allowed[0].text:
        return None
    message, metadata = allowed
    command = replace(command, events=tuple(memory.allowed_event(event, message.name) for event in command.events))
    if allowed == (said, command.record.metadata):
        return command
    record = replace(command.record, text=message.text, metadata=metadata, attachments=message.attachments)
    if message.name != name:
        has_speaker_only = name is not None and record.actor_id is None
        actor = None if has_speaker_only else message.name
        record = replace(record, actor_id=actor, speaker=messages.speaker_of(message, record.scope))
    return replace(
        command,
        record=record,
        text_hash=content_hash(record.partition, record.embedded_text),
        content_digest=digests.content_digest(message.identity),
        extraction=None,
        embedded=None,
        vitals=None if command.vitals is None else command.vitals._replace(rated=None),
    )


def _kept_judgement(hook: BeforeStore | None, item: Item) -> ImportItem | None:
    """Returns the command for a judgement, at the place of its question as the hook lets it be kept.

    None if the hook refuses the question. Raises ValidationError for an item that is no judgement, and ConfigError if
    the hook fails.
    """
    judgement = judgements.decode(item)
    if judgement is None:
        raise ValidationError(
            'value: is no judgement of a memory; give its "query", "verdict" and, beside it, "memory"'
        )
    asked = kept_question(hook, judgement.query, judgement.at)
    if asked is None:
        return None
    return ImportItem(replace(judgements.encode(replace(judgement, query=asked)), created_at=item.created_at))


class _HookedMemory:
    """Calls the hook for the texts of a memory and of its history, once for each distinct text."""

    def __init__(self, hook: BeforeStore, record: MemoryRecord) -> None:
        self._hook = hook
        self._record = record
        self._hook_results: dict[str, HookResult | None] = {}

    def as_message(self, text: str, name: str | None) -> Message:
        """Returns one of the memory's texts as a message."""
        record = self._record
        return Message(
            record.role or "user", text, record.at, name=name, id=record.message_id, utc_offset=record.utc_offset
        )

    def stored_name(self, actor: str | None, speaker: str | None) -> str | None:
        """Returns the name that the hook gets: `actor`, else `speaker`, else None.

        A speaker that was only derived from the user's or agent's id (`messages.speaker_of`) is left out, as in `add`.
        """
        return actor or (
            speaker if speaker != messages.speaker_of(self.as_message("", None), self._record.scope) else None
        )

    def allowed(self, text: str, name: str | None, metadata: Mapping[str, Any]) -> HookResult | None:
        """Returns one of the memory's texts with its metadata as the hook allows them, or None if it refuses."""
        cache_key = json.dumps([text, name, dict(metadata)], sort_keys=True)
        if cache_key not in self._hook_results:
            self._hook_results[cache_key] = apply_before_store(self._hook, self.as_message(text, name), metadata)
        return self._hook_results[cache_key]

    def allowed_event(self, event: Event, actor: str | None) -> Event:
        """Returns an event with the texts and the name that the hook allows.

        `actor` is the name that the hook allows for the memory's current text: it replaces the memory's name in the
        event. If the hook changes anything in the event, `previous_state` is dropped, because `undo` would restore the
        original text from it.
        """
        name = event.actor_id or self.stored_name(self._record.actor_id, self._record.speaker)
        old, new = (self._allowed_text(text, name) for text in (event.old_text, event.new_text))
        actor_id = actor
        if event.actor_id is None:
            actor_id = None
        elif event.actor_id != self._record.actor_id:
            without_texts = None if event.old_text or event.new_text else event.actor_id
            actor_id = next((result.name for result in (old, new) if isinstance(result, Message)), without_texts)
        texts = tuple(result.content if isinstance(result, Message) else result for result in (old, new))
        keeps_state = (*texts, actor_id) == (event.old_text, event.new_text, event.actor_id)
        if keeps_state and (state := event.previous_state) is not None:
            name = self.stored_name(state["actor_id"], state["speaker"])
            message = self.as_message(state["text"], name)
            keeps_state = self.allowed(state["text"], name, state["metadata"]) == (message, state["metadata"])
        return replace(
            event,
            old_text=texts[0],
            new_text=texts[1],
            actor_id=actor_id,
            previous_state=event.previous_state if keeps_state else None,
        )

    def _allowed_text(self, text: str | None, name: str | None) -> Message | str | None:
        """Returns a text as the allowed message; None for a refused or missing text, "" for an empty one."""
        if not text:
            return text
        allowed = self.allowed(text, name, self._record.metadata)
        return None if allowed is None else allowed[0]
