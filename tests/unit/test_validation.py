"""Argument checks of the public API: accepted values, their conversion, and refusals."""

from __future__ import annotations

import ast
import re
import sys
from datetime import UTC, date, datetime, timedelta, timezone
from enum import IntEnum, StrEnum
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmem.boundary import validation
from graphmem.errors import ValidationError
from graphmem.model import Attachment, AttachmentKind, Kind, Message, Scope, micros

NOW = datetime(2024, 5, 1, 12, tzinfo=UTC)
MAY_8 = datetime(2023, 5, 8, tzinfo=UTC)
LOOP: list[Any] = []
LOOP.append(LOOP)


def parse_messages(value: object, **options: Any) -> list[Message]:
    return validation.message_list(value, now=NOW, **options)


def nested(depth: int) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for _ in range(depth - 1):
        document = {"a": document}
    return document


# --- scope ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ids", "filters", "expected", "rest"),
    [
        (("alice", None, None), None, Scope("alice"), None),
        (("  alice\n", None, None), None, Scope("alice"), None),
        ((7, 1.5, "r"), None, Scope("7", "1.5", "r"), None),
        (("Ays\u0327e", "e\u0301", "\u30ab\u3099"), None, Scope("Ayşe", "é", "ガ"), None),
        (("é",), {"user_id": "e\u0301"}, Scope("é"), None),
        ((None, None, "李雷"), {}, Scope(run_id="李雷"), None),
        ((None, None, None), {"user_id": "alice"}, Scope("alice"), None),
        ((None, None, None), {"user_id": 7, "topic": "x"}, Scope("7"), {"topic": "x"}),
        (("alice", None, None), {"user_id": " alice ", "run_id": "r"}, Scope("alice", None, "r"), None),
        (("alice",), {"AND": [{"user_id": "alice"}]}, Scope("alice"), None),
        (
            (),
            {"AND": [{"AND": ({"user_id": "a", "x": 1},)}, {"run_id": 7}]},
            Scope("a", None, "7"),
            {"AND": [{"AND": [{"x": 1}]}]},
        ),
        ((), {"AND": [{"user_id": "a"}, {}]}, Scope("a"), {"AND": [{}]}),
        (("a",), {"OR": [{"x": 1}, {"y": "user_id"}]}, Scope("a"), {"OR": [{"x": 1}, {"y": "user_id"}]}),
    ],
)
def test_scope(ids: tuple[Any, ...], filters: Any, expected: Scope, rest: Any) -> None:
    assert validation.scope(*ids, filters=filters) == (expected, rest)


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "  ",
        "*",
        " * ",
        "a\x00b",
        "a\nb",
        "a\x7fb",
        "a\x85b",
        "a\ud800",
        "x" * 257,
        True,
        float("nan"),
        b"a",
        ["a"],
        {"eq": "a"},
        object(),
        10**400,
    ],
)
@pytest.mark.parametrize("name", validation.SCOPE_NAMES)
def test_bad_ids_are_refused_in_both_places(name: str, bad: object) -> None:
    with pytest.raises(ValidationError, match=name):
        validation.scope(**{name: bad})  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match=rf"filters\.{name}"):
        validation.scope(filters={name: bad})


@pytest.mark.parametrize(
    "filters",
    [
        {"user_id": "bob"},
        {"user_id": None},
        {"AND": [{"user_id": "bob"}]},
        {"AND": [{"user_id": "alice"}, {"AND": [{"user_id": "bob"}]}]},
        {"AND": [{"OR": [{"user_id": "alice"}]}]},
        {"AND": [{"NOT": {"user_id": "alice"}}]},
        {"OR": [{"x": 1}, {"NOT": {"agent_id": "alice"}}]},
        {"NOT": [{"AND": ({"run_id": "*"},)}]},
        {"x": {"eq": {"user_id": "alice"}}},
        {"AND": LOOP},
        ["user_id"],
        "user_id",
    ],
)
def test_filters_never_widen_the_scope(filters: object) -> None:
    with pytest.raises(ValidationError):
        validation.scope("alice", filters=filters)


def test_a_call_without_scope_ids_is_refused() -> None:
    with pytest.raises(ValidationError, match="pass at least one"):
        validation.required_scope(filters={"topic": 1})
    assert validation.scope(filters={"topic": 1}) == (None, {"topic": 1})


