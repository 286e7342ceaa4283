"""Joins with several selection attributes on each table: regions by envelopes of points.

A row is a point of its table's attributes, and a subscription a box over each table. Two questions decide who
receives a change: which boxes contain a point z and *some* point of X, and which z and *none* of them?
Only points of X that can be seen from z matter, its *envelope*: those y for which no other point of X lies in
the box that z and y span.

    |  y       p          p lies in the box of z and o, so that a box that holds z and o
    |     z       o       holds p: the envelope of z is {y, p}
    +----------------

A box that holds a point fails to hold another one by excluding it in one attribute, so that "z and none of X"
is a union of boxes of subscriptions, two dimensions by attribute (`boxes_without`).

| change of R, row t          | sent to boxes over R                       | and boxes over S             |
| --------------------------- | ------------------------------------------ | ---------------------------- |
| ROW t                       | that hold t                                | that hold a joining row of S |
| GONE t                      | that hold t, and not where it is now       | the same                     |
| EXPOSE a joining row s of S | that hold t, and no other row with its key | that hold s                  |

"A joining row of S" is described by clusters of subscriptions whose boxes over S have a common point: the
union of the envelopes of these points. A client is that of any semijoin, and infers what it has lost.

Cost of a change: all joining rows, for each cluster and exposure O(n^2) in them. This is the exact way; the
other one is that one attribute routes and clients verify the rest (`MultiwayContents`, `residual`).

>>> sorted(envelope([(1, 3), (6, 2), (9, 2)], (3, 2)))
[(1, 3), (6, 2)]
>>> boxes_without((3, 2), [(6, 2)])[0][0]  # l and r of the first attribute: r ends before 6
(-9223372036854775808, 3, 3, 5)

J08, appendix C; it prints the wrong point for exposures, and leaves "none of" to brokers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np

from tocsin.model.message import LEAST, MessageKind, Messages, Rectangle, Regions, quadrant
from tocsin.reformulate.contents import Bodies, Held, SemijoinContents

__all__ = ["EnvelopeSemijoins", "PointRow", "boxes_without", "envelope", "messages_of"]

Point = tuple[int, ...]
Box = tuple[Rectangle, ...]
"""A rectangle for each attribute: of subscriptions, not of rows."""
Ends = tuple[tuple[int, int], ...]
"""A subscription's range by attribute."""


class PointRow(NamedTuple):
    """A row: its attributes, and its join key. One with a NULL is not there."""

    point: Point
    key: int


# -- geometry --------------------------------------------------------------------------------------


def envelope(points: Iterable[Point], z: Point) -> list[Point]:
    """The points that are seen from z: a box that holds z holds one of them if it holds any."""
    distinct = set(points)

    def hides(p: Point, y: Point) -> bool:
        return p != y and all(min(a, b) <= c <= max(a, b) for a, b, c in zip(z, y, p, strict=True))

    return [y for y in distinct if not any(hides(p, y) for p in distinct)]


def boxes_without(z: Point, avoid: Iterable[Point]) -> list[Box]:
    """Disjoint boxes of the subscriptions that hold z and none of the points to avoid."""
    boxes: list[Box] = [tuple(quadrant(x) for x in z)]
    for point in avoid:
        boxes = [part for box in boxes for part in _parts_without(box, z, point)]
    return boxes


def _parts_without(box: Box, z: Point, point: Point) -> Iterator[Box]:
    """Of subscriptions that hold z, those that do not hold the point, by the first attribute without it."""
    rest = list(box)
    for at, (x, y) in enumerate(zip(z, point, strict=True)):
        l_low, l_high, r_low, r_high = rest[at]
        if y < x:
            apart = max(l_low, y + 1), l_high, r_low, r_high
            rest[at] = l_low, min(l_high, y), r_low, r_high
        elif y > x:
            apart = l_low, l_high, r_low, min(r_high, y - 1)
            rest[at] = l_low, l_high, max(r_low, y), r_high
        else:
            continue
        if apart[0] <= apart[1] and apart[2] <= apart[3]:
            yield (*rest[:at], apart, *box[at + 1 :])
        if rest[at][0] > rest[at][1] or rest[at][2] > rest[at][3]:
            return


def _common_points(boxes: Sequence[Ends]) -> list[Point]:
    """A point of each cluster: boxes with a common point, gathered greedily."""
    clusters: list[Ends] = []
    for box in boxes:
        for at, common in enumerate(clusters):
            meet = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(common, box, strict=True))
            if all(low <= high for low, high in meet):
                clusters[at] = meet
                break
        else:
            clusters.append(box)
    return [tuple(high if low == LEAST else low for low, high in common) for common in clusters]


# -- the scheme ------------------------------------------------------------------------------------


