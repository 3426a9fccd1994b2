"""Term statistics of a partition: its number of enriched memories (N) and each term's document frequency (df)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, bindparam, select

from graphmem.model import MemoryRecord
from graphmem.stores.ledger import memories as rows
from graphmem.stores.ledger.array_parameters import in_array
from graphmem.stores.ledger.dialects import upsert_for
from graphmem.stores.ledger.schema import partitions, terms
from graphmem.text import term_counts

_CHANGE_SIZE = (
    partitions.update()
    .where(partitions.c.id == bindparam("partition"))
    .values(size=partitions.c.size + bindparam("by"))
)
_FREQUENCIES = select(terms.c.term, terms.c.df).where(
    terms.c.partition == bindparam("partition"), in_array(terms.c.term, "terms")
)


def update_term_counts(connection: Connection, record: MemoryRecord, partition: int, by: int) -> None:
    """Adds a memory to its partition's statistics (`by` 1), or removes it from them (`by` -1)."""
    connection.execute(_CHANGE_SIZE, {"partition": partition, "by": by})
    own_terms = list(term_counts(record.embedded_text))
    if not own_terms:
        return
    if by > 0:
        connection.execute(
            _add_terms_statement(connection.dialect.name),
            [{"partition": partition, "term": term, "df": 1} for term in own_terms],
        )
        return
    of_memory = (terms.c.partition == partition, terms.c.term.in_(own_terms))
    connection.execute(terms.update().where(*of_memory).values(df=terms.c.df - 1))
    connection.execute(terms.delete().where(*of_memory, terms.c.df <= 0))


@lru_cache(maxsize=2)
def _add_terms_statement(dialect: str) -> Any:
    increased = {"df": terms.c.df + 1}
    return upsert_for(dialect, terms).on_conflict_do_update(
        index_elements=[terms.c.partition, terms.c.term], set_=increased
    )


def document_frequencies(
    connection: Connection, partition: str, term_hashes: Iterable[int]
) -> tuple[int, dict[int, int]]:
    """Returns a partition's N and {term: df}; a term that no memory contains is absent."""
    row, size = rows.sized_partition(connection, partition)
    return size, dict(connection.execute(_FREQUENCIES, {"partition": row, "terms": list(term_hashes)}).all())
