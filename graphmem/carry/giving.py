"""Giving out what a scope holds as records, from one snapshot, a page at a time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from graphmem.backends import embedder_of
from graphmem.carry import writing
from graphmem.model import Scope
from graphmem.stores.deliver import Progress
from graphmem.stores.ledger import Ledger, whole


def give(
    ledger: Ledger, scope: Scope | None, put: Callable[[writing.Record], object], progress: Progress | None
) -> None:
    """Puts the records of a scope, or of everything, in the order in which they can be taken.

    A memory comes after those it is linked with, and what is said of names after the memories that mention them.
    `progress` hears ("export", memories done, of) after each page.
    """
    with ledger.read() as connection:  # reads inside it see the same snapshot
        model = embedder_of(ledger)
        total, done = whole.count(connection, scope), 0
        put(writing.header(ledger.digests, model, scope, datetime.now(UTC)))
        for page in whole.pages(connection, scope, model):
            for one in page:
                put(writing.memory(one, ledger.digests, model))
            done += len(page)
            if progress is not None:
                progress("export", done, total)
        for buried in whole.gone(connection, scope):
            for gone in buried:
                put(writing.erased(gone))
        for said in whole.namings(connection, scope):
            put(writing.naming(said))
