"""Processes killed at random points of everything they do, again and again on the same folder; see `rounds.py`.

FAULTS_SEQUENCES (10) are played; FAULTS_SEED chooses other ones.
"""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest
from rounds import Place, Rehearsals, RoundSequence
from victims import Server, in_memory

SEED = os.environ.get("FAULTS_SEED", "6")
SEQUENCES, ROUNDS = int(os.environ.get("FAULTS_SEQUENCES", "10")), 20
REPLAY = os.environ.get("FAULTS_ROUND", "")


@pytest.fixture
def folder():
    with in_memory() as new_folder:
        yield new_folder


@pytest.fixture(scope="module")
def server():
    with closing(Server()) as new_server:
        yield new_server


@pytest.fixture(scope="module")
def rehearsals(server: Server):
    with in_memory() as folder:
        yield Rehearsals(Place(folder / "home", server))


@pytest.mark.skipif(bool(REPLAY), reason="FAULTS_ROUND asks for another play")
@pytest.mark.parametrize("sequence", range(1, SEQUENCES + 1))
def test_rounds(sequence: int, server: Server, rehearsals: Rehearsals, folder: Path) -> None:
    rounds = RoundSequence(Place(folder / "home", server), f"{SEED}:{sequence}", rehearsals)
    rounds.play(ROUNDS)
    assert rounds.deaths > ROUNDS // 2


@pytest.mark.skipif(not REPLAY, reason="FAULTS_ROUND names no play")
def test_replay_of_a_printed_sequence(server: Server, folder: Path) -> None:
    RoundSequence.replay(Place(folder / "home", server), REPLAY)
