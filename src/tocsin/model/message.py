"""Messages: changes reformulated so that stateless filters can route them.

A subscription over ranges is a point: l and r of each range. A message has a region, a union of boxes over
planes, and is for the subscriptions whose point is in one of its boxes. One plane is one range attribute:

    r |      +-----------+        box of one plane: l_low, l_high, r_low, r_high, all ends included;
      |      |  region   |        the ranges l..r with l in l_low..l_high and r in r_low..r_high
      |      +-----------+
      +-------------------- l     several planes: a rectangle on each of them

All ends belong to a box, so that the extreme int64 can be the open ends of ranges. Messages are columnar:
no object per message.

>>> regions = Regions.of([[[quadrant(5)], [(LEAST, 3, 1, GREATEST)]]])  # one message: a box over two planes
>>> regions.contain([(4, 6), (2, 9)]).tolist(), regions.contain([(4, 6), (4, 9)]).tolist()
([True], [False])

J08, section 3; K12, section II-A; T07, section 5.2. One form for all of them is ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:  # a broker has messages, and neither Arrow nor the rest of the model
    from tocsin.model.columns import Index

__all__ = [
    *("GREATEST", "LEAST", "MessageKind", "Messages", "Recipients", "Rectangle", "Regions"),
    "quadrant",
]

LEAST, GREATEST = -(2**63), 2**63 - 1
_COLUMNS = ("seq", "step", "kind", "side", "key", "row", "partner")  # of `Messages`
Rectangle = tuple[int, int, int, int]
"""Of one plane: l_low, l_high, r_low, r_high."""


class MessageKind(IntEnum):
    """What a message says to those who receive it."""

    ROW = 0  # this row of the base is in your semijoin now (replaces the one with its id)
    GONE = 1  # the row with this id has left it
    EXPOSE = 2  # this row is in your semijoin now, because the filtering table got a partner for it
    DROP = 3  # discard all rows of the base with this key
    JOINED = 4  # a joined row comes
    PARTED = 5  # a joined row goes


def quadrant(value: int) -> Rectangle:
    """The ranges that hold a value."""
    return LEAST, value, value, GREATEST


@dataclass(frozen=True, slots=True)
class Regions:
    """By message, a union of boxes: those from start[i] to start[i + 1]."""

    start: Index
    boxes: NDArray[np.int64]  # box, plane, (l_low, l_high, r_low, r_high)

    @classmethod
    def of(cls, regions: Sequence[Sequence[Sequence[Rectangle]]], planes: int = 2) -> Regions:
        """From lists: by message, the rectangles of each plane; a region is their product."""
        start, boxes = [0], []
        for rectangles in regions:
            product: list[tuple[Rectangle, ...]] = [()]
            for plane in rectangles:
                product = [(*box, rectangle) for box in product for rectangle in plane]
            boxes += product
            start.append(len(boxes))
        return cls(np.array(start, np.int64), np.array(boxes, np.int64).reshape(-1, planes, 4))

    @classmethod
    def concat(cls, parts: Sequence[Regions]) -> Regions:
        """Regions of all parts, one part after the other; at least one part."""
        ends = np.cumsum([0, *(len(part.boxes) for part in parts)])
        starts = [part.start[:-1] + end for part, end in zip(parts, ends, strict=False)]
        return cls(np.append(np.concatenate(starts), ends[-1]), np.concatenate([p.boxes for p in parts]))

    def __len__(self) -> int:
        return len(self.start) - 1

    def take(self, index: ArrayLike) -> Regions:
        """The regions at some positions."""
        at = np.arange(len(self))[np.asarray(index)]
        sizes = self.start[at + 1] - self.start[at]
        start = np.concatenate([[0], np.cumsum(sizes)])
        which = np.arange(start[-1]) + np.repeat(self.start[at] - start[:-1], sizes)
        return Regions(start, self.boxes[which])

    def contain(self, point: ArrayLike) -> NDArray[np.bool_]:
        """Which regions contain a point: (l, r) by plane."""
        ends = np.asarray(point, np.int64)
        low, high = self.boxes[:, :, 0::2], self.boxes[:, :, 1::2]
        inside = ((low <= ends) & (ends <= high)).all(axis=(1, 2))
        counts = np.concatenate([[0], np.cumsum(inside)])
        return np.asarray(counts[self.start[1:]] > counts[self.start[:-1]])

    def _check(self) -> None:
        """Boxes are numbered without gaps, and none is empty."""
        assert self.start[0] == 0 and self.start[-1] == len(self.boxes) and np.all(np.diff(self.start) >= 0)
        assert np.all(self.boxes[:, :, 0] <= self.boxes[:, :, 1])
        assert np.all(self.boxes[:, :, 2] <= self.boxes[:, :, 3])


class Recipients(NamedTuple):
    """Message `message[i]` goes to the subscription in `slot[i]`; `message` ascends."""

    message: Index
    slot: Index


@dataclass(frozen=True, slots=True)
class Messages:
    """Messages in order of (seq, step); a client applies those of one seq together.

    `row` is the id of a row of table `side`. JOINED and PARTED have a pair: `row` of side 0 and `partner` of
    side 1. Unicast messages have `recipients`, others are for whoever is in their region.

    Of joins, `key` is the join key. Of top-k it is the row's place in the order, and `side` numbers the
    subscriptions of one k, -1 for all. Of minima and distinct values it is the value, which a message without
    a row says itself.
    """

    seq: Index
    step: Index
    kind: NDArray[np.int8]
    side: NDArray[np.int8]
    key: Index
    row: Index
    partner: Index
    regions: Regions
    recipients: Recipients | None = None

    def __len__(self) -> int:
        return len(self.seq)

    @classmethod
    def concat(cls, parts: Sequence[Messages]) -> Messages:
        """Messages of all parts, one part after the other; at least one part, none with recipients."""
        columns: dict[str, Any] = {
            name: np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS
        }
        return cls(**columns, regions=Regions.concat([part.regions for part in parts]))

    def take(self, index: ArrayLike) -> Messages:
        """The messages at some positions, without recipients."""
        at = np.asarray(index)
        columns: dict[str, Any] = {name: getattr(self, name)[at] for name in _COLUMNS}
        return Messages(**columns, regions=self.regions.take(at))

    def in_order(self) -> Messages:
        """By (seq, step), each once: what a network that swaps and repeats them leaves to its receiver."""
        order = np.lexsort((self.step, self.seq))
        seq, step = self.seq[order], self.step[order]
        fresh = np.ones(len(order), np.bool_)
        fresh[1:] = (seq[1:] != seq[:-1]) | (step[1:] != step[:-1])
        return self.take(order[fresh])

    def received_by(self, slot: int, point: ArrayLike, side: int | None = None) -> Index:
        """The messages that a subscription gets: those sent to its slot, or those whose region holds it.

        `side`: where it numbers groups of subscriptions, that of this one.
        """
        if self.recipients is not None:
            received = self.recipients.message[self.recipients.slot == slot]
        else:
            received = np.flatnonzero(self.regions.contain(point))
        return (
            received if side is None else received[(self.side[received] == side) | (self.side[received] < 0)]
        )

    def _check(self) -> None:
        self.regions._check()
        assert len(self.regions) == len(self)
        order = np.lexsort((self.step, self.seq))
        assert np.array_equal(order, np.arange(len(self))), "messages ascend by (seq, step)"
        if self.recipients is not None:
            assert np.all(np.diff(self.recipients.message) >= 0)
