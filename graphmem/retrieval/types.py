"""Data types of a search: the query, the stores it reads, intermediate sets, hits and the outcome."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from datetime import datetime

from graphmem.boundary.filters import Filter
from graphmem.model import Entity, MemoryRecord, MentionKind, Relation, View
from graphmem.models.protocols import EmbeddedQuestion, Embedder, Extractor, Matrix
from graphmem.models.script_support import ScriptSupport
from graphmem.retrieval.explanation import Explanation
from graphmem.retrieval.sentence_matching import SentenceMatch
from graphmem.stores.ledger import Ledger
from graphmem.stores.projection_worker import ProjectionWorker
from graphmem.stores.protocols import Graph, VectorIndex

ScoredIds = list[tuple[str, float]]


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """A search as asked: `filter` is the metadata filter, `threshold` a least cosine; `explain` asks for reasons.

    `limit` None: as many as are not far behind the best. `now` is the moment it is asked from (None: the view's), for
    "last week" and the like. `with_relations` asks of each hit whether it has anything to do with the question; `parts`
    for the part that matches of those with more characters than that (None: of none).
    """

    text: str
    view: View
    limit: int | None
    filter: Filter | None = None
    threshold: float | None = None
    explain: bool = False
    now: datetime | None = None
    with_relations: bool = False
    parts: int | None = None


@dataclass(frozen=True, slots=True)
class SearchDeps:
    """What a search reads."""

    ledger: Ledger
    index: VectorIndex
    vectors: ProjectionWorker
    graph: Graph
    graph_copy: ProjectionWorker | None
    embedder: Embedder
    scripts: ScriptSupport
    extractor: Extractor | None
    pool: Executor


@dataclass(frozen=True, slots=True)
class SearchPartition:
    """A partition that is searched: n, and which of its entities the question names, with how much they are worth."""

    key: str
    size: int
    named_entities: Mapping[str, Entity]
    kinds: Mapping[str, MentionKind]


@dataclass(frozen=True, slots=True)
class EncodedQuery:
    """The question as the models see it: its vector and tokens, and the keys it names (in how telling a way).

    `is_supported_script`: whether the embedder reads the question's script; its tokens are left out if not.
    """

    vector: Matrix | None = None
    tokens: EmbeddedQuestion | None = None
    entity_keys: Mapping[str, MentionKind] = field(default_factory=dict)
    is_supported_script: bool = True


@dataclass(frozen=True, slots=True)
class RetrievedSet:
    """The question as read, the partitions to look into, and what the arms found there, unconfirmed."""

    encoded: EncodedQuery
    partitions: Sequence[str]
    dense: ScoredIds
    keyword: ScoredIds


@dataclass(frozen=True, slots=True)
class Hit:
    """A memory found. `score` orders this search's hits (0..1), `similarity` is the cosine with the question.

    `explanation` is None unless the question asked to explain. `sources` are mere sources that were found as well, and
    are folded into this fact, best first. `term_overlap` is the weight of the question's words in it, `is_related`
    whether it has anything to do with the question: both only if the question asks for it (`relates`). `sentence_match`
    are the sentences of a memory of more than `sentence_matching` characters that match, if the question asks for them.
    """

    record: MemoryRecord
    score: float
    similarity: float
    explanation: Explanation | None
    sources: tuple[MemoryRecord, ...] = ()
    term_overlap: float = 0.0
    is_related: bool = True
    sentence_match: SentenceMatch | None = None


@dataclass(frozen=True, slots=True)
class SearchOutcome:
    """Hits, best first; the relations that they and their sources state; the arms that had to be left out.

    `named` are the keys of what the question names and memories mention. `is_supported_script`: whether the embedder
    reads the question's language, so that similarities tell something. `has_query_terms`: whether the question has a
    word that names something; whether a memory has to do with a question without any cannot be told.
    """

    hits: tuple[Hit, ...] = ()
    relations: tuple[Relation, ...] = ()
    degraded: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    is_supported_script: bool = True
    has_query_terms: bool = True

    @property
    def related(self) -> tuple[Hit, ...]:
        """The hits that have anything to do with the question; all of them where that cannot be told."""
        return tuple(hit for hit in self.hits if hit.is_related) if self.has_query_terms else self.hits
