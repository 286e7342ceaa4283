"""Multisets of values that follow changes: the least and the greatest value, and exact totals.

>>> prices = SortedCounts(np.array([5, 3, 3, 9]))
>>> prices.least(), prices.greatest()
(3, 9)
>>> prices.add(np.array([3, 9, 4]), np.array([-1, -1, 1])); prices.least(), prices.greatest()
(3, 5)
>>> prices.add(np.array([3]), np.array([-1])); prices.least()
4
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.model.columns import Index

__all__ = ["ExactTotal", "SortedCounts"]

_UNIT_EXPONENT = 1074  # every double is a multiple of 2^-1074
_MANTISSA = 53
_LOW = (1 << 32) - 1


class _SortedRun:
    """Distinct values in order, and how often each is there: 0 after all of it were removed."""

    __slots__ = ("counts", "end", "start", "values")

    def __init__(self, values: NDArray[Any], counts: Index) -> None:
        self.values, self.counts = values, counts
        self.start, self.end = 0, len(counts)  # what is there lies between

    def find(self, values: NDArray[Any]) -> tuple[Index, NDArray[np.bool_]]:
        """Where each value is, and whether it is."""
        at = np.searchsorted(self.values, values)
        known = at < len(self.values)
        known[known] = self.values[at[known]] == values[known]
        return at, known

    def change(self, at: Index, by: Index) -> None:
        self.counts[at] += by
        there = at[self.counts[at] > 0]
        if len(there):
            self.start, self.end = min(self.start, int(there.min())), max(self.end, int(there.max()) + 1)

    def least(self) -> Any:
        """The least value that is there; None if none is."""
        self.start += _zeros(self.counts[self.start : self.end])
        return self.values.item(self.start) if self.start < self.end else None

    def greatest(self) -> Any:
        self.end -= _zeros(self.counts[self.start : self.end][::-1])
        return self.values.item(self.end - 1) if self.start < self.end else None


def _zeros(counts: Index) -> int:
    """How many zeros the counts begin with."""
    begin, size = 0, 64
    while begin < len(counts):
        found = np.flatnonzero(counts[begin : begin + size])
        if len(found):
            return begin + int(found[0])
        begin, size = begin + size, 2 * size
    return len(counts)


class SortedCounts:
    """A multiset of values of one type, in sorted runs of falling sizes; each value is in one run.

    A change of n values costs O(n log N), and O(log N) merges of a value on average. The ends cost O(runs),
    and a look at the values removed there.
    """

    def __init__(self, values: NDArray[Any]) -> None:
        self._runs: list[_SortedRun] = []
        self.add(values, np.ones(len(values), np.int64))

    def add(self, values: NDArray[Any], signs: NDArray[Any]) -> None:
        """Add values where the sign is 1, remove them where it is -1; these must be there in the end."""
        if not len(values):
            return
        own, inverse = np.unique(values, return_inverse=True)
        by = np.zeros(len(own), np.int64)
        np.add.at(by, inverse, signs)
        own, by = own[by != 0], by[by != 0]
        for run in self._runs:
            at, known = run.find(own)
            run.change(at[known], by[known])
            own, by = own[~known], by[~known]
        if len(own):
            self._runs.append(_SortedRun(own, by))
            while len(self._runs) > 1 and 2 * len(self._runs[-1].values) > len(self._runs[-2].values):
                self._merge()

    def _merge(self) -> None:
        """Make the last two runs one."""
        last, before = self._runs.pop(), self._runs.pop()
        values = np.concatenate([before.values, last.values])
        counts = np.concatenate([before.counts, last.counts])
        values, counts = values[counts != 0], counts[counts != 0]
        order = np.argsort(values, kind="stable")
        self._runs.append(_SortedRun(values[order], counts[order]))

    def least(self) -> Any:
        """The least value; None if there is none."""
        return min(self._ends(_SortedRun.least), default=None)

    def greatest(self) -> Any:
        return max(self._ends(_SortedRun.greatest), default=None)

    def _ends(self, end: Any) -> Iterator[Any]:
        return (found for run in self._runs if (found := end(run)) is not None)

    def _check(self) -> None:
        """Runs are sorted, their values distinct, and no count is negative."""
        values = np.concatenate([run.values for run in self._runs]) if self._runs else np.empty(0)
        assert len(np.unique(values)) == len(values)
        for run in self._runs:
            assert np.all(run.values[1:] > run.values[:-1]) and np.all(run.counts >= 0)
            assert not run.counts[: run.start].any() and not run.counts[run.end :].any()


class ExactTotal:
    """The sum of integers, or of finite doubles in units of 2^-1074 (`rank/sums.py`), as a Python integer.

    Doubles of one exponent are added as integers, so the loop is over exponents, not over values.

    >>> total = ExactTotal()
    >>> total.add_doubles(np.array([1e308, 0.1, -1e308]), np.ones(3, np.int64))
    >>> from tocsin.rank.sums import rounded
    >>> rounded(total.units)
    0.1
    >>> total = ExactTotal()
    >>> total.add_integers(np.array([2**63 - 1, 5]), np.array([1, 1])); total.units - 2**63
    4
    """

    def __init__(self) -> None:
        self.units = 0

    def add_integers(self, values: Index, signs: NDArray[Any]) -> None:
        self.units += _summed(values, signs.astype(np.int64))

    def add_doubles(self, values: NDArray[np.float64], signs: NDArray[Any]) -> None:
        """Add finite doubles."""
        fraction, exponent = np.frexp(values)
        mantissa = np.ldexp(fraction, _MANTISSA).astype(np.int64)
        order = np.argsort(exponent, kind="stable")
        cuts = np.flatnonzero(np.diff(exponent[order])) + 1
        for some in np.split(order, cuts) if len(order) else ():
            total = _summed(mantissa[some], signs[some].astype(np.int64))
            shift = int(exponent[some[0]]) - _MANTISSA + _UNIT_EXPONENT
            self.units += total << shift if shift >= 0 else total >> -shift  # what is cut off is zeros


def _summed(values: Index, signs: Index) -> int:
    """The exact sum of signed 64-bit integers."""
    return (int(((values >> 32) * signs).sum()) << 32) + int(((values & _LOW) * signs).sum())
