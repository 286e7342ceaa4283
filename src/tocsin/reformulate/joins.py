"""Schemes for select-joins of two tables: what a change is sent as, and to whom.

| scheme    | sent                                                              | clients keep         |
| --------- | ----------------------------------------------------------------- | -------------------- |
| ref-sj-*  | the row to those in whose join it is, by a skyline; exposed rows  | both semijoins       |
| rel-sel   | the row to everyone whose own range selects it                    | both selections      |
| ref-j     | every joined row to those who select both parts                   | the join             |
| ref-j+    | the same, without joined rows that nobody selects                 | the join             |
| enum-sj   | as ref-sj, each message to each of its subscriptions              | both semijoins       |
| enum-j    | as ref-j+, each message to each of its subscriptions              | the join             |

Cost of a change, for s joining rows, tau groups of subscriptions, k affected ones: rel-sel O(1); ref-j
O(log n + s); ref-j+ and ref-sj with clusters O(log n + s + tau log s), with skylines that enumerate ranges
(-ranges, -fewest) O(k) more; enumeration O(k) more.

>>> from tocsin.reformulate.base import Ranges, row_changes
>>> scheme = SemijoinsMerged()
>>> scheme.load(1, rows=[1, 2], keys=[5, 5], values=[10, 30])
>>> scheme.subscribe(np.arange(2), Ranges(*np.array([[8, 11], [12, 29], [0, 0], [9, 9]])))
>>> messages = scheme.describe(row_changes([0], [7], [[0, 0, 0]], [[1, 5, 4]]), seq=1)
>>> [MessageKind(kind).name for kind in messages.kind.tolist()], messages.row.tolist()
(['ROW', 'EXPOSE'], [7, 1])
>>> [messages.received_by(slot, scheme.point(slot)).tolist() for slot in (0, 1)]
[[0, 1], []]

J08, sections 3 and 4. Regions and corner cases differ where the paper resends (docs/papers.md).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from tocsin.model.message import GREATEST, LEAST, MessageKind, Messages, Recipients, Regions
from tocsin.reformulate._kernels import joins as kernels
from tocsin.reformulate._kernels import skylines
from tocsin.reformulate._kernels.joins import Described, RowChanges, Work
from tocsin.reformulate.base import Scheme
from tocsin.reformulate.contents import Bodies, Held, PairContents, SelectionContents, SemijoinContents
from tocsin.reformulate.relaxed import Moves, describe_moves

__all__ = [
    *("SEMIJOINS", "DescribedScheme"),
    *("EnumeratedJoins", "EnumeratedSemijoins", "JoinedRows", "RelaxedSelections", "SelectedJoinedRows"),
    *("SemijoinsByClusters", "SemijoinsByRanges", "SemijoinsByTuples", "SemijoinsFewest", "SemijoinsMerged"),
    "with_recipients",
]


ROW, GONE, EXPOSE = MessageKind.ROW, MessageKind.GONE, MessageKind.EXPOSE
SEMIJOINS = tuple((kind, side) for kind in (ROW, GONE, EXPOSE) for side in (0, 1))
"""What is sent for semijoins of both sides: kinds of messages about rows of a side."""


class DescribedScheme(Scheme):
    """Messages by a kernel that changes the tables as it goes.

    `sends`: kinds of messages, each about rows of one side.
    """

    kernel: ClassVar[Any]
    policy: ClassVar[int]

    def __init__(self, *, sends: Iterable[tuple[MessageKind, int]] = SEMIJOINS) -> None:
        super().__init__()
        self._sends = sum(1 << (kind + 4 * side) for kind, side in sends)
        self._out = _buffers(256, 1024)

    def describe(self, changes: RowChanges, seq: int) -> Messages:
        plans, begin, parts = self.plans(len(changes.row)), 0, []
        work = self._work()
        while True:
            self._out.used[:] = 0
            begin = self.kernel(plans, changes, work._replace(out=self._out), begin)
            messages, boxes = self._out.used.tolist()
            parts.append(_messages(self._out, messages, boxes, seq))
            if begin == len(changes.row):
                return Messages.concat(parts) if len(parts) > 1 else parts[0]
            if not messages:
                self._out = _buffers(2 * len(self._out.head), 2 * len(self._out.boxes))

    def _work(self) -> Work:
        longest = max(len(table.arrays.value) for table in self.storage.tables) + 2
        subscriptions = len(self.storage.ranges.low) + 2
        wide = max(longest, subscriptions)
        scratch = skylines.SkylineScratch(
            np.empty(wide, np.int64),
            np.empty(wide, np.int64),
            np.empty(wide, np.int64),
            np.empty((3, subscriptions), np.int64),
            np.empty((3, subscriptions), np.int64),
        )
        return Work(self.policy, self._sends, scratch, np.empty((3, longest), np.int64), self._out)


# -- semijoins -------------------------------------------------------------------------------------


class SemijoinsMerged(DescribedScheme):
    """Ref-SJ-Clu+: a row goes to those in whose join it is."""

    name: ClassVar[str] = "ref-sj-clu+"
    kernel: ClassVar[Any] = staticmethod(kernels.describe_semijoins)
    policy: ClassVar[int] = skylines.MERGED

    def contents(self, slot: int, bodies: Bodies) -> SemijoinContents:
        return SemijoinContents((_selected(self, 0, slot, bodies), _selected(self, 1, slot, bodies)))


class SemijoinsByTuples(SemijoinsMerged):
    name: ClassVar[str] = "ref-sj-tup"
    policy: ClassVar[int] = skylines.TUPLES


class SemijoinsByRanges(SemijoinsMerged):
    name: ClassVar[str] = "ref-sj-sub"
    policy: ClassVar[int] = skylines.RANGES


class SemijoinsByClusters(SemijoinsMerged):
    name: ClassVar[str] = "ref-sj-clu"
    policy: ClassVar[int] = skylines.CLUSTERS


class SemijoinsFewest(SemijoinsMerged):
    name: ClassVar[str] = "ref-sj-min"
    policy: ClassVar[int] = skylines.FEWEST


# -- joined rows -----------------------------------------------------------------------------------


class JoinedRows(DescribedScheme):
    """Ref-J: every joined row, whether anybody selects it or not."""

    name: ClassVar[str] = "ref-j"
    kernel: ClassVar[Any] = staticmethod(kernels.describe_joins)
    policy: ClassVar[int] = 0

    def contents(self, slot: int, bodies: Bodies) -> PairContents:
        left, right = (_selected(self, side, slot, bodies) for side in (0, 1))
        by_key: dict[int, list[int]] = {}
        for s, (key, _) in right.items():
            by_key.setdefault(key, []).append(s)
        pairs = [(r, s) for r, (key, _) in left.items() for s in by_key.get(key, ())]
        return PairContents(pairs, bodies)


class SelectedJoinedRows(JoinedRows):
    """Ref-J+: joined rows that somebody selects."""

    name: ClassVar[str] = "ref-j+"
    policy: ClassVar[int] = 1


# -- unicast ---------------------------------------------------------------------------------------


class EnumeratedSemijoins(SemijoinsMerged):
    """Enum-SJ: the server looks up who is in a message's region, and sends to each."""

    name: ClassVar[str] = "enum-sj"
    unicast: ClassVar[bool] = True

    def describe(self, changes: RowChanges, seq: int) -> Messages:
        return with_recipients(self, super().describe(changes, seq))


