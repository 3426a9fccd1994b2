"""GraphmemStore and LangGraph's InMemoryStore, driven by the same operations, give the same results.

Known differences: InMemoryStore keeps items in the order of their insertion, sets `created_at` at every put, lists
namespaces that hold no item any more or were only read, and its order operators raise for values that are no numbers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from langgraph.store.base import GetOp, ListNamespacesOp, MatchCondition, Op, PutOp, SearchItem, SearchOp
from langgraph.store.memory import InMemoryStore
from support.waiting import TIMEOUT

from graphmem import Memory
from graphmem.integrations.langgraph import GraphmemStore, label

ALL = 1000
FREE_LABELS = [
    "a",
    "A",
    "a2",
    "a\n",
    "a*",
    "*",
    'a"',
    "a,",
    "[",
    "a%",
    "%2E",
    "ä",
    "漢",
    " ",
    "\\",
    "\x7f",
    "\U0001f600",
]
USER_LABELS = ["ana", "ben", label("ana@x.org"), "a%"]
words = st.sampled_from(["tea", "coffee", "Ana", "Lisbon", "and", "\x00", ""])
texts = st.lists(words, max_size=4).map(" ".join)
numbers = st.integers(-2, 2) | st.sampled_from([0.5, 1.0, 2**70])
plain = st.sampled_from([None, True, False, 0, 1, 1.0, "", "a"])
nested = st.recursive(
    plain, lambda part: st.lists(part, max_size=2) | st.dictionaries(st.sampled_from("ab"), part, max_size=2)
)
values = st.fixed_dictionaries({"n": numbers}, optional={"text": texts, "x": nested, "y": nested})
equalities = nested | st.fixed_dictionaries({"$eq": nested}) | st.fixed_dictionaries({"$ne": nested})
order = st.dictionaries(st.sampled_from(["$gt", "$gte", "$lt", "$lte", "$ne"]), numbers, min_size=1, max_size=2)
filters = st.fixed_dictionaries({}, optional={"n": order | numbers, "x": equalities, "y": equalities, "no": equalities})
keys = st.sampled_from(["k", "K", "k ", "é", ""])
indexes = st.sampled_from([None, False, ["text"], ["x"], ["$"]])


def namespaces(user_label: int | None) -> tuple[st.SearchStrategy[Any], st.SearchStrategy[Any]]:
    """Strategies for namespaces to write to, and for prefixes to read below."""
    free, users = st.sampled_from(FREE_LABELS), st.sampled_from(USER_LABELS)
    if user_label is None:
        return st.lists(free, min_size=1, max_size=3).map(tuple), st.lists(free, max_size=3).map(tuple)
    labels = [free] * user_label + [users]
    complete = st.tuples(st.tuples(*labels), st.lists(free, max_size=1).map(tuple)).map(lambda parts: sum(parts, ()))
    return complete, complete | st.tuples(*labels[:user_label]) | st.just(())


def operations(user_label: int | None) -> st.SearchStrategy[Op]:
    written, read = namespaces(user_label)
    paths = st.lists(st.sampled_from([*FREE_LABELS, "*", "*"]), max_size=2).map(tuple) if user_label is None else read
    conditions = st.tuples(st.sampled_from(["prefix", "suffix"]), paths).map(lambda parts: MatchCondition(*parts))
    puts = st.tuples(written, keys, values, indexes).map(lambda parts: PutOp(*parts))
    deletes = st.tuples(written, keys).map(lambda parts: PutOp(*parts, None))
    gets = st.tuples(written, keys).map(lambda parts: GetOp(*parts))
    searches = st.tuples(read, st.none() | filters).map(lambda parts: SearchOp(*parts, limit=ALL))
    depths, limits = st.none() | st.integers(1, 3), st.integers(0, 5) | st.just(ALL)
    listings = st.tuples(st.lists(conditions, max_size=2).map(tuple), depths, limits, st.integers(0, 2))
    return puts | puts | deletes | gets | searches | listings.map(lambda parts: ListNamespacesOp(*parts))


def comparable(result: Any) -> Any:
    """A result without times and scores; found items without their order."""
    if isinstance(result, list) and result and isinstance(result[0], SearchItem):
        return sorted(repr(comparable(item)) for item in result)
    if result is None or isinstance(result, list):
        return result
    return result.namespace, result.key, json.dumps(result.value, sort_keys=True)


class Stores(RuleBasedStateMachine):
    """Both stores; subclasses say where the user is named, and which memory to use."""

    memory: Memory
    user_label: int | None
    agents = count()

    def __init__(self) -> None:
        super().__init__()
        user = {"user_id": "ana"} if self.user_label is None else {"user_label": self.user_label}
        self.store = GraphmemStore(self.memory, agent_id=f"agent {next(self.agents)}", **user)
        self.model = InMemoryStore()

    def drop_empty_namespaces(self) -> None:
        for namespace in [namespace for namespace, stored in self.model._data.items() if not stored]:
            del self.model._data[namespace]

    @rule(data=st.data())
    def carry_out_a_batch(self, data: st.DataObject) -> None:
        ops = data.draw(st.lists(operations(self.user_label), min_size=1, max_size=6))
        self.drop_empty_namespaces()
        results = self.store.batch(ops)
        expected = []
        for op in [op for op in ops if not isinstance(op, PutOp)]:
            expected += self.model.batch([op])
            self.drop_empty_namespaces()
        self.model.batch([op for op in ops if isinstance(op, PutOp)])
        read = [result for op, result in zip(ops, results, strict=True) if not isinstance(op, PutOp)]
        assert list(map(comparable, read)) == list(map(comparable, expected))
        assert all(result is None for op, result in zip(ops, results, strict=True) if isinstance(op, PutOp))

    @rule(data=st.data(), query=st.sampled_from(["tea", "Who drinks coffee in Lisbon?", "xyz"]) | st.none())
    def read_page_by_page(self, data: st.DataObject, query: str | None) -> None:
        prefix, condition = data.draw(namespaces(self.user_label)[1]), data.draw(st.none() | filters)
        size = data.draw(st.integers(1, 3))
        expected = self.model.search(prefix, filter=condition, limit=ALL)
        pages = [
            self.store.search(prefix, query=query, filter=condition, limit=size, offset=offset)
            for offset in range(0, len(expected) + 1, size)
        ]
        found = [item for page in pages for item in page]
        assert all(len(page) == size for page in pages[:-1])
        assert sorted(map(identity, found)) == sorted(map(identity, expected))
        check_order(found)

    @invariant()
    def all_items_are_the_same(self) -> None:
        found, expected = (store.search((), limit=ALL) for store in (self.store, self.model))
        assert comparable(found) == comparable(expected)


def identity(item: SearchItem) -> tuple[tuple[str, ...], str]:
    return item.namespace, item.key


def check_order(found: Iterable[SearchItem]) -> None:
    """Scores fall from 1 to 0; then come the items without one, last changed first."""
    found = list(found)
    scores = [item.score for item in found if item.score is not None]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)
    rest = found[len(scores) :]
    assert all(item.score is None for item in rest)
    assert rest == sorted(rest, key=lambda item: (-item.updated_at.timestamp(), item.key))
    assert all(item.created_at <= item.updated_at for item in found)


@pytest.mark.parametrize("user_label", [None, 0, pytest.param(1, marks=pytest.mark.thorough)])
def test_the_store_does_as_langgraphs_own_store(make_memory: Callable[..., Memory], user_label: int | None) -> None:
    opened, where = make_memory(delivery_wait=TIMEOUT), user_label

    class Machine(Stores):
        memory, user_label = opened, where

    run_state_machine_as_test(Machine, settings=settings(max_examples=12, stateful_step_count=10, deadline=None))


PARTS = [None, True, 0, 1, 1.0, "1", "", [], [1], [1, 2], [[1]], {}, {"a": 1}, {"a": 1, "b": None}, {"a": {"b": [1]}}]
CONDITIONS = [*PARTS, *({"$eq": part} for part in PARTS), *({"$ne": part} for part in PARTS)]
CONDITIONS += [[{"$ne": 1}], {"a": {"$eq": 1, "$ne": None}}, {"a": {"b": [{"$ne": 2}]}}]


def test_filters_compare_as_langgraphs_own_store(make_memory: Callable[..., Memory]) -> None:
    stores = GraphmemStore(make_memory(), user_id="ana"), InMemoryStore()
    for store in stores:
        store.batch([PutOp(("v",), str(number), {"v": part}) for number, part in enumerate(PARTS)])
        store.put(("v",), "missing", {})
    for condition in CONDITIONS:
        ours, theirs = ({item.key for item in store.search((), filter={"v": condition}, limit=ALL)} for store in stores)
        assert ours == theirs, condition
