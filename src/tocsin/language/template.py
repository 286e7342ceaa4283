"""Queries with slots: parsed once, filled many times.

A `Template` holds a query in which some constants are `Slot`s. Filling it copies only the
conditions that contain one; the rest is shared by all the queries made from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from tocsin.language.algebra import And, Atom, In, Not, Or, Predicate, Query, Truth
from tocsin.language.literals import Slot

__all__ = ["Template", "filler"]

Raw = Mapping[Any, Any]
_Filler = Callable[[Raw], Any]


@dataclass(frozen=True, slots=True)
class Template:
    """A query with slots; `keys` are the places their raw values come from."""

    query: Query
    keys: frozenset[int | str]
    _fill: _Filler | None

    @classmethod
    def of(cls, query: Query) -> Template:
        """A template from a traced query (`sql.trace_query`)."""
        return cls(query, frozenset(_keys(query)), filler(query.where))

    def fill(self, raw: Raw) -> Query:
        """The query with these raw values; ValueError if one cannot be read where it stands."""
        q, limit = self.query, self.query.limit
        where = q.where if self._fill is None else self._fill(raw)
        if isinstance(limit, Slot):
            limit = limit.read(raw[limit.key])
        return Query(q.items, q.tables, q.joins, where, q.distinct, q.order, limit)


def _keys(query: Query) -> set[int | str]:
    found: set[int | str] = {query.limit.key} if isinstance(query.limit, Slot) else set()
    stack: list[Any] = [query.where]
    while stack:
        node = stack.pop()
        if isinstance(node, Slot):
            found.add(node.key)
        elif isinstance(node, tuple):
            stack += node
        elif isinstance(node, And | Or | Not | Atom):
            stack += [getattr(node, field.name) for field in fields(node)]
    return found


def filler(node: Predicate) -> _Filler | None:
    """A function that makes the condition from raw values; None if there is no slot in it."""
    if isinstance(node, And | Or):
        parts = [(filler(arg), arg) for arg in node.args]
        if all(fill is None for fill, _ in parts):
            return None
        kind = type(node)
        return lambda raw: kind(tuple(arg if fill is None else fill(raw) for fill, arg in parts))
    if isinstance(node, Not):
        inner = filler(node.arg)
        return None if inner is None else lambda raw: Not(inner(raw))
    return None if isinstance(node, Truth) else _atom(node)


def _atom(node: Atom) -> _Filler | None:
    if isinstance(node, In):
        column, values = node.column, node.values
        if not any(isinstance(value, Slot) for value in values):
            return None
        return lambda raw: In(column, tuple(v.read(raw[v.key]) if isinstance(v, Slot) else v for v in values))
    kind: Callable[..., Atom] = type(node)
    parts = [getattr(node, field.name) for field in fields(node)]
    if not any(isinstance(part, Slot) for part in parts):
        return None
    return lambda raw: kind(*(p.read(raw[p.key]) if isinstance(p, Slot) else p for p in parts))