class EnumeratedJoins(SelectedJoinedRows):
    """Enum-J: joined rows to each who selects them."""

    name: ClassVar[str] = "enum-j"
    unicast: ClassVar[bool] = True

    def describe(self, changes: RowChanges, seq: int) -> Messages:
        return with_recipients(self, super().describe(changes, seq))


def with_recipients(scheme: Scheme, messages: Messages) -> Messages:
    """Messages with the subscriptions in their regions instead of the regions."""
    plan, boxes = scheme.plans(0)[0], messages.regions.boxes
    of = np.repeat(np.arange(len(messages)), np.diff(messages.regions.start))
    found, size = np.empty((3, 0), np.int64), 1024
    while size > found.shape[1]:
        found = np.empty((3, 2 * size), np.int64)
        seen = np.full(len(scheme.storage.ranges.low), -1, np.int64)
        size = int(kernels.find_recipients(plan, boxes, of, seen, found))
    recipients = Recipients(found[0, :size].copy(), found[2, :size].copy())
    nowhere = Regions(np.zeros(len(messages) + 1, np.int64), boxes[:0])
    return replace(messages, regions=nowhere, recipients=recipients)


# -- relaxed ---------------------------------------------------------------------------------------


class RelaxedSelections(Scheme):
    """Rel-Sel: a join is relaxed to its selections; the tables and subscriptions do not matter."""

    name: ClassVar[str] = "rel-sel"

    def describe(self, changes: RowChanges, seq: int) -> Messages:
        moves = Moves(changes.had, changes.has, changes.old_value, changes.value)
        number, step, kind, rectangle = describe_moves(moves)
        boxes = np.empty((len(number), 2, 4), np.int64)
        boxes[:] = LEAST, GREATEST, LEAST, GREATEST
        boxes[np.arange(len(number)), changes.side[number]] = rectangle
        key = np.where(kind == MessageKind.ROW, changes.key[number], changes.old_key[number])
        self._apply(changes)
        return Messages(
            *(number + seq, step, kind, changes.side[number].astype(np.int8), key, changes.row[number]),
            np.full(len(number), -1, np.int64),
            Regions(np.arange(len(number) + 1), boxes),
        )

    def _apply(self, changes: RowChanges) -> None:
        """The tables are read by new clients only."""
        for i in range(len(changes.row)):
            table = self.storage.tables[int(changes.side[i])]
            if changes.had[i]:
                table.delete(int(changes.old_key[i]), int(changes.old_value[i]), int(changes.row[i]))
            if changes.has[i]:
                table.insert(int(changes.key[i]), int(changes.value[i]), int(changes.row[i]))

    def contents(self, slot: int, bodies: Bodies) -> SelectionContents:
        return SelectionContents((_selected(self, 0, slot, bodies), _selected(self, 1, slot, bodies)))


# -- helpers ---------------------------------------------------------------------------------------


def _buffers(messages: int, boxes: int) -> Described:
    head, end = np.empty((messages, 7), np.int64), np.empty(messages, np.int64)
    return Described(head, end, np.empty((boxes, 2, 4), np.int64), np.zeros(2, np.int64))


def _messages(out: Described, messages: int, boxes: int, seq: int) -> Messages:
    head = out.head[:messages].T.copy()
    regions = Regions(np.concatenate([[0], out.end[:messages]]), out.boxes[:boxes].copy())
    kind, side = head[kernels.KIND].astype(np.int8), head[kernels.SIDE].astype(np.int8)
    ids = head[kernels.KEY], head[kernels.ROW], head[kernels.PARTNER]
    return Messages(head[kernels.CHANGE] + seq, head[kernels.STEP], kind, side, *ids, regions)


def _selected(scheme: Scheme, side: int, slot: int, bodies: Bodies) -> Held:
    """The rows of a side that a subscription selects, by id. O(n)."""
    low, high = scheme.point(slot)[side]
    key, value, row = scheme.storage.tables[side].columns()
    here = (low <= value) & (value <= high)
    both = zip(row[here].tolist(), key[here].tolist(), strict=True)
    return {row: (key, bodies[side][row]) for row, key in both}
