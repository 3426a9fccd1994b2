"""Document frequencies of terms, by partition."""

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

_COUNT = (
    partitions.update()
    .where(partitions.c.id == bindparam("partition"))
    .values(size=partitions.c.size + bindparam("by"))
)
_FREQUENCIES = select(terms.c.term, terms.c.df).where(
    terms.c.partition == bindparam("partition"), in_array(terms.c.term, "wanted")
)


def update_term_counts(connection: Connection, record: MemoryRecord, partition: int, by: int) -> None:
    """Adds a memory to its partition's statistics (`by` 1), or takes it out again (`by` -1)."""
    connection.execute(_COUNT, {"partition": partition, "by": by})
    found = list(term_counts(record.embedded_text))
    if not found:
        return
    if by > 0:
        connection.execute(
            _one_more(connection.dialect.name), [{"partition": partition, "term": term, "df": 1} for term in found]
        )
        return
    mine = (terms.c.partition == partition, terms.c.term.in_(found))
    connection.execute(terms.update().where(*mine).values(df=terms.c.df - 1))
    connection.execute(terms.delete().where(*mine, terms.c.df <= 0))


@lru_cache(maxsize=2)
def _one_more(dialect: str) -> Any:
    counted = {"df": terms.c.df + 1}
    return upsert_for(dialect, terms).on_conflict_do_update(
        index_elements=[terms.c.partition, terms.c.term], set_=counted
    )


def document_frequencies(connection: Connection, partition: str, wanted: Iterable[int]) -> tuple[int, dict[int, int]]:
    """N of a partition, and how many of its memories hold each of these terms (absent: none)."""
    row, size = rows.sized_partition(connection, partition)
    return size, dict(connection.execute(_FREQUENCIES, {"partition": row, "wanted": list(wanted)}).all())
