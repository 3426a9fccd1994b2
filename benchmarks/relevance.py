"""Fits the model of relevance (`graphmem.retrieval.relevance`) and measures how well it is calibrated.

    python benchmarks/relevance.py collect evidence.pickle locomo10.json  # asks every question: ten minutes
    python benchmarks/relevance.py fit evidence.pickle                    # writes the files of the package
    python benchmarks/relevance.py report evidence.pickle                 # as tables; with --json for results/

`collect` stores the sets and searches for each question; what the search tells the model of the question and of each of
its first twenty memories is kept, with which of these answer. So the features are computed in one place only.

`report` fits anew, without the coefficients that are set by hand. `by case`: the rows of each fifth of the cases (in
conversations: of the conversations) by a model fitted to the others. `by set`: the rows of each set by a model fitted
to the other sets. `shipped`: all rows by the files of the package, as a search does it, entities joined; it was fitted
to these very rows. Of each: the area under the curve (the chance that a memory that answers has a higher relevance than
one that does not), the Brier score (mean squared error of the relevance), and by tenths of the relevance its mean, the
share of memories that answer, and their number.
"""

from __future__ import annotations

import argparse
import json
import pickle
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
from scipy.special import expit, logit

from graphmem import Memory
from graphmem.cli.render import ProgressBar
from graphmem.concurrency import single_blas_thread
from graphmem.evaluation import answers, chats, locomo, metrics
from graphmem.evaluation.datasets import Dataset, SourceFile
from graphmem.evaluation.environment import environment
from graphmem.evaluation.runner import store
from graphmem.model import Scope, View
from graphmem.models.use_multilingual import UseMultilingual
from graphmem.retrieval import relevance
from graphmem.retrieval.pipeline import MIN_ASSESSED, search
from graphmem.retrieval.relevance import AskedQuestion, FoundMemory, features
from graphmem.retrieval.types import SearchQuery

BENCHMARKS, PACKAGE = Path(__file__).parent, Path(relevance.__file__).parent
# How much a row of each set counts in the fit. Conversations are long and few, and their gold is incomplete.
SET_WEIGHTS = {"answers": 1.0, "training": 1.0, "locomo": 0.3, "chats": 0.3}
# Conversations of LOCOMO to develop with; the others are not looked at.
LOCOMO_DEVELOPMENT = ("conv-26", "conv-30", "conv-41", "conv-42")
# Every so many questions of a conversation are asked in another one as well, where nothing answers.
FOREIGN_EVERY = 3
FOLDS, DECIMALS = 5, 4
# Penalties of the squares of coefficients of standardised columns: of features, and of the 3 x 512 of the heads.
FEATURE_PENALTY, HEAD_PENALTY = 3.0, 2000.0
FIRST_CONSTANT, MAX_STEPS, LEAST_STEP = -2.0, 30, 1e-3
LABELS = {"with vectors": True, "without vectors": False}
# Added to coefficients after the fit. What the sets say of each is about other questions than those it is for.
SHIFTS = {
    # In the sets, a memory about somebody else is often about what is asked, in the asker's life too. But "Where do I
    # live?" must not be answered by where Ingrid lives.
    "about_another": -2.5,
    # The same the other way round: where the asker lives does not tell where Ingrid lives.
    "about_asker": -1.0,
    # Names that no memory has are places and projects in a fifth of these questions, whose answer need not name them.
    # Of a person whom nobody ever mentioned, nothing that was found tells.
    "nowhere_named": -1.2,
    # One question in fourteen names a time; where most memories are of that time, it says little. In a store of years,
    # a memory of the day that is asked for, with a word of the question, is the one that is meant.
    "date_and_words": 1.5,
}
# The least relevance in small partitions, and `_Model.shared_words`: by the share of everyday questions with their
# answer in the block, among floors that keep it empty for most of those that nothing answers.
FLOOR, SHARED_WORDS = 0.13, {"with vectors": 0.0, "without vectors": 0.6}

Row = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Matrix = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Told:
    """What a search tells the model: the question, the memories found, best first, and the ids of these."""

    question: AskedQuestion
    memories: Sequence[FoundMemory]
    ids: Sequence[str]


@dataclass(frozen=True, slots=True)
class Evidence:
    """One question of a set with the memories found for it, best first: `answering` those that answer it.

    `counted`: those that do, or do not; others may be shown as well, and are left out. `unit`: the case, or the
    conversation: what is told about the same things.
    """

    data: str
    unit: str
    question: AskedQuestion
    memories: Sequence[FoundMemory]
    answering: Sequence[bool]
    counted: Sequence[bool]


@dataclass(frozen=True, slots=True)
class Table:
    """All memories of all questions as rows; the columns are the features, then those of the heads."""

    names: Sequence[str]
    columns: Matrix
    answers: Flags
    is_counted: Flags
    data: npt.NDArray[np.str_]
    fold: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Fit:
    """A fitted model: a coefficient for each column of the table, and the constant."""

    coefficients: Row
    constant: float

    def predict(self, columns: Matrix) -> Row:
        """Returns the relevance of each row, entities not joined."""
        return np.asarray(expit(columns @ self.coefficients + self.constant))


