"""Four processes with four threads each on one folder, for FAULTS_SECONDS, compared with the states they expect."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import IO

from child import open_memory
from support.waiting import SLOWNESS, TIMEOUT
from victims import assert_verified, in_memory, words_in_files
from worker import COMMON

from graphmem import Memory

SEED, SECONDS = os.environ.get("FAULTS_SEED", "6"), float(os.environ.get("FAULTS_SECONDS", 20 * SLOWNESS))
NAMES, SAMPLE = "abcd", 30


def test_processes_and_threads_on_one_folder() -> None:
    with in_memory() as folder:
        home = folder / "home"
        reports = [json.loads(answer) for answer in run_workers(home)]
        print(
            f"FAULTS_SEED={SEED}:", *(f"{one['calls']} calls in {one['openings']} openings" for one in reports), sep=" "
        )
        assert [one["errors"] for one in reports] == [[]] * len(NAMES)
        with open_memory(home) as memory:
            assert memory.flush() == {"pending": []}
            assert_verified(memory)
            check(memory, reports)
        assert min(one["openings"] for one in reports) > 1
        assert sorted(path.name for path in home.glob("ledger*")) == ["ledger.sqlite"]
        words = [text.split()[-1] for one in reports for texts in one["deleted"].values() for text in texts]
        assert words_in_files(home, words) == []


def run_workers(home: Path) -> list[str]:
    script = str(Path(__file__).with_name("worker.py"))
    with ExitStack() as running:
        processes = []
        for name in NAMES:
            errors = running.enter_context(home.with_name(f"{name}.err").open("w+"))
            order = [sys.executable, script, str(home), name, str(SECONDS), SEED]
            process = running.enter_context(subprocess.Popen(order, stdout=subprocess.PIPE, stderr=errors, text=True))
            running.callback(process.kill)
            processes.append((process, errors))
        return [read_answer(*one) for one in processes]


def read_answer(process: subprocess.Popen, errors: IO[str]) -> str:
    answer, _ = process.communicate(timeout=SECONDS + 2 * TIMEOUT)
    errors.seek(0)
    assert process.returncode == 0, errors.read()
    return answer


def check(memory: Memory, reports: list[dict]) -> None:
    shared = {uid: text for one in reports for uid, text in one["shared"].items()}
    expected = {**{user: texts for one in reports for user, texts in one["current"].items()}, COMMON: shared}
    dice = Random(SEED)
    for user, texts in expected.items():
        listed = memory.get_all(user_id=user, limit=100_000)["results"]
        assert {one["id"]: one["memory"] for one in listed} == texts
        assert len(listed) == len(texts)
        for uid in dice.sample(sorted(texts), min(SAMPLE, len(texts))):
            word = texts[uid].split()[-1]
            assert uid in {hit["id"] for hit in memory.search(word, user_id=user)["results"]}, word
            assert memory.history(uid)[-1]["new_memory"] == texts[uid]
    for uid in [uid for one in reports for uid in (*one["deleted"], *one["unshared"])]:
        assert memory.get(uid) is None
        assert [event["event"] for event in memory.history(uid)].count("DELETE") == 1
    assert memory.stats()["memories"] == sum(map(len, expected.values()))
