"""The comparison with other memories: the arithmetic of its report, and a run of what needs nothing installed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks" / "compare"
RUN = {
    "small": False, "date": "2026-11-28T01:02:03+00:00", "commit": {"id": "0123456789abcdef", "changed": False},
    "machine": {"cpus": 2, "model": "made up", "python": "3.11.2"}, "own": "graphmem", "floor": "dense",
    "systems": ["graphmem", "dense"], "left_out": {"mem0": "No module named 'mem0'"}, "timed": ["4 turns"],
    "used": {"graphmem": {"packages": {"graphmem": "0.1.0"}, "settings": "defaults"},
             "dense": {"packages": {}, "settings": "cosines"}},
}  # fmt: skip


@pytest.fixture(scope="module")
def report() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER)
        yield import_module("compare_report")


@pytest.fixture(scope="module")
def program() -> Iterator[ModuleType]:
    spec = spec_from_file_location("compare_program", FOLDER / "__main__.py")
    assert spec is not None
    assert spec.loader is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path])
        patch.setitem(sys.modules, spec.name, module := module_from_spec(spec))
        spec.loader.exec_module(module)
        yield module


def question(own: list[int], dense: list[int], gold: int = 2, **changed: Any) -> dict[str, Any]:
    return {
        "kind": "question", "data": "locomo", "group": "locomo", "partition": "a", "gold": gold,
        "ranks": {"graphmem": own, "dense": dense}, "ms": {"graphmem": 30.0, "dense": 10.0},
    } | changed  # fmt: skip


def test_recall_counts_what_stands_within_the_depth(report: ModuleType) -> None:
    asked = question([5, 6], [20], gold=4)
    assert [report.recall(asked, "graphmem", k) for k in (4, 5, 6, 20)] == [0, 0.25, 0.5, 0.5]
    assert [report.recall(asked, "dense", k) for k in (19, 20)] == [0, 0.25]


def test_conversations_are_drawn_and_questions_where_there_is_one(report: ModuleType) -> None:
    apart = [question([], [], partition=name) for name in "aabb"]
    together = [question([], []) for _ in range(4)]
    # Drawn as wholes, both conversations have the mean 50 %, as have all draws of them.
    assert report.share(apart, [0, 1, 0, 1]) == "50.0 [50.0, 50.0]"
    assert report.share(apart, [1, 1, 0, 0]) == "50.0 [0.0, 100.0]"
    assert report.share(together, [1, 1, 1, 1], signed=True) == "+100.0 [100.0, 100.0]"
    assert report.share(together[:1], [0.25]) == "25.0"


def test_the_report_has_recall_differences_ratios_and_bytes(report: ModuleType) -> None:
    timed = {"data": "4 turns", "group": "locomo"}
    records = [
        question([1, 2], [1]), question([1], [11, 12], partition="b"),
        {"kind": "stored", "data": "4 turns", "messages": 4, "bytes": {"graphmem": 8000, "dense": None}},
        question([], [], **timed),
        {"kind": "add", "data": "4 turns", "messages": 1, "ms": {"graphmem": 12.0, "dense": 4.0}},
        {"kind": "add", "data": "4 turns", "messages": 2, "ms": {"graphmem": 16.0, "dense": 4.0}},
    ]  # fmt: skip
    lines = list(report.report(RUN, records))
    assert "| recall at 5/10/20 in percent; questions | locomo, 2 |" in lines
    assert "| graphmem | 75/75/75 |" in lines
    assert "| dense | 25/25/75 |" in lines
    # 100 - 50 in one conversation, 50 - 0 in the other.
    assert any(line.startswith("| dense | 25.0 [0.0, 50.0]") and "+50.0 [50.0, 50.0]" in line for line in lines)
    assert "| graphmem | 30.0 / 30.0 (×3.0) | 12.0 / 12.0 (×3.0) | 8.0 / 8.0 (×4.0) | 2,000 |" in lines
    assert "| dense | 10.0 / 10.0 (×1.0) | 4.0 / 4.0 (×1.0) | 2.0 / 2.0 (×1.0) | – |" in lines
    assert "\nLeft out: mem0 (No module named 'mem0')." in lines


def test_groups_of_one_data_set_are_told_apart(report: ModuleType) -> None:
    records = [question([1], [1], data="chats", group=group) for group in ("friends", "notes")]
    lines = list(report.report(RUN | {"timed": []}, records))
    assert any(line.endswith("| chats: friends, 1 | chats: notes, 1 |") for line in lines)
    assert "\n## What it costs" not in lines


@pytest.mark.thorough
def test_the_baselines_are_asked_and_timed(tmp_path: Path) -> None:
    said = ["I moved to Lisbon.", "My dog is called Rex.", "The bakery closes at six.", "I play the cello."]
    asked = [
        ("Where does Ana live?", "D1:1"),
        ("What is the name of the dog?", "D1:2"),
        ("What does Ana play?", "D1:4"),
    ]
    turns = [{"speaker": "Ana", "dia_id": f"D1:{n}", "text": text} for n, text in enumerate(said, 1)]
    samples = [
        {"sample_id": name, "conversation": {"session_1_date_time": "1:56 pm on 8 May, 2023", "session_1": turns},
         "qa": [{"question": text, "answer": "x", "evidence": [gold], "category": 4} for text, gold in asked]}
        for name in ("c1", "c2")
    ]  # fmt: skip
    (tmp_path / "locomo.json").write_text(json.dumps(samples), "utf-8")
    out = tmp_path / "out"
    command = [sys.executable, str(FOLDER), "--locomo", str(tmp_path / "locomo.json"), "--small", "--memories", "40"]
    command += ["--systems", "FTS5 + numpy", "LangGraph SqliteStore", "--home", str(tmp_path), "--out", str(out)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    run, *records = map(json.loads, out.with_suffix(".jsonl").read_text("utf-8").splitlines())
    here = ["FTS5 + numpy", "dense"]
    assert run["systems"] == [*run["used"]] == here
    assert list(run["left_out"]) == ["LangGraph SqliteStore"]
    questions = [one for one in records if one["kind"] == "question" and one["data"] == "locomo"]
    assert [one["partition"] for one in questions] == ["c1"] * 3 + ["c2"] * 3
    # Four messages are fewer than the depth, so that all are found, the right one first by its words.
    assert all(len(one["ranks"][name]) == 1 for one in questions for name in here)
    assert all(one["ranks"]["FTS5 + numpy"] == [1] for one in questions)
    stored = {one["data"]: one for one in records if one["kind"] == "stored"}
    assert {name: one["messages"] for name, one in stored.items()} == {"locomo": 8, "40 turns": 40}
    assert all(size > 0 for one in stored.values() for size in one["bytes"].values())
    adds = [one["messages"] for one in records if one["kind"] == "add"]
    assert (adds.count(1), adds.count(20), len(adds)) == (8, 2, 10)
    report = out.with_suffix(".md").read_text("utf-8")
    assert "**A small run**" in report
    subprocess.run([sys.executable, str(FOLDER), "--report", str(out)], check=True)
    assert out.with_suffix(".md").read_text("utf-8") == report


def test_a_system_that_fails_in_its_own_way_is_left_out_with_the_reason(
    program: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """sqlite3 without extensions was an AttributeError that ended the run, in whichever of its calls LangGraph made."""

    class Broken:
        def open(self, place: Any) -> Any:
            return place.no_such_attribute

    monkeypatch.setattr(program, "SYSTEMS", {**program.SYSTEMS, "broken": Broken()})
    names, left_out = program.usable(["dense", "broken"], tmp_path, None)
    assert names == ["dense"]
    assert left_out == {"broken": "AttributeError: 'Place' object has no attribute 'no_such_attribute'"}
    monkeypatch.setattr(program, "SYSTEMS", {"dense": Broken()})
    (tmp_path / "again").mkdir()
    with pytest.raises(AttributeError):
        program.usable(["dense"], tmp_path / "again", None)
