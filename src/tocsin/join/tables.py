"""Tables as all joins see them: codes by row, and rows ordered by (key, attribute).

A batch is staged when the room processes the step, and committed or rolled back afterwards. So the step's new
row versions are inserted beside all earlier ones, and the next step begins by deleting the versions that are
over:

    step n     + born in n        every version of the step is present; `born` and `died` say when it lives
    step n+1   - died in n        if n was committed (the table counts its commits),
               - born in n        if it was rolled back

Codes by row are written when a version is born and stay until its slot is reused, so that a later step can
find and delete the entries. Cost: O(log n) per version and order; a whole table when an order is first used.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tocsin.join._kernels.matches import Lifetimes, Stamps
from tocsin.join._kernels.orders import (
    BLOCKS,
    CAPACITY,
    COUNT,
    FREE,
    LENGTH,
    MIN,
    Order,
    beside,
    delete_row,
    delete_rows,
    find_run,
    gather_rows,
    insert_row,
    insert_rows,
    seek,
)
from tocsin.join.signature import KeySpec, Numbering
from tocsin.model.buffers import laid_out
from tocsin.model.columns import Index, Mask, Rows, Vector, column_codes, double_codes, longer
from tocsin.model.decimals import units_of_doubles
from tocsin.model.schema import Type
from tocsin.model.texts import TextNumbers
from tocsin.predicate.codes import text_hashes
from tocsin.store.step import Step
from tocsin.store.tables import Changed, Signed, TableStore

__all__ = [
    "JoinTable",
    "JoinTables",
    "NeededOrders",
    "OrderSpec",
    "OrderedRows",
    "RowCodes",
    "codes_as",
    "key_codes",
]

FILL = CAPACITY * 3 // 4  # of a block, when many rows are added at once
_DAY = 86_400_000_000
_FEW = 1024  # numbered keys that are not worth dropping
_NONE = np.empty(0, np.int64)
_NO_ROWS = Signed(_NONE, np.empty(0, np.int8), _NONE)
OrderKey = KeySpec | None  # None: all rows have one key
CodeSpec = KeySpec | str | None  # a key, an attribute, or neither: then all codes are 0
NeededOrders = dict[str, set[tuple[OrderKey, str | None]]]  # by table: key and attribute


class OrderedRows:
    """Rows by (join key, selection attribute); kernels read `arrays`, which `reserve` may replace.

    Joins need the rows of a key, the values nearest to a point on both sides, and the rows of a range. A
    sorted array provides all of that but takes O(n) per change; so it is cut into blocks of at most 128
    entries under a directory of their first entries. A full block is split; an empty one leaves the
    directory:

        directory   (1,4)       (3,0)       (3,9)
                      |           |           |
        blocks      1,4 1,9     3,0 3,5     3,9 7,2 7,7

    Cost: O(log n) to find a place, plus a block to shift for a change, plus n/64 entries of the directory for
    one change in 64. Entries are triples (key, value, row), so that equal keys and values are found by row.

    >>> order = OrderedRows.build([3, 1, 3, 3], [5, 4, 0, 9], rows=[0, 1, 2, 3])
    >>> order.rows_of(3).tolist(), order.neighbours(3, 6)
    ([2, 0, 3], (5, 9))
    >>> order.insert(3, 6, 4)
    >>> order.neighbours(3, 6), order.neighbours(2, 6)
    ((5, 6), (None, None))
    >>> order.delete(3, 6, 4), len(order)
    (True, 4)

    T07, section 4.3 has a B-tree here; a directory of one level is as fast for some millions of rows.
    """

    def __init__(self) -> None:
        self.arrays = _empty_order(4)

    @classmethod
    def build(cls, keys: ArrayLike, values: ArrayLike, rows: ArrayLike | None = None) -> OrderedRows:
        """Many rows at once, by default numbered from 0. O(n log n)."""
        key, value = np.asarray(keys, np.int64), np.asarray(values, np.int64)
        row = np.arange(len(key)) if rows is None else np.asarray(rows, np.int64)
        if not key.shape == value.shape == row.shape or key.ndim != 1:
            raise ValueError(
                f"keys, values and rows differ in shape: {key.shape}, {value.shape}, {row.shape}"
            )
        out = cls()
        by = np.lexsort((row, value, key))
        count = -(-len(by) // FILL)
        out.arrays = arrays = _empty_order(count + count // 4 + 4)
        place = np.arange(len(by)) // FILL * CAPACITY + np.arange(len(by)) % FILL
        for target, source in zip(arrays[:3], (key, value, row), strict=True):
            target[place] = source[by]
        first = np.arange(count) * CAPACITY
        arrays.first_key[:count], arrays.first_value[:count] = arrays.key[first], arrays.value[first]
        arrays.first_row[:count], arrays.block[:count] = arrays.row[first], np.arange(count)
        arrays.size[:count] = np.minimum(FILL, len(by) - np.arange(count) * FILL)
        arrays.meta[:] = count, count, 0, len(by)
        return out

    def reserve(self, inserts: int) -> Order:
        """Grow for so many calls of `insert_row` in compiled code; the arrays to call it with."""
        old = self.arrays
        used, splits = int(old.meta[BLOCKS]), min(inserts, int(old.meta[LENGTH])) + inserts // (CAPACITY // 2)
        if used + splits + 1 - old.meta[FREE] > len(old.size):
            self.arrays = _empty_order(max(used + splits + 2, used + used // 2))
            for target, source in zip(self.arrays, old, strict=True):
                target[: len(source)] = source
        return self.arrays

    def insert(self, key: int, value: int, row: int) -> None:
        insert_row(self.reserve(1), key, value, row)

    def delete(self, key: int, value: int, row: int) -> bool:
        """Whether the row was found."""
        return bool(delete_row(self.arrays, key, value, row))

    def ends(self) -> tuple[int, int]:
        """The least and the greatest key; zeros if there are no rows."""
        length = int(self.arrays.meta[LENGTH])
        if not length:
            return 0, 0
        last = int(self.arrays.block[length - 1])
        greatest = self.arrays.key[last * CAPACITY + int(self.arrays.size[last]) - 1]
        return int(self.arrays.first_key[0]), int(greatest)

    def rows_of(self, key: int, low: int = -(2**63), high: int = 2**63 - 1) -> Index:
        """Rows of a key with a value in low..high, by value."""
        return self._gather(seek(self.arrays, key, low), key, high)

    def rows_between(self, low: int, high: int) -> Index:
        """Rows with a key in low..high, by key and value."""
        return self._gather(seek(self.arrays, low, MIN), high, 2**63 - 1)

    def neighbours(self, key: int, value: int) -> tuple[int | None, int | None]:
        """Of the key's values the greatest below `value` and the least from it on."""
        run = find_run(self.arrays, key)
        if not run.length:
            return None, None
        has1, q1, has2, q2 = beside(self.arrays, run, value)
        return (int(q1) if has1 else None), (int(q2) if has2 else None)

    def _gather(self, place: tuple[int, int], key_to: int, value_to: int) -> Index:
        out: NDArray[np.int64] = np.empty(64, np.int64)
        while (n := gather_rows(self.arrays, place, key_to, value_to, out, 0)) > len(out):
            out = np.empty(n, np.int64)
        return out[:n]

    def __len__(self) -> int:
        return int(self.arrays.meta[COUNT])

    @property
    def bytes(self) -> int:
        return sum(array.nbytes for array in self.arrays)

    def columns(self) -> tuple[Index, Index, Index]:
        """Key, value and row of all entries, in order."""
        blocks = self.arrays.block[: self.arrays.meta[LENGTH]]
        sizes = self.arrays.size[blocks]
        before = np.concatenate([[0], np.cumsum(sizes)])
        places = np.arange(before[-1]) + np.repeat(blocks * CAPACITY - before[:-1], sizes)
        return self.arrays.key[places], self.arrays.value[places], self.arrays.row[places]

    def entries(self) -> list[tuple[int, int, int]]:
        """All triples in order, for tests."""
        key, value, row = self.columns()
        return list(zip(key.tolist(), value.tolist(), row.tolist(), strict=True))

    def _check(self) -> None:
        """Triples ascend; the directory has the first of each block; blocks are used once."""
        a = self.arrays
        length, used, free, count = a.meta.tolist()
        triples = self.entries()
        assert len(triples) == count
        assert all(one < other for one, other in pairwise(triples)), "triples ascend"
        blocks = a.block[:length].tolist()
        assert all(0 < a.size[b] <= CAPACITY for b in blocks)
        first = [(int(a.key[b * CAPACITY]), int(a.value[b * CAPACITY])) for b in blocks]
        listed = zip(a.first_key[:length].tolist(), a.first_value[:length].tolist(), strict=True)
        assert first == list(listed), "the directory lists first entries"
        assert sorted(blocks + a.free[:free].tolist()) == list(range(used)), "blocks are used or free"


