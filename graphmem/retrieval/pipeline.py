"""The story of a search: each step makes a value of the values before it, and none of them ever changes.

| step | value | module |
|---|---|---|
| `analyze_query` | `AnalyzedQuery`: the times, the kind of answer, the speakers | `query_analysis` |
| `encode` | `EncodedQuery`: the vectors and tokens of its words | `arms` |
| `retrieve` | `Retrieved`: what each arm found | `arms` |
| `choose_candidates` | `Candidates`: the best that is visible, and the evidence about it | `candidates` |
| `seeds`, `neighbourhoods`, `walk` | `Walked`: with what PageRank reached | `graph_walk` |
| `expand_second_hop` | `Walked`: with what shares a rare entity | `graph_walk` |
| `rank`, `rerank` | `Ranked`: the order, and the relevance of the best | `ranking`, `assessment` |
| `read_hits` | `SearchOutcome`: hits, explanations, relations, trace | `hits` |

`Evidence` (`features`) is all that is known of memories by id; only the `EvidenceReader` reads more of it, into a new
one. The columns of a `FeatureTable` are made of it, and weighed sums of these choose candidates, seeds and hits.
"""

from __future__ import annotations

from concurrent.futures import wait
from contextlib import nullcontext
from dataclasses import replace
from time import perf_counter
from unicodedata import normalize

from graphmem.concurrency import single_blas_thread
from graphmem.model import micros
from graphmem.retrieval.arms import encode, retrieve
from graphmem.retrieval.candidates import choose_candidates
from graphmem.retrieval.graph_walk import Walked, expand_second_hop, names_one_speaker, neighbourhoods, seeds, walk
from graphmem.retrieval.hits import read_hits
from graphmem.retrieval.query_analysis import AnalyzedQuery, analyze_query
from graphmem.retrieval.ranking import rank, rerank
from graphmem.retrieval.small_talk import is_small_talk
from graphmem.retrieval.types import SearchDeps, SearchOutcome, SearchQuery
from graphmem.retrieval.weights import FULL, SearchWeights
from graphmem.text import query_term_counts, term_counts

# Characters of a query that are read: more words would only make everything match a little.
MAX_READ_CHARS = 2_000
# Hits that may date the event from which the query counts, and the least score of such a hit.
EVENT_LIMIT, MIN_EVENT_SCORE = 2, 0.8


def search(query: SearchQuery, deps: SearchDeps, weights: SearchWeights = FULL) -> SearchOutcome:
    """Answers a query. An arm that fails is left out and named in `degraded`; StoreError only from the ledger.

    A greeting and the like asks nothing, so for a prompt nothing is searched.
    """
    if query.for_prompt and is_small_talk(query.text):
        return SearchOutcome()
    begin = perf_counter()
    with deps.load.searching():
        text = normalize("NFC", query.text[:MAX_READ_CHARS])  # a combining mark would end a word
        outcome = _answer(replace(query, text=text), deps, weights)
    deps.observers.searched(perf_counter() - begin, outcome.degraded)
    return outcome


def _answer(query: SearchQuery, deps: SearchDeps, weights: SearchWeights) -> SearchOutcome:
    with single_blas_thread():
        encoding = deps.pool.submit(encode, query.text, deps)
        analysis = analyze_query(query.text, query.now or query.view.moment)
        if analysis.offset is not None:
            analysis = _with_event(analysis, query, deps, weights)
        # No snapshot of the ledger is held while the search waits for something else: a model, an index, a graph.
        if not deps.asks_projections:
            wait([encoding])
        with nullcontext() if deps.asks_projections else deps.ledger.read():
            retrieved = retrieve(query, analysis, encoding, deps)
            with deps.ledger.read():
                candidates = choose_candidates(retrieved, deps, weights)
                seeded = seeds(candidates) if weights.uses_graph else []
            subgraphs = neighbourhoods(candidates, seeded, deps)
            with deps.ledger.read():
                walked = walk(candidates, seeded, subgraphs) if weights.uses_graph else Walked(candidates)
                if weights.uses_graph and not names_one_speaker(walked.candidates):
                    walked = expand_second_hop(walked)
                ranked = rank(walked, deps)
                if deps.reranker is None or not query.rerank:
                    return read_hits(ranked, deps)
    # Nor is it, or the limit of threads, while a reranker works.
    ranked = rerank(ranked, deps.reranker, deps)
    with single_blas_thread(), deps.ledger.read():
        return read_hits(ranked, deps)


def _with_event(analysis: AnalyzedQuery, query: SearchQuery, deps: SearchDeps, weights: SearchWeights) -> AnalyzedQuery:
    """Finds the time of the event from which the query counts ("a week after the wedding") by a search of its own.

    Its period is added to those that the query names. Only hits that share a word with the event's name count.
    """
    if analysis.offset is None:
        return analysis
    event = replace(
        query,
        text=analysis.offset.anchor,
        limit=EVENT_LIMIT,
        explain=False,
        min_relevance=None,
        traced=None,
        rerank=False,
    )
    terms = set(query_term_counts(event.text))
    return analysis.resolve_offset(
        micros(hit.record.at)
        for hit in _answer(event, deps, weights).hits
        if hit.score >= MIN_EVENT_SCORE and terms & set(term_counts(hit.record.embedded_text))
    )
