"""The measures of answers, by numbers computed by hand."""

from __future__ import annotations

import math

import pytest

from graphmem.evaluation.metrics import clustered_interval
from graphmem.evaluation.qa.report import answer_f1, bleu_1, cohens_kappa, stems, token_f1
from graphmem.evaluation.qa.stemming import stem

# Stems by PorterStemmer of NLTK 3.10, which LOCOMO's evaluation uses; those by Porter's algorithm are others.
OF_NLTK = {
    "is": "is", "as": "as", "us": "us", "one": "one", "ate": "ate", "news": "news", "skies": "sky",
    "dies": "die", "died": "die", "dying": "die", "try": "tri", "fly": "fli",
    "play": "play", "played": "play", "enjoy": "enjoy", "hopefully": "hope", "incredibly": "incred",
    "emotionally": "emot", "trilogy": "trilog", "apology": "apolog", "succeed": "succeed", "outing": "outing",
}  # fmt: skip
# Those by either: an ending of each step.
OF_BOTH = {
    "caresses": "caress", "ponies": "poni", "cats": "cat", "agreed": "agre", "feed": "feed", "plastered": "plaster",
    "sing": "sing", "conflated": "conflat", "troubled": "troubl", "hopping": "hop", "falling": "fall",
    "fizzed": "fizz", "filing": "file", "happy": "happi", "relational": "relat", "conditional": "condit",
    "radically": "radic", "vietnamization": "vietnam", "triplicate": "triplic", "electrical": "electr",
    "goodness": "good", "adoption": "adopt", "replacement": "replac", "probate": "probat", "cease": "ceas",
    "rate": "rate", "controller": "control", "roll": "roll", "tried": "tri", "flies": "fli", "enjoyable": "enjoy",
    "sky": "sky",
}  # fmt: skip


def test_stems_have_no_punctuation_articles_and_endings():
    assert stems("The foxes, and a dog's tail: JUMPING!") == ["fox", "dog", "tail", "jump"]


@pytest.mark.parametrize(("word", "its_stem"), [*OF_NLTK.items(), *OF_BOTH.items()])
def test_a_stem_is_that_of_locomos_evaluation(word, its_stem):
    assert stem(word) == its_stem


@pytest.mark.parametrize(
    ("given", "right", "f1"),
    [
        # "I" is not "is": 0 in common.
        ("I", "it is", 0),
        # quick brown fox jump, brown fox jump: 3 in common, 2 * 3 / (4 + 3).
        ("The quick brown foxes jumped", "a brown fox jumping", 6 / 7),
        # on 7 may 2023, 7 may 2023: 2 * 3 / (4 + 3).
        ("On 7 May, 2023", "7 May 2023", 6 / 7),
        # A repeated word counts as often as it is in both: 1 in common, 2 * 1 / (3 + 1).
        ("tea tea tea", "tea", 2 / 4),
        ("Rome", "Paris", 0),
        ("", "Paris", 0),
        ("the", "a", 0),
    ],
)
def test_f1_of_two_answers(given, right, f1):
    assert token_f1(given, right) == pytest.approx(f1)


@pytest.mark.parametrize(
    ("given", "right", "category", "f1"),
    [
        ("apples", "apples, pears", "1", 1 / 2),
        # For apples 1, for pears 2 * 1 / (2 + 1) from "pears and plums".
        ("pears and plums, apples", "apples, pears", "1", (1 + 2 / 3) / 2),
        # Elsewhere a list is one answer: appl, appl pear.
        ("apples", "apples, pears", "4", 2 / 3),
        ("yes", "Yes; she told him so", "3", 1),
        # she told him so: 4 words that are not given.
        ("yes", "Yes; she told him so", "4", 2 / 6),
        ("apples", "apples, pears", "multi-session", 2 / 3),
    ],
)
def test_f1_by_category(given, right, category, f1):
    assert answer_f1(given, right, category, is_answerable=True) == pytest.approx(f1)


def test_of_what_nothing_answers_only_the_words_of_the_data_count():
    for given, score in (("It is not mentioned.", 1), ("No information available", 1), ("I do not know", 0)):
        assert answer_f1(given, "Not mentioned in the conversation.", "5", is_answerable=False) == score


@pytest.mark.parametrize(
    ("given", "right", "bleu"),
    [
        # "the" and "cat" count once: 2 of 4 words; 4 words against 5.
        ("the cat the cat", "The cat sat down today", 2 / 4 * math.exp(1 - 5 / 4)),
        ("on 7 May 2023", "7 May 2023", 3 / 4),
        # A sign is a word.
        ("7 May, 2023", "7 May, 2023", 1),
        ("May 2023", "7 May, 2023", math.exp(1 - 4 / 2)),
        ("", "7 May", 0),
    ],
)
def test_bleu_1(given, right, bleu):
    assert bleu_1(given, right) == pytest.approx(bleu)


def test_kappa_of_two_judges():
    pairs = [(True, True)] * 20 + [(True, False)] * 5 + [(False, True)] * 10 + [(False, False)] * 15
    # They agree on .7; by chance on .5 * .6 + .5 * .4.
    assert cohens_kappa(pairs) == pytest.approx((0.7 - 0.5) / (1 - 0.5))
    assert cohens_kappa([(True, False), (False, True)]) == -1
    assert cohens_kappa([(True, True)] * 3) is None


def test_intervals_are_of_whole_conversations():
    # Both draws the first: 1, both the second: 0, each a quarter of the time.
    assert clustered_interval([[1, 1, 1], [0]]) == (0, 1)
    assert clustered_interval([[0.5, 0.5], [0.5]]) == (0.5, 0.5)
    assert clustered_interval([[1, 0, 1]]) is None
    clusters = [[number % 7 / 7, number / 30] for number in range(30)]
    assert clustered_interval(clusters) == clustered_interval(clusters) != clustered_interval(clusters, seed=1)
