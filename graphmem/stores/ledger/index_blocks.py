"""Vectors and words of a partition's memories as arrays, in blocks that are compared with a query as a whole.

A memory is known by its position in the partition's columns. Blocks never change; a memory that changes gets a row in
a new one. Of two successive blocks the first is at least twice as large, else they are made one: so each row is copied
a few times only, however few come at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from graphmem.plugins import Matrix

Positions = npt.NDArray[np.int32]
Scores = npt.NDArray[np.float64]
# In place of a position: the row is of a memory as it was.
_STALE = -1
# A term and its weight in a memory, as they are stored.
TERM_WEIGHT = np.dtype([("term", "<i4"), ("weight", "<f4")])


@dataclass(frozen=True, slots=True)
class VectorBlock:
    """Unit vectors (rows x dims, float32), and of which memory each is; a memory has one for each window."""

    positions: Positions
    vectors: Matrix

    @property
    def size_bytes(self) -> int:
        """The size in memory."""
        return self.positions.nbytes + self.vectors.nbytes

    def taken(self, rows: npt.NDArray[np.bool_]) -> VectorBlock:
        """Returns a block of these rows."""
        return VectorBlock(self.positions[rows], self.vectors[rows])

    def followed_by(self, other: VectorBlock) -> VectorBlock:
        """Returns both as one."""
        positions = np.concatenate([self.positions, other.positions])
        return VectorBlock(positions, np.concatenate([self.vectors, other.vectors]))


@dataclass(frozen=True, slots=True)
class TermBlock:
    """The terms of memories with their weights, ordered by term: a row for each term of each memory."""

    positions: Positions
    terms: npt.NDArray[np.int32]
    weights: npt.NDArray[np.float32]

    @classmethod
    def of(cls, positions: Sequence[int], stored: Sequence[bytes]) -> TermBlock:
        """Makes a block of the stored terms (`encode_terms`) of memories."""
        owners, entries = decode_terms(stored)
        order = np.argsort(entries["term"], kind="stable")
        of_rows = np.asarray(positions, np.int32)[owners]
        return cls(of_rows[order], entries["term"][order], entries["weight"][order])

    def ranges(self, terms: Sequence[int]) -> npt.NDArray[np.intp]:
        """Returns where the rows of each term begin and end (2 x terms).

        The terms are of the type of the block's: with others numpy would convert all of these at each call.
        """
        asked = np.array(terms, self.terms.dtype)
        return np.stack([np.searchsorted(self.terms, asked, side) for side in ("left", "right")])

    @property
    def size_bytes(self) -> int:
        """The size in memory."""
        return self.positions.nbytes + self.terms.nbytes + self.weights.nbytes

    def taken(self, rows: npt.NDArray[np.bool_]) -> TermBlock:
        """Returns a block of these rows."""
        return TermBlock(self.positions[rows], self.terms[rows], self.weights[rows])

    def followed_by(self, other: TermBlock) -> TermBlock:
        """Returns both as one."""
        terms = np.concatenate([self.terms, other.terms])
        order = np.argsort(terms, kind="stable")
        positions = np.concatenate([self.positions, other.positions])[order]
        return TermBlock(positions, terms[order], np.concatenate([self.weights, other.weights])[order])


B = TypeVar("B", VectorBlock, TermBlock)


def encode_terms(weights: Mapping[int, float]) -> bytes:
    """Returns the weights of a memory's terms, by number of the term, as stored."""
    return np.array(sorted(weights.items()), TERM_WEIGHT).tobytes()


