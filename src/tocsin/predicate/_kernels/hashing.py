"""Hashes of byte strings."""

from __future__ import annotations

import numpy as np
from numba import njit

__all__ = ["hash_texts"]


@njit(cache=True, nogil=True)
def hash_texts(start, data, out):
    """FNV-1a of each, with its upper bits mixed in."""
    for i in range(len(out)):
        h = np.uint64(0xCBF29CE484222325)
        for j in range(start[i], start[i + 1]):
            h = (h ^ np.uint64(data[j])) * np.uint64(0x100000001B3)
        h ^= h >> np.uint64(29)
        out[i] = np.int64(h >> np.uint64(2))  # well inside of int64, whose ends are open ranges
