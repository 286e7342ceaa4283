"""Which links want a message: the table of a broker.

Below a link are subscriptions, points in the space of their form. The table has boxes by link; a message goes
over a link if a box of its region meets one of the link's boxes of the same form. A link to a client has the
points themselves, a link to another broker a *digest*: at most K boxes of each form that hold all points.

Boxes lie in blocks of neighbours with bounds, as in the leaves of an R-tree (`_kernels/routing.py`). New ones
wait in blocks of their own, in the order in which they came, until there are too many; removed ones stay,
without a link, until there are too many.

>>> table = RoutingTable()
>>> table.enter(link=1, forms=np.array([5]), boxes=points_as_boxes([[(0, 9), (0, 9)]]))
>>> message = points_as_boxes([[(0, 4), (3, 9)]])
>>> [pair.tolist() for pair in table.find(np.array([5]), message)]
[[], []]
>>> table.enter(link=2, forms=np.array([5]), boxes=message)
>>> [pair.tolist() for pair in table.find(np.array([5]), message)]
[[0], [2]]

J08, section 5 (a content-driven network); digests instead of covering filters: see docs/papers.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tocsin.network._kernels.routing import BLOCK, BoxTree, find_links
from tocsin.network.batches import PLANES, MessageBatch
from tocsin.network.wire import FormBoxes

if TYPE_CHECKING:
    from tocsin.model.columns import Index

__all__ = [
    *("NO_BOXES", "Routed", "RoutingTable"),
    *("are_inside", "are_met", "digest_of", "distance_of", "points_as_boxes", "read_only"),
]

_ENDS = 4 * PLANES  # numbers of a box
_FEW = 1024  # boxes that may wait, or be removed, before the blocks are built again
_PAIRS = 16_384  # that are found at once
NO_BOXES: FormBoxes = np.empty(0, np.int64), np.empty((0, PLANES, 4), np.int64)


class Routed(NamedTuple):
    """The messages of each link that wants any: message[start[i]] to message[start[i + 1]] of links[i]."""

    links: Index
    start: Index
    message: Index


def points_as_boxes(points: ArrayLike) -> NDArray[np.int64]:
    """Points, (l, r) by plane, as boxes that hold nothing else."""
    return np.repeat(np.asarray(points, np.int64).reshape(-1, PLANES, 2), 2, axis=2)


def read_only(array: NDArray[np.int64]) -> NDArray[np.int64]:
    """A view as arrays from the wire are, so that a kernel is compiled for those alone."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