def decode_terms(stored: Sequence[bytes]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.void]]:
    """Returns the terms of memories, one after the other, and for each the place of its memory among these."""
    sizes = [len(one) // TERM_WEIGHT.itemsize for one in stored]
    return np.repeat(np.arange(len(stored)), sizes), np.frombuffer(b"".join(stored), TERM_WEIGHT)


class Blocks(Generic[B]):
    """The blocks of one form, and which memories were read for them, with or without success. Safe to use from threads.

    States of the columns share it until a memory changes that it knows.
    """

    def __init__(self, blocks: Sequence[B] = (), read: npt.NDArray[np.bool_] | None = None) -> None:
        self._lock = Lock()
        self._blocks: tuple[B, ...] = tuple(blocks)
        self.size_bytes = sum(block.size_bytes for block in self._blocks)
        self._read = np.zeros(0, np.bool_) if read is None else read

    @property
    def blocks(self) -> tuple[B, ...]:
        """The blocks, the largest first."""
        return self._blocks

    def unread(self, wanted: npt.NDArray[np.bool_]) -> Positions:
        """Returns the positions that are wanted (a flag for each) and were not read yet."""
        read = self._read[: len(wanted)]
        missing = wanted.copy()
        missing[: len(read)] &= ~read
        return np.flatnonzero(missing).astype(np.int32)

    def add(self, read: Positions, block: B) -> None:
        """Adds what was read of these positions, unless another thread was faster."""
        with self._lock:
            known = np.zeros(max(len(self._read), int(read.max(initial=-1)) + 1), np.bool_)
            known[: len(self._read)] = self._read
            if known[read].all():
                return
            if known[read].any():
                block = block.taken(~known[block.positions])
            known[read] = True
            self._read = known
            if len(block.positions):
                blocks = list(self._blocks)
                blocks.append(block)
                while len(blocks) > 1 and len(blocks[-2].positions) < 2 * len(blocks[-1].positions):
                    last, before = blocks.pop(), blocks.pop()
                    both = before.followed_by(last)
                    blocks.append(both.taken(both.positions != _STALE))
                self._blocks = tuple(blocks)
                self.size_bytes = sum(block.size_bytes for block in blocks)

    def without(self, positions: Positions) -> Blocks[B]:
        """Returns these blocks as if some memories had not been read."""
        with self._lock:
            blocks, read = self._blocks, self._read.copy()
        read[positions[positions < len(read)]] = False
        kept: list[B] = []
        for block in blocks:
            is_stale = np.isin(block.positions, positions)
            kept.append(
                replace(block, positions=np.where(is_stale, np.int32(_STALE), block.positions))
                if is_stale.any()
                else block
            )
        return Blocks([block for block in kept if (block.positions != _STALE).any()], read)


class KeptIndex:
    """The blocks of a partition's vectors, by model and form, and of its terms. States of its columns share them.

    `rows` has the memory of each position, as the state said that made it.
    """

    def __init__(self, rows: Sequence[int] = ()) -> None:
        self._rows = list(rows)
        self._lock = Lock()
        self._vectors: dict[tuple[str, str], Blocks[VectorBlock]] = {}
        self.terms: Blocks[TermBlock] = Blocks()

    def vectors(self, model: str, form: str) -> Blocks[VectorBlock]:
        """Returns the blocks of a model's vectors in a form."""
        return self._vectors.setdefault((model, form), Blocks())

    @property
    def size_bytes(self) -> int:
        """The size in memory."""
        return self.terms.size_bytes + sum(blocks.size_bytes for blocks in list(self._vectors.values()))

    def followed_by(self, count: int, rows: Sequence[int]) -> KeptIndex:
        """Returns the index for a state that adds memories behind the first `count`: this one, if it may be shared.

        Two threads may make a next state each, with other memories in these positions.
        """
        added = list(rows)
        with self._lock:
            known = self._rows[count:]
            if known[: len(added)] == added[: len(known)]:
                self._rows += added[len(known) :]
                return self
            own = self.without(np.arange(count, len(self._rows), dtype=np.int32))
        own._rows[count:] = added  # noqa: SLF001  (of the same class)
        return own

    def without(self, positions: Positions) -> KeptIndex:
        """Returns a copy as if these memories had not been read."""
        copy = KeptIndex(self._rows)
        copy.terms = self.terms.without(positions)
        copy._vectors = {name: blocks.without(positions) for name, blocks in list(self._vectors.items())}
        return copy


def compare(vectors: Matrix, vector: Matrix) -> Scores:
    """Returns the cosine of each row (unit vectors) with a unit vector.

    Row by row, unlike a product of BLAS: equal rows get equal cosines to the last bit, wherever they stand. It is no
    slower, as both wait for the memory.
    """
    return np.asarray(np.einsum("ij,j->i", vectors, vector), np.float64)


def cosines(blocks: Sequence[VectorBlock], vector: Matrix, asked: npt.NDArray[np.bool_]) -> Scores:
    """Returns the cosine of each memory's best window with a unit vector, for the memories that are flagged.

    -inf for the others, and for a memory without a vector of this length.
    """
    scores = np.full(len(asked) + 1, -np.inf)  # the last takes what is of no position
    for block in blocks:
        if block.vectors.shape[1] == len(vector):
            slots = _slots(block.positions, len(asked))
            rows = np.append(asked, np.False_)[slots]
            vectors = block.vectors if rows.all() else block.vectors[rows]
            np.maximum.at(scores, slots[rows], compare(vectors, vector))
    return scores[:-1]


def term_scores(blocks: Sequence[TermBlock], weights: Mapping[int, float], count: int) -> Scores:
    """Returns the dot product of `weights`, by term, with the weights of each of the first `count` memories.

    Summed in the order of terms, so that equal texts get equal scores to the last bit.
    """
    scores = np.zeros(count + 1)
    terms = sorted(weights)
    for block in blocks:
        for term, begin, end in zip(terms, *block.ranges(terms).tolist(), strict=True):
            if begin < end:  # a term is once in a memory
                own = weights[term] * block.weights[begin:end].astype(np.float64)
                scores[_slots(block.positions[begin:end], count)] += own
    return scores[:count]


def document_frequencies(blocks: Sequence[TermBlock], terms: Sequence[int], count: int) -> dict[int, int]:
    """Returns how many of the first `count` memories have each term."""
    found = np.zeros(len(terms), np.int64)
    for block in blocks:
        begins, ends = block.ranges(terms)
        numbers = np.repeat(np.arange(len(terms)), ends - begins)
        before = np.cumsum(ends - begins) - (ends - begins)
        positions = block.positions[np.arange(len(numbers)) + (begins - before)[numbers]]
        found += np.bincount(numbers[(positions >= 0) & (positions < count)], minlength=len(terms))
    return dict(zip(terms, found.tolist(), strict=True))


def vectors_of(blocks: Sequence[VectorBlock], asked: npt.NDArray[np.bool_], dims: int) -> tuple[Positions, Matrix]:
    """Returns the vectors of this length of the memories that are asked for (a flag for each position), and of which
    memory each is. The windows of a memory are in order.
    """
    flags = np.append(asked, np.False_)  # the last is of no position
    nothing = VectorBlock(np.empty(0, np.int32), np.empty((0, dims), np.float32))
    of_length = [block for block in blocks if block.vectors.shape[1] == dims]
    found = [nothing, *(block.taken(flags[_slots(block.positions, len(asked))]) for block in of_length)]
    return np.concatenate([one.positions for one in found]), np.concatenate([one.vectors for one in found])


def are_in(blocks: Sequence[VectorBlock], count: int) -> npt.NDArray[np.bool_]:
    """Returns whether there is a row of each memory, for the first `count` positions."""
    are_there = np.zeros(count + 1, np.bool_)
    for block in blocks:
        are_there[_slots(block.positions, count)] = True
    return are_there[:count]


def _slots(positions: Positions, count: int) -> Positions:
    """Returns positions as indexes of `count` + 1 scores: the last for stale rows and for memories added since."""
    return np.where((positions >= count) | (positions < 0), np.int32(count), positions)


def best(scores: Scores, least: float, limit: int) -> npt.NDArray[np.intp]:
    """Returns the places of scores above `least` that are among the `limit` best, in no order; all that are equal."""
    places = np.flatnonzero(scores > least)
    if len(places) > limit:
        bound = np.partition(scores[places], -limit)[-limit]
        places = places[scores[places] >= bound]
    return places
