"""`graphmem bench` from a file to figures, with models that need no files."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from support.fakes import fake_models
from typer.testing import CliRunner

from graphmem import Memory, Settings
from graphmem.cli import render
from graphmem.cli.app import app
from graphmem.evaluation import lifecycle
from graphmem.testing import ModelEndpoint

runner = CliRunner()

TURNS = [
    ("Ann", "My brother Bo lives in Oslo."),
    ("Cy", "I like apples."),
    ("Ann", "Bo bought a boat."),
    ("Cy", "The weather is fine."),
]
LOCOMO = [
    {
        "sample_id": "conv-1",
        "conversation": {
            "session_1_date_time": "1:56 pm on 8 May, 2023",
            "session_1": [
                {"speaker": speaker, "dia_id": f"D1:{place}", "text": text}
                for place, (speaker, text) in enumerate(TURNS, 1)
            ],
        },
        "qa": [
            {"question": "What did Bo buy, and where does he live?", "evidence": ["D1:1", "D1:3"], "category": 1},
            {"question": "What does Cy like?", "evidence": ["D1:2"], "category": 4},
            {"question": "What did Cy buy?", "evidence": ["D1:3"], "category": 5},
        ],
    }
]
MUSIQUE = [
    {
        "id": "2hop__1_2",
        "question": "Where was the founder of Acme born?",
        "paragraphs": [
            {"title": title, "paragraph_text": text, "is_supporting": True}
            for title, text in (("Acme", "Acme was founded by Eve Ito."), ("Eve Ito", "Eve Ito was born in Oslo."))
        ],
    }
]
CHATS = [
    {
        "name": "chat-1",
        "about": "friends",
        "sessions": [{"at": "2024-05-01T12:00:00+00:00", "turns": TURNS}],
        "questions": [
            {"ask": "What does Cy like?", "at": "2024-05-02T12:00:00+00:00", "kind": "single", "gold": ["1:2"]}
        ],
    }
]


ANSWERS = {
    "cases": [
        {
            "id": "home-1",
            "lang": "en",
            "kind": "first person",
            "about": ["home"],
            "ask": "Where do I live?",
            "stored": ["I live in Oslo.", "Bo lives in Rome."],
            "needed": [0],
        },
        {"id": "world-1", "lang": "en", "kind": "world", "about": ["world"], "ask": "Who wrote Hamlet?"},
    ],
    "noise": [{"lang": "en", "text": text} for text in ("It rained.", "The lift was stuck.", "A dog barked.")],
}


@pytest.fixture(autouse=True)
def ledger_path(tmp_path, monkeypatch):
    """The path of the user's own ledger, which the settings name and no benchmark may touch."""
    monkeypatch.setenv("GRAPHMEM_HOME", str(tmp_path / "mine"))
    path = tmp_path / "mine.sqlite"
    settings = Settings.from_dict(fake_models(history_db_path=str(path)))
    monkeypatch.setattr(Settings, "from_env", classmethod(lambda cls, **_: settings))
    return path


@pytest.fixture(autouse=True)
def opened_folders(monkeypatch):
    """The folders that benchmarks opened. All data is in memory: for so few messages a disk takes most of the time."""
    folders = []

    def open_memory(folder, *, settings):
        folders.append(Path(folder))
        return Memory(":memory:", settings=settings)

    monkeypatch.setattr("graphmem.memory.Memory", open_memory)
    return folders


@pytest.fixture
def files(tmp_path):
    paths = {"locomo": LOCOMO, "musique": MUSIQUE, "chats": CHATS}
    for name, value in paths.items():
        paths[name] = tmp_path / f"{name}.json"
        paths[name].write_text(json.dumps(value))
    paths["answers"] = tmp_path / "answers"
    paths["answers"].mkdir()
    for name, value in ANSWERS.items():
        (paths["answers"] / f"{name}.json").write_text(json.dumps(value))
    return {name: str(path) for name, path in paths.items()}


def run(*arguments, status=0):
    result = runner.invoke(app, ["bench", *arguments])
    assert result.exit_code == status, (result.exit_code, result.stdout, result.stderr, result.exception)
    return result


def test_locomo_from_a_file_to_figures(files, ledger_path, tmp_path):
    report = json.loads(run("locomo", files["locomo"], "--json").stdout)
    assert report["benchmark"] == "locomo"
    assert report["data"]["files"][0]["name"] == "locomo.json"
    assert len(report["data"]["files"][0]["sha256"]) == 64
    assert (report["data"]["messages"], report["data"]["questions"], report["adding"]["messages"]) == (4, 2, 4)
    assert report["data"]["left_out"] == {"questions of category 5 (adversarial)": 1}
    assert report["models"] == {"embedder": "hash", "extractor": "none"}
    assert {"cpus", "model", "system", "python"} == set(report["machine"])
    figures = {(one["by"], one["value"]): one for one in report["figures"]}
    assert list(figures) == [
        ("all", "1-4"), ("category", "1"), ("category", "4"), ("gold turns", "1"), ("gold turns", "2")
    ]  # fmt: skip
    assert figures["all", "1-4"]["measures"]["full"]["recall@10"] == 1
    assert figures["category", "4"]["name"] == "single-hop"
    assert str(tmp_path) not in json.dumps(report)
    assert not ledger_path.exists()
    assert not (tmp_path / "mine").exists()


