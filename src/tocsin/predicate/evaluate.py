"""The truth of conditions over whole batches of rows.

`Facts` caches, for one batch of rows, the truth of every atom evaluated so far: two masks, *true* and
*false*; where neither is set the atom is unknown (a NULL, a missing attribute, a value of another type).
Each distinct atom is evaluated once per batch, however many subscriptions use it: F01's predicate bit
vector, with a column of bits per atom.

>>> rows = Rows.of(price=Vector.of(Type.DOUBLE, [400, 600, None]))
>>> facts = Facts(rows)
>>> under = Compare(Column("price", Type.DOUBLE), "<=", 580)
>>> facts.holds(under).tolist(), facts.holds(Not(under)).tolist()
([True, False, False], [False, True, False])
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tocsin.language.algebra import (
    And,
    Atom,
    Between,
    Column,
    Compare,
    Exists,
    Ilike,
    In,
    IsNull,
    IsTrue,
    Like,
    Not,
    Or,
    Predicate,
    Rlike,
    Truth,
    Value,
    exists_of,
)
from tocsin.language.rewrite import NormalForm
from tocsin.model.columns import Mask, Rows, SparseRows, Vector, column_codes
from tocsin.model.paths import ALL_VALUES, MARK, is_exists, leaves, read_path
from tocsin.model.schema import Type
from tocsin.model.times import read_times
from tocsin.predicate.codes import fits, interval
from tocsin.predicate.patterns import ilike, like

__all__ = ["Facts", "TruthMasks"]

_MATCHES: dict[type, Callable[[Any, str], Any]] = {
    Like: like,
    Ilike: ilike,
    Rlike: pc.match_substring_regex,
}
TruthMasks = tuple[Mask, Mask]  # true where, false where; elsewhere unknown


class Facts:
    """Truth of atoms over one batch of rows; each is evaluated when first needed, once.

    `name` maps a column to its name in the rows: joined rows use the qualified one.
    """

    def __init__(self, rows: Rows, name: Callable[[Column], str] = attrgetter("name")) -> None:
        self.rows = rows
        self._name = name
        self._known: dict[Atom, TruthMasks] = {}
        self._codes: dict[int, Any] = {}
        self._times_of: dict[int, Vector] = {}

    def holds(self, predicate: Predicate) -> Mask:
        """Where the condition is true."""
        return self.outcome(predicate)[0]

    def matches(self, form: NormalForm) -> Mask:
        """Where a normal form is true. Its NOTs apply to atoms only, so `holds` is enough."""
        inner, outer = (
            (np.logical_and, np.logical_or) if form.kind == "dnf" else (np.logical_or, np.logical_and)
        )
        total = np.full(len(self.rows), form.kind == "cnf")
        for group in form.groups:
            part = np.full(len(self.rows), form.kind == "dnf")
            for atom in group:
                part = inner(part, self.holds(atom))
            total = outer(total, part)
        return total

    def outcome(self, predicate: Predicate) -> TruthMasks:
        """Three-valued truth, as in Spark."""
        if isinstance(predicate, Not):
            true, false = self.outcome(predicate.arg)
            return false, true
        if isinstance(predicate, And | Or):
            parts = [self.outcome(arg) for arg in predicate.args]
            trues, falses = [p[0] for p in parts], [p[1] for p in parts]
            if isinstance(predicate, And):
                return np.logical_and.reduce(trues), np.logical_or.reduce(falses)
            return np.logical_or.reduce(trues), np.logical_and.reduce(falses)
        if isinstance(predicate, IsTrue):
            true = self.outcome(predicate.arg)[0]
            return true, ~true
        if isinstance(predicate, Truth):
            all_rows = np.ones(len(self.rows), np.bool_)
            return all_rows & (predicate.value is True), all_rows & (predicate.value is False)
        found = self._known.get(predicate)
        if found is None:
            found = self._known[predicate] = self._atom(predicate)
        return found

    def _vectors(self, name: str) -> Sequence[Vector]:
        if not is_exists(name) or not isinstance(self.rows, SparseRows):
            return self.rows.vectors(name)
        found = exists_vector(self.rows, exists_of(name))
        valid = found.valid & found.values if name.startswith(MARK + MARK) else found.valid
        return [Vector(found.type, found.values, valid)]

    def _atom(self, atom: Atom) -> TruthMasks:
        vectors = self._vectors(self._name(atom.column))
        true, false = np.zeros(len(self.rows), np.bool_), np.zeros(len(self.rows), np.bool_)
        if isinstance(atom, IsNull):
            for vector in vectors:
                false |= vector.valid
            return ~false, false
        for vector in vectors:
            holds, fails = self._on(atom, vector)
            true |= holds
            false |= fails
        return true, false

    def _on(self, atom: Atom, vector: Vector) -> TruthMasks:
        """An atom over one vector; unknown where the value is NULL or of another type."""
        if isinstance(atom, Between):
            low, high = (
                self._on(Compare(atom.column, ">=", atom.low), vector),
                self._on(Compare(atom.column, "<=", atom.high), vector),
            )
            return low[0] & high[0], low[1] | high[1]
        if isinstance(atom, In):
            times = tuple(value for value in atom.values if isinstance(value, date))
            if not times or vector.type is not Type.STRING:
                return self._one_of(atom.values, vector)
            others = tuple(value for value in atom.values if not isinstance(value, date))
            of_texts, of_times = self._one_of(others, vector), self._one_of(times, self._times(vector))
            return of_texts[0] | of_times[0], of_texts[1] & of_times[1]
        if isinstance(atom, Compare):
            if isinstance(atom.value, date) and vector.type is Type.STRING:
                vector = self._times(vector)
            if atom.value is None or not fits(vector.type, atom.value):
                return _unknown(vector)
            op = "=" if atom.op == "!=" else atom.op
            inside = self._inside(op, atom.value, vector)
            true = vector.valid & (~inside if atom.op == "!=" else inside)
            return true, vector.valid & ~true
        assert isinstance(atom, Like | Ilike | Rlike)
        if vector.type is not Type.STRING:
            return _unknown(vector)
        match = _MATCHES[type(atom)]
        inside = match(self._arrow(vector), atom.pattern).to_numpy(zero_copy_only=False)
        return vector.valid & inside, vector.valid & ~inside

    def _inside(self, op: str, value: Value, vector: Vector) -> Mask:
        if vector.type is Type.STRING:
            compare = {
                "=": pc.equal,
                "<": pc.less,
                "<=": pc.less_equal,
                ">": pc.greater,
                ">=": pc.greater_equal,
            }
            found = compare[op](self._arrow(vector), pa.scalar(value, pa.string()))
            return np.asarray(found.to_numpy(zero_copy_only=False), np.bool_)
        low, high = interval(vector.type, op, value)
        codes = self._column_codes(vector)
        return (codes >= low) & (codes <= high)

    def _one_of(self, values: tuple[Value, ...], vector: Vector) -> TruthMasks:
        """IN: no match is false, or unknown if the list has a NULL or a value of another type."""
        usable = [v for v in values if v is not None and fits(vector.type, v)]
        if vector.type is Type.STRING:
            found = pc.is_in(self._arrow(vector), value_set=pa.array(usable, pa.string()))
            inside = np.asarray(found.to_numpy(zero_copy_only=False), np.bool_)
        else:
            ends = [interval(vector.type, "=", v) for v in usable]
            inside = np.isin(self._column_codes(vector), [low for low, high in ends if low == high])
        true = vector.valid & inside
        return true, vector.valid & ~inside if len(usable) == len(values) else np.zeros_like(true)

    def _column_codes(self, vector: Vector) -> Any:
        if id(vector) not in self._codes:  # the rows keep the vector alive, so its id is unique
            self._codes[id(vector)] = column_codes(vector)
        return self._codes[id(vector)]

    def _times(self, vector: Vector) -> Vector:
        """The times that texts of an open stream hold; NULL where they hold none."""
        if id(vector) not in self._times_of:
            values, are_times = read_times(Type.TIMESTAMP, self._arrow(vector))
            self._times_of[id(vector)] = Vector(Type.TIMESTAMP, values, vector.valid & are_times)
        return self._times_of[id(vector)]

    def _arrow(self, vector: Vector) -> Any:
        """The texts with NULLs as empty strings; `valid` masks them."""
        if id(vector) not in self._codes:
            self._codes[id(vector)] = pa.array(vector.values, pa.string())
        return self._codes[id(vector)]


def _unknown(vector: Vector) -> TruthMasks:
    nowhere = np.zeros(len(vector), np.bool_)
    return nowhere, nowhere


# -- conditions on elements of lists -------------------------------------------------------------------


def elements_of(exists: Exists, event: Mapping[str, Any]) -> Iterator[Any] | None:
    """The elements that a condition is about; None if there is no list."""
    if exists.items == ALL_VALUES:
        return leaves(event)
    return read_path(exists.items).elements(event)


def exists_vector(rows: SparseRows, exists: Exists) -> Vector:
    """The truth of `exists(items, e1 -> ...)` by event: its condition over all elements of the batch at once.

    >>> new = Exists("tags", Compare(Column("e1"), "=", "new"), "e1")
    >>> rows = SparseRows.from_dicts([{"tags": ["old", "new"]}, {"tags": []}, {"tags": "new"}])
    >>> exists_vector(rows, new).to_list()
    [True, False, None]
    """
    known = np.zeros(len(rows), np.bool_)
    owner: list[int] = []
    inner: list[dict[str, Any]] = []
    for n, event in enumerate(rows.events):
        found = elements_of(exists, event)
        if found is not None:
            known[n] = True
            inner.extend({exists.variable: element} for element in found)
            owner.extend([n] * (len(inner) - len(owner)))
    held = Facts(SparseRows.read(inner, {})).holds(exists.where)
    true = np.zeros(len(rows), np.bool_)
    true[np.array(owner, np.int64)[held]] = True
    return Vector(Type.BOOLEAN, true, known)
