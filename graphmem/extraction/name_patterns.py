"""Extracts names by patterns, for languages without a parser: by capital letters; from Chinese, Japanese and Korean
text by surnames, titles, well-known places and quotation.

A capital at the start of a sentence, or of a German noun, proves little: such candidates are marked as uncertain. A
grammar of Chinese, Japanese or Korean would need a model for each; there uncertain names are left out: questions find
memories in these scripts by their character pairs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from graphmem.extraction.language_detection import PARTICLES, is_function_word, is_german
from graphmem.model import EntityType

# Words by which a sentence counts as German, where nouns have capitals.
_GERMAN = frozenset("ich wir ist sind und nicht mit nach bei für auf aus zu wurde habe hat heißt heiße liegt".split())
_SENTENCE_END = re.compile(r"[.!?…:;¿¡\n]+")
# An apostrophe ends a word, because the letter before it is an article or a pronoun: d'Italia, s'appelle.
_WORD = re.compile(r"[^\W\d_][^\W_]*(?:-[^\W_]+)*|\d+(?:\.\d+)*[^\W_]*|[,()«»\"“”/]")
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
# The most frequent surnames of Korea, and what stands behind a name. One of two syllables is left out there, for
# most such words are none ("이번 대표"), and one that ends as only other words do.
_KOREAN_SURNAMES = (
    "김이박최정강조윤장임한오서신권황안송류전홍고문양손배백허유남심노곽성차주우구민진지엄채원천방공현함변염"
)
_HAN = "\u3400-\u9fff"
_KOREAN_NAME = f"(?<![가-힣])([{_KOREAN_SURNAMES}][가-힣]{{2}})(?<![에로는의를])"
# Without a title a name shows by its syllables, which are those of most given names, by its particle, and by being none
# of the nouns that look like it. Any two syllables would be a noun in ten of twelve cases (our Korean sentences).
_KOREAN_GIVEN_NAME = (
    "[가건경광규근기나남다대도동명문미민병보상서석선성세소수숙순승시아안애연영예옥용우원유윤은의인재정제종주준지진찬창채철태하해현형혜호효훈희]"
    "[경규근나람린림미민빈범석선섭솔수숙순아연열영예옥욱우원윤율은재정주준지진찬채철태택혁현혜호환훈휘희서]"
)
_KOREAN_NOUNS = (
    "강아지|고용주|고지서|공연진|구성원|구세주|문제아|문화원|방문지|배상금|신문지|송아지|우선순|우주선|원주민|유원지|이미지|이윤율|이주민|임원진|"
    "정보원|정보지|조지아|주문서|주소지|지원서|지하수|지하철|진정서|최우선|최우수|한의원|현미경|홍보지"
)
_KOREAN_SUBJECT = (
    f"(?<![가-힣])(?!{_KOREAN_NOUNS})([{_KOREAN_SURNAMES}]{_KOREAN_GIVEN_NAME})"
    "(?=이?(?:은|는|이|가|을|를|와|과|랑|의|에게|한테)(?![가-힣]))"
)
# Frequent surnames of Japan of two characters and more, and the characters at the end of most given names: other words
# behind a surname are titles and places (田中社長, 山下公園).
_JAPANESE_SURNAMES = """
佐藤 鈴木 高橋 髙橋 田中 伊藤 渡辺 渡邊 渡邉 山本 中村 小林 加藤 吉田 山田 佐々木 山口 松本 井上 木村
斎藤 齋藤 斉藤 清水 山崎 池田 橋本 阿部 石川 山下 中島 石井 小川 前田 岡田 長谷川 藤田 後藤 近藤 村上
遠藤 青木 坂本 福田 太田 西村 藤井 金子 岡本 藤原 中野 三浦 原田 中川 松田 竹内 小野 田村 中山 和田
石田 森田 上田 内田 柴田 酒井 宮崎 横山 高木 安藤 宮本 大野 小島 谷口 今井 工藤 高田 増田 丸山 杉山
村田 大塚 新井 藤本 平野 菅原 久保 野口 松井 千葉 岩崎 桜井 木下 野村 菊地 佐野 松尾 杉本 市川 古川
島田 水野
""".split()
_JAPANESE_GIVEN_NAME = (
    f"(?!本人|個人|夫人|友人|恋人|[一二三]人|息子|様子|双子)[{_HAN}]{{0,2}}"
    "[郎朗男雄夫子美太介助也哉樹輝斗翔人平一二三司志史之幸行弘博浩明恵香花奈菜加代江枝絵里理沙紗咲愛結衣葵陽蓮大翼健誠実真優希紀穂帆央"
    "織羽和孝隆茂勇進豊正義吾悟亮涼遼良拓海彦治次士仁信伸修秀俊淳純潤康功剛武清洋裕祐佑友智知朋]"
)
_JAPANESE_NAME = f"((?:{'|'.join(_JAPANESE_SURNAMES)}){_JAPANESE_GIVEN_NAME})(?=[はがをにとのもへ、。]|から|です|だ)"
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
    (re.compile(_JAPANESE_NAME), EntityType.PERSON),
    (re.compile("([가-힣]{2,4})(?<!아저)씨"), EntityType.PERSON),
    (
        re.compile(f"{_KOREAN_NAME} ?(?:씨|님|팀장|부장|과장|차장|대리|사장|대표|이사|교수|박사|선생|기자)"),
        EntityType.PERSON,
    ),
    (re.compile(_KOREAN_SUBJECT), EntityType.PERSON),
    (re.compile(f"((?:{'|'.join(_PLACES)})(?:大学|大學|医院|银行))"), EntityType.ORGANIZATION),
    (re.compile(f"({'|'.join(_PLACES)})"), EntityType.PLACE),
    (re.compile(f"[在]([{_HAN}]{{2,4}}?)(?:工作|上班)"), EntityType.ORGANIZATION),
    (re.compile(f"({_KANA_NAME}|[{_HAN}]{{2,6}})で働"), EntityType.ORGANIZATION),
    (re.compile("《([^》]{1,40})》"), EntityType.OBJECT),
    (re.compile("([A-Z][A-Za-z]+(?: [A-Z][A-Za-z]+)*)"), EntityType.OTHER),
)
_UNSPACED = re.compile(f"[\u3040-\u30ff{_HAN}가-힣]")


@dataclass(frozen=True, slots=True)
class NameCandidate:
    """Words that name something. Not `is_certain` if they may be a common noun or a verb."""

    words: str
    type: EntityType = EntityType.OTHER
    is_certain: bool = True


_GERMAN_DETERMINERS = frozenset(
    """
    der die das den dem des ein eine einen einem einer eines kein keine keinen keinem keiner mein meine meinen meinem
    meiner dein deine sein seine seinen ihr ihre ihren unser unsere unseren unserem dieser diese dieses jeder im am zum
    zur beim vom ins
    """.split()
)
_PERSON_NOUNS = frozenset(
    """
    schwester bruder mutter vater freund freundin tante onkel cousin cousine sohn tochter frau mann chef chefin kollege
    kollegin nachbar nachbarin herr oma opa dr prof
    sœur frère mère père ami amie tante oncle fils fille femme mari monsieur madame cousine
    hermana hermano madre padre amigo amiga tía tío primo prima hijo hija esposa marido señor señora don doña
    sorella fratello amico amica zia zio cugino cugina figlio figlia moglie marito signor signora
    irmã irmão mãe pai filho filha esposa senhor senhora
    сестра брат мама папа друг подруга тётя дядя сын дочь жена муж
    """.split()
)
# Those by which a family calls somebody.
_NOUNS_AS_NAMES = frozenset("oma opa".split())
_TYPES_BY_PRECEDING_WORD = {
    word: type_
    for type_, words in {
        EntityType.PERSON: "mit avec con com с heißt heiße appelle llamo llama chiamo chiama chamo chama зовут",
        EntityType.PLACE: "in nach aus à en em no na в во из",
        EntityType.ORGANIZATION: "bei chez",
    }.items()
    for word in words.split()
}
# What stands before a name in a German question, if anything is known by that name; and before its article.
_BEFORE_GERMAN_NAMES = frozenset("von für über zu und oder als ist sind war".split())
_BEFORE_ARTICLES_OF_NAMES = frozenset("von mit".split())
# A German question for a person, or for what a subject does, whose name follows the verb: "Wo wohnt Tobi?". Bare
# nouns follow these verbs as well ("Was kostet Kaffee?").
_ASKS_FOR_PERSON = frozenset("wer wen wem".split())
_ASKS_FOR_REST = frozenset("wo was wie wann warum woher wohin wieso weshalb wem wen".split())
_NO_VERBS_OF_PEOPLE = frozenset("ist sind war gibt kostet kosten heißt bedeutet viel viele".split())
_ADJECTIVE_ENDINGS = ("e", "er", "es", "en", "em")
_VERBS_OF_BEING = frozenset("ist war heißt".split())
# Before two or more capitalised words, these introduce an author: "von Thomas Mann".
_AUTHOR_PREPOSITIONS = frozenset("von par por da".split())
JOINING_WORDS = PARTICLES - frozenset("der die den il lo el te ten".split())
_RUSSIAN_FUNCTION_WORDS = frozenset(
    """
    я ты он она мы вы они мой моя моё мои твой твоя наш наша ваш это этот эта и но а не да нет как что где когда кто
    почему в на с у из по для к о от вчера сегодня завтра привет спасибо здравствуйте если
    """.split()
)

# Well-known places of Turkish texts with an ending of direction or place behind an apostrophe. The name before them is
# another ("Mehmet İzmir'e taşındı").
_TURKISH_PLACE = re.compile(
    "\\b(?:İstanbul|Ankara|İzmir|Bursa|Antalya|Adana|Konya|Gaziantep|Mersin|Diyarbakır|Kayseri|Eskişehir|Samsun|Denizli"
    "|Trabzon|Malatya|Erzurum|Muğla|Bodrum|Çanakkale|Edirne|Türkiye|Almanya|Fransa|İngiltere|Amerika|Hollanda|Berlin"
    "|Londra|Paris)(?=['’](?:[yn]?[ae]|[dt][ae]n?)\\b)"
)
_ABBREVIATED_TITLES = re.compile(r"\b(Dr|Prof|Sra?|St)\.")
# Whom a German text speaks to, with a capital out of courtesy: no part of a name ("Kannst Du").
_GERMAN_ADDRESS = frozenset({"Du", "Dich", "Dir", "Sie", "Ihnen", "Euch"})
# The number of a name ("Boeing 737", 波音737, "Wohnung 4B"), which is no year. Other letters are units (5 km, 3h).
NUMBER_OF_NAME = re.compile(r"(?!(?:1[5-9]|20)\d\d$)\d+(?:\.\d+)*[A-Zabcdei]?")


def capitalized_names(text: str) -> Iterator[NameCandidate]:
    """Yields the names of a text that capital letters show, typed by the word before them."""
    # A preposition divides names and makes a place of what follows.
    divided = _TURKISH_PLACE.sub(r"in \g<0>", _ABBREVIATED_TITLES.sub(r"\1", text))
    for sentence in _SENTENCE_END.split(divided):
        words = _WORD.findall(sentence)
        german = any(word.lower() in _GERMAN for word in words)
        for start, end in _name_ranges(words):
            numbered_end = end + _has_number(words, end, german=german)
            yield _name_candidate(words, start, numbered_end, german=german)


def names_asked(text: str) -> Iterator[NameCandidate]:
    """Yields the names in a question. Not `is_certain`: a name only if something is known by it.

    German writes every noun with a capital, so a certain name there stands where no other noun does.
    """
    if not is_german(text):
        yield from (name for name in capitalized_names(text) if name.is_certain)
        return
    for sentence in _SENTENCE_END.split(_ABBREVIATED_TITLES.sub(r"\1", text)):
        words = _WORD.findall(sentence)
        lower = [word.lower() for word in words]
        for index, word in enumerate(words):
            if not _is_capitalized(word) or lower[index] in _PERSON_NOUNS or is_function_word(word) or is_german(word):
                continue
            if _PERSON_NOUNS.intersection(lower[max(index - 1, 0) : index]) or _follows_verb(lower, index):
                yield NameCandidate(word, EntityType.PERSON)
            elif _may_be_german_name(words, index):
                yield NameCandidate(word, is_certain=False)


def _follows_verb(lower: list[str], index: int) -> bool:
    """Whether a capitalised word is the subject of a German question for what somebody does, or the one asked for."""
    if index != 2:  # noqa: PLR2004 - behind the question word and the verb
        return False
    asks, verb = lower[:2]
    return (asks in _ASKS_FOR_REST and verb not in _NO_VERBS_OF_PEOPLE) or (
        asks in _ASKS_FOR_PERSON and verb in _VERBS_OF_BEING
    )


def _may_be_german_name(words: list[str], index: int) -> bool:
    """Whether a capitalised word of a German question is a name if something is known by it.

    It begins the text or follows a verb that does, is somebody whose something is asked for ("Friedas Pläne"), or
    stands behind a word that names follow: also with an article ("mit der Ayşe"), where most other nouns have one.
    """
    before = [word.lower() for word in words[max(index - 2, 0) : index]]
    if before[-1:] and before[-1] in _GERMAN_DETERMINERS:
        return before[0] in _BEFORE_ARTICLES_OF_NAMES
    if before[-1:] and before[-1].startswith("welch"):
        return False
    # Behind a genitive stands what is somebody's, also with an adjective.
    of_it, behind = [*words[index + 1 : index + 3], "", ""][:2]
    is_genitive = words[index].endswith("s") and (
        of_it[:1].isupper() or (of_it.endswith(_ADJECTIVE_ENDINGS) and behind[:1].isupper())
    )
    if index <= 1 or is_genitive:
        return True
    return before[-1] in _BEFORE_GERMAN_NAMES or before[-1] in _TYPES_BY_PRECEDING_WORD


def _name_ranges(words: list[str]) -> Iterator[tuple[int, int]]:
    """Yields start and end of each name: capitalised words with the particles between them, without "Tante" etc."""
    index = 0
    while index < len(words):
        end = index
        word, lower, following = words[index], words[index].lower(), " ".join(words[index + 1 : index + 2])
        only_opens_sentence = index == 0 and (
            len(word) == 1 or is_function_word(word) or lower in _RUSSIAN_FUNCTION_WORDS
        )
        # "Oma" is a name where no name follows.
        introduces_name = lower in _PERSON_NOUNS and (lower not in _NOUNS_AS_NAMES or _is_capitalized(following))
        if _is_capitalized(word) and not only_opens_sentence and not introduces_name:
            end = _name_end(words, index)
            yield index, end
        index = max(end, index + 1)


def _name_end(words: list[str], start: int) -> int:
    end = start + 1
    for index in range(end, len(words)):
        is_particle = words[index] in JOINING_WORDS or (
            words[index] in ("der", "den") and words[index - 1] in ("van", "von")
        )
        if _is_capitalized(words[index]):
            end = index + 1
        elif not is_particle or index - end > 1:
            break
    return end


def _has_number(words: list[str], end: int, *, german: bool) -> bool:
    """Whether the number behind a name belongs to it and does not count what follows ("Paris 3 días")."""
    if not NUMBER_OF_NAME.fullmatch(" ".join(words[end : end + 1])):
        return False
    following = " ".join(words[end + 1 : end + 2])
    is_noun = following[:1].isupper() if german else following.isalpha() and not is_function_word(following)
    return not is_noun and not following[:1].isdigit()


def _name_candidate(words: list[str], start: int, end: int, *, german: bool) -> NameCandidate:
    name = " ".join(words[start:end])
    preceding = words[start - 1].lower() if start else ""
    if preceding in _PERSON_NOUNS:
        return NameCandidate(name, EntityType.PERSON)
    type_ = _TYPES_BY_PRECEDING_WORD.get(preceding, EntityType.OTHER)
    if end - start > 1:
        return NameCandidate(name, EntityType.PERSON if preceding in _AUTHOR_PREPOSITIONS else type_)
    may_be_common_noun = preceding in _GERMAN_DETERMINERS or (german and type_ is EntityType.OTHER)
    return NameCandidate(name, type_, is_certain=start > 0 and not may_be_common_noun)


def _is_capitalized(word: str) -> bool:
    """Whether a word is written with a capital, at its start or behind its first letter ("iPhone")."""
    return word[:2] != word[:2].lower() and word not in _GERMAN_ADDRESS


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
