"""Fits the kinds of sentences (`graphmem.lifecycle.rules`) and measures them on sentences that they were not fitted to.

    python benchmarks/kinds.py           # prints the shares that are told rightly
    python benchmarks/kinds.py --fit     # writes the file of the package first

A multinomial logistic regression over the vectors of `kinds.json`, with a penalty on the squares of the weights. It is
measured on `tests/data/sentence_kinds.json`: other topics and other words, written before anything was measured.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import numpy.typing as npt

from graphmem.concurrency import single_blas_thread
from graphmem.lifecycle import rules
from graphmem.models.use_multilingual import UseMultilingual

PACKAGE = Path(rules.__file__).parent
HELD_OUT = Path(__file__).parents[1] / "tests" / "data" / "sentence_kinds.json"
# The penalty is 1 / (2 x this) of the squares of the weights. Steps of gradient descent and their length: the gradient
# is 0 to four digits then.
STRENGTH, STEPS, STEP = 10.0, 4_000, 0.02
Table = npt.NDArray[np.float64]


def main() -> None:
    """Fits, if the command line says so, and prints what is told rightly."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fit", action="store_true", help="write the file of the package first")
    options = parser.parse_args()
    with single_blas_thread():
        if options.fit:
            weights, constants = _fit(*_vectors(PACKAGE / rules.SENTENCES)[:2])
            np.savez_compressed(
                PACKAGE / rules.WEIGHTS, weights=weights.astype(np.float16), constants=constants.astype(np.float16)
            )
        vectors, told, languages = _vectors(HELD_OUT)
        names = list(json.loads((PACKAGE / rules.SENTENCES).read_text("utf-8"))["en"])
        found = np.array([[one[name] for name in names] for one in rules.likely_kinds(vectors.astype(np.float32))])
    right = found.argmax(axis=1) == told
    for language in dict.fromkeys(languages):
        places = np.array(languages) == language
        print(f"{language}: {right[places].sum()} of {places.sum()}")
    for number, name in enumerate(names):
        print(f"{name:20} {np.bincount(found[told == number].argmax(axis=1), minlength=len(names))}")


def _vectors(file: Path) -> tuple[Table, npt.NDArray[np.int64], list[str]]:
    """Returns the vectors of a file's sentences as a ledger has them, the numbers of their kinds, their languages."""
    languages = json.loads(file.read_text("utf-8"))
    sentences = [
        (sentence, number, language)
        for language, of_kinds in languages.items()
        for number, told in enumerate(of_kinds.values())
        for sentence in told
    ]
    vectors = UseMultilingual().encode([sentence for sentence, _, _ in sentences]).astype(np.float64)
    rounded = np.rint(vectors * (127 / np.abs(vectors).max(axis=1, keepdims=True)))
    rounded /= np.linalg.norm(rounded, axis=1, keepdims=True)
    return rounded, np.array([number for _, number, _ in sentences]), [language for _, _, language in sentences]


def _fit(vectors: Table, told: npt.NDArray[np.int64]) -> tuple[Table, Table]:
    """Returns the weights (dims x kinds) and constants by gradient descent with Nesterov's momentum."""
    right = np.eye(told.max() + 1)[told]
    with_one = np.column_stack([vectors, np.ones(len(vectors))])
    penalty = np.append(np.full(vectors.shape[1], 1 / STRENGTH), 0.0)[:, None]
    point = ahead = np.zeros((with_one.shape[1], right.shape[1]))
    for step in range(STEPS):
        logits = with_one @ ahead
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))
        gradient = with_one.T @ (powers / powers.sum(axis=1, keepdims=True) - right) + penalty * ahead
        former, point = point, ahead - STEP * gradient
        ahead = point + step / (step + 3) * (point - former)
    return point[:-1], point[-1]


if __name__ == "__main__":
    main()
