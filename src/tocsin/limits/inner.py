"""The query that a refresh group gives to its rooms for a deferred one, and what it makes of the answer.

    deferred query                      query of the group's rooms          the group adds
    rows of tables or of a join         the same                            -
    extreme, aggregate, distinct        the same                            -
    top-k                               with order keys and primary keys    order of the answer
    aggregate, distinct over a join     the joined rows                     the aggregate of the rows
    groups                              the same                            -
    top-k over a join                   the joined rows, with their keys    the first k of the rows
    SUM of BIGINTs                      the selected rows                   the sum, which may overflow

The rooms keep the last four small or do not answer them at all; the group computes them from the changes of
the rows (`derived.py`). A sum that exceeds BIGINT then concerns its own subscription alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from tocsin.group.needs import primary_keys
from tocsin.language.algebra import Column, Item, OrderKey, Query
from tocsin.language.options import Options
from tocsin.language.shape import Plan, shape_of
from tocsin.model.schema import Table
from tocsin.store.plans import FlatPlans, LazyPlans

__all__ = ["InnerQuery", "inner_plans", "inner_query", "without_refresh"]


class InnerQuery(NamedTuple):
    """The query for a room, and how its columns make the answer.

    `order` names columns that sort the rows, `shown` maps the names of the answer to columns; both are empty
    if the room's rows are the answer's. `derived`: the group computes the answer from the room's rows.
    """

    query: Query
    derived: bool = False
    order: tuple[OrderKey, ...] = ()
    shown: tuple[tuple[str, str], ...] = ()


def without_refresh(options: Options) -> Options:
    """The options that are not about refreshing.

    >>> print(without_refresh(Options(refresh="on demand", within=5, window=10_000_000)))
    WITH (window = '10 seconds')
    """
    names = ("refresh", "every", "within", "when", "check", "group", "group_memory", "policy")
    return replace(options, **dict.fromkeys(names))


def inner_query(query: Query, schemas: Mapping[str, Table]) -> InnerQuery:
    """What the rooms of a group answer for a deferred query."""
    plain = replace(query, options=without_refresh(query.options))
    joined = len(query.tables) > 1
    if query.order:
        derived = joined and not query.offset and not query.partition
        return _ordered(plain, schemas, derived=derived)
    if query.grouped:
        return InnerQuery(plain)
    if query.aggregates and (joined or _sums_integers(query)):
        columns = [a.column for a in query.aggregates if a.column is not None]
        items, _ = _numbered(columns or primary_keys(query, schemas)[:1])
        return InnerQuery(replace(plain, items=items), derived=True)
    if query.distinct and joined:
        return InnerQuery(replace(plain, distinct=False), derived=True)
    return InnerQuery(plain)


def inner_plans(plans: Sequence[Plan] | FlatPlans, schemas: Mapping[str, Table]) -> list[Plan] | FlatPlans:
    """The plans for the rooms of a group."""
    if isinstance(plans, FlatPlans):
        query, make = inner_query(plans.query, schemas).query, plans.lazy.make
        lazy = LazyPlans(lambda row: _inner(make(row), schemas), plans.lazy.rows)
        return replace(plans, query=query, shape=shape_of(query), lazy=lazy)
    return [_inner(plan, schemas) for plan in plans]


def _inner(plan: Plan, schemas: Mapping[str, Table]) -> Plan:
    query = inner_query(plan.query, schemas).query
    return replace(plan, query=query, shape=shape_of(query))


def _ordered(query: Query, schemas: Mapping[str, Table], *, derived: bool) -> InnerQuery:
    """Top-k with the columns that order its rows; the room computes it, or the group."""
    ties = [OrderKey(column) for column in primary_keys(query, schemas)]
    keys = (*query.order, *ties)
    columns = [item.expression for item in query.items if isinstance(item.expression, Column)]
    items, name = _numbered([*columns, *(key.column for key in keys)])
    order = tuple(replace(key, column=Column(name[key.column], key.column.type)) for key in keys)
    shown = tuple((item.name, name[column]) for item, column in zip(query.items, columns, strict=True))
    inner = replace(query, items=items)
    if derived:
        inner = replace(inner, order=(), limit=None)
    return InnerQuery(inner, derived, order, shown)


def _numbered(columns: Iterable[Column]) -> tuple[tuple[Item, ...], dict[Column, str]]:
    """Each column once, under the names c0, c1, ..., which cannot clash."""
    name = {column: f"c{n}" for n, column in enumerate(dict.fromkeys(columns))}
    return tuple(Item(column, own) for column, own in name.items()), name


def _sums_integers(query: Query) -> bool:
    return any(a.function == "SUM" and a.type.is_exact for a in query.aggregates)
