"""Decides which names mean one entity, groups linked keys, and merges a group into one entity. Pure.

A wrong link shows two people as one. A missing link shows one person twice, and a call of `alias` repairs it: the rules
prefer to miss links. A manual check of their links in 1,890 unrelated encyclopaedia passages, all in one partition,
found 10 of 10 right by spelling and 12 of 14 right by statements ("call me Bo"), but only about 13 of 33 by first name,
because unrelated passages name several Katies. That rule is made for a partition of one user, whose Anna mostly is the
only Anna Berg. In 2,080 chat turns no rule linked anything, right or wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from graphmem.model import Entity, EntityType, Extraction, Link, MentionKind, OtherName
from graphmem.text import STOP_WORDS, normalise_key

# Types of entities whose key may be a person's full name, extracted with a wrong type. Only a PERSON is linked; the
# others still make a first name ambiguous.
FIRST_NAME_TYPES = frozenset({EntityType.PERSON, EntityType.ORGANIZATION, EntityType.OTHER})
# Types whose spellings are compared. A concept's near spelling mostly is another word (a plural, a participle).
SPELLING_TYPES = frozenset({EntityType.PERSON, EntityType.ORGANIZATION, EntityType.PLACE})
# Maximum length of a full name; a longer run of capitalised words is a title or a list.
MAX_NAME_WORDS = 3
# Minimum similarity of two spellings of a word (rapidfuzz's ratio, 0..100), and minimum letters of each: words of 6 to
# 12 letters may differ by one added letter.
SPELLING_SIMILARITY, MIN_LETTERS = 92, 6
# Number of first letters that two names must share to be compared.
COMMON_PREFIX = 3

# The extractor's predicates for "call me Bo", "my name is …", "she goes by …", "Anna's nickname is …".
NAMING_PREDICATES = ("be called", "be named", "be nicknamed", "be known as", "go by", "nickname")
_TITLES = frozenset(
    """
    mr mrs ms miss mx dr doctor prof professor sir madam lord lady king queen prince princess saint st san santa
    aunt auntie uncle grandma grandpa granny mom mum mama mother dad papa father sister brother cousin baby little
    coach captain pastor rabbi father judge president mayor officer sergeant new old big happy dear
    """.split()
)
# Last words that make a name that of a place or an organization; and the numbers of kings, piers and parts.
_NON_PERSON_ENDINGS = frozenset(
    """
    falls river creek lake strait bay island islands forest glacier mountain mountains hill hills valley glen park
    street road avenue square bridge airport station field house hall tower castle church cathedral college school
    university hospital museum library foundation institute company group band club team united city county town
    i ii iii iv v vi vii viii ix x xi xii
    """.split()
)


class ChosenName(NamedTuple):
    """A name that a user gave an entity, and the time (microseconds since 1970)."""

    chosen_at: int
    name: str


def stated_aliases(extraction: Extraction) -> Iterator[tuple[str, str]]:
    """Yields the pairs of keys of people's names that a text states to be one person's.

    Other things are left out, because the same predicates often describe them: "the town known as a spa", "Durant was
    named MVP".
    """
    names = {m.key for m in extraction.mentions if m.kind <= MentionKind.NAME and m.type is EntityType.PERSON}
    for statement in extraction.statements:
        if statement.predicate in NAMING_PREDICATES and {statement.subject, statement.object} <= names:
            yield statement.subject, statement.object


def written_forms(extraction: Extraction) -> Iterator[tuple[str, str]]:
    """Yields (form as written, key) of the noun phrases of a text that may be a name in lower case."""
    for mention in extraction.mentions:
        if mention.kind > MentionKind.NAME and is_written_form(mention.key, mention.name, mention.type):
            yield normalise_key(mention.name), mention.key


def is_written_form(key: str, name: str, type_: EntityType) -> bool:
    """Whether a noun phrase is written otherwise than its key, and may be a name.

    It may if it has several words, or is unknown to the dictionary (type OTHER): "windows" is no name of a system.
    """
    return normalise_key(name) != key and (" " in key or type_ is EntityType.OTHER)


def first_name_of(full_name: str) -> str:
    """Returns the first word of a key that reads like a person's full name, else ""."""
    words = full_name.split(" ")
    if not 1 < len(words) <= MAX_NAME_WORDS or not all(map(_is_name_word, words)):
        return ""
    return words[0] if len(words[-1]) > 1 and words[-1] not in _NON_PERSON_ENDINGS else ""


def _is_name_word(word: str) -> bool:
    letters = word.replace("-", "").replace("'", "").replace(".", "")
    return letters.isalpha() and word not in STOP_WORDS and word not in _TITLES


