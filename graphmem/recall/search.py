"""A search: ask the arms; walk from their best finds; hop once more; one table of candidates by features, one sum."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from graphmem.model import ALL_KINDS, MemoryRecord, MentionKind, Relation, Seeds, Subgraph, micros
from graphmem.providers.base import forms_of
from graphmem.recall import fuse, hop, parts, passages, relevance, signs, tokens
from graphmem.recall.asked import asked
from graphmem.recall.candidates import Candidates
from graphmem.recall.channels import DENSE, KEYWORD, READ, SPACES, Channels, Question, Read, Space, Stores
from graphmem.recall.explain import Because, Explainer
from graphmem.recall.features import Column, Table
from graphmem.recall.fold import Ranked, fold
from graphmem.recall.parts import Part
from graphmem.recall.recipe import FULL, Recipe, Weights
from graphmem.recall.walk import TAU, Reached, rarity, walk
from graphmem.stores.ledger import glimpses, memories, reading, statistics
from graphmem.text import asked_counts, term_counts, term_id
from graphmem.threads import one_thread

# What is kept of the arms' finds, and how many more the walk may add.
KEYWORD_CANDIDATES, CANDIDATES, WALKED = 100, 150, 100
# Memories of each stretch of time that a question names.
DATED = 50
# A path starts from what the question names, or from one of the best memories if it is not far behind the first.
STARTS, START_SHARE = 3, 0.25
# How many memories are asked when an event was that a question counts from, and how near to the best they must be.
EVENTS, SURE = 2, 0.8


@dataclass(frozen=True, slots=True)
class Hit:
    """A memory found. `score` orders this search's hits (0..1), `similarity` is the cosine with the question.

    `because` is None unless the question asked to explain. `sources` are mere sources that were found as well, and are
    folded into this fact, best first. `shared` is the weight of the question's words in it, `related` whether it has
    anything to do with the question: both only if the question asks for it (`relates`). `part` are the sentences of a
    memory of more than `parts` characters that match, if the question asks for them.
    """

    record: MemoryRecord
    score: float
    similarity: float
    because: Because | None
    sources: tuple[MemoryRecord, ...] = ()
    shared: float = 0.0
    related: bool = True
    part: Part | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """Hits, best first; the relations that they and their sources state; the arms that had to be left out.

    `named` are the keys of what the question names and memories mention. `understood`: whether the embedder reads the
    question's language, so that similarities tell something. `worded`: whether the question has a word that names
    something; whether a memory has to do with a question without any cannot be told.
    """

    hits: tuple[Hit, ...] = ()
    relations: tuple[Relation, ...] = ()
    degraded: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    understood: bool = True
    worded: bool = True

    @property
    def related(self) -> tuple[Hit, ...]:
        """The hits that have anything to do with the question; all of them where that cannot be told."""
        return tuple(hit for hit in self.hits if hit.related) if self.worded else self.hits


def search(question: Question, stores: Stores, recipe: Recipe = FULL) -> Answer:
    """Answers a question. An arm that fails is left out and named in `degraded`; StoreError only from the ledger."""
    one = _Search(question, stores, recipe)
    with one_thread():
        one.find_event()
        one.ask()
        with stores.ledger.read():
            one.look_closer()
            seeds = one.seeds() if recipe.walks else []
        # No snapshot is held while somebody else is waited for: the arms, a graph on a server.
        around = one.around(seeds)
        with stores.ledger.read():
            if recipe.walks:
                one.walk(seeds, around)
            if recipe.walks and not one.names_one():
                one.hop()
            return one.answer()


@dataclass(frozen=True, slots=True)
class _Seeded:
    """Where the walk in one space begins: the shares of its seeds, and the memories that ways may start from."""

    space: Space
    memories: Mapping[str, float]
    entities: Mapping[str, float]
    starts: Sequence[str]


@dataclass(frozen=True, slots=True)
class _Walked:
    """A walk in one space."""

    space: Space
    subgraph: Subgraph
    reached: Reached


class _Search:
    """One search as it goes on: each step adds candidates, or a column to what is known of them."""

    def __init__(self, question: Question, stores: Stores, recipe: Recipe) -> None:
        question = replace(question, text=question.text[:READ])
        self._question = question
        self._stores = stores
        self._recipe = recipe
        self._asked = asked(question.text, question.now or question.view.moment)
        self._channels = Channels(question, stores)
        self._arms: dict[str, Mapping[str, float]] = {}
        self._walks: list[_Walked] = []
        self._ids: list[str] = []

    def find_event(self) -> None:
        """When an event was that a question counts from ("a week after the wedding"): by a search of its own."""
        if self._asked.offset is not None:
            event = replace(self._question, text=self._asked.offset.anchor, limit=EVENTS, explain=False)
            found = search(event, self._stores, self._recipe)
            named = set(asked_counts(self._asked.offset.anchor))
            sure = (
                hit for hit in found.hits if hit.score >= SURE and named & set(term_counts(hit.record.embedded_text))
            )
            self._asked = self._asked.counted_from(micros(hit.record.at) for hit in sure)

    def ask(self) -> None:
        """The arms side by side."""
        self._found = self._channels.ask()

    def look_closer(self) -> None:
        """Confirms what the arms found; the best of it and of what stands beside it are the candidates."""
        read, spaces = self._found.read, self._found.spaces
        self._candidates = Candidates(self._question, self._stores.ledger, forms_of(self._stores.embedder), read.vector)
        evidence = self._candidates.evidence
        evidence.understood = read.understood
        dense, keyword = self._channels.dense, self._channels.keyword
        found = self._candidates.accepted(lambda n: dense(read.vector, n), self._found.dense, DENSE)
        words = self._candidates.accepted(lambda n: keyword(spaces, n), self._found.keyword, KEYWORD)
        evidence.keyword = words
        self._arms = {"dense": found, "keyword": words} if read.understood else {"keyword": words}
        self._spaces = self._channels.spaces(self._nearest(found if read.understood else words, spaces), read)
        first = fuse.merged(found, list(words)[:KEYWORD_CANDIDATES], self._dated()) or self._newest()
        self._candidates.learn(first)
        everything = self._candidates.around(first)
        self._candidates.learn(everything)
        self._ids = fuse.best(evidence.table(everything, self._asked), self._recipe.candidates, CANDIDATES)
        self._weigh_words(read)

    def _dated(self) -> list[str]:
        """What was said at the times that the question names, the newest of it."""
        with self._stores.ledger.read() as connection:
            return self._candidates.shown(
                [
                    uid
                    for start, end in self._asked.stretches
                    for uid in memories.said_between(connection, self._question.view, start, end, DATED)
                ]
            )

    def _newest(self) -> list[str]:
        """Without the vector index: what was said last. Its nearness is known all the same, from the ledger."""
        if "vectors" not in self._channels.degraded:
            return []
        with self._stores.ledger.read() as connection:
            newest = islice(memories.listing(connection, self._question.view, with_sources=True), CANDIDATES)
            return self._candidates.shown([record.id for record in newest])

    def _nearest(self, dense: Mapping[str, float], spaces: Sequence[str]) -> list[str]:
        """The spaces of the nearest memories; then, or without vectors, those written last."""
        glimpses = self._candidates.evidence.glimpses
        return fuse.merged((glimpses[uid].space for uid in dense), spaces)[:SPACES]

    def _weigh_words(self, read: Read) -> None:
        """How much each word of the question tells; by its signs where the embedder does not read them."""
        if not self._recipe.tokens or not self._spaces:
            return
        evidence, text = self._candidates.evidence, self._question.text
        if not read.understood:
            evidence.matches = signs.matches(text, *self._frequencies(asked_counts(text)))
        elif read.tokens is not None and read.tokens.words:
            words = read.tokens.words
            terms = [term for found in tokens.terms_of(words).values() for term in found]
            weights = tokens.weights(words, *self._frequencies(terms))
            evidence.matches = tokens.TokenMatches(weights, question=read.tokens.tokens)

    def _frequencies(self, terms: Iterable[int]) -> tuple[int, dict[int, int]]:
        """N of the first space, and how many of its memories hold each term."""
        with self._stores.ledger.read() as connection:
            return statistics.document_frequencies(connection, self._spaces[0].key, terms)

    def _table(self) -> Table:
        self._candidates.learn(self._ids)
        self._candidates.match(self._ids)
        table = self._candidates.evidence.table(self._ids, self._asked)
        for name in ("graph", "hop"):
            if name in self._arms:
                table.add(name, self._arms[name])
        return table

    def _bare(self) -> bool:
        """Whether token matches cannot be used: none asked for, or not there (see `rebuild`) for every candidate."""
        evidence = self._candidates.evidence
        return evidence.matches is None or not all(
            evidence.matches.holds(uid) for uid in self._ids if uid in evidence.similarity
        )

    def _seed_weights(self) -> Weights:
        return self._recipe.bare_seeds if self._bare() else self._recipe.seeds

    def seeds(self) -> list[_Seeded]:
        """In each space the best finds, and what the question names."""
        shares = fuse.seed_shares(self._table(), self._seed_weights())
        return [self._seeded(space, shares) for space in self._spaces]

    def _seeded(self, space: Space, shares: Mapping[str, float]) -> _Seeded:
        evidence = self._candidates.evidence
        mine = {uid: share for uid, share in shares.items() if evidence.glimpses[uid].space == space.key}
        told = {key: TAU[space.kinds[key]] * rarity(space.size, entity.mentions) for key, entity in space.named.items()}
        from_memories, from_entities = fuse.balanced(mine, {key: weight for key, weight in told.items() if weight > 0})
        least = -1.0 if self._question.threshold is None else self._question.threshold
        enough = START_SHARE * max(from_memories.values(), default=0.0)
        good = [uid for uid, share in from_memories.items() if share >= enough]
        starts = [uid for uid in good if evidence.similarity.get(uid, 0.0) >= least][:STARTS]
        return _Seeded(space, from_memories, from_entities, starts)

    def around(self, seeds: Sequence[_Seeded]) -> list[Subgraph]:
        """The graph around each space's seeds; nothing if it is out of reach."""
        return [
            self._channels.neighbourhood(
                replace(self._question.view, space=one.space.key),
                Seeds(entities=tuple(one.entities), memories=tuple(one.memories)),
            )
            for one in seeds
        ]

    def walk(self, seeds: Sequence[_Seeded], around: Sequence[Subgraph]) -> None:
        """From the seeds over the graph; what is reached best becomes a candidate."""
        for one, subgraph in zip(seeds, around, strict=True):
            reached = walk(subgraph, one.space.size, one.memories, one.entities, one.starts)
            self._walks.append(_Walked(one.space, subgraph, reached))
        graph = {uid: score for walked in self._walks for uid, score in walked.reached.scores.items()}
        self._arms["graph"] = graph
        self._ids = fuse.merged(self._ids, self._candidates.shown(fuse.top(graph, WALKED)))

    def names_one(self) -> bool:
        """Whether exactly one speaker is asked about: their own turns hold the answer, a hop only costs time."""
        glimpses = self._candidates.evidence.glimpses
        return len(self._asked.names({glimpses[uid].speaker for uid in self._ids})) == 1

    def hop(self) -> None:
        """Once more over the entities of the best: what adds to a good find what that one lacks."""
        table = self._table()
        shares = fuse.firsts(table, self._seed_weights(), hop.FIRSTS)
        links: dict[str, Mapping[str, float]] = {}
        for walked in self._walks:
            here = [uid for uid in shares if uid in walked.reached.scores]
            links |= hop.links(walked.subgraph, walked.space.size, here)
        looked_at = self._candidates.shown(hop.strongest(links, shares))
        self._candidates.learn(looked_at)
        self._candidates.match(looked_at)
        gained = hop.gains(links, shares, None if self._bare() else self._candidates.evidence.matches, looked_at)
        self._arms["hop"] = gained
        self._ids = fuse.merged(self._ids, fuse.top(gained, hop.BROUGHT))

    def answer(self) -> Answer:
        """The sum of all features, cut to what was asked for."""
        table = self._table()
        weights = self._recipe.bare_final if self._bare() else self._recipe.final
        if self._recipe.walks and not self._bare():
            self._weigh_passages(table, table.total(weights))
        totals = table.total(weights)
        scored = fuse.scores(totals)
        ranked = [Ranked(table.ids[i], float(scored[i])) for i in np.argsort(-totals, kind="stable")]
        evidence = self._candidates.evidence
        explainer = Explainer(self._arms, [walked.reached for walked in self._walks], table)
        shown = self._folded([one for one in ranked if self._is_near(one.id, explainer)])
        best = shown[: fuse.enough(scored) if self._question.limit is None else self._question.limit]
        chosen = [one.id for one in best]
        folded = [uid for one in best for uid in one.sources]
        with self._stores.ledger.read() as connection:
            explained = chosen if self._question.explain else []
            told = explainer.on_the_ways(explained, "memory")
            records = memories.records(connection, [*chosen, *told, *folded])
            spaces = [space.key for space in self._spaces]
            steps = explainer.on_the_ways(explained, "entity")
            names = reading.names_of(connection, self._question.view, spaces, steps)
            relations = reading.relations_stated_by(connection, self._question.view, [*chosen, *folded])
        matching = self._parts([records[uid] for uid in chosen if uid in records])
        hits = tuple(
            Hit(
                records[one.id],
                one.score,
                evidence.similarity.get(one.id, 0.0),
                explainer.because(one.id, records, names) if self._question.explain else None,
                tuple(records[uid] for uid in one.sources if uid in records),
                part=matching.get(one.id),
            )
            for one in best
            if one.id in records
        )
        words = relevance.words_asked(self._question.text)
        if self._question.relates:
            hits = self._related(hits, words, explainer)
        degraded = tuple(sorted(self._channels.degraded))
        return Answer(hits, tuple(relations), degraded, self._named(), self._found.read.understood, bool(words))

    def _related(self, hits: Sequence[Hit], asked: Sequence[str], explainer: Explainer) -> tuple[Hit, ...]:
        """The hits with what they share with the question.

        One is related if it shares a word or is not remote; if somebody else's question before it does or is; or if a
        short path leads to it from what the question names, or over an entity from what would be enough by itself.
        """
        if not hits:
            return ()
        evidence, named = self._candidates.evidence, set(self._named())
        before = {hit.record.id: evidence.replies_to(hit.record.id) for hit in hits}
        starts = {hit.record.id: explainer.near_start(hit.record.id) for hit in hits}
        others = {*filter(None, before.values()), *(name for kind, name in starts.values() if kind == "memory")}
        with self._stores.ledger.read() as connection:
            rows = {uid: evidence.glimpses[uid].row for uid in others}
            texts = glimpses.texts_of(connection, list(rows.values()))
        frequencies = self._frequencies(map(term_id, asked))
        words = relevance.weighed(asked, *frequencies, inflected=not evidence.understood)
        shared = {uid: words.shared([texts[row]]) for uid, row in rows.items() if row in texts}
        shared |= {
            hit.record.id: words.shared([one.embedded_text for one in (hit.record, *hit.sources)]) for hit in hits
        }

        def relates(uid: str) -> bool:
            near = evidence.understood and evidence.similarity.get(uid, 0.0) >= relevance.REMOTE
            return near or shared.get(uid, 0.0) > 0

        def leads_on(kind: str, name: str) -> bool:
            if kind == "entity":
                return name in named
            near = evidence.similarity.get(name, 0.0)
            return relevance.is_enough(shared.get(name, 0.0), near, understood=evidence.understood)

        return tuple(
            replace(
                hit,
                shared=shared[uid],
                related=relates(uid) or relates(before[uid] or "") or leads_on(*starts[uid]),
            )
            for hit in hits
            for uid in [hit.record.id]
        )

    def _parts(self, records: Sequence[MemoryRecord]) -> dict[str, Part]:
        """Of the memories that are longer than the question asks for, the sentences that match best."""
        least = self._question.parts
        long = [] if least is None else [one for one in records if len(one.text) > least]
        if not long:
            return {}
        windows = self._candidates.windows_of([record.row for record in long])
        finder = parts.Finder(self._question.text, self._candidates.evidence.matches, self._stores.embedder)
        found = ((record.id, finder.part(record, windows.get(record.row, ()))) for record in long)
        return {uid: part for uid, part in found if part}

    def _named(self) -> tuple[str, ...]:
        """Without common nouns that only end a relation: they name nothing in particular."""
        told = (key for space in self._spaces for key in space.named if space.kinds[key] < MentionKind.THING)
        return tuple(dict.fromkeys(told))

    def _folded(self, ranked: list[Ranked]) -> list[Ranked]:
        """Without the mere sources of facts that are found too, unless the caller chose among the kinds."""
        glimpses = self._candidates.evidence.glimpses
        sources = [glimpses[one.id].row for one in ranked if glimpses[one.id].source_only]
        if not sources or self._question.view.kinds != ALL_KINDS:
            return ranked
        with self._stores.ledger.read() as connection:
            return fold(ranked, memories.facts_of(connection, sources))

    def _weigh_passages(self, table: Table, totals: Column) -> None:
        """Two more columns, for passages: what good finds name, and what is only like the best of them."""
        evidence = self._candidates.evidence
        found = passages.among(evidence, table, totals)
        if not found:
            return
        shares = fuse.leading(table, totals, passages.FINDS)
        with self._stores.ledger.read() as connection:
            texts = glimpses.texts_of(connection, [evidence.glimpses[uid].row for uid in {*found, *shares}])
            said = {uid: texts[evidence.glimpses[uid].row] for uid in {*found, *shares}}
            titles = {uid: passages.title_terms(said[uid]) for uid in found}
            terms = {term for title in titles.values() for term in title}
        size, frequencies = self._frequencies(terms)
        finds = {uid: (share, frozenset(term_counts(said[uid]))) for uid, share in shares.items()}
        table.add("named", passages.named(evidence, finds, titles, size, frequencies))
        table.add("alike", passages.alike(evidence, next(iter(shares), ""), found))

    def _is_near(self, uid: str, explainer: Explainer) -> bool:
        """Whether a hit, or the memory that its path starts from, is as near as was asked for."""
        if self._question.threshold is None:
            return True
        similarity = self._candidates.evidence.similarity
        return (
            max(similarity.get(uid, 0.0), similarity.get(explainer.starts_from(uid), 0.0)) >= self._question.threshold
        )
