"""Phase 1 of the two-phase algorithms: distinct predicates, each found and evaluated once per event.

    hash      (group, low, high) -> predicate; an equality is looked up there by its value
    sorted    per dimension three lists of predicates, one after the other:

        start   3d            3d + 1         3d + 2
                AT_MOST       AT_LEAST       the rest (PRESENT, OUTSIDE)
                by operand    by operand     asked one by one

A predicate's group is 8 * dimension + kind.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = [
    "ABSENTS",
    "AT_LEAST",
    "AT_MOST",
    "EQUAL",
    "OUTSIDE",
    "PRESENT",
    "PredicateArrays",
    "SortedArrays",
    "find",
    "in_order",
    "look_up",
    "mix",
    "new_bits",
    "number",
    "refill",
    "renumber",
    "satisfied",
    "splice",
]

EQUAL, AT_MOST, AT_LEAST, PRESENT, OUTSIDE, ABSENTS = 0, 1, 2, 3, 4, 5


class PredicateArrays(NamedTuple):
    """By predicate, with room to grow; `hashed` holds predicates by hash, -1 where there is none."""

    group: NDArray[np.int64]
    low: NDArray[np.int64]
    high: NDArray[np.int64]
    uses: NDArray[np.int32]  # conjunctions that have it
    hashed: NDArray[np.int32]


class SortedArrays(NamedTuple):
    """All predicates but equalities, by dimension; see the picture above."""

    start: NDArray[np.int64]
    operand: NDArray[np.int64]
    predicate: NDArray[np.int32]
    absent: NDArray[np.int32]  # the ABSENT predicates of all dimensions


@njit(cache=True, nogil=True)
def mix(h, x):
    """One more number into a hash."""
    h = (np.uint64(h) ^ np.uint64(x)) * np.uint64(0x9E3779B97F4A7C15)
    return h ^ (h >> np.uint64(29))


@njit(cache=True, nogil=True)
def find(p, group, low, high):
    """The predicate's number, or -1 - (its free place in the hash)."""
    mask = np.int64(len(p.hashed) - 1)
    i = np.int64(mix(mix(np.uint64(group), low), high) >> np.uint64(20)) & mask
    while p.hashed[i] >= 0:
        q = p.hashed[i]
        if p.low[q] == low and p.group[q] == group and p.high[q] == high:
            return np.int64(q)
        i = (i + 1) & mask
    return -1 - i


@njit(cache=True, nogil=True)
def number(p, tests, counts, free, made):
    """Number the new ones among tests (group, low, high), from counts[0] on; stops when there is no room.

    `counts`: tests done, predicates used, free numbers left, numbers made.
    """
    group, low, high = tests
    for i in range(counts[0], len(group)):
        q = find(p, group[i], low[i], high[i])
        if q < 0:
            if 2 * (counts[1] + 1) > len(p.hashed) or counts[1] == len(p.group):
                return
            place = -1 - q
            if counts[2]:
                counts[2] -= 1
                q = np.int64(free[counts[2]])
            else:
                q = counts[1]
                counts[1] += 1
            p.hashed[place] = q
            p.group[q], p.low[q], p.high[q], p.uses[q] = group[i], low[i], high[i], 0
            made[counts[3]] = q
            counts[3] += 1
        counts[0] = i + 1


@njit(cache=True, nogil=True)
def in_order(group, operand):
    """The order by group and operand."""
    order = np.argsort(group, kind="mergesort")
    first = 0
    for i in range(1, len(order) + 1):
        if i == len(order) or group[order[i]] != group[order[first]]:
            if i - first > 1:
                own = order[first:i].copy()
                order[first:i] = own[np.argsort(operand[own], kind="mergesort")]
            first = i
    return order


