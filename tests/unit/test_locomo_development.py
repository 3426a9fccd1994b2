"""Whoever has LOCOMO's public file can make the one that the published figures are of."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from graphmem.evaluation.locomo import DEVELOPMENT

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
PROGRAM = [sys.executable, str(BENCHMARKS / "locomo_development.py")]


def test_the_conversations_of_the_published_figures_are_taken_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "locomo10.json"
    samples = [{"sample_id": name, "qa": "“Où?”"} for name in ("conv-1", *DEVELOPMENT, "conv-99")]
    path.write_text(json.dumps(samples), "utf-8")
    written = subprocess.run([*PROGRAM, str(path)], capture_output=True, check=True).stdout
    assert written == json.dumps(samples[1:-1], ensure_ascii=False).encode()
    path.write_text(json.dumps(samples[2:]), "utf-8")
    refused = subprocess.run([*PROGRAM, str(path)], capture_output=True, text=True, check=False)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "locomo: it must have conv-26, " in refused.stderr


def test_the_published_answers_and_comparison_are_of_these_conversations() -> None:
    results = BENCHMARKS / "results"
    answers = map(json.loads, (results / "qa-desk.jsonl").read_text("utf-8").splitlines())
    assert {one["conversation"] for one in answers if one["kind"] == "answer"} == set(DEVELOPMENT)
    asked = map(json.loads, (results / "compare.jsonl").read_text("utf-8").splitlines())
    assert {one["partition"] for one in asked if one.get("data") == "locomo" and "partition" in one} == set(DEVELOPMENT)
