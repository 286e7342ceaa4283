"""Batches in order: entries of events by attribute, by dimension and by event; matches by row and slot.

A batch is put in order of attributes once. Every segment then goes through it dimension by dimension: what it
reads (cuts, later lists) lies side by side, and is in the cache when it is read.

    by attribute    price: (event 0, 3) (event 1, 9)   color: (event 0, red)
    ranked          dim 0: (event 0, rank 1) (event 1, rank 4)   dim 1: ...          runs of one dimension
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tocsin.compiled import kernel
from tocsin.compiled.instructions import prefetch
from tocsin.match._kernels.primitives import lower
from tocsin.predicate.flat import CodeSpace

__all__ = [
    "AttributeEntries", "CodeRuns", "by_event", "group_entries", "lists_by_event", "rank_entries",
    "rows_and_slots", "run_entries", "short_keys",
]  # fmt: skip

_AHEAD = 8  # runs whose cuts are prefetched
_TEXT, _REVERSED, _ANY = int(CodeSpace.TEXT), int(CodeSpace.REVERSED), int(CodeSpace.ANY)
_BETWEEN, _DOUBLE = int(CodeSpace.BETWEEN), int(CodeSpace.DOUBLE)
_TEXT_TIME, _TIMESTAMP = int(CodeSpace.TEXT_TIME), int(CodeSpace.TIMESTAMP)


class AttributeEntries(NamedTuple):
    """Entries of some events by attribute; those of attribute[k] begin at start[k]."""

    attribute: Any
    start: Any
    event: Any
    space: Any
    code: Any


class CodeRuns(NamedTuple):
    """Entries by dimension: run r is of dimension dim[r], from start[r] to before start[r + 1]."""

    dim: Any
    start: Any
    event: Any
    code: Any
    above: Any  # 1 if the value lies just above its code


@kernel
def group_entries(entries, first, last, numbers, attributes):
    """Entries of events first..last-1 as `AttributeEntries`.

    `numbers` gives the attribute of a name, or -1; `attributes` is how many there are.
    """
    start, name, space, code = entries
    a, z = start[first], start[last]
    known = 0
    for i in range(a, z):
        known += numbers[name[i]] >= 0
    event, spaces = np.empty(known, np.int32), np.empty(known, np.uint8)
    codes = np.empty(known, np.int64)
    found, begin = np.empty(min(known, attributes), np.int64), np.zeros(min(known, attributes) + 1, np.int64)
    groups = 0
    if known < attributes >> 3:  # few entries: sort them
        key, entry, whose = np.empty(known, np.int64), np.empty(known, np.int64), np.empty(known, np.int32)
        n = np.int64(0)
        for e in range(first, last):
            for i in range(start[e], start[e + 1]):
                if numbers[name[i]] >= 0:
                    key[n], entry[n], whose[n] = (np.int64(numbers[name[i]]) << 32) | n, i, e - first
                    n += 1
        key.sort()  # by attribute, and as they came
        for n in range(known):
            k, at = key[n] >> 32, key[n] & 0xFFFFFFFF
            i = entry[at]
            event[n], spaces[n], codes[n] = whose[at], space[i], code[i]
            if groups == 0 or found[groups - 1] != k:
                found[groups], begin[groups] = k, n
                groups += 1
    else:
        place = np.zeros(attributes + 1, np.int64)
        for i in range(a, z):
            if numbers[name[i]] >= 0:
                place[numbers[name[i]] + 1] += 1
        for k in range(attributes):
            if place[k + 1]:
                found[groups], begin[groups] = k, place[k]
                groups += 1
            place[k + 1] += place[k]
        for e in range(first, last):
            for i in range(start[e], start[e + 1]):
                k = numbers[name[i]]
                if k >= 0:
                    n = place[k]
                    event[n], spaces[n], codes[n] = e - first, space[i], code[i]
                    place[k] = n + 1
    begin[groups] = known
    return AttributeEntries(found[:groups], begin, event, spaces, codes)


@kernel
def run_entries(grouped, dims, texts, patterns, out):
    """Entries by dimension: the dimension of each run, where it begins; how many entries there are.

    `dims`: where an attribute's dimensions begin, and the space of each; `patterns`: dimension and event of
    patterns that matched, by dimension. Event, code, and whether a value lies just above its code, are
    written to `out`, which has space for them.
    """
    attribute, begin, event, space, code = grouped
    dim_start, dim_space = dims
    forwards, backwards = texts
    pattern_dim, pattern_event = patterns
    events, codes, above = out
    most = len(pattern_dim)
    for k in attribute:
        most += dim_start[k + 1] - dim_start[k] if k + 1 < len(dim_start) else 0
    run_dim, run_start = np.empty(most, np.int32), np.empty(most + 1, np.int64)
    n, runs = 0, 0
    for g in range(len(attribute)):
        k = attribute[g]
        if k + 1 >= len(dim_start):
            break  # attributes ascend: the segment is older than the rest
        i, j = begin[g], begin[g + 1]
        for d in range(dim_start[k], dim_start[k + 1]):
            s, before = dim_space[d], n
            if s == _ANY:
                for q in range(i, j):  # what has two entries is there once
                    if space[q] != _BETWEEN and space[q] != _TEXT_TIME:
                        events[n], codes[n], above[n] = event[q], 0, 0
                        n += 1
            elif s == _TEXT or s == _REVERSED:
                own = forwards if s == _TEXT else backwards
                for q in range(i, j):
                    if space[q] == _TEXT:
                        events[n], codes[n], above[n] = event[q], own[code[q]], 0
                        n += 1
            else:
                other = _BETWEEN if s == _DOUBLE else _TEXT_TIME if s == _TIMESTAMP else s
                for q in range(i, j):
                    if space[q] == s or space[q] == other:
                        events[n], codes[n], above[n] = event[q], code[q], space[q] == _BETWEEN
                        n += 1
            if n > before:
                run_dim[runs], run_start[runs] = d, before
                runs += 1
    for i in range(len(pattern_dim)):
        if i == 0 or pattern_dim[i] != pattern_dim[i - 1]:
            run_dim[runs], run_start[runs] = pattern_dim[i], n
            runs += 1
        events[n], codes[n], above[n] = pattern_event[i], 0, 0
        n += 1
    run_start[runs] = n
    return run_dim[:runs], run_start[: runs + 1], n


@kernel(allocates=False)
def rank_entries(runs, cuts, cut_start, ranks):
    """Write the ranks of codes among the cuts of their dimensions.

    A value equal to cut i has rank 2 i + 1, one between cuts i - 1 and i has rank 2 i.
    """
    run_dim, run_start, _, codes, above = runs
    last = len(cuts) - 1
    if last < 0:
        ranks[:] = 0
        return
    for r in range(len(run_dim)):
        if r + _AHEAD < len(run_dim):
            d = run_dim[r + _AHEAD]
            for j in range(cut_start[d], min(cut_start[d + 1], cut_start[d] + 8 * _AHEAD), 8):
                prefetch(cuts, j)
        a, z = cut_start[run_dim[r]], cut_start[run_dim[r] + 1]
        for k in range(run_start[r], run_start[r + 1]):
            at = lower(cuts, a, z, codes[k] + above[k])
            exact = (at < z) & (cuts[min(at, last)] == codes[k]) & (above[k] == 0)
            ranks[k] = 2 * (at - a) + exact


@kernel
def by_event(runs, values, count, dims, own):
    """Entries by event: where each of the `count` events begins; a bit for each of its dimensions.

    The bit is that of the last six bits of its number. Dimensions, ascending, and values are written to
    `dims` and `own`.
    """
    run_dim, run_start, event, _, _ = runs
    start, bits = np.zeros(count + 2, np.int64), np.zeros(count, np.uint64)
    for i in range(len(event)):
        start[event[i] + 2] += 1
    for e in range(count + 1):
        start[e + 1] += start[e]
    for r in range(len(run_dim)):
        bit = np.uint64(1) << np.uint64(run_dim[r] & 63)
        for i in range(run_start[r], run_start[r + 1]):
            at = start[event[i] + 1]
            dims[at], own[at] = run_dim[r], values[i]
            bits[event[i]] |= bit
            start[event[i] + 1] = at + 1
    return start[: count + 1], bits


@kernel
def short_keys(packed, slot_bits, row_bits, start):
    """Packed matches as keys of 32 bits, in groups by the upper bits of the row.

    Sorting 64-bit matches takes twice as long as sorting 32-bit keys. `start`, all 0 and two longer than
    there are groups, receives where each group begins and ends.
    """
    out = np.empty(len(packed), np.uint32)
    for match in packed:
        start[((match & 0xFFFFFFFF) >> row_bits) + 2] += 1
    for i in range(2, len(start)):
        start[i] += start[i - 1]
    low = (1 << row_bits) - 1
    for match in packed:
        row = match & 0xFFFFFFFF
        at = (row >> row_bits) + 1
        out[start[at]] = ((row & low) << slot_bits) | (match >> 32)
        start[at] += 1
    return out


@kernel
def rows_and_slots(keys, slot_bits, row_bits, start):
    """Rows and slots of the keys of `short_keys`."""
    row, slot = np.empty(len(keys), np.int64), np.empty(len(keys), np.int64)
    low = (np.uint32(1) << np.uint32(slot_bits)) - np.uint32(1)
    for group in range(len(start) - 2):
        first = group << row_bits
        for i in range(start[group], start[group + 1]):
            row[i], slot[i] = first + (keys[i] >> np.uint32(slot_bits)), keys[i] & low
    return row, slot


@kernel
def lists_by_event(packed, origin, ids, count, out):
    """Where the list of each of the `count` events begins; their ids go to `out`. `origin`: event by row."""
    start = np.zeros(count + 2, np.int64)
    for i in range(len(packed)):
        start[origin[packed[i] & 0xFFFFFFFF] + 2] += 1
    for e in range(count + 1):
        start[e + 1] += start[e]
    for i in range(len(packed)):
        event = origin[packed[i] & 0xFFFFFFFF]
        out[start[event + 1]] = ids[packed[i] >> 32]
        start[event + 1] += 1
    return start[: count + 1]
