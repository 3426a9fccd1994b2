"""`GraphmemStore`: a store for LangGraph's graphs, whose items are exact and whose texts are memories."""

from __future__ import annotations

import asyncio
import json
import logging
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice, takewhile
from typing import Any

from sqlalchemy import Connection

from graphmem.async_memory import AsyncMemory
from graphmem.boundary import validation
from graphmem.commands.types import DeleteItem, ItemCommand, RefreshItem
from graphmem.errors import StoreError
from graphmem.integrations.base import required
from graphmem.integrations.items import ItemStore
from graphmem.logs import log_text
from graphmem.memory import Memory
from graphmem.model import Item as StoredItem
from graphmem.model import MinRelevance, Scope
from graphmem.retrieval.types import Hit
from graphmem.stores.ledger import items

with required("langgraph", extra="langgraph"):
    from langgraph.store.base import (
        BaseStore,
        GetOp,
        InvalidNamespaceError,
        Item,
        ListNamespacesOp,
        MatchCondition,
        Op,
        PutOp,
        Result,
        SearchItem,
        SearchOp,
        TTLConfig,
        get_text_at_path,
        validate_op_namespace,
    )

logger = logging.getLogger("graphmem")

DEFAULT_FIELDS = ("memory", "text", "content")
MAX_LABEL, MAX_ROWS = 100, 1_000_000_000
MAX_FILTER_DEPTH = validation.MAX_VALUE_DEPTH + 1  # an operator may stand at the deepest level of a value
_ESCAPES = {"%": "%25", ".": "%2E"}  # LangGraph refuses labels with dots, which most e-mail addresses have
_UNESCAPED, _ESCAPED = re.compile("[%.]"), re.compile("%25|%2E")
_ORDER: Mapping[str, Callable[[Any, Any], bool]] = {
    "$gt": operator.gt, "$gte": operator.ge, "$lt": operator.lt, "$lte": operator.le,
}  # fmt: skip


def label(user_id: str | int) -> str:
    """Returns the label that stands for a user's id in a namespace: `label("ana@x.org")` is "ana@x%2Eorg".

    Raises ValidationError for what is no id of a user, and for an id with white space around it.
    """
    return _UNESCAPED.sub(lambda match: _ESCAPES[match[0]], _checked_user_id(user_id))


def user_of(user_label: str) -> str:
    """Returns the user's id for which a label stands: `user_of("ana@x%2Eorg")` is "ana@x.org"."""
    return _ESCAPED.sub(lambda match: "." if match[0] == "%2E" else "%", user_label)


def _checked_user_id(user_id: object) -> str:
    """Returns the id of a user as text.

    Raises ValidationError for one that differs from the stored id, which is trimmed: two labels would name one user.
    """
    scope = validation.scope(user_id)[0]
    if scope is None or scope.user_id is None:
        validation.refuse("user_id", user_id, "is missing; give the id of a user")
    if isinstance(user_id, str) and user_id != scope.user_id:
        validation.refuse("user_id", user_id, "begins or ends with white space, which no stored id does; strip it")
    return scope.user_id


class FoundItem(SearchItem):
    """An item of a search, with the `relevance` of its text to the query (0 to 1; None: not found by the query)."""

    __slots__ = ("relevance",)

    def __init__(self, *, relevance: float | None, **fields: Any) -> None:
        super().__init__(**fields)
        self.relevance = relevance

    def dict(self) -> dict[str, Any]:
        return {**super().dict(), "relevance": self.relevance}