def _empty_order(blocks: int) -> Order:
    entries = [np.empty(blocks * CAPACITY, np.int64) for _ in range(3)]
    directory = [np.empty(blocks, np.int64) for _ in range(4)]
    size, free = np.zeros(blocks, np.int64), np.empty(blocks, np.int64)
    return Order._make([*entries, *directory, size, free, np.zeros(4, np.int64)])


# -- codes of rows ---------------------------------------------------------------------------------


def key_codes(spec: KeySpec, rows: Rows, numbers: dict[Numbering, TextNumbers]) -> tuple[Index, Mask]:
    """The code of each row's key, and which rows have one.

    Texts are numbered in order of appearance; so are the concatenated codes of several columns. A value that
    the common type cannot represent joins nothing. The key of a band keeps the order of values, and is
    rounded as in subtraction.

    >>> key = KeySpec(("n",), (Type.DOUBLE,))
    >>> codes, valid = key_codes(key, Rows.of(n=Vector.of(Type.BIGINT, [1, 2**53 + 1, None])), {})
    >>> valid.tolist(), bool(codes[0] == column_codes(Vector.of(Type.DOUBLE, [1.0]))[0])
    ([True, False, False], True)
    """
    codes, valid = [], np.ones(len(rows), np.bool_)
    for column, type in zip(spec.columns, spec.types, strict=True):
        vector = rows.vectors(column)[0]
        code, exact = codes_as(vector, type, numbers)
        codes.append(code)
        valid &= vector.valid if spec.rounded else vector.valid & exact
    if len(codes) == 1:
        return codes[0], valid
    if spec.types not in numbers:
        numbers[spec.types] = TextNumbers()
    data = np.ascontiguousarray(np.stack([np.where(valid, code, 0) for code in codes], axis=1))
    width = 8 * len(codes)
    return numbers[spec.types].number(np.arange(len(rows) + 1) * width, data.view(np.uint8).ravel()), valid


