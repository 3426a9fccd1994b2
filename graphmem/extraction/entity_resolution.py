"""Which names mean one person or thing: the rules, the groups they make, and what a group is called. Pure.

A wrong link shows two people as one, a missing one shows one person twice and is a call of `alias` away: the rules
would rather miss. Their links in 1,890 passages of an encyclopaedia, all in one partition, were read through: 10 of 10
by spelling are right, 12 of 14 that are said, but only about 13 of 33 by a first name: passages that have nothing to do
with each other name many a Katie. The rule is made for a partition of one user, whose Anna mostly is the one Anna Berg.
In 2,080 turns of chats no rule found anything, right or wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from rapidfuzz import fuzz

from graphmem.model import Entity, EntityType, Extraction, Link, MentionKind, OtherName
from graphmem.text import STOP_WORDS

# What may be a full name that was read wrongly: no link from it, but enough to make a first name doubtful.
FIRST_NAME_TYPES = frozenset({EntityType.PERSON, EntityType.ORGANIZATION, EntityType.OTHER})
# Types whose spellings are compared. A concept's near spelling mostly is another word (a plural, a participle).
SPELLING_TYPES = frozenset({EntityType.PERSON, EntityType.ORGANIZATION, EntityType.PLACE})
# A full name has at most so many words; a longer run of capitals is a title or a list.
MAX_NAME_WORDS = 3
# How alike two spellings of a word must be (rapidfuzz's ratio, 0..100): of 6 to 12 letters, one more or less.
SPELLING_SIMILARITY, MIN_LETTERS = 92, 6
# Names that share fewer first letters than this are not compared.
COMMON_PREFIX = 3

# What the extractors make of "call me Bo", "my name is …", "she goes by …", "Anna's nickname is …".
NAMING_PREDICATES = ("be called", "be named", "be nicknamed", "be known as", "go by", "nickname")
_TITLES = frozenset(
    """
    mr mrs ms miss mx dr doctor prof professor sir madam lord lady king queen prince princess saint st san santa
    aunt auntie uncle grandma grandpa granny mom mum mama mother dad papa father sister brother cousin baby little
    coach captain pastor rabbi father judge president mayor officer sergeant new old big happy dear
    """.split()
)
# What stands behind a name and makes it another thing's; and the numbers of kings, piers and parts.
_THINGS = frozenset(
    """
    falls river creek lake strait bay island islands forest glacier mountain mountains hill hills valley glen park
    street road avenue square bridge airport station field house hall tower castle church cathedral college school
    university hospital museum library foundation institute company group band club team united city county town
    i ii iii iv v vi vii viii ix x xi xii
    """.split()
)


class ChosenName(NamedTuple):
    """A name that a user gave an entity, and when (microseconds)."""

    chosen_at: int
    name: str


def stated_aliases(found: Extraction) -> Iterator[tuple[str, str]]:
    """The pairs of people's names of which a text says that they are one's.

    Of other things the same words often tell what they are: "the town known as a spa", "Durant was named MVP".
    """
    names = {m.key for m in found.mentions if m.kind <= MentionKind.NAME and m.type is EntityType.PERSON}
    for statement in found.statements:
        if statement.predicate in NAMING_PREDICATES and {statement.subject, statement.object} <= names:
            yield statement.subject, statement.object


def first_name_of(full: str) -> str:
    """The first name of what reads like somebody's full name, else ""."""
    words = full.split(" ")
    if not 1 < len(words) <= MAX_NAME_WORDS or not all(map(_is_name_part, words)):
        return ""
    return words[0] if len(words[-1]) > 1 and words[-1] not in _THINGS else ""


def _is_name_part(word: str) -> bool:
    plain = word.replace("-", "").replace("'", "").replace(".", "")
    return plain.isalpha() and word not in STOP_WORDS and word not in _TITLES


def is_first_name(entity: Entity) -> bool:
    """Whether it reads like somebody's first name. Only what is known to be a person: "Aww John" is no full name."""
    return (
        entity.type is EntityType.PERSON and " " not in entity.key and len(entity.key) > 1 and _is_name_part(entity.key)
    )


