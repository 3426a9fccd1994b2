"""Blocks of vectors and terms hold what was added to them, whatever was taken out, merged or added at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from graphmem.stores.ledger.index_blocks import (
    Blocks,
    KeptIndex,
    TermBlock,
    VectorBlock,
    are_in,
    best,
    cosines,
    document_frequencies,
    encode_terms,
    term_scores,
)

AXES = np.eye(4, dtype=np.float32)


def positions(*numbers: int):
    return np.array(numbers, np.int32)


def vectors(*pairs: tuple[int, int]) -> VectorBlock:
    """A block of (position, axis)."""
    return VectorBlock(positions(*(position for position, _ in pairs)), AXES[[axis for _, axis in pairs]])


@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.lists(st.integers(0, 30), min_size=1, unique=True)),
            st.tuples(st.just("take out"), st.lists(st.integers(0, 40), min_size=1, unique=True)),
        )
    )
)
def test_blocks_hold_what_was_added_last(steps):
    blocks, expected = Blocks[VectorBlock](), dict[int, int]()
    for turn, (step, chosen) in enumerate(steps):
        if step == "add":
            new = [one for one in chosen if one not in expected]
            blocks.add(positions(*chosen), vectors(*((one, turn % 4) for one in chosen)))
            expected |= dict.fromkeys(new, turn % 4)
        else:
            blocks = blocks.without(positions(*chosen))
            expected = {one: axis for one, axis in expected.items() if one not in chosen}
        for axis in range(4):
            scores = cosines(blocks.blocks, AXES[axis], np.ones(31, np.bool_))
            assert {one: score for one, score in enumerate(scores.tolist()) if score > -np.inf} == {
                one: float(own == axis) for one, own in expected.items()
            }
        assert np.flatnonzero(are_in(blocks.blocks, 31)).tolist() == sorted(expected)
        assert blocks.unread(np.ones(31, np.bool_)).tolist() == sorted(set(range(31)) - expected.keys())
        sizes = [len(block.positions) for block in blocks.blocks]
        assert len(sizes) < 12  # merged


def test_a_memory_without_a_vector_is_not_asked_for_again():
    blocks = Blocks[VectorBlock]()
    blocks.add(positions(0, 1, 2), vectors((1, 0)))
    assert blocks.unread(np.ones(4, np.bool_)).tolist() == [3]
    assert cosines(blocks.blocks, AXES[0], np.ones(3, np.bool_)).tolist() == [-np.inf, 1.0, -np.inf]


def test_the_best_window_of_a_memory_counts_and_vectors_of_another_length_do_not():
    other = VectorBlock(positions(2), np.ones((1, 3), np.float32))
    scores = cosines([vectors((0, 1), (0, 0), (1, 1)), other], AXES[0], np.ones(3, np.bool_))
    assert scores.tolist() == [1.0, 0.0, -np.inf]


def test_rows_of_memories_that_a_state_does_not_know_are_left_out():
    assert cosines([vectors((0, 0), (5, 0))], AXES[0], np.ones(2, np.bool_)).tolist() == [1.0, -np.inf]
    block = TermBlock.of([0, 5], [encode_terms({7: 2.0}), encode_terms({7: 3.0})])
    assert term_scores([block], {7: 1.0}, 2).tolist() == [2.0, 0.0]


def test_terms_score_by_the_product_of_both_weights():
    blocks = Blocks[TermBlock]()
    blocks.add(positions(0, 1), TermBlock.of([0, 1], [encode_terms({7: 2.0, 9: 0.5}), encode_terms({2**31 - 1: 1.0})]))
    blocks.add(positions(2), TermBlock.of([2], [encode_terms({7: 1.0})]))
    assert term_scores(blocks.blocks, {7: 1.5, 9: 2.0}, 3).tolist() == [4.0, 0.0, 1.5]
    assert term_scores(blocks.blocks, {2**31 - 1: 2.0}, 3).tolist() == [0.0, 2.0, 0.0]
    assert term_scores(blocks.without(positions(0)).blocks, {7: 1.0}, 3).tolist() == [0.0, 0.0, 1.0]
    assert term_scores([], {7: 1.0}, 2).tolist() == [0.0, 0.0]


def test_document_frequencies_count_the_memories_that_a_state_knows():
    blocks = Blocks[TermBlock]()
    stored = [encode_terms({7: 2.0, 9: 0.5}), encode_terms({7: 1.0}), encode_terms({2**31 - 1: 1.0})]
    blocks.add(positions(0, 1, 2), TermBlock.of([0, 1, 2], stored))
    asked = [7, 8, 9, 2**31 - 1]
    assert document_frequencies(blocks.blocks, asked, 3) == {7: 2, 8: 0, 9: 1, 2**31 - 1: 1}
    assert document_frequencies(blocks.blocks, asked, 1) == {7: 1, 8: 0, 9: 1, 2**31 - 1: 0}
    assert document_frequencies(blocks.without(positions(0)).blocks, asked, 3) == {7: 1, 8: 0, 9: 0, 2**31 - 1: 1}
    assert document_frequencies([], [7], 3) == {7: 0}


def test_all_equal_scores_at_the_limit_are_among_the_best():
    scores = np.array([0.5, 0.9, 0.5, -np.inf, 0.1])
    assert best(scores, -np.inf, 2).tolist() == [0, 1, 2]
    assert best(scores, 0.5, 2).tolist() == [1]
    assert best(scores, -np.inf, 9).tolist() == [0, 1, 2, 4]


def test_threads_that_read_the_same_memories_add_them_once():
    blocks = Blocks[VectorBlock]()
    with ThreadPoolExecutor(4) as pool:
        list(
            pool.map(
                lambda first: blocks.add(
                    positions(*range(first, 40)), vectors(*((one, 0) for one in range(first, 40)))
                ),
                range(30),
            )
        )
    assert sum(len(block.positions) for block in blocks.blocks) == 40


def test_states_share_an_index_only_if_they_know_the_same_memories():
    index = KeptIndex([11, 12])
    index.vectors("m", "vector").add(positions(0, 1), vectors((0, 0), (1, 1)))
    one = index.followed_by(2, [13, 14])
    assert one is index.followed_by(2, [13]) is index
    index.vectors("m", "vector").add(positions(2), vectors((2, 2)))
    other = index.followed_by(2, [14])  # the thread of this state knows no 13
    assert other is not index
    assert other.vectors("m", "vector").unread(np.ones(3, np.bool_)).tolist() == [2]
    assert index.vectors("m", "vector").unread(np.ones(3, np.bool_)).tolist() == []
    assert other.size_bytes > 0
