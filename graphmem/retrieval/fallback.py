"""The fallback of `ChatLink.recall`: queries again if a query ("and how did that turn out?") finds too little.

Each query costs more than the one before and is tried only if that was insufficient:

1. the query as it is;
2. with the last messages of the conversation in front, if it may depend on them (`dependence`): a query that can be
   understood by itself would only find what was talked about before it;
3. rewritten by a language model into a query that can be understood without the conversation.

A search is sufficient (`is_sufficient`) if its query names an entity that memories mention, or if one of its hits has
a relevance of at least `SUFFICIENT` (benchmarks/ABLATIONS.md, "Enough").
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from time import monotonic
from typing import Literal

from graphmem import prompts
from graphmem.errors import LLMError, LLMUnavailable
from graphmem.model import Message
from graphmem.plugins import LanguageModel, Prompt
from graphmem.retrieval.dependence import depends_on_conversation
from graphmem.retrieval.types import Hit, SearchOutcome

# The relevance of a hit from which on no further query is needed, and of one that may be the answer all the same if the
# subject has changed: then what was said just before would find what is not asked any more.
SUFFICIENT, PLAUSIBLE = 0.55, 0.25
# Characters of a query with the last messages in front: a longer one matches everything.
MAX_QUERY_CHARS = 1200
# The name of the prompt template.
REWRITE = "rewrite"
# The timeout of the language model.
REWRITE_SECONDS = 2.5
# The time that a search takes: the second query is tried only with more left, a rewrite only with twice as much.
SEARCH_SECONDS = 0.25
# Characters of a rewritten query.
MAX_REWRITE_CHARS = 400

_FENCE = re.compile(r"\s*```")
_LIST_MARK = re.compile(r"^\s*(?:[-*•>#]+\s+|\d+[.)]\s+)")
# A label that models put before a query or on a line of its own: a row of such words and a colon.
_LABEL = re.compile(
    r"^(?:(?:(?:here(?: is|['’]s)|the|an?|my|your|self-contained|stand-?alone|final|new|improved|search|user|memory"
    r"|retrieval|rewritten|rewrite|rephrased|reformulated|query|question|output|answer|result|version)(?![^\W_])"
    r"[ _-]*)+"
    r"|(?:改写|改寫|重写|重寫|查询|查詢|检索|檢索|搜索|搜尋|问题|問題|问句|問句|语句|語句|句|词|詞|结果|結果|输出|輸出|答案"
    r"|用户|用戶|自包含|独立|獨立|语义|語義|后|後|的|为|為|是|如下|query)+)[*_\s]*[:：]\s*",
    re.IGNORECASE,
)
# How a query is made of the conversation, in the order of the module's list.
QueryKind = Literal["question", "conversation", "rewrite"]
# Why there is no rewritten query: the language model was too slow, or no time was left for it; it failed or refused; or
# its answer had no other query.
RewriteFailure = Literal["timeout", "failed", "no_query"]

_QUOTES = "\"'`“”‘’«»「」『』*_ "


@dataclass(frozen=True, slots=True)
class ConversationQuery:
    """A query (`question`) with its conversation: `recent` has the messages before it, oldest first.

    `prompt` replaces the prompt template "rewrite" (None: the package's own).
    """

    question: str
    recent: Sequence[Message] = ()
    user_name: str = ""
    char_name: str = ""
    prompt: str | None = None


@dataclass(frozen=True, slots=True)
class FallbackStep:
    """The result after one of the queries: `query` is this query, `hits` are best first.

    The hits are those of this query if it is sufficient, with the plausible ones of the question alone, else those of
    all queries so far (`interleave`). `relevance`
    is the highest of what this query found, None if it found nothing. `seconds`: how long making the query and
    searching took.
    """

    kind: QueryKind
    query: str
    hits: tuple[Hit, ...]
    is_sufficient: bool
    relevance: float | None
    seconds: float


def search_with_fallback(
    conversation: ConversationQuery,
    search: Callable[[str], SearchOutcome],
    model: LanguageModel | None,
    seconds_left: Callable[[], float],
    on_rewrite_failure: Callable[[RewriteFailure], None] = lambda _: None,
) -> Iterator[FallbackStep]:
    """Searches by one query after the other and yields the result after each; the last one is final.

    Ends with the first sufficient query, with one that finds nothing at all, or when `seconds_left()` is used up. If a
    language model gives no rewritten query, that step is left out, and `on_rewrite_failure` is called. Raises as
    `search` does.
    """
    outcomes: list[SearchOutcome] = []
    begin = monotonic()
    for kind, query in _queries(conversation, model, seconds_left, on_rewrite_failure):
        outcome = search(query)
        outcomes.append(outcome)
        enough = is_sufficient(outcome)
        shown = outcomes
        if enough and len(outcomes) > 1:
            # Of the searches before only the first, that by the question alone, with hits that may answer it.
            alone = outcomes[0]
            plausible = tuple(hit for hit in alone.hits if hit.relevance >= PLAUSIBLE)
            shown = [replace(alone, hits=plausible), outcome]
        yield FallbackStep(kind, query, interleave(shown), enough, outcome.best_relevance, monotonic() - begin)
        if enough or outcome.best_relevance is None:
            return
        begin = monotonic()


def _queries(
    conversation: ConversationQuery,
    model: LanguageModel | None,
    seconds_left: Callable[[], float],
    on_rewrite_failure: Callable[[RewriteFailure], None],
) -> Iterator[tuple[QueryKind, str]]:
    """Yields the queries; each is made only when it is needed."""
    tried = {conversation.question}
    yield "question", conversation.question
    if depends_on_conversation(conversation.question):
        with_turns = prepend_turns(conversation.question, conversation.recent)
        if with_turns not in tried and seconds_left() > SEARCH_SECONDS:
            tried.add(with_turns)
            yield "conversation", with_turns
    if model is None:
        return
    try:
        if (seconds := seconds_left() - SEARCH_SECONDS) < SEARCH_SECONDS:
            raise LLMUnavailable("no time is left for the language model", is_timeout=True)
        answer = model.answer(rewrite_prompt(conversation, min(seconds, REWRITE_SECONDS)))
        rewritten = clean_rewrite(answer.value)
    except LLMError as error:
        on_rewrite_failure("timeout" if isinstance(error, LLMUnavailable) and error.is_timeout else "failed")
        return
    if not rewritten or rewritten in tried:
        on_rewrite_failure("no_query")
    elif seconds_left() <= 0:
        on_rewrite_failure("timeout")
    else:
        yield "rewrite", rewritten


def is_sufficient(outcome: SearchOutcome) -> bool:
    """Whether a search answered its query, by the rule of this module."""
    return bool(outcome.hits) and (bool(outcome.named) or any(hit.relevance >= SUFFICIENT for hit in outcome.hits))


def interleave(outcomes: Sequence[SearchOutcome]) -> tuple[Hit, ...]:
    """Merges the hits of insufficient searches, each memory once: the best of each, then the second of each.

    The last search comes first, as its query says most clearly what is meant.
    """
    ranks = zip_longest(*(outcome.hits for outcome in reversed(outcomes)))
    return tuple({hit.record.id: hit for rank in ranks for hit in rank if hit is not None}.values())


def without_turns(outcome: SearchOutcome, turns: Iterable[Message]) -> SearchOutcome:
    """Returns a search by a query with these turns in front, without hits that are the turns themselves."""
    said = {" ".join(turn.content.split()) for turn in turns}
    return replace(outcome, hits=tuple(hit for hit in outcome.hits if " ".join(hit.record.text.split()) not in said))


def prepend_turns(question: str, recent: Sequence[Message], max_chars: int = MAX_QUERY_CHARS) -> str:
    """Returns the query with the last messages in front, one to a line, at most `max_chars` characters.

    Takes as many of the newest messages as fit whole; if the newest does not fit, its last characters. Adding the roles
    gains nothing, and adding the label "User question:" costs recall (benchmarks/ABLATIONS.md, "Enough").
    """
    room, turns = max_chars - len(question), list[str]()
    for message in reversed(recent):
        room -= len(message.content) + 1
        if room < 0:
            break
        turns.insert(0, message.content)
    if not turns and recent and (room := max_chars - len(question) - 1) > 0:
        turns = [recent[-1].content[-room:]]
    return "\n".join([*turns, question])[-max_chars:]


def rewrite_prompt(conversation: ConversationQuery, seconds: float) -> Prompt:
    """Returns the prompt that asks for a rewritten query; the conversation stands in it as JSON, as data."""
    names = {"user": conversation.user_name, "assistant": conversation.char_name}
    lines = (
        f"{message.name or names.get(message.role) or message.role}: {message.content}"
        for message in conversation.recent
    )
    data = {
        "user_name": conversation.user_name,
        "char_name": conversation.char_name,
        "user_question": conversation.question,
        "recent_conversation": "\n".join(lines)[-MAX_QUERY_CHARS:],
    }
    system = conversation.prompt or prompts.load(REWRITE)
    return Prompt(REWRITE, system, json.dumps(data, ensure_ascii=False), timeout=seconds)


def clean_rewrite(value: object) -> str:
    """Returns the query in a model's answer: its first line of words, without list marks, labels and quotes.

    "" if there is none. At most `MAX_REWRITE_CHARS` characters.
    """
    lines = value.splitlines() if isinstance(value, str) else []
    without_marks = (_LIST_MARK.sub("", line).strip(_QUOTES) for line in lines if not _FENCE.match(line))
    bare_lines = (_LABEL.sub("", line).strip(_QUOTES) for line in without_marks)
    # A line that ends with a colon ("Here is the query:") announces the query.
    queries = (line for line in bare_lines if line and not line.endswith((":", "：")))
    return next(queries, "")[:MAX_REWRITE_CHARS]
