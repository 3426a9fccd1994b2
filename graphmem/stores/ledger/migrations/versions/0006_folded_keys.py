"""Keys and terms in the spelling in which they are compared now (docs/decisions/0031-folding-of-keys.md)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa
from alembic import op

from graphmem.model import embedded_text
from graphmem.stores.ledger.dialects import Text
from graphmem.text import bare_key, folded_key, term_counts

revision = "0006"
down_revision = "0005"


def _table(name: str, *columns: str) -> sa.TableClause:
    return sa.table(name, *map(sa.column, columns))


memories = _table("memories", "id", "partition", "speaker", "text", "embedding")
entities = _table("entities", "id", "partition", "key", "name", "type", "mentions", "bare_key", "seq")
mentions = _table("mentions", "memory", "entity", "kind", "at")
relations = _table("relations", "id", "partition", "subject", "predicate", "object", "at", "seq")
supports = _table("supports", "relation", "memory", "fact", "valid_at", "invalid_at", "confidence")
aliases = _table("aliases", "partition", "key", "other", "origin", "negated", "at")
names = _table("names", "partition", "key", "name", "at")
terms = _table("terms", "partition", "term", "df")
cursors = _table("cursors", "projection", "seq")


def upgrade() -> None:
    """Folds the keys of entities, aliases and chosen names, joins entities that have one key now, counts terms anew.

    The projections have other keys and terms: they are filled again from the ledger.
    """
    op.add_column("entities", sa.Column("bare_key", Text))
    op.create_index("entities_bare_key", "entities", ["partition", "bare_key"])
    connection = op.get_bind()
    _fold_entities(connection)
    _fold_aliases(connection)
    _fold_names(connection)
    _count_terms(connection)
    connection.execute(cursors.delete())


def _fold_entities(connection: sa.Connection) -> None:
    """Gives each entity its new key. Of several with one key that with the most mentions takes over the others'."""
    kept: dict[tuple[int, str], int] = {}
    changed: list[tuple[int, str]] = []
    rows = connection.execute(sa.select(entities).order_by(entities.c.mentions.desc(), entities.c.id)).all()
    for row in rows:
        key = folded_key(row.key)
        first = kept.setdefault((row.partition, key), row.id)
        if first != row.id:
            _join(connection, first, row)
        elif key != row.key or bare_key(key) is not None:
            changed.append((row.id, key))
    # After all joins: a key may be that of an entity that is gone by now.
    for row_id, key in changed:
        values = {"key": key, "bare_key": bare_key(key)}
        connection.execute(entities.update().where(entities.c.id == row_id).values(values))


def _join(connection: sa.Connection, kept: int, other: Any) -> None:
    """Moves mentions and relations of an entity to the one that is kept, and deletes it."""
    has_both = sa.select(mentions.c.memory).where(mentions.c.entity == kept)
    of_other = mentions.c.entity == other.id
    kinds = connection.execute(sa.select(mentions.c.memory, mentions.c.kind).where(of_other)).all()
    for memory, kind in kinds:
        stronger = (mentions.c.memory == memory) & (mentions.c.entity == kept) & (mentions.c.kind > kind)
        connection.execute(mentions.update().where(stronger).values(kind=kind))
    connection.execute(mentions.delete().where(of_other, mentions.c.memory.in_(list(connection.scalars(has_both)))))
    connection.execute(mentions.update().where(of_other).values(entity=kept))
    ends = sa.select(relations).where((relations.c.subject == other.id) | (relations.c.object == other.id))
    for relation in connection.execute(ends).all():
        subject, target = (kept if end == other.id else end for end in (relation.subject, relation.object))
        _move_relation(connection, relation, subject, target)
    connection.execute(entities.delete().where(entities.c.id == other.id))
    count = sa.select(sa.func.count()).select_from(mentions).where(mentions.c.entity == kept).scalar_subquery()
    # The sequence number of either: projections show an entity that has one.
    seq = sa.func.coalesce(entities.c.seq, other.seq)
    connection.execute(entities.update().where(entities.c.id == kept).values(mentions=count, seq=seq))


def _move_relation(connection: sa.Connection, relation: Any, subject: int, target: int) -> None:
    same = sa.select(relations.c.id).where(
        relations.c.partition == relation.partition,
        relations.c.subject == subject,
        relations.c.predicate == relation.predicate,
        relations.c.object == target,
    )
    existing = connection.scalar(same)
    is_moved = relations.c.id == relation.id
    if subject == target:  # the two spellings of one name
        connection.execute(supports.delete().where(supports.c.relation == relation.id))
        connection.execute(relations.delete().where(is_moved))
        return
    if existing is None:
        connection.execute(relations.update().where(is_moved).values(subject=subject, object=target))
        return
    stating = list(connection.scalars(sa.select(supports.c.memory).where(supports.c.relation == existing)))
    of_moved = supports.c.relation == relation.id
    connection.execute(supports.delete().where(of_moved, supports.c.memory.in_(stating)))
    connection.execute(supports.update().where(of_moved).values(relation=existing))
    newest = relations.update().where(relations.c.id == existing, relations.c.at < relation.at)
    connection.execute(newest.values(at=relation.at))
    connection.execute(relations.delete().where(is_moved))


def _fold_aliases(connection: sa.Connection) -> None:
    """Writes the aliases under their new keys; of two that have the same now a user's is kept, then the latest."""
    folded: dict[tuple[int, str, str], dict[str, Any]] = {}
    rows = connection.execute(sa.select(aliases)).mappings().all()
    for row in sorted(rows, key=lambda row: (row["origin"] == "user", row["at"])):
        key, other = folded_key(row["key"]), folded_key(row["other"])
        if key != other:
            folded[row["partition"], key, other] = {**row, "key": key, "other": other}
    _replace_rows(connection, aliases, folded.values())


def _fold_names(connection: sa.Connection) -> None:
    """Writes the chosen names under their new keys; of two names of one key the latest is kept."""
    folded: dict[tuple[int, str], dict[str, Any]] = {}
    for row in connection.execute(sa.select(names).order_by(names.c.at)).mappings().all():
        key = folded_key(row["key"])
        folded[row["partition"], key] = {**row, "key": key}
    _replace_rows(connection, names, folded.values())


def _count_terms(connection: sa.Connection) -> None:
    columns = memories.c.partition, memories.c.speaker, memories.c.text
    frequencies: Counter[tuple[int, int]] = Counter()
    enriched = sa.select(*columns).where(memories.c.embedding.is_not(None))
    for partition, speaker, text in connection.execute(enriched):
        frequencies.update((partition, term) for term in term_counts(embedded_text(speaker, text)))
    counted = [{"partition": partition, "term": term, "df": df} for (partition, term), df in frequencies.items()]
    _replace_rows(connection, terms, counted)


def _replace_rows(connection: sa.Connection, table: sa.TableClause, rows: Iterable[dict[str, Any]]) -> None:
    connection.execute(table.delete())
    if written := list(rows):
        connection.execute(table.insert(), written)
