"""Requests to an assistant, and texts that look like one and say something."""

from __future__ import annotations

import pytest

from graphmem.retrieval.requests_to_assistant import MAX_REQUEST_CHARS, asks_for_requests, is_request


@pytest.mark.parametrize(
    "text",
    [
        "Tell me a joke",
        "Tell me another joke about cats, please!",
        "Write me an email to my landlord about the heating.",
        "write an essay on the French Revolution",
        "Hi! Could you please translate this into German: Where is the station?",
        "Can you make a list of good podcasts?",
        "I'd like you to draft a cover letter.",
        "Please summarise the following article.",
        "Explain monads. What are they good for? Thanks!",
        "Suggest what I should cook tonight.",
        "Give me five ideas for a birthday present",
        "Help me with this sentence.",
        "给我讲个笑话",
        "请帮我写一封邮件给老板。",
        "你能推荐几本书吗？",
        "帮我翻译一下这句话，谢谢！",
        "把这句话翻译成英文",
        "写一首关于秋天的诗",
        "請幫我寫一封信",
        "告诉我怎么做红烧肉",
    ],
)
def test_a_request_to_the_assistant_tells_nothing(text: str) -> None:
    assert is_request(text)


@pytest.mark.parametrize(
    "text",
    [
        "Remember that I am allergic to nuts.",
        "Please remember my sister's birthday, the 3rd of May.",
        "Call me Bo",
        "Remind me that the rent is due on the 5th",
        "Always answer in French.",
        "Give me short answers.",
        "Write me shorter mails from now on.",
        "Tell me a joke. I'm in the hospital.",
        "Suggest a dinner, I'm allergic to nuts.",
        "Write an email to my boss Anna.",
        "Write a card for Hannah, who turns forty on Friday.",
        "Recommend a toy: my daughter is three.",
        "Book a table at Noma for Friday.",
        "Make sure the door is locked.",
        "Give me an old noir over any blockbuster.",
        "跟我说话请一律用英文",
        "I write novels.",
        "You write well.",
        "My brother tells me jokes.",
        "What is the capital of France?",
        "Let me know when you are in Oslo.",
        "记住我对花生过敏",
        "叫我小波",
        "提醒我五号交房租",
        "以后给我写短一点",
        "帮我写封信，我住院了。",
        "写代码是我的工作",
        "他给我讲了个笑话",
        "我写了一首诗",
        "",
        "Write a summary of this: " + "Bergen is wet. " * (MAX_REQUEST_CHARS // 10),
    ],
)
def test_a_text_that_tells_something_is_no_request(text: str) -> None:
    assert not is_request(text)


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("What did I ask you to write?", True),
        ("Which jokes have I requested so far?", True),
        ("What was the letter that I had you draft?", True),
        ("Can you tell me what I asked last week?", True),
        ("我让你写过什么？", True),
        ("我上次问了什么？", True),
        ("Which jokes do you know?", False),
        ("What should I write?", False),
        ("Write an email asking for a refund", False),
        ("给我写一首诗", False),
        ("我在哪里工作？", False),
    ],
)
def test_a_query_for_requests_is_recognised(query: str, wanted: bool) -> None:
    assert asks_for_requests(query) is wanted
