"""What somebody writes in an afternoon: SQLite FTS5 for words, numpy for vectors, joined by reciprocal ranks."""

from __future__ import annotations

import re
from collections import defaultdict

from dense_baseline import DenseBaseline
from systems import Place, Vectors

from graphmem.evaluation.datasets import BenchmarkQuestion

# Of each ranking; the constant is that of Cormack, Clarke and Büttcher, "Reciprocal Rank Fusion" (SIGIR 2009).
DEPTH, CONSTANT = 100, 60
TABLE = (
    "CREATE VIRTUAL TABLE words USING fts5(text, partition UNINDEXED, place UNINDEXED, tokenize = 'porter unicode61')"
)


class FtsBaseline(DenseBaseline):
    """The dense baseline with an FTS5 table beside it."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._rows.execute(TABLE)

    def _insert(self, partition: str, place: int, key: str, text: str, vector: Vectors) -> None:
        super()._insert(partition, place, key, text, vector)
        self._rows.execute("INSERT INTO words VALUES (?, ?, ?)", (text, partition, place))

    def search(self, case: BenchmarkQuestion, k: int) -> list[str]:
        ranks = defaultdict[int, float](float)
        for ranking in (self._nearest(case, DEPTH), self._by_words(case)):
            for rank, place in enumerate(ranking, 1):
                ranks[place] += 1 / (CONSTANT + rank)
        best = sorted(ranks, key=lambda place: -ranks[place])[:k]
        return [key for key, _ in self._read(case.partition, best)]

    def _by_words(self, case: BenchmarkQuestion) -> list[int]:
        """Returns the places of messages that share words with the question, by BM25."""
        words = " OR ".join(f'"{word}"' for word in re.findall(r"\w+", case.question))
        statement = "SELECT place FROM words WHERE words MATCH ? AND partition = ? ORDER BY rank LIMIT ?"
        return [place for (place,) in self._rows.execute(statement, (words, case.partition, DEPTH))] if words else []
