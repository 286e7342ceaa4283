"""First rows of each group: subscriptions of one table, partition and order share the rows in order.

    rows ─► (group, place in the order) ─► one ordered structure, kept up to date                 _OrderedRows
    a step ─► filters that changed rows pass ─► (filter, group) pairs ─► first rows of the group
              that pass, before and after each change ─► subscriptions by filter and k ─► Deltas

A subscription is a filter and a number k of rows; equal filters are evaluated once. Of a group only so many
rows are read that k of them stay throughout the step. Cost of a change: the filters that its row passes,
times the rows read until k pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tocsin.join._kernels.gather import BEGUN, DONE, KeyRanges, gather_some
from tocsin.join.signature import KeySpec
from tocsin.join.tables import JoinTable, codes_as
from tocsin.language.algebra import Column, Item, OrderKey
from tocsin.language.rewrite import NormalForm
from tocsin.language.shape import Plan
from tocsin.match.base import unpack
from tocsin.match.index import Auto
from tocsin.match.nested import match_computed
from tocsin.model.columns import Index, Mask, Rows, longer
from tocsin.model.delta import Deltas, order_of
from tocsin.model.runs import runs
from tocsin.model.texts import TextNumbers
from tocsin.predicate.codes import GREATEST, LEAST
from tocsin.predicate.compile import flatten
from tocsin.predicate.verify import PairVerifier
from tocsin.rank.labels import RowKeys
from tocsin.store.step import Step
from tocsin.store.tables import FOREVER, Changed, TableStore

__all__ = ["FirstsFamily", "FirstsKey"]

_FIRST_LOOK = 16  # rows of a group that are read at once, beyond k
_GROWTH = 4
_MOST_AT_ONCE = 1 << 20
_ALL = 1 << 62  # a limit beyond is as good as none
_LABEL = "label"


class NoLabelLeft(Exception):
    """There is none between two neighbours; all rows are labelled again."""


class FirstsKey(NamedTuple):
    """What subscriptions share: the table, the columns of the partition, the order."""

    table: str
    partition: tuple[Column, ...]
    order: tuple[OrderKey, ...]

    @classmethod
    def of(cls, plan: Plan) -> FirstsKey:
        return cls(plan.query.tables[0].name, plan.query.partition, plan.query.order)


class _OrderedRows(JoinTable):
    """The rows of a table by group and place in the order; NULL is a group too."""

    def __init__(self, store: TableStore, key: FirstsKey) -> None:
        super().__init__(store, {})
        types = tuple(column.type for column in key.partition)
        self.spec = KeySpec(tuple(column.name for column in key.partition), types)  # type: ignore[arg-type]
        self._labels: RowKeys | None = None
        self._sort = key.order, store.schema.key
        self._groups = TextNumbers()

    def begin(self, changed: Changed | None) -> bool:
        rows = 4096 + 4 * len(self.store.rows)
        if len(self._groups) > rows or (self._labels is not None and len(self._labels) > rows):
            return False  # most numbers are of rows long gone
        try:
            return super().begin(changed)
        except NoLabelLeft:
            return False

    def compute(self, spec: KeySpec | str | None, rows: Rows) -> tuple[Index, Mask]:
        if isinstance(spec, KeySpec):
            return self._number(rows), np.ones(len(rows), np.bool_)
        if self._labels is None:
            self._labels = RowKeys(*self._sort)
            self._labels.load(rows)
        labels = self._labels.find(rows)
        if labels is None:
            raise NoLabelLeft
        return labels, np.ones(len(rows), np.bool_)

    def _number(self, rows: Rows) -> Index:
        """The number of each row's group."""
        columns: list[Index] = []
        for name, type in zip(self.spec.columns, self.spec.types, strict=True):
            vector = rows.vectors(name)[0]
            code, _ = codes_as(vector, type, self._numbers)
            columns += [np.where(vector.valid, code, 0), vector.valid.astype(np.int64)]
        data = np.ascontiguousarray(np.stack(columns, axis=1)) if columns else np.zeros((len(rows), 0))
        width = data.shape[1] * 8
        return self._groups.number(np.arange(len(rows) + 1) * width, data.view(np.uint8).ravel())


class _Class(NamedTuple):
    """Subscriptions with one filter, by (k, what they show)."""

    filter: NormalForm
    members: dict[tuple[int, tuple[Item, ...]], dict[int, None]]


class _Moments(NamedTuple):
    """Rows that enter (+1) or leave (-1) the first k of a filter and group, at positions."""

    number: Index  # of the class
    row: Index
    at: Index
    sign: Index