def test_the_callers_filters_are_left_alone() -> None:
    filters = {"user_id": "alice", "topic": 1}
    validation.scope(filters=filters)
    assert filters == {"user_id": "alice", "topic": 1}


# --- messages ------------------------------------------------------------------------------------------------------


def test_a_string_is_a_user_message() -> None:
    assert parse_messages("  hi\n\t") == [Message("user", "  hi\n\t", NOW)]


def test_a_full_message() -> None:
    full = {"role": "tool", "content": "42", "name": " calc ", "timestamp": 0, "id": 9, "tool_call_id": "x"}
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    assert parse_messages(full, timestamp=NOW) == [Message("tool", "42", epoch, name="calc", id="9", has_own_time=True)]


def test_a_message_has_its_own_time_else_that_of_the_call_else_now() -> None:
    both = ["a", {"role": "user", "content": "b", "timestamp": "2023-05-08"}]
    assert [(one.at, one.has_own_time) for one in parse_messages(both)] == [(NOW, False), (MAY_8, True)]
    assert [(one.at, one.has_own_time) for one in parse_messages(both, timestamp=86400)] == [
        (datetime(1970, 1, 2, tzinfo=UTC), True),
        (MAY_8, True),
    ]


@pytest.mark.parametrize(
    "messages",
    [
        [],
        (),
        "",
        " \n",
        [{"role": "assistant", "content": None}],
        [{"role": "assistant", "tool_calls": [{"id": "1"}]}],
        [{"role": "system", "content": "be nice"}, {"role": "developer", "content": "be brief"}],
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x/y.png"}}]}],
        [{"role": "user", "content": []}],
    ],
)
def test_messages_without_text_are_left_out(messages: object) -> None:
    assert parse_messages(messages) == []


def test_order_is_kept() -> None:
    roles = ["user", "system", "assistant", "tool", "function", "developer", "user"]
    messages = parse_messages([{"role": role, "content": str(i)} for i, role in enumerate(roles)])
    assert [one.content for one in messages] == ["0", "2", "3", "4", "6"]


def test_parts_become_text_and_references() -> None:
    data = "data:image/png;base64," + "A" * 5_000_000
    link = {"type": "image_url", "image_url": {"url": "https://x/y.png", "detail": "low"}}
    parts = [
        {"type": "text", "text": "look "},
        link,
        {"type": "image_url", "image_url": {"url": data}},
        {"type": "input_audio", "input_audio": {"data": "B" * 9999, "format": "wav"}},
        "there",
    ]
    [one] = parse_messages([{"role": "user", "content": parts}])
    assert one.content == "look \nthere"
    linked, image, sound = one.attachments
    assert linked == Attachment(AttachmentKind.IMAGE, "https://x/y.png")
    assert image.ref == data[:64] + f"… [{len(data)} characters, cut]"
    assert (image.size, image.sha256) == (3_750_000, sha256(bytes(3_750_000)).hexdigest())
    assert (sound.kind, sound.mime, len(sound.ref) < 100) == (AttachmentKind.AUDIO, "audio/wav", True)


def test_content_may_be_one_part() -> None:
    image = {"type": "image_url", "image_url": {"url": "https://x/y.png"}}
    parts = [{"type": "text", "text": "She paints."}, {"type": "input_text", "text": "Hi"}, image]
    parsed = validation.parse_messages([{"role": "user", "content": part} for part in parts], now=NOW)
    assert [(one.index, one.content, one.text) for one in parsed] == [
        (0, "She paints.", "She paints."), (1, "Hi", "Hi"), (2, "", ""),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "content", ["12 degrees", [{"type": "text", "text": "12 degrees"}], {"type": "text", "text": "12 degrees"}]
)
def test_the_result_of_a_tool_is_not_said_by_the_user(content: object) -> None:
    result = {"type": "tool_result", "tool_use_id": "c1", "content": content}
    said = {"type": "text", "text": "Thanks"}
    one, two = parse_messages([{"role": "user", "content": [result]}, {"role": "user", "content": [result, said]}])
    assert (one.role, one.content, one.attachments) == ("tool", "12 degrees", ())
    assert (two.role, two.content, two.attachments) == ("user", "Thanks", ())


