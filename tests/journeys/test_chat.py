"""ChatLink beside a chat: saved messages are found, for vague questions too, and failures never reach the chat."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from support.contract import Make, with_embedder
from support.databases import SQLITE_ONLY
from support.fake_llm import OneAnswer
from support.fakes import hash_texts
from support.waiting import TIMEOUT

from graphmem import ChatLink, Memory
from graphmem.chat import MAX_SECONDS
from graphmem.engine import Engine
from graphmem.errors import CLOSED, LLMUnavailable, StoreError, ValidationError
from graphmem.plugins import Prompt, Reply
from graphmem.retrieval import context
from graphmem.wiring import Backends

WHO = {"user_id": "u1", "agent_id": "a1"}
# For links that must not reach their time limit.
LONG_LIMIT: dict[str, Any] = {"time_limit": min(TIMEOUT, MAX_SECONDS)}


def set_model(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives every engine this language model."""
    monkeypatch.setattr(Engine, "llm", property(lambda _: model, lambda *_: None), raising=False)


def make_turns(*texts: str) -> list[dict[str, Any]]:
    """Messages of user and assistant in turn."""
    return [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts)]


def list_texts(memory: Memory) -> list[str]:
    memory.flush()
    memories = memory.get_all(**WHO, limit=100)["results"]
    return [one["memory"] for one in reversed(memories)]


@pytest.fixture
def link(memory: Memory) -> Iterator[ChatLink]:
    with ChatLink(memory, **WHO, **LONG_LIMIT) as chat_link:
        yield chat_link


# --- saved() ----------------------------------------------------------------------------------------------------------


def test_each_message_of_a_repeatedly_saved_chat_is_stored_once(memory: Memory) -> None:
    messages = make_turns("I like tea", "Noted", "ok", "Good", "And cake", "Noted", "ok", "Good")
    with ChatLink(memory, **WHO, **LONG_LIMIT) as link:
        for end in range(1, len(messages) + 1):
            link.saved(messages[:end])
            link.saved(messages[:end])
    assert list_texts(memory) == [one["content"] for one in messages]


def test_only_the_last_rounds_are_stored(memory: Memory) -> None:
    with ChatLink(memory, **WHO, **LONG_LIMIT, rounds=1) as link:
        link.saved(make_turns("one", "1", "two", "2"))
    assert list_texts(memory) == ["two", "2"]


def test_another_link_to_the_same_chat_stores_nothing_twice(memory: Memory) -> None:
    messages = make_turns("I like tea", "Noted", "And cake", "Noted")
    for _ in range(2):
        with ChatLink(memory, **WHO, **LONG_LIMIT) as link:
            link.saved(messages)
    assert list_texts(memory) == ["I like tea", "Noted", "And cake", "Noted"]


def test_speakers_get_the_configured_names(memory: Memory) -> None:
    with ChatLink(memory, **WHO, **LONG_LIMIT, user_name="Ana", agent_name="Max") as link:
        link.saved([*make_turns("I like tea", "Noted"), {"role": "user", "name": "Tom", "content": "Me too"}])
    assert list_texts(memory) == ["I like tea", "Noted", "Me too"]
    assert {one["memory"]: one["actor_id"] for one in memory.get_all(**WHO)["results"]} == {
        "I like tea": "Ana",
        "Noted": "Max",
        "Me too": "Tom",
    }


