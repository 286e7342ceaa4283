"""Groups of subscriptions of one signature that select by the same attributes; joins of two tables.

    changed rows ─ probe ──────► keys and attributes of the changed rows, the order of the other table
                 ─ candidates ─► (subscription, change): `CheapestPlan` for equalities, hot groups for bands
                 ─ join ───────► matches: candidates with the rows of the other table, alive and in range

Ranges are exact for their subscriptions: the family (`family.py`) verifies, between the steps, only what
ranges do not express. Candidates come in batches, and the family verifies one before the next is found: a
change may have far more candidates than matches, for example if subscriptions say only `name LIKE '%x%'`
about a table.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from tocsin.join._kernels.matches import (
    COUNT,
    DONE,
    TUPLES,
    BandPlan,
    CandidatePairs,
    Changes,
    MatchBuffer,
    PairBuffer,
    Stamps,
    ValueRanges,
    affected_pairs,
    band_matches,
    band_pairs,
    equality_matches,
)
from tocsin.join.matches import Matches, Tuples
from tocsin.join.plan_choice import CheapestPlan
from tocsin.join.signature import KeySpec, Signature
from tocsin.join.strategies.base import HotIndex, JoinStorage, Ranges, rebuild_pays
from tocsin.join.tables import JoinTable, OrderedRows, OrderSpec
from tocsin.model.columns import Index, longer

__all__ = [
    "Attributes",
    "BandGroup",
    "CandidateBatches",
    "EqualityGroup",
    "JoinGroup",
    "JoinMembers",
    "PairGroup",
    "Probe",
    "SlotDirectory",
]

MAX_CANDIDATES = 1 << 20  # of a batch; a single change may have more
Attributes = tuple[str | None, ...]  # by place
Buffer = TypeVar("Buffer", PairBuffer, MatchBuffer)


# -- subscriptions of a group ----------------------------------------------------------------------


class SlotDirectory:
    """By slot of the room: its family, its group in the family (-1: it can never match), its number in the
    group, and the projection of its answer.
    """

    def __init__(self) -> None:
        self.family: NDArray[np.int32] = np.zeros(16, np.int32)
        self.group: NDArray[np.int32] = np.zeros(16, np.int32)
        self.number: NDArray[np.int32] = np.zeros(16, np.int32)
        self.projection: NDArray[np.int32] = np.zeros(16, np.int32)

    def reserve(self, slots: Index) -> None:
        """Lengthen the arrays for slots."""
        top = int(slots.max(initial=-1)) + 1
        if top > len(self.family):
            size = max(top, 2 * len(self.family))
            self.family, self.group = longer(self.family, size), longer(self.group, size)
            self.number, self.projection = longer(self.number, size), longer(self.projection, size)


class JoinMembers:
    """Dense numbers for slots, with `low` and `high` by range and number: one range per table, one per band.

    A group's structures are as long as the group, not as the room.

    >>> members = JoinMembers(2)
    >>> members.add(np.array([70, 90]), np.array([[0, 5], [1, 1]]), np.array([[9, 9], [2, 2]])).tolist()
    [0, 1]
    >>> members.remove(np.array([0]))
    >>> members.numbers().tolist(), members.slot[1].tolist(), members.low[:, 1].tolist()
    ([1], 90, [5, 1])
    """

    def __init__(self, ranges: int) -> None:
        self.slot: Index = np.full(16, -1, np.int64)  # -1: the number is free
        self.low: Index = np.empty((ranges, 16), np.int64)
        self.high: Index = np.empty((ranges, 16), np.int64)
        self._free: list[int] = []
        self._used = 0

    def __len__(self) -> int:
        return self._used - len(self._free)

    def add(self, slots: Index, low: Index, high: Index) -> Index:
        """Number slots."""
        left = len(self._free) - min(len(slots), len(self._free))
        reused = np.array(self._free[left:], np.int64)
        del self._free[left:]
        fresh = np.arange(self._used, self._used + len(slots) - len(reused))
        self._used += len(fresh)
        if self._used > len(self.slot):
            length = max(self._used, 2 * len(self.slot))
            self.slot = longer(self.slot, length, -1)
            self.low, self.high = (
                np.stack([longer(row, length) for row in ends]) for ends in (self.low, self.high)
            )
        numbers = np.concatenate([reused, fresh])
        self.slot[numbers], self.low[:, numbers], self.high[:, numbers] = slots, low, high
        return numbers

    def remove(self, numbers: Index) -> None:
        """Free numbers."""
        self.slot[numbers] = -1
        self._free.extend(numbers.tolist())

    def numbers(self) -> Index:
        """The numbers in use."""
        return np.flatnonzero(self.slot >= 0)

    def _check(self) -> None:
        assert np.array_equal(np.sort(self._free), np.flatnonzero(self.slot[: self._used] < 0))
        assert np.all(self.slot[self._used :] < 0) and len(self.numbers()) == len(self)


class JoinGroup(ABC):
    """Subscriptions of a signature that select by the same attribute at each place."""

    def __init__(self, signature: Signature, attributes: Attributes) -> None:
        self.signature, self.attributes = signature, attributes
        self.members = JoinMembers(len(signature.tables) + len(signature.bands))

    @abstractmethod
    def add(self, slots: Index, low: Index, high: Index) -> Index:
        """Add subscriptions with ranges by place, then by band, none empty; returns their numbers."""

    @abstractmethod
    def remove(self, numbers: Index) -> None:
        """Remove subscriptions by number."""

    @abstractmethod
    def orders(self) -> list[OrderSpec]:
        """The orders of tables that it reads."""

    @abstractmethod
    def stats(self) -> dict[str, Any]:
        """Strategy and counts."""

    @abstractmethod
    def _check(self) -> None:
        """Assert the invariants."""


class CandidateBatches(Generic[Buffer]):
    """A buffer that a kernel fills until `total` items are done: enlarged while small, then handed out."""

    def __init__(self, buffer: Buffer, total: int, reuse: bool = False) -> None:
        self.buffer: Buffer = buffer
        self._total, self._reuse = total, reuse  # reuse: a batch is used up before the next one is filled

    @property
    def unfinished(self) -> bool:
        return bool(self.buffer.progress[DONE] < self._total)

    def filled(self) -> Buffer | None:
        """A batch: all that is left, or at least MAX_CANDIDATES; None if a larger buffer is needed."""
        batch = self.buffer
        make: Any = type(batch)._make
        columns: list[Index] = list(batch[:-1])
        progress = batch.progress
        if self.unfinished and progress[COUNT] < MAX_CANDIDATES:
            self.buffer = make([*(longer(column, 2 * len(column)) for column in columns), progress])
            return None
        if self.unfinished:
            if not self._reuse:
                columns = [np.empty_like(column) for column in columns]
            self.buffer = make([*columns, np.where(np.arange(len(progress)) == DONE, progress, 0)])
        return batch


# -- joins of two tables ---------------------------------------------------------------------------


class Probe(NamedTuple):
    """Changed rows of one table that may join rows of the other."""

    origin: int  # place of the changed table
    rows: Index
    sign: NDArray[np.int8]
    changes: Changes  # keys, attributes and positions of these rows
    other: JoinTable
    order: OrderedRows  # of the other table
    plan: Any  # arrays of the strategy


class PairGroup(JoinGroup):
    """Subscriptions over two tables."""

    keys: tuple[KeySpec, KeySpec]  # by place
    find_pairs: ClassVar[Any]  # kernel (plan, order, changes, most, out)

    def add(self, slots: Index, low: Index, high: Index) -> Index:
        numbers = self.members.add(slots, low, high)
        self._index(numbers, low, high)
        return numbers

    def remove(self, numbers: Index) -> None:
        self.members.remove(numbers)
        self._unindex(numbers)

    def orders(self) -> list[OrderSpec]:
        return [OrderSpec(self.signature.tables[p], self.keys[p], self.attributes[p]) for p in (0, 1)]

    def probe(self, origin: int, tables: Sequence[JoinTable]) -> Probe:
        """The rows inserted and deleted at a place, if they have a key and an attribute."""
        mine, other = tables[origin], tables[1 - origin]
        signed = mine.signed
        keys, values = mine.codes(self.keys[origin]), mine.codes(self.attributes[origin])
        chosen = np.flatnonzero(keys.valid[signed.slot] & values.valid[signed.slot])
        rows = signed.slot[chosen]
        changes = Changes(keys.code[rows], values.code[rows], signed.position[chosen], origin == 1)
        order = other.order(self.keys[1 - origin], self.attributes[1 - origin])
        return Probe(origin, rows, signed.sign[chosen], changes, other, order, self._plan(origin, order))

    def candidates(self, probe: Probe) -> Iterator[CandidatePairs]:
        """Pairs (query, change) by change; a batch is valid until the next."""
        most = len(self.members.slot) + 1
        size = most + min(1024 + 4 * len(probe.rows), MAX_CANDIDATES)
        buffer = PairBuffer(np.empty(size, np.int64), np.empty(size, np.int64), np.zeros(2, np.int64))
        batches = CandidateBatches(buffer, len(probe.rows), reuse=True)
        while batches.unfinished:
            self.find_pairs(probe.plan, probe.order.arrays, probe.changes, most, batches.buffer)
            if (found := batches.filled()) is not None:
                count = int(found.progress[COUNT])
                yield CandidatePairs(found.first[:count], found.second[:count])

    def join(self, probe: Probe, pairs: CandidatePairs) -> Iterator[Matches]:
        """Matches: every pair with the rows of the other table, in batches."""
        size = 1024 + min(2 * len(pairs.query), MAX_CANDIDATES)
        columns = [np.empty(size, np.int64) for _ in range(4)]
        batches = CandidateBatches(MatchBuffer._make([*columns, np.zeros(3, np.int64)]), len(pairs.query))
        stamps = probe.other.stamps(len(probe.rows))
        while batches.unfinished:
            self._join(probe, pairs, stamps, batches.buffer)
            if (found := batches.filled()) is not None:
                count, size = int(found.progress[COUNT]), int(found.progress[TUPLES])
                change = found.change[:size]
                joined = probe.rows[change], found.row[:size]
                by_place = joined if probe.origin == 0 else joined[::-1]
                tuples = Tuples(by_place, probe.changes.position[change], probe.sign[change])
                yield Matches(self.members.slot[found.query[:count]], found.tuple[:count], tuples)
                stamps = probe.other.stamps(len(probe.rows))

    def _ranges(self, place: int) -> ValueRanges:
        return ValueRanges(self.members.low[place], self.members.high[place])

    @abstractmethod
    def _plan(self, origin: int, order: OrderedRows) -> Any:
        """The arrays that kernels read for changes at a place."""

    @abstractmethod
    def _join(self, probe: Probe, pairs: CandidatePairs, stamps: Stamps, found: MatchBuffer) -> None:
        """Fill the buffer with matches."""

    @abstractmethod
    def _index(self, numbers: Index, low: Index, high: Index) -> None: ...

    @abstractmethod
    def _unindex(self, numbers: Index) -> None: ...

    def _check(self) -> None:
        self.members._check()


class EqualityGroup(PairGroup):
    """Equal keys; `CheapestPlan` chooses the strategy for each changed row."""

    find_pairs: ClassVar[Any] = staticmethod(affected_pairs)

    def __init__(self, signature: Signature, attributes: Attributes) -> None:
        super().__init__(signature, attributes)
        self.keys = signature.edges[0].keys
        self.storage = JoinStorage()
        self.strategy = CheapestPlan(self.storage)

    def _plan(self, origin: int, order: OrderedRows) -> Any:
        mine = self.storage.tables[origin]
        self.storage.tables = (mine, order) if origin == 0 else (order, mine)
        return self.strategy.plan(origin)

    def _join(self, probe: Probe, pairs: CandidatePairs, stamps: Stamps, found: MatchBuffer) -> None:
        order, lifetimes, ranges = probe.order.arrays, probe.other.lifetimes(), self._ranges(1 - probe.origin)
        equality_matches(order, lifetimes, probe.changes, ranges, pairs, stamps, found)

    def _index(self, numbers: Index, low: Index, high: Index) -> None:
        self.strategy.add(numbers, Ranges(low[1], high[1], low[0], high[0]))

    def _unindex(self, numbers: Index) -> None:
        self.strategy.remove(numbers)

    def stats(self) -> dict[str, Any]:
        return self.strategy.stats()

    def _check(self) -> None:
        super()._check()
        self.strategy._check()
        assert len(self.strategy) == len(self.members)


class BandGroup(PairGroup):
    """Bands without an equality: hot groups of differences, scattered queries by their own range."""

    find_pairs: ClassVar[Any] = staticmethod(band_pairs)

    def __init__(self, signature: Signature, attributes: Attributes) -> None:
        super().__init__(signature, attributes)
        self.band = signature.bands[0]
        self.keys = self.band.keys if self.band.places == (0, 1) else self.band.keys[::-1]
        self.hot = HotIndex()

    def _plan(self, origin: int, order: OrderedRows) -> BandPlan:
        low, high = self.members.low[2], self.members.high[2]
        scratch = np.empty(len(self.members.slot) + 1, np.int64)
        indexes = self.hot.sets[origin].index.arrays, self.hot.scattered[origin].arrays
        return BandPlan(*indexes, low, high, scratch, self.band.double, origin == self.band.places[1])

    def _join(self, probe: Probe, pairs: CandidatePairs, stamps: Stamps, found: MatchBuffer) -> None:
        order, lifetimes, ranges = probe.order.arrays, probe.other.lifetimes(), self._ranges(1 - probe.origin)
        band_matches(probe.plan, order, lifetimes, probe.changes, ranges, pairs, stamps, found)

    def _index(self, numbers: Index, low: Index, high: Index) -> None:
        if rebuild_pays(len(numbers), len(self.members)):
            self._rebuild()
        else:
            self.hot.add(numbers, _by_side(low, high))

    def _unindex(self, numbers: Index) -> None:
        if rebuild_pays(len(numbers), len(self.members)):
            self._rebuild()
        else:
            self.hot.remove(numbers)

    def _rebuild(self) -> None:
        numbers = self.members.numbers()
        self.hot = HotIndex()
        self.hot.add(numbers, _by_side(self.members.low[:, numbers], self.members.high[:, numbers]))

    def stats(self) -> dict[str, Any]:
        return {"strategy": "hotspot", "queries": len(self.members), "hot_groups": self.hot.hot_groups()}

    def _check(self) -> None:
        super()._check()
        self.hot._check(len(self.members))


def _by_side(low: Index, high: Index) -> tuple[Ranges, Ranges]:
    """The difference and the own range, for changes at place 0 and at place 1."""
    return Ranges(low[2], high[2], low[0], high[0]), Ranges(low[2], high[2], low[1], high[1])
