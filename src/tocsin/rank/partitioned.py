"""Conditions that name single values beside a range: one family for all values, side by side.

    SELECT MAX(delay) FROM flights WHERE hour BETWEEN 6 AND 9 AND carrier = 'UA'

A family lays its rows along a line. Here the line is cut into stretches of one length, one for each value of
the columns that are compared for equality; within a stretch rows lie in the order of the range's attribute:

    | UA:  5  6  7  7  9 .. | DL:  6  6  8 .. | AA: ..        subscription: 6..9 of the stretch of UA

A code has 64 bits, too many for a part of the line, so within a stretch there are labels of codes
(`labels.py`). When there is no room between two, all are dealt out anew (`Relabelled`): then families of the
line are built again. Values that nobody asks for have no stretch, and their rows are not looked at.

Cost: for each changed row the lookup of its values and a binary search; families as ever.

K12 and T07 have no further conditions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tocsin.language.algebra import Compare
from tocsin.language.rewrite import NormalForm
from tocsin.model.columns import Index, Mask, Rows, longer
from tocsin.model.schema import Type
from tocsin.model.texts import TextNumbers
from tocsin.predicate.codes import GREATEST, LEAST, column_codes
from tocsin.predicate.evaluate import Facts
from tocsin.rank.family import Place, Unfit
from tocsin.rank.labels import Labels
from tocsin.store.ids import IdMap
from tocsin.store.step import Step

__all__ = ["Relabelled", "Split", "lifted"]

_BITS = 38  # of a place within a stretch: labels are from -2^37 on
_HALF = 1 << (_BITS - 1)
_MOST = 1 << (62 - _BITS)  # stretches
_GAP = 1 << 20
_GROUP, _LOW, _HIGH, _LIMIT = range(4)


class Relabelled(Exception):
    """All labels are others now: families that have ranges of the old ones are to be built again."""


def lifted(form: NormalForm) -> tuple[dict[str, Any], NormalForm]:
    """Columns that a filter compares with one value, and what else it says."""
    values: dict[str, Any] = {}
    others = []
    if form.kind != "dnf" or len(form.groups) != 1:
        return values, form
    for literal in form.groups[0]:
        name = literal.column.name if isinstance(literal, Compare) and literal.op == "=" else None
        if name is not None and name not in values and _is_plain(literal):
            assert isinstance(literal, Compare)
            values[name] = literal.value
        else:
            others.append(literal)
    return values, NormalForm("dnf", (tuple(others),))


def _is_plain(literal: Any) -> bool:
    """A text, or a whole number, that a column may have."""
    if literal.column.type is Type.STRING:
        return isinstance(literal.value, str)
    whole = literal.column.type is Type.BIGINT and type(literal.value) is int
    return whole and -(2**63) <= literal.value < 2**63


class Split(Place):
    """Rows of a table by the values of some columns and, within equal ones, by the code of an attribute."""

    def __init__(self, table: str, attribute: str | None, columns: Sequence[str], rest: NormalForm) -> None:
        self.table, self.attribute, self.columns, self.rest = table, attribute, tuple(columns), rest
        self._values = _Values(len(columns))
        self._labels = Labels(1, gap=_GAP, room=_HALF)
        self._asked: Index = np.zeros((4, 16), np.int64)  # by slot: stretch, ends as codes, limit
        self._enough = 0  # labels that may be kept

    def __len__(self) -> int:
        """Stretches."""
        return len(self._values)

    def stats(self) -> dict[str, Any]:
        return {**super().stats(), "by": self.columns, "values": len(self)}

    # -- subscriptions -----------------------------------------------------------------------------

    def note(self, slots: Index, low: Index, high: Index, limit: int | None, values: Sequence[Any]) -> bool:
        """Remember what subscriptions ask for; `values` are by column. Have stretches been added?"""
        before = len(self)
        group = self._values.add(values)
        if len(self) > _MOST:
            raise Unfit(f"{self.table}: too many values")
        top = int(slots.max(initial=-1)) + 1
        if top > self._asked.shape[1]:
            self._asked = np.ascontiguousarray(longer(self._asked.T, 2 * top).T)
        self._asked[_GROUP, slots], self._asked[_LIMIT, slots] = group, limit or 0
        self._asked[_LOW, slots], self._asked[_HIGH, slots] = low, high
        return len(self) > before

    def ranges(self, slots: Index) -> tuple[Index, Index, Index]:
        """Where ranges begin and end on the line, and their limits."""
        group, low, high, limit = self._asked[:, slots]
        if self.attribute is None:
            return group, group, limit
        begin = group << _BITS
        first, last = begin.copy(), begin + 2 * _HALF - 1
        for ends, out, is_open in ((low, first, low == LEAST), (high, last, high == GREATEST)):
            out[~is_open] = begin[~is_open] + self._label(ends[~is_open])
        return first, last, limit

    # -- rows --------------------------------------------------------------------------------------

    def place(self, step: Step, rows: Index) -> tuple[Index, Mask]:
        table = step.tables[self.table].rows
        x = self._values.find(table, self.columns, rows)
        of = x >= 0
        if not self.rest.always:
            found = np.flatnonzero(of)
            of[found] = Facts(table.take(rows[found])).matches(self.rest)
        if self.attribute is None:
            return x, of
        vector = table.vectors(self.attribute)[0]
        of &= vector.valid[rows]
        found = np.flatnonzero(of)
        codes = column_codes(vector.take(rows[found]))
        if np.any((codes == LEAST) | (codes == GREATEST)):
            raise Unfit(f"{self.table}.{self.attribute}")
        x[found] = (x[found] << _BITS) + self._label(codes)
        return x, of

    def _label(self, codes: Index) -> Index:
        """Places within a stretch."""
        found = self._labels.find(codes[:, None]) if len(codes) else codes
        if found is None or len(self._labels) > self._enough:
            raise Relabelled
        return found + _HALF

    def relabel(self, step: Step, slots: Index) -> None:
        """Deal out labels to all rows there are in the step, and to the ends of all who are left."""
        step.memo.pop(("moves", self), None)
        if self.attribute is None:
            return
        store = step.tables[self.table]
        vector = store.rows.vectors(self.attribute)[0]
        codes = column_codes(vector.take(np.flatnonzero(store.present() & vector.valid)))
        keys = np.unique(np.concatenate([codes, *self._asked[_LOW : _HIGH + 1, slots]]))
        self._labels.load(keys[:, None])
        self._enough = 4 * len(keys) + 4096


class _Values:
    """Combinations of values, numbered as they are asked for."""

    def __init__(self, columns: int) -> None:
        self._texts = [TextNumbers() for _ in range(columns)]
        self._wholes = [IdMap() for _ in range(columns)]
        self._pairs = [IdMap() for _ in range(columns)]  # number so far, number in the column -> number

    def __len__(self) -> int:
        return len(self._pairs[-1])

    def add(self, values: Sequence[Sequence[Any]]) -> Index:
        """The number of each combination, given by column; new ones get one."""
        number = np.zeros(len(values[0]), np.int64)
        for at, column in enumerate(values):
            if len(column) and isinstance(column[0], str):
                mine = self._texts[at].add(column)
            else:
                mine = _numbered(self._wholes[at], np.array(column, np.int64))
            number = _numbered(self._pairs[at], number << 32 | mine)
        return number

    def find(self, table: Rows, columns: Sequence[str], rows: Index) -> Index:
        """The number of each row's combination; -1 if nobody asks for it."""
        number = np.zeros(len(rows), np.int64)
        for at, name in enumerate(columns):
            vector = table.vectors(name)[0]
            there = np.flatnonzero((number >= 0) & vector.valid[rows])
            values: Any = vector.values[rows[there]]
            is_text = vector.type is Type.STRING
            mine = self._texts[at].find(values) if is_text else self._wholes[at].find(values).astype(np.int64)
            there, mine = there[mine >= 0], mine[mine >= 0]
            found = self._pairs[at].find(number[there] << 32 | mine)
            number[:] = np.where(number < 0, number, -1)
            number[there] = found
        return number


def _numbered(ids: IdMap, keys: Index) -> Index:
    fresh = np.unique(keys[ids.find(keys) < 0])
    ids.put(fresh, np.arange(len(ids), len(ids) + len(fresh)))
    return ids.find(keys).astype(np.int64)
