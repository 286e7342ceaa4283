"""Filters beside a range: rows partitioned by the values of columns, so that one family serves all values.

    SELECT MAX(delay) FROM flights WHERE hour BETWEEN 6 AND 9 AND carrier = 'UA' AND tail LIKE 'N%'
    range of hour: 6..9          partition: carrier = 'UA'          condition: tail LIKE 'N%'

A family lays its rows along a line. `PartitionedRows` cuts that line into partitions of equal length, one for
each combination of values that a subscription names; within a partition rows are ordered by the attribute of
the range:

    | UA:  5  6  7  7  9 .. | DL:  6  6  8 .. | AA: ..        subscription: 6..9 in the partition UA

A code has 64 bits, too many for a part of the line, so within a partition rows lie at labels of codes
(`labels.py`). When there is no gap left between two labels, `LabelsExhausted` is raised, the room assigns new
ones (`relabel`) and rebuilds the families of the source. Values that no subscription names have no partition,
and their rows are ignored.

Cost: for each changed row the lookup of its values and a binary search, besides the cost of the families.

The second half of this file splits filters into range, values and condition: `split_range` and
`split_equalities` one filter at a time, `group_similar` by column for all plans of a template.

>>> from tocsin.language.algebra import And, Between, Column
>>> from tocsin.language.rewrite import normalise
>>> tech, risk = Compare(Column("sector", Type.STRING), "=", "tech"), Column("risk", Type.BIGINT)
>>> name, form, others = split_range(normalise(And((tech, Between(risk, 20, 60)))))
>>> name, str(form), str(others)
('risk', 'risk BETWEEN 20 AND 60', "sector = 'tech'")
>>> split_equalities(others)[0]
{'sector': 'tech'}

K12 and T07 have no further conditions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tocsin.language.algebra import Between, Compare, Not
from tocsin.language.rewrite import NormalForm
from tocsin.model.columns import Index, Mask, Rows, column_codes, longer
from tocsin.model.schema import Type
from tocsin.model.texts import TextNumbers
from tocsin.predicate.codes import GREATEST, LEAST
from tocsin.predicate.evaluate import Facts
from tocsin.predicate.flat import CodeSpace, FlatFilters
from tocsin.rank.family import NotIndexable, RowSource
from tocsin.rank.labels import Labels
from tocsin.store.ids import IdMap
from tocsin.store.plans import FlatPlans
from tocsin.store.step import Step

__all__ = [
    *("ALL_ROWS", "LabelsExhausted", "PartitionedRows", "SimilarPlans"),
    *("group_similar", "split_equalities", "split_range"),
]

ALL_ROWS = NormalForm("dnf", ((),))
"""A condition that all rows pass."""

_BITS = 38  # of a label within a partition
_HALF = 1 << (_BITS - 1)  # labels are from -_HALF on
_MAX_PARTITIONS = 1 << (62 - _BITS)
_GAP = 1 << 20
_PARTITION, _LOW, _HIGH, _LIMIT = range(4)  # rows of `_registered`


class LabelsExhausted(Exception):
    """A partitioned source has no label for a code: relabel it, then rebuild its families."""

    def __init__(self, source: PartitionedRows) -> None:
        super().__init__(source.table)
        self.source = source


class PartitionedRows(RowSource):
    """Rows of a table by the values of some columns and, within equal values, by the code of an attribute."""

    def __init__(
        self, table: str, attribute: str | None, columns: Sequence[str], condition: NormalForm
    ) -> None:
        self.table, self.attribute, self.condition = table, attribute, condition
        self.columns = tuple(columns)
        self._values = _ValueCombinations(len(columns))
        self._labels = Labels(1, gap=_GAP, limit=_HALF)
        self._registered: Index = np.zeros((4, 16), np.int64)  # by slot: partition, ends as codes, limit
        self._max_labels = 0  # relabel beyond: most labels are of rows long gone

    def __len__(self) -> int:
        """How many partitions there are."""
        return len(self._values)

    def stats(self) -> dict[str, Any]:
        return {**super().stats(), "by": self.columns, "values": len(self)}

    # -- subscriptions -----------------------------------------------------------------------------

    def register(
        self, slots: Index, low: Index, high: Index, limit: int | None, values: Sequence[Sequence[Any]]
    ) -> bool:
        before = len(self)
        partition = self._values.add(values)
        if len(self) > _MAX_PARTITIONS:
            raise NotIndexable(f"{self.table}: too many values")
        top = int(slots.max(initial=-1)) + 1
        if top > self._registered.shape[1]:
            self._registered = np.ascontiguousarray(longer(self._registered.T, 2 * top).T)
        self._registered[_PARTITION, slots], self._registered[_LIMIT, slots] = partition, limit or 0
        self._registered[_LOW, slots], self._registered[_HIGH, slots] = low, high
        return len(self) > before

    def ranges(
        self, slots: Index, low: Index | None = None, high: Index | None = None
    ) -> tuple[Index, Index]:
        """Where the ranges of registered subscriptions begin and end on the line."""
        partition, lows, highs, _ = self._registered[:, slots]
        if self.attribute is None:
            return partition, partition
        begin = partition << _BITS
        first, last = begin.copy(), begin + 2 * _HALF - 1
        for ends, out, is_open in ((lows, first, lows == LEAST), (highs, last, highs == GREATEST)):
            out[~is_open] = begin[~is_open] + self._label(ends[~is_open])
        return first, last

    def limits(self, slots: Index) -> Index:
        """The limits of registered subscriptions; 0 for none."""
        return self._registered[_LIMIT, slots]

    # -- rows --------------------------------------------------------------------------------------

    def locate(self, step: Step, rows: Index) -> tuple[Index, Mask]:
        table = step.tables[self.table].rows
        x = self._values.find(table, self.columns, rows)
        inside = x >= 0
        if not self.condition.always:
            found = np.flatnonzero(inside)
            inside[found] = Facts(table.take(rows[found])).matches(self.condition)
        if self.attribute is None:
            return x, inside
        vector = table.vectors(self.attribute)[0]
        inside &= vector.valid[rows]
        found = np.flatnonzero(inside)
        codes = column_codes(vector.take(rows[found]))
        if np.any((codes == LEAST) | (codes == GREATEST)):
            raise NotIndexable(f"{self.table}.{self.attribute}")
        x[found] = (x[found] << _BITS) + self._label(codes)
        return x, inside

    def _label(self, codes: Index) -> Index:
        """Positions within a partition, from 0 on."""
        found = self._labels.find(codes[:, None]) if len(codes) else codes
        if found is None or len(self._labels) > self._max_labels:
            raise LabelsExhausted(self)
        return found + _HALF

    def relabel(self, step: Step, slots: Index) -> None:
        """Assign labels to the codes of all rows of the step, and to the ends of these subscriptions."""
        step.memo.pop(("moves", self), None)
        if self.attribute is None:
            return
        store = step.tables[self.table]
        vector = store.rows.vectors(self.attribute)[0]
        codes = column_codes(vector.take(np.flatnonzero(store.present() & vector.valid)))
        keys = np.unique(np.concatenate([codes, *self._registered[_LOW : _HIGH + 1, slots]]))
        self._labels.load(keys[:, None])
        self._max_labels = 4 * len(keys) + 4096


class _ValueCombinations:
    """Combinations of column values, numbered in the order in which subscriptions name them."""

    def __init__(self, columns: int) -> None:
        self._texts = [TextNumbers() for _ in range(columns)]
        self._integers = [IdMap() for _ in range(columns)]
        self._pairs = [IdMap() for _ in range(columns)]  # (number so far, number in the column) -> number

    def __len__(self) -> int:
        return len(self._pairs[-1])

    def add(self, values: Sequence[Sequence[Any]]) -> Index:
        """The number of each combination, given by column; new combinations get one."""
        number = np.zeros(len(values[0]), np.int64)
        for at, column in enumerate(values):
            if len(column) and isinstance(column[0], str):
                mine = self._texts[at].add(column)
            else:
                mine = _numbered(self._integers[at], np.array(column, np.int64))
            number = _numbered(self._pairs[at], number << 32 | mine)
        return number

    def find(self, table: Rows, columns: Sequence[str], rows: Index) -> Index:
        """The number of each row's combination; -1 if no subscription names it."""
        number = np.zeros(len(rows), np.int64)
        for at, name in enumerate(columns):
            vector = table.vectors(name)[0]
            there = np.flatnonzero((number >= 0) & vector.valid[rows])
            values: Any = vector.values[rows[there]]
            if vector.type is Type.STRING:
                mine = self._texts[at].find(values)
            else:
                mine = self._integers[at].find(values).astype(np.int64)
            there, mine = there[mine >= 0], mine[mine >= 0]
            found = self._pairs[at].find(number[there] << 32 | mine)
            number[:] = np.where(number < 0, number, -1)
            number[there] = found
        return number