@pytest.mark.parametrize("content", ["", " \n", "\u200b", " \u200b\u200d\ufeff\u2060", "\u202e\u00ad"])
def test_a_message_without_anything_seen_is_empty(content: str) -> None:
    assert parse_messages(content) == []
    assert validation.message_list([content, f"{content}a"], now=datetime.now(UTC))[0].content == f"{content}a"
    with pytest.raises(ValidationError, match=r"text.*empty"):
        validation.content(content, "text")


@pytest.mark.parametrize("content", [[], {"type": "tool_result"}, [{"type": "tool_result", "content": None}]])
def test_a_result_of_a_tool_may_be_empty(content: object) -> None:
    assert parse_messages([{"role": "user", "content": content}]) == []


@pytest.mark.parametrize(
    ("bad", "pattern"),
    [
        ({"role": "user", "content": {"text": "x"}}, r"messages\.content"),
        (None, "messages=<NoneType>"),
        (5, "messages=<int>"),
        (b"hi", "messages="),
        ([5], r"messages\[0\]"),
        ([["hi"]], r"messages\[0\]"),
        ({"content": "x"}, r"messages=\['content'\]: has no \"role\""),
        ({"a": 1}, r"messages=\['a'\]: has no \"content\""),
        ({"role": None, "content": "x"}, r"messages\.role=None"),
        ({"role": "USER", "content": "x"}, "'user'"),
        ({"role": ["user"], "content": "x"}, r"messages\.role"),
        ({"role": "user", "text": "x"}, '"content"'),
        ({"role": "user", "content": 5}, r"messages\.content"),
        ({"role": "user", "content": b"x"}, r"messages\.content"),
        ({"role": "user", "content": [{"type": "text"}]}, r"content\[0\]\.text"),
        ({"role": "user", "content": [{"text": "x"}]}, r"content\[0\]"),
        ({"role": "user", "content": [{"type": "image", "data": b"x"}]}, r"content\[0\]\.data"),
        (["ok", {"role": "user", "content": "a\x00"}], r"messages\[1\]\.content"),
        ("lone \udfff", r"holds a lone surrogate at 5"),
        ({"role": "system", "content": "\x00"}, "messages.content"),
        ("x" * 1_000_001, "1,000,000"),
        (["x"] * 10_001, "10,000"),
        ({"role": "user", "content": "x", "name": ""}, r"messages\.name"),
        ({"role": "user", "content": "x", "name": "a\nb"}, r"messages\.name"),
        ({"role": "user", "content": "x", "name": 5}, r"messages\.name"),
        ({"role": "user", "content": "x", "id": True}, r"messages\.id"),
        ({"role": "user", "content": "x", "id": " "}, r"messages\.id"),
        ({"role": "user", "content": "x", "timestamp": "soon"}, r"messages\.timestamp"),
    ],
)
def test_bad_messages(bad: object, pattern: str) -> None:
    with pytest.raises(ValidationError, match=pattern):
        parse_messages(bad)


def test_errors_are_short() -> None:
    with pytest.raises(ValidationError) as caught:
        parse_messages({"role": "x" * 10_000, "content": ["y" * 10_000]})
    assert len(str(caught.value)) < 300


# --- times ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2023-05-08", MAY_8),
        (" 2023-05-08T00:00:00Z ", MAY_8),
        ("2023-05-08T02:00:00+02:00", MAY_8),
        ("2023-05-08T00:00:00.000001", MAY_8 + timedelta(microseconds=1)),
        (datetime(2023, 5, 8), MAY_8),  # noqa: DTZ001
        (datetime(2023, 5, 7, 19, tzinfo=timezone(timedelta(hours=-5))), MAY_8),
        (date(2023, 5, 8), MAY_8),
        (1683504000, MAY_8),
        (1683504000.25, MAY_8 + timedelta(milliseconds=250)),
        (" 1683504000 ", MAY_8),  # as a command line and a query have it
        ("1683504000.25", MAY_8 + timedelta(milliseconds=250)),
        ("20230508", MAY_8),  # eight digits are a day
        ("0", datetime(1970, 1, 1, tzinfo=UTC)),
        (-1, datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)),
    ],
)
def test_moment(value: object, expected: datetime) -> None:
    moment = validation.moment(value, "timestamp")
    assert moment == expected
    assert moment.utcoffset() == timedelta(0)


