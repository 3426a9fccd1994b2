"""The demo, for real: the answers that it is made for are found, through the graph, and it shows what it found."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from support.waiting import PATIENCE

ANSWERS = {
    "Whom should Paulo Reyes see about his sore wrist?": "Hannah Osei",
    "What should we not serve the man who records us with microphones?": "spoonful of lentils",
    "What favour could we ask of whoever owns the Old Brewery?": "carries musicians",
    "In which town is the man who repaired the cello?": "Ljubljana",
}


def run(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "graphmem", "demo", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=PATIENCE,
        check=False,
    )


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    home = tmp_path_factory.mktemp("demo")
    done = run("--json", "--home", str(home))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout) | {"home": home}


def answering(asked):
    return next((hit for hit in asked["results"] if ANSWERS[asked["question"]] in hit["memory"]), None)


def test_every_answer_is_among_the_first_three(told):
    now = [asked for asked in told["questions"] if asked["as_of"] is None]
    assert [asked["question"] for asked in now] == list(ANSWERS)
    for asked in now:
        assert len(asked["results"]) == 3
        assert answering(asked) is not None, asked["question"]


def test_answers_are_reached_through_entities_and_not_by_likeness(told):
    through = []
    for asked in told["questions"][:4]:
        hit = answering(asked)
        path = hit["explain"]["path"]
        assert path[-1]["id"] == hit["id"]
        if len(path) >= 3 and any(step["type"] == "entity" for step in path[1:-1]):
            through.append(path)
            assert hit["explain"]["arms"]["dense"]["rank"] > 3, "likeness alone would have shown it as well"
    assert len(through) >= 2
    longest = max(through, key=len)
    assert [step.get("name") for step in longest] == [None, "Greta Lindholm", None, "Kestrel Ferries", None]


def test_as_of_answers_with_the_past_state(told):
    earlier = told["questions"][4]
    words = " ".join(hit["memory"] for hit in earlier["results"])
    assert earlier["as_of"] == "2025-05-01"
    assert "Harbour Street" in words
    assert "Ljubljana" not in words


def test_the_correction_is_in_the_history(told):
    correction = told["correction"]
    assert correction["before"]["id"] == correction["after"]["id"]
    assert "21 June" in correction["before"]["memory"]
    assert "28 June" in correction["after"]["memory"]
    assert [event["event"] for event in correction["history"]] == ["ADD", "UPDATE"]


@pytest.mark.thorough
def test_demo_with_home_is_kept_and_can_be_repeated(told):
    home = str(told["home"])
    done = run("--home", home)
    assert done.returncode == 0, done.stderr
    assert "╰─ Kestrel Ferries ─╮" in done.stdout
    assert f"--user demo --home {home}" in done.stdout
    assert "\x1b" not in done.stdout


@pytest.mark.thorough
def test_demo_without_home_leaves_nothing_and_ignores_settings(tmp_path):
    temporary, ledger = tmp_path / "tmp", tmp_path / "mine.sqlite"
    temporary.mkdir()
    done = run(
        "--user", "somebody", TMPDIR=str(temporary), GRAPHMEM_HISTORY_DB_PATH=str(ledger), FORCE_COLOR="1", COLUMNS="72"
    )
    assert done.returncode == 0, done.stderr
    assert "change nothing here" in done.stderr
    assert not list(temporary.glob("graphmem*"))
    assert not ledger.exists()
    assert "\x1b[" in done.stdout
