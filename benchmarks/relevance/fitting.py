"""Fits the model of relevance to evidence and writes the files of `graphmem.retrieval.relevance`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import heads
import network
import numpy as np
import numpy.typing as npt
from evidence import EVERYDAY, Evidence
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit

from graphmem.models.use_multilingual import UseMultilingual
from graphmem.retrieval import relevance
from graphmem.retrieval.relevance import features

PACKAGE = Path(relevance.__file__).parent
# How much a row of each set counts in the fit. Everyday questions are there twice; conversations are long and few, and
# their gold is incomplete. Questions about work weigh less: at .6, those of other authors lost a point.
SET_WEIGHTS = {**dict.fromkeys(EVERYDAY, 0.6), "work": 0.3, "locomo": 0.3, "chats": 0.3}
FOLDS, DECIMALS = 5, 4
# The principal axes along which the network reads questions, memories, and the product of both.
AXES = 48
# Of the squares of coefficients of standardised features.
PENALTY = 3.0
# Where the fit starts, and where it ends. A loss that is greater by this factor is the same: sums are rounded.
FIRST_CONSTANT, MAX_STEPS, LEAST_STEP, ROUNDING = -2.0, 30, 1e-3, 1 + 1e-6
LABELS = {"with vectors": True, "without vectors": False}
# Added to coefficients after the fit. What the sets say of each is about other questions than those it is for.
SHIFTS = {
    # In the sets, a memory about somebody else is often about what is asked, in the asker's life too. But "Where do I
    # live?" must not be answered by where Ingrid lives.
    "about_another": -3.5,
    # The same the other way round: where the asker lives does not tell where Ingrid lives.
    "about_asker": -1.0,
    # Names that no memory has are places and projects in a fifth of these questions, whose answer need not name them.
    # Of a person whom nobody ever mentioned, nothing that was found tells.
    "nowhere_named": -1.5,
    # Of the memories found one in fifty is only a question, where others store all that they ask. Who asked where the
    # keys are has not told it.
    "only_asks": -3.0,
    # Half of the cases about attributes and work are near misses, which share words with the question as well. Where
    # others ask, a rare word that both have still says that the memory is the one that is meant.
    "overlap": 0.3,
    # One question in fourteen names a time; where most memories are of that time, it says little. In a store of years,
    # a memory of the day that is asked for, with a word of the question, is the one that is meant.
    "date_and_words": 1.5,
}
# The floors of small partitions, and `_Model.shared_words`: by the share of everyday questions with their answer in the
# block, among floors that keep it empty for most of those that nothing answers. At one floor for all, English has some
# four points more in the block than Chinese, and is silent as much more often: an answer in Chinese is less sure.
FLOORS = {
    "with vectors": {"read": 0.15, "unread": 0.23, "share": 0.5},
    "without vectors": {"read": 0.13, "unread": 0.13, "share": 0.3},
}
SHARED_WORDS = {"with vectors": 0.0, "without vectors": 0.6}

Row = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Matrix = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Table:
    """All memories of all questions as rows; the columns are the features, then vectors along `axes`."""

    names: Sequence[str]
    columns: Matrix
    answers: Flags
    is_counted: Flags
    data: npt.NDArray[np.str_]
    fold: npt.NDArray[np.int64]
    axes: relevance.Axes | None = None


@dataclass(frozen=True, slots=True)
class Fit:
    """A fitted model: a coefficient for each feature of the table, the constant, and the network (None: no vectors)."""

    coefficients: Row
    constant: float
    network: relevance.Network | None = None

    def predict(self, columns: Matrix) -> Row:
        """Returns the relevance of each row, entities not joined."""
        odds = columns[:, : len(self.coefficients)] @ self.coefficients + self.constant
        return np.asarray(expit(odds if self.network is None else odds + self.network.log_odds(columns)))


def tabulate(found: Sequence[Evidence], *, has_vectors: bool) -> Table:
    """Returns the table of all memories found."""
    names: list[str] = []
    blocks: list[Matrix] = []
    axes = _axes(found) if has_vectors else None
    for one in found:
        question = one.question if has_vectors else replace(one.question, vector=None)
        vectors = None if question.vector is None else features.vectors_of(one.memories, len(question.vector))
        names, block = features.table(question, one.memories, vectors)
        if axes is not None and question.vector is not None and vectors is not None:
            block = axes.columns(block, question.vector, vectors)
        blocks.append(block.astype(np.float32))
    sizes = [len(one.memories) for one in found]
    folds = [int(sha256(one.unit.encode()).hexdigest(), 16) % FOLDS for one in found]
    return Table(
        names,
        np.vstack(blocks),
        np.concatenate([one.answering for one in found]),
        np.concatenate([one.counted for one in found]),
        np.repeat([one.data for one in found], sizes),
        np.repeat(folds, sizes),
        axes,
    )


def _axes(found: Sequence[Evidence]) -> relevance.Axes:
    """Returns the principal axes of all questions, of all memories found, and of the products of both."""
    with_vectors = [(one.question.vector, one.memories) for one in found if one.question.vector is not None]
    questions = np.stack([question for question, _ in with_vectors])
    memories = [features.vectors_of(ones, questions.shape[1]).astype(np.float32) for _, ones in with_vectors]
    products = np.vstack([question * block for question, block in zip(questions, memories, strict=True)])

    def principal(vectors: npt.NDArray[np.floating[Any]]) -> Row:
        _, directions = np.linalg.eigh(np.cov(vectors.T.astype(np.float64)))
        return np.asarray(directions[:, ::-1][:, :AXES])

    return relevance.Axes(principal(questions), principal(np.vstack(memories)), principal(products))


def fit_rows(table: Table, rows: Flags, start: Fit | None = None) -> Fit:
    """Fits a logistic regression with penalties to the features of rows of a table, and a network to what it leaves.

    The regression has one solution, to which a fit to other rows as `start` is merely nearer.
    """
    rows = rows & table.is_counted
    number = len(table.names)
    columns, answering = table.columns[rows, :number], table.answers[rows]
    weights = np.vectorize(SET_WEIGHTS.__getitem__, otypes=[np.float64])(table.data[rows])
    mean = columns.mean(axis=0, dtype=np.float64)
    deviation = columns.std(axis=0, dtype=np.float64) + 1e-9
    standardised = ((columns - mean) / deviation).astype(np.float32)
    standardised = np.column_stack([standardised, np.ones(len(columns), np.float32)])
    penalty = np.append(np.full(number, PENALTY), 0.0)
    solution = np.append(np.zeros(number), FIRST_CONSTANT)
    if start is not None:
        solution = np.append(start.coefficients * deviation, start.constant + start.coefficients @ mean)
    solution = _minimise(standardised, answering, weights, penalty, solution)
    coefficients = solution[:-1] / deviation
    constant = float(solution[-1] - coefficients @ mean)
    if table.axes is None:
        return Fit(coefficients, constant)
    odds = columns @ coefficients + constant
    return Fit(coefficients, constant, network.fit(table.columns[rows], answering, weights, odds))


def _minimise(columns: Matrix, answering: Flags, weights: Row, penalty: Row, solution: Row) -> Row:
    """Returns the coefficients with the least loss, from `solution` on, by Newton's method with halved steps.

    The Hessian, which takes most of the time, is computed anew only where the former one no longer shortens the steps.
    """

    def loss(coefficients: Row) -> float:
        odds = columns @ coefficients.astype(np.float32)
        misfit = weights @ (np.logaddexp(0.0, odds) - answering * odds)
        return float(misfit + penalty @ coefficients**2 / 2)

    hessian, former, reached = None, np.inf, loss(solution)
    for _ in range(MAX_STEPS):
        predicted = expit(columns @ solution.astype(np.float32))
        gradient = (weights * (predicted - answering)).astype(np.float32) @ columns + penalty * solution
        if hessian is None:
            scaled = columns * np.sqrt(weights * predicted * (1.0 - predicted)).astype(np.float32)[:, None]
            hessian = cho_factor((scaled.T @ scaled).astype(np.float64) + np.diag(penalty))
        step = cho_solve(hessian, gradient)
        while (after := loss(solution - step)) > reached * ROUNDING:
            step /= 2
        solution, reached, length = solution - step, after, np.abs(step).max()
        if length < LEAST_STEP:
            break
        if length > former / 4:
            hessian = None
        former = length
    return solution


def write_prototypes() -> None:
    """Writes the vectors of the sentences in `prototypes.json`, each as bytes of the same scale."""
    sentences = json.loads((PACKAGE / "prototypes.json").read_text("utf-8"))
    sides = [sentence for side in ("asked", "told") for topic in sentences[side].values() for sentence in topic]
    others = [sentence for one in ("standing", "advice", "everything", "not_everything") for sentence in sentences[one]]
    vectors = UseMultilingual().encode([*sides, *others])
    scaled = vectors / np.abs(vectors).max(axis=1, keepdims=True) * 127
    np.savez_compressed(PACKAGE / "prototypes.npz", vectors=np.round(scaled).astype(np.int8))


def write_heads() -> None:
    """Writes the heads that read attributes and subjects, in half the room."""
    halved = {name: head.astype(np.float16) for name, head in heads.fitted().items()}
    np.savez_compressed(PACKAGE / "attributes.npz", **halved)


def write_model(found: Sequence[Evidence]) -> None:
    """Fits to all sets and writes the coefficients, shifted, and the network."""
    written: dict[str, Any] = {}
    for label, has_vectors in LABELS.items():
        table = tabulate(found, has_vectors=has_vectors)
        fit = fit_rows(table, np.ones(len(table.answers), bool))
        shifted = {
            name: round(float(value) + SHIFTS.get(name, 0.0), DECIMALS)
            for name, value in zip(table.names, fit.coefficients, strict=False)
        }
        if table.axes is not None and fit.network is not None:
            # The axes in half the room, which changes no relevance by more than a thousandth.
            axes = {name: one.astype(np.float16) for name, one in asdict(table.axes).items()}
            layer = {name: one.astype(np.float32) for name, one in asdict(fit.network).items()}
            np.savez_compressed(PACKAGE / "network.npz", **axes, **layer)
        written[label] = {
            "coefficients": shifted,
            "constant": round(fit.constant, DECIMALS),
            "floor": FLOORS[label],
            "shared_words": SHARED_WORDS[label],
        }
    (PACKAGE / "coefficients.json").write_text(json.dumps(written, indent=1) + "\n", "utf-8")
