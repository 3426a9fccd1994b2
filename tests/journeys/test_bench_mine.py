"""`graphmem judge` and `graphmem bench mine`: the questions that somebody judged are asked again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.facts import fact, source_message
from support.fakes import DIMS, fake_models, hash_texts
from typer.testing import CliRunner

from graphmem import Memory, Settings
from graphmem.cli.app import app
from graphmem.errors import StoreError
from graphmem.evaluation import mine

USER = {"user_id": "ann"}
SENTENCES = [
    "I drink green tea.", "My sister lives in Berlin.", "The car needs new tyres.", "Bob plays chess.",
    "I had pasta for lunch.", "The meeting is at nine.", "I bought a red bicycle.", "Our dog is called Rex.",
]  # fmt: skip
runner = CliRunner()


@pytest.fixture
def judged(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """A folder with memories and verdicts, and the ids of the memories by their sentences."""
    home = tmp_path / "home"
    with Memory(home, settings=Settings()) as memory:
        for sentence in SENTENCES:
            memory.add(sentence, **USER)
        own = {one["memory"]: one["id"] for one in memory.get_all(**USER)["results"]}
        memory.judge("What do I drink?", own["I drink green tea."], "right", **USER)
        memory.judge("What do I drink?", own["The car needs new tyres."], "wrong", **USER)
        memory.judge("Where can I buy cheese?", own["My sister lives in Berlin."], "wrong", **USER)
        memory.judge("Wie heißt mein Haustier?", own["Our dog is called Rex."], "missing", **USER)
    return home, own


def run(*arguments: str, status: int = 0) -> str:
    result = runner.invoke(app, [*arguments, "--user", "ann"])
    assert result.exit_code == status, result.output
    return result.stdout


def test_judged_questions_are_asked_again_and_measured(judged: tuple[Path, dict[str, str]], tmp_path: Path) -> None:
    home, own = judged
    first = tmp_path / "first.json"
    first.write_text(run("bench", "mine", "--home", str(home), "--json"))
    report = json.loads(first.read_text())
    drink, cheese, pet = report["cases"]
    assert (drink["found"], drink["missed"], drink["silent"]) == ([own["I drink green tea."]], [], None)
    assert cheese["silent"] is True
    assert [*pet["found"], *(one["id"] for one in pet["missed"])] == [own["Our dog is called Rex."]]
    assert report["questions"] == 3
    assert report["recall_at_5"] == (1 + len(pet["found"])) / 2
    with Memory(home, settings=Settings()) as memory:
        memory.update(own["The car needs new tyres."], "What I drink after what I drink is what I do drink.")
        memory.forget(own["Our dog is called Rex."])
    text = run("bench", "mine", "--home", str(home), "--compare", str(first))
    assert "no longer visible answers: 1" in text
    assert "worse: What do I drink?" in text
    assert f"wrong {own['The car needs new tyres.']}" in text


def test_verdicts_are_said_listed_and_taken_back(judged: tuple[Path, dict[str, str]]) -> None:
    home, own = judged
    told = run("judge", "What do I eat?", own["I had pasta for lunch."], "missing", "--home", str(home))
    assert "missing" in told
    assert "What do I eat?" in told
    assert run("judgements", "--home", str(home), "--limit", "2").count("\n") == 5
    assert "3 more: give a greater --limit" in run("judgements", "--home", str(home), "--limit", "2")
    taken = run("judge", "What do I eat?", own["I had pasta for lunch."], "none", "--home", str(home))
    assert "taken back" in taken
    assert "taken back" in run("judge", "What do I eat?", own["I had pasta for lunch."], "None", "--home", str(home))
    assert "What do I eat?" not in run("judgements", "--home", str(home))


def test_the_agent_and_the_run_that_asked_are_listed_and_the_number_is_told(tmp_path: Path) -> None:
    with Memory(tmp_path, settings=Settings.from_dict(fake_models())) as memory:
        (uid,) = [one["id"] for one in memory.add("I drink tea.", **USER, agent_id="a", run_id="r")["results"]]
        memory.judge("Tea?", uid, "right", **USER)
        memory.judge("Tea?", uid, "wrong", **USER, agent_id="a", run_id="r")
    listed = runner.invoke(app, ["judgements", "--home", str(tmp_path), "--user", "ann"])
    assert [line.partition(uid)[2] for line in listed.stdout.splitlines() if uid in line] == ["  agent a  run r", ""]
    nothing = runner.invoke(app, ["judgements", "--home", str(tmp_path), "--user", "bob"])
    assert (nothing.stdout, nothing.stderr) == ("", "graphmem: 0 of 0 judgements\n")


def test_a_memory_that_is_erased_meanwhile_ends_no_run(tmp_path: Path) -> None:
    with Memory(tmp_path, settings=Settings.from_dict(fake_models())) as memory:
        (uid,) = [one["id"] for one in memory.add("I drink tea.", **USER)["results"]]
        memory.judge("What do I drink?", uid, "right", **USER)
        (question,) = mine.judged_questions(memory, USER)
        memory.delete(uid)
        told = mine.replay(memory, question)
    assert [told[name] for name in ("found", "missed", "hidden")] == [[], [], []]


def test_a_search_without_its_vectors_is_no_measurement(tmp_path: Path) -> None:
    down: list[str] = []

    def embed(texts: list[str]) -> list[Any]:
        if down:
            raise ConnectionError
        return hash_texts(texts)

    embedder = {"provider": "callable", "config": {"embed": embed, "embedding_dims": DIMS, "model": "hash"}}
    with Memory(tmp_path, settings=Settings.from_dict(fake_models(embedder=embedder))) as memory:
        (uid,) = [one["id"] for one in memory.add("I drink tea.", **USER)["results"]]
        for verdict in ("right", "wrong"):
            memory.judge(f"Is tea {verdict}?", uid, verdict, **USER)
        down.append("now")
        for question in mine.judged_questions(memory, USER):
            with pytest.raises(StoreError, match="answered without vectors"):
                mine.replay(memory, question)


def test_without_a_verdict_it_says_what_to_do(tmp_path: Path) -> None:
    with Memory(tmp_path, settings=Settings()) as memory:
        memory.add("I drink tea.", **USER)
    assert "nothing is judged yet" in run("bench", "mine", "--home", str(tmp_path))
    assert json.loads(run("bench", "mine", "--home", str(tmp_path), "--json"))["recall_at_5"] is None


def report_of(*cases: object) -> str:
    return json.dumps({"benchmark": "mine", "cases": cases})


CASE = {"query": "q", "user_id": "ann", "found": ["x"], "missed": [], "wrong": [], "avoided": [], "silent": None}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        '{"benchmark": "answers"}',
        '{"benchmark": "mine"}',
        report_of("q"),
        report_of({"query": "q", "user_id": "ann"}),
        report_of({**CASE, "query": ["q"]}),
        report_of({**CASE, "found": [["x"]]}),
        report_of({**CASE, "missed": ["x"]}),
        report_of({**CASE, "run_id": {"x": 1}}),
    ],
)
def test_a_file_that_is_no_report_is_refused(judged: tuple[Path, dict[str, str]], tmp_path: Path, content: str) -> None:
    (tmp_path / "report").write_text(content)
    result = runner.invoke(
        app, ["bench", "mine", "--home", str(judged[0]), "--user", "ann", "--compare", str(tmp_path / "report")]
    )
    assert result.exit_code == 2
    assert "--compare" in result.output


def case(query: str, found: str, missed: str = "", **more: object) -> dict[str, object]:
    gone = [{"id": uid, "step": "rank", "why": "it is hit 9"} for uid in missed]
    return {**CASE, "query": query, "found": [*found], "missed": gone, **more}


def changes(before: list[dict[str, object]], after: list[dict[str, object]]) -> dict[str, list[str]]:
    assert all(mine.is_report({"benchmark": "mine", "cases": cases}) for cases in (before, after))
    return mine.compare({"cases": before}, {"cases": after})


def test_better_is_what_finds_more_shows_fewer_wrong_ones_or_keeps_quiet() -> None:
    before = [
        case("a", "1", "2", wrong=["x"], avoided=["y"]), case("b", "1", wrong=["x"]), case("d", "12"),
        case("gone", "1"), case("c", "", avoided=["x"], silent=False), case("e", "1"),
    ]  # fmt: skip
    after = [
        case("a", "12", wrong=["x", "y"]), case("b", "1", avoided=["x"]), case("d", "1", "2"), case("new", "1"),
        case("c", "", avoided=["x"], silent=True), case("e", "1"),
    ]  # fmt: skip
    assert changes(before, after) == {"better": ["a", "b", "c"], "worse": ["d"], "same": ["e"]}


def test_other_verdicts_and_memories_that_are_gone_are_no_change_of_the_search() -> None:
    before = [
        case("more", "1"), case("wrong too", "1"), case("taken back", "12", wrong=["x"]), case("forgotten", "12"),
        case("another verdict", "1"), case("answered now", "", avoided=["x"], silent=False),
    ]  # fmt: skip
    after = [
        case("more", "12", "3"), case("wrong too", "1", wrong=["x"]), case("taken back", "1"),
        case("forgotten", "1", hidden=["2"]), case("another verdict", "", wrong=["1"]),
        case("answered now", "2", avoided=["x"]),
    ]  # fmt: skip
    same = ["more", "wrong too", "taken back", "forgotten", "answered now"]
    assert changes(before, after) == {"better": [], "worse": [], "same": same}


def test_a_comparison_with_nothing_in_common_says_so(judged: tuple[Path, dict[str, str]], tmp_path: Path) -> None:
    (tmp_path / "report").write_text(report_of(case("What do I drink?", "1", user_id="bob")))
    told = run("bench", "mine", "--home", str(judged[0]), "--compare", str(tmp_path / "report"))
    assert "0 better, 0 worse, 0 same\nnothing to compare" in told


def test_a_message_under_its_fact_is_shown_be_it_right_or_wrong(tmp_path: Path) -> None:
    with Memory(tmp_path, settings=Settings.from_dict(fake_models())) as memory:
        sources = [source_message(memory, f"green tea in {place}", **USER) for place in ("Oslo", "Rome")]
        drawn = [
            fact(memory, f"drinks green tea in {place}", uid, **USER)
            for place, uid in zip(("Oslo", "Rome"), sources, strict=True)
        ]
        question = mine.JudgedQuestion("green tea in Oslo and Rome", USER, [drawn[0], sources[0]], [sources[1]])
        told = mine.replay(memory, question)
    assert (told["found"], told["missed"]) == ([drawn[0], sources[0]], [])
    assert (told["wrong"], told["avoided"]) == ([sources[1]], [])


def test_replays_count_as_no_use_and_pages_are_read_to_their_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mine, "PAGE", 2)
    settings = Settings.from_dict({**fake_models(), "lifecycle": {"daily_at": "never"}})
    with Memory(tmp_path / "home", settings=settings) as memory:
        (uid,) = [one["id"] for one in memory.add("I drink tea.", **USER)["results"]]
        for number in range(5):
            memory.judge(f"What do I drink? {number}", uid, "right", **USER)
        questions = mine.judged_questions(memory, USER)
        assert [one.query[-1] for one in questions] == list("01234")
        export = tmp_path / "before"
        memory.export(export)
        assert all(mine.replay(memory, one)["found"] == [uid] for one in questions)
        memory.export(tmp_path / "after")

    def memories(path: Path) -> list[str]:
        return [line for line in path.read_text().splitlines() if '"type":"memory"' in line.replace(" ", "")]

    assert memories(export) == memories(tmp_path / "after") != []
