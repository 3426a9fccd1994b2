"""Benchmarks: measures compared with values computed by hand, and readers of the published file formats."""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from support.fakes import fake_models, two_space_embedder

from graphmem import Memory, Settings, wiring
from graphmem.errors import StoreError, ValidationError
from graphmem.evaluation import chats, languages, locomo, multihop, runner
from graphmem.evaluation.datasets import POOLED, BenchmarkQuestion, Dataset, QuestionGroup, pooled
from graphmem.evaluation.metrics import (
    all_found,
    any_found,
    calibration,
    ndcg,
    paired_difference,
    recall,
    recall_within,
    reciprocal_rank,
    scores,
)
from graphmem.evaluation.runner import Latency, RunResult, StoredMessages, build_report, run
from graphmem.text import query_tokens, tokens

RANKING = ["a", "x", "b", "y"]
GOLD = {"a", "b", "c"}
WORDS = {"a": 10, "x": 20, "b": 10, "y": 1000, "c": 1}


# --- measures ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("k", "expected"), [(1, 1 / 3), (2, 1 / 3), (3, 2 / 3), (50, 2 / 3)])
def test_recall_is_the_share_of_gold_that_was_found(k, expected):
    assert recall(RANKING, GOLD, k) == pytest.approx(expected)


def test_any_and_all():
    assert [any_found(["x", "a", "b"], {"a", "b"}, k) for k in (1, 2, 3)] == [0, 1, 1]
    assert [all_found(["x", "a", "b"], {"a", "b"}, k) for k in (1, 2, 3)] == [0, 0, 1]
    assert all_found(["a", "b", "c"], {"a", "b", "c"}, 2) == 0


def test_reciprocal_rank_is_of_the_first_gold_id():
    assert reciprocal_rank(["x", "y", "b", "a"], {"a", "b"}) == pytest.approx(1 / 3)
    assert reciprocal_rank(["a"], {"a"}) == 1
    assert reciprocal_rank(["x"], {"a"}) == 0
    assert reciprocal_rank([], {"a"}) == 0


def test_ndcg():
    # Found at ranks 1 and 3: 1 + 1/2; at best at 1, 2 and 3: 1 + 1/log2(3) + 1/2 = 2.130930.
    assert ndcg(RANKING, GOLD, 10) == pytest.approx(1.5 / 2.130930, abs=1e-6)
    # Three gold ids do not fit into one rank: the ideal ranking has one there.
    assert ndcg(RANKING, GOLD, 1) == 1
    assert ndcg(["x", "a"], {"a"}, 10) == pytest.approx(0.630930, abs=1e-6)
    assert ndcg(["x", "a"], {"a"}, 1) == 0


@pytest.mark.parametrize(("budget", "expected"), [(12, 0), (13, 1 / 3), (39, 1 / 3), (51, 1 / 3), (52, 2 / 3)])
def test_ten_words_are_thirteen_tokens(budget, expected):
    assert recall_within(RANKING, GOLD, WORDS, budget) == pytest.approx(expected)


def test_first_message_over_the_budget_ends_the_context():
    assert recall_within(["y", "a"], {"a"}, WORDS, 500) == 0


def test_scores_name_every_measure():
    score = scores(["x"] * 4 + ["a", "b"], {"a", "b"}, WORDS)
    assert (score["recall@5"], score["recall@10"], score["any@5"], score["all@5"], score["all@10"]) == (0.5, 1, 1, 0, 1)
    assert score["mrr"] == pytest.approx(0.2)
    assert score["recall within 500 tokens"] == 1
    with pytest.raises(ValidationError, match="gold"):
        scores(["a"], set(), WORDS)


def test_calibration_tells_how_well_probabilities_separate_and_how_true_they_are() -> None:
    predicted = np.array([0.05, 0.1, 0.1, 0.95, 1.0])
    figures = calibration(predicted, np.array([False, True, False, True, True]))
    # Of six pairs of a positive and a negative one is equal, the others are in order.
    assert figures["area"] == pytest.approx(5.5 / 6, abs=1e-4)
    assert figures["brier"] == pytest.approx((0.05**2 + 0.9**2 + 0.1**2 + 0.05**2) / 5, abs=1e-4)
    assert (figures["n"], figures["positives"]) == (5, 3)
    assert figures["bins"] == [
        {"predicted": 0.05, "observed": 0.0, "n": 1},
        {"predicted": 0.1, "observed": 0.5, "n": 2},
        {"predicted": 0.975, "observed": 1.0, "n": 2},
    ]


