"""Checks whether a new fact can contradict an old one, by relations and words; `decision` retires no memory without it.

Similar facts do not contradict each other. A contradiction needs the same subject and a predicate with one value at a
time, a denial, or the opposite attitude to the same object; or words for the end of something. The lists are short on
purpose: an unlisted contradiction keeps both facts, and nothing is lost. Pure: no I/O.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from graphmem.folding import fold
from graphmem.model import Statement
from graphmem.text import STOP_WORDS, tokens

# Predicates with one value at a time, each with its synonyms.
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
_SINGLE_VALUED = {name.strip(): key for key, names in _ONE_VALUE.items() for name in [key, *names.split(",")]}
# These have one value at a time only if it is a number: an age.
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
# Predicates that end another one of the same object: "sold" ends "owns"; "" stands for any.
_ENDS = {
    "sold": "owns", "lost": "owns", "gave away": "owns", "divorced": "is married to", "broke up with": "is married to",
    "separated from": "is married to", "left": "works at", "quit": "works at", "resigned from": "works at",
    "was fired from": "works at", "stopped": "", "quit doing": "", "gave up": "", "cancelled": "", "canceled": "",
    "ended": "", "moved out of": "lives in", "moved away from": "lives in", "retired from": "works at",
    "dropped out of": "studies at",
}  # fmt: skip
# These end whatever it was, and tell an event that is worth a fact of its own.
_COMPLETES = frozenset({
    "finished", "finishes", "has finished", "completed", "completes", "has completed", "concluded", "concludes",
    "is done with", "graduated from",
})  # fmt: skip

# Patterns for the comparison by words, where relations decide nothing.
_DENIES = re.compile(
    r"\b(?:not|no|never|n't|without|cannot|neither|nor)\b|n['’]t\b|不|没|無|无|未|别|ない|ません"
    r"|\b(?:nicht|kein\w*|nie|pas|jamais)\b",
    re.IGNORECASE,
)
_OVER = re.compile(
    r"\b(?:no longer|any ?more|stopped|quit|gave up|given up|used to|formerly|ended|over|cancell?ed|sold|divorced"
    r"|broke up|instead|switched|changed|retired|left|abandoned|expired|nicht mehr|ne plus|plus jamais)\b"
    r"|不再|已经不|改成|改为|换成|换到|取消|离婚|分手|辞职|戒|卖",
    re.IGNORECASE,
)
_COMPLETED = re.compile(
    r"\b(?:finish(?:ed|es)|complete[ds]|concluded|graduated|(?:is|are|was|were|all|been|got) done|done with"
    r"|(?:been|was|were) (?:published|submitted|handed in)|abgeschlossen|beendet|fertig|terminée?s?|fini(?:es?|s)?"
    r"|terminad[oa]s?|termin[óé]|(?:закончил|завершил|дочитал|дописал)[аи]?)(?!\w)"
    r"|完成|结束|結束|完结|毕业|畢業|搞定|[做写寫读讀看学學办辦考用吃修画畫搬]完|終わ|完了|卒業",
    re.IGNORECASE,
)
# A plan, or something under way; and what has happened: by its first verb, unless that is of another plan.
_OPEN = re.compile(
    r"\b(?:plan(?:s|ning|ned)?|wants?|hopes?|intends?|will|going to|needs?|ha(?:s|ve) to|must|should|wishes|aims?"
    r"|expects?|looking|searching|waiting|waits?|tr(?:ies|ying)|work(?:s|ing) on|trains? for"
    r"|prepares?|currently|in progress|about to)\b"
    r"|\b(?:is|are|am|keeps?|started|began)(?: \w+ly| still)? \w+ing\b|^\w+ing\b"
    r"|计划|打算|想[要去学]|准备|正在|将[要会]|[要会]去|需要|在[学读写做看找等备]|予定|つもり|ている",
    re.IGNORECASE,
)
_HAPPENED = re.compile(
    r"^(?:(?:the )?user |(?:[A-Z][\w'’-]+ ){1,2})?(?:(?i:ha[sd]|have|finally|already|just|recently) )*"
    r"(?i:(?!(?:plann|want|hop|intend|need|wish|decid|start|interest|excit|tri)ed\b)\w{2,}ed|bought|built|did|done|found"
    r"|gave|given|got|had|held|made|met|paid|read|ran|saw|seen|sent|sold|spent|spoke|taken|taught|told|took|went|gone|won"
    r"|written|wrote)\b"
    r"|(?<!不)了(?![解不没])|已经?|(?<!不)过(?![敏去期度程])"
)
_FOND = re.compile(
    r"\b(?:like|love|enjoy|prefer|adore|favou?rite|fond|fan|into|eat|drink)\w*\b|喜欢|爱吃|喜爱|热爱|爱|好きです|好き",
    re.IGNORECASE,
)
_AVERSE = re.compile(
    r"\b(?:dislike|hate|detest|loathe|avoid|allergic|can['’]t stand|cannot stand)\w*\b|不喜欢|讨厌|不爱|过敏|厌恶|嫌い",
    re.IGNORECASE,
)
_TOPICS = {
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
_TOPIC_PATTERNS = {name: re.compile(pattern, re.IGNORECASE) for name, pattern in _TOPICS.items()}
# Words that two facts may share without being about the same thing.
_IGNORED_WORDS = frozenset((*STOP_WORDS, "user", "assistant", "now", "very", "really"))


# Beginnings of reasons.
_ANOTHER_VALUE, _IS_COMPLETED = "another value", "completed"


class StatedFact(NamedTuple):
    """The text of a fact and its relations."""

    text: str
    statements: Sequence[Statement]


class _Predicate(NamedTuple):
    name: str
    is_negated: bool


def contradicts(old: StatedFact, new: StatedFact) -> str | None:
    """Returns the reason why the new fact can contradict the old one, or None if it cannot.

    The reason quotes nothing but the old fact's predicate: it is kept in that fact's history, and erased with it.
    """
    if old.statements and new.statements:
        pairs = [(a, b) for a in old.statements for b in new.statements if a.subject == b.subject]
        reason = next(filter(None, (_reason_by_relations(a, b) for a, b in pairs)), None)
        return reason or (_reason_by_words(old, new) if pairs else None)
    return _reason_by_words(old, new) if _have_same_subjects(old, new) else None


def corrects(old: StatedFact, new: StatedFact) -> str | None:
    """Returns the reason why an old fact cannot be kept beside the new one in one text, or None if it can.

    Only relations tell: another value of the same predicate, or the contrary of the very same object. Two facts that a
    language model joins have words in common and mostly add to each other, so words say nothing here.
    """
    return next((reason for one in old.statements if (reason := correction_of(one, new.statements)) is not None), None)


def correction_of(old: Statement, statements: Sequence[Statement]) -> str | None:
    """Returns the reason why one of the new relations corrects an old one, or None if none does."""
    for new in statements:
        reason = _reason_by_relations(old, new) if old.subject == new.subject else None
        if reason is not None and (reason.startswith(_ANOTHER_VALUE) or _words(old.object) == _words(new.object)):
            return reason
    return None


def is_more_than_denial(reason: str | None) -> bool:
    """Returns True if the new fact says more than that the old one no longer holds: another value, a completion."""
    return reason is not None and reason.startswith((_ANOTHER_VALUE, _IS_COMPLETED))


def _reason_by_relations(old: Statement, new: Statement) -> str | None:
    old_predicate, new_predicate = _predicate(old), _predicate(new)
    words, other_words = _words(old.object), _words(new.object)
    # One key may have all the words of the other.
    is_part = words and other_words and (words <= other_words or other_words <= words)
    same_object = old.object == new.object or is_part
    if old_predicate.name == new_predicate.name:
        if same_object:
            return (
                f"the contrary of {old.predicate!r}" if old_predicate.is_negated != new_predicate.is_negated else None
            )
        return f"{_ANOTHER_VALUE} of {old.predicate!r}" if _has_one_value(old, old_predicate, new_predicate) else None
    if not same_object:
        return None
    if _attitude(old_predicate) * _attitude(new_predicate) < 0:
        return f"the contrary of {old.predicate!r}"
    if new_predicate.name in _COMPLETES and not new_predicate.is_negated:
        return _IS_COMPLETED
    ended = _ENDS.get(new_predicate.name)
    is_ended = ended is not None and not new_predicate.is_negated and ended in {"", old_predicate.name}
    return "no longer so" if is_ended else None


def _predicate(statement: Statement) -> _Predicate:
    """Returns a statement's predicate without its negation; synonyms with one value at a time get one name."""
    words = statement.predicate.casefold().strip()
    is_negated = False
    for negation in ("not ", "no longer ", "never ", "does not ", "is not "):
        if words.startswith(negation):
            words, is_negated = words.removeprefix(negation), True
            if negation == "is not ":
                words = f"is {words}"
    favourite = _FAVOURITE.search(words)
    if favourite:
        return _Predicate(f"favourite {favourite['what'] or favourite['how']}", is_negated)
    if words in _AGES and not _NUMBER.search(statement.object):
        return _Predicate(words, is_negated)
    return _Predicate(_SINGLE_VALUED.get(words, words), is_negated)


