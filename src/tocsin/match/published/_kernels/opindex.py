"""Building and probing the predicate lists of OpIndex.

pivot C   | =                     | <=              | ...
segments  | {A, C}    | {B, D}    | {A, C} | {B, D} |
entries   | A=2  C=6  | B=3  B=9  | A<=8   | B<=4   |     each points to a counter of pivot C
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from tocsin.compiled import kernel
from tocsin.match._kernels.scan import clear_table, fill_table, grown, new_table
from tocsin.predicate.flat import ABSENT, NEGATED, OR_NEXT

__all__ = [
    "OPERATORS",
    "WITHIN",
    "WORD",
    "OpLists",
    "clear_bits",
    "count_clauses",
    "count_down",
    "entries_of",
    "order_by",
    "pivot_clauses",
    "places_of",
    "set_signatures",
    "signature_bit",
]


class Operator(IntEnum):
    """A list of a pivot holds predicates of one operator; entries from WITHIN on are checked one by one."""

    EQUAL = 0
    AT_MOST = 1
    AT_LEAST = 2
    PRESENT = 3
    WITHIN = 4
    OUTSIDE = 5
    ABSENCE = 6


EQUAL, AT_MOST, AT_LEAST, PRESENT, WITHIN, OUTSIDE, ABSENCE = map(int, Operator)
OPERATORS = len(Operator)
PIVOT, OPERATOR, FIRST, LAST, VALUE = range(5)  # columns of the ranges that `_find` returns
WORD = 63  # clauses per word of a bitmap; the last bit means removed
_LEAST, _GREATEST = -(2**63), 2**63 - 1
_ONE = np.uint64(1)


class OpLists(NamedTuple):
    """One built index. Arrays that only bitmaps, or only some operators need, may be empty."""

    pivot: Any  # by dimension, and one for conjunctions without pivot: its first list
    op: Any  # by list
    segment: Any  # by list and segment, one more at the end: its first entry
    signature: Any  # by list and segment
    dim: Any  # by entry
    operand: Any
    high: Any  # the other end, for WITHIN and OUTSIDE
    counter: Any  # its number within the pivot
    bit: Any  # of the bitmap
    first: Any  # by pivot: its first counter
    start: Any  # by counter, its start value: number of predicates, or a bit for each clause
    slot: Any
    up: Any  # the head of the large bitmap that this word belongs to, within the pivot; or -1
    conjunction: Any


# -- building -----------------------------------------------------------------------------------------


@kernel
def count_clauses(conjunctions):
    """Clauses of each conjunction, and whether one has alternatives."""
    start, flags = conjunctions.start, conjunctions.flags
    count, mixed = np.zeros(len(start) - 1, np.int32), np.zeros(len(start) - 1, np.bool_)
    for c in range(len(start) - 1):
        for i in range(start[c], start[c + 1]):
            if flags[i] & OR_NEXT:
                mixed[c] = True
            else:
                count[c] += 1
    return count, mixed


@kernel
def pivot_clauses(conjunctions, frequency):
    """First and last test, and frequency, of the shortest, then rarest clause; -1 if there is none.

    A clause with an ABSENT test names no attribute that a matching event must have.
    """
    start, flags, dim = conjunctions.start, conjunctions.flags, conjunctions.dim
    count = len(start) - 1
    first, last = np.full(count, -1, np.int64), np.full(count, -1, np.int64)
    cost = np.zeros(count, np.float64)
    for c in range(count):
        i = start[c]
        while i < start[c + 1]:
            begin, usable, total = i, True, 0.0
            while True:
                usable = usable and not flags[i] & ABSENT
                total += frequency[dim[i]]
                if not flags[i] & OR_NEXT:
                    break
                i += 1
            i += 1
            size, best = i - begin, last[c] - first[c]
            if usable and (first[c] < 0 or size < best or (size == best and total < cost[c])):
                first[c], last[c], cost[c] = begin, i, total
    return first, last, cost


@kernel
def places_of(first, last, dim, none):
    """Conjunction and pivot of every place: one for each distinct dimension of the pivot clause."""
    most = len(first) + np.sum(last - first)
    conjunction, pivot, n = np.empty(most, np.int32), np.empty(most, np.int32), 0
    for c in range(len(first)):
        if first[c] < 0:
            conjunction[n], pivot[n] = c, none
            n += 1
        begin = n
        for i in range(first[c], last[c]):
            if not np.any(pivot[begin:n] == dim[i]):
                conjunction[n], pivot[n] = c, dim[i]
                n += 1
    return conjunction[:n].copy(), pivot[:n].copy()


@kernel
def order_by(key, buckets, before):
    """`before` in the order of small keys, stable (a counting sort)."""
    at = np.zeros(buckets + 1, np.int64)
    for i in range(len(key)):
        at[key[i] + 1] += 1
    at = np.cumsum(at)
    out = np.empty(len(before), before.dtype)
    for i in before:
        out[at[key[i]]] = i
        at[key[i]] += 1
    return out


@kernel
def _operator(low, high, flags):
    if flags & ABSENT:
        return ABSENCE
    if flags & NEGATED:
        return OUTSIDE
    if low == high:
        return EQUAL
    if low == _LEAST:
        return PRESENT if high == _GREATEST else AT_MOST
    return AT_LEAST if high == _GREATEST else WITHIN


@kernel
def entries_of(conjunctions, places, at, large, bitmaps):
    """List (pivot and operator), dimension, operand, other end, counter and bit of each entry; sizes.

    `at`: for each place its first counter within the pivot; `large`: does it have several words?
    Without bitmaps an interval becomes two entries, and a place's size is its entries, not its clauses.
    """
    conjunction, pivot = places
    start, flags = conjunctions.start, conjunctions.flags
    most = 2 * np.sum((start[1:] - start[:-1])[conjunction])
    key, dim = np.empty(most, np.int64), np.empty(most, np.int32)
    operand, other = np.empty(most, np.int64), np.empty(most, np.int64)
    counter, bit = np.empty(most, np.int32), np.empty(most, np.uint8)
    size, n = np.zeros(len(conjunction), np.int32), 0
    for p, c in enumerate(conjunction):
        clause = 0
        for i in range(start[c], start[c + 1]):
            low, high = conjunctions.low[i], conjunctions.high[i]
            op = _operator(low, high, flags[i])
            halves = 2 if op == WITHIN and not bitmaps else 1
            for half in range(halves):
                own = op if halves == 1 else AT_LEAST + half * (AT_MOST - AT_LEAST)
                key[n], dim[n] = pivot[p] * OPERATORS + own, conjunctions.dim[i]
                operand[n], other[n] = high if own == AT_MOST else low, high
                counter[n] = at[p] + (1 + clause // WORD if large[p] else 0)
                bit[n] = clause % WORD
                n += 1
            if not bitmaps:
                clause += halves
            elif not flags[i] & OR_NEXT:
                clause += 1
        size[p] = clause
    return key[:n], dim[:n], operand[:n], other[:n], counter[:n], bit[:n], size


@kernel
def signature_bit(dim, operand, exact):
    """A bit for a dimension, or for a dimension with an operand."""
    mixed = np.uint64(dim) * np.uint64(0x9E3779B97F4A7C15)
    if exact:
        mixed = (mixed ^ (mixed >> np.uint64(29)) ^ np.uint64(operand)) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(0x94D049BB133111EB)
    return mixed >> np.uint64(58)


@kernel
def set_signatures(lists, segments):
    for s in range(len(lists.signature)):
        exact = lists.op[s // segments] == EQUAL
        for i in range(lists.segment[s], lists.segment[s + 1]):
            lists.signature[s] |= _ONE << signature_bit(lists.dim[i], lists.operand[i], exact)


# -- matching ------------------------------------------------------------------------------------------


@kernel
def _from_dim(dim, first, last, wanted):
    """The first entry with at least this dimension, by exponential search."""
    step, end = 1, first
    while end < last and dim[end] < wanted:
        first = end + 1
        end += step
        step *= 2
    end = min(end, last)
    while first < end:
        middle = (first + end) >> 1
        if dim[middle] < wanted:
            first = middle + 1
        else:
            end = middle
    return first


@kernel
def _merge(dim, first, last, dims, k):
    """The next entry and dimension that agree: in short lists branchless steps are faster than a search."""
    while k < len(dims) and first < last and dim[first] != dims[k]:
        less = dim[first] < dims[k]
        first += less
        k += not less
    return first, k


@kernel
def _from_operand(dim, operand, first, last, wanted, value, above):
    """The first entry beyond the dimension, or in it with an operand not below (`above`: above) the value."""
    while first < last:
        middle = (first + last) >> 1
        d, x = dim[middle], operand[middle]
        if d < wanted or (d == wanted and (x < value or (above and x == value))):
            first = middle + 1
        else:
            last = middle
    return first


@kernel
def _matching(dim, operand, op, first, last, wanted, value):
    """The entries among first..last-1 that `wanted = value` satisfies (or may satisfy, from WITHIN on)."""
    i = _from_dim(dim, first, last, wanted)
    if i == last or dim[i] != wanted:
        return i, i
    if op == EQUAL:
        i = _from_operand(dim, operand, i, last, wanted, value, False)
        j = i
        while j < last and operand[j] == value and dim[j] == wanted:
            j += 1
        return i, j
    if op == AT_LEAST or op == WITHIN:
        return i, _from_operand(dim, operand, i, last, wanted, value, True)
    if op == AT_MOST:
        i = _from_operand(dim, operand, i, last, wanted, value, False)
    return i, _from_dim(dim, i, last, wanted + 1)


@kernel
def _find(lists, event, ranges, segments):
    """Steps 3 to 8 of algorithm 2: the ranges of entries that an event satisfies; see PIVOT to VALUE."""
    dims, codes, where, bit, exact = event
    pivots, ops, segment, signature = lists.pivot, lists.op, lists.segment, lists.signature
    dim, operand, none, n = lists.dim, lists.operand, len(lists.pivot) - 2, 0
    for p in range(len(dims) + 1):
        pivot = np.int64(dims[p]) if p < len(dims) else none  # last: conjunctions without pivot
        if (p < len(dims) and pivot >= none) or pivots[pivot] == pivots[pivot + 1]:
            continue
        while n + OPERATORS * (len(dims) + 1) > len(ranges):
            ranges = np.concatenate((ranges, ranges))
        for own in range(pivots[pivot], pivots[pivot + 1]):
            op, base = np.int64(ops[own]), own * segments
            first, last = np.int64(segment[base]), np.int64(segment[base + segments])
            if op == ABSENCE:
                ranges[n, PIVOT], ranges[n, OPERATOR] = pivot, op
                ranges[n, FIRST], ranges[n, LAST] = first, last
                n += 1
                continue
            k = 0
            while k < len(dims):
                if segments > 1:
                    s = base + where[k]
                    if not (signature[s] >> (exact[k] if op == EQUAL else bit[k])) & _ONE:
                        k += 1
                        continue
                    first, last = np.int64(segment[s]), np.int64(segment[s + 1])
                else:
                    if last - first < 8 * len(dims):
                        first, k = _merge(dim, first, last, dims, k)
                    if first == last or k == len(dims):
                        break
                first, end = _matching(dim, operand, op, first, last, np.int64(dims[k]), codes[k])
                if first < end:
                    ranges[n, PIVOT], ranges[n, OPERATOR], ranges[n, VALUE] = pivot, op, codes[k]
                    ranges[n, FIRST], ranges[n, LAST] = first, end
                    n += 1
                first = end  # the next dimension is further on
                k += 1
    return ranges, n


@kernel
def _pairs(events, e, segments):
    """An event's dimensions and codes, with their segments and signature bits."""
    a, b = events.start[e], events.start[e + 1]
    dims, codes = events.dim[a:b], events.code[a:b]
    size = b - a if segments > 1 else 0
    where, bit, exact = np.empty(size, np.int32), np.empty(size, np.uint64), np.empty(size, np.uint64)
    for k in range(size):
        where[k] = dims[k] % segments
        bit[k] = signature_bit(dims[k], 0, False)
        exact[k] = signature_bit(dims[k], codes[k], True)
    return dims, codes, where, bit, exact


