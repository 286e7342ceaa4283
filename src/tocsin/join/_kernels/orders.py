"""An ordered index in flat arrays: blocks of sorted triples under a directory.

    directory   first triple of each block, in order           (1,4,0) (3,0,7) (3,9,2)
                number of that block                                0       2       1
    blocks      CAPACITY triples (key, value, row) each, the first `size` of them used

A place is (d, i): entry i of the d-th block in the order of the directory. A place (d, size) is the end
of its block; `seek` never returns it unless it is the end of all.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.compiled import kernel

__all__ = [
    *("BLOCKS", "CAPACITY", "COUNT", "FREE", "LENGTH", "MAX", "MIN", "Order", "Run"),
    *("beside", "delete_row", "delete_rows", "find_run", "gather_matches", "gather_rows", "gather_values"),
    *("insert_row", "insert_rows", "next_key", "seek", "seek_run", "within"),
]

CAPACITY = 128
LENGTH, BLOCKS, FREE, COUNT = 0, 1, 2, 3  # of `meta`
MIN, MAX = np.int64(-(2**63)), np.int64(2**63 - 1)


class Order(NamedTuple):
    key: NDArray[np.int64]
    value: NDArray[np.int64]
    row: NDArray[np.int64]
    first_key: NDArray[np.int64]  # the directory: with the first triples ...
    first_value: NDArray[np.int64]
    first_row: NDArray[np.int64]
    block: NDArray[np.int64]  # ... and the numbers of their blocks
    size: NDArray[np.int64]  # by block
    free: NDArray[np.int64]  # blocks to reuse
    meta: NDArray[np.int64]  # entries of the directory, blocks ever used, free blocks, rows


class Run(NamedTuple):
    """The entries of one key: from (d0, i0) to before (d1, i1), both blocks holding some of them."""

    d0: int
    i0: int
    d1: int
    i1: int
    length: int  # entries


# -- finding -----------------------------------------------------------------------------------------


@kernel(allocates=False)
def _block_before(order, key, value, row):
    """The last block of the directory whose first triple is at most this one; 0 if there is none."""
    low, count = np.int64(0), order.meta[LENGTH]
    while count > 1:
        half = count >> 1
        k, v = order.first_key[low + half], order.first_value[low + half]
        r = order.first_row[low + half]
        fits = (k < key) | ((k == key) & ((v < value) | ((v == value) & (r <= row))))
        low = low + half if fits else low
        count -= half
    return low


@kernel(allocates=False)
def _place_in(order, begin, count, key, value, row):
    """How many of the triples from `begin` on are below this one."""
    low = begin
    while count > 0:
        half = count >> 1
        k, v, r = order.key[low + half], order.value[low + half], order.row[low + half]
        below = (k < key) | ((k == key) & ((v < value) | ((v == value) & (r < row))))
        low = low + half + 1 if below else low
        count = count - half - 1 if below else half
    return low - begin


@kernel(allocates=False)
def seek(order, key, value):
    """The place of the first entry from (key, value) on, in the order of keys and values."""
    if order.meta[LENGTH] == 0:
        return np.int64(0), np.int64(0)
    d = _block_before(order, key, value, MIN)
    b = order.block[d]
    i = _place_in(order, b * CAPACITY, order.size[b], key, value, MIN)
    if i == order.size[b] and d + 1 < order.meta[LENGTH]:
        return d + 1, np.int64(0)
    return d, i


@kernel(inline=True, allocates=False)
def next_key(order, key):
    """The greatest key below `key` and the least from it on: (is there one, which, is there one, which)."""
    if order.meta[LENGTH] == 0:
        return False, MIN, False, MAX
    low, count = np.int64(0), order.meta[LENGTH]
    while count > 1:
        half = count >> 1
        low = low + half if order.first_key[low + half] < key else low
        count -= half
    b = order.block[low]
    base = b * CAPACITY
    i, count = base, order.size[b]
    while count > 0:
        half = count >> 1
        below = order.key[i + half] < key
        i = i + half + 1 if below else i
        count = count - half - 1 if below else half
    has1, q1 = i > base, MIN
    if has1:  # only in the first block can there be no smaller key
        q1 = order.key[i - 1]
    if i < base + order.size[b]:
        return has1, q1, True, order.key[i]
    if low + 1 < order.meta[LENGTH]:
        return has1, q1, True, order.first_key[low + 1]
    return has1, q1, False, MAX


@kernel(allocates=False)
def find_run(order, key):
    """All entries of a key; `length` 0 if there are none."""
    d0, i0 = seek(order, key, MIN)
    none = Run(np.int64(0), np.int64(0), np.int64(0), np.int64(0), np.int64(0))
    if order.meta[LENGTH] == 0:
        return none
    b = order.block[d0]
    if i0 == order.size[b] or order.key[b * CAPACITY + i0] != key:
        return none
    d1 = d0
    if d0 + 1 < order.meta[LENGTH] and order.first_key[d0 + 1] == key:
        low, count = d0 + 1, order.meta[LENGTH] - d0 - 1
        while count > 1:
            half = count >> 1
            low = low + half if order.first_key[low + half] <= key else low
            count -= half
        d1 = low
    b1 = order.block[d1]
    i = i0 if d1 == d0 else np.int64(0)
    count, base = order.size[b1] - i, b1 * CAPACITY
    while count > 0:
        half = count >> 1
        inside = order.key[base + i + half] <= key
        i = i + half + 1 if inside else i
        count = count - half - 1 if inside else half
    total = i - i0 if d1 == d0 else order.size[b] - i0 + i
    for d in range(d0 + 1, d1):
        total += order.size[order.block[d]]
    return Run(d0, i0, d1, i, total)


@kernel(inline=True, allocates=False)
def seek_run(order, run, value):
    """The place of the first entry of the run from `value` on; (d1, i1) if there is none."""
    d = run.d0
    if run.d1 > d:
        count = run.d1 - d + 1
        while count > 1:
            half = count >> 1
            d = d + half if order.first_value[d + half] < value else d
            count -= half
    base = order.block[d] * CAPACITY
    i = run.i0 if d == run.d0 else np.int64(0)
    end = run.i1 if d == run.d1 else order.size[order.block[d]]
    count = end - i
    while count > 0:
        half = count >> 1
        below = order.value[base + i + half] < value
        i = i + half + 1 if below else i
        count = count - half - 1 if below else half
    if i == end and d < run.d1:
        return d + 1, np.int64(0)
    return d, i


@kernel(inline=True, allocates=False)
def beside(order, run, value):
    """The run's greatest value below `value` and its least from there on, as in `next_key`."""
    d, i = seek_run(order, run, value)
    has2 = (d < run.d1) | (i < run.i1)
    q1, q2 = MIN, MAX
    if has2:
        q2 = order.value[order.block[d] * CAPACITY + i]
    has1 = (d > run.d0) | (i > run.i0)
    if has1:
        if i > 0:
            q1 = order.value[order.block[d] * CAPACITY + i - 1]
        else:
            b = order.block[d - 1]
            q1 = order.value[b * CAPACITY + order.size[b] - 1]
    return has1, q1, has2, q2


