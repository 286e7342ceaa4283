"""What of a query over groups is shared with others, and what is its own.

    source     tables, joins, conditions on rows, keys: subscriptions of equal ones share accumulators
    family     items, which measures have thresholds, what else HAVING says: these share an index
    own        the ends of the thresholds, the values that keys must have

A condition `key = constant` may stand in WHERE or in HAVING: it selects groups, not rows of groups, so it is
the subscription's own either way. Comparisons of a measure with a constant are intervals of its codes.

>>> from tocsin.language.algebra import Item, Query, TableRef
>>> from tocsin.language.shape import plan
>>> from tocsin.model.schema import Type
>>> user, many = Column("user", Type.STRING), Compare(Measure.of(Aggregate("COUNT")), ">", 5)
>>> items, eve = (Item(user, "user"),), Compare(user, "=", "eve")
>>> one = Query(items, (TableRef("t", "t"),), where=eve, group=(user,), having=many)
>>> split = split_plan(plan(one))
>>> split.source.filters[0].always, dict(split.equal), [*split.intervals.values()]
(True, {Column(name='user', type=<Type.STRING: 'STRING'>, relation=''): 'eve'}, [(6, 9223372036854775807)])
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.group.needs import keys_of
from tocsin.language.algebra import (
    Aggregate,
    Between,
    Column,
    Compare,
    Item,
    Measure,
    TableRef,
    Value,
    atoms,
)
from tocsin.language.rewrite import Literal, NormalForm, normalise
from tocsin.language.shape import Plan
from tocsin.model.columns import Index, Vector, from_codes
from tocsin.model.schema import Type
from tocsin.predicate.codes import GREATEST, LEAST, fits, interval
from tocsin.store.plans import FlatPlans

__all__ = [
    *("FamilyKey", "FamilyPlacement", "SourceKey", "SplitPlan", "aggregates_of", "placements"),
    "split_plan",
]

Interval = tuple[int, int]
_ALL = NormalForm("dnf", ((),))


class SourceKey(NamedTuple):
    """Equal ones have the same accumulators."""

    tables: tuple[TableRef, ...]
    joins: tuple[Any, ...]
    filters: tuple[NormalForm, ...]
    residual: NormalForm | None
    keys: tuple[Column, ...]


class FamilyKey(NamedTuple):
    """Equal ones have the same index: `equal` keys and `measures` in order, and the rest of HAVING."""

    source: SourceKey
    items: tuple[Item, ...]
    equal: tuple[Column, ...]
    measures: tuple[Aggregate, ...]
    bounds: str  # of the first measure: "above", "below" or "within"; empty without measures
    rest: NormalForm


class SplitPlan(NamedTuple):
    """A plan in parts."""

    source: SourceKey
    equal: Mapping[Column, Value]
    intervals: Mapping[Aggregate, Interval]
    rest: NormalForm
    items: tuple[Item, ...]

    @property
    def family(self) -> FamilyKey:
        equal = tuple(sorted(self.equal, key=_order))
        measures = tuple(sorted(self.intervals, key=str))
        bounds = bounds_of(self.intervals[measures[0]]) if measures else ""
        return FamilyKey(self.source, self.items, equal, measures, bounds, self.rest)


class FamilyPlacement(NamedTuple):
    """Subscriptions of one family: by key that must have a value this value, by measure both ends.

    Without `keys` no group can pass.
    """

    family: FamilyKey
    plan: Plan
    slots: Index
    keys: list[Vector] | None
    ends: NDArray[np.int64]  # low and high, by measure and subscription


def placements(slots: Index, plans: Sequence[Plan] | FlatPlans) -> Iterator[FamilyPlacement]:
    """The families of plans, and what is each plan's own."""
    for n, slot in enumerate(slots.tolist()):
        plan = plans.plan(n) if isinstance(plans, FlatPlans) else plans[n]
        split = split_plan(plan)
        family = split.family
        keys = key_vectors(family.equal, [[split.equal[column]] for column in family.equal])
        ends = np.array([split.intervals[measure] for measure in family.measures], np.int64).reshape(-1, 2, 1)
        source = replace(plan, filters=split.source.filters)
        yield FamilyPlacement(family, source, np.array([slot]), keys, ends.transpose(1, 0, 2))