@kernel
def _fails(op, dim, low, high, value, there):
    """Whether an entry of an operator from WITHIN on is not satisfied."""
    if op == WITHIN:
        return high < value
    if op == OUTSIDE:
        return low <= value <= high
    return there[dim]


@kernel
def count_down(lists, events, segments):
    """Algorithm 2: conjunctions whose counter reaches zero."""
    table = new_table(events.dims)
    ranges = np.zeros((256, 5), np.int64)
    left = np.empty(np.max(lists.first[1:] - lists.first[:-1]), lists.start.dtype)
    dim, operand, high, counter = lists.dim, lists.operand, lists.high, lists.counter
    out, n = np.empty(1024, np.int64), 0
    for e in range(len(events.start) - 1):
        fill_table(table, events, e)
        ranges, found = _find(lists, _pairs(events, e, segments), ranges, segments)
        pivot, base = np.int64(-1), np.int64(0)
        for r in range(found):
            if ranges[r, PIVOT] != pivot:
                pivot = ranges[r, PIVOT]
                base = lists.first[pivot]
                for c in range(lists.first[pivot + 1] - base):
                    left[c] = lists.start[base + c]
            op, value = ranges[r, OPERATOR], ranges[r, VALUE]
            out = grown(out, n, ranges[r, LAST] - ranges[r, FIRST])
            for i in range(ranges[r, FIRST], ranges[r, LAST]):
                if op >= WITHIN and _fails(op, dim[i], operand[i], high[i], value, table.there):
                    continue
                c = counter[i]
                left[c] -= 1
                if left[c] == 0:
                    out[n] = (np.int64(lists.slot[base + c]) << 32) | e
                    n += 1
        clear_table(table, events, e)
    return out[:n].copy()


