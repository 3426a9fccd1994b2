"""Lives a person's year with the lifecycle on and off, and asks at the end of each month what is still found.

Messages enter by `Memory.import_`, day by day, and each night a cycle runs. The questions are asked of the memory with
the lifecycle, of one without, and of the newest memories of the latter, as many as the former shows. No search of the
benchmark counts as an access.

A model that answers with words of the memories it is shown counts the requests and tokens of cycles where there is no
language model: requests are those that a model would get, word for word, and its answers are about as long as they may
be. How good the texts are that a model makes cannot be told from it.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import Any

from sqlalchemy import and_, or_, select

from graphmem.atomic_files import replace_file
from graphmem.boundary import filters, validation
from graphmem.commands.lifecycle import COMPRESSES, MADE_OF
from graphmem.commands.types import OutcomeType
from graphmem.evaluation.runner import refuse_degraded
from graphmem.evaluation.year import DAYS, FACT, FIRST_DAY, GONE, OLD_EVENT, PREFERENCE, Message, Question, Texts, Year
from graphmem.ingest.facts.compositions import MOST_WORDS, without_times
from graphmem.ingest.facts.summaries import MAX_SUMMARY_CHARS
from graphmem.lifecycle.decay import MERGED_INTO, SAYS_WHAT_OTHERS_SAY, Operation, keeping_rule
from graphmem.memory import Memory
from graphmem.model import Kind, Scope, View
from graphmem.plugins import Prompt, Reply, Usage
from graphmem.retrieval.pipeline import search
from graphmem.retrieval.types import SearchQuery
from graphmem.settings import Settings
from graphmem.settings.schema import NEVER
from graphmem.stores.ledger import memories
from graphmem.stores.ledger.schema import events
from graphmem.text import approximate_length, estimate_tokens, is_unspaced

TOP_K = 10
# The hour of the night at which a cycle runs, on the next day.
NIGHT = timedelta(hours=3)
PURGE_AFTER_DAYS, NO_PROMOTION_DAYS = 30, 3650
# Searches run during the cycle of each so many nights: a cycle that gives way to them takes several times as long.
SEARCHED_NIGHTS = 5
# Why a question is not answered though no cycle forgot its answer.
NOT_AMONG_HITS = "still visible, and not among the hits"
# What is to be remembered for good.
STANDING = (FACT, PREFERENCE, OLD_EVENT)
ON, OFF, EQUAL = "on", "off", "equal"
Progress = Callable[[str, int, int], None]
# What an abstraction begins with, as it may not be what one of the memories says.
AGAIN, AGAIN_UNSPACED = "Repeatedly: ", "常常："


@dataclass(frozen=True, slots=True)
class Arguments:
    """What is measured: how many days and persons of each language, from which seed, and whether cycles promote.

    `quoting`: a `QuotingModel` stands in for a language model.
    """

    days: int = DAYS
    persons: int = 5
    seed: int = 1
    promotion: bool = True
    quoting: bool = False


@dataclass(slots=True)
class _Nights:
    """What the nights of a year did: counts, why memories were forgotten by id, milliseconds of cycles and searches.

    `taken_in` and `results` have the bytes of merged memories and of those that stand for them, by id; `made` has those
    of each memory that a cycle made of others (`_made`).
    """

    counts: Counter[str] = field(default_factory=Counter)
    reasons: dict[str, str] = field(default_factory=dict)
    taken_in: dict[str, int] = field(default_factory=dict)
    results: dict[str, int] = field(default_factory=dict)
    made: list[tuple[list[int], int]] = field(default_factory=list)
    cycle_ms: list[float] = field(default_factory=list)
    during_ms: list[float] = field(default_factory=list)
    alone_ms: list[float] = field(default_factory=list)


def run(texts: Sequence[Texts], settings: Settings, arguments: Arguments, home: Path | None, progress: Progress) -> Any:
    """Lives the years of all persons. Returns the outcome of each, in order.

    With `home` outcomes are kept there, and those of an earlier run with the same arguments are taken from there.
    Raises ValidationError for more persons than the texts are enough for.
    """
    most = min(one.persons for one in texts)
    validation.count(arguments.persons, "personas", 1, most)
    validation.count(arguments.days, "days", 1, DAYS)
    outcomes = []
    for of_language in texts:
        for person in range(arguments.persons):
            year = Year(of_language, person, arguments.seed)
            conditions = {
                "days": arguments.days,
                "seed": arguments.seed,
                "promotion": arguments.promotion,
                "texts": of_language.source.sha256,
                "lifecycle": settings.lifecycle.model_dump(mode="json"),
                "model": model_name(settings, arguments),
            }
            file = None if home is None else home / f"{year.name}.json"
            outcome = None if file is None else _kept(file, conditions)
            if outcome is None:
                outcome = {"conditions": conditions, **live(year, settings, arguments, progress)}
                if file is not None:
                    file.parent.mkdir(parents=True, exist_ok=True)
                    with replace_file(file) as write:
                        write(json.dumps(outcome, ensure_ascii=False).encode())
            outcomes.append(outcome)
    return outcomes


def model_name(settings: Settings, arguments: Arguments) -> str | None:
    """Returns the name of the language model of the cycles, None without one."""
    if arguments.quoting:
        return QuotingModel.name
    return None if settings.llm is None else settings.llm.config.model


def _kept(file: Path, conditions: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns the outcome in a file, None if there is none or it is one of other conditions."""
    try:
        outcome = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return outcome if isinstance(outcome, dict) and outcome.get("conditions") == conditions else None


