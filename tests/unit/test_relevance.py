from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from importlib.resources import files
from itertools import pairwise
from math import log
from typing import Any

import numpy as np
import pytest

from graphmem.model import ASSISTANT
from graphmem.models.use_multilingual import UseMultilingual
from graphmem.retrieval import relevance
from graphmem.retrieval.relevance import (
    AskedQuestion,
    FoundMemory,
    assess,
    attributes,
    default_floor,
    features,
    is_first_person,
)
from graphmem.retrieval.relevance.features import plain_evidence

SENTENCES = json.loads(files(relevance).joinpath("prototypes.json").read_text("utf-8"))


def sentences_in_order() -> list[str]:
    """The sentences whose vectors the package has, as its file has them."""
    of_topics = [one for side in ("asked", "told") for topic in SENTENCES[side].values() for one in topic]
    others = ("standing", "advice", "everything", "not_everything")
    return [*of_topics, *(sentence for one in others for sentence in SENTENCES[one])]


def stored_vectors() -> np.ndarray:
    with files(relevance).joinpath("prototypes.npz").open("rb") as file, np.load(file) as arrays:
        vectors = arrays["vectors"].astype(np.float64)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


# Vectors of sentences without the encoder, which takes a second to load.
VECTORS = dict(zip(sentences_in_order(), stored_vectors(), strict=True))


def asked(text: str, vector: np.ndarray | None = None, **known: Any) -> AskedQuestion:
    empty: dict[str, Any] = {
        "is_read": True, "names": (), "entity_keys": (), "answer_types": 0, "asks_assistant_said": False,
        "has_periods": False, "word_weight": 3.0, "background": 0.05, "size": 12,
    }  # fmt: skip
    return AskedQuestion(text, vector, **empty | known)


def found(text: str, vector: np.ndarray | None = None, **known: Any) -> FoundMemory:
    empty: dict[str, Any] = {
        "speaker": None, "role": "user", "similarity": 0.2, "match": 0.3, "match_beside": 0.0, "overlap": 0.0,
        "reply_overlap": 0.0, "date": 0.0, "is_speaker_asked": False, "answer_types": 0, "question_share": 0.0,
    }  # fmt: skip
    return FoundMemory(text, vector=vector, **empty | known)


def values(question: AskedQuestion, *memories: FoundMemory) -> list[float]:
    return [one.value for one in assess(question, memories)]


# A search knows the question's vector in the multilingual space, or there is no such space.
HOME = VECTORS["Where do I live?"]
SPACES = pytest.mark.parametrize("vector", [HOME, None], ids=["with vectors", "without vectors"])
OTHER = found("I bought a red bicycle.", similarity=0.02, match=0.05)


@SPACES
def test_nothing_found_has_no_relevance(vector: np.ndarray | None) -> None:
    assert assess(asked("Where do I live?", vector), []) == []


@SPACES
@pytest.mark.parametrize(
    "more",
    [
        {"similarity": 0.6},
        {"match": 0.8},
        {"match_beside": 0.8},
        {"overlap": 1.0},
        {"reply_overlap": 1.5},
        {"is_speaker_asked": True},
    ],
    ids=str,
)
def test_a_memory_that_has_more_of_the_question_is_more_relevant(
    vector: np.ndarray | None, more: dict[str, Any]
) -> None:
    memory = found("I moved to Lisbon in May.", vector)
    with_more, without, _ = values(asked("Where do I live?", vector), replace(memory, **more), memory, OTHER)
    assert with_more > without


@SPACES
def test_a_question_is_less_relevant_than_a_statement(vector: np.ndarray | None) -> None:
    memory = found("Where do I live?", vector)
    question, statement = values(asked("Where do I live?", vector), replace(memory, question_share=1.0), memory)
    assert question < statement


@SPACES
def test_where_many_are_stored_the_same_evidence_says_less(vector: np.ndarray | None) -> None:
    by_size = [
        values(asked("Where do I live?", vector, size=size), found("I moved to Lisbon.", vector), OTHER)[0]
        for size in (3, 60, 500)
    ]
    assert all(more > fewer for more, fewer in pairwise(by_size))


