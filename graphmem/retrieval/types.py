"""Data types of a search: the query, the stores it reads, the sets between its steps, hits and the outcome."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from graphmem.boundary.filters import Filter
from graphmem.model import EmbeddingSpec, Entity, MemoryRecord, MentionKind, MinRelevance, Relation, View
from graphmem.models.script_support import ScriptSupport
from graphmem.observers import Observers
from graphmem.plugins import EmbeddedQuestion, Embedder, Graph, Matrix, VectorSearch
from graphmem.stores.ledger import Ledger
from graphmem.stores.projection_worker import ProjectionWorker

if TYPE_CHECKING:  # this module is imported by all that can search, the steps of a search by those that do
    from graphmem.concurrency import SearchLoad
    from graphmem.retrieval.context.sentence_values import Sentence
    from graphmem.retrieval.explanation import Explanation, Trace
    from graphmem.retrieval.reordering import BoundedReranker
    from graphmem.retrieval.sentence_matching import SentenceMatch

ScoredIds = list[tuple[str, float]]


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """A search: the query's text, the view and the options.

    `limit`: the number of hits; None for at most `scoring.AUTO_MAX`, which goes with a `min_relevance`.
    `filter`: the metadata filter. `accepted`: takes ids, returns those that may be hits. `threshold`: the
    least cosine of a hit or of the memory at which its path starts. `explain`: gives each hit its explanation. `now`:
    the moment from which "last week" and the like are counted, in the asker's time zone (None: the view's, in UTC).
    `min_relevance`: the least relevance of a hit (None: none; "default": by the partition's size,
    `relevance.default_floor`). `for_prompt`: leaves out requests to an assistant and relations, and replaces stored
    repetitions of the query by the replies to them.
    `traced`: the id of a memory of which the outcome tells where the search left it (`explanation.Trace`). `rerank`:
    lets the reranker order the best memories.
    `select` returns those of the best `limit` hits that are wanted (None: all): matching sentences, which take as long
    as the rest of a search, are computed for these only.
    """

    text: str
    view: View
    limit: int | None
    filter: Filter | None = None
    accepted: Callable[[Connection, Sequence[str]], set[str]] | None = None
    threshold: float | None = None
    explain: bool = False
    now: datetime | None = None
    min_relevance: MinRelevance = None
    for_prompt: bool = False
    traced: str | None = None
    rerank: bool = False
    select: Callable[[tuple[Hit, ...]], tuple[Hit, ...]] | None = None


@dataclass(frozen=True, slots=True)
class SearchDeps:
    """The stores, projection workers and models that a search reads, its thread pool and observers; `load` counts it.

    `spec` says what `embedder` makes of a text.
    `vector_worker` delivers to `vector_index`, `graph_worker` to `graph`; each is None if that is read from the ledger.
    `reranker` is None if there is none, and then no query may have `rerank`.
    """

    ledger: Ledger
    vector_index: VectorSearch
    vector_worker: ProjectionWorker | None
    graph: Graph
    graph_worker: ProjectionWorker | None
    embedder: Embedder
    spec: EmbeddingSpec
    scripts: ScriptSupport
    pool: Executor
    observers: Observers
    load: SearchLoad
    reranker: BoundedReranker | None = None

    @property
    def asks_projections(self) -> bool:
        """Whether a search may have to wait for a vector index or a graph beside the ledger."""
        return self.vector_worker is not None or self.graph_worker is not None


@dataclass(frozen=True, slots=True)
class SearchPartition:
    """A partition whose graph is searched: its number of memories, and the entities that the query names in it.

    `size` counts all memories, as the frequencies of words and entities do, `kept` those that are not forgotten.
    `named_entities` and `kinds`, how the query mentions each, are by key. `keys` are all keys that the query may name.
    """

    key: str
    size: int
    kept: int
    named_entities: Mapping[str, Entity]
    kinds: Mapping[str, MentionKind]
    keys: Collection[str]


@dataclass(frozen=True, slots=True)
class EncodedQuery:
    """The query as the models read it: its vectors and its tokens.

    `is_supported_script`: whether the embedder reads the query's script; if it does not, `tokens` is None.
    `multilingual` is the vector in the multilingual space, None without such a space; with one, a query that the
    embedder does not read has no `vector`. `ranking` is the vector there that memories are compared with to rank them.
    """

    vector: Matrix | None = None
    tokens: EmbeddedQuestion | None = None
    is_supported_script: bool = True
    multilingual: Matrix | None = None
    ranking: Matrix | None = None

    @property
    def is_multilingual(self) -> bool:
        """Whether memories are compared with the query in the multilingual space alone."""
        return self.vector is None and self.multilingual is not None

    @property
    def is_read(self) -> bool:
        """Whether the embedder reads the query, and memories are compared with it there."""
        return self.is_supported_script and not self.is_multilingual

    @property
    def compares_vectors(self) -> bool:
        """Whether cosines mean something: the embedder reads the script, or there is a multilingual space."""
        return self.is_supported_script or self.is_multilingual


@dataclass(frozen=True, slots=True)
class Hit:
    """A memory in a search's result.

    `score` (0..1) orders the hits of this search; `similarity` is the cosine of query and memory; `relevance` is the
    probability that the memory helps to answer. `explanation` is None unless the query has `explain`. `sources`: source
    messages that were found as well and are grouped under this fact, best first. `sentence_match`: which sentences of
    the memory match; None unless the query has `explain` (long memories) or is `for_prompt` (several sentences). With
    `for_prompt`, `sentences` are those for a prompt, `question` the words of somebody else to which the memory replies,
    and `token_match` its token matches, 0 to 1.
    """

    record: MemoryRecord
    score: float
    similarity: float
    relevance: float
    explanation: Explanation | None
    sources: tuple[MemoryRecord, ...] = ()
    sentence_match: SentenceMatch | None = None
    question: str = ""
    token_match: float = 0.0
    sentences: tuple[Sentence, ...] = ()


@dataclass(frozen=True, slots=True)
class SearchOutcome:
    """Hits, best first; the relations that they and their sources state, unless they are for a prompt.

    `degraded`: the names of the arms, stores and models that failed and were left out. `named`: keys of the entities
    that the query names and memories mention. `best_relevance`: the highest of what was found, also if it is below the
    query's `min_relevance`; None if nothing was found. `trace`: of the memory that the query has as `traced`.
    """

    hits: tuple[Hit, ...] = ()
    relations: tuple[Relation, ...] = ()
    degraded: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    best_relevance: float | None = None
    trace: Trace | None = None