def full_name_for(first: Entity, beginning: Sequence[Entity]) -> Entity | None:
    """Whose first name it is, of all that begins with it: the one person with such a name, None if there are more."""
    full = [
        entity for entity in beginning if entity.type in FIRST_NAME_TYPES and first_name_of(entity.key) == first.key
    ]
    return full[0] if is_first_name(first) and len(full) == 1 and full[0].type is EntityType.PERSON else None


def is_spelling_compared(entity: Entity) -> bool:
    """Whether its spelling is compared with others' at all."""
    return entity.type in SPELLING_TYPES and sum(map(str.isalpha, entity.key)) >= MIN_LETTERS


def is_spelling_variant(one: Entity, other: Entity) -> bool:
    """Whether two names are one in two spellings.

    They differ in partitions, hyphens and other signs only; or they are a person's, and one word is spelt otherwise.
    """
    a, b = one.key, other.key
    if a == b or one.type is not other.type or not (is_spelling_compared(one) and is_spelling_compared(other)):
        return False
    if _letters(a) == _letters(b):
        return True
    words, others = a.split(), b.split()
    different = [pair for pair in zip(words, others, strict=False) if pair[0] != pair[1]]
    if one.type is not EntityType.PERSON or len(words) != len(others) or len(different) != 1:
        return False
    return _is_slip(*different[0]) and (len(words) > 1 or _single(a) == _single(b))


def _is_slip(word: str, other: str) -> bool:
    """Whether a letter is missing inside: of long words only, and not at an end, or Daniel would be Daniela."""
    long = word.isalpha() and other.isalpha() and min(len(word), len(other)) >= MIN_LETTERS
    return long and (word[0], word[-1]) == (other[0], other[-1]) and fuzz.ratio(word, other) >= SPELLING_SIMILARITY


def _letters(key: str) -> str:
    return "".join(filter(str.isalnum, key))


def _single(word: str) -> str:
    """A word without doubled letters. A name alone is compared by these: Alison is Allison, Johnson no Johanson."""
    return "".join(letter for letter, _ in groupby(word))


def linked_groups(links: Iterable[Link]) -> list[list[str]]:
    """The keys that links hold together, each group sorted."""
    group_of: dict[str, set[str]] = {}
    for link in links:
        joined = group_of.get(link.key, {link.key}) | group_of.get(link.other, {link.other})
        group_of |= dict.fromkeys(joined, joined)
    return [sorted(group) for group in {id(group): group for group in group_of.values()}.values()]


def merge_entities(
    members: Sequence[Entity], links: Iterable[Link], chosen: Mapping[str, ChosenName], mentions: int
) -> Entity:
    """Several keys' entities as the one that people see.

    It has the name chosen last, else the fullest: most words, then most letters. `mentions` counts its memories.
    """
    named = [entity for entity in members if entity.key in chosen]
    head = max(named, key=lambda e: chosen[e.key]) if named else max(members, key=_fullness)
    types = [head.type, *(e.type for e in sorted(members, key=lambda e: (-e.mentions, e.key)))]
    origins = _origins(head.key, links)
    return Entity(
        key=head.key,
        name=chosen[head.key].name if named else head.name,
        type=next((type_ for type_ in types if type_ is not EntityType.OTHER), EntityType.OTHER),
        mentions=mentions,
        aliases=tuple(
            OtherName(e.key, e.name, origins[e.key].origin)
            for e in sorted(members, key=lambda e: e.key)
            if e.key != head.key
        ),
    )


def _fullness(entity: Entity) -> tuple[int, int, int, str]:
    return len(entity.key.split()), len(entity.key), entity.mentions, entity.key


def _origins(head: str, links: Iterable[Link]) -> dict[str, Link]:
    """A link of each key: one to the head if there is one."""
    found: dict[str, Link] = {}
    for link in sorted(links):
        for key in (link.key, link.other):
            if key not in found or head in {link.key, link.other}:
                found[key] = link
    return found
