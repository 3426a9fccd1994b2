from __future__ import annotations

import pytest

from graphmem import Memory
from graphmem.errors import ModelError
from graphmem.extraction import chinese_words
from graphmem.extraction.spacy.extractor import SpacyExtractor
from graphmem.folding import fold
from graphmem.model import EntityType, Mention, MentionKind, Utterance

NAME, NOUN_PHRASE = MentionKind.NAME, MentionKind.NOUN_PHRASE


def kinds(text: str) -> dict[str, MentionKind]:
    return {words: kind for words, kind, _ in chinese_words.find_entities(text)}


def types(text: str) -> dict[str, EntityType]:
    return {words: type_ for words, _, type_ in chinese_words.find_entities(text)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("我和小明昨天去了北京。", True),
        ("蘇婉清搬到廈門了", True),
        ("我在 Google 的北京办公室上班", True),
        ("I met 小明 yesterday in Beijing", False),
        ("東京へ行きました", False),
        ("서울은 좋다", False),
        ("2023 !!", False),
        ("", False),
    ],
)
def test_is_chinese(text: str, expected: bool) -> None:
    assert chinese_words.is_chinese(text) is expected


def test_names_and_nouns() -> None:
    kind_of = kinds("志远在苏州工业园区的机器人公司上班,周末带柴犬去太湖。")
    assert kind_of["苏州工业园区"] == kind_of["太湖"] == NAME
    assert kind_of["公司"] == kind_of["机器人"] == kind_of["机器人公司"] == NOUN_PHRASE
    assert not {"周末", "上班", "的", "在"} & set(kind_of)


def test_a_full_name_is_also_mentioned_by_its_given_name() -> None:
    assert kinds("孟雨桐以前给长颈鹿看病") == {"孟雨桐": NAME, "雨桐": NAME, "长颈鹿": NOUN_PHRASE}


def test_types_of_names() -> None:
    type_of = types("孟雨桐和阿杰从复旦大学去了北京,在金鸡湖边吃巧克力。")
    assert type_of["孟雨桐"] == type_of["阿杰"] == EntityType.PERSON
    assert type_of["复旦大学"] == EntityType.ORGANIZATION
    assert type_of["北京"] == type_of["金鸡湖"] == EntityType.PLACE
    assert type_of["巧克力"] == EntityType.OTHER


def test_prepositions_and_verbs_are_stripped_from_unknown_names() -> None:
    assert kinds("给晓蕾拍照的那位")["晓蕾"] == NAME
    assert kinds("晓芸家的两只猫")["晓芸"] == NAME
    assert kinds("我姐姐李雪住在杭州。") == {"姐姐": NOUN_PHRASE, "李雪": NAME, "杭州": NAME, "姐姐李雪": NOUN_PHRASE}


@pytest.mark.parametrize(
    ("traditional", "simplified"),
    [
        ("王小明昨天去了臺北。", "王小明昨天去了台北。"),
        ("我妹妹在臺灣大學讀書", "我妹妹在台湾大学读书"),
        ("媽媽住在廣州的養老院", "妈妈住在广州的养老院"),
    ],
)
def test_traditional_words_are_told_apart_as_simplified_ones(traditional: str, simplified: str) -> None:
    assert [(fold(words), *rest) for words, *rest in chinese_words.find_entities(traditional)] == [
        *chinese_words.find_entities(simplified)
    ]
    assert all(words in traditional for words in kinds(traditional))


@pytest.mark.parametrize("text", ["谢谢大家", "啊啊啊啊", "好的", "嗯", "我也是这么想的", "。。。"])
def test_small_talk_names_nothing(text: str) -> None:
    assert kinds(text) == {}


def test_names_in_latin_letters() -> None:
    assert kinds("我在 Google 用 python 写程序")["Google"] == NAME
    assert "python" not in kinds("我在 Google 用 python 写程序")


@pytest.mark.parametrize("text", ["北京\ud800上海", "\x00北京", "北" * 20_000, "🎉北京🎉", "北京\n\n上海"])
def test_odd_texts(text: str) -> None:
    assert isinstance(kinds(text), dict)


def test_a_place_is_one_name() -> None:
    extractor = SpacyExtractor()
    text = "孟雨桐在上海动物园给长颈鹿看过病"
    (extraction,) = extractor.extract([Utterance(text)])
    assert extraction.statements == ()
    assert Mention("上海动物园", "上海动物园", EntityType.PLACE, NAME) in extraction.mentions


def test_a_name_leads_from_one_memory_to_another() -> None:
    with Memory(":memory:") as memory:
        messages = [
            ("顾南乔", "豆包是孟雨桐救回来的"),
            ("林晓芸", "今天的晚饭是番茄炒蛋"),
            ("顾南乔", "孟雨桐以前在上海动物园工作"),
        ]
        memory.add([{"role": "user", "name": name, "content": text} for name, text in messages], user_id="u")
        hits = memory.search("谁救了豆包?", user_id="u", explain=True)["results"]
        linked_hit = next(hit for hit in hits if "动物园" in hit["memory"])
        assert "孟雨桐" in str(linked_hit["explain"]["path"])


def test_a_failure_raises_model_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        @staticmethod
        def tag(_: str) -> None:
            raise RuntimeError

    monkeypatch.setattr(chinese_words, "_jieba", Broken)
    with pytest.raises(ModelError, match="rjieba"):
        list(chinese_words.find_entities("我们在北京"))
