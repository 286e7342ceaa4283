"""A form of tables with a payload: a row's payload travels apart from the rest of it.

    CREATE TABLE items (id BIGINT, rating DOUBLE, photo STRING, PRIMARY KEY (id)) PAYLOAD (photo)

A change of `rating` sends the row without its photo to the selections that hold it, and the photo to those
that hold it since now; another photo is sent to all of these (`reformulate/split.py`). Side 0 of a message is
a row without payload, side 1 its payload, and both have the row's number as their key: what a client keeps is
their join. J08, appendix I.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow.compute as pc

from tocsin.model.columns import Mask, Rows
from tocsin.model.json_rows import to_json
from tocsin.model.message import MessageKind, Messages, Regions
from tocsin.network.forms import ALL_PLANE, Description, HeldRow, PartKind, RowsForm, numbered_steps
from tocsin.network.rows import RowIds, TableChanges, texts_of
from tocsin.reformulate.split import PayloadChanges, describe_split
from tocsin.store.step import Step

__all__ = ["SplitForm"]


class SplitForm(RowsForm):
    """Rows of a table that a range of one attribute selects, and apart from them their payloads."""

    kind = PartKind.SPLIT

    @property
    def tables(self) -> tuple[str, ...]:
        return self.key.table, self.key.table

    def describe(
        self, step: Step, changes: Mapping[str, TableChanges], ids: Mapping[str, RowIds]
    ) -> Description | None:
        mine, halves = changes[self.key.table], self._halves(step)
        had, old = self._locate(step, mine.old)
        has, new = self._locate(step, mine.new)
        rest, payload = (_differ(half, mine) for half in halves)
        messages = describe_split(PayloadChanges(mine.ids, had, has, old, new, payload, rest), 0)
        messages = messages.take(self._received(messages))
        if not len(messages):
            return None
        change = messages.seq
        texts = [b""] * len(messages)
        for side, half in enumerate(halves):
            comes = np.flatnonzero((messages.side == side) & (messages.kind != MessageKind.GONE))
            found = texts_of(half, mine.new[change[comes]]) if len(comes) else []
            for i, text in zip(comes.tolist(), found, strict=True):
                texts[i] = text
        rest_of_plane = np.tile(np.array([[ALL_PLANE]]), (len(messages), 1, 1))
        regions = Regions(
            messages.regions.start, np.concatenate([messages.regions.boxes, rest_of_plane], axis=1)
        )
        placed = replace(messages, seq=mine.position[change], key=messages.row, regions=regions)
        return Description(numbered_steps(placed), texts)

    def _halves(self, step: Step) -> tuple[Rows, Rows]:
        """The rows of the table without their payloads, and the payloads."""
        rows = step.tables[self.key.table].rows
        rest, payload = (
            [column for column in rows.columns if (column[0] in self.key.payload) == is_payload]
            for is_payload in (False, True)
        )
        return Rows(rest, len(rows)), Rows(payload, len(rows))

    def _received(self, messages: Messages) -> Mask:
        """Which messages are for somebody. O(messages x subscriptions)."""
        low, high = np.array([plane for plane, _ in self.points.values()], np.int64).reshape(-1, 2).T
        boxes = messages.regions.boxes[:, 0]
        found = [((a <= low) & (low <= b) & (c <= high) & (high <= d)).any() for a, b, c, d in boxes.tolist()]
        return np.array(found, np.bool_)

    def held(self, slot: int, step: Step, ids: Mapping[str, RowIds]) -> list[list[HeldRow]]:
        mine = self._selected(slot, step)
        if not len(mine):
            return [[], []]
        numbers = ids[self.key.table].of(mine).tolist()
        return [
            [(row, row, text) for row, text in zip(numbers, texts_of(half, mine), strict=True)]
            for half in self._halves(step)
        ]


def _differ(rows: Rows, changes: TableChanges) -> Mask:
    """Which changes make these columns others; of a row that comes or goes, they are."""
    out = np.ones(len(changes.old), np.bool_)
    both = np.flatnonzero((changes.old >= 0) & (changes.new >= 0))
    if len(both):
        old, new = (to_json(rows, slots[both]) for slots in (changes.old, changes.new))
        out[both] = pc.not_equal(old, new).to_numpy(zero_copy_only=False)
    return out
