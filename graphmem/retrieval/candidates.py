"""The candidates of one search, read from the ledger, which decides whether they exist. Reads no memory twice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing

import numpy as np
from sqlalchemy import Connection

from graphmem.boundary.filters import Matcher
from graphmem.model import CandidateRow, EmbeddingSpec
from graphmem.plugins import Matrix
from graphmem.retrieval.character_matching import CharacterMatches
from graphmem.retrieval.features import Evidence
from graphmem.retrieval.space_estimates import SpaceEstimates
from graphmem.retrieval.token_matching import TokenMatches
from graphmem.retrieval.types import EncodedQuery, ScoredIds, SearchQuery
from graphmem.stores.ledger import Ledger, candidate_rows, memories
from graphmem.stores.ledger.candidate_rows import CandidateReader
from graphmem.stores.ledger.sql import decoding


class Candidates:
    """Fills the `evidence` of one search step by step: rows, neighbours, cosines, matches.

    Its methods raise StoreError if the ledger fails.
    """

    def __init__(self, query: SearchQuery, ledger: Ledger, spec: EmbeddingSpec, encoded: EncodedQuery) -> None:
        self._query = query
        self._matcher = Matcher(query.filter)
        self._ledger = ledger
        self._encoded = encoded
        # Multilingual cosines: of the memories that have no other vector, and of those from which estimates are made.
        self._unread: dict[str, float] = {}
        self._read: dict[str, float] = {}
        self._similarity_estimates: SpaceEstimates | None = None
        self._token_estimates: SpaceEstimates | None = None
        self._by_row: dict[int, CandidateRow] = {}
        # Memories of which it is known whether they may be hits, and those of them that may not.
        self._checked: set[str] = set()
        self._refused: set[str] = set()
        self._matched: set[str] = set()
        with ledger.read() as connection:
            partition = query.view.partition
            columns = ledger.columns.of(connection, partition)
            row = None if partition is None or columns is not None else memories.partition_row(connection, partition)
            self._reader = CandidateReader(query.view, row, spec, columns)
        self.evidence = Evidence()

    def filter_hits(self, search_arm: Callable[[int], ScoredIds], first: ScoredIds, limit: int) -> dict[str, float]:
        """Returns up to `limit` of an arm's ids that are visible, with their scores, in the arm's order.

        `first` is the arm's answer for `limit`. While the filter refuses too many of them, asks `search_arm` for four
        times as many.
        """
        scored, arm_limit = first, limit
        while True:
            visible_ids = set(self.visible_ids(uid for uid, _ in scored))
            if len(visible_ids) >= limit or len(scored) < arm_limit:
                return dict([(uid, score) for uid, score in scored if uid in visible_ids][:limit])
            arm_limit *= 4
            scored = search_arm(arm_limit)

    def visible_ids(self, ids: Iterable[str]) -> list[str]:
        """Returns the ids, each once and in order, that the ledger has, the view shows and the query's filters accept.

        The filters are `SearchQuery.filter` and `SearchQuery.accepted`.
        """
        unique_ids = list(dict.fromkeys(ids))
        unchecked = [uid for uid in unique_ids if uid not in self._checked]
        if unchecked:
            with self._ledger.read() as connection:
                self._check(connection, unchecked)
        return [uid for uid in unique_ids if uid not in self._refused]

    def _check(self, connection: Connection, ids: Sequence[str]) -> None:
        """Reads rows that are not read yet. A row may have been read, as a neighbour's, without being checked."""
        rows, query = self.evidence.rows, self._query
        unread = [uid for uid in ids if uid not in rows]
        self._add_rows(self._reader.by_id(connection, unread))
        visible = {uid for uid in ids if uid in rows}
        if query.accepted is not None:
            visible &= query.accepted(connection, list(visible))
        if query.filter is not None:
            with closing(memories.each_record(connection, visible)) as records:
                visible = {record.id for record in records if self._matcher.matches(record)}
        self._checked.update(ids)
        self._refused.update(uid for uid in ids if uid not in visible)

    def _add_rows(self, rows: Iterable[CandidateRow]) -> None:
        for candidate_row in rows:
            self.evidence.rows[candidate_row.id] = candidate_row
            self._by_row[candidate_row.row] = candidate_row

    def load_neighbours_and_similarities(self, ids: Sequence[str]) -> None:
        """Reads the neighbours of these visible memories in their sessions, and the cosines of all of them."""
        evidence = self.evidence
        new_rows = [evidence.rows[uid] for uid in ids if uid not in evidence.neighbours]
        if not new_rows:
            return
        with self._ledger.read() as connection:
            self._link_neighbours(connection, new_rows)
            all_ids = self._with_neighbours([candidate_row.id for candidate_row in new_rows])
            uncompared = [uid for uid in all_ids if uid not in evidence.similarity]
            self._add_similarities(connection, [evidence.rows[uid].row for uid in uncompared])

    def _link_neighbours(self, connection: Connection, new_rows: Sequence[CandidateRow]) -> None:
        neighbour_rows = {
            row for candidate_row in new_rows for row in (candidate_row.before, candidate_row.after) if row is not None
        }
        self._add_rows(self._reader.by_row(connection, neighbour_rows - self._by_row.keys()))
        for candidate_row in new_rows:
            self.evidence.neighbours[candidate_row.id] = (self._id(candidate_row.before), self._id(candidate_row.after))

    def _id(self, row: int | None) -> str | None:
        candidate_row = None if row is None else self._by_row.get(row)
        return None if candidate_row is None else candidate_row.id

    def _with_neighbours(self, ids: Sequence[str]) -> list[str]:
        neighbours = (other for uid in ids for other in self.evidence.neighbours[uid] if other is not None)
        return list(dict.fromkeys([*ids, *neighbours]))

    def _add_similarities(self, connection: Connection, rows: Sequence[int]) -> None:
        """Adds exact cosines from the ledger's vectors, whichever arm found the memories.

        In the multilingual space if the query has a vector there alone. A query that has both is compared there with
        the memories that have no other vector, and `SpaceEstimates` converts these cosines.
        """
        encoded, similarity = self._encoded, self.evidence.similarity
        if encoded.vector is None:
            similarity |= self._multilingual_cosines(connection, rows)
            return
        compared = self._cosines(*self._reader.vectors(connection, rows), encoded.vector)
        similarity |= compared
        unread = [row for row in rows if self._by_row[row].id not in compared]
        if encoded.ranking is None or not unread:
            return
        cosines = self._multilingual_cosines(connection, unread)
        if not cosines:
            return
        if self._similarity_estimates is None:
            self._read = self._multilingual_cosines(connection, [self.evidence.rows[uid].row for uid in similarity])
            self._similarity_estimates = SpaceEstimates(similarity, self._read)
        self._unread |= cosines
        similarity |= self._similarity_estimates.convert(cosines)

    def multilingual_vectors(self, connection: Connection, ids: Sequence[str]) -> dict[str, Matrix]:
        """Returns the vectors of these memories in the multilingual space, by id; those without one are left out."""
        rows = [self.evidence.rows[uid].row for uid in ids]
        found, vectors = self._reader.multilingual(connection, rows)
        return {self._by_row[row].id: vector for row, vector in zip(found, vectors, strict=True)}

    def _multilingual_cosines(self, connection: Connection, rows: Sequence[int]) -> dict[str, float]:
        if self._encoded.ranking is None:
            return {}
        found, vectors = self._reader.multilingual(connection, rows)
        return self._cosines(found, vectors, self._encoded.ranking)

    def _cosines(self, rows: Sequence[int], vectors: Matrix, vector: Matrix) -> dict[str, float]:
        """Returns the cosine of each memory's best window with the query, by id."""
        cosines: dict[str, float] = {}
        if not rows:
            return cosines
        # Row by row, unlike a product of BLAS: equal texts get equal cosines to the last bit, wherever they stand.
        for row, cosine in zip(rows, np.einsum("ij,j->i", vectors, vector).tolist(), strict=True):
            uid = self._by_row[row].id
            cosines[uid] = max(cosine, cosines.get(uid, cosine))
        return cosines

    def score_tokens(self, ids: Sequence[str]) -> None:
        """Adds these memories and their neighbours to `evidence.matches`: by tokens, or by characters of their texts.

        Does nothing without `matches`. Needs `load_neighbours_and_similarities` for the same ids before.
        """
        matches, evidence = self.evidence.matches, self.evidence
        if matches is None:
            return
        new_ids = [uid for uid in self._with_neighbours(ids) if uid not in self._matched]
        self._matched.update(new_ids)
        rows = [evidence.rows[uid].row for uid in new_ids]
        with self._ledger.read() as connection:
            if isinstance(matches, CharacterMatches):
                texts = candidate_rows.read_texts(connection, rows)
                matches.add([self._by_row[row].id for row in texts], list(texts.values()))
            else:
                window_rows, windows = self._reader.tokens(connection, rows)
                decoding(matches.add)([self._by_row[row].id for row in window_rows], windows)
                self._estimate_tokens(matches, [uid for uid in new_ids if uid in self._unread])

    def _estimate_tokens(self, matches: TokenMatches, unread: Sequence[str]) -> None:
        """Adds estimated matches of memories without tokens: for each token of the query the same."""
        if not unread:
            return
        if self._token_estimates is None:
            read = [uid for uid in self._read if matches.contains(uid)]
            totals = dict(zip(read, (matches.matrix(read) @ matches.weights).tolist(), strict=True))
            self._token_estimates = SpaceEstimates(totals, self._read)
        estimates = self._token_estimates.convert({uid: self._unread[uid] for uid in unread})
        rows = np.repeat(np.clip(list(estimates.values()), 0.0, 1.0)[:, None], len(matches.weights), axis=1)
        matches.add_rows(estimates, rows, [1] * len(estimates))

    def token_windows(self, rows: Sequence[int]) -> dict[int, list[bytes]]:
        """Returns {row: its windows' token matrices, int8 as bytes}; memories without tokens are missing."""
        windows_by_row: dict[int, list[bytes]] = {}
        with self._ledger.read() as connection:
            for row, window in zip(*self._reader.tokens(connection, rows), strict=True):
                windows_by_row.setdefault(row, []).append(window)
        return windows_by_row

    def with_neighbours(self, ids: Sequence[str]) -> list[str]:
        """Returns these memories and those of their neighbours that are visible.

        Needs `load_neighbours_and_similarities` before.
        """
        return self.visible_ids(self._with_neighbours(ids))