def _numbered(ids: IdMap, keys: Index) -> Index:
    fresh = np.unique(keys[ids.find(keys) < 0])
    ids.put(fresh, np.arange(len(ids), len(ids) + len(fresh)))
    return ids.find(keys).astype(np.int64)


# -- splitting filters -------------------------------------------------------------------------------


def split_range(form: NormalForm) -> tuple[str | None, NormalForm, NormalForm]:
    """An attribute, the part of a filter that is a range of it, and the rest of the filter."""
    if form.kind == "dnf" and len(form.groups) == 1:
        ranges: list[Any] = [literal for literal in form.groups[0] if _range_quality(literal)]
        if ranges:
            best = max(ranges, key=_range_quality)
            others = tuple(literal for literal in form.groups[0] if literal is not best)
            return best.column.name, NormalForm("dnf", ((best,),)), NormalForm("dnf", (others,))
    return None, ALL_ROWS, form


def _range_quality(literal: Any) -> int:
    """How well a literal serves as the range: two ends are best; a single value is better a partition."""
    if isinstance(literal, Not) or literal.column.type is Type.STRING:
        return 0
    if isinstance(literal, Between):
        return 4
    if not isinstance(literal, Compare) or literal.op == "!=":
        return 0
    return 1 if literal.op == "=" or literal.column.type is Type.BOOLEAN else 3