class RoutingTable:
    """Boxes by link, in blocks."""

    def __init__(self) -> None:
        self._slots: dict[int, list[int]] = {}  # by link
        self._number: dict[int, int] = {}  # of a link, from 0 on
        self._name = np.empty(0, np.int64)  # of a link, by number
        self._free_numbers: list[int] = []
        self._link = np.empty(0, np.int64)  # by slot: the number of its link, -1 if it is removed
        self._forms = np.empty(0, np.int64)
        self._boxes = np.empty((0, PLANES, 4), np.int64)
        self._free: list[int] = []
        self._removed: list[int] = []  # slots that are still in the tree
        self._tree = _EMPTY
        self._recent: list[int] = []  # slots that are not in the tree
        self._recent_tree: BoxTree | None = _EMPTY  # None: to be built

    def enter(self, link: int, forms: Index, boxes: NDArray[np.int64]) -> None:
        """Add boxes to a link."""
        count = len(forms)
        if not count:
            return
        slots = [self._free.pop() for _ in range(min(count, len(self._free)))]
        more = count - len(slots)
        if more:
            first = len(self._link)
            self._link = np.append(self._link, np.full(more, -1, np.int64))
            self._forms = np.append(self._forms, np.zeros(more, np.int64))
            self._boxes = np.append(self._boxes, np.zeros((more, PLANES, 4), np.int64), axis=0)
            slots += range(first, first + more)
        at = np.array(slots, np.int64)
        self._link[at], self._forms[at], self._boxes[at] = self._numbered(link), forms, boxes
        self._slots.setdefault(link, []).extend(slots)
        self._recent += slots
        self._recent_tree = None

    def _numbered(self, link: int) -> int:
        if link not in self._number:
            if not self._free_numbers:
                self._free_numbers = list(range(len(self._name), 2 * len(self._name) + 8))[::-1]
                self._name = np.append(self._name, np.zeros(len(self._free_numbers), np.int64))
            self._number[link] = self._free_numbers.pop()
            self._name[self._number[link]] = link
        return self._number[link]

    def remove(self, link: int) -> int:
        """Remove all boxes of a link; how many there were."""
        slots = self._slots.pop(link, [])
        self._release(slots)
        if link in self._number:
            self._free_numbers.append(self._number.pop(link))
        return len(slots)

    def remove_points(self, link: int, forms: Index, boxes: NDArray[np.int64]) -> int:
        """Remove the boxes of a link that are equal to one of some; how many there were."""
        gone = {_value(form, box) for form, box in zip(forms, boxes, strict=True)}
        if (own := self._slots.get(link)) is None:
            return 0
        slots = [slot for slot in own if _value(self._forms[slot], self._boxes[slot]) in gone]
        left = set(slots)
        self._slots[link] = [slot for slot in own if slot not in left]
        self._release(slots)
        return len(slots)

    def _release(self, slots: list[int]) -> None:
        self._link[slots] = -1
        self._removed += slots

    def boxes_of(self, links: Iterable[int] | None = None) -> FormBoxes:
        """The boxes of some links, or of all."""
        chosen = self._slots if links is None else links
        slots = [slot for link in chosen for slot in self._slots.get(link, [])]
        return self._forms[slots], self._boxes[slots]

    # -- messages ----------------------------------------------------------------------------------

    def find(self, forms: Index, boxes: NDArray[np.int64]) -> tuple[Index, Index]:
        """Pairs (box, link) that meet, each once, in order of boxes."""
        box, number = self._find(np.asarray(forms, np.int64), boxes, np.arange(len(boxes) + 1))
        return box, self._name[number]

    def route(self, batch: MessageBatch) -> list[tuple[int, Index]]:
        """By link that wants any: the messages that it wants, in order."""
        links, start, message = self.routed(batch)
        return list(zip(links.tolist(), np.split(message, start[1:-1]), strict=True)) if len(links) else []

    def routed(self, batch: MessageBatch) -> Routed:
        """The messages of each link that wants any, in order."""
        regions = batch.messages.regions
        message, number = self._find(batch.form, regions.boxes, regions.start)
        order = np.argsort(number, kind="stable")
        counts = np.bincount(number, minlength=len(self._name))
        links = np.flatnonzero(counts)
        return Routed(self._name[links], np.append(0, np.cumsum(counts[links])), message[order])

    def _find(self, forms: Index, boxes: NDArray[np.int64], start: Index) -> tuple[Index, Index]:
        """Pairs of a message and the number of a link."""
        if len(start) == 1 or not self._slots:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        self._maintain()
        assert self._recent_tree is not None
        forms, flat = read_only(forms), read_only(boxes).reshape(-1, _ENDS)
        seen = np.full(len(self._name), -1, np.int64)
        parts, m = [], 0
        while m < len(start) - 1:
            out = np.empty((2, max(_PAIRS, len(seen))), np.int64)
            out[0, 0] = m
            n, m = find_links(self._tree, self._recent_tree, forms, flat, start, self._link, seen, out)
            parts.append(out[:, :n])
        message, number = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
        return message, number

    def _maintain(self) -> None:
        """Build blocks for what came and went."""
        most = max(_FEW, len(self._tree.slot) // 8)
        if len(self._recent) > most or len(self._removed) > most:
            kept = np.flatnonzero(self._link >= 0)
            self._free += self._removed
            self._removed, self._recent, self._recent_tree = [], [], _EMPTY
            order = _in_blocks(self._forms[kept], self._boxes[kept].reshape(-1, _ENDS))
            self._tree = self._built(kept[order])
        if self._recent_tree is None:
            self._recent_tree = self._built(np.array(self._recent, np.int64))

    def _built(self, slot: Index) -> BoxTree:
        boxes = np.ascontiguousarray(self._boxes[slot].reshape(-1, _ENDS))
        forms = np.repeat(self._forms[slot], 2).reshape(-1, 2)
        block = _bounds(forms, boxes)
        return BoxTree(slot, boxes, forms, block[1], block[0], *_bounds(*block)[::-1])

    def __len__(self) -> int:
        return sum(map(len, self._slots.values()))

    def _check(self) -> None:
        used = sorted(slot for slots in self._slots.values() for slot in slots)
        assert sorted(used + self._free + self._removed) == list(range(len(self._link)))
        placed = sorted([*self._tree.slot.tolist(), *self._recent])
        assert placed == sorted(set(placed)) and set(used) <= set(placed), "a box has one place"
        assert not set(placed) & set(self._free), "a free slot has none"
        assert set(self._slots) <= set(self._number)
        for link, slots in self._slots.items():
            assert np.all(self._link[slots] == self._number[link])
            assert self._name[self._number[link]] == link


def _value(form: np.int64, box: NDArray[np.int64]) -> bytes:
    return form.tobytes() + box.tobytes()


def _bounds(
    forms: NDArray[np.int64], boxes: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Of every 32 boxes, or bounds, the forms and the box that hold all."""
    out = []
    for ends in (forms, boxes):
        first = np.arange(0, len(ends), BLOCK)
        bound = np.empty((len(first), ends.shape[1]), np.int64)
        if len(first):
            bound[:, 0::2] = np.minimum.reduceat(ends[:, 0::2], first)
            bound[:, 1::2] = np.maximum.reduceat(ends[:, 1::2], first)
        out.append(bound)
    return out[0], out[1]


def _in_blocks(forms: Index, boxes: NDArray[np.int64]) -> Index:
    """An order in which each block has neighbours.

    The boxes are parted in the middle of the dimension in which their ranks lie farthest apart, then each
    half, until parts fit into blocks: all blocks but the last are full. Ranks, as open ends are far away.
    """
    middle = np.concatenate([forms[:, None], boxes[:, 0::2] / 2 + boxes[:, 1::2] / 2], axis=1)
    rank = np.stack([np.unique(column, return_inverse=True)[1] for column in middle.T], axis=1)
    parts, out = [np.arange(len(forms))], []
    while parts:
        part = parts.pop()
        if len(part) <= BLOCK:
            out.append(part)
            continue
        own = rank[part]
        along = own[:, np.argmax(own.max(axis=0) - own.min(axis=0))]
        half = (len(part) + BLOCK) // (2 * BLOCK) * BLOCK
        order = np.argpartition(along, half)
        parts += [part[order[half:]], part[order[:half]]]
    return np.concatenate(out) if out else np.empty(0, np.int64)


_NO_FORMS, _NO_ENDS = np.empty((0, 2), np.int64), np.empty((0, _ENDS), np.int64)
_EMPTY = BoxTree(np.empty(0, np.int64), *(_NO_ENDS, _NO_FORMS) * 3)


# -- digests -------------------------------------------------------------------------------------------


def digest_of(forms: Index, boxes: NDArray[np.int64], most: int) -> FormBoxes:
    """At most so many boxes of each form that hold all the boxes.

    The boxes of a form are parted in the middle of the dimension in which they lie farthest apart, the
    widest part first: so those with open ends are soon apart from others. O(n most).

    >>> points = points_as_boxes([[(0, 1), (0, 1)], [(2, 3), (2, 3)], [(90, 99), (90, 99)]])
    >>> digest_of(np.zeros(3, np.int64), points, 2)[1][:, 0].tolist()
    [[0, 2, 1, 3], [90, 90, 99, 99]]
    """
    found_forms: list[int] = []
    found: list[NDArray[np.int64]] = []
    for form in np.unique(forms).tolist():
        parts = [_Part(boxes[forms == form].reshape(-1, _ENDS))]
        while len(parts) < most:
            widest = max(parts, key=lambda part: part.width)
            if not widest.width:
                break
            parts.remove(widest)
            parts += widest.halves()
        found += [part.bound() for part in parts]
        found_forms += [form] * len(parts)
    bounds = np.array(found, np.int64).reshape(-1, _ENDS)
    order = np.lexsort((*bounds.T[::-1], found_forms))
    return np.array(found_forms, np.int64)[order], bounds[order].reshape(-1, PLANES, 4)


class _Part:
    """Boxes of a digest that are not yet parted."""

    def __init__(self, boxes: NDArray[np.int64]) -> None:
        self.boxes = boxes
        self._middle = boxes[:, 0::2] / 2 + boxes[:, 1::2] / 2  # int64 would overflow
        spread = self._middle.max(axis=0) - self._middle.min(axis=0)
        self._along = int(np.argmax(spread))
        self.width = float(spread[self._along])

    def halves(self) -> list[_Part]:
        along = self._middle[:, self._along]
        below = along < along.min() + self.width / 2
        return [_Part(self.boxes[below]), _Part(self.boxes[~below])]

    def bound(self) -> NDArray[np.int64]:
        """The least box that holds all."""
        out = np.empty(_ENDS, np.int64)
        out[0::2], out[1::2] = self.boxes[:, 0::2].min(axis=0), self.boxes[:, 1::2].max(axis=0)
        return out


def distance_of(wanted: FormBoxes, digest: FormBoxes) -> float:
    """How far boxes are from a digest: the sum of how much the nearest box of their form would grow.

    >>> here = np.zeros(1, np.int64), points_as_boxes([[(0, 9), (0, 9)]])
    >>> distance_of(here, here), distance_of((here[0], here[1] + 2), here), distance_of(here, NO_BOXES)
    (0.0, 8.0, inf)
    """
    total = 0.0
    ends = digest[1].reshape(-1, _ENDS).astype(np.float64)
    for form, box in zip(wanted[0].tolist(), wanted[1].reshape(-1, _ENDS).astype(np.float64), strict=True):
        own = ends[digest[0] == form]
        if not len(own):
            return float("inf")
        grown = np.maximum(0, own[:, 0::2] - box[0::2]) + np.maximum(0, box[1::2] - own[:, 1::2])
        total += float(grown.sum(axis=1).min())
    return total


def are_met(batch: MessageBatch, wanted: FormBoxes) -> NDArray[np.bool_]:
    """Which messages meet one of some boxes. O(messages x boxes)."""
    regions = batch.messages.regions
    of = np.repeat(np.arange(len(batch)), np.diff(regions.start))
    flat, forms = regions.boxes.reshape(-1, _ENDS), batch.form[of]
    met = np.zeros(len(batch), np.bool_)
    for form, box in zip(wanted[0].tolist(), wanted[1].reshape(-1, _ENDS), strict=True):
        here = (flat[:, 0::2] <= box[1::2]).all(axis=1) & (flat[:, 1::2] >= box[0::2]).all(axis=1)
        met[of[here & (forms == form)]] = True
    return met


def are_inside(inner: FormBoxes, outer: FormBoxes) -> NDArray[np.bool_]:
    """Which boxes are inside one of some others of their form. O(boxes x others)."""
    (forms, boxes), (others, around) = inner, outer
    found = np.zeros(len(forms), np.bool_)
    mine, outside = boxes.reshape(-1, _ENDS), around.reshape(-1, _ENDS)
    if len(forms) < len(others):
        for i, (form, box) in enumerate(zip(forms.tolist(), mine, strict=True)):
            low, high = outside[:, 0::2] <= box[0::2], box[1::2] <= outside[:, 1::2]
            holds = low.all(axis=1) & high.all(axis=1)
            found[i] = (holds & (others == form)).any()
        return found
    for form, whole in zip(others.tolist(), outside, strict=True):
        inside = (whole[0::2] <= mine[:, 0::2]).all(axis=1) & (mine[:, 1::2] <= whole[1::2]).all(axis=1)
        found |= inside & (forms == form)
    return found