class GraphmemStore(BaseStore):
    """A LangGraph store over a `Memory`. Values are stored as JSON; their texts are found by search with a query.

    `user_id`: all items are this user's. `user_label`: the label of a namespace, counted from 0, that names the user
    (write it with `label`); operations whose prefix ends before that label read across the users of `agent_id`. With
    neither, the items are the agent's. `fields`: the paths in a value whose texts are remembered, as in the `index` of
    LangGraph's own stores (default: "memory", "text" and "content", also in one of these that is an object, else the
    whole value). `min_relevance`: the lowest relevance of an item that a query finds, as in `Memory.search`; with it no
    other items fill the page. `ttl`: LangGraph's settings of the time to live, of which `default_ttl` and
    `refresh_on_read` have an effect: expired items are never returned, and deleted with the next write.

    Does not close the memory. Safe to use from several threads. Methods raise ValidationError (a ValueError) for
    unusable arguments, InvalidNamespaceError for namespaces that LangGraph forbids, StoreError when the ledger fails.
    """

    supports_ttl = True

    def __init__(
        self,
        memory: Memory | AsyncMemory,
        *,
        user_id: str | None = None,
        agent_id: str | None = "langgraph",
        user_label: int | None = None,
        fields: Sequence[str] | None = None,
        min_relevance: MinRelevance = None,
        ttl: TTLConfig | None = None,
    ) -> None:
        if user_id is not None and user_label is not None:
            validation.refuse("user_label", user_label, "user_id is given as well; give one of the two")
        self._items = ItemStore(memory)
        self._user_id, self._agent_id = user_id, agent_id
        self._user_label = None if user_label is None else validation.count(user_label, "user_label", 0, MAX_LABEL)
        self._fields = None if fields is None else _checked_paths(fields, "fields")
        self._min_relevance = validation.min_relevance(min_relevance)
        if ttl is not None:
            for name in validation.as_object(ttl, "ttl"):
                validation.one_of(name, "ttl key", TTLConfig.__annotations__)
            if (default_ttl := ttl.get("default_ttl")) is not None:
                validation.minutes(default_ttl, "ttl.default_ttl")
            validation.flag(ttl.get("refresh_on_read", True), "ttl.refresh_on_read")
        self.ttl_config = ttl
        self._scope(())

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Carries out operations: first all that read, in one snapshot, then all that write, in one transaction.

        Returns the results in the order of the operations. Of several puts under one key the last counts. What was only
        read is returned even if the ledger cannot be written to postpone its expiration.
        """
        ops = list(ops)
        for op in ops:
            _refuse_text_as_namespace(op)
            validate_op_namespace(op)
        last_puts = {(tuple(op.namespace), op.key): op for op in ops if isinstance(op, PutOp)}
        writes = [self._write_command(op) for op in last_puts.values()]
        # A search waits for projections, so it is no part of the snapshot.
        hits = [self._hits(op) if isinstance(op, SearchOp) else None for op in ops]
        with self._items.reading() as connection:
            reader = _Reader(connection, datetime.now(UTC), self._scope, fills_pages=self._min_relevance is None)
            results = [reader.result(op, found) for op, found in zip(ops, hits, strict=True)]
        refreshes = list(dict.fromkeys(reader.refreshes))
        if writes:
            self._items.write([*refreshes, *writes])
        elif refreshes:
            try:
                self._items.write(refreshes)
            except StoreError as error:  # the values were read
                logger.warning("the expiration of %d items was not postponed (%s)", len(refreshes), log_text(error))
        return results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Calls `batch` in a thread."""
        return await asyncio.to_thread(self.batch, list(ops))

    def _scope(self, labels: Sequence[str]) -> Scope:
        """Returns the scope of a namespace or prefix."""
        user_id = self._user_id
        if self._user_label is not None and len(labels) > self._user_label:
            user_id = _checked_user_id(user_of(labels[self._user_label]))
        return validation.required_scope(user_id, self._agent_id)[0]

    def _write_command(self, op: PutOp) -> ItemCommand:
        scope = self._scope(op.namespace)
        if op.namespace and op.namespace[0] in items.OWN_LABELS:
            raise InvalidNamespaceError(f"namespace: {op.namespace[0]} is graphmem's own; begin with another label")
        if op.value is None:
            return DeleteItem(scope, tuple(op.namespace), op.key)
        if not op.namespace:
            raise InvalidNamespaceError("namespace: is empty; give at least one label")
        if self._user_label is not None and len(op.namespace) <= self._user_label:
            validation.refuse("namespace", op.namespace, f"has no label {self._user_label} (from 0) to name the user")
        value = dict(validation.as_object(op.value, "value"))
        validation.json_value(value)  # before its texts are read, which needs JSON as well
        message = {"role": "user", "content": "\n".join(self._texts(op, value))}
        return self._items.put_command(scope, op.namespace, op.key, value, message=message, ttl_minutes=op.ttl)

    def _texts(self, op: PutOp, value: Mapping[str, Any]) -> list[str]:
        """Returns the texts of a value to remember."""
        if op.index is False:
            return []
        paths = self._fields if op.index is None else _checked_paths(op.index, "index")
        if paths is not None:
            return _texts_at(value, paths)
        return _usual_texts(value) or _texts_at(value, ["$"] if value else [])

    def _hits(self, op: SearchOp) -> dict[str, Hit] | None:
        """Returns the hits among the memories below a prefix, by id, best first; None without a query."""
        if op.query is not None and not isinstance(op.query, str):
            validation.refuse_unseen("query", op.query, "must be a string, or None")
        query = validation.storable_part(op.query or "", validation.MAX_QUERY_CHARS)
        if not query.strip():
            return None
        # A filter is applied to values afterwards and may refuse any number of hits.
        limit = None if op.filter else max(_bounds(op)[1], 1)
        scope = self._scope(op.namespace_prefix)
        return self._items.search(query, scope, op.namespace_prefix, limit, self._min_relevance)