def _has_one_value(old: Statement, old_predicate: _Predicate, new_predicate: _Predicate) -> bool:
    if old_predicate.is_negated or new_predicate.is_negated:
        return False
    if old_predicate.name == "has age":
        return bool(_NUMBER.search(old.object))
    return old_predicate.name in _ONE_VALUE or old_predicate.name.startswith("favourite ")


def _attitude(predicate: _Predicate) -> int:
    """Returns 1 for liking, -1 for disliking, 0 for neither."""
    attitude = (predicate.name in _LIKES) - (predicate.name in _DISLIKES)
    return -attitude if predicate.is_negated else attitude


def _words(text: str) -> frozenset[str]:
    return frozenset(tokens(text)) - _IGNORED_WORDS


def _reason_by_words(old: StatedFact, new: StatedFact) -> str | None:
    if _words(old.text) & _words(new.text):
        if _fondness(old.text) * _fondness(new.text) < 0:
            return "the contrary"
        if bool(_DENIES.search(old.text)) != bool(_DENIES.search(new.text)):
            return "denied"
        if _OVER.search(new.text):
            return "no longer so"
        if _COMPLETED.search(new.text) or (
            _OPEN.search(old.text) and _HAPPENED.search(new.text) and not _OPEN.search(new.text)
        ):
            return _IS_COMPLETED
    if any(topic.search(old.text) and topic.search(new.text) for topic in _TOPIC_PATTERNS.values()):
        return _ANOTHER_VALUE
    return None


def _have_same_subjects(old: StatedFact, new: StatedFact) -> bool:
    """Returns True if each subject of a relation is the speaker or is named in both texts, or if both begin with none.

    The last case is facts about the speaker, who is left out as the subject ("Lives in Paris").
    """
    subjects = {statement.subject for statement in (*old.statements, *new.statements)}
    if all(
        subject in {"user", "assistant"} or all(subject in fold(fact.text) for fact in (old, new))
        for subject in subjects
    ):
        return True
    first_words = [re.match(r"[A-Z][\w'’-]*", fact.text) for fact in (old, new)]
    return not any(fold(word[0]) in subjects for word in first_words if word)


def _fondness(text: str) -> int:
    """Returns 1 for a text about liking something, -1 for disliking, 0 for neither."""
    if _AVERSE.search(text):
        return -1
    if not _FOND.search(text):
        return 0
    return -1 if _DENIES.search(text) else 1