def test_the_interval_of_a_difference():
    always = paired_difference([0.75] * 8, [0.5] * 8)
    assert (always.mean, always.low, always.high) == (0.25, 0.25, 0.25)
    # One of ten: its count in a resample is binomial, 10 draws of 1/10; 35 % have none, 98.7 % at most three.
    rare = paired_difference([1] + [0] * 9, [0] * 10)
    assert (rare.mean, rare.low, rare.high) == (pytest.approx(0.1), 0, pytest.approx(0.3))
    # A hundred draws of 1/2: the middle 95 % are 40 to 60.
    half = paired_difference([0, 0] * 50, [0, 1] * 50)
    assert half.mean == -0.5
    assert half.low == pytest.approx(-0.6, abs=0.011)
    assert half.high == pytest.approx(-0.4, abs=0.011)


def test_an_interval_is_the_same_every_time_and_pairs_questions():
    first, second = [0.2, 0.9, 0.4, 1.0, 0.0, 0.3], [0.1, 0.8, 0.5, 0.5, 0.0, 0.3]
    assert paired_difference(first, second) == paired_difference(first, second)
    assert paired_difference(first, second) != paired_difference(first, second, seed=7)
    # The same values in another order would give a wider interval if questions were not paired.
    assert paired_difference(first, first).low == paired_difference(first, first).high == 0


def test_one_question_has_no_interval_and_no_question_is_an_error():
    alone = paired_difference([1], [0])
    assert (alone.mean, alone.low, alone.high) == (1, None, None)
    with pytest.raises(ValidationError, match="0 and 0 questions"):
        paired_difference([], [])
    with pytest.raises(ValidationError, match="2 and 1 questions"):
        paired_difference([1, 1], [0])


# --- LOCOMO --------------------------------------------------------------------------------------------------------


def turn(key, text, speaker="Ann", **more):
    return {"speaker": speaker, "dia_id": key, "text": text, **more}


def conversation(**changes):
    return {
        "sample_id": "conv-1",
        "conversation": {
            "speaker_a": "Ann",
            "speaker_b": "Bo",
            "session_10_date_time": "12:05 am on 1 June, 2023",
            "session_10": [turn("D10:1", "I sold the boat.", "Bo")],
            "session_2_date_time": "1:56 pm on 8 May, 2023",
            "session_2": [
                turn("D2:1", "I bought a boat.", "Bo", blip_caption="a photo of a red boat", img_url=["…"]),
                turn("D2:2", "Congratulations!"),
            ],
            "session_11_date_time": "9:00 am on 2 June, 2023",
        },
        "qa": [
            {"question": "What happened to the boat?", "evidence": ["D2:1; D10:01"], "category": 1, "answer": "sold"},
            {"question": "What did Bo buy?", "evidence": ["D:2:1", "D7:7", "D"], "category": 4, "answer": "a boat"},
            {"question": "Is Bo rich?", "evidence": [], "category": 3, "answer": "no"},
            {"question": "What did Ann buy?", "evidence": ["D2:1"], "category": 5, "adversarial_answer": "a boat"},
        ],
        **changes,
    }


@pytest.fixture
def write_json(tmp_path):
    def write(value, name="data.json"):
        path = tmp_path / name
        path.write_text(value if isinstance(value, str) else json.dumps(value))
        return path

    return write


def test_turns_become_messages_in_the_order_of_the_sessions(write_json):
    messages = locomo.load(write_json([conversation()])).partitions["conv-1"]
    assert [message["id"] for message in messages] == ["D2:1", "D2:2", "D10:1"]
    assert messages[0] == {
        "role": "user",
        "name": "Bo",
        "content": "I bought a boat. [shares a photo of a red boat]",
        "timestamp": "2023-05-08T13:56:00+00:00",
        "id": "D2:1",
    }
    assert messages[2]["timestamp"] == "2023-06-01T00:05:00+00:00"


