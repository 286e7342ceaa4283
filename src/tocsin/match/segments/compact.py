"""Sifting: a segment without what was removed from it.

Building a segment anew takes long: ends are sorted, ranked, every conjunction is placed. To leave some
conjunctions out, nothing of that is needed. They keep their order, so every place in a list becomes the
number of those kept before it:

    conjunctions    a b c d e      kept  a . c . e        before  0 1 1 2 2 3
    a list          from 1 to 4    is now from 1 to 2

Cuts, dimensions and pairs that nobody uses any more stay; when they are many (`is_hollow`), it is better to
build anew.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tocsin.match.build.assemble import tops
from tocsin.match.segments.immutable import Arrays, Bits, Checks, Lists, Segment
from tocsin.model.columns import Index, Mask, sliced

__all__ = ["is_hollow", "sifted"]


def is_hollow(segment: Segment, kept: Index) -> bool:
    """Would more be left of cuts than half of them being ends of the kept conjunctions?"""
    start = segment.arrays.checks.start
    return 2 * int((start[kept + 1] - start[kept]).sum()) < len(segment.cuts)


def sifted(segment: Segment, kept: Index, every: NDArray[np.int32]) -> Segment:
    """The segment of some of its conjunctions, in ascending order, and of these slots that always match."""
    count = segment.size
    stays = np.zeros(count, np.bool_)
    stays[kept] = True
    before = np.concatenate([[0], np.cumsum(stays)])
    a = segment.arrays
    last = a.values.first + len(a.values.sieve)
    values = a.values._replace(
        start=before[a.values.start].astype(np.int32),
        sieve=a.values.sieve[stays[a.values.first : last]],
        first=int(before[a.values.first]),
    )
    target = a.shared.target
    held = stays[target]
    shared = _lists(a.shared, held, np.concatenate([[0], np.cumsum(held)]))
    arrays = Arrays(
        _checks(a.checks, kept),
        _lists(a.direct, stays, before),
        _lists(a.checked, stays, before),
        shared._replace(target=before[target[held]].astype(np.int32)),
        a.pairs._replace(start=before[a.pairs.start].astype(np.int32)),
        values,
        before[a.always],
        a.width,
    )
    share = len(kept) / max(1, count)
    expected = {path: cost * share for path, cost in segment.expected.items()}
    for path, fixed in segment.fixed.items():
        expected[path] += (1.0 - share) * fixed
    bits = _bits(segment.bits, stays, before)
    return replace(segment, arrays=arrays, bits=bits, every=every, expected=expected)


def _checks(checks: Checks, kept: Index) -> Checks:
    start, test = sliced(checks.start[kept], checks.start[kept + 1] - checks.start[kept])
    flags = checks.flags[test] if len(checks.flags) else checks.flags
    return Checks(checks.slot[kept], start, checks.dim[test], checks.low[test], checks.high[test], flags)


def _lists(lists: Lists, stays: Mask, before: Index) -> Lists:
    """Lists of entries of which some stay."""
    if not len(lists.at):
        return lists
    two = stays[lists.base : lists.base + len(lists.low)]
    low, high = lists.low[two], lists.high[two]
    at, ends = before[lists.at].astype(np.int32), before[lists.ends].astype(np.int32)
    return Lists(at, ends, int(before[lists.base]), low, high, tops(high), lists.target)


def _bits(bits: Bits, stays: Mask, before: Index) -> Bits:
    count = len(bits.start) - 1
    kept = np.flatnonzero(stays[bits.first : bits.first + count])
    start, test = sliced(bits.start[:-1][kept].astype(np.int64), np.diff(bits.start)[kept].astype(np.int64))
    return bits._replace(
        start=start.astype(np.int32),
        below=bits.below[test],
        upto=bits.upto[test],
        sure=bits.sure[kept],
        first=int(before[bits.first]),
    )
