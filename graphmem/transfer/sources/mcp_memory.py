"""Converts files of the MCP server `@modelcontextprotocol/server-memory` to import records.

An entity becomes a memory that names its type. An observation becomes a memory titled with the entity's name, because
the extraction takes a title for a mention, whatever it looks like. A relation becomes a memory that states it. The file
has no times. Ids are made of the content, so that the same file imported again adds nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from graphmem.errors import ValidationError
from graphmem.model import EntityType, Kind, Scope, iso
from graphmem.text import normalise_key
from graphmem.transfer.sources.message_files import numbered_lines
from graphmem.transfer.sources.skipped_records import Record, SkippedRecords, validated

_KINDS = ("entity", "relation")
_TYPE_WORDS = {
    EntityType.PERSON: "person people human user customer client contact friend family colleague employee character",
    EntityType.ORGANIZATION: "organization organisation company team group institution department business community",
    EntityType.PLACE: "place location city country region address venue site area",
    EntityType.EVENT: "event meeting appointment trip conference incident milestone",
    EntityType.OBJECT: "object thing product tool device document file book software application app service project",
    EntityType.CONCEPT: "concept idea topic skill technology preference goal habit interest language framework pattern",
    EntityType.TIME: "time date day period year",
}
_TYPE_OF_WORD = {word: type_ for type_, words in _TYPE_WORDS.items() for word in words.split()}


def is_graph(text: str) -> bool:
    """Returns True if the first line that is valid JSON is a record of the MCP memory server.

    Earlier lines are skipped, as that server does.
    """
    for _, line in numbered_lines(text):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        return isinstance(value, dict) and value.get("type") in _KINDS and "role" not in value
    return False


@dataclass
class McpMemoryFile:
    """A server-memory file as records. After `records()` is exhausted, `skipped` has the lines without a record."""

    text: str
    scope: Scope
    at: datetime
    skipped: SkippedRecords = field(default_factory=SkippedRecords)

    def records(self) -> Iterator[Record]:
        """Yields the records, entities first: the first memory that mentions an entity decides its type."""
        lines = list(self._lines())
        for kind, convert in (("entity", self._entity), ("entity", self._observations), ("relation", self._relation)):
            for place, line in lines:
                if line["type"] == kind:
                    with self.skipped.skip_invalid(place):
                        yield from map(validated, convert(line))

    def _lines(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for number, line in numbered_lines(self.text):
            place = f"line {number}"
            try:
                value = json.loads(line)
            except (ValueError, RecursionError):
                self.skipped.add("is not valid JSON", place)
                continue
            if isinstance(value, dict) and value.get("type") in _KINDS:
                yield place, value
            else:
                self.skipped.add("is neither an entity nor a relation", place)

    # --- entities, observations, relations --------------------------------------------------------------------------

    def _entity(self, line: Mapping[str, Any]) -> Iterator[Record]:
        name, type_ = _required_text(line, "name"), _required_text(line, "entityType")
        article = "an" if _spaced(type_)[:1].casefold() in set("aeiou") else "a"
        sentence = f"{_spaced(name)} is {article} {_spaced(type_)}."
        yield self._record(
            ("entity", name, type_), sentence, {"entity": name, "entity_type": type_}, mentions=[_mention(name, type_)]
        )

    def _observations(self, line: Mapping[str, Any]) -> Iterator[Record]:
        name = _required_text(line, "name")
        title = _spaced(name)[0].upper() + _spaced(name)[1:]
        values = line.get("observations")
        if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
            raise ValidationError("observations: must be a list of texts")
        for observation in dict.fromkeys(value.strip() for value in values if value.strip()):
            yield self._record(("observation", name, observation), f"{title}\n{observation}", {"entity": name})

    def _relation(self, line: Mapping[str, Any]) -> Iterator[Record]:
        source, predicate, target = (_required_text(line, name) for name in ("from", "relationType", "to"))
        fact = f"{_spaced(source)} {_spaced(predicate)} {_spaced(target)}"
        mentions = {mention["key"]: mention for mention in (_mention(source), _mention(target))}
        statement = {"subject": _key(source), "predicate": predicate, "object": _key(target), "fact": fact}
        yield self._record(
            ("relation", source, predicate, target), fact, {}, mentions=list(mentions.values()), statements=[statement]
        )

    def _record(self, identity: tuple[str, ...], text: str, metadata: Mapping[str, str], **extraction: Any) -> Record:
        id_source = json.dumps(["server-memory", self.scope.parts, *identity])
        return {
            "type": "memory",
            "id": str(uuid5(NAMESPACE_OID, id_source)),
            **self.scope.parts,
            "kind": Kind.FACT.value,
            "text": text,
            "at": iso(self.at),
            "metadata": dict(metadata),
            **extraction,
        }


def _mention(name: str, type_: str = "") -> dict[str, str]:
    # The last word names the type: a "recurring_event" is an event.
    last_word = _spaced(type_).casefold().split()[-1:]
    entity_type = _TYPE_OF_WORD.get(last_word[0], EntityType.OTHER) if last_word else EntityType.OTHER
    return {"key": _key(name), "name": _spaced(name), "type": entity_type.value, "kind": "name"}


def _key(name: str) -> str:
    return normalise_key(_spaced(name))


def _required_text(line: Mapping[str, Any], name: str) -> str:
    value = line.get(name)
    if not isinstance(value, str) or not _key(value):
        raise ValidationError(f"{name}: must be a text with words in it")
    return value.strip()


def _spaced(name: str) -> str:
    """Returns a name with spaces for underscores: clients of this server write "John_Smith" and "works_at"."""
    return " ".join(name.replace("_", " ").split())
