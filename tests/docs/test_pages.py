"""Pages that the strict build of the site does not check: files outside docs/, and the navigation itself."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OUTSIDE = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "cypher/README.md", "tests/README.md"]


def test_readme_fits_one_screen():
    assert len((ROOT / "README.md").read_bytes()) <= 8_000


@pytest.mark.parametrize("name", [*OUTSIDE, "benchmarks/README.md"])
def test_relative_links_lead_to_files(name: str):
    page = ROOT / name
    links = re.findall(r"\]\(([^)#\s]+)", page.read_text("utf-8"))
    assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == []


def test_the_legend_names_every_label_and_type_of_the_style():
    style = (ROOT / "cypher/explore/style.grass").read_text("utf-8")
    page = (ROOT / "docs/how-to/neo4j-browser.md").read_text("utf-8")
    legend = page.partition("## Read the picture")[2].partition("\n## ")[0]
    assert set(re.findall(r"(?m)^(?:node|relationship)\.(\w+)", style)) == set(re.findall(r"`([A-Z]\w+)`", legend))


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "zensical.toml").read_text("utf-8")
    tomllib.loads(navigation)
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")}
    records = {page for page in pages if re.match(r"decisions/\d{4}-", page)}
    assert pages - records == set(re.findall(r'"([\w/-]+\.md)"', navigation))
    index = (ROOT / "docs/decisions/index.md").read_text("utf-8")
    assert records == {f"decisions/{name}" for name in re.findall(r"\((\d{4}-[\w-]+\.md)\)", index)}
