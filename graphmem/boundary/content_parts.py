"""Reads the content parts of messages that are no text: images, sounds, videos and files, in the shapes of many APIs.

Those of OpenAI (chat completions, Responses, Realtime), Anthropic and LangChain, old and new. A part has a type, and
what it refers to stands in it or one level deeper: a URL, data, or the id of a file at the API's provider.
"""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as BadBase64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote_to_bytes

from graphmem.model import AttachmentKind

_KINDS: Mapping[str, AttachmentKind] = {
    **dict.fromkeys(("image_url", "input_image", "image", "output_image"), AttachmentKind.IMAGE),
    **dict.fromkeys(("input_audio", "output_audio", "audio", "audio_url"), AttachmentKind.AUDIO),
    **dict.fromkeys(("video", "video_url", "input_video"), AttachmentKind.VIDEO),
    **dict.fromkeys(("file", "input_file", "file_url", "document", "media"), AttachmentKind.FILE),
}
_LINKS = ("url", "image_url", "audio_url", "video_url", "file_url")
_DATA = ("data", "base64", "file_data", "audio")
_IDS = ("file_id", "id")
_MIMES = ("mime_type", "media_type")
# The media type of data that comes without one; endpoints look at the data itself.
_DEFAULT_MIMES = {AttachmentKind.IMAGE: "image/jpeg", AttachmentKind.AUDIO: "audio/wav"}
_ANY_MIME = "application/octet-stream"
_URL_SAFE = str.maketrans("-_", "+/")
DATA_SCHEME = "data:"
# How references to kept data begin, which no link of a message may pass for.
KEPT = ("blobs/", "sha256:")


@dataclass(frozen=True, slots=True)
class MediaPart:
    """A content part that is no text. `link` is a URL, a data: URL or the id of a file; "" if it refers to nothing."""

    kind: AttachmentKind
    link: str
    mime: str | None
    caption: str | None
    transcript: str | None


def read_part(part: Mapping[Any, Any]) -> MediaPart | None:
    """Returns what a content part is and refers to; None for one that is no medium, or refers to and tells nothing.

    Calls of tools and reasoning are such.
    """
    kind = _KINDS.get(str(part.get("type")))
    if kind is None:
        return None
    places = [part, *(value for value in part.values() if isinstance(value, Mapping))]
    mime = _first(places, _MIMES)
    if mime is None and kind is AttachmentKind.AUDIO and (form := _first(places, ("format",))):
        mime = f"audio/{form}"
    if kind is AttachmentKind.FILE and mime is not None:
        kind = next((one for one in AttachmentKind if mime.startswith(f"{one.value}/")), kind)
    link = _first(places, _LINKS)
    words = next((place["data"] for place in places if place.get("type") == "text" and place.get("data")), None)
    if link is None and isinstance(words, str):  # a document of Anthropic's that is text
        link = f"data:{mime or 'text/plain'},{quote(words)}"
    elif link is None and (data := _first(places, _DATA)):
        is_url = data[: len(DATA_SCHEME)].lower() == DATA_SCHEME
        link = data if is_url else f"data:{mime or _DEFAULT_MIMES.get(kind, _ANY_MIME)};base64,{data}"
    link = link or _first(places, _IDS) or ""
    if link.startswith(KEPT):
        link = f"link:{link}"
    told = _first(places, ("caption",)) or (words if isinstance(words, str) else None), _first(places, ("transcript",))
    if not (link or any(told)):
        return None
    if mime is None and is_data(link):
        mime = link[len(DATA_SCHEME) :].partition(",")[0].partition(";")[0] or None
    return MediaPart(kind, link, mime, *told)


def _first(places: list[Mapping[Any, Any]], names: tuple[str, ...]) -> str | None:
    """Returns the first text that is not blank under one of these names."""
    return next(_texts(places, names), None)


def _texts(places: list[Mapping[Any, Any]], names: tuple[str, ...]) -> Iterator[str]:
    for place in places:
        for name in names:
            value = place.get(name)
            if isinstance(value, str) and value.strip():
                yield value


def is_data(link: str) -> bool:
    """Returns whether a link is a data: URL, which holds what it refers to."""
    return link[: len(DATA_SCHEME)].lower() == DATA_SCHEME


def is_web_address(link: str) -> bool:
    """Returns whether a link is a URL that an endpoint can be given."""
    return link[:8].lower().startswith(("http://", "https://"))


def data_of(link: str) -> bytes | None:
    """Returns the bytes that a data: URL holds (RFC 2397); None for any other link, and for base64 that is damaged."""
    head, comma, body = link.partition(",")
    if not comma or not is_data(head):
        return None
    if not head.lower().endswith(";base64"):
        return unquote_to_bytes(body)
    digits = "".join(body.split()).rstrip("=").translate(_URL_SAFE)  # also as MIME wraps lines (RFC 4648, 2045)
    try:
        return b64decode(digits + "=" * (-len(digits) % 4), validate=True)
    except (BadBase64, ValueError):
        return None
