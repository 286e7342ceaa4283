"""Sets of partners: the rows of a table that satisfy a filter, by a join key.

All conditions with the same table, key and filter share a set, whoever uses it. A set stores no rows and no
counts: whether a key has a partner is looked up in the table's order by (key, attribute), the one that inner
joins use, restricted to the range of the attribute that the filter selects. The lookup of a key ends at the
first row that stays through the step, so that a key with many partners costs what a key with one does.

    a row of the table changes ─► the sets it belongs to, by a matching index over their filters ─► (set, key)
                               ─► has the key a partner before, and from which position on? ─► crossings
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.join._kernels.gather import BEGUN, DONE, KeyRanges, gather_some
from tocsin.join.signature import KeySpec
from tocsin.join.tables import JoinTable, JoinTables, NeededOrders
from tocsin.language.rewrite import NormalForm
from tocsin.match.base import unpack
from tocsin.match.index import Auto
from tocsin.match.nested import match_computed
from tocsin.model.columns import Index, Mask, distinct, longer
from tocsin.model.delta import order_of
from tocsin.predicate.codes import GREATEST, LEAST
from tocsin.predicate.compile import flatten
from tocsin.predicate.verify import PairVerifier, selections
from tocsin.semi.keyed import codes_by_row, is_keyed, keyed_rows
from tocsin.semi.sweep import Crossings, crossings, lifetimes
from tocsin.store.step import Step
from tocsin.store.tables import FOREVER

__all__ = ["Existences", "PartnerKey", "PartnerSets", "distinct_pairs", "rows_of_keys"]

_FIRST_LOOK = 8  # rows of a key that are looked at first
_GROWTH = 8
_MOST_AT_ONCE = 1 << 20


class PartnerKey(NamedTuple):
    """What a set is: the table, its columns of the join key, and the filter."""

    table: str
    key: KeySpec | None
    filter: NormalForm


class Existences(NamedTuple):
    """By owner: whether there is a partner before the step, and when that changes."""

    before: Mask
    changes: Crossings


class _Access(NamedTuple):
    """How partners are looked up: in which order of which table."""

    table: str
    key: KeySpec | None
    attribute: str | None


class PartnerSets:
    """Sets of partners by number."""

    def __init__(self) -> None:
        self._numbers: dict[PartnerKey, int] = {}
        self._keys: dict[int, PartnerKey] = {}
        self._users: dict[int, int] = {}
        self._free: list[int] = []
        self._next = 0
        self._new: list[int] = []  # not in the structures yet
        self._indexes: dict[str, Auto] = {}  # by table
        self._whole: dict[str, dict[int, None]] = {}  # by table: sets of all its rows, in no index
        self._verifier = PairVerifier()
        self._accesses: dict[_Access, int] = {}
        self._access: Index = np.zeros(0, np.int64)  # by set
        self._low: Index = np.zeros(0, np.int64)
        self._high: Index = np.zeros(0, np.int64)

    def __len__(self) -> int:
        return len(self._numbers)

    # -- sets --------------------------------------------------------------------------------------

    def use(self, key: PartnerKey) -> int:
        """The number of a set, which has a user more."""
        number = self._numbers.get(key)
        if number is None:
            number = self._free.pop() if self._free else self._next
            self._next = max(self._next, number + 1)
            self._numbers[key], self._keys[number], self._users[number] = number, key, 0
            self._new.append(number)
        self._users[number] += 1
        return number

    def release(self, number: int) -> None:
        """The set has a user less."""
        self._users[number] -= 1
        if self._users[number]:
            return
        key = self._keys.pop(number)
        del self._numbers[key], self._users[number]
        self._free.append(number)
        if number in self._new:
            self._new.remove(number)
            return
        if key.filter.always:
            del self._whole[key.table][number]
            return
        one = np.array([number])
        self._indexes[key.table].remove(one)
        self._verifier.remove(one)

    def place(self) -> None:
        """Enter new sets into the structures, all at once."""
        new, self._new = self._new, []
        by: dict[tuple[str, KeySpec | None], list[int]] = {}
        for number in new:
            by.setdefault((self._keys[number].table, self._keys[number].key), []).append(number)
        if new and max(new) >= len(self._low):
            size = max(64, max(new) + 1, 2 * len(self._low))
            self._access, self._low, self._high = (
                longer(array, size) for array in (self._access, self._low, self._high)
            )
        for (table, key), numbers in by.items():
            own = np.array(numbers, np.int64)
            filters = flatten([self._keys[n].filter for n in numbers])
            whole = np.array([self._keys[n].filter.always for n in numbers], np.bool_)
            self._whole.setdefault(table, {}).update(dict.fromkeys(own[whole].tolist()))
            if not whole.all():
                self._indexes.setdefault(table, Auto()).add(own[~whole], filters.take(~whole))
            chosen = selections(filters, by_share=True)
            inexact = ~chosen.exact
            if inexact.any():
                self._verifier.add(own[inexact], filters.take(inexact))
            ranged = chosen.attribute >= 0
            self._low[own] = np.where(ranged, chosen.low, LEAST)
            self._high[own] = np.where(ranged, chosen.high, GREATEST)
            names = [None, *chosen.names]
            accesses = [
                self._accesses.setdefault(_Access(table, key, name), len(self._accesses)) for name in names
            ]
            self._access[own] = np.array(accesses)[np.where(ranged, chosen.attribute, -1) + 1]

    def drop_tables(self, catalog: Collection[str]) -> None:
        """Drop the indexes of tables that are not in the catalog any more."""
        used = {key.table for key in self._numbers}
        self._indexes = {n: index for n, index in self._indexes.items() if n in catalog or n in used}
        self._whole = {n: sets for n, sets in self._whole.items() if n in catalog or n in used}

    def needed_orders(self) -> NeededOrders:
        """The orders in which partners are looked up."""
        placed = np.array([number for number in self._keys if number not in self._new], np.int64)
        needed: NeededOrders = {}
        for access, _ in self._by_access(placed):
            needed.setdefault(access.table, set()).add((access.key, access.attribute))
        return needed

    # -- steps -------------------------------------------------------------------------------------

    def touched(self, step: Step, tables: JoinTables) -> tuple[Index, Index]:
        """The (set, key) pairs whose partners a step changes, each once."""
        sets, keys = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for table in dict.fromkeys([*self._indexes, *self._whole]):
            if table not in step.changed:
                continue
            slots = step.changed[table].signed().slot
            whole = np.fromiter(self._whole.get(table, ()), np.int64)
            number, row = np.repeat(whole, len(slots)), np.tile(np.arange(len(slots)), len(whole))
            if table in self._indexes:
                found = unpack(match_computed(self._indexes[table], step.tables[table].rows.take(slots)))
                number, row = np.concatenate([number, found[0]]), np.concatenate([row, found[1]])
            for access, mine in self._by_access(number):
                codes = codes_by_row(tables[table], access.key)
                slot = slots[row[mine]]
                there = codes.valid[slot]
                sets.append(number[mine][there])
                keys.append(codes.code[slot[there]])
        return distinct_pairs(np.concatenate(sets), np.concatenate(keys))

    def existences(self, sets: Index, keys: Index, tables: JoinTables) -> Existences:
        """Whether keys have partners in sets, before and within the step."""
        before = np.zeros(len(sets), np.bool_)
        parts = [Crossings(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int8))]
        for access, mine in self._by_access(sets):
            found = self._look_up(access, sets[mine], keys[mine], tables)
            before[mine] = found.before
            parts.append(found.changes._replace(owner=mine[found.changes.owner]))
        return Existences(before, Crossings(*(np.concatenate(part) for part in zip(*parts, strict=True))))

    def _look_up(self, access: _Access, sets: Index, keys: Index, tables: JoinTables) -> Existences:
        """The same in one order: a few rows of each key, and more where none of them decides."""
        table = tables[access.table]
        if access.key is not None and is_keyed(table, access.key):
            return self._look_up_keyed(access, sets, keys, table)
        order = table.order(access.key, access.attribute)
        born, died = table.store.born, table.store.died
        count = len(sets)
        ranges = KeyRanges(
            keys,
            self._low[sets] if access.attribute is not None else np.full(count, LEAST),
            self._high[sets] if access.attribute is not None else np.full(count, GREATEST),
            np.full(count, BEGUN),
            np.zeros(count, np.int64),
        )
        stays = np.zeros(count, np.bool_)
        owners, rows = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        limit, open_ones = _FIRST_LOOK, np.arange(count)
        while len(open_ones):
            owner, row = _gathered(order.arrays, ranges, open_ones, limit)
            holds = self._verifier.verify(table.store.rows, sets[owner], row)
            owner, row = owner[holds], row[holds]
            lasting = (born[row] < 0) & (died[row] > FOREVER)
            stays[owner[lasting]] = True
            owners.append(owner[~lasting])
            rows.append(row[~lasting])
            open_ones = open_ones[~stays[open_ones] & (ranges.block[open_ones] != DONE)]
            limit *= _GROWTH
        owner, row = np.concatenate(owners), np.concatenate(rows)
        kept = ~stays[owner]
        owner, row = owner[kept], row[kept]
        start, *events = lifetimes(owner, born[row], died[row], count)
        return Existences(stays | (start > 0), crossings(start, 1, *events))

    def _look_up_keyed(self, access: _Access, sets: Index, keys: Index, table: JoinTable) -> Existences:
        """The same where the key is the table's own: there is one row at most, beside its versions."""
        assert access.key is not None
        owner, row = keyed_rows(table, access.key, keys)
        if access.attribute is not None:
            code, valid = table.compute(access.attribute, table.store.rows.take(row))
            own = sets[owner]
            inside = np.flatnonzero(valid & (code >= self._low[own]) & (code <= self._high[own]))
            owner, row = owner[inside], row[inside]
        holds = self._verifier.verify(table.store.rows, sets[owner], row)
        owner, row = owner[holds], row[holds]
        start, *events = lifetimes(owner, table.store.born[row], table.store.died[row], len(sets))
        return Existences(start > 0, crossings(start, 1, *events))

    def _by_access(self, sets: Index) -> list[tuple[_Access, Index]]:
        """Positions in `sets` by how their partners are looked up."""
        if not len(sets):
            return []
        names, number = list(self._accesses), self._access[sets]
        return [(names[n], np.flatnonzero(number == n)) for n in distinct(number).tolist()]

    # -- inspection --------------------------------------------------------------------------------

    def stats(self) -> dict[str, int]:
        return {"partner_sets": len(self._numbers), "accesses": len(self._accesses)}

    def _check(self) -> None:
        assert {n: key for key, n in self._numbers.items()} == self._keys
        assert set(self._users) == set(self._keys) and all(n > 0 for n in self._users.values())
        assert not set(self._free) & set(self._keys)
        placed = [(k.table, k.filter.always) for n, k in self._keys.items() if n not in self._new]
        for table, index in self._indexes.items():
            index._check()
            assert index.stats()["subscriptions"] == placed.count((table, False))
        assert all(len(sets) == placed.count((table, True)) for table, sets in self._whole.items())


