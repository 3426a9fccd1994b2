"""What kind of sentence a text is, and which rule of importance that gives it (docs/decisions/0049)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from graphmem.concurrency import single_blas_thread
from graphmem.lifecycle import rules
from graphmem.lifecycle.decay import keeping_rule, likely_rule, matters
from graphmem.lifecycle.rules import default_rules, parse_rules
from graphmem.models.use_multilingual import UseMultilingual

# Sentences that the heads were not fitted to, written before anything was measured.
HELD_OUT = json.loads((Path(__file__).parents[1] / "data" / "sentence_kinds.json").read_text("utf-8"))
RULES = default_rules()


def likely(**shares: float) -> dict[str, float]:
    """Probabilities of all kinds, those that are not named sharing the rest."""
    named = set(next(iter(HELD_OUT.values())))
    return {name: shares.get(name, (1 - sum(shares.values())) / len(named - shares.keys())) for name in named}


@pytest.mark.thorough
def test_three_of_four_held_out_sentences_are_of_the_kind_that_they_are() -> None:
    """And of ten that are to be kept eight are, of ten that are not no more than two (chance: an eighth, a half)."""
    told = [(name, text) for of_kinds in HELD_OUT.values() for name, texts in of_kinds.items() for text in texts]
    with single_blas_thread():
        found = rules.likely_kinds(UseMultilingual().encode([text for _, text in told]))
    right = [max(one, key=lambda name: one[name]) == name for (name, _), one in zip(told, found, strict=True)]
    assert np.mean(right) > 0.75
    kept: dict[bool, list[bool]] = {True: [], False: []}
    for (name, text), one in zip(told, found, strict=True):
        of_kind, rule = RULES.named(name), likely_rule(RULES, text, one)
        is_to_be_kept = of_kind is not None and matters(of_kind.importance, of_kind.memory_type)
        kept[is_to_be_kept].append(rule is not None and matters(rule.importance, rule.memory_type))
    assert np.mean(kept[True]) > 0.8
    assert np.mean(kept[False]) < 0.2


def test_each_kind_but_an_event_has_a_rule() -> None:
    assert {name for name in likely() if RULES.named(name) is None} == {"event"}


@pytest.mark.parametrize(
    ("text", "shares", "name"),
    [
        # Without words of a rule the kind decides: first whether it is one that is kept.
        ("A pot of chai first thing", {"explicit_preference": 0.4, "habit": 0.3}, "explicit_preference"),
        ("A pot of chai first thing", {"explicit_preference": 0.3, "casual_chat": 0.55}, "casual_chat"),
        ("Chai on the third", {"future_plan": 0.6}, "future_plan"),
        ("There was chai", {"event": 0.9}, None),
        ("Chai", {"casual_chat": 0.3, "event": 0.35}, None),
        # The words count, unless they are those of what is kept and the sentence is a remark in passing.
        ("I love chai", {"explicit_preference": 0.3}, "explicit_preference"),
        ("I love this cushion", {"casual_chat": 0.9}, "casual_chat"),
        ("I love this cushion. We moved to Oslo.", {"casual_chat": 0.9}, "explicit_preference"),
        ("I love this cushion!", {"event": 0.95}, None),
        ("The weather was grey", {"personal_fact": 0.9}, "casual_chat"),
        # Those of a life event or a fact are not said in passing.
        ("I was diagnosed with it this week.", {"future_plan": 0.9}, "life_event"),
        ("I live in Oslo", {"casual_chat": 0.9}, "personal_fact"),
    ],
)
def test_the_rule_of_a_text(text: str, shares: dict[str, float], name: str | None) -> None:
    rule = likely_rule(RULES, text, likely(**shares))
    assert (None if rule is None else rule.name) == name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("J’aime mieux lire que regarder des films.", "explicit_preference"),
        ("Ma mère est décédée jeudi dernier.", "life_event"),
        ("Je suis allergique aux chats.", "personal_fact"),
        ("Tous les jeudis, j'ai mon cours de violoncelle.", "habit"),
        ("J'aimerais voir la mer.", None),
        ("Le train est parti à midi.", None),
        ("No me gustan las fiestas.", "explicit_preference"),
        ("Nos casamos en Toledo.", "life_event"),
        ("Soy alérgica a los gatos.", "personal_fact"),
        ("Todos los jueves tengo clase.", "habit"),
        ("Me gustaría ver el mar.", None),
        ("El odio y el trabajo en equipo no van juntos.", None),
    ],
)
def test_words_of_french_and_spanish_tell_what_a_profile_keeps(text: str, name: str | None) -> None:
    rule = keeping_rule(RULES, text)
    assert (None if rule is None else rule.name) == name


@pytest.mark.parametrize(
    "text",
    [
        "I am severely allergic to peanuts.",
        "My son is allergic to nuts.",
        "I have a nut allergy.",
        "I have epilepsy.",
        "I have a pacemaker.",
        "I'm diabetic.",
        "I use a wheelchair.",
        "I’m lactose intolerant.",
        "I can't eat gluten.",
        "I never eat meat.",
        "Ich bin stark gegen Nüsse allergisch.",
        "Mein Sohn ist gegen Nüsse allergisch.",
        "Ich habe eine Nussallergie.",
        "Ich habe einen Herzschrittmacher.",
        "Ich darf kein Gluten essen.",
        "J'ai un pacemaker.",
        "Je ne peux pas manger de gluten.",
        "Je suis en fauteuil roulant.",
        "Tengo epilepsia.",
        "No puedo comer gluten.",
        "Soy alérgico al polen.",
        "我对花生严重过敏",
        "我儿子对坚果过敏",
        "我有癫痫",
        "我装了心脏起搏器",
        "我不能吃麸质",
    ],
)
def test_words_tell_allergies_and_illnesses(text: str) -> None:
    rule = keeping_rule(RULES, text)
    assert rule is not None and rule.name in {"personal_fact", "explicit_preference"}


@pytest.mark.parametrize(
    "text",
    [
        "I have a meeting.",
        "I have an idea.",
        "I have a cold today.",
        "What can people eat who are allergic to nuts?",
        "What does a pacemaker cost?",
        "Ich habe eine Idee.",
        "Ich darf keinen Fehler machen.",
        "J'ai un rendez-vous.",
        "Tengo una reunión.",
        "Nunca como entonces.",
        "我有一个会议",
        "起搏器多少钱？",
    ],
)
def test_words_that_resemble_an_illness_keep_nothing(text: str) -> None:
    assert keeping_rule(RULES, text) is None


def test_own_rules_have_the_kinds_that_they_name() -> None:
    own = parse_rules({"habit": {"importance": 0.9, "type": "fact", "words": ["chai"]}}, "own.toml")
    rule = likely_rule(own, "Every day the same", likely(habit=0.9))
    assert rule is not None and rule.importance == 0.9
    assert likely_rule(own, "I was born in Oslo", likely(life_event=0.9)) is None
