"""Queries with slots: parsed once, filled many times.

A `Template` holds a query in which some constants are `Slot`s: in conditions, as the ends of bands, as
the limit. Filling it copies only what contains one; the rest is shared by all the queries made from it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from tocsin.language.algebra import And, Atom, Band, Equal, In, Not, Or, Predicate, Query, Truth
from tocsin.language.literals import Slot
from tocsin.language.traced import as_span, slot_of

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
        joins = tuple(_with_slots(join) if isinstance(join, Band) else join for join in query.joins)
        return cls._made(replace(query, joins=joins))

    @classmethod
    def _made(cls, query: Query) -> Template:
        return cls(query, frozenset(slot.key for slot in _slots(query)), filler(query.where))

    def slots(self) -> Counter[int | str]:
        """How many slots there are of each key."""
        return Counter(slot.key for slot in _slots(self.query))

    def limited(self, limit: int) -> Template:
        """The same with this limit in place of its slot."""
        return self._made(replace(self.query, limit=limit))

    def fill(self, raw: Raw) -> Query:
        """The query with these raw values; ValueError if one cannot be read where it stands."""
        q, limit = self.query, self.query.limit
        where = q.where if self._fill is None else self._fill(raw)
        if isinstance(limit, Slot):
            limit = limit.read(raw[limit.key])
        joins = tuple(_filled(join, raw) for join in q.joins) if q.joins else q.joins
        return Query(q.items, q.tables, joins, where, q.distinct, q.order, limit)


def _with_slots(band: Band) -> Band:
    """A band whose ends were traced (`traced.py`) has slots there."""
    ends: dict[str, Any] = {}
    for name in ("low", "high"):
        slot = slot_of(getattr(band, name))
        if slot is not None:
            ends[name] = Slot(slot.key, (*slot.steps, as_span)) if band.timed else slot
    return replace(band, **ends) if ends else band


def _filled(join: Equal | Band, raw: Raw) -> Equal | Band:
    if isinstance(join, Equal) or not (isinstance(join.low, Slot) or isinstance(join.high, Slot)):
        return join
    low, high = (end.read(raw[end.key]) if isinstance(end, Slot) else end for end in (join.low, join.high))
    return replace(join, low=low, high=high)


def _slots(query: Query) -> list[Slot]:
    found: list[Slot] = []
    ends = [end for join in query.joins if isinstance(join, Band) for end in (join.low, join.high)]
    stack: list[Any] = [query.where, query.limit, *ends]
    while stack:
        node = stack.pop()
        if isinstance(node, Slot):
            found.append(node)
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