def test_saving_returns_at_once_and_closing_waits_a_bounded_time(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    release, add = Event(), Memory.add

    def add_slowly(*args: Any, **more: Any) -> Any:
        assert release.wait(TIMEOUT), "the test did not release the call"
        return add(*args, **more)

    monkeypatch.setattr(Memory, "add", add_slowly)
    link = ChatLink(memory, **WHO, time_limit=0.2)
    for n in range(1, 6):
        link.saved(make_turns(*(f"message {k}" for k in range(2 * n))))
    link.close()
    release.set()
    link._worker._writer.shutdown(wait=True)
    assert list_texts(memory) == [f"message {k}" for k in range(10)]


def test_an_unstorable_message_does_not_prevent_the_others(memory: Memory) -> None:
    with ChatLink(memory, **WHO, **LONG_LIMIT) as link:
        link.saved([{"role": "user", "content": "I like tea", "id": "1"}])
        link.saved([{"role": "user", "content": "I like coffee", "id": "1"}, *make_turns("Me too")])
    assert list_texts(memory) == ["I like tea", "Me too"]


@pytest.mark.parametrize("value", [None, 7, "words", [None], [{"role": []}], [{"role": "user"}]])
def test_an_unusable_chat_is_logged_and_ignored(link: ChatLink, memory: Memory, value: Any) -> None:
    link.saved(value)
    assert link.recall("What do I like?", value) == ""
    link.saved(make_turns("I like tea"))
    link.close()
    link.saved(make_turns("too late"))
    assert list_texts(memory) == ["I like tea"]


def test_a_failing_memory_raises_nothing(memory: Memory, caplog: pytest.LogCaptureFixture) -> None:
    link = ChatLink(memory, **WHO, **LONG_LIMIT)
    memory.close()
    link.saved(make_turns("I like tea"))
    assert link.recall("What do I like?", make_turns("Hello")) == ""
    link.close()
    log_texts = sorted(record.getMessage() for record in caplog.records if record.name == "graphmem")
    cause = f"(StoreUnavailable: {CLOSED})"
    assert log_texts == [f"a recall failed {cause}", f"a saved chat could not be taken {cause}"]


def test_many_unusable_messages_are_logged_once_for_each_call(
    memory: Memory, link: ChatLink, caplog: pytest.LogCaptureFixture
) -> None:
    unusable = [{"role": "user", "content": "\0", "id": str(n)} for n in range(5)]
    link.saved([*unusable, *make_turns("I like tea")])
    link.flush()
    assert "I like tea" in link.recall("Do I like tea?", unusable)
    assert [record.getMessage() for record in caplog.records if record.name == "graphmem"] == [
        "5 messages of a saved chat were not stored (ValidationError)",
        "5 messages of a recent conversation could not be read, and are left out",
    ]


def test_a_memory_that_closes_first_waits_for_its_chats(make_memory: Make, tmp_path: Path) -> None:
    memory = make_memory(tmp_path)
    link = ChatLink(memory, **WHO, **LONG_LIMIT)
    for n in range(20):
        link.saved(make_turns(*(f"message {k}" for k in range(2 * n + 2))))
    memory.close()
    assert list_texts(make_memory(tmp_path)) == [f"message {n}" for n in range(40)]


def test_closing_waits_neither_for_models_nor_for_a_recall_that_took_too_long(
    make_memory: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    release = Event()
    monkeypatch.setattr(Backends, "load_models", lambda _: release.wait(TIMEOUT))
    monkeypatch.setattr(Engine, "check_embedder", lambda _: release.wait(TIMEOUT))
    link = ChatLink(make_memory(), **WHO, time_limit=0.1)
    assert link.recall("Do I like tea?") == ""
    link.close()
    release.set()
    log_texts = [record.getMessage() for record in caplog.records if record.name == "graphmem"]
    assert log_texts == ["a recall was not done within its time limit"]


def test_the_log_says_to_rebuild_after_a_change_of_the_embedder(
    make_memory: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = make_memory(tmp_path)
    first.add("I like tea", **WHO)
    first.close()
    with ChatLink(make_memory(tmp_path, **with_embedder(hash_texts, "other")), **WHO, **LONG_LIMIT) as link:
        link.saved(make_turns("I like cake"))
        link.recall("What do I like?")
    warnings = sorted(record.getMessage() for record in caplog.records if record.name == "graphmem")
    assert [warning.partition(" (")[0] for warning in warnings] == ["a recall failed", "a saved chat was not stored"]
    assert all("call rebuild()" in warning for warning in warnings)


# --- recall() ---------------------------------------------------------------------------------------------------------


def test_a_block_has_memories_of_the_scope_that_match_the_question(memory: Memory, link: ChatLink) -> None:
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
        {"min_relevance": 2},
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
    "value", [7, None, "words", {"role": []}, {"role": "user", "content": 7}, {"content": "x" * 10**7}]
)
def test_a_turn_of_unknown_shape_is_left_out_and_the_others_count(
    memory: Memory, link: ChatLink, caplog: pytest.LogCaptureFixture, value: Any
) -> None:
    memory.add("tea and cake", **WHO)
    first, second = make_turns("What about the cake?", "Which one?")
    assert "tea and cake" in link.recall("Hm?", [first, value, second])
    assert "cake" not in caplog.text


def test_unrelated_memories_are_left_out(memory: Memory, link: ChatLink) -> None:
    for text in ("I like tea", "My cat is old", "Work begins at nine"):
        memory.add(text, **WHO)
    block = link.recall("Is the cat well?")
    assert "cat" in block
    assert "tea" not in block
    assert link.recall("Mongolia's capital?", make_turns("Hello", "Hi")) == ""
    assert link.recall("Is the cat well?", threshold=0.999) == ""
    assert link.recall("Is the cat well?", min_relevance=1) == ""
    assert link.recall("Mongolia's capital?", threshold=None, min_relevance="default") == ""
    for option in ({"threshold": None}, {"min_relevance": None}, {"min_relevance": 0}):
        everything = link.recall("Mongolia's capital?", **option)
        assert all(word in everything for word in ("tea", "cat", "Work"))


def test_after_a_change_of_subject_nothing_of_the_former_subject_is_recalled(memory: Memory, link: ChatLink) -> None:
    memory.add("The wedding is in the castle", **WHO)
    turns = make_turns("Tell me about the wedding in the castle", "It is lovely")
    assert "castle" in link.recall("And when is it?", turns)
    assert link.recall("What does Odile eat?", turns) == ""


QUESTION = "Where did I put the spare key?"


def add_answered_question(memory: Memory) -> None:
    memory.add(make_turns(QUESTION, "Below a blue pot"), **WHO, timestamp="2024-05-01")
    memory.add("The bicycle is red", **WHO, timestamp="2024-05-02")


@pytest.mark.parametrize("question", [QUESTION, "where did i put the spare key"])
def test_a_question_asked_before_is_recalled_by_its_answer(memory: Memory, link: ChatLink, question: str) -> None:
    add_answered_question(memory)
    for block in (link.recall(question, top_k=1), memory.context(question, **WHO)):
        assert "Below a blue pot" in block
        assert QUESTION not in block
        assert "bicycle" not in block


def test_a_question_asked_before_without_an_answer_is_not_recalled(memory: Memory, link: ChatLink) -> None:
    memory.add(QUESTION, **WHO)
    assert link.recall(QUESTION) == ""


def test_a_question_asked_before_leaves_its_place_to_other_hits(memory: Memory, link: ChatLink) -> None:
    memory.add(QUESTION, **WHO, timestamp="2024-05-01")
    memory.add("Odile has the spare key", **WHO, timestamp="2024-05-02")
    block = link.recall(QUESTION, top_k=1)
    assert "Odile" in block
    assert QUESTION not in block


def test_a_vague_question_asked_before_is_still_searched_with_its_context(memory: Memory, link: ChatLink) -> None:
    memory.add("And when is it?", **WHO, timestamp="2024-05-01")
    memory.add("The wedding is in the castle", **WHO, timestamp="2024-05-02")
    turns = make_turns("Tell me about the wedding in the castle", "Yes?")
    assert "castle" in link.recall("And when is it?", turns, top_k=1)


REQUESTS = {
    "Write me a poem about the old cat": "Is the cat old?",
    "Can you tell me a joke about old cats?": "How old are cats?",
    "给我讲个老猫的笑话": "老猫怎么样？",
}


def blocks(memory: Memory, link: ChatLink, question: str, threshold: float | None) -> tuple[str, str]:
    """The blocks of both ways to get one."""
    return (
        link.recall(question, top_k=2, threshold=threshold),
        memory.context(question, **WHO, threshold=threshold),
    )


@pytest.mark.parametrize(("request_text", "question"), REQUESTS.items())
def test_requests_to_the_assistant_leave_their_place_to_memories_that_tell_something(
    memory: Memory, link: ChatLink, request_text: str, question: str
) -> None:
    for hour in range(3):
        memory.add(request_text, **WHO, timestamp=f"2024-05-01T1{hour}:00:00Z")
    memory.add("Suggest a name for the cat, she is old", **WHO, timestamp="2024-05-02")
    memory.add("Remind me that the cat sees the vet on the 5th", **WHO, timestamp="2024-05-03")
    for block in blocks(memory, link, question, threshold=None):
        assert "she is old" in block
        assert "the vet" in block
        assert request_text not in block
    assert request_text in [hit["memory"] for hit in memory.search(question, **WHO)["results"]]


def test_requests_are_recalled_for_a_question_about_them(memory: Memory, link: ChatLink) -> None:
    request_text = next(iter(REQUESTS))
    memory.add(request_text, **WHO)
    for block in blocks(memory, link, "What did I ask you to write about the cat?", threshold=None):
        assert request_text in block


def test_what_the_assistant_and_others_say_is_no_request_of_the_user(memory: Memory, link: ChatLink) -> None:
    memory.add([{"role": "assistant", "content": "Tell me a story about the cat"}], **WHO)
    for block in blocks(memory, link, "Which story about the cat?", threshold=None):
        assert "a story" in block


def test_a_search_still_finds_the_question_itself(memory: Memory) -> None:
    add_answered_question(memory)
    assert memory.search(QUESTION, **WHO)["results"][0]["memory"] == QUESTION


def test_rewriting_is_chosen_for_a_call(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    memory.add("tea and cake", **WHO)
    model = OneAnswer("tea")
    set_model(model, monkeypatch)
    with ChatLink(memory, **WHO, **LONG_LIMIT, rewrite_prompt="Ours.") as link:
        assert link.recall("Hm?", rewrite=False) == ""
        assert model.requests == []
        assert "tea and cake" in link.recall("Hm?")
        assert "tea and cake" in link.recall("Hm?", rewrite_prompt="Mine.")
    with ChatLink(memory, **WHO, **LONG_LIMIT, rewrite=False) as link:
        assert link.recall("Hm?") == ""
        assert "tea and cake" in link.recall("Hm?", rewrite=True)
    assert [prompt.system == own for prompt, own in zip(model.requests, ("Ours.", "Mine."), strict=False)] == [
        True,
        True,
    ]
    assert len(model.requests) == 3


def test_flush_waits_for_saved_messages(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    release, add = Event(), Memory.add
    monkeypatch.setattr(Memory, "add", lambda *args, **more: (release.wait(0.3), add(*args, **more))[1])
    with ChatLink(memory, **WHO, **LONG_LIMIT) as link:
        for n in range(1, 4):
            link.saved(make_turns(*(f"message {k}" for k in range(2 * n))))
        assert link.flush() == {"pending": []}
        assert memory.get_all(**WHO)["total"] == 6
        assert memory.stats()["pending"] == []


@pytest.mark.thorough
def test_at_the_time_limit_the_finished_steps_count(
    memory: Memory, make_memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from graphmem import chat_worker

    model_called, release, wait = Event(), Event(), chat_worker.wait

    class SlowAnswer(OneAnswer):
        def answer(self, prompt: Prompt) -> Reply:
            model_called.set()
            assert release.wait(TIMEOUT), "the test did not release the call"
            return super().answer(prompt)

    def wait_for_model_call(jobs: Any, seconds: float) -> Any:
        """Ends the wait once the model is called, as if the time limit were reached."""
        assert 0 < seconds <= LONG_LIMIT["time_limit"]
        assert model_called.wait(TIMEOUT)
        return wait(jobs, 0)

    memory.add("tea and cake", **WHO)
    set_model(SlowAnswer("tea"), monkeypatch)
    with ChatLink(memory, **WHO, **LONG_LIMIT) as link:
        with monkeypatch.context() as patch:
            patch.setattr(chat_worker, "wait", wait_for_model_call)
            assert "tea and cake" in link.recall("Hm?", make_turns("Hello"), threshold=None)
        release.set()


def test_a_timeout_before_the_first_finished_step_gives_nothing(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    from graphmem import chat_worker

    release = Event()

    def search_slowly(*_: Any) -> None:
        assert release.wait(TIMEOUT), "the test did not release the call"

    monkeypatch.setattr(chat_worker, "search", search_slowly)
    with ChatLink(memory, **WHO, time_limit=0.1) as link:
        assert link.recall("tea") == ""
        release.set()


def test_an_error_keeps_the_hits_of_earlier_steps(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    from graphmem import chat_worker

    search = chat_worker.search

    def search_or_fail(question: Any, stores: Any) -> Any:
        if "\n" in question.text:
            raise StoreError("gone")
        return search(question, stores)

    monkeypatch.setattr(chat_worker, "search", search_or_fail)
    memory.add("tea and cake", **WHO)
    with ChatLink(memory, **WHO, **LONG_LIMIT) as link:
        assert "tea and cake" in link.recall("Hm?", make_turns("Hello"), threshold=None)


BAD = {"user_id": None, "rounds": 0, "time_limit": 0, "rewrite": 1, "rewrite_prompt": 7}


@pytest.mark.parametrize("bad", [{name: value} for name, value in BAD.items()])
def test_unusable_arguments_of_a_link_are_refused(memory: Memory, bad: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ChatLink(memory, **{"user_id": "u1", **bad})


# --- inject() ---------------------------------------------------------------------------------------------------------


def test_the_block_goes_to_the_end_of_the_first_system_message(link: ChatLink) -> None:
    messages = [{"role": "user", "content": "Hi"}, {"role": "system", "content": "Be kind."}]
    assert link.inject(messages, "BLOCK") == [messages[0], {"role": "system", "content": "Be kind.\n\nBLOCK"}]
    assert messages[1]["content"] == "Be kind."
    parts = [{"role": "system", "content": [{"type": "text", "text": "Be kind."}]}]
    assert link.inject(parts, "BLOCK")[0]["content"] == [*parts[0]["content"], {"type": "text", "text": "BLOCK"}]
    assert link.inject([{"role": "system", "content": None}], "BLOCK") == [{"role": "system", "content": "BLOCK"}]


def test_without_a_system_message_the_block_goes_into_a_new_one_in_front(link: ChatLink) -> None:
    messages = make_turns("Hi", "Hello")
    assert link.inject(messages, "BLOCK") == [{"role": "system", "content": "BLOCK"}, *messages]
    assert link.inject(messages, "") == messages
    assert link.inject(messages, "") is not messages


# --- clear and vague questions, with the default models ---------------------------------------------------------------

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
def make_link(make_memory: Callable[..., Memory], monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., ChatLink]]:
    """`make_link(model, *more)`: a link to memories of mixed topics and `more`, with graphmem's own models."""
    memory = make_memory(embedder={"provider": "minilm"}, extractor={"provider": "spacy"})
    links: list[ChatLink] = []

    def open_link(model: Any = None, *more: str) -> ChatLink:
        memory.add([{"role": "user", "content": text} for text in (*NOISE, *more)], user_id="小雨", agent_id="小助手")
        set_model(model, monkeypatch)
        links.append(ChatLink(memory, user_id="小雨", agent_id="小助手", **LONG_LIMIT))
        return links[-1]

    yield open_link
    for link in links:
        link.close()


@SQLITE_ONLY
def test_a_clear_question_the_next_day(make_link: Callable[..., ChatLink]) -> None:
    link = make_link()
    link.saved(make_turns("我海鲜过敏，别推荐海鲜", "好的，记住了，以后不推荐海鲜。"))
    link._memory.flush()
    link._worker._writer.submit(lambda: None).result()
    link._memory.flush()
    assert "海鲜过敏" in link.recall("晚饭推荐什么？")
    assert "海鲜过敏" in link.recall("晚饭推荐什么？", make_turns("早上好", "早上好！今天过得怎么样？"))


@SQLITE_ONLY
def test_a_vague_question_is_searched_with_its_context(make_link: Callable[..., ChatLink]) -> None:
    link = make_link(None, "失眠的时候喝一杯热牛奶对我有用", "上个月也失眠过一次，因为工作压力大")
    turns = make_turns("我昨晚失眠了，三点才睡着", "听起来很累，要不要聊聊？")
    block = link.recall("你今天有什么不一样？", [*turns, *make_turns("你今天有什么不一样？")])
    assert "热牛奶" in block
    assert "也失眠过一次" in block


@SQLITE_ONLY
def test_a_vague_question_is_rewritten(make_link: Callable[..., ChatLink]) -> None:
    model = OneAnswer("用户昨晚失眠，询问今天状态有何变化\n")
    link = make_link(model, "失眠的时候喝一杯热牛奶对我有用")
    question, turns = "你今天有什么不一样？", make_turns("翻来覆去到天亮，眼睛都没合上", "哎呀，辛苦你了")
    assert "热牛奶" in link.recall(question, turns, top_k=2)
    (prompt,) = model.requests
    assert json.loads(prompt.user) == {
        "user_name": "小雨",
        "char_name": "小助手",
        "user_question": question,
        "recent_conversation": "小雨: 翻来覆去到天亮，眼睛都没合上\n小助手: 哎呀，辛苦你了",
    }
    model.reply = LLMUnavailable("away")
    assert "热牛奶" not in link.recall(question, turns)  # it matches neither the question nor its turns
    assert link.recall(question, turns, threshold=None)
    with ChatLink(link._memory, user_id="小雨", agent_id="小助手", rewrite=False, **LONG_LIMIT) as other:
        assert other.recall(question, turns, threshold=None)
    assert len(model.requests) == 3


@SQLITE_ONLY
def test_a_clear_chinese_question_is_not_rewritten(make_link: Callable[..., ChatLink]) -> None:
    model = OneAnswer("never asked")
    link = make_link(model, "我海鲜过敏，别推荐海鲜", "下午一般不喝咖啡")
    turns = make_turns("早上好", "早上好！今天过得怎么样？")
    for question, word in {
        "晚饭推荐什么？": "海鲜过敏",
        "旅行要去哪个城市？": "成都",
        "面试是哪一天？": "周三",
        "我的猫几岁了？": "五岁",
    }.items():
        block = link.recall(question, turns)
        assert word in block
        assert "吉他" not in block
    assert model.requests == []
    link.recall("那件事后来怎么样了？", turns)
    assert len(model.requests) == 1


def test_an_unusable_message_does_not_prevent_saving_the_others(memory: Memory) -> None:
    with ChatLink(memory, user_id="u1", user_name="Ana", **LONG_LIMIT) as link:
        messages: list[Any] = [{"role": "user", "content": "I live in Faro."}, None, "Hello", 7]
        for n in range(2):
            messages += [{"role": "user", "content": f"Round {n}."}, {"role": "assistant", "content": "Fine."}]
            link.saved(messages)
        link.flush()
    texts = [one["memory"] for one in memory.get_all(user_id="u1", kinds="episode")["results"]]
    assert sorted(texts) == ["Fine.", "Fine.", "I live in Faro.", "Round 0.", "Round 1."]
