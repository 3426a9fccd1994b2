"""Names that mean one entity, and names that users chose: rows of `aliases` and `names`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    FromClause,
    Select,
    bindparam,
    exists,
    func,
    or_,
    select,
    union,
)

from graphmem.extraction.entity_resolution import ChosenName
from graphmem.model import Entity, EntityType, Link, MentionKind, Origin
from graphmem.stores.ledger import outbox
from graphmem.stores.ledger.array_parameters import in_array
from graphmem.stores.ledger.decoding import decoding
from graphmem.stores.ledger.dialects import upsert
from graphmem.stores.ledger.memories import BATCH
from graphmem.stores.ledger.schema import aliases, entities, memories, mentions, names, partitions, relations, tasks
from graphmem.text import normalise_key

RULE_ORIGINS = tuple(origin for origin in Origin if origin is not Origin.USER)
# The first character behind all that begins with a prefix: no name has it.
_BEHIND = "\U0010ffff"
# Every search asks these two.
_KNOWN = select(entities).where(entities.c.partition == bindparam("partition"), in_array(entities.c.key, "keys"))
_LINKS = select(aliases.c.key, aliases.c.other, aliases.c.origin).where(
    aliases.c.partition == bindparam("partition"), aliases.c.negated.is_(False), in_array(aliases.c.key, "keys")
)


# --- links ----------------------------------------------------------------------------------------------------------


def all_links(connection: Connection, partition: int | None) -> list[Link]:
    """Every link of a partition, once."""
    mine = aliases.c.partition == partition, aliases.c.negated.is_(False), aliases.c.key < aliases.c.other
    return _links(connection, select(aliases.c.key, aliases.c.other, aliases.c.origin).where(*mine))


def links_of(connection: Connection, partition: int | None, keys: Iterable[str]) -> list[Link]:
    """The links that lead from these keys."""
    return _links(connection, _LINKS, partition=partition, keys=list(keys))


def _links(connection: Connection, statement: Any, **named: Any) -> list[Link]:
    return [Link(key, other, Origin(origin)) for key, other, origin in connection.execute(statement, named)]


def linked_group(connection: Connection, partition: int | None, keys: Iterable[str]) -> list[Link]:
    """The links that lead from these keys, from where those lead, and so on: mostly none, for one look-up."""
    found: dict[Link, None] = {}
    waiting, seen = list(keys), set(keys)
    while waiting:
        links = links_of(connection, partition, waiting)
        found |= dict.fromkeys(links)
        waiting = sorted({link.other for link in links} - seen)
        seen |= set(waiting)
    return list(found)


def linked_keys(connection: Connection, partition: int | None, keys: Iterable[str]) -> dict[str, str]:
    """The further keys of what these keys mean, each with the one of these that it is another name of."""
    asked = list(keys)
    links = linked_group(connection, partition, asked)
    meant = dict(zip(asked, asked, strict=True))
    for link in links:  # in the order they were reached, so what a link leads from is known already
        meant.setdefault(link.other, meant[link.key])
    return {key: of for key, of in meant.items() if key != of}


def link_between(connection: Connection, partition: int, key: str, other: str) -> Link | None:
    """The link between two keys."""
    return next((link for link in links_of(connection, partition, [key]) if link.other == other), None)


def set_user_link(connection: Connection, partition: int, link: Link, at: int, *, negated: bool = False) -> None:
    """Writes what a user says of two keys, over whatever was found."""
    said = {"origin": link.origin.value, "negated": negated, "at": at}
    statement = upsert(connection, aliases).values([{**row, **said} for row in _both(partition, link)])
    there = [aliases.c.partition, aliases.c.key, aliases.c.other]
    connection.execute(statement.on_conflict_do_update(index_elements=there, set_=said))
    touch_entities(connection, partition, [link.key, link.other])


def add_rule_link(connection: Connection, partition: int, link: Link, at: int) -> None:
    """Writes what a rule found, unless something is known of the two keys."""
    said = {"origin": link.origin.value, "negated": False, "at": at}
    statement = upsert(connection, aliases).values([{**row, **said} for row in _both(partition, link)])
    if _written(connection, statement.on_conflict_do_nothing(), aliases.c.key):
        touch_entities(connection, partition, [link.key, link.other])


def _written(connection: Connection, statement: Any, column: Column[Any]) -> bool:
    """Whether an INSERT that gives way to what is there wrote anything: psycopg's count of its rows does not tell."""
    return connection.execute(statement.returning(column)).first() is not None


