"""Precision and recall of the extractor for names, types, relations and negation, over hand-labelled sentences.

    python benchmarks/entities/measure.py [--out results.json] [--show]

`labels.jsonl` holds a sentence a line. Where a label gives several forms, parted by |, any of them is right; a label
marked optional is neither missed nor wrong. Keys are compared, as `graphmem.text.normalise_key` makes them.

entities    Labels are names: what a person, place, organisation, product, work, event, language or nationality is
            called, in whatever case it is written. Hit: any mention with that key. For the precision only what the
            extractor calls a name counts (kinds NAME and TITLE); noun chunks are not held against it. Dates and
            amounts are not labelled, the speaker, who is given, is not counted.
types       Of the names hit, the share with the type of the label.
relations   Labels are what a careful reader would note: who does what to whom, who is what, whose sister somebody is.
            "I", and "we" where somebody speaks, are the speaker; "she" is whom the sentence means. The agent of a
            passive is the subject. Three measures, each stricter than the one before, negation left aside:
            `ends` subject and object are right; `verb` and the main verb (or the role, such as "sister") stands in
            the predicate; `whole` and the predicate is the same, preposition, tense and modal included.
negation    Of the relations whose ends are right, those extracted as negated against those that are. `overall` is the
            share of all negated labels that are extracted as negated.
confidence  Of the relations with that confidence: their number, and the share right in ends, verb and negation.

Each by split: "dev" was looked at while the rules were written, "test" only for the figures.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from graphmem.extraction.spacy.extractor import SpacyExtractor
from graphmem.model import Extraction, MentionKind, Statement, Utterance
from graphmem.text import normalise_key

LABELS = Path(__file__).with_name("labels.jsonl")
MEASURES = ("ends", "verb", "whole")
LEADING = frozenset("not will can could must shall should would may might used".split())
PREPOSITIONS = frozenset("of in at on to from for with by about into under next behind through".split())

Label = dict[str, Any]


def main() -> None:
    """Measure, print, and write to a file if one is named."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, help="write the figures there as JSON")
    parser.add_argument(
        "--show", action="store_true", help="print missed and wrong names and relations of the dev split"
    )
    options = parser.parse_args()
    labels = [json.loads(line) for line in LABELS.read_text(encoding="utf-8").splitlines()]
    extractor = SpacyExtractor()
    extractions = extractor.extract([Utterance(label["text"], label["speaker"]) for label in labels])
    pairs = list(zip(labels, extractions, strict=True))
    if options.show:
        for label, extraction in pairs:
            if label["split"] == "dev":
                show(label, extraction)
    report = {"of": about(extractor), "figures": {name: figures(group) for name, group in groups(pairs)}}
    for name, group in report["figures"].items():
        print(name, json.dumps(group))
    if options.out:
        options.out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def about(extractor: SpacyExtractor) -> dict[str, Any]:
    """The extractor, the versions, the machine and the date of a measurement."""
    model = extractor.name.removeprefix("spacy:")
    return {
        "extractor": extractor.name,
        "versions": {name: version(name) for name in ("spacy", model.replace("_", "-"))},
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "date": datetime.now(UTC).date().isoformat(),
    }


def groups(pairs: list[tuple[Label, Extraction]]) -> Iterator[tuple[str, list[tuple[Label, Extraction]]]]:
    """The sentences of each split, in English and not."""
    for split in ("dev", "test"):
        for english in (True, False):
            chosen = [pair for pair in pairs if pair[0]["split"] == split and (pair[0]["language"] == "en") is english]
            yield f"{split}, {'English' if english else 'not English'}", chosen


def figures(pairs: list[tuple[Label, Extraction]]) -> dict[str, Any]:
    """All measures over one group."""
    count: Counter[str] = Counter()
    verdicts: dict[float, list[bool]] = {}
    for label, extraction in pairs:
        count.update(entity_counts(label, extraction))
        matches = match_statements(label["relations"], extraction.statements)
        count.update(relation_counts(label, extraction.statements, matches))
        for place, statement in enumerate(extraction.statements):
            right = is_right(label["relations"], matches.get(place), statement)
            if right is not None:
                # Earlier extractors, whose statements have no confidence, can be measured, too.
                verdicts.setdefault(getattr(statement, "confidence", 1.0), []).append(right)
    return {
        "sentences": len(pairs),
        "entities": scores(count["entity hits"], count["entities right"], count["entities said"], count["entities"]),
        "types": share(count["types right"], count["entity hits"]),
        "relations": {
            name: scores(count[name], count[name], count["relations said"] - count[f"{name} free"], count["relations"])
            for name in MEASURES
        },
        "negation": {
            "precision": share(count["negation right"], count["negation said"]),
            "recall": share(count["negation right"], count["negation labelled"]),
            "overall": share(count["negation right"], count["negated"]),
        },
        "confidence": {
            str(value): [len(right), share(sum(right), len(right))] for value, right in sorted(verdicts.items())
        },
    }


def scores(hits: int, right: int, claimed: int, labelled: int) -> dict[str, Any]:
    """Precision, recall and their harmonic mean, with the numbers they come from."""
    precision, recall = share(right, claimed), share(hits, labelled)
    both = (precision or 0) + (recall or 0)
    f1 = round(2 * (precision or 0) * (recall or 0) / both, 3) if both else None
    return {"precision": precision, "recall": recall, "f1": f1, "said": claimed, "labelled": labelled}


def share(part: int, whole: int) -> float | None:
    """A rounded share, None of nothing."""
    return round(part / whole, 3) if whole else None


def forms(words: str) -> set[str]:
    """The keys a label accepts."""
    return {normalise_key(form) for form in words.split("|")}


