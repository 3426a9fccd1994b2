"""Entity resolution: the rules for aliases, the groups of linked names, and the name of a group."""

from __future__ import annotations

import pytest

from graphmem.extraction import entity_resolution
from graphmem.extraction.entity_resolution import ChosenName
from graphmem.model import Entity, EntityType, Extraction, Link, Mention, MentionKind, Origin, Statement

PERSON, ORGANIZATION, PLACE, CONCEPT, OTHER = (
    EntityType.PERSON,
    EntityType.ORGANIZATION,
    EntityType.PLACE,
    EntityType.CONCEPT,
    EntityType.OTHER,
)


def entity(key: str, type_: EntityType = PERSON, mentions: int = 1) -> Entity:
    return Entity(key, key.title(), type_, mentions)


def link(key: str, other: str, origin: Origin = Origin.SPELLING) -> Link:
    return Link(key, other, origin)


# --- first and full names ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("full", ["anna berg", "anna maria berg", "jean-luc picard", "harris w. fawell", "mary o'neil"])
def test_a_full_name_begins_with_a_first_name(full: str) -> None:
    assert entity_resolution.first_name_of(full) == full.split(maxsplit=1)[0]


@pytest.mark.parametrize(
    "words",
    ["anna", "anna 2", "dr berg", "aunt anna", "anna and tom", "a b c d", "bolton falls", "albert ii", "gilbert m", ""],
)
def test_other_words_are_not_a_full_name(words: str) -> None:
    assert entity_resolution.first_name_of(words) == ""


def test_a_first_name_stands_for_the_only_full_name() -> None:
    anna, berg = entity("anna"), entity("anna berg")
    assert entity_resolution.full_name_for(anna, [berg]) is berg
    assert entity_resolution.full_name_for(anna, [berg, entity("anna nickname", CONCEPT)]) is berg
    assert entity_resolution.full_name_for(anna, []) is None


@pytest.mark.parametrize("second", [PERSON, ORGANIZATION, OTHER])
def test_a_second_full_name_makes_the_first_name_doubtful(second: EntityType) -> None:
    assert entity_resolution.full_name_for(entity("anna"), [entity("anna berg"), entity("anna roth", second)]) is None


def test_only_people_have_first_names() -> None:
    assert entity_resolution.full_name_for(entity("paris", PLACE), [entity("paris hilton")]) is None
    assert entity_resolution.full_name_for(entity("aww", OTHER), [entity("aww john")]) is None
    assert entity_resolution.full_name_for(entity("anna"), [entity("anna berg", ORGANIZATION)]) is None


# --- spellings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("katherine berg", "kathrine berg"),
        ("allison", "alison"),
        ("samuel coleridge-taylor", "samuel coleridge taylor"),
        ("park geun-hye", "park geun - hye"),
    ],
)
def test_one_name_in_two_spellings(one: str, other: str) -> None:
    assert entity_resolution.is_spelling_variant(entity(one), entity(other))
    assert entity_resolution.is_spelling_variant(entity(other), entity(one))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("daniel", "daniela"),
        ("daniel berg", "daniela berg"),
        ("johnson", "johnsons"),
        ("johanson", "johnson"),
        ("henry iii", "henry viii"),
        ("marian", "marion"),
        ("bob", "bobb"),
        ("katherine berg", "kathrine bergs"),
        ("katherine", "katherine"),
    ],
)
def test_two_names_that_look_alike(one: str, other: str) -> None:
    assert not entity_resolution.is_spelling_variant(entity(one), entity(other))


def test_names_of_other_things_may_differ_in_signs_only() -> None:
    assert entity_resolution.is_spelling_variant(entity("south east asia", PLACE), entity("southeast asia", PLACE))
    assert not entity_resolution.is_spelling_variant(entity("charleston", PLACE), entity("charlestown", PLACE))
    assert not entity_resolution.is_spelling_variant(
        entity("new york mets", ORGANIZATION), entity("new york nets", ORGANIZATION)
    )
    assert not entity_resolution.is_spelling_variant(entity("painting-s", CONCEPT), entity("paintings", CONCEPT))


