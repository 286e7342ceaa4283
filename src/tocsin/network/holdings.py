"""What a client holds of each form: one structure for all its subscriptions there.

    Snapshot, messages ─► FormHoldings ─► Sink (`answers.py`): rows that some subscription holds, values

A subscription of a form is a *member*, with a number and a point. Messages are compared with the points of
all members at once; who receives one is a set of bits. Of a row the holders are such a set, too, so a change
costs a few operations however many members it concerns:

    row 17   key 5   holders 0b1011      GONE of row 17 for members 0b0010: holders 0b1001

A row is passed to the sink when it gets its first holder in a form, and taken back with the last one. All
rows that a client holds are rows of the server at its watermark, and each member holds all that its answer
needs; so queries may be evaluated over the rows of all members together.

J08, section 2.2 (clients); sharing them by form is ours.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from tocsin.model.message import MessageKind
from tocsin.network.batches import PLANES, MessageBatch
from tocsin.network.forms import HeldRow, PartKind, Point
from tocsin.network.rows import note_of

__all__ = ["FormHoldings", "Member", "Part", "Sink", "Snapshot", "made_holdings"]

Member = tuple[int, int]
"""A subscription of the client, and the place of the form among its parts."""


class Part(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """What a subscription holds of one form."""

    form: int
    kind: PartKind
    tables: tuple[str, ...]  # by side
    point: Point
    limit: int  # of the first rows; 0 otherwise
    rows: list[list[HeldRow]]  # by side


class Snapshot(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A subscription as of a seq, and the definitions of its tables and streams by name."""

    subscription: int
    seq: int
    definitions: dict[str, str]
    parts: list[Part]
    lease: float = 0.0  # seconds that the server remembers a silent client; 0: always


class Sink(Protocol):
    """Who evaluates queries over what is held."""

    def retain(self, table: str, row: int, text: bytes, seq: int) -> None:
        """Somebody holds a row, whose version is that of a seq."""

    def change(self, table: str, row: int, text: bytes, seq: int) -> None:
        """A row that is held has another version."""

    def release(self, table: str, row: int) -> None:
        """Somebody does not hold a row any more."""

    def event(self, stream: str, seq: int, text: bytes) -> None:
        """An event of a stream; it may come by several forms."""

    def value(self, member: Member, text: bytes, *, is_there: bool) -> None:
        """A member has a value, or has it no more; of VALUE the new one replaces the old one."""


