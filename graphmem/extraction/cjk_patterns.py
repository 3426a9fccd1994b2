"""Extracts names from Chinese, Japanese and Korean text by patterns: surnames, titles, well-known places, quotation.

A grammar of these languages would need a model for each. Uncertain names are left out: questions find memories in these
scripts by their character pairs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from graphmem.extraction.latin_names import NameCandidate, capitalized_names
from graphmem.model import EntityType

_PLACES = """
北京 上海 广州 深圳 天津 重庆 成都 杭州 南京 武汉 西安 苏州 长沙 青岛 大连 厦门 昆明 香港 澳门 台北 台灣 台湾
中国 中國 日本 韩国 韓国 美国 英国 法国 德国 俄罗斯 加拿大 澳大利亚 新加坡 巴黎 伦敦 纽约 柏林 东京 東京 大阪
京都 横浜 名古屋 札幌 福岡 神戸 広島 仙台 奈良 沖縄 北海道 ニューヨーク ロンドン パリ ベルリン アメリカ
イギリス フランス ドイツ 서울 부산 인천 대구 제주 한국 미국 일본 중국
""".split()
_SURNAMES = (
    "王李张張刘劉陈陳杨楊黄黃赵趙吴吳周徐孙孫朱胡郭林罗羅郑鄭梁谢謝宋唐许許韩韓冯馮邓鄧曹彭曾肖董袁潘蒋蔡余杜叶葉苏蘇魏吕丁沈姚卢盧姜崔钟"
    "谭陆汪范廖贾夏韦邹孟熊秦邱尹薛段雷侯龙陶黎贺顾毛郝龚邵钱戴莫孔汤"
)
_HAN = "\u3400-\u9fff"
# Limits of a Chinese name: punctuation and characters that often stand before or after one.
_START = "(?:^|(?<=[，。！？、；：“”\\s和跟与與给找让叫请是见友妹姐哥弟妈爸]))"
_END = (
    "(?=$|[，。！？、；：“”\\s在是的说說去和跟与住喜想来來也有很把被要会會给对了吗呢吧叫让问买吃喝爱不没从到将已正工]"
    "|[明今昨]天|[明今去]年)"
)
_GENERIC_NOUNS = frozenset("公司 学校 医院 银行 这里 那里 工厂 会社 学校 病院 銀行 工場 自宅 誕生日 両親 家族".split())
_KANA = "\u30a1-\u30fa\u30fc"
# Of a limited length: a long run would be tried from each of its characters to its end.
_KANA_NAME = f"[{_KANA}]{{2,30}}"

_PATTERNS = (
    (re.compile(f"{_START}([{_SURNAMES}][{_HAN}]{{1,2}}?){_END}"), EntityType.PERSON),
    (re.compile(f"{_START}([小阿][^时時学心孩区说吃朋狗猫组型费偷声巧气子伙提便数票结]){_END}"), EntityType.PERSON),
    (re.compile(f"([{_HAN}]{{1,4}}|{_KANA_NAME})(?:さん|様|くん|ちゃん|先生|氏)"), EntityType.PERSON),
    (re.compile(f"[姉妹兄弟父母友達人娘]の([{_HAN}]{{2,3}}|{_KANA_NAME})(?=[はがをともに])"), EntityType.PERSON),
    (re.compile("([가-힣]{2,4})씨"), EntityType.PERSON),
    (re.compile(f"((?:{'|'.join(_PLACES)})(?:大学|大學|医院|银行))"), EntityType.ORGANIZATION),
    (re.compile(f"({'|'.join(_PLACES)})"), EntityType.PLACE),
    (re.compile(f"[在]([{_HAN}]{{2,4}}?)(?:工作|上班)"), EntityType.ORGANIZATION),
    (re.compile(f"({_KANA_NAME}|[{_HAN}]{{2,6}})で働"), EntityType.ORGANIZATION),
    (re.compile("《([^》]{1,40})》"), EntityType.OBJECT),
    (re.compile("([A-Z][A-Za-z]+(?: [A-Z][A-Za-z]+)*)"), EntityType.OTHER),
)


_UNSPACED = re.compile(f"[\u3040-\u30ff{_HAN}가-힣]")


def pattern_names(text: str) -> Iterator[NameCandidate]:
    """Yields the names of a text in a language without a parser, by the patterns of its script."""
    return cjk_names(text) if _UNSPACED.search(text) else capitalized_names(text)


def cjk_names(text: str) -> Iterator[NameCandidate]:
    """Yields the names of a text in a script without spaces. Names do not overlap: the first pattern wins."""
    matched_offsets: set[int] = set()
    for pattern, type_ in _PATTERNS:
        for match in pattern.finditer(text):
            offsets = range(*match.span(1))
            if match.group(1) not in _GENERIC_NOUNS and matched_offsets.isdisjoint(offsets):
                matched_offsets.update(offsets)
                yield NameCandidate(match.group(1), type_)