@pytest.mark.parametrize(
    "bad",
    [
        None,
        True,
        "",
        "yesterday",
        "2023-13-01",
        "1683504000000",
        "2023",  # a year, no seconds of 1970
        "202305",
        "20230508.5",
        "1e9",
        "١٦٨٣٥٠٤٠٠٠",
        "9" * 400,
        float("nan"),
        float("inf"),
        1e30,
        10**400,
        1683504000000,
        datetime.min.replace(tzinfo=timezone(timedelta(hours=5))),
        "9999-12-31T23:59:59-01:00",
        [],
        b"2023-05-08",
    ],
)
def test_bad_moments(bad: object) -> None:
    with pytest.raises(ValidationError, match="timestamp="):
        validation.moment(bad, "timestamp")


@settings(deadline=None)
@given(st.datetimes(timezones=st.timezones()))
def test_every_moment_is_stored_exactly(when: datetime) -> None:
    try:
        moment = validation.moment(when, "timestamp")
    except ValidationError:
        assert when.year in {1, 9999}
    else:
        assert moment == when.astimezone(UTC)
        assert -(2**63) < micros(moment) < 2**63


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        ("2023-05-08", datetime(2023, 5, 8, 23, 59, 59, 999999, tzinfo=UTC)),
        (date(2023, 5, 8), datetime(2023, 5, 8, 23, 59, 59, 999999, tzinfo=UTC)),
        ("9999-12-31", datetime.max.replace(tzinfo=UTC)),
        ("2023-05-08T00:00", MAY_8),
        (MAY_8, MAY_8),
        (1683504000, MAY_8),
    ],
)
def test_expiration(value: object, expected: datetime | None) -> None:
    assert validation.expiration(value) == expected


def test_bad_expiration() -> None:
    with pytest.raises(ValidationError, match="expiration_date='never'"):
        validation.expiration("never")


# --- metadata ------------------------------------------------------------------------------------------------------


class Colour(StrEnum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


def test_metadata_is_a_deep_plain_copy() -> None:
    tags = ["a"]
    metadata = validation.metadata({"tags": tags, "t": (1, 2.5, None, True), "at": MAY_8, "on": date(2023, 5, 8)})
    tags.append("b")
    assert metadata == {"tags": ["a"], "t": [1, 2.5, None, True], "at": "2023-05-08T00:00:00+00:00", "on": "2023-05-08"}
    assert validation.metadata(None) == {}
    plain = validation.metadata({Colour.RED: Colour.RED, "n": Level.HIGH})
    assert plain == {"red": "red", "n": 3}
    assert [type(one) for one in plain.values()] == [str, int]


@pytest.mark.parametrize(
    ("bad", "pattern"),
    [
        ([], "metadata="),
        ("{}", "metadata="),
        ({1: 2}, "metadata key=1"),
        ({"a": {"b": float("nan")}}, r"metadata\.a\.b=nan"),
        ({"a": [float("inf")]}, r"metadata\.a\[0\]"),
        ({"a": {1, 2}}, "set is not JSON"),
        ({"a": b"x"}, "bytes is not JSON"),
        ({"a": "\x00"}, r"metadata\.a"),
        ({"a\ud800": 1}, "metadata key"),
        ({"a": 10**5000}, r"metadata\.a"),
        ({"a": "x" * 300_000}, "262,144"),
        ({"a": "é" * 140_000}, "262,144"),
        ({"a": LOOP}, "nested too deeply"),
        (nested(21), "at most 20"),
    ],
)
def test_bad_metadata(bad: object, pattern: str) -> None:
    with pytest.raises(ValidationError, match=pattern):
        validation.metadata(bad)


def test_twenty_levels_are_fine() -> None:
    assert validation.metadata(nested(20)) == nested(20)


# --- the rest ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("check", "value", "expected"),
    [
        (validation.query, "  who?\n", "who?"),
        (validation.top_k, 1, 1),
        (validation.top_k, 1000, 1000),
        (validation.threshold, None, None),
        (validation.threshold, 1, 1.0),
        (validation.threshold, -0.5, -0.5),
        (validation.min_relevance, None, None),
        (validation.min_relevance, 1, 1.0),
        (validation.min_relevance, "default", "default"),
        (validation.kinds, None, None),
        (validation.kinds, "fact", frozenset({Kind.FACT})),
        (validation.kinds, ["fact", Kind.EPISODE], frozenset({Kind.FACT, Kind.EPISODE})),
        (validation.kinds, {"summary"}, frozenset({Kind.SUMMARY})),
        (validation.memory_type, None, None),
        (validation.memory_type, "semantic", "semantic"),
        (validation.memory_type, "procedural_memory", "procedural"),
        (validation.memory_id, "'; DROP TABLE x; \x00\ud800", ""),
    ],
)
def test_valid_arguments_are_converted(check: Any, value: object, expected: object) -> None:
    assert check(value) == expected


