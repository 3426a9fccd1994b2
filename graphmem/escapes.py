"""Escapes characters that control a terminal or cannot be encoded, for output in JSON and XML. Pure functions."""

from __future__ import annotations

import re

# JSON itself escapes only the control characters below U+0020.
_IN_JSON = re.compile("[\x7f-\x9f\ud800-\udfff]")
_IN_XML = re.compile("[\x7f-\x9f]")


def json_text(text: str) -> str:
    """Replaces such characters of a JSON text by escapes with the same meaning."""
    return _IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def xml_text(text: str) -> str:
    """Replaces such characters of an XML text by references; names of elements must have none."""
    return _IN_XML.sub(lambda match: f"&#{ord(match[0])};", text)
