"""Fits the value of a sentence in a context (`graphmem.retrieval.context.sentence_values`) to gold sentences.

    python benchmarks/sentence_values.py --locomo locomo10.json --musique musique.json --corpus musique_corpus.json

Each question is searched for as `context` does; of the first 20 hits each sentence is an example, right if it answers
(`graphmem.evaluation.blocks`). All data sets weigh the same. Prints the coefficients, and how they would be if
features had a standard deviation of 1. How much evidence contexts have by them is measured by `benchmarks/enough.py`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.special import expit

from graphmem import Memory
from graphmem.boundary import validation
from graphmem.cli.render import ProgressBar
from graphmem.evaluation import locomo, multihop
from graphmem.evaluation.blocks import evidence_of
from graphmem.evaluation.datasets import Dataset
from graphmem.evaluation.runner import store
from graphmem.model import Scope, View
from graphmem.retrieval.context import one_line
from graphmem.retrieval.context.sentence_values import features_of
from graphmem.retrieval.pipeline import search
from graphmem.retrieval.query_analysis import analyze_query
from graphmem.retrieval.types import SearchQuery

HITS = 20
# The weight of the squared coefficients, of features with a standard deviation of 1.
RIDGE = 1.0

Table = npt.NDArray[np.float64]


def examples(data: Dataset) -> Iterator[tuple[dict[str, float], bool]]:
    """Yields the features of each sentence found and whether it answers its question."""
    messages = data.messages_by_id()
    with Memory(":memory:") as memory, ProgressBar() as bar:
        keys = store(memory, data, bar.update).keys
        deps = memory.engine.search_deps
        for case in data.cases:
            of_partition = messages[case.partition]
            answering = {
                key: evidence_of(of_partition[key]["content"], case, deps.embedder.embed).sentences for key in case.gold
            }
            now = validation.asked_at(case.query_time, datetime.now(UTC), None)
            view = View(Scope(case.partition), datetime.now(UTC), Scope(case.partition).partition)
            query = SearchQuery(case.question, view, HITS, for_prompt=True, now=now)
            analysis = analyze_query(case.question, now)
            for rank, hit in enumerate(search(query, deps).hits):
                right = answering.get(keys[hit.record.id], ())
                for span, features in features_of(analysis, hit, rank):
                    yield dict(features), one_line(hit.record.text[slice(*span)]) in right


def fit(table: Table, answers: Table, weights: Table) -> Table:
    """Returns the coefficients of a logistic model and its constant."""
    columns = np.hstack([table, np.ones((len(table), 1))])
    ridge = np.append(np.full(table.shape[1], RIDGE), 0.0)

    def loss(coefficients: Table) -> tuple[float, Table]:
        odds = columns @ coefficients
        value = weights @ (np.logaddexp(0.0, odds) - answers * odds) + ridge @ coefficients**2 / 2
        return float(value), columns.T @ (weights * (expit(odds) - answers)) + ridge * coefficients

    options = {"maxiter": 1000, "gtol": 1e-4, "ftol": 1e-14}
    return np.asarray(minimize(loss, np.zeros(columns.shape[1]), jac=True, method="L-BFGS-B", options=options).x)


def main() -> None:
    """Reads the data sets, fits, and prints the coefficients as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--locomo", type=Path, required=True)
    parser.add_argument("--musique", type=Path, required=True)
    parser.add_argument("--corpus", type=Path, help="MuSiQue's passages, if they are in a file of their own")
    options = parser.parse_args()
    sets = [
        list(examples(data)) for data in (locomo.load(options.locomo), multihop.load(options.musique, options.corpus))
    ]
    names = list(sets[0][0][0])
    table = np.array([[features[name] for name in names] for one in sets for features, _ in one])
    answers = np.array([float(is_right) for one in sets for _, is_right in one])
    weights = np.concatenate([np.full(len(one), len(sets[0]) / len(one)) for one in sets])
    mean, deviation = table.mean(axis=0), table.std(axis=0) + 1e-9
    scaled = fit((table - mean) / deviation, answers, weights)
    coefficients = {"constant": float(scaled[-1] - (scaled[:-1] * mean / deviation).sum())}
    coefficients |= dict(zip(names, (scaled[:-1] / deviation).tolist(), strict=True))
    print(json.dumps({name: round(value, 4) for name, value in coefficients.items()}, indent=1))
    print(json.dumps({name: round(value, 2) for name, value in zip(names, scaled[:-1].tolist(), strict=True)}))


if __name__ == "__main__":
    main()
