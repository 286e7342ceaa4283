"""Top-k over several ranges as messages: the influence region of a row is a union of boxes.

A subscription is a box, say x1 in a..b and x2 in c..d, and a point of the planes (a, b) and (c, d), four
dimensions; three of them vary where the second range has one end. A row's *influence region* are the
subscriptions that have it among their first k. For one range it is a staircase of k steps (`topk.py`). For
two it has some (k ln n)^3 steps, most of which hold nobody, so only what is known to hold subscriptions is
described:

    change ─► first k rows of boxes that gain or lose (`rank/boxes.py`) ─► cover of each set ─► Messages

    r |   . o o          o  gain the row: few boxes that hold them
      |   o o .          .  others: in none of the boxes
      +-------------- l

A change is sent as GONE to those who lose the row, ROW to those who have it now, and EXPOSE of another row to
those who have that one instead; a row that another one pushes out is not sent, since clients keep k. Nobody
receives what it has, and a change that nobody receives is not sent.

Cost of a change: as in `rank/boxes.py`, and for each box of a cover some searches of subscriptions within
bounds. With `unicast`, messages have recipients instead, and no cover is computed.

>>> server = BoxTopk(1)
>>> server.load([1, 2], [[10, 5], [20, 6]], y=[7, 9])
>>> server.subscribe(np.array([4]), np.array([[0, 0]]), np.array([[50, 9]]))
>>> client = server.contents(4)
>>> messages = server.publish([1], [[10, 8]], y=[12])  # 2 is first now
>>> client.apply(messages.take(messages.received_by(4, server.point(4))))
>>> client.content(), messages.row.tolist(), messages.regions.boxes.shape
([(9, 2)], [1, 2], (2, 2, 4))

K12, section IV.C, which says that painting sparsely is what pays in more dimensions, and leaves the method
open; covers are ours.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tocsin.model.columns import Index, longer
from tocsin.model.message import MessageKind, Messages, Recipients, Regions
from tocsin.rank.boxes import FirstRows
from tocsin.rank.family import RowMoves
from tocsin.rank.members import BoxMembers
from tocsin.rank.points import ABSENT
from tocsin.reformulate._kernels.covers import CoverWork, cover
from tocsin.reformulate.contents import TopkContents

__all__ = ["BoxTopk"]


class BoxTopk:
    """Rows under small ids, at points of `ranges` coordinates, in order of y; subscriptions under slots.

    No two rows have the same y at the same time: callers break ties before, as for `TopkServer`. A row with
    y = ABSENT is not there.
    """

    def __init__(self, k: int, ranges: int = 2, *, unicast: bool = False) -> None:
        if k < 1 or ranges < 1:
            raise ValueError(f"k and the number of ranges are at least 1, not {k} and {ranges}")
        self.k, self.ranges, self.unicast, self.seq = k, ranges, unicast, 0
        self._members = BoxMembers(ranges)
        self._first = FirstRows(self._members, k)
        self._version: dict[int, int] = {}  # by id: its row in `_first`
        self._at: dict[int, tuple[tuple[int, ...], int]] = {}  # by id: point and y
        self._of_y: dict[int, int] = {}  # the id that has it
        self._id: Index = np.zeros(16, np.int64)  # by version
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._members)

    # -- rows and subscriptions ----------------------------------------------------------------------

    def load(self, ids: ArrayLike, points: ArrayLike, y: ArrayLike) -> None:
        """Replace all rows."""
        numbers, places, ys = self._columns(ids, points, y)
        there = ys != ABSENT
        numbers, places, ys = numbers[there], places[there], ys[there]
        for name, values in (("id", numbers), ("y", ys)):
            if len(np.unique(values)) < len(values):
                raise ValueError(f"two rows have the same {name}: {_repeated(values)}")
        columns = zip(numbers.tolist(), places.tolist(), ys.tolist(), strict=True)
        self._at = {i: (tuple(point), value) for i, point, value in columns}
        self._version = {i: at for at, i in enumerate(numbers.tolist())}
        self._of_y = dict(zip(ys.tolist(), numbers.tolist(), strict=True))
        self._id, self._free = numbers.copy(), []
        self._first.load(np.arange(len(numbers)), places, ys)
        self._first.recompute_lists()

    def subscribe(self, slots: Index, low: Index, high: Index) -> None:
        """Add subscriptions under free slots: by row the lower and the upper ends of their ranges."""
        if np.any(low > high):
            raise ValueError("a range is empty")
        self._first.add(self._members.add(slots, low, high))

    def unsubscribe(self, slots: Index) -> None:
        """Remove subscriptions."""
        self._first.remove(self._members.remove(slots))

    def point(self, slot: int) -> NDArray[np.int64]:
        """A subscription as a point: (l, r) by plane."""
        low, high = self._members.ranges(np.array([slot]))
        return np.stack([low[0], high[0]], axis=1)

    def contents(self, slot: int) -> TopkContents:
        """A client of a subscription, with its content as of now."""
        self._first.fill()
        place = int(self._members.find(np.array([slot]))[0])
        rows = self._first.lists.row[place, : self._first.lists.size[place]]
        held = zip(self._first.lists.label[rows].tolist(), self._id[rows].tolist(), strict=True)
        return TopkContents(self.k, held)

    # -- changes -------------------------------------------------------------------------------------

    def publish(self, ids: ArrayLike, points: ArrayLike, y: ArrayLike) -> Messages:
        """Changes in order, each an event: where a row is now. y = ABSENT: it is deleted."""
        numbers, places, ys = self._columns(ids, points, y)
        self._reject_ties(numbers, ys)
        first = self.seq + 1
        self.seq += len(numbers)
        moves, old_y = self._moves(numbers, places, ys)
        comes = np.flatnonzero(moves.new >= 0)
        self._first.set_labels(moves.new[comes], ys[moves.position[comes]])
        self._first.fill()
        changes = self._first.update(moves, old_y, ys[moves.position], len(self._id))
        heads, members = self._heads(moves, changes.move, changes.member, changes.sign, changes.row)
        messages = self._sent(heads, members, first + moves.position)
        self._free += moves.old[moves.old >= 0].tolist()
        return messages

    def _moves(self, ids: Index, points: Index, ys: Index) -> tuple[RowMoves, Index]:
        """Changes as moves of versions, each with a number of its own; and the y before."""
        n = len(ids)
        old, new, old_y = np.full(n, -1), np.full(n, -1), np.zeros(n, np.int64)
        old_x, new_x = np.zeros((2, n, self.ranges), np.int64)
        for at, (i, point, y) in enumerate(zip(ids.tolist(), points.tolist(), ys.tolist(), strict=True)):
            if i in self._at:
                old_x[at], old_y[at] = self._at.pop(i)
                old[at] = self._version.pop(i)
                del self._of_y[int(old_y[at])]
            if y != ABSENT:
                self._at[i], self._of_y[y] = (tuple(point), y), i
                new[at], new_x[at] = self._new_version(i), point
        there = np.flatnonzero((old >= 0) | (new >= 0))
        return RowMoves(there, old[there], new[there], old_x[there], new_x[there]), old_y[there]

    def _new_version(self, id: int) -> int:
        if not self._free:
            used = len(self._id)
            self._id = longer(self._id, max(16, 2 * used))
            self._free = list(range(len(self._id) - 1, used - 1, -1))
        version = self._free.pop()
        self._version[id], self._id[version] = version, id
        return version

    def _heads(
        self, moves: RowMoves, move: Index, member: Index, sign: NDArray[np.int8], row: Index
    ) -> tuple[Index, list[Index]]:
        """Rows of (move, kind, version), in order of messages; and by row the places of its members."""
        gains = sign > 0
        is_new, is_old = row == moves.new[move], row == moves.old[move]
        number = move * len(self._members.slot) + member  # of a pair
        left = ~gains & is_old & ~np.isin(number, number[gains & is_new])
        kind = np.where(left, MessageKind.GONE, np.where(is_new, MessageKind.ROW, MessageKind.EXPOSE))
        sent = np.flatnonzero(left | gains)
        place = self._members.forest.arrays.where[member[sent]]
        rank = np.array([1, 0, 2])[kind[sent]]  # GONE before ROW before EXPOSE
        order = np.lexsort((place, row[sent], rank, move[sent]))
        sent, place = sent[order], place[order]
        columns = np.stack([move[sent], kind[sent], row[sent]])
        begin = np.flatnonzero(np.append(True, (columns[:, 1:] != columns[:, :-1]).any(axis=0))[: len(sent)])
        return columns[:, begin].T, np.split(place, begin[1:]) if len(begin) else []

    def _sent(self, heads: Index, members: list[Index], seq: Index) -> Messages:
        """Messages of sets of members: to their slots, or to boxes around them."""
        move, kind, row = heads.T
        first = np.flatnonzero(np.diff(move, prepend=-1))
        step = np.arange(len(move)) - np.repeat(first, np.diff(first, append=len(move)))
        regions, recipients = self._regions(members), None
        if self.unicast:
            place = np.concatenate([np.empty(0, np.int64), *members])
            slot = self._members.slot[self._members.forest.arrays.id[place]]
            recipients = Recipients(np.repeat(np.arange(len(members)), [len(m) for m in members]), slot)
        return Messages(
            *(seq[move], step, kind.astype(np.int8), np.zeros(len(move), np.int8)),
            *(self._first.lists.label[row], self._id[row], np.full(len(move), -1, np.int64)),
            *(regions, recipients),
        )

    def _regions(self, members: list[Index]) -> Regions:
        start = np.concatenate([[0], np.cumsum([len(m) for m in members])]).astype(np.int64)
        if self.unicast or not len(members):
            nothing = np.empty((0, self.ranges, 4), np.int64)
            return Regions(np.zeros(len(members) + 1, np.int64), nothing)
        forest = self._members.forest.arrays
        longest = max(len(m) for m in members)
        work = CoverWork(
            forest,
            np.full(len(forest.point), -1, np.int64),
            np.empty((longest.bit_length() + 2, 2), np.int64),
            np.empty((4, 2 * self.ranges), np.int64),
        )
        boxes, until = np.empty((int(start[-1]), self.ranges, 4), np.int64), np.empty(len(members), np.int64)
        count = cover(work, np.concatenate(members), start, boxes, until)
        return Regions(np.concatenate([[0], until]), boxes[:count].copy())

    # -- input ---------------------------------------------------------------------------------------

    def _columns(self, ids: ArrayLike, points: ArrayLike, y: ArrayLike) -> tuple[Index, Index, Index]:
        numbers, ys = np.asarray(ids, np.int64), np.asarray(y, np.int64)
        places = np.asarray(points, np.int64).reshape(-1, self.ranges)
        if not len(numbers) == len(ys) == len(places):
            raise ValueError(f"columns differ in length: {[len(numbers), len(places), len(ys)]}")
        return numbers, places, ys

    def _reject_ties(self, ids: Index, ys: Index) -> None:
        """Raise if a row would get the y of another one, before anything changes."""
        mine: dict[int, int] = {}
        holder: dict[int, int] = {}  # of a y, as far as it differs from `_of_y`
        for i, y in zip(ids.tolist(), ys.tolist(), strict=True):
            before = mine.get(i, self._at[i][1] if i in self._at else ABSENT)
            if before != ABSENT:
                holder[before] = ABSENT
            if y != ABSENT:
                other = holder.get(y, self._of_y.get(y, ABSENT))
                if other not in (ABSENT, i):
                    raise ValueError(f"two rows have y = {y}: break ties before")
                holder[y] = i
            mine[i] = y

    def _check(self) -> None:
        """Lists and forests hold their invariants; versions are those of the rows."""
        self._first._check()
        assert set(self._version) == set(self._at) and len(self._of_y) == len(self._at)
        for i, version in self._version.items():
            assert self._id[version] == i and self._first.lists.label[version] == self._at[i][1]
            assert tuple(self._first.rows.points(np.array([version]))[0, :-1].tolist()) == self._at[i][0]


def _repeated(values: Index) -> int:
    found, counts = np.unique(values, return_counts=True)
    return int(found[counts > 1][0])
