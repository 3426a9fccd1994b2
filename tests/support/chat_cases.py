"""Chats whose questions take one, two and three steps of a recall: a clear one, a vague one, and one to be rewritten.

`memories` and `turns` are words of the user and the assistant in turn. `clear` is a question with a word of the memory
that answers it; after `turns`, `vague` finds `found`; after `indirect` only `rewritten` does.
"""

from __future__ import annotations

from typing import Any

CASES: dict[str, dict[str, Any]] = {
    "zh": {
        "memories": [
            "我海鲜过敏，别推荐海鲜",
            "失眠的时候喝一杯热牛奶对我有用",
            "我家的猫今年五岁了",
            "周三有一场面试",
        ],
        "clear": ("晚饭推荐什么？", "海鲜过敏"),
        "vague": "你今天有什么不一样？",
        "turns": ["我昨晚失眠了，三点才睡着", "听起来很累，要不要聊聊？"],
        "indirect": ["翻来覆去到天亮，眼睛都没合上", "哎呀，辛苦你了"],
        "rewritten": "用户昨晚失眠，询问今天状态有何变化",
        "found": "热牛奶",
    },
    "en": {
        "memories": ["I am allergic to shellfish", "Warm milk helps me with insomnia", "My cat is five years old"],
        "clear": ("Am I allergic to shellfish?", "allergic"),
        "vague": "And what about it?",
        "turns": ["I had insomnia last night", "That sounds exhausting."],
        "indirect": ["I was awake until dawn", "Oh dear."],
        "rewritten": "What helps the user with insomnia?",
        "found": "Warm milk",
    },
}
