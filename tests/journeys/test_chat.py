"""ChatLink, beside a chat: what was saved is found, weak questions too, and the chat never notices when it fails."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from threading import Event
from typing import Any

import pytest
from support.databases import SQLITE_ONLY
from support.fake_llm import OneAnswer
from support.waiting import PATIENCE

from graphmem import ChatLink, Memory
from graphmem.chat import MAX_SECONDS
from graphmem.engine import Engine
from graphmem.errors import LLMUnavailable, StoreError, ValidationError
from graphmem.models.protocols import Prompt, Reply
from graphmem.retrieval import context

WHO = {"user_id": "u1", "agent_id": "a1"}
# For links whose time limit must not end anything.
PATIENT: dict[str, Any] = {"time_limit": min(PATIENCE, MAX_SECONDS)}


def asks(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every house has this language model."""
    monkeypatch.setattr(Engine, "llm", property(lambda _: model), raising=False)


def said(*texts: str) -> list[dict[str, Any]]:
    """Turns of user and assistant."""
    return [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts)]


def stored(memory: Memory) -> list[str]:
    memory.flush()
    found = memory.get_all(**WHO, limit=100)["results"]
    return [one["memory"] for one in reversed(found)]


@pytest.fixture
def link(memory: Memory) -> Iterator[ChatLink]:
    with ChatLink(memory, **WHO, **PATIENT) as made:
        yield made


# --- saving -----------------------------------------------------------------------------------------------------------


def test_each_message_of_a_repeatedly_saved_chat_is_stored_once(memory: Memory) -> None:
    whole = said("I like tea", "Noted", "ok", "Good", "And cake", "Noted", "ok", "Good")
    with ChatLink(memory, **WHO, **PATIENT) as link:
        for end in range(1, len(whole) + 1):
            link.saved(whole[:end])
            link.saved(whole[:end])
    assert stored(memory) == [one["content"] for one in whole]


def test_only_the_last_rounds_are_stored(memory: Memory) -> None:
    with ChatLink(memory, **WHO, **PATIENT, rounds=1) as link:
        link.saved(said("one", "1", "two", "2"))
    assert stored(memory) == ["two", "2"]


def test_another_link_to_the_same_chat_stores_nothing_twice(memory: Memory) -> None:
    whole = said("I like tea", "Noted", "And cake", "Noted")
    for _ in range(2):
        with ChatLink(memory, **WHO, **PATIENT) as link:
            link.saved(whole)
    assert stored(memory) == ["I like tea", "Noted", "And cake", "Noted"]


def test_speakers_get_the_configured_names(memory: Memory) -> None:
    with ChatLink(memory, **WHO, **PATIENT, user_name="Ana", agent_name="Max") as link:
        link.saved([*said("I like tea", "Noted"), {"role": "user", "name": "Tom", "content": "Me too"}])
    assert stored(memory) == ["I like tea", "Noted", "Me too"]
    assert {one["memory"]: one["actor_id"] for one in memory.get_all(**WHO)["results"]} == {
        "I like tea": "Ana",
        "Noted": "Max",
        "Me too": "Tom",
    }