def split_equalities(form: NormalForm) -> tuple[dict[str, Any], NormalForm]:
    """Columns that a filter compares with one value, and the rest of the filter."""
    values: dict[str, Any] = {}
    others = []
    if form.kind != "dnf" or len(form.groups) != 1:
        return values, form
    for literal in form.groups[0]:
        name = literal.column.name if isinstance(literal, Compare) and literal.op == "=" else None
        if name is not None and name not in values and _can_partition(literal):
            assert isinstance(literal, Compare)
            values[name] = literal.value
        else:
            others.append(literal)
    return values, NormalForm("dnf", (tuple(others),))


def _can_partition(literal: Any) -> bool:
    """Whether the literal names a text, or an integer that a BIGINT column may contain."""
    if literal.column.type is Type.STRING:
        return isinstance(literal.value, str)
    integer = literal.column.type is Type.BIGINT and type(literal.value) is int
    return integer and -(2**63) <= literal.value < 2**63


class SimilarPlans(NamedTuple):
    """Plans of a template that differ in one range, and in the values of some columns."""

    plans: Index
    attribute: str | None
    low: Index
    high: Index
    values: dict[str, list[Any]]  # by column, then by plan
    condition: NormalForm


def group_similar(plans: FlatPlans, which: Index, max_conditions: int) -> Iterator[SimilarPlans]:
    """Plans of a template, read by column and grouped by condition; none if there are too many conditions.

    Ends of the range and values of columns are read from the flat filters; the condition, which is the same
    for all plans of a group, is read from the first of them.
    """
    if len(which) < 2:
        return
    flat = plans.filters[0]
    name = split_range(plans.plan(int(which[0])).filters[0])[0]
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
        return  # further tests of the range's attribute, which are dropped where the range implies them
    single = plain & ~mine & (low == high).all(axis=0) & np.array([names.count(n) == 1 for n in names])
    single &= (space == CodeSpace.BIGINT) | ((space == CodeSpace.TEXT) & (low % 4 == 0).all(axis=0))
    if not (single | mine).any() or (name is not None and not mine.any()):
        return
    columns = {names[test]: test for test in np.flatnonzero(single).tolist()}
    fixed = ~mine & ~single
    others = np.concatenate([low[:, fixed], high[:, fixed], np.zeros((len(which), 1), np.int64)], axis=1)
    _, first, group = np.unique(others, axis=0, return_index=True, return_inverse=True)
    if len(first) > max_conditions:
        return
    least, most = np.zeros((2, len(which)), np.int64)  # all rows are at 0
    if name is not None:
        least, most = low[:, mine].max(axis=1), high[:, mine].min(axis=1)
    for number, one in enumerate(first.tolist()):
        form = plans.plan(int(which[one])).filters[0]
        some = np.flatnonzero((group.ravel() == number) & (least <= most))
        if form.kind == "dnf" and len(form.groups) == 1 and len(some):
            beside = [x for x in form.groups[0] if not (_range_quality(x) and _column(x) == name)]
            condition = NormalForm("dnf", (tuple(x for x in beside if _column(x) not in columns),))
            values = {
                column: _values_of(flat, dim[0, test], low[some, test]) for column, test in columns.items()
            }
            yield SimilarPlans(which[some], name, least[some], most[some], values, condition)


def _values_of(flat: FlatFilters, dim: int, codes: Index) -> list[Any]:
    """Values of single codes: texts are numbered by fours."""
    if flat.space[dim] != CodeSpace.TEXT:
        return codes.tolist()
    return [text.decode() for text in flat.texts.take(pa.array(codes // 4)).to_pylist()]


def _column(literal: Any) -> str:
    atom: Any = literal.arg if isinstance(literal, Not) else literal
    return str(atom.column.name)