@SPACES
def test_relevance_is_a_probability_whatever_a_search_knows(vector: np.ndarray | None) -> None:
    extremes = {
        "similarity": (-1.0, 1.0), "match": (0.0, 1.0), "match_beside": (0.0, 1.0), "overlap": (0.0, 1e6),
        "reply_overlap": (0.0, 1e6), "date": (0.0, 1.0), "question_share": (0.0, 1.0), "answer_types": (0, 127),
        "text": ("", "I " * 5_000), "vector": (None, HOME), "role": (None, ASSISTANT), "speaker": (None, "Ingrid"),
    }  # fmt: skip
    memories = [
        replace(OTHER, **{name: ends[end] for name, ends in extremes.items()} | {name: extremes[name][1 - end]})
        for name in extremes
        for end in (0, 1)
    ]
    for size in (0, 1, 10**7):
        question = asked("", vector, size=size, word_weight=0.0, names={"ingrid"}, has_periods=True, answer_types=127)
        assert all(0.0 <= value <= 1.0 for value in values(question, *memories))


def test_what_is_told_about_the_topic_is_more_relevant_than_the_rest() -> None:
    """By the vectors alone, in any language."""
    home, others = SENTENCES["told"]["home"][0], [SENTENCES["told"][topic][0] for topic in ("work", "pets", "travel")]
    for words in ("Where do I live?", "我住在哪里？"):
        memories = [found(text, VECTORS[text], similarity=0.0, match=0.0) for text in (home, *others)]
        best, *rest = values(asked(words, VECTORS[words], is_read=False), *memories)
        assert best > 0.5 > 0.2 > max(rest)


def test_a_standing_fact_counts_where_advice_is_asked_for() -> None:
    allergy = next(text for text in SENTENCES["standing"] if "allerg" in text)
    bicycle = found("I bought a red bicycle.", VECTORS[SENTENCES["told"]["travel"][0]])
    fact = found(allergy, VECTORS[allergy], similarity=0.1, match=0.1)
    advice, other = "What should I cook for dinner?", "When is my exam?"
    to_advice, _ = values(asked(advice, VECTORS[advice]), fact, bicycle)
    to_other, _ = values(asked(other, VECTORS[other]), fact, bicycle)
    assert to_advice > 0.5 > 0.1 > to_other


def test_a_memory_without_a_vector_is_judged_by_the_rest() -> None:
    memory = found("I moved to Lisbon in May.", similarity=0.5, match=0.8)
    good, poor, _ = values(asked("Where do I live?", HOME), memory, replace(memory, match=0.1), OTHER)
    assert poor < good


@SPACES
def test_the_asker_s_own_life_is_not_told_by_what_others_do(vector: np.ndarray | None) -> None:
    mine, theirs = found("I live in Tavira.", vector), found("Ingrid lives in Tavira.", vector, people=["Ingrid"])
    own, of_another = values(asked("Where do I live?", vector), mine, theirs)
    assert own > 2 * of_another


@SPACES
def test_another_s_life_is_not_told_by_what_the_asker_does(vector: np.ndarray | None) -> None:
    mine, theirs = found("I live in Tavira.", vector), found("Ingrid lives in Tavira.", vector, people=["Ingrid"])
    own, of_another = values(asked("Where does Ingrid live?", vector, names={"ingrid"}), mine, theirs)
    assert of_another > 2 * own


@SPACES
def test_somebody_of_whom_nothing_is_told_makes_all_less_relevant(vector: np.ndarray | None) -> None:
    theirs = found("Ingrid lives in Tavira.", vector, people=["Ingrid"])
    (of_ingrid,) = values(asked("Where does Ingrid live?", vector, names={"ingrid"}), theirs)
    (of_pelle,) = values(asked("Where does Pelle live?", vector, names={"pelle"}), theirs)
    assert of_ingrid > 2 * of_pelle


