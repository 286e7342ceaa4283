"""Forms of tables in order: the first k rows of ranges, minima and maxima, distinct values.

    FirstForm    the first k rows of a range, or of a box of two          `reformulate/topk.py`, `boxes.py`
    ValueForm    the least or the greatest value of a range               `reformulate/extremes.py`
    SetForm      the distinct values of a range                           the same

Subscriptions of a form share its table, its attributes and the condition that rows have to pass; they differ
in ranges. A row whose attribute is at the end of int64, which stands for an open range, counts as one beside
it: subscriptions for which the two differ have another form (`form_choice.py`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import NamedTuple

import msgspec
import numpy as np

from tocsin.language.algebra import OrderKey
from tocsin.language.rewrite import NormalForm
from tocsin.model.columns import Index, Mask, Rows, Vector, column_codes, from_codes
from tocsin.model.json_rows import to_json
from tocsin.model.message import GREATEST, LEAST, MessageKind, Messages
from tocsin.model.schema import Type
from tocsin.network.forms import (
    Description,
    Form,
    HeldRow,
    PartKind,
    Point,
    numbered_steps,
    one_plane,
    spread_texts,
)
from tocsin.network.rows import RowIds, TableChanges, sort_keys, texts_of, version_slots
from tocsin.predicate.evaluate import Facts
from tocsin.rank.extremes import DistinctRanges, Extremes
from tocsin.rank.labels import RowKeys
from tocsin.rank.points import ABSENT
from tocsin.rank.space import SubscriptionSpace
from tocsin.reformulate.boxes import BoxTopk
from tocsin.reformulate.extremes import ReformulatedDistinct, ReformulatedMinima
from tocsin.reformulate.topk import PaintTopk
from tocsin.store.step import Step

__all__ = ["FirstForm", "FirstKey", "SetForm", "SetKey", "ValueForm", "ValueKey"]


class _Moves(NamedTuple):
    """Rows of a source that a step changes: by change its number among those of the table, and the row."""

    change: Index
    number: Index  # of the row, small
    x: Index  # by attribute; 0 where it is gone
    there: Mask  # whether it is there afterwards
    slot: Index  # of the version afterwards, -1 if it is gone


class _Source(Form):
    """A table's rows that pass a condition, at the codes of attributes, under small numbers."""

    def __init__(self, number: int, table: str, attributes: tuple[str, ...], condition: NormalForm) -> None:
        super().__init__(number)
        self._table, self._attributes, self._condition = table, attributes, condition
        self._number: dict[int, int] = {}  # by row of the table, its small number
        self._row: list[int] = []  # by number
        self._slot: dict[int, int] = {}  # by number: the version that is there
        self._free: list[int] = []

    @property
    def tables(self) -> tuple[str, ...]:
        return (self._table,)

    def _locate(self, step: Step, slots: Index) -> tuple[Index, Mask]:
        """Codes by version, and whether it takes part."""
        rows = step.tables[self._table].rows.take(slots)
        inside = np.ones(len(slots), np.bool_)
        if not self._condition.always:
            inside &= Facts(rows).matches(self._condition)
        x = np.zeros((len(slots), max(1, len(self._attributes))), np.int64)
        for at, name in enumerate(self._attributes):
            vector = rows.vectors(name)[0]
            x[:, at] = np.clip(column_codes(vector), LEAST + 1, GREATEST - 1)
            inside &= vector.valid
        return x, self._ranked(rows, inside)

    def _ranked(self, rows: Rows, inside: Mask) -> Mask:
        """Of the versions that pass those that have a place in the order."""
        return inside

    def load(self, step: Step, ids: Mapping[str, RowIds]) -> None:
        present = np.flatnonzero(step.tables[self._table].present())
        x, inside = self._locate(step, present)
        slots = present[inside]
        self._row = ids[self._table].of(slots).tolist()
        self._number = {row: number for number, row in enumerate(self._row)}
        self._slot = dict(enumerate(slots.tolist()))
        self._load(step, np.arange(len(slots)), x[inside], slots)

    @abstractmethod
    def _load(self, step: Step, numbers: Index, x: Index, slots: Index) -> None:
        """Start with some rows."""

    def describe(
        self, step: Step, changes: Mapping[str, TableChanges], ids: Mapping[str, RowIds]
    ) -> Description | None:
        mine = changes[self._table]
        moves, gone = self._moves(step, mine)
        description = self._describe(step, moves, mine, ids[self._table]) if len(moves.change) else None
        for number, slot, there in zip(
            moves.number.tolist(), moves.slot.tolist(), moves.there.tolist(), strict=True
        ):
            if there:
                self._slot[number] = slot
            else:
                self._slot.pop(number, None)
        for row in gone:
            if (number := self._number[row]) not in self._slot:
                del self._number[row]
                self._free.append(number)
        return description

    def _moves(self, step: Step, mine: TableChanges) -> tuple[_Moves, set[int]]:
        there = mine.new >= 0
        codes, inside = self._locate(step, mine.new[there])
        has = np.zeros(len(mine.new), np.bool_)
        x = np.zeros((len(mine.new), codes.shape[1]), np.int64)
        has[there], x[there] = inside, np.where(inside[:, None], codes, 0)
        change, number, gone = [], [], set()
        for at, (row, comes) in enumerate(zip(mine.ids.tolist(), has.tolist(), strict=True)):
            if row not in self._number:
                if not comes:
                    continue
                self._enter(row)
            if not comes:
                gone.add(row)
            change.append(at)
            number.append(self._number[row])
        which = np.array(change, np.int64)
        slot = np.where(has, mine.new, -1)[which]
        return _Moves(which, np.array(number, np.int64), x[which], has[which], slot), gone

    def _enter(self, row: int) -> None:
        if self._free:
            number = self._free.pop()
            self._row[number] = row
        else:
            number = len(self._row)
            self._row.append(row)
        self._number[row] = number

    @abstractmethod
    def _describe(self, step: Step, moves: _Moves, mine: TableChanges, ids: RowIds) -> Description | None:
        """The messages of moves."""

    def _check(self) -> None:
        assert {self._row[number] for number in self._slot} == set(self._number)
        assert not set(self._free) & set(self._slot)


