"""Where the time of a search goes: milliseconds for each phase, over the questions of a LOCOMO file in one partition.

    python benchmarks/phases.py locomo10.json --memories 10000 > benchmarks/results/phases-10k.json

Phases are the search's own steps with a clock around them; a name with a colon is a part of the phase before the colon.
Encoding and the keyword arm run at the same time.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict
from functools import wraps
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from latency import enlarge

from graphmem import Memory
from graphmem.evaluation.datasets import POOLED, pooled
from graphmem.evaluation.environment import environment
from graphmem.evaluation.locomo import load
from graphmem.evaluation.runner import store
from graphmem.retrieval import arms, features, matching, pipeline
from graphmem.retrieval.evidence_reader import EvidenceReader
from graphmem.settings import Settings
from graphmem.stores.ledger.embedded_index import EmbeddedIndex

PHASES: tuple[tuple[Any, str, str], ...] = (
    (pipeline, "retrieve", "question and arms"),
    (arms, "encode", "question: encode"),
    (EmbeddedIndex, "dense", "arms: dense"),
    (EmbeddedIndex, "sparse", "arms: keyword"),
    (pipeline, "choose_candidates", "candidates"),
    (pipeline, "seeds", "seeds"),
    (pipeline, "neighbourhoods", "neighbourhood"),
    (pipeline, "walk", "walk"),
    (pipeline, "expand_second_hop", "hop"),
    (pipeline, "rank", "rank"),
    (pipeline, "read_hits", "answer"),
    (EvidenceReader, "with_cosines", "all: candidate rows, neighbours, cosines"),
    (EvidenceReader, "with_matches", "all: tokens read and compared"),
    (matching.TokenMatches, "with_windows", "all: tokens compared"),
    (features.Evidence, "table", "all: features"),
)
WARM, QUESTIONS = 20, 200


def time_phases(spent: dict[str, float]) -> None:
    """Puts a clock around each phase."""
    for owner, method, name in PHASES:
        setattr(owner, method, _clock(getattr(owner, method), name, spent))


def _clock(act: Callable[..., Any], name: str, spent: dict[str, float]) -> Callable[..., Any]:
    @wraps(act)
    def timed(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        try:
            return act(*args, **kwargs)
        finally:
            spent[name] += time.perf_counter() - start

    return timed


def measure(path: Path, memories: int) -> dict[str, Any]:
    """The figures, ready for JSON."""
    dataset = enlarge(pooled([load(path)]), memories)
    spent: dict[str, float] = defaultdict(float)
    with tempfile.TemporaryDirectory(prefix="graphmem-") as folder, Memory(folder, settings=Settings()) as memory:
        store(memory, dataset, lambda *_: None)
        for case in dataset.cases[:WARM]:
            memory.search(case.question, user_id=POOLED)
        time_phases(spent)
        totals = []
        cases = dataset.cases[:: max(len(dataset.cases) // QUESTIONS, 1)]
        for case in cases:
            start = time.perf_counter()
            memory.search(case.question, user_id=POOLED)
            totals.append(1000 * (time.perf_counter() - start))
    return {
        "benchmark": "phases",
        **environment(),
        "data": {"files": [asdict(source) for source in dataset.sources], "memories": dataset.messages},
        "search": {
            "questions": len(totals),
            "p50_ms": round(median(totals), 1),
            "p95_ms": round(quantiles(totals, n=20)[-1], 1),
        },
        "mean_ms": {name: round(1000 * spent[name] / len(totals), 2) for _, _, name in PHASES},
    }


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("locomo", type=Path, help="a file in the form of LOCOMO's locomo10.json")
    parser.add_argument("--memories", type=int, default=10_000, help="how many (default: 10000)")
    arguments = parser.parse_args()
    print(json.dumps(measure(arguments.locomo, arguments.memories), indent=2))


if __name__ == "__main__":
    main()
