"""Taking in records, in batches that are each stored as a whole: what was broken off is repeated, and goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from graphmem import types
from graphmem.commands.types import ImportCommand, ImportMemory, Outcome
from graphmem.engine import PROJECTION_NAMES, Engine
from graphmem.errors import ConfigError, ValidationError
from graphmem.ingest.hooks import BeforeStore, log_refused
from graphmem.stores.projection import Progress
from graphmem.transfer.format import ImportTarget, RecordReader
from graphmem.transfer.import_hook import apply_hook

# A batch has so many records, and so many characters of memories, at most (or one memory).
BATCH, BATCH_CHARS = 200, 1_000_000
# What to do about what ends an import. Repeating it as it is would end there again.
_REMEDIES = {
    "line": "the file itself is bad: copy or export it again, and import that",
    "record": "mend that record, and import all of them again",
    "hook": "mend before_store, and import all of it again",
}


def import_records(
    engine: Engine,
    records: Iterable[Mapping[str, Any]],
    *,
    restore: bool = False,
    progress: Progress | None = None,
    total: int | None = None,
    each: str = "record",
) -> types.ImportResult:
    """Takes in records as `format` knows them, whoever makes them.

    `progress` hears ("import", done, `total` or done) after each batch; `each` is what an error calls a record.
    Raises ValidationError for one that cannot be taken, ConfigError when `before_store` fails; those before it are.
    """
    engine.check_embedder()
    taken = _ImportProgress(engine)
    done = 0
    steps = _CommandBatches(
        records,
        RecordReader(
            ImportTarget(engine.ledger.digests, engine.embedding_spec, engine.dims), datetime.now(UTC), restore=restore
        ),
        engine.settings.before_store,
        each,
    )
    for batch in steps:
        taken.store(batch)
        done = steps.read
        if progress is not None:
            progress("import", done, total or done)
    log_refused(steps.refused, steps.asked)
    if steps.error is not None:
        remedy = _REMEDIES["hook" if isinstance(steps.error, ConfigError) else each]
        told = f"{taken.progress_text()}. {remedy[0].upper()}{remedy[1:]}; what is here stays as it is"
        raise type(steps.error)(f"{steps.error}; {told if done else 'nothing was imported'}") from steps.error
    return taken.result(steps.refused)


class _CommandBatches:
    """Batches of steps. A record that cannot be read ends them; `error` then says why."""

    def __init__(
        self, records: Iterable[Mapping[str, Any]], reader: RecordReader, hook: BeforeStore | None, each: str
    ) -> None:
        self.read = self.refused = self.asked = 0
        self.error: ValidationError | ConfigError | None = None
        self._records = records
        self._reader = reader
        self._hook = hook
        self._each = each

    def __iter__(self) -> Iterator[list[ImportCommand]]:
        batch: list[ImportCommand] = []
        chars = 0
        try:
            for record in self._records:
                step = self._step(record)
                length = len(step.record.text) if isinstance(step, ImportMemory) else 0
                if batch and (len(batch) == BATCH or chars + length > BATCH_CHARS):
                    yield batch
                    batch, chars = [], 0
                self.read += 1
                chars += length
                if step is not None:
                    batch.append(step)
        except (ValidationError, ConfigError) as error:
            self.error = error
        yield batch

    def _step(self, record: Mapping[str, Any]) -> ImportCommand | None:
        try:
            step = self._reader.command(record)
            if not isinstance(step, ImportMemory):
                return step
            allowed = apply_hook(self._hook, step, self._reader.digests)
        except (ValidationError, ConfigError) as error:
            raise type(error)(f"{self._each} {self.read + 1}: {error}") from error
        self.asked += 1
        self.refused += allowed is None
        return allowed


class _ImportProgress:
    """What became of the records so far."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._counts: Counter[str] = Counter()
        self._partitions: set[str] = set()
        self._unenriched = 0

    def store(self, steps: list[ImportCommand]) -> None:
        """Stores a batch, and does what follows as after `add`."""
        outcomes = self._engine.commit(steps) if steps else []
        for outcome in outcomes:
            self._counts[outcome.reason or outcome.event] += 1
            self._counts["skipped"] += outcome.skipped_links
        self._finish(outcomes)

    def _finish(self, outcomes: list[Outcome]) -> None:
        fresh = [outcome.record for outcome in outcomes if outcome.record is not None]
        self._partitions |= {record.partition for record in fresh}
        if fresh:
            self._engine.enrich_and_deliver(fresh, wait=True)
            self._unenriched += self._engine.count_pending(fresh)

    def progress_text(self) -> str:
        """How many memories there are of it, for an error's text."""
        added, known = self._counts["ADD"], self._counts["known"]
        told = f"before that {added:,} {'memory was' if added == 1 else 'memories were'} added"
        return f"{told} ({known:,} known already)" if known else told

    def result(self, refused: int) -> types.ImportResult:
        """What `import_` returns."""
        counts = self._counts
        result = types.ImportResult(
            added=counts["ADD"],
            known=counts["known"],
            erased=counts["erased"],
            refused=refused,
            tombstones=counts["BURY"],
            named=counts["NAME"],
            skipped_links=counts["skipped"],
            unenriched=self._unenriched,
        )
        pending = list(PROJECTION_NAMES) if self._unenriched else self._engine.deliver(sorted(self._partitions))
        if pending:
            result["pending"] = pending
        return result
