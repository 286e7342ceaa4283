"""Events of an open stream as cells, by type: one pass over the attributes of each event.

>>> numbers, found = {}, {kind: Cells([], [], [], []) for kind in Type}
>>> add_plain({"color": "red", "price": 5}, 0, numbers, found), list(numbers)
(True, ['color', 'price'])
>>> found[Type.BIGINT]
Cells(event=[0], rank=[1], name=[1], value=[5])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tocsin.model.schema import Type, is_missing, is_nested, kind_of, read

__all__ = ["Cells", "add_event", "add_plain"]


class Cells(NamedTuple):
    """The cells of one type: event, place in it, number of the attribute, value."""

    event: list[int]
    rank: list[int]
    name: list[int]
    value: list[Any]


def _add_cells(
    cells: Sequence[tuple[Type, int, str, Any]], count: int, numbers: dict[str, int], found: dict[Type, Cells]
) -> None:
    for kind, rank, name, value in cells:
        own = found[kind]
        own.event.append(count)
        own.rank.append(rank)
        own.name.append(numbers.setdefault(name, len(numbers)))
        own.value.append(value)


def add_plain(
    event: Mapping[str, Any], count: int, numbers: dict[str, int], found: dict[Type, Cells]
) -> bool:
    """Add an event of ordinary values; False, and nothing is added, if it has others."""
    cells = []
    for rank, (name, value) in enumerate(event.items()):
        exact = type(value)
        if exact is str:
            if not value.isascii():
                return False
            kind = Type.STRING
        elif exact is int:
            if not -(2**63) <= value < 2**63:
                return False
            kind = Type.BIGINT
        elif exact is bool:
            kind = Type.BOOLEAN
        elif value is None:
            continue
        elif exact is float:
            kind, value = Type.DOUBLE, value + 0.0  # -0.0 becomes 0.0
        else:
            return False
        if name not in numbers and (type(name) is not str or not name.isascii()):
            return False
        cells.append((kind, rank, name, value))
    _add_cells(cells, count, numbers, found)
    return True


def add_event(
    event: Mapping[str, Any], count: int, numbers: dict[str, int], found: dict[Type, Cells]
) -> list[str]:
    """Add any event; returns its attributes with nested values. ValueError if it is bad: nothing is added."""
    cells: list[tuple[Type, int, str, Any]] = []
    nested: list[str] = []
    for rank, (name, value) in enumerate(event.items()):
        if not isinstance(name, str) or not _is_unicode(name):
            raise ValueError(f"an attribute's name is text, not {name!r}")
        if value is None:
            continue
        try:
            kind = kind_of(value)
            cells.append((kind, rank, name, read(kind, value)))
        except ValueError as error:
            if is_nested(value):
                nested.append(name)
            elif not is_missing(value):
                raise ValueError(f"attribute {name}: {error}") from None
        else:
            if cells[-1][3] is None:  # NaT
                cells.pop()
    _add_cells(cells, count, numbers, found)
    return nested


def _is_unicode(text: str) -> bool:
    """Whether a text has no half of a surrogate pair."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
