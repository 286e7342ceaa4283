"""Arrays whose memory is taken from the system as they are written, and can be given back.

A buffer under a hard budget must not be copied to grow: for a moment it would exist twice. So its arrays are
as long as the budget allows from the beginning; only pages that were written count. When rows are dropped and
the rest moves to the front, the pages behind them are given back.

>>> numbers = paged(np.int64, 1 << 20)
>>> numbers[:3] = 1, 2, 3
>>> release(numbers, 3)
>>> numbers[:3].tolist()
[1, 2, 3]
"""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["paged", "release", "resized"]

_SMALL = 1 << 18  # bytes; smaller arrays are ordinary ones
_PRIVATE = getattr(mmap, "MAP_PRIVATE", 0) | getattr(mmap, "MAP_ANONYMOUS", 0)
_DISCARD = getattr(mmap, "MADV_DONTNEED", None)


def paged(dtype: Any, count: int) -> NDArray[Any]:
    """An array of zeros."""
    size = np.dtype(dtype).itemsize * count
    if size < _SMALL or not _PRIVATE:
        return np.zeros(count, dtype)
    return np.frombuffer(mmap.mmap(-1, size, flags=_PRIVATE), dtype, count)


def release(array: NDArray[Any], used: int) -> None:
    """Give back the memory behind the first `used` items; they may be written again."""
    memory = _memory_of(array)
    if memory is None or _DISCARD is None:
        return
    page = mmap.PAGESIZE
    begin = -(-used * array.itemsize // page) * page
    if begin < array.nbytes:
        memory.madvise(_DISCARD, begin, array.nbytes - begin)


def resized(array: NDArray[Any], count: int) -> NDArray[Any]:
    """The items in an array of another length."""
    made = paged(array.dtype, count)
    kept = min(count, len(array))
    made[:kept] = array[:kept]
    return made


def _memory_of(array: NDArray[Any]) -> mmap.mmap | None:
    base: Any = array.base
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, memoryview):
        base = base.obj
    return base if isinstance(base, mmap.mmap) else None
