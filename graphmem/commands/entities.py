"""Aliases and chosen names of entities: users' commands, links made by rules, and removal of links and names.

A rule (`graphmem.extraction.entity_resolution`) links two names that probably mean one entity. All functions run inside
the transaction of `graphmem.commands.dispatch`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from datetime import datetime

from sqlalchemy import Connection

from graphmem.commands.types import AddAlias, EntityCommand, Outcome, OutcomeType, RenameEntity
from graphmem.commands.unit_of_work import UnitOfWork
from graphmem.errors import NotFoundError
from graphmem.extraction import entity_resolution
from graphmem.extraction.entity_resolution import ChosenName
from graphmem.folding import fold
from graphmem.model import Entity, EntityType, Link, ListFilter, MentionKind, Origin, View, micros
from graphmem.stores.ledger import entity_names, entity_queries, memories
from graphmem.stores.ledger.entity_names import MentionedEntities
from graphmem.stores.ledger.graph_writes import GraphAddition
from graphmem.stores.ledger.memories import partition_row
from graphmem.text import is_passage, words_of

# The most names that are compared with a new one: if more begin alike, no rule can decide which of them it means.
MAX_COMPARED = 50
# A prefix that a name has in common with another name is that of two.
_TWO = 2
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
        linked = {existing.other for existing in entity_names.links_of(connection, partition, [link.key])}
        visible = sorted(linked & set(entity_queries.keys_in(connection, view)))
        directly = f"it is linked to {', '.join(map(repr, visible))}" if visible else "it is linked to nothing"
        raise NotFoundError(
            f"{link.key!r} and {link.other!r} are not linked to each other, so there is nothing to take back; "
            f"{directly}"
        )
    # Stored as a negation even if the user had made the link: otherwise a rule could make the same link again.
    entity_names.set_user_link(connection, partition, link, micros(uow.now), negated=True)
    return Outcome(OutcomeType.NAME_ENTITY, key)


def _mentioned_key(connection: Connection, view: View, key: str) -> str:
    """Returns the key itself if the view's memories mention it, else the key of the entity whose chosen name it is."""
    entity = entity_queries.entity_in(connection, view, key)
    if entity is None:
        scope = ", ".join(f"{name}={value!r}" for name, value in view.scope.parts.items())
        keys = entity_queries.keys_in(connection, view)
        from rapidfuzz import process  # noqa: PLC0415  (40 modules, for a name that is not known)

        similar = [match for match, *_ in process.extract(key, keys, limit=NEAREST_LIMIT, score_cutoff=MIN_SIMILARITY)]
        text = f"no memory written under {scope} mentions {key!r:.80}"
        words = words_of(key)
        listed = ListFilter(words=tuple(words))
        with closing(
            memories.list_page(connection, view, listed, after=None, limit=MAX_COMPARED, with_sources=True)
        ) as found:  # memories with all words of the key, which no extractor took for a name
            is_written = any(set(words).issubset(words_of(record.text)) for record in found)
        if is_written:
            text = f"{key!r:.80} stands in memories written under {scope}, but is no entity there"
        advice = "entities() lists what is known there"
        if similar:
            advice = f"the nearest that is known: {', '.join(map(repr, similar))}"
        raise NotFoundError(f"{text}; {advice}")
    return key if key in entity.keys else entity.key


# --- links made by rules --------------------------------------------------------------------------------------------


def link_new_names(
    connection: Connection,
    additions: Sequence[GraphAddition],
    mentioned: Mapping[int, MentionedEntities],
    now: datetime,
) -> None:
    """Applies the rules for aliases to the names in texts that were just added to the graph, one text after the other.

    `mentioned` is what `graph_writes.add` returned for them. The rules link two people's names if the text says that
    they are the same person ("call me Bo"), a first name and the only full name that begins with it ("Anna", "Anna
    Berg"), and two spellings of a name ("Alison Berg", "Allison Berg"). The last two rules compare nothing but names,
    so they run only for names that no earlier memory mentions. Passages of documents link no first names: in a document
    a first name mostly belongs to somebody else.
    """
    for partition, its_entities in mentioned.items():
        own = [addition for addition in additions if addition.partition == partition]
        _AliasRules(connection, partition, own, its_entities, micros(now)).apply()


