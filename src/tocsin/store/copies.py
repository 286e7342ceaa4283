"""A copy of a table that follows it later, in batches of what changed meanwhile.

    table   slot 4: A = 7          copy   slot 4: A = 5     waits: A
            slot 5: B = 1                 slot 5: B = 1

`WaitingChanges` knows of each row of the table which slot of the copy has the row with its key. A change
moves that knowledge to the row's new slot and marks the slot as *waiting*: the new row itself stays in the
table, so waiting changes take one bit each, and the last change of a key counts. A key that was deleted keeps
its slot of the copy, under the key, until the copy deletes it too; if it is inserted again before, it is an
update.

>>> from tocsin.model.change import ChangeBatch
>>> from tocsin.model.schema import Field, Table, Type
>>> schema = Table("stocks", (Field("symbol", Type.STRING), Field("per", Type.DOUBLE)), ("symbol",))
>>> stocks = TableStore(schema)
>>> def change(op, row):
...     batch, _ = ChangeBatch.from_dicts(schema, [row], op)
...     changed, _ = stocks.stage(batch, np.array([0]))
...     waiting.add(*net_changes(changed, stocks))
...     stocks.commit()
>>> waiting = WaitingChanges(stocks)
>>> change("insert", {"symbol": "A", "per": 1}); change("update", {"symbol": "A", "per": 2})
>>> waiting.count, len(waiting.copy)
(1, 0)
>>> _ = waiting.stage(); waiting.commit()
>>> waiting.count, waiting.copy.rows.take(waiting.copy.alive()).to_dicts()
(0, [{'symbol': 'A', 'per': 2.0}])

O(1) per change, without a loop over them; a batch for the copy costs O(changes) beside one look at the bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tocsin.model.columns import Index, Mask, Rows, Vector, longer
from tocsin.store.tables import FOREVER, Changed, TableStore

__all__ = ["TableCopy", "WaitingChanges", "net_changes"]


def net_changes(changed: Changed, store: TableStore) -> tuple[Index, Index]:
    """What a staged step does to a table as a whole: slots of old and new rows, -1 where there is none.

    A row updated several times is one change; one inserted and deleted again is none.
    """
    old, new = changed.old, changed.new
    if len(old) == 1:
        return old, new
    later = (old >= 0) & (store.born[old] >= 0)  # continues a change of this step
    if not later.any():
        return old, new
    made = np.flatnonzero(new >= 0)
    by_slot = made[np.argsort(new[made])]
    first = np.arange(len(old))  # of each change, the first one of its chain
    first[later] = by_slot[np.searchsorted(new[by_slot], old[later])]
    is_last = np.ones(len(old), np.bool_)
    is_last[first[later]] = False
    while not np.array_equal(first, further := first[first]):
        first = further
    old, new = old[first][is_last], new[is_last]
    kept = (old >= 0) | (new >= 0)
    return old[kept], new[kept]


class TableCopy(TableStore):
    """Rows of a table by slot, without keys."""

    def __init__(self, store: TableStore) -> None:
        """A copy of the rows as they are now, in the same slots."""
        super().__init__(store.schema)
        used = store.used
        for name in store.schema.names:
            column = store.column(name)
            values, valid = column.values[:used].copy(), column.valid[:used].copy()
            self._columns[name] = Vector(column.type, values, valid)
        self.born, self.died = store.born[:used].copy(), store.died[:used].copy()
        self._free, self._used = np.flatnonzero(self.died < 0).tolist(), used
        self._changed, self._count = False, len(store)

    def __len__(self) -> int:
        return self._count

    def stage_slots(self, old: Index, rows: Rows, gone: Index) -> tuple[Changed, Index]:
        """Stage rows that take the place of slots (-1: of none), and slots that are deleted.

        Returns the change, and the slots of the rows.
        """
        assert self._staged is None, "a batch is staged already"
        new, deletes = self._allocate(len(rows)), len(gone)
        for name, column in self._columns.items():
            given = rows.vectors(name)[0]
            column.values[new], column.valid[new] = given.values, given.valid
        position = np.arange(deletes + len(rows))
        killed = np.concatenate([gone, old])
        there = killed >= 0
        self.born[new], self.died[new] = position[deletes:], FOREVER + 1
        self.died[killed[there]] = position[there]
        self._staged, self._rows, self._changed = ({}, killed[there].tolist(), new.tolist()), None, True
        made = np.concatenate([np.full(deletes, -1, np.int64), new])
        return Changed(position, killed, made), new

    def commit(self) -> None:
        if self._staged is not None:
            self._count += len(self._staged[2]) - len(self._staged[1])
        super().commit()
        self.commits += self._changed
        self._changed = False

    def rollback(self) -> None:
        super().rollback()
        self._changed = False

    @property
    def nbytes(self) -> int:
        """Bytes of the rows; a text counts as its characters and a pointer."""
        total = self.born.nbytes + self.died.nbytes
        for column in self._columns.values():
            total += column.values.nbytes + column.valid.nbytes
            if column.values.dtype == object:
                total += sum(map(len, column.values[: self._used].tolist()))
        return total

    def _check(self) -> None:
        """Free slots are dead, others alive; nothing is staged."""
        assert self._staged is None and not self._changed
        alive, free = self.alive(), np.array(self._free, np.int64)
        assert len(alive) == self._count
        assert (self.born[alive] == -1).all() and (self.died[free] == -1).all()
        assert len(set(self._free)) == len(free) and len(free) + len(alive) == self._used


class WaitingChanges:
    """A table, its copy, and which rows the copy lacks."""

    def __init__(self, store: TableStore) -> None:
        self.store, self.copy = store, TableCopy(store)
        alive = store.alive()
        self._place: Index = np.full(store.used, -1, np.int64)  # by slot: the slot of its key in the copy
        self._place[alive] = alive
        self._waits: Mask = np.zeros(store.used, np.bool_)  # by slot: the copy does not have this row yet
        self._gone: dict[Any, int] = {}  # slots of the copy by key, of rows that were deleted
        self._staged: tuple[Index, Index] | None = None  # slots, and their new slots in the copy
        self.count = 0

    def add(self, old: Index, new: Index) -> int:
        """Net changes of a staged step (`net_changes`); returns how many keys wait now that did not."""
        before = self.count
        self._reserve()
        here, there = old >= 0, new >= 0
        if (both := here & there).all():
            self._update(old, new)
        else:
            self._update(old[both], new[both])
            self._delete(old[here & ~there])
            self._insert(new[there & ~here])
        return self.count - before

    def _update(self, old: Index, new: Index) -> None:
        self.count += len(old) - int(np.count_nonzero(self._waits[old]))
        self._place[new], self._waits[new] = self._place[old], True
        self._place[old], self._waits[old] = -1, False

    def _delete(self, old: Index) -> None:
        place = self._place[old]
        known = place >= 0
        self.count += int(np.count_nonzero(known)) - int(np.count_nonzero(self._waits[old]))
        self._gone.update(zip(self._keys(old[known]), place[known].tolist(), strict=True))
        self._place[old], self._waits[old] = -1, False

    def _insert(self, new: Index) -> None:
        place = np.full(len(new), -1, np.int64)
        if self._gone:
            place[:] = [self._gone.pop(key, -1) for key in self._keys(new)]
        self._place[new], self._waits[new] = place, True
        self.count += int(np.count_nonzero(place < 0))

    def stage(self) -> Changed:
        """Stage all that waits in the copy, as one batch; the table must not have a staged step."""
        slots = np.flatnonzero(self._waits)
        gone = np.fromiter(self._gone.values(), np.int64, len(self._gone))
        changed, made = self.copy.stage_slots(self._place[slots], self.store.rows.take(slots), gone)
        self._staged = slots, made
        return changed

    def commit(self) -> None:
        """The copy has what was staged."""
        assert self._staged is not None
        slots, made = self._staged
        self.copy.commit()
        self._place[slots], self._waits[slots] = made, False
        self._gone.clear()
        self._staged, self.count = None, 0

    def rollback(self) -> None:
        """Discard what was staged; it waits on."""
        self.copy.rollback()
        self._staged = None

    @property
    def nbytes(self) -> int:
        return self.copy.nbytes + self._place.nbytes + self._waits.nbytes

    def _keys(self, slots: Index) -> list[Any]:
        rows = self.store.rows
        names = self.store.schema.key
        columns = [(name, rows.vectors(name)[0].take(slots)) for name in names]
        return self.store.keys(Rows(columns, len(slots)))

    def _reserve(self) -> None:
        if (used := self.store.used) > len(self._place):
            size = max(64, 2 * len(self._place), used)
            self._place, self._waits = longer(self._place, size, -1), longer(self._waits, size)

    def _check(self) -> None:
        """With what waits, the copy would be the table."""
        self.copy._check()
        alive = self.store.alive()
        self._reserve()
        assert not np.delete(self._waits, alive).any()
        place = self._place[alive]
        known = place[place >= 0]
        assert self._waits[alive[place < 0]].all()
        own = np.sort(np.concatenate([known, np.fromiter(self._gone.values(), np.int64, len(self._gone))]))
        assert np.array_equal(own, self.copy.alive())
        same = alive[~self._waits[alive]]
        mine, others = self.store.rows.take(same), self.copy.rows.take(self._place[same])
        both = Rows.concat([mine, others]).codes()
        assert np.array_equal(both[: len(same)], both[len(same) :])
        assert self.count == int(self._waits.sum()) + len(self._gone)
