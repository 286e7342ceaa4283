"""Stabbing partitions under insertion and deletion: the protocol, and what all ways of keeping one share.

A consumer keeps a structure per group. It is told of every id whose group changed, once per call however
often it moved in between, and can follow with its own structures:

    moves = partition.insert(ids, low, high)       moves.id, moves.before, moves.after
    for the ids:  take out of group `before` (-1: it was not there), put into group `after` (-1: it is gone)

Names of groups are small numbers that are used again. Points are read when they are needed: that of a group
may change while nobody moves.

Ids are small numbers too (slots): arrays are indexed by them. An update costs O(log groups) and one step of
moving places in the list of groups; the rest depends on how a partition is rebuilt (`lazy.py`, `refined.py`).

T07, section 4.2.3. A group keeps a *core*, a stretch that all its intervals contain, instead of a point. It
is not widened when an interval goes; so cores stay disjoint and in order, and a binary search finds the one
to join.

The bound on the number of groups rests on *witnesses*: of each group of the last rebuild the interval that
ends first. They are disjoint, so that no partition has fewer groups than there are witnesses left. The thesis
counts every interval lost since as if it were a witness (`every_loss`), which is true and far more timid.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tocsin.stab._kernels import state as kernel
from tocsin.stab._kernels.dynamic import first_wrong, load, update_all
from tocsin.stab._kernels.partition import points_of
from tocsin.stab._kernels.state import State
from tocsin.stab._kernels.tree import agrees
from tocsin.stab.partition import Codes, Groups, as_intervals, canonical

__all__ = ["DynamicPartition", "Maintained", "Moves", "PartitionConfig"]

_IDS = 2**31 - 1  # arrays are as long as the greatest id
_DEPTH = 1024  # of the tree, at most: far beyond what chance can do to a billion intervals


class Moves(NamedTuple):
    """Ids that changed group, from `before` to `after`, -1 for none; or side, if there are hot groups."""

    id: Groups
    before: Groups
    after: Groups
    was_hot: NDArray[np.bool_]
    is_hot: NDArray[np.bool_]


class DynamicPartition(Protocol):
    """Groups of intervals that share a point, at most (1 + eps) times as many as must be."""

    def insert(self, ids: ArrayLike, low: ArrayLike, high: ArrayLike) -> Moves: ...

    def remove(self, ids: ArrayLike) -> Moves: ...

    def group_of(self, ids: ArrayLike) -> Groups: ...

    def groups(self) -> Groups: ...

    def points(self) -> Codes: ...

    def members(self, group: int) -> Groups: ...

    def _check(self) -> None: ...


@dataclass(frozen=True)
class PartitionConfig:
    """`eps`: how many groups too many, as a share; `every_loss`: as the thesis counts losses."""

    eps: float = 0.5
    every_loss: bool = False

    def __post_init__(self) -> None:
        if not self.eps > 0:
            raise ValueError(f"eps must be above 0, not {self.eps}")


class Maintained:
    """A partition in flat arrays; a tree and hot groups only where they are asked for."""

    def __init__(self, config: PartitionConfig, *, tree: bool, alpha: float | None = None) -> None:
        self._eps = config.eps
        self._state = State(
            items=_blank_items(64),
            groups=_blank_groups(64),
            order=np.zeros(64, np.int32),
            free=np.zeros(64, np.int32),
            dirty=np.zeros(64, np.int32),
            top=np.zeros(0 if alpha is None else 128, np.int32),
            hot=np.zeros(0 if alpha is None else int(2 / alpha) + 8, np.int32),
            path=np.zeros(_DEPTH if tree else 0, np.int32),
            numbers=np.zeros(16, np.int64),
            limits=np.array([config.eps, alpha or 0.0, float(config.every_loss)]),
        )
        self._state.numbers[kernel.ROOT] = -1

    # -- changes ---------------------------------------------------------------------------------

    def insert(self, ids: ArrayLike, low: ArrayLike, high: ArrayLike) -> Moves:
        """Intervals low..high come; `ids` are not in use."""
        lows, highs = as_intervals(np.atleast_1d(low), np.atleast_1d(high))
        return self._change(ids, lows, highs, True)

    def remove(self, ids: ArrayLike) -> Moves:
        """Intervals go."""
        return self._change(ids, None, None, False)

    def update(self, ids: ArrayLike, low: ArrayLike, high: ArrayLike, comes: ArrayLike) -> Moves:
        """One after the other, intervals come or go (then the ends do not matter)."""
        arriving = np.asarray(comes, np.bool_)
        as_intervals(np.asarray(low, np.int64)[arriving], np.asarray(high, np.int64)[arriving])
        return self._change(ids, low, high, comes)

    def _change(
        self, ids: ArrayLike, low: ArrayLike | None, high: ArrayLike | None, comes: ArrayLike
    ) -> Moves:
        given = np.atleast_1d(np.asarray(ids, np.int64))
        if len(given) and (given.min() < 0 or given.max() >= _IDS):
            wrong = given[(given < 0) | (given >= _IDS)][0]
            raise ValueError(f"ids are slots, from 0 to {_IDS - 1}: {wrong} is not")
        which = given.astype(np.int32)
        arriving = np.ascontiguousarray(np.broadcast_to(np.asarray(comes, np.bool_), which.shape))
        blank = np.zeros(len(which), np.int64)
        lows = blank if low is None else np.ascontiguousarray(low, np.int64)
        highs = blank if high is None else np.ascontiguousarray(high, np.int64)
        if which.ndim != 1 or which.shape != lows.shape or which.shape != highs.shape:
            raise ValueError(f"ids and ends differ in shape: {which.shape}, {lows.shape} and {highs.shape}")
        if len(which) == 0:
            return Moves(*kernel.told(self._state))
        self._make_room(int(which.max()) + 1)
        wrong = first_wrong(self._state, which, arriving)
        if wrong >= 0:
            raise ValueError(f"id {which[wrong]} is {'' if arriving[wrong] else 'not '}in use")
        if len(self) == 0 and len(which) > 1 and arriving.all():
            self._load(which, lows, highs)
            which = which[:0]
        self._run(which, lows, highs, arriving)
        return Moves(*kernel.told(self._state))

    def _load(self, ids: Groups, low: Codes, high: Codes) -> None:
        group, point = canonical(low, high)
        self._make_group_room(len(point))
        load(self._state, ids, low, high, group, np.lexsort((ids, low)))

    def _run(self, ids: Groups, low: Codes, high: Codes, comes: NDArray[np.bool_]) -> None:
        """The kernel goes on until it wants room for groups."""
        done, numbers = 0, self._state.numbers
        while True:
            done = update_all(self._state, ids, low, high, comes, done)
            wanted, numbers[kernel.WANTED] = int(numbers[kernel.WANTED]), 0
            if not wanted:
                break
            self._make_group_room(wanted)

    # -- questions -------------------------------------------------------------------------------

    def __len__(self) -> int:
        """How many intervals there are."""
        return int(self._state.numbers[kernel.LIVING])

    def group_of(self, ids: ArrayLike) -> Groups:
        """The group of each id, -1 if it is not there."""
        which = np.asarray(ids, np.int64)
        known = (which >= 0) & (which < len(self._state.items))
        return np.where(known, self._state.items["group"][np.where(known, which, 0)], np.int32(-1))

    def groups(self) -> Groups:
        """The groups by their points, ascending."""
        return self._state.order[: int(self._state.numbers[kernel.COUNT])].copy()

    def points(self) -> Codes:
        """A point of each of `groups()`, ascending; no point is an open end."""
        return self._points_of(self.groups())

    def sizes(self) -> Groups:
        """The number of intervals in each of `groups()`."""
        return self._state.groups["held"][self.groups()]

    def members(self, group: int) -> Groups:
        """The ids of a group, in no order."""
        return kernel.members(self._state, group)

    @property
    def rebuilds(self) -> int:
        return int(self._state.numbers[kernel.REBUILDS])

    @property
    def moved(self) -> int:
        """How often an id changed group in rebuilds."""
        return int(self._state.numbers[kernel.MOVED])

    def _points_of(self, groups: Groups) -> Codes:
        return points_of(self._state.groups["left"][groups], self._state.groups["right"][groups])

    # -- room ------------------------------------------------------------------------------------

    def _make_room(self, ids: int) -> None:
        s = self._state
        if ids > len(s.items):
            more = max(ids, 2 * len(s.items)) - len(s.items)
            items = np.concatenate([s.items, _blank_items(more)])
            self._state = s._replace(items=items, dirty=np.zeros(len(items), np.int32))

    def _make_group_room(self, wanted: int) -> None:
        s = self._state
        size = 2 * len(s.groups)
        while size < len(s.groups) + wanted:
            size *= 2
        more = np.zeros(size - len(s.groups), np.int32)
        self._state = s._replace(
            groups=np.concatenate([s.groups, _blank_groups(len(more))]),
            order=np.concatenate([s.order, more]),
            free=np.concatenate([s.free, more]),
            top=np.zeros(2 * size if len(s.top) else 0, np.int32),
        )
        if len(s.top):
            kernel.fill_top(self._state)

    # -- invariants ------------------------------------------------------------------------------

    def _check(self) -> None:
        s = self._state
        order = self.groups()
        living = np.flatnonzero(s.items["group"] >= 0)
        items = s.items[living]
        assert len(living) == len(self)
        own, size = s.groups, np.bincount(items["group"], minlength=len(s.groups))
        assert np.array_equal(size, np.where(own["kind"] > 0, own["held"], 0)), "sizes are right"
        cores = own[items["group"]]
        assert np.all(items["low"] <= cores["left"]) and np.all(cores["right"] <= items["high"])
        assert np.all(own["left"][order] <= own["right"][order])
        assert np.all(own["right"][order[:-1]] < own["left"][order[1:]]), "cores are disjoint and in order"
        for group in np.flatnonzero(size).tolist():
            assert np.all(s.items["group"][self.members(group)] == group), "lists are those of the groups"
        cold = living[cores["kind"] != kernel.HOT]
        assert np.array_equal(np.unique(s.items["group"][cold]), np.sort(order)), "all groups are in order"
        tau = canonical(s.items["low"][cold], s.items["high"][cold]).tau
        assert len(order) <= (1 + self._eps) * tau + 1e-9, f"{len(order)} groups where {tau} would do"
        seen = np.flatnonzero(s.items["signs"] & kernel.WITNESS)
        seen = seen[np.argsort(s.items["low"][seen])]
        assert np.all(s.items["high"][seen[:-1]] < s.items["low"][seen[1:]]), "witnesses are disjoint"
        assert s.limits[2] or len(seen) == s.numbers[kernel.TAU] - s.numbers[kernel.LOST]
        if len(s.path):
            by_left = cold[np.lexsort((cold, s.items["low"][cold]))]
            assert agrees(s, by_left), "the tree has the intervals by left end, and their least right ends"
        used, unused = int(s.numbers[kernel.USED]), int(s.numbers[kernel.FREE])
        assert used - unused == len(order) + int(s.numbers[kernel.HOTS]) == len(np.unique(items["group"]))


def _blank_items(count: int) -> NDArray[np.void]:
    items = np.zeros(count, kernel.ITEM)
    items["group"] = -1
    return items


def _blank_groups(count: int) -> NDArray[np.void]:
    groups = np.zeros(count, kernel.GROUP)
    groups["head"] = groups["witness"] = -1
    return groups
