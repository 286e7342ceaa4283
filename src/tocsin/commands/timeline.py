"""Counts of moments in bounded memory, and bins for a histogram.

Moments are whole numbers: microseconds since 1970, or the numbers of events. A `Timeline` counts them per
unit of time, and stores the first and last moment of each unit. When there are too many units, it merges
them into the next coarser unit. So memory is bounded, moments may come in any order, and yet

- bins are exact, because a bin is always many units wide and begins where a unit begins;
- a quiet gap longer than a unit is exact, because it ends and begins at stored moments.

>>> line = Timeline(NUMBERS)
>>> line.add(np.array([3, 4, 40, 4]))
>>> line.count, line.first, line.last, line.longest_gap(0, 50)
(4, 3, 40, (4, 40))
>>> [(bin.label, bin.total) for bin in bins(line, 0, 49, 5)]
[('0', 3), ('10', 0), ('20', 0), ('30', 0), ('40', 1)]
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import numpy as np

from tocsin.model.columns import Index

__all__ = ["MOST_BINS", "NUMBERS", "TIMES", "Axis", "Bin", "Timeline", "bins", "label"]

MOST_BINS = 200
MOST_UNITS = 16_384  # above 60 times MOST_BINS, so that no unit is wider than a bin

_SECOND, _DAY = 1_000_000, 86_400_000_000
_MINUTE, _HOUR, _WEEK = 60 * _SECOND, 3600 * _SECOND, 7 * _DAY
_YEARS = 1970 * 12  # months before 1970
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Axis(NamedTuple):
    """Units from fine to coarse, each dividing the next, and the widths that bins may have."""

    units: tuple[int, ...]
    widths: tuple[int, ...]
    months: tuple[int, ...] = ()  # larger widths, in months
    least: int = -(2**63)  # the first possible moment


NUMBERS = Axis(tuple(10**k for k in range(18)), tuple(m * 10**k for k in range(18) for m in (1, 2, 5)))
TIMES = Axis(
    (*(10**k for k in range(7)), 10 * _SECOND, _MINUTE, 10 * _MINUTE, _HOUR, _DAY),
    (
        *(m * 10**k for k in range(6) for m in (1, 2, 5)),
        *(n * _SECOND for n in (1, 5, 15, 30)),
        *(n * _MINUTE for n in (1, 5, 10, 15, 30)),
        *(n * _HOUR for n in (1, 2, 3, 6, 12)),
        *(n * _DAY for n in (1, 2, 7, 14)),
    ),
    (1, 3, 12, 24, 60, 120, 240, 600, *range(1200, 120_001, 1200)),  # from a century on, whole centuries
    -719_162 * _DAY,  # 0001-01-01
)


class Bin(NamedTuple):
    """The count of moments from `start` to the next bin."""

    start: int
    label: str
    total: int


class Timeline:
    """Counts of moments, per unit of an axis."""

    def __init__(self, axis: Axis) -> None:
        self.axis = axis
        self._level = 0
        self._unit: Index = np.empty(0, np.int64)  # ascending; a moment // the width of a unit
        self._counts: Index = np.empty(0, np.int64)
        self._low: Index = np.empty(0, np.int64)
        self._high: Index = np.empty(0, np.int64)

    @property
    def count(self) -> int:
        return int(self._counts.sum())

    @property
    def first(self) -> int | None:
        return int(self._low[0]) if len(self._low) else None

    @property
    def last(self) -> int | None:
        return int(self._high[-1]) if len(self._high) else None

    def add(self, moments: Index) -> None:
        """Count moments. O(n log n) for n moments and units."""
        self._merge(
            np.concatenate([self._unit, moments // self.axis.units[self._level]]),
            np.concatenate([self._counts, np.ones(len(moments), np.int64)]),
            np.concatenate([self._low, moments]),
            np.concatenate([self._high, moments]),
        )
        while len(self._unit) > MOST_UNITS and self._level + 1 < len(self.axis.units):
            step = self.axis.units[self._level + 1] // self.axis.units[self._level]
            self._level += 1
            self._merge(self._unit // step, self._counts, self._low, self._high)

    def longest_gap(self, start: int, end: int) -> tuple[int, int]:
        """The longest stretch without a moment between `start` and `end`: from when, until when."""
        ends = np.concatenate([[start], self._high])
        begins = np.concatenate([self._low, [end]])
        widest = int(np.argmax(begins - ends))
        return int(ends[widest]), int(begins[widest])

    def starts(self) -> tuple[Index, Index]:
        """The beginning of each unit that has moments, and their number."""
        return self._unit * self.axis.units[self._level], self._counts

    def _merge(self, unit: Index, counts: Index, low: Index, high: Index) -> None:
        order = np.argsort(unit, kind="stable")
        unit = unit[order]
        fresh = np.ones(len(unit), np.bool_)
        fresh[1:] = unit[1:] != unit[:-1]
        at = np.flatnonzero(fresh)
        if not len(at):
            return
        self._unit = unit[at]
        self._counts = np.add.reduceat(counts[order], at)
        self._low = np.minimum.reduceat(low[order], at)
        self._high = np.maximum.reduceat(high[order], at)

    def _check(self) -> None:
        width = self.axis.units[self._level]
        assert np.all(self._unit[1:] > self._unit[:-1]), "units ascend"
        assert np.all(self._low <= self._high)
        assert np.all(self._low // width == self._unit) and np.all(self._high // width == self._unit)


def bins(line: Timeline, start: int, end: int, most: int) -> list[Bin]:
    """At most `most` bins of a round width that cover `start` to `end`, empty ones too.

    Days begin at midnight (UTC), weeks on Monday; above a fortnight, bins are whole months or years.
    """
    edges, width = _edges(line.axis, start, end, most)
    moments, counts = line.starts()
    totals = np.zeros(len(edges), np.int64)
    np.add.at(totals, np.maximum(np.searchsorted(edges, moments, side="right") - 1, 0), counts)
    shown = edges.tolist()
    return [Bin(at, label(line.axis, at, width), n) for at, n in zip(shown, totals.tolist(), strict=True)]


def _edges(axis: Axis, start: int, end: int, most: int) -> tuple[Index, int]:
    """The starts of bins, and their width."""
    if most == 1:  # maybe no round width covers both ends
        return np.array([start]), 1
    for width in axis.widths:
        shift = 4 * _DAY if axis is TIMES and width % _WEEK == 0 else 0  # 1970 began on a Thursday
        first, last = (start - shift) // width, (end - shift) // width
        if last - first < most:
            return np.maximum(np.arange(first, last + 1) * width + shift, axis.least), width
    low, high = _month(start), _month(end)
    months = next(m for m in axis.months if high // m - low // m < most)
    numbers = np.arange(low // months, high // months + 1) * months - _YEARS
    edges = numbers.astype("datetime64[M]").astype("datetime64[us]").astype(np.int64)
    return np.maximum(edges, axis.least), months * 28 * _DAY


def _month(moment: int) -> int:
    """Months since the year 0, so that centuries begin with round years."""
    return int(np.datetime64(moment, "us").astype("datetime64[M]").astype(np.int64)) + _YEARS


def label(axis: Axis, moment: int, width: int = 1) -> str:
    """A moment as text, as precise as bins of that width need.

    >>> [label(TIMES, 1_356_998_400_000_000, width) for width in (1, 10**6, 60 * 10**6, 86_400 * 10**6)]
    ['2013-01-01 00:00:00.000000', '2013-01-01 00:00:00', '2013-01-01 00:00', '2013-01-01']
    """
    if axis is not TIMES:
        return f"{moment:,}"
    time = (_EPOCH + timedelta(microseconds=moment)).isoformat(" ")[:26].removesuffix("+00:00")
    if width >= 28 * _DAY:
        return time[:4] if width >= 12 * 28 * _DAY else time[:7]
    if width >= _DAY:
        return time[:10]
    if width >= _MINUTE:
        return time[:16]
    return time[:19] if width >= _SECOND else f"{time[:19]}{time[19:] or '.000000'}"
