"""Makes `words.json` from the Unicode CLDR and `own_words.toml`.

Run by hand, with the folder of the package `cldr-dates-full` (48.2.0; Unicode License v3, `LICENSE.cldr.txt`):

    python graphmem/retrieval/temporal/make_words.py node_modules/cldr-dates-full

Of the CLDR are the words for days, weeks, months and years near today, "… days ago", months and days of the week. All
forms are folded, without the marks of Latin letters.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Iterable, Mapping
from itertools import product
from pathlib import Path
from typing import Any

from graphmem.folding import fold, typed_spellings

UNITS, FORMS = ("day", "week", "month", "year"), ("format", "stand-alone")
WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
WHICH = {-1: "last", 0: "this", 1: "next"}
# Words at the beginning of a phrase of the CLDR that people leave out or replace.
LEADS = {
    "es": "el la", "fr": "le la l'", "it": "l'", "pl": "w", "ru": "в на",
}  # fmt: skip
KINDS = ("in", "since", "before", "until", "every", "days", "of", "titles", "tens", "shifts", "digits")
FOLDER = Path(__file__).parent


def words_of(language: str, own: Mapping[str, Any], cldr: Path) -> dict[str, Any]:
    """Returns the words of a language, by kind; `own` are those of `own_words.toml`."""
    folder = cldr / "main" / language
    fields = json.loads((folder / "dateFields.json").read_text("utf-8"))["main"][language]["dates"]["fields"]
    calendars = json.loads((folder / "ca-gregorian.json").read_text("utf-8"))["main"][language]["dates"]["calendars"]
    months, days = calendars["gregorian"]["months"], calendars["gregorian"]["days"]
    relative: dict[str, list[Any]] = {
        phrase: [unit, count]
        for unit in UNITS
        for count in range(-2, 3)
        if (phrase := fields[unit].get(f"relative-type-{count}"))
    }
    # In Japanese "Monday of last week".
    relative |= {
        fields[key][f"relative-type-{count}"]: ["weekday of", day, count]
        if language == "ja"
        else ["weekday", day, which]
        for day, key in enumerate(WEEKDAYS)
        for count, which in WHICH.items()
    }
    ago = {
        phrase: unit for unit in UNITS for phrase in fields[unit]["relativeTime-type-past"].values() if "{0}" in phrase
    }
    month_names = [
        *([months[form]["wide"][str(number)] for number in range(1, 13)] for form in FORMS),
        *lists_of(own.get("months", ""), 12),
    ]
    weekday_names = [
        *([days[form]["wide"][day] for day in WEEKDAYS] for form in FORMS),
        *lists_of(own.get("weekdays", ""), 7),
    ]
    numbers = {
        form.replace("_", " "): value
        for value, forms in enumerate(own["numbers"].split(), 2)
        for form in forms.split("|")
    }
    return {
        "relative": by_spelling({without_lead(language, phrase): what for phrase, what in relative.items()})
        | by_spelling(own["relative"]),
        # Those of our own first: "hace quince días" is two weeks ago.
        "ago": by_spelling({**own.get("ago", {}), **ago}),
        "weekend": list(by_spelling(dict.fromkeys(own.get("weekend", [])))),
        "past": by_spelling(own.get("past", {})),
        "numbers": by_spelling(numbers | dict.fromkeys(own.get("one", []), 1)),
        "months": by_spelling({name: place for names in month_names for place, name in enumerate(names, 1)}),
        "weekdays": by_spelling({name: place for names in weekday_names for place, name in enumerate(names)}),
        "short": by_spelling({name: place for place, name in enumerate(own.get("short", "").split())}),
        "beside": by_spelling({word: alternatives(words.split()) for word, words in own.get("beside", {}).items()}),
        # A phrase near today is looked up without its spaces.
        "not": by_spelling({word.replace(" ", ""): alternatives(words) for word, words in own.get("not", {}).items()}),
        "seasons": by_spelling(seasons_of(own.get("seasons", ""))),
        "adverbs": by_spelling(seasons_of(own.get("adverbs", ""))),
        "season": by_spelling(own.get("season", {})),
        "holidays": by_spelling(own.get("holidays", {})),
        "ranges": sorted(by_spelling(dict.fromkeys(own["ranges"])), key=len, reverse=True),
        "nothing": sorted(by_spelling(dict.fromkeys(own["nothing"].split())), key=len, reverse=True),
        **{kind: alternatives(own.get(kind, [])) for kind in KINDS},
    }


def lists_of(words: str, length: int) -> list[list[str]]:
    """Returns words in lists of this length: those of a week or of a year, each in one form."""
    split = [word.replace("_", " ") for word in words.split()]
    return [split[start : start + length] for start in range(0, len(split), length)]


def seasons_of(words: str) -> dict[str, int]:
    """Returns the first month of each season, of the words from spring to winter."""
    return {form: 3 * place for place, forms in enumerate(words.split(), 1) for form in forms.split("|")}


def by_spelling(meanings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what phrases mean, by each way to type them: folded, without marks, and with ae, oe, ue."""
    typed: dict[str, Any] = {}
    for phrase, meaning in meanings.items():
        for form in forms_of(phrase):
            for one in typed_spellings(fold(form.replace("’", "'"))):
                typed.setdefault(one, meaning)
    return typed


def forms_of(phrase: str) -> list[str]:
    """Returns the phrases that one with alternatives in brackets stands for."""
    parts = [part.split("|") for part in re.split(r"[()]", phrase)]
    return ["".join(chosen) for chosen in product(*parts)]


def without_lead(language: str, phrase: str) -> str:
    """Returns a phrase of the CLDR without what people leave out or replace, and with all endings that it may have."""
    phrase = phrase.replace("’", "'")
    for lead in LEADS.get(language, "").split():
        phrase = phrase.removeprefix(lead if lead.endswith("'") else f"{lead} ")
    # "letzte Woche", "letzter Woche"; "letztes Jahr", "im letzten Jahr".
    return re.sub(r"^(\w+?)e[nrsm]? (?=\w)", r"\1(e|en|er|es|em) ", phrase) if language == "de" else phrase


def alternatives(words: Iterable[str]) -> str:
    """Returns words as alternatives of a pattern; "" for none."""
    return "|".join(by_spelling(dict.fromkeys(words)))


if __name__ == "__main__":
    languages = tomllib.loads((FOLDER / "own_words.toml").read_text("utf-8"))
    made = {language: words_of(language, own, Path(sys.argv[1])) for language, own in languages.items()}
    text = json.dumps(made, ensure_ascii=False, separators=(",", ": "))
    (FOLDER / "words.json").write_text(text.replace("},", "},\n") + "\n", "utf-8")
