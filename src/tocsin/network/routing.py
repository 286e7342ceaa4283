"""Which links want a message: the table of a broker.

Below a link are subscriptions, points in the space of their form. The table has boxes by link; a message goes
over a link if a box of its region meets one of the link's boxes of the same form. A link to a client has the
points themselves, a link to another broker a *digest*: at most K boxes of each form that hold all points.

The meeting of two boxes is a conjunction: in each dimension, each begins before the other ends. So the table
is one matching index (`match/index.py`): a filter by box of a link, an event by box of a message.

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

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from tocsin.match.base import unpack
from tocsin.match.index import Auto
from tocsin.model.columns import Index, Rows, Vector
from tocsin.model.schema import Type
from tocsin.network.batches import PLANES, MessageBatch
from tocsin.network.wire import FormBoxes
from tocsin.predicate.flat import CodeSpace, FlatFilters

__all__ = ["NO_BOXES", "RoutingTable", "are_inside", "are_met", "digest_of", "points_as_boxes"]

_ENDS = 4 * PLANES  # numbers of a box
_TESTS = 1 + _ENDS
_NAMES = ("form", *(f"{end}{plane}" for plane in range(PLANES) for end in ("l-", "l+", "r-", "r+")))
_LEAST, _GREATEST = -(2**63), 2**63 - 1
NO_BOXES: FormBoxes = np.empty(0, np.int64), np.empty((0, PLANES, 4), np.int64)


def points_as_boxes(points: ArrayLike) -> NDArray[np.int64]:
    """Points, (l, r) by plane, as boxes that hold nothing else."""
    return np.repeat(np.asarray(points, np.int64).reshape(-1, PLANES, 2), 2, axis=2)


class RoutingTable:
    """Boxes by link, in one index."""

    def __init__(self) -> None:
        self._index = Auto()
        self._slots: dict[int, list[int]] = {}  # by link
        self._link = np.empty(0, np.int64)  # by slot
        self._forms = np.empty(0, np.int64)
        self._boxes = np.empty((0, PLANES, 4), np.int64)
        self._free: list[int] = []

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
        self._link[at], self._forms[at], self._boxes[at] = link, forms, boxes
        self._slots.setdefault(link, []).extend(slots)
        self._index.add(at, _filters(forms, boxes))

    def remove(self, link: int) -> int:
        """Remove all boxes of a link; how many there were."""
        slots = self._slots.pop(link, [])
        self._release(slots)
        return len(slots)

    def remove_points(self, link: int, forms: Index, boxes: NDArray[np.int64]) -> int:
        """Remove the boxes of a link that are equal to one of some; how many there were."""
        gone = {_value(form, box) for form, box in zip(forms, boxes, strict=True)}
        own = self._slots.get(link, [])
        slots = [slot for slot in own if _value(self._forms[slot], self._boxes[slot]) in gone]
        left = set(slots)
        self._slots[link] = [slot for slot in own if slot not in left]
        self._release(slots)
        return len(slots)

    def _release(self, slots: list[int]) -> None:
        if slots:
            self._index.remove(np.array(slots, np.int64))
            self._link[slots] = -1
            self._free += slots

    def boxes_of(self, links: Iterable[int] | None = None) -> FormBoxes:
        """The boxes of some links, or of all."""
        chosen = self._slots if links is None else links
        slots = [slot for link in chosen for slot in self._slots.get(link, [])]
        return self._forms[slots], self._boxes[slots]

    def find(self, forms: Index, boxes: NDArray[np.int64]) -> tuple[Index, Index]:
        """Pairs (box, link) that meet, each once, in order."""
        if not len(boxes) or not self._slots:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        flat = boxes.reshape(-1, _ENDS)
        columns = [forms, *flat.T]
        valid = np.ones(len(boxes), np.bool_)
        vectors = [Vector(Type.BIGINT, np.ascontiguousarray(column), valid) for column in columns]
        slot, box = unpack(self._index.match(Rows(list(zip(_NAMES, vectors, strict=True)), len(boxes))))
        return _distinct(box, self._link[slot])

    def route(self, batch: MessageBatch) -> list[tuple[int, Index]]:
        """By link that wants any: the messages that it wants, in order."""
        regions = batch.messages.regions
        of = np.repeat(np.arange(len(batch)), np.diff(regions.start))
        box, link = self.find(batch.form[of], regions.boxes)
        message, link = _distinct(of[box], link)
        order = np.argsort(link, kind="stable")
        links, first = np.unique(link[order], return_index=True)
        parts = np.split(message[order], first[1:])
        return list(zip(links.tolist(), parts, strict=True)) if len(links) else []

    def __len__(self) -> int:
        return sum(map(len, self._slots.values()))

    def _check(self) -> None:
        used = sorted(slot for slots in self._slots.values() for slot in slots)
        assert sorted(used + self._free) == list(range(len(self._link))), "slots are used or free"
        for link, slots in self._slots.items():
            assert np.all(self._link[slots] == link)
        self._index._check()


def _value(form: np.int64, box: NDArray[np.int64]) -> bytes:
    return form.tobytes() + box.tobytes()


def _distinct(one: Index, other: Index) -> tuple[Index, Index]:
    """Pairs of numbers, each once, in order."""
    order = np.lexsort((other, one))
    one, other = one[order], other[order]
    first = np.ones(len(one), np.bool_)
    first[1:] = (np.diff(one) != 0) | (np.diff(other) != 0)
    return one[first], other[first]


def _filters(forms: Index, boxes: NDArray[np.int64]) -> FlatFilters:
    """One conjunction by box: of the same form, and in every dimension the two boxes overlap."""
    count = len(forms)
    low = np.full((count, _TESTS), _LEAST)
    high = np.full((count, _TESTS), _GREATEST)
    flat = boxes.reshape(-1, _ENDS)
    low[:, 0] = high[:, 0] = forms
    high[:, 1::2] = flat[:, 1::2]  # the message's box begins before this one ends
    low[:, 2::2] = flat[:, 0::2]  # and ends after this one begins
    none = pa.array([], pa.large_binary())
    numbers = np.arange(_TESTS, dtype=np.int32)
    return FlatFilters(
        count,
        owner=np.arange(count, dtype=np.int32),
        start=np.arange(0, _TESTS * count + 1, _TESTS),
        dim=np.tile(numbers, count),
        low=low.ravel(),
        high=high.ravel(),
        flags=np.zeros(_TESTS * count, np.uint8),
        attribute=numbers,
        space=np.full(_TESTS, CodeSpace.BIGINT, np.uint8),
        pattern=np.full(_TESTS, -1, np.int32),
        names=_NAMES,
        texts=none,
        backwards=none,
        patterns=(),
    )


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
