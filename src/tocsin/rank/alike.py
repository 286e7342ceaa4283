"""What filters have in common: a range of one attribute, values of some columns, and the rest.

    risk BETWEEN 20 AND 60 AND sector = 'tech' AND name LIKE '%x%'        a range of risk, and a rest

Plans of a template are read by column: they differ in ends of the range and in values, which are taken from
their flat filters; what else they say is looked at once for all that say the same.

>>> from tocsin.language.algebra import And, Between, Column
>>> from tocsin.language.rewrite import normalise
>>> tech, risk = Compare(Column("sector", Type.STRING), "=", "tech"), Column("risk", Type.BIGINT)
>>> name, form, rest = split_off(normalise(And((tech, Between(risk, 20, 60)))))
>>> name, str(form), str(rest)
('risk', 'risk BETWEEN 20 AND 60', "sector = 'tech'")
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tocsin.language.algebra import Between, Compare, Not
from tocsin.language.rewrite import NormalForm
from tocsin.model.columns import Index
from tocsin.model.schema import Type
from tocsin.predicate.flat import CodeSpace, FlatFilters
from tocsin.store.plans import FlatPlans

__all__ = ["EVERY", "Alike", "alike", "split_off"]

EVERY = NormalForm("dnf", ((),))
"""All rows."""


class Alike(NamedTuple):
    """Plans of a template that differ in one range, and in the values of some columns."""

    plans: Index
    attribute: str | None
    low: Index
    high: Index
    values: dict[str, list[Any]]  # by column, then by plan
    rest: NormalForm


def alike(plans: FlatPlans, which: Index, most_ways: int) -> Iterator[Alike]:
    """Plans by what else they say; nothing, if that is different in more ways than that."""
    if len(which) < 2:
        return
    flat = plans.filters[0]
    name = split_off(plans.plan(int(which[0])).filters[0])[0]
    size = int(flat.sizes[0]) if len(flat.start) > 1 else 0
    if not size or len(flat.owner) != flat.count or np.any(flat.sizes != size):
        return  # alternatives, or plans that can never match
    dim, low, high, flags = (
        part.reshape(-1, size)[which] for part in (flat.dim, flat.low, flat.high, flat.flags)
    )
    if np.any(dim != dim[0]) or np.any(flags != flags[0]):
        return
    names = [flat.names[a] for a in flat.attribute[dim[0]].tolist()]
    space, plain = flat.space[dim[0]], flags[0] == 0
    own = np.array([other == name for other in names])
    mine = plain & (space <= CodeSpace.TIMESTAMP) & own
    if np.any(own & ~mine):
        return  # more about the range's attribute, which falls away where the range implies it
    single = plain & ~mine & (low == high).all(axis=0) & np.array([names.count(n) == 1 for n in names])
    single &= (space == CodeSpace.BIGINT) | ((space == CodeSpace.TEXT) & (low % 4 == 0).all(axis=0))
    if not (single | mine).any() or (name is not None and not mine.any()):
        return
    columns = {names[test]: test for test in np.flatnonzero(single).tolist()}
    fixed = ~mine & ~single
    others = np.concatenate([low[:, fixed], high[:, fixed], np.zeros((len(which), 1), np.int64)], axis=1)
    _, first, group = np.unique(others, axis=0, return_index=True, return_inverse=True)
    if len(first) > most_ways:
        return
    least, most = np.zeros((2, len(which)), np.int64)  # all rows are at 0
    if name is not None:
        least, most = low[:, mine].max(axis=1), high[:, mine].min(axis=1)
    for number, one in enumerate(first.tolist()):
        form = plans.plan(int(which[one])).filters[0]
        some = np.flatnonzero((group.ravel() == number) & (least <= most))
        if form.kind == "dnf" and len(form.groups) == 1 and len(some):
            said = [x for x in form.groups[0] if not (_width(x) and _column(x) == name)]
            rest = NormalForm("dnf", (tuple(x for x in said if _column(x) not in columns),))
            values = {
                column: _values_of(flat, dim[0, test], low[some, test]) for column, test in columns.items()
            }
            yield Alike(which[some], name, least[some], most[some], values, rest)


def _values_of(flat: FlatFilters, dim: int, codes: Index) -> list[Any]:
    """Values of single codes: texts are numbered by fours."""
    if flat.space[dim] != CodeSpace.TEXT:
        return codes.tolist()
    return [text.decode() for text in flat.texts.take(pa.array(codes // 4)).to_pylist()]


def _column(literal: Any) -> str:
    atom: Any = literal.arg if isinstance(literal, Not) else literal
    return str(atom.column.name)


def split_off(form: NormalForm) -> tuple[str | None, NormalForm, NormalForm]:
    """An attribute, the part of a filter that is a range of it, and the rest."""
    if form.kind == "dnf" and len(form.groups) == 1:
        ranges: list[Any] = [literal for literal in form.groups[0] if _width(literal)]
        if ranges:
            best = max(ranges, key=_width)
            others = tuple(literal for literal in form.groups[0] if literal is not best)
            return best.column.name, NormalForm("dnf", ((best,),)), NormalForm("dnf", (others,))
    return None, EVERY, form


def _width(literal: Any) -> int:
    """How good a range it is: two ends are best, a single value is better left to tell families apart."""
    if isinstance(literal, Not) or literal.column.type is Type.STRING:
        return 0
    if isinstance(literal, Between):
        return 4
    if not isinstance(literal, Compare) or literal.op == "!=":
        return 0
    return 1 if literal.op == "=" or literal.column.type is Type.BOOLEAN else 3
