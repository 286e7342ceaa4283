"""The accumulators of groups: rows, exact sums, sorted values; shared by all subscriptions of one source.

Rows come signed and in order of seq. A *touch* is a group and a seq at which its rows change; for each the
measures before and after it are noted, as int64 codes in the order of the values (`column_codes`):

    rows       seq 7: +(a, 5)   seq 8: +(b, 1)   seq 9: +(a, 2), -(b, 1)
    touches    a at 7, a at 9, b at 8, b at 9
    COUNT(*)   0 -> 1  1 -> 2  0 -> 1  1 -> 0

Sums are those of `rank/sums.py`, so the order of rows does not matter, and a row that leaves takes exactly
what it brought. Cost: for a row a look-up of its group, O(limbs) for each sum, O(log n) for values in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tocsin.group._kernels.sums import SumChanges, TouchedSums, change_sums
from tocsin.group.source import SignedRows
from tocsin.group.values import GroupValues
from tocsin.language.algebra import Aggregate, Column, Item, Predicate, Query, TableRef
from tocsin.model.columns import Index, Mask, Rows, Vector, column_codes, from_codes, longer
from tocsin.model.schema import Type
from tocsin.predicate.evaluate import Facts
from tocsin.rank._kernels.aggregates import AggregateTotals
from tocsin.rank.sums import AggregateCells
from tocsin.store.directory import GroupDirectory

__all__ = ["GroupTotals", "MeasureChange", "Touched"]

_IN_ORDER = ("MIN", "MAX")
_LEAST, _GREATEST, _NUMBER = range(3)  # of what `GroupValues` notes


class MeasureChange(NamedTuple):
    """By touch: the value of a measure before and after, as codes; `over`: sums beyond BIGINT."""

    before: Index
    had: Mask
    after: Index
    has: Mask
    over: Mask | None = None

    @property
    def differs(self) -> Mask:
        return np.asarray((self.had != self.has) | (self.has & (self.before != self.after)))


@dataclass(frozen=True)
class Touched:
    """What a batch of rows did: by touch its group, its seq, whether the group had and has rows."""

    group: Index
    seq: Index
    had: Mask
    has: Mask
    rows: MeasureChange  # COUNT(*)
    measures: dict[Aggregate, MeasureChange]

    def __len__(self) -> int:
        return len(self.group)

    def of(self, aggregate: Aggregate) -> MeasureChange:
        return self.rows if aggregate == Aggregate("COUNT") else self.measures[aggregate]


class _Input(NamedTuple):
    """What an aggregate reads: a column (None: the row itself) where a condition holds."""

    column: Column | None
    where: Predicate | None


class GroupTotals:
    """Accumulators by number of the group."""

    def __init__(self, keys: Sequence[Column], aggregates: Iterable[Aggregate]) -> None:
        self.keys = tuple(keys)
        self.aggregates = tuple(dict.fromkeys(a for a in aggregates if a != Aggregate("COUNT")))
        columns = [*self.keys, *(column for aggregate in self.aggregates for column in aggregate.columns)]
        self.name = {column: f"c{n}" for n, column in enumerate(dict.fromkeys(columns))}
        self.directory = GroupDirectory([key.type or Type.STRING for key in self.keys])
        self.rows: Index = np.zeros(16, np.int64)
        self._inputs = tuple(dict.fromkeys(_Input(a.column, a.where) for a in self.aggregates))
        summed = [a for a in self.aggregates if not _is_sorted(a)]
        self._summed = tuple(summed)
        items = [Item(Aggregate(a.function, self._stands_for(a)), f"v{n}") for n, a in enumerate(summed)]
        self._query = Query(tuple(items), (TableRef("t", "t"),))
        self._cells = AggregateCells(self._query) if items else None
        self._totals = self._cells.empty(16) if self._cells is not None else None
        wanted = (_Input(a.column, a.where) for a in self.aggregates if _is_sorted(a))
        self._values = {read: GroupValues(_type_of(read)) for read in dict.fromkeys(wanted)}
        if not self.keys:
            self.directory.number([], 1)

    def __len__(self) -> int:
        """How many groups have rows; without keys, all rows are one group, which is always there."""
        return len(self.groups())

    def _stands_for(self, aggregate: Aggregate) -> Column:
        """The column of inputs that cells read."""
        read = _Input(aggregate.column, aggregate.where)
        return Column(f"i{self._inputs.index(read)}", _type_of(read))

    # -- changes -----------------------------------------------------------------------------------

    def load(self, rows: Rows, sign: Index | None = None) -> None:
        """Add rows, or remove those of negative sign, which must be there in the end."""
        signs = np.ones(len(rows), np.int64) if sign is None else np.asarray(sign, np.int64)
        order = np.argsort(-signs, kind="stable")  # rows are added first
        changes = SignedRows(np.zeros(len(rows), np.int64), signs[order], rows.take(order))
        if len(rows):
            self.apply(changes)

    def apply(self, changes: SignedRows) -> Touched:
        """Apply signed rows in order of seq."""
        rows = changes.rows
        group = self.directory.number([rows.vectors(self.name[key])[0] for key in self.keys], len(rows))
        self._reserve(self.directory.size)
        order = np.argsort(group, kind="stable")
        group, seq, sign = group[order], changes.seq[order], np.asarray(changes.sign[order], np.int64)
        fresh = np.ones(len(group), np.bool_)
        fresh[1:] = (group[1:] != group[:-1]) | (seq[1:] != seq[:-1])
        begin = np.flatnonzero(fresh)
        first = np.append(begin, len(group))
        touched = group[begin]
        counts = self._count(touched, np.add.reduceat(sign, begin) if len(begin) else begin)
        inputs = self._read(rows.take(order))
        measures = self._change_sums(touched, first, sign, inputs)
        measures |= self._change_values(touched, first, sign, inputs)
        there = np.ones(len(begin), np.bool_)
        had, has = (there, there) if not self.keys else (counts.before > 0, counts.after > 0)
        return Touched(touched, seq[begin], had, has, counts, measures)

    def _count(self, group: Index, change: Index) -> MeasureChange:
        """Rows of the touched groups before and after."""
        total = np.cumsum(change)
        begins = np.ones(len(group), np.bool_)
        begins[1:] = group[1:] != group[:-1]
        base = (total - change)[begins]
        after = total - np.repeat(base, np.diff(np.append(np.flatnonzero(begins), len(group))))
        after += self.rows[group]
        last = np.append(begins[1:], True) if len(group) else begins
        self.rows[group[last]] = after[last]
        known = np.ones(len(group), np.bool_)
        return MeasureChange(after - change, known, after, known)

    def _read(self, rows: Rows) -> list[Vector]:
        """The inputs of the aggregates."""
        facts, out = Facts(rows, lambda column: self.name[column]), []
        for column, where in self._inputs:
            if column is None:
                there = np.ones(len(rows), np.bool_)
                vector = Vector(Type.BOOLEAN, there, there)
            else:
                vector = rows.vectors(self.name[column])[0]
            if where is not None:
                vector = Vector(vector.type, vector.values, vector.valid & facts.holds(where))
            out.append(vector)
        return out

    def _change_sums(
        self, group: Index, first: Index, sign: Index, inputs: Sequence[Vector]
    ) -> dict[Aggregate, MeasureChange]:
        if self._cells is None or self._totals is None:
            return {}
        rows = Rows([(f"i{n}", vector) for n, vector in enumerate(inputs)], len(sign))
        values = self._cells.read(rows, np.arange(len(sign)))
        self._totals = self._cells.widen(values, self._totals)
        shape = (len(self._summed), len(group))
        numbers, masks = np.zeros((2, *shape), np.int64), np.zeros((3, *shape), np.bool_)
        out = TouchedSums(numbers[0], masks[0], numbers[1], masks[1], masks[2])
        change_sums(self._cells.layout, self._totals, values, SumChanges(group, first, sign), out)
        found = {}
        for n, aggregate in enumerate(self._summed):
            before, after = out.before[n], out.after[n]
            if aggregate.type is Type.DOUBLE:
                before, after = (_double_codes(bits) for bits in (before, after))
            found[aggregate] = MeasureChange(before, out.had[n], after, out.has[n], out.over[n])
        return found

    def _change_values(
        self, group: Index, first: Index, sign: Index, inputs: Sequence[Vector]
    ) -> dict[Aggregate, MeasureChange]:
        found: dict[Aggregate, MeasureChange] = {}
        for read, values in self._values.items():
            before, after = values.change(group, first, sign, inputs[self._inputs.index(read)])
            for aggregate in self.aggregates:
                if _is_sorted(aggregate) and _Input(aggregate.column, aggregate.where) == read:
                    found[aggregate] = _noted(aggregate, before, after)
        return found

    def _reserve(self, groups: int) -> None:
        if groups > len(self.rows):
            size = max(groups, 2 * len(self.rows))
            self.rows = longer(self.rows, size)
            if self._totals is not None:
                self._totals = AggregateTotals(*(longer(part, size) for part in self._totals))
        for values in self._values.values():
            values.reserve(len(self.rows))

    def compact(self) -> None:
        """Drop the groups without rows once they are most."""
        if self.keys and self.directory.size > 2 * np.count_nonzero(self.rows > 0) + 1024:
            self.directory.keep(self.groups())

    # -- groups as they are ------------------------------------------------------------------------

    def groups(self) -> Index:
        """The groups that are there."""
        return np.flatnonzero(self.rows > 0) if self.keys else np.zeros(1, np.int64)

    def now(self, groups: Index) -> Touched:
        """The groups as they are, as if each had just come."""
        count = len(groups)
        none, there = np.zeros(count, np.bool_), np.ones(count, np.bool_)
        blank = np.zeros(count, np.int64)
        first, nothing = np.zeros(count + 1, np.int64), np.empty(0, np.int64)
        inputs = [Vector.blank(_type_of(read), 0) for read in self._inputs]
        measures = self._change_sums(groups, first, nothing, inputs)
        measures |= self._change_values(groups, first, nothing, inputs)
        rows = MeasureChange(blank, none, self.rows[groups], there)
        return Touched(groups, blank, none, there, rows, measures)

    def vector(self, aggregate: Aggregate, codes: Index, valid: Mask) -> Vector:
        """The values of a measure that have some codes."""
        if aggregate.function in _IN_ORDER:
            return self._values[_Input(aggregate.column, aggregate.where)].vector(codes, valid)
        return from_codes(aggregate.type, codes, valid)

    def stats(self) -> dict[str, Any]:
        """Groups, and values that are kept in order."""
        nodes = sum(values.nodes for values in self._values.values())
        return {"groups": len(self), "values": nodes, "bytes": self.nbytes}

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays; texts are not in them."""
        own = self.rows.nbytes + sum(array.nbytes for array in self._totals or ())
        return own + self.directory.nbytes + sum(values.nbytes for values in self._values.values())

    def _check(self) -> None:
        """No count is negative; groups are found by their keys."""
        assert np.all(self.rows >= 0)
        self.directory._check()
        for values in self._values.values():
            values._check()


def _is_sorted(aggregate: Aggregate) -> bool:
    return aggregate.function in _IN_ORDER or aggregate.distinct


def _type_of(read: _Input) -> Type:
    return Type.BOOLEAN if read.column is None else read.column.type or Type.STRING


def _noted(aggregate: Aggregate, before: Any, after: Any) -> MeasureChange:
    """The measure among what values note."""
    if aggregate.distinct:
        known = np.ones(before.shape[1], np.bool_)
        return MeasureChange(before[_NUMBER], known, after[_NUMBER], known)
    end = _LEAST if aggregate.function == "MIN" else _GREATEST
    return MeasureChange(before[end], before[_NUMBER] > 0, after[end], after[_NUMBER] > 0)


def _double_codes(bits: Index) -> Index:
    values = bits.view(np.float64)
    return column_codes(Vector(Type.DOUBLE, values, np.ones(len(values), np.bool_)))