def test_evidence_is_read_in_every_notation_and_questions_left_out_are_counted(write_json):
    dataset = locomo.load(write_json([conversation()]))
    assert [(case.question, case.gold) for case in dataset.cases] == [
        ("What happened to the boat?", {"D2:1", "D10:1"}),
        ("What did Bo buy?", {"D2:1"}),
    ]
    assert dataset.left_out == {
        "turns named as evidence that do not exist": 2,
        "questions without evidence": 1,
        "questions of category 5 (adversarial)": 1,
    }
    assert dataset.cases[0].groups == (
        QuestionGroup("locomo", "all", "1-4", "categories 1 to 4 together"),
        QuestionGroup("locomo", "category", "1", "multi-hop"),
        QuestionGroup("locomo", "gold turns", "2"),
    )
    assert dataset.sources[0].name == "data.json"


NAMELESS = {"session_1": [{"text": "Hi"}], "session_1_date_time": "1:56 pm on 8 May, 2023"}


def without(key):
    return {name: value for name, value in conversation().items() if name != key}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("not json", "is not valid JSON"),
        ({"sample_id": "conv-1"}, "expected a JSON list"),
        ([], "expected a JSON list"),
        (["x"], "entry 1: is no JSON object"),
        ([without("sample_id")], "entry 1: expected 'sample_id' to be text"),
        ([without("qa")], "entry 1: expected 'qa' to be a list"),
        ([conversation(conversation={"speaker_a": "Ann"})], "expected 'session_1', a list of turns"),
        ([conversation(conversation={"session_1": []})], "expected 'session_1_date_time' to be text"),
        (
            [conversation(conversation={"session_1": [], "session_1_date_time": "2023-05-08"})],
            "expected a time like '1:56 pm on 8 May, 2023', not '2023-05-08'",
        ),
        (
            [conversation(conversation=NAMELESS)],
            "'session_1', number 1: expected 'speaker' to be text",
        ),
        ([conversation(qa=[{"evidence": [], "category": 6}])], "expected 'category' to be 1 to 5, not 6"),
        ([conversation(qa=[{"evidence": "D1:1", "category": 1}])], "expected 'evidence' to be a list"),
        ([conversation(qa=[])], "nothing to measure"),
        ([conversation(), conversation()], "is there twice"),
    ],
)  # fmt: skip
def test_a_file_of_another_form_is_refused_by_name(write_json, value, expected):
    path = write_json(value)
    with pytest.raises(ValidationError) as caught:
        locomo.load(path)
    assert str(caught.value).startswith(str(path))
    assert expected in str(caught.value)


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(ValidationError, match=r"gone\.json: cannot be read"):
        locomo.load(tmp_path / "gone.json")


# --- MuSiQue and HotpotQA ------------------------------------------------------------------------------------------


def paragraph(title, text, *, gold=False):
    return {"idx": 0, "title": title, "paragraph_text": text, "is_supporting": gold}


MUSIQUE = [
    {
        "id": "2hop__1_2",
        "question": "Where was the founder of Acme born?",
        "paragraphs": [
            paragraph("Acme", "Acme was founded by Eve Ito.", gold=True),
            paragraph("Eve Ito", "Eve Ito was born in Oslo.", gold=True),
            paragraph("Acme", "An acme is a summit."),
        ],
    },
    {
        "id": "3hop1__1_2_3",
        "question": "Which river runs through the birthplace of the founder of Acme?",
        "paragraphs": [
            paragraph("Acme", "Acme was founded by Eve Ito.", gold=True),
            paragraph("Eve Ito", "Eve Ito was  born in Oslo.", gold=True),
            paragraph("Oslo", "The Akerselva runs through Oslo.", gold=True),
        ],
    },
    {"id": "2hop__3_4", "question": "Who knows?", "answerable": False, "paragraphs": [paragraph("A", "B", gold=True)]},
]
HOTPOTQA = [
    {
        "_id": "5a",
        "question": "Are Oslo and Bergen in one country?",
        "type": "comparison",
        "level": "hard",
        "supporting_facts": [["Oslo", 0], ["Bergen", 0], ["Oslo", 1]],
        "context": [["Oslo", ["Oslo is in Norway.", " It is large."]], ["Bergen", ["In Norway."]], ["Rome", ["Far."]]],
    },
    {
        "_id": "5b",
        "question": "Who?",
        "type": "bridge",
        "level": "easy",
        "supporting_facts": [["Nowhere", 0]],
        "context": [["Rome", ["Far."]]],
    },
]


