"""The demo finds the intended answers through the graph and prints them; where it is thorough, as a program."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from support.waiting import TIMEOUT
from typer.testing import CliRunner

from graphmem import Memory
from graphmem.cli.app import app
from graphmem.cli.demo import AGENT_MESSAGE, USER

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
        timeout=TIMEOUT,
        check=False,
    )


@pytest.fixture(scope="module")
def demo_report(tmp_path_factory):
    home = tmp_path_factory.mktemp("demo")
    result = CliRunner().invoke(app, ["demo", "--json", "--home", str(home)])
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout) | {"home": home}


def find_answer(entry):
    return next((hit for hit in entry["results"] if ANSWERS[entry["question"]] in hit["memory"]), None)


def test_every_answer_is_among_the_first_three(demo_report):
    entries = [entry for entry in demo_report["questions"] if entry["as_of"] is None]
    assert [entry["question"] for entry in entries] == list(ANSWERS)
    for entry in entries:
        assert len(entry["results"]) == 3
        assert find_answer(entry) is not None, entry["question"]


def test_answers_are_reached_through_entities_and_not_by_similarity(demo_report):
    paths = []
    for entry in demo_report["questions"][:4]:
        hit = find_answer(entry)
        path = hit["explain"]["path"]
        assert path[-1]["id"] == hit["id"]
        if len(path) >= 3 and any(step["type"] == "entity" for step in path[1:-1]):
            paths.append(path)
            assert hit["explain"]["arms"]["dense"]["rank"] > 3, "similarity alone would have found it as well"
    assert len(paths) >= 2
    longest = max(paths, key=len)
    assert [step.get("name") for step in longest] == [None, "Greta Lindholm", None, "Kestrel Ferries", None]


def test_as_of_answers_with_the_past_state(demo_report):
    entry = demo_report["questions"][4]
    words = " ".join(hit["memory"] for hit in entry["results"])
    assert entry["as_of"] == "2025-05-01"
    assert "Harbour Street" in words
    assert "Ljubljana" not in words


def test_the_correction_is_in_the_history(demo_report):
    correction = demo_report["correction"]
    assert correction["before"]["id"] == correction["after"]["id"]
    assert "21 June" in correction["before"]["memory"]
    assert "28 June" in correction["after"]["memory"]
    assert [event["event"] for event in correction["history"]] == ["ADD", "UPDATE"]


def test_the_conversation_has_each_kind_of_link(demo_report):
    with Memory(demo_report["home"]) as memory:
        memories = memory.get_all(user_id=USER, limit=100)["results"]
        moravec = memory.entity("Mr Moravec", user_id=USER)
    assert [one["memory"] for one in memories if one["agent_id"] == "helper"] == [AGENT_MESSAGE["content"]]
    assert "on Tuesday" not in " ".join(one["memory"] for one in memories)
    assert moravec["name"] == "Bela Moravec"


@pytest.mark.thorough
def test_demo_into_a_store_out_of_reach_says_what_is_pending(tmp_path):
    config = tmp_path / "neo4j.json"
    neo4j = {"url": "bolt://127.0.0.1:9", "username": "neo4j", "password": "unused"}
    config.write_text(json.dumps({"graph_store": {"provider": "neo4j", "config": neo4j}}))
    process = run("--home", str(tmp_path / "home"), "--config", str(config))
    assert process.returncode == 1
    assert process.stderr.splitlines()[-1].startswith("graphmem: the conversation is stored, but not yet in graph, ")
    assert "A correction" in process.stdout
    assert "No server" not in process.stdout
    assert f"--config {config}" in process.stdout


@pytest.mark.thorough
def test_demo_with_home_is_kept_and_can_be_repeated(demo_report):
    home = str(demo_report["home"])
    process = run("--home", home)
    assert process.returncode == 0, process.stderr
    assert "╰─ Kestrel Ferries ─╮" in process.stdout
    assert f"--user demo --home {home}" in process.stdout
    assert "\x1b" not in process.stdout


@pytest.mark.thorough
def test_demo_without_home_leaves_nothing_and_ignores_settings(tmp_path):
    temporary, ledger = tmp_path / "tmp", tmp_path / "mine.sqlite"
    temporary.mkdir()
    process = run(TMPDIR=str(temporary), GRAPHMEM_HISTORY_DB_PATH=str(ledger), FORCE_COLOR="1", COLUMNS="72")
    assert process.returncode == 0, process.stderr
    assert not list(temporary.glob("graphmem*"))
    assert not ledger.exists()
    assert "\x1b[" in process.stdout