@njit(cache=True, nogil=True)
def renumber(p, made, order):
    """Give made numbers (ascending) to their predicates in order, so that neighbours lie side by side."""
    n = len(made)
    place = np.empty(n, np.int64)
    mask = np.int64(len(p.hashed) - 1)
    for k in range(n):
        q = made[k]
        i = np.int64(mix(mix(np.uint64(p.group[q]), p.low[q]), p.high[q]) >> np.uint64(20)) & mask
        while p.hashed[i] != q:
            i = (i + 1) & mask
        place[k] = i
    group, low, high = p.group[made], p.low[made], p.high[made]
    for k in range(n):
        j, q = order[k], made[k]
        p.group[q], p.low[q], p.high[q] = group[j], low[j], high[j]
        p.hashed[place[j]] = q


@njit(cache=True, nogil=True)
def look_up(p, tests):
    """The numbers of predicates that are known."""
    group, low, high = tests
    out = np.empty(len(group), np.int32)
    for i in range(len(group)):
        out[i] = find(p, group[i], low[i], high[i])
    return out


@njit(cache=True, nogil=True)
def refill(p, used):
    """Hash all predicates afresh; free numbers have no group."""
    p.hashed[:] = -1
    for q in range(used):
        if p.group[q] >= 0:
            i = find(p, p.group[q], p.low[q], p.high[q])
            if i < 0:
                p.hashed[-1 - i] = q


@njit(cache=True, nogil=True)
def splice(p, old, first, operand, fresh, drop):
    """Merge fresh predicates in (sorted, list g from first[g] on); those without use go if asked."""
    lists = len(first) - 1
    total = len(old.predicate) + len(fresh)
    start = np.zeros(lists + 1, np.int64)
    operands, predicates, n = np.empty(total, np.int64), np.empty(total, np.int32), 0
    for g in range(lists):
        i, last = np.int64(0), np.int64(0)
        if g < len(old.start) - 1:
            i, last = old.start[g], old.start[g + 1]
        j = first[g]
        while i < last or j < first[g + 1]:
            if j == first[g + 1] or (i < last and old.operand[i] <= operand[j]):
                x, q = old.operand[i], old.predicate[i]
                i += 1
            else:
                x, q = operand[j], fresh[j]
                j += 1
            if not drop or p.uses[q]:
                operands[n], predicates[n] = x, q
                n += 1
        start[g + 1] = n
    return start, operands[:n].copy(), predicates[:n].copy()


@njit(cache=True, nogil=True)
def new_bits(p, events):
    """Room for the answers of phase 1: bits and list of satisfied predicates, and dimensions there."""
    n = len(p.group)
    return np.zeros(n, np.uint8), np.empty(n, np.int32), np.zeros(events.dims, np.int64)


@njit(cache=True, nogil=True)
def satisfied(p, index, events, e, room):
    """Set the bits of all predicates that event e satisfies and list them; equalities come first.

    Returns how many of them are equalities, and how many there are.
    """
    bits, out, there = room
    n = 0
    first, last = events.start[e], events.start[e + 1]
    for i in range(first, last):
        q = find(p, 8 * np.int64(events.dim[i]), events.code[i], events.code[i])
        if q >= 0:
            out[n] = q
            n += 1
    equal = n
    for i in range(first, last):
        g = 3 * np.int64(events.dim[i])
        if g + 3 >= len(index.start):
            continue
        x = events.code[i]
        a, b, c, d = index.start[g], index.start[g + 1], index.start[g + 2], index.start[g + 3]
        if b > a:
            for j in range(a + np.searchsorted(index.operand[a:b], x), b):
                out[n] = index.predicate[j]
                n += 1
        if c > b:
            for j in range(b, b + np.searchsorted(index.operand[b:c], x, side="right")):
                out[n] = index.predicate[j]
                n += 1
        for j in range(c, d):
            q = index.predicate[j]
            if p.group[q] & 7 == PRESENT or x < p.low[q] or x > p.high[q]:
                out[n] = q
                n += 1
    if len(index.absent):
        for i in range(first, last):
            there[events.dim[i]] = e + 1
        for q in index.absent:
            dim = p.group[q] >> 3
            if dim >= len(there) or there[dim] != e + 1:
                out[n] = q
                n += 1
    for j in range(n):
        bits[out[j]] = 1
    return equal, n