@SPACES
def test_whoever_says_it_is_named_too(vector: np.ndarray | None) -> None:
    said = found("I live in Tavira.", vector, speaker="Ingrid Solberg")
    by_her, by_nobody = (
        values(asked("Where does Ingrid live?", vector, names={"ingrid"}), memory)[0]
        for memory in (said, replace(said, speaker=None))
    )
    assert by_her > by_nobody


@SPACES
def test_the_assistant_s_words_count_if_these_are_asked_for(vector: np.ndarray | None) -> None:
    said = found("I would take the climbing rose.", vector, role=ASSISTANT)
    of_said, of_any = (
        values(asked("Which rose did you recommend?", vector, asks_assistant_said=is_asked), said)[0]
        for is_asked in (True, False)
    )
    assert of_said > of_any


@SPACES
def test_the_time_asked_for_counts_only_if_one_is_asked_for(vector: np.ndarray | None) -> None:
    of_day = found("I planted tomatoes.", vector, date=1.0, overlap=0.5)
    of_other = replace(of_day, date=0.0)
    on_day, other = values(asked("What did I plant on 2 May?", vector, has_periods=True), of_day, of_other)
    assert on_day > other
    same, equal = values(asked("What did I plant?", vector), of_day, of_other)
    assert same == equal


@pytest.mark.parametrize("evidence", [{"overlap": 2.0}, {"reply_overlap": 2.0}, {"date": 1.0}], ids=str)
def test_with_an_embedder_of_ones_own_a_rare_word_or_the_time_is_enough(evidence: dict[str, float]) -> None:
    """Whatever its cosines are: nobody knows what they mean."""
    question = asked("What did I plant on 2 May?", has_periods=True)
    shared, nothing = values(question, replace(OTHER, similarity=-0.9, **evidence), replace(OTHER, similarity=-0.9))
    assert shared >= 0.5
    assert nothing < 0.05


@pytest.mark.parametrize(
    ("known", "has_periods", "right"),
    [
        ({}, True, 0.0),
        ({"overlap": 0.01}, False, 0.505),
        ({"overlap": 0.4}, False, 0.7),
        ({"overlap": 1.0}, False, 1.0),
        ({"overlap": 7.0}, False, 1.0),
        ({"overlap": 0.2, "reply_overlap": 0.6}, False, 0.8),
        ({"date": 0.7}, True, 0.7),
        ({"date": 0.7}, False, 0.0),
        ({"date": 0.7, "overlap": 0.8}, True, 0.9),
    ],
)
def test_shared_words_and_the_time_are_evidence_without_an_embedder(
    known: dict[str, float], has_periods: bool, right: float
) -> None:
    assert plain_evidence(asked("", has_periods=has_periods), [found("", **known)])[0] == pytest.approx(right)


# Two hops: what is asked, and what the first names. Neither has much of the question.
SISTER = found("My sister is married to Bruno.", similarity=0.5, match=0.8, entities={"bruno": 2, "sister": 30})
OFFICE = found("Bruno works at the harbour office.", entities={"bruno": 2, "harbour office": 1}, people=["Bruno"])


def joined_and_alone(question: AskedQuestion, *memories: FoundMemory) -> tuple[list[float], list[float]]:
    return values(question, *memories), values(question, *(replace(memory, entities={}) for memory in memories))


@SPACES
def test_memories_that_share_a_rare_entity_raise_each_other(vector: np.ndarray | None) -> None:
    question = asked("Where does my sister's husband work?", vector)
    (sister, office, other), alone = joined_and_alone(question, SISTER, OFFICE, OTHER)
    assert sister == pytest.approx(1 - (1 - alone[0]) * (1 - 0.8 * alone[1]))
    assert office == pytest.approx(1 - (1 - alone[1]) * (1 - 0.8 * alone[0]))
    assert office > 2 * alone[1]
    assert other == alone[2]


def test_the_best_of_several_partners_counts() -> None:
    question = asked("Where does my sister's husband work?")
    third = found("The harbour office is in Skagen.", entities={"harbour office": 1})
    (_, office, third_one), alone = joined_and_alone(question, SISTER, OFFICE, third)
    assert office == pytest.approx(1 - (1 - alone[1]) * (1 - 0.8 * max(alone[0], alone[2])))
    assert third_one == pytest.approx(1 - (1 - alone[2]) * (1 - 0.8 * alone[1]))


