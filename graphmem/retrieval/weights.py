"""The weights of the features and the switches of a search, as data. All weighing is done with these numbers.

The weights were fitted on chats among people, chats with an assistant and passages together
(docs/decisions/0017-one-sum-of-features.md and benchmarks/ABLATIONS.md). A feature without a column (no tokens, no
graph, a script that the embedder does not read) is ignored.

Many weights give about this recall. These were chosen because small changes to them alter it least: with each
multiplied by a random factor (lognormal, sigma .3), recall falls by less than a point on the average of every set.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

# {feature: weight}. The features are the columns of `features.Evidence.table`, `graph` and `hop` (PageRank and second
# hop), `named` and `alike` (passages).
Weights = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class SearchWeights:
    """The weights of each stage of a search.

    `candidates` choose among the arms' memories, `seeds` the seeds of PageRank, `final` the hits. Those that end in
    `_without_tokens` replace them without token matches. `tokens`, `uses_graph` and `heeds_relevance` switch token
    matches, the graph, and relevance in the order of the first hits. `multilingual` has weights, by stage, that replace
    these for a query that is compared in the multilingual space.
    """

    candidates: Weights
    seeds: Weights
    final: Weights
    seeds_without_tokens: Weights
    final_without_tokens: Weights
    tokens: bool = True
    uses_graph: bool = True
    heeds_relevance: bool = True
    multilingual: Mapping[str, Weights] = field(default_factory=dict)

    def for_multilingual_query(self) -> SearchWeights:
        """Returns the weights for a query that is compared with memories in the multilingual space."""
        changed: dict[str, Any] = {
            stage: {**getattr(self, stage), **weights} for stage, weights in self.multilingual.items()
        }
        return replace(self, **changed)


# The weight of the keyword arm in a final score for a query of keywords ("Wałęsa", "gate code"). Whoever names a thing
# so briefly looks for these words; nearness in meaning tells little.
KEYWORD_QUERY_WEIGHT = 3.0

FULL = SearchWeights(
    candidates={"dense": 1.0, "dense_beside": 1.0, "keyword": 1.0, "keyword_beside": 0.5, "speaker": 0.3, "date": 0.3,
                "only_date": 9.0},
    seeds={
        "tokens": 1.0, "tokens_beside": 1.0, "dense": 0.4, "dense_beside": 0.7, "keyword_beside": 0.5,
        "speaker": 1.0, "type": 0.5, "date": 1.3, "question_share": -0.4, "reply": 0.6,
        "unasked": -0.5,
    },
    final={
        # Token matches, above all the neighbours', weigh most; the memory's own cosine and BM25 a little.
        "tokens": 1.1, "tokens_beside": 2.3, "dense": 1.4, "dense_beside": 1.2, "keyword": 0.2, "keyword_beside": 0.2,
        # The speaker, the kind of answer and the time that the query names (the time first of all if it names nothing
        # else); a question answers nothing, a reply to a question may.
        "speaker": 2.4, "type": 1.0, "date": 3.2, "only_date": 9.0, "question_share": -1.5, "reply": 0.9,
        # An assistant's messages: the user said four fifths of all that is asked for in chats with an assistant, unless
        # the query asks what "you" said.
        "unasked": -2.8,
        # PageRank and second hop; passages that a top hit names, and passages that only look like the best hit.
        "graph": 4.0, "hop": 0.7, "named": 2.4, "alike": -1.7,
    },
    seeds_without_tokens={
        "dense": 1.0, "dense_beside": 1.0, "keyword": 0.7, "keyword_beside": 0.7,
        "speaker": 1.0, "type": 0.5, "date": 1.3, "question_share": -0.4, "unasked": -0.5,
    },
    final_without_tokens={
        # As `final`, with more weight on cosines in place of token matches.
        "dense": 2.2, "dense_beside": 1.9, "keyword": 0.7, "keyword_beside": 0.8,
        "speaker": 2.4, "type": 1.2, "date": 3.2, "only_date": 9.0, "question_share": -1.2, "unasked": -3.6,
        "graph": 4.2, "hop": 0.5,
    },
    multilingual={
        # Such a query has matches of characters and words in place of tokens. Beside a vector that reads the language
        # they say less, and those of the neighbours do harm.
        "candidates": {"dense": 2.0, "dense_beside": 1.0},
        "seeds": {"dense": 2.0, "dense_beside": 1.0},
        "seeds_without_tokens": {"dense": 2.0, "dense_beside": 1.0},
        "final": {"dense": 8.0, "dense_beside": 1.5, "tokens": 0.5, "tokens_beside": 0.0},
        "final_without_tokens": {"dense": 8.0, "dense_beside": 1.5},
    },
)  # fmt: skip


def _flat(**final: float) -> SearchWeights:
    """Returns weights that sum these features and nothing else: no neighbours, no graph, no relevance in the order.

    Candidates are chosen by the arms among the features, as in `FULL` if there is none.
    """
    arm_weights = {name: weight for name, weight in final.items() if name in {"dense", "keyword"}}
    return replace(
        FULL,
        candidates=arm_weights or FULL.candidates,
        final=final,
        final_without_tokens=final,
        uses_graph=False,
        heeds_relevance=False,
        multilingual={},
    )


# For `graphmem bench`: each arm alone; two arms; fitted weights of all features of a memory by itself ("flat"); these
# and its neighbours in the session, with relevance ("order"); everything without token matrices ("bare"); everything.
CONFIGURATIONS: Mapping[str, SearchWeights] = {
    "dense": _flat(dense=1.0),
    "keyword": _flat(keyword=1.0),
    "tokens": _flat(tokens=1.0),
    "hybrid": _flat(dense=1.0, keyword=0.8),
    "flat": _flat(
        tokens=1.0,
        dense=0.35,
        keyword=0.33,
        speaker=0.34,
        type=0.17,
        date=0.6,
        question_share=-0.34,
        unasked=-0.8,
    ),
    "order": replace(FULL, uses_graph=False),
    "bare": replace(FULL, tokens=False),
    "full": FULL,
}
