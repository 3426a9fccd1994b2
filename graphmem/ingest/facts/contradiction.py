"""Whether a new fact can make an old one untrue, by their structure: asked before a model's opinion counts. Pure.

Two things that are merely alike are no contradiction. It takes the same subject, and a predicate that has one value at
a time, an outright denial, or the opposite attitude to the same thing; or words that say that something has ended.
The lists are short on purpose: what they do not know stays beside the new fact, and nothing is lost.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from graphmem.model import Statement
from graphmem.text import STOP_WORDS, tokens

# Predicates with one value at a time, each with others that say the same.
_ONE_VALUE = {
    "lives in": "lives at, resides in, resides at, is based in, is living in, moved to, has moved to, moves to, "
    "relocated to, relocates to, settled in, stays in, home is, has home in",
    "works at": "works for, works in, is employed by, is employed at, has job at, joined, joins, started at, "
    "employer is, has employer",
    "works as": "is employed as, has job, job is, has occupation, occupation is, has profession, profession is, "
    "has role, became, has position, is promoted to, was promoted to, has job title, job title is",
    "is named": "is called, has name, name is, goes by, named, called",
    "has age": "is aged, age is, is, turned, turns",
    "was born on": "born on, has birthday, birthday is, has birthday on, birthday is on, birth date is",
    "is married to": "has husband, has wife, has spouse, married, is engaged to, has fiance, has fiancee, is dating, "
    "dates, has partner, has girlfriend, has boyfriend, is in relationship with",
    "studies at": "is student at, attends, goes to school at, is enrolled at, has school",
    "studies": "majors in, has major, is studying",
    "takes place on": "is on, is scheduled for, is scheduled on, is planned for, is set for, is due on, starts on, "
    "is at, takes place at, takes place in, is in, leaves on, arrives on, happens on, has date, date is, deadline is, "
    "has deadline",
    "drives": "has car, car is",
    "weighs": "has weight, weight is",
    "has height": "is tall, height is",
    "has email": "email is, has email address, email address is",
    "has phone number": "phone number is, has number",
    "has address": "address is",
    "speaks natively": "has native language, native language is, has mother tongue",
    "has status": "status is, marital status is, has marital status",
    "costs": "has price, price is",
}
_CLASSES = {name.strip(): key for key, names in _ONE_VALUE.items() for name in [key, *names.split(",")]}
# "is" has one value at a time only where that is a number, an age.
_AGES = frozenset({"is", "turned", "turns"})
_NUMBER = re.compile(r"\d")
_FAVOURITE = re.compile(r"\b(?:has |is )?favou?rite (?P<what>[\w ]+?)(?: is| are)?$|\bprefers (?P<how>as [\w ]+)$")
_LIKES = frozenset({
    "likes", "loves", "enjoys", "prefers", "adores", "is fond of", "is fan of", "favors", "favours", "is into", "eats",
    "drinks", "wants", "supports", "trusts", "is interested in", "is happy with",
})  # fmt: skip
_DISLIKES = frozenset({
    "dislikes", "hates", "detests", "loathes", "avoids", "is allergic to", "cannot stand", "can't stand", "is tired of",
    "refuses", "rejects", "distrusts", "is afraid of", "cannot eat", "can't eat", "is unhappy with", "gave up", "quit",
})  # fmt: skip
# What is over when it is said of a thing. "sold" ends "owns".
_ENDS = {
    "sold": "owns", "lost": "owns", "gave away": "owns", "divorced": "is married to", "broke up with": "is married to",
    "separated from": "is married to", "left": "works at", "quit": "works at", "resigned from": "works at",
    "was fired from": "works at", "stopped": "", "quit doing": "", "gave up": "", "cancelled": "", "canceled": "",
    "finished": "", "ended": "", "moved out of": "lives in", "moved away from": "lives in", "retired from": "works at",
}  # fmt: skip

# The same in words, where there are no statements to compare.
_DENIES = re.compile(
    r"\b(?:not|no|never|n't|without|cannot|neither|nor)\b|n['’]t\b|不|没|無|无|未|别|ない|ません"
    r"|\b(?:nicht|kein\w*|nie|pas|jamais)\b",
    re.IGNORECASE,
)
_OVER = re.compile(
    r"\b(?:no longer|any ?more|stopped|quit|gave up|given up|used to|formerly|ended|over|cancell?ed|sold|divorced"
    r"|broke up|instead|switched|changed|retired|left|nicht mehr|ne plus|plus jamais)\b"
    r"|不再|已经不|改成|改为|换成|换到|取消|离婚|分手|辞职|戒|卖",
    re.IGNORECASE,
)
_FOND = re.compile(
    r"\b(?:like|love|enjoy|prefer|adore|favou?rite|fond|fan|into|eat|drink)\w*\b|喜欢|爱吃|喜爱|热爱|爱|好きです|好き",
    re.IGNORECASE,
)
_AVERSE = re.compile(
    r"\b(?:dislike|hate|detest|loathe|avoid|allergic|can['’]t stand|cannot stand)\w*\b|不喜欢|讨厌|不爱|过敏|厌恶|嫌い",
    re.IGNORECASE,
)
_FRAMES = {
    "lives in": r"\b(?:lives?|lived|living|moved? to|moving to|resid\w+|relocat\w+|based in|home)\b|住|搬|定居|迁",
    "works at": r"\b(?:works?|worked|working|job|employ\w+|joined|hired|position|promoted)\b"
    r"|工作|上班|任职|入职|跳槽|升职|职业",
    "is named": r"\b(?:name is|named|called|my name)\b|名字|姓名|叫",
    "has age": r"\b(?:years? old|aged?|turned \d+)\b|岁|年龄",
    "was born on": r"\b(?:birthday|born)\b|生日|出生",
    "is married to": r"\b(?:married|husband|wife|spouse|partner|girlfriend|boyfriend|fianc\w+|dating|single)\b"
    r"|结婚|丈夫|妻子|老公|老婆|女友|男友|对象|单身",
    "favourite": r"\bfavou?rite\b|最喜欢|最爱",
    "takes place on": r"\b(?:meeting|appointment|flight|wedding|exam|interview|deadline|trip|party|due|scheduled"
    r"|postponed|rescheduled)\b|会议|预约|航班|婚礼|考试|面试|截止|推迟|改期",
    "has contact": r"\b(?:e-?mail|phone|address|number)\b|邮箱|电话|地址|号码",
}
_FRAMED = {name: re.compile(pattern, re.IGNORECASE) for name, pattern in _FRAMES.items()}
# Words that both facts hold without being about the same for that.
_EMPTY = frozenset((*STOP_WORDS, "user", "assistant", "now", "very", "really"))


_ANOTHER_VALUE = "another value"


class StatedFact(NamedTuple):
    """A fact: its words and what it states."""

    text: str
    statements: Sequence[Statement]


class _Predicate(NamedTuple):
    name: str
    is_negated: bool


def contradicts(old: StatedFact, new: StatedFact) -> str | None:
    """Why the new fact can make the old one untrue; None: it cannot.

    The reason is made of our words and of what the old fact itself states, so that it goes when that is erased.
    """
    if old.statements and new.statements:
        pairs = [(a, b) for a in old.statements for b in new.statements if a.subject == b.subject]
        found = next((reason for a, b in pairs if (reason := _opposed(a, b))), None)
        return found or (_in_words(old, new) if pairs else None)
    return _in_words(old, new) if _same_names(old, new) else None


def is_replaced_value(reason: str | None) -> bool:
    """Whether a memory is untrue because the new fact says what is so instead, rather than only that it is not."""
    return reason is not None and reason.startswith(_ANOTHER_VALUE)


def _opposed(old: Statement, new: Statement) -> str | None:
    a, b = _predicate(old), _predicate(new)
    same_thing = _same(old.object, new.object)
    if a.name == b.name:
        if same_thing:
            return f"the contrary of {old.predicate!r}" if a.is_negated != b.is_negated else None
        return f"{_ANOTHER_VALUE} of {old.predicate!r}" if _has_one_value(old, a, b) else None
    if not same_thing:
        return None
    if _attitude(a) * _attitude(b) < 0:
        return f"the contrary of {old.predicate!r}"
    ended = _ENDS.get(b.name)
    return "no longer so" if ended is not None and not b.is_negated and ended in {"", a.name} else None


def _predicate(said: Statement) -> _Predicate:
    words = said.predicate.casefold().strip()
    denied = False
    for sign in ("not ", "no longer ", "never ", "does not ", "is not "):
        if words.startswith(sign):
            words, denied = words.removeprefix(sign), True
            if sign == "is not ":
                words = f"is {words}"
    favourite = _FAVOURITE.search(words)
    if favourite:
        return _Predicate(f"favourite {favourite['what'] or favourite['how']}", denied)
    if words in _AGES and not _NUMBER.search(said.object):
        return _Predicate(words, denied)
    return _Predicate(_CLASSES.get(words, words), denied)


def _has_one_value(old: Statement, a: _Predicate, b: _Predicate) -> bool:
    if a.is_negated or b.is_negated:
        return False
    if a.name == "has age":
        return bool(_NUMBER.search(old.object))
    return a.name in _ONE_VALUE or a.name.startswith("favourite ")


def _attitude(predicate: _Predicate) -> int:
    found = (predicate.name in _LIKES) - (predicate.name in _DISLIKES)
    return -found if predicate.is_negated else found


def _same(one: str, other: str) -> bool:
    """Whether two keys mean one thing as far as their words tell: one holds all the words of the other."""
    a, b = _words(one), _words(other)
    return one == other or bool(a and b and (a <= b or b <= a))


def _words(text: str) -> frozenset[str]:
    return frozenset(tokens(text)) - _EMPTY


def _shared(old: StatedFact, new: StatedFact) -> bool:
    return bool(_words(old.text) & _words(new.text))


def _in_words(old: StatedFact, new: StatedFact) -> str | None:
    if _shared(old, new):
        if _fondness(old.text) * _fondness(new.text) < 0:
            return "the contrary"
        if bool(_DENIES.search(old.text)) != bool(_DENIES.search(new.text)):
            return "denied"
        if _OVER.search(new.text):
            return "no longer so"
    if any(frame.search(old.text) and frame.search(new.text) for frame in _FRAMED.values()):
        return _ANOTHER_VALUE
    return None


def _same_names(old: StatedFact, new: StatedFact) -> bool:
    """Where one of them states something of somebody, the other must at least name that one, or name nobody."""
    subjects = _subjects(old.statements) | _subjects(new.statements)
    return all(
        subject in {"user", "assistant"} or all(subject in one.text.casefold() for one in (old, new))
        for subject in subjects
    ) or _is_speaker(old, new)


def _is_speaker(old: StatedFact, new: StatedFact) -> bool:
    """Facts about the speaker do not name anybody as their subject."""
    starts = [re.match(r"[A-Z][\w'’-]*", one.text) for one in (old, new)]
    named = [start[0].casefold() for start in starts if start]
    return not any(name in _subjects((*old.statements, *new.statements)) for name in named)


def _subjects(statements: Iterable[Statement]) -> set[str]:
    return {one.subject for one in statements}


def _fondness(text: str) -> int:
    if _AVERSE.search(text):
        return -1
    if not _FOND.search(text):
        return 0
    return -1 if _DENIES.search(text) else 1
