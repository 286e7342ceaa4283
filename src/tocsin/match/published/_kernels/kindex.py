"""Building and probing the posting lists of the k-index.

Dimension d is cut into cells; cell n holds the codes from edge[n] up to the next edge of d:

    first[d]                              first[d + 1]
    edge    LEAST    3      4      6
    cell    ..2      3      4..5   6..
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tocsin.compiled import kernel
from tocsin.match._kernels.scan import clear_table, fill_table, grown, holds, new_table
from tocsin.predicate.flat import ABSENT, NEGATED, OR_NEXT

__all__ = [
    "Postings",
    "edges_of",
    "expansion",
    "expressible",
    "match_postings",
    "postings_of",
    "sizes_of",
]

_LEAST, _GREATEST = -(2**63), 2**63 - 1


class Postings(NamedTuple):
    """One built index. Conjunctions are numbered by size, so a list has small ones first."""

    first: Any  # by dimension, one more at the end: its first cell
    edge: Any  # by cell: its least code
    start: Any  # by cell, one more at the end: its first posting
    posting: Any  # conjunctions, ascending
    size: Any  # by conjunction: its distinct dimensions
    below: Any  # by number of entries: how many conjunctions have at most so many dimensions
    given: Any  # the conjunctions, to verify candidates from coarse cells


@kernel
def expressible(start, dim, flags):
    """Which conjunctions have no ABSENT test and only clauses within one dimension."""
    out = np.ones(len(start) - 1, np.bool_)
    for c in range(len(start) - 1):
        for i in range(start[c], start[c + 1]):
            if flags[i] & ABSENT or (flags[i] & OR_NEXT and dim[i + 1] != dim[i]):
                out[c] = False
    return out


@kernel
def sizes_of(conjunctions, order):
    """Distinct dimensions of each conjunction; `order` sorts tests by dimension within it."""
    start, dim = conjunctions.start, conjunctions.dim
    out = np.zeros(len(start) - 1, np.int32)
    for c in range(len(start) - 1):
        for i in range(start[c], start[c + 1]):
            out[c] += i == start[c] or dim[order[i]] != dim[order[i - 1]]
    return out


@kernel
def edges_of(dim, code, dims, most):
    """First cell of each dimension and least code of each cell, from cuts sorted by dimension and code.

    A dimension of more than `most` cells keeps each n-th of its cuts.
    """
    first, edge, n = np.zeros(dims + 1, np.int64), np.empty(len(dim) + dims, np.int64), 0
    i = 0
    for d in range(dims):
        first[d] = n
        begin = i
        while i < len(dim) and dim[i] == d:
            i += 1
        step = max(1, -(-(i - begin + 1) // most))
        edge[n] = _LEAST
        n += 1
        for j in range(begin + step - 1, i, step):
            if code[j] != _LEAST:
                edge[n] = code[j]
                n += 1
    first[dims] = n
    return first, edge[:n].copy()


@kernel
def _cell(first, edge, d, code):
    """The cell of a code."""
    low, high = first[d], first[d + 1]
    while high - low > 1:
        middle = (low + high) >> 1
        if edge[middle] <= code:
            low = middle
        else:
            high = middle
    return low


@kernel
def _reach(first, edge, d, low, high, negated):
    """Cells that a test may accept, as two ranges a..b-1 and c..d-1."""
    begin, end = first[d], first[d + 1]
    if not negated:
        if low > high:
            return begin, begin, end, end
        return _cell(first, edge, d, low), _cell(first, edge, d, high) + 1, end, end
    if low > high:
        return begin, end, end, end
    left = begin if low == _LEAST else _cell(first, edge, d, low - 1) + 1
    right = end if high == _GREATEST else _cell(first, edge, d, high + 1)
    return begin, left, max(left, right), end


@kernel
def expansion(conjunctions, first, edge):
    """An upper bound of the number of postings."""
    total = 0
    for i in range(len(conjunctions.dim)):
        negated = (conjunctions.flags[i] & NEGATED) != 0
        a, b, c, d = _reach(
            first, edge, conjunctions.dim[i], conjunctions.low[i], conjunctions.high[i], negated
        )
        total += b - a + d - c
    return total


@kernel
def _accept(conjunctions, order, i, last, cells, hits, found):
    """Cells accepted by all clauses of the tests order[i..last-1], all of one dimension.

    `hits`: by cell, how many clauses have accepted it so far, all zero before and after.
    """
    first, edge = cells
    clause, n = 0, 0
    while i < last:
        n = 0
        while True:
            t = order[i]
            negated = (conjunctions.flags[t] & NEGATED) != 0
            a, b, c, d = _reach(
                first, edge, conjunctions.dim[t], conjunctions.low[t], conjunctions.high[t], negated
            )
            for cell in range(a, b):
                if hits[cell] == clause:
                    hits[cell] = clause + 1
                    found[n] = cell
                    n += 1
            for cell in range(c, d):
                if hits[cell] == clause:
                    hits[cell] = clause + 1
                    found[n] = cell
                    n += 1
            i += 1
            if not conjunctions.flags[t] & OR_NEXT:
                break
        clause += 1
    return n


@kernel
def postings_of(conjunctions, order, first, edge):
    """Start of each cell's list, and the lists: two passes, to count and to fill."""
    start, dim = conjunctions.start, conjunctions.dim
    at = np.zeros(len(edge) + 1, np.int64)
    hits, found = np.zeros(len(edge), np.int32), np.empty(len(edge), np.int64)
    posting = np.empty(0, np.int32)
    for fill in range(2):
        for c in range(len(start) - 1):
            i = start[c]
            while i < start[c + 1]:
                j = i
                while j < start[c + 1] and dim[order[j]] == dim[order[i]]:
                    j += 1
                n = _accept(conjunctions, order, i, j, (first, edge), hits, found)
                for k in range(n):
                    if fill:
                        posting[at[found[k]]] = c
                    at[found[k]] += 1
                if j == i + 1:
                    for k in range(n):
                        hits[found[k]] = 0
                else:  # cells that a later clause has dropped are marked too
                    d = dim[order[i]]
                    hits[first[d] : first[d + 1]] = 0
                i = j
        if not fill:
            total = np.sum(at)
            posting = np.empty(total, np.int32)
            here = 0
            for cell in range(len(edge)):
                count = at[cell]
                at[cell] = here
                here += count
    begin = np.zeros(len(edge) + 1, np.int64)
    begin[1:] = at[:-1]  # each list was filled up to the beginning of the next
    return begin, posting