def import_link(connection: Connection, partition: int, link: Link, at: int, *, negated: bool) -> bool:
    """Writes what another ledger knew of two keys. What users say counts more than a rule, else this one's stays."""
    said = {"origin": link.origin.value, "negated": negated, "at": at}
    statement = upsert(connection, aliases).values([{**row, **said} for row in _both(partition, link)])
    if link.origin is Origin.USER:
        there = [aliases.c.partition, aliases.c.key, aliases.c.other]
        found = aliases.c.origin.in_(RULE_ORIGINS)
        statement = statement.on_conflict_do_update(index_elements=there, set_=said, where=found)
    else:
        statement = statement.on_conflict_do_nothing()
    new = _written(connection, statement, aliases.c.key)
    if new:
        touch_entities(connection, partition, [link.key, link.other])
    return new


def _both(partition: int, link: Link) -> list[dict[str, Any]]:
    ends = (link.key, link.other), (link.other, link.key)
    return [{"partition": partition, "key": key, "other": other} for key, other in ends]


def remove_rule_links(connection: Connection, partition: int, links: Iterable[Link]) -> None:
    """Takes links out that rules have found."""
    for link in links:
        for key, other in ((link.key, link.other), (link.other, link.key)):
            mine = aliases.c.partition == partition, aliases.c.key == key, aliases.c.other == other
            connection.execute(aliases.delete().where(*mine, aliases.c.origin.in_(RULE_ORIGINS)))
        touch_entities(connection, partition, [link.key, link.other])


def is_stated(connection: Connection, partition: int, link: Link, predicates: Sequence[str]) -> bool:
    """Whether some memory still states one of these relations between the two keys."""
    subject, target = entities.alias("subject"), entities.alias("object")
    ends = or_(
        (subject.c.key == link.key) & (target.c.key == link.other),
        (subject.c.key == link.other) & (target.c.key == link.key),
    )
    statement = (
        select(relations.c.id)
        .join(subject, subject.c.id == relations.c.subject)
        .join(target, target.c.id == relations.c.object)
        .where(
            subject.c.partition == partition,
            target.c.partition == partition,
            ends,
            relations.c.predicate.in_(list(predicates)),
        )
    )
    return connection.scalar(statement.limit(1)) is not None


# --- entities -------------------------------------------------------------------------------------------------------


def existing_entities(connection: Connection, partition: int | None, keys: Iterable[str]) -> dict[str, Entity]:
    """Which of these keys the partition has."""
    found = connection.execute(_KNOWN, {"partition": partition, "keys": list(keys)})
    return {row.key: decode_entity(row) for row in found}


def entities_with_prefix(
    connection: Connection, partition: int, prefix: str, types: Iterable[EntityType], limit: int
) -> list[Entity]:
    """The names of these types that begin with a prefix, in order: a range of the index."""
    named = exists().where(mentions.c.entity == entities.c.id, mentions.c.kind <= MentionKind.NAME)
    statement = (
        select(entities)
        .where(
            entities.c.partition == partition,
            entities.c.key >= prefix,
            entities.c.key < prefix + _BEHIND,
            entities.c.type.in_([type_.value for type_ in types]),
            named,
        )
        .order_by(entities.c.key)
        .limit(limit)
    )
    return [decode_entity(row) for row in connection.execute(statement)]


@decoding
def decode_entity(row: Any) -> Entity:
    """A row with an entity's columns as an entity."""
    return Entity(key=row.key, name=row.name, type=EntityType(row.type), mentions=row.mentions)


def mentioned_keys(connection: Connection, memory: int) -> list[str]:
    """The keys that a memory holds."""
    statement = select(entities.c.key).join(mentions).where(mentions.c.memory == memory)
    return list(connection.scalars(statement))


# --- chosen names ---------------------------------------------------------------------------------------------------


def display_name(entity: FromClause, own: str | ColumnElement[str]) -> ColumnElement[str]:
    """What an entity is called: as chosen, else as the texts call it. A column for a statement that reads `entity`.

    `own` is the partition of the scope that reads: what was chosen elsewhere is nothing for its eyes.
    """
    mine = select(partitions.c.id).where(partitions.c.key == own).scalar_subquery()
    return _called(entity, names.c.partition == mine)


def chosen_name(entity: FromClause) -> ColumnElement[str]:
    """The same for what is inside one partition: what was chosen there."""
    return _called(entity)


def _called(entity: FromClause, *only: ColumnElement[bool]) -> ColumnElement[str]:
    chosen = select(names.c.name).where(names.c.partition == entity.c.partition, names.c.key == entity.c.key, *only)
    return func.coalesce(chosen.scalar_subquery(), entity.c.name)


