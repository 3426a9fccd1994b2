"""The embedder whose vectors the ledger and its projections hold: recorded by the first write, and by a rebuild."""

from __future__ import annotations

from logging import getLogger
from typing import TYPE_CHECKING

from sqlalchemy import Connection, select

from graphmem.errors import ConfigError
from graphmem.model import EmbedderId, EmbeddingSpec
from graphmem.stores.ledger.schema import ledger as ledger_table

if TYPE_CHECKING:
    from graphmem.stores.ledger import Ledger

logger = getLogger(__name__)
# The UUIDs of the ledgers of which a warning was logged.
_warned_of: set[str] = set()


class EmbedderChanged(ConfigError):
    """The ledger's vectors are of another embedder than the configured one."""

    is_loggable = True


def recorded_embedder(connection: Connection) -> EmbedderId | None:
    """Returns the embedder whose vectors the ledger holds; None before the first."""
    return recorded_spaces(connection)[0]


def recorded_spaces(connection: Connection) -> tuple[EmbedderId | None, str | None]:
    """Returns the embedder whose vectors the ledger holds, and the form of those in the multilingual space.

    The form is None unless all embedded texts have such a vector. Both are None before the first vectors.
    """
    columns = ledger_table.c
    statement = select(columns.embedder, columns.embedder_dims, columns.multilingual)
    model, dims, multilingual = connection.execute(statement).one()
    return None if model is None else EmbedderId(model, dims), multilingual


def check_embedder(ledger: Ledger, spec: EmbeddingSpec) -> None:
    """Raises EmbedderChanged if the ledger's vectors are of another embedder; records the first one."""
    with ledger.read() as connection:
        is_recorded = is_recorded_embedder(connection, ledger, spec)
    if not is_recorded:
        record_embedder(ledger, spec)


def is_recorded_embedder(connection: Connection, ledger: Ledger, spec: EmbeddingSpec) -> bool:
    """Returns whether the ledger's vectors are of this embedder; False before the first vectors.

    Raises EmbedderChanged if they are of another one. Warns once in a process of a ledger whose texts have no vectors
    in the multilingual space yet.
    """
    configured = spec.embedder
    recorded, multilingual = recorded_spaces(connection)
    if recorded is None:
        return False
    if recorded != configured:
        raise EmbedderChanged(
            f"embedder: this ledger's vectors are of {recorded}, the configuration says {configured}; run `graphmem "
            f"rebuild` or call rebuild() to embed everything anew, or configure {recorded} again"
        )
    if multilingual != spec.multilingual and spec.multilingual is not None and ledger.uuid not in _warned_of:
        _warned_of.add(ledger.uuid)
        logger.warning(
            "embedder: texts of this ledger have no vectors in the multilingual space yet, so that they are found in "
            "the embedder's own languages alone; `graphmem rebuild` or rebuild() adds these vectors"
        )
    return True


def record_embedder(ledger: Ledger, spec: EmbeddingSpec) -> None:
    """Commits that the ledger's vectors are of this specification."""
    values = {"embedder": spec.model, "embedder_dims": spec.dims, "multilingual": spec.multilingual}
    with ledger.write() as connection:
        connection.execute(ledger_table.update().values(values))