def names(label: Label, extraction: Extraction) -> dict[str, str]:
    """The names that the extractor gives, without the speaker: type by key."""
    return {each.key: each.type.value for each in counted_mentions(label, extraction)}


def counted_mentions(label: Label, extraction: Extraction) -> Iterator[Any]:
    """The mentions that count for the precision."""
    speaker = normalise_key(label["speaker"] or "")
    labelled = {key for each in label["entities"] for key in forms(each["name"])}
    for each in extraction.mentions:
        if each.kind <= MentionKind.NAME and (each.key != speaker or speaker in labelled):
            yield each


def entity_counts(label: Label, extraction: Extraction) -> Counter[str]:
    """Hits and misses among the names of one sentence."""
    types = {each.key: each.type.value for each in extraction.mentions}
    count: Counter[str] = Counter()
    free, wanted = set(), set()
    for each in label["entities"]:
        keys = forms(each["name"])
        if each.get("optional"):
            free |= keys
            continue
        wanted |= keys
        count["entities"] += 1
        if hit := keys & set(types):
            count["entity hits"] += 1
            count["types right"] += any(types[key] in each["type"].split("|") for key in hit)
    claimed = set(names(label, extraction)) - (free - wanted)
    count["entities said"] = len(claimed)
    count["entities right"] = len(claimed & wanted)
    return count


def match_statements(labels: list[Label], statements: Iterable[Statement]) -> dict[int, tuple[int, int]]:
    """For each statement its label and how well they agree (1 ends, 2 verb, 3 whole); each label serves once."""
    candidates = sorted(
        (
            (level, not label.get("optional"), negated(statement) == label["negated"], -place, -number)
            for place, statement in enumerate(statements)
            for number, label in enumerate(labels)
            if (level := agreement(label, statement))
        ),
        reverse=True,
    )
    matches: dict[int, tuple[int, int]] = {}
    for level, _, _, place, number in candidates:
        if -place not in matches and all(-number != used for used, _ in matches.values()):
            matches[-place] = (-number, level)
    return matches


def agreement(label: Label, statement: Statement) -> int:
    """How well a statement agrees with a label: 0 not at all, to 3."""
    if statement.subject not in forms(label["subject"]) or statement.object not in forms(label["object"]):
        return 0
    plain = statement.predicate.removeprefix("not ")
    wanted = [form.lower() for form in label["predicate"].split("|")]
    if plain in wanted:
        return 3
    return 2 if any(main_verb(form) in plain.split() for form in wanted) else 1


def main_verb(predicate: str) -> str:
    """The word that must stand there: "visit" of "want to visit", "allergic" of "be allergic to"."""
    words = [word for word in predicate.split() if word not in LEADING]
    while words[-1:] and words[-1] in PREPOSITIONS and len(words) > 1:
        words.pop()
    if "to" in words[1:-1]:
        words = words[len(words) - words[::-1].index("to") :]
    return words[1] if words[0] in ("be", "stop", "finish") and len(words) > 1 else words[0]


def negated(statement: Statement) -> bool:
    """Whether a statement is negated."""
    return statement.predicate.startswith("not ")


def relation_counts(
    label: Label, statements: tuple[Statement, ...], matches: dict[int, tuple[int, int]]
) -> Counter[str]:
    """Hits, misses and negation among the relations of one sentence."""
    labels = label["relations"]
    required = [each for each in labels if not each.get("optional")]
    count = Counter({"relations": len(required), "relations said": len(statements)})
    count["negated"] = sum(each["negated"] for each in required)
    for place, (number, level) in matches.items():
        kind = " free" if labels[number].get("optional") else ""
        count.update(f"{name}{kind}" for name in MEASURES[:level])
        if not kind:
            count["negation said"] += negated(statements[place])
            count["negation labelled"] += labels[number]["negated"]
            count["negation right"] += negated(statements[place]) and labels[number]["negated"]
    return count


def is_right(labels: list[Label], match: tuple[int, int] | None, statement: Statement) -> bool | None:
    """Whether a statement is right in ends, verb and negation; None for one that is optional."""
    if match is None:
        return False
    number, level = match
    if labels[number].get("optional"):
        return None
    return level > 1 and negated(statement) == labels[number]["negated"]


def show(label: Label, extraction: Extraction) -> None:
    """Prints the missed and the wrong names and relations of one sentence."""
    statements, matches = extraction.statements, match_statements(label["relations"], extraction.statements)
    matched_labels = {number for number, _ in matches.values()}
    lines = [
        f"  wrong   {each.subject} | {each.predicate} | {each.object}"
        for place, each in enumerate(statements)
        if is_right(label["relations"], matches.get(place), each) is False
    ]
    lines += [
        f"  missed  {each['subject']} | {'not ' * each['negated']}{each['predicate']} | {each['object']}"
        for number, each in enumerate(label["relations"])
        if number not in matched_labels and not each.get("optional")
    ]
    claimed, types = names(label, extraction), {each.key: each.type.value for each in extraction.mentions}
    labelled = {key: each for each in label["entities"] for key in forms(each["name"])}
    lines += [f"  name?   {key} ({type_})" for key, type_ in claimed.items() if key not in labelled]
    for each in label["entities"]:
        hit = forms(each["name"]) & set(types)
        if not hit and not each.get("optional"):
            lines.append(f"  no name {each['name']} ({each['type']})")
        lines += [f"  type    {key}: {types[key]}" for key in hit if types[key] not in each["type"].split("|")]
    if lines:
        print("\n".join([f"[{label['language']}] {label['text']}", *lines]))


if __name__ == "__main__":
    main()