def test_an_entity_is_also_named_by_one_whose_words_begin_with_it() -> None:
    question = asked("When does the shop where I bought my boots close?")
    boots = found("I got my boots at Lundqvist.", similarity=0.5, match=0.8, entities={"lundqvist": 1})
    shuts = found("Lundqvist shuts at seven.", entities={"lundqvist shut": 1})
    apart = replace(shuts, entities={"lundqvists": 1})  # the beginning of a word is another name
    (_, joined), alone = joined_and_alone(question, boots, shuts)
    assert joined == pytest.approx(1 - (1 - alone[1]) * (1 - 0.8 * alone[0]))
    assert values(question, boots, apart) == values(question, *(replace(one, entities={}) for one in (boots, apart)))


@pytest.mark.parametrize(
    ("question", "memories"),
    [
        (asked("Where does Bruno work?", entity_keys={"bruno"}), (SISTER, OFFICE)),
        (asked("Where?", size=12), tuple(replace(one, entities={"bruno": 5}) for one in (SISTER, OFFICE))),
        (asked("Where?", size=100), tuple(replace(one, entities={"bruno": 6}) for one in (SISTER, OFFICE))),
        (asked("Where?"), (SISTER, OFFICE, *[replace(OTHER, entities={"bruno": 4})] * 3)),
        (asked("Where?"), (SISTER, OTHER)),
    ],
    ids=["the question names it", "5 of 12 mention it", "6 of 100 mention it", "five found mention it", "only one"],
)
def test_an_entity_that_tells_nothing_joins_no_memories(
    question: AskedQuestion, memories: tuple[FoundMemory, ...]
) -> None:
    joined, alone = joined_and_alone(question, *memories)
    assert joined == alone


def test_a_memory_of_next_to_no_relevance_is_no_second_hop() -> None:
    unlike = replace(OFFICE, similarity=0.1, match=0.4)
    few, many = (asked("Where does my sister's husband work?", size=size) for size in (20, 1000))
    (sister, office), alone = joined_and_alone(few, SISTER, unlike)
    assert 0.001 * alone[0] < alone[1] < 0.003 * alone[0]
    assert office == alone[1]
    assert sister > alone[0]  # the better one of two is joined by whatever the other is
    # In a large partition what answers is of less relevance, too.
    (_, office), alone = joined_and_alone(many, SISTER, unlike)
    assert 0 < alone[1] < 0.001 * alone[0]
    assert office == pytest.approx(1 - (1 - alone[1]) * (1 - 0.8 * alone[0]))


def test_what_a_few_memories_repeat_still_joins() -> None:
    # The assistant repeats what it was told: one clinic, two statements and their echo.
    told = [replace(one, entities={"bruno": 4}) for one in (SISTER, OFFICE, SISTER, OFFICE)]
    joined, alone = joined_and_alone(asked("Where?", size=6), *told)
    assert all(one > before for one, before in zip(joined, alone, strict=True))


def test_what_is_rare_depends_on_the_number_of_memories() -> None:
    pair = [replace(one, entities={"bruno": 5}) for one in (SISTER, OFFICE)]
    joined, alone = joined_and_alone(asked("Where?", size=100), *pair)
    assert joined > alone
    three = [replace(OTHER, entities={"bruno": 2})] * 3
    joined, alone = joined_and_alone(asked("Where?"), *three, *[OTHER] * 17)
    assert joined[:3] > alone[:3]
    assert joined[3:] == alone[3:]