def test_passages_of_all_questions_are_stored_once_in_one_partition(write_json):
    dataset = multihop.load(write_json(MUSIQUE))
    messages = dataset.partitions[multihop.PARTITION]
    assert [message["content"].partition("\n")[0] for message in messages] == ["Acme", "Eve Ito", "Acme", "Oslo", "A"]
    assert messages[0]["content"] == "Acme\nAcme was founded by Eve Ito."
    assert [(case.gold, case.groups[-1].value) for case in dataset.cases] == [
        ({"p1", "p2"}, "2"),
        ({"p1", "p2", "p4"}, "3"),
    ]
    assert dataset.left_out == {"questions without all their supporting passages": 1}


def test_each_passage_is_a_session_of_its_own(memory, write_json):
    messages = multihop.load(write_json(MUSIQUE)).partitions[multihop.PARTITION]
    memory.add(messages, user_id=multihop.PARTITION)
    stored = memory.get_all(user_id=multihop.PARTITION)["results"]
    assert len({one["session"] for one in stored}) == len(messages)


def test_corpus_file_replaces_passages_of_the_questions(write_json):
    corpus = [
        {"title": "Rome", "text": "Far."},
        {"title": "Eve Ito", "text": "Eve Ito was born in Oslo."},
        {"title": "Acme", "text": "Acme was founded by Eve Ito."},
    ]
    dataset = multihop.load(write_json(MUSIQUE), write_json(corpus, "corpus.json"))
    assert [case.gold for case in dataset.cases] == [{"p2", "p3"}]
    assert dataset.left_out == {"questions without all their supporting passages": 2}
    assert [source.name for source in dataset.sources] == ["data.json", "corpus.json"]
    with pytest.raises(ValidationError, match="no question has all its supporting passages in the corpus"):
        multihop.load(write_json(MUSIQUE), write_json(corpus[:1], "corpus.json"))
    with pytest.raises(ValidationError, match=r"corpus\.json, entry 1: expected 'title' to be text"):
        multihop.load(write_json(MUSIQUE), write_json([{"text": "Far."}], "corpus.json"))


def test_hotpotqa_gold_are_the_passages_of_the_supporting_facts(write_json):
    dataset = multihop.load(write_json(HOTPOTQA))
    assert dataset.name == "hotpotqa"
    assert dataset.partitions[multihop.PARTITION][0]["content"] == "Oslo\nOslo is in Norway. It is large."
    (case,) = dataset.cases
    assert case.gold == {"p1", "p2"}
    assert [(group.by, group.value) for group in case.groups] == [
        ("all", "all"), ("hops", "2"), ("type", "comparison"), ("level", "hard")
    ]  # fmt: skip
    assert dataset.left_out == {"questions without all their supporting passages": 1}


def test_json_lines_are_read(write_json):
    lines = "\n".join(json.dumps(question) for question in MUSIQUE)
    assert multihop.load(write_json(lines, "musique.jsonl")).cases == multihop.load(write_json(MUSIQUE)).cases


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([{"question": "Who?"}], "expected MuSiQue's form"),
        ([{"question": "Who?", "paragraphs": [{"title": "A"}]}], "expected 'paragraph_text' to be text"),
        ([{"question": "Who?", "context": [["A"]], "supporting_facts": []}], "number 1: expected it to be a list"),
        ([{"question": "Who?", "context": [["A", ["b"]]]}], "entry 1: expected 'supporting_facts' to be a list"),
    ],
)
def test_questions_of_another_form_are_refused(write_json, value, expected):
    with pytest.raises(ValidationError) as caught:
        multihop.load(write_json(value))
    assert "data.json" in str(caught.value)
    assert expected in str(caught.value)


# --- pooled data, and a run -----------------------------------------------------------------------------------------


