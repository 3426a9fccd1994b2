"""Three hundred questions find to the digit what they found when `support/search_outcomes.py` stored it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.search_outcomes import CHATS, STORED, Outcome, fill, outcomes, probe

from graphmem import Memory

# The first chat's questions in the default run; all of each in `.ci/thorough`.
FEW = 40
# Batches of texts differ from one run to the next, and with them the last digits of vectors.
TOLERANCE = 1e-6
# On a machine whose instructions give other vectors: the least part of the same hits.
ALIKE = 0.95


@pytest.fixture(scope="module")
def stored() -> Mapping[str, Any]:
    """Returns the stored outcomes by chat, and the stored probe."""
    table: Mapping[str, Any] = json.loads(STORED.read_text("utf-8"))
    return table


def same(found: Outcome, expected: Outcome) -> bool:
    def rounded(hits: list[list[Any]]) -> list[Any]:
        return [(uid, pytest.approx([score, relevance], abs=TOLERANCE), path) for uid, score, relevance, path in hits]

    scores = [(uid, [score, relevance], path) for uid, score, relevance, path in found["hits"]]
    return found["context"] == expected["context"] and scores == rounded(expected["hits"])


@pytest.mark.parametrize(
    ("name", "most"),
    [(next(iter(CHATS)), FEW), *(pytest.param(name, None, marks=pytest.mark.thorough) for name in CHATS)],
)
def test_questions_find_what_was_stored(name: str, most: int | None, stored: Mapping[str, Any], tmp_path: Path) -> None:
    with Memory.from_config({"home": str(tmp_path)}) as memory:
        found = list(outcomes(memory, name, fill(memory, name)[:most]))
    expected = stored[name][: len(found)]
    assert [one["ask"] for one in found] == [one["ask"] for one in expected]
    if probe() == stored["probe"]:
        differing = [(one, other) for one, other in zip(found, expected, strict=True) if not same(one, other)]
        assert differing == []
    else:
        ids = [
            ({hit[0] for hit in one["hits"]}, {hit[0] for hit in other["hits"]})
            for one, other in zip(found, expected, strict=True)
        ]
        shared, of_all = sum(len(ours & theirs) for ours, theirs in ids), sum(len(theirs) for _, theirs in ids)
        assert shared >= ALIKE * of_all