@SPACES
def test_shares_add_up_to_the_log_odds(vector: np.ndarray | None) -> None:
    question = asked("Where does Ingrid live?", vector, names={"ingrid"}, answer_types=8)
    memories = [
        found("I live in Tavira.", vector, similarity=0.6, match=0.9, answer_types=8),
        found("Ingrid likes tea.", VECTORS["What can I eat?"], people=["Ingrid"], match_beside=0.4),
        found("Where?", None, role=ASSISTANT, question_share=1.0, similarity=-0.2),
    ]
    assessed = assess(question, memories, with_shares=True)
    log_odds = [log(one.value / (1 - one.value)) for one in assessed]
    assert [sum(one.shares.values()) for one in assessed] == pytest.approx(log_odds)
    assert len({one.shares["constant"] for one in assessed}) == 1
    assert [one.value for one in assessed] == values(question, *memories)
    assert [one.shares for one in assess(question, memories)] == [{}] * len(memories)


def test_only_with_vectors_has_the_meaning_a_share() -> None:
    (with_vectors,) = assess(asked("Where do I live?", HOME), [found("I live in Tavira.", HOME)], with_shares=True)
    (without,) = assess(asked("Where do I live?"), [found("I live in Tavira.")], with_shares=True)
    assert with_vectors.shares["meaning"] != 0
    assert without.shares["meaning"] == 0


@pytest.mark.parametrize(
    ("text", "is_asked"),
    [("Where do I live?", True), ("Tell me a joke.", False), ("给我讲个笑话", False), ("Tell me where I live.", True)],
)
def test_who_is_spoken_to_is_not_asked_about(text: str, is_asked: bool) -> None:
    (one,) = assess(asked(text), [found("I live in Tavira.")], with_shares=True)
    assert (one.shares["first_person_both"] > 0) == is_asked


@pytest.mark.parametrize(
    "text",
    [
        "I moved.", "I’m tired.", "i'll go", "That is MINE!", "Ich wohne hier.", "Me gusta; es para mí.",
        "J’habite ici.", "È mio.", "O meu gato.", "Dat is van mij.", "To jest mój dom.", "Benim evim.", "Это мой дом.",
        "هذا لي", "나는 서울에 산다", "我住在杭州", "俺の家", "私は学生です",
    ],
)  # fmt: skip
def test_words_of_the_first_person_are_known(text: str) -> None:
    assert is_first_person(text)


@pytest.mark.parametrize(
    "text",
    [
        "", "42", "Ingrid lives in Tavira.", "The island has a museum.", "Mexico imagines its wells.",
        "Er wohnt hier.", "Elle habite ici.", "Она живёт здесь.", "小王住在苏州", "彼は学生です", "그는 서울에 산다",
    ],
)  # fmt: skip
def test_words_about_others_are_no_first_person(text: str) -> None:
    assert not is_first_person(text)


@pytest.mark.parametrize(("has_vectors", "share"), [(True, 0.5), (False, 0.3)])
@pytest.mark.parametrize("is_read", [True, False])
def test_the_default_floor_is_lower_the_more_is_stored_and_higher_the_better_the_best_is(
    has_vectors: bool, is_read: bool, share: float
) -> None:
    floor = partial(default_floor, has_vectors=has_vectors, is_read=is_read)
    floors = [floor(size, 0.9) for size in (0, 1, 20, 21, 200, 2_000, 10**7)]
    assert floors[0] == floors[1] == floors[2] == pytest.approx(0.9 * share)
    assert all(lower < higher for higher, lower in pairwise(floors[2:5]))
    assert floors[-3:] == pytest.approx([0.045] * 3)  # a twentieth of the best, however many there are
    unsure = [floor(size, 0.001) for size in (20, 21, 200, 2_000, 10**5)]
    assert all(0 < lower < higher for higher, lower in pairwise(unsure))
    by_best = [floor(12, best) for best in (0.0, 0.1, 0.4, 0.6, 1.0)]
    assert by_best == sorted(by_best)
    assert by_best[-1] == pytest.approx(share)
    assert 0.1 < by_best[0] == by_best[1] <= 0.27  # all of which one is as little relevant is left out


def test_a_question_that_only_the_multilingual_space_reads_needs_more_relevance() -> None:
    read, unread = (default_floor(12, 0.3, has_vectors=True, is_read=is_read) for is_read in (True, False))
    assert read < unread


