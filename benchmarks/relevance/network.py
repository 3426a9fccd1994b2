"""Fits the network of relevance: what the features' sum leaves over, by Adam's method (Kingma and Ba, 2015)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from graphmem.retrieval.relevance import Network

# Several networks from different beginnings, whose mean is one wider network and errs less than each.
NETWORKS, UNITS = 3, 96
# Passes over the rows, rows of a step, length of steps, shrinkage of weights in each, share of what is left out by
# chance: chosen among few by cross-validation over the cases of `benchmarks/answers`.
PASSES, BATCH, RATE, DECAY, DROPPED = 14, 512, 2e-3, 0.01, 0.3
# Adam's means of gradients and of their squares.
FIRST_MOMENT, SECOND_MOMENT, LEAST = 0.9, 0.999, 1e-8

Row = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Matrix = npt.NDArray[np.float32]


def fit(columns: Matrix, answering: Flags, weights: Row, odds: Row) -> Network:
    """Fits to rows with their weights, in addition to `odds`, their log odds by other evidence."""
    mean, deviation = columns.mean(axis=0, dtype=np.float64), columns.std(axis=0, dtype=np.float64) + 1e-6
    empty = np.zeros(0)
    standardised = Network(mean, deviation, empty, empty, empty).standardised(columns).astype(np.float32)
    fitted = [_fit_one(standardised, answering, weights, odds, np.random.default_rng(n)) for n in range(NETWORKS)]
    hidden, offset, output = (np.concatenate(parts, axis=-1).astype(np.float64) for parts in zip(*fitted, strict=True))
    return Network(mean, deviation, hidden, offset, output / NETWORKS)


def _fit_one(
    columns: Matrix, answering: Flags, weights: Row, odds: Row, chance: np.random.Generator
) -> tuple[Matrix, Matrix, Matrix]:
    """Returns the weights of a layer (columns x units), its offsets and outputs (units,)."""
    width = columns.shape[1]
    hidden = (chance.normal(size=(width, UNITS)) / np.sqrt(width)).astype(np.float32)
    offset, output = np.zeros(UNITS, np.float32), np.zeros(UNITS, np.float32)
    solution = [hidden, offset, output]  # changed in place
    first, second = ([np.zeros_like(part) for part in solution] for _ in range(2))
    step = 0
    for _ in range(PASSES):
        order = chance.permutation(len(columns))
        for begin in range(0, len(order), BATCH):
            rows = order[begin : begin + BATCH]
            read = columns[rows] * _kept(chance, (len(rows), width))
            units = np.maximum(read @ hidden + offset, 0.0)
            kept = _kept(chance, units.shape)
            predicted = expit(odds[rows] + (units * kept) @ output)
            error = (weights[rows] * (predicted - answering[rows]) / len(rows)).astype(np.float32)
            behind = np.outer(error, output) * kept * (units > 0)
            gradients = (read.T @ behind, behind.sum(axis=0), (units * kept).T @ error)
            step += 1
            for place, gradient in enumerate(gradients):
                first[place] += (1 - FIRST_MOMENT) * (gradient - first[place])
                second[place] += (1 - SECOND_MOMENT) * (gradient**2 - second[place])
                length = np.sqrt(second[place] / (1 - SECOND_MOMENT**step)) + LEAST
                solution[place] -= RATE * (first[place] / (1 - FIRST_MOMENT**step) / length + DECAY * solution[place])
    return hidden, offset, output


def _kept(chance: np.random.Generator, shape: tuple[int, int]) -> Matrix:
    """Returns factors that leave a share of numbers out by chance, and keep the mean of all."""
    return (chance.random(shape, np.float32) > DROPPED).astype(np.float32) / np.float32(1 - DROPPED)