def test_pooled_data_share_a_partition_and_keep_their_ids_apart(write_json):
    together = pooled([locomo.load(write_json([conversation()])), multihop.load(write_json(MUSIQUE))])
    assert list(together.partitions) == [POOLED]
    ids = [message["id"] for message in together.partitions[POOLED]]
    assert len(set(ids)) == len(ids) == together.messages == 8
    assert together.cases[0].gold == {"conv-1:D2:1", "conv-1:D10:1"}
    assert together.cases[2].gold == {"passages-1:p1", "passages-1:p2"}
    assert {case.partition for case in together.cases} == {POOLED}
    assert together.left_out["locomo: questions without evidence"] == 1


def make_messages(*texts):
    at = "2024-05-01T12:00:00+00:00"
    return tuple(
        {"role": "user", "content": text, "id": str(place), "timestamp": at} for place, text in enumerate(texts, 1)
    )


def make_dataset(**changes):
    everything = QuestionGroup("tiny", "all", "all")
    fields = {
        "name": "tiny",
        "partitions": {
            "u-1": make_messages("Apples are red.", "Skies are blue."),
            "u-2": make_messages("Apples are green."),
        },
        "cases": (
            BenchmarkQuestion("apples", frozenset({"1"}), "u-1", (everything,)),
            BenchmarkQuestion("skies", frozenset({"2"}), "u-1", (everything, QuestionGroup("tiny", "hops", "2"))),
            BenchmarkQuestion("apples", frozenset({"1"}), "u-2", (everything, QuestionGroup("tiny", "hops", "2"))),
        ),
        "left_out": {},
        "sources": (),
    }
    return Dataset(**(fields | changes))


def ignore_progress(*_):
    pass


def search_backwards(memory, case, top_k):
    return runner.SEARCH_FUNCTIONS["full"](memory, case, 100)[::-1][:top_k]


def test_a_run_scores_what_each_configuration_finds(memory):
    both = runner.Measurement({"full": runner.SEARCH_FUNCTIONS["full"], "backwards": search_backwards}, ())
    outcome = run(memory, make_dataset(), both, ignore_progress)
    assert outcome.stored.messages == 3
    assert [one["mrr"] for one in outcome.scores["full"]] == [1, 1, 1]
    assert [one["mrr"] for one in outcome.scores["backwards"]] == [0.5, 0.5, 1]
    assert 0 < outcome.latency["full"].p50 <= outcome.latency["full"].p95
    again = run(memory, make_dataset(), both, ignore_progress)
    assert (again.stored.messages, again.stored.seconds, again.scores) == (0, 0, outcome.scores)


def test_a_partition_that_holds_something_else_is_refused(memory):
    memory.add("Apples are blue.", user_id="u-2")
    with pytest.raises(ValidationError, match="'u-2' has 2 memories here, the data 1 messages"):
        run(memory, make_dataset(), runner.EVERYTHING, ignore_progress)


def test_a_degraded_search_is_an_error():
    class Broken:
        def search(self, *_, **__):
            return {"results": [], "relations": [], "degraded": ["graph"]}

    with pytest.raises(StoreError, match="without graph"):
        runner.SEARCH_FUNCTIONS["full"](Broken(), BenchmarkQuestion("apples", frozenset({"1"}), "u-1", ()), 10)


def test_a_report_has_figures_by_group_and_the_differences():
    perfect, nothing = scores(["1"], {"1"}, {"1": 5}), scores([], {"1"}, {})
    outcome = RunResult(
        StoredMessages({}, 300, 2.0),
        {"full": [perfect, perfect, nothing], "flat": [perfect, nothing, nothing]},
        {"full": Latency(3, 12.345, 20.0), "flat": Latency(3, 1.0, 2.0)},
    )
    report = build_report(make_dataset(), outcome, runner.Measurement({}, [("full", "flat")]), {"embedder": "hash"})
    assert report["adding"] == {"messages": 300, "seconds": 2.0, "per_second": 150.0}
    assert report["latency"]["full"] == {"top_k": 10, "questions": 3, "p50_ms": 12.3, "p95_ms": 20.0}
    everything, two = report["figures"]
    assert (everything["by"], everything["n"], two["by"], two["value"], two["n"]) == ("all", 3, "hops", "2", 2)
    assert everything["measures"]["full"]["recall@10"] == pytest.approx(2 / 3, abs=1e-4)
    assert two["measures"]["flat"]["recall@10"] == 0
    assert two["differences"][0] == {
        "of": ["full", "flat"],
        "recall@10": {"mean": 0.5, "low": 0, "high": 1},
        "all@10": {"mean": 0.5, "low": 0, "high": 1},
    }
    assert json.loads(json.dumps(report)) == report