@kernel
def match_postings(index, events, count, verify):
    """Conjunctions in as many of an event's lists as they have dimensions. `count`: zeros."""
    first, edge, start, posting = index.first, index.edge, index.start, index.posting
    size, given = index.size, index.given
    table = new_table(events.dims)
    lists = np.empty(256, np.int64)
    out, n = np.empty(1024, np.int64), 0
    for e in range(len(events.start) - 1):
        fill_table(table, events, e)
        entries, used = events.start[e + 1] - events.start[e], 0
        limit = index.below[min(entries, len(index.below) - 1)]
        if entries > len(lists):
            lists = np.empty(2 * entries, np.int64)
        for k in range(events.start[e], events.start[e + 1]):
            if events.dim[k] < len(first) - 1:
                cell = _cell(first, edge, events.dim[k], events.code[k])
                lists[used] = cell
                used += 1
                out = grown(out, n, start[cell + 1] - start[cell])
                for i in range(start[cell], start[cell + 1]):
                    c = posting[i]
                    if c >= limit:  # this and the rest have more dimensions than the event
                        break
                    count[c] += 1
                    if count[c] == size[c]:
                        if verify and not holds(table, given, given.start[c], given.start[c + 1]):
                            continue
                        out[n] = (np.int64(given.slot[c]) << 32) | e
                        n += 1
        for k in range(used):
            for i in range(start[lists[k]], start[lists[k] + 1]):
                if posting[i] >= limit:
                    break
                count[posting[i]] = 0
        clear_table(table, events, e)
    return out[:n].copy()
