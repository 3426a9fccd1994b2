"""Conformance tests of `VectorIndex`: contents, order, scores and views; the order of an exact search."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import numpy as np
import pytest

from graphmem.errors import StoreUnavailable
from graphmem.model import Kind, MemoryRecord, Scope, View
from graphmem.plugins import Point, VectorIndex
from graphmem.testing.numpy_index import NumpyIndex

DIMS, MULTILINGUAL_DIMS = 8, 6
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
ALICE = Scope("alice")
HOUR = timedelta(hours=1)


def uid(number: int) -> str:
    return str(UUID(int=number + 1))


def unit_vector(*parts: float) -> Any:
    """A unit vector along the given leading parts."""
    vector = np.zeros(DIMS, np.float32)
    vector[: len(parts)] = parts
    return vector / np.linalg.norm(vector)


def at_cosine(cosine: float) -> Any:
    """A vector with this cosine to `unit_vector(1)`."""
    return unit_vector(cosine, (1 - cosine**2) ** 0.5)


def record(number: int, scope: Scope = ALICE, **more: Any) -> MemoryRecord:
    fields: dict[str, Any] = {
        "kind": Kind.EPISODE,
        "text": f"memory {number}",
        "at": NOON,
        "valid_from": NOON,
        "created_at": NOON,
        "updated_at": NOON,
        "session": "s",
        "seq": number + 1,
    }
    return MemoryRecord(id=uid(number), partition=scope.partition, scope=scope, **{**fields, **more})


def point(
    number: int, *vectors: Any, weights: dict[int, float] | None = None, scope: Scope = ALICE, **more: Any
) -> Point:
    rows = np.stack(vectors or (unit_vector(1),)).astype(np.float32)
    return Point(record(number, scope, **more), rows, {7: 1.0} if weights is None else weights)


def in_both_spaces(number: int, direction: int, **more: Any) -> Point:
    """A point with a vector along a direction of the multilingual space as well."""
    return replace(point(number, **more), multilingual=multilingual_vector(direction))


def in_multilingual_space(number: int, direction: int, **more: Any) -> Point:
    """A point of a text that the first model does not read."""
    return replace(in_both_spaces(number, direction, **more), vectors=np.empty((0, DIMS), np.float32))


def multilingual_vector(direction: int) -> Any:
    return np.eye(MULTILINGUAL_DIMS, dtype=np.float32)[direction]


def search_multilingual(index: VectorIndex, direction: int = 0, **more: Any) -> list[tuple[str, float]]:
    hits = index.multilingual(view(), multilingual_vector(direction), 10, **more)
    return [(memory_id, round(cosine, 3)) for memory_id, cosine in hits]


def view(scope: Scope = ALICE, *, anywhere: bool = False, **more: Any) -> View:
    return View(scope, **{"now": NOON + HOUR, "partition": None if anywhere else scope.partition, **more})


QUESTION = unit_vector(1)


def search_dense(index: VectorIndex, search_view: View | None = None, limit: int = 10) -> list[str]:
    return [memory_id for memory_id, _ in index.dense(search_view or view(), QUESTION, limit)]


def search_sparse(index: VectorIndex, search_view: View | None = None, limit: int = 10) -> list[str]:
    return [memory_id for memory_id, _ in index.sparse(search_view or view(), {7: 1.0}, limit)]


class VectorIndexContract:
    """One test for each promise of the protocol. A backend subclasses it and gives a fixture `index`, an empty index.

    Its vectors have `DIMS` numbers, in the multilingual space `MULTILINGUAL_DIMS`.
    """

    @pytest.fixture
    def index(self) -> Any:
        """Yields an empty index, and closes it."""
        raise NotImplementedError

    # --- contents ---------------------------------------------------------------------------------------------

    def test_a_new_index_is_empty(self, index: VectorIndex) -> None:
        assert (index.count(), list(index.list_held()), search_dense(index), search_sparse(index)) == (0, [], [], [])

    def test_upserted_memories_are_found_by_both_arms(self, index: VectorIndex) -> None:
        index.upsert([point(1), point(2, unit_vector(0, 1), weights={8: 1.0})])
        assert index.count() == 2
        assert search_dense(index) == [uid(1), uid(2)]
        assert search_sparse(index) == [uid(1)]

    def test_what_is_written_is_read_before_and_after_a_flush(self, index: VectorIndex) -> None:
        index.upsert([point(1), point(2)])
        index.delete([uid(2)])
        held = [list(index.list_held())]
        for _ in range(2):
            index.flush()
            held.append(list(index.list_held()))
        assert held == [[(uid(1), 2, 1)]] * 3
        assert search_dense(index) == [uid(1)]

    def test_a_memory_is_found_in_each_space_in_which_it_has_a_vector(self, index: VectorIndex) -> None:
        index.upsert([point(1), in_both_spaces(2, 0), in_multilingual_space(3, 1), in_multilingual_space(4, 0)])
        assert index.count() == 4
        assert sorted(index.list_held()) == [(uid(n), n + 1, 1) for n in (1, 2, 3, 4)]
        assert search_dense(index) == [uid(1), uid(2)]
        assert search_sparse(index) == [uid(1), uid(2), uid(3), uid(4)]
        assert search_multilingual(index) == [(uid(2), 1.0), (uid(4), 1.0), (uid(3), 0.0)]
        assert search_multilingual(index, without_dense=True) == [(uid(4), 1.0), (uid(3), 0.0)]

    def test_a_point_written_again_leaves_the_space_that_it_no_longer_has(self, index: VectorIndex) -> None:
        index.upsert([in_both_spaces(1, 0), in_multilingual_space(2, 0)])
        index.upsert([in_multilingual_space(1, 1, seq=9), replace(point(2), record=record(2, seq=9))])
        assert search_dense(index) == [uid(2)]
        assert search_multilingual(index, 1) == search_multilingual(index, 1, without_dense=True) == [(uid(1), 1.0)]

    def test_long_texts_have_one_vector_in_the_multilingual_space(self, index: VectorIndex) -> None:
        long = replace(point(1, unit_vector(1), unit_vector(0, 1)), multilingual=multilingual_vector(0))
        index.upsert([long])
        assert index.count() == 2
        assert search_multilingual(index) == [(uid(1), 1.0)]
        assert search_multilingual(index, without_dense=True) == []
        assert index.delete([uid(1)]) == 2
        assert (search_multilingual(index), search_dense(index)) == ([], [])

    def test_upserting_nothing_changes_nothing(self, index: VectorIndex) -> None:
        index.upsert([])
        assert index.delete([]) == 0
        assert index.count() == 0

    def test_upserting_twice_equals_upserting_once(self, index: VectorIndex) -> None:
        one = point(1, unit_vector(1), unit_vector(0, 1))
        index.upsert([one])
        index.upsert([one])
        assert list(index.list_held()) == [(uid(1), 2, 2)]
        assert index.count() == 2

    def test_a_new_version_replaces_all_of_the_old_one(self, index: VectorIndex) -> None:
        index.upsert([point(1, unit_vector(1), weights={7: 1.0})])
        index.upsert([point(1, unit_vector(0, 1), weights={8: 1.0}, seq=9)])
        assert list(index.list_held()) == [(uid(1), 9, 1)]
        assert index.dense(view(), QUESTION, 5)[0][1] == pytest.approx(0, abs=1e-6)
        assert search_sparse(index) == []
        assert [memory_id for memory_id, _ in index.sparse(view(), {8: 1.0}, 5)] == [uid(1)]

    def test_a_new_version_may_move_to_another_scope(self, index: VectorIndex) -> None:
        index.upsert([point(1)])
        index.upsert([point(1, scope=Scope("bob"))])
        assert search_dense(index) == []
        assert search_dense(index, view(Scope("bob"))) == [uid(1)]
        assert index.count() == 1

    def test_stale_windows_are_removed_when_a_new_version_has_fewer(self, index: VectorIndex) -> None:
        index.upsert([point(1, unit_vector(0, 1), unit_vector(0, 0, 1), unit_vector(1))])
        index.upsert([point(1, unit_vector(0, 1), seq=5)])
        assert index.count() == 1
        assert list(index.list_held()) == [(uid(1), 5, 1)]
        assert index.dense(view(), QUESTION, 5)[0][1] == pytest.approx(0, abs=1e-6)

    def test_delete_returns_the_number_of_points(self, index: VectorIndex) -> None:
        index.upsert([point(1, unit_vector(1), unit_vector(0, 1)), point(2)])
        assert index.delete([uid(1), uid(3)]) == 2
        assert index.delete([uid(1)]) == 0
        assert search_dense(index) == search_sparse(index) == [uid(2)]

    def test_a_deleted_memory_can_be_upserted_again(self, index: VectorIndex) -> None:
        index.upsert([point(1)])
        index.delete([uid(1)])
        index.upsert([point(1, seq=7)])
        assert list(index.list_held()) == [(uid(1), 7, 1)]

    def test_list_held_yields_versions_and_windows_by_partition(self, index: VectorIndex) -> None:
        index.upsert([point(1, unit_vector(1), unit_vector(0, 1)), point(2, scope=Scope("bob"), seq=44)])
        assert sorted(index.list_held()) == [(uid(1), 2, 2), (uid(2), 44, 1)]
        assert list(index.list_held(["user:bob"])) == [(uid(2), 44, 1)]
        assert list(index.list_held(["user:nobody"])) == []
        assert list(index.list_held([])) == []

    def test_large_sequence_numbers_are_returned_exactly(self, index: VectorIndex) -> None:
        index.upsert([point(1, seq=2**53 + 1)])
        assert list(index.list_held()) == [(uid(1), 2**53 + 1, 1)]

    def test_wiping_removes_everything_and_leaves_it_usable(self, index: VectorIndex) -> None:
        index.upsert([point(1), point(2, scope=Scope("bob"))])
        index.wipe()
        assert (index.count(), list(index.list_held()), search_dense(index)) == (0, [], [])
        index.upsert([point(3)])
        assert search_dense(index) == search_sparse(index) == [uid(3)]

    def test_a_closed_index_is_unavailable(self, index: VectorIndex) -> None:
        index.close()
        index.close()
        for act in (
            lambda: index.upsert([point(1)]),
            lambda: index.delete([uid(1)]),
            lambda: search_dense(index),
            lambda: search_multilingual(index),
            lambda: search_sparse(index),
            index.count,
            lambda: list(index.list_held()),
            index.wipe,
        ):
            with pytest.raises(StoreUnavailable):
                act()

    # --- order and scores -------------------------------------------------------------------------------------

    def test_dense_gives_cosines_best_first(self, index: VectorIndex) -> None:
        wanted = {1: 0.2, 2: 0.9, 3: -0.5, 4: 0.6}
        index.upsert([point(n, at_cosine(c)) for n, c in wanted.items()])
        hits = index.dense(view(), QUESTION, 10)
        assert [memory_id for memory_id, _ in hits] == [uid(2), uid(4), uid(1), uid(3)]
        assert [score for _, score in hits] == pytest.approx([0.9, 0.6, 0.2, -0.5], abs=1e-5)

    def test_the_best_window_counts_and_each_memory_comes_once(self, index: VectorIndex) -> None:
        index.upsert([point(1, at_cosine(0.1), at_cosine(0.8), at_cosine(0.3)), point(2, at_cosine(0.7))])
        hits = index.dense(view(), QUESTION, 10)
        assert [memory_id for memory_id, _ in hits] == [uid(1), uid(2)]
        assert hits[0][1] == pytest.approx(0.8, abs=1e-5)

    def test_a_memory_of_very_many_windows_does_not_crowd_out_the_others(self, index: VectorIndex) -> None:
        index.upsert([point(1, *[at_cosine(0.9)] * 120), point(2, at_cosine(0.8)), point(3, at_cosine(0.7))])
        assert search_dense(index, limit=3) == [uid(1), uid(2), uid(3)]

    def test_sparse_gives_sums_of_products_best_first(self, index: VectorIndex) -> None:
        index.upsert([
            point(1, weights={1: 1.0, 2: 2.0}),
            point(2, weights={1: 3.0}),
            point(3, weights={2: 0.5, 9: 40.0}),
            point(4, weights={9: 1.0}),
        ])  # fmt: skip
        hits = index.sparse(view(), {1: 0.5, 2: 2.0}, 10)
        assert [memory_id for memory_id, _ in hits] == [uid(1), uid(2), uid(3)]
        assert [score for _, score in hits] == pytest.approx([4.5, 1.5, 1.0], rel=1e-5)

    def test_words_of_a_memory_with_several_windows_count_once(self, index: VectorIndex) -> None:
        index.upsert([point(1, unit_vector(1), unit_vector(0, 1), weights={7: 2.0})])
        ((found, score),) = index.sparse(view(), {7: 1.5}, 10)
        assert found == uid(1)
        assert score == pytest.approx(3.0)

    def test_a_query_without_matching_words_finds_nothing(self, index: VectorIndex) -> None:
        index.upsert([point(1), point(2, weights={})])
        assert index.sparse(view(), {}, 10) == []
        assert index.sparse(view(), {12345: 1.0}, 10) == []

    def test_a_memory_without_words_is_found_by_its_vector(self, index: VectorIndex) -> None:
        index.upsert([point(1, weights={})])
        assert search_dense(index) == [uid(1)]

    def test_term_numbers_may_be_as_large_as_31_bits(self, index: VectorIndex) -> None:
        index.upsert([point(1, weights={2**31 - 1: 1.0, 0: 1.0})])
        ((found, score),) = index.sparse(view(), {2**31 - 1: 2.0, 0: 1.0}, 5)
        assert found == uid(1)
        assert score == pytest.approx(3.0)

    def test_limits_cut_the_worst(self, index: VectorIndex) -> None:
        index.upsert([point(n, at_cosine(n / 20), weights={7: float(n)}) for n in range(1, 11)])
        assert search_dense(index, limit=3) == search_sparse(index, limit=3) == [uid(10), uid(9), uid(8)]

    # --- views ------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("arm", [search_dense, search_sparse])
    def test_a_view_is_applied_before_the_limit(self, index: VectorIndex, arm: Any) -> None:
        hidden = [point(n, at_cosine(0.99), weights={7: 9.0}, scope=Scope("bob")) for n in range(1, 200)]
        index.upsert([*hidden, point(500, at_cosine(0.1), weights={7: 0.1})])
        assert arm(index, limit=2) == [uid(500)]

    @pytest.mark.parametrize("arm", [search_dense, search_sparse])
    def test_a_scope_sees_the_memories_that_have_its_ids(self, index: VectorIndex, arm: Any) -> None:
        scopes = [
            Scope("alice"),
            Scope("alice", "a"),
            Scope("alice", "a", "r"),
            Scope("alice", None, "r"),
            Scope(None, "a"),
            Scope("a"),
        ]
        index.upsert([point(n, at_cosine(0.9 - n / 10), weights={7: 9.0 - n}, scope=s) for n, s in enumerate(scopes)])
        assert arm(index, view(Scope("alice"))) == [uid(0), uid(1), uid(2), uid(3)]
        assert arm(index, view(Scope("alice", "a"))) == [uid(1), uid(2)]
        assert arm(index, view(Scope("alice", "a", "r"))) == [uid(2)]
        assert arm(index, view(Scope("alice", None, "r"))) == [uid(2), uid(3)]
        assert arm(index, view(Scope(None, "a"), anywhere=True)) == [uid(1), uid(2), uid(4)]
        assert arm(index, view(Scope(None, "a"))) == [uid(4)]
        assert arm(index, view(Scope(None, None, "r"), anywhere=True)) == [uid(2), uid(3)]

    @pytest.mark.parametrize("arm", [search_dense, search_sparse])
    def test_a_run_sees_memories_reaffirmed_in_it(self, index: VectorIndex, arm: Any) -> None:
        runs = [(None, ()), ("r", ("s", "t")), (None, ("s",)), ("s", ()), ("t", ("r",))]
        index.upsert(
            [
                point(
                    n, at_cosine(0.9 - n / 10), weights={7: 9.0 - n}, scope=Scope("alice", None, own), further_runs=more
                )
                for n, (own, more) in enumerate(runs)
            ]
        )
        index.upsert([point(9, scope=Scope("bob", None, "x"), further_runs=("s",))])
        assert arm(index) == [uid(n) for n in range(5)]
        assert arm(index, view(Scope("alice", None, "r"))) == [uid(1), uid(4)]
        assert arm(index, view(Scope("alice", None, "s"))) == [uid(1), uid(2), uid(3)]
        assert arm(index, view(Scope("alice", None, "t"))) == [uid(1), uid(4)]
        assert arm(index, view(Scope("alice", None, "x"))) == []
        assert set(arm(index, view(Scope(None, None, "s"), anywhere=True))) == {uid(1), uid(2), uid(3), uid(9)}
        index.upsert([point(1, scope=Scope("alice", None, "r"), seq=77)])
        assert arm(index, view(Scope("alice", None, "t"))) == [uid(4)]

    @pytest.mark.parametrize("arm", [search_dense, search_sparse])
    def test_kinds_are_filtered(self, index: VectorIndex, arm: Any) -> None:
        index.upsert([point(n, kind=kind) for n, kind in enumerate(Kind)])
        for number, kind in enumerate(Kind):
            assert arm(index, view(kinds=frozenset({kind}))) == [uid(number)]
        assert set(arm(index, view(kinds=frozenset({Kind.FACT, Kind.EPISODE})))) == {uid(0), uid(1)}

    @pytest.mark.parametrize("arm", [search_dense, search_sparse])
    def test_retired_memories_are_hidden_unless_as_of_shows_them(self, index: VectorIndex, arm: Any) -> None:
        tick = timedelta(microseconds=1)
        index.upsert([point(1, valid_from=NOON, valid_to=NOON + HOUR)])
        assert arm(index, view(now=NOON + HOUR)) == []
        assert arm(index, view(now=NOON + HOUR - tick)) == [uid(1)]
        assert arm(index, view(now=NOON + 9 * HOUR, as_of=NOON)) == [uid(1)]
        assert arm(index, view(now=NOON + 9 * HOUR, as_of=NOON + HOUR - tick)) == [uid(1)]
        assert arm(index, view(now=NOON + 9 * HOUR, as_of=NOON + HOUR)) == []
        assert arm(index, view(now=NOON + 9 * HOUR, as_of=NOON - tick)) == []

    @pytest.mark.parametrize("arm", [search_dense, search_sparse])
    def test_retired_memories_are_shown_on_request(self, index: VectorIndex, arm: Any) -> None:
        index.upsert([point(1, valid_from=NOON, valid_to=NOON + HOUR), point(2, valid_from=NOON)])
        shown = view(now=NOON + 9 * HOUR, show_retired=True)
        assert set(arm(index, shown)) == {uid(1), uid(2)}
        assert set(arm(index, replace(shown, as_of=NOON + 2 * HOUR))) == {uid(1), uid(2)}
        assert arm(index, replace(shown, as_of=NOON - HOUR)) == []
        index.upsert([point(1, valid_from=NOON, valid_to=NOON + HOUR, expires_at=NOON + HOUR, seq=9)])
        assert arm(index, shown) == [uid(2)]
        assert set(arm(index, replace(shown, show_expired=True))) == {uid(1), uid(2)}

    @pytest.mark.parametrize("arm", [search_dense, search_sparse])
    def test_a_memory_valid_from_later_is_visible_now_but_not_as_of_before(self, index: VectorIndex, arm: Any) -> None:
        index.upsert([point(1, valid_from=NOON + 5 * HOUR)])
        assert arm(index, view(now=NOON)) == [uid(1)]
        assert arm(index, view(as_of=NOON)) == []

    @pytest.mark.parametrize("arm", [search_dense, search_sparse])
    def test_expired_memories_are_hidden_unless_requested(self, index: VectorIndex, arm: Any) -> None:
        index.upsert([point(1, valid_from=NOON - 2 * HOUR, expires_at=NOON)])
        assert arm(index, view(now=NOON)) == []
        assert arm(index, view(now=NOON - HOUR)) == [uid(1)]
        assert arm(index, view(now=NOON, show_expired=True)) == [uid(1)]
        assert arm(index, view(now=NOON + HOUR, as_of=NOON - HOUR)) == [uid(1)]

    @pytest.mark.parametrize("arm", [search_dense, search_sparse])
    def test_forgotten_memories_are_hidden_from_then_on_unless_requested(self, index: VectorIndex, arm: Any) -> None:
        """`as_of` a moment before, during and after a cycle."""
        tick = timedelta(microseconds=1)
        index.upsert([point(1, valid_from=NOON - 2 * HOUR, forgotten_at=NOON), point(2, valid_from=NOON - HOUR)])
        assert arm(index, view(now=NOON + HOUR)) == [uid(2)]
        assert set(arm(index, view(now=NOON + HOUR, show_forgotten=True))) == {uid(1), uid(2)}
        assert set(arm(index, view(now=NOON + HOUR, as_of=NOON - tick))) == {uid(1), uid(2)}
        assert arm(index, view(now=NOON + HOUR, as_of=NOON)) == [uid(2)]
        assert arm(index, view(now=NOON + HOUR, as_of=NOON + HOUR)) == [uid(2)]
        index.upsert([point(1, valid_from=NOON - 2 * HOUR, seq=9)])  # it came back
        assert set(arm(index, view(now=NOON + HOUR))) == {uid(1), uid(2)}

    @pytest.mark.parametrize("arm", [search_dense, search_sparse])
    def test_dates_far_away_do_no_harm(self, index: VectorIndex, arm: Any) -> None:
        first, last = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, tzinfo=UTC)
        index.upsert([point(1, valid_from=first, valid_to=last, expires_at=last)])
        assert arm(index) == [uid(1)]
        assert arm(index, view(as_of=first)) == [uid(1)]

    def test_user_ids_are_compared_exactly(self, index: VectorIndex) -> None:
        names = ["alice", "Alice", "alice ", "ali", "älice", "a:b", "a/b", "alice\u200b"]
        index.upsert([point(n, scope=Scope(name)) for n, name in enumerate(names)])
        for number, name in enumerate(names):
            assert search_dense(index, view(Scope(name))) == [uid(number)]


def random_points(seed: int, count: int = 150) -> list[Point]:
    """Points of several tenants, kinds, dates, windows and words; no two of them rank the same."""
    chance, numbers = random.Random(seed), np.random.default_rng(seed)
    points = []
    for n in range(count):
        rows = numbers.normal(size=(chance.choice([1, 1, 1, 2, 4]), DIMS)).astype(np.float32)
        start = NOON + HOUR * chance.randint(-50, 50)
        memory = record(
            n,
            Scope(chance.choice(["alice", "bob"]), chance.choice([None, "a", "b"]), chance.choice([None, "r"])),
            kind=chance.choice(list(Kind)),
            valid_from=start,
            valid_to=chance.choice([None, None, start + HOUR * chance.randint(1, 60)]),
            expires_at=chance.choice([None, None, start + HOUR * chance.randint(1, 60)]),
            further_runs=chance.choice([(), (), ("q",), ("q", "r")]),
        )
        words = {term: chance.uniform(0.1, 3) for term in chance.sample(range(30), chance.randint(0, 8))}
        points.append(Point(memory, rows / np.linalg.norm(rows, axis=1, keepdims=True), words))
    return points


def random_views(seed: int, count: int = 25) -> list[View]:
    chance = random.Random(seed)
    views = []
    for _ in range(count):
        scope = chance.choice([Scope("alice"), Scope("bob", "a"), Scope(None, "b"), Scope(None, None, "r")])
        views.append(
            View(
                scope,
                NOON + HOUR * chance.randint(-60, 60),
                partition=scope.partition if scope.user_id else None,
                kinds=frozenset(chance.sample(list(Kind), chance.randint(1, 3))),
                as_of=chance.choice([None, NOON + HOUR * chance.randint(-60, 60)]),
                show_expired=chance.random() < 0.3,
                show_retired=chance.random() < 0.3,
            )
        )
    return views


def with_seq(one: Point, seq: int) -> Point:
    return replace(one, record=replace(one.record, seq=seq))


def check_ranks_like_the_exact_index(index: VectorIndex, seed: int) -> None:
    """An empty index finds random points in the order, and with the scores, of an exact search."""
    chance, numbers = random.Random(seed), np.random.default_rng(seed + 100)
    exact, points = NumpyIndex(), random_points(seed)
    for one in (exact, index):
        one.upsert(points)
        one.upsert([with_seq(point, 1000 + n) for n, point in enumerate(points[::7])])
    deleted_ids = [point.record.id for point in chance.sample(points, 30)]
    assert exact.delete(deleted_ids) == index.delete(deleted_ids)
    assert sorted(exact.list_held()) == sorted(index.list_held())
    assert exact.count() == index.count()
    for search_view in random_views(seed):
        vector = numbers.normal(size=DIMS).astype(np.float32)
        vector /= np.linalg.norm(vector)
        weights = {term: chance.uniform(0.1, 2) for term in chance.sample(range(30), 4)}
        for limit in (3, 100):
            _check_same(exact.dense(search_view, vector, limit), index.dense(search_view, vector, limit))
            _check_same(exact.sparse(search_view, weights, limit), index.sparse(search_view, weights, limit))


def _check_same(expected: Sequence[tuple[str, float]], scored: Sequence[tuple[str, float]]) -> None:
    assert [uid for uid, _ in expected] == [uid for uid, _ in scored]
    assert [score for _, score in expected] == pytest.approx([score for _, score in scored], abs=1e-5)
