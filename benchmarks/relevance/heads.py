"""Fits the heads that read attributes and subjects (`graphmem.retrieval.relevance.attributes`)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from graphmem.models.use_multilingual import UseMultilingual

GRID = json.loads(Path(__file__).with_name("attributes.json").read_text("utf-8"))
# Of the squares of weights, and the most steps of the fit.
PENALTY, MAX_STEPS = 1e-4, 300
# What stands for the subject and for the verbs that agree with it in the sentences, in the first person and the third.
FIRST_PERSON = {
    "s": "I", "o": "me", "s's": "my", "is": "am", "Is": "Am", "does": "do", "Does": "Do", "has": "have", "Has": "Have",
    "es": "",
}  # fmt: skip
THIRD_PERSON = {
    "s": "{}", "o": "{}", "s's": "{}'s", "is": "is", "Is": "Is", "does": "does", "Does": "Does", "has": "has",
    "Has": "Has", "es": "s",
}  # fmt: skip

Row = npt.NDArray[np.float64]


def fitted() -> dict[str, Row]:
    """Returns each head: weights, and below them the offset (dims + 1 x classes)."""
    encoder = UseMultilingual()
    sides = {side: list(_sentences(side)) for side in ("asked", "told")}
    vectors = {side: encoder.encode([text for text, _, _ in sentences]) for side, sentences in sides.items()}
    attributes = list(GRID["attributes"])
    subjects = [subject for kind in GRID["subjects"].values() for subject in kind]
    heads = {
        side: _head(vectors[side], [attributes.index(attribute) for _, attribute, _ in sentences])
        for side, sentences in sides.items()
    }
    of_subjects = [subjects.index(subject) for sentences in sides.values() for _, _, subject in sentences]
    return {**heads, "subject": _head(np.vstack(list(vectors.values())), of_subjects)}


def _sentences(side: str) -> Iterator[tuple[str, str, str]]:
    """Yields (sentence, attribute, subject) for each attribute that a subject may have; `side`: asked or told."""
    for kind, subjects in GRID["subjects"].items():
        for attribute, known in GRID["attributes"].items():
            if kind not in known["of"]:
                continue
            for language, templates in known[side].items():
                for template in templates:
                    for subject, names in subjects.items():
                        for name in names[language]:
                            yield _filled(template, name), attribute, subject


def _filled(template: str, name: str) -> str:
    forms: Mapping[str, str] = FIRST_PERSON if name == FIRST_PERSON["s"] else THIRD_PERSON
    text = re.sub(r"\{(.+?)\}", lambda match: forms[match[1]].format(name), template)
    return text[0].upper() + text[1:]


def _head(vectors: npt.NDArray[Any], classes: Sequence[int]) -> Row:
    """Returns a softmax regression in which all classes weigh the same (dims + 1 x classes)."""
    rows = np.hstack([vectors, np.ones((len(vectors), 1))]).astype(np.float64)
    count = max(classes) + 1
    truth = np.eye(count)[list(classes)]
    weights = (1.0 / truth.sum(axis=0))[list(classes)] / count

    def loss(flat: Row) -> tuple[float, Row]:
        solution = flat.reshape(-1, count)
        odds = rows @ solution
        powers = np.exp(odds - odds.max(axis=1, keepdims=True))
        shares = powers / powers.sum(axis=1, keepdims=True)
        misfit = -weights @ np.log((shares * truth).sum(axis=1) + 1e-12)
        gradient = rows.T @ (weights[:, None] * (shares - truth))
        gradient[:-1] += PENALTY * solution[:-1]
        return float(misfit + PENALTY / 2 * (solution[:-1] ** 2).sum()), gradient.ravel()

    found = minimize(loss, np.zeros(rows.shape[1] * count), jac=True, method="L-BFGS-B", options={"maxiter": MAX_STEPS})
    return np.asarray(found.x.reshape(-1, count))
