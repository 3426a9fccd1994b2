"""The everyday questions: their judge, their data, and the partitions in which they are asked."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from graphmem.errors import ValidationError
from graphmem.evaluation.answers import SIZES, TWO_HOPS, Answered, Asked, build_report, lay_out, load, run
from graphmem.evaluation.blocks import evidence_of, judge, shares, shown_memories
from graphmem.evaluation.datasets import BenchmarkQuestion
from graphmem.retrieval.context import block, memory_line

ANSWERS = Path(__file__).parents[2] / "benchmarks" / "answers"
LISBON, TAVIRA, SEAFOOD = (
    "I moved to Lisbon in May.",
    "Ingrid lives in Tavira.",
    "I can't eat seafood. It makes me ill.",
)
STORED = [LISBON, TAVIRA, SEAFOOD]


def lines(*texts):
    return block(memory_line(text, "2026-01-05", None) for text in texts)


def verdict(text, needed=(LISBON,), right=None, stored=STORED):
    return judge(text, stored, needed, needed if right is None else right)


# --- the judge -------------------------------------------------------------------------------------------------------


def test_a_block_with_what_is_needed_alone_is_exact():
    one = verdict(lines(LISBON))
    assert (one.is_in, one.is_exact, one.is_silent, one.shown, one.right) == (True, True, False, 1, 1)
    assert one.characters == len(lines(LISBON))


def test_another_memory_beside_it_is_in_but_not_exact():
    one = verdict(lines(LISBON, TAVIRA))
    assert (one.is_in, one.is_exact, one.shown, one.right) == (True, False, 2, 1)


def test_somebody_elses_memory_alone_is_wrong():
    one = verdict(lines(TAVIRA))
    assert (one.is_in, one.is_exact, one.shown, one.right) == (False, False, 1, 0)


def test_an_empty_block_is_silent_and_right_only_if_nothing_answers():
    assert verdict("").is_silent
    assert not verdict("").is_in
    assert not verdict("", needed=()).is_exact
    assert not verdict(lines(TAVIRA), needed=()).is_silent


def test_both_memories_of_two_hops_have_to_be_in():
    assert verdict(lines(LISBON, TAVIRA), needed=(LISBON, TAVIRA)).is_exact
    assert not verdict(lines(LISBON), needed=(LISBON, TAVIRA)).is_in


def test_a_repeated_memory_is_one_line_too_many():
    one = verdict(lines(LISBON, LISBON), stored=[LISBON, LISBON])
    assert (one.is_in, one.is_exact, one.shown, one.right) == (True, False, 2, 1)


def test_what_belongs_to_the_answer_is_neither_needed_nor_wrong():
    asked, reply = "Where do you live?", "In Lisbon, since May."
    stored = [asked, reply, TAVIRA]
    assert verdict(lines(asked, reply), needed=(reply,), right=(asked, reply), stored=stored).is_exact
    assert verdict(lines(reply), needed=(reply,), right=(asked, reply), stored=stored).is_exact
    assert not verdict(lines(asked), needed=(reply,), right=(asked, reply), stored=stored).is_in


@pytest.mark.parametrize(
    "text",
    [
        "<memories>\n5 January 2026\n- I can't eat seafood. … I moved to Lisbon in May.\n</memories>",
        "I moved to  Lisbon\nin May [2025].",
        "I moved [from Faro] to Lisbon in May.",
    ],
)
def test_blocks_of_other_forms_are_read_by_their_sentences(text):
    assert verdict(text).is_in


def test_one_sentence_of_a_long_memory_is_enough_if_it_is_the_needed_one():
    assert verdict(lines("It makes me ill."), needed=("It makes me ill.",), right=(SEAFOOD,)).is_exact
    assert not verdict(lines("I can't eat seafood."), needed=("It makes me ill.",), right=(SEAFOOD,)).is_in


def test_a_sentence_inside_a_longer_one_is_not_counted_with_it():
    short, long = "I don't eat lamb.", "Remember, I don't eat lamb."
    assert shown_memories(lines(long), [short, long]) == {long: 1}
    assert shown_memories(lines(long, short), [short, long]) == {long: 1, short: 1}


# --- the data --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def parts():
    """The cases to develop with, and those held out."""
    return load(ANSWERS), load(ANSWERS / "held-out")


@pytest.fixture(scope="module")
def layouts(parts):
    """The partitions of both parts, and what is asked in them."""
    return [lay_out(part) for part in parts]


def test_the_data_has_cases_with_and_without_an_answer_in_both_languages(parts):
    fitting, held_out = parts
    counts = Counter((case.language, bool(case.needed)) for case in fitting.cases)
    assert min(counts.values()) >= 75
    assert len(counts) == 4
    assert len(held_out.cases) >= 60
    assert {case.kind for case in held_out.cases} == {case.kind for case in fitting.cases}


def test_nothing_that_is_held_out_is_among_the_cases_to_develop_with(parts):
    fitting, held_out = parts
    assert not {case.id for case in fitting.cases} & {case.id for case in held_out.cases}
    assert all(case.id.startswith("held-") for case in held_out.cases)
    for texts in (lambda case: [case.question], lambda case: [text for _, text in case.turns]):
        told, held = ({text for case in part.cases for text in texts(case)} for part in parts)
        assert not told & held
    assert not {*fitting.noise["en"], *fitting.noise["zh"]} & {*held_out.noise["en"], *held_out.noise["zh"]}


@pytest.mark.parametrize("part", [0, 1])
def test_every_case_is_asked_where_there_is_what_it_needs_and_nothing_it_forbids(parts, layouts, part):
    dataset, asked = layouts[part]
    contents = {name: [message["content"] for message in messages] for name, messages in dataset.partitions.items()}
    topics = {name: Counter() for name in contents}
    for one in asked:
        if one.case.turns:
            topics[one.partition].update(one.case.topics)
    assert {(one.case.id, one.size) for one in asked} == {(case.id, n) for case in parts[part].cases for n in SIZES}
    for one in asked:
        stored = contents[one.partition]
        assert all(any(needed in text for text in stored) for needed in one.case.needed)
        assert len(stored) == one.size
        assert not one.case.away_from & topics[one.partition].keys()
        assert all(topics[one.partition][topic] == 1 for topic in one.case.topics if one.case.turns)


def test_memories_of_two_hops_are_neighbours_in_a_sitting_or_far_apart(layouts):
    dataset, asked = layouts[0]
    seen = set()
    for one in asked:
        if one.case.kind == TWO_HOPS:
            messages = dataset.partitions[one.partition]
            told = [number for number, message in enumerate(messages) if ("user", message["content"]) in one.case.turns]
            gaps = [after - before for before, after in zip(told, told[1:], strict=False)]
            days = {messages[number]["timestamp"].date() for number in told}
            placement = one.kind.removeprefix(f"{TWO_HOPS}, ")
            if placement == "neighbours":
                assert set(gaps) == {1}
                assert len(days) == 1
            else:
                assert min(gaps) >= {3: 2, 12: 4, 60: 10}[one.size]
            seen.add((placement, one.size))
    assert len(seen) == 6


def test_the_partitions_are_the_same_each_time(layouts):
    assert layouts[1] == lay_out(load(ANSWERS / "held-out"))


CASE = {"id": "a", "lang": "en", "kind": "other words", "about": ["home"], "ask": "Where do I live?"}
HOME = {"stored": [LISBON, TAVIRA], "needed": [0]}


def folder(path, *cases, noise=("It rains.", "The bus was late.", "A dog barked.")):
    (path / "cases.json").write_text(json.dumps(cases), "utf-8")
    (path / "noise.json").write_text(json.dumps([{"lang": "en", "text": text} for text in noise]), "utf-8")
    return path


@pytest.mark.parametrize(
    ("cases", "message"),
    [
        ([CASE | HOME, CASE | HOME], "entry 2: 'id' 'a' is there twice"),
        ([CASE | HOME | {"lang": "fi"}], "noise.json has no memories in its 'lang'"),
        ([CASE | HOME | {"needed": [2]}], "'needed' names no stored memory"),
        ([CASE | HOME | {"needed": ["I moved to Rome."]}], "'needed' names no stored memory"),
        ([CASE | {"stored": [LISBON]}], "expected 'stored' and 'needed' both"),
        ([CASE | HOME | {"stored": [LISBON] * 4}], "'stored' has 4 memories"),
        ([CASE | HOME | {"stored": ["I live in [Rome]."]}], "holds brackets"),
        ([CASE | HOME | {"ask": " "}], "'ask'"),
        ([CASE | HOME | {"about": "home"}], "expected 'about' to be a list"),
        ([CASE | HOME | {"fine": [7]}], "'fine' names no stored memory"),
    ],
)
def test_cases_of_another_form_are_refused_with_their_position(tmp_path, cases, message):
    with pytest.raises(ValidationError, match=re.escape(message)):
        load(folder(tmp_path, *cases))


# --- a run and its report --------------------------------------------------------------------------------------------


def test_a_run_judges_the_context_and_tells_what_search_finds(memory, tmp_path):
    silent = CASE | {"id": "b", "kind": "world", "about": ["world"], "ask": "How tall is the Eiffel Tower?"}
    answers = load(folder(tmp_path, CASE | HOME | {"ask": "Where did I move to, Lisbon?"}, silent))
    results = run(memory, answers, {"threshold": None}, lambda *_: None)
    report = build_report(answers, results, {"threshold": None}, {"embedder": "hash"}, with_cases=True)
    assert (report["data"]["cases"], report["data"]["partitions"], report["data"]["questions"]) == (2, 3, 6)
    answerable, unanswerable = report["figures"][:2]
    assert (answerable["value"], answerable["n"], answerable["in"], answerable["search@5"]) == ("all", 3, 1.0, 1.0)
    assert (unanswerable["answerable"], unanswerable["n"], unanswerable["silent"]) == (False, 3, 0.0)
    assert report["cases"]["b"] == "3 told, 12 told, 60 told"
    assert {(one["by"], one["value"]) for one in report["figures"]} >= {
        ("language", "en"), ("language, size", "en, 12"), ("language, kind", "en, world")
    }  # fmt: skip
    assert json.loads(json.dumps(report)) == report


def test_outcomes_and_precision_by_hand(tmp_path):
    (case,) = load(folder(tmp_path, CASE | HOME)).cases
    blocks = {3: lines(LISBON), 12: lines(LISBON, TAVIRA), 60: lines(TAVIRA)}
    results = [
        Answered(Asked(case, f"en-{size}-1", size, case.kind), verdict(text), rank, (0.002, 0.001))
        for (size, text), rank in zip(blocks.items(), (1, 7, 4), strict=True)
    ]
    report = build_report(load(tmp_path), results, {}, {}, with_cases=True)
    everything = report["figures"][0]
    measures = {name: everything[name] for name in ("in", "exact", "precision", "empty", "search@5", "search@20")}
    assert measures == {
        "in": 0.667, "exact": 0.333, "precision": 0.5, "empty": 0, "search@5": 0.667, "search@20": 1
    }  # fmt: skip
    assert report["cases"] == {"a": "3 exact, 12 in, 60 lost"}
    assert report["latency"] == {"context_p50_ms": 2.0, "search_p50_ms": 1.0}
    assert not {"cases", "examples"} & build_report(load(tmp_path), results, {}, {}, with_cases=False).keys()


def test_examples_are_of_different_cases_and_have_their_blocks(memory, tmp_path):
    told = CASE | {"id": "c", "about": ["cat"], "ask": "What is my cat called?", "stored": ["My cat is old."]}
    assert load(folder(tmp_path, told | {"needed": []})).cases[0].right == frozenset()
    cases = [CASE | HOME, CASE | HOME | {"id": "b", "kind": "first person", "about": ["flat"]}, told | {"needed": []}]
    results = run(memory, load(folder(tmp_path, *cases)), {"min_relevance": 0.0}, lambda *_: None)
    assert all(
        one.first_lines.count("\n") and len(one.first_lines) <= len(one.block) for one in results if one.first_lines
    )
    lost = replace(results[0], verdict=verdict(lines(TAVIRA)), rank=1, block=lines(TAVIRA))
    gained = [replace(one, first_lines=lines(TAVIRA)) for one in results]
    examples = build_report(load(tmp_path), [lost, *gained], {}, {}, with_cases=False, examples=3)["examples"]
    assert {one["case"] for one in examples["block alone"]} == {"a", "b"}
    assert all(LISBON in one["block"] and LISBON not in one["first lines of search"] for one in examples["block alone"])
    assert [(one["case"], one["rank"], one["block"]) for one in examples["search alone"]] == [("a", 1, lines(TAVIRA))]


# --- evidence in a block ---------------------------------------------------------------------------------------------

MESSAGE = "What a week! I went to a fair yesterday. My sister bought a red boat. [shares a photo of a lake]"


def nearest_to_the_last(texts):
    return [np.eye(2)[[int(0 < number < len(texts) - 1)]] for number in range(len(texts))]


@pytest.mark.parametrize(
    ("question", "answer", "expected"),
    [
        ("When was the fair?", "7 May 2023", ("I went to a fair yesterday.",)),
        ("What did the sister buy?", "a boat", ("My sister bought a red boat.",)),
        ("How do they feel?", "", ("[shares a photo of a lake]",)),
    ],
)
def test_evidence_is_the_sentences_that_answer(question, answer, expected):
    case = BenchmarkQuestion(question, frozenset({"1"}), "u", (), answer=answer)
    evidence = evidence_of(MESSAGE, case, nearest_to_the_last)
    assert evidence.sentences == expected
    assert shares(lines(*expected), [evidence]) == (1, 0)
    assert shares(lines(MESSAGE), [evidence]) == (1, 1)
    assert shares(lines("What a week!"), [evidence]) == (0, 0)


def test_a_title_is_no_evidence_and_the_date_of_a_word_does_not_count():
    case = BenchmarkQuestion("When was it?", frozenset({"1"}), "u", (), answer="in 1999")
    evidence = evidence_of("Acme\nAcme makes nails. It was founded last year.", case, nearest_to_the_last)
    assert evidence.sentences == ("It was founded last year.",)
    assert shares("It was founded last year [1999].", [evidence]) == (1, 0)
    chinese = BenchmarkQuestion("他住在哪里？", frozenset({"1"}), "u", ())
    assert evidence_of("他叫小王。他住在杭州。", chinese, nearest_to_the_last).sentences == ("他住在杭州。",)