def codes_as(vector: Vector, type: Type, numbers: dict[Numbering, TextNumbers]) -> tuple[Index, Mask]:
    """Codes of the values as values of another type, and where that is exact."""
    exact = np.ones(len(vector), np.bool_)
    if type is Type.STRING:
        if (type,) not in numbers:
            numbers[(type,)] = TextNumbers()
        return numbers[(type,)].number(*laid_out(vector.values)), exact
    if vector.type is type:
        return column_codes(vector), exact
    if type is Type.TIMESTAMP:
        return vector.values * _DAY, exact
    if type.is_exact:
        return units_as(vector, type)
    assert type is Type.DOUBLE, type
    near = vector.values.astype(np.float64)
    inside = near < 2.0**63  # the greatest integers round up to it
    back = np.where(inside, near, 0.0).astype(np.int64)
    return double_codes(near), inside & (back == vector.values)


def units_as(vector: Vector, type: Type) -> tuple[Index, Mask]:
    """Numbers in units of a type with at most as many digits behind the point, and where that is exact."""
    if vector.type is Type.DOUBLE:
        return units_of_doubles(vector.values, type.scale)
    units, rest = np.divmod(vector.values, np.int64(10 ** (vector.type.scale - type.scale)))
    return units, rest == 0


# -- tables of a step ------------------------------------------------------------------------------


