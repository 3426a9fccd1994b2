"""Content parts of messages in the shapes of many APIs, read as attachments."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from graphmem.boundary.content_parts import data_of, read_part

URL = "https://x.test/cat.png"
DATA = b64encode(b"meow").decode()


@pytest.mark.parametrize(
    ("part", "kind", "link", "mime"),
    [
        # OpenAI, chat completions
        ({"type": "image_url", "image_url": {"url": URL, "detail": "low"}}, "image", URL, None),
        ({"type": "image_url", "image_url": URL}, "image", URL, None),
        (
            {"type": "input_audio", "input_audio": {"data": DATA, "format": "mp3"}},
            "audio", f"data:audio/mp3;base64,{DATA}", "audio/mp3",
        ),
        ({"type": "file", "file": {"file_id": "file-1"}}, "file", "file-1", None),
        (
            {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{DATA}"}},
            "file", f"data:application/pdf;base64,{DATA}", "application/pdf",
        ),
        # OpenAI, Responses and Realtime
        ({"type": "input_image", "image_url": URL}, "image", URL, None),
        ({"type": "input_image", "file_id": "file-2", "detail": "auto"}, "image", "file-2", None),
        ({"type": "input_file", "file_url": URL}, "file", URL, None),
        ({"type": "input_audio", "audio": DATA}, "audio", f"data:audio/wav;base64,{DATA}", "audio/wav"),
        # Anthropic
        (
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}},
            "image", f"data:image/png;base64,{DATA}", "image/png",
        ),
        ({"type": "document", "source": {"type": "url", "url": URL}}, "file", URL, None),
        # LangChain, of today and before
        ({"type": "image", "url": URL, "mime_type": "image/png", "id": "b-1"}, "image", URL, "image/png"),
        (
            {"type": "audio", "base64": DATA, "mime_type": "audio/wav"},
            "audio", f"data:audio/wav;base64,{DATA}", "audio/wav",
        ),
        ({"type": "video", "file_id": "file-3"}, "video", "file-3", None),
        ({"type": "image", "source_type": "url", "url": URL}, "image", URL, None),
        (
            {"type": "media", "mime_type": "audio/ogg", "data": DATA},
            "audio", f"data:audio/ogg;base64,{DATA}", "audio/ogg",
        ),
    ],
)  # fmt: skip
def test_shapes(part: dict[str, Any], kind: str, link: str, mime: str | None) -> None:
    medium = read_part(part)
    assert medium is not None
    assert (medium.kind, medium.link, medium.mime) == (kind, link, mime)


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url"},
        {"type": "image", "url": " "},
        {"type": "tool_use", "id": "c1", "name": "look", "input": {"url": URL}},
        {"type": "thinking", "thinking": "hm"},
        {"type": "refusal", "refusal": "no"},
    ],
)
def test_what_refers_to_no_medium_is_none(part: dict[str, Any]) -> None:
    assert read_part(part) is None


def test_captions_and_transcripts_stand_in_the_part_or_one_level_deeper() -> None:
    for part in (
        {"type": "image_url", "image_url": {"url": URL}, "caption": "A cat", "transcript": "Miaow"},
        {"type": "image_url", "image_url": {"url": URL, "caption": "A cat", "transcript": "Miaow"}},
    ):
        medium = read_part(part)
        assert medium is not None
        assert (medium.caption, medium.transcript) == ("A cat", "Miaow")


@pytest.mark.parametrize(
    ("link", "data"),
    [
        (f"data:image/png;base64,{DATA}", b"meow"),
        (f"DATA:;BASE64,{DATA.rstrip('=')}", b"meow"),
        ("data:,a%20cat", b"a cat"),
        ("data:image/png;base64,not base64", None),
        ("data:image/png", None),
        (URL, None),
    ],
)
def test_data_urls(link: str, data: bytes | None) -> None:
    assert data_of(link) == data
