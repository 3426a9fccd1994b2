"""Weak questions: "and how did that turn out?" finds little by itself. Each step costs more and is taken if needed.

1. the question as it is;
2. with the last turns of the conversation in front;
3. rewritten by a language model into a query that stands for itself.

A step has found enough if what it asked names something that memories mention, or if one of its hits shares enough
words with it, or is near enough in meaning. Nearness counts only where the embedder reads the language.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from graphmem import prompts
from graphmem.errors import LLMError
from graphmem.model import Message
from graphmem.models.protocols import LanguageModel, Prompt
from graphmem.retrieval import term_overlap
from graphmem.retrieval.types import Hit, SearchOutcome

# Of the query with the last turns in front: a longer one is about everything.
MAX_QUERY_CHARS = 1200
REWRITE_SECONDS = 2.5
# For a step to be worth beginning: what a search takes.
SEARCH_SECONDS = 0.25
MAX_REWRITE_CHARS = 400

_FENCE = re.compile(r"\s*```")
_MARKS = re.compile(r"^\s*(?:[-*•>#]+\s+|\d+[.)]\s+)")
# What models write in front of a query, or in a line that announces it: a row of such words, and a colon.
_LABEL = re.compile(
    r"^(?:(?:(?:here(?: is|['’]s)|the|an?|my|your|self-contained|stand-?alone|final|new|improved|search|user|memory"
    r"|retrieval|rewritten|rewrite|rephrased|reformulated|query|question|output|answer|result|version)(?![^\W_])"
    r"[ _-]*)+"
    r"|(?:改写|改寫|重写|重寫|查询|查詢|检索|檢索|搜索|搜尋|问题|問題|问句|問句|语句|語句|句|词|詞|结果|結果|输出|輸出|答案"
    r"|用户|用戶|自包含|独立|獨立|语义|語義|后|後|的|为|為|是|如下|query)+)[*_\s]*[:：]\s*",
    re.IGNORECASE,
)
_QUOTES = "\"'`“”‘’«»「」『』*_ "


@dataclass(frozen=True, slots=True)
class ConversationQuery:
    """A question in its conversation. `recent` are the turns before it, oldest first.

    `prompt` stands in for ours, which says how a question is to be rewritten. `only_related`: whether hits that have
    nothing to do with what is asked are left out.
    """

    question: str
    recent: Sequence[Message] = ()
    user_name: str = ""
    char_name: str = ""
    prompt: str | None = None
    only_related: bool = True


@dataclass(frozen=True, slots=True)
class FallbackStep:
    """What there is after a step of the ladder: all hits so far, best first; `query` is what this step asked."""

    query: str
    hits: tuple[Hit, ...]
    is_sufficient: bool


def search_with_fallback(
    asking: ConversationQuery,
    find: Callable[[str], SearchOutcome],
    model: LanguageModel | None,
    left: Callable[[], float],
) -> Iterator[FallbackStep]:
    """Yields what is found after each step that is taken; the last one stands. `left` gives the seconds left.

    Where nothing at all is found there is nothing, and no further step would find it. A model that fails or is too slow
    ends it, without a word. Raises what `find` raises.
    """
    found: list[SearchOutcome] = []
    for query in _queries(asking, model, left):
        answer = find(query)
        found.append(answer)
        enough = is_sufficient(answer)
        yield FallbackStep(query, interleave([answer] if enough else found, only_related=asking.only_related), enough)
        if enough or not answer.hits:
            return


def _queries(asking: ConversationQuery, model: LanguageModel | None, left: Callable[[], float]) -> Iterator[str]:
    """The queries of the steps, each made when it is its turn."""
    seen = {asking.question}
    yield asking.question
    with_before = prepend_turns(asking.question, asking.recent)
    if with_before not in seen and left() > SEARCH_SECONDS:
        seen.add(with_before)
        yield with_before
    rewritten = "" if model is None else _rewritten(asking, model, left() - SEARCH_SECONDS)
    if rewritten and rewritten not in seen and left() > 0:
        yield rewritten


def is_sufficient(answer: SearchOutcome) -> bool:
    """Whether a step has found what was asked for, by the rule above."""
    if not answer.hits:
        return False
    return bool(answer.named) or any(
        term_overlap.is_relevant(hit.term_overlap, hit.similarity, is_supported_script=answer.is_supported_script)
        for hit in answer.hits
    )


def interleave(answers: Sequence[SearchOutcome], *, only_related: bool = True) -> tuple[Hit, ...]:
    """The hits of steps none of which found enough, each once: of each step the best, then of each the next.

    The last step knows best what is meant, so it comes first. A question without a word that names something counts
    only as long as there is none that has one, unless everything is wanted.
    """
    if only_related:
        told = [answer for answer in answers if answer.has_query_terms] or answers
        some = [answer.related for answer in told]
    else:
        some = [answer.hits for answer in answers]
    rows = zip_longest(*reversed(some))
    return tuple({hit.record.id: hit for row in rows for hit in row if hit is not None}.values())


def prepend_turns(question: str, recent: Sequence[Message], most: int = MAX_QUERY_CHARS) -> str:
    """The question with the last turns in front, at most `most` characters; the newest turns are kept whole.

    Of a newest turn that is too long by itself the end is kept. Roles and "User question:" bring nothing here, and the
    latter costs recall (`benchmarks/ABLATIONS.md`, "Enough").
    """
    room, turns = most - len(question), list[str]()
    for message in reversed(recent):
        room -= len(message.content) + 1
        if room < 0:
            break
        turns.insert(0, message.content)
    if not turns and recent and (room := most - len(question) - 1) > 0:
        turns = [recent[-1].content[-room:]]
    return "\n".join([*turns, question])[-most:]


def rewrite_prompt(asking: ConversationQuery, seconds: float) -> Prompt:
    """What the model is asked: the conversation as data."""
    names = {"user": asking.user_name, "assistant": asking.char_name}
    said = (
        f"{message.name or names.get(message.role) or message.role}: {message.content}" for message in asking.recent
    )
    asked = {
        "user_name": asking.user_name,
        "char_name": asking.char_name,
        "user_question": asking.question,
        "recent_conversation": "\n".join(said)[-MAX_QUERY_CHARS:],
    }
    system = asking.prompt or prompts.load("rewrite")
    return Prompt("rewrite", system, json.dumps(asked, ensure_ascii=False), timeout=seconds)


def _rewritten(asking: ConversationQuery, model: LanguageModel, seconds: float) -> str:
    if seconds < SEARCH_SECONDS:
        return ""
    try:
        return clean_rewrite(model.answer(rewrite_prompt(asking, min(seconds, REWRITE_SECONDS))).value)
    except LLMError:
        return ""


def clean_rewrite(value: object) -> str:
    """A model's answer as a query: its first line with words in it, without what models put around such a line."""
    lines = value.splitlines() if isinstance(value, str) else []
    told = (_bare(line) for line in lines if not _FENCE.match(line))
    # "Here is the query:" announces the line that is meant.
    found = [line for line in told if line]
    return next((line for line in found if not line.endswith((":", "："))), "")[:MAX_REWRITE_CHARS]


def _bare(line: str) -> str:
    return _LABEL.sub("", _MARKS.sub("", line).strip(_QUOTES)).strip(_QUOTES)
