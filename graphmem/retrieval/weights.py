"""The recipe as data: which arms take part, and how much each feature weighs. The only place where they are weighed.

The figures are those of a measured recipe, fitted for chats among people and with an assistant and for passages
together (README, "Why it is built so", and `benchmarks/ABLATIONS.md`); a feature that is not there (no tokens, no
graph, a language that the embedder does not read) counts nothing.

Of the weights that find about equally much those stand here around which it is flattest: each multiplied with a random
factor (lognormal, sigma 0.3), recall falls by less than a point on the average of every set.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

Weights = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class SearchWeights:
    """`candidates`: which of the arms' finds are looked at more closely; `seeds`: where the walk starts; `final`: what
    is shown. The `bare_` ones are used without token matrices.
    """

    candidates: Weights
    seeds: Weights
    final: Weights
    seeds_without_tokens: Weights
    final_without_tokens: Weights
    tokens: bool = True
    uses_graph: bool = True


FULL = SearchWeights(
    candidates={"dense": 1.0, "dense_beside": 1.0, "keyword": 1.0, "keyword_beside": 0.5, "speaker": 0.3, "date": 0.3,
                "only_date": 9.0},
    seeds={
        "tokens": 1.0, "tokens_beside": 1.0, "dense": 0.4, "dense_beside": 0.7, "keyword_beside": 0.5,
        "speaker": 1.0, "type": 0.5, "date": 1.3, "asks": -0.4, "reply": 0.6,
        "unasked": -0.5,
    },
    final={
        # Near words, the neighbours' among them, tell most; the vector and shared words of the memory itself a little.
        "tokens": 1.1, "tokens_beside": 2.3, "dense": 1.4, "dense_beside": 1.2, "keyword": 0.2, "keyword_beside": 0.2,
        # Who is asked about, what kind of answer, when (before all else, if that is all); who asks something answers
        # nothing, and who replies to it may.
        "speaker": 2.4, "type": 1.0, "date": 3.2, "only_date": 9.0, "asks": -1.5, "reply": 0.9,
        # Of chats with an assistant four fifths of what is asked for the user said, unless "you" are asked about.
        "unasked": -2.8,
        # What the walk and the second hop reach; of passages what a find names, and what only looks like the best.
        "graph": 4.0, "hop": 0.7, "named": 2.4, "alike": -1.7,
    },
    seeds_without_tokens={
        "dense": 1.0, "dense_beside": 1.0, "keyword": 0.7, "keyword_beside": 0.7,
        "speaker": 1.0, "type": 0.5, "date": 1.3, "asks": -0.4, "unasked": -0.5,
    },
    final_without_tokens={
        # As `final`, where cosines have to tell what near words do.
        "dense": 2.2, "dense_beside": 1.9, "keyword": 0.7, "keyword_beside": 0.8,
        "speaker": 2.4, "type": 1.2, "date": 3.2, "only_date": 9.0, "asks": -1.2, "unasked": -3.6,
        "graph": 4.2, "hop": 0.5,
    },
)  # fmt: skip


def _flat(**final: float) -> SearchWeights:
    """Arms side by side and summed, without order or graph."""
    arms = {name: weight for name, weight in final.items() if name in {"dense", "keyword"}}
    return replace(FULL, candidates=arms or FULL.candidates, final=final, final_without_tokens=final, uses_graph=False)


# For measuring (`graphmem bench`): the arms alone; two of them; all of them with what else is known of a memory by
# itself, the weights fitted; these with the neighbours in the session; the whole without token matrices; the whole.
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
        asks=-0.34,
        unasked=-0.8,
    ),
    "order": replace(FULL, uses_graph=False),
    "bare": replace(FULL, tokens=False),
    "full": FULL,
}
