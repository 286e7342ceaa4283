"""Streams and tables: few columns of all types, keys of one or two columns, names that need quotes."""

from __future__ import annotations

from collections.abc import Sequence

from tests.strategies.pick import Pick
from tests.strategies.values import RELATED, TYPES
from tocsin.model.schema import Field, Stream, Table, Type

__all__ = ["ATTRIBUTES", "open_stream", "stream", "table", "tables"]

_NAMES = ("a", "b", "c", "d", "e", "f", "g")
_ODD = ("unit price", "Order", "größe", "x.y", "tick`s", "1st", "it's", 'say "x"', "select", "Mixed")
_TABLES = ("t", "u", "v", "w")
_ODD_TABLES = ("my table", "Group", "T.1", "ü")
ATTRIBUTES = ("a", "unit price")


def tables(pick: Pick, least: int, most: int, types: Sequence[Type] = TYPES) -> tuple[Table, ...]:
    """Tables that can join: each has columns of three common types, or of types that compare with them."""
    common = [pick.one(types) for _ in range(3)]
    count = pick.between(least, most)
    names = [
        pick.one(_ODD_TABLES[i : i + 1] if pick.chance(15) else _TABLES[i : i + 1]) for i in range(count)
    ]
    return tuple(table(pick, name, common) for name in names)


def table(pick: Pick, name: str, common: Sequence[Type] = ()) -> Table:
    types = [pick.one(RELATED.get(t, (t,))) if pick.chance(40) else t for t in common]
    types += [pick.one(TYPES) for _ in range(pick.between(0, 2))]
    fields = _fields(pick, types)
    if not fields or pick.chance(50):
        fields = (Field("k", Type.BIGINT), *fields)
        key = ["k"]
    else:
        key = [pick.one(fields).name]
    rest = [f.name for f in fields if f.name not in key]
    if rest and pick.chance(35):
        key.append(pick.one(rest))
    return Table(name, fields, tuple(key))


def stream(pick: Pick) -> Stream:
    """A stream with declared columns."""
    return Stream("s", _fields(pick, [pick.one(TYPES) for _ in range(pick.between(1, 4))]))


def open_stream() -> Stream:
    """A stream without: its events carry any of `ATTRIBUTES`."""
    return Stream("o")


def _fields(pick: Pick, types: Sequence[Type]) -> tuple[Field, ...]:
    names = list(_NAMES[: len(types)])
    for i, odd in enumerate(pick.some(_ODD, 0, 2) if pick.chance(30) else ()):
        if i < len(names):
            names[i] = odd
    return tuple(Field(name, type) for name, type in zip(names, types, strict=True))
