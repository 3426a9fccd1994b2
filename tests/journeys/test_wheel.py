"""The wheel, installed outside the checkout, is complete: it runs the demo and has all data files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from support.waiting import TIMEOUT

CHECKOUT = Path(__file__).parents[2]
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]


@pytest.mark.thorough
def test_the_wheel_runs_the_demo_outside_the_checkout(tmp_path: Path) -> None:
    build = [*PIP, "wheel", "--no-deps", "--no-build-isolation", "-w", str(tmp_path), str(CHECKOUT)]
    subprocess.run(build, check=True, timeout=2 * TIMEOUT)
    (wheel,) = tmp_path.glob("graphmem-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "graphmem/_cypher/README.md" in names
    assert "graphmem/stores/ledger/migrations/versions/0009_first.py" in names
    assert {"graphmem/py.typed", "graphmem/prompts/rewrite.md"} <= set(names)
    assert {"graphmem/cli/graph/answers.js", "graphmem/service/ui/index.html"} <= set(names)
    assert {"graphmem/folding/traditional.txt", "graphmem/folding/LICENSE.opencc.txt"} <= set(names)
    assert {"graphmem/retrieval/temporal/words.json", "graphmem/retrieval/temporal/LICENSE.cldr.txt"} <= set(names)
    assert "graphmem/coding_agents/opencode_plugin.js" in names
    bundled = {"htm-preact.js", "force-graph.min.js", "LICENSES.txt", "force-graph.LICENSES.txt"}
    assert {f"graphmem/service/ui/vendor/{name}" for name in bundled} <= set(names)
    weights = {name.rpartition("/")[2] for name in names if name.startswith("graphmem/models/weights/")}
    question_map = "use-multilingual-v3.question-map.npy"
    assert weights == {"minilm-l6-v2.ort", "minilm-l6-v2.tokenizer.json", question_map, "LICENSES.txt"}
    assert {"graphmem/service/monitoring/alerts.yml", "graphmem/service/monitoring/board.json"} <= set(names)

    site = tmp_path / "site"
    subprocess.run(
        [*PIP, "install", "--no-deps", "--no-index", "--target", str(site), str(wheel)],
        check=True,
        timeout=2 * TIMEOUT,
    )
    home = tmp_path / "home"
    home.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(site), "HOME": str(home)}
    environment.pop("GRAPHMEM_HOME", None)
    location = subprocess.run(
        [sys.executable, "-c", "import graphmem; print(graphmem.__file__)"],
        cwd=tmp_path, env=environment, check=True, capture_output=True, text=True, timeout=TIMEOUT,
    )  # fmt: skip
    assert Path(location.stdout.strip()).is_relative_to(site)
    demo = subprocess.run(
        [sys.executable, "-m", "graphmem", "demo", "--json"],
        cwd=tmp_path, env=environment, check=False, capture_output=True, text=True, timeout=2 * TIMEOUT,
    )  # fmt: skip
    assert demo.returncode == 0, demo.stderr
    assert json.loads(demo.stdout)
