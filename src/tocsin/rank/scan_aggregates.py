"""Aggregate answers, one row per moment.

COUNT, SUM and AVG are running sums over the rows that come and go; MIN and MAX are the first
of the rows alive in the order of their values. The answer always has exactly one row: COUNT 0
and NULL for the others when nothing is selected.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.language.algebra import Aggregate, OrderKey
from tocsin.language.shape import Plan
from tocsin.model.columns import Index, Rows, Vector
from tocsin.model.schema import Type
from tocsin.rank.history import History, ranking
from tocsin.rank.sums import average, exact_units, to_bigint, with_specials
from tocsin.store.step import Step
from tocsin.store.tables import FOREVER

__all__ = ["answers"]


def answers(plan: Plan, history: History, step: Step) -> Rows:
    """The answer at every moment."""
    columns = []
    for item in plan.query.items:
        assert isinstance(item.expression, Aggregate)
        columns.append((item.name, _values(item.expression, history, step, plan.query.tables[0].name)))
    return Rows(columns, len(history.moments))


def _values(aggregate: Aggregate, history: History, step: Step, table: str) -> Vector:
    column = aggregate.column
    if column is None:
        return _bigints(_running(history, np.ones(len(history.slot), np.int64)))
    known = history.take(history.rows.vectors(column.name)[0].valid[history.slot])
    count = _running(known, np.ones(len(known.slot), np.int64))
    if aggregate.function == "COUNT":
        return _bigints(count)
    if aggregate.function in ("MIN", "MAX"):
        return _extreme(known, OrderKey(column, descending=aggregate.function == "MAX"))
    averaged = aggregate.function == "AVG"
    if column.type is Type.BIGINT:
        return _sum_integers(known, column.name, count, averaged)
    return _sum_doubles(known, column.name, count, averaged, step, table)


def _running(history: History, weight: NDArray[Any]) -> NDArray[Any]:
    """At each moment, the sum of the weights of the rows alive."""
    change = np.zeros(len(history.moments), weight.dtype)
    if weight.dtype == object:
        change[:] = 0
    at_birth = np.searchsorted(history.moments, history.born)
    np.add.at(change, at_birth, weight)
    dies = history.died < FOREVER
    np.subtract.at(change, np.searchsorted(history.moments, history.died[dies]), weight[dies])
    return np.cumsum(change)


def _bigints(values: Index) -> Vector:
    return Vector(Type.BIGINT, values.astype(np.int64), np.ones(len(values), np.bool_))


def _extreme(history: History, key: OrderKey) -> Vector:
    ordered = history.take(ranking(history, (key,), ()))
    vector = history.rows.vectors(key.column.name)[0].take(ordered.slot)
    first, found = [np.empty(0, np.int64)], [np.empty(0, np.bool_)]
    if not len(ordered.slot):
        return Vector.blank(vector.type, len(history.moments))
    for _, alive in ordered.alive():
        first.append(alive.argmax(axis=1))
        found.append(np.asarray(alive.any(axis=1)))
    row, there = np.concatenate(first), np.concatenate(found)
    blank = Vector.blank(vector.type, len(row)).values
    return Vector(vector.type, np.where(there, vector.values[row], blank), there)


def _sum_integers(history: History, name: str, count: Index, averaged: bool) -> Vector:
    values = history.rows.vectors(name)[0].values[history.slot]
    total = _running(history, values.astype(object))
    if averaged:
        return Vector.of(
            Type.DOUBLE, [average(t, n) if n else None for t, n in zip(total, count.tolist(), strict=True)]
        )
    return Vector.of(
        Type.BIGINT, [to_bigint(t) if n else None for t, n in zip(total, count.tolist(), strict=True)]
    )


def _sum_doubles(history: History, name: str, count: Index, averaged: bool, step: Step, table: str) -> Vector:
    values = history.rows.vectors(name)[0].values
    units = step.once(("units", table, name), lambda: exact_units(values))[history.slot]
    mine = values[history.slot]
    running = [_running(history, units)]
    running += [
        _running(history, m.astype(np.int64)) for m in (np.isnan(mine), mine == np.inf, mine == -np.inf)
    ]
    sums = [with_specials(*map(int, parts)) for parts in zip(*running, strict=True)]
    if averaged:
        sums = [average(s, n) if n else s for s, n in zip(sums, count.tolist(), strict=True)]
    return Vector.of(Type.DOUBLE, [s if n else None for s, n in zip(sums, count.tolist(), strict=True)])