class FormHoldings(ABC):
    """The members of one form."""

    def __init__(self, sink: Sink, tables: tuple[str, ...]) -> None:
        self._sink, self._tables = sink, tables
        self._members: list[Member | None] = []  # by number
        self._number: dict[Member, int] = {}
        self._points = np.zeros((0, PLANES, 2), np.int64)
        self._free: list[int] = []
        self._seq = -1  # of what is applied

    def __len__(self) -> int:
        return len(self._number)

    def members(self) -> Iterable[Member]:
        """All of them."""
        return self._number

    def enter(self, member: Member, part: Part, seq: int) -> None:
        """Add a member with what it holds as of a seq."""
        if self._free:
            number = self._free.pop()
            self._members[number] = member
        else:
            number = len(self._members)
            self._members.append(member)
            if number >= len(self._points):
                more = np.zeros((max(8, len(self._points)), PLANES, 2), np.int64)
                self._points = np.concatenate([self._points, more])
        self._number[member] = number
        self._points[number] = part.point
        self._seq = seq
        self._enter(number, part)

    def leave(self, member: Member) -> None:
        """Remove a member and release what only it held."""
        number = self._number.pop(member)
        self._leave(number)
        self._members[number] = None
        self._free.append(number)

    def apply(self, batch: MessageBatch, order: NDArray[np.int64]) -> None:
        """Apply messages of the form, in order of (seq, step)."""
        messages, receivers = batch.messages.take(order), self._receivers(batch, order)
        columns = messages.seq, messages.kind, messages.side, messages.key, messages.row
        rows = zip(*(column.tolist() for column in columns), receivers, order.tolist(), strict=True)
        for seq, kind, side, key, row, members, at in rows:
            if not members:
                continue
            if seq != self._seq:
                self._settle()
                self._seq = seq
            self._apply(kind, side, key, row, members, batch.body(at))
        self._settle()

    def _receivers(self, batch: MessageBatch, order: NDArray[np.int64]) -> list[int]:
        """By message the members whose points are in its region, as bits."""
        regions = batch.messages.regions.take(order)
        ends = self._points[: len(self._members)]
        used = np.array([member is not None for member in self._members])
        out: list[int] = []
        chunk = max(1, _CELLS // max(1, len(ends)))
        begin = 0
        while begin < len(regions):
            end = int(np.searchsorted(regions.start, regions.start[begin] + chunk, side="right")) - 1
            end = min(len(regions), max(begin + 1, end))
            boxes = regions.boxes[regions.start[begin] : regions.start[end]][:, None]
            inside = ((boxes[..., 0::2] <= ends) & (ends <= boxes[..., 1::2])).all(axis=(2, 3)) & used
            counts = np.diff(regions.start[begin : end + 1])
            first = np.minimum(regions.start[begin:end] - regions.start[begin], max(0, len(inside) - 1))
            if len(inside):
                found = np.logical_or.reduceat(inside, first, axis=0) & (counts > 0)[:, None]
            else:
                found = np.zeros((end - begin, len(ends)), np.bool_)
            packed = np.packbits(found, axis=1, bitorder="little")
            out += [int.from_bytes(row.tobytes(), "little") for row in packed]
            begin = end
        return out

    def _named(self, members: int) -> Iterator[tuple[int, Member]]:
        for number in _bits(members):
            member = self._members[number]
            if member is not None:
                yield number, member

    def rows_of(self, member: Member) -> Iterable[tuple[str, int]]:
        """The rows that a member holds: table and number."""
        return ()

    @abstractmethod
    def _enter(self, number: int, part: Part) -> None: ...

    @abstractmethod
    def _leave(self, number: int) -> None: ...

    @abstractmethod
    def _apply(self, kind: int, side: int, key: int, row: int, members: int, text: bytes) -> None: ...

    def _settle(self) -> None:  # noqa: B027
        """The messages of an event are applied."""

    def _check(self) -> None:
        assert {n for n, member in enumerate(self._members) if member is not None} == {*self._number.values()}


_CELLS = 1 << 22  # of comparisons at once


def _bits(members: int) -> Iterator[int]:
    """The numbers in a set."""
    while members:
        lowest = members & -members
        yield lowest.bit_length() - 1
        members ^= lowest


class _Row:
    """A row of a side: its key, its holders."""

    __slots__ = ("holders", "key")

    def __init__(self, key: int) -> None:
        self.key, self.holders = key, 0


class RowHoldings(FormHoldings):
    """Rows by side, as messages say; with `infers`, without those that have no partner at a holder."""

    def __init__(self, sink: Sink, tables: tuple[str, ...], *, infers: bool) -> None:
        super().__init__(sink, tables)
        self._infers = infers
        self._rows: list[dict[int, _Row]] = [{} for _ in tables]
        self._by_key: list[dict[int, set[int]]] = [{} for _ in tables]
        self._touched: set[int] = set()

    def _enter(self, number: int, part: Part) -> None:
        for side, rows in enumerate(part.rows):
            for row, key, text in rows:
                self._put(side, key, row, 1 << number, text)

    def _leave(self, number: int) -> None:
        for side, rows in enumerate(self._rows):
            for row in [row for row, held in rows.items() if held.holders >> number & 1]:
                self._take(side, row, 1 << number)

    def _apply(self, kind: int, side: int, key: int, row: int, members: int, text: bytes) -> None:
        self._touched.add(key)
        if kind in (MessageKind.ROW, MessageKind.EXPOSE):
            self._put(side, key, row, members, text)
        elif kind == MessageKind.GONE:
            self._take(side, row, members)
        elif kind == MessageKind.DROP:
            for other in list(self._by_key[side].get(key, ())):
                self._take(side, other, members)

    def _put(self, side: int, key: int, row: int, members: int, text: bytes) -> None:
        held = self._rows[side].get(row)
        if held is None:
            held = self._rows[side][row] = _Row(key)
            self._by_key[side].setdefault(key, set()).add(row)
            self._retain(side, row, text)
        else:
            if held.key != key:
                self._touched.add(held.key)
                self._unkey(side, held.key, row)
                held.key = key
                self._by_key[side].setdefault(key, set()).add(row)
            self._change(side, row, text)
        held.holders |= members

    def _take(self, side: int, row: int, members: int) -> None:
        held = self._rows[side].get(row)
        if held is None:
            return
        self._touched.add(held.key)
        held.holders &= ~members
        if not held.holders:
            del self._rows[side][row]
            self._unkey(side, held.key, row)
            self._release(side, row)

    def _retain(self, side: int, row: int, text: bytes) -> None:
        self._sink.retain(self._tables[side], row, text, self._seq)

    def _change(self, side: int, row: int, text: bytes) -> None:
        self._sink.change(self._tables[side], row, text, self._seq)

    def _release(self, side: int, row: int) -> None:
        self._sink.release(self._tables[side], row)

    def _unkey(self, side: int, key: int, row: int) -> None:
        rows = self._by_key[side][key]
        rows.discard(row)
        if not rows:
            del self._by_key[side][key]

    def _settle(self) -> None:
        """Holders of a key on one side alone do not hold its rows any more."""
        touched, self._touched = self._touched, set()
        if not self._infers:
            return
        for key in touched:
            rows = [self._by_key[side].get(key, ()) for side in (0, 1)]
            holders = []
            for side in (0, 1):
                members = 0
                for row in rows[side]:
                    members |= self._rows[side][row].holders
                holders.append(members)
            for side in (0, 1):
                if alone := holders[side] & ~holders[1 - side]:
                    for row in list(rows[side]):
                        self._take(side, row, alone)
        self._touched.clear()

    def rows_of(self, member: Member) -> Iterable[tuple[str, int]]:
        number = self._number[member]
        for side, rows in enumerate(self._rows):
            for row, held in rows.items():
                if held.holders >> number & 1:
                    yield self._tables[side], row

    def _check(self) -> None:
        super()._check()
        used = sum(1 << number for number in self._number.values())
        for side, rows in enumerate(self._rows):
            assert all(held.holders and not held.holders & ~used for held in rows.values())
            by_key: dict[int, set[int]] = {}
            for row, held in rows.items():
                by_key.setdefault(held.key, set()).add(row)
            assert by_key == self._by_key[side]


class SplitHoldings(RowHoldings):
    """Rows whose payloads come apart; the sink has those of which both parts are there."""

    def __init__(self, sink: Sink, tables: tuple[str, ...]) -> None:
        super().__init__(sink, tables, infers=True)
        self._texts: tuple[dict[int, bytes], dict[int, bytes]] = ({}, {})

    def _whole(self, row: int) -> bytes:
        head, payload = (texts[row] for texts in self._texts)
        return next((part for part in (head, payload) if note_of(part)), head[:-1] + b"," + payload[1:])

    def _retain(self, side: int, row: int, text: bytes) -> None:
        self._texts[side][row] = text
        if row in self._texts[1 - side]:
            super()._retain(0, row, self._whole(row))

    def _change(self, side: int, row: int, text: bytes) -> None:
        self._texts[side][row] = text
        if row in self._texts[1 - side]:
            super()._change(0, row, self._whole(row))

    def _release(self, side: int, row: int) -> None:
        del self._texts[side][row]
        if row in self._texts[1 - side]:
            super()._release(0, row)

    def rows_of(self, member: Member) -> Iterable[tuple[str, int]]:
        return dict.fromkeys(super().rows_of(member))

    def _check(self) -> None:
        super()._check()
        assert [{*texts} for texts in self._texts] == [{*rows} for rows in self._rows]


class FirstHoldings(FormHoldings):
    """By member its first k rows, in the order of their keys."""

    def __init__(self, sink: Sink, tables: tuple[str, ...], limit: int) -> None:
        super().__init__(sink, tables)
        self._limit = limit
        self._order: dict[int, list[tuple[bytes, int]]] = {}  # by member's number
        self._key: dict[int, dict[int, bytes]] = {}  # by member's number, by row

    def _enter(self, number: int, part: Part) -> None:
        self._order[number], self._key[number] = [], {}
        for row, _, packed in part.rows[0]:
            key, text = _unpacked(packed)
            self._put(number, key, row, text)

    def _leave(self, number: int) -> None:
        for row in list(self._key[number]):
            self._take(number, row)
        del self._order[number], self._key[number]

    def _apply(self, kind: int, side: int, key: int, row: int, members: int, text: bytes) -> None:
        if kind == MessageKind.GONE:
            for number in _bits(members):
                self._take(number, row)
            return
        place, body = _unpacked(text)
        for number in _bits(members):
            self._put(number, place, row, body)

    def _put(self, number: int, key: bytes, row: int, text: bytes) -> None:
        """Hold a row; of more than k rows the last one is discarded."""
        order = self._order[number]
        if row in self._key[number]:
            self._sink.change(self._tables[0], row, text, self._seq)
            del order[bisect_left(order, (self._key[number][row], row))]
        else:
            self._sink.retain(self._tables[0], row, text, self._seq)
        self._key[number][row] = key
        insort(order, (key, row))
        if len(order) > self._limit:
            self._take(number, order[-1][1])

    def _take(self, number: int, row: int) -> None:
        key = self._key[number].pop(row, None)
        if key is not None:
            order = self._order[number]
            del order[bisect_left(order, (key, row))]
            self._sink.release(self._tables[0], row)

    def rows_of(self, member: Member) -> Iterable[tuple[str, int]]:
        return [(self._tables[0], row) for row in self._key[self._number[member]]]

    def _check(self) -> None:
        super()._check()
        for number, order in self._order.items():
            assert order == sorted(order) and len(order) <= self._limit
            assert {row: key for key, row in order} == self._key[number]


_UNPACK = msgspec.msgpack.Decoder(tuple[bytes, bytes])


def _unpacked(packed: bytes) -> tuple[bytes, bytes]:
    return _UNPACK.decode(packed)


class ValueHoldings(FormHoldings):
    """A value by member, or a set of them; the sink keeps them."""

    def _enter(self, number: int, part: Part) -> None:
        member = self._members[number]
        assert member is not None
        for _, _, text in part.rows[0]:
            self._sink.value(member, text, is_there=True)

    def _leave(self, number: int) -> None:
        """The sink drops the values of whole subscriptions."""

    def _apply(self, kind: int, side: int, key: int, row: int, members: int, text: bytes) -> None:
        for _, member in self._named(members):
            self._sink.value(member, text, is_there=kind != MessageKind.GONE)


class EventHoldings(FormHoldings):
    """Events go to the sink, once for all members."""

    def _enter(self, number: int, part: Part) -> None: ...

    def _leave(self, number: int) -> None: ...

    def _apply(self, kind: int, side: int, key: int, row: int, members: int, text: bytes) -> None:
        self._sink.event(self._tables[0], self._seq, text)


def made_holdings(part: Part, sink: Sink) -> FormHoldings:
    """An empty structure for the form of a part."""
    if part.kind is PartKind.FIRST:
        return FirstHoldings(sink, part.tables, part.limit)
    if part.kind in (PartKind.VALUE, PartKind.SET):
        return ValueHoldings(sink, part.tables)
    if part.kind is PartKind.EVENTS:
        return EventHoldings(sink, part.tables)
    if part.kind is PartKind.SPLIT:
        return SplitHoldings(sink, part.tables)
    return RowHoldings(sink, part.tables, infers=part.kind is PartKind.PAIRS)
