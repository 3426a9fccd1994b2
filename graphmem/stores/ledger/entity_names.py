"""Reads and writes aliases (links between keys that mean one entity) and the names that users chose for entities.

The tables are `aliases`, in which each link stands twice, once from either end, and `names`. A `partition` argument is
a row id of `partitions`; for reads, None is a partition to which nothing was written.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Row,
    Select,
    and_,
    bindparam,
    exists,
    func,
    literal_column,
    or_,
    select,
    union,
)

from graphmem.extraction import entity_resolution
from graphmem.extraction.entity_resolution import ChosenName
from graphmem.folding import meant_spellings, typed_spellings, without_marks
from graphmem.model import Entity, EntityType, Link, MentionKind, Origin
from graphmem.stores.ledger import outbox
from graphmem.stores.ledger.columns import PartitionColumns
from graphmem.stores.ledger.memories import BATCH
from graphmem.stores.ledger.schema import aliases, entities, jobs, memories, mentions, names, partitions, relations
from graphmem.stores.ledger.sql import array_rows, decoding, in_array, mention_kind, upsert
from graphmem.text import normalise_key

RULE_ORIGINS = tuple(origin for origin in Origin if origin is not Origin.USER)
# The last code point, which no key contains: [prefix, prefix + _LAST_CHARACTER) holds every key with the prefix.
_LAST_CHARACTER = "\U0010ffff"
# Built once: every search runs both.
_ENTITIES_BY_KEY = select(entities).where(
    entities.c.partition == bindparam("partition"), in_array(entities.c.key, "keys")
)
_BEST_KINDS = select(
    entities.c.key,
    select(mentions.c.kind)
    .where(mentions.c.entity == entities.c.id)
    .order_by(mentions.c.kind)
    .limit(1)
    .correlate(entities)
    .scalar_subquery(),
).where(entities.c.partition == bindparam("partition"), in_array(entities.c.key, "keys"))
_IS_MENTIONED = exists().where(mentions.c.entity == entities.c.id, ~in_array(mentions.c.memory, "without"))
_WITH_PREFIX = (
    select(entities)
    .where(
        entities.c.partition == bindparam("partition"),
        entities.c.key >= bindparam("first"),
        entities.c.key < bindparam("end"),
    )
    .order_by(entities.c.key)
    .limit(bindparam("limit"))
)
_ALIKE = (
    select(entities)
    .where(
        entities.c.partition == bindparam("partition"),
        or_(in_array(entities.c.key, "keys"), in_array(entities.c.bare_key, "bare")),
    )
    .order_by(entities.c.mentions.desc(), entities.c.key)
)
_CHOSEN_IN = (
    select(names.c.partition, names.c.key, names.c.at, names.c.name)
    .join(partitions, partitions.c.id == names.c.partition)
    .where(partitions.c.key == bindparam("partition_key"))
)
_LINKS = select(aliases.c.key, aliases.c.other, aliases.c.origin).where(
    aliases.c.partition == bindparam("partition"), aliases.c.negated.is_(False)
)
_LINKS_BY_KEY = _LINKS.where(in_array(aliases.c.key, "keys"))
_SOME_LINKS = _LINKS.limit(bindparam("limit"))
# The columns of a partition keep all of its links if they are at most so many, of some 300 bytes each.
MAX_KEPT_LINKS = 2_000


# --- links ----------------------------------------------------------------------------------------------------------


def all_links(connection: Connection, partition: int | None) -> list[Link]:
    """Returns every link of a partition once, with `key` < `other`."""
    condition = aliases.c.partition == partition, aliases.c.negated.is_(False), aliases.c.key < aliases.c.other
    return _links(connection, select(aliases.c.key, aliases.c.other, aliases.c.origin).where(*condition))


def links_of(connection: Connection, partition: int | None, keys: Iterable[str]) -> list[Link]:
    """Returns the links of these keys to others, with `key` among these."""
    return _links(connection, _LINKS_BY_KEY, partition=partition, keys=list(keys))


def _links(connection: Connection, statement: Any, **values: Any) -> list[Link]:
    return [Link(key, other, Origin(origin)) for key, other, origin in connection.execute(statement, values)]


def linked_group(
    connection: Connection, partition: int | None, keys: Iterable[str], columns: PartitionColumns | None = None
) -> list[Link]:
    """Returns the links that lead from these keys, directly or over other keys, in the order they are reached.

    Most keys have no links, which costs one statement, or none if the partition's columns know it.
    """
    reached: dict[Link, None] = {}
    waiting, seen = list(keys), set(keys)
    while waiting:
        links = (
            links_of(connection, partition, waiting) if columns is None else _kept_links(connection, waiting, columns)
        )
        reached |= dict.fromkeys(links)
        waiting = sorted({link.other for link in links} - seen)
        seen |= set(waiting)
    return list(reached)


def _kept_links(connection: Connection, keys: Sequence[str], columns: PartitionColumns) -> list[Link]:
    """Returns the links of these keys; the columns keep all links of a partition that has few, else those asked for."""
    kept = columns.links
    if kept.are_all is None:
        some = _links(connection, _SOME_LINKS, partition=columns.partition, limit=MAX_KEPT_LINKS + 1)
        if len(some) <= MAX_KEPT_LINKS:
            kept.put((), some)
        kept.are_all = len(some) <= MAX_KEPT_LINKS
    if not kept.are_all and (unread := [key for key in keys if key not in kept.by_key]):
        kept.put(unread, links_of(connection, columns.partition, unread))
    return [link for key in keys for link in kept.by_key.get(key, ())]


def linked_keys(
    connection: Connection, partition: int | None, keys: Iterable[str], columns: PartitionColumns | None = None
) -> dict[str, str]:
    """Returns the other keys of the entities that these keys mean, each with the one of these that it is linked to.

    By the partition's columns if they are given.
    """
    start_keys = list(keys)
    links = linked_group(connection, partition, start_keys, columns)
    start_key_of = dict(zip(start_keys, start_keys, strict=True))
    for link in links:  # in the order they are reached, so `link.key` is in the dictionary already
        start_key_of.setdefault(link.other, start_key_of[link.key])
    return {key: start_key for key, start_key in start_key_of.items() if key != start_key}


def link_between(connection: Connection, partition: int, key: str, other: str) -> Link | None:
    """Returns the link between two keys, or None."""
    return next((link for link in links_of(connection, partition, [key]) if link.other == other), None)


def set_user_link(connection: Connection, partition: int, link: Link, at: int, *, negated: bool = False) -> None:
    """Writes a user's link over any other of the two keys. `negated`: the keys do not mean one entity."""
    values = {"origin": link.origin.value, "negated": negated, "at": at}
    statement = upsert(connection, aliases).values([{**row, **values} for row in _both_directions(partition, link)])
    primary_key = [aliases.c.partition, aliases.c.key, aliases.c.other]
    connection.execute(statement.on_conflict_do_update(index_elements=primary_key, set_=values))
    assign_seqs(connection, partition, [link.key, link.other])


