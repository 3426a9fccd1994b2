"""Which names mean one entity: what users say, what the rules find, and when it is forgotten. Called by `commit`."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from rapidfuzz import process
from sqlalchemy import Connection

from graphmem.commands.types import AddAlias, EntityCommand, RenameEntity
from graphmem.errors import NotFoundError
from graphmem.extraction import entity_resolution
from graphmem.extraction.entity_resolution import ChosenName
from graphmem.model import Entity, EntityType, Extraction, Link, MentionKind, Origin, Scope, View, micros
from graphmem.stores.ledger import entity_names, entity_queries
from graphmem.stores.ledger.memories import partition_row

# Names that are compared with a new one: more begin alike only where a rule should keep its hands off.
MAX_COMPARED = 50
# Known keys that an error names, and how near they must be (rapidfuzz, 0..100).
NEAREST_LIMIT, MIN_SIMILARITY = 3, 60


# --- what users say -------------------------------------------------------------------------------------------------


def execute_entity_command(connection: Connection, command: EntityCommand, now: datetime) -> str:
    """Carries out a step about names; returns the entity's key.

    Raises NotFoundError for what the scope's memories do not mention, and for a link that is not there.
    """
    view = View(command.scope, now, partition=command.scope.partition)
    partition = partition_row(connection, command.scope.partition) or 0
    key = _known(connection, view, command.key)
    if isinstance(command, RenameEntity):
        entity_names.set_chosen_name(connection, partition, key, ChosenName(micros(now), command.name))
        return key
    link = Link(key, _known(connection, view, command.other), Origin.USER)
    if isinstance(command, AddAlias):
        entity_names.set_user_link(connection, partition, link, micros(now))
        return key
    if entity_names.link_between(connection, partition, link.key, link.other) is None:
        raise NotFoundError(_not_linked(connection, view, link))
    # Remembered also of a link that the user made: a rule might have found it, too, and would again.
    entity_names.set_user_link(connection, partition, link, micros(now), negated=True)
    return key


def _known(connection: Connection, view: View, key: str) -> str:
    """A key that the view's memories mention: the one given, or that of what was given this name."""
    found = entity_queries.entity_in(connection, view, key)
    if found is None:
        raise NotFoundError(
            f"no memory written under {_told(view.scope)} mentions {key!r:.80}; {_near(connection, view, key)}"
        )
    if key in found.keys:
        return key
    return found.key


def _told(scope: Scope) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in scope.parts.items())


def _near(connection: Connection, view: View, key: str) -> str:
    known = entity_queries.keys_in(connection, view)
    near = [found for found, *_ in process.extract(key, known, limit=NEAREST_LIMIT, score_cutoff=MIN_SIMILARITY)]
    if near:
        return f"the nearest that is known: {', '.join(map(repr, near))}"
    return "entities() lists what is known there"


def _not_linked(connection: Connection, view: View, link: Link) -> str:
    linked = {
        one.other
        for one in entity_names.links_of(connection, partition_row(connection, view.scope.partition), [link.key])
    }
    there = sorted(linked & set(entity_queries.keys_in(connection, view)))
    directly = f"it is linked to {', '.join(map(repr, there))}" if there else "it is linked to nothing"
    return f"{link.key!r} and {link.other!r} are not linked to each other, so there is nothing to take back; {directly}"


# --- what the rules find --------------------------------------------------------------------------------------------


def link_new_names(
    connection: Connection, partition: int, found: Extraction, now: datetime, *, is_passage: bool
) -> None:
    """Links what a text that was just added to the graph says is one, and the names that it is the first to hold.

    The other rules look at names alone, so nothing changes for a name that was there already. People who talk call
    each other by the first name; in documents it is mostly somebody else's, so no passage links one.
    """
    at = micros(now)
    names = [mention.key for mention in found.mentions if mention.kind <= MentionKind.NAME]
    known = entity_names.existing_entities(connection, partition, names) if names else {}
    for key, other in entity_resolution.stated_aliases(found):
        # Also by what other texts have taken them for.
        if known[key].type is known[other].type is EntityType.PERSON:
            entity_names.add_rule_link(connection, partition, Link(key, other, Origin.SAID), at)
    for entity in known.values():
        if entity.mentions == 1:
            if not is_passage:
                _link_first_name(connection, partition, entity, at)
            _link_spellings(connection, partition, entity, at)


def _link_first_name(connection: Connection, partition: int, entity: Entity, at: int) -> None:
    """Links a first name to the one full name that begins with it; a second such name takes the link back."""
    if not (key := _first_name_in(entity)):
        return
    first = entity_names.existing_entities(connection, partition, [key]).get(key)
    if first is None or not entity_resolution.is_first_name(first):
        return
    beginning = entity_names.entities_with_prefix(
        connection, partition, f"{key} ", entity_resolution.FIRST_NAME_TYPES, MAX_COMPARED
    )
    full = entity_resolution.full_name_for(first, beginning)
    if full is not None:
        entity_names.add_rule_link(connection, partition, Link(key, full.key, Origin.FIRST_NAME), at)
        return
    links = entity_names.links_of(connection, partition, [key])
    entity_names.remove_rule_links(connection, partition, [link for link in links if link.origin is Origin.FIRST_NAME])


def _first_name_in(entity: Entity) -> str:
    if entity_resolution.is_first_name(entity):
        return entity.key
    return entity_resolution.first_name_of(entity.key) if entity.type in entity_resolution.FIRST_NAME_TYPES else ""


def _link_spellings(connection: Connection, partition: int, entity: Entity, at: int) -> None:
    if not entity_resolution.is_spelling_compared(entity):
        return
    start = entity.key[: entity_resolution.COMMON_PREFIX]
    for other in entity_names.entities_with_prefix(connection, partition, start, [entity.type], MAX_COMPARED):
        if entity_resolution.is_spelling_variant(entity, other):
            entity_names.add_rule_link(connection, partition, Link(entity.key, other.key, Origin.SPELLING), at)


# --- forgetting -----------------------------------------------------------------------------------------------------


def prune_rule_links(connection: Connection, partition: int, keys: Iterable[str]) -> None:
    """Withdraws the found links of keys that a memory mentioned, where nothing bears them any more.

    That is when nothing mentions one of the two, and for what was said, when no memory says it.
    """
    links = [link for link in entity_names.links_of(connection, partition, keys) if link.origin is not Origin.USER]
    there = entity_names.existing_entities(connection, partition, {key for link in links for key in link[:2]})
    entity_names.remove_rule_links(
        connection, partition, [link for link in links if not _borne(connection, partition, link, there)]
    )


def _borne(connection: Connection, partition: int, link: Link, there: Iterable[str]) -> bool:
    if not {link.key, link.other} <= set(there):
        return False
    return link.origin is not Origin.SAID or entity_names.is_stated(
        connection, partition, link, entity_resolution.NAMING_PREDICATES
    )


def delete_unmentioned_names(connection: Connection, partition: int) -> None:
    """After an erasure or an import: no name stays in a link, or as what something is called, that no memory mentions.

    An update or a `rebuild` takes a memory's mentions out for a moment, so names in the words of what still waits for
    its mentions are kept.
    """
    gone = entity_names.unmentioned_keys(connection, partition)
    if not gone:
        return
    owed = [" ".join(words.casefold().split()) for words in entity_names.pending_texts(connection, partition)]
    entity_names.delete_names(connection, partition, [key for key in gone if not any(key in words for words in owed)])