@kernel
def clear_bits(lists, events, segments, reported):
    """The same for clauses (6.1): bitmaps that reach zero. `reported`: zeros, one per conjunction."""
    table = new_table(events.dims)
    ranges = np.zeros((256, 5), np.int64)
    left = np.empty(np.max(lists.first[1:] - lists.first[:-1]), lists.start.dtype)
    dim, operand, high, counter = lists.dim, lists.operand, lists.high, lists.counter
    out, n = np.empty(1024, np.int64), 0
    for e in range(len(events.start) - 1):
        fill_table(table, events, e)
        ranges, found = _find(lists, _pairs(events, e, segments), ranges, segments)
        pivot, base = np.int64(-1), np.int64(0)
        for r in range(found):
            if ranges[r, PIVOT] != pivot:
                pivot = ranges[r, PIVOT]
                base = lists.first[pivot]
                for c in range(lists.first[pivot + 1] - base):
                    left[c] = lists.start[base + c]
            op, value = ranges[r, OPERATOR], ranges[r, VALUE]
            out = grown(out, n, ranges[r, LAST] - ranges[r, FIRST])
            for i in range(ranges[r, FIRST], ranges[r, LAST]):
                c, bit = np.int64(counter[i]), _ONE << np.uint64(lists.bit[i])
                if not left[c] & bit:
                    continue
                if op >= WITHIN and _fails(op, dim[i], operand[i], high[i], value, table.there):
                    continue
                left[c] ^= bit
                if left[c] == 0 and lists.up[base + c] >= 0:  # one word of several
                    head = np.int64(lists.up[base + c])
                    left[head] ^= _ONE << np.uint64(c - head - 1)
                    c = head
                if left[c] == 0 and reported[lists.conjunction[base + c]] != e + 1:
                    reported[lists.conjunction[base + c]] = e + 1
                    out[n] = (np.int64(lists.slot[base + c]) << 32) | e
                    n += 1
        clear_table(table, events, e)
    return out[:n].copy()
