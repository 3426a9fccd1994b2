"""What a ledger records of itself: the embedder of its vectors, the usage of language models, erasures to be compacted.

The embedder whose vectors the ledger and its projections hold is recorded by the first write, and by a rebuild. The
usage are totals of calls, tokens, seconds and cost by operation, model and scope.
"""

from __future__ import annotations

from logging import getLogger
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, func, select

from graphmem.errors import ConfigError
from graphmem.model import SCOPE_NAMES, EmbedderId, EmbeddingSpec, Scope
from graphmem.stores.ledger.outbox import RecordedSpaces
from graphmem.stores.ledger.schema import ledger as ledger_table
from graphmem.stores.ledger.schema import usage
from graphmem.stores.ledger.sql import upsert

if TYPE_CHECKING:
    from graphmem.plugins import Usage
    from graphmem.stores.ledger import Ledger

logger = getLogger(__name__)
# The UUIDs of the ledgers of which a warning was logged.
_warned_of: set[str] = set()
_SUMS = ("calls", "prompt_tokens", "completion_tokens", "cached_tokens", "seconds", "cost")
SPACES = (ledger_table.c.embedder, ledger_table.c.embedder_dims, ledger_table.c.multilingual)
_RECORDED_SPACES = select(*SPACES)
_KEYS = ("operation", "model", *SCOPE_NAMES)


class EmbedderChanged(ConfigError):
    """The ledger's vectors are of another embedder than the configured one."""

    is_loggable = True


def recorded_embedder(connection: Connection) -> EmbedderId | None:
    """Returns the embedder whose vectors the ledger holds; None before the first."""
    return recorded_spaces(connection).embedder


def recorded_spaces(connection: Connection) -> RecordedSpaces:
    """Returns what the ledger's vectors are of."""
    return RecordedSpaces.of(*connection.execute(_RECORDED_SPACES).one())


def check_embedder(ledger: Ledger, spec: EmbeddingSpec) -> None:
    """Raises EmbedderChanged if the ledger's vectors are of another embedder; records the first one."""
    with ledger.read_once() as connection:
        recorded = recorded_spaces(connection)
    if not are_of(recorded, spec, ledger.uuid):
        with ledger.write(of=()) as connection:
            ensure_embedder(connection, spec, ledger.uuid)


def ensure_embedder(connection: Connection, spec: EmbeddingSpec, ledger: str) -> None:
    """Records the embedder of the first vectors, as `check_embedder` does; of two writers, that of the first one."""
    recorded = connection.execute(select(*SPACES).with_for_update()).one()
    if not are_of(RecordedSpaces.of(*recorded), spec, ledger):
        set_embedder(connection, spec)


def are_of(spaces: RecordedSpaces, spec: EmbeddingSpec, ledger: str) -> bool:
    """Returns whether the vectors of the ledger with this UUID are of this embedder; False before the first vectors.

    Raises EmbedderChanged if they are of another one. Warns once in a process of a ledger whose texts have no vectors
    in the multilingual space yet.
    """
    configured = spec.embedder
    recorded, multilingual = spaces
    if recorded is None:
        return False
    if recorded != configured:
        raise EmbedderChanged(
            f"embedder: this ledger's vectors are of {recorded}, the configuration says {configured}; run `graphmem "
            f"rebuild` or call rebuild() to embed everything anew, or configure {recorded} again"
        )
    if multilingual != spec.multilingual and spec.multilingual is not None and ledger not in _warned_of:
        _warned_of.add(ledger)
        logger.warning(
            "embedder: texts of this ledger have no vectors in the multilingual space yet, so that they are found in "
            "the embedder's own languages alone; `graphmem rebuild` or rebuild() adds these vectors"
        )
    return True


def record_embedder(ledger: Ledger, spec: EmbeddingSpec) -> None:
    """Commits that the ledger's vectors are of this specification."""
    with ledger.write() as connection:
        set_embedder(connection, spec)


def set_embedder(connection: Connection, spec: EmbeddingSpec) -> None:
    """Records that the ledger's vectors are of this specification."""
    values = {"embedder": spec.model, "embedder_dims": spec.dims, "multilingual": spec.multilingual}
    connection.execute(ledger_table.update().values(values))


def record_usage(connection: Connection, operation: str, model: str, scope: Scope, used: Usage) -> None:
    """Adds the usage of one or more calls to the totals."""
    keys = {"operation": operation, "model": model, **dict.fromkeys(SCOPE_NAMES, ""), **scope.parts}
    amounts = {name: getattr(used, name) for name in _SUMS}
    statement = upsert(connection, usage).values({**keys, **amounts})
    increased = {name: usage.c[name] + amounts[name] for name in _SUMS}
    connection.execute(
        statement.on_conflict_do_update(index_elements=[usage.c[name] for name in _KEYS], set_=increased)
    )


def usage_totals(connection: Connection, scope: Scope | None = None) -> list[dict[str, Any]]:
    """Returns the totals of each operation and model, over all scopes or for one."""
    sums = [func.sum(usage.c[name]).label(name) for name in _SUMS]
    statement = select(usage.c.operation, usage.c.model, *sums).group_by(usage.c.operation, usage.c.model)
    if scope is not None:
        statement = statement.where(*(usage.c[name] == value for name, value in scope.parts.items()))
    rows = connection.execute(statement.order_by(usage.c.operation)).mappings()
    # PostgreSQL returns sums of integer columns as Decimal.
    return [
        {name: int(value) if name.endswith(("calls", "tokens")) else value for name, value in row.items()}
        for row in rows
    ]


def count_erasure(connection: Connection) -> None:
    """Counts one more commit that erased words."""
    connection.execute(ledger_table.update().values(erasures=ledger_table.c.erasures + 1))


def erasures(connection: Connection) -> int:
    """Returns the number of commits that erased words since the last compaction."""
    return connection.scalar(select(ledger_table.c.erasures)) or 0


def subtract_erasures(connection: Connection, count: int) -> None:
    """Takes the erasures before a compaction off the count; others that came during it stay counted."""
    connection.execute(ledger_table.update().values(erasures=ledger_table.c.erasures - count))
