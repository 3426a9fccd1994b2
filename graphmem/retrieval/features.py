"""What a search knows of memories (`Evidence`), and the table of features that is made of it. Pure.

The table has one row for each candidate, and one column for each feature.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, repeat
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from graphmem.model import ASSISTANT, AnswerType, CandidateRow
from graphmem.retrieval.matching import CharacterMatches, TokenMatches
from graphmem.retrieval.query_analysis import AnalyzedQuery

Column = npt.NDArray[np.float64]
Columns = dict[str, Column]
# The part of a neighbour's score that a memory gets: the message next to a match often is the answer.
NEIGHBOUR_WEIGHT = 0.7
# The factor of a neighbour's token matches, which are squared cosines: .85 squared.
NEIGHBOUR_TOKEN_WEIGHT = 0.7225
# The least range that is stretched to 0..1, of cosines, of token matches, and of keyword scores as parts of the best.
# Smaller differences stay small: among three like memories the date that was asked for must count more than a hundredth
# of cosine (docs/decisions/0017-one-sum-of-features.md).
MIN_RANGE = 0.25
# The fewest memories with both values of which `SpaceEstimates` are made; with fewer, cosines are taken as they are.
MIN_MEMORIES = 8
# The least standard deviation of multilingual cosines: smaller differences are chance and are not stretched.
MIN_DEVIATION = 0.03
# The memories before and after one in its session.
Pair = tuple[str | None, str | None]
IS_QUESTION = int(AnswerType.ASKS)  # plain numbers: a search compares thousands


@dataclass(frozen=True)
class FeatureTable:
    """Columns of features by name, parallel to the candidates in `ids`."""

    ids: tuple[str, ...]
    columns: Mapping[str, Column] = field(default_factory=dict)

    @cached_property
    def places(self) -> Mapping[str, int]:
        """The row of each candidate, by id."""
        return {uid: place for place, uid in enumerate(self.ids)}

    def with_column(self, name: str, scores: Mapping[str, float]) -> FeatureTable:
        """Returns the table with a column, not normalised; candidates without a score get 0."""
        return FeatureTable(self.ids, {**self.columns, name: _scores_of(self.ids, scores)})

    def total(self, weights: Mapping[str, float]) -> Column:
        """Returns the weighted sum of the columns; weights without a column are ignored."""
        filled = ((name, weight) for name, weight in weights.items() if name in self.columns)
        return sum((weight * self.columns[name] for name, weight in filled), np.zeros(len(self.ids)))


def min_max_normalized(column: Column, min_range: float = 0.0) -> Column:
    """Maps the column linearly to 0..1 by its least and greatest value; a constant column becomes 0.

    A range below `min_range` is divided by `min_range` instead, so that small differences stay small.
    """
    if not column.size or (value_range := column.max() - column.min()) <= 0:
        return np.zeros_like(column)
    return np.asarray((column - column.min()) / max(value_range, min_range))


class SpaceEstimates:
    """Converts multilingual cosines to values of another kind by mean and standard deviation.

    In a store of several languages a query that the embedder reads is compared with some memories in both spaces and
    with others in the multilingual one alone. Cosines of two spaces cannot be ranked together: what is near in one is
    .6, in the other .35. So the value that such a memory would have is estimated from the memories that have both, in
    this search.

    The estimate of u is mean(x) + sd(x) · (u - mean(u)) / max(sd(u), `MIN_DEVIATION`), over the memories that have both
    a value x and a cosine u. A map that is the same in every search was measured to be much worse: with it, half of the
    right memories of the other language were no longer found (docs/decisions/0030-two-encoders.md).
    """

    def __init__(self, values: Mapping[str, float], cosines: Mapping[str, float]) -> None:
        both = [uid for uid in values if uid in cosines]
        self._is_identity = len(both) < MIN_MEMORIES
        if not self._is_identity:
            x, u = np.array([values[uid] for uid in both]), np.array([cosines[uid] for uid in both])
            self._slope = float(x.std() / max(u.std(), MIN_DEVIATION))
            self._offset = float(x.mean() - self._slope * u.mean())

    def convert(self, cosines: Mapping[str, float]) -> dict[str, float]:
        """Returns the estimate of each cosine."""
        if self._is_identity:
            return dict(cosines)
        return {uid: self._offset + self._slope * cosine for uid, cosine in cosines.items()}


@dataclass(frozen=True, slots=True)
class UnreadMemories:
    """Memories that have a vector in the multilingual space alone, with how their evidence is estimated.

    `cosines` are their multilingual ones, `read` those of the memories that have both vectors, by id. `similarity` and
    `tokens` estimate cosines and token matches (None: not needed yet).
    """

    cosines: Mapping[str, float]
    read: Mapping[str, float]
    similarity: SpaceEstimates
    tokens: SpaceEstimates | None = None

    def token_matches(self, ids: Iterable[str]) -> dict[str, float]:
        """Returns the estimated token matches of these memories, 0..1, by id; none without `tokens`."""
        asked = {uid: self.cosines[uid] for uid in ids}
        estimates = {} if self.tokens is None else self.tokens.convert(asked)
        return {uid: min(max(estimate, 0.0), 1.0) for uid, estimate in estimates.items()}


def _scores_of(ids: Sequence[str | None], scores: Mapping[str, float]) -> Column:
    """Returns the scores of memories as a column; 0 for None, and for those without one."""
    get: Any = scores.get
    return np.fromiter(map(get, ids, repeat(0.0)), np.float64, len(ids))


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that a search has read and computed about memories so far, by id; `EvidenceReader` reads more.

    `neighbours`: the memories before and after in the session (None: the view shows none). `similarity`: cosines.
    `keyword`: BM25 scores. `matches`: the query's tokens compared with those of memories, or its characters where the
    embedder does not read the script (None: neither). `compares_vectors`: whether cosines mean something; if not, they
    are no feature. `ids`: the memories of `rows` by their row numbers. `by_assistant`: those of them that an assistant
    said. `accepted`: whether the view shows a memory and
    the query's filters accept it, of those that were asked for. `compared`: the memories of which tokens were read.
    `unread`: estimates for memories of the multilingual space alone (None: none was met).
    """

    rows: Mapping[str, CandidateRow] = field(default_factory=dict)
    neighbours: Mapping[str, Pair] = field(default_factory=dict)
    similarity: Mapping[str, float] = field(default_factory=dict)
    keyword: Mapping[str, float] = field(default_factory=dict)
    matches: TokenMatches | CharacterMatches | None = None
    compares_vectors: bool = True
    ids: Mapping[int | None, str] = field(default_factory=dict)
    by_assistant: frozenset[str] = frozenset()
    accepted: Mapping[str, bool] = field(default_factory=dict)
    compared: frozenset[str] = frozenset()
    unread: UnreadMemories | None = None

    def beside(self, uid: str) -> list[str]:
        """Returns the memories before and after this one in its session, without those that the view hides."""
        return [other for other in self.neighbours.get(uid, ()) if other is not None]

    def with_neighbours(self, ids: Iterable[str]) -> list[str]:
        """Returns these memories, then their neighbours, each once."""
        own = list(ids)
        nobody: Pair = (None, None)
        beside = chain.from_iterable(map(self.neighbours.get, own, repeat(nobody)))
        found = dict.fromkeys(chain[str | None](own, beside))
        found.pop(None, None)
        return cast("list[str]", list(found))

    def table(self, ids: Sequence[str], query: AnalyzedQuery) -> FeatureTable:
        """Computes the features of these memories.

        Rows are ordered as the ledger stored the memories, so that equal totals do not depend on random ids.
        """
        rows = sorted(map(self.rows.__getitem__, ids))  # by their first column, the row's number
        own = tuple([row.id for row in rows])
        pairs = list(map(self.neighbours.get, own, repeat((None, None))))
        before, after = [one for one, _ in pairs], [other for _, other in pairs]
        return FeatureTable(
            own,
            {
                **self._arm_columns(own, before, after),
                **self._match_columns(rows, before, after),
                **self._query_columns(rows, before, after, query),
            },
        )

    def _arm_columns(self, ids: Sequence[str], before: Sequence[str | None], after: Sequence[str | None]) -> Columns:
        """Returns `dense` and `keyword`, and each with the neighbours' scores added (`dense_beside`, …)."""
        columns: Columns = {}
        scores_by_arm = (
            {"dense": self.similarity, "keyword": self.keyword} if self.compares_vectors else {"keyword": self.keyword}
        )
        for name, scores in scores_by_arm.items():
            own = _scores_of(ids, scores)
            beside = own + NEIGHBOUR_WEIGHT * (_scores_of(before, scores) + _scores_of(after, scores))
            if name == "dense":  # averaged, or a memory without neighbours would fall behind; shared words add up
                count = [(one is not None) + (other is not None) for one, other in zip(before, after, strict=True)]
                beside /= 1 + NEIGHBOUR_WEIGHT * np.array(count)
            min_range = MIN_RANGE if name == "dense" else MIN_RANGE * own.max(initial=0.0)
            columns[name] = min_max_normalized(own, min_range)
            columns[f"{name}_beside"] = min_max_normalized(beside, min_range)
        return columns

    def _match_columns(
        self, rows: Sequence[CandidateRow], before: Sequence[str | None], after: Sequence[str | None]
    ) -> Columns:
        """Returns `tokens`, `tokens_beside` (of each part of the query the better of own and neighbour), `reply`.

        `reply` has for each reply the `tokens` score of the question it replies to, and 0 for other memories.
        """
        if self.matches is None or not rows:
            return {}
        ids = [row.id for row in rows]
        own = self.matches.matrix(ids)
        beside = np.maximum(self.matches.matrix(before), self.matches.matrix(after))
        tokens = min_max_normalized(own @ self.matches.weights, MIN_RANGE)
        questions = [
            uid if uid is not None and self._is_reply(row, self.rows[uid]) else None
            for row, uid in zip(rows, before, strict=True)
        ]
        return {
            "tokens": tokens,
            "tokens_beside": min_max_normalized(
                np.maximum(own, NEIGHBOUR_TOKEN_WEIGHT * beside) @ self.matches.weights, MIN_RANGE
            ),
            "reply": _scores_of(questions, dict(zip(ids, tokens.tolist(), strict=True))),
        }

    def replies_to(self, uid: str) -> str | None:
        """Returns the memory just before this one in its session if it asks and this one replies, else None."""
        before = self.neighbours.get(uid, (None, None))[0]
        return before if before is not None and self._is_reply(self.rows[uid], self.rows[before]) else None

    @staticmethod
    def _is_reply(row: CandidateRow, before: CandidateRow) -> bool:
        """Whether somebody else asks something in the memory before. An assistant replies to everything: no reply.

        Speakers without names, such as a user with the id "u1", are told apart by their roles.
        """
        is_other = (before.speaker, before.role) != (row.speaker, row.role)
        return bool(before.answer_types & IS_QUESTION) and row.role != ASSISTANT and is_other

    def reply_to(self, uid: str) -> str | None:
        """Returns the memory just after this one in its session if somebody else or an assistant says it, else None."""
        after = self.neighbours.get(uid, (None, None))[1]
        if after is None:
            return None
        question, reply = self.rows[uid], self.rows[after]
        return after if (reply.speaker, reply.role) != (question.speaker, question.role) else None

    def _query_columns(
        self,
        rows: Sequence[CandidateRow],
        before: Sequence[str | None],
        after: Sequence[str | None],
        query: AnalyzedQuery,
    ) -> Columns:
        """Returns features of speaker, time, kind of answer, questions and assistants; one number of 0..1 for each id.

        `unasked`, for an assistant's message that the query does not ask for, is normalised over the candidates: if it
        is the same for all of them, it is 0.
        """
        nothing = np.zeros(len(rows))
        named_speakers = query.speakers_named({row.speaker for row in rows})
        answer_types = int(query.answer_types)
        dates = np.array([query.temporal_proximity(row.at) for row in rows]) if query.periods else nothing
        assistants = self.by_assistant
        question_shares = np.array([row.question_share for row in rows])
        if assistants:
            beside = (not assistants.isdisjoint(pair) for pair in zip(before, after, strict=True))
            question_shares[np.fromiter(beside, np.bool_, len(rows))] = 0.0
        return {
            # A query that names two people may be about either: then the speaker is no evidence.
            "speaker": np.array([row.speaker in named_speakers for row in rows], np.float64)
            if len(named_speakers) == 1
            else nothing,
            "type": np.array([row.answer_types & answer_types for row in rows]).astype(np.bool_).astype(np.float64)
            if answer_types
            else nothing,
            "date": dates,
            # Without another word in the query, all other features are chance.
            "only_date": (dates == 1.0) * float(query.is_only_temporal),
            # A request to an assistant states facts along the way.
            "question_share": question_shares,
            # An assistant's message if the query asks neither for the assistant's words nor names it.
            "unasked": min_max_normalized(
                np.array([row.id in assistants and row.speaker not in named_speakers for row in rows], np.float64)
            )
            if assistants and not query.asks_assistant
            else nothing,
        }
