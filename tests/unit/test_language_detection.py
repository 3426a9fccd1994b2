from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmem.extraction.language_detection import is_english
from graphmem.extraction.name_patterns import names_asked, pattern_names
from graphmem.model import EntityType

PERSON, PLACE, ORGANIZATION, OBJECT, OTHER = (
    EntityType.PERSON,
    EntityType.PLACE,
    EntityType.ORGANIZATION,
    EntityType.OBJECT,
    EntityType.OTHER,
)


@pytest.mark.parametrize(
    "text",
    [
        "Anna",
        "Ludwig van Beethoven composed symphonies.",
        "Sandra de la Cruz sings.",
        "I love La La Land.",
        "So cool!!",
        "Kim Jong-un",
        "We met at the Café de Flore with Jürgen.",
        "An era of pros and cons",
        "Die Hard is on.",
    ],
)
def test_english(text: str) -> None:
    assert is_english(text)


@pytest.mark.parametrize(
    "text",
    [
        "Der Zahnarzt hat mir zwei Backenzähne gezogen.",
        "Gegen Mittag lichtete sich der Nebel.",
        "La chorale de Petra chante dimanche.",
        "Los vecinos celebraron hasta medianoche.",
        "Ich bin müde.",
        "Je suis fatigué.",
        "No tengo hambre.",
        "Non ho fame.",
        "Não tenho fome.",
        "Ik heb honger.",
        "Jag är hungrig.",
        "Nie mam czasu.",
        "Я устал.",
        "我累了",
        "",
        ";)",
    ],
)
def test_not_english(text: str) -> None:
    assert not is_english(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Mein Onkel Bernd wohnt in Ulm.", [("Bernd", PERSON, True), ("Ulm", PLACE, True)]),
        ("Ich war mit Jutta im Museum.", [("Jutta", PERSON, True), ("Museum", OTHER, False)]),
        ("Arnoud van der Biesen fährt.", [("Arnoud van der Biesen", OTHER, True)]),
        ("Ich war bei Dr. Weiss.", [("Weiss", PERSON, True)]),
        ("Mon oncle Rémi travaille chez Airbus.", [("Rémi", PERSON, True), ("Airbus", ORGANIZATION, True)]),
        ("Le film fut tourné par Agnès Varda.", [("Agnès Varda", PERSON, True)]),
        (
            "Ayer vi a Inés, Blas y el Río de la Plata.",
            [("Inés", OTHER, True), ("Blas", OTHER, True), ("Río de la Plata", OTHER, True)],
        ),
        ("L'Aquila", [("Aquila", OTHER, True)]),
        ("Мой дядя Олег живёт в Туле.", [("Олег", PERSON, True), ("Туле", PLACE, True)]),
        ("我叔叔赵军在小米工作。", [("小米", ORGANIZATION, True)]),
        ("我朋友赵军在天津。", [("赵军", PERSON, True), ("天津", PLACE, True)]),
        ("我在读《三体》。", [("三体", OBJECT, True)]),
        ("我在Google和小丽吃饭。", [("小丽", PERSON, True), ("Google", OTHER, True)]),
        ("清華大学の山本さんは奈良に行った。", [("山本", PERSON, True), ("奈良", PLACE, True)]),
        ("弟の太郎はホンダで働く。", [("太郎", PERSON, True), ("ホンダ", ORGANIZATION, True)]),
        ("민수씨는 부산에 살아요.", [("민수", PERSON, True), ("부산", PLACE, True)]),
        ("어제 김민수 팀장과 이지은 씨를 만났다.", [("김민수", PERSON, True), ("이지은", PERSON, True)]),
        ("박서준님께 메일을 보냈다.", [("박서준", PERSON, True)]),
        ("이번 대표 회의에서 우리 선생님과 아저씨가 정말 대표적인 말을 했다.", []),
        ("김민수는 학교에 갔다.", [("김민수", PERSON, True)]),
        ("어제 이지은이 왔고 박서준이를 불렀다.", [("이지은", PERSON, True), ("박서준", PERSON, True)]),
        ("강아지가 신문지를 물고 지하철이 늦었다. 노트북은 남동생의 서비스가 좋다. 이미지와 우주선이 보인다.", []),
        ("田中太郎は東京に住んでいます。", [("田中太郎", PERSON, True), ("東京", PLACE, True)]),
        ("昨日、佐々木美咲と渡邊健が来た。", [("佐々木美咲", PERSON, True), ("渡邊健", PERSON, True)]),
        ("田中社長は山下公園に行き、高田馬場で三浦半島の話をした。", []),
        ("Mehmet İzmir'e taşındı.", [("Mehmet", OTHER, False), ("İzmir", PLACE, True)]),
        ("Ayşe Yılmaz Ankara'da.", [("Ayşe Yılmaz", OTHER, True), ("Ankara", PLACE, True)]),
        ("Ayşe Yılmaz'a verdim.", [("Ayşe Yılmaz", OTHER, True)]),
        ("今天很高兴。", []),
        ("小时候我喜欢吃糖。", []),
    ],
)
def test_names_by_patterns(text: str, expected: list[tuple[str, EntityType, bool]]) -> None:
    assert [(name.words, name.type, name.is_certain) for name in pattern_names(text)] == expected


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    is_english(text)
    assert all(name.words in text or " " in name.words for name in pattern_names(text))


@pytest.mark.parametrize(
    ("question", "certain", "possible"),
    [
        ("Was ist die Abteilung von Anna?", [], ["Anna"]),
        ("Wo wohnt Tobi?", ["Tobi"], []),
        ("Wer ist Ayşe?", ["Ayşe"], []),
        ("Was kostet der Kaffee in der Kantine?", [], []),
        ("Welche Farbe hat das Auto?", [], []),
        ("Was weiß Frau Lindner über die Heizung?", ["Lindner"], []),
        ("Wer war mit der Frieda im Kino?", [], ["Frieda"]),
        ("Was sind Friedas Pläne?", [], ["Friedas"]),
        ("Was ist Tobis größte Angst?", [], ["Tobis"]),
        ("Welche Autos mag er?", [], []),
        ("Wie viele Autos hat er?", [], []),
        ("Wann ist Weihnachten?", [], ["Weihnachten"]),
        ("Hat Oskar eine Katze?", [], ["Oskar"]),
        ("What does Ayşe do in Berlin?", ["Ayşe", "Berlin"], []),
        ("Does Die Hard have a sequel?", ["Die Hard"], []),
    ],
)
def test_a_german_noun_is_no_certain_name(question: str, certain: list[str], possible: list[str]) -> None:
    names = list(names_asked(question))
    assert [name.words for name in names if name.is_certain] == certain
    assert [name.words for name in names if not name.is_certain] == possible
