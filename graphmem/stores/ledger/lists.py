"""Lists as one parameter. Expanded into hundreds of them, building a statement takes longer than running it."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import ColumnElement, Dialect, Text, bindparam, func, select
from sqlalchemy.types import TypeDecorator


class Listed(TypeDecorator[list[Any]]):
    """A list of numbers or strings as JSON text."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: list[Any] | None, dialect: Dialect) -> str:  # noqa: ARG002  (the base's)
        """As SQLite takes it."""
        return json.dumps(value or [])


def among(column: ColumnElement[Any], name: str) -> ColumnElement[bool]:
    """Whether a column's value is in the list that the parameter `name` holds."""
    values = func.json_each(bindparam(name, type_=Listed())).table_valued("value")
    return column.in_(select(values.c.value))
