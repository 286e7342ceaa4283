"""Stabbing partitions under insertion and deletion: the protocol, and two ways to maintain one.

A consumer keeps one structure per group. Each call returns every id whose group changed, once, however often
it moved in between, so that the consumer can update its own structures:

    moves = partition.insert(ids, low, high)       moves.id, moves.before, moves.after
    for each id:  remove it from group `before` (-1: none), add it to group `after` (-1: none)

Group numbers are small and reused. Read points when you need them: a group's point may change although no id
moves. Ids are slots: arrays are indexed by them. An update costs O(log groups) plus a shift in the list of
groups; the rest depends on how the partition is rebuilt (`LazyPartition`, `RefinedPartition`).

T07, section 4.2.3. A group keeps a *core*, a range that all its intervals contain, instead of a point.
Removing an interval does not widen the core; so cores stay disjoint and in order, and a binary search finds
the one to join.

The bound on the number of groups rests on *witnesses*: the interval of each group that ended first at the
last rebuild. Witnesses are disjoint, so every partition has at least as many groups as witnesses are left.
The thesis counts every interval removed since as a lost witness (`every_loss`): correct, but it rebuilds far
more often.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tocsin.stab._kernels import partition as kernel
from tocsin.stab._kernels.dynamic import first_invalid, load, update_all
from tocsin.stab._kernels.partition import PartitionState, points_of
from tocsin.stab._kernels.rebuild import tree_agrees
from tocsin.stab.partition import Codes, Groups, as_intervals, canonical

__all__ = [
    "DynamicPartition",
    "GroupMoves",
    "LazyPartition",
    "MaintainedPartition",
    "PartitionConfig",
    "RefinedPartition",
]

_IDS = 2**31 - 1  # arrays are as long as the greatest id
_DEPTH = 1024  # of the tree, at most: far beyond what chance can do to a billion intervals


class GroupMoves(NamedTuple):
    """Ids whose group changed from `before` to `after` (-1: none), or became hot or scattered."""

    id: Groups
    before: Groups
    after: Groups
    was_hot: NDArray[np.bool_]
    is_hot: NDArray[np.bool_]


class DynamicPartition(Protocol):
    """Groups of intervals that share a point, at most (1 + eps) times as many as must be."""

    def insert(self, ids: ArrayLike, low: ArrayLike, high: ArrayLike) -> GroupMoves: ...

    def remove(self, ids: ArrayLike) -> GroupMoves: ...

    def group_of(self, ids: ArrayLike) -> Groups: ...

    def groups(self) -> Groups: ...

    def points(self) -> Codes: ...

    def members(self, group: int) -> Groups: ...

    def _check(self) -> None: ...


@dataclass(frozen=True)
class PartitionConfig:
    """`eps`: allowed share of surplus groups; `every_loss`: count losses as the thesis does."""

    eps: float = 0.5
    every_loss: bool = False

    def __post_init__(self) -> None:
        if not self.eps > 0:
            raise ValueError(f"eps must be above 0, not {self.eps}")


class MaintainedPartition:
    """A partition in flat arrays, with a tree of left ends and with hot groups if requested."""

    def __init__(self, config: PartitionConfig, *, tree: bool, alpha: float | None = None) -> None:
        self._eps = config.eps
        self._state = PartitionState(
            items=_blank_items(64),
            groups=_blank_groups(64),
            order=np.zeros(64, np.int32),
            free=np.zeros(64, np.int32),
            changed=np.zeros(64, np.int32),
            largest=np.zeros(0 if alpha is None else 128, np.int32),
            hot=np.zeros(0 if alpha is None else int(2 / alpha) + 8, np.int32),
            path=np.zeros(_DEPTH if tree else 0, np.int32),
            counters=np.zeros(16, np.int64),
            limits=np.array([config.eps, alpha or 0.0, float(config.every_loss)]),
        )
        self._state.counters[kernel.ROOT] = -1

    # -- changes ---------------------------------------------------------------------------------

    def insert(self, ids: ArrayLike, low: ArrayLike, high: ArrayLike) -> GroupMoves:
        """Insert intervals low..high; `ids` must not be in use."""
        lows, highs = as_intervals(np.atleast_1d(low), np.atleast_1d(high))
        return self._change(ids, lows, highs, True)

    def remove(self, ids: ArrayLike) -> GroupMoves:
        """Remove intervals."""
        return self._change(ids, None, None, False)

    def update(self, ids: ArrayLike, low: ArrayLike, high: ArrayLike, inserts: ArrayLike) -> GroupMoves:
        """Insert or remove intervals one after the other; the ends of removed ones are ignored."""
        arriving = np.asarray(inserts, np.bool_)
        as_intervals(np.asarray(low, np.int64)[arriving], np.asarray(high, np.int64)[arriving])
        return self._change(ids, low, high, inserts)

    def _change(
        self, ids: ArrayLike, low: ArrayLike | None, high: ArrayLike | None, inserts: ArrayLike
    ) -> GroupMoves:
        given = np.atleast_1d(np.asarray(ids, np.int64))
        if len(given) and (given.min() < 0 or given.max() >= _IDS):
            wrong = given[(given < 0) | (given >= _IDS)][0]
            raise ValueError(f"ids are slots, from 0 to {_IDS - 1}: {wrong} is not")
        which = given.astype(np.int32)
        arriving = np.array(np.broadcast_to(np.asarray(inserts, np.bool_), which.shape))  # writable, always
        blank = np.zeros(len(which), np.int64)
        lows = blank if low is None else np.ascontiguousarray(low, np.int64)
        highs = blank if high is None else np.ascontiguousarray(high, np.int64)
        if which.ndim != 1 or which.shape != lows.shape or which.shape != highs.shape:
            raise ValueError(f"ids and ends differ in shape: {which.shape}, {lows.shape} and {highs.shape}")
        if len(which) == 0:
            return GroupMoves(*kernel.drain_moves(self._state))
        self._grow_items(int(which.max()) + 1)
        wrong = first_invalid(self._state, which, arriving)
        if wrong >= 0:
            raise ValueError(f"id {which[wrong]} is {'' if arriving[wrong] else 'not '}in use")
        if len(self) == 0 and len(which) > 1 and arriving.all():
            self._load(which, lows, highs)
            which = which[:0]
        self._run(which, lows, highs, arriving)
        return GroupMoves(*kernel.drain_moves(self._state))

    def _load(self, ids: Groups, low: Codes, high: Codes) -> None:
        group, point = canonical(low, high)
        self._grow_groups(len(point))
        load(self._state, ids, low, high, group, np.lexsort((ids, low)))

    def _run(self, ids: Groups, low: Codes, high: Codes, inserts: NDArray[np.bool_]) -> None:
        """Run the kernel; it stops when the arrays of groups are too short."""
        done, counters = 0, self._state.counters
        while True:
            done = update_all(self._state, ids, low, high, inserts, done)
            required, counters[kernel.REQUIRED] = int(counters[kernel.REQUIRED]), 0
            if not required:
                break
            self._grow_groups(required)

    # -- queries ---------------------------------------------------------------------------------

    def __len__(self) -> int:
        """The number of intervals."""
        return int(self._state.counters[kernel.INTERVALS])

    def group_of(self, ids: ArrayLike) -> Groups:
        """The group of each id, -1 if it has none."""
        which = np.asarray(ids, np.int64)
        known = (which >= 0) & (which < len(self._state.items))
        return np.where(known, self._state.items["group"][np.where(known, which, 0)], np.int32(-1))

    def groups(self) -> Groups:
        """The groups by their points, ascending."""
        return self._state.order[: int(self._state.counters[kernel.GROUPS])].copy()

    def points(self) -> Codes:
        """A point of each of `groups()`, ascending; no point is an open end."""
        return self._points_of(self.groups())

    def sizes(self) -> Groups:
        """The number of intervals in each of `groups()`."""
        return self._state.groups["members"][self.groups()]

    def members(self, group: int) -> Groups:
        """The ids of a group, in no order."""
        return kernel.members(self._state, group)

    @property
    def rebuilds(self) -> int:
        return int(self._state.counters[kernel.REBUILDS])

    @property
    def moved(self) -> int:
        """How many times rebuilds moved an id to another group."""
        return int(self._state.counters[kernel.MOVED])

    def _points_of(self, groups: Groups) -> Codes:
        return points_of(self._state.groups["left"][groups], self._state.groups["right"][groups])

    # -- growth ----------------------------------------------------------------------------------

    def _grow_items(self, ids: int) -> None:
        s = self._state
        if ids > len(s.items):
            more = max(ids, 2 * len(s.items)) - len(s.items)
            items = np.concatenate([s.items, _blank_items(more)])
            self._state = s._replace(items=items, changed=np.zeros(len(items), np.int32))

    def _grow_groups(self, required: int) -> None:
        s = self._state
        size = 2 * len(s.groups)
        while size < len(s.groups) + required:
            size *= 2
        more = np.zeros(size - len(s.groups), np.int32)
        self._state = s._replace(
            groups=np.concatenate([s.groups, _blank_groups(len(more))]),
            order=np.concatenate([s.order, more]),
            free=np.concatenate([s.free, more]),
            largest=np.zeros(2 * size if len(s.largest) else 0, np.int32),
        )
        if len(s.largest):
            kernel.fill_largest(self._state)

    # -- invariants ------------------------------------------------------------------------------

    def _check(self) -> None:
        s = self._state
        order = self.groups()
        living = np.flatnonzero(s.items["group"] >= 0)
        items = s.items[living]
        assert len(living) == len(self)
        own, size = s.groups, np.bincount(items["group"], minlength=len(s.groups))
        assert np.array_equal(size, np.where(own["kind"] > 0, own["members"], 0)), "sizes are right"
        cores = own[items["group"]]
        assert np.all(items["low"] <= cores["left"]) and np.all(cores["right"] <= items["high"])
        assert np.all(own["left"][order] <= own["right"][order])
        assert np.all(own["right"][order[:-1]] < own["left"][order[1:]]), "cores are disjoint and in order"
        for group in np.flatnonzero(size).tolist():
            assert np.all(s.items["group"][self.members(group)] == group), (
                "members are linked under their group"
            )
        cold = living[cores["kind"] != kernel.HOT]
        assert np.array_equal(np.unique(s.items["group"][cold]), np.sort(order)), (
            "the order lists every group"
        )
        tau = canonical(s.items["low"][cold], s.items["high"][cold]).tau
        assert len(order) <= (1 + self._eps) * tau + 1e-9, f"{len(order)} groups where {tau} would do"
        seen = np.flatnonzero(s.items["marks"] & kernel.WITNESS)
        seen = seen[np.argsort(s.items["low"][seen])]
        assert np.all(s.items["high"][seen[:-1]] < s.items["low"][seen[1:]]), "witnesses are disjoint"
        assert s.limits[2] or len(seen) == s.counters[kernel.TAU] - s.counters[kernel.LOST]
        if len(s.path):
            by_left = cold[np.lexsort((cold, s.items["low"][cold]))]
            assert tree_agrees(s, by_left), (
                "the tree has the intervals by left end, and their least right ends"
            )
        used, unused = int(s.counters[kernel.USED]), int(s.counters[kernel.FREE])
        assert (
            used - unused == len(order) + int(s.counters[kernel.HOT_COUNT]) == len(np.unique(items["group"]))
        )


def _blank_items(count: int) -> NDArray[np.void]:
    items = np.zeros(count, kernel.ITEM)
    items["group"] = -1
    return items


def _blank_groups(count: int) -> NDArray[np.void]:
    groups = np.zeros(count, kernel.GROUP)
    groups["head"] = groups["witness"] = -1
    return groups


class LazyPartition(MaintainedPartition):
    """At most (1 + eps) * tau groups; O(log groups) for an update, O(n log n) for a rebuild.

    An interval joins a group where it fits, else it opens one. When there are more than (1 + eps) times as
    many groups as the witnesses prove necessary, all intervals are sorted and swept again: little work per
    update, but possibly a rebuild every eps * tau updates.

    >>> lazy = LazyPartition()
    >>> lazy.insert([0, 1, 2], [1, 3, 8], [5, 9, 9]).after.tolist()
    [0, 0, 1]
    >>> lazy.points().tolist()
    [5, 9]
    >>> moves = lazy.remove([2])
    >>> moves.id.tolist(), moves.before.tolist(), moves.after.tolist()
    ([2], [1], [-1])

    T07, section 4.2.3, "a simple strategy", with all its refinements.
    """

    def __init__(self, config: PartitionConfig | None = None) -> None:
        super().__init__(config or PartitionConfig(), tree=False)


class RefinedPartition(MaintainedPartition):
    """At most (1 + eps) * tau groups; O(log n / eps) amortised for an update, plus the ids that move.

    One tree holds all intervals by left end; each node knows the least right end below it. A rebuild finds
    the least partition point by point: the next point is the least right end among intervals that begin after
    the last one, O(log n) each. Since an interval joins the *first* core that does not end before it, the
    groups of the last rebuild are runs of that tree, and so are the new ones:

        left ends     . . . .  .   . . .   .  . .  .  .
        old groups    |---- 4 ----| |------ 7 -----|          3: opened since, its members are handled singly
        new groups    |-- 4 --| |------ 7 -----| |- 3 -|      only ids of runs whose group changes are touched

    So a rebuild costs O(tau log n), plus the updates since, plus the ids that move.

    >>> refined = RefinedPartition()
    >>> refined.insert([0, 1, 2], [1, 3, 8], [5, 9, 9]).after.tolist()
    [0, 0, 1]
    >>> refined.insert([7], [6], [7]).after.tolist(), refined.points().tolist()
    ([2], [5, 7, 9])

    T07, theorem 13, which leaves the algorithm to the paper of 2006. There each group has its own tree, each
    old group is split once and the pieces are joined; but pieces of several groups interleave by left end and
    cannot be joined in O(log n). With one tree nothing is split or joined.
    """

    def __init__(self, config: PartitionConfig | None = None) -> None:
        super().__init__(config or PartitionConfig(), tree=True)