def live(year: Year, settings: Settings, arguments: Arguments, progress: Progress) -> dict[str, Any]:
    """Lives a year in two memories in temporary folders. Returns the figures of each month and of the whole time."""
    began = time.perf_counter()
    without = settings.model_copy(
        update={"lifecycle": settings.lifecycle.model_copy(update={"enabled": False}), "llm": None}
    )
    nights, months, stored, asked_before = _Nights(), [], 0, Counter[str]()
    with (
        TemporaryDirectory(prefix="graphmem-") as on_folder,
        TemporaryDirectory(prefix="graphmem-") as off_folder,
        Memory(
            on_folder,
            settings=_with_lifecycle(settings, promotion=arguments.promotion),
            llm=QuotingModel() if arguments.quoting else None,
        ) as on,
        Memory(off_folder, settings=without) as off,
    ):
        asked = cycle([question.text for question in year.questions(DAYS - 1) if question.group != GONE])
        uids = {message.number: _uid(year, message) for message in year.messages}
        rules = settings.lifecycle.read_rules()
        weighty = frozenset(message.number for message in year.messages if keeping_rule(rules, message.text))
        words = {uids[message.number]: message.text for message in year.messages}
        for day in range(arguments.days):
            today = [message for message in year.messages if message.day == day]
            on.import_(_records(year, today))
            on.flush()
            _night(on, year.name, day, asked, words, nights)
            if day in _month_ends(arguments.days):
                told = [message for message in year.messages if message.day <= day]
                off.import_(_records(year, told[stored:]))
                off.flush()
                stored = len(told)
                month = _month(year, day, told, (on, on_folder), (off, off_folder), uids, nights, weighty)
                requested = _requested(on)
                months.append({**month, "model": dict(requested - asked_before)})
                asked_before = requested
            progress(year.name, day + 1, arguments.days)
    return {
        "person": year.name,
        "language": year.language,
        "seconds": round(time.perf_counter() - began, 1),
        "months": months,
        "nights": {
            "counts": dict(nights.counts),
            "reasons": dict(Counter(_kind(reason) for reason in nights.reasons.values())),
            "taken_in": _sizes(nights.taken_in.values()),
            "results": _sizes(nights.results.values()),
            "made": {
                "sources": _sizes([size for sources, _ in nights.made for size in sources]),
                "results": _sizes([size for _, size in nights.made]),
            },
            "cycle_ms": nights.cycle_ms,
            "during_ms": nights.during_ms,
            "alone_ms": nights.alone_ms,
        },
    }


