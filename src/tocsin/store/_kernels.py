"""Compiled loops of the hash map from ids to slots."""

from __future__ import annotations

import numpy as np

from tocsin.compiled import kernel

__all__ = ["FREE", "REMOVED", "find_ids", "put_ids", "remove_ids"]

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
