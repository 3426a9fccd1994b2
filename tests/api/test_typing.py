"""The types of the public API: mypy accepts right uses and finds wrong ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mypy import api

FILES = Path(__file__).with_name("typing")
pytestmark = pytest.mark.thorough  # half a minute without a cache


def errors(name: str, cache: Path) -> tuple[set[int], str]:
    """The numbers of the lines in which mypy finds an error, and all it prints."""
    file = FILES / name
    output, failure, _ = api.run(["--strict", "--cache-dir", str(cache), "--hide-error-context", str(file)])
    assert not failure
    return {int(line) for line in re.findall(rf"{name}:(\d+): error", output)}, output


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mypy")


def test_right_uses_are_accepted(cache: Path) -> None:
    error_lines, output = errors("accepted.py", cache)
    assert not error_lines, output


def test_wrong_uses_are_refused(cache: Path) -> None:
    lines = (FILES / "refused.py").read_text("utf-8").splitlines()
    expected = {number for number, line in enumerate(lines, 1) if line.endswith("# error")}
    error_lines, output = errors("refused.py", cache)
    assert error_lines == expected, output