# --- chats ------------------------------------------------------------------------------------------------------------

CHAT = {
    "name": "tiny",
    "about": "assistant chats",
    "sessions": [
        {"at": "2024-01-08T19:30:00+00:00", "turns": [["user", "I moved to Oslo."], ["assistant", "Congratulations!"]]},
        {"at": "2024-02-08T19:30:00+00:00", "turns": [["Bo", "So did I."]]},
    ],
    "questions": [
        {"ask": "Who lives in Oslo?", "kind": "list", "gold": ["1:1", "2:1"], "at": "2024-03-01T00:00:00+00:00"}
    ],
}


def session(turn, at="2024-01-08T19:30:00+00:00"):
    return [{"at": at, "turns": [turn]}]


def chat_file(folder, **changes):
    path = folder / "tiny.json"
    path.write_text(json.dumps([CHAT | changes]), "utf-8")
    return path


def test_a_chat_is_a_partition_of_turns_and_its_questions(tmp_path):
    january, february = (datetime(2024, month, 8, 19, 30, tzinfo=UTC) for month in (1, 2))
    for dataset in (chats.load(chat_file(tmp_path)), chats.load(tmp_path)):
        assert [dict(message) for message in dataset.partitions["tiny"]] == [
            {"role": "user", "content": "I moved to Oslo.", "timestamp": january, "id": "1:1"},
            {"role": "assistant", "content": "Congratulations!", "timestamp": january, "id": "1:2"},
            {"role": "user", "name": "Bo", "content": "So did I.", "timestamp": february, "id": "2:1"},
        ]
        (case,) = dataset.cases
        assert (case.gold, case.partition, case.query_time) == (
            {"1:1", "2:1"},
            "tiny",
            datetime(2024, 3, 1, tzinfo=UTC),
        )
        assert case.groups == (
            QuestionGroup("assistant chats", "all", "all"),
            QuestionGroup("assistant chats", "kind", "list"),
        )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"questions": []}, "asks no questions"),
        ({"name": None}, "'name' to be text"),
        ({"name": ""}, "'name'='': is empty"),
        ({"sessions": session(["user"])}, "'turns', number 1: expected two texts"),
        ({"sessions": session(["user", "I sing.", "Loudly."])}, "'turns', number 1: expected two texts"),
        ({"sessions": session({"user": "I sing."})}, "'turns', number 1: expected it to be a list"),
        ({"sessions": session(["user", " \n"])}, "'turns', number 1: says nothing"),
        ({"sessions": session(["user", "I\0sing."])}, "'turns', number 1, the words=<7 characters>: holds"),
        ({"sessions": session(["", "I sing."])}, "'turns', number 1, the speaker=''"),
        ({"sessions": session(["user", "I sing."], at="soon")}, "'sessions', number 1: expected 'at' to be a time"),
        (
            {"sessions": session(["user", "I sing."], at="2024-01-08")},
            "'sessions', number 1: expected 'at' to be a time",
        ),
        ({"questions": [CHAT["questions"][0] | {"ask": " "}]}, "'questions', number 1, 'ask'"),
        ({"questions": [CHAT["questions"][0] | {"gold": [1]}]}, "'gold', number 1: expected it to be text"),
        ({"questions": [CHAT["questions"][0] | {"gold": ["9:1"]}]}, "'gold' names no turns"),
        ({"questions": [CHAT["questions"][0] | {"at": "May"}]}, "'at' to be a time with its zone"),
    ],
)
def test_invalid_chats_are_errors_with_their_position(tmp_path, changes, message):
    with pytest.raises(ValidationError, match=re.escape(message)):
        chats.load(chat_file(tmp_path, **changes))


def test_a_folder_of_chats_is_read_and_duplicates_are_refused(tmp_path):
    with pytest.raises(ValidationError, match="holds no chats"):
        chats.load(tmp_path)
    chat_file(tmp_path)
    (tmp_path / "again.json").write_text(json.dumps([CHAT]), "utf-8")
    with pytest.raises(ValidationError, match="'tiny' is there twice"):
        chats.load(tmp_path)


