"""Compiled loops of F01's two-phase algorithms: predicates, lines of predicates, blocks, and counting.

Phase 1 finds each distinct predicate that an event satisfies, once:

    hash      (group, low, high) -> predicate; an equality is looked up by its value
    sorted    three lists of predicates per dimension, one after the other:

        start   3d            3d + 1         3d + 2
                AT_MOST       AT_LEAST       the rest (PRESENT, OUTSIDE)
                by operand    by operand     checked one by one

The group of a predicate is 8 * dimension + kind. A conjunction is stored as a *line*, a list of predicates:

    slot -> head -> next -> ...     the lines of a slot
    size -> spare -> next -> ...    removed lines, with their space in the pool, for new ones of that size

A *block* is a small table that grows, of `width` rows and `count` columns, in one array with all others:

    pool   ... | row 0: x x x . | row 1: x x x . | ...      width 2, count 3, capacity 4
               at               at + capacity

A full block moves to the end of the pool with twice the capacity; `repack` closes the gaps.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.compiled import kernel
from tocsin.match._kernels.scan import grown

__all__ = [
    "ABSENTS",
    "AT_LEAST",
    "AT_MOST",
    "BLOCK",
    "DONE",
    "EQUAL",
    "FREE",
    "MADE",
    "OUTSIDE",
    "POOL_END",
    "POOL_GAPS",
    "POOL_USED",
    "PRESENT",
    "USED",
    "Blocks",
    "LineArrays",
    "PredicateArrays",
    "PredicateKind",
    "SortedArrays",
    "add_lines",
    "append_column",
    "associate",
    "count_matches",
    "drop_lines",
    "filter_blocks",
    "find",
    "lines_of",
    "look_up",
    "mix",
    "new_satisfied",
    "number",
    "predicates_of",
    "refill",
    "remove_column",
    "renumber",
    "repack",
    "satisfy",
    "sorted_order",
    "splice",
]


class PredicateKind(IntEnum):
    """The operator of a predicate; see `counting.py`."""

    EQUAL = 0
    AT_MOST = 1
    AT_LEAST = 2
    PRESENT = 3
    OUTSIDE = 4
    ABSENTS = 5


EQUAL, AT_MOST, AT_LEAST, PRESENT, OUTSIDE, ABSENTS = map(int, PredicateKind)
DONE, USED, FREE, MADE = range(4)  # counters of `number`: tests done, numbers used, free and made
POOL_END = 2  # a counter of `add_lines`, after DONE (conjunctions) and USED (lines)
POOL_USED, POOL_GAPS = range(2)  # in `Blocks.end`
_LINE, _PREDICATE = range(2)  # counters of `associate`: lines done, predicates of the next line done

# -- phase 1: predicates --------------------------------------------------------------------------------


class PredicateArrays(NamedTuple):
    """By predicate, with spare capacity; `hashed` holds predicates by hash, or -1."""

    group: NDArray[np.int64]
    low: NDArray[np.int64]
    high: NDArray[np.int64]
    uses: NDArray[np.int32]  # number of conjunctions with it
    hashed: NDArray[np.int32]


class SortedArrays(NamedTuple):
    """All predicates but equalities, by dimension; see the picture above."""

    start: NDArray[np.int64]
    operand: NDArray[np.int64]
    predicate: NDArray[np.int32]
    absent: NDArray[np.int32]  # the ABSENTS predicates of all dimensions


@kernel
def mix(h, x):
    """Mixes a number into a hash."""
    h = (np.uint64(h) ^ np.uint64(x)) * np.uint64(0x9E3779B97F4A7C15)
    return h ^ (h >> np.uint64(29))


@kernel
def find(p, group, low, high):
    """The number of the predicate, or -1 - (its free place in the hash)."""
    mask = np.int64(len(p.hashed) - 1)
    i = np.int64(mix(mix(np.uint64(group), low), high) >> np.uint64(20)) & mask
    while p.hashed[i] >= 0:
        q = p.hashed[i]
        if p.low[q] == low and p.group[q] == group and p.high[q] == high:
            return np.int64(q)
        i = (i + 1) & mask
    return -1 - i


@kernel
def number(p, tests, counts, free, made):
    """Numbers the new predicates among tests (group, low, high), from counts[DONE] on, up to capacity."""
    group, low, high = tests
    for i in range(counts[DONE], len(group)):
        q = find(p, group[i], low[i], high[i])
        if q < 0:
            if 2 * (counts[USED] + 1) > len(p.hashed) or counts[USED] == len(p.group):
                return
            place = -1 - q
            if counts[FREE]:
                counts[FREE] -= 1
                q = np.int64(free[counts[FREE]])
            else:
                q = counts[USED]
                counts[USED] += 1
            p.hashed[place] = q
            p.group[q], p.low[q], p.high[q], p.uses[q] = group[i], low[i], high[i], 0
            made[counts[MADE]] = q
            counts[MADE] += 1
        counts[DONE] = i + 1


@kernel
def sorted_order(group, operand):
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


@kernel
def renumber(p, made, order):
    """Assigns the made numbers (ascending) in the given order, so that similar predicates are adjacent."""
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


@kernel
def look_up(p, tests):
    """The numbers of known predicates."""
    group, low, high = tests
    out = np.empty(len(group), np.int32)
    for i in range(len(group)):
        out[i] = find(p, group[i], low[i], high[i])
    return out


@kernel
def refill(p, used):
    """Hashes all predicates again; free numbers have group -1."""
    p.hashed[:] = -1
    for q in range(used):
        if p.group[q] >= 0:
            i = find(p, p.group[q], p.low[q], p.high[q])
            if i < 0:
                p.hashed[-1 - i] = q


@kernel
def splice(p, old, first, operand, added, drop):
    """Merges sorted new predicates in, list g from first[g] on; with `drop`, drops unused ones."""
    lists = len(first) - 1
    total = len(old.predicate) + len(added)
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
                x, q = operand[j], added[j]
                j += 1
            if not drop or p.uses[q]:
                operands[n], predicates[n] = x, q
                n += 1
        start[g + 1] = n
    return start, operands[:n].copy(), predicates[:n].copy()


class Satisfied(NamedTuple):
    """What phase 1 finds for an event."""

    bits: Any  # by predicate: 1 if the event satisfies it
    predicate: Any  # the satisfied ones, equalities first
    seen: Any  # by dimension: the last event that had it, plus 1


@kernel
def new_satisfied(p, events):
    """Empty buffers for phase 1."""
    n = len(p.group)
    return Satisfied(np.zeros(n, np.uint8), np.empty(n, np.int32), np.zeros(events.dims, np.int64))


@kernel
def satisfy(p, index, events, e, found):
    """Fills `found` for event e; the numbers of satisfied equalities, and of all satisfied predicates."""
    bits, out, seen = found
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
            seen[events.dim[i]] = e + 1
        for q in index.absent:
            dim = p.group[q] >> 3
            if dim >= len(seen) or seen[dim] != e + 1:
                out[n] = q
                n += 1
    for j in range(n):
        bits[out[j]] = 1
    return equal, n


# -- conjunctions as lines ----------------------------------------------------------------------------------


class LineArrays(NamedTuple):
    """By line, up to `pool`."""

    slot: NDArray[np.int32]  # -1: removed
    next: NDArray[np.int32]
    at: NDArray[np.int64]
    size: NDArray[np.uint16]
    pool: NDArray[np.int32]  # predicates, equalities first, by dimension
    head: NDArray[np.int32]  # by slot
    spare: NDArray[np.int32]  # by size


@kernel
def _sorted_set(p, numbers, first, last, out):
    """Writes the distinct predicates by kind and dimension, equalities first; returns their number."""
    n = 0
    for i in range(first, last):
        q = numbers[i]
        key = ((p.group[q] & 7) << 40) | (p.group[q] >> 3)
        j = n
        while j > 0:
            r = out[j - 1]
            other = ((p.group[r] & 7) << 40) | (p.group[r] >> 3)
            if other < key or (other == key and r <= q):
                break
            j -= 1
        if j > 0 and out[j - 1] == q:
            continue
        for k in range(n, j, -1):
            out[k] = out[k - 1]
        out[j] = q
        n += 1
    return n


@kernel
def add_lines(lines, p, added, numbers, counts, out):
    """Stores conjunctions (slot, start) of numbered predicates, from counts[DONE] on, up to capacity."""
    slot, start = added
    longest = 1
    for c in range(len(slot)):
        longest = max(longest, start[c + 1] - start[c])
    own = np.empty(longest, np.int32)
    for c in range(counts[DONE], len(slot)):
        n = _sorted_set(p, numbers, start[c], start[c + 1], own)
        line = lines.spare[n]
        if line >= 0:
            lines.spare[n] = lines.next[line]
        else:
            if counts[USED] == len(lines.slot) or counts[POOL_END] + n > len(lines.pool):
                return
            line = np.int32(counts[USED])
            lines.at[line], lines.size[line] = counts[POOL_END], n
            counts[USED] += 1
            counts[POOL_END] += n
        at = lines.at[line]
        for i in range(n):
            lines.pool[at + i] = own[i]
            p.uses[own[i]] += 1
        lines.slot[line], lines.next[line] = slot[c], lines.head[slot[c]]
        lines.head[slot[c]] = line
        out[c] = line
        counts[DONE] = c + 1


@kernel
def lines_of(lines, slots):
    """The lines of slots."""
    n = 0
    for slot in slots:
        line = lines.head[slot] if slot < len(lines.head) else np.int32(-1)
        while line >= 0:
            n += 1
            line = lines.next[line]
    out, n = np.empty(n, np.int32), 0
    for slot in slots:
        line = lines.head[slot] if slot < len(lines.head) else np.int32(-1)
        while line >= 0:
            out[n] = line
            n += 1
            line = lines.next[line]
    return out


@kernel
def drop_lines(lines, p, removed):
    """Removes lines, of each slot all."""
    for line in removed:
        at, n = lines.at[line], lines.size[line]
        for i in range(at, at + n):
            p.uses[lines.pool[i]] -= 1
        lines.head[lines.slot[line]] = -1
    for line in removed:
        n = lines.size[line]
        lines.slot[line], lines.next[line] = -1, lines.spare[n]
        lines.spare[n] = line


@kernel
def predicates_of(lines, p, which, equal_only):
    """Where the predicates of each line start, and the predicates."""
    total = 0
    for line in which:
        total += lines.size[line]
    start, out, n = np.zeros(len(which) + 1, np.int64), np.empty(total, np.int32), 0
    for k in range(len(which)):
        at = lines.at[which[k]]
        for i in range(at, at + lines.size[which[k]]):
            q = lines.pool[i]
            if equal_only and p.group[q] & 7 != EQUAL:
                break
            out[n] = q
            n += 1
        start[k + 1] = n
    return start, out[:n]


# -- blocks -----------------------------------------------------------------------------------------------

_FIELDS = [("at", "i8"), ("count", "i4"), ("capacity", "i4"), ("width", "i4"), ("next", "i4")]
BLOCK = np.dtype((np.record, _FIELDS))  # a record, so that uncompiled code can use block.at too


class Blocks(NamedTuple):
    """Many blocks in one pool."""

    pool: NDArray[np.int32]
    of: Any  # by block: a BLOCK, in one cache line; `next` is for the owner's use
    end: NDArray[np.int64]  # POOL_USED, POOL_GAPS


@kernel
def append_column(blocks, b):
    """Appends a column to block b: its place, or -1 if the pool must grow first."""
    n, capacity, width = blocks.of[b].count, blocks.of[b].capacity, np.int64(blocks.of[b].width)
    if n == capacity:
        larger = np.int64(1) if n == 0 else 2 * np.int64(capacity)
        end = blocks.end[POOL_USED]
        if end + larger * width > len(blocks.pool):
            return np.int64(-1)
        old = blocks.of[b].at
        for row in range(width):
            for i in range(n):
                blocks.pool[end + row * larger + i] = blocks.pool[old + row * capacity + i]
        blocks.of[b].at, blocks.of[b].capacity = end, larger
        blocks.end[POOL_USED] += larger * width
        blocks.end[POOL_GAPS] += capacity * width
    blocks.of[b].count = n + 1
    return np.int64(n)


@kernel
def remove_column(blocks, b, i):
    """Replaces column i by the last one."""
    last, at, capacity = blocks.of[b].count - 1, blocks.of[b].at, np.int64(blocks.of[b].capacity)
    for row in range(blocks.of[b].width):
        blocks.pool[at + row * capacity + i] = blocks.pool[at + row * capacity + last]
    blocks.of[b].count = last


@kernel
def filter_blocks(blocks, which, removed):
    """Drops the removed numbers from blocks of width 1."""
    for b in which:
        at, n = blocks.of[b].at, 0
        for i in range(at, at + blocks.of[b].count):
            if not removed[blocks.pool[i]]:
                blocks.pool[at + n] = blocks.pool[i]
                n += 1
        blocks.of[b].count = n


@kernel
def repack(blocks, used):
    """Moves blocks 0..used-1 into a new pool without gaps or spare capacity."""
    total = np.int64(0)
    for b in range(used):
        total += np.int64(blocks.of[b].width) * blocks.of[b].count
    pool, end = np.empty(total, np.int32), np.int64(0)
    for b in range(used):
        at, n, capacity = blocks.of[b].at, blocks.of[b].count, np.int64(blocks.of[b].capacity)
        blocks.of[b].at, blocks.of[b].capacity = end, n
        for row in range(blocks.of[b].width):
            for i in range(n):
                pool[end + i] = blocks.pool[at + row * capacity + i]
            end += n
    blocks.end[POOL_USED], blocks.end[POOL_GAPS] = end, 0
    return pool


# -- phase 2 by counting ----------------------------------------------------------------------------------


@kernel
def associate(lists, lines, added, counts):
    """Appends lines to the lists of their predicates, from where `counts` says, up to capacity."""
    for k in range(counts[_LINE], len(added)):
        line = added[k]
        at = lines.at[line]
        for i in range(counts[_PREDICATE], lines.size[line]):
            q = lines.pool[at + i]
            place = append_column(lists, q)
            if place < 0:
                counts[_PREDICATE] = i
                return
            lists.pool[lists.of[q].at + place] = line
        counts[_LINE], counts[_PREDICATE] = k + 1, 0


@kernel
def count_matches(p, index, lists, lines, events, used):
    """Packed (slot, event), and the number of counts.

    `left` counts down from the size, so that a match is a comparison with 0.
    """
    buffers = new_satisfied(p, events)
    bits, found = buffers.bits, buffers.predicate
    list_of, pool = lists.of, lists.pool
    slot, size = lines.slot, lines.size[:used]
    left = size.copy()
    out, n, counts = np.empty(1024, np.int64), 0, 0
    for e in range(len(events.start) - 1):
        _, last = satisfy(p, index, events, e, buffers)
        walked = 0
        for j in range(last):
            q = found[j]
            bits[q] = 0
            at, count = list_of[q].at, list_of[q].count
            walked += count
            out = grown(out, n, count)
            for i in range(at, at + count):
                line = pool[i]
                left[line] -= 1
                if left[line] == 0:
                    out[n] = (np.int64(slot[line]) << 32) | e
                    n += 1
        counts += walked
        if 32 * walked > used:
            left[:] = size
        else:
            for j in range(last):
                at, count = list_of[found[j]].at, list_of[found[j]].count
                for i in range(at, at + count):
                    left[pool[i]] = size[pool[i]]
    return out[:n].copy(), counts
