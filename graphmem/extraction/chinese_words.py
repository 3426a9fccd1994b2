"""Extracts entities from Chinese text by words and their parts of speech. Without a parser there are no relations.

Words come from rjieba, a Rust version of jieba: 4 MB, one wheel for every Python, .15 s to load and .03 ms for a
message. jieba itself is 19 MB of source without a release since 2020 and takes .9 ms; pkuseg downloads a model at first
use.

`stated_names` finds where a text that is not English says what somebody is called: "Nennt mich Bo", 王磊的外号叫小王.
English is parsed (`spacy.possessive_relations`). What a negation, a wish or another verb could stand in is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import accumulate, groupby
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from graphmem.errors import ModelError
from graphmem.extraction.name_patterns import NUMBER_OF_NAME
from graphmem.folding import simplified
from graphmem.model import EntityType, MentionKind

if TYPE_CHECKING:
    from types import ModuleType

EntityCandidate: TypeAlias = tuple[str, MentionKind, EntityType]
TaggedWord: TypeAlias = tuple[str, str]

# Entity types by the first two letters of jieba's tags: nr names of people, ns of places, nt of organizations, nz other
# names, eng words in Latin letters.
NAME_TYPES = {
    "nr": EntityType.PERSON,
    "ns": EntityType.PLACE,
    "nt": EntityType.ORGANIZATION,
    "nz": EntityType.OTHER,
    "en": EntityType.OTHER,
}
SURNAMES = frozenset(
    "王李张劉刘陈陳杨楊赵趙黄黃周吴吳徐孙孫胡朱高林何郭马馬罗羅梁宋郑鄭谢謝韩韓唐冯馮于董萧程曹袁邓鄧许許傅沈曾彭吕呂苏蘇卢盧蒋蔣蔡贾丁魏薛叶葉"
    "阎余潘杜戴夏钟鐘汪田任姜范方石姚谭廖邹熊金陆陸郝孔白崔康毛邱秦江史顾顧侯邵孟龙龍万萬段雷钱錢汤尹黎易常武乔賀贺赖赖龚文柯施洪季安欧严殷"
)
NICKNAMES = frozenset("阿小老大")
PLACE_SUFFIXES = frozenset("省市县縣区區镇鎮村街路桥橋湖山河江岛島港寺")
# jieba joins the characters of a word outside its dictionary, often with a preposition before or a verb after a name.
PREFIXES_OF_NAMES = frozenset("在给給教和跟把被对對向从從叫让讓帮幫请請陪问問与與同替")
SUFFIXES_OF_NAMES = frozenset("去来來说說的是也又就家不没沒住")
# The tags of people and places: a number behind one of these counts what follows.
COUNTED_AFTER = frozenset(("nr", "ns"))
FULL_NAME_LENGTH = 3
MIN_LENGTH = 2
# The tags of words of which names consist: names of any kind, words outside the dictionary, abbreviations (小美).
TAGS_IN_NAMES = frozenset(("nr", "ns", "nz", "x", "j"))
# Words tagged as nouns or names that denote nothing in particular; the second line has words such as "time" and "name".
EMPTY_NOUNS = frozenset(
    """
    谢谢 謝謝 恭喜 东西 東西 时候 時候 大家 事情 礼拜 禮拜 地方 样子 樣子 问问 有点 别提
    时间 時間 地点 地點 持续时间 持續時間 日期 名字 名称 名稱 原因 方式 方法 情况 情況 内容 內容 数量 數量 过程 過程
    """.split()
)

_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_KANA = re.compile("[\u3041-\u30ff\u31f0-\u31ff\uff66-\uff9f]")
_WORD = re.compile(r"[^\W\d_]+")
_SURROGATES = re.compile("[\ud800-\udfff]")
_NAME = r"[^\W\d_a-zß-ÿ][^\W\d_]+(?:-[^\W\d_]+)?"
_BEARER = rf"(?P<bearer>{_NAME}(?: {_NAME})?)"
_CHINESE_BEARER = r"(?P<bearer>[一-鿿]{2,4})"
# Each has the name, and whose it is, if not the speaker's.
_PATTERNS = tuple(
    map(
        re.compile,
        (
            rf"\b[Nn]enn(?:t|en(?: Sie)?)? mich (?:(?:bitte|einfach|doch|ruhig|auch|nur) )*(?P<name>{_NAME})",
            rf"\b{_BEARER} wird (?:von \w+(?: \w+)? )?(?P<name>{_NAME}) genannt\b",
            rf"\b{_BEARER}s Spitzname ist (?P<name>{_NAME})",
            rf"\b[Dd]er Spitzname von {_BEARER} ist (?P<name>{_NAME})",
            r"(?<![别不没])[叫喊](?:我|俺)(?P<name>[一-鿿]{2,3})就(?:行|好|可以)",
            rf"{_CHINESE_BEARER}的(?:外号|绰号|小名|昵称)(?:就?[叫是])(?P<name>[一-鿿]{{2,3}})(?=\W|$)",
        ),
    )
)


def add_mentions(text: str, mention: Callable[[str, MentionKind, EntityType], object]) -> None:
    """Calls `mention` for each entity of a text (see `find_entities`)."""
    for candidate in find_entities(text):
        mention(*candidate)


def find_entities(text: str) -> Iterator[EntityCandidate]:
    """Yields the entities of a Chinese text, with repetitions: names, nouns, and runs of consecutive nouns.

    Single characters are left out. A run of nouns is one more entity: 机器人公司 yields 机器人, 公司 and 机器人公司.
    Yields nothing if the text is not Chinese. Raises ModelError.
    """
    tagged_words = _with_numbers(list(_without_neighbours(_tagged_words(text)))) if is_chinese(text) else []
    for word, tag in tagged_words:
        is_drawn_out = len(set(word)) < len(word) - 1  # 啊啊啊, but not 奶奶
        if len(word) < MIN_LENGTH or word in EMPTY_NOUNS or is_drawn_out:
            continue
        if tag[:2] in NAME_TYPES:
            yield from _names(word, tag[:2])
        elif tag[0] == "n":
            yield word, MentionKind.NOUN_PHRASE, EntityType.CONCEPT
    for are_nouns, run in groupby(tagged_words, key=_is_noun):
        row = [word for word, _ in run]
        if are_nouns and len(row) > 1:
            yield "".join(row), MentionKind.NOUN_PHRASE, EntityType.CONCEPT


def is_chinese(text: str) -> bool:
    """Returns True if a text has at least two Han characters for each word in other letters, and no kana (Japanese)."""
    rest, han_count = _HAN.subn(" ", text)
    return han_count > 0 and not _KANA.search(rest) and han_count >= 2 * len(_WORD.findall(rest))


def may_be_name(id_: str) -> bool:
    """Whether a user's id may be somebody's name: not if all of its words are ordinary ones, as in 默认用户.

    Of 33 names it missed 3, all of them words as well (浩然), and it took 1 of 26 words that programs use as ids for a
    name. Raises ModelError.
    """
    return any(tag[:2] in TAGS_IN_NAMES for _, tag in _tagged_words(id_))


def _tagged_words(text: str) -> Sequence[TaggedWord]:
    """Returns the words of a text with their tags, as they are written; they are told apart in simplified characters.

    jieba's dictionary has few traditional words: 臺北 was two, and 台積電 began with a measure.
    """
    text = _SURROGATES.sub(" ", text)
    try:
        words = [(word, tag) for word, tag in _jieba().tag(simplified(text)) if tag]
    except Exception as error:
        raise ModelError(f"rjieba could not read a text: {error}") from error
    ends = list(accumulate(len(word) for word, _ in words))
    return tuple((text[end - len(word) : end], tag) for end, (word, tag) in zip(ends, words, strict=True))


def _without_neighbours(words: Sequence[TaggedWord]) -> Iterator[TaggedWord]:
    """Yields the words, with what jieba joined to a name outside its dictionary as words of their own: 李雪 住."""
    for word, tag in words:
        start, end = 0, len(word)
        if tag[:2] == "nr" and not _is_known(word):
            while end - start > MIN_LENGTH and word[start] in PREFIXES_OF_NAMES:
                start += 1
            while end - start > MIN_LENGTH and word[end - 1] in SUFFIXES_OF_NAMES:
                end -= 1
        yield from ((part, "p") for part in word[:start])
        yield word[start:end], tag
        yield from ((part, "v") for part in word[end:])


def _is_known(word: str) -> bool:
    """Whether jieba's dictionary has a word."""
    return bool(_jieba().has_word(simplified(word)))


