"""Questions of daily life, asked in other words than were said: what the prompt block has, and what it has not."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from support.fake_llm import OneAnswer

from graphmem import ChatLink, Memory
from graphmem.engine import Engine
from graphmem.evaluation.blocks import plain

STORED = {
    "en-1": [
        "I moved to Lisbon in May.", "Ingrid Solberg lives in Tavira.", "I'm allergic to seafood, don't recommend it.",
    ],
    "zh-1": ["我上个月搬到了杭州", "小王住在苏州", "我喜欢被称呼为小雨"],
    "zh-2": ["我上个月搬到了杭州", "小王住在苏州", "我喜欢被称呼为小雨", "我对海鲜过敏，别推荐海鲜"],
    "en-2": [
        "My sister Clara is married to Bruno.", "Bruno works at the harbour office.",
        "I bought a red bicycle on Saturday.", "Ingrid Solberg lives in Tavira.",
    ],
    "zh-chat": [
        "我喜欢被称呼为“小雨”", "周三有一场面试，要穿正式一点", "最近在读一本关于海洋的书", "我家的猫今年五岁了",
        "下个月打算去成都旅行", "公司楼下新开了一家咖啡馆", "周末和朋友去爬山，感觉不错", "我的吉他弦断了一根",
        "我海鲜过敏，别推荐海鲜", "失眠的时候喝一杯热牛奶对我有用",
    ],
    "en-chat": [
        "Please call me Rain.", "I have an interview on Wednesday and need to dress formally.",
        "I'm reading a book about the sea.", "My cat is five years old.", "I plan a trip to Chengdu next month.",
        "A new coffee shop opened downstairs at work.", "I went hiking with friends at the weekend, it felt good.",
        "A string of my guitar broke.", "I'm allergic to seafood, don't recommend it.",
        "A cup of warm milk helps me when I can't sleep.",
    ],
    "pl": ["Mam psa.", "Pada deszcz.", "Pan Wałęsa dzwonił."],
    "de": [
        "Meine Krankenversicherungskarte ist abgelaufen.", "Der Bußgeldbescheid kam am Montag.",
        "Ich wohne in der Straße am Müllerweg.",
    ],
    "en-keys": [
        "Where did I put my keys?", "The spare set hangs behind the cellar door.", "It rains.", "Can I find my keys?",
    ],
    "zh-keys": ["我把钥匙放在哪儿了？", "备用的那串挂在地下室门后。", "下雨了。", "钥匙在哪儿能找到？"],
    "zh-3": ["我姐姐嫁给了李强", "李强在港务局上班", "我周六买了一辆红色自行车", "小王住在苏州"],
    "en-tastes": [
        f"User prefers {one}." for one in (
            "dark mode", "tabs over spaces", "Python over Java", "short answers", "tea over coffee",
            "trains over planes", "window seats", "metric units", "morning meetings", "email over phone",
        )
    ],
    "en-project": [f"Fact {one} about project Apollo: milestone {one} is due in week {one}." for one in range(15)],
    "en-boxes": [f"The color of box {one} is {color}." for one, color in enumerate(("red", "blue", "green") * 4)],
    "zh-tastes": [f"用户喜欢{one}。" for one in ("深色模式", "茶", "火车", "靠窗座位", "电子邮件", "爬山", "爵士乐")],
}  # fmt: skip


@pytest.fixture(scope="module")
def memory() -> Iterator[Memory]:
    with Memory(":memory:") as stored:
        for user, texts in STORED.items():
            stored.add([{"role": "user", "content": text} for text in texts], user_id=user)
        yield stored


def shown(memory: Memory, user: str, question: str) -> set[int]:
    """The numbers of the memories that the block has, from 0."""
    block = plain(memory.context(question, user_id=user))
    return {number for number, text in enumerate(STORED[user]) if text in block}


@pytest.mark.parametrize(
    ("user", "question"),
    [
        ("en-1", "Where do I live?"),
        ("en-1", "What town am I living in these days?"),
        ("en-1", "Where is my home now?"),
        ("en-1", "Where am I based?"),
        ("en-1", "Do you remember where I live?"),
        ("zh-1", "我住在哪里？"),
        ("zh-1", "我现在住哪儿？"),
        ("zh-1", "我住哪个城市？"),
        ("zh-1", "我家在哪里？"),
        ("zh-1", "你记得我住在哪里吗？"),
    ],
)
def test_where_i_live_is_not_where_somebody_else_lives(memory: Memory, user: str, question: str) -> None:
    assert 0 in (numbers := shown(memory, user, question))
    assert 1 not in numbers


def test_where_somebody_else_lives_is_not_where_i_live(memory: Memory) -> None:
    assert shown(memory, "en-1", "Where does Ingrid live?") == {1}


@pytest.mark.parametrize("question", ["小王住哪儿？", "小王住在哪里？"])
def test_where_somebody_else_lives_is_not_where_i_live_in_chinese(memory: Memory, question: str) -> None:
    assert shown(memory, "zh-1", question) == {1}


@pytest.mark.parametrize("question", ["我叫什么？", "我叫什么名字？", "我的名字是什么？", "你该怎么称呼我？"])
def test_the_name_that_i_like_is_found(memory: Memory, question: str) -> None:
    assert 2 in (numbers := shown(memory, "zh-1", question))
    assert not {0, 1} & numbers


@pytest.mark.parametrize(
    "question",
    [
        "What can I eat tonight?",
        "What do you recommend for dinner?",
        "What should I order at the restaurant?",
        "Any ideas for lunch?",
        "Can I have the paella?",
    ],
)
def test_an_allergy_counts_where_advice_about_food_is_asked_for(memory: Memory, question: str) -> None:
    assert shown(memory, "en-1", question) == {2}


@pytest.mark.parametrize(
    "question",
    ["今晚我能吃什么？", "晚饭推荐什么？", "今晚吃什么好？", "帮我推荐一家餐厅", "中午点什么菜好？"],
)
def test_an_allergy_counts_where_advice_about_food_is_asked_for_in_chinese(memory: Memory, question: str) -> None:
    assert 3 in (numbers := shown(memory, "zh-2", question))
    assert 1 not in numbers


@pytest.mark.parametrize(
    ("user", "question"),
    [
        ("en-2", "Where does my sister's husband work?"),
        ("en-2", "What does my sister's husband do for a living?"),
        ("en-2", "At which place is my brother-in-law employed?"),
        ("en-2", "Who employs my sister's husband?"),
        ("en-2", "What is my sister's husband's job?"),
        ("zh-3", "我姐夫在哪里上班？"),
        ("zh-3", "我姐姐的丈夫在哪里工作？"),
        ("zh-3", "我姐夫做什么工作？"),
        ("zh-3", "我姐姐的老公在哪儿上班？"),
        ("zh-3", "我姐姐嫁的人在哪里工作？"),
    ],
)
def test_two_memories_answer_together(memory: Memory, user: str, question: str) -> None:
    assert {0, 1} <= (numbers := shown(memory, user, question))
    assert 2 not in numbers


@pytest.mark.parametrize(
    ("question", "days"),
    [
        ("What did we do at Christmas?", ["2026-01-05", "2025-12-24"]),
        ("Where were we in May?", ["2026-06-03", "2026-05-05"]),
        ("Was haben wir an Weihnachten gemacht?", ["2026-01-05", "2025-12-24"]),
        ("我们五月做了什么？", ["2026-06-03", "2026-05-05"]),
    ],
)
def test_all_of_a_time_is_also_what_was_told_of_it_later(memory: Memory, question: str, days: list[str]) -> None:
    user = "all of " + question
    for text, day in [
        ("At Christmas we visited grandma in Bremen.", "2026-01-05"), ("I bought new skis.", "2025-12-20"),
        ("The office was closed.", "2025-12-24"), ("In May we went to Rome.", "2026-06-03"),
        ("I had a cold.", "2026-05-05"),
    ]:  # fmt: skip
        memory.add(text, user_id=user, timestamp=f"{day}T10:00:00Z")
    block = memory.context(question, user_id=user, reference_date="2026-11-28")
    assert re.findall(r"^- \[([-\d]+)", block, re.MULTILINE) == days


@pytest.mark.parametrize(
    ("user", "question"),
    [
        ("en-1", "What is the boiling point of ethanol?"),
        ("en-1", "How many planets are there?"),
        ("en-1", "Hi, how are you?"),
        ("zh-1", "乙醇的沸点是多少？"),
        ("zh-1", "你好"),
    ],
)
def test_a_question_about_the_world_has_an_empty_block(memory: Memory, user: str, question: str) -> None:
    assert memory.context(question, user_id=user) == ""


@pytest.mark.parametrize(
    ("user", "keyword", "number"),
    [("pl", "Walesa", 2), ("de", "Bescheid", 1), ("de", "Karte", 0), ("en-2", "red bicycle", 2), ("zh-3", "自行车", 2)],
)
def test_a_keyword_finds_first_what_has_it(memory: Memory, user: str, keyword: str, number: int) -> None:
    (first,) = memory.search(keyword, user_id=user, top_k=1)["results"]
    assert first["memory"] == STORED[user][number]
    assert number in shown(memory, user, keyword)


def test_a_task_that_shares_a_word_is_no_query_of_keywords(memory: Memory) -> None:
    assert 2 in shown(memory, "zh-chat", "海洋的书")
    assert 2 not in shown(memory, "zh-chat", "讲一个关于猫的笑话。")


@pytest.mark.parametrize(
    ("user", "question"),
    [
        ("en-chat", "What is my shoe size?"),
        ("en-chat", "Where is my car parked?"),
        ("en-2", "How many cats do I have?"),
        ("en-2", "What is my dentist called?"),
        ("zh-chat", "我姐姐的生日是哪天？"),
        ("zh-chat", "我住在几楼？"),
        ("zh-3", "我为什么搬家？"),
        ("zh-3", "我的牙医叫什么？"),
    ],
)
def test_what_was_never_told_of_ones_own_life_has_an_empty_block(memory: Memory, user: str, question: str) -> None:
    """A time, a place, a number, a reason, a name."""
    assert memory.context(question, user_id=user) == ""


@pytest.mark.parametrize(
    ("user", "question"), [("en-keys", "Where might my keys be?"), ("zh-keys", "我的钥匙可能在哪儿？")]
)
def test_a_question_of_ones_own_stands_behind_what_answers_it(memory: Memory, user: str, question: str) -> None:
    found = [hit["memory"] for hit in memory.search(question, user_id=user)["results"]]
    assert found[0] == STORED[user][1]


ADVICE = {
    "zh-chat": [
        "晚饭推荐什么？", "今晚吃什么好？", "帮我想想晚餐做什么", "有什么菜可以推荐给我吗？",
        "中午去哪家餐厅吃饭比较好？",
    ],
    "en-chat": [
        "What do you recommend for dinner?", "What should I eat tonight?", "Can you suggest a dish for this evening?",
        "Give me an idea for supper.", "Which restaurant would be good for lunch?",
    ],
}  # fmt: skip
VAGUE = {
    "zh-chat": ["你今天有什么不一样？", "那怎么办呢？", "有什么办法吗？", "你觉得呢？", "现在该怎么做？"],
    "en-chat": [
        "What is different today?", "So what can I do?", "Any ideas?", "What do you think?",
        "What should I do about it now?",
    ],
}  # fmt: skip


@pytest.mark.parametrize(("user", "question"), [(user, one) for user, asked in ADVICE.items() for one in asked])
def test_advice_minds_an_allergy_among_other_memories(memory: Memory, user: str, question: str) -> None:
    numbers = shown(memory, user, question)
    assert 8 in numbers
    assert len(numbers) <= 3


SLEEPLESS = {
    "zh-chat": ("我昨晚失眠了，三点才睡着", "听起来很累，要不要聊聊？"),
    "en-chat": ("I couldn't sleep last night, I was awake until three.", "That sounds tiring. Shall we talk about it?"),
}


@pytest.mark.parametrize(("user", "question"), [(user, one) for user, asked in VAGUE.items() for one in asked])
def test_a_vague_question_is_answered_from_its_conversation(memory: Memory, user: str, question: str) -> None:
    said, answered = SLEEPLESS[user]
    turns = [{"role": "user", "content": said}, {"role": "assistant", "content": answered}]
    with ChatLink(memory, user_id=user, time_limit=60.0) as link:
        assert STORED[user][9] in plain(link.recall(question, turns))


# What was said just before shares nothing with what is remembered; a model's rewritten query does.
WEARY = {
    "zh-chat": ("唉，又来了", "怎么了？跟我说说吧。", "结合最近对话：用户昨晚失眠，询问今天状态有何变化"),
    "en-chat": (
        "Ugh, it happened again.", "Oh no. Do you want to tell me?",
        "The user could not sleep last night and asks how today is different",
    ),
}  # fmt: skip
CHANGED = {
    "zh-chat": [
        "你今天有什么不一样？", "今天和平时有什么不同？", "你看出什么变化了吗？", "那今天呢？", "今天有点不同吧？",
    ],
    "en-chat": [
        "What is different today?", "Do you notice any change?", "And how about today?", "How do I seem to you today?",
        "Is anything not as usual?",
    ],
}  # fmt: skip


@pytest.mark.parametrize(("user", "question"), [(user, one) for user, asked in CHANGED.items() for one in asked])
def test_a_vague_question_that_finds_nothing_is_rewritten_by_a_model(
    memory: Memory, monkeypatch: pytest.MonkeyPatch, user: str, question: str
) -> None:
    said, answered, rewritten = WEARY[user]
    turns = [{"role": "user", "content": said}, {"role": "assistant", "content": answered}]
    model = OneAnswer(rewritten)
    monkeypatch.setattr(Engine, "llm", property(lambda _: model, lambda *_: None), raising=False)
    with ChatLink(memory, user_id=user, time_limit=60.0, rewrite=False) as link:
        assert STORED[user][9] not in plain(link.recall(question, turns))
    with ChatLink(memory, user_id=user, time_limit=60.0) as link:
        assert STORED[user][9] in plain(link.recall(question, turns))
    assert len(model.requests) == 1


@pytest.mark.parametrize(
    ("stored", "question", "answer"),
    [
        (("Clara drinks tea.", "Ben lives in Porto."), "Who drinks tea?", "Clara drinks tea."),
        (("Clara drinks tea.", "Ben lives in Porto."), "What does Clara drink?", "Clara drinks tea."),
        (("Leo collects stamps.", "Nadia speaks Finnish."), "What does Leo collect?", "Leo collects stamps."),
        (("Omar sold his boat.", "Lena is married to Karl."), "Who sold a boat?", "Omar sold his boat."),
        (("Ollie is allergic to nuts.", "I like jazz."), "What is Ollie allergic to?", "Ollie is allergic to nuts."),
        (("小李喜欢喝茶。", "王芳住在成都。"), "谁喜欢喝茶？", "小李喜欢喝茶。"),
        (("Clara drinks tea.", "Ben lives in Porto."), "How tall is the tower?", None),
    ],
)  # fmt: skip
def test_of_two_memories_the_one_that_answers_is_shown(
    memory: Memory, stored: tuple[str, ...], question: str, answer: str | None
) -> None:
    for text in stored:
        memory.add(text, user_id="u", infer=False)
    block = memory.context(question, user_id="u")
    assert [text for text in stored if text in block] == ([] if answer is None else [answer])


@pytest.mark.parametrize(
    ("user", "question"),
    [
        ("en-tastes", "What does the user prefer?"),
        ("en-project", "What do you know about project Apollo?"),
        ("en-boxes", "What colors are the boxes?"),
        ("zh-tastes", "用户喜欢什么？"),
    ],
)
def test_a_question_for_all_that_is_stored_is_answered(memory: Memory, user: str, question: str) -> None:
    assert len(shown(memory, user, question)) > len(STORED[user]) / 2


@pytest.mark.parametrize(
    ("user", "question"),
    [
        ("en-tastes", "When was the Eiffel Tower built?"),
        ("en-project", "Where does my sister live?"),
        ("en-boxes", "Who is the owner of the house?"),
    ],
)
def test_where_all_that_is_stored_is_about_one_thing_another_gets_an_empty_block(
    memory: Memory, user: str, question: str
) -> None:
    assert memory.context(question, user_id=user) == ""


@pytest.mark.parametrize(
    ("question", "answer", "other"),
    [
        ("What is my favourite colour?", "My favourite colour is green.", "I can't stand coriander."),
        ("What's my favourite food?", "I love sushi.", "My favourite colour is green."),
        ("What should I cook tonight?", "I'm allergic to walnuts.", "My sister lives in Graz."),
    ],
)
def test_a_standing_fact_is_for_advice_and_not_for_any_attribute(question: str, answer: str, other: str) -> None:
    said = (
        "I'm allergic to walnuts.",
        "I can't stand coriander.",
        "I love sushi.",
        "My favourite colour is green.",
        "I work at a bakery.",
        "My sister lives in Graz.",
    )
    with Memory(":memory:") as memory:
        memory.add([{"role": "user", "content": text} for text in said], user_id="ana")
        block = memory.context(question, user_id="ana")
        assert answer in block and other not in block
