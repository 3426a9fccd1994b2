"""The benchmark of the service, with a short soak: no request fails, and the memory does not grow."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Growth of the resident memory from the second to the last quarter of a minute in which memories are added.
MAX_GROWTH = 1.25


@pytest.mark.thorough
def test_under_load_no_request_fails_and_memory_is_flat() -> None:
    command = [sys.executable, "benchmarks/service.py", "benchmarks/chats/en-1.json", "--seconds", "2"]
    ran = subprocess.run([*command, "--soak-minutes", "1"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    figures = json.loads(ran.stdout)
    statuses = {status for clients in figures["load"]["search"].values() for status in clients["statuses"]}
    assert statuses == {"200"}
    statuses = {status for clients in figures["load"]["add"].values() for status in clients["statuses"]}
    assert statuses == {"202"}
    assert set(figures["beyond_capacity"]["statuses"]) == {"200", "503 Retry-After: 1"}
    assert set(figures["soak"]["search"]["statuses"]) == {"200"}
    assert set(figures["soak"]["add"]["statuses"]) == {"202"}
    assert figures["soak"]["growth"] < MAX_GROWTH