def test_report_as_tables(files):
    output = run("multihop", files["musique"]).stdout
    assert "questions: 1, messages: 2, partitions: 1" in output
    assert "musique, hops 2, n=1" in output
    assert "full minus" in output
    assert "R@10" in output


def test_pooled_has_one_partition_and_figures_for_each_data_set(files):
    report = json.loads(run("pooled", files["locomo"], files["musique"], "--json").stdout)
    assert (report["data"]["partitions"], report["data"]["messages"], report["data"]["questions"]) == (1, 6, 3)
    assert [(one["data"], one["n"]) for one in report["figures"] if one["by"] == "all"] == [
        ("pooled", 3), ("locomo", 2), ("musique", 1)
    ]  # fmt: skip
    assert len(report["data"]["files"]) == 2


def test_everyday_questions_from_a_folder_to_figures(files, ledger_path):
    report = json.loads(run("answers", files["answers"], "--threshold", "0", "--cases", "--json").stdout)
    assert report["arguments"] == {"context": {"threshold": 0.0}, "sizes": [3, 12, 60]}
    assert report["data"]["files"][0]["name"] == "cases.json"
    assert (report["data"]["cases"], report["data"]["partitions"], report["data"]["questions"]) == (2, 3, 6)
    everything = report["figures"][0]
    assert (everything["n"], everything["in"], everything["search@5"]) == (3, 1, 1)
    assert set(report["cases"]) == {"home-1", "world-1"}
    short = json.loads(run("answers", files["answers"], "--max-chars", "1", "--json").stdout)
    assert [short["figures"][place][key] for place, key in ((0, "in"), (0, "empty"), (1, "silent"))] == [0, 1, 1]
    assert "cases" not in short
    assert not ledger_path.exists()


def test_everyday_questions_as_a_table(files):
    output = run("answers", files["answers"]).stdout
    assert "cases: 2, partitions: 3, questions: 6" in output
    assert re.search(r"^en, first person +3 ", output, re.MULTILINE)
    assert "median: context" in output


@pytest.mark.parametrize("command", ["locomo", "chats", "multihop", "pooled"])
def test_each_benchmark_leaves_a_configured_language_model_alone(files, monkeypatch, command):
    needed = {"multihop": ["musique"], "pooled": ["locomo", "musique"]}.get(command, [command])
    with ModelEndpoint(default='{"facts": ["Likes apples"]}') as endpoint:
        llm = {"config": {"openai_base_url": endpoint.url, "api_key": "k", "model": "m"}}
        settings = Settings.from_dict(fake_models(llm=llm))
        monkeypatch.setattr(Settings, "from_env", classmethod(lambda cls, **_: settings))
        report = json.loads(run(command, *(files[name] for name in needed), "--json").stdout)
    assert report["adding"]["messages"] == report["data"]["messages"]
    assert not endpoint.requests


def test_progress_is_written_in_lines_where_there_is_no_terminal(files, monkeypatch):
    monkeypatch.setattr(render, "LINE_INTERVAL", 0)
    lines = run("locomo", files["locomo"], "--json").stderr.splitlines()
    assert lines[0] == "graphmem: messages: 0 of 4"
    assert {"graphmem: messages: 4 of 4", "graphmem: questions: 1 of 2", "graphmem: latency: 2 of 2"} <= set(lines)
    monkeypatch.setattr(render, "LINE_INTERVAL", 3600)
    assert run("locomo", files["locomo"], "--json").stderr == ""


