"""Imports records in batches, each stored in one transaction; an import that broke off can simply be repeated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from graphmem import types
from graphmem.commands.imports import LACKING_KEY
from graphmem.commands.types import ImportCommand, ImportMemory, OutcomeType
from graphmem.engine import PROJECTION_NAMES, Engine
from graphmem.errors import ConfigError, ValidationError
from graphmem.ingest.hooks import BeforeStore, log_refused
from graphmem.model import MemoryRecord
from graphmem.stores.ledger import jobs
from graphmem.stores.projection import Progress
from graphmem.transfer.format import ImportTarget, RecordReader
from graphmem.transfer.import_hook import apply_hook

# The largest batch: its number of records and the characters of its memories. A single memory may be longer.
BATCH, BATCH_CHARS = 200, 1_000_000
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
            if not isinstance(command, ImportMemory):
                return command
            allowed = apply_hook(self._hook, command, self._reader.digests)
        except (ValidationError, ConfigError) as error:
            raise _with_text(error, f"{self._record_name} {self.records_read + 1}: ") from error
        self.hook_calls += 1
        self.refused += allowed is None
        return allowed


class _ImportProgress:
    """Stores batches of commands, and counts their outcomes."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._counts: Counter[str] = Counter()
        self._partitions: set[str] = set()
        self._unenriched = 0

    def store(self, commands: list[ImportCommand]) -> None:
        """Stores a batch in one transaction, enriches its new memories and delivers them to the projections."""
        outcomes = self._engine.commit(commands) if commands else []
        for outcome in outcomes:
            self._counts[outcome.reason or outcome.event] += 1
            self._counts["skipped"] += outcome.skipped_links
        added_records = [outcome.record for outcome in outcomes if outcome.record is not None]
        self._partitions |= {record.partition for record in added_records}
        if added_records:
            # Those that came with their enrichment have no task.
            if owed := self._unenriched_of(added_records):
                self._engine.enrich_and_deliver(owed, wait=True)
                self._unenriched += len(self._unenriched_of(owed))
            partitions = {record.partition for record in added_records} - {record.partition for record in owed}
            if partitions:
                self._engine.deliver(list(partitions))

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
            items=counts[OutcomeType.PUT_ITEM],
            settings=counts[OutcomeType.CHANGE_SETTINGS],
            keys=counts[LACKING_KEY],
            unenriched=self._unenriched,
        )
        pending = list(PROJECTION_NAMES) if self._unenriched else self._engine.deliver(sorted(self._partitions))
        if pending:
            result["pending"] = pending
        return result
