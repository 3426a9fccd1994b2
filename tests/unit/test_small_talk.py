"""Messages that only greet, thank, take leave or nod, and those that look like one and ask or tell something."""

from __future__ import annotations

from time import perf_counter

import pytest

from graphmem.retrieval.small_talk import MAX_SMALL_TALK_CHARS, is_small_talk


@pytest.mark.parametrize(
    "text",
    [
        "hi",
        "Hi there 👋",
        "good morning!",
        "GOOD MORNING",
        "Hello, hello!",
        "Thanks a lot!",
        "OK, thanks :)",
        "How’s it going?",
        "Thanks. Bye!",
        "你好",
        "早上好！",
        "谢谢你啦",
        "謝謝",
        "好的，谢谢",
        "嗯嗯",
        "guten Morgen",
        "Danke!",
        "GRÜSS GOTT",
        "bonjour",
        "D’accord, merci",
        "¡Hola!",
        "Buenos días",
        "grazie mille",
        "こんにちは",
        "안녕하세요!",
        "Спасибо!",
    ],
)
def test_a_greeting_asks_nothing(text: str) -> None:
    assert is_small_talk(text)


@pytest.mark.parametrize(
    "text",
    [
        "good morning, what did I plan for today?",
        "hi Bob",
        "morning run",
        "Ty",
        "Morgen?",
        "Vale",
        "What's up with Clara?",
        "ok go",
        "yes",
        "no",
        "Hm?",
        "Great Britain",
        "nice restaurant?",
        "早上吃什么",
        "早餐",
        "好吃吗",
        "你好奇吗",
        "明天见谁",
        "bis morgen Abend?",
        "¿Vale la pena?",
        "",
        "?",
        "👋",
    ],
)
def test_what_asks_or_tells_something_is_no_greeting(text: str) -> None:
    assert not is_small_talk(text)


@pytest.mark.parametrize("one", ["嗯", "哈", "早", "好吧", "ok ", "hi hi there "])
def test_a_long_row_of_greetings_is_read_at_once(one: str) -> None:
    begin = perf_counter()
    assert not is_small_talk((one * MAX_SMALL_TALK_CHARS)[: MAX_SMALL_TALK_CHARS - 1] + "x")
    assert perf_counter() - begin < 1