@pytest.mark.thorough
def test_the_vectors_of_the_prototypes_are_those_of_the_encoder() -> None:
    """Whoever changes a sentence writes the vectors anew, or topics are compared with another sentence."""
    sentences = sentences_in_order()
    assert len(sentences) == len(set(sentences))
    assert (np.sum(UseMultilingual().encode(sentences) * stored_vectors(), axis=1) > 0.999).all()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("question", "told", "not_told"),
    [
        ("What is my cat called?", "Our cat's name is Mirabelle.", "My cat is five years old."),
        ("How old is my uncle?", "My uncle is fifty-one.", "My uncle repairs boats."),
        ("婚礼在哪里办？", "婚礼在江边的老厂房。", "婚礼在六月十八号。"),
        ("我妈妈多大年纪？", "我妈今年六十三了。", "我妈在医院上班。"),
        ("Wie heißt meine Katze?", "Unsere Katze heißt Mirabelle.", "Meine Katze ist fünf Jahre alt."),
        ("¿De qué color es mi coche?", "Mi coche es gris.", "Mi coche costó nueve mil euros."),
    ],
)
def test_what_tells_another_attribute_of_the_thing_asked_about_misses_the_one_asked_for(
    question: str, told: str, not_told: str
) -> None:
    asked_for, *memories = np.asarray(UseMultilingual().encode([question, told, not_told]), np.float64)
    compared = attributes.compared(asked_for, np.stack(memories), np.full(2, 30))
    assert compared["attribute_told"][0] > 2 * compared["attribute_told"][1]
    assert compared["attribute_missing"][1] > 2 * compared["attribute_missing"][0]


def test_a_memory_without_a_vector_tells_no_attribute_and_no_subject() -> None:
    vectors = np.stack([np.zeros(HOME.size), VECTORS["My new address is 12 Mill Lane."]])
    compared = attributes.compared(HOME, vectors, np.full(2, 30))
    assert {name for name, column in compared.items() if column[0] != 0.0} == {"attribute_sure"}
    assert compared["attribute_told"][1] > 0.0


def test_what_a_long_text_lacks_is_known_the_less_the_longer_it_is() -> None:
    vectors = np.stack([VECTORS["My new address is 12 Mill Lane."]] * 3)
    compared = attributes.compared(VECTORS["What is my dog called?"], vectors, np.array([30, 160, 1600]))
    assert (
        compared["attribute_missing"][0]
        == compared["attribute_missing"][1]
        == pytest.approx(10 * compared["attribute_missing"][2])
    )


def test_of_two_hops_one_memory_tells_the_attribute_for_both() -> None:
    question = asked("What does my husband do?", VECTORS["What does my husband do?"])
    hops = [
        found("My husband is Tore.", VECTORS["My wife is expecting twins."], entities={"tore": 2}),
        found("Tore is a nurse.", VECTORS["I work as a nurse in a clinic."], entities={"tore": 2}),
        found("I bought a red bicycle.", VECTORS["My new address is 12 Mill Lane."]),
    ]
    first, second, other = assess(question, hops, with_shares=True)
    alone, _, other_alone = assess(question, [replace(hops[0], entities={}), *hops[1:]], with_shares=True)
    assert first.shares["attribute_odds"] == second.shares["attribute_odds"] > alone.shares["attribute_odds"]
    assert first.value > alone.value
    assert other.shares["attribute_odds"] == other_alone.shares["attribute_odds"]


def test_every_topic_has_sentences_of_both_sides() -> None:
    assert list(SENTENCES["asked"]) == list(SENTENCES["told"])
    assert len(sentences_in_order()) == len(stored_vectors())
    assert features._prototypes().advice.shape == (len(SENTENCES["advice"]), HOME.size)


def test_only_what_asks_for_everything_about_the_asker_does() -> None:
    for text in SENTENCES["everything"]:
        assert features.asks_for_everything(VECTORS[text]), text
    topics = [text for topic in SENTENCES["asked"].values() for text in topic]
    for text in [*SENTENCES["not_everything"], *SENTENCES["advice"], *topics]:
        assert not features.asks_for_everything(VECTORS[text]), text