def _with_lifecycle(settings: Settings, *, promotion: bool) -> Settings:
    changed: dict[str, Any] = {"enabled": True, "daily_at": NEVER, "since": FIRST_DAY.isoformat()}
    if settings.lifecycle.purge_after_days is None:
        changed["purge_after_days"] = PURGE_AFTER_DAYS
    if not promotion:
        changed["promote_after_days"] = NO_PROMOTION_DAYS
    return settings.model_copy(update={"lifecycle": settings.lifecycle.model_copy(update=changed)})


def _month_ends(days: int) -> set[int]:
    """Returns the last days of all months that end within the first `days`, and the last of these."""
    every = (FIRST_DAY + timedelta(days=day + 1) for day in range(days))
    return {day for day, tomorrow in enumerate(every) if tomorrow.day == 1} | {days - 1}


def _uid(year: Year, message: Message) -> str:
    return f"{year.language.encode().hex():0>8}-{year.person:04}-4000-8000-{message.number:012}"


def _records(year: Year, messages: Sequence[Message]) -> list[dict[str, Any]]:
    return [
        {
            "type": "memory",
            "id": _uid(year, message),
            "text": message.text,
            "at": message.at.isoformat(),
            "created_at": message.at.isoformat(),
            "user_id": year.name,
            "role": "user",
        }
        for message in messages
    ]


def _evening(day: int) -> datetime:
    return datetime.combine(FIRST_DAY, datetime.max.time(), UTC) + timedelta(days=day)


# --- nights ---------------------------------------------------------------------------------------------------------


def _night(
    memory: Memory, user: str, day: int, asked: Iterator[str], words: Mapping[str, str], nights: _Nights
) -> None:
    """Runs the cycle of the night after a day; in some nights with searches while it runs, and as many after it."""
    now = datetime.combine(FIRST_DAY, datetime.min.time(), UTC) + timedelta(days=day + 1) + NIGHT
    is_over = Event()

    def search_on() -> None:
        while not is_over.is_set():
            nights.during_ms.append(_timed(memory, user, next(asked)))

    before = len(nights.during_ms)
    if (day + 1) % SEARCHED_NIGHTS:
        is_over.set()
    searching = Thread(target=search_on)
    searching.start()
    try:
        began = time.perf_counter()
        result = memory.tend(user_id=user, now=now)
        nights.cycle_ms.append(round(1000 * (time.perf_counter() - began), 1))
    finally:
        is_over.set()
        searching.join()
    for _ in range(len(nights.during_ms) - before):
        nights.alone_ms.append(_timed(memory, user, next(asked)))
    for name in ("forgotten", "merged", "promoted", "summarized", "abstracted", "purged"):
        nights.counts[name] += result[name]
    nights.counts["held"] += "brake" in result
    nights.made += _made(memory, result["cycle"])
    if not result["forgotten"]:
        return
    for one in memory.pending_deletion(user_id=user, limit=result["forgotten"])["results"]:
        nights.reasons[one["id"]] = one["reason"]
        if one["reason"].startswith(MERGED_INTO):
            kept = one["reason"].removeprefix(MERGED_INTO)
            nights.taken_in[one["id"]] = len(one["memory"].encode())
            nights.results[kept] = len((words.get(kept) or (memory.get(kept) or one)["memory"]).encode())
            if kept in words:  # one of like messages stands for the others, and for itself
                nights.taken_in[kept] = nights.results[kept]


def _timed(memory: Memory, user: str, text: str) -> float:
    began = time.perf_counter()
    _search(memory, user, text, None)
    return round(1000 * (time.perf_counter() - began), 2)


