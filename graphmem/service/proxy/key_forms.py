"""Finds keys of the service in requests to an endpoint, however they are written. Pure."""

from __future__ import annotations

import re

from graphmem.service.keys import PREFIX


class KeyForms:
    """Finds the keys of the ledger, and the one of the configuration, in text, in JSON, percent-encoded, or both.

    Each text is read once, as it is: decoding one of 32 MiB, which anybody may send, takes seconds and a gigabyte.
    """

    def __init__(self, admin_key: str | None) -> None:
        digits = "|".join(["[0-9a-f]", *(form for digit in "0123456789abcdef" for form in _encoded(digit))])
        of_ledger = f"{_forms(f'{PREFIX}_')}(?:{digits}){{8}}{_forms('_')}"
        # One by one: each is looked for where one of its first characters stands.
        self._expressions = [re.compile(one) for one in (of_ledger, _forms(admin_key or "")) if one]

    def are_in(self, text: str) -> bool:
        """Tells whether a text has a key."""
        return any(expression.search(text) for expression in self._expressions)


def _forms(text: str) -> str:
    """Returns an expression for a text of which each character stands as it is or encoded."""
    return "".join(f"(?:{'|'.join([re.escape(character), *_encoded(character)])})" for character in text)


def _encoded(character: str) -> list[str]:
    """Returns expressions for a character in JSON, percent-encoded, and percent-encoded in JSON."""
    octets = "".join(f"{byte:02x}" for byte in character.encode())
    pairs = [f"{_digit(first)}{_digit(second)}" for first, second in zip(octets[::2], octets[1::2], strict=True)]
    encoded = r"(?:%|\\u0025)".join(pairs)
    forms = [_escape(character), f"%{encoded}", rf"\\u0025{encoded}"]
    if character in r"\"/":
        forms.append(rf"\\{re.escape(character)}")
    if character == " ":
        forms.append(r"\+")
    return forms


def _digit(digit: str) -> str:
    """Returns an expression for a hexadecimal digit, in upper or lower case, as it is or as JSON may write it."""
    cases = sorted({digit, digit.upper()})
    return f"(?:{'|'.join([*cases, *map(_escape, cases)])})"


def _escape(character: str) -> str:
    r"""Returns an expression for a character as JSON may write it, such as \u005f."""
    units = character.encode("utf-16-be")
    codes = (units[place : place + 2].hex() for place in range(0, len(units), 2))
    return "".join(r"\\u" + "".join(f"[{d}{d.upper()}]" if d.isalpha() else d for d in code) for code in codes)
