"""langmem, unchanged, over the store: as the page says, and further. `.ci/thorough` installs it, pinned by its hash."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.documentation import ROOT, blocks_of

LANGMEM = ROOT / ".venv-clients/langmem"
pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(not LANGMEM.exists(), reason=".venv-clients/langmem is missing"),
]


def run(source: str, folder: Path) -> str:
    paths = os.pathsep.join([str(LANGMEM), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": paths, "LANGSMITH_TRACING": "false"}
    done = subprocess.run([sys.executable, "-c", source], env=environment, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_program_of_the_page(tmp_path: Path) -> None:
    (source,) = [source for info, source in blocks_of(ROOT / "docs/integrations/langmem.md") if info == "python"]
    assert '"content":"Clara works in Lisbon."' in run(source, tmp_path)


def test_its_tools_and_its_manager(tmp_path: Path) -> None:
    run((ROOT / "tests/clients/langmem_store.py").read_text("utf-8"), tmp_path)
