"""Aliases and chosen names of entities: users' commands, links made by rules, and removal of links and names.

A rule (`graphmem.extraction.entity_resolution`) links two names that probably mean one entity. All functions run inside
the transaction of `graphmem.commands.unit_of_work`.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import TYPE_CHECKING

from rapidfuzz import process
from sqlalchemy import Connection

from graphmem.commands.types import AddAlias, EntityCommand, Outcome, OutcomeType, RenameEntity
from graphmem.errors import NotFoundError
from graphmem.extraction import entity_resolution
from graphmem.extraction.entity_resolution import ChosenName
from graphmem.folding import fold
from graphmem.model import Entity, EntityType, Extraction, Link, MentionKind, Origin, View, micros
from graphmem.stores.ledger import entity_names, entity_queries
from graphmem.stores.ledger.memories import partition_row

if TYPE_CHECKING:
    from graphmem.commands.unit_of_work import UnitOfWork

# The most names that are compared with a new one: if more begin alike, no rule can decide which of them it means.
MAX_COMPARED = 50
# The most similar keys that an error suggests, and their minimal similarity (rapidfuzz, 0..100).
NEAREST_LIMIT, MIN_SIMILARITY = 3, 60


# --- commands of users ----------------------------------------------------------------------------------------------


def execute_entity_command(command: EntityCommand, uow: UnitOfWork) -> Outcome:
    """Adds or removes an alias, or renames an entity; the id of the outcome is the entity's key.

    Raises NotFoundError for a name that no memory of the scope mentions, and for the removal of an absent alias.
    """
    connection = uow.connection
    view = View(command.scope, uow.now, partition=command.scope.partition)
    partition = partition_row(connection, command.scope.partition) or 0
    key = _mentioned_key(connection, view, command.key)
    if isinstance(command, RenameEntity):
        entity_names.set_chosen_name(connection, partition, key, ChosenName(micros(uow.now), command.name))
        return Outcome(OutcomeType.NAME_ENTITY, key)
    link = Link(key, _mentioned_key(connection, view, command.other), Origin.USER)
    if isinstance(command, AddAlias):
        entity_names.set_user_link(connection, partition, link, micros(uow.now))
        return Outcome(OutcomeType.NAME_ENTITY, key)
    if entity_names.link_between(connection, partition, link.key, link.other) is None:
        raise NotFoundError(_not_linked_message(connection, view, link))
    # Stored as a negation even if the user had made the link: otherwise a rule could make the same link again.
    entity_names.set_user_link(connection, partition, link, micros(uow.now), negated=True)
    return Outcome(OutcomeType.NAME_ENTITY, key)


def _mentioned_key(connection: Connection, view: View, key: str) -> str:
    """Returns the key itself if the view's memories mention it, else the key of the entity whose chosen name it is."""
    entity = entity_queries.entity_in(connection, view, key)
    if entity is None:
        scope = ", ".join(f"{name}={value!r}" for name, value in view.scope.parts.items())
        raise NotFoundError(
            f"no memory written under {scope} mentions {key!r:.80}; {_suggestion(connection, view, key)}"
        )
    return key if key in entity.keys else entity.key


def _suggestion(connection: Connection, view: View, key: str) -> str:
    keys = entity_queries.keys_in(connection, view)
    similar = [match for match, *_ in process.extract(key, keys, limit=NEAREST_LIMIT, score_cutoff=MIN_SIMILARITY)]
    if similar:
        return f"the nearest that is known: {', '.join(map(repr, similar))}"
    return "entities() lists what is known there"


def _not_linked_message(connection: Connection, view: View, link: Link) -> str:
    partition = partition_row(connection, view.scope.partition)
    linked = {existing.other for existing in entity_names.links_of(connection, partition, [link.key])}
    visible = sorted(linked & set(entity_queries.keys_in(connection, view)))
    directly = f"it is linked to {', '.join(map(repr, visible))}" if visible else "it is linked to nothing"
    return f"{link.key!r} and {link.other!r} are not linked to each other, so there is nothing to take back; {directly}"


# --- links made by rules --------------------------------------------------------------------------------------------