class _AliasRules:
    """The rules for aliases, for texts that were added to one partition.

    For each text the rules see the graph as it was before the next one was added: so a list of texts has the same
    aliases as the same texts added one by one.
    """

    def __init__(
        self,
        connection: Connection,
        partition: int,
        additions: Sequence[GraphAddition],
        mentioned: MentionedEntities,
        at: int,
    ) -> None:
        self._connection = connection
        self._partition = partition
        self._additions = additions
        self._at = at
        self._later = [addition.record.row for addition in additions]  # rows of texts whose turn has not come
        numbers = Counter(mention.key for addition in additions for mention in addition.extraction.mentions)
        self._new = {key for key, number in numbers.items() if mentioned.entities[key].mentions == number}
        self._seen: set[str] = set()  # of the new ones, those that a text has mentioned whose turn has come
        self._written = [dict(entity_resolution.written_forms(addition.extraction)) for addition in additions]
        named = (
            mention.key
            for addition in additions
            for mention in addition.extraction.mentions
            if mention.kind <= MentionKind.NAME and mention.key in self._new
        )
        self._names = [mentioned.entities[key] for key in dict.fromkeys(named)]
        compared = {key for name in self._names if (key := _first_name_in(name))}.union(*self._written)
        unread = compared - mentioned.entities.keys()
        self._entities = dict(mentioned.entities)
        self._unlinked = set(mentioned.unnamed)
        if unread:
            self._entities |= entity_names.existing_entities(connection, partition, unread)
        self._shared = self._shared_prefixes()

    def _shared_prefixes(self) -> Mapping[str, int]:
        prefixes = {f"{key} " for name in self._names if (key := _first_name_in(name))}
        prefixes |= {
            _spelling_prefix(name)
            for name in self._names
            if entity_resolution.is_spelling_compared(name) or name.key.endswith("s")
        }
        if not prefixes:
            return {}
        return entity_names.shared_prefixes(self._connection, self._partition, prefixes)

    def apply(self) -> None:
        """Adds the links that the rules find, and removes those of first names that are ambiguous by now."""
        for addition, written in zip(self._additions, self._written, strict=True):
            self._later.remove(addition.record.row)
            mentions = addition.extraction.mentions
            added = [mention for mention in mentions if mention.key in self._new and mention.key not in self._seen]
            self._seen.update(mention.key for mention in added)
            for key, other in entity_resolution.stated_aliases(addition.extraction):
                # The stored type: other texts count as well.
                if self._entities[key].type is self._entities[other].type is EntityType.PERSON:
                    self._link(key, other, Origin.SAID)
            for name in (self._entities[mention.key] for mention in added if mention.kind <= MentionKind.NAME):
                if not is_passage(addition.record.text):
                    self._link_first_name(name)
                self._link_spellings(name)
                self._link_phrase_in_lower_case(name)
            # Noun phrases are linked to the names that are written alike but for capitals ("data structures", "Data
            # Structures"). Their keys differ, because a noun phrase's has the words of a dictionary.
            for name_key in filter(self._find, written):
                self._link(written[name_key], name_key, Origin.SPELLING)

    def _find(self, key: str) -> Entity | None:
        """Returns an entity that this text or an earlier one mentions."""
        return None if key in self._new and key not in self._seen else self._entities.get(key)

    def _link(self, key: str, other: str, origin: Origin) -> None:
        self._unlinked -= {key, other}
        entity_names.add_rule_link(self._connection, self._partition, Link(key, other, origin), self._at)

    def _link_phrase_in_lower_case(self, name: Entity) -> None:
        """Links a new name to the noun phrase that was written like it before."""
        prefix = _spelling_prefix(name)
        if not name.key.endswith("s") or self._shared[prefix] < _TWO:
            return
        for phrase in entity_names.unnamed_entities(
            self._connection, self._partition, prefix, name.key, MAX_COMPARED, self._later
        ):
            if entity_resolution.is_written_form(phrase.key, phrase.name, phrase.type):
                self._link(phrase.key, name.key, Origin.SPELLING)

    def _link_first_name(self, name: Entity) -> None:
        """Links a first name to the only full name that begins with it; removes the link if a second full name does.

        `name` is the first name, or one of the full names.
        """
        key = _first_name_in(name)
        first_name = self._find(key) if key else None
        if first_name is None or not entity_resolution.is_first_name(first_name):
            return
        candidates = self._with_prefix(f"{key} ", entity_resolution.FIRST_NAME_TYPES) if self._shared[f"{key} "] else []
        full_name = entity_resolution.full_name_for(first_name, candidates)
        if full_name is not None:
            self._link(key, full_name.key, Origin.FIRST_NAME)
        elif key not in self._unlinked:
            links = entity_names.links_of(self._connection, self._partition, [key])
            ambiguous = [link for link in links if link.origin is Origin.FIRST_NAME]
            entity_names.remove_rule_links(self._connection, self._partition, ambiguous)

    def _link_spellings(self, name: Entity) -> None:
        prefix = _spelling_prefix(name)
        if not entity_resolution.is_spelling_compared(name) or self._shared[prefix] < _TWO:
            return
        for other in self._with_prefix(prefix, [name.type]):
            if entity_resolution.is_spelling_variant(name, other):
                self._link(name.key, other.key, Origin.SPELLING)

    def _with_prefix(self, prefix: str, types: Iterable[EntityType]) -> list[Entity]:
        return entity_names.entities_with_prefix(
            self._connection, self._partition, prefix, types, MAX_COMPARED, self._later
        )


def _first_name_in(entity: Entity) -> str:
    if entity_resolution.is_first_name(entity):
        return entity.key
    return entity_resolution.first_name_of(entity.key) if entity.type in entity_resolution.FIRST_NAME_TYPES else ""


def _spelling_prefix(name: Entity) -> str:
    return name.key[: entity_resolution.COMMON_PREFIX]


# --- removal of links and names -------------------------------------------------------------------------------------


def prune_rule_links(connection: Connection, partition: int, keys: Iterable[str]) -> None:
    """Removes the links of these keys that rules made and that the memories no longer justify.

    Called after the mentions of a memory, which had these keys, were removed. A link stays as long as memories mention
    both of its keys and, if a text stated it (`Origin.SAID`), as long as a memory states it. Users' links always stay.
    """
    links = [link for link in entity_names.links_of(connection, partition, keys) if link.origin is not Origin.USER]
    mentioned = set(entity_names.existing_entities(connection, partition, {key for link in links for key in link[:2]}))
    naming = entity_resolution.NAMING_PREDICATES
    unsupported = [
        link
        for link in links
        if not {link.key, link.other} <= mentioned
        or (link.origin is Origin.SAID and not entity_names.is_stated(connection, partition, link, naming))
    ]
    entity_names.remove_rule_links(connection, partition, unsupported)


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
