"""All text by which an error may reach a log or an error report."""

from __future__ import annotations

import traceback


def full_error_text(error: BaseException | None) -> str:
    """Formats an error with its causes: text, repr, arguments, notes and traceback."""
    if error is None:
        return ""
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    trace = "".join(traceback.format_exception(error))
    return f"{error} {error!r} {error.args} {getattr(error, '__notes__', '')}\n{trace}\n{full_error_text(cause)}"
