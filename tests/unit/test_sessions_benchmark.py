"""The benchmark of sessions counts what a scripted model makes of two sessions."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.fake_llm import UPDATE, Scripted, fact

from graphmem.testing import ModelEndpoint

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "sessions.py"
SESSIONS = {
    "session_1_date_time": "1:56 pm on 8 May, 2023",
    "session_1": [
        {"speaker": "Ana", "dia_id": "D1:1", "text": "I love performing live."},
        {"speaker": "Ben", "dia_id": "D1:2", "text": "I drive a classic car."},
    ],
    "session_2_date_time": "1:14 pm on 25 July, 2023",
    "session_2": [{"speaker": "Ana", "dia_id": "D2:1", "text": "I live for concerts."}],
}
SAMPLE = {
    "sample_id": "c1",
    "conversation": SESSIONS,
    "qa": [{"question": "Who performs?", "answer": "Ana", "evidence": ["D1:1"], "category": 4}],
}


@pytest.mark.thorough
def test_requests_decisions_and_names_are_counted(tmp_path: Path) -> None:
    data = tmp_path / "locomo.json"
    data.write_text(json.dumps([SAMPLE]), "utf-8")
    car = {"entities": ["classic car (Object)"]}
    model = Scripted(
        {
            "I love performing live.": [fact("Loves performing live")],
            "I drive a classic car.": [fact("Drives a classic car", **car)],
            "I live for concerts.": [fact("Loves concerts")],
        },
        {("Loves concerts", "Loves performing live"): UPDATE("Loves concerts and performing live")},
    )
    with ModelEndpoint(default=model) as endpoint:
        command = [sys.executable, str(BENCHMARK), str(data), "c1", endpoint.url]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    figures = json.loads(ran.stdout[ran.stdout.index("{") :])
    assert (figures["sessions"], figures["messages"]) == (2, 3)
    assert figures["requests"]["facts"] == 2
    assert figures["decisions"]["events"] == {"ADD": 2, "UPDATE": 1}
    assert figures["lost_messages"] == {"drawn from": 3, "lost": []}
    assert figures["entities"] == {"names": 1, "other types": {}, "alike": []}
    assert figures["dates"] == {"facts": 2, "far from their last message": 0}
