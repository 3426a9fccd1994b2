"""Files of the MCP server `@modelcontextprotocol/server-memory` as records: entities, observations, relations.

An entity becomes a memory that says of which type it is, an observation one with the entity's name as its title (which
is always a mention, whatever the name looks like), a relation one that states it. The file knows no times, and ids are
made of what is said: the same file again adds nothing.
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
from graphmem.transfer.sources.records import Record, SkippedRecords, validated

_KINDS = ("entity", "relation")
_TYPES = {
    EntityType.PERSON: "person people human user customer client contact friend family colleague employee character",
    EntityType.ORGANIZATION: "organization organisation company team group institution department business community",
    EntityType.PLACE: "place location city country region address venue site area",
    EntityType.EVENT: "event meeting appointment trip conference incident milestone",
    EntityType.OBJECT: "object thing product tool device document file book software application app service project",
    EntityType.CONCEPT: "concept idea topic skill technology preference goal habit interest language framework pattern",
    EntityType.TIME: "time date day period year",
}
_TYPE_OF = {word: type_ for type_, words in _TYPES.items() for word in words.split()}


def is_graph(text: str) -> bool:
    """Whether a file's first line is one of that server's; lines that are no JSON are passed over, as it does."""
    for _, line in numbered_lines(text):
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            continue
        return isinstance(found, dict) and found.get("type") in _KINDS and "role" not in found
    return False


@dataclass
class McpMemoryFile:
    """What such a file says. After `records` has been read, `skipped` has the lines that were not taken."""

    text: str
    scope: Scope
    at: datetime
    skipped: SkippedRecords = field(default_factory=SkippedRecords)

    def records(self) -> Iterator[Record]:
        """Entities before what is said of them: the first to mention one decides of which type it is."""
        lines = list(self._lines())
        for kind, make in (("entity", self._entity), ("entity", self._observations), ("relation", self._relation)):
            for place, line in lines:
                if line["type"] == kind:
                    with self.skipped.skip_invalid(place):
                        yield from map(validated, make(line))

    def _lines(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for number, line in numbered_lines(self.text):
            place = f"line {number}"
            try:
                found = json.loads(line)
            except (ValueError, RecursionError):
                self.skipped.add("is not valid JSON", place)
                continue
            if isinstance(found, dict) and found.get("type") in _KINDS:
                yield place, found
            else:
                self.skipped.add("is neither an entity nor a relation", place)

    # --- the three kinds ------------------------------------------------------------------------------------------

    def _entity(self, line: Mapping[str, Any]) -> Iterator[Record]:
        name, type_ = _text(line, "name"), _text(line, "entityType")
        said = f"{_words(name)} is {_article(_words(type_))} {_words(type_)}."
        yield self._record(
            ("entity", name, type_), said, {"entity": name, "entity_type": type_}, mentions=[_mention(name, type_)]
        )

    def _observations(self, line: Mapping[str, Any]) -> Iterator[Record]:
        name = _text(line, "name")
        title = _words(name)[0].upper() + _words(name)[1:]
        for observation in dict.fromkeys(_texts(line, "observations")):
            yield self._record(("observation", name, observation), f"{title}\n{observation}", {"entity": name})

    def _relation(self, line: Mapping[str, Any]) -> Iterator[Record]:
        start, predicate, end = (_text(line, name) for name in ("from", "relationType", "to"))
        fact = f"{_words(start)} {_words(predicate)} {_words(end)}"
        mentions = {one["key"]: one for one in (_mention(start), _mention(end))}
        stated = {"subject": _key(start), "predicate": predicate, "object": _key(end), "fact": fact}
        yield self._record(
            ("relation", start, predicate, end), fact, {}, mentions=list(mentions.values()), statements=[stated]
        )

    def _record(self, what: tuple[str, ...], text: str, metadata: Mapping[str, str], **found: Any) -> Record:
        said = json.dumps(["server-memory", self.scope.parts, *what])
        return {
            "type": "memory",
            "id": str(uuid5(NAMESPACE_OID, said)),
            **self.scope.parts,
            "kind": Kind.FACT.value,
            "text": text,
            "at": iso(self.at),
            "metadata": dict(metadata),
            **found,
        }


def _mention(name: str, type_: str = "") -> dict[str, str]:
    return {"key": _key(name), "name": _words(name), "type": _type_of(type_).value, "kind": "name"}


def _key(name: str) -> str:
    return normalise_key(_words(name))


def _type_of(word: str) -> EntityType:
    """One of the closed list: "recurring_event" is an event, what is not known is Other."""
    last = _words(word).casefold().split()[-1:]
    return _TYPE_OF.get(last[0], EntityType.OTHER) if last else EntityType.OTHER


def _text(line: Mapping[str, Any], name: str) -> str:
    value = line.get(name)
    if not isinstance(value, str) or not _key(value):
        raise ValidationError(f"{name}: must be a text with words in it")
    return value.strip()


def _texts(line: Mapping[str, Any], name: str) -> list[str]:
    values = line.get(name)
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValidationError(f"{name}: must be a list of texts")
    return [value.strip() for value in values if value.strip()]


def _words(name: str) -> str:
    """A name as it is said: that server's clients write "John_Smith" and "works_at"."""
    return " ".join(name.replace("_", " ").split())


def _article(word: str) -> str:
    return "an" if word[:1].casefold() in set("aeiou") else "a"