class RowCodes(NamedTuple):
    """By row of a table: its code, and whether it has one."""

    code: Index
    valid: Mask


class OrderSpec(NamedTuple):
    """A table's rows by key and attribute."""

    table: str
    key: KeySpec
    attribute: str | None


class JoinTable:
    """One table: codes of its rows, and orders over them, as of the current step."""

    def __init__(self, store: TableStore, numbers: dict[Numbering, TextNumbers]) -> None:
        self.store = store
        self.orders: dict[tuple[OrderKey, str | None], OrderedRows] = {}
        self._numbers = numbers
        self._codes: dict[CodeSpec, RowCodes] = {}
        self._born, self._died = _NONE, _NONE  # rows of the last step's batch
        self._commits, self._staged = store.commits, False  # ... and whether the last step changed this table
        self._changed: Changed | None = None
        self._stamps, self._clock = Stamps(_NONE, _NONE, 0), 1
        self.signed = _NO_ROWS  # rows that the step inserts and deletes

    # -- reading -----------------------------------------------------------------------------------

    def codes(self, spec: CodeSpec) -> RowCodes:
        """The codes of all rows of the step."""
        if spec is None:  # not kept: they are all alike
            length = len(self.store.rows)
            return RowCodes(np.broadcast_to(np.int64(0), length), np.broadcast_to(np.True_, length))
        if spec not in self._codes:
            rows = self.store.rows
            code, valid = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.bool_)
            present = np.flatnonzero(self.store.present())
            code[present], valid[present] = self.compute(spec, rows.take(present))
            self._codes[spec] = RowCodes(code, valid)
        return self._codes[spec]

    def order(self, key: OrderKey, attribute: str | None) -> OrderedRows:
        """Rows by key and attribute, without rows where either is NULL."""
        if (key, attribute) not in self.orders:
            self.codes(key), self.codes(attribute)
            present = np.flatnonzero(self.store.present())
            self.orders[key, attribute] = OrderedRows.build(*self._entries(key, attribute, present))
        return self.orders[key, attribute]

    def lifetimes(self) -> Lifetimes:
        """When each row was alive."""
        return Lifetimes(self.store.born, self.store.died)

    def stamps(self, changes: int) -> Stamps:
        """Marks by row for so many changes, none of which was used before."""
        if len(self._stamps.seen) < len(self.store.born):
            length = len(self.store.born)
            self._stamps = Stamps(np.zeros(length, np.int64), np.empty(length, np.int64), 0)
            self._clock = 1
        base, self._clock = self._clock, self._clock + changes
        return self._stamps._replace(base=base)

    # -- steps -------------------------------------------------------------------------------------

    def begin(self, changed: Changed | None) -> bool:
        """Finish the last step and insert this one's versions; False if the table changed in between."""
        commits = self.store.commits - self._commits
        if commits > self._staged:
            return False
        if changed is not None and changed is self._changed and not commits:
            return True  # another room began this step
        over = self._died if commits else self._born
        for (key, attribute), order in self.orders.items() if len(over) else ():
            delete_rows(order.arrays, *self._entries(key, attribute, over))
        self._born, self._died, self._commits = _NONE, _NONE, self.store.commits
        self._staged, self.signed, self._changed = changed is not None, _NO_ROWS, changed
        if changed is not None:
            self.signed = changed.signed()
            self._born = changed.new[changed.new >= 0]
            self._died = changed.old[changed.old >= 0]
            rows = self.store.rows.take(self._born)
            for spec, known in self._codes.items():
                if len(known.code) < len(self.store.rows):
                    length = len(self.store.born)
                    known = RowCodes(longer(known.code, length), longer(known.valid, length))
                    self._codes[spec] = known
                known.code[self._born], known.valid[self._born] = self.compute(spec, rows)
            for (key, attribute), order in self.orders.items():
                entries = self._entries(key, attribute, self._born)
                insert_rows(order.reserve(len(entries[0])), *entries)
        return True

    def keep(self, needed: set[tuple[OrderKey, str | None]]) -> None:
        """Drop orders and codes that no subscription needs."""
        self.orders = {spec: order for spec, order in self.orders.items() if spec in needed}
        used: set[CodeSpec] = {part for spec in needed for part in spec}
        self._codes = {spec: codes for spec, codes in self._codes.items() if spec in used}

    def compute(self, spec: CodeSpec, rows: Rows) -> tuple[Index, Mask]:
        """The code of each row's key or attribute, and which rows have one."""
        assert spec is not None, "rows without a key have no codes of their own"
        if isinstance(spec, str):
            vector = rows.vectors(spec)[0]
            if vector.type is Type.STRING:  # hashes, for candidates only
                return text_hashes(*laid_out(vector.values)), vector.valid
            return column_codes(vector), vector.valid
        return key_codes(spec, rows, self._numbers)

    def _entries(self, key: OrderKey, attribute: str | None, rows: Index) -> tuple[Index, Index, Index]:
        """Key, value and row of the rows that have both."""
        keys, values = self.codes(key), self.codes(attribute)
        rows = rows[keys.valid[rows] & values.valid[rows]]
        return keys.code[rows], values.code[rows], rows

    def _check(self) -> None:
        for order in self.orders.values():
            order._check()


