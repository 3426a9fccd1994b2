"""The structured results of the MCP tools, and how they are kept short. Pure.

A result has at most about `MAX_CHARS` characters of JSON: lists are paged by cursors or cut, long texts are cut.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import tzinfo
from typing import TYPE_CHECKING, Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from graphmem.retrieval import context
from graphmem.retrieval.sentence_matching import sentences
from graphmem.service.listing import cursor_at, offset_at
from graphmem.times import shown_iso

if TYPE_CHECKING:
    import networkx as nx

T = TypeVar("T")

# The names of times in results.
_TIMES = frozenset({"at", "valid_to", "expiration_date", "forgotten_at"})

# The most characters of a structured result, as JSON, and of the text beside it.
MAX_CHARS = 6000
# The most characters of a memory in a list of memories; `get_memory` pages through the rest.
MAX_LISTED_CHARS = 1000
# Ever smaller (entries of a list, characters of a text), until a result fits into `MAX_CHARS`.
_CUTS = ((50, 1000), (20, 500), (10, 300), (5, 150), (3, 60))

Cursor = Field(default="", description='The place after which the result goes on; "" at its end')


class Result(BaseModel):
    """A structured result of a tool."""

    model_config = ConfigDict(extra="forbid")

    def in_zone(self, zone: tzinfo | None) -> Self:
        """Returns the result with its times in a time zone (None: in UTC, in which they are)."""
        return self if zone is None else self.model_validate(in_zone(self.model_dump(), zone))

    def shown(self) -> str:
        """Returns the result as a text for the model to read; by default its JSON, without empty parts, as data."""
        return context.block([f"{context.one_line(self.model_dump_json(exclude_defaults=True))}\n"])


class AddedMemory(Result):
    """A stored memory. `event`: ADD, NONE for one that was known, UPDATE or DELETE for one that a new fact changed."""

    id: str
    memory: str
    event: str


class AddResult(Result):
    """Stored memories. `pending`: parts of the memory that do not have them yet, or "facts": not drawn yet."""

    results: list[AddedMemory]
    pending: list[str] = []

    def shown(self) -> str:
        ids = ", ".join(f"{item.event} {item.id}" for item in self.results)
        waiting = (
            f" Not there yet: {', '.join(self.pending)}; searches find it when that is done." if self.pending else ""
        )
        return f"Stored{f' ({ids})' if ids else ''}.{waiting}"


class Attachment(Result):
    """What came with a message: an "image", "audio", "video" or "file". `caption`: what it shows; `transcript`: what is
    said in it.
    """

    kind: str
    ref: str
    caption: str | None = None
    transcript: str | None = None


class ListedMemory(Result):
    """A memory, of a long one the beginning. `at`: when it was said; `valid_to`: when it stopped being true;
    `forgotten_at`: since when it is hidden.
    """

    id: str
    memory: str
    kind: str
    at: str
    memory_type: str | None = None
    speaker: str | None = None
    valid_to: str | None = None
    expiration_date: str | None = None
    forgotten_at: str | None = None
    attachments: list[Attachment] | None = None


class MemoryResult(ListedMemory):
    """A memory; `memory` can be a page of its text."""

    message: str = ""
    pending: list[str] = []
    next_cursor: str = Cursor

    def shown(self) -> str:
        lines = [self.message] if self.message else []
        return "\n".join([*lines, memory_block([self.model_dump()])])


class FoundMemory(Result):
    """A hit: the best of a search has the `score` 1; `relevance` is the probability that it helps to answer,
    `similarity` its cosine; `why` and `path` say how it was found; `valid_to`: when it stopped being true;
    `forgotten_at`: since when it is hidden.
    """

    id: str
    memory: str
    kind: str
    score: float
    relevance: float
    similarity: float
    at: str
    speaker: str | None = None
    valid_to: str | None = None
    forgotten_at: str | None = None
    attachments: list[Attachment] | None = None
    why: str
    path: list[dict[str, str]]


class SearchResult(Result):
    """Hits, best first. `note`: why there are none. `degraded`: the parts of the memory that the search had to do
    without.
    """

    results: list[FoundMemory]
    note: str = ""
    degraded: list[str] = []
    next_cursor: str = Cursor

    def shown(self) -> str:
        return memory_block(context.said_once(hit.model_dump() for hit in self.results)) if self.results else self.note


class ListResult(Result):
    """Memories, newest first; `total` counts all. `retired`: those no longer true, listed only with `show_retired`."""

    results: list[ListedMemory]
    total: int
    retired: int = 0
    next_cursor: str = Cursor

    def shown(self) -> str:
        block = memory_block([item.model_dump() for item in self.results]) if self.results else ""
        retired = f" {self.retired} are no longer true." if self.retired else ""
        return f"{len(self.results)} of {self.total} memories.{retired}\n{block}".strip()


class ContextResult(Result):
    """A prompt block of memories, what it does not have of the newest summaries of conversations or the first standing
    facts, and the names that recent memories mention. `note`: why there is no block, nor a summary, for a question.
    """

    context: str
    note: str = ""
    profile_summary: str
    recent_topics: list[str]

    def shown(self) -> str:
        parts = [self.context, self.note]
        if self.profile_summary:
            parts.append(memory_block([{"memory": self.profile_summary}]))
        if self.recent_topics:
            parts.append("Recent topics: " + ", ".join(map(context.one_line, self.recent_topics)))
        return "\n".join(part for part in parts if part) or "Nothing is remembered yet."


class Event(Result):
    """One change of a memory, with its id; an UPDATE, RETIRE or FORGET can be undone by it."""

    id: str
    event: str
    old_memory: str | None = None
    new_memory: str | None = None
    at: str


class OriginEvent(Event):
    """A change with its reason. `rule` says how a conflict of two facts was decided: "time": the one that was said
    later counts, "confidence": the surer one, "merge": both are one text.
    """

    reason: str | None = None
    rule: str | None = None
    replaced_by: str | None = None


class HistoryResult(Result):
    """The changes of a memory, oldest first."""

    results: list[Event]
    next_cursor: str = Cursor


class Message(Result):
    """A message from which a memory was drawn."""

    memory_id: str
    role: str | None = None
    speaker: str | None = None
    content: str
    at: str


class Entity(Result):
    """A person, place, organization or thing."""

    name: str
    type: str


class Relation(Result):
    """A relation between two entities, and the memories that state it."""

    source: str
    relationship: str
    target: str
    memory_ids: list[str] = []


class ExplainResult(Result):
    """Where a memory comes from. `is_cut`: not all of it is shown."""

    id: str
    memory: str
    messages: list[Message]
    note: str = ""
    mentions: list[Entity]
    relations: list[Relation]
    replaces: list[str]
    replaced_by: list[str]
    compresses: list[str]
    compressed_by: list[str]
    abstracts: list[str]
    abstracted_by: list[str]
    events: list[OriginEvent]
    is_cut: bool = False


class GraphResult(Result):
    """A part of the graph: entities with their relations, and the memories in it. `is_cut`: not all of it is shown."""

    entities: list[Entity]
    relations: list[Relation]
    memories: list[ListedMemory]
    is_cut: bool = False


class EntityResult(GraphResult):
    """An entity, under which other names it is known, and the part of the graph around it."""

    name: str
    type: str
    aliases: list[str]


class ErasedCounts(Result):
    """How much was erased: memories, vectors, nodes and edges of the graph, derived rows."""

    ledger: int
    vectors: int
    graph: int
    derived: int


class ForgetResult(Result):
    """The id of the change, for undo_change; "" if the memory was forgotten already."""

    event_id: str

    def shown(self) -> str:
        return f"Forgotten; undo_change takes {self.event_id} back." if self.event_id else "It was forgotten already."


class DeleteResult(Result):
    """The receipt of a deletion. `pending`: parts of the memory that cannot be reached now, and erase theirs later."""

    message: str
    deleted: list[str]
    erased: ErasedCounts
    pending: list[str] = []
    is_cut: bool = False

    def shown(self) -> str:
        return f"{self.message} Erased memories: {self.erased.ledger}."


class Document(Result):
    """A hit in the form that ChatGPT expects. `url` names the memory, and leads nowhere."""

    id: str
    title: str
    url: str


class DocumentList(Result):
    """Hits in the form that ChatGPT expects."""

    results: list[Document]


class FullDocument(Document):
    """A memory in the form that ChatGPT expects."""

    text: str
    metadata: dict[str, str]


def in_zone(value: Any, zone: tzinfo | None) -> Any:
    """Returns a result as JSON with its times in a time zone, and all else unchanged."""
    if isinstance(value, list):
        return [in_zone(part, zone) for part in value]
    if not isinstance(value, dict):
        return value
    return {
        name: shown_iso(part, zone) if name in _TIMES and part else in_zone(part, zone) for name, part in value.items()
    }


def memory_block(memories: Sequence[Mapping[str, Any]]) -> str:
    """Returns memories as a block that is marked as data, a line for each with its date, speaker and id."""
    states, lines = (("valid_to", "no longer true"), ("forgotten_at", "forgotten")), []
    for one in memories:
        since = "".join(f" ({state} since {one[name][:10]})" for name, state in states if one.get(name))
        lines.append(context.memory_line(one["memory"] + since, one.get("at"), one.get("speaker"), one.get("id")))
    return context.block(lines)


def unshown(summary: str, block: str) -> str:
    """Returns the sentences of a summary that a block does not have."""
    parts = [summary[begin:end].strip() for begin, end in sentences(summary)]
    return " ".join(part for part in parts if part.rstrip("…").rstrip() not in block)


def shortened(text: str, max_chars: int = MAX_LISTED_CHARS) -> str:
    """Returns a text of at most `max_chars` characters as JSON, with "…" at its end if it was cut."""
    return text if _size(text) <= max_chars + 2 else f"{text[: fitting_chars(text, max_chars - 1)]}…"


def fitting_chars(text: str, max_chars: int) -> int:
    """Returns how many characters of the beginning of a text have at most `max_chars` characters as JSON."""
    length = min(len(text), max_chars)
    while (size := _size(text[:length]) - 2) > max_chars:
        length = length * max_chars // size
    return length


def fitting(result: dict[str, Any]) -> dict[str, Any]:
    """Returns a result whose JSON fits into `MAX_CHARS`: lists and texts are cut, and `is_cut` says so."""
    if _size(result) <= MAX_CHARS:
        return result
    cuts = (_cut(result, *limits) for limits in _CUTS)
    return {**next((cut for cut in cuts if _size(cut) < MAX_CHARS - 20), _cut(result, *_CUTS[-1])), "is_cut": True}


def page(
    items: Sequence[T], start: int, shape: Callable[[T], dict[str, Any]], max_chars: int = MAX_CHARS
) -> tuple[list[dict[str, Any]], int]:
    """Returns the items from `start` on that fit into `max_chars` as JSON, at least one, and the place after them."""
    shaped: list[dict[str, Any]] = []
    room = max_chars - 200  # for the other parts of the result
    for item in items[start:]:
        value = shape(item)
        room -= _size(value) + 2
        if room < 0 and shaped:
            break
        shaped.append(value)
    return shaped, start + len(shaped)


def paged(
    items: Sequence[T], cursor: str, arguments: Mapping[str, Any], shape: Callable[[T], dict[str, Any]]
) -> dict[str, Any]:
    """Returns the page of a list at a cursor: `results` and `next_cursor`. Raises ValidationError for a wrong one."""
    shaped, end = page(items, offset_at(cursor, arguments), shape)
    return {"results": shaped, "next_cursor": cursor_at(end, arguments) if end < len(items) else ""}


def _size(value: object) -> int:
    return len(json.dumps(value, ensure_ascii=False))


def _cut(value: Any, max_items: int, max_chars: int) -> Any:
    if isinstance(value, dict):
        return {name: _cut(part, max_items, max_chars) for name, part in value.items()}
    if isinstance(value, list):
        return [_cut(part, max_items, max_chars) for part in value[:max_items]]
    return shortened(value, max_chars) if isinstance(value, str) else value


def graph_around(graph: nx.MultiDiGraph[str], starts: Iterable[str], hops: int, limit: int) -> dict[str, Any]:
    """Returns the entities, relations and memories at most `hops` edges away from the starts, nearest first.

    `graph` is that of `Memory.graph`; `starts` are ids of memories or keys of entities, and those that it does not have
    are ignored. Each list has at most `limit` entries; `is_cut` says whether one had more.
    """
    known = [node for start in starts for node in (start, f"entity:{start}") if node in graph]
    return _parts(graph, _nearest(graph, known, hops), limit)


def whole_graph(graph: nx.MultiDiGraph[str], limit: int) -> dict[str, Any]:
    """Returns all of a graph as `graph_around` does."""
    return _parts(graph, list(graph), limit)


def entity_shape(entity: Mapping[str, Any]) -> dict[str, Any]:
    """Returns an entity, of the graph or of a result of `Memory`, as it is shown."""
    return {"name": shortened(entity["name"], 100), "type": entity["type"]}


def _nearest(graph: nx.MultiDiGraph[str], starts: list[str], hops: int) -> list[str]:
    """Returns the nodes within `hops` edges in either direction, by their distance."""
    undirected = graph.to_undirected(as_view=True)
    reached, border = dict.fromkeys(starts), starts
    for _ in range(hops):
        border = [node for start in border for node in undirected[start] if node not in reached]
        reached.update(dict.fromkeys(border))
    return list(reached)


def _parts(graph: nx.MultiDiGraph[str], nodes: list[str], limit: int) -> dict[str, Any]:
    data = {node: graph.nodes[node] for node in nodes}
    entities = {node: entity_shape(one) for node, one in data.items() if one["node"] == "entity"}
    memories = [
        {
            **{
                name: one[name]
                for name in ("kind", "at", "speaker", "valid_to", "forgotten_at")
                if one[name] is not None
            },
            "id": node,
            "memory": shortened(one["memory"]),
        }
        for node, one in data.items()
        if one["node"] == "memory"
    ]
    relations = [
        {
            "source": entities[source]["name"],
            "relationship": one["predicate"],
            "target": entities[target]["name"],
            "memory_ids": one["memory_ids"][:limit],
        }
        for source, target, one in graph.subgraph(entities).edges(data=True)
        if one["relationship"] == "RELATES_TO"
    ]
    found: dict[str, list[Any]] = {
        "entities": list(entities.values()), "relations": relations, "memories": memories
    }  # fmt: skip
    return {
        **{name: items[:limit] for name, items in found.items()},
        "is_cut": any(len(items) > limit for items in found.values()),
    }
