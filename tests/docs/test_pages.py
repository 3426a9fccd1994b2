"""Pages that the strict build of the site does not check: files outside docs/, the navigation, what readers copy."""

from __future__ import annotations

import ast
import builtins
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from support.command_line import check_command
from support.documentation import (
    GENERATED,
    INDENTED,
    NO_PROGRAM,
    OUTSIDE,
    OWN_NAMES,
    PAGES,
    RELEASED,
    ROOT,
    blocks_of,
    commands,
    name_of,
)


def test_readme_fits_one_screen():
    assert len((ROOT / "README.md").read_bytes()) <= 8_000


@pytest.mark.parametrize("page", [ROOT / "README.md", *OUTSIDE], ids=name_of)
def test_relative_links_lead_to_files(page: Path):
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


# --- what readers copy ------------------------------------------------------------------------------------------------


def _shell_commands() -> Iterator[list[str]]:
    """The words of each command in a shell block or an indented block of all pages, without redirections."""
    for page in [*PAGES, *OUTSIDE]:
        for info, source in blocks_of(page):
            if info in {"sh", INDENTED}:
                for line in commands(source):
                    yield from map(shlex.split, re.sub(r"\s>\s*\S+", "", line).split("&&"))


def test_commands_of_pages_can_be_used():
    checked = 0
    for words in _shell_commands():
        if words[:2] == ["docker", "compose"] and "graphmem" in words:  # the service whose program it is
            words = words[words.index("graphmem") :]
        if os.path.basename(words[0]) == "graphmem":
            check_command(["graphmem", *words[1:]])
            checked += 1
    assert checked > 30


def test_commands_in_sentences_have_these_options():
    checked = 0
    for page in {*PAGES, *OUTSIDE} - {ROOT / "CHANGELOG.md"}:  # which names former ones
        text = page.read_text("utf-8").partition(GENERATED)[0]
        for span in re.findall(r"`((?:[^`\n]* -- )?graphmem\s[^`]+)`", re.sub(r"(?ms)^```.*?^```$", "", text)):
            words = shlex.split(span.rpartition(" -- ")[2].partition("…")[0])
            check_command(words, is_whole=" -- " in span)
            checked += 1
    assert checked > 30


def test_pip_installs_extras_that_exist():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    places = [*PAGES, *OUTSIDE, *(ROOT / "examples").glob("*.py"), *(ROOT / "graphmem").rglob("*.py")]
    named = [
        extra
        for place in places
        for names in re.findall(
            r"(?:'\.\[|required\(.*extra=\"|install_extra\(['\"])([\w,-]+)", place.read_text("utf-8")
        )
        for extra in names.split(",")
    ]
    assert len(named) > 20
    assert set(named) <= project["optional-dependencies"].keys()


def test_docker_compose_has_the_services_and_profiles_of_the_pages():
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))["services"]
    profiles = {profile for service in services.values() for profile in service.get("profiles", [])}
    composed = [words for words in _shell_commands() if words[:2] == ["docker", "compose"]]
    assert composed
    for words in composed:
        assert {words[place + 1] for place, word in enumerate(words) if word == "--profile"} <= profiles
        if "run" in words:
            assert next(word for word in words[words.index("run") + 1 :] if not word.startswith("-")) in services


def test_files_of_the_clone_that_commands_name_exist():
    started = [words[:2] if words[0] in {"python", "cp"} else words[:1] for words in _shell_commands()]
    files = [
        words[-1] for words in started if words[-1].endswith(".py") or words[0] in {"cp", ".ci/run", ".ci/thorough"}
    ]
    assert {"cypher/explore/serve.py", ".env.example", ".ci/run"} <= set(files)
    assert [file for file in files if not (ROOT / file).exists()] == []


def test_nothing_says_to_install_what_no_package_index_has():
    assert RELEASED != ("Nothing has been published yet" in (ROOT / "CHANGELOG.md").read_text("utf-8"))
    places = [*PAGES, *OUTSIDE, *(ROOT / "examples").glob("*.py"), *(ROOT / "graphmem").rglob("*.py")]
    places += [ROOT / name for name in ("Dockerfile", "docker-compose.yml", ".env.example", "Makefile")]
    by_name = re.compile(r"\b(?:pipx?3? (?:install|run)|uvx|uv (?:add|tool \w+))\s(?:-\S+\s+)*['\"]?graphmem\b")
    found = [name_of(place) for place in places if by_name.search(place.read_text("utf-8"))]
    assert RELEASED or found == []


def _python(page: Path) -> list[str]:
    return [source for info, source in blocks_of(page) if info == "python"]


def test_names_in_an_example_are_defined_where_the_reader_sees_it():
    for page in PAGES:
        known = {*dir(builtins), *OWN_NAMES.get(name_of(page), set())}
        for source in _python(page):
            used = set()
            for node in ast.walk(ast.parse(source)):
                match node:
                    case ast.Name(name, ast.Load()):
                        used.add(name)
                    case ast.Name(name) | ast.FunctionDef(name) | ast.AsyncFunctionDef(name) | ast.ClassDef(name):
                        known.add(name)
                    case ast.arg(name) | ast.ExceptHandler(name=name):
                        known.add(name)
                    case ast.alias(name, other):
                        known.add(other or name.partition(".")[0])
            assert used <= known, f"{name_of(page)}: {sorted(used - known)}"


@pytest.mark.thorough  # each is a process that loads the models
@pytest.mark.parametrize("page", [one for one in PAGES if _python(one) and name_of(one) not in NO_PROGRAM], ids=name_of)
def test_examples_that_a_reader_copies_run_as_a_program(page: Path, tmp_path: Path):
    (tmp_path / "copied.py").write_text("\n\n".join(_python(page)), "utf-8")
    environment = {**os.environ, "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    run = subprocess.run([sys.executable, "copied.py"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    if page.name == "chats.md":
        assert "Ana: My sister Clara looks after the sea otters at the aquarium." in run.stdout
