"""Clients of a sample of subscriptions: they apply what the network brings to their gateway.

Their contents are compared with brute force over the tables: the joined rows that a subscription selects.
Rows leave the window of R at the end of a batch. A client knows the window, so it drops them by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from tocsin.errors import TocsinError
from tocsin.lab.simulate.workload import Workload
from tocsin.model.columns import Index
from tocsin.model.message import MessageKind, Messages, Regions
from tocsin.reformulate.base import Scheme
from tocsin.reformulate.contents import Contents, PairContents

__all__ = ["SampledClients", "expected_content"]


class _Ids(Mapping[int, int]):
    """Rows whose body is their id."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __getitem__(self, row: int) -> int:
        return row

    def __iter__(self) -> Iterator[int]:
        return iter(range(self._count))

    def __len__(self) -> int:
        return self._count


class SampledClients:
    """Some subscriptions, by slot, with all they keep."""

    def __init__(self, scheme: Scheme, work: Workload, slots: Index) -> None:
        self._work = work
        self._rows = work.all_rows()
        self._bodies = {0: _Ids(len(self._rows[0])), 1: _Ids(len(work.s_key))}
        self.clients = {slot: scheme.contents(slot, self._bodies) for slot in slots.tolist()}
        self.compared = self.received = 0

    def apply(self, slot: int, messages: Messages) -> None:
        """Messages that reached the gateway of a subscription: it applies those in whose region it is."""
        mine = messages.take(np.flatnonzero(messages.regions.contain(self._work.points[slot])))
        ends = np.flatnonzero(np.diff(mine.seq, append=-1)) + 1
        begin = 0
        for end in ends.tolist():
            self.clients[slot].apply(mine.take(np.arange(begin, end)), self._bodies)
            begin = end
        self.received += len(mine)

    def expire(self, rows: Index) -> None:
        """Rows of R leave the window."""
        gone = set(rows.tolist())
        for client in self.clients.values():
            client.apply(_leaving(client, rows, gone), self._bodies)

    def compare(self, first: int, last: int) -> None:
        """Raise an error unless contents are right; R has the rows from `first` to before `last`."""
        for slot, client in self.clients.items():
            wanted = expected_content(self._work, slot, self._rows, (first, last))
            if dict(client.content()) != dict(wanted):  # faster than comparing counters
                raise TocsinError(f"the content of subscription {slot} is wrong after {last} rows")
            self.compared += 1


def expected_content(
    work: Workload, slot: int, rows: tuple[Index, Index], window: tuple[int, int]
) -> Counter[tuple[int, int]]:
    """The joined rows that a subscription selects, by brute force."""
    (a_low, a_high), (c_low, c_high) = work.points[slot].tolist()
    ids = np.arange(*window)
    left = ids[(rows[1][ids] >= a_low) & (rows[1][ids] <= a_high)]
    right = np.flatnonzero((work.s_value >= c_low) & (work.s_value <= c_high))
    one, two = np.nonzero(rows[0][left][:, None] == work.s_key[right])
    return Counter(zip(left[one].tolist(), right[two].tolist(), strict=True))


def _leaving(client: Contents, rows: Index, gone: set[int]) -> Messages:
    """What a client says to itself when rows leave the window."""
    kind, row, partner = MessageKind.GONE, rows, np.full(len(rows), -1)
    if isinstance(client, PairContents):
        pairs = np.array([pair for pair in client.pairs if pair[0] in gone], np.int64).reshape(-1, 2)
        kind, row, partner = MessageKind.PARTED, pairs[:, 0].copy(), pairs[:, 1].copy()
    zeros: NDArray[np.int64] = np.zeros(len(row), np.int64)
    small = np.zeros(len(row), np.int8)
    regions = Regions(np.zeros(len(row) + 1, np.int64), np.empty((0, 2, 4), np.int64))
    return Messages(zeros, np.arange(len(row)), small + np.int8(kind), small, zeros, row, partner, regions)