def is_first_name(entity: Entity) -> bool:
    """Tells whether an entity is a person whose key is one word that reads like a name.

    The type keeps interjections out ("Aww" in "Aww John").
    """
    return (
        entity.type is EntityType.PERSON and " " not in entity.key and len(entity.key) > 1 and _is_name_word(entity.key)
    )


def full_name_for(first_name: Entity, candidates: Sequence[Entity]) -> Entity | None:
    """Returns the only person whose full name begins with a first name; None if there is none, or more than one.

    `candidates` are the entities of the partition whose keys begin with the first name and a space.
    """
    full_names = [
        entity
        for entity in candidates
        if entity.type in FIRST_NAME_TYPES and first_name_of(entity.key) == first_name.key
    ]
    is_unique = is_first_name(first_name) and len(full_names) == 1
    return full_names[0] if is_unique and full_names[0].type is EntityType.PERSON else None


def is_spelling_compared(entity: Entity) -> bool:
    """Whether an entity's spelling may be compared: by its type, and with at least `MIN_LETTERS` letters."""
    return entity.type in SPELLING_TYPES and sum(map(str.isalpha, entity.key)) >= MIN_LETTERS


def is_spelling_variant(entity: Entity, other: Entity) -> bool:
    """Whether the keys of two entities of one type are spellings of one name.

    True if they differ only in spaces, hyphens and other signs, or for persons, if one word has one more inner letter
    (see `_differ_by_inner_letter`).
    """
    key, other_key = entity.key, other.key
    if key == other_key or entity.type is not other.type:
        return False
    if not (is_spelling_compared(entity) and is_spelling_compared(other)):
        return False
    if _letters_and_digits(key) == _letters_and_digits(other_key):
        return True
    words, other_words = key.split(), other_key.split()
    differing = [pair for pair in zip(words, other_words, strict=False) if pair[0] != pair[1]]
    if entity.type is not EntityType.PERSON or len(words) != len(other_words) or len(differing) != 1:
        return False
    return _differ_by_inner_letter(*differing[0]) and (
        len(words) > 1 or _without_doubled_letters(key) == _without_doubled_letters(other_key)
    )


def _differ_by_inner_letter(word: str, other: str) -> bool:
    """Returns True if two long words differ by about one inner letter (Alison, Allison).

    With another first or last letter they are different names (Daniel, Daniela).
    """
    if not (word.isalpha() and other.isalpha() and min(len(word), len(other)) >= MIN_LETTERS):
        return False
    if (word[0], word[-1]) != (other[0], other[-1]):
        return False
    from rapidfuzz import fuzz  # 40 modules, which a process that only reads does not need

    return fuzz.ratio(word, other) >= SPELLING_SIMILARITY


def _letters_and_digits(key: str) -> str:
    return "".join(filter(str.isalnum, key))


def _without_doubled_letters(word: str) -> str:
    """Returns a word as names of one word are compared: equal for Alison and Allison, not for Johnson and Johanson."""
    return "".join(letter for letter, _ in groupby(word))


def linked_groups(links: Iterable[Link]) -> list[list[str]]:
    """Returns the groups of keys that links connect, directly or through others, each group sorted."""
    groups: dict[str, set[str]] = {}
    for link in links:
        joined = groups.get(link.key, {link.key}) | groups.get(link.other, {link.other})
        groups |= dict.fromkeys(joined, joined)
    return [sorted(group) for group in {id(group): group for group in groups.values()}.values()]


def merge_entities(
    members: Sequence[Entity], links: Iterable[Link], chosen: Mapping[str, ChosenName], mentions: int
) -> Entity:
    """Merges the entities of a group of linked keys into one, for display.

    It has the key and name of the member whose name a user chose last, else of the fullest: most words, then most
    letters. `mentions` counts the memories of all members, each once. `links` contains the links between the members.
    """
    named = [entity for entity in members if entity.key in chosen]
    if named:
        head = max(named, key=lambda e: chosen[e.key])
    else:
        head = max(members, key=lambda e: (len(e.key.split()), len(e.key), e.mentions, e.key))
    types = [head.type, *(e.type for e in sorted(members, key=lambda e: (-e.mentions, e.key)))]
    links_by_key: dict[str, Link] = {}  # one for each key: preferably one to the key of `head`
    for link in sorted(links):
        for key in (link.key, link.other):
            if key not in links_by_key or head.key in {link.key, link.other}:
                links_by_key[key] = link
    return Entity(
        key=head.key,
        name=chosen[head.key].name if named else head.name,
        type=next((type_ for type_ in types if type_ is not EntityType.OTHER), EntityType.OTHER),
        mentions=mentions,
        aliases=tuple(
            OtherName(e.key, e.name, links_by_key[e.key].origin)
            for e in sorted(members, key=lambda e: e.key)
            if e.key != head.key
        ),
    )