@kernel(inline=True, allocates=False)
def within(order, run, low, high):
    """Has the run a value in low..high?"""
    d, i = seek_run(order, run, low)
    if d == run.d1 and i == run.i1:
        return False
    return order.value[order.block[d] * CAPACITY + i] <= high


@kernel(allocates=False)
def gather_values(order, run, out):
    """The values of a run, ascending, into `out`; how many."""
    n = 0
    if run.length:
        for d in range(run.d0, run.d1 + 1):
            b = order.block[d]
            begin = run.i0 if d == run.d0 else np.int64(0)
            end = run.i1 if d == run.d1 else order.size[b]
            for i in range(b * CAPACITY + begin, b * CAPACITY + end):
                out[n] = order.value[i]
                n += 1
    return n


@kernel(allocates=False)
def gather_rows(order, place, key_to, value_to, out, n):
    """Rows from a place on while (key, value) is at most (key_to, value_to); where `out` ends then.

    Keeps counting when `out` is full, so that the caller can repeat the call with a larger one.
    """
    d, i = place
    while d < order.meta[LENGTH]:
        b = order.block[d]
        while i < order.size[b]:
            at = b * CAPACITY + i
            k = order.key[at]
            if k > key_to or (k == key_to and order.value[at] > value_to):
                return n
            if n < len(out):
                out[n] = order.row[at]
            n += 1
            i += 1
        d += 1
        i = np.int64(0)
    return n


@kernel(allocates=False)
def gather_matches(order, place, slot, last, out, n):
    """Write (slot, row) from a place on while (key, value) is at most `last`; counts as `gather_rows`."""
    d, i = place
    key_to, value_to = last
    while d < order.meta[LENGTH]:
        b = order.block[d]
        while i < order.size[b]:
            at = b * CAPACITY + i
            k = order.key[at]
            if k > key_to or (k == key_to and order.value[at] > value_to):
                return n
            if n < out.shape[1]:
                out[0, n], out[1, n] = slot, order.row[at]
            n += 1
            i += 1
        d += 1
        i = np.int64(0)
    return n


