"""Selections over tables with a payload, described: a row's payload travels apart from the rest of it.

    CREATE TABLE items (id BIGINT, rating DOUBLE, photo STRING, PRIMARY KEY (id)) PAYLOAD (photo)

A change of `rating` sends the row without its photo to the selections that hold it, and the photo to those
that hold it since now; another photo is sent to all of these (`reformulate/split.py`). Side 0 of a message is
a row without payload, side 1 its payload, and both have the row's number as their key: what a client keeps is
their join. J08, appendix I.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from tocsin.engine import Engine
from tocsin.language.algebra import Query
from tocsin.model.columns import Index, Mask, Rows, column_codes
from tocsin.model.message import GREATEST, LEAST, MessageKind, Messages, Regions
from tocsin.model.schema import Table, Type
from tocsin.network.batches import MessageBatch
from tocsin.network.forms import HeldRow, PartKind, routing_codes
from tocsin.network.holdings import Part
from tocsin.network.rows import RowIds, texts_of
from tocsin.predicate.flat import FlatFilters
from tocsin.predicate.verify import selections
from tocsin.reformulate.split import PayloadChanges, describe_split
from tocsin.spark.messages import Begin, halves_of
from tocsin.store.step import Step
from tocsin.store.tables import TableStore

__all__ = ["FlatSubscriptions", "KeyIds", "ShardSelections", "stable_hash"]

_WHOLE = (LEAST, GREATEST)


class FlatSubscriptions(NamedTuple):
    """Subscriptions that differ in constants alone."""

    ids: Index
    query: Query  # of one of them
    filters: Sequence[FlatFilters]  # by table
    never: Mask  # which can have no answer


@dataclass
class _SplitForm:
    """The selections over one table that are routed by one attribute, None for none."""

    number: int
    table: Table
    attribute: str | None
    ranges: dict[int, tuple[int, int]] = field(default_factory=dict)  # by id

    def heard(self, messages: Messages) -> Mask:
        """Which messages are for somebody. O(messages x selections)."""
        low, high = np.array(list(self.ranges.values()), np.int64).reshape(-1, 2).T
        boxes = messages.regions.boxes[:, 0]
        found = [((a <= low) & (low <= b) & (c <= high) & (high <= d)).any() for a, b, c, d in boxes.tolist()]
        return np.array(found, np.bool_)

    def _check(self) -> None:
        assert all(low <= high for low, high in self.ranges.values())


class ShardSelections:
    """Selections by id over the tables of an engine that have a payload."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._forms: dict[tuple[str, str | None], _SplitForm] = {}
        self._places: dict[int, tuple[str, _SplitForm | None]] = {}  # by id: table and form, None: no answer
        self._described: list[MessageBatch] = []
        engine.on_step(self._step)

    def __contains__(self, id: int) -> bool:
        return id in self._places

    def described(self) -> MessageBatch:
        """The messages since the last call."""
        batch, self._described = MessageBatch.concat(self._described), []
        return batch

    def enter(self, plans: FlatSubscriptions) -> None:
        """Add selections under ids that are not in use."""
        table = self._engine.schema(plans.query.tables[0].name)
        assert isinstance(table, Table)
        found = selections(plans.filters[0])
        routed = found.attribute >= 0
        never = plans.never | found.never | (routed & (found.low > found.high))
        for i, id in enumerate(plans.ids.tolist()):
            name = found.names[found.attribute[i]] if routed[i] else None
            if name in table.payload:
                name = None  # a payload routes nothing; the client verifies what it says
            self._places[id] = table.name, None
            if not never[i]:
                form = self._form(table, name)
                form.ranges[id] = _WHOLE if name is None else (int(found.low[i]), int(found.high[i]))
                self._places[id] = table.name, form

    def _form(self, table: Table, attribute: str | None) -> _SplitForm:
        key = table.name, attribute
        if key not in self._forms:
            number = stable_hash(f"{table.name} by {attribute}, split".encode())
            self._forms[key] = _SplitForm(number, table, attribute)
        return self._forms[key]

    def leave(self, ids: Iterable[int]) -> None:
        """Remove selections."""
        for id in ids:
            _, form = self._places.pop(id)
            if form is not None:
                del form.ranges[id]
                if not form.ranges:
                    del self._forms[form.table.name, form.attribute]

    def begin(self, id: int) -> Begin:
        """A selection with the rows that it holds now."""
        table, form = self._places[id]
        if form is None:
            return Begin(id, [])
        low, high = form.ranges[id]
        store = self._engine.step().tables[table]
        slots = np.flatnonzero(store.present())
        value, valid = routing_codes(store.rows.take(slots), form.attribute)
        slots = slots[valid & (low <= value) & (value <= high)]
        ids = keys_as_ids(form.table, store.rows.take(slots)).tolist()
        rows: list[list[HeldRow]] = [
            list(zip(ids, ids, _texts(part, slots), strict=True)) for part in _halves(form.table, store.rows)
        ]
        point = (low, high), (LEAST, GREATEST)
        return Begin(id, [Part(form.number, PartKind.PAIRS, halves_of(table), point, 0, rows)])

    # -- steps -------------------------------------------------------------------------------------

    def _step(self, step: Step) -> None:
        """Describe a step that is about to be committed."""
        for form in self._forms.values():
            if form.table.name in step.changed:
                self._described += self._messages(form, step)

    def _messages(self, form: _SplitForm, step: Step) -> list[MessageBatch]:
        position, old, new = step.changed[form.table.name]
        rows = step.tables[form.table.name].rows
        there = [slots >= 0 for slots in (old, new)]
        value, valid = np.zeros((2, len(old)), np.int64), np.zeros((2, len(old)), np.bool_)
        for n, slots in enumerate((old, new)):
            value[n, there[n]], valid[n, there[n]] = routing_codes(rows.take(slots[there[n]]), form.attribute)
        ids = keys_as_ids(form.table, rows.take(np.where(there[1], new, old)))
        both = np.flatnonzero(there[0] & there[1])
        differs = [np.ones(len(old), np.bool_) for _ in range(2)]
        for part, out in zip(_halves(form.table, rows), differs, strict=True):
            before, after = (_texts(part, slots[both]) for slots in (old, new))
            out[both] = [one != other for one, other in zip(before, after, strict=True)]
        changes = PayloadChanges(ids, valid[0], valid[1], value[0], value[1], differs[1], differs[0])
        messages = describe_split(changes, 0)
        messages = messages.take(form.heard(messages))
        if not len(messages):
            return []
        change = messages.seq
        whole = np.tile(np.array([[[LEAST, GREATEST, LEAST, GREATEST]]]), (len(messages), 1, 1))
        regions = Regions(messages.regions.start, np.concatenate([messages.regions.boxes, whole], axis=1))
        seq = step.seq[position[change]]
        texts = [b""] * len(messages)
        for side, part in enumerate(_halves(form.table, rows)):
            mine = np.flatnonzero((messages.side == side) & (messages.kind != MessageKind.GONE))
            for i, body in zip(mine.tolist(), _texts(part, new[change[mine]]), strict=True):
                texts[i] = body
        numbered = replace(messages, seq=seq, key=messages.row, regions=regions)
        return [MessageBatch.of(numbered, form.number, texts)]

    def _check(self) -> None:
        for form in self._forms.values():
            form._check()
            assert form.ranges.keys() == {id for id, (_, own) in self._places.items() if own is form}