# -- the first rows ----------------------------------------------------------------------------------


class FirstKey(NamedTuple):
    """What the subscriptions of a form share; k rows, in an order, over one range or two."""

    table: str
    attributes: tuple[str, ...]
    condition: NormalForm
    order: tuple[OrderKey, ...]
    k: int
    skips_null: bool = False  # rows without a value in the order do not count: an extreme

    @property
    def relations(self) -> tuple[str, ...]:
        return (self.table,)


class FirstForm(_Source):
    """The first k rows by range; what a message carries begins with its place in the order."""

    kind = PartKind.FIRST

    def __init__(self, number: int, key: FirstKey, primary: tuple[str, ...]) -> None:
        super().__init__(number, key.table, key.attributes, key.condition)
        self.key, self._primary = key, primary
        self._keys = RowKeys(key.order, primary)
        self._space = SubscriptionSpace()
        self._boxes = BoxTopk(key.k) if len(key.attributes) > 1 else None
        self._painted = PaintTopk([key.k], spaces=[self._space])
        self._label: dict[int, int] = {}  # by number; the next version of a row has another one

    def _ranked(self, rows: Rows, inside: Mask) -> Mask:
        if not self.key.skips_null:
            return inside
        return inside & rows.vectors(self.key.order[0].column.name)[0].valid

    def add(self, slot: int, point: Point) -> None:
        super().add(slot, point)
        low, high = (np.array([[plane[end] for plane in point]]) for end in (0, 1))
        if self._boxes is not None:
            self._boxes.subscribe(np.array([slot]), low, high)
        else:
            self._space.add(np.array([slot]), low[:, 0], high[:, 0])

    def remove(self, slot: int) -> None:
        super().remove(slot)
        if self._boxes is not None:
            self._boxes.unsubscribe(np.array([slot]))
        else:
            self._space.remove(np.array([slot]))

    def _load(self, step: Step, numbers: Index, x: Index, slots: Index) -> None:
        self._load_with(step, numbers, x, slots, np.empty(0, np.int64))

    def _load_with(self, step: Step, numbers: Index, x: Index, slots: Index, coming: Index) -> None:
        """Label and load rows; those that come have labels then, too."""
        table = step.tables[self._table].rows
        self._keys.load(table.take(np.concatenate([slots, coming])))
        labels = self._keys.find(table.take(slots))
        assert labels is not None
        self._label = dict(zip(numbers.tolist(), labels.tolist(), strict=True))
        if self._boxes is not None:
            self._boxes.load(numbers, x, labels)
        else:
            self._painted = PaintTopk([self.key.k], spaces=[self._space])
            self._painted.load(numbers, x[:, 0], labels)

    def _describe(self, step: Step, moves: _Moves, mine: TableChanges, ids: RowIds) -> Description | None:
        y = self._places(step, moves)
        server = self._painted if self._boxes is None else self._boxes
        before = server.seq + 1
        if self._boxes is None:
            messages = self._painted.publish(moves.number, moves.x[:, 0], y)
            messages = _with_whole_plane(messages)
        else:
            messages = self._boxes.publish(moves.number, moves.x, y)
        if not len(messages):
            return None
        row = np.array(self._row, np.int64)[messages.row]
        position = mine.position[moves.change[messages.seq - before]]
        messages = numbered_steps(_changed(messages, seq=position, row=row))
        comes = np.flatnonzero(messages.kind != MessageKind.GONE)
        slots = version_slots(ids, mine, messages.row[comes], messages.seq[comes])
        texts = self._texts(step, slots)
        return Description(messages, spread_texts(len(messages), comes, texts))

    def _texts(self, step: Step, slots: Index) -> list[bytes]:
        """Rows with their places in the order."""
        rows = step.tables[self._table].rows.take(slots)
        keys = sort_keys(self.key.order, self._primary, rows)
        return [_PACK(pair) for pair in zip(keys, texts_of(rows) if len(slots) else [], strict=True)]

    def _places(self, step: Step, moves: _Moves) -> Index:
        """By move the label of the row in the order, ABSENT if it is gone."""
        table = step.tables[self._table].rows
        coming = moves.slot[moves.there]
        stale = len(self._keys) > 4096 + 4 * len(self._slot)
        labels = None if stale else self._keys.find(table.take(coming))
        if labels is None:
            slots = np.fromiter(self._slot.values(), np.int64, len(self._slot))
            numbers = np.fromiter(self._slot, np.int64, len(self._slot))
            x, inside = self._locate(step, slots)
            assert inside.all()
            self._load_with(step, numbers, x, slots, coming)
            labels = self._keys.find(table.take(coming))
            assert labels is not None
        out = np.full(len(moves.number), ABSENT)
        out[moves.there] = labels
        for at, (number, place) in enumerate(zip(moves.number.tolist(), out.tolist(), strict=True)):
            if place == ABSENT:
                self._label.pop(number, None)
                continue
            if self._label.get(number) == place:
                out[at] = place = place + 1  # labels are even: another version of the row
            self._label[number] = place
        return out

    def held(self, slot: int, step: Step, ids: Mapping[str, RowIds]) -> list[list[HeldRow]]:
        low, high = self.points[slot][0]
        if self._boxes is not None:
            found = self._boxes.contents(slot).content()
        else:
            found = self._painted.content(low, high, self.key.k)
        numbers = [number for _, number in found]
        slots = np.array([self._slot[number] for number in numbers], np.int64)
        texts = self._texts(step, slots)
        return [[(self._row[number], 0, text) for number, text in zip(numbers, texts, strict=True)]]

    def _check(self) -> None:
        super()._check()
        assert set(self._label) == set(self._slot)
        if self._boxes is not None:
            self._boxes._check()