# -- changing ----------------------------------------------------------------------------------------


@kernel(allocates=False)
def _add_block(order, d, b, key, value, row):
    """Add block b to the directory, as the d-th."""
    for j in range(order.meta[LENGTH], d, -1):
        order.first_key[j], order.first_value[j] = order.first_key[j - 1], order.first_value[j - 1]
        order.first_row[j], order.block[j] = order.first_row[j - 1], order.block[j - 1]
    order.first_key[d], order.first_value[d], order.first_row[d] = key, value, row
    order.block[d] = b
    order.meta[LENGTH] += 1


@kernel(allocates=False)
def _new_block(order):
    if order.meta[FREE] > 0:
        order.meta[FREE] -= 1
        return order.free[order.meta[FREE]]
    if order.meta[BLOCKS] == len(order.size):
        return np.int64(-1)
    order.meta[BLOCKS] += 1
    return order.meta[BLOCKS] - 1


@kernel(allocates=False)
def _split(order, d):
    """The upper half of a full block moves to a new one, the next in the directory."""
    b, fresh = order.block[d], _new_block(order)
    if fresh < 0:
        return False
    half = CAPACITY // 2
    source, target = b * CAPACITY + half, fresh * CAPACITY
    for i in range(CAPACITY - half):
        order.key[target + i] = order.key[source + i]
        order.value[target + i] = order.value[source + i]
        order.row[target + i] = order.row[source + i]
    order.size[b], order.size[fresh] = half, CAPACITY - half
    _add_block(order, d + 1, fresh, order.key[target], order.value[target], order.row[target])
    return True


@kernel(allocates=False)
def insert_row(order, key, value, row):
    """Insert a row; False, and nothing done, if no block is left (see `OrderedRows.reserve`)."""
    if order.meta[LENGTH] == 0:
        b = _new_block(order)
        if b < 0:
            return False
        order.size[b] = 0
        _add_block(order, np.int64(0), b, key, value, row)
    d = _block_before(order, key, value, row)
    b = order.block[d]
    if order.size[b] == CAPACITY:
        if not _split(order, d):
            return False
        k, v, r = order.first_key[d + 1], order.first_value[d + 1], order.first_row[d + 1]
        if k < key or (k == key and (v < value or (v == value and r <= row))):
            d += 1
            b = order.block[d]
    base = b * CAPACITY
    at = base + _place_in(order, base, order.size[b], key, value, row)
    for j in range(base + order.size[b], at, -1):
        order.key[j] = order.key[j - 1]
    for j in range(base + order.size[b], at, -1):
        order.value[j] = order.value[j - 1]
    for j in range(base + order.size[b], at, -1):
        order.row[j] = order.row[j - 1]
    order.key[at], order.value[at], order.row[at] = key, value, row
    order.size[b] += 1
    order.meta[COUNT] += 1
    if at == base:
        order.first_key[d], order.first_value[d], order.first_row[d] = key, value, row
    return True


@kernel(allocates=False)
def delete_row(order, key, value, row):
    """Delete a row; False if it is not there."""
    if order.meta[LENGTH] == 0:
        return False
    d = _block_before(order, key, value, row)
    b = order.block[d]
    base = b * CAPACITY
    at = base + _place_in(order, base, order.size[b], key, value, row)
    end = base + order.size[b]
    if at == end or order.key[at] != key or order.value[at] != value or order.row[at] != row:
        return False
    for j in range(at, end - 1):
        order.key[j] = order.key[j + 1]
    for j in range(at, end - 1):
        order.value[j] = order.value[j + 1]
    for j in range(at, end - 1):
        order.row[j] = order.row[j + 1]
    order.size[b] -= 1
    order.meta[COUNT] -= 1
    if order.size[b] == 0:
        order.free[order.meta[FREE]] = b
        order.meta[FREE] += 1
        order.meta[LENGTH] -= 1
        for j in range(d, order.meta[LENGTH]):
            order.first_key[j], order.first_value[j] = order.first_key[j + 1], order.first_value[j + 1]
            order.first_row[j], order.block[j] = order.first_row[j + 1], order.block[j + 1]
    elif at == base:
        order.first_key[d], order.first_value[d] = order.key[base], order.value[base]
        order.first_row[d] = order.row[base]
    return True


@kernel(allocates=False)
def insert_rows(order, keys, values, rows):
    for i in range(len(rows)):
        insert_row(order, keys[i], values[i], rows[i])


@kernel(allocates=False)
def delete_rows(order, keys, values, rows):
    for i in range(len(rows)):
        delete_row(order, keys[i], values[i], rows[i])