def rows_of_keys(table: str, key: KeySpec | None, codes: Index, tables: JoinTables) -> tuple[Index, Index]:
    """All rows of keys: (number of the key, row)."""
    if key is not None and is_keyed(tables[table], key):
        return keyed_rows(tables[table], key, codes)
    order, count = tables[table].order(key, None), len(codes)
    every = np.full(count, GREATEST)
    ranges = KeyRanges(codes, np.full(count, LEAST), every, np.full(count, BEGUN), np.zeros(count, np.int64))
    limit, left = _FIRST_LOOK, np.arange(count)
    owners, rows = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    while len(left):
        owner, row = _gathered(order.arrays, ranges, left, limit)
        owners.append(owner)
        rows.append(row)
        left = left[ranges.block[left] != DONE]
        limit *= _GROWTH
    return np.concatenate(owners), np.concatenate(rows)


def _gathered(arrays: object, ranges: KeyRanges, which: Index, limit: int) -> tuple[Index, Index]:
    limit = min(limit, max(_FIRST_LOOK, _MOST_AT_ONCE // len(which)))
    size = len(which) * limit
    owner: NDArray[np.int64] = np.empty(size, np.int64)
    row: NDArray[np.int64] = np.empty(size, np.int64)
    n = gather_some(arrays, ranges, which, limit, owner, row)
    return owner[:n], row[:n]


def distinct_pairs(first: Index, second: Index) -> tuple[Index, Index]:
    """Each pair once."""
    if len(first) < 2:
        return first, second
    order = order_of([first, second])
    first, second = first[order], second[order]
    fresh = np.ones(len(first), np.bool_)
    fresh[1:] = (first[1:] != first[:-1]) | (second[1:] != second[:-1])
    return first[fresh], second[fresh]
