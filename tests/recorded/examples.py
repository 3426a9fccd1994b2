"""mem0's worked examples of decisions: stored memories, new facts, and the expected memories afterwards.

From mem0's prompt for updates, as two articles about it print it (in Chinese, and shortened in English).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Example:
    """`expected_texts`: the text of each memory afterwards, None if it is deleted; `added_texts`: those of new ones."""

    name: str
    memories: tuple[str, ...]
    facts: tuple[str, ...]
    expected_texts: tuple[str | None, ...]
    added_texts: tuple[str, ...] = ()


EXAMPLES = [
    Example("ADD", ("用户是一名软件工程师",), ("名字是John",), ("用户是一名软件工程师",), ("名字是John",)),
    Example(
        "UPDATE",
        ("我真的很喜欢奶酪披萨", "用户是一名软件工程师", "用户喜欢打板球"),
        ("爱吃鸡肉披萨", "喜欢和朋友一起打板球"),
        ("爱吃奶酪和鸡肉披萨", "用户是一名软件工程师", "喜欢和朋友一起打板球"),
    ),
    Example("DELETE", ("名字是John", "爱吃奶酪披萨"), ("不喜欢奶酪披萨",), ("名字是John", None)),
    Example("NONE", ("名字是John", "爱吃奶酪披萨"), ("名字是John",), ("名字是John", "爱吃奶酪披萨")),
    Example(
        "UPDATE in English",
        ("User likes to play cricket",),
        ("Loves to play cricket with friends",),
        ("Loves to play cricket with friends",),
    ),
    Example("NONE in English", ("Likes cheese pizza",), ("Loves cheese pizza",), ("Likes cheese pizza",)),
    Example("DELETE in English", ("Loves cheese pizza",), ("Dislikes cheese pizza",), (None,)),
]
