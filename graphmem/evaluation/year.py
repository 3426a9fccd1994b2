"""Makes a year of somebody's messages, and the questions about it, from texts (`benchmarks/lifecycle`) and a seed.

A person tells stable facts and preferences again and again, some preferences change, and weekly routines, one-off
events, plans, feelings and small talk come and go. The same texts, person and seed give the same year.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from graphmem.boundary import validation
from graphmem.errors import ValidationError
from graphmem.evaluation.datasets import SourceFile, field_of, items_of, read_objects

FIRST_DAY, DAYS = date(2025, 1, 1), 365
# Messages of a day, those of them that are small talk, and hours from the first to the last.
A_DAY, SMALL_TALK_A_DAY = 20, 12
FIRST_HOUR, HOURS = 8, 14
# Numbers of a year, LIFECYCLE §17; a tenth of all messages tells facts and preferences (§6).
FACTS, PREFERENCES, CHANGES, ROUTINES, WEIGHTY, EVENTS, PLANS, TOLD_AGAIN = 30, 20, 8, 3, 10, 140, 292, 730
# All facts and preferences are told once within the first days; a preference changes between these days.
TOLD_FIRST, CHANGES_FROM, CHANGES_TO = 14, 60, 300
# Of the slots' words and of the templates each person uses so large a share.
OWN_SHARE = 0.75
# "Last 7 days", "older than a month", and how many old messages of small talk are asked for each time.
RECENT, A_MONTH, ASKED_SMALL_TALK = 7, 30, 10
# Questions of these classes have to be answered; of GONE nothing may be found.
FACT, PREFERENCE, ROUTINE, LAST_DAYS, OLD_EVENT, GONE = (
    "fact", "preference", "routine", "last 7 days", "weighty event", "small talk",
)  # fmt: skip
# Kinds of entries of a file, and how many it needs at least.
EVENT, PLAN, FEELING = "event", "plan", "feeling"
TEMPLATES = {FACT: FACTS, PREFERENCE: PREFERENCES, ROUTINE: ROUTINES, OLD_EVENT: WEIGHTY, EVENT: 1}
PASSING = (PLAN, FEELING, GONE)
NEEDED = (FACT, PREFERENCE, ROUTINE, LAST_DAYS, OLD_EVENT)
_SLOT = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Template:
    """Something that somebody may tell: `said` and `ask` have slots; "{0}" is the value, by which an answer is known.

    `pattern` takes the place of the value where the words vary (routines); `changed` tells that the value is a new one.
    """

    id: str
    said: tuple[str, ...]
    ask: str
    values: tuple[str, ...] = ()
    pattern: str = ""
    changed: str = ""
    weekday: int = 0


@dataclass(frozen=True, slots=True)
class Texts:
    """The texts of a language; `persons`: how many different ones they are enough for."""

    language: str
    slots: Mapping[str, Sequence[str]]
    templates: Mapping[str, Sequence[Template]]
    passing: Mapping[str, Sequence[str]]
    source: SourceFile

    @property
    def persons(self) -> int:
        """How many persons have values of their own."""
        return min(len(one.values) for kind in (FACT, PREFERENCE) for one in self.templates[kind])


@dataclass(frozen=True, slots=True)
class Question:
    """A question and the expression that a right answer matches; `outdated` matches what was right before.

    Of small talk `message` names the one message that is asked for in its own words, and `right` matches nothing else.
    """

    group: str
    id: str
    text: str
    right: re.Pattern[str]
    outdated: re.Pattern[str] | None = None
    message: int | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """A message: its number in the year, its day from 0, when it was said, its words, what kind and which thing."""

    number: int
    day: int
    at: datetime
    text: str
    kind: str
    thing: str


@dataclass(slots=True)
class _Thing:
    """What a person tells at least once, on `days`; a preference has a new value from `changed_on`."""

    group: str
    id: str
    ask: str
    patterns: list[re.Pattern[str]]
    days: list[int] = field(default_factory=list)
    changed_on: int | None = None

    def current(self, day: int) -> int:
        return int(self.changed_on is not None and day >= self.changed_on)

    def question(self, day: int) -> Question:
        now = self.current(day)
        return Question(self.group, self.id, self.ask, self.patterns[now], self.patterns[0] if now else None)


class Year:
    """The year of one person: `messages` in order; `questions` of the evening of a day."""

    def __init__(self, texts: Texts, person: int, seed: int) -> None:
        self.language, self.person, self._seed = texts.language, person, seed
        self._dice = random.Random(f"{seed} {texts.language} {person}")  # noqa: S311  (made texts)
        self._texts = texts
        self._slots = {name: self._own(words) for name, words in texts.slots.items()}
        self._days: list[list[tuple[str, str, str]]] = [[] for _ in range(DAYS)]
        self._things: list[_Thing] = []
        self._tell_routines()
        self._tell_standing()
        self._tell_events()
        self._fill()
        self.messages = tuple(self._dated())

    @property
    def name(self) -> str:
        """The user of these messages, such as "en-1"."""
        return f"{self.language}-{self.person + 1}"

    def questions(self, day: int) -> list[Question]:
        """Returns what is asked on the evening of a day (from 0), about what has been told until then."""
        asked = []
        for one in self._things:
            told = [number for number in one.days if number <= day]
            if not told:
                continue
            if one.group not in {LAST_DAYS, OLD_EVENT}:
                asked.append(one.question(day))
            elif told[-1] > day - RECENT:
                asked.append(Question(LAST_DAYS, one.id, one.ask, one.patterns[0]))
            elif one.group == OLD_EVENT and told[-1] < day - A_MONTH:
                asked.append(one.question(day))
        old = [message for message in self.messages if message.kind == GONE and message.day < day - A_MONTH]
        dice = random.Random(f"{self._seed} {self.name} {day}")  # noqa: S311  (a sample)
        for message in dice.sample(old, min(ASKED_SMALL_TALK, len(old))):
            exactly = re.compile(f"^{re.escape(message.text)}$")
            asked.append(Question(GONE, str(message.number), message.text, exactly, message=message.number))
        return asked

    # --- what is told -----------------------------------------------------------------------------------------------

    def _tell_routines(self) -> None:
        weekdays: set[int] = set()
        for one in self._dice.sample(self._texts.templates[ROUTINE], len(self._texts.templates[ROUTINE])):
            if one.weekday in weekdays or len(weekdays) == ROUTINES:
                continue
            weekdays.add(one.weekday)
            thing = _Thing(ROUTINE, one.id, one.ask, [re.compile(one.pattern, re.IGNORECASE)])
            self._things.append(thing)
            for day in range(DAYS):
                if (FIRST_DAY + timedelta(days=day)).weekday() == one.weekday:
                    self._tell(thing, day, self._dice.choice(one.said))

    def _tell_standing(self) -> None:
        """Facts and preferences: each once at the beginning, some often and some seldom afterwards."""
        facts = [(FACT, one) for one in self._texts.templates[FACT]]
        preferences = [(PREFERENCE, one) for one in self._texts.templates[PREFERENCE]]
        changing = {one.id for _, one in self._dice.sample(preferences, CHANGES)}
        standing: list[tuple[_Thing, Template, list[str]]] = []
        for number, (group, one) in enumerate(self._dice.sample(facts + preferences, len(facts + preferences))):
            values = [one.values[self.person]]
            thing = _Thing(group, one.id, one.ask, [])
            if group == PREFERENCE and one.id in changing:
                values.append(one.values[(self.person + 2) % len(one.values)])
                thing.changed_on = self._day_with_room(range(CHANGES_FROM, CHANGES_TO))
                self._tell(thing, thing.changed_on, one.changed.replace("{0}", values[1]))
            thing.patterns += map(value_pattern, values)
            self._things.append(thing)
            standing.append((thing, one, values))
            self._tell_value(thing, one, values, number * TOLD_FIRST // (FACTS + PREFERENCES))
        often = [0.1 + self._dice.expovariate(1) for _ in standing]
        for thing, one, values in self._dice.choices(standing, often, k=TOLD_AGAIN - len(standing) - CHANGES):
            self._tell_value(thing, one, values, self._day_with_room(range(DAYS)))

    def _tell_value(self, thing: _Thing, one: Template, values: Sequence[str], day: int) -> None:
        self._tell(thing, day, self._dice.choice(one.said).replace("{0}", values[thing.current(day)]))

    def _tell_events(self) -> None:
        weighty, events = self._texts.templates[OLD_EVENT], self._texts.templates[EVENT]
        chosen = [(OLD_EVENT, one, self._dice.choice(one.values)) for one in self._dice.sample(weighty, WEIGHTY)]
        each = EVENTS // len(events)
        chosen += [(LAST_DAYS, one, value) for one in events for value in self._dice.sample(one.values, each)]
        for group, one, value in chosen:
            words: dict[str, str] = {}
            said = self._filled(self._dice.choice(one.said).replace("{0}", value), words)
            thing = _Thing(group, f"{one.id}: {value}", self._filled(one.ask, words), [value_pattern(value)])
            self._things.append(thing)
            self._tell(thing, self._day_with_room(range(DAYS)), said)

    def _fill(self) -> None:
        """Adds what is told in passing: plans, then feelings up to what is not small talk, then small talk."""
        passing = {kind: self._own(templates) for kind, templates in self._texts.passing.items()}
        for _ in range(PLANS):
            day = self._day_with_room(range(DAYS))
            self._days[day].append((PLAN, "", self._filled(self._dice.choice(passing[PLAN]))))
        for told in self._days:
            while len(told) < A_DAY:
                kind = FEELING if len(told) < A_DAY - SMALL_TALK_A_DAY else GONE
                told.append((kind, "", self._filled(self._dice.choice(passing[kind]))))

    # --- how it is told ---------------------------------------------------------------------------------------------

    def _tell(self, thing: _Thing, day: int, text: str) -> None:
        thing.days = sorted([*thing.days, day])
        self._days[day].append((thing.group, thing.id, text))

    def _day_with_room(self, days: range) -> int:
        return self._dice.choice([day for day in days if len(self._days[day]) < A_DAY - SMALL_TALK_A_DAY])

    def _own(self, choices: Sequence[str]) -> list[str]:
        return self._dice.sample(choices, max(1, round(OWN_SHARE * len(choices))))

    def _filled(self, template: str, words: dict[str, str] | None = None) -> str:
        """Returns a template with words in its slots: those in `words` or others, which are added to it."""

        def word(slot: re.Match[str]) -> str:
            chosen = self._dice.choice(self._slots[slot[1]])
            return chosen if words is None else words.setdefault(slot[1], chosen)

        while _SLOT.search(template):
            template = _SLOT.sub(word, template)
        return template[:1].upper() + template[1:]

    def _dated(self) -> Iterator[Message]:
        number = 0
        for day, told in enumerate(self._days):
            self._dice.shuffle(told)
            midnight = datetime.combine(FIRST_DAY, datetime.min.time(), UTC) + timedelta(days=day, hours=FIRST_HOUR)
            minutes = sorted(self._dice.sample(range(HOURS * 60), len(told)))
            for minute, (kind, thing, text) in zip(minutes, told, strict=True):
                yield Message(number, day, midnight + timedelta(minutes=minute), text, kind, thing)
                number += 1


def value_pattern(value: str) -> re.Pattern[str]:
    """Returns the expression for a value as a whole word; in a script without spaces, anywhere."""
    edges = (r"(?<![a-zA-Z0-9])", r"(?![a-zA-Z0-9])")
    return re.compile(re.escape(value).join(edges), re.IGNORECASE)


# --- the files ------------------------------------------------------------------------------------------------------


def load(folder: Path, languages: Sequence[str] | None = None) -> list[Texts]:
    """Reads `texts-LANGUAGE.json` of a folder, of these languages or of all.

    Raises ValidationError for a language without a file and, naming file and position, for a file of another form.
    """
    available = sorted(path.stem.removeprefix("texts-") for path in folder.glob("texts-*.json"))
    if not available:
        raise ValidationError(f"{folder}: holds no texts; name a folder with files such as texts-en.json")
    chosen = available if languages is None else [validation.one_of(one, "languages", available) for one in languages]
    return [_read(folder / f"texts-{one}.json", one) for one in dict.fromkeys(chosen)]


def _read(path: Path, language: str) -> Texts:
    source, records = read_objects(path)
    slots: dict[str, Sequence[str]] = {}
    templates: dict[str, list[Template]] = {kind: [] for kind in TEMPLATES}
    passing: dict[str, list[str]] = {kind: [] for kind in PASSING}
    for where, record in records:
        kind = validation.one_of(record.get("kind"), f"{where}, 'kind'", ("slot", *TEMPLATES, *PASSING))
        if kind == "slot":
            slots[field_of(record, "id", str, where)] = _texts(record, "words", where)
        elif kind in PASSING:
            passing[kind] += _texts(record, "said", where)
        else:
            templates[kind].append(_template(record, kind, where))
    texts = Texts(language, slots, templates, passing, source)
    for kind, least in {**TEMPLATES, **dict.fromkeys(PASSING, 1)}.items():
        if len(templates.get(kind, passing.get(kind, ()))) < least:
            raise ValidationError(f"{path}: has fewer than {least} entries of the kind {kind!r}; add some")
    return texts


def _texts(record: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    texts = tuple(validation.stored_text(text, position) for position, text in items_of(record, key, str, where))
    if not texts:
        raise ValidationError(f"{where}: {key!r} is empty; give at least one text")
    return texts


def _template(record: dict[str, Any], kind: str, where: str) -> Template:
    """Reads a template. Raises ValidationError where a text does not show the answer to its question."""
    said = _texts(record, "said", where)
    ask = validation.query(field_of(record, "ask", str, where), f"{where}, 'ask'")
    if kind == ROUTINE:
        pattern = field_of(record, "pattern", str, where)
        weekday = validation.count(record.get("weekday"), f"{where}, 'weekday'", 0, 6)
        one = Template(field_of(record, "id", str, where), said, ask, (), pattern, weekday=weekday)
        answers = all(re.search(pattern, text, re.IGNORECASE) for text in said)
    else:
        changed = field_of(record, "changed", str, where) if kind == PREFERENCE else ""
        one = Template(field_of(record, "id", str, where), said, ask, _texts(record, "values", where), changed=changed)
        answers = all("{0}" in text for text in (*said, *([changed] if kind == PREFERENCE else [])))
    if not answers:
        raise ValidationError(f"{where}: has a sentence that does not hold the answer, {{0}} or the pattern; add it")
    return one
