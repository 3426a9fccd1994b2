"""The arms: what each finds on its own, confirmed by the ledger. An arm that fails is left out and named."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeVar

from sqlalchemy import Connection

from graphmem.errors import ModelError, StoreError
from graphmem.filters import Filter
from graphmem.model import Entity, Limits, Mention, MentionKind, Seeds, Subgraph, View
from graphmem.providers.base import EmbeddedQuestion, Embedder, Extractor, Matrix, TokenEmbedder
from graphmem.providers.scripts import Scripts
from graphmem.stores.base import Graph, VectorIndex
from graphmem.stores.courier import Courier
from graphmem.stores.ledger import Ledger, aliases, memories, statistics
from graphmem.text import asked_counts, idf, key_candidates

T = TypeVar("T")
Finds = list[tuple[str, float]]

# Characters of a question that are read: what comes after would only make everything match a little.
READ = 2_000
# How many memories the arms find (README, "Why it is built so").
DENSE, KEYWORD = 100, 200
# A search by agent or run alone walks in the spaces of its best hits, each for itself.
SPACES = 5
# Spaces that such a search looks into at all, those written last first.
SPACES_ASKED = 1000
# Seconds that a search waits for a server's projection to take what was committed before it asks what there is.
BEHIND = 0.3


@dataclass(frozen=True, slots=True)
class Stores:
    """What a search reads."""

    ledger: Ledger
    index: VectorIndex
    vectors: Courier
    graph: Graph
    graph_copy: Courier | None
    embedder: Embedder
    scripts: Scripts
    extractor: Extractor | None
    pool: Executor


@dataclass(frozen=True, slots=True)
class Question:
    """A search as asked: `only` is the metadata filter, `threshold` a least cosine; `explain` asks for reasons.

    `limit` None: as many as are not far behind the best. `now` is the moment it is asked from (None: the view's), for
    "last week" and the like. `relates` asks of each hit whether it has anything to do with the question; `parts` for
    the part that matches of those with more characters than that (None: of none).
    """

    text: str
    view: View
    limit: int | None
    only: Filter | None = None
    threshold: float | None = None
    explain: bool = False
    now: datetime | None = None
    relates: bool = False
    parts: int | None = None


@dataclass(frozen=True, slots=True)
class Space:
    """A space that is searched: n, and which of its entities the question names, with how much they are worth."""

    key: str
    size: int
    named: Mapping[str, Entity]
    kinds: Mapping[str, MentionKind]


@dataclass(frozen=True, slots=True)
class Read:
    """The question as the models see it: its vector and tokens, and the keys it names (in how telling a way).

    `understood`: whether the embedder reads the question's script; its tokens are left out if not.
    """

    vector: Matrix | None = None
    tokens: EmbeddedQuestion | None = None
    keys: Mapping[str, MentionKind] = field(default_factory=dict)
    understood: bool = True


@dataclass(frozen=True, slots=True)
class Found:
    """The question as read, the spaces to look into, and what the arms found there, unconfirmed."""

    read: Read
    spaces: Sequence[str]
    dense: Finds
    keyword: Finds


class Channels:
    """One question's arms. `degraded` are those that failed."""

    def __init__(self, question: Question, stores: Stores) -> None:
        self._question = question
        self._stores = stores
        self.degraded: set[str] = set()

    def ask(self) -> Found:
        """Encodes and parses the question and asks the arms, each as soon as there is what it needs."""
        pool = self._stores.pool
        encoding, parsing = pool.submit(self._encoded), pool.submit(self._parsed)
        spaces = self._ready()
        keyword = pool.submit(self.keyword, spaces, KEYWORD)
        read = encoding.result()
        dense = self.dense(read.vector, DENSE)
        return Found(replace(read, keys=parsing.result()), spaces, dense, keyword.result())

    def guarded(self, arm: str, act: Callable[[], T], otherwise: T) -> T:
        """The one place where a search goes on without something."""
        try:
            return act()
        except (StoreError, ModelError):
            self.degraded.add(arm)
            return otherwise

    def _ready(self) -> list[str]:
        """The spaces to look into, their projections up to date with what any process has committed."""
        stores, own = self._stores, self._question.view.space
        spaces = self._spanned() if own is None else [own]
        for courier in filter(None, (stores.vectors, stores.graph_copy)):
            self._catch_up(courier, spaces)
        return spaces

    def _spanned(self) -> list[str]:
        with self._stores.ledger.read() as connection:
            return memories.spaces_of(connection, self._question.view, SPACES_ASKED)

    def _catch_up(self, courier: Courier, spaces: Sequence[str]) -> None:
        """What is not there yet cannot be found: a projection that is behind counts as one that is left out."""
        if not self.guarded(courier.name, lambda: courier.catch_up(spaces, BEHIND), otherwise=False):
            self.degraded.add(courier.name)

    def _encoded(self) -> Read:
        """The question as the embedder sees it."""
        embedder, text = self._stores.embedder, self._question.text

        def encoded() -> Read:
            understood = self._stores.scripts.reads(text)
            if understood and isinstance(embedder, TokenEmbedder):
                tokens = embedder.embed_question(text)
                return Read(tokens.vector, tokens)
            return Read(embedder.embed_query(text), understood=understood)

        return self.guarded("vectors", encoded, Read())

    def _parsed(self) -> dict[str, MentionKind]:
        """Keys as the extractor sees them; of a question all in lower case, which it cannot read, any run of words."""
        text, extractor = self._question.text, self._stores.extractor
        seen: list[Mention] = []
        if extractor is not None:
            seen = self.guarded("extractor", lambda: extractor.keys(text), seen)
        found = {mention.key: mention.kind for mention in seen}
        if found and not text[1:].islower():
            return found
        return {**dict.fromkeys(key_candidates(text), MentionKind.NAME), **found}

    def dense(self, vector: Matrix | None, limit: int) -> Finds:
        """The nearest memories, unconfirmed."""
        stores, view = self._stores, self._question.view
        if vector is None:
            return []
        return self.guarded("vectors", lambda: stores.vectors.ask(lambda: stores.index.dense(view, vector, limit)), [])

    def keyword(self, spaces: Sequence[str], limit: int) -> Finds:
        """The memories that share words, unconfirmed. Each space has its own idf: no tenant weighs on another's."""

        def asked() -> Finds:
            found = [pair for space in spaces for pair in self._words(space, limit)]
            return sorted(found, key=lambda pair: -pair[1])

        nothing: Finds = []
        return self.guarded("vectors", lambda: self._stores.vectors.ask(asked), nothing)

    def neighbourhood(self, view: View, seeds: Seeds) -> Subgraph:
        """The graph around some seeds; nothing if it is out of reach."""
        graph, copy = self._stores.graph, self._stores.graph_copy
        ask: Callable[[], Subgraph] = lambda: graph.neighbourhood(view, seeds, Limits())  # noqa: E731
        return self.guarded("graph", ask if copy is None else lambda: copy.ask(ask), Subgraph())

    def _words(self, space: str, limit: int) -> Finds:
        counts = asked_counts(self._question.text)
        with self._stores.ledger.read() as connection:
            size, frequencies = statistics.document_frequencies(connection, space, counts)
        weights = {term: idf(size, frequencies[term]) for term in counts if term in frequencies}
        view = replace(self._question.view, space=space)
        return self._stores.index.sparse(view, weights, limit) if weights else []

    def spaces(self, keys: Sequence[str], read: Read) -> tuple[Space, ...]:
        """The spaces to walk in, with what the question names there."""
        with self._stores.ledger.read() as connection:
            own = self._question.view.scope.space
            return tuple(_space(connection, key, read.keys, own) for key in keys[:SPACES])


def _space(connection: Connection, key: str, asked: Mapping[str, MentionKind], own: str) -> Space:
    """A space with what the question names there; what has several names is named by each of them.

    Only in the scope's own space: what a user says of names is nothing for a view by agent or run.
    """
    row, size = memories.sized_space(connection, key)
    named = aliases.known(connection, row, asked)
    meant = aliases.meant_with(connection, row, named) if key == own else {}
    if meant:
        named |= aliases.known(connection, row, meant)
    kinds = {other: asked[of] for other, of in meant.items()}
    return Space(key, size, named, {**kinds, **asked})