def add_rule_link(connection: Connection, partition: int, link: Link, at: int) -> None:
    """Writes a link that a rule found, unless the two keys are linked or a user has denied it."""
    values = {"origin": link.origin.value, "negated": False, "at": at}
    statement = upsert(connection, aliases).values([{**row, **values} for row in _both_directions(partition, link)])
    if _inserts(connection, statement.on_conflict_do_nothing(), aliases.c.key):
        assign_seqs(connection, partition, [link.key, link.other])


def _inserts(connection: Connection, statement: Any, column: Column[Any]) -> bool:
    """Executes an INSERT … ON CONFLICT and returns whether it wrote a row, which psycopg's row count does not tell."""
    return connection.execute(statement.returning(column)).first() is not None


def import_link(connection: Connection, partition: int, link: Link, at: int, *, negated: bool) -> bool:
    """Writes a link from another ledger and returns whether anything changed.

    A user's link replaces one that a rule found here; otherwise an existing link stays.
    """
    values = {"origin": link.origin.value, "negated": negated, "at": at}
    statement = upsert(connection, aliases).values([{**row, **values} for row in _both_directions(partition, link)])
    if link.origin is Origin.USER:
        primary_key = [aliases.c.partition, aliases.c.key, aliases.c.other]
        is_from_rule = aliases.c.origin.in_(RULE_ORIGINS)
        statement = statement.on_conflict_do_update(index_elements=primary_key, set_=values, where=is_from_rule)
    else:
        statement = statement.on_conflict_do_nothing()
    changed = _inserts(connection, statement, aliases.c.key)
    if changed:
        assign_seqs(connection, partition, [link.key, link.other])
    return changed