def test_saving_returns_at_once_and_closing_waits_a_bounded_time(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, add = Event(), Memory.add

    def slow(*args: Any, **more: Any) -> Any:
        assert go.wait(PATIENCE), "somebody waits for it"
        return add(*args, **more)

    monkeypatch.setattr(Memory, "add", slow)
    link = ChatLink(memory, **WHO, time_limit=0.2)
    for n in range(1, 6):
        link.saved(said(*(f"message {k}" for k in range(2 * n))))
    link.close()
    go.set()
    link._writer.shutdown(wait=True)
    assert stored(memory) == [f"message {k}" for k in range(10)]


def test_an_unstorable_message_does_not_prevent_the_others(memory: Memory) -> None:
    with ChatLink(memory, **WHO, **PATIENT) as link:
        link.saved([{"role": "user", "content": "I like tea", "id": "1"}])
        link.saved([{"role": "user", "content": "I like coffee", "id": "1"}, *said("Me too")])
    assert stored(memory) == ["I like tea", "Me too"]


@pytest.mark.parametrize("strange", [None, 7, "words", [None], [{"role": []}], [{"role": "user"}]])
def test_an_unusable_chat_is_logged_and_ignored(link: ChatLink, memory: Memory, strange: Any) -> None:
    link.saved(strange)
    assert link.recall("What do I like?", strange) == ""
    link.saved(said("I like tea"))
    link.close()
    link.saved(said("too late"))
    assert stored(memory) == ["I like tea"]


def test_a_failing_memory_raises_nothing(memory: Memory, caplog: pytest.LogCaptureFixture) -> None:
    link = ChatLink(memory, **WHO, **PATIENT)
    memory.close()
    link.saved(said("I like tea"))
    assert link.recall("What do I like?", said("Hello")) == ""
    link.close()
    told = sorted(record.getMessage() for record in caplog.records if record.name == "graphmem")
    assert told == ["a recall failed (StoreUnavailable)", "a saved chat was not stored (StoreUnavailable)"]


# --- recalling --------------------------------------------------------------------------------------------------------


def test_a_block_of_what_belongs_to_the_question(memory: Memory, link: ChatLink) -> None:
    for n in range(6):
        memory.add(f"tea number {n}", **WHO)
    memory.add("tea of somebody else", user_id="u2", agent_id="a1")
    block = link.recall("tea", top_k=3)
    assert block.startswith(context.OPEN)
    assert block.count("tea number") == 3
    assert len(link.recall("tea", max_chars=150)) <= 150
    assert "somebody" not in link.recall("tea", top_k=100)


@pytest.mark.parametrize(
    "more",
    [
        {"top_k": 0},
        {"max_chars": "x"},
        {"recent": 7},
        {"threshold": 2},
        {"rewrite": 1},
        {"rewrite_prompt": 7},
        {"rewrite_prompt": ""},
    ],
)
def test_unusable_arguments_give_an_empty_block(memory: Memory, link: ChatLink, more: Any) -> None:
    memory.add("I like tea", **WHO)
    assert "I like tea" in link.recall("tea")
    assert link.recall("tea", **more) == ""


@pytest.mark.parametrize(
    "strange", [7, None, "words", {"role": []}, {"role": "user", "content": 7}, {"content": "x" * 10**7}]
)
def test_a_turn_of_unknown_shape_is_left_out_and_the_others_count(
    memory: Memory, link: ChatLink, caplog: pytest.LogCaptureFixture, strange: Any
) -> None:
    memory.add("tea and cake", **WHO)
    first, second = said("What about the cake?", "Which one?")
    assert "tea and cake" in link.recall("Hm?", [first, strange, second])
    assert "cake" not in caplog.text


def test_unrelated_memories_are_left_out(memory: Memory, link: ChatLink) -> None:
    for text in ("I like tea", "My cat is old", "Work begins at nine"):
        memory.add(text, **WHO)
    block = link.recall("Is the cat well?")
    assert "cat" in block
    assert "tea" not in block
    assert link.recall("Mongolia's capital?", said("Hello", "Hi")) == ""
    assert link.recall("Is the cat well?", threshold=0.999) == ""
    everything = link.recall("Mongolia's capital?", threshold=None)
    assert all(word in everything for word in ("tea", "cat", "Work"))


def test_rewriting_is_chosen_for_a_call(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    memory.add("tea and cake", **WHO)
    model = OneAnswer("tea")
    asks(model, monkeypatch)
    with ChatLink(memory, **WHO, **PATIENT, rewrite_prompt="Ours.") as link:
        assert link.recall("Hm?", rewrite=False) == ""
        assert model.asked == []
        assert "tea and cake" in link.recall("Hm?")
        assert "tea and cake" in link.recall("Hm?", rewrite_prompt="Mine.")
    with ChatLink(memory, **WHO, **PATIENT, rewrite=False) as link:
        assert link.recall("Hm?") == ""
        assert "tea and cake" in link.recall("Hm?", rewrite=True)
    assert [prompt.system == own for prompt, own in zip(model.asked, ("Ours.", "Mine."), strict=False)] == [True, True]
    assert len(model.asked) == 3


def test_flush_waits_for_what_was_saved(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    go, add = Event(), Memory.add
    monkeypatch.setattr(Memory, "add", lambda *args, **more: (go.wait(0.3), add(*args, **more))[1])
    with ChatLink(memory, **WHO, **PATIENT) as link:
        for n in range(1, 4):
            link.saved(said(*(f"message {k}" for k in range(2 * n))))
        assert link.flush() == {"pending": []}
        assert memory.get_all(**WHO)["total"] == 6
        assert memory.stats()["pending"] == []


@pytest.mark.thorough
def test_at_the_time_limit_the_finished_steps_count(
    memory: Memory, make_memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from graphmem import chat

    asked, go, wait = Event(), Event(), chat.wait

    class Slow(OneAnswer):
        def answer(self, prompt: Prompt) -> Reply:
            asked.set()
            assert go.wait(PATIENCE), "somebody waits for it"
            return super().answer(prompt)

    def until_the_model_thinks(jobs: Any, seconds: float) -> Any:
        """As if the time were up then."""
        assert 0 < seconds <= PATIENT["time_limit"]
        assert asked.wait(PATIENCE)
        return wait(jobs, 0)

    memory.add("tea and cake", **WHO)
    asks(Slow("tea"), monkeypatch)
    with ChatLink(memory, **WHO, **PATIENT) as link:
        with monkeypatch.context() as patch:
            patch.setattr(chat, "wait", until_the_model_thinks)
            assert "tea and cake" in link.recall("Hm?", said("Hello"), threshold=None)
        go.set()


def test_a_timeout_before_the_first_finished_step_gives_nothing(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    from graphmem import chat

    go = Event()

    def slow(*_: Any) -> None:
        assert go.wait(PATIENCE), "somebody waits for it"

    monkeypatch.setattr(chat, "search", slow)
    with ChatLink(memory, **WHO, time_limit=0.1) as link:
        assert link.recall("tea") == ""
        go.set()


def test_an_error_keeps_the_hits_of_earlier_steps(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    from graphmem import chat

    search = chat.search

    def failing(question: Any, stores: Any) -> Any:
        if "\n" in question.text:
            raise StoreError("gone")
        return search(question, stores)

    monkeypatch.setattr(chat, "search", failing)
    memory.add("tea and cake", **WHO)
    with ChatLink(memory, **WHO, **PATIENT) as link:
        assert "tea and cake" in link.recall("Hm?", said("Hello"), threshold=None)


BAD = {"user_id": None, "rounds": 0, "time_limit": 0, "rewrite": 1, "rewrite_prompt": 7}


@pytest.mark.parametrize("bad", [{name: value} for name, value in BAD.items()])
def test_unusable_arguments_of_a_link_are_refused(memory: Memory, bad: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ChatLink(memory, **{"user_id": "u1", **bad})


# --- injecting --------------------------------------------------------------------------------------------------------


def test_the_block_goes_to_the_end_of_the_first_system_message(link: ChatLink) -> None:
    messages = [{"role": "user", "content": "Hi"}, {"role": "system", "content": "Be kind."}]
    assert link.inject(messages, "BLOCK") == [messages[0], {"role": "system", "content": "Be kind.\n\nBLOCK"}]
    assert messages[1]["content"] == "Be kind."
    parts = [{"role": "system", "content": [{"type": "text", "text": "Be kind."}]}]
    assert link.inject(parts, "BLOCK")[0]["content"] == [*parts[0]["content"], {"type": "text", "text": "BLOCK"}]
    assert link.inject([{"role": "system", "content": None}], "BLOCK") == [{"role": "system", "content": "BLOCK"}]


def test_without_a_system_message_the_block_goes_into_a_new_one_in_front(link: ChatLink) -> None:
    messages = said("Hi", "Hello")
    assert link.inject(messages, "BLOCK") == [{"role": "system", "content": "BLOCK"}, *messages]
    assert link.inject(messages, "") == messages
    assert link.inject(messages, "") is not messages


# --- the three cases, with the default models -------------------------------------------------------------------------

NOISE = [
    "我喜欢被称呼为“小雨”",
    "周三有一场面试，要穿正式一点",
    "最近在读一本关于海洋的书",
    "我家的猫今年五岁了",
    "下个月打算去成都旅行",
    "公司楼下新开了一家咖啡馆",
    "周末和朋友去爬山，感觉不错",
    "我的吉他弦断了一根",
]


@pytest.fixture
def chat(make_memory: Callable[..., Memory], monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., ChatLink]]:
    """`chat(model)`: a link whose memory holds some of everything, with the models that graphmem brings along."""
    memory = make_memory(embedder={"provider": "minilm"}, extractor={"provider": "spacy"})
    made: list[ChatLink] = []

    def open_(model: Any = None, *more: str) -> ChatLink:
        memory.add([{"role": "user", "content": text} for text in (*NOISE, *more)], user_id="小雨", agent_id="小助手")
        asks(model, monkeypatch)
        made.append(ChatLink(memory, user_id="小雨", agent_id="小助手", **PATIENT))
        return made[-1]

    yield open_
    for link in made:
        link.close()


@SQLITE_ONLY
def test_case_a_a_clear_question_the_next_day(chat: Callable[..., ChatLink]) -> None:
    link = chat()
    link.saved(said("我海鲜过敏，别推荐海鲜", "好的，记住了，以后不推荐海鲜。"))
    link._memory.flush()
    link._writer.submit(lambda: None).result()
    link._memory.flush()
    assert "海鲜过敏" in link.recall("晚饭推荐什么？")
    assert "海鲜过敏" in link.recall("晚饭推荐什么？", said("早上好", "早上好！今天过得怎么样？"))


@SQLITE_ONLY
def test_case_b_a_weak_question_with_its_context(chat: Callable[..., ChatLink]) -> None:
    link = chat(None, "失眠的时候喝一杯热牛奶对我有用", "上个月也失眠过一次，因为工作压力大")
    context = said("我昨晚失眠了，三点才睡着", "听起来很累，要不要聊聊？")
    block = link.recall("你今天有什么不一样？", [*context, *said("你今天有什么不一样？")])
    assert "热牛奶" in block
    assert "上个月也失眠过" in block


@SQLITE_ONLY
def test_case_c_a_weak_question_rewritten(chat: Callable[..., ChatLink]) -> None:
    model = OneAnswer("用户昨晚失眠，询问今天状态有何变化\n")
    link = chat(model, "失眠的时候喝一杯热牛奶对我有用")
    question, context = "你今天有什么不一样？", said("翻来覆去到天亮，眼睛都没合上", "哎呀，辛苦你了")
    assert "热牛奶" in link.recall(question, context, top_k=2)
    (prompt,) = model.asked
    assert json.loads(prompt.user) == {
        "user_name": "小雨",
        "char_name": "小助手",
        "user_question": question,
        "recent_conversation": "小雨: 翻来覆去到天亮，眼睛都没合上\n小助手: 哎呀，辛苦你了",
    }
    model.said = LLMUnavailable("away")
    assert link.recall(question, context) == ""  # nothing there has to do with either
    assert link.recall(question, context, threshold=None)
    with ChatLink(link._memory, user_id="小雨", agent_id="小助手", rewrite=False, **PATIENT) as other:
        assert other.recall(question, context, threshold=None)
    assert len(model.asked) == 3


@SQLITE_ONLY
def test_a_clear_chinese_question_is_asked_as_it_is(chat: Callable[..., ChatLink]) -> None:
    model = OneAnswer("never asked")
    link = chat(model, "我海鲜过敏，别推荐海鲜", "下午一般不喝咖啡")
    talk = said("早上好", "早上好！今天过得怎么样？")
    for question, word in {
        "晚饭推荐什么？": "海鲜过敏",
        "旅行要去哪个城市？": "成都",
        "面试是哪一天？": "周三",
        "我的猫几岁了？": "五岁",
    }.items():
        block = link.recall(question, talk)
        assert word in block
        assert "吉他" not in block
    assert model.asked == []
    link.recall("那件事后来怎么样了？", talk)
    assert len(model.asked) == 1


def test_what_is_no_message_costs_only_itself(memory: Memory) -> None:
    with ChatLink(memory, user_id="u1", user_name="Ana", **PATIENT) as link:
        chat: list[Any] = [{"role": "user", "content": "I live in Faro."}, None, "Hello", 7]
        for n in range(2):
            chat += [{"role": "user", "content": f"Round {n}."}, {"role": "assistant", "content": "Fine."}]
            link.saved(chat)
        link.flush()
    stored = [one["memory"] for one in memory.get_all(user_id="u1", kinds="episode")["results"]]
    assert sorted(stored) == ["Fine.", "Fine.", "I live in Faro.", "Round 0.", "Round 1."]
