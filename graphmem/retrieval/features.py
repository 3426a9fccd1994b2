"""The feature table of a search: one row for each candidate, one column for each feature. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from graphmem.model import ASSISTANT, AnswerType, CandidateRow
from graphmem.retrieval.character_matching import CharacterMatches
from graphmem.retrieval.query_analysis import AnalyzedQuery
from graphmem.retrieval.space_estimates import UnreadMemories
from graphmem.retrieval.token_matching import TokenMatches

Column = npt.NDArray[np.float64]
# The part of a neighbour's score that a memory gets: the message next to a match often is the answer.
NEIGHBOUR_WEIGHT = 0.7
# The factor of a neighbour's token matches, which are squared cosines: .85 squared.
NEIGHBOUR_TOKEN_WEIGHT = 0.7225
# The least range that is stretched to 0..1, of cosines, of token matches, and of keyword scores as parts of the best.
# Smaller differences stay small: among three like memories the date that was asked for must count more than a hundredth
# of cosine (docs/decisions/0017-one-sum-of-features.md).
MIN_RANGE = 0.25
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
        column = np.array([scores.get(uid, 0.0) for uid in self.ids])
        return FeatureTable(self.ids, {**self.columns, name: column})

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


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that a search has read and computed about memories so far, by id; `evidence_reader` reads more.

    `neighbours`: the memories before and after in the session (None: the view shows none). `similarity`: cosines.
    `keyword`: BM25 scores. `matches`: the query's tokens compared with those of memories, or its characters where the
    embedder does not read the script (None: neither). `compares_vectors`: whether cosines mean something; if not, they
    are no feature. `ids`: the memories of `rows` by their row numbers. `accepted`: whether the view shows a memory and
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
    accepted: Mapping[str, bool] = field(default_factory=dict)
    compared: frozenset[str] = frozenset()
    unread: UnreadMemories | None = None

    def beside(self, uid: str) -> list[str]:
        """Returns the memories before and after this one in its session, without those that the view hides."""
        return [other for other in self.neighbours.get(uid, ()) if other is not None]

    def with_neighbours(self, ids: Iterable[str]) -> list[str]:
        """Returns these memories, then their neighbours, each once."""
        own = list(ids)
        return list(dict.fromkeys([*own, *(other for uid in own for other in self.beside(uid))]))

    def table(self, ids: Sequence[str], query: AnalyzedQuery) -> FeatureTable:
        """Computes the features of these memories.

        Rows are ordered as the ledger stored the memories, so that equal totals do not depend on random ids.
        """
        rows = tuple(sorted(ids, key=lambda uid: self.rows[uid].row))
        pairs = [self.neighbours.get(uid, (None, None)) for uid in rows]
        return FeatureTable(
            rows,
            {
                **self._arm_columns(rows, pairs),
                **self._match_columns(rows, pairs),
                **self._query_columns(rows, pairs, query),
            },
        )

    def _arm_columns(self, ids: Sequence[str], pairs: Sequence[Pair]) -> dict[str, Column]:
        """Returns `dense` and `keyword`, and each with the neighbours' scores added (`dense_beside`, …)."""
        columns: dict[str, Column] = {}
        scores_by_arm = (
            {"dense": self.similarity, "keyword": self.keyword} if self.compares_vectors else {"keyword": self.keyword}
        )
        for name, scores in scores_by_arm.items():
            own = np.array([scores.get(uid, 0.0) for uid in ids])
            before = np.array([0.0 if other is None else scores.get(other, 0.0) for other, _ in pairs])
            after = np.array([0.0 if other is None else scores.get(other, 0.0) for _, other in pairs])
            beside = own + NEIGHBOUR_WEIGHT * (before + after)
            if name == "dense":  # averaged, or a memory without neighbours would fall behind; shared words add up
                count = [(before is not None) + (after is not None) for before, after in pairs]
                beside /= 1 + NEIGHBOUR_WEIGHT * np.array(count)
            min_range = MIN_RANGE if name == "dense" else MIN_RANGE * own.max(initial=0.0)
            columns[name] = min_max_normalized(own, min_range)
            columns[f"{name}_beside"] = min_max_normalized(beside, min_range)
        return columns

    def _match_columns(self, ids: Sequence[str], pairs: Sequence[Pair]) -> dict[str, Column]:
        """Returns `tokens`, `tokens_beside` (of each part of the query the better of own and neighbour), `reply`."""
        if self.matches is None or not ids:
            return {}
        own = self.matches.matrix(ids)
        beside = np.maximum(
            self.matches.matrix([before for before, _ in pairs]), self.matches.matrix([after for _, after in pairs])
        )
        tokens = min_max_normalized(own @ self.matches.weights, MIN_RANGE)
        return {
            "tokens": tokens,
            "tokens_beside": min_max_normalized(
                np.maximum(own, NEIGHBOUR_TOKEN_WEIGHT * beside) @ self.matches.weights, MIN_RANGE
            ),
            "reply": self._reply_column(ids, dict(zip(ids, tokens.tolist(), strict=True))),
        }

    def _reply_column(self, ids: Sequence[str], tokens: Mapping[str, float]) -> Column:
        """Returns for each reply the `tokens` score of the question it replies to; 0 for other memories."""
        questions = (self.replies_to(uid) for uid in ids)
        return np.array([0.0 if question is None else tokens.get(question, 0.0) for question in questions])

    def replies_to(self, uid: str) -> str | None:
        """Returns the memory just before this one in its session if another speaker asks something in it, else None.

        None for an assistant's messages: an assistant replies to everything.
        """
        if self.rows[uid].role == ASSISTANT:
            return None
        before = self.neighbours.get(uid, (None, None))[0]
        if before is None or not self.rows[before].answer_types & IS_QUESTION:
            return None
        return before if self.rows[before].speaker != self.rows[uid].speaker else None

    def reply_to(self, uid: str) -> str | None:
        """Returns the memory just after this one in its session if somebody else or an assistant says it, else None."""
        after = self.neighbours.get(uid, (None, None))[1]
        if after is None:
            return None
        question, reply = self.rows[uid], self.rows[after]
        return after if (reply.speaker, reply.role) != (question.speaker, question.role) else None

    def _query_columns(self, ids: Sequence[str], pairs: Sequence[Pair], query: AnalyzedQuery) -> dict[str, Column]:
        """Returns features of speaker, time, kind of answer, questions and assistants; one number of 0..1 for each id.

        `unasked`, for an assistant's message that the query does not ask for, is normalised over the candidates: if it
        is the same for all of them, it is 0.
        """
        rows = [self.rows[uid] for uid in ids]
        nothing = np.zeros(len(rows))
        named_speakers = query.speakers_named({row.speaker for row in rows})
        answer_types = int(query.answer_types)
        dates = np.array([query.temporal_proximity(row.at) for row in rows]) if query.periods else nothing
        assistants = {uid for uid, row in self.rows.items() if row.role == ASSISTANT}
        return {
            # A query that names two people may be about either: then the speaker is no evidence.
            "speaker": np.array([float(row.speaker in named_speakers) for row in rows])
            if len(named_speakers) == 1
            else nothing,
            "type": np.array([float(bool(row.answer_types & answer_types)) for row in rows])
            if answer_types
            else nothing,
            "date": dates,
            # Without another word in the query, all other features are chance.
            "only_date": (dates == 1.0) * float(query.is_only_temporal),
            # A request to an assistant states facts along the way.
            "question_share": np.array(
                [
                    0.0 if before in assistants or after in assistants else row.question_share
                    for row, (before, after) in zip(rows, pairs, strict=True)
                ]
            ),
            # An assistant's message if the query asks neither for the assistant's words nor names it.
            "unasked": min_max_normalized(
                np.array([float(row.id in assistants and row.speaker not in named_speakers) for row in rows])
            )
            if assistants and not query.asks_assistant
            else nothing,
        }
