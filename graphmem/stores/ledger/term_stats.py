"""Term statistics of a partition: its number of enriched memories (N) and each term's document frequency (df)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, and_, bindparam, func, select

from graphmem.model import MemoryRecord
from graphmem.stores.ledger.schema import memories, partitions, terms
from graphmem.stores.ledger.sql import in_array, upsert_for
from graphmem.text import term_counts

if TYPE_CHECKING:
    from graphmem.stores.ledger.columns import PartitionColumns

_CHANGE_SIZE = (
    partitions.update()
    .where(partitions.c.id == bindparam("in_partition"))
    .values(size=partitions.c.size + bindparam("by"))
)
_FREQUENCIES = select(terms.c.term, terms.c.df).where(
    terms.c.partition == bindparam("partition"), in_array(terms.c.term, "terms")
)
# The number of a partition's memories that are forgotten; an index of them counts it.
FORGOTTEN_IN_PARTITION = (
    select(func.count())
    .where(
        memories.c.partition == partitions.c.id,
        memories.c.embedding.is_not(None),
        memories.c.forgotten_at.is_not(None),
    )
    .correlate(partitions)
    .scalar_subquery()
)
# It is counted once for each partition, not for each of the terms.
_SEARCHED = (
    select(partitions.c.key, partitions.c.id, partitions.c.size, FORGOTTEN_IN_PARTITION.label("forgotten"))
    .where(in_array(partitions.c.key, "keys"))
    .cte("searched")
    .prefix_with("MATERIALIZED")
)
_STATISTICS = select(_SEARCHED, terms.c.term, terms.c.df).select_from(
    _SEARCHED.outerjoin(terms, and_(terms.c.partition == _SEARCHED.c.id, in_array(terms.c.term, "terms")))
)


def add_term_counts(connection: Connection, added: Sequence[tuple[int, Iterable[int]]]) -> None:
    """Adds memories to the statistics of their partitions, as pairs of the partition's row id and its terms."""
    sizes = Counter(partition for partition, _ in added)
    frequencies = Counter((partition, term) for partition, own_terms in added for term in own_terms)
    if sizes:
        connection.execute(_CHANGE_SIZE, [{"in_partition": partition, "by": by} for partition, by in sizes.items()])
    if frequencies:
        rows = [{"partition": partition, "term": term, "df": df} for (partition, term), df in frequencies.items()]
        connection.execute(_add_terms_statement(connection.dialect.name), rows)


def remove_term_counts(connection: Connection, partition: int, record: MemoryRecord) -> None:
    """Removes a memory from the statistics of its partition (a row id)."""
    connection.execute(_CHANGE_SIZE, {"in_partition": partition, "by": -1})
    own_terms = list(term_counts(record.embedded_text))
    if not own_terms:
        return
    of_memory = (terms.c.partition == partition, terms.c.term.in_(own_terms))
    connection.execute(terms.update().where(*of_memory).values(df=terms.c.df - 1))
    connection.execute(terms.delete().where(*of_memory, terms.c.df <= 0))


@lru_cache(maxsize=2)
def _add_terms_statement(dialect: str) -> Any:
    statement = upsert_for(dialect, terms)
    return statement.on_conflict_do_update(
        index_elements=[terms.c.partition, terms.c.term], set_={"df": terms.c.df + statement.excluded.df}
    )


@dataclass(frozen=True, slots=True)
class PartitionStatistics:
    """The statistics of one partition as a search reads them.

    `row` is the partition's row id (None: nothing was ever written to it), `size` its number of enriched memories,
    `kept` the number of those that are not forgotten. `frequencies`: the document frequency of each term that was asked
    for, 0 for a term that no memory contains. With `columns` it is counted in these, else read.
    """

    key: str
    row: int | None = None
    size: int = 0
    kept: int = 0
    frequencies: Mapping[int, int] = field(default_factory=dict)
    columns: PartitionColumns | None = field(default=None, repr=False, compare=False)

    def with_terms(self, connection: Connection, asked: Iterable[int]) -> PartitionStatistics:
        """Returns the statistics with the frequencies of further terms."""
        unread = [term for term in asked if term not in self.frequencies]
        if not unread:
            return self
        if self.columns is not None:
            found = self.columns.frequencies(connection, unread)
        else:
            found = dict(connection.execute(_FREQUENCIES, {"partition": self.row, "terms": unread}).all())
        return replace(self, frequencies={**self.frequencies, **dict.fromkeys(unread, 0), **found})


def statistics_of(
    connection: Connection, keys: Sequence[str], asked: Iterable[int] = (), columns: PartitionColumns | None = None
) -> dict[str, PartitionStatistics]:
    """Returns the statistics of partitions with the frequencies of terms, by the partitions' keys.

    Reads them by one statement, or counts in `columns`, if these are of the only partition.
    """
    terms_asked = list(asked)
    if columns is not None and list(keys) == [columns.key]:
        counted = columns.frequencies(connection, terms_asked)
        own = PartitionStatistics(columns.key, columns.partition, columns.size, columns.kept, counted, columns)
        return {columns.key: own}
    found: dict[str, PartitionStatistics] = {key: PartitionStatistics(key) for key in keys}
    frequencies: dict[str, dict[int, int]] = {key: dict.fromkeys(terms_asked, 0) for key in keys}
    for key, row, size, forgotten, term, df in connection.execute(_STATISTICS, {"keys": keys, "terms": terms_asked}):
        found[key] = PartitionStatistics(key, row, size, size - forgotten)
        if term is not None:
            frequencies[key][term] = df
    return {key: replace(one, frequencies=frequencies[key]) for key, one in found.items()}
