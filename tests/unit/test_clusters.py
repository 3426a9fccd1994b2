"""Like memories of which one says what the others say (seed 002 §5.1)."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest

from graphmem.lifecycle import compression
from graphmem.lifecycle.compression import Cluster, clusters_of, like_memories, says
from graphmem.lifecycle.decay import LifecyclePolicy, Vitals
from graphmem.model import Kind, Layer, Scope

NOW = datetime(2026, 6, 1, tzinfo=UTC)
POLICY = LifecyclePolicy()


def memory(row: int, **more: object) -> Vitals:
    values = {"scope": Scope("ana"), "importance": 0.5, "memory_type": "episodic", "kind": Kind.EPISODE, **more}
    return Vitals(
        id=str(row), row=row, seq=row, layer=Layer.SHORT_TERM, pinned=False, created_at=NOW, is_valid=True, **values
    )  # type: ignore[arg-type]


def rows(*degrees: float) -> np.ndarray:
    angles = np.radians(degrees)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def grouped(degrees: list[float], *memories: Vitals, policy: LifecyclePolicy = POLICY) -> list[list[int]]:
    alike = memories or [memory(n) for n in range(len(degrees))]
    return like_memories(alike, rows(*degrees), policy.merged_similarity, policy.smallest_cluster)


def test_three_memories_with_a_cosine_above_085_are_alike() -> None:
    """§5.1: similarity > 0.85, at least 3; 31° is a cosine of .857, 32° one of .848."""
    assert grouped([0, 31, -31]) == [[0, 1, 2]]
    assert grouped([0, 31, 32]) == []
    assert grouped([0, 31]) == []
    assert grouped([0, 31], policy=LifecyclePolicy(smallest_cluster=2)) == [[0, 1]]


def test_nothing_is_joined_by_way_of_another() -> None:
    """30° apart each: the first and the third are not alike, so the third leads a group of its own."""
    assert grouped([0, 30, 60, 90], policy=LifecyclePolicy(smallest_cluster=2)) == [[0, 1], [2, 3]]


def test_the_most_important_leads() -> None:
    memories = [memory(0), memory(1, importance=0.9), memory(2)]
    assert grouped([-31, 0, 31], *memories) == [[1, 0, 2]]


@pytest.mark.parametrize(
    "other",
    [
        {"scope": Scope("ben")},
        {"scope": Scope("ana", "agent")},
        {"kind": Kind.FACT},
        {"memory_type": "preference"},
        {"speaker": "Eve"},
        {"role": "assistant"},
    ],
)
def test_a_group_has_one_scope_kind_type_and_speaker(other: dict[str, object]) -> None:
    assert grouped([0, 0, 0], memory(0), memory(1), memory(2, **other)) == []


def cluster(*texts: str, degrees: tuple[float, ...] | None = None) -> Cluster | None:
    group = [memory(n) for n in range(len(texts))]
    vectors = rows(*(degrees or [0.0] * len(texts)))
    found = clusters_of(
        group, vectors, {one.id: text for one, text in zip(group, texts, strict=True)}, POLICY.smallest_cluster
    )
    return next(iter(found), None)


def kept_of(*texts: str) -> str | None:
    found = cluster(*texts)
    return None if found is None else texts[found.kept.row]


def test_the_memory_that_says_most_is_kept() -> None:
    assert kept_of("I like tea.", "I like green tea very much.", "Tea, I like!") == "I like green tea very much."
    assert kept_of("我喜欢绿茶", "我喜欢绿茶。", "我很喜欢绿茶") is not None
    assert kept_of("Ich trinke Tee.", "Ich trinke Tee!", "Ich trinke gern Tee.") == "Ich trinke gern Tee."


def test_what_was_said_again_to_the_word_is_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = []
    compare = compression._Said.says

    def noted(self: compression._Said, other: compression._Said) -> bool:
        pairs.append((self.words, other.words))
        return compare(self, other)

    monkeypatch.setattr(compression._Said, "says", noted)
    found = cluster(*["I like tea.", "Tea, I like!"] * 20)
    assert found is not None
    assert (len(found.others), len(pairs)) == (39, 4)


def test_of_several_the_most_central_is_kept() -> None:
    found = cluster("I like tea.", "Tea I like.", "I like tea!", degrees=(-20.0, 0.0, 20.0))
    assert found is not None
    assert (found.kept.row, sorted(one.row for one in found.others)) == (1, [0, 2])


@pytest.mark.parametrize(
    "different",
    [
        "I paid Clara 30 euros for tea at noon.",
        "I paid Boris 20 euros for tea at noon.",
        "I did not pay Clara 20 euros for tea at noon.",
        "I paid Clara 20 euros for apples at noon.",
    ],
)
def test_what_differs_in_a_number_a_name_a_denial_or_a_thing_stays(different: str) -> None:
    same = [
        "I paid Clara 20 euros for tea at noon.",
        "At noon I paid Clara 20 euros for tea.",
        "I paid Clara 20 euros.",
    ]
    assert cluster(*same[:2], different) is None
    found = cluster(*same, different)
    assert found is not None
    assert sorted((found.kept.row, *(one.row for one in found.others))) == [0, 1, 2]


@pytest.mark.parametrize(
    ("says", "denies"),
    [
        ("Ich mag Tee", "Ich mag keinen Tee"),
        ("我喜欢喝茶", "我不喜欢喝茶"),
        ("J'aime le thé", "Je n'aime pas le thé"),
        ("Me gusta el té", "No me gusta el té"),
        ("Я люблю чай", "Я не люблю чай"),
        ("お茶が好きです", "お茶が好きではない"),
    ],
)
def test_a_denial_stands_for_no_statement(says: str, denies: str) -> None:
    assert cluster(says, says, denies) is None
    assert kept_of(says, f"{says}.", f"{says}!", denies) != denies


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("I take the pill before breakfast every day.", "I take the pill after breakfast every day."),
        ("I drink coffee with milk", "I drink coffee without milk"),
        ("Both of my brothers smoke", "Neither of my brothers smoke"),
        ("I voted for the tunnel", "I voted against the tunnel"),
        ("I drink coffee", "I hardly drink coffee"),
        ("I eat fish", "I eat only fish"),
        ("I run in the park", "I run in the park unless it rains"),
        ("Most of my friends sing", "Few of my friends sing"),
        ("I earn more than my boss", "I earn less than my boss"),
        ("I am married", "I was married"),
        ("My sister is ill", "His sister is ill"),
        ("I moved from Porto to Lisbon", "I moved from Lisbon to Porto"),
        ("Bob hit Rita", "Rita hit Bob"),
        ("I quit smoking", "I am going to quit smoking"),
        ("I like two of them", "I like three of them"),
        ("饭前吃药", "饭后吃药"),
        ("我挣得多", "我挣得少"),
        ("张三打李四", "李四打张三"),
        ("我在北京上班", "我以前在北京上班"),
        ("我从北京搬到上海", "我从上海搬到北京"),
        ("我喝咖啡", "我想喝咖啡"),
        ("Ich trinke Tee", "Ich trinke nur Tee"),
        ("Ich gehe vor dem Essen", "Ich gehe nach dem Essen"),
        ("Ich arbeite hier", "Ich arbeite kaum hier"),
    ],
)
def test_nearly_the_same_words_may_say_something_else(one: str, other: str) -> None:
    assert not says(one, other)
    assert not says(other, one)


@pytest.mark.parametrize(
    ("kept", "other"),
    [
        ("On Fridays I bake bread", "I bake bread on Fridays"),
        ("I have oatmeal with blueberries and tahini for breakfast", "I have oatmeal for breakfast"),
        ("My sister lives in Lisbon with her two kids, Ana and Tom", "My sister lives in Lisbon with her two kids"),
        ("You know, I like tea!", "I like tea."),
        ("我每天早上在阳台喝绿茶", "我每天早上喝绿茶"),
        ("每天早上我喝绿茶", "我每天早上喝绿茶呢"),
        ("Wir wohnen in der Gneisenaustraße im fünften Stock", "Wir wohnen im fünften Stock"),
    ],
)  # fmt: skip
def test_a_text_says_what_a_shorter_one_says_also_in_another_order(kept: str, other: str) -> None:
    assert says(kept, other)