def test_names_with_another_type_or_number_are_different() -> None:
    assert not entity_resolution.is_spelling_variant(entity("allison", PERSON), entity("alison", ORGANIZATION))
    assert not entity_resolution.is_spelling_variant(
        entity("apollo 11", ORGANIZATION), entity("apollo 12", ORGANIZATION)
    )
    assert not entity_resolution.is_spelling_variant(entity("agent allison 1"), entity("agent allison 11"))


# --- aliases stated in a text -----------------------------------------------------------------------------------------


def read_stated_aliases(
    predicate: str, type_: EntityType = PERSON, kind: MentionKind = MentionKind.NAME
) -> list[tuple[str, str]]:
    mentions = (Mention("robert", "Robert", PERSON, MentionKind.NAME), Mention("bo", "Bo", type_, kind))
    statement = Statement("robert", predicate, "bo", "Call me Bo.")
    return list(entity_resolution.stated_aliases(Extraction(mentions, (statement,))))


@pytest.mark.parametrize("predicate", ["be called", "be named", "go by", "nickname"])
def test_a_name_given_in_the_text_is_an_alias(predicate: str) -> None:
    assert read_stated_aliases(predicate) == [("robert", "bo")]


@pytest.mark.parametrize("predicate", ["not be called", "call", "be", "like"])
def test_other_statements_give_no_alias(predicate: str) -> None:
    assert read_stated_aliases(predicate) == []


def test_only_names_of_people_become_aliases() -> None:
    assert read_stated_aliases("be called", ORGANIZATION) == []
    assert read_stated_aliases("be called", kind=MentionKind.COMMON_NOUN) == []


# --- groups -----------------------------------------------------------------------------------------------------------


def test_links_form_groups() -> None:
    links = [link("a", "b"), link("c", "d"), link("b", "e"), link("d", "c")]
    assert sorted(entity_resolution.linked_groups(links)) == [["a", "b", "e"], ["c", "d"]]
    assert entity_resolution.linked_groups([link("a", "b"), link("c", "d"), link("b", "c")]) == [["a", "b", "c", "d"]]
    assert entity_resolution.linked_groups([]) == []


def test_a_group_has_its_fullest_name() -> None:
    members = [entity("anna", mentions=9), entity("anna berg"), entity("annie", OTHER)]
    links = [link("anna", "anna berg", Origin.FIRST_NAME), link("anna", "annie", Origin.SAID)]
    group = entity_resolution.merge_entities(members, links, {}, 10)
    assert (group.key, group.name, group.type, group.mentions) == ("anna berg", "Anna Berg", PERSON, 10)
    assert [(other.key, other.name, other.origin) for other in group.aliases] == [
        ("anna", "Anna", Origin.FIRST_NAME),
        ("annie", "Annie", Origin.SAID),
    ]
    assert group.keys == ["anna berg", "anna", "annie"]


def test_a_chosen_name_comes_before_the_fullest() -> None:
    members = [entity("anna"), entity("anna berg")]
    links = [link("anna", "anna berg")]
    assert entity_resolution.merge_entities(members, links, {"anna": ChosenName(1, "Sis")}, 2).name == "Sis"
    both = {"anna": ChosenName(1, "Sis"), "anna berg": ChosenName(2, "Dr Berg")}
    assert entity_resolution.merge_entities(members, links, both, 2).name == "Dr Berg"


def test_a_group_has_the_type_of_a_member_that_has_one() -> None:
    members = [entity("robert", OTHER), entity("bo", PERSON, 3), entity("rb", PLACE)]
    links = [link("robert", "bo"), link("robert", "rb")]
    assert entity_resolution.merge_entities(members, links, {}, 5).type is PERSON
