"""The table of candidates: one row for each memory, one column for each feature. Every arm adds columns. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from graphmem.model import ASSISTANT, AnswerType, CandidateRow
from graphmem.retrieval.character_matching import CharacterMatches
from graphmem.retrieval.query_analysis import AnalyzedQuery
from graphmem.retrieval.token_matching import TokenMatches

Column = npt.NDArray[np.float64]
# How much of a neighbour's score a memory takes over: what is said next to a match often is the answer.
NEIGHBOUR_WEIGHT = 0.7
# A neighbour's token matches count this much (.85 before they are squared).
NEIGHBOUR_TOKEN_WEIGHT = 0.7225
# Cosines, token matches, and keyword scores as parts of the best one that lie no farther apart are about alike.
MIN_RANGE = 0.25
IS_QUESTION = int(AnswerType.ASKS)  # plain numbers: a search compares thousands


@dataclass(frozen=True, slots=True)
class FeatureTable:
    """Candidates by features; columns are parallel to `ids`."""

    ids: tuple[str, ...]
    columns: dict[str, Column] = field(default_factory=dict)

    def add(self, name: str, scores: Mapping[str, float]) -> None:
        """Adds a column as it is; a candidate that is not among the scores has 0."""
        self.columns[name] = np.array([scores.get(uid, 0.0) for uid in self.ids])

    def total(self, weights: Mapping[str, float]) -> Column:
        """The weighted sum of the columns; one that nothing filled counts nothing."""
        there = ((name, weight) for name, weight in weights.items() if name in self.columns)
        return sum((weight * self.columns[name] for name, weight in there), np.zeros(len(self.ids)))


def min_max_normalized(column: Column, least: float = 0.0) -> Column:
    """Min-max over the candidates; a column without differences counts nothing.

    Differences of less than `least` in all are not stretched: among a few like memories they mean nothing.
    """
    if not column.size or (spread := column.max() - column.min()) <= 0:
        return np.zeros_like(column)
    return np.asarray((column - column.min()) / max(spread, least))


@dataclass(slots=True)
class Evidence:
    """What is known of the memories looked at so far, by id.

    `similarity` are cosines, `keyword` BM25 scores, `neighbours` the memories before and after in the session (None:
    none that may be seen), `matches` those of tokens, or of signs where the embedder does not read (None: neither).
    `is_supported_script`: whether the embedder reads the question's script; cosines tell nothing otherwise, and are no
    features.
    """

    rows: dict[str, CandidateRow] = field(default_factory=dict)
    neighbours: dict[str, tuple[str | None, str | None]] = field(default_factory=dict)
    similarity: dict[str, float] = field(default_factory=dict)
    keyword: Mapping[str, float] = field(default_factory=dict)
    matches: TokenMatches | CharacterMatches | None = None
    is_supported_script: bool = True

    def table(self, ids: Sequence[str], asked: AnalyzedQuery) -> FeatureTable:
        """A row for each of these memories, in a settled order: as stored, not by their random ids."""
        rows = tuple(sorted(ids, key=lambda uid: self.rows[uid].row))
        table = FeatureTable(rows)
        for columns in (self._nearness(rows), self._words(rows), self._answers(rows, asked)):
            table.columns.update(columns)
        return table

    def _nearness(self, ids: Sequence[str]) -> dict[str, Column]:
        found: dict[str, Column] = {}
        scored = (
            {"dense": self.similarity, "keyword": self.keyword}
            if self.is_supported_script
            else {"keyword": self.keyword}
        )
        for name, scores in scored.items():
            own, before, after, count = self._with_neighbours(ids, scores)
            summed = own + NEIGHBOUR_WEIGHT * (before + after)
            # Cosines are averaged, or a memory without neighbours would be behind; words add up.
            beside = summed / (1 + NEIGHBOUR_WEIGHT * count) if name == "dense" else summed
            least = MIN_RANGE if name == "dense" else MIN_RANGE * own.max(initial=0.0)
            found[name], found[f"{name}_beside"] = min_max_normalized(own, least), min_max_normalized(beside, least)
        return found

    def _with_neighbours(
        self, ids: Sequence[str], scores: Mapping[str, float]
    ) -> tuple[Column, Column, Column, Column]:
        pairs = [self.neighbours.get(uid, (None, None)) for uid in ids]
        before = [None if one is None else scores.get(one) for one, _ in pairs]
        after = [None if other is None else scores.get(other) for _, other in pairs]
        count = [(one is not None) + (other is not None) for one, other in pairs]
        return (
            np.array([scores.get(uid, 0.0) for uid in ids]),
            np.array([score or 0.0 for score in before]),
            np.array([score or 0.0 for score in after]),
            np.array(count, dtype=float),
        )

    def _words(self, ids: Sequence[str]) -> dict[str, Column]:
        if self.matches is None or not ids:
            return {}
        own = self.matches.matrix(ids)
        pairs = [self.neighbours.get(uid, (None, None)) for uid in ids]
        around = np.maximum(
            self.matches.matrix([before for before, _ in pairs]), self.matches.matrix([after for _, after in pairs])
        )
        tokens = min_max_normalized(own @ self.matches.weights, MIN_RANGE)
        return {
            "tokens": tokens,
            "tokens_beside": min_max_normalized(
                np.maximum(own, NEIGHBOUR_TOKEN_WEIGHT * around) @ self.matches.weights, MIN_RANGE
            ),
            "reply": self._replies(ids, dict(zip(ids, tokens.tolist(), strict=True))),
        }

    def _replies(self, ids: Sequence[str], tokens: Mapping[str, float]) -> Column:
        """How well the question before is matched, for what somebody else answered to it."""
        return np.array([self._reply(uid, tokens) for uid in ids])

    def _reply(self, uid: str, tokens: Mapping[str, float]) -> float:
        before = self.replies_to(uid)
        return 0.0 if before is None else tokens.get(before, 0.0)

    def replies_to(self, uid: str) -> str | None:
        """The memory just before one in its session, if somebody else asks something in it.

        An assistant replies to everything, so its replies are none.
        """
        if self.rows[uid].role == ASSISTANT:
            return None
        before = self.neighbours.get(uid, (None, None))[0]
        if before is None or not self.rows[before].answer_types & IS_QUESTION:
            return None
        return before if self.rows[before].speaker != self.rows[uid].speaker else None

    def _answers(self, ids: Sequence[str], asked: AnalyzedQuery) -> dict[str, Column]:
        rows = [self.rows[uid] for uid in ids]
        named = asked.speakers_named({row.speaker for row in rows})
        tells = int(asked.answer_types)
        dates = np.array([asked.temporal_proximity(row.at) for row in rows])
        return {
            # Two people named: it may be about either, and who speaks tells nothing.
            "speaker": np.array([float(len(named) == 1 and row.speaker in named) for row in rows]),
            "type": np.array([float(bool(row.answer_types & tells)) for row in rows]),
            "date": dates,
            # Without another word in the question all else is by chance.
            "only_date": (dates == 1.0) * float(asked.is_only_temporal),
            "asks": np.array([0.0 if self._is_request(row.id) else row.question_share for row in rows]),
            # Where the assistant said all there is, that tells nothing.
            "unasked": min_max_normalized(np.array([float(self._is_unasked(row, asked, named)) for row in rows])),
        }

    def _is_unasked(self, row: CandidateRow, asked: AnalyzedQuery, named: Collection[str]) -> bool:
        """Whether it is the assistant's, and the question asks for what others said."""
        return row.role == ASSISTANT and not asked.asks_assistant and row.speaker not in named

    def _is_request(self, uid: str) -> bool:
        """Whether an assistant speaks beside it: what asks an assistant for something tells facts on the way."""
        there = (one for one in self.neighbours.get(uid, (None, None)) if one is not None)
        return any(self.rows[one].role == ASSISTANT for one in there)
