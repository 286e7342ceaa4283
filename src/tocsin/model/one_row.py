"""One row that stays the dict it came as until somebody needs columns.

An event that was published by itself mostly matches a few subscriptions, whose receivers read it as a dict.
`OneEvent` is an event of an open stream, `OneRow` a row with declared columns; both are `Rows` of length 1
whose columns are made at first use. Values must be good ones when they are read, and the dict not change.

>>> event = OneEvent({"price": 3, "color": "red", "size": None})
>>> event.to_dicts(), [vector.to_list() for vector in event.vectors("price")]
([{'price': 3, 'color': 'red'}], [[3]])
>>> event.project({"cost": "price", "weight": "weight"}).to_dicts()
[{'cost': 3, 'weight': None}]
>>> OneRow({"x": 1}, {"x": Type.DOUBLE, "y": Type.STRING}).to_dicts()
[{'x': 1.0, 'y': None}]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tocsin.model.columns import Index, Rows, SparseRows, Vector
from tocsin.model.paths import is_inside
from tocsin.model.schema import Type, kind_of, read

__all__ = ["OneEvent", "OneRow", "one_row", "together"]


class OneRow(Rows):
    """A row of typed columns; columns that the dict does not have are NULL."""

    sparse, _length = False, 1

    def __init__(self, row: dict[str, Any], types: Mapping[str, Type]) -> None:
        self.values, self.types = row, types

    def __getattr__(self, name: str) -> Any:
        """Columns are made when they are first read."""
        if name not in ("columns", "_by_name"):
            raise AttributeError(name)
        values = self._read()
        columns = [(column, Vector.of(type, [values[column]])) for column, type in self.types.items()]
        super().__init__(columns, 1)
        return getattr(self, name)

    def project(self, names: Mapping[str, str]) -> Rows:
        row = {new: self.values.get(old) for new, old in names.items()}
        return OneRow(row, {new: self.types.get(old, Type.STRING) for new, old in names.items()})

    def to_dicts(self, index: Index | None = None) -> list[dict[str, Any]]:
        values = self._read()
        return [dict(values) for _ in range(1 if index is None else len(index))]

    def _read(self) -> dict[str, Any]:
        return {name: read(type, self.values.get(name)) for name, type in self.types.items()}


class OneEvent(SparseRows):
    """An event of an open stream; None is a missing attribute."""

    sparse, _length = True, 1
    types: Mapping[str, Type] | None = None

    def __init__(self, event: dict[str, Any]) -> None:
        self.values = event

    def __getattr__(self, name: str) -> Any:
        """Entries are made when they are first read."""
        if name not in ("columns", "_by_name", "parts", "_names", "source"):
            raise AttributeError(name)
        made = SparseRows.from_dicts([self.values])
        super().__init__(made.parts, made.names, 1, made.source)
        return getattr(self, name)

    def project(self, names: Mapping[str, str]) -> Rows:
        row = {new: self.values.get(old) for new, old in names.items()}
        types = {new: Type.STRING if value is None else kind_of(value) for new, value in row.items()}
        return OneRow(row, types)

    def visible(self) -> OneEvent:
        """The event without attributes that stand for something inside it."""
        if not any(map(is_inside, self.values)):
            return self
        return OneEvent({name: value for name, value in self.values.items() if not is_inside(name)})

    def to_dicts(self, index: Index | None = None) -> list[dict[str, Any]]:
        values = {n: read(kind_of(v), v) for n, v in self.values.items() if v is not None}
        return [dict(values) for _ in range(1 if index is None else len(index))]


def one_row(values: dict[str, Any], types: Mapping[str, Type] | None) -> OneEvent | OneRow:
    """Values, not checked, as a row of these columns, or as an event; it keeps the dict."""
    return OneEvent(values) if types is None else OneRow(values, types)


def together(rows: Sequence[Rows]) -> Rows:
    """Single rows of one relation as rows of that length.

    >>> together([OneEvent({"x": 1}), OneEvent({"y": "a"})]).to_dicts()
    [{'x': 1}, {'y': 'a'}]
    """
    first = rows[0]
    if isinstance(first, OneEvent):
        return SparseRows.from_dicts([row.values for row in rows if isinstance(row, OneEvent)])
    dicts = [row.to_dicts()[0] for row in rows]
    columns = [(n, Vector.of(v.type, [row[n] for row in dicts])) for n, v in first.columns]
    return Rows(columns, len(rows))
