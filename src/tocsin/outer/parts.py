"""What a query is composed of: queries of other rooms whose answers together are its own.

    a LEFT JOIN b ON c WHERE w     a JOIN b ON c WHERE w
                                   rows of a for which NOT EXISTS (SELECT 1 FROM b WHERE c), b's columns NULL,
                                   for which w is true where b's columns are NULL
    RIGHT, FULL                    likewise
    q UNION ALL r                  q, r

>>> from tocsin.language.shape import plan
>>> from tocsin.language.sql import parse_query
>>> from tocsin.model.schema import Field, Table, Type
>>> tables = {n: Table(n, (Field("k", Type.BIGINT), Field(n, Type.STRING)), ("k",)) for n in "st"}
>>> text = "SELECT s, t FROM s LEFT JOIN t USING (k) WHERE t IS NULL OR t > 'x'"
>>> for part in parts_of(plan(parse_query(text, tables))):
...     print(part.plan)
join: t: t IS NULL OR t > 'x'; s.k = t.k
semijoin: NOT EXISTS (SELECT 1 FROM t WHERE s.k = t.k)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from tocsin.language.algebra import And, Existence, Item, Not, Or, Predicate, Query, Truth
from tocsin.language.shape import Plan, Shape, plan
from tocsin.reference import holds

__all__ = ["QueryPart", "parts_of"]


class QueryPart(NamedTuple):
    """A query, and the places of its tables in the whole one."""

    plan: Plan
    places: tuple[int, ...]


def parts_of(whole: Plan) -> list[QueryPart]:
    """The parts of a plan that can match anything."""
    every = tuple(range(len(whole.query.tables)))
    return [part for part in _parts(whole.query, every) if not part.plan.never or _is_one_row(part.plan)]


def _parts(query: Query, places: tuple[int, ...]) -> Iterator[QueryPart]:
    if query.branches:
        names, start = [item.name for item in query.items], 0
        for branch in query.branches:
            items = tuple(Item(i.expression, n) for i, n in zip(branch.items, names, strict=True))
            own = places[start : start + len(branch.tables)]
            yield from _parts(replace(branch, items=items), own)
            start += len(own)
    elif query.outer is None:
        yield QueryPart(plan(query), places)
    else:
        both = _and(query.outer.on, query.where)
        yield QueryPart(plan(replace(query, where=both, outer=None)), places)
        for place in (0, 1):
            if query.outer.keeps(place):
                yield QueryPart(plan(_without_partner(query, place)), (places[place], places[1 - place]))


def _without_partner(query: Query, place: int) -> Query:
    """Rows of one table of an outer join that have no partner."""
    assert query.outer is not None
    own, other = query.tables[place], query.tables[1 - place]
    none = Existence(other.alias, query.joins, query.outer.on, negated=True)
    where = _with_nulls(query.where, other.alias)
    return replace(query, tables=(own, other), joins=(), where=where, outer=None, exists=(none,))


def _with_nulls(predicate: Predicate, alias: str) -> Predicate:
    """A condition where all columns of a table are NULL."""
    if isinstance(predicate, And | Or):
        return replace(predicate, args=tuple(_with_nulls(arg, alias) for arg in predicate.args))
    if isinstance(predicate, Not):
        return Not(_with_nulls(predicate.arg, alias))
    if isinstance(predicate, Truth) or predicate.column.relation != alias:
        return predicate
    return Truth(holds(predicate, {alias: {}}))


def _and(one: Predicate, other: Predicate) -> Predicate:
    return one if other == Truth(True) else other if one == Truth(True) else And((one, other))


def _is_one_row(made: Plan) -> bool:
    """Whether there is an answer even if no row matches."""
    return made.shape in (Shape.EXTREME, Shape.AGGREGATE)