def _both_directions(partition: int, link: Link) -> list[dict[str, Any]]:
    ends = (link.key, link.other), (link.other, link.key)
    return [{"partition": partition, "key": key, "other": other} for key, other in ends]


def remove_rule_links(connection: Connection, partition: int, links: Iterable[Link]) -> None:
    """Deletes those of these links that a rule found; links by users stay."""
    for link in links:
        for key, other in ((link.key, link.other), (link.other, link.key)):
            is_link = aliases.c.partition == partition, aliases.c.key == key, aliases.c.other == other
            connection.execute(aliases.delete().where(*is_link, aliases.c.origin.in_(RULE_ORIGINS)))
        assign_seqs(connection, partition, [link.key, link.other])


def is_stated(connection: Connection, partition: int, link: Link, predicates: Sequence[str]) -> bool:
    """Returns whether a memory states a relation with one of these predicates between the keys, either way round."""
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


def existing_entities(
    connection: Connection, partition: int | None, keys: Iterable[str], columns: PartitionColumns | None = None
) -> dict[str, Entity]:
    """Returns the entities of a partition that have these keys, by key; keys without an entity are left out.

    The partition's columns have them if they are given.
    """
    if columns is not None:
        return columns.entities_of(keys)
    rows = connection.execute(_ENTITIES_BY_KEY, {"partition": partition, "keys": list(keys)})
    return {row.key: decode_entity(row) for row in rows}


def mention_kinds(
    connection: Connection, partition: int | None, keys: Iterable[str], columns: PartitionColumns | None = None
) -> dict[str, MentionKind]:
    """Returns the most valuable kind of mention of each of these entities of a partition, by key.

    The partition's columns have them if they are given.
    """
    if columns is not None:
        return columns.best_kinds(keys)
    rows = connection.execute(_BEST_KINDS, {"partition": partition, "keys": list(keys)})
    return {key: mention_kind(kind) for key, kind in rows if kind is not None}


class MentionedEntities(NamedTuple):
    """Entities and their row ids, both by key, and the keys of those without any alias or chosen name."""

    entities: dict[str, Entity]
    rows: dict[str, int]
    unnamed: set[str]


def mentioned_entities(connection: Connection, partition: int, rows: Iterable[Row[Any]]) -> MentionedEntities:
    """Returns the entities of a partition in these rows of `entities`, which memories have just mentioned.

    The rows have the further column `lacks_seq`: these entities get sequence numbers.
    """
    rows = sorted(rows, key=lambda row: str(row.key))
    assign_seqs(connection, partition, [row.key for row in rows if row.lacks_seq])
    return MentionedEntities(
        {row.key: decode_entity(row) for row in rows},
        {row.key: row.id for row in rows},
        {row.key for row in rows if row.seq is None and not row.lacks_seq},
    )


