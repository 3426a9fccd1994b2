"""Characters that a terminal may obey, or that no encoding has, written so that they are only read. Pure."""

from __future__ import annotations

import re

# JSON escapes the older control characters itself, but not those above.
_IN_JSON = re.compile("[\x7f-\x9f\ud800-\udfff]")
_IN_XML = re.compile("[\x7f-\x9f]")


def json_text(text: str) -> str:
    """JSON that means the same, without such characters."""
    return _IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def xml_text(text: str) -> str:
    """XML that means the same, without such characters (no name of an element or attribute may have one)."""
    return _IN_XML.sub(lambda found: f"&#{ord(found[0])};", text)
