"""What an error tells whoever prints it, or has it reported."""

from __future__ import annotations

import traceback


def told(error: BaseException | None) -> str:
    """An error with all that led to it: as text, as repr, its arguments, and the traceback as Python prints it."""
    if error is None:
        return ""
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    shown = "".join(traceback.format_exception(error))
    return f"{error} {error!r} {error.args} {getattr(error, '__notes__', '')}\n{shown}\n{told(before)}"