def lacks_seq() -> ColumnElement[bool]:
    """SQL for RETURNING: whether an entity has aliases or a chosen name, but no sequence number.

    It was deleted with its last mention and inserted again, while its aliases and chosen names were kept.
    """
    # SQLAlchemy leaves the tables of columns out of RETURNING, also of those in its subqueries.
    has_alias, has_name = (
        exists(literal_column("1"))
        .select_from(table)
        .where(*(literal_column(f"{table.name}.{name} = entities.{name}") for name in ("partition", "key")))
        for table in (aliases, names)
    )
    return and_(entities.c.seq.is_(None), or_(has_alias, has_name)).label("lacks_seq")


def shared_prefixes(connection: Connection, partition: int, prefixes: Iterable[str]) -> dict[str, int]:
    """Returns how many keys of a partition begin with each prefix, counted up to two. Reads two rows of the index."""
    values = {"partition": partition, "prefixes": list(prefixes), "last_character": _LAST_CHARACTER}
    return {
        prefix: (first is not None) + (second is not None)
        for prefix, first, second in connection.execute(_shared_prefixes(), values)
    }


@lru_cache(maxsize=1)
def _shared_prefixes() -> Select[Any]:
    prefix = array_rows("prefixes", entities.c.key.type).c.value
    key = (
        select(entities.c.key)
        .where(
            entities.c.partition == bindparam("partition"),
            entities.c.key >= prefix,
            entities.c.key < prefix.concat(bindparam("last_character")),
        )
        .order_by(entities.c.key)
        .limit(1)
    )
    return select(prefix, key.scalar_subquery(), key.offset(1).scalar_subquery())


def similar_keys(connection: Connection, partition: int | None, keys: Collection[str]) -> dict[str, str]:
    """Returns the keys of entities that differ from these in marks of Latin letters only, each with the one it is like.

    "łódź" is like "lodz", "hòa" like "hoa" and "hoà", "möhre" like "moehre". Those with the most mentions come first.
    """
    return _similar(keys, [key for key in _alike(connection, partition, keys) if key not in keys])


def same_and_similar(
    connection: Connection, partition: int | None, keys: Iterable[str], columns: PartitionColumns | None = None
) -> tuple[dict[str, Entity], dict[str, str]]:
    """Returns the entities with these keys and those like a key without one, by key; and `similar_keys` of the latter.

    The partition's columns have both if they are given; else one statement reads both.
    """
    asked = set(keys)
    alike = _alike(connection, partition, asked) if columns is None else columns.entities_alike(asked)
    similar = _similar(asked - alike.keys(), [key for key in alike if key not in asked])
    found = [*sorted(asked & alike.keys()), *sorted(similar)]
    return {key: alike[key] for key in found}, similar


def _alike(connection: Connection, partition: int | None, keys: Collection[str]) -> dict[str, Entity]:
    """Returns the entities whose keys are these or other spellings of them, by key."""
    bare = list(_spellings(keys))
    values = {"partition": partition, "keys": list({*keys, *bare}), "bare": bare}
    return {row.key: decode_entity(row) for row in connection.execute(_ALIKE, values)}


def _similar(keys: Collection[str], others: Collection[str]) -> dict[str, str]:
    """Returns those of some other keys that are spellings of a key, each with that key."""
    key_of = _spellings(keys) if others else {}
    spelled = ((key, key_of.get(key) or key_of.get(without_marks(key))) for key in others)
    return {key: asked for key, asked in spelled if asked is not None}


def _spellings(keys: Iterable[str]) -> dict[str, str]:
    """Returns the keys by their other spellings: without marks, with ae, oe, ue for ä, ö, ü, and these for those."""
    return {
        spelling: key for spellings in (meant_spellings, typed_spellings) for key in keys for spelling in spellings(key)
    }


def entities_with_prefix(
    connection: Connection,
    partition: int,
    prefix: str,
    types: Iterable[EntityType],
    limit: int,
    without: Sequence[int] = (),
) -> list[Entity]:
    """Returns up to `limit` named entities of these types whose keys begin with a prefix, in the order of the keys.

    Named: at least one memory mentions the entity by a name or a title, apart from those in the rows `without`. Reads a
    range of the index.
    """
    values = {"partition": partition, **_prefix_values(prefix, limit, without), "types": [one.value for one in types]}
    return [decode_entity(row) for row in connection.execute(_named_with_prefix(), values)]