class _Gathered(NamedTuple):
    """By (class, group) pair, in order: rows that pass the filter; `begin` has one more."""

    row: Index
    begin: Index


class FirstsFamily:
    """Subscriptions of one key."""

    def __init__(self, key: FirstsKey) -> None:
        self.key = key
        self._classes: dict[int, _Class] = {}
        self._numbers: dict[NormalForm, int] = {}
        self._class_of: dict[int, int] = {}  # by slot
        self._shown: dict[int, tuple[int, tuple[Item, ...]]] = {}  # by slot: k, items
        self._index = Auto()  # over the filters of classes
        self._filters = PairVerifier()
        self._most: Index = np.zeros(16, np.int64)  # by class: the greatest k
        self._free: list[int] = []
        self._rows: _OrderedRows | None = None

    def __len__(self) -> int:
        return len(self._class_of)

    # -- subscriptions -----------------------------------------------------------------------------

    def add(self, members: Sequence[tuple[int, Plan]]) -> None:
        new: list[int] = []
        for slot, plan in members:
            query, form = plan.query, plan.filters[0]
            assert query.limit is not None
            number = self._numbers.get(form)
            if number is None:
                number = self._free.pop() if self._free else len(self._numbers)
                self._numbers[form] = number
                self._classes[number] = _Class(form, {})
                new.append(number)
            shown = self._shown[slot] = min(query.limit, _ALL), query.items
            self._classes[number].members.setdefault(shown, {})[slot] = None
            self._class_of[slot] = number
            if number >= len(self._most):
                self._most = longer(self._most, 2 * number)
            self._most[number] = max(k for k, _ in self._classes[number].members)
        if new:
            own = np.array(new, np.int64)
            filters = flatten([self._classes[n].filter for n in new])
            self._index.add(own, filters)
            self._filters.add(own, filters)

    def remove(self, slots: Sequence[int]) -> None:
        for slot in slots:
            number, shown = self._class_of.pop(slot), self._shown.pop(slot)
            members = self._classes[number].members
            del members[shown][slot]
            if not members[shown]:
                del members[shown]
            if members:
                self._most[number] = max(k for k, _ in members)
                continue
            del self._numbers[self._classes.pop(number).filter]
            self._free.append(number)
            self._index.remove(np.array([number]))
            self._filters.remove(np.array([number]))

    # -- steps -------------------------------------------------------------------------------------

    def deltas(self, step: Step) -> Deltas:
        """How the answers change; the table changed."""
        try:
            rows = self._current(step)
            return step.settled(Deltas.concat(self._deltas(rows, step)))
        except BaseException:
            self._rows = None  # it may contain half of the step
            raise

    def _current(self, step: Step) -> _OrderedRows:
        """The rows in order, with the versions of the step."""
        store, changed = step.tables[self.key.table], step.changed[self.key.table]
        if self._rows is None or self._rows.store is not store or not self._rows.begin(changed):
            self._rows = _OrderedRows(store, self.key)
            self._rows.begin(changed)
        return self._rows

    def _deltas(self, rows: _OrderedRows, step: Step) -> Iterator[Deltas]:
        signed = step.changed[self.key.table].signed()
        number, at = unpack(match_computed(self._index, rows.store.rows.take(signed.slot)))
        if not len(number):
            return
        order = rows.order(rows.spec, _LABEL)
        group = rows.codes(rows.spec).code[signed.slot[at]]
        position = signed.position[at]
        by = order_of([number, group, position])
        number, group, position = number[by], group[by], position[by]
        fresh = np.ones(len(by), np.bool_)
        fresh[1:] = (number[1:] != number[:-1]) | (group[1:] != group[:-1])
        moment = fresh.copy()
        moment[1:] |= position[1:] != position[:-1]
        found = self._gathered(number[fresh], group[fresh], rows, order.arrays)
        pair, when = (np.cumsum(fresh) - 1)[moment], position[moment]
        for wanted in np.unique([k for one in np.unique(number) for k, _ in self._members(one)]).tolist():
            mine = np.array([any(k == wanted for k, _ in self._members(n)) for n in number[fresh]], np.bool_)
            some = mine[pair]
            changes = _moments(found, number[fresh], pair[some], when[some], wanted, rows.store)
            yield from self._emitted(changes, wanted, step)

    def _members(self, number: int) -> dict[tuple[int, tuple[Item, ...]], dict[int, None]]:
        return self._classes[int(number)].members

    def _gathered(self, number: Index, group: Index, rows: _OrderedRows, arrays: Any) -> _Gathered:
        """The rows of groups that pass filters, from the first on: until k of them stay all the time."""
        count, store = len(number), rows.store
        ranges = KeyRanges(
            group,
            np.full(count, LEAST),
            np.full(count, GREATEST),
            np.full(count, BEGUN),
            np.zeros(count, np.int64),
        )
        stay, most = np.zeros(count, np.int64), self._most[number]
        owners, slots = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        limit, left = int(most.max()) + _FIRST_LOOK, np.arange(count)
        while len(left):
            size = min(limit, max(_FIRST_LOOK, _MOST_AT_ONCE // len(left)))
            owner, row = np.empty((2, len(left) * size), np.int64)
            n = gather_some(arrays, ranges, left, size, owner, row)
            owner, row = owner[:n], row[:n]
            holds = self._filters.verify(store.rows, number[owner], row)
            owner, row = owner[holds], row[holds]
            owners.append(owner)
            slots.append(row)
            lasting = (store.born[row] < 0) & (store.died[row] > FOREVER)
            stay += np.bincount(owner[lasting], minlength=count)
            left = left[(stay[left] < most[left]) & (ranges.block[left] != DONE)]
            limit *= _GROWTH
        owner, row = np.concatenate(owners), np.concatenate(slots)
        by = np.argsort(owner, kind="stable")
        begin = np.zeros(count + 1, np.int64)
        begin[1:] = np.cumsum(np.bincount(owner, minlength=count))
        return _Gathered(row[by], begin)

    def _emitted(self, changes: _Moments, k: int, step: Step) -> Iterator[Deltas]:
        """Deltas of the subscriptions with this k, by what they show."""
        shown: dict[tuple[Item, ...], list[tuple[Index, Index]]] = {}
        by = np.argsort(changes.number, kind="stable")
        cuts = np.flatnonzero(np.diff(changes.number[by])) + 1
        for mine in np.split(by, cuts) if len(by) else ():
            for (own, items), slots in self._members(changes.number[mine[0]]).items():
                if own == k:
                    shown.setdefault(items, []).append((np.fromiter(slots, np.int64), mine))
        for items, parts in shown.items():
            slot = np.concatenate([np.repeat(slots, len(mine)) for slots, mine in parts])
            change = np.concatenate([np.tile(mine, len(slots)) for slots, mine in parts])
            used, at = np.unique(changes.row[change], return_inverse=True)
            answer = step.tables[self.key.table].rows.take(used).project(_names(items))
            sign = changes.sign[change]
            found = Deltas.of(step.seq[changes.at[change]], slot, sign, answer, at)
            yield found.consolidate() if (sign < 0).any() and (sign > 0).any() else found

    # -- inspection --------------------------------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        return {
            "table": self.key.table,
            "partition": [column.name for column in self.key.partition],
            "subscriptions": len(self),
            "filters": len(self._classes),
        }

    def _check(self) -> None:
        assert {number: one.filter for number, one in self._classes.items()} == {
            number: form for form, number in self._numbers.items()
        }
        members = {s: n for n, one in self._classes.items() for own in one.members.values() for s in own}
        assert members == self._class_of and members.keys() == self._shown.keys()
        assert all(self._most[n] == max(k for k, _ in one.members) for n, one in self._classes.items())
        self._index._check()
        assert self._index.stats()["subscriptions"] == len(self._classes)
        if self._rows is not None:
            self._rows._check()


def _moments(
    found: _Gathered, number: Index, pair: Index, when: Index, k: int, store: TableStore
) -> _Moments:
    """How the first k rows of pairs change at moments."""
    size = np.diff(found.begin)[pair]
    event, place = runs(found.begin[pair], size)
    start, row = np.cumsum(size) - size, found.row[place]
    at, born, died = when[event], store.born[row], store.died[row]
    inside = []
    for alive in ((born < at) & (died >= at), (born <= at) & (died > at)):
        place = np.cumsum(alive)
        before = np.where(start > 0, place[np.minimum(start, len(place)) - 1], 0) if len(place) else start
        inside.append(alive & (place - before[event] <= k))
    changed = np.flatnonzero(inside[0] != inside[1])
    sign = np.where(inside[1][changed], 1, -1)
    return _Moments(number[pair[event[changed]]], row[changed], at[changed], sign)


def _names(items: Sequence[Item]) -> dict[str, str]:
    """Columns of an answer, and of the table."""
    out = {}
    for item in items:
        assert isinstance(item.expression, Column)
        out[item.name] = item.expression.name
    return out
