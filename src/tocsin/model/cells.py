"""Events of an open stream as cells, by type: one pass over the attributes of each event.

>>> numbers, found = {}, {kind: Cells([], [], [], []) for kind in Type}
>>> add_plain({"color": "red", "price": 5, "tags": []}, 0, numbers, found), list(numbers)
(['tags'], ['color', 'price'])
>>> found[Type.BIGINT]
Cells(event=[0], rank=[1], name=[1], value=[5])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tocsin.model.schema import Type, is_missing, is_nested, kind_of, read

__all__ = ["Cells", "add_event", "add_plain", "is_unicode"]


class Cells(NamedTuple):
    """The cells of one type: event, place in it, number of the attribute, value."""

    event: list[int]
    rank: list[int]
    name: list[int]
    value: list[Any]


def add_plain(
    event: Mapping[str, Any], count: int, numbers: dict[str, int], found: dict[Type, Cells]
) -> Sequence[str] | None:
    """Add an event of ordinary values; returns its attributes with nested values.

    None, and nothing is added, if it has others.
    """
    nested: list[str] = []
    before = len(numbers)
    for rank, (name, value) in enumerate(event.items()):
        kind = _KINDS.get(type(value))
        if kind is None:
            if type(name) is not str or not name.isascii():
                break
            if type(value) in _INSIDE:
                nested.append(name)
            elif value is not None:
                break
            continue
        if kind is Type.STRING:
            if not value.isascii() and not is_unicode(value):
                break
        elif kind is Type.DOUBLE:
            value += 0.0  # -0.0 becomes 0.0
        elif kind is Type.BIGINT and not -(2**63) <= value < 2**63:
            break
        number = numbers.get(name)
        if number is None:
            if type(name) is not str or not name.isascii():
                break
            number = numbers[name] = len(numbers)
        events, ranks, names, values = found[kind]
        events.append(count)
        ranks.append(rank)
        names.append(number)
        values.append(value)
    else:
        return nested
    _take_back(count, before, numbers, found)
    return None


_KINDS = {str: Type.STRING, int: Type.BIGINT, float: Type.DOUBLE, bool: Type.BOOLEAN}
_INSIDE = frozenset((dict, list))


def _take_back(count: int, before: int, numbers: dict[str, int], found: dict[Type, Cells]) -> None:
    """Take back what was added of an event."""
    for cells in found.values():
        while cells.event and cells.event[-1] == count:
            for column in cells:
                column.pop()
    while len(numbers) > before:
        numbers.popitem()


def add_event(
    event: Mapping[str, Any], count: int, numbers: dict[str, int], found: dict[Type, Cells]
) -> list[str]:
    """Add any event; returns its attributes with nested values. ValueError if it is bad: nothing is added."""
    cells: list[tuple[Type, int, str, Any]] = []
    nested: list[str] = []
    for rank, (name, value) in enumerate(event.items()):
        if not isinstance(name, str) or not is_unicode(name):
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
    for kind, rank, name, value in cells:
        for column, one in zip(
            found[kind], (count, rank, numbers.setdefault(name, len(numbers)), value), strict=True
        ):
            column.append(one)
    return nested


def is_unicode(text: str) -> bool:
    """Whether a text has no half of a surrogate pair."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
