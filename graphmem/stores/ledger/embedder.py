"""The embedder whose vectors the ledger and its projections hold: recorded by the first write, and by a rebuild."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Connection, select

from graphmem.errors import ConfigError
from graphmem.model import EmbedderId
from graphmem.stores.ledger.schema import ledger as ledger_table

if TYPE_CHECKING:
    from graphmem.stores.ledger import Ledger


class EmbedderChanged(ConfigError):
    """The ledger's vectors are of another embedder than the configured one."""

    is_loggable = True


def recorded_embedder(connection: Connection) -> EmbedderId | None:
    """Returns the embedder whose vectors the ledger holds; None before the first."""
    model, dims = connection.execute(select(ledger_table.c.embedder, ledger_table.c.embedder_dims)).one()
    return None if model is None else EmbedderId(model, dims)


def check_embedder(ledger: Ledger, configured: EmbedderId) -> None:
    """Raises EmbedderChanged if the ledger's vectors are of another embedder; records the first one."""
    with ledger.read() as connection:
        recorded = recorded_embedder(connection)
    if recorded is None:
        record_embedder(ledger, configured)
    elif recorded != configured:
        raise EmbedderChanged(
            f"embedder: this ledger's vectors are of {recorded}, the configuration says {configured}; run `graphmem "
            f"rebuild` or call rebuild() to embed everything anew, or configure {recorded} again"
        )


def record_embedder(ledger: Ledger, embedder: EmbedderId) -> None:
    """Commits that the ledger's vectors are this embedder's."""
    with ledger.write() as connection:
        connection.execute(ledger_table.update().values(embedder=embedder.model, embedder_dims=embedder.dims))
