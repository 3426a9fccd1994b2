"""Conformance tests of `WorkingMemory`. A backend subclasses `WorkingContract` and gives an `open_store` fixture."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from threading import Thread

import pytest
from support.waiting import wait_until

from graphmem.model import SaidMessage, Scope
from graphmem.stores.working import WorkingMemory

NOON = datetime(2026, 5, 1, 12, 30, 0, 123456, tzinfo=UTC)
ANA, BEN = Scope("ana"), Scope("ben")
MOST = 4
# `open_store(seconds)`: an empty store for a ledger of its own, which keeps lists for so long.
OpenStore = Callable[..., WorkingMemory]


def said(number: int, text: str | None = None) -> SaidMessage:
    at = NOON + timedelta(minutes=number)
    role, speaker = ("user", "Ana") if number % 2 else ("assistant", None)
    return SaidMessage(f"id{number}", number, 1, "s", at, f"text {number}" if text is None else text, 2, role, speaker)


class WorkingContract:
    @pytest.fixture
    def store(self, open_store: OpenStore) -> WorkingMemory:
        return open_store(3600.0)

    def test_a_list_comes_back_to_the_character(self, store: WorkingMemory) -> None:
        messages = [
            said(1, '安娜 "quoted"\n\t\u202e🎻'),
            said(2, "\\ {} <b>"),
            SaidMessage("x", 3, 7, "", NOON, "a", 1),
        ]
        store.replace(ANA, messages)
        assert store.recent(ANA) == messages
        assert not store.is_away

    def test_what_is_pushed_stands_at_the_end_and_the_oldest_leave(self, store: WorkingMemory) -> None:
        store.replace(ANA, [said(1), said(2)])
        store.push(ANA, [said(3)])
        store.push(ANA, [said(4), said(5)])
        assert store.most == MOST
        assert store.recent(ANA) == [said(2), said(3), said(4), said(5)]
        store.replace(ANA, list(map(said, range(10))))
        assert store.recent(ANA) == list(map(said, range(6, 10)))

    def test_nothing_is_pushed_to_a_list_that_is_not_there(self, store: WorkingMemory) -> None:
        store.push(ANA, [said(1)])
        assert store.recent(ANA) is None

    def test_each_scope_has_a_list_of_its_own(self, store: WorkingMemory) -> None:
        scopes = [
            ANA, BEN, Scope("ana", "bot"), Scope("ana", None, "bot"), Scope(None, "ana"), Scope(None, None, "ana"),
            Scope("ana", "bot", "run"), Scope("Ana"), Scope('ana", "bot'), Scope("ana,bot"),
        ]  # fmt: skip
        for number, scope in enumerate(scopes):
            store.replace(scope, [said(number)])
        assert [store.recent(scope) for scope in scopes] == [[said(number)] for number in range(len(scopes))]

    def test_clearing_is_about_one_scope_and_dropping_about_a_partition(self, store: WorkingMemory) -> None:
        with_bot, of_bot = Scope("ana", "bot"), Scope(None, "bot")
        scopes = [ANA, with_bot, BEN, of_bot]
        for scope in scopes:
            store.replace(scope, [said(1)])
        store.clear(ANA)
        assert [store.recent(scope) is None for scope in scopes] == [True, False, False, False]
        store.replace(ANA, [said(2)])
        store.drop(ANA.partition)
        assert [store.recent(scope) is None for scope in scopes] == [True, True, False, False]
        store.replace(with_bot, [said(3)])
        store.drop(ANA.partition)
        assert [store.recent(scope) is None for scope in scopes] == [True, True, False, False]
        store.drop_all()
        assert [store.recent(scope) for scope in scopes] == [None] * 4

    def test_a_list_leaves_when_its_time_is_over(self, open_store: OpenStore) -> None:
        store = open_store(0.05)
        store.replace(ANA, [said(1)])
        wait_until(lambda: store.recent(ANA) is None)
        store.push(ANA, [said(2)])
        assert store.recent(ANA) is None

    def test_threads_lose_nothing(self, open_store: OpenStore) -> None:
        store = open_store(3600.0, most=400)
        store.replace(ANA, [said(0)])
        pushing = [
            Thread(target=lambda begin=begin: [store.push(ANA, [said(begin + n)]) for n in range(50)])
            for begin in (100, 200, 300, 400)
        ]
        for thread in pushing:
            thread.start()
        for thread in pushing:
            thread.join()
        found = store.recent(ANA) or []
        assert sorted(one.row for one in found) == sorted(
            [0, *(b + n for b in (100, 200, 300, 400) for n in range(50))]
        )
