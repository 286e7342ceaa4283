"""Forms: the subscriptions that one description serves, of joins and of rows, as a server has them.

A *form* is a space of subscriptions over two planes. A subscription is a point of it, the ends of up to two
ranges; a change becomes messages with regions of the space, and who is inside receives them:

    JoinForm     two tables joined by equality: the rows of one or both that the ranges select and that have
                 a partner                                                    `reformulate/joins.py`
    RowsForm     the rows of a table that a range selects                     `reformulate/relaxed.py`
    EventsForm   the events of a stream that a range selects, each once

of tables in order, `ranked_forms.py`; of rows with payloads, `split_forms.py`. What a client keeps of a form
is its `PartKind` (`holdings.py`). A form over fewer than two ranges has the whole plane as its rest.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import IntEnum
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.join.signature import KeySpec, Numbering
from tocsin.join.tables import key_codes
from tocsin.model.columns import Index, Mask, Rows
from tocsin.model.message import GREATEST, LEAST, MessageKind, Messages, Regions
from tocsin.model.texts import TextNumbers
from tocsin.network.batches import MAX_BOXES
from tocsin.network.rows import RowIds, TableChanges, texts_of, version_slots
from tocsin.predicate.codes import vector_codes
from tocsin.reformulate._kernels.joins import RowChanges
from tocsin.reformulate.base import Scheme
from tocsin.reformulate.joins import SEMIJOINS, DescribedScheme
from tocsin.reformulate.relaxed import Moves, describe_moves
from tocsin.stab.groups import Ranges
from tocsin.store.step import Step

__all__ = [
    *("ALL_PLANE", "EventsForm", "EventsKey", "Form", "HeldRow", "JoinForm", "JoinKey", "PartKind"),
    *("RowsForm", "RowsKey", "Description", "WHOLE", "numbered_steps", "one_plane", "spread_texts"),
]

Ends = tuple[int, int]
"""A range of codes, both ends included."""
Point = tuple[Ends, Ends]
ALL_PLANE = LEAST, GREATEST, LEAST, GREATEST
WHOLE: Ends = LEAST, GREATEST
HeldRow = tuple[int, int, bytes]
"""Number, key, text."""


class PartKind(IntEnum):
    """What a client keeps of a form."""

    ROWS = 0  # rows by side, as messages say
    PAIRS = 1  # the same, without those that have no partner
    FIRST = 2  # the first k rows in the order of their keys
    VALUE = 3  # the value of the last message
    SET = 4  # values that came and have not gone
    EVENTS = 5  # nothing
    SPLIT = 6  # rows without their payloads, side 0, and the payloads, side 1: those that have both


class Description(NamedTuple):
    """Messages, whose `seq` is a position of the step, and by message a text."""

    messages: Messages
    texts: list[bytes]


class Form(ABC):
    """Subscriptions under slots, each a point."""

    kind: ClassVar[PartKind]

    def __init__(self, number: int) -> None:
        self.number = number
        self.points: dict[int, Point] = {}

    @property
    @abstractmethod
    def tables(self) -> tuple[str, ...]:
        """The tables of its rows, by side."""

    def load(self, step: Step, ids: Mapping[str, RowIds]) -> None:  # noqa: B027
        """Start with the rows as they are; nothing to do for those who read them when they need them."""

    def add(self, slot: int, point: Point) -> None:
        """Enter a subscription."""
        self.points[slot] = point

    def remove(self, slot: int) -> None:
        """Remove a subscription."""
        del self.points[slot]

    @abstractmethod
    def describe(
        self, step: Step, changes: Mapping[str, TableChanges], ids: Mapping[str, RowIds]
    ) -> Description | None:
        """The messages of a step in which a table of the form changes, in order of (position, step)."""

    @abstractmethod
    def held(self, slot: int, step: Step, ids: Mapping[str, RowIds]) -> list[list[HeldRow]]:
        """By side what a client of the subscription holds now."""

    def _check(self) -> None:  # noqa: B027
        """Assert the invariants."""


def numbered_steps(messages: Messages) -> Messages:
    """Messages of ascending `seq` with new steps; those of more boxes than a message may have are split."""
    counts = np.diff(messages.regions.start)
    if len(counts) and counts.max() > MAX_BOXES:
        pieces = -(-counts // MAX_BOXES)
        of = np.repeat(np.arange(len(counts)), np.maximum(pieces, 1))
        place = np.arange(len(of)) - np.searchsorted(of, of)
        end = np.minimum(messages.regions.start[of] + (place + 1) * MAX_BOXES, messages.regions.start[of + 1])
        split = Regions(np.concatenate([[0], end]), messages.regions.boxes)
        columns = {name: getattr(messages, name)[of] for name in _COLUMNS}
        messages = Messages(**columns, regions=split)
    at = messages.seq
    return replace(messages, step=np.arange(len(at)) - np.searchsorted(at, at))


_COLUMNS = ("seq", "step", "kind", "side", "key", "row", "partner")


# -- joins -------------------------------------------------------------------------------------------


class JoinKey(NamedTuple):
    """What the subscriptions of a form share: tables and keys of an edge, attributes, and whose rows."""

    tables: tuple[str, str]
    keys: tuple[KeySpec, KeySpec]
    attributes: tuple[str | None, str | None]
    base: int | None = None  # the side whose rows they receive; None: both

    @property
    def relations(self) -> tuple[str, ...]:
        return self.tables


class JoinForm(Form):
    """Rows of two joined tables; of one side with DROP, as the client cannot know when a partner is gone."""

    def __init__(
        self,
        number: int,
        key: JoinKey,
        scheme: type[DescribedScheme],
        numbers: dict[Numbering, TextNumbers],  # of keys that are texts, or several columns
    ) -> None:
        super().__init__(number)
        self.key = key
        base = key.base
        kinds = (MessageKind.ROW, MessageKind.GONE, MessageKind.EXPOSE, MessageKind.DROP)
        self.scheme: Scheme = scheme(sends=SEMIJOINS if base is None else [(kind, base) for kind in kinds])
        self._numbers = numbers
        self._fresh: list[int] = []  # slots that the scheme does not have yet

    @property
    def kind(self) -> PartKind:  # type: ignore[override]
        return PartKind.PAIRS if self.key.base is None else PartKind.ROWS

    @property
    def tables(self) -> tuple[str, ...]:
        return self.key.tables

    def load(self, step: Step, ids: Mapping[str, RowIds]) -> None:
        for side, table in enumerate(self.tables):
            store = step.tables[table]
            present = np.flatnonzero(store.present())
            key, value, valid = self._codes(side, store.rows.take(present))
            self.scheme.load(side, ids[table].of(present)[valid], key[valid], value[valid])

    def add(self, slot: int, point: Point) -> None:
        super().add(slot, point)
        self._fresh.append(slot)

    def remove(self, slot: int) -> None:
        super().remove(slot)
        if slot in self._fresh:
            self._fresh.remove(slot)
        else:
            self.scheme.unsubscribe(np.array([slot]))

    def _enter_fresh(self) -> None:
        """Enter subscriptions that were added since the last step, all at once."""
        if self._fresh:
            points = np.array([self.points[slot] for slot in self._fresh], np.int64)
            columns = points[:, 1, 0], points[:, 1, 1], points[:, 0, 0], points[:, 0, 1]
            ranges = Ranges(*(np.ascontiguousarray(column) for column in columns))
            self.scheme.subscribe(np.array(self._fresh), ranges)
            self._fresh = []

    def _codes(self, side: int, rows: Rows) -> tuple[Index, Index, Mask]:
        """Key and value of each row, and which rows have both."""
        key, valid = key_codes(self.key.keys[side], rows, self._numbers)
        value, there = routing_codes(rows, self.key.attributes[side])
        return key, value, valid & there

    def describe(
        self, step: Step, changes: Mapping[str, TableChanges], ids: Mapping[str, RowIds]
    ) -> Description | None:
        self._enter_fresh()
        parts = []
        for side, table in enumerate(self.tables):
            if table in changes:
                mine = changes[table]
                old, new = (self._versions(side, step, slots) for slots in (mine.old, mine.new))
                parts.append((mine.position, np.full(len(mine.ids), side, np.int64), mine.ids, *old, *new))
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        there = columns[3] | columns[6]  # before or after
        order = np.flatnonzero(there)[np.argsort(columns[0][there], kind="stable")]
        position, *rest = (column[order] for column in columns)
        messages = self.scheme.describe(RowChanges(*rest), seq=0)
        if not len(messages):
            return None
        messages = replace(messages, seq=position[messages.seq])
        messages = numbered_steps(messages)
        return Description(messages, self._texts(messages, step, changes, ids))

    def _versions(self, side: int, step: Step, slots: Index) -> tuple[Mask, Index, Index]:
        """Whether the versions in some slots are there, their keys and values; slot -1 is none."""
        there = slots >= 0
        found = np.zeros((3, len(slots)), np.int64)
        key, value, valid = self._codes(side, step.tables[self.tables[side]].rows.take(slots[there]))
        found[:, there] = valid, np.where(valid, key, 0), np.where(valid, value, 0)
        return found[0] != 0, found[1], found[2]

    def _texts(
        self,
        messages: Messages,
        step: Step,
        changes: Mapping[str, TableChanges],
        ids: Mapping[str, RowIds],
    ) -> list[bytes]:
        """The row of each message that brings one, in the version after its change."""
        texts = [b""] * len(messages)
        comes = np.isin(messages.kind, (MessageKind.ROW, MessageKind.EXPOSE))
        for side, table in enumerate(self.tables):
            mine = np.flatnonzero(comes & (messages.side == side))
            if len(mine):
                rows, position = messages.row[mine], messages.seq[mine]
                slots = version_slots(ids[table], changes.get(table), rows, position)
                for i, text in zip(mine.tolist(), texts_of(step.tables[table].rows, slots), strict=True):
                    texts[i] = text
        return texts

    def held(self, slot: int, step: Step, ids: Mapping[str, RowIds]) -> list[list[HeldRow]]:
        keys, rows = [], []
        for side, (low, high) in enumerate(self.points[slot]):
            key, value, row = self.scheme.storage.tables[side].columns()
            here = (low <= value) & (value <= high)
            keys.append(key[here])
            rows.append(row[here])
        out: list[list[HeldRow]] = [[], []]
        for side, table in enumerate(self.tables):
            if self.key.base in (None, side):
                has = np.isin(keys[side], keys[1 - side])
                row, key = rows[side][has], keys[side][has]
                texts = ids[table].texts(step.tables[table], ids[table].slots(row))
                out[side] = list(zip(row.tolist(), key.tolist(), texts, strict=True))
        return out

    def _check(self) -> None:
        self.scheme._check()


def routing_codes(rows: Rows, name: str | None) -> tuple[Index, Mask]:
    """The code of an attribute by which a form routes, and where there is one; texts are hashes."""
    if name is None:
        return np.zeros(len(rows), np.int64), np.ones(len(rows), np.bool_)
    vector = rows.vectors(name)[0]
    return vector_codes(vector), vector.valid


# -- rows of one table ---------------------------------------------------------------------------------


class RowsKey(NamedTuple):
    """A table and the attribute that routes."""

    table: str
    attribute: str | None
    payload: tuple[str, ...] = ()  # columns that travel apart from the others (`split_forms.py`)

    @property
    def relations(self) -> tuple[str, ...]:
        return (self.table,)


class RowsForm(Form):
    """Rows of a table that a range of one attribute selects; messages show nothing but their own row.

    A row that leaves is sent as GONE to all ranges that held its old value: the new one, which those who lose
    it may not see, is not in the region.
    """

    kind = PartKind.ROWS

    def __init__(self, number: int, key: RowsKey) -> None:
        super().__init__(number)
        self.key = key

    @property
    def tables(self) -> tuple[str, ...]:
        return (self.key.table,)

    def describe(
        self, step: Step, changes: Mapping[str, TableChanges], ids: Mapping[str, RowIds]
    ) -> Description | None:
        mine = changes[self.key.table]
        had, old = self._locate(step, mine.old)
        has, new = self._locate(step, mine.new)
        change, _, kind, rectangle = describe_moves(Moves(had, has, old, new))
        if not len(change):
            return None
        gone = kind == MessageKind.GONE
        rectangle[gone, 0], rectangle[gone, 3] = LEAST, GREATEST
        messages = one_plane(mine.position[change], kind, mine.ids[change], rectangle)
        comes = np.flatnonzero(~gone)
        rows = step.tables[self.key.table].rows
        texts = texts_of(rows, mine.new[change[comes]]) if len(comes) else []
        return Description(messages, spread_texts(len(messages), comes, texts))

    def _locate(self, step: Step, slots: Index) -> tuple[Mask, Index]:
        there = slots >= 0
        codes, valid = routing_codes(step.tables[self.key.table].rows.take(slots[there]), self.key.attribute)
        found, x = np.zeros(len(slots), np.bool_), np.zeros(len(slots), np.int64)
        found[there], x[there] = valid, np.where(valid, codes, 0)
        return found, x

    def _selected(self, slot: int, step: Step) -> Index:
        """The versions that the range of a subscription selects now."""
        present = np.flatnonzero(step.tables[self.key.table].present())
        inside, x = self._locate(step, present)
        low, high = self.points[slot][0]
        return present[inside & (low <= x) & (x <= high)]

    def held(self, slot: int, step: Step, ids: Mapping[str, RowIds]) -> list[list[HeldRow]]:
        mine = self._selected(slot, step)
        texts = ids[self.key.table].texts(step.tables[self.key.table], mine)
        numbers = ids[self.key.table].of(mine).tolist()
        return [[(row, 0, text) for row, text in zip(numbers, texts, strict=True)]]


def one_plane(
    position: Index, kind: NDArray[Any], row: Index, rectangle: Index, key: Index | None = None
) -> Messages:
    """Messages of rectangles of the first plane, in order; steps count within a position."""
    count = len(position)
    boxes = np.empty((count, 2, 4), np.int64)
    boxes[:, 0], boxes[:, 1] = rectangle, ALL_PLANE
    none, side = np.full(count, -1, np.int64), np.zeros(count, np.int8)
    keys = np.zeros(count, np.int64) if key is None else key
    regions = Regions(np.arange(count + 1), boxes)
    return numbered_steps(
        Messages(position, none, kind.astype(np.int8), side, keys, row, none.copy(), regions)
    )


# -- events of a stream ----------------------------------------------------------------------------------


class EventsKey(NamedTuple):
    """A stream and the attribute that routes."""

    stream: str
    attribute: str | None

    @property
    def relations(self) -> tuple[str, ...]:
        return (self.stream,)


class EventsForm(Form):
    """Events of a stream that a range of one attribute selects; `seq` of messages is already the server's."""

    kind = PartKind.EVENTS

    def __init__(self, number: int, key: EventsKey) -> None:
        super().__init__(number)
        self.key = key

    @property
    def tables(self) -> tuple[str, ...]:
        return (self.key.stream,)

    def describe(
        self, step: Step, changes: Mapping[str, TableChanges], ids: Mapping[str, RowIds]
    ) -> Description | None:
        batch = step.events[self.key.stream]
        assert batch.seq is not None
        codes, valid = routing_codes(batch.rows, self.key.attribute)
        mine = np.flatnonzero(valid)
        if not len(mine):
            return None
        mine = mine[np.argsort(batch.seq[mine], kind="stable")]
        x = codes[mine]
        rectangle = np.stack([np.full(len(x), LEAST), x, x, np.full(len(x), GREATEST)], axis=1)
        kind = np.full(len(mine), MessageKind.ROW)
        none = np.full(len(mine), -1, np.int64)
        return Description(one_plane(batch.seq[mine], kind, none, rectangle), texts_of(batch.rows, mine))

    def held(self, slot: int, step: Step, ids: Mapping[str, RowIds]) -> list[list[HeldRow]]:
        return [[]]


def spread_texts(count: int, at: Index, texts: Sequence[bytes]) -> list[bytes]:
    """A text for some of so many messages, none for the others."""
    out = [b""] * count
    for i, text in zip(at.tolist(), texts, strict=True):
        out[i] = text
    return out