class _Reader:
    """Reads the results of operations in one snapshot. `refreshes` collects the commands that postpone expirations.

    `fills_pages`: items that a query does not find come after those that it finds.
    """

    def __init__(
        self,
        connection: Connection,
        now: datetime,
        scope_of: Callable[[Sequence[str]], Scope],
        *,
        fills_pages: bool,
    ) -> None:
        self._connection = connection
        self._now = now
        self._scope_of = scope_of
        self._fills_pages = fills_pages
        self.refreshes: list[RefreshItem] = []

    def result(self, op: Op, hits: Mapping[str, Hit] | None) -> Result:
        """Returns the result of an operation, None for a write. `hits`: those of its query, by memory id, best first
        (None: it has none).
        """
        if isinstance(op, GetOp):
            found = items.find(self._connection, self._scope_of(op.namespace), op.namespace, op.key, self._now)
            self._refresh(op, [] if found is None else [found])
            return None if found is None else Item(**_fields(found))
        if isinstance(op, SearchOp):
            page = self._page(op, hits)
            self._refresh(op, [item for item, _ in page])
            return [result for _, result in page]
        if isinstance(op, ListNamespacesOp):
            conditions = [_namespace_condition(condition) for condition in op.match_conditions or ()]
            prefixes = [condition.path for condition in op.match_conditions or () if condition.match_type == "prefix"]
            above = max((tuple(takewhile(lambda part: part != "*", path)) for path in prefixes), key=len, default=())
            below = items.namespaces(self._connection, self._scope_of(above), above, self._now)
            matching = {labels[: op.max_depth] for labels in below if all(matches(labels) for matches in conditions)}
            return sorted(matching)[slice(*_bounds(op))]
        return None if isinstance(op, PutOp) else validation.refuse_unseen("ops", op, "is no operation")

    def _page(self, op: SearchOp, hits: Mapping[str, Hit] | None) -> list[tuple[StoredItem, SearchItem]]:
        passes = _filter({} if op.filter is None else validation.as_object(op.filter, "filter"))
        ranked = self._ranked(op.namespace_prefix, hits)
        pairs = ((item, _found_item(item, (hits or {}).get(item.memory_id or ""))) for item in ranked)
        page = islice((pair for pair in pairs if passes(pair[1].value)), *_bounds(op))
        return list(page)

    def _ranked(self, prefix: Sequence[str], hits: Mapping[str, Hit] | None) -> Iterator[StoredItem]:
        """Yields the items below a prefix: those of the hits, best first, then the others, last changed first."""
        place = (self._connection, self._scope_of(prefix), prefix)
        if hits:
            ranks = {memory_id: rank for rank, memory_id in enumerate(hits)}
            found = items.of_memories(*place, list(hits), self._now)
            yield from sorted(found, key=lambda item: (ranks[item.memory_id or ""], item.namespace, item.key))
        if hits is None or self._fills_pages:
            yield from (item for item in items.latest(*place, self._now) if item.memory_id not in (hits or ()))

    def _refresh(self, op: GetOp | SearchOp, read: Iterable[StoredItem]) -> None:
        if op.refresh_ttl:
            expiring = (item for item in read if item.ttl_minutes is not None)
            self.refreshes += [RefreshItem(item.scope, item.namespace, item.key) for item in expiring]


def _fields(item: StoredItem) -> dict[str, Any]:
    """Returns an item as the arguments of LangGraph's `Item`."""
    return {
        "namespace": item.namespace,
        "key": item.key,
        "value": json.loads(item.value),
        "created_at": item.created_at,
        "updated_at": item.updated_at,
    }


def _found_item(item: StoredItem, hit: Hit | None) -> FoundItem:
    """Returns an item as a result of a search; `hit`: its memory, if the query found it."""
    score, relevance = (None, None) if hit is None else (hit.score, hit.relevance)
    return FoundItem(**_fields(item), score=score, relevance=relevance)


