"""The files of the page at `/ui/`: headers, bundled libraries, and that texts never become markup."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from support.service import client_of

from graphmem import Memory
from graphmem.commands import facts, imports, lifecycle
from graphmem.commands.types import OutcomeType
from graphmem.ingest.facts.contradiction import StatedFact, contradicts
from graphmem.lifecycle import conflicts, decay
from graphmem.model import Statement
from graphmem.service.rest import page
from graphmem.stores.ledger.vitals import MERGED_INTO

UI = Path(str(files("graphmem.service") / "ui"))
OURS = [path for path in sorted(UI.rglob("*.*")) if path.parent.name != "vendor"]
SCRIPTS = [path for path in OURS if path.suffix == ".js"]
MANIFEST = json.loads((UI / "vendor/manifest.json").read_text("utf-8"))
WORDS = [path for path in SCRIPTS if path.parent.name == "words"]


def test_every_file_is_served_without_a_key_and_with_the_headers_of_the_page(memory: Memory) -> None:
    with client_of(memory, role=None) as client:
        for path in [*OURS, *(UI / "vendor").glob("*.js")]:
            answer = client.get(f"/ui/{path.relative_to(UI)}")
            assert (answer.status_code, answer.content) == (200, path.read_bytes())
            assert (answer.headers["content-encoding"], answer.headers["vary"]) == ("gzip", "Accept-Encoding")
            assert answer.headers["content-type"] == page.MEDIA_TYPES[path.suffix]
            assert {name: answer.headers[name] for name in page.HEADERS} == page.HEADERS
            assert "set-cookie" not in answer.headers
        assert client.get("/").url.path == "/ui/"
        document = client.get("/ui/")
        assert document.content == (UI / "index.html").read_bytes()
        assert client.get("/caller").status_code == 401
        known = {"If-None-Match": document.headers["etag"]}
        unchanged = client.get("/ui/", headers=known)
        assert (unchanged.status_code, unchanged.content) == (304, b"")
        assert unchanged.headers["vary"] == "Accept-Encoding"
        # The compressed file is another one than that which a client without gzip gets.
        plain = client.get("/ui/", headers={**known, "Accept-Encoding": "identity"})
        assert (plain.status_code, plain.content) == (200, document.content)


def imported(path: str, found: set[str]) -> set[str]:
    """The modules that a module needs to run, itself among them."""
    found.add(path)
    imports = re.findall(r'^import [^;]*?from "(\./[^"]+)";', (UI / path).read_text("utf-8"), re.MULTILINE)
    for name in {str(Path(path).parent / one) for one in imports} - found:
        imported(name, found)
    return found


def test_a_first_visit_asks_for_all_modules_at_once_and_takes_150_kb(memory: Memory) -> None:
    document = (UI / "index.html").read_text("utf-8")
    preloaded = re.findall(r'<link rel="modulepreload" href="([^"]+)">', document)
    needed = imported("app.js", set())
    assert len(needed) > 30
    assert sorted([*preloaded, "app.js"]) == sorted(needed)
    with client_of(memory, role=None) as client:
        answers = [client.get(f"/ui/{path}") for path in ("", "style.css", *needed)]
    assert sum(int(answer.headers["content-length"]) for answer in answers) <= 150_000


@pytest.mark.parametrize(
    "path", ["nothing.js", "vendor/LICENSES.txt", "vendor", "../app.py", "..%2fapp.py", "%2e%2e/keys.py", "/etc/passwd"]
)
def test_nothing_else_is_served(memory: Memory, path: str) -> None:
    with client_of(memory) as client:
        assert client.get(f"/ui/{path}").status_code == 404


def test_the_policy_allows_nothing_but_the_service() -> None:
    rules = dict(one.strip().split(" ", 1) for one in page.CONTENT_SECURITY_POLICY.split(";"))
    styles = " ".join(f"'{style}'" for style in MANIFEST["force-graph.min.js"]["styles"])
    own = {"script-src": "'self'", "style-src": f"'self' {styles}", "connect-src": "'self'", "img-src": "'self' data:"}
    names = ["default-src", "base-uri", "form-action", "frame-ancestors"]
    assert rules == own | dict.fromkeys(names, "'none'")


def test_the_page_can_be_switched_off(memory: Memory) -> None:
    with client_of(memory, ui=False) as client:
        assert client.get("/ui/").status_code == 404
        assert "/ui/{path}" not in client.get("/openapi.json").json()["paths"]


def test_bundled_files_are_those_of_the_manifest() -> None:
    found = {path.name for path in (UI / "vendor").iterdir()} - {"manifest.json"}
    assert {*MANIFEST, *(entry["licences"] for entry in MANIFEST.values())} == found
    for name, entry in MANIFEST.items():
        assert hashlib.sha256((UI / "vendor" / name).read_bytes()).hexdigest() == entry["sha256"]
        assert entry["version"] and entry["licence"]
    licences = (UI / "vendor/LICENSES.txt").read_text("utf-8")
    assert "Copyright 2018 Google Inc." in licences and "Jason Miller" in licences


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.name)
def test_nothing_becomes_markup_or_is_fetched_from_elsewhere(path: Path) -> None:
    text = path.read_text("utf-8")
    assert not re.search(r"https?:(?!//\$)|@import|url\(", text)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\(|new Function|dangerously", text)
    assert not re.search(r"\sstyle=|\son[a-z]+=\"", text)


def test_each_word_is_there_in_both_languages_and_used() -> None:
    words: dict[str, list[str]] = {}
    for path in WORDS:
        entries = re.findall(r"^  (\w+): \[(.*?)\],$", path.read_text("utf-8"), re.MULTILINE | re.DOTALL)
        assert not words.keys() & {name for name, _ in entries}
        words |= {name: re.findall(r'"((?:[^"\\]|\\.)*)"', values) for name, values in entries}
    for name, values in words.items():
        assert len(values) == 2, name
        assert len({frozenset(re.findall(r"\{\w+\}", one)) for value in values for one in value.split("|")}) == 1, name
    code = "".join(path.read_text("utf-8") for path in SCRIPTS if path not in WORDS)
    assert set(re.findall(r'\b(?:t|nodes)\(\s*"(\w+)"', code)) <= set(words)
    beginnings = tuple(re.findall(r"`(\w+_)\$\{", code))
    assert not [name for name in words if f'"{name}"' not in code and not name.startswith(beginnings)]


def test_each_module_is_valid() -> None:
    if not (node := shutil.which("node")):
        pytest.skip("Node is not installed")
    program = (
        "const { SourceTextModule } = require('vm'), { readFileSync } = require('fs');"
        "for (const path of process.argv.slice(1))"
        " new SourceTextModule(readFileSync(path, 'utf8'), { identifier: path });"
    )
    command = [node, "--experimental-vm-modules", "--no-warnings", "-e", program, *map(str, SCRIPTS)]
    assert subprocess.run(command, check=False, capture_output=True, text=True).stderr == ""


def evaluate(tmp_path: Path, module: str, expression: str) -> Any:
    """The value of an expression over the exports of one module of the page, by Node."""
    if not (node := shutil.which("node")):
        pytest.skip("Node is not installed")
    (tmp_path / "module.mjs").write_bytes((UI / module).read_bytes())
    program = f"import * as module from './module.mjs'; console.log(JSON.stringify({expression}))"
    command = [node, "--input-type=module", "-e", program]
    return json.loads(subprocess.run(command, cwd=tmp_path, check=True, capture_output=True).stdout)


def test_differences_are_found_by_words(tmp_path: Path) -> None:
    cases = [
        ["The concert is on 21 June.", "The concert is on 28 June."],
        ["音乐会在星期六晚上。", "音乐会在星期天晚上。"],
        ["", "New."],
        ["a b c d", "b c e d f"],
    ]
    results = evaluate(tmp_path, "diff.js", f"{json.dumps(cases)}.map(([a, b]) => module.diffWords(a, b))")
    for (before, after), parts in zip(cases, results, strict=True):
        assert "".join(text for kind, text in parts if kind != "ins") == before
        assert "".join(text for kind, text in parts if kind != "del") == after
    assert results[0] == [["same", "The concert is on "], ["del", "21"], ["ins", "28"], ["same", " June."]]


def test_words_of_a_question_are_found_in_texts(tmp_path: Path) -> None:
    cases = [
        ["What could we ask of whoever owns the Old Brewery?", "The Old  Brewery, the old brewery; she OWNS it."],
        ["我们可以请老酿酒厂的主人帮什么忙？", "场地是老酿酒厂。主人不要租金。"],
        ["When in 2025?", "In 2025, or when?"],
        ["", "Nothing."],
    ]
    expression = f"{json.dumps(cases)}.map(([a, b]) => module.splitAtWords(b, module.askedWords(a)))"
    results = evaluate(tmp_path, "marks.js", expression)
    assert ["".join(parts) for parts in results] == [text for _, text in cases]
    found = [parts[1::2] for parts in results]
    assert found == [["Old", "Brewery", "old brewery", "OWNS"], ["老酿酒厂", "主人"], ["2025"], []]
    names = json.dumps(["Ann", "Ann Lee", "a+b", ""])
    parts = evaluate(tmp_path, "marks.js", f"module.splitAtNames('Ann Lee met Ann: a+b, aab', {names})")
    assert parts == ["", "Ann Lee", " met ", "Ann", ": ", "a+b", ", aab"]


def test_an_address_keeps_a_text_as_it_was_typed(tmp_path: Path) -> None:
    texts = ["Who? And", "a/b?c=d&e#f", "50% + 1", "C++ ", "林晓?", "a=b=c", ".", "%zz"]
    again = f"{json.dumps(texts)}.map((one) => module.readAddress(module.addressOf('graph', one, {{ q: one }})))"
    for text, found in zip(texts, evaluate(tmp_path, "addresses.js", again), strict=True):
        assert found == {"view": "graph", "id": text, "query": {"q": text}}
    typed = {"#search?q=Who? And": "Who? And", "#search?q=Who?%20And?": "Who? And?", "#search?q=50%": "50%"}
    found = evaluate(tmp_path, "addresses.js", f"{json.dumps([*typed])}.map(module.readAddress)")
    assert [one["query"]["q"] for one in found] == [*typed.values()]
    assert evaluate(tmp_path, "addresses.js", "module.readAddress('#graph/entity:a/b?hops=3')")["id"] == "entity:a/b"


@pytest.mark.parametrize("role", ["user", "app", "admin"])
def test_a_key_tells_whose_it_is(memory: Memory, role: str) -> None:
    with client_of(memory, role, default_user="ben") as client:
        user, default = ("ana", None) if role == "user" else (None, "ben" if role == "admin" else None)
        expected = {"role": role, "user_id": user, "agent_id": None, "default_user": default}
        assert client.get("/caller").json() == expected


def test_without_keys_everybody_is_an_admin(memory: Memory) -> None:
    with client_of(memory, None, needs_key=False) as client:
        assert client.get("/caller").json()["role"] == "admin"


def test_each_event_of_a_history_has_a_name_on_the_page() -> None:
    events = {one.value for one in list(OutcomeType)[: list(OutcomeType).index(OutcomeType.DELETE)]} | {"SCOPE"}
    words = (UI / "words/memories.js").read_text("utf-8")
    assert {"FORGET", "DEMOTE"} < events == set(re.findall(r"^  ev_([A-Z]+): ", words, re.MULTILINE))


def test_each_reason_of_a_change_is_known_to_the_page_in_its_own_words(tmp_path: Path) -> None:
    def stated(text: str, predicate: str, thing: str) -> StatedFact:
        return StatedFact(text, [Statement("ana", predicate, thing, text)])

    pairs = [
        (stated("Lives in Paris", "lives in", "paris"), stated("Lives in Rome", "lives in", "rome")),
        (stated("Likes tea", "likes", "tea"), stated("Hates tea", "hates", "tea")),
        (StatedFact("Phone: 1", []), StatedFact("Phone: 2", [])),
        (StatedFact("Likes green tea", []), StatedFact("Hates green tea", [])),
        (StatedFact("Has a dog", []), StatedFact("Has no dog", [])),
        (StatedFact("Works at Acme", []), StatedFact("No longer works at Acme", [])),
        (StatedFact("Wants to buy a boat", []), StatedFact("Bought the boat, finished", [])),
    ]
    reasons = [contradicts(old, new) for old, new in pairs]
    reasons += [facts.SAID_AGAIN, facts.RUN_DELETED, imports.BROUGHT_BACK]
    reasons += ["asked", "changed", lifecycle.SAID_AGAIN, decay.OVER_CAPACITY, decay.FADED.format(least=0.1)]
    reasons += [decay.FORGOTTEN_LONG_AGO]
    reasons += ["importance 0.85", "found 20 times", f"{MERGED_INTO}00000000-0000-4000-8000-000000000000"]
    reasons += [
        conflicts.REFINED,
        f"{conflicts.SAID_EARLIER}{reasons[0]}",
        f"{conflicts.BY_CONFIDENCE}0.95 against 0.60",
    ]
    reasons += ["since Monday", "another value of nothing"]
    assert None not in reasons
    found = evaluate(tmp_path, "reasons.js", f"{json.dumps(reasons)}.map((text) => module.readReason(text))")
    assert found[:2] == [
        {"key": "reason_another_of", "predicate": "lives in"},
        {"key": "reason_contrary_of", "predicate": "likes"},
    ]
    assert None not in found[:-2] and found[-2:] == [None, None]
    assert found[-4:-2] == [found[0], {"key": "reason_surer", "sure": 0.95, "unsure": 0.6}]
    assert found[-8:-5] == [
        {"key": "reason_important", "importance": 0.85},
        {"key": "reason_found", "n": 20},
        {"key": "reason_merged", "id": "00000000-0000-4000-8000-000000000000"},
    ]
    words = (UI / "words/memories.js").read_text("utf-8")
    assert not [one for one in found[:-2] if f"  {one['key']}: [" not in words]
