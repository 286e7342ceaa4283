"""Retained events: the recent events of a stream, for future subscriptions.

A stream declared with RETAIN keeps each event for a while after its arrival. Matching then works in
both directions of time: an event finds the subscriptions that exist, and a new subscription finds
the events that are still valid.

    arrival    10:00    10:04    10:09              RETAIN '10 minutes', at 10:12:
    batch     [e1 e2]    [e3]   [e4 e5]             e3, e4 and e5 are valid; e1 and e2 have expired

An event that arrived at t is valid at t <= now < t + retain. A batch arrives at one time, so it
expires as a whole. Batches are in a heap by arrival: adding and expiring one of b batches costs
O(log b), even if the clock is set back. Reading is O(b log b): events come in order of arrival, with
small batches concatenated, so that matching works on columns even if events were published one by
one. The clock is not read here; the caller gives the time.

>>> from tocsin.model.columns import Vector
>>> from tocsin.model.schema import Type
>>> minute = timedelta(minutes=1)
>>> start, kept = datetime(2024, 5, 1, 10), Retained(10 * minute)
>>> for seq, at in (1, 0), (2, 4), (3, 9):
...     kept.add(start + at * minute, np.array([seq]), Rows.of(x=Vector.of(Type.BIGINT, [seq * 100])))
>>> [(seq.tolist(), rows.to_dicts()) for seq, rows in kept.events(start + 12 * minute)]
[([2, 3], [{'x': 200}, {'x': 300}])]
>>> kept.last(start + 12 * minute, 1)
[{'x': 300}]
>>> kept.expire(start + 12 * minute)
>>> kept.count
2

Fabret et al. (F01), motivation: a new subscription is evaluated against the events still valid.
Unlike there, every event of a stream is valid equally long, so nothing but time decides.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from heapq import heappop, heappush, nlargest
from itertools import count, groupby, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.model.columns import EventSource, Index, Rows, SparseRows, TypedEntries, Vector
from tocsin.model.schema import Type

__all__ = ["Retained", "joined", "layout"]

# Bytes, about: a Python str besides its characters, an array besides its values, a batch besides its arrays.
_TEXT, _ARRAY, _BATCH = 50, 112, 800
_MAX_RUN = 4096  # at most so many events of small batches are concatenated


@dataclass(frozen=True, order=True, slots=True)
class _RetainedBatch:
    """Events that arrived together; `number` counts arrivals, since the clock may be set back."""

    when: datetime
    number: int
    seq: Index = field(compare=False)
    rows: Rows = field(compare=False)
    nbytes: int = field(compare=False)


class Retained:
    """The recent events of one stream, each kept for `retain` after its arrival."""

    def __init__(self, retain: timedelta) -> None:
        if retain <= timedelta(0):
            raise ValueError(f"events are retained for a positive time, not {retain}")
        self.retain = retain
        self.count = 0
        self.nbytes = 0  # an estimate; text that several events share counts for each
        self._heap: list[_RetainedBatch] = []
        self._numbers = count()

    def add(self, when: datetime, seq: Index, rows: Rows) -> None:
        """Keep a copy of the events of a batch that arrived at `when`.

        A copy, because the caller's arrays may be reused or be a window on a far larger batch.
        """
        if len(seq) != len(rows):
            raise ValueError(f"{len(rows)} events come with {len(seq)} sequence numbers")
        if not len(rows):
            return
        own = _rebuilt(rows, np.copy)
        size = _BATCH + _ARRAY + seq.nbytes + _nbytes(own)
        batch = _RetainedBatch(when, next(self._numbers), np.copy(seq), own, size)
        heappush(self._heap, batch)
        self.count += len(batch.seq)
        self.nbytes += batch.nbytes

    def expire(self, now: datetime) -> None:
        """Drop events that are no longer valid."""
        while self._heap and now - self._heap[0].when >= self.retain:
            expired = heappop(self._heap)
            self.count -= len(expired.seq)
            self.nbytes -= expired.nbytes

    def events(self, now: datetime) -> list[tuple[Index, Rows]]:
        """Sequence numbers and rows of the events valid now, in order of arrival.

        The rows are new objects around the same arrays, so whatever is cached in them is not kept here.
        """
        valid = self._valid(now)
        return [
            (np.concatenate([batch.seq for batch in run]), joined([batch.rows for batch in run]))
            for run in _runs(valid)
        ]

    def arrivals(self, now: datetime) -> list[tuple[datetime, Index, Rows]]:
        """The events valid now, by batch: when it arrived, sequence numbers and rows, in order of arrival."""
        return [(batch.when, batch.seq, _rebuilt(batch.rows)) for batch in self._valid(now)]

    def last(self, now: datetime, limit: int) -> list[dict[str, Any]]:
        """The last events that are valid now, the latest first."""
        batches = nlargest(limit, self._heap, key=lambda batch: batch.number)
        valid = (batch for batch in batches if timedelta(0) <= now - batch.when < self.retain)
        events = (row for batch in valid for row in reversed(_rebuilt(batch.rows).to_dicts()))
        return list(islice(events, limit))

    def _valid(self, now: datetime) -> list[_RetainedBatch]:
        zero = timedelta(0)
        valid = [batch for batch in self._heap if zero <= now - batch.when < self.retain]
        return sorted(valid, key=lambda batch: batch.number)

    def _check(self) -> None:
        """The heap is in order, no batch is empty, and the totals are right."""
        for i, batch in enumerate(self._heap[1:], 1):
            assert self._heap[(i - 1) // 2] < batch, "a batch is before one that arrived earlier"
        assert all(len(batch.seq) == len(batch.rows) > 0 for batch in self._heap)
        assert self.count == sum(len(batch.seq) for batch in self._heap)
        assert self.nbytes == sum(batch.nbytes for batch in self._heap)


Arrays = Callable[[NDArray[Any]], NDArray[Any]]


def _rebuilt(rows: Rows, made: Arrays = lambda array: array) -> Rows:
    """New rows around the same arrays, or copies of them, without cached values."""
    if isinstance(rows, SparseRows):
        parts = [
            TypedEntries(made(p.event), made(p.rank), made(p.name), _vector(p.vector, made))
            for p in rows.parts
        ]
        return SparseRows(parts, rows.names, len(rows), rows.source)
    columns = [(name, _vector(vector, made)) for name, vector in rows.columns]
    return Rows(columns, len(rows), sparse=rows.sparse)


def _runs(batches: Sequence[_RetainedBatch]) -> Iterator[list[_RetainedBatch]]:
    """Neighbours to concatenate: of the same columns, and not too many events."""
    for _, alike in groupby(batches, lambda batch: layout(batch.rows)):
        run, total = list[_RetainedBatch](), 0
        for batch in alike:
            if run and total + len(batch.seq) > _MAX_RUN:
                yield run
                run, total = [], 0
            run.append(batch)
            total += len(batch.seq)
        yield run


def layout(rows: Rows) -> Hashable:
    """What rows have in common that can be joined."""
    return None if isinstance(rows, SparseRows) else tuple((name, v.type) for name, v in rows.columns)


def joined(several: Sequence[Rows]) -> Rows:
    """Concatenate rows of one layout."""
    first = several[0]
    if len(several) == 1:
        return _rebuilt(first)
    length = sum(map(len, several))
    if not isinstance(first, SparseRows):
        stacks = zip(*([vector for _, vector in rows.columns] for rows in several), strict=True)
        columns = [(name, _stacked(stack)) for (name, _), stack in zip(first.columns, stacks, strict=True)]
        return Rows(columns, length, sparse=first.sparse)
    sparse = [rows for rows in several if isinstance(rows, SparseRows)]
    numbers: dict[str, int] = {}
    found: dict[Type, list[TypedEntries]] = {}
    start = 0
    for rows in several:
        assert isinstance(rows, SparseRows)
        number = np.array([numbers.setdefault(name, len(numbers)) for name in rows.names], np.int32)
        for part in rows.parts:
            moved = part._replace(event=part.event + start, name=number[part.name])
            found.setdefault(part.vector.type, []).append(moved)
        start += len(rows)
    parts = []
    for same in found.values():
        events, ranks, names, vectors = zip(*same, strict=True)
        event, rank, name = (np.concatenate(arrays) for arrays in (events, ranks, names))
        parts.append(TypedEntries(event, rank, name, _stacked(vectors)))
    return SparseRows(parts, tuple(numbers), length, EventSource.joined(sparse))


def _stacked(vectors: Sequence[Vector]) -> Vector:
    values, valid = np.concatenate([v.values for v in vectors]), np.concatenate([v.valid for v in vectors])
    return Vector(vectors[0].type, values, valid)


def _vector(vector: Vector, made: Arrays) -> Vector:
    return Vector(vector.type, made(vector.values), made(vector.valid))


def _nbytes(rows: Rows) -> int:
    """Bytes of the arrays and of the text in them, about."""
    vectors = [vector for _, vector in rows.columns]
    arrays: list[NDArray[Any]] = []
    if isinstance(rows, SparseRows):
        vectors = [part.vector for part in rows.parts]
        arrays = [array for part in rows.parts for array in part[:3]]
    arrays += [array for vector in vectors for array in (vector.values, vector.valid)]
    texts = [array for array in arrays if array.dtype == object]
    return sum(_ARRAY + a.nbytes for a in arrays) + sum(_TEXT * len(a) + sum(map(len, a)) for a in texts)
