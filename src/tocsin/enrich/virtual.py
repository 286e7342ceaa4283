"""Filters over joined rows as filters over one relation, whose columns are named by place.

    FROM hits h JOIN pages p ON h.page = p.page        relation   hits, pages: 0.page = 1.page
    WHERE h.ms > 5 AND p.owner = 'ann'                 filter     `0.ms` > 5 AND `1.owner` = 'ann'

Aliases do not matter, so all subscriptions that join the same tables by the same columns filter one relation,
and one matching index holds them. A template's filters come table by table (`FlatPlans`): `conjoin` combines
them, without a loop over subscriptions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

import numpy as np

from tocsin.join.signature import Signature, places_of
from tocsin.language.algebra import (
    And,
    Column,
    Item,
    Not,
    Or,
    Predicate,
    Query,
    TableRef,
    Truth,
    with_column,
)
from tocsin.language.rewrite import CAP, normalise
from tocsin.language.shape import Plan, Shape
from tocsin.model.change import ChangeBatch
from tocsin.model.columns import Index, Vector, sliced
from tocsin.predicate.flat import FlatFilters, overlay
from tocsin.store.plans import FlatPlans, LazyPlans

__all__ = [
    "column_of",
    "conjoin",
    "used_columns",
    "virtual_column",
    "virtual_plan",
    "virtual_plans",
    "virtual_query",
]


def virtual_column(place: int, name: str) -> str:
    """The name of a column of joined rows."""
    return f"{place}.{name}"


def virtual_query(query: Query) -> Query:
    """The query as one over joined rows; its conditions are left out."""
    places, name = places_of(query), str(Signature.of(query))
    items = tuple(
        Item(_renamed(item.expression, places), item.name)
        for item in query.items
        if isinstance(item.expression, Column)
    )
    return Query(items, (TableRef(name, name),))


def virtual_plan(plan: Plan) -> Plan:
    """A filter over joined rows."""
    query = virtual_query(plan.query)
    form = normalise(_over_places(plan.query.where, places_of(plan.query)), CAP)
    return Plan(query, Shape.FILTER, (form,), None, plan.never, plan.warnings)


def virtual_plans(plans: FlatPlans) -> FlatPlans:
    """Filters of a template over joined rows."""
    named = [
        replace(flat, names=tuple(virtual_column(place, name) for name in flat.names))
        for place, flat in enumerate(plans.filters)
    ]
    make = plans.lazy.make
    lazy = LazyPlans(lambda row: virtual_plan(make(row)), plans.lazy.rows)
    return FlatPlans(virtual_query(plans.query), Shape.FILTER, (reduce(conjoin, named),), (), lazy)


def used_columns(plans: Sequence[Plan] | FlatPlans) -> set[str]:
    """The columns of joined rows that filters of one relation read or show."""
    if isinstance(plans, FlatPlans):
        shown = [plans.query]
        read = set(plans.filters[0].names)
    else:
        shown = [plan.query for plan in plans]
        atoms = (a for plan in plans for group in plan.filters[0].groups for a in group)
        read = {(atom.arg if isinstance(atom, Not) else atom).column.name for atom in atoms}  # type: ignore[union-attr]
    return read | {i.expression.name for q in shown for i in q.items if isinstance(i.expression, Column)}


def conjoin(first: FlatFilters, second: FlatFilters) -> FlatFilters:
    """Filter i of the first AND filter i of the second.

    >>> from tocsin.language.algebra import Compare
    >>> from tocsin.model.schema import Type
    >>> from tocsin.predicate.compile import flatten
    >>> one, two = (flatten([normalise(Compare(Column(n, Type.BIGINT), "=", 5))]) for n in "ab")
    >>> both = conjoin(one, two)
    >>> both.names, both.sizes.tolist()
    (('a', 'b'), [2])
    """
    count = first.count
    joined = overlay(replace(first, count=2 * count), second, np.arange(count, 2 * count))
    border = int(np.searchsorted(joined.owner, count))
    right_begin, right_size = _runs(joined.owner[border:].astype(np.int64) - count, count)
    of = joined.owner[:border].astype(np.int64)  # each conjunction of the left with each of the right
    left = np.repeat(np.arange(border), right_size[of])
    _, right = sliced(right_begin[of] + border, right_size[of])
    pairs = np.stack([left, right], axis=1).ravel()
    sizes = joined.sizes[pairs]
    _, tests = sliced(joined.start[:-1][pairs], sizes)
    start = np.concatenate([[0], np.cumsum(sizes.reshape(-1, 2).sum(axis=1))]).astype(np.int64)
    return replace(
        joined,
        count=count,
        owner=joined.owner[left],
        start=start,
        dim=joined.dim[tests],
        low=joined.low[tests],
        high=joined.high[tests],
        flags=joined.flags[tests],
    )


def _runs(owner: Index, count: int) -> tuple[Index, Index]:
    """Where the conjunctions of each filter begin, and how many they are."""
    size = np.bincount(owner, minlength=count)
    return np.cumsum(size) - size, size


def _renamed(column: Column, places: dict[str, int]) -> Column:
    return Column(virtual_column(places[column.relation], column.name), column.type)


def _over_places(predicate: Predicate, places: dict[str, int]) -> Predicate:
    if isinstance(predicate, And | Or):
        return replace(predicate, args=tuple(_over_places(arg, places) for arg in predicate.args))
    if isinstance(predicate, Not):
        return Not(_over_places(predicate.arg, places))
    if isinstance(predicate, Truth):
        return predicate
    return with_column(predicate, _renamed(predicate.column, places))


def column_of(batch: ChangeBatch, name: str) -> Vector:
    """A column of declared events; NULL where the batch does not have it."""
    vectors = batch.rows.vectors(name)
    if vectors:
        return vectors[0]
    declared = batch.relation.find(name, exact=True)
    assert declared is not None
    return Vector.blank(declared.type, len(batch))
