"""Selections over rows with a large payload: values and payloads are sent apart, a payload only when needed.

A row (id, rating, photo) is split into (id, rating), side 0, and (id, photo), side 1. A subscription is a
range of ratings and wants whole rows. Sent with each change of the rating, the photo would mostly be known:

| change          | side 0                                 | side 1                               |
| --------------- | -------------------------------------- | ------------------------------------ |
| the value alone | GONE to those who hold the old one and | EXPOSE to those who hold the new one |
|                 | not the new one, ROW to who holds it   | and not the old one                  |
| the payload     | the same, if the value has changed     | ROW to those who hold the new value  |
| insert, delete  | ROW, GONE                              | ROW, none                            |

A message of side 0 is the row without its payload. Each payload received is needed: the range did not contain
the row before, or the payload is another one. Both parts of a change have one seq, so that a client, which
discards the payload with its row, never shows one part without the other.

Cost of a change: O(1), without knowledge of subscriptions.

>>> changes = PayloadChanges(*(np.array([x]) for x in (7, True, True, 3, 5, False)))  # row 7 from 3 to 5
>>> messages = describe_split(changes, seq=1)
>>> [(MessageKind(kind).name, int(side)) for kind, side in zip(messages.kind, messages.side)]
[('GONE', 0), ('ROW', 0), ('EXPOSE', 1)]
>>> [messages.received_by(0, [ends]).tolist() for ends in ((2, 9), (4, 9), (0, 3))]
[[1], [1, 2], [0]]

J08, appendix I, as one change of both parts: as two, one after the other, payloads are sent again.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.model.columns import Index, Mask
from tocsin.model.message import GREATEST, LEAST, MessageKind, Messages, Regions
from tocsin.reformulate.contents import Bodies, Contents
from tocsin.reformulate.relaxed import Moves, describe_moves

__all__ = ["PayloadChanges", "SplitContents", "describe_split"]


class PayloadChanges(NamedTuple):
    """By change a row, whether it was and is there, its value then and now, and what else differs.

    `payload`: its payload does; a row that comes has another one. `rest`: columns do that are neither value
    nor payload; None if there are no others.
    """

    row: Index
    had: Mask
    has: Mask
    old: Index
    new: Index
    payload: Mask
    rest: Mask | None = None


def describe_split(changes: PayloadChanges, seq: int) -> Messages:
    """The messages of changes, which get the numbers from `seq` on."""
    row, had, has, old, new, differs, rest = changes
    same = had & has & (old == new)
    moved = np.flatnonzero(~same if rest is None else ~same | rest)
    values = describe_moves(Moves(had[moved], has[moved], old[moved], new[moved]))
    comes = np.flatnonzero(has & (differs | ~had))
    shown = np.flatnonzero(had & has & ~differs & (old != new))
    change = np.concatenate([moved[values.change], comes, shown])
    kinds = np.full(len(comes), MessageKind.ROW), np.full(len(shown), MessageKind.EXPOSE)
    kind = np.concatenate([values.kind, *kinds]).astype(np.int8)
    side = np.repeat([0, 1], [len(values.change), len(comes) + len(shown)]).astype(np.int8)
    rectangle = np.concatenate([values.rectangle, _holding(new[comes]), _holding(new[shown], old[shown])])
    order = np.lexsort((kind != MessageKind.GONE, side, change))
    change, kind, side, rectangle = change[order], kind[order], side[order], rectangle[order]
    first = np.flatnonzero(np.diff(change, prepend=-1))
    step = np.arange(len(change)) - np.repeat(first, np.diff(first, append=len(change)))
    key = np.where(kind == MessageKind.GONE, old[change], new[change])
    none, regions = np.full(len(change), -1), Regions(np.arange(len(change) + 1), rectangle[:, None])
    return Messages(seq + change, step, kind, side, key, row[change], none, regions)


def _holding(value: Index, without: Index | None = None) -> NDArray[np.int64]:
    """Rectangles of the ranges that hold a value, and not another one, which differs."""
    out = np.stack([np.full_like(value, LEAST), value, value, np.full_like(value, GREATEST)], axis=1)
    if without is not None:
        above = without > value
        out[above, 3], out[~above, 0] = without[above] - 1, without[~above] + 1
    return out


class SplitContents(Contents):
    """Rows of a range with their payloads. Bodies of side 0 are rows without payload, of side 1 payloads."""

    def __init__(self, rows: dict[int, tuple[Hashable, Hashable]]) -> None:
        self._parts = [{row: parts[side] for row, parts in rows.items()} for side in (0, 1)]

    def apply(self, messages: Messages, bodies: Bodies) -> None:
        columns = messages.kind, messages.side, messages.row
        for kind, side, row in zip(*(column.tolist() for column in columns), strict=True):
            if kind == MessageKind.GONE:
                for part in self._parts:
                    part.pop(row, None)
            else:
                self._parts[side][row] = bodies[side][row]

    def content(self) -> dict[int, tuple[Hashable, Hashable]]:
        """By id, the row and its payload."""
        values, payloads = self._parts
        return {row: (value, payloads[row]) for row, value in values.items()}