def chosen_names(connection: Connection, partition: int | None) -> dict[str, ChosenName]:
    """The names that users of a partition chose, by key: few."""
    statement = select(names.c.key, names.c.at, names.c.name).where(names.c.partition == partition)
    return {key: ChosenName(at, name) for key, at, name in connection.execute(statement)}


def key_by_chosen_name(connection: Connection, partition: int | None, name: str) -> str | None:
    """The key of what is called by this name (a normalised one) since a user chose it; that chosen last."""
    found = [
        (by.chosen_at, key) for key, by in chosen_names(connection, partition).items() if normalise_key(by.name) == name
    ]
    return max(found)[1] if found else None


def set_chosen_name(connection: Connection, partition: int, key: str, chosen: ChosenName) -> None:
    """Writes a chosen name over the one before; the partition's last, also where the clock was set back meanwhile."""
    last = connection.scalar(select(func.max(names.c.at)).where(names.c.partition == partition)) or 0
    said = {"name": chosen.name, "at": max(chosen.chosen_at, last + 1)}
    statement = upsert(connection, names).values(partition=partition, key=key, **said)
    connection.execute(statement.on_conflict_do_update(index_elements=[names.c.partition, names.c.key], set_=said))
    touch_entities(connection, partition, [key])


def import_chosen_name(connection: Connection, partition: int, key: str, chosen: ChosenName) -> bool:
    """Writes the name that another ledger had for an entity, unless one was chosen here."""
    statement = upsert(connection, names).values(partition=partition, key=key, name=chosen.name, at=chosen.chosen_at)
    new = _written(connection, statement.on_conflict_do_nothing(), names.c.key)
    if new:
        touch_entities(connection, partition, [key])
    return new


# --- for the projections ---------------------------------------------------------------------------------------------


def touch_entities(connection: Connection, partition: int, keys: Collection[str]) -> None:
    """Gives entities the next sequence numbers: something else is said of them now."""
    if not keys:
        return
    known = select(entities.c.id).where(entities.c.partition == partition, entities.c.key.in_(list(keys)))
    for row in list(connection.scalars(known.order_by(entities.c.id))):
        seq = outbox.next_seq(connection)
        connection.execute(entities.update().where(entities.c.id == row).values(seq=seq))


def touch_new_entities(connection: Connection, partition: int, keys: Sequence[str]) -> None:
    """The same for those that were gone for a moment, while their links and names were kept."""
    touch_entities(
        connection, partition, list(connection.scalars(_told_again(), {"partition": partition, "keys": list(keys)}))
    )


@lru_cache(maxsize=1)
def _told_again() -> Select[Any]:
    partition: ColumnElement[int] = bindparam("partition")
    told = union(
        select(aliases.c.key).where(aliases.c.partition == partition, in_array(aliases.c.key, "keys")),
        select(names.c.key).where(names.c.partition == partition, in_array(names.c.key, "keys")),
    ).subquery()
    return select(entities.c.key).where(
        entities.c.partition == partition, entities.c.seq.is_(None), entities.c.key.in_(select(told.c.key))
    )


# --- forgetting -----------------------------------------------------------------------------------------------------


def unmentioned_keys(connection: Connection, partition: int) -> list[str]:
    """The keys of links and chosen names that no memory of the partition mentions."""
    told = union(
        select(aliases.c.key).where(aliases.c.partition == partition),
        select(names.c.key).where(names.c.partition == partition),
    ).subquery()
    there = exists().where(entities.c.partition == partition, entities.c.key == told.c.key)
    return list(connection.scalars(select(told.c.key).where(~there)))


def pending_texts(connection: Connection, partition: int) -> list[str]:
    """The words, with their speakers, of what is not yet in the graph."""
    statement = select(memories.c.speaker, memories.c.text).join(tasks).where(memories.c.partition == partition)
    return [f"{speaker or ''} {text}" for speaker, text in connection.execute(statement)]


def delete_names(connection: Connection, partition: int, keys: Sequence[str]) -> None:
    """Takes out all that is said of keys."""
    for start in range(0, len(keys), BATCH):
        some = keys[start : start + BATCH]
        ends = or_(aliases.c.key.in_(some), aliases.c.other.in_(some))
        left = {link.other for link in links_of(connection, partition, some)}
        touch_entities(connection, partition, left)
        connection.execute(aliases.delete().where(aliases.c.partition == partition, ends))
        connection.execute(names.delete().where(names.c.partition == partition, names.c.key.in_(some)))