def collect(locomo_file: Path) -> tuple[list[Evidence], list[SourceFile]]:
    """Asks the questions of all sets. Returns what the searches told the model, and the sets' files."""
    found: list[Evidence] = []
    sources: list[SourceFile] = []
    for name, folder in (("answers", BENCHMARKS / "answers"), ("training", BENCHMARKS / "answers" / "training")):
        answer_set = answers.load(folder)
        data, asked = answers.lay_out(answer_set)
        found += _ask_cases(name, data, asked)
        sources += answer_set.sources
    everything = locomo.load(locomo_file)
    conversations = {name: everything.partitions[name] for name in LOCOMO_DEVELOPMENT if name in everything.partitions}
    cases = tuple(case for case in everything.cases if case.partition in conversations)
    for data in (replace(everything, partitions=conversations, cases=cases), chats.load(BENCHMARKS / "chats")):
        found += _ask_conversations(data)
        sources += data.sources
    return found, sources


def _ask_cases(name: str, data: Dataset, asked: Sequence[answers.Asked]) -> Iterator[Evidence]:
    with Memory(":memory:") as memory, ProgressBar() as bar:
        store(memory, data, bar.update)
        for number, one in enumerate(asked, 1):
            bar.update(f"questions of {name}", number, len(asked))
            told = _ask(memory, one.partition, one.case.question, answers.ASKED_AT)
            if told is not None:
                answering = [any(part in found.text for part in one.case.needed) for found in told.memories]
                others = [found.text in one.case.right for found in told.memories]
                counted = [is_gold or not other for is_gold, other in zip(answering, others, strict=True)]
                yield Evidence(name, one.case.id, told.question, told.memories, answering, counted)


def _ask_conversations(data: Dataset) -> Iterator[Evidence]:
    """Asks each question of conversations, and every third one in another conversation."""
    chance = random.Random(5)  # noqa: S311  (a sample, no secret)
    with Memory(":memory:") as memory, ProgressBar() as bar:
        keys = store(memory, data, bar.update).keys
        for number, case in enumerate(data.cases):
            bar.update(f"questions of {data.name}", number + 1, len(data.cases))
            others = [name for name in data.partitions if name != case.partition]
            asked_in = [case.partition] + ([chance.choice(others)] if number % FOREIGN_EVERY == 0 else [])
            for partition in asked_in:
                gold = case.gold if partition == case.partition else frozenset()
                told = _ask(memory, partition, case.question, case.query_time)
                if told is not None:
                    answering = [keys[uid] in gold for uid in told.ids]
                    counted = [True] * len(told.ids)
                    yield Evidence(data.name, partition, told.question, told.memories, answering, counted)


def _ask(memory: Memory, user: str, question: str, now: datetime | None) -> Told | None:
    """Searches; returns what the search told the model, None if it found nothing."""
    moment = datetime.now(UTC)
    query = SearchQuery(question, View(Scope(user), moment, Scope(user).partition), MIN_ASSESSED, now=now or moment)
    with patch.object(relevance, "assess", wraps=relevance.assess) as assess:
        outcome = search(query, memory._engine.search_deps)  # noqa: SLF001  (not in the public API)
    if not assess.called:
        return None
    asked, memories = assess.call_args.args  # of the last call: one before it dates an event that the question names
    # In half the room; the encoder's own numbers have no more digits.
    small = [replace(one, vector=None if one.vector is None else one.vector.astype(np.float32)) for one in memories]
    return Told(asked, small, [hit.record.id for hit in outcome.hits])


def tabulate(found: Sequence[Evidence], *, has_vectors: bool) -> Table:
    """Returns the table of all memories found."""
    names: list[str] = []
    blocks: list[Matrix] = []
    for one in found:
        question = one.question if has_vectors else replace(one.question, vector=None)
        names, block = features.table(question, one.memories)
        if question.vector is not None:
            vectors = features.vectors_of(one.memories, len(question.vector))
            asked = np.broadcast_to(question.vector, vectors.shape)
            block = np.hstack([block, asked, vectors, asked * vectors])
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
    )