def key_vectors(columns: Sequence[Column], values: Sequence[Sequence[Value]]) -> list[Vector] | None:
    """Constants that keys are compared with, as values of the keys' types; None if no value equals one."""
    out = []
    for column, own in zip(columns, values, strict=True):
        assert column.type is not None
        if column.type is Type.STRING:
            out.append(Vector.of(Type.STRING, own))
            continue
        ends = [interval(column.type, "=", value) for value in own]
        if any(low > high for low, high in ends):
            return None
        codes = np.array([low for low, _ in ends], np.int64)
        out.append(from_codes(column.type, codes, np.ones(len(codes), np.bool_)))
    return out


def aggregates_of(family: FamilyKey) -> set[Aggregate]:
    """All measures that the answers of a family need."""
    shown = {item.expression for item in family.items if isinstance(item.expression, Aggregate)}
    named = {atom.column for atom in atoms(family.rest.predicate)}
    return shown | set(family.measures) | {c.aggregate for c in named if isinstance(c, Measure)}


def bounds_of(ends: Interval) -> str:
    """Which ends an interval has."""
    if ends[1] == GREATEST:
        return "above"
    return "below" if ends[0] == LEAST else "within"


def split_plan(plan: Plan) -> SplitPlan:
    """The parts of a plan of the shape `group`."""
    query = plan.query
    keys = tuple(sorted(keys_of(query), key=_order))
    equal: dict[Column, Value] = {}
    filters = []
    for ref, form in zip(query.tables, plan.filters, strict=True):
        alias = ref.alias if len(query.tables) > 1 else ""
        filters.append(_without_keys(form, alias, keys, equal))
    intervals, rest = _split_having(normalise(query.having), keys, equal)
    source = SourceKey(query.tables, query.joins, tuple(filters), plan.residual, keys)
    return SplitPlan(source, equal, intervals, rest, query.items)


def _without_keys(
    form: NormalForm, alias: str, keys: tuple[Column, ...], equal: dict[Column, Value]
) -> NormalForm:
    """The conditions on rows without those that fix a key, which go to `equal`."""
    if form.kind != "dnf" or len(form.groups) != 1:
        return form
    left: list[Literal] = []
    for literal in form.groups[0]:
        column = None
        if isinstance(literal, Compare) and literal.op == "=":
            column = replace(literal.column, relation=alias)
        if column in keys and column not in equal and fixes(literal):
            assert isinstance(literal, Compare) and column is not None
            equal[column] = literal.value
        else:
            left.append(literal)
    return NormalForm("dnf", (tuple(left),))


def _split_having(
    form: NormalForm, keys: tuple[Column, ...], equal: dict[Column, Value]
) -> tuple[dict[Aggregate, Interval], NormalForm]:
    """Intervals of measures, and what is left of HAVING; values of keys go to `equal`."""
    if form.kind != "dnf" or len(form.groups) != 1:
        return {}, form
    intervals: dict[Aggregate, Interval] = {}
    left: list[Literal] = []
    for literal in form.groups[0]:
        ends = interval_of(literal)
        if ends is not None and isinstance(literal.column, Measure):  # type: ignore[union-attr]
            aggregate = literal.column.aggregate  # type: ignore[union-attr]
            low, high = intervals.get(aggregate, (LEAST, GREATEST))
            intervals[aggregate] = max(low, ends[0]), min(high, ends[1])
        elif isinstance(literal, Compare) and literal.op == "=" and literal.column in keys and fixes(literal):
            if literal.column in equal and equal[literal.column] != literal.value:
                left.append(literal)
            equal.setdefault(literal.column, literal.value)
        else:
            left.append(literal)
    return intervals, NormalForm("dnf", (tuple(left),)) if left else _ALL


def fixes(literal: Any) -> bool:
    """Whether `column = value` can be looked up by the value."""
    return literal.value is not None and fits(literal.column.type, literal.value)


def interval_of(literal: Any) -> Interval | None:
    """The codes of a measure for which a literal holds; None if they are no interval."""
    if not isinstance(literal, Compare | Between) or literal.column.type in (Type.STRING, None):
        return None
    type_, values = (
        literal.column.type,
        ((literal.value,) if isinstance(literal, Compare) else (literal.low, literal.high)),
    )
    if any(value is None or not fits(type_, value) for value in values):
        return None
    if isinstance(literal, Between):
        return interval(type_, ">=", literal.low)[0], interval(type_, "<=", literal.high)[1]
    return None if literal.op == "!=" else interval(type_, literal.op, literal.value)


def _order(column: Column) -> tuple[str, str]:
    return column.relation, column.name