def _kind(reason: str) -> str:
    return "merged" if reason.startswith(MERGED_INTO) else reason


def _sizes(sizes: Collection[int]) -> dict[str, int]:
    return {"memories": len(sizes), "bytes": sum(sizes)}


def _made(memory: Memory, cycle: str | None) -> Iterator[tuple[list[int], int]]:
    """Yields the bytes of the sources, and of the text, of each memory that a cycle made to stand for several.

    That is what a language model composed of them, or one of several like ones: it is one of its sources. A memory that
    was in the long-term layer already and took another one in was not made, and a summary leaves its sources as they
    are.
    """
    e = events.c
    is_medoid = and_(e.event == OutcomeType.PROMOTE, e.reason.startswith(SAYS_WHAT_OTHERS_SAY.partition("{")[0]))
    is_composed = e.event.in_((OutcomeType.COMPRESS, OutcomeType.ABSTRACT))
    statement = select(e.memory, is_composed).where(e.batch == cycle, or_(is_medoid, is_composed))
    with memory.engine.ledger.read() as connection:
        found = {uid: bool(has_new_text) for uid, has_new_text in connection.execute(statement)}
        made = memories.records(connection, list(found))
        for uid, record in made.items():
            if record.kind is Kind.SUMMARY:
                continue
            own = [] if found[uid] else [record]
            kind = MADE_OF if found[uid] else COMPRESSES
            sources = own + memories.records_linked_from(connection, record.row, kind)
            yield [len(one.text.encode()) for one in sources], len(record.text.encode())


# --- questions ------------------------------------------------------------------------------------------------------


def _month(
    year: Year,
    day: int,
    told: Sequence[Message],
    on: tuple[Memory, str],
    off: tuple[Memory, str],
    uids: Mapping[int, str],
    nights: _Nights,
    weighty: Collection[int],
) -> dict[str, Any]:
    """Asks the questions of an evening in all three ways; returns what was found, and the sizes.

    `weighty`: numbers of the messages that a rule finds important enough to be kept for good.
    """
    visible = on[0].get_all(user_id=year.name, limit=1)["total"]
    newest = {"created_at": {"gte": told[-min(visible, len(told))].at.isoformat()}}
    ways = {ON: (on[0], None), OFF: (off[0], None), EQUAL: (off[0], newest)}
    classes: dict[str, Counter[str]] = {}
    lost: Counter[str] = Counter()
    recognised: Counter[str] = Counter()
    for question in year.questions(day):
        counts = classes.setdefault(question.group, Counter())
        counts["asked"] += 1
        found = {}
        for way, (memory, only) in ways.items():
            hits = _search(memory, year.name, question.text, _evening(day), only)
            found[way] = _place(hits, question, uids)
            counts[way] += found[way] is not None
            if question.group == PREFERENCE:
                counts[f"{way}, current first"] += _is_current_first(hits, found[way], question)
        told_weightily = (message for message in told if message.number in weighty)
        if question.group in STANDING and any(question.right.search(message.text) for message in told_weightily):
            recognised.update(["asked", *(way for way, place in found.items() if place is not None)])
        if question.group != GONE and found[ON] is None and found[OFF] is not None:
            lost[_loss(question, told, uids, nights)] += 1
    return {
        "month": (FIRST_DAY + timedelta(days=day)).isoformat()[:7],
        "days": day + 1,
        "told": len(told),
        ON: {"visible": visible, "layers": on[0].lifecycle_status(user_id=year.name)["layers"], **_size(*on)},
        OFF: {"visible": len(told), **_size(*off)},
        "classes": {name: dict(counts) for name, counts in classes.items()},
        "recognised": dict(recognised),
        "lost": dict(lost),
    }


