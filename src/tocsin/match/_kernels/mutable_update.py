"""Adding conjunctions to a mutable segment, and removing them. The arrays are `MutableArrays`.

    link[c] = next, back, tests, twin

A conjunction is in the list of a dimension (`next` is LISTED, `back` its place there), in the list of those
without an access path (UNINDEXED), or in the chain of a pair of dimensions (`next` and `back` are its
neighbours, or -1). `twin` is another conjunction of the same slot, or -1. A removed one is FREE: it keeps its
space, and its `next` is the one with as many tests that was removed before it.

Lists are blocks of a power of two entries, side by side; a list that needs more moves to a larger block. A
place in a list counts from its beginning, so that moving it changes no place.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from tocsin.compiled import kernel
from tocsin.compiled.instructions import prefetch
from tocsin.match._kernels.dimension_pairs import mark_partners
from tocsin.match._kernels.primitives import find_key, key_place
from tocsin.match._kernels.verify import MAY_REPEAT
from tocsin.predicate.codes import GREATEST, LEAST
from tocsin.predicate.flat import ABSENT, NEGATED, OR_NEXT

__all__ = [
    "BLOCK_CLASSES", "FREE", "LISTED", "MORE", "TEST_CLASSES", "Link", "PlacedTests", "Used",
    "add_conjunctions", "choose_access", "fill_pairs", "new_entries", "remove_slots", "used_rows",
]  # fmt: skip

MORE = np.uint32(1 << 31)  # in a tag: there is more to test than whether a value lies between two ends
LISTED, UNINDEXED, FREE = -2, -3, -4
TEST_CLASSES = 64  # the space of conjunctions with fewer tests is used again
BLOCK_CLASSES = 48  # sizes of blocks: 2, 4, 8, ...
_AHEAD = 32  # slots whose conjunctions are prefetched before they are removed


class Link(IntEnum):
    """Columns of `link`."""

    NEXT = 0
    BACK = 1
    TESTS = 2
    TWIN = 3


class Used(IntEnum):
    """Places of `used`: how much of the arrays is in use."""

    ROWS = 0
    TESTS = 1
    ENTRIES = 2
    ALIVE = 3
    PAIRS = 4
    PAIRS_ALIVE = 5


class PlacedTests(NamedTuple):
    """Conjunctions to add, and by conjunction its access test and that of a pair's other dimension, or -1."""

    start: Any
    dim: Any
    low: Any
    high: Any
    flags: Any
    access: Any
    other: Any


@kernel
def choose_access(start, tests, presence):
    """Access tests, or -1: of the rarest dimension, best an equality; of another; how often both are there.

    A negated test will do (the dimension must be there), one of a clause or of absence will not.
    """
    dim, low, high, flags = tests
    n = len(start) - 1
    access, other = np.empty(n, np.int32), np.empty(n, np.int32)
    often = np.zeros((n, 2))
    for c in range(n):
        access[c], other[c] = -1, -1
        best, least = np.inf, np.inf
        for i in range(start[c], start[c + 1]):
            if flags[i] & (ABSENT | OR_NEXT) or (i > start[c] and flags[i - 1] & OR_NEXT):
                continue
            equal = low[i] == high[i] and not flags[i] & NEGATED
            price = presence[dim[i]] * (1.0 if equal else 4.0)  # a range passes more often than a value
            if price < best:
                best, access[c] = price, i - start[c]
        if access[c] < 0:
            continue
        first = dim[start[c] + access[c]]
        often[c, 0] = presence[first]
        for i in range(start[c], start[c + 1]):
            if flags[i] & (ABSENT | OR_NEXT) or (i > start[c] and flags[i - 1] & OR_NEXT):
                continue
            if dim[i] != first and presence[dim[i]] < least:
                least, other[c] = presence[dim[i]], i - start[c]
                often[c, 1] = presence[first] * presence[dim[i]]
    return access, other, often


@kernel(inline=True, allocates=False)
def _class_of(length):
    """The least class of blocks with space for `length` entries."""
    k = 0
    while (2 << k) < length:
        k += 1
    return k


@kernel(allocates=False)
def new_entries(placed, length, space, fresh):
    """How many entries new blocks need; `fresh`, all 0, counts the additions to each list."""
    start, dim, access, other = placed.start, placed.dim, placed.access, placed.other
    total = 0
    for c in range(len(access)):
        if access[c] < 0:
            fresh[0] += 1
        elif other[c] < 0:
            fresh[dim[start[c] + access[c]] + 1] += 1
    for i in range(len(fresh)):
        if length[i] + fresh[i] > space[i]:
            total += 2 << _class_of(length[i] + fresh[i])
    return total