def _with_numbers(words: Sequence[TaggedWord]) -> list[TaggedWord]:
    """Joins the numbers of names to them: "iPhone 15 Pro", 波音737; not those that count: 在北京3年."""
    joined: list[TaggedWord] = []
    index = 0
    while index < len(words):
        word, tag = words[index]
        index += 1
        is_latin = tag == "eng"
        while is_latin or (tag[0] == "n" and tag[:2] not in COUNTED_AFTER):
            skipped = int(is_latin and index < len(words) and words[index][0] == " ")
            following = words[index + skipped : index + skipped + 2]
            if not following or not _continues_name(word, following):
                break
            word += " " * skipped + following[0][0]
            index += skipped + 1
        joined.append((word, tag))
    return joined


def _continues_name(name: str, following: Sequence[TaggedWord]) -> bool:
    """Whether the first of the words after a name is its number, or stands behind its number ("Pro")."""
    word, tag = following[0]
    if name[-1].isdigit():
        return tag == "eng" and word[0].isupper() and name[0].isascii()
    if tag == "eng":
        return word[0].isupper() and word[-1].isdigit() and name[0].isascii()
    counts = len(following) > 1 and following[1][1][0] in "nqm"
    return NUMBER_OF_NAME.fullmatch(word) is not None and not counts


