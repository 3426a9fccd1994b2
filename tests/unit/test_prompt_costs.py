"""The committed table of prompt costs is up to date and within the limits."""

from __future__ import annotations

import json
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_the_table_is_that_of_these_prompts() -> None:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import tokens
    finally:
        sys.path.remove(str(BENCHMARKS))
    table = tokens.counted()
    assert json.loads(tokens.RESULTS.read_text("utf-8")) == table, "python benchmarks/tokens.py writes it anew"
    assert all(one["tokens"] <= tokens.MOST and one["calls"] <= 2 for one in table["an add"].values())