def fit_rows(table: Table, rows: Flags, start: Fit | None = None) -> Fit:
    """Fits a logistic regression with penalties to rows of a table, by Newton's method.

    There is one solution, to which a fit to other rows as `start` is merely nearer.
    """
    rows = rows & table.is_counted
    columns, answering = table.columns[rows], table.answers[rows]
    weights = np.vectorize(SET_WEIGHTS.__getitem__, otypes=[np.float64])(table.data[rows])
    mean = columns.mean(axis=0, dtype=np.float64)
    deviation = columns.std(axis=0, dtype=np.float64) + 1e-9
    columns -= mean.astype(np.float32)
    columns /= deviation.astype(np.float32)
    columns = np.column_stack([columns, np.ones(len(columns), np.float32)])
    heads = columns.shape[1] - 1 - len(table.names)
    penalty = np.concatenate([np.full(len(table.names), FEATURE_PENALTY), np.full(heads, HEAD_PENALTY), [0.0]])
    solution = np.append(np.zeros(len(penalty) - 1), FIRST_CONSTANT)
    if start is not None:
        solution = np.append(start.coefficients * deviation, start.constant + start.coefficients @ mean)
    for _ in range(MAX_STEPS):
        predicted = expit(columns @ solution.astype(np.float32))
        gradient = (weights * (predicted - answering)).astype(np.float32) @ columns + penalty * solution
        scaled = columns * np.sqrt(weights * predicted * (1.0 - predicted)).astype(np.float32)[:, None]
        step = np.linalg.solve((scaled.T @ scaled).astype(np.float64) + np.diag(penalty), gradient)
        solution -= step
        if np.abs(step).max() < LEAST_STEP:
            break
    coefficients = solution[:-1] / deviation
    return Fit(coefficients, float(solution[-1] - coefficients @ mean))


def write_prototypes() -> None:
    """Writes the vectors of the sentences in `prototypes.json`, each as bytes of the same scale."""
    sentences = json.loads((PACKAGE / "prototypes.json").read_text("utf-8"))
    sides = [sentence for side in ("asked", "told") for topic in sentences[side].values() for sentence in topic]
    vectors = UseMultilingual().encode([*sides, *sentences["standing"], *sentences["advice"]])
    scaled = vectors / np.abs(vectors).max(axis=1, keepdims=True) * 127
    np.savez_compressed(PACKAGE / "prototypes.npz", vectors=np.round(scaled).astype(np.int8))


def write_model(found: Sequence[Evidence]) -> None:
    """Fits to all sets and writes the coefficients, shifted, and the heads."""
    written: dict[str, Any] = {}
    for label, has_vectors in LABELS.items():
        table = tabulate(found, has_vectors=has_vectors)
        fit = fit_rows(table, np.ones(len(table.answers), bool))
        shifted = {
            name: round(float(value) + SHIFTS.get(name, 0.0), DECIMALS)
            for name, value in zip(table.names, fit.coefficients, strict=False)
        }
        written[label] = {
            "coefficients": shifted,
            "constant": round(fit.constant, DECIMALS),
            "floor": FLOOR,
            "shared_words": SHARED_WORDS[label],
        }
        if has_vectors:
            of_question, of_memory, of_both = np.split(fit.coefficients[len(table.names) :].astype(np.float16), 3)
            np.savez_compressed(PACKAGE / "heads.npz", question=of_question, memory=of_memory, product=of_both)
    (PACKAGE / "coefficients.json").write_text(json.dumps(written, indent=1) + "\n", "utf-8")


def report(found: Sequence[Evidence]) -> dict[str, Any]:
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
        "differences": _differences(table, whole, has_vectors=has_vectors),
    }


def _figures(table: Table, predicted: Row) -> dict[str, Any]:
    """Returns the figures of all counted rows, and of those of each set."""
    groups = {"all": table.is_counted} | {name: table.is_counted & (table.data == name) for name in SET_WEIGHTS}
    return {name: metrics.calibration(predicted[rows], table.answers[rows]) for name, rows in groups.items()}


def _differences(table: Table, fit: Fit, *, has_vectors: bool) -> dict[str, Any]:
    """Returns how a fit to all rows differs from the package's files, whose shifts are taken back for that."""
    model = relevance._model(has_vectors=has_vectors)  # noqa: SLF001  (the files as they are read)
    stored = [model.coefficients[name] - SHIFTS.get(name, 0.0) for name in table.names]
    heads = np.empty(0) if model.heads is None else model.heads.ravel()
    package = Fit(np.concatenate([stored, heads]), model.constant)
    values = [one.predict(table.columns) for one in (fit, package)]
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
        print(f"\n{label}, a fit to all and the package: {of_model['differences']}")


def main() -> None:
    """Collects, fits or reports, as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=("collect", "fit", "report"))
    parser.add_argument("evidence", type=Path, help="the file that `collect` writes and the others read")
    parser.add_argument("locomo", type=Path, nargs="?", help="for `collect`: a file in LOCOMO's form")
    parser.add_argument("--json", action="store_true", help="for `report`: print JSON")
    options = parser.parse_args()
    if options.task == "collect":
        if options.locomo is None:
            parser.error("name LOCOMO's file as well")
        options.evidence.write_bytes(pickle.dumps(collect(options.locomo)))
        return
    found, sources = pickle.loads(options.evidence.read_bytes())  # noqa: S301  (this program's own file)
    with single_blas_thread():
        if options.task == "fit":
            write_prototypes()
            write_model(found)
            return
        measured = report(found)
    if not options.json:
        print_tables(measured)
        return
    result = {
        "benchmark": "relevance",
        **environment(),
        "data": {"files": [asdict(source) for source in sources], "questions": len(found)},
        "figures": measured,
    }
    print(json.dumps(result, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
