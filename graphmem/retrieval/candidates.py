"""The memories looked at so far, read from the ledger, which has the last word. Nothing is read twice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from sqlalchemy import Connection

from graphmem.boundary.filters import fields_of
from graphmem.model import CandidateRow, EmbeddingSpec
from graphmem.models.protocols import Matrix
from graphmem.retrieval.character_matching import CharacterMatches
from graphmem.retrieval.features import Evidence
from graphmem.retrieval.types import ScoredIds, SearchQuery
from graphmem.stores.ledger import Ledger, candidate_rows, memories
from graphmem.stores.ledger.decoding import decoding


class Candidates:
    """Fills the evidence of one search, step by step."""

    def __init__(self, question: SearchQuery, ledger: Ledger, spec: EmbeddingSpec, vector: Matrix | None) -> None:
        self._question = question
        self._ledger = ledger
        self._spec = spec
        self._vector = vector
        self._by_row: dict[int, CandidateRow] = {}
        self._refused: set[str] = set()
        self._matched: set[str] = set()
        with ledger.read() as connection:
            partition = question.view.partition
            self._partition = None if partition is None else memories.partition_row(connection, partition)
        self.evidence = Evidence()

    def filter_hits(self, ask: Callable[[int], ScoredIds], first: ScoredIds, limit: int) -> dict[str, float]:
        """An arm's finds as far as they may be shown; asks for more while the filter refuses too many."""
        found, asked = first, limit
        while True:
            shown = set(self.visible(uid for uid, _ in found))
            if len(shown) >= limit or len(found) < asked:
                return dict([(uid, score) for uid, score in found if uid in shown][:limit])
            asked *= 4
            found = ask(asked)

    def visible(self, ids: Iterable[str]) -> list[str]:
        """Those of the memories that the view holds and the filter accepts, in their order."""
        wanted = list(dict.fromkeys(ids))
        known, only = self.evidence.rows, self._question.filter
        new = [uid for uid in wanted if uid not in known and uid not in self._refused]
        if not new:
            return [uid for uid in wanted if uid not in self._refused]
        with self._ledger.read() as connection:
            self._see(candidate_rows.candidates_by_id(connection, self._question.view, self._partition, new))
            if only is not None:
                records = memories.records(connection, [uid for uid in new if uid in known])
                self._refused |= {uid for uid, record in records.items() if not only.matches(fields_of(record))}
        self._refused |= {uid for uid in new if uid not in known}
        return [uid for uid in wanted if uid not in self._refused]

    def _see(self, found: Iterable[CandidateRow]) -> None:
        for candidate_row in found:
            self.evidence.rows[candidate_row.id] = candidate_row
            self._by_row[candidate_row.row] = candidate_row

    def load_neighbours(self, ids: Sequence[str]) -> None:
        """Finds out who is beside these memories, and how near the question all of them are in meaning."""
        evidence = self.evidence
        new = [evidence.rows[uid] for uid in ids if uid not in evidence.neighbours]
        if not new:
            return
        with self._ledger.read() as connection:
            self._link(connection, new)
            near = self._with_beside([candidate_row.id for candidate_row in new])
            fresh = [uid for uid in near if uid not in evidence.similarity]
            self._compare(connection, [evidence.rows[uid].row for uid in fresh])

    def _link(self, connection: Connection, new: Sequence[CandidateRow]) -> None:
        there = {row for candidate_row in new for row in (candidate_row.before, candidate_row.after) if row is not None}
        self._see(
            candidate_rows.candidates_by_row(
                connection, self._question.view, self._partition, there - self._by_row.keys()
            )
        )
        for candidate_row in new:
            self.evidence.neighbours[candidate_row.id] = (self._id(candidate_row.before), self._id(candidate_row.after))

    def _id(self, row: int | None) -> str | None:
        candidate_row = None if row is None else self._by_row.get(row)
        return None if candidate_row is None else candidate_row.id

    def _with_beside(self, ids: Sequence[str]) -> list[str]:
        beside = (other for uid in ids for other in self.evidence.neighbours[uid] if other is not None)
        return list(dict.fromkeys([*ids, *beside]))

    def _compare(self, connection: Connection, rows: Sequence[int]) -> None:
        """Exact cosines from the ledger's own vectors, whatever arm brought the memories."""
        if self._vector is None:
            return
        held, vectors = candidate_rows.vectors_of(connection, self._spec.model, rows)
        if not held:
            return
        similarity = self.evidence.similarity
        # Row by row, unlike a product of BLAS: like texts get like cosines to the last bit, wherever they stand.
        for row, cosine in zip(held, np.einsum("ij,j->i", vectors, self._vector).tolist(), strict=True):
            uid = self._by_row[row].id
            similarity[uid] = max(cosine, similarity.get(uid, cosine))

    def score_tokens(self, ids: Sequence[str]) -> None:
        """Compares the question's tokens with those of these memories and of those beside them."""
        matches, evidence = self.evidence.matches, self.evidence
        if matches is None:
            return
        fresh = [uid for uid in self._with_beside(ids) if uid not in self._matched]
        self._matched.update(fresh)
        rows = [evidence.rows[uid].row for uid in fresh]
        with self._ledger.read() as connection:
            if isinstance(matches, CharacterMatches):
                texts = candidate_rows.texts_of(connection, rows)
                matches.add([self._by_row[row].id for row in texts], list(texts.values()))
            else:
                held, windows = candidate_rows.tokens_of(connection, self._spec, rows)
                decoding(matches.add)([self._by_row[row].id for row in held], windows)

    def token_windows(self, rows: Sequence[int]) -> dict[int, list[bytes]]:
        """The token matrices (int8) of memories' windows, by row."""
        found: dict[int, list[bytes]] = {}
        with self._ledger.read() as connection:
            for row, window in zip(*candidate_rows.tokens_of(connection, self._spec, rows), strict=True):
                found.setdefault(row, []).append(window)
        return found

    def with_neighbours(self, ids: Sequence[str]) -> list[str]:
        """These memories with those beside them, as far as they may be shown."""
        return self.visible(self._with_beside(ids))
