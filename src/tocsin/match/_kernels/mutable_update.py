"""The front: conjunctions are hung up and taken off. The arrays are `Parts` of `front.py`.

    link[c] = next, back, tests, twin

A conjunction hangs in the list of a dimension (`next` is LISTED, `back` its place there), in the list of
those that hang on nothing (LOOSE), or in the chain of a pair (`next` and `back` are its neighbours, or -1).
`twin` is another conjunction of the same slot, or -1. One that was taken off is FREE: it keeps its room, and
its `next` is the one with as many tests that was taken off before it.

Lists are blocks of a power of two entries, side by side; a list that needs more moves to a larger block. A
place in a list counts from its beginning, so that nothing has to be told when it moves.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tocsin.match._kernels.build import find_key, key_place
from tocsin.match._kernels.intrinsics import prefetch
from tocsin.match._kernels.pair_filter import mark_partners
from tocsin.match._kernels.verify import SEVERAL
from tocsin.predicate.codes import GREATEST, LEAST
from tocsin.predicate.flat import ABSENT, NEGATED, OR_NEXT

__all__ = [
    "ALIVE",
    "BACK",
    "CLASSES",
    "ENTRIES",
    "FREE",
    "LISTED",
    "LOOSE",
    "MORE",
    "NEXT",
    "PAIRS",
    "PAIRS_ALIVE",
    "ROWS",
    "SIZES",
    "TESTS",
    "TESTS_OF",
    "TWIN",
    "fill_pairs",
    "growth",
    "hang",
    "pair_key",
    "rows_alive",
    "take_in",
    "take_off",
]

MORE = np.uint32(1 << 31)  # in a tag: there is more to be asked than whether a value lies between two ends
NEXT, BACK, TESTS_OF, TWIN = range(4)  # of a link
LISTED, LOOSE, FREE = -2, -3, -4
ROWS, TESTS, ENTRIES, ALIVE, PAIRS, PAIRS_ALIVE = range(6)  # of `used`
SIZES = 64  # conjunctions of fewer tests have their room used again
CLASSES = 48  # sizes of blocks: 2, 4, 8, ...
_AHEAD = 32  # slots whose conjunctions are fetched before they are taken off


@njit(cache=True, nogil=True)
def hang(start, tests, presence):
    """Where each conjunction can hang: the test of its rarest dimension, best an equality, or -1; a test of
    its rarest other dimension, or -1; and how often the first and both are there.

    A test that is negated will do (the dimension must be there), one of a clause or of absence will not.
    """
    dim, low, high, flags = tests
    n = len(start) - 1
    access, other = np.full(n, -1, np.int32), np.full(n, -1, np.int32)
    often = np.zeros((n, 2))
    for c in range(n):
        best, least = np.inf, np.inf
        for i in range(start[c], start[c + 1]):
            if flags[i] & (ABSENT | OR_NEXT) or (i > start[c] and flags[i - 1] & OR_NEXT):
                continue
            equal = low[i] == high[i] and not flags[i] & NEGATED
            price = presence[dim[i]] * (1.0 if equal else 4.0)  # of a range every second check goes on
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


@njit(cache=True, nogil=True, inline="always")
def _class_of(length):
    """The least class of blocks that have room for so many."""
    k = 0
    while (2 << k) < length:
        k += 1
    return k


@njit(cache=True, nogil=True)
def growth(start, dim, hung, length, room, fresh):
    """How many entries new blocks need at most; `fresh`, which is all 0, counts what each list is to take."""
    access, other = hung
    total = 0
    for c in range(len(access)):
        if access[c] < 0:
            fresh[0] += 1
        elif other[c] < 0:
            fresh[dim[start[c] + access[c]] + 1] += 1
    for i in range(len(fresh)):
        if length[i] + fresh[i] > room[i]:
            total += 2 << _class_of(length[i] + fresh[i])
    return total


@njit(cache=True, nogil=True)
def _move(parts, at, length):
    """Give a list a block with room for so many entries; its old one is free."""
    k = _class_of(length)
    block = parts.blocks[k]
    if block >= 0:
        parts.blocks[k] = parts.entries[block, 0]
    else:
        block = parts.used[ENTRIES]
        parts.used[ENTRIES] += 2 << k
    old, n = parts.begin[at], parts.length[at]
    for i in range(n):
        for j in range(3):
            parts.entries[block + i, j] = parts.entries[old + i, j]
    _give_back(parts, at)
    parts.begin[at], parts.room[at] = block, 2 << k


@njit(cache=True, nogil=True)
def _give_back(parts, at):
    """The block of a list is free."""
    if parts.room[at]:
        k, block = _class_of(parts.room[at]), parts.begin[at]
        parts.entries[block, 0] = parts.blocks[k]
        parts.blocks[k] = block


@njit(cache=True, nogil=True)
def take_in(begin, tests, slot, several, hung, fresh, parts):
    """Hang up conjunctions. There is room; `fresh` is what `growth` counted.

    `hung`: the test that each hangs on, and that of a pair's other dimension or -1. They are written first.
    """
    dim, low, high, flags = tests
    access, other = hung
    for at in range(len(fresh)):
        if parts.length[at] + fresh[at] > parts.room[at]:
            _move(parts, at, parts.length[at] + fresh[at])
    for c in range(len(slot)):
        a, z = begin[c], begin[c + 1]
        k = z - a
        if k < SIZES and parts.spare[k] >= 0:
            row = np.int64(parts.spare[k])
            parts.spare[k] = parts.link[row, NEXT]
        else:
            row = parts.used[ROWS]
            parts.used[ROWS] += 1
            parts.first[row] = parts.used[TESTS]
            parts.used[TESTS] += k
        first = a + access[c] if access[c] >= 0 else np.int64(-1)
        second = a + other[c] if other[c] >= 0 else np.int64(-1)
        at = parts.first[row]
        if first >= 0:
            at = _write(parts.tests, at, dim[first], low[first], high[first], flags[first])
        if second >= 0:
            at = _write(parts.tests, at, dim[second], low[second], high[second], flags[second])
        for i in range(a, z):
            if i != first and i != second:
                at = _write(parts.tests, at, dim[i], low[i], high[i], flags[i])
        tag = np.uint32(slot[c]) | (SEVERAL if several[c] else np.uint32(0))
        if k > 1 or first < 0 or flags[first]:
            tag |= MORE
        parts.tag[row] = tag
        parts.link[row, TESTS_OF] = k
        parts.link[row, TWIN] = parts.row_of[slot[c]]
        parts.row_of[slot[c]] = row
        if second >= 0:
            _into_chain(parts, row, np.int64(dim[first]), np.int64(dim[second]))
        else:
            least, greatest = LEAST, GREATEST
            if first >= 0 and not flags[first] & NEGATED:
                least, greatest = low[first], high[first]
            own = np.int64(dim[first]) + 1 if first >= 0 else np.int64(0)
            place = parts.length[own]
            e = parts.begin[own] + place
            parts.entries[e, 0], parts.entries[e, 1] = least, greatest
            parts.entries[e, 2] = (row << 32) | np.int64(tag)
            parts.length[own] += 1
            parts.link[row, NEXT], parts.link[row, BACK] = (LISTED if first >= 0 else LOOSE), place
    parts.used[ALIVE] += len(slot)


@njit(cache=True, nogil=True, inline="always")
def _write(tests, at, dim, low, high, flags):
    tests[at, 0] = np.int64(dim) | (np.int64(flags) << 32)
    tests[at, 1], tests[at, 2] = low, high
    return at + 1


@njit(cache=True, nogil=True, inline="always")
def pair_key(x, y):
    """Of two dimensions, in any order."""
    return (min(x, y) << 32) | max(x, y)


@njit(cache=True, nogil=True)
def _enter(keys, partners, x, y):
    """The place of a pair in the table, which has room, and whether it is new there."""
    key = pair_key(x, y)
    at = find_key(keys, key)
    is_new = keys[at] < 0
    keys[at] = key
    mark_partners(partners, x, y)
    return at, is_new


@njit(cache=True, nogil=True)
def _into_chain(parts, row, x, y):
    at, is_new = _enter(parts.keys, parts.partners, x, y)
    head = np.int32(-1) if is_new else parts.chains[at]
    parts.used[PAIRS] += is_new
    parts.used[PAIRS_ALIVE] += head < 0
    parts.link[row, NEXT], parts.link[row, BACK] = head, -1
    if head >= 0:
        parts.link[head, BACK] = row
    parts.chains[at] = row


@njit(cache=True, nogil=True)
def fill_pairs(old_keys, old_chains, keys, chains, partners):
    """Pairs that have a chain, in another table, which is empty and large enough; returns how many."""
    count = 0
    for i in range(len(old_keys)):
        if old_keys[i] >= 0 and old_chains[i] >= 0:
            at, _ = _enter(keys, partners, old_keys[i] >> 32, old_keys[i] & 0xFFFFFFFF)
            chains[at] = old_chains[i]
            count += 1
    return count


@njit(cache=True, nogil=True)
def take_off(slots, parts):
    """Take off all conjunctions of these slots; a slot that has none is passed over."""
    for first in range(0, len(slots), _AHEAD):
        some = slots[first : first + _AHEAD]
        _fetch(some, parts)
        for slot in some:
            if slot < len(parts.row_of):
                row = np.int64(parts.row_of[slot])
                parts.row_of[slot] = -1
                while row >= 0:
                    _take_off(row, parts)
                    row = np.int64(parts.link[row, TWIN])


@njit(cache=True, nogil=True)
def _take_off(row, parts):
    following, back = np.int64(parts.link[row, NEXT]), np.int64(parts.link[row, BACK])
    at = parts.first[row]
    if following == LISTED or following == LOOSE:
        own = (parts.tests[at, 0] & 0xFFFFFFFF) + 1 if following == LISTED else np.int64(0)
        parts.length[own] -= 1
        last, gap = parts.begin[own] + parts.length[own], parts.begin[own] + back
        for j in range(3):
            parts.entries[gap, j] = parts.entries[last, j]
        parts.link[parts.entries[gap, 2] >> 32, BACK] = back
        if parts.length[own] == 0:  # others may have its block
            _give_back(parts, own)
            parts.room[own] = 0
        elif parts.room[own] > 8 and 4 * parts.length[own] <= parts.room[own]:
            k = _class_of(2 * parts.length[own])
            if parts.blocks[k] >= 0 or parts.used[ENTRIES] + (2 << k) <= len(parts.entries):
                _move(parts, own, 2 * parts.length[own])
    else:
        if following >= 0:
            parts.link[following, BACK] = back
        if back >= 0:
            parts.link[back, NEXT] = following
        else:
            place = find_key(parts.keys, _pair_of(parts, row))
            parts.chains[place] = following
            parts.used[PAIRS_ALIVE] -= following < 0
    k = parts.link[row, TESTS_OF]
    parts.link[row, BACK] = FREE
    if k < SIZES:
        parts.link[row, NEXT] = parts.spare[k]
        parts.spare[k] = row
    parts.used[ALIVE] -= 1


@njit(cache=True, nogil=True, inline="always")
def _pair_of(parts, row):
    """The key of the pair that a conjunction hangs on."""
    at = parts.first[row]
    return pair_key(parts.tests[at, 0] & 0xFFFFFFFF, parts.tests[at + 1, 0] & 0xFFFFFFFF)


@njit(cache=True, nogil=True)
def _fetch(slots, parts):
    """Ask for all that taking off reads, of several slots at a time: each step leads to the next one."""
    rows, n = np.empty(_AHEAD, np.int64), 0
    for slot in slots:
        row = parts.row_of[slot] if slot < len(parts.row_of) else -1
        if row >= 0:
            prefetch(parts.link, 4 * np.int64(row))
            prefetch(parts.first, np.int64(row))
            rows[n] = row
            n += 1
    for row in rows[:n]:
        prefetch(parts.tests, 3 * parts.first[row])
    for row in rows[:n]:
        following, back = np.int64(parts.link[row, NEXT]), np.int64(parts.link[row, BACK])
        if following == LISTED:
            own = (parts.tests[parts.first[row], 0] & 0xFFFFFFFF) + 1
            prefetch(parts.entries, 3 * (parts.begin[own] + back))
            prefetch(parts.entries, 3 * (parts.begin[own] + parts.length[own] - 1) + 2)
        elif following != LOOSE and back < 0:
            at = np.int64(key_place(parts.keys, _pair_of(parts, row)))
            prefetch(parts.keys, at)
            prefetch(parts.chains, at)
    for row in rows[:n]:
        if parts.link[row, NEXT] == LISTED:
            own = (parts.tests[parts.first[row], 0] & 0xFFFFFFFF) + 1
            last = parts.begin[own] + parts.length[own] - 1
            prefetch(parts.link, 4 * (parts.entries[last, 2] >> 32))


@njit(cache=True, nogil=True)
def rows_alive(link, count):
    """The conjunctions that hang somewhere."""
    out, n = np.empty(count, np.int64), 0
    for row in range(count):
        out[n] = row
        n += link[row, BACK] != FREE
    return out[:n]
