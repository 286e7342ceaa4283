"""The result rows of affected queries: (slot, row of the other table), written one after the other.

Both functions count on when `out` is full and tell how many there are, so that the caller may come again.
"""

from __future__ import annotations

from numba import njit

from tocsin.join._kernels.band import window
from tocsin.join._kernels.orders import CAPACITY, LENGTH, MAX, MIN, find_run, seek, seek_run

__all__ = ["band_rows", "equality_rows"]


@njit(cache=True, nogil=True)
def _walk(order, d, i, slot, key_to, value_to, out, n):
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
        i = 0
    return n


@njit(cache=True, nogil=True)
def equality_rows(order, key, low, high, slots, out):
    """Rows of the key with a value in low..high (by slot)."""
    run, n = find_run(order, key), 0
    if run.length == 0:
        return n
    for slot in slots:
        d, i = seek_run(order, run, low[slot])
        n = _walk(order, d, i, slot, key, high[slot], out, n)
    return n


@njit(cache=True, nogil=True)
def band_rows(order, first, key, low, high, slots, out):
    """Rows whose key is in low..high (by slot) from `key`."""
    n = 0
    if order.meta[LENGTH] == 0:
        return n
    for slot in slots:
        begin, end = window(first, key, low[slot], high[slot])
        d, i = seek(order, begin, MIN)
        n = _walk(order, d, i, slot, end, MAX, out, n)
    return n