@kernel(allocates=False)
def _move(arrays, at, length):
    """Give a list a block with space for `length` entries; free its old one."""
    k = _class_of(length)
    block = arrays.blocks[k]
    if block >= 0:
        arrays.blocks[k] = arrays.entries[block, 0]
    else:
        block = arrays.used[Used.ENTRIES]
        arrays.used[Used.ENTRIES] += 2 << k
    old, n = arrays.begin[at], arrays.length[at]
    for i in range(n):
        for j in range(3):
            arrays.entries[block + i, j] = arrays.entries[old + i, j]
    _free_block(arrays, at)
    arrays.begin[at], arrays.space[at] = block, 2 << k


@kernel(allocates=False)
def _free_block(arrays, at):
    """Free the block of a list."""
    if arrays.space[at]:
        k, block = _class_of(arrays.space[at]), arrays.begin[at]
        arrays.entries[block, 0] = arrays.blocks[k]
        arrays.blocks[k] = block


@kernel(allocates=False)
def add_conjunctions(placed, slot, several, fresh, arrays):
    """Add conjunctions, access tests first. There is space; `fresh` was counted by `new_entries`."""
    begin, dim, low, high, flags, access, other = placed
    for at in range(len(fresh)):
        if arrays.length[at] + fresh[at] > arrays.space[at]:
            _move(arrays, at, arrays.length[at] + fresh[at])
    for c in range(len(slot)):
        a, z = begin[c], begin[c + 1]
        k = z - a
        if k < TEST_CLASSES and arrays.spare[k] >= 0:
            row = np.int64(arrays.spare[k])
            arrays.spare[k] = arrays.link[row, Link.NEXT]
        else:
            row = arrays.used[Used.ROWS]
            arrays.used[Used.ROWS] += 1
            arrays.first[row] = arrays.used[Used.TESTS]
            arrays.used[Used.TESTS] += k
        first = a + access[c] if access[c] >= 0 else np.int64(-1)
        second = a + other[c] if other[c] >= 0 else np.int64(-1)
        at = arrays.first[row]
        if first >= 0:
            at = _write(arrays.tests, at, dim[first], low[first], high[first], flags[first])
        if second >= 0:
            at = _write(arrays.tests, at, dim[second], low[second], high[second], flags[second])
        for i in range(a, z):
            if i != first and i != second:
                at = _write(arrays.tests, at, dim[i], low[i], high[i], flags[i])
        tag = np.uint32(slot[c]) | (MAY_REPEAT if several[c] else np.uint32(0))
        if k > 1 or first < 0 or flags[first]:
            tag |= MORE
        arrays.tag[row] = tag
        arrays.link[row, Link.TESTS] = k
        arrays.link[row, Link.TWIN] = arrays.row_of[slot[c]]
        arrays.row_of[slot[c]] = row
        if second >= 0:
            _chain(arrays, row, np.int64(dim[first]), np.int64(dim[second]))
        else:
            least, greatest = LEAST, GREATEST
            if first >= 0 and not flags[first] & NEGATED:
                least, greatest = low[first], high[first]
            own = np.int64(dim[first]) + 1 if first >= 0 else np.int64(0)
            place = arrays.length[own]
            e = arrays.begin[own] + place
            arrays.entries[e, 0], arrays.entries[e, 1] = least, greatest
            arrays.entries[e, 2] = (row << 32) | np.int64(tag)
            arrays.length[own] += 1
            arrays.link[row, Link.NEXT], arrays.link[row, Link.BACK] = (
                (LISTED if first >= 0 else UNINDEXED),
                place,
            )
    arrays.used[Used.ALIVE] += len(slot)


@kernel(inline=True, allocates=False)
def _write(tests, at, dim, low, high, flags):
    tests[at, 0] = np.int64(dim) | (np.int64(flags) << 32)
    tests[at, 1], tests[at, 2] = low, high
    return at + 1


@kernel(inline=True, allocates=False)
def _pair_key(x, y):
    """The key of two dimensions, in any order."""
    return (min(x, y) << 32) | max(x, y)


@kernel(allocates=False)
def _enter(keys, partners, x, y):
    """The place of a pair in the table, which has a free place, and whether it is new there."""
    key = _pair_key(x, y)
    at = find_key(keys, key)
    is_new = keys[at] < 0
    keys[at] = key
    mark_partners(partners, x, y)
    return at, is_new


@kernel(allocates=False)
def _chain(arrays, row, x, y):
    at, is_new = _enter(arrays.keys, arrays.partners, x, y)
    head = np.int32(-1) if is_new else arrays.chains[at]
    arrays.used[Used.PAIRS] += is_new
    arrays.used[Used.PAIRS_ALIVE] += head < 0
    arrays.link[row, Link.NEXT], arrays.link[row, Link.BACK] = head, -1
    if head >= 0:
        arrays.link[head, Link.BACK] = row
    arrays.chains[at] = row