def _search(
    memory: Memory, user: str, text: str, now: datetime | None, only: Mapping[str, Any] | None = None
) -> list[tuple[str, str]]:
    """Returns the ids and texts of the best hits. Unlike `Memory.search` it counts no access."""
    scope = Scope(user_id=user)
    view = View(scope, datetime.now(UTC), partition=scope.partition)
    query = SearchQuery(text, view, TOP_K, filter=filters.parse(only), now=now)
    outcome = search(query, memory.engine.search_deps)
    refuse_degraded(outcome.degraded)
    return [(hit.record.id, hit.record.text) for hit in outcome.hits]


def _place(hits: Sequence[tuple[str, str]], question: Question, uids: Mapping[int, str]) -> int | None:
    """Returns the place from 0 of the first hit that answers, None without one."""
    if question.message is not None:
        return next((place for place, (uid, _) in enumerate(hits) if uid == uids[question.message]), None)
    return next((place for place, (_, text) in enumerate(hits) if question.right.search(text)), None)


def _is_current_first(hits: Sequence[tuple[str, str]], place: int | None, question: Question) -> bool:
    """Tells whether the current value is found, and no outdated one before it."""
    if place is None or question.outdated is None:
        return place is not None
    return not any(question.outdated.search(text) for _, text in hits[:place])


def _loss(question: Question, told: Sequence[Message], uids: Mapping[int, str], nights: _Nights) -> str:
    """Returns why the latest message that would answer was forgotten."""
    answers = [uids[message.number] for message in told if question.right.search(message.text)]
    if any(uid not in nights.reasons for uid in answers):
        return NOT_AMONG_HITS
    return _kind(nights.reasons[answers[-1]])


def _requested(memory: Memory) -> Counter[str]:
    """Returns what the language model of the cycles has been asked so far: its requests by operation, and tokens."""
    total: Counter[str] = Counter()
    for line in memory.stats()["usage"]:
        total[line["operation"]] += line["calls"]
        for name in ("prompt_tokens", "completion_tokens"):
            total[name] += line[name]
    return total


def _size(memory: Memory, folder: str) -> dict[str, int]:
    """Returns the numbers of stored memories and of all rows of the ledger, and the bytes in use of its file."""
    stats = memory.stats()
    rows = ("memories", "events", "entities", "mentions", "relations", "supports", "embeddings")
    with closing(sqlite3.connect(f"file:{Path(folder) / 'ledger.sqlite'}?mode=ro", uri=True)) as connection:
        pages, free, size = (
            connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
        )
    return {"memories": stats["memories"], "rows": sum(stats[name] for name in rows), "bytes": (pages - free) * size}


class QuotingModel:
    """Answers a merge with the longest memory that is short enough, a summary with all that it has room for."""

    name = "a script that quotes"

    def answer(self, prompt: Prompt) -> Reply:
        """Returns the answer, with tokens as `estimate_tokens` counts them."""
        value = {"text": _text(Operation(prompt.operation), json.loads(prompt.user)["memories"])}
        sent = (
            estimate_tokens(prompt.system) + estimate_tokens(prompt.user) + estimate_tokens(json.dumps(prompt.schema))
        )
        return Reply(value, Usage(1, sent, estimate_tokens(json.dumps(value, ensure_ascii=False))))


def _text(operation: Operation, shown: list[list[str]]) -> str | None:
    texts = [text for _, _, text in shown]
    if operation is Operation.SUMMARIZE:
        summary = ""
        for text in texts:
            if len(summary) + len(text) < MAX_SUMMARY_CHARS:
                summary = f"{summary} {text}".strip()
        return summary
    fitting = [text for text in texts if approximate_length(text) < MOST_WORDS[operation]]
    if not fitting:
        return None
    longest = max(fitting, key=len)
    if operation is Operation.MERGE:
        return longest
    plain = without_times(longest, datetime.now(UTC))
    return f"{AGAIN_UNSPACED if is_unspaced(plain) else AGAIN}{plain}"
