"""Searches with the default models: tokens, dates, adaptive cuts, chats in Chinese."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from graphmem import ChatLink, Memory, Settings
from graphmem.errors import ValidationError

PLAIN: dict[str, Any] = {"embedder": {"provider": "minilm", "config": {"tokens": False}}}


@pytest.fixture
def memory() -> Iterator[Memory]:
    with Memory(":memory:") as memory:
        yield memory


def add_lines(memory: Memory, *lines: tuple[str, str, str]) -> None:
    """Adds lines of (day, speaker, text); each day is a session."""
    for day, name, content in lines:
        memory.add({"role": "user", "name": name, "content": content}, user_id="u", timestamp=f"{day}T10:00:00Z")


def search_texts(memory: Memory, question: str, **more: Any) -> list[str]:
    return [hit["memory"] for hit in memory.search(question, user_id="u", **more)["results"]]


def test_words_said_again_stand_behind_what_else_was_said(memory: Memory) -> None:
    sport, others = "I play table tennis at the club.", ["I watch every tennis final on TV.", "The club has a bar."]
    days = [f"2024-03-0{day}" for day in range(1, 5)]
    add_lines(memory, *((day, "Ana", sport) for day in days), *((days[-1], "Ana", text) for text in others))
    add_lines(memory, (days[-1], "Bo", sport))
    results = memory.search("Which sport do I play at the club?", user_id="u", explain=True)["results"]
    texts, scores = [(hit["actor_id"], hit["memory"]) for hit in results], [hit["score"] for hit in results]
    assert sorted(texts[:4]) == sorted([("Ana", sport), ("Bo", sport), *(("Ana", text) for text in others)])
    assert texts[4:] == [("Ana", sport)] * 3
    assert scores == sorted(scores, reverse=True)
    for hit in results:
        shares = hit["explain"]["shares"]
        assert sum(share["share"] for share in shares.values()) == pytest.approx(hit["score"])
        assert ("repeated" in shares) is (hit in results[4:])
    # Each time counts where a time or a number is asked for.
    assert search_texts(memory, "When did Ana play table tennis at the club?")[:4] == [sport] * 4


def test_what_comes_first_does_not_depend_on_the_number_of_hits(memory: Memory) -> None:
    lines = [f"I keep {thing} in box {number}." for number, thing in enumerate("keys tools maps stamps".split() * 10)]
    memory.add([{"role": "user", "content": line} for line in lines], user_id="u")
    found = {
        count: [
            (hit["id"], hit["score"], hit["relevance"])
            for hit in memory.search("Where are my stamps?", user_id="u", top_k=count)["results"]
        ]
        for count in (5, 20, 40)
    }
    assert found[40][:20] == found[20]
    assert found[20][:5] == found[5]
    scores = [score for _, score, _ in found[40]]
    assert len(scores) == 40
    assert scores == sorted(scores, reverse=True)


@pytest.mark.thorough
def test_tokens_can_be_left_out_and_computed_later(tmp_path: Path) -> None:
    lines = [("2024-03-01", "Ann", "I painted a sunrise."), ("2024-03-02", "Bob", "The tax forms are due.")]
    with Memory(tmp_path, settings=Settings.from_dict(PLAIN)) as memory:
        add_lines(memory, *lines)
        assert memory.stats()["embeddings"] == 2
        assert search_texts(memory, "Who made a picture of the sky?")[0] == "I painted a sunrise."
    with Memory(tmp_path) as memory:
        assert search_texts(memory, "Who made a picture of the sky?")[0] == "I painted a sunrise."
        memory.rebuild()
        assert memory.stats()["embeddings"] == 6
        assert set(memory.stats()["embedding_bytes"]) == {"vector", "tokens-128", "use-multilingual-v3"}
        assert memory.verify()["ok"]
        hit = memory.search("Who made a picture of the sky?", user_id="u", explain=True)["results"][0]
        assert hit["memory"] == "I painted a sunrise."
        assert "tokens" in hit["explain"]["arms"]
    with Memory(tmp_path, settings=Settings.from_dict(PLAIN)) as memory:
        memory.rebuild()
        assert memory.stats()["embeddings"] == 2
        memory.delete_all(user_id="u")
        assert memory.stats()["embeddings"] == 0


@pytest.mark.parametrize(
    ("lines", "question", "answer"),
    [
        (
            (
                ("2026-06-10", "Ann", "I attended the Hangzhou Open Source Summit and gave a talk about local memory."),
                ("2026-08-24", "Ann", "On August 24, 2026 I changed the UI to the light theme."),
                ("2026-08-29", "Ann", "I bought milk."),
            ),
            "What did I present at the summit in 2026?",
            "Summit",
        ),
        (
            (
                ("2026-06-10", "安", "我在杭州开源峰会上做了关于本地优先的演讲。"),
                ("2026-08-24", "安", "2026年8月24日我把界面改成了浅色主题。"),
                ("2026-08-29", "安", "我买了牛奶。"),
            ),
            "2026年我在峰会上讲了什么？",
            "峰会",
        ),
    ],
    ids=["English", "Chinese"],
)
def test_a_time_in_which_everything_was_said_tells_nothing(
    memory: Memory, lines: tuple[tuple[str, str, str], ...], question: str, answer: str
) -> None:
    add_lines(memory, *lines)
    assert answer in search_texts(memory, question, reference_date="2026-08-30")[0]


def test_a_time_of_part_of_the_memories_counts(memory: Memory) -> None:
    summits = ("2025", "2026")
    add_lines(memory, *((f"{year}-06-10", "Ann", f"At the summit I gave talk number {year[-1]}.") for year in summits))
    for year in summits:
        found = search_texts(memory, f"Which talk did I give at the summit in {year}?", reference_date="2026-08-30")
        assert found[0].endswith(f"{year[-1]}.")


def test_automatic_top_k_cuts_after_the_related_hits(memory: Memory) -> None:
    sports = ["I play tennis on Mondays.", "I swim in the lake.", "I play football with Tom."]
    other = [f"The number of my {thing} is {n}." for n, thing in enumerate(("car", "flat", "desk", "phone", "locker"))]
    add_lines(memory, *((f"2024-03-{day:02}", "Ann", words) for day, words in enumerate([*sports, *other], 1)))
    automatic = search_texts(memory, "Which sports does Ann play?", top_k="auto")
    assert set(automatic[:2]) <= set(sports)
    assert 1 <= len(automatic) < 8
    assert automatic == search_texts(memory, "Which sports does Ann play?", top_k=len(automatic))
    with pytest.raises(ValidationError, match="auto"):
        memory.search("x", user_id="u", top_k="many")


def test_relative_dates_count_from_the_reference_date(memory: Memory) -> None:
    add_lines(
        memory,
        ("2024-02-06", "Ann", "We had dinner at the harbour."),
        ("2024-03-06", "Ann", "We had dinner at the castle."),
        ("2024-04-03", "Ann", "We had dinner at the mill."),
    )
    question = "Where did Ann have dinner last week?"
    assert search_texts(memory, question, reference_date="2024-03-13")[0] == "We had dinner at the castle."
    assert search_texts(memory, question, reference_date="2024-04-10")[0] == "We had dinner at the mill."
    assert search_texts(memory, "Where did Ann have dinner in February 2024?")[0] == "We had dinner at the harbour."


@pytest.mark.parametrize(("today", "place"), [("2024-03-13", "castle"), ("2024-04-10", "mill")])
def test_relative_dates_of_a_context_count_from_the_reference_date(memory: Memory, today: str, place: str) -> None:
    add_lines(
        memory,
        ("2024-03-06", "Ann", "We had dinner at the castle."),
        ("2024-04-03", "Ann", "We had dinner at the mill."),
    )
    question, more = "Where did Ann have dinner last week?", {"max_chars": 150}  # room for one line
    assert place in memory.context(question, user_id="u", reference_date=today, **more)
    with ChatLink(memory, user_id="u") as link:
        assert place in link.recall(question, reference_date=today, top_k=1)
    with pytest.raises(ValidationError, match="reference_date"):
        memory.context(question, user_id="u", reference_date="soon")


@pytest.mark.parametrize("now", ["0001-01-01", "9999-12-31T23:59:59+00:00"])
@pytest.mark.parametrize(
    "question",
    [
        "What was before monday?",
        "What is next week?",
        "What was in year 9999?",
        "What was two thousand years ago?",
        "周一之前我做了什么？",
        "What was a week before the film?",
    ],
)
def test_dates_at_either_end_of_time_can_be_searched(memory: Memory, question: str, now: str) -> None:
    add_lines(
        memory, ("0001-01-01", "Ann", "I saw a film on monday."), ("9999-12-31", "Ann", "I see the film next week.")
    )
    assert len(search_texts(memory, question, reference_date=now)) == 2
    with pytest.raises(ValidationError, match="reference_date"):
        search_texts(memory, question, reference_date="0001-01-01T00:00:00+14:00")


def test_dates_can_be_relative_to_an_event(memory: Memory) -> None:
    add_lines(
        memory,
        ("2024-05-01", "Ann", "We ate at the harbour today."),
        ("2024-05-18", "Ann", "We ate at the castle today."),
        ("2024-06-01", "Ann", "The wedding of Lea and Tom was wonderful."),
        ("2024-06-09", "Ann", "We ate at the mill today."),
    )
    assert search_texts(memory, "Where did Ann eat two weeks before the wedding?")[0] == "We ate at the castle today."
    assert search_texts(memory, "Where did Ann eat a week after the wedding?")[0] == "We ate at the mill today."


def test_an_answer_is_found_by_its_question(memory: Memory) -> None:
    memory.add(
        [
            {"role": "user", "name": "Ann", "content": "What does your brother do for a living?"},
            {"role": "user", "name": "Bob", "content": "He repairs old clocks."},
            {"role": "user", "name": "Ann", "content": "Nice weather today."},
        ],
        user_id="u",
    )
    assert search_texts(memory, "What is the job of Bob's brother?", top_k=1) == ["He repairs old clocks."]


def test_chinese_names_link_memories(memory: Memory) -> None:
    add_lines(
        memory,
        ("2024-03-01", "孟雨桐", "我姐姐在苏州工业园区的一家机器人公司上班。"),
        ("2024-03-05", "李志远", "苏州工业园区下个月要开一条新地铁。"),
        ("2024-03-09", "李志远", "今天的天气真不错,适合去爬山。"),
    )
    hits = memory.search("雨桐的姐姐在哪里上班?", user_id="u", explain=True)["results"]
    assert hits[0]["memory"].startswith("我姐姐")
    linked = next(hit["explain"] for hit in hits if hit["memory"].startswith("苏州工业园区"))
    assert linked["arms"]["graph"]["rank"] == 2
    assert [step.get("name") for step in linked["path"]] == [None, "苏州工业园区", None]


def test_relations_have_a_confidence(memory: Memory) -> None:
    add_lines(memory, ("2024-03-01", "Ann", "My sister Priya lives in Pune."))
    relations = memory.search("Where does Priya live?", user_id="u")["relations"]
    assert relations
    assert all(0 < relation["confidence"] <= 1 for relation in relations)


def test_documents_are_not_in_the_session_of_a_conversation(memory: Memory) -> None:
    body = "It lies on an island north of the Arctic Circle and has a university, a brewery and a cathedral of wood."
    memory.add("I moved house.", user_id="u", timestamp="2024-03-01T10:00:00Z")
    for title in ("Tromsø", "Bodø"):
        memory.add(f"{title}\n{body}", user_id="u", timestamp="2024-03-01T10:05:00Z")
    memory.add("The new flat is bright.", user_id="u", timestamp="2024-03-01T10:10:00Z")
    sessions = [one["session"] for one in memory.get_all(user_id="u")["results"]]
    assert sessions[0] == sessions[3]
    assert len(set(sessions)) == 3


def test_yesterday_is_relative_to_the_zone_of_the_reference_date(memory: Memory) -> None:
    for day in range(1, 6):
        message = {"role": "user", "name": "Eva", "content": "I watered the plants."}
        memory.add(message, user_id="u", timestamp=f"2024-03-0{day}T12:00:00+09:00")

    def yesterday(now: str) -> str:
        response = memory.search("Did I water the plants yesterday?", user_id="u", reference_date=now)
        return str(response["results"][0]["at"])

    assert yesterday("2024-03-05T08:00:00+09:00").startswith("2024-03-04")
    assert yesterday("2024-03-03T23:30:00-05:00").startswith("2024-03-03T03:00")  # the evening of the second there
    assert yesterday("2024-03-03T23:30:00Z").startswith("2024-03-02")


def test_an_unknown_event_gives_no_date(memory: Memory) -> None:
    add_lines(memory, *((f"2023-03-{day:02}", "Eva", "I had a piano lesson.") for day in (3, 10, 17)))
    hits = memory.search("Did I have a lesson two weeks before the wedding?", user_id="u", explain=True)["results"]
    assert not any("date" in hit["explain"]["arms"] for hit in hits)


def test_a_threshold_holds_in_a_long_session(memory: Memory) -> None:
    lines = [
        "We hiked a hill on route 0.",
        "I paid the rent.",
        *(f"We hiked a hill on route {n}." for n in range(2, 20)),
    ]
    memory.add(
        [{"role": "user", "name": "Ann", "content": line} for line in lines], user_id="u", timestamp="2024-01-01"
    )
    hits = memory.search("Who paid the rent?", user_id="u", top_k=20, threshold=0.45, explain=True)["results"]
    assert hits[0]["memory"] == "I paid the rent."
    assert len(hits) < 12
    assert max(len(hit["explain"]["path"]) for hit in hits) <= 17  # nine memories and the eight steps between them


def test_the_answer_two_hops_away_is_not_cut(memory: Memory) -> None:
    add_lines(
        memory,
        ("2024-03-01", "Tom", "My sister Anna works at Nordlicht."),
        ("2024-03-01", "Anna", "Nordlicht is building a new lab in Bergen."),
    )
    question = "Where does the company Tom's sister works for build?"
    assert len(search_texts(memory, question, top_k="auto")) == 2


@pytest.mark.parametrize(
    ("question", "day"),
    [
        ("What did I do on November 8?", 8),
        ("What happened on 14 November?", 14),
        ("11月8日我做了什么?", 8),
        ("昨天发生了什么事?", 14),
        ("前天我跟你说了啥?", 13),
    ],
)
def test_a_question_about_a_day_has_what_was_said_then(memory: Memory, question: str, day: int) -> None:
    said = {
        8: ["I repaired the fence with Ole.", "我给阳台刷了漆"],
        13: ["The ferry was late again.", "猫打碎了花瓶"],
        14: ["Marit brought three jars of honey.", "我的膝盖又疼了"],
    }
    for date, texts in said.items():
        for text in texts:
            memory.add(text, user_id="u", timestamp=f"2026-11-{date:02}T10:00:00Z")

    block = memory.context(question, user_id="u", reference_date="2026-11-15T09:00:00Z")

    assert {text for texts in said.values() for text in texts if text in block} == set(said[day])


def test_filters_narrow_a_context(memory: Memory) -> None:
    for project, tool in (("billing", "Nomad"), ("search", "Kubernetes"), (None, "Docker")):
        metadata = None if project is None else {"project": project}
        memory.add(f"We deploy the service with {tool}.", user_id="u", metadata=metadata)
    either = {"OR": [{"project": "billing"}, {"NOT": [{"project": "*"}]}]}
    block = memory.context("How do we deploy the service?", user_id="u", filters=either)
    assert "Nomad" in block and "Docker" in block and "Kubernetes" not in block
    assert memory.context("How do we deploy the service?", user_id="u", filters={"project": "none"}) == ""
    with pytest.raises(ValidationError, match="filters"):
        memory.context("How do we deploy?", user_id="u", filters={"user_id": "another"})