@lru_cache(maxsize=1)
def _named_with_prefix() -> Select[Any]:
    is_named = _IS_MENTIONED.where(mentions.c.kind <= MentionKind.NAME)
    return _WITH_PREFIX.where(in_array(entities.c.type, "types"), is_named)


def unnamed_entities(
    connection: Connection, partition: int, prefix: str, name: str, limit: int, without: Sequence[int] = ()
) -> list[Entity]:
    """Returns up to `limit` entities whose keys begin with a prefix and whose displayed name is `name` in lower case.

    Their key is another. Compares the letters A to Z only without regard to case. Entities that no memory mentions but
    those in the rows `without` are left out. Reads a range of the index.
    """
    values = {"partition": partition, **_prefix_values(prefix, limit, without), "other_name": name}
    return [decode_entity(row) for row in connection.execute(_unnamed_with_prefix(), values)]


@lru_cache(maxsize=1)
def _unnamed_with_prefix() -> Select[Any]:
    name: ColumnElement[str] = bindparam("other_name")
    return _WITH_PREFIX.where(entities.c.key != name, func.lower(entities.c.name) == name, _IS_MENTIONED)


def _prefix_values(prefix: str, limit: int, without: Sequence[int]) -> dict[str, Any]:
    return {"first": prefix, "end": prefix + _LAST_CHARACTER, "limit": limit, "without": list(without)}


@decoding
def decode_entity(row: Any) -> Entity:
    """Returns a row with the columns key, name, type and mentions as an entity."""
    return Entity(key=row.key, name=row.name, type=EntityType(row.type), mentions=row.mentions)


def mentioned_keys(connection: Connection, memory: int) -> list[str]:
    """Returns the keys of the entities that a memory (row id) mentions."""
    statement = select(entities.c.key).join(mentions).where(mentions.c.memory == memory)
    return list(connection.scalars(statement))


# --- chosen names ---------------------------------------------------------------------------------------------------


def chosen_names(connection: Connection, partition: int | None) -> dict[str, ChosenName]:
    """Returns all names that users chose in a partition, by key. There are few."""
    statement = select(names.c.key, names.c.at, names.c.name).where(names.c.partition == partition)
    return {key: ChosenName(at, name) for key, at, name in connection.execute(statement)}


def chosen_names_in(connection: Connection, partition_key: str) -> tuple[int | None, dict[str, ChosenName]]:
    """Returns `chosen_names` of the partition with this key, and its row; (None, {}) if nobody chose one."""
    rows = connection.execute(_CHOSEN_IN, {"partition_key": partition_key}).all()
    return (rows[0].partition if rows else None), {row.key: ChosenName(row.at, row.name) for row in rows}


def renamed_groups(
    connection: Connection, partition: int | None, chosen: Mapping[str, ChosenName]
) -> list[tuple[list[str], dict[str, ChosenName]]]:
    """Returns each group of linked keys (or single key) that users renamed: its keys, and its chosen names by key.

    `chosen` are all that users chose in the partition. The name to show for all keys of a group is the maximum, which
    was chosen last.
    """
    if not chosen:
        return []
    links = linked_group(connection, partition, chosen)
    linked = entity_resolution.linked_groups(links)
    groups = [*linked, *([key] for key in chosen.keys() - {key for group in linked for key in group})]
    return [(group, {key: chosen[key] for key in group if key in chosen}) for group in groups]


def names_to_show(connection: Connection, partition: int) -> dict[str, str]:
    """Returns the name that users gave each entity of a partition, by every key of the entity, mentioned or not."""
    groups = renamed_groups(connection, partition, chosen_names(connection, partition))
    return {key: max(chosen.values()).name for group, chosen in groups for key in group}