_PACK = msgspec.msgpack.Encoder().encode


def _changed(messages: Messages, *, seq: Index, row: Index) -> Messages:
    m = messages
    side = np.zeros(len(m), np.int8)
    return Messages(seq, m.step, m.kind, side, np.zeros(len(m), np.int64), row, m.partner, m.regions)


def _with_whole_plane(messages: Messages) -> Messages:
    """Messages of one plane as ones of two; one box each."""
    return one_plane(messages.seq, messages.kind, messages.row, messages.regions.boxes[:, 0], messages.key)


# -- values ------------------------------------------------------------------------------------------


class ValueKey(NamedTuple):
    """The extreme of a column, as a column of the answer, by range of an attribute."""

    table: str
    attributes: tuple[str, ...]  # at most one
    condition: NormalForm
    column: str
    largest: bool
    name: str

    @property
    def relations(self) -> tuple[str, ...]:
        return (self.table,)


class ValueForm(_Source):
    """The least or the greatest value of ranges; a message says which it is now, and no row."""

    kind = PartKind.VALUE

    def __init__(self, number: int, key: ValueKey) -> None:
        super().__init__(number, key.table, key.attributes, key.condition)
        self.key = key
        self._minima = ReformulatedMinima(Extremes(largest=key.largest))
        self._type = Type.BIGINT

    def _ranked(self, rows: Rows, inside: Mask) -> Mask:
        return inside & rows.vectors(self.key.column)[0].valid

    def _values(self, step: Step, slots: Index) -> Index:
        vector = step.tables[self._table].rows.vectors(self.key.column)[0].take(slots)
        self._type = vector.type
        return column_codes(vector)

    def _load(self, step: Step, numbers: Index, x: Index, slots: Index) -> None:
        values = self._values(step, slots)
        self._minima = ReformulatedMinima(Extremes(x[:, 0], values, largest=self.key.largest))

    def _describe(self, step: Step, moves: _Moves, mine: TableChanges, ids: RowIds) -> Description | None:
        y = np.zeros(len(moves.number), np.int64)
        y[moves.there] = self._values(step, moves.slot[moves.there])
        first = self._minima.seq
        messages = self._minima.update(moves.number, moves.x[:, 0], y, moves.there)
        if not len(messages):
            return None
        position = mine.position[moves.change[messages.seq - first]]
        empty = messages.kind == MessageKind.GONE
        texts = self._texts(messages.key, ~empty)
        kind = np.full(len(messages), MessageKind.ROW)
        rectangle = messages.regions.boxes[:, 0]
        return Description(one_plane(position, kind, messages.row, rectangle), texts)

    def _texts(self, codes: Index, there: Mask) -> list[bytes]:
        return [
            text.encode()
            for text in to_json(
                Rows([(self.key.name, from_codes(self._type, codes, there))], len(codes))
            ).to_pylist()
        ]

    def held(self, slot: int, step: Step, ids: Mapping[str, RowIds]) -> list[list[HeldRow]]:
        self._values(step, np.empty(0, np.int64))
        low, high = self.points[slot][0]
        value, empty = self._minima.extremes.contents([low], [high])
        return [[(0, 0, self._texts(value, ~empty)[0])]]

    def _check(self) -> None:
        super()._check()
        self._minima.extremes._check()


