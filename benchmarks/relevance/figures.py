"""Measures how true the relevances are: fitted to other cases, to other sets, and as the package has the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from evidence import Evidence
from fitting import DECIMALS, LABELS, SET_WEIGHTS, SHIFTS, Fit, Row, Table, fit_rows, tabulate
from scipy.special import expit, logit

from graphmem.evaluation import metrics
from graphmem.retrieval import relevance
from graphmem.retrieval.relevance import features


def measure(found: Sequence[Evidence]) -> dict[str, Any]:
    """Returns the figures of both models: by case, by set, and as shipped."""
    return {label: _measured(found, has_vectors=has_vectors) for label, has_vectors in LABELS.items()}


def _measured(found: Sequence[Evidence], *, has_vectors: bool) -> dict[str, Any]:
    table = tabulate(found, has_vectors=has_vectors)
    whole = fit_rows(table, np.ones(len(table.answers), bool))
    by_case, by_set = np.zeros(len(table.answers)), np.zeros(len(table.answers))
    for parts, predicted in ((table.fold, by_case), (table.data, by_set)):
        for part in np.unique(parts):
            rows = parts == part
            predicted[rows] = fit_rows(table, ~rows, whole).predict(table.columns[rows])
    shipped = [
        assessed.value
        for one in found
        for assessed in relevance.assess(
            one.question if has_vectors else replace(one.question, vector=None), one.memories
        )
    ]
    sources = {"by case": by_case, "by set": by_set, "shipped": np.array(shipped)}
    return {
        **{source: _figures(table, predicted) for source, predicted in sources.items()},
        "differences": _differences(found, table, whole, has_vectors=has_vectors),
    }


def _figures(table: Table, predicted: Row) -> dict[str, Any]:
    """Returns the figures of all counted rows, and of those of each set."""
    groups = {"all": table.is_counted} | {name: table.is_counted & (table.data == name) for name in SET_WEIGHTS}
    return {name: metrics.calibration(predicted[rows], table.answers[rows]) for name, rows in groups.items()}


def _differences(found: Sequence[Evidence], table: Table, fit: Fit, *, has_vectors: bool) -> dict[str, Any]:
    """Returns how a fit to all rows differs from the package's files, whose shifts are taken back for that."""
    model = relevance._model(has_vectors=has_vectors)  # noqa: SLF001  (the files as they are read)
    stored = [model.coefficients[name] - SHIFTS.get(name, 0.0) for name in table.names]
    odds = table.columns[:, : len(stored)] @ np.array(stored) + model.constant
    if model.axes is not None and model.network is not None:
        odds += np.concatenate([_by_network(one, model.axes, model.network) for one in found])
    values = [fit.predict(table.columns), expit(odds)]
    log_odds = np.clip([logit(one) for one in values], -30.0, 30.0)
    areas = [metrics.calibration(one[table.is_counted], table.answers[table.is_counted])["area"] for one in values]
    return {
        "area": {"fitted": areas[0], "package": areas[1]},
        "mean difference of relevance": round(float(np.abs(values[0] - values[1]).mean()), DECIMALS),
        "correlation of log odds": round(float(np.corrcoef(log_odds)[0, 1]), DECIMALS),
        "coefficients": {
            name: {"fitted": round(float(fitted), DECIMALS), "package": round(known, DECIMALS)}
            for name, fitted, known in zip(table.names, fit.coefficients, stored, strict=False)
        },
    }


def _by_network(found: Evidence, axes: relevance.Axes, network: relevance.Network) -> Row:
    """Returns the log odds that a network adds for each memory found; none without a vector of the question."""
    vector = found.question.vector
    if vector is None:
        return np.zeros(len(found.memories))
    vectors = features.vectors_of(found.memories, len(vector))
    columns = features.table(found.question, found.memories, vectors)[1]
    return network.log_odds(axes.columns(columns, vector, vectors))


def print_tables(measured: Mapping[str, Any]) -> None:
    """Prints the areas and Brier scores by set, and the reliability diagrams of all rows."""
    for label, of_model in measured.items():
        sources = [source for source in of_model if source != "differences"]
        print(f"\n{label}: area under the curve, Brier score\n{'':10}" + "".join(f"{one:>18}" for one in sources))
        for name in ("all", *SET_WEIGHTS):
            cells = [f"{of_model[one][name]['area']:.4f} {of_model[one][name]['brier']:.4f}" for one in sources]
            print(f"{name:10}" + "".join(f"{cell:>18}" for cell in cells))
        for source in sources:
            print(f"\n{label}, {source}: predicted, observed, n")
            for one in of_model[source]["all"]["bins"]:
                print(f"{one['predicted']:10.3f}{one['observed']:10.3f}{one['n']:10}")
        differences = {name: value for name, value in of_model["differences"].items() if name != "coefficients"}
        print(f"\n{label}, a fit to all and the package: {differences}")
