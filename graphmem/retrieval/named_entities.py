"""Finds the entities that a query names: its runs of words, looked up among the keys of a partition.

No model reads the query: those that a parser finds in it are the same but for a few, and parsing took a sixth of the
search (benchmarks/ABLATIONS.md, "Entities of a question").
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection

from graphmem.model import Entity, MentionKind
from graphmem.retrieval.types import SearchPartition
from graphmem.stores.ledger import entity_names
from graphmem.stores.ledger.term_stats import PartitionStatistics
from graphmem.text import KeyCandidate


def named_in(
    connection: Connection, partition: PartitionStatistics, candidates: Mapping[str, KeyCandidate], own_partition: str
) -> SearchPartition:
    """Reads a partition with the entities that a query names in it, also by their aliases.

    A key without an entity stands for those that differ in marks of Latin letters only ("walesa" for "wałęsa"), and a
    genitive for the name: of an entity that is more than a common noun.
    Aliases are followed only in the scope's own partition: a user's aliases mean nothing to a view by agent or run.
    """
    row = partition.row
    found = entity_names.existing_entities(connection, row, candidates)
    similar = entity_names.similar_keys(connection, row, candidates.keys() - found.keys())
    if similar:
        found |= entity_names.existing_entities(connection, row, similar)
        candidates = {**{key: candidates[asked]._replace(key=key) for key, asked in similar.items()}, **candidates}
    kinds = _kinds(connection, row, candidates, found)
    # "Windows" is not what the windows have that were cleaned.
    common = {key for key, kind in kinds.items() if candidates[key].is_possessor and kind is MentionKind.COMMON_NOUN}
    kinds = {key: kind for key, kind in kinds.items() if key not in common}
    named = {key: entity for key, entity in found.items() if key in kinds}
    alias_of = entity_names.linked_keys(connection, row, named) if partition.key == own_partition else {}
    if alias_of:
        named |= entity_names.existing_entities(connection, row, alias_of)
    alias_kinds = {alias: kinds[key] for alias, key in alias_of.items() if key in kinds}
    asked = {*(key for key, one in candidates.items() if key in kinds or not one.is_possessor), *alias_of}
    return SearchPartition(partition.key, partition.size, partition.kept, named, {**alias_kinds, **kinds}, asked)


def _kinds(
    connection: Connection, row: int | None, candidates: Mapping[str, KeyCandidate], found: Mapping[str, Entity]
) -> dict[str, MentionKind]:
    """Returns how the query mentions the entities that were found, by key; without those inside longer ones.

    Where its writing does not tell a name, an entity is mentioned as the memories that name it best do.
    """
    untold = [key for key in found if candidates[key].is_name is None]
    kinds = entity_names.mention_kinds(connection, row, untold) if untold else {}
    for key in found:
        if candidates[key].is_name:
            kinds[key] = MentionKind.NAME
        elif key not in kinds:
            kinds[key] = MentionKind.NOUN_PHRASE if " " in key else MentionKind.COMMON_NOUN
    inside = {
        key
        for key, kind in kinds.items()
        if any(candidates[key].is_inside(candidates[other]) and kinds[other] <= kind for other in kinds)
    }
    return {key: kind for key, kind in kinds.items() if key not in inside}