@kernel(allocates=False)
def fill_pairs(old_keys, old_chains, keys, chains, partners):
    """Pairs that have a chain, in another table, which is empty and large enough; returns how many."""
    count = 0
    for i in range(len(old_keys)):
        if old_keys[i] >= 0 and old_chains[i] >= 0:
            at, _ = _enter(keys, partners, old_keys[i] >> 32, old_keys[i] & 0xFFFFFFFF)
            chains[at] = old_chains[i]
            count += 1
    return count


@kernel
def remove_slots(slots, arrays):
    """Remove all conjunctions of these slots, if they have any."""
    for first in range(0, len(slots), _AHEAD):
        some = slots[first : first + _AHEAD]
        _prefetch_rows(some, arrays)
        for slot in some:
            if slot < len(arrays.row_of):
                row = np.int64(arrays.row_of[slot])
                arrays.row_of[slot] = -1
                while row >= 0:
                    _remove(row, arrays)
                    row = np.int64(arrays.link[row, Link.TWIN])


@kernel(allocates=False)
def _remove(row, arrays):
    following, back = np.int64(arrays.link[row, Link.NEXT]), np.int64(arrays.link[row, Link.BACK])
    at = arrays.first[row]
    if following == LISTED or following == UNINDEXED:
        own = (arrays.tests[at, 0] & 0xFFFFFFFF) + 1 if following == LISTED else np.int64(0)
        arrays.length[own] -= 1
        last, gap = arrays.begin[own] + arrays.length[own], arrays.begin[own] + back
        for j in range(3):
            arrays.entries[gap, j] = arrays.entries[last, j]
        arrays.link[arrays.entries[gap, 2] >> 32, Link.BACK] = back
        if arrays.length[own] == 0:  # other lists may use its block
            _free_block(arrays, own)
            arrays.space[own] = 0
        elif arrays.space[own] > 8 and 4 * arrays.length[own] <= arrays.space[own]:
            k = _class_of(2 * arrays.length[own])
            if arrays.blocks[k] >= 0 or arrays.used[Used.ENTRIES] + (2 << k) <= len(arrays.entries):
                _move(arrays, own, 2 * arrays.length[own])
    else:
        if following >= 0:
            arrays.link[following, Link.BACK] = back
        if back >= 0:
            arrays.link[back, Link.NEXT] = following
        else:
            place = find_key(arrays.keys, _pair_of(arrays, row))
            arrays.chains[place] = following
            arrays.used[Used.PAIRS_ALIVE] -= following < 0
    k = arrays.link[row, Link.TESTS]
    arrays.link[row, Link.BACK] = FREE
    if k < TEST_CLASSES:
        arrays.link[row, Link.NEXT] = arrays.spare[k]
        arrays.spare[k] = row
    arrays.used[Used.ALIVE] -= 1


@kernel(inline=True, allocates=False)
def _pair_of(arrays, row):
    """The key of the pair under which a conjunction is placed."""
    at = arrays.first[row]
    return _pair_key(arrays.tests[at, 0] & 0xFFFFFFFF, arrays.tests[at + 1, 0] & 0xFFFFFFFF)


@kernel
def _prefetch_rows(slots, arrays):
    """Prefetch all that removal reads, for several slots at a time: each step leads to the next one."""
    rows, n = np.empty(_AHEAD, np.int64), 0
    for slot in slots:
        row = arrays.row_of[slot] if slot < len(arrays.row_of) else -1
        if row >= 0:
            prefetch(arrays.link, 4 * np.int64(row))
            prefetch(arrays.first, np.int64(row))
            rows[n] = row
            n += 1
    for row in rows[:n]:
        prefetch(arrays.tests, 3 * arrays.first[row])
    for row in rows[:n]:
        following, back = np.int64(arrays.link[row, Link.NEXT]), np.int64(arrays.link[row, Link.BACK])
        if following == LISTED:
            own = (arrays.tests[arrays.first[row], 0] & 0xFFFFFFFF) + 1
            prefetch(arrays.entries, 3 * (arrays.begin[own] + back))
            prefetch(arrays.entries, 3 * (arrays.begin[own] + arrays.length[own] - 1) + 2)
        elif following != UNINDEXED and back < 0:
            at = np.int64(key_place(arrays.keys, _pair_of(arrays, row)))
            prefetch(arrays.keys, at)
            prefetch(arrays.chains, at)
    for row in rows[:n]:
        if arrays.link[row, Link.NEXT] == LISTED:
            own = (arrays.tests[arrays.first[row], 0] & 0xFFFFFFFF) + 1
            last = arrays.begin[own] + arrays.length[own] - 1
            prefetch(arrays.link, 4 * (arrays.entries[last, 2] >> 32))


@kernel
def used_rows(link, count):
    """The conjunctions that are placed somewhere."""
    out, n = np.empty(count, np.int64), 0
    for row in range(count):
        out[n] = row
        n += link[row, Link.BACK] != FREE
    return out[:n]