def _refuse_text_as_namespace(op: Op) -> None:
    """Raises InvalidNamespaceError for a text in place of a tuple: its letters would be the labels."""
    if isinstance(op, ListNamespacesOp):
        places = [condition.path for condition in op.match_conditions or ()]
    else:
        places = [getattr(op, "namespace_prefix" if isinstance(op, SearchOp) else "namespace", ())]
    if any(isinstance(place, str) for place in places):
        raise InvalidNamespaceError('a namespace is a tuple of labels, such as ("notes",), and no text')


def _namespace_condition(condition: MatchCondition) -> Callable[[Sequence[str]], bool]:
    """Returns a function that tells whether a namespace begins, or ends, with a path; "*" stands for any label."""
    backwards = validation.one_of(condition.match_type, "match_type", ("prefix", "suffix")) == "suffix"
    path = list(reversed(condition.path) if backwards else condition.path)

    def matches(labels: Sequence[str]) -> bool:
        compared = reversed(labels) if backwards else labels
        pairs = zip(path, compared, strict=False)
        return len(labels) >= len(path) and all(part in {"*", label} for part, label in pairs)

    return matches


def _filter(expected: Mapping[str, Any]) -> Callable[[Any], bool]:
    """Returns a function that tells whether a value passes a filter, as LangGraph's own stores compare.

    The keys of the filter are names of fields, also those that begin with "$". Raises ValidationError for unknown
    operators and for more levels than a value can have.
    """
    return _has_fields({name: _condition(part, 2) for name, part in expected.items()})


def _has_fields(fields: Mapping[str, Callable[[Any], bool]]) -> Callable[[Any], bool]:
    """Returns a function that tells whether a value is a dict whose fields pass, others besides or not."""
    return lambda value: isinstance(value, dict) and all(test(value.get(name)) for name, test in fields.items())


def _condition(expected: object, depth: int) -> Callable[[Any], bool]:
    """Returns a function that tells whether a part of a value passes a part of a filter; `depth` is its level."""
    if depth > MAX_FILTER_DEPTH:
        validation.refuse_unseen("filter", expected, f"is nested too deeply; use at most {MAX_FILTER_DEPTH} levels")
    if isinstance(expected, Mapping):
        if any(str(name).startswith("$") for name in expected):
            tests = [_comparison(name, operand) for name, operand in expected.items()]
            return lambda value: all(test(value) for test in tests)
        return _has_fields({name: _condition(part, depth + 1) for name, part in expected.items()})
    if isinstance(expected, list | tuple):
        parts = [_condition(part, depth + 1) for part in expected]
        return lambda value: (
            isinstance(value, list)
            and len(value) == len(parts)
            and all(test(part) for test, part in zip(parts, value, strict=True))
        )
    return lambda value: bool(value == expected)


def _comparison(name: str, operand: Any) -> Callable[[Any], bool]:
    if name in {"$eq", "$ne"}:
        return lambda value: bool(value == operand) is (name == "$eq")
    if name not in _ORDER:
        validation.refuse("filter", name, f"is no operator; use $eq, $ne, {', '.join(_ORDER)}")
    return lambda value: _is_ordered(value, operand) and _ORDER[name](value, operand)


def _is_ordered(value: object, operand: object) -> bool:
    """Tells whether two values are both numbers or both strings."""
    both = (value, operand)
    are_numbers = all(isinstance(one, int | float) and not isinstance(one, bool) for one in both)
    return are_numbers or all(isinstance(one, str) for one in both)


def _checked_paths(value: object, argument: str) -> list[str]:
    return [validation.stored_text(path, argument) for path in validation.as_list(value, argument)]


def _usual_texts(value: Mapping[str, Any]) -> list[str]:
    """Returns the texts of the usual fields; of an object among them those of its own, as langmem nests them."""
    found: list[str] = []
    for field in DEFAULT_FIELDS:
        inner = value.get(field)
        found += (_usual_texts(inner) if isinstance(inner, Mapping) else []) or get_text_at_path(value, field)
    return found


def _texts_at(value: Mapping[str, Any], paths: Iterable[str]) -> list[str]:
    return [text for path in paths for text in get_text_at_path(value, path)]


def _bounds(op: SearchOp | ListNamespacesOp) -> tuple[int, int]:
    """Returns the places at which a page of results begins and ends."""
    offset, limit = (validation.count(getattr(op, name), name, 0, MAX_ROWS) for name in ("offset", "limit"))
    return offset, offset + limit