def _is_noun(word: TaggedWord) -> bool:
    return (word[1][0] == "n" or word[1] == "vn") and word[0] not in EMPTY_NOUNS


def _names(word: str, tag: str) -> Iterator[EntityCandidate]:
    if tag != "nr":
        if tag != "en" or word != word.lower():
            yield word, MentionKind.NAME, NAME_TYPES[tag]
        return
    in_dictionary = _is_known(word)
    type_ = _type_of_person_name(word, in_dictionary=in_dictionary)
    yield word, MentionKind.NAME, type_
    if not in_dictionary and type_ is EntityType.PERSON and len(word) == FULL_NAME_LENGTH and word[0] in SURNAMES:
        # Friends call each other by the given name alone.
        yield word[1:], MentionKind.NAME, type_


def _type_of_person_name(name: str, *, in_dictionary: bool) -> EntityType:
    """Returns the entity type of a word that jieba tags as the name of a person ("nr").

    PLACE for a word that ends like a place (湖, 市), else PERSON. But jieba's dictionary has the tag also for words
    such as 温哥华 (Vancouver) and 巧克力 (chocolate): a word of the dictionary (`in_dictionary`) is a PERSON only if
    it begins with a surname or the prefix of a nickname (阿), else OTHER.
    """
    if name[-1] in PLACE_SUFFIXES:
        return EntityType.PLACE
    is_person = not in_dictionary or name[0] in SURNAMES or name[0] in NICKNAMES
    return EntityType.PERSON if is_person else EntityType.OTHER


@cache
def _jieba() -> ModuleType:
    import rjieba  # imported here: its dictionary takes a moment to load, and most texts are not Chinese

    module: ModuleType = rjieba
    return module


class StatedName(NamedTuple):
    """What somebody is called. `bearer` is another name of theirs, "" for the speaker; `fact` are the words."""

    bearer: str
    name: str
    fact: str


def stated_names(text: str) -> Iterator[StatedName]:
    """Yields what a text says people are called, in German and Chinese."""
    for pattern in _PATTERNS:
        for match in pattern.finditer(text):
            found = StatedName(match.groupdict().get("bearer") or "", match["name"], match.group())
            names = [name for name in found[:2] if is_chinese(name)]
            if all(map(may_be_name, names)):
                yield found