def key_by_chosen_name(connection: Connection, partition: int | None, name: str) -> str | None:
    """Returns the key of the entity for which a user chose this (normalised) name, or None; of several the latest.

    A name that differs in marks of Latin letters only is found if no other is.
    """
    matches = [
        (chosen_key == name, chosen.chosen_at, key)
        for key, chosen in chosen_names(connection, partition).items()
        if without_marks(chosen_key := normalise_key(chosen.name)) == without_marks(name)
    ]
    return max(matches)[2] if matches else None


def set_chosen_name(connection: Connection, partition: int, key: str, chosen: ChosenName) -> None:
    """Writes a chosen name over an earlier one.

    Its time is later than that of every other choice in the partition, even if the clock was set back.
    """
    last = connection.scalar(select(func.max(names.c.at)).where(names.c.partition == partition)) or 0
    values = {"name": chosen.name, "at": max(chosen.chosen_at, last + 1)}
    statement = upsert(connection, names).values(partition=partition, key=key, **values)
    connection.execute(statement.on_conflict_do_update(index_elements=[names.c.partition, names.c.key], set_=values))
    assign_seqs(connection, partition, [key])


def import_chosen_name(connection: Connection, partition: int, key: str, chosen: ChosenName) -> bool:
    """Writes a chosen name from another ledger, unless the entity has one here. Returns whether it was written."""
    statement = upsert(connection, names).values(partition=partition, key=key, name=chosen.name, at=chosen.chosen_at)
    is_new = _inserts(connection, statement.on_conflict_do_nothing(), names.c.key)
    if is_new:
        assign_seqs(connection, partition, [key])
    return is_new


# --- for the projections ---------------------------------------------------------------------------------------------


def assign_seqs(connection: Connection, partition: int, keys: Collection[str]) -> None:
    """Gives entities the next sequence numbers, so that their changed aliases and chosen names are delivered.

    Those linked to them get new ones too: a chosen name is the name of the whole group.
    """
    if not keys:
        return
    group = {*keys, *(link.other for link in linked_group(connection, partition, keys))}
    rows = select(entities.c.id).where(entities.c.partition == partition, entities.c.key.in_(group))
    for row_id in list(connection.scalars(rows.order_by(entities.c.id))):
        seq = outbox.next_seq(connection)
        connection.execute(entities.update().where(entities.c.id == row_id).values(seq=seq))


# --- erasing --------------------------------------------------------------------------------------------------------


def unmentioned_keys(connection: Connection, partition: int) -> list[str]:
    """Returns the keys with aliases or chosen names that no memory of the partition mentions."""
    named = union(
        select(aliases.c.key).where(aliases.c.partition == partition),
        select(names.c.key).where(names.c.partition == partition),
    ).subquery()
    is_mentioned = exists().where(entities.c.partition == partition, entities.c.key == named.c.key)
    return list(connection.scalars(select(named.c.key).where(~is_mentioned)))


def pending_texts(connection: Connection, partition: int) -> list[str]:
    """Returns "speaker text" of each memory that is not enriched yet, so that its mentions are not in the graph."""
    statement = select(memories.c.speaker, memories.c.text).join(jobs, jobs.c.memory == memories.c.id)
    statement = statement.where(memories.c.partition == partition)
    return [f"{speaker or ''} {text}" for speaker, text in connection.execute(statement)]


def delete_names(connection: Connection, partition: int, keys: Sequence[str]) -> None:
    """Deletes the aliases (negated ones too) and chosen names of these keys."""
    for start in range(0, len(keys), BATCH):
        batch = keys[start : start + BATCH]
        is_linked = or_(aliases.c.key.in_(batch), aliases.c.other.in_(batch))
        other_ends = {link.other for link in links_of(connection, partition, batch)}
        assign_seqs(connection, partition, other_ends)
        connection.execute(aliases.delete().where(aliases.c.partition == partition, is_linked))
        connection.execute(names.delete().where(names.c.partition == partition, names.c.key.in_(batch)))