class EnvelopeSemijoins:
    """Two tables with several attributes each, joined on a key; regions have a plane by attribute."""

    def __init__(self, attributes: tuple[int, int] = (2, 2)) -> None:
        self.attributes = attributes
        self.rows: tuple[dict[int, PointRow], dict[int, PointRow]] = {}, {}
        self._boxes: dict[int, tuple[Ends, Ends]] = {}
        self._clusters: tuple[list[Point], list[Point]] = [], []

    def subscribe(self, boxes: Mapping[int, tuple[Ends, Ends]]) -> None:
        """Add subscriptions by slot: their ranges over both tables."""
        self._boxes |= boxes
        self._cluster()

    def unsubscribe(self, slots: Iterable[int]) -> None:
        """Remove subscriptions."""
        for slot in slots:
            del self._boxes[slot]
        self._cluster()

    def _cluster(self) -> None:
        one, two = ([box[side] for box in self._boxes.values()] for side in (0, 1))
        self._clusters = _common_points(one), _common_points(two)

    def point(self, slot: int) -> Ends:
        """A subscription as a point: (l, r) by plane."""
        return self._boxes[slot][0] + self._boxes[slot][1]

    def contents(self, slot: int, bodies: Bodies) -> SemijoinContents:
        """A client with its content as of now."""
        held: tuple[Held, Held] = {}, {}
        for side in (0, 1):
            for row, (point, key) in self.rows[side].items():
                ends = zip(point, self._boxes[slot][side], strict=True)
                if all(low <= x <= high for x, (low, high) in ends):
                    held[side][row] = key, bodies[side][row]
        return SemijoinContents(held)

    def describe(self, side: int, row: int, new: PointRow | None, seq: int) -> Messages:
        """The messages of one change, but those that nobody receives; the table then has it.

        A payload that changes alone is described by the same point again.
        """
        old = self.rows[side].pop(row, None)
        heads: list[tuple[MessageKind, int, int, int, list[Box]]] = []
        same = old is not None and new is not None and old.key == new.key
        if old is not None:
            now = [new.point] if same and new is not None else []
            own = boxes_without(old.point, now) if now != [old.point] else []
            heads.append((MessageKind.GONE, side, old.key, row, self._regions(side, old.key, own)))
        if new is not None:
            own = [tuple(quadrant(x) for x in new.point)]
            heads.append((MessageKind.ROW, side, new.key, row, self._regions(side, new.key, own)))
            others = [r.point for r in self.rows[side].values() if r.key == new.key]
            others += [old.point] if same and old is not None else []
            own = boxes_without(new.point, envelope(others, new.point)) if new.point not in others else []
            for partner, (point, key) in self.rows[1 - side].items():
                if key == new.key:
                    theirs = tuple(quadrant(x) for x in point)
                    boxes = [box + theirs if side == 0 else theirs + box for box in own]
                    heads.append((MessageKind.EXPOSE, 1 - side, key, partner, boxes))
            self.rows[side][row] = new
        return self._received(messages_of(seq, heads, sum(self.attributes)))

    def _regions(self, side: int, key: int, own: list[Box]) -> list[Box]:
        """Boxes over the own table, each with those that hold a joining row of the other."""
        joining = [row.point for row in self.rows[1 - side].values() if row.key == key]
        seen = {point for z in self._clusters[1 - side] for point in envelope(joining, z)}
        theirs = [tuple(quadrant(x) for x in point) for point in sorted(seen)]
        pairs = product(own, theirs) if side == 0 else product(theirs, own)
        return [one + two for one, two in pairs]

    def _received(self, messages: Messages) -> Messages:
        """Without messages that nobody receives; steps count those that are left."""
        received = np.zeros(len(messages), np.bool_)
        for slot in self._boxes:
            received |= messages.regions.contain(self.point(slot))
        out = messages.take(np.flatnonzero(received))
        out.step[:] = np.arange(len(out))
        return out


def messages_of(
    seq: int, heads: Sequence[tuple[MessageKind, int, int, int, list[Box]]], planes: int
) -> Messages:
    """Messages of one change in order: kind, side, key, row, boxes."""
    kind, side, key, row = (np.array([head[i] for head in heads], np.int64) for i in range(4))
    boxes = np.array([box for head in heads for box in head[4]], np.int64).reshape(-1, planes, 4)
    start = np.cumsum([0, *(len(head[4]) for head in heads)])
    seqs, none = np.full(len(heads), seq, np.int64), np.full(len(heads), -1, np.int64)
    regions = Regions(start.astype(np.int64), boxes)
    small = kind.astype(np.int8), side.astype(np.int8)
    return Messages(seqs, np.arange(len(heads)), *small, key, row, none, regions)
