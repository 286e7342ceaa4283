"""Compiled loops of the hash map from ids to slots, and of the heap of what expires."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.compiled import kernel

__all__ = [
    "FREE",
    "REMOVED",
    "TimeHeap",
    "find_ids",
    "pop_time",
    "pop_times",
    "push_time",
    "push_times",
    "put_ids",
    "remove_ids",
]

FREE, REMOVED = np.int32(-1), np.int32(-2)


@kernel(inline=True, allocates=False)
def _hash(x):
    y = np.uint64(x) * np.uint64(0x9E3779B97F4A7C15)
    return y ^ (y >> np.uint64(29))


@kernel
def find_ids(key, value, wanted):
    """The value of each wanted key, -1 if it is absent."""
    mask = np.uint64(len(key) - 1)
    out = np.empty(len(wanted), np.int32)
    for i in range(len(wanted)):
        h = _hash(wanted[i]) & mask
        while value[h] != FREE and (value[h] == REMOVED or key[h] != wanted[i]):
            h = (h + np.uint64(1)) & mask
        out[i] = value[h]
    return out


@kernel(allocates=False)
def put_ids(key, value, keys, values):
    """Adds keys that are absent; returns how many of their entries had never been used."""
    mask = np.uint64(len(key) - 1)
    used = 0
    for i in range(len(keys)):
        h = _hash(keys[i]) & mask
        while value[h] >= 0:
            h = (h + np.uint64(1)) & mask
        used += 1 if value[h] == FREE else 0
        key[h], value[h] = keys[i], values[i]
    return used


@kernel(allocates=False)
def remove_ids(key, value, keys):
    """Removes keys that are present."""
    mask = np.uint64(len(key) - 1)
    for i in range(len(keys)):
        h = _hash(keys[i]) & mask
        while value[h] == REMOVED or key[h] != keys[i]:
            h = (h + np.uint64(1)) & mask
        value[h] = REMOVED


# -- what expires next -------------------------------------------------------------------------------


class TimeHeap(NamedTuple):
    """A binary heap of slots by time, the earliest first; `used` has how many there are."""

    time: NDArray[np.int64]
    slot: NDArray[np.int32]
    used: NDArray[np.int64]


@kernel(inline=True, allocates=False)
def push_time(heap, t, added):
    """Add one slot; there is space for it. One that is later than all others takes O(1)."""
    time, slot, used = heap
    at = used[0]
    used[0] = at + 1
    while at > 0 and time[(at - 1) >> 1] > t:
        above = (at - 1) >> 1
        time[at], slot[at] = time[above], slot[above]
        at = above
    time[at], slot[at] = t, added


@kernel(inline=True, allocates=False)
def pop_time(heap):
    """Remove the slot with the least time; it is returned."""
    time, slot, used = heap
    first, n, at = slot[0], used[0] - 1, 0
    t, s = time[n], slot[n]
    while True:  # the last one sinks from the top
        below = 2 * at + 1
        if below >= n:
            break
        if below + 1 < n and time[below + 1] < time[below]:
            below += 1
        if time[below] >= t:
            break
        time[at], slot[at] = time[below], slot[below]
        at = below
    if n > 0:
        time[at], slot[at] = t, s
    used[0] = n
    return first


@kernel(allocates=False)
def push_times(heap, times, slots):
    """Add slots; there is space for them."""
    for i in range(len(times)):
        push_time(heap, times[i], slots[i])


@kernel(allocates=False)
def pop_times(heap, bound, out_times, out_slots):
    """Remove slots with a time of at most `bound`, in order of time, as far as the output suffices."""
    found = 0
    while heap.used[0] > 0 and found < len(out_times) and heap.time[0] <= bound:
        out_times[found] = heap.time[0]
        out_slots[found] = pop_time(heap)
        found += 1
    return found
