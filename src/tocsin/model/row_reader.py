"""One row of a table as it is stored, straight from its dict: no columns, no Arrow.

The counterpart of `change.py` for single rows. A row that is not good (an unknown column, a value of another
type, a key that is not whole), or has a name in another case, is not read: `read` returns None, and the
caller takes the way of batches, which accepts or rejects it. So one place decides what is a good row.

>>> from tocsin.model.schema import Field
>>> stocks = Table("stocks", (Field("symbol", Type.STRING), Field("since", Type.DATE)), key=("symbol",))
>>> reader = RowReader(stocks)
>>> reader.read({"symbol": "A", "since": "1970-01-31"})
{'symbol': 'A', 'since': 30}
>>> reader.read({"since": None}) is None
True
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tocsin.model.columns import stored
from tocsin.model.schema import Table, Type, read

__all__ = ["RowReader"]

_BIGINT, _DOUBLE, _STRING, _BOOLEAN = Type.BIGINT, Type.DOUBLE, Type.STRING, Type.BOOLEAN
_LEAST, _GREATEST = -(2**63), 2**63 - 1


class RowReader:
    """Reads rows of one table."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self._types = {field.name: field.type for field in table.fields}

    def read(self, row: Mapping[str, Any]) -> dict[str, Any] | None:
        """The given columns as vectors hold them, with None for NULL; None if the row is not plain."""
        types, out = self._types, {}
        for name, value in row.items():
            type_ = types.get(name)
            if type_ is None:
                return None
            kind = type(value)
            if kind is float and type_ is _DOUBLE:
                value += 0.0  # -0.0 becomes 0.0
            elif kind is int and type_ is _BIGINT:
                if not _LEAST <= value <= _GREATEST:
                    return None
            elif not (
                value is None
                or (kind is str and type_ is _STRING and value.isascii())
                or (kind is bool and type_ is _BOOLEAN)
            ):
                try:
                    value = read(type_, value)
                except ValueError:
                    return None
                value = None if value is None else stored(type_, value)
            out[name] = value
        for name in self.table.key:
            value = out.get(name)
            if value is None or value != value:
                return None
        return out