# --- parallel languages ---------------------------------------------------------------------------------------------

PUBLISHED = Path(__file__).parents[2] / "benchmarks" / "languages"
ENGLISH = [(f"{word} grow here", word) for word in "apples pears plums figs dates lemons nuts hops".split()] + [
    ("skies are blue", None)
]
# A question shares a word with its answer in English alone.
GERMAN = [(f"Pflanze{number}", question and f"Frage{number}") for number, (_, question) in enumerate(ENGLISH)]


def language_file(folder, language, sentences):
    entries = [
        {"id": key, "stored": stored} | ({} if question is None else {"question": question})
        for key, (stored, question) in enumerate(sentences)
    ]
    (folder / f"{language}.jsonl").write_text("\n".join(map(json.dumps, entries)), "utf-8")


@pytest.fixture
def parallel(tmp_path):
    language_file(tmp_path, "en", ENGLISH)
    language_file(tmp_path, "de", GERMAN)
    return tmp_path


def test_the_published_languages_are_parallel_and_each_sentence_is_there_once():
    files = sorted(PUBLISHED.glob("*.jsonl"))
    assert {path.stem for path in files} == {"ar", "de", "en", "es", "fr", "ja", "ko", "ru", "zh"}
    for path in files:
        entries = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        assert [entry["id"] for entry in entries] == list(range(72)), path.stem
        assert [entry["id"] for entry in entries if "question" in entry] == list(range(60)), path.stem
        texts = [entry[key] for entry in entries for key in ("stored", "question") if key in entry]
        assert all(text == text.strip() != "" for text in texts), path.stem
        assert not [text for text, count in Counter(texts).items() if count > 1], path.stem


@pytest.mark.parametrize("path", sorted(PUBLISHED.glob("*.jsonl")), ids=lambda path: path.stem)
def test_published_questions_use_other_words_than_their_answers(path):
    entries = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    common = Counter(
        term for entry in entries for key in ("stored", "question") for term in set(tokens(entry.get(key, "")))
    )
    shared = {
        entry["id"]: terms
        for entry in entries
        if (terms := {term for term in set(query_tokens(entry.get("question", ""))) & set(tokens(entry["stored"]))
                      if common[term] <= 5})
    }  # fmt: skip
    assert len(shared) <= 5, shared


def test_each_language_is_asked_over_its_own_stores_and_both_ways_over_english():
    dataset = languages.load(PUBLISHED, ["zh"], limit=6)
    assert {name: len(messages) for name, messages in dataset.partitions.items()} == {
        "en-16-1": 16, "en-16-2": 16, "en-72": 72, "zh-16-1": 16, "zh-16-2": 16, "zh-72": 72,
    }  # fmt: skip
    groups = Counter(group for case in dataset.cases for group in case.groups)
    expected = [("language", "en"), ("language", "zh"), ("pair", "zh over en"), ("pair", "en over zh")]
    assert groups == {QuestionGroup(f"{size} sentences", by, value): 6 for size in (16, 72) for by, value in expected}
    assert {group: base.value for group, base in dataset.baselines.items()} == {
        group: "en" for group in groups if group.value != "en"
    }
    assert all(base.data == group.data for group, base in dataset.baselines.items())
    for case in dataset.cases:
        (key,) = case.gold
        (group,) = case.groups
        asked, _, stored = group.value.partition(" over ")
        assert case.partition.startswith(f"{stored or asked}-{group.data.split()[0]}")
        assert sum(message["id"] == key for message in dataset.partitions[case.partition]) == 1
    orders = [[message["id"] for message in dataset.partitions[f"{one}-72"]] for one in ("en", "zh")]
    assert orders[0] == orders[1] != sorted(orders[0], key=int)


