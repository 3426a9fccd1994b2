"""Reads evidence from the ledger, which decides whether a memory exists. Reads no memory twice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np
from sqlalchemy import Connection

from graphmem.boundary.filters import Matcher
from graphmem.model import ASSISTANT, CandidateRow
from graphmem.plugins import Matrix
from graphmem.retrieval.features import Evidence, SpaceEstimates, UnreadMemories
from graphmem.retrieval.matching import CharacterMatches
from graphmem.retrieval.types import EncodedQuery, SearchDeps, SearchQuery
from graphmem.stores.ledger import Ledger, candidate_rows, memories
from graphmem.stores.ledger.candidate_rows import CandidateReader
from graphmem.stores.ledger.sql import decoding


@dataclass(frozen=True, slots=True)
class EvidenceReader:
    """Returns the evidence of one search with more memories in it; the evidence that it is given stays as it is.

    Its methods raise StoreError if the ledger fails.
    """

    query: SearchQuery
    encoded: EncodedQuery
    ledger: Ledger
    candidates: CandidateReader
    matcher: Matcher

    @classmethod
    def open(cls, query: SearchQuery, encoded: EncodedQuery, deps: SearchDeps) -> EvidenceReader:
        """Returns a reader of the partition's columns as they are now, or of the tables if there are none."""
        partition = query.view.partition
        with deps.ledger.read() as connection:
            columns = deps.ledger.columns.visible(connection, query.view)
            row = None if partition is None or columns is not None else memories.partition_row(connection, partition)
        candidates = CandidateReader(query.view, row, deps.spec, columns)
        return cls(query, encoded, deps.ledger, candidates, Matcher(query.filter))

    def visible(self, evidence: Evidence, ids: Iterable[str]) -> tuple[Evidence, list[str]]:
        """Returns the evidence with the rows of these memories, and those ids that may be hits, each once and in order.

        These are in the ledger, the view shows them, and `SearchQuery.filter` and `SearchQuery.accepted` accept them. A
        row may have been read before, as a neighbour's, without these conditions.
        """
        asked = list(dict.fromkeys(ids))
        unchecked = [uid for uid in asked if uid not in evidence.accepted]
        if unchecked:
            with self.ledger.read() as connection:
                unread = [uid for uid in unchecked if uid not in evidence.rows]
                evidence = _with_rows(evidence, self.candidates.by_id(connection, unread))
                shown = {uid for uid in unchecked if uid in evidence.rows}
                if self.query.accepted is not None:
                    shown &= self.query.accepted(connection, list(shown))
                if self.query.filter is not None:
                    with closing(memories.each_record(connection, {"uids": list(shown)})) as records:
                        shown = {record.id for record in records if self.matcher.matches(record)}
            accepted = {**evidence.accepted, **{uid: uid in shown for uid in unchecked}}
            evidence = replace(evidence, accepted=accepted)
        return evidence, [uid for uid in asked if evidence.accepted[uid]]

    def compared(self, evidence: Evidence, ids: Sequence[str]) -> Evidence:
        """Returns the evidence with the neighbours, cosines and matches of these visible memories."""
        return self.with_matches(self.with_cosines(evidence, ids), ids)

    def with_cosines(self, evidence: Evidence, ids: Sequence[str]) -> Evidence:
        """Returns the evidence with the neighbours of these visible memories, and the cosines of all of them."""
        new = [evidence.rows[uid] for uid in ids if uid not in evidence.neighbours]
        if not new:
            return evidence
        with self.ledger.read() as connection:
            beside = {row for one in new for row in (one.before, one.after) if row is not None}
            evidence = _with_rows(evidence, self.candidates.by_row(connection, beside - evidence.ids.keys()))
            pairs = {one.id: (evidence.ids.get(one.before), evidence.ids.get(one.after)) for one in new}
            evidence = replace(evidence, neighbours={**evidence.neighbours, **pairs})
            uncompared = [uid for uid in evidence.with_neighbours(pairs) if uid not in evidence.similarity]
            rows = [evidence.rows[uid].row for uid in uncompared]
            # Exact cosines from the ledger's vectors, whichever arm found the memories: in the multilingual space if
            # the query has a vector there alone. A query that has both is compared there with the memories that have no
            # other vector, and `SpaceEstimates` converts these cosines.
            if (vector := self.encoded.vector) is None:
                cosines = self._multilingual_cosines(connection, evidence, rows)
                return replace(evidence, similarity={**evidence.similarity, **cosines})
            found = self.candidates.cosines(connection, rows, vector)
            similarity = {**evidence.similarity, **_by_id(evidence, found)}
            without = [row for row in rows if row not in found]
            cosines = self._multilingual_cosines(connection, evidence, without)
            unread = evidence.unread
            if cosines and unread is None:
                both = [evidence.rows[uid].row for uid in similarity]
                read = self._multilingual_cosines(connection, evidence, both)
                unread = UnreadMemories(cosines, read, SpaceEstimates(similarity, read))
            elif cosines and unread is not None:
                unread = replace(unread, cosines={**unread.cosines, **cosines})
            if unread is not None:
                similarity |= unread.similarity.convert(cosines)
            return replace(evidence, similarity=similarity, unread=unread)

    def _multilingual_cosines(
        self, connection: Connection, evidence: Evidence, rows: Sequence[int]
    ) -> dict[str, float]:
        if self.encoded.ranking is None:
            return {}
        return _by_id(evidence, self.candidates.multilingual_cosines(connection, rows, self.encoded.ranking))

    def with_matches(self, evidence: Evidence, ids: Sequence[str]) -> Evidence:
        """Returns the evidence with matches of these memories and their neighbours: by tokens, or by characters.

        The same evidence without `matches`. Needs `with_cosines` of these memories before.
        """
        matches, new = evidence.matches, [uid for uid in evidence.with_neighbours(ids) if uid not in evidence.compared]
        if matches is None or not new:
            return evidence
        rows = [evidence.rows[uid].row for uid in new]
        unread = evidence.unread
        with self.ledger.read() as connection:
            if isinstance(matches, CharacterMatches):
                texts = candidate_rows.read_texts(connection, rows)
                matches = matches.with_texts([evidence.ids[row] for row in texts], list(texts.values()))
            else:
                window_rows, windows = self.candidates.tokens(connection, rows)
                matches = decoding(matches.with_windows)([evidence.ids[row] for row in window_rows], windows)
                lacking = [uid for uid in new if unread is not None and uid in unread.cosines]
                if unread is not None and lacking:  # for each token of the query the same estimate
                    if unread.tokens is None:
                        read = [uid for uid in unread.read if matches.contains(uid)]
                        unread = replace(unread, tokens=SpaceEstimates(matches.totals(read), unread.read))
                    estimates = unread.token_matches(lacking)
                    alike = np.repeat(np.array(list(estimates.values()))[:, None], len(matches.weights), axis=1)
                    matches = matches.with_rows(estimates, alike, [1] * len(estimates))
        return replace(evidence, matches=matches, compared=evidence.compared | set(new), unread=unread)

    def vectors(self, evidence: Evidence, ids: Sequence[str]) -> dict[str, Matrix]:
        """Returns the vectors of these memories in the multilingual space, by id; those without one are left out."""
        with self.ledger.read() as connection:
            rows, vectors = self.candidates.multilingual(connection, [evidence.rows[uid].row for uid in ids])
        return {evidence.ids[row]: vector for row, vector in zip(rows, vectors, strict=True)}

    def token_windows(self, rows: Sequence[int]) -> dict[int, list[bytes]]:
        """Returns {row: its windows' token matrices, int8 as bytes}; memories without tokens are missing."""
        windows_by_row: dict[int, list[bytes]] = {}
        with self.ledger.read() as connection:
            for row, window in zip(*self.candidates.tokens(connection, rows), strict=True):
                windows_by_row.setdefault(row, []).append(window)
        return windows_by_row

    def texts(self, evidence: Evidence, ids: Iterable[str]) -> dict[str, str]:
        """Returns the texts of memories of the evidence, by id."""
        rows = [evidence.rows[uid].row for uid in ids]
        with self.ledger.read() as connection:
            return {evidence.ids[row]: text for row, text in candidate_rows.read_texts(connection, rows).items()}


def _by_id(evidence: Evidence, cosines: Mapping[int, float]) -> dict[str, float]:
    return {evidence.ids[row]: cosine for row, cosine in cosines.items()}


def _with_rows(evidence: Evidence, rows: Sequence[CandidateRow]) -> Evidence:
    if not rows:
        return evidence
    return replace(
        evidence,
        rows={**evidence.rows, **{one.id: one for one in rows}},
        ids={**evidence.ids, **{one.row: one.id for one in rows}},
        by_assistant=evidence.by_assistant.union(one.id for one in rows if one.role == ASSISTANT),
    )