class SetKey(NamedTuple):
    """Columns of the answer, (name, column), by range of an attribute."""

    table: str
    attributes: tuple[str, ...]  # at most one
    condition: NormalForm
    items: tuple[tuple[str, str], ...]

    @property
    def relations(self) -> tuple[str, ...]:
        return (self.table,)


class SetForm(_Source):
    """The distinct values of ranges; a message says that one is there, or is not any more."""

    kind = PartKind.SET

    def __init__(self, number: int, key: SetKey) -> None:
        super().__init__(number, key.table, key.attributes, key.condition)
        self.key = key
        self._distinct = ReformulatedDistinct(DistinctRanges())
        self._of: dict[bytes, int] = {}  # by text, the number of the value
        self._text: list[bytes] = []  # by number
        self._rows: list[int] = []  # by number, how many rows have it
        self._value: dict[int, int] = {}  # by row
        self._unused: list[int] = []

    def _numbers_of(self, step: Step, slots: Index) -> list[int]:
        if not len(slots):
            return []
        rows = step.tables[self._table].rows.take(slots).project(dict(self.key.items))
        columns = [(name, _one_zero(vector)) for name, vector in rows.columns]
        out = []
        for text in (one.encode() for one in to_json(Rows(columns, len(rows))).to_pylist()):
            number = self._of.get(text)
            if number is None:
                number = self._unused.pop() if self._unused else len(self._text)
                self._text[number : number + 1] = [text]
                self._rows[number : number + 1] = [0]
                self._of[text] = number
            out.append(number)
        return out

    def _count(self, row: int, value: int | None) -> None:
        """A row has a value, or none any more."""
        before = self._value.pop(row, None)
        if value is not None:
            self._value[row] = value
            self._rows[value] += 1
        if before is not None:
            self._rows[before] -= 1

    def _load(self, step: Step, numbers: Index, x: Index, slots: Index) -> None:
        values = self._numbers_of(step, slots)
        for number, value in zip(numbers.tolist(), values, strict=True):
            self._count(number, value)
        self._distinct = ReformulatedDistinct(DistinctRanges(x[:, 0], np.array(values, np.int64)))

    def _describe(self, step: Step, moves: _Moves, mine: TableChanges, ids: RowIds) -> Description | None:
        y = np.zeros(len(moves.number), np.int64)
        y[moves.there] = self._numbers_of(step, moves.slot[moves.there])
        first = self._distinct.seq
        messages = self._distinct.update(moves.number, moves.x[:, 0], y, moves.there)
        position = mine.position[moves.change[messages.seq - first]]
        texts = [self._text[number] for number in messages.key.tolist()]
        touched = {self._value[n] for n in moves.number.tolist() if n in self._value} | {*y.tolist()}
        for number, value, there in zip(moves.number.tolist(), y.tolist(), moves.there, strict=True):
            self._count(number, value if there else None)
        for value in touched:
            if value < len(self._rows) and not self._rows[value]:
                if self._of.get(self._text[value]) != value:
                    continue
                del self._of[self._text[value]]
                self._unused.append(value)
        if not len(messages):
            return None
        rectangle = messages.regions.boxes[:, 0]
        return Description(one_plane(position, messages.kind, messages.row, rectangle), texts)

    def held(self, slot: int, step: Step, ids: Mapping[str, RowIds]) -> list[list[HeldRow]]:
        low, high = self.points[slot][0]
        return [[(0, 0, self._text[number]) for number in sorted(self._distinct.ranges.contents(low, high))]]

    def _check(self) -> None:
        super()._check()
        self._distinct.ranges._check()
        used = [number for number, rows in enumerate(self._rows) if rows]
        assert sorted(self._of.values()) == used and sorted(used + self._unused) == list(
            range(len(self._text))
        )


def _one_zero(vector: Vector) -> Vector:
    """Doubles without a negative zero, which is equal to the other one."""
    return Vector(vector.type, vector.values + 0.0, vector.valid) if vector.type is Type.DOUBLE else vector