@pytest.mark.parametrize(
    ("check", "name", "values"),
    [
        (validation.query, "query", ["", " \n", None, 5, "\x00", "\ud800", "x" * 100_001]),
        (validation.top_k, "top_k", [0, -1, 1001, True, 5.0, "5", None, 10**5000]),
        (validation.threshold, "threshold", [1.01, -2, float("nan"), True, "0.5"]),
        (validation.min_relevance, "min_relevance", [1.01, -0.1, float("nan"), True, "0.5", "all"]),
        (validation.kinds, "kinds", ["facts", [], "", ["fact", 5], 5, {"fact": 1}, b"fact", [[]]]),
        (validation.memory_type, "memory_type", ["", "_memory", "core", 5, ["semantic"]]),
        (validation.memory_id, "memory_id", [None, 5, b"x"]),
    ],
)
def test_invalid_arguments_are_refused(check: Any, name: str, values: list[object]) -> None:
    for value in values:
        with pytest.raises(ValidationError, match=f"^{name}="):
            check(value)


@pytest.mark.parametrize("character", ["\0", "\ud800"])
@pytest.mark.parametrize(
    ("check", "name"),
    [
        (validation.query, "query"),
        (lambda text: parse_messages(text), "messages"),
        (lambda text: validation.metadata({"note": text}), "metadata.note"),
        (lambda text: validation.metadata({text: 1}), "metadata key"),
        (lambda text: validation.identifier(text, "user_id"), "user_id"),
        (lambda text: validation.namespace([text]), "namespace"),
        (validation.folder, "path"),
    ],
)
def test_an_error_about_an_impossible_character_repeats_no_text(check: Any, name: str, character: str) -> None:
    with pytest.raises(ValidationError, match=r"NUL|lone surrogate") as caught:
        check(f"Zanzibar{character}")
    for text in (str(caught.value), caught.value.without_value):
        assert text.startswith(name)
        assert text.isprintable()
        assert not re.search(r"Zanzibar|\\[ux]", text), text


def test_the_error_of_an_unknown_kind_or_type_lists_the_known_ones() -> None:
    with pytest.raises(ValidationError, match="'episode', 'fact', 'summary'"):
        validation.kinds(["facts"])
    with pytest.raises(ValidationError, match="'semantic', 'episodic', 'preference', 'procedural'"):
        validation.memory_type("core")


def test_count() -> None:
    assert validation.count(0, "offset", 0, 10) == 0
    with pytest.raises(ValidationError, match="offset=11: must be a whole number from 0 to 10"):
        validation.count(11, "offset", 0, 10)


def test_two_names_of_an_argument_have_one_value() -> None:
    names = ("top_k", "limit")
    assert validation.merge_aliases(None, None, names) is None
    assert validation.merge_aliases(3, None, names) == validation.merge_aliases(None, 3, names) == 3
    assert validation.merge_aliases(0, 0, names) == 0
    with pytest.raises(ValidationError, match="limit=4: differs from top_k"):
        validation.merge_aliases(3, 4, names)


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=()))
    | st.binary()
    | st.dates(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner) | st.tuples(inner),
    max_leaves=10,
)


@settings(deadline=None)
@given(ANYTHING)
def test_only_validation_errors_are_raised(value: object) -> None:
    for check in (
        parse_messages,
        validation.metadata,
        validation.query,
        validation.kinds,
        validation.expiration,
        validation.top_k,
    ):
        try:
            check(value)
        except ValidationError as error:
            str(error).encode()


@pytest.mark.parametrize("name", ["validation", "filters"])
def test_imports_are_light(name: str) -> None:
    source = Path(validation.__file__).with_name(f"{name}.py").read_text("utf-8")
    imports = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import | ast.ImportFrom)]
    roots = {
        (node.module or "" if isinstance(node, ast.ImportFrom) else alias.name).split(".")[0]
        for node in imports
        for alias in node.names
    }
    assert roots - {"graphmem"} <= sys.stdlib_module_names