def link_new_names(
    connection: Connection, partition: int, extraction: Extraction, now: datetime, *, is_passage: bool
) -> None:
    """Applies the rules for aliases to the names in a text that was just added to the graph.

    The rules link two people's names if the text says that they are the same person ("call me Bo"), a first name and
    the only full name that begins with it ("Anna", "Anna Berg"), and two spellings of a name ("Alison Berg", "Allison
    Berg"). The last two rules compare nothing but names, so they run only for names that no other memory mentions yet.
    Passages of documents (`is_passage`) link no first names: in a document a first name mostly belongs to somebody
    else.
    """
    at = micros(now)
    names = [mention.key for mention in extraction.mentions if mention.kind <= MentionKind.NAME]
    entities = entity_names.existing_entities(connection, partition, names) if names else {}
    for key, other in entity_resolution.stated_aliases(extraction):
        # The stored type: other texts count as well.
        if entities[key].type is entities[other].type is EntityType.PERSON:
            entity_names.add_rule_link(connection, partition, Link(key, other, Origin.SAID), at)
    for entity in entities.values():
        if entity.mentions == 1:
            if not is_passage:
                _link_first_name(connection, partition, entity, at)
            _link_spellings(connection, partition, entity, at)
            _link_phrase_in_lower_case(connection, partition, entity, at)
    _link_capitalised(connection, partition, extraction, at)


def _link_capitalised(connection: Connection, partition: int, extraction: Extraction, at: int) -> None:
    """Links noun phrases to the names that are written alike but for capitals ("data structures", "Data Structures").

    Their keys differ, because a noun phrase's has the words of a dictionary.
    """
    written = dict(entity_resolution.written_forms(extraction))
    if written:
        for name in entity_names.existing_entities(connection, partition, written):
            entity_names.add_rule_link(connection, partition, Link(written[name], name, Origin.SPELLING), at)


def _link_phrase_in_lower_case(connection: Connection, partition: int, name: Entity, at: int) -> None:
    """Links a new name to the noun phrase that was written like it before (see `_link_capitalised`)."""
    if not name.key.endswith("s"):
        return
    prefix = name.key[: entity_resolution.COMMON_PREFIX]
    for phrase in entity_names.unnamed_entities(connection, partition, prefix, name.key, MAX_COMPARED):
        if entity_resolution.is_written_form(phrase.key, phrase.name, phrase.type):
            entity_names.add_rule_link(connection, partition, Link(phrase.key, name.key, Origin.SPELLING), at)


def _link_first_name(connection: Connection, partition: int, entity: Entity, at: int) -> None:
    """Links a first name to the only full name that begins with it; removes the link if a second full name does.

    `entity` is the first name, or one of the full names.
    """
    if not (key := _first_name_in(entity)):
        return
    first_name = entity_names.existing_entities(connection, partition, [key]).get(key)
    if first_name is None or not entity_resolution.is_first_name(first_name):
        return
    candidates = entity_names.entities_with_prefix(
        connection, partition, f"{key} ", entity_resolution.FIRST_NAME_TYPES, MAX_COMPARED
    )
    full_name = entity_resolution.full_name_for(first_name, candidates)
    if full_name is not None:
        entity_names.add_rule_link(connection, partition, Link(key, full_name.key, Origin.FIRST_NAME), at)
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
    prefix = entity.key[: entity_resolution.COMMON_PREFIX]
    for other in entity_names.entities_with_prefix(connection, partition, prefix, [entity.type], MAX_COMPARED):
        if entity_resolution.is_spelling_variant(entity, other):
            entity_names.add_rule_link(connection, partition, Link(entity.key, other.key, Origin.SPELLING), at)


# --- removal of links and names -------------------------------------------------------------------------------------


def prune_rule_links(connection: Connection, partition: int, keys: Iterable[str]) -> None:
    """Removes the links of these keys that rules made and that the memories no longer justify.

    Called after the mentions of a memory, which had these keys, were removed. A link stays as long as memories mention
    both of its keys and, if a text stated it (`Origin.SAID`), as long as a memory states it. Users' links always stay.
    """
    links = [link for link in entity_names.links_of(connection, partition, keys) if link.origin is not Origin.USER]
    mentioned = set(entity_names.existing_entities(connection, partition, {key for link in links for key in link[:2]}))
    unsupported = [link for link in links if not _is_supported(connection, partition, link, mentioned)]
    entity_names.remove_rule_links(connection, partition, unsupported)


def _is_supported(connection: Connection, partition: int, link: Link, mentioned: AbstractSet[str]) -> bool:
    if not {link.key, link.other} <= mentioned:
        return False
    return link.origin is not Origin.SAID or entity_names.is_stated(
        connection, partition, link, entity_resolution.NAMING_PREDICATES
    )


def delete_unmentioned_names(connection: Connection, partition: int) -> None:
    """Deletes aliases and chosen names of keys that no memory mentions, as after an erasure or an import.

    Keeps keys that occur in texts waiting for enrichment: until then an updated memory has no mentions.
    """
    unmentioned = entity_names.unmentioned_keys(connection, partition)
    if not unmentioned:
        return
    pending = [" ".join(fold(text).split()) for text in entity_names.pending_texts(connection, partition)]
    unused = [key for key in unmentioned if not any(key in text for text in pending)]
    entity_names.delete_names(connection, partition, unused)