class JoinTables:
    """All tables that join subscriptions read, as of the current step; rooms may share them.

    Each room begins a step and ends it; a table that another room brought up to the step already is left as
    it is. `trim` keeps what any of the `users` needs.
    """

    def __init__(self) -> None:
        self.users: list[Callable[[], NeededOrders]] = []
        self._tables: dict[str, JoinTable] = {}
        self._numbers: dict[Numbering, TextNumbers] = {}
        self._step: Step | None = None

    def begin(self, step: Step) -> None:
        """Advance to a step."""
        self._step = step
        rows = sum(len(step.tables[name]) for name in self._tables if name in step.tables)
        if any(len(numbers) > _FEW + 4 * rows for numbers in self._numbers.values()):
            self.clear()
        for name, table in list(self._tables.items()):
            store = step.tables.get(name)
            if store is not table.store or not table.begin(step.changed.get(name)):
                del self._tables[name]

    @property
    def numbers(self) -> dict[Numbering, TextNumbers]:
        """The numbers of texts and of keys of several columns, for `key_codes` of other rows."""
        return self._numbers

    def __getitem__(self, name: str) -> JoinTable:
        if name not in self._tables:
            assert self._step is not None, "a step has begun"
            table = self._tables[name] = JoinTable(self._step.tables[name], self._numbers)
            table.begin(self._step.changed.get(name))
        return self._tables[name]

    def end(self) -> None:
        """Release the step; tables stay for the next one."""
        self._step = None

    def trim(self) -> None:
        """Drop tables, orders and codes that no user needs."""
        needed: NeededOrders = {}
        for user in self.users:
            for name, orders in user().items():
                needed.setdefault(name, set()).update(orders)
        self._tables = {name: table for name, table in self._tables.items() if name in needed}
        for name, table in self._tables.items():
            table.keep(needed[name])
        used = {key.types for orders in needed.values() for key, _ in orders if key is not None}
        texts = {(type,) for types in used for type in types}
        self._numbers = {types: known for types, known in self._numbers.items() if types in used | texts}
        for table in self._tables.values():
            table._numbers = self._numbers

    def clear(self) -> None:
        """Drop everything; tables are built again when they are used."""
        self._tables.clear()
        self._numbers.clear()

    def orders(self) -> int:
        """The number of orders."""
        return sum(len(table.orders) for table in self._tables.values())

    def _check(self) -> None:
        for table in self._tables.values():
            table._check()
