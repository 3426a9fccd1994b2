"""A search: ask the arms; walk from their best finds; one table of candidates by features, one sum; hits with paths."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from graphmem.model import Limits, MemoryRecord, Relation, Seeds
from graphmem.recall import explain, features, fuse
from graphmem.recall.channels import Channels, Found, Question, Space, Stores
from graphmem.recall.walk import Reached, rarity, walk
from graphmem.stores.ledger import reading, statistics

# What is kept of the arms' finds, and how many more the walk may add.
# A path may start from this many memories, besides the entities that the question names.
STARTS = 3
KEYWORD_CANDIDATES, CANDIDATES, WALKED = 100, 150, 100


@dataclass(frozen=True, slots=True)
class Hit:
    """A memory found. `score` orders this search's hits (0..1), `similarity` is the cosine with the question."""

    record: MemoryRecord
    score: float
    similarity: float
    because: explain.Because


@dataclass(frozen=True, slots=True)
class Answer:
    """Hits, best first; the relations they state; the arms that had to be left out."""

    hits: tuple[Hit, ...] = ()
    relations: tuple[Relation, ...] = ()
    degraded: tuple[str, ...] = ()


def search(question: Question, stores: Stores) -> Answer:
    """Answers a question. An arm that fails is left out and named in `degraded`; StoreError only from the ledger."""
    channels = Channels(question, stores)
    found = channels.ask()
    tables = _Tables(question, stores, channels, found)
    first = [*found.dense, *list(found.keyword)[:KEYWORD_CANDIDATES]]
    candidates = fuse.best(tables.make(first, with_neighbours=True), fuse.CANDIDATE, CANDIDATES)
    shares = fuse.seed_shares(tables.make(candidates))
    walks = [tables.walk(space, shares) for space in found.spaces]
    graph = {uid: score for reached in walks for uid, score in reached.scores.items()}
    table = tables.make([*candidates, *_top(graph, WALKED)])
    table.add("graph", graph, scaled=True)
    explainer = explain.Explainer(found, walks, table, channels.records)
    hits = _hits(table, question, tables.similarity, explainer, channels.records)
    with stores.ledger.read() as connection:
        relations = reading.relations_stated_by(connection, question.view, [hit.record.id for hit in hits])
    return Answer(tuple(hits), tuple(relations), tuple(sorted(channels.degraded)))


class _Tables:
    """Makes the table of candidates: as features see them now, without the walk's column."""

    def __init__(self, question: Question, stores: Stores, channels: Channels, found: Found) -> None:
        self._question = question
        self._stores = stores
        self._channels = channels
        self._found = found
        self.similarity: dict[str, float] = {}
        self._beside: dict[str, Sequence[str]] = {}

    def make(self, ids: Iterable[str], *, with_neighbours: bool = False) -> features.Table:
        """A row for each of these memories (and their neighbours) that the search may show."""
        wanted = list(dict.fromkeys(ids))
        around = self._learn(wanted)
        shown = self._channels.confirmed(around if with_neighbours else wanted)
        table = features.Table(tuple(sorted(shown)))
        for name, scores in (("dense", self.similarity), ("keyword", self._found.keyword)):
            here = {uid: scores.get(uid, 0.0) for uid in around}
            table.add(name, here)
            table.add(f"{name}_beside", features.smoothed(here, self._beside))
        speakers = {uid: self._channels.records[uid].speaker for uid in table.ids}
        table.add("speaker", features.spoken_by_named(self._question.text, speakers), scaled=True)
        return table

    def _learn(self, ids: Sequence[str]) -> list[str]:
        """Who is beside these, and how near they all are; returns them with their neighbours. Nothing is read twice."""
        new = [uid for uid in ids if uid not in self._beside]
        self._beside |= dict.fromkeys(new, ())
        with self._stores.ledger.read() as connection:
            pairs = reading.next_pairs(connection, self._question.view, new)
        found = features.neighbours(pairs)
        self._beside |= {uid: found[uid] for uid in new if uid in found}
        around = list(dict.fromkeys([*ids, *(other for uid in ids for other in self._beside[uid])]))
        self._compare([uid for uid in around if uid not in self.similarity])
        return around

    def _compare(self, ids: Sequence[str]) -> None:
        """Exact cosines from the ledger's own vectors, whatever arm brought the candidates."""
        if self._found.vector is None or not ids:
            return
        with self._stores.ledger.read() as connection:
            vectors = statistics.vectors_of(connection, self._stores.embedder.model, ids)
        self.similarity.update({uid: float((rows @ self._found.vector).max()) for uid, rows in vectors.items()})

    def walk(self, space: Space, shares: Mapping[str, float]) -> Reached:
        """Walks in one space from the seeds that lie there; nothing if the graph is out of reach."""
        question, channels = self._question, self._channels
        mine = {uid: share for uid, share in shares.items() if channels.records[uid].space == space.key}
        weights = {key: rarity(space.size, entity.mentions) for key, entity in space.named.items()}
        from_memories, from_entities = fuse.balanced(mine, {key: w for key, w in weights.items() if w > 0})
        seeds = Seeds(entities=tuple(from_entities), memories=tuple(from_memories))
        least = -1.0 if question.threshold is None else question.threshold
        starts = [uid for uid in from_memories if self.similarity.get(uid, 0.0) >= least][:STARTS]
        view = replace(question.view, space=space.key)

        def walked() -> Reached:
            subgraph = self._stores.graph.neighbourhood(view, seeds, Limits())
            return walk(subgraph, space.size, from_memories, from_entities, starts)

        return channels.guarded("graph", walked, Reached({}))


def _top(scores: Mapping[str, float], limit: int) -> list[str]:
    return sorted(scores, key=lambda uid: (-scores[uid], uid))[:limit]


def _hits(
    table: features.Table,
    question: Question,
    similarity: Mapping[str, float],
    explainer: explain.Explainer,
    records: Mapping[str, MemoryRecord],
) -> list[Hit]:
    scored = dict(zip(table.ids, fuse.scores(table.total(fuse.FINAL)).tolist(), strict=True))
    hits: list[Hit] = []
    for uid in _top(scored, len(scored)):
        because = explainer.because(uid)
        near = max(similarity.get(uid, 0.0), similarity.get(because.starts_from, 0.0))
        if question.threshold is None or near >= question.threshold:
            hits.append(Hit(records[uid], scored[uid], similarity.get(uid, 0.0), because))
        if len(hits) == question.limit:
            break
    return hits