def test_a_language_is_compared_with_english_question_by_question(memory, parallel):
    dataset = languages.load(parallel, limit=2)
    report = build_report(
        dataset, run(memory, dataset, languages.MEASUREMENT, ignore_progress), languages.MEASUREMENT, {}
    )
    figures = {(one["data"], one["value"]): one for one in report["figures"]}
    assert set(figures) == {
        (size, value) for size in ("5 sentences", "9 sentences") for value in ("en", "de", "de over en", "en over de")
    }
    for (_, value), figure in figures.items():
        assert figure["n"] == 2
        found = float(value == "en")
        assert figure["measures"]["bm25"] == dict.fromkeys(("recall@1", "recall@3", "recall@5", "mrr"), found)
        if value == "en":
            assert "baseline" not in figure
            assert figure["measures"]["cosine"]["recall@1"] == figure["measures"]["full"]["recall@1"] == 1
        else:
            assert figure["baseline"] == "en"
            assert figure["minus_baseline"]["bm25"] == {"recall@3": {"mean": -1, "low": -1, "high": -1}}
            assert figure["minus_baseline"]["full"]["recall@3"]["mean"] == pytest.approx(
                figure["measures"]["full"]["recall@3"] - 1
            )


@pytest.mark.parametrize("question", ["Anna paints?", "安娜画画？"])
def test_the_cosine_alone_compares_in_every_space(monkeypatch, question):
    monkeypatch.setattr(wiring, "_embedder", lambda _: two_space_embedder())
    texts = ["Bo rows boats", "安娜画画", "Anna paints", "博划船"]
    # In memory: the tests' collection on a server has one space.
    with Memory(":memory:", settings=Settings.from_dict(fake_models())) as memory:
        ids = [item["id"] for item in memory.add(make_messages(*texts), user_id="u-1", infer=False)["results"]]
        memory.flush()
        case = BenchmarkQuestion(question, frozenset({"2"}), "u-1", ())
        assert set(runner.ARMS_ALONE["cosine"](memory, case, 2)) == {ids[1], ids[2]}
        assert len(runner.ARMS_ALONE["cosine"](memory, case, 10)) == 4


def test_the_only_small_store_is_not_measured_twice(tmp_path):
    language_file(tmp_path, "en", [*ENGLISH[:4], ENGLISH[-1]])
    assert list(languages.load(tmp_path).partitions) == ["en-5-1"]


@pytest.mark.parametrize(
    ("sentences", "message"),
    [
        (GERMAN[:-1], "de.jsonl: differs from en.jsonl in 'id' 8"),
        ([*GERMAN[:3], ("Pflanze", None), *GERMAN[4:]], "de.jsonl: differs from en.jsonl in 'id' 3"),
        ([("", "Frage"), *GERMAN[1:]], "de.jsonl, entry 1, 'stored'"),
        ([("Pflanze", 7), *GERMAN[1:]], "de.jsonl, entry 1: expected 'question' to be text"),
    ],
)
def test_a_file_that_is_not_parallel_is_refused_with_its_position(parallel, sentences, message):
    language_file(parallel, "de", sentences)
    with pytest.raises(ValidationError, match=re.escape(message)):
        languages.load(parallel)


def test_an_id_that_is_there_twice_and_a_store_that_is_not_full_are_refused(parallel):
    with (parallel / "de.jsonl").open("a", encoding="utf-8") as file:
        file.write('\n{"id": 3, "stored": "Noch eine"}')
    with pytest.raises(ValidationError, match=r"de\.jsonl, entry 10: 'id' 3 is there twice"):
        languages.load(parallel)
    language_file(parallel, "en", ENGLISH[:6])
    with pytest.raises(ValidationError, match="asks 6 questions; expected a multiple of 4"):
        languages.load(parallel, [])


@pytest.mark.parametrize("limit", [0, -1, 9])
def test_a_limit_is_a_number_of_questions(parallel, limit):
    with pytest.raises(ValidationError, match=f"limit={limit}: must be a whole number from 1 to 8"):
        languages.load(parallel, limit=limit)


def test_languages_without_a_file_are_errors(parallel, tmp_path_factory):
    with pytest.raises(ValidationError, match=r"languages='xx': must be one of 'de'.* 'en'"):
        languages.load(parallel, ["de", "xx"])
    (parallel / "en.jsonl").unlink()
    with pytest.raises(ValidationError, match=r"en\.jsonl: cannot be read"):
        languages.load(parallel, ["de"])
    for folder in (tmp_path_factory.mktemp("empty"), parallel / "gone"):
        with pytest.raises(ValidationError, match=r"holds no languages; name a folder with files such as en\.jsonl"):
            languages.load(folder)
