"""Memories for the page as people have them: two languages, facts with their sources and a history, a path of three."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from graphmem import Memory, Settings
from graphmem.cli.demo import messages
from graphmem.testing import ModelEndpoint
from support.facts import fact, source_message

USER = "Maya"
QUESTION = "What favour could we ask of whoever owns the Old Brewery?"
CONCERT = "The concert is on Saturday, 21 June, at eight."
CONCERT_NOW = "The summer concert is on Saturday, 28 June, at eight, in the Old Brewery."
_CHINESE = (
    ("2025-06-09T21:02:00+02:00", "我对花生过敏，演出那晚的点心请提前问一下厨房。"),
    ("2025-06-09T21:14:00+02:00", "彩排改到周四晚上七点，二楼的小排练厅，记得带谱架。"),
)


# A question that needs all three steps, after these last turns; a model's words for it.
TURNS = ("My cello is healed! Bela Moravec glued the crack.", "That is good news, Ines.")
VAGUE_QUESTION = "And where does he live now?"
REWRITTEN_QUESTION = "In which town does Bela Moravec, who repaired Ines's cello, live now?"


@contextmanager
def story_memory(home: str) -> Iterator[Memory]:
    """A memory in a folder, with a language model that rewrites the vague question."""
    with ModelEndpoint(default=REWRITTEN_QUESTION) as endpoint:
        config = {"openai_base_url": endpoint.url, "api_key": "any", "model": "test-model"}
        lifecycle = {"enabled": True, "since": "2020-01-01", "daily_at": "never"}
        settings = Settings.from_dict({"llm": {"provider": "openai", "config": config}, "lifecycle": lifecycle})
        with Memory(home, settings=settings) as memory:
            yield memory


def tell_story(memory: Memory) -> None:
    """Stores the conversation of the demo, two messages in Chinese, and a fact that was changed twice."""
    memory.add(list(messages()), user_id=USER, infer=False)
    for at, words in _CHINESE:
        memory.add([{"role": "user", "name": "林晓", "content": words}], user_id=USER, timestamp=at, infer=False)
    march, june = "2025-03-03T12:30:00+00:00", "2025-06-02T20:41:00+00:00"
    sources = [
        source_message(memory, "Then the date stands: the concert is on Saturday, 21 June.", user_id=USER, at=march),
        source_message(memory, "The brewery has a wedding on the 21st. We play a week later.", user_id=USER, at=june),
    ]
    uid = fact(memory, CONCERT, *sources, user_id=USER, at=june)
    for words in (
        "The summer concert is on Saturday, 28 June, at eight.",
        CONCERT_NOW,
    ):
        memory.update(uid, words, user_id=USER)
    memory.flush()