def _halves(table: Table, rows: Rows) -> tuple[Rows, Rows]:
    """Rows without their payloads, and the payloads."""
    apart = [[c for c in rows.columns if (c[0] in table.payload) == side] for side in (False, True)]
    return Rows(apart[0], len(rows)), Rows(apart[1], len(rows))


def _texts(rows: Rows, slots: Index) -> list[bytes]:
    return texts_of(rows, slots) if len(slots) else []


# -- numbers that are functions of the data ------------------------------------------------------------


def stable_hash(data: bytes) -> int:
    """A number for some bytes, the same in every process."""
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little", signed=True)


def keys_as_ids(table: Table, rows: Rows) -> Index:
    """A number for each row, by its primary key: the value itself, or a hash of a text or several columns.

    Two of a million rows of a table share a hash with a probability of 1 in 30 million.
    """
    if not len(rows):
        return np.empty(0, np.int64)
    vectors = [rows.vectors(name)[0] for name in table.key]
    if len(vectors) == 1 and vectors[0].type is not Type.STRING:
        return column_codes(vectors[0])
    columns: list[list[Any]] = [
        list(vector.values) if vector.type is Type.STRING else column_codes(vector).tolist()
        for vector in vectors
    ]
    return np.array([stable_hash(repr(key).encode()) for key in zip(*columns, strict=True)], np.int64)


class KeyIds(RowIds):
    """The number of each row of a table by slot, from its primary key."""

    def __init__(self, store: TableStore) -> None:
        super().__init__(store)
        self._store = store
        present = np.flatnonzero(store.present())
        self._id[present] = keys_as_ids(store.schema, store.rows.take(present))
        self._slot = dict(zip(self._id[present].tolist(), present.tolist(), strict=True))

    def advance(self, old: Index, new: Index) -> Index:
        size = int(max(new.max(initial=-1), len(self._id) - 1)) + 1
        if size > len(self._id):
            self._id = np.concatenate([self._id, np.full(max(size, 2 * len(self._id)) - len(self._id), -1)])
        ids = keys_as_ids(self.schema, self._store.rows.take(np.where(new >= 0, new, old)))
        there = new >= 0
        self._id[new[there]] = ids[there]
        self._slot.update(zip(ids[there].tolist(), new[there].tolist(), strict=True))
        return ids
