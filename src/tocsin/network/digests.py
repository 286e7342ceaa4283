"""Digests: what a broker sends the one above it about the subscriptions behind a link, in at most K boxes.

A message is forwarded over a link if its region meets a box of the digest; so no subscription is missed, and
some messages are forwarded for nobody. Filters that cover each other would be wrong here: who receives a row
that is exposed, or that leaves by an update, need not concern a subscription with wider ranges.

    subscribe      in a box already: nothing is sent upwards; else a box is added, or the one grows that
                   grows least, and that is sent
    unsubscribe    nothing is sent; the digest is made again once a quarter behind it has gone

>>> digest = Digest(dimensions=2, most=2)
>>> for point in ([3, 5], [8, 9], [4, 5]):
...     print(digest.enter(np.repeat(point, 2).reshape(2, 2)).tolist())
[[3, 3], [5, 5]]
[[8, 8], [9, 9]]
[[3, 4], [5, 5]]
>>> digest.enter(np.array([[4, 4], [5, 5]])) is None
True

NETWORK.md, 10.4; but that sends points upwards, not boxes: a point that enters a grown box is missed above.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["Digest"]

Boxes = NDArray[np.int64]  # box, dimension, (low, high)


class Digest:
    """Boxes that hold all points entered."""

    def __init__(self, dimensions: int, most: int) -> None:
        self.most = most
        self.boxes: Boxes = np.empty((0, dimensions, 2), np.int64)

    def enter(self, box: Boxes) -> Boxes | None:
        """Hold a box (low, high by dimension); the box that changed for it, None if none had to.

        That box is what to send upwards: a digest above holds whole boxes of those below, so that it need
        not receive points that enter them later.
        """
        low, high = self.boxes[:, :, 0], self.boxes[:, :, 1]
        if self.covers(box):
            return None
        if len(self.boxes) < self.most:
            self.boxes = np.concatenate([self.boxes, box[None]])
            return box
        grown = np.stack([np.minimum(low, box[:, 0]), np.maximum(high, box[:, 1])], axis=2)
        growth = _width(grown).sum(axis=1) - _width(self.boxes).sum(axis=1)
        least = int(np.argmin(growth))
        self.boxes = self.boxes.copy()
        self.boxes[least] = grown[least]
        return self.boxes[least]

    def make_again(self, boxes: Boxes) -> None:
        """Of points as boxes, and of other digests; groups that are far apart have a box each.

        The group that is widest is halved, until there are as many as the digest may have.
        """
        groups = [boxes] if len(boxes) else []
        widths = [_extent(group) for group in groups]
        while groups and len(groups) < self.most:
            widest = max(range(len(groups)), key=lambda i: widths[i][0])
            _, k = widths[widest]
            middle = groups[widest][:, k].astype(np.float64).mean(axis=1)
            below = middle <= (middle.min() + middle.max()) / 2
            if below.all():
                break  # all in one place
            halves = [groups[widest][below], groups[widest][~below]]
            groups[widest : widest + 1] = halves
            widths[widest : widest + 1] = [_extent(half) for half in halves]
        found = [np.stack([group[:, :, 0].min(0), group[:, :, 1].max(0)], axis=1) for group in groups]
        self.boxes = np.array(found, np.int64).reshape(-1, *self.boxes.shape[1:])

    def covers(self, box: Boxes) -> bool:
        """Whether one of the digest's boxes holds all of a box."""
        low, high = self.boxes[:, :, 0], self.boxes[:, :, 1]
        return bool(np.any(np.all((low <= box[:, 0]) & (box[:, 1] <= high), axis=1)))

    def holds(self, points: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which points are in a box."""
        inside = (self.boxes[:, None, :, 0] <= points) & (points <= self.boxes[:, None, :, 1])
        return np.asarray(inside.all(axis=2).any(axis=0))


def _width(boxes: Boxes) -> NDArray[np.float64]:
    return boxes[:, :, 1].astype(np.float64) - boxes[:, :, 0]


def _extent(group: Boxes) -> tuple[float, int]:
    """How far the middles of boxes are apart in the dimension where they are farthest, and which it is."""
    middle = group.astype(np.float64).mean(axis=2)
    apart = middle.max(axis=0) - middle.min(axis=0)
    k = int(np.argmax(apart))
    return float(apart[k]), k