def test_progress_is_a_bar_in_a_terminal(files, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with render.ProgressBar(delay=0) as bar:
        bar.update("messages", 0, 4)
        bar._bar.refresh()
    assert "messages" in capsys.readouterr().err


def test_languages_are_shown_beside_each_other(tmp_path):
    for language, prefix in (("en", ""), ("de", "Frage ")):
        entries = [{"id": key, "stored": f"word{key} here", "question": f"{prefix}word{key}"} for key in range(8)]
        lines = [json.dumps(entry) for entry in [*entries, {"id": 8, "stored": "Nothing else."}]]
        (tmp_path / f"{language}.jsonl").write_text("\n".join(lines))
    arguments = "languages", str(tmp_path), "--languages", "de", "--limit", "2"
    report = json.loads(run(*arguments, "--json").stdout)
    assert report["benchmark"] == "languages"
    assert [(one["data"], one["value"], one["n"]) for one in report["figures"]] == [
        (size, value, 2)
        for size in ("5 sentences", "9 sentences")
        for value in ("de", "en", "de over en", "en over de")
    ]
    assert [source["name"] for source in report["data"]["files"]] == ["en.jsonl", "de.jsonl"]
    lines = run(*arguments).stdout.splitlines()
    assert all(len(line) <= 80 for line in lines)
    rows = [line.split() for line in lines if line.startswith("en over de ")]
    assert rows == [["en", "over", "de", *["100/100/100"] * 3, "+0.000", "[+0.000,", "+0.000]"]] * 2
    error = run("languages", str(tmp_path), "--languages", "de,xx", status=2).stderr
    assert error.startswith("graphmem: --languages='xx': must be one of 'de'")
    assert "--limit=9: must be" in run("languages", str(tmp_path), "--limit", "9", status=2).stderr


LIFECYCLE = str(Path(__file__).parents[2] / "benchmarks" / "lifecycle")


@pytest.mark.thorough
def test_a_simulated_year_is_lived_and_goes_on_from_what_is_kept(tmp_path, monkeypatch, ledger_path):
    arguments = ("lifecycle", LIFECYCLE, "--languages", "zh", "--personas", "1", "--days", "38")
    arguments += ("--home", str(tmp_path / "kept"))
    report = json.loads(run(*arguments, "--json").stdout)
    assert report["data"]["messages"] == 38 * 20
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["zh-1.json"]
    assert [month["month"] for month in report["figures"]["all"]["months"]] == ["2025-01", "2025-02"]
    (person,) = report["persons"]
    last, nights = person["months"][-1], person["nights"]
    assert last["on"]["visible"] == sum(last["on"]["layers"].values()) < last["off"]["visible"] == 38 * 20
    assert nights["counts"]["forgotten"] == 38 * 20 - last["on"]["visible"]
    assert nights["counts"]["purged"] == 38 * 20 - last["on"]["memories"] > 0
    assert nights["cycle_ms"]["number"] == 38
    assert nights["made"]["sources"]["memories"] >= 3 * nights["made"]["results"]["memories"]
    assert {bar["met"] for bar in report["bars"]} > {None}
    assert not ledger_path.exists()
    monkeypatch.setattr(lifecycle, "live", None)
    again = run(*arguments).stdout
    assert "persons: 1, messages: 760" in again
    assert re.search(r"^fact +\d+ +[\d.]+ +[\d.]+ +[\d.]+$", again, re.MULTILINE)
    assert all(len(line) <= 80 for line in again.splitlines())


@pytest.mark.thorough
def test_a_simulated_year_counts_what_a_language_model_would_be_asked(tmp_path):
    arguments = ("lifecycle", LIFECYCLE, "--languages", "zh", "--personas", "1", "--days", "9", "--quoting-model")
    arguments += ("--home", str(tmp_path / "kept"))
    report = json.loads(run(*arguments, "--json").stdout)
    assert report["models"]["llm"] == "a script that quotes"
    (month,) = report["figures"]["all"]["months"]
    tokens = {name: month["model"].pop(name) for name in ("prompt_tokens", "completion_tokens")}
    requests = sum(month["model"].values())
    assert requests >= report["figures"]["all"]["nights"]["summarized"] > 0
    made = report["figures"]["all"]["compression"]["made"]  # a summary stands for none of its sources
    assert made["sources"]["memories"] >= 3 * made["results"]["memories"]
    assert tokens["prompt_tokens"] > 100 * requests
    assert tokens["completion_tokens"] >= requests
    shown = run(*arguments).stdout
    assert re.search(r"summarize +tokens in +tokens out$", shown, re.MULTILINE)
    assert re.search(rf"^2025-01 .* {tokens['prompt_tokens']} +{tokens['completion_tokens']}$", shown, re.MULTILINE)
    assert all(len(line) <= 80 for line in shown.splitlines())


def test_data_is_kept_only_with_home(files, opened_folders, tmp_path):
    run("multihop", files["musique"], "--home", str(tmp_path / "kept"))
    run("multihop", files["musique"])
    assert opened_folders[0] == tmp_path / "kept"
    assert opened_folders[1].parent == Path(tempfile.gettempdir())
    assert not opened_folders[1].exists()


def test_a_folder_with_other_memories_is_refused(files, monkeypatch):
    class UsedMemory(Memory):
        def __init__(self, _, *, settings):
            super().__init__(":memory:", settings=settings)
            self.add("Something else.", user_id="conv-1")

    monkeypatch.setattr("graphmem.memory.Memory", UsedMemory)
    result = run("locomo", files["locomo"], "--home", "used", status=1)
    assert result.stderr.startswith("graphmem: user 'conv-1' has 5 memories here, the data 4 messages")


def test_errors_are_one_line_that_names_the_file(files, tmp_path):
    result = run("locomo", files["musique"], status=1)
    assert result.stderr == f"graphmem: {files['musique']}, entry 1: expected 'sample_id' to be text\n"
    result = run("multihop", files["locomo"], status=1)
    assert "expected MuSiQue's form" in result.stderr
    missing_file = str(tmp_path / "gone.json")
    assert f"{missing_file}: cannot be read" in run("multihop", missing_file, status=1).stderr


def test_help_lists_benchmarks_and_imports_nothing_heavy():
    output = run("--help").stdout
    assert all(name in output for name in ("locomo", "multihop", "pooled", "languages", "answers"))
    code = "import sys, graphmem.cli.app; print(sorted({'numpy', 'rich.table', 'spacy'} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
