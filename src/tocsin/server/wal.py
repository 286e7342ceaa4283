"""The tail of SQLite's write-ahead log: bytes of a transaction that was never completed.

SQLite ignores all that follows the first bad frame. After a crash that is right: each commit is synced before
the next begins, so at most one transaction is torn, and it was acknowledged to nobody. If whole transactions
follow a bad frame, the file was damaged, and ignoring them would lose what was acknowledged. So the tail is
read here before SQLite opens the file: what is torn is counted, what is damaged is an error.

A write-ahead log is a header of 32 bytes and frames of 24 bytes plus a page. Each frame repeats the header's
salts and has a checksum that continues from the frame before; the last frame of a transaction has the size
of the database in its second field.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["torn_bytes"]

_HEADER, _FRAME = 32, 24
_MASK = 0xFFFFFFFF
_AT_ONCE = 4096  # frames
_MAGIC = (0x377F0682, 0x377F0683)


def torn_bytes(path: Path) -> int:
    """Bytes after the last whole transaction that belong to one that was cut; ValueError if more is bad."""
    try:
        data = path.read_bytes()
    except OSError:
        return 0
    if len(data) < _HEADER:
        return len(data)
    magic, _, page, _, *salts, s1, s2 = struct.unpack(">8I", data[:_HEADER])
    order = ">u4" if magic == _MAGIC[1] else "<u4"
    if magic not in _MAGIC or _checksum(data[:24], order, 0, 0) != (s1, s2):
        return len(data)
    whole, at, size = _HEADER, _HEADER, _FRAME + page
    sums = _frame_sums(data, size, order)
    power = _weights((8 + page) // 8)[1]
    while at + _FRAME <= len(data):
        head = struct.unpack(">6I", data[at : at + _FRAME])
        if list(head[2:4]) != salts:  # of a log that was used before: not torn
            return at - whole
        if at + size > len(data):
            break
        own = next(sums)
        s1, s2 = (
            (power[0][0] * s1 + power[0][1] * s2 + own[0]) & _MASK,
            (power[1][0] * s1 + power[1][1] * s2 + own[1]) & _MASK,
        )
        if (s1, s2) != head[4:6]:
            _check_last(data, at, size, data[16:24])
            break
        at += size
        whole = at if head[1] else whole
    return len(data) - whole


def _check_last(data: bytes, at: int, size: int, salts: bytes) -> None:
    """Raise if a transaction follows the one of this bad frame."""
    has_ended = False
    for start in range(at, len(data) - size + 1, size):
        if data[start + 8 : start + 16] != salts:
            return
        if has_ended:
            raise ValueError(f"byte {at} of its write-ahead log is damaged, and transactions follow")
        has_ended = data[start + 4 : start + 8] != b"\0\0\0\0"


def _frame_sums(data: bytes, size: int, order: str) -> Iterator[list[int]]:
    """What each frame adds to the checksum: of the first 8 bytes of its header, and its page."""
    weights, _ = _weights((size - _FRAME + 8) // 8)
    count = (len(data) - _HEADER) // size
    frames = np.frombuffer(data, np.uint8, count * size, _HEADER).reshape(count, size)
    for start in range(0, count, _AT_ONCE):
        some = frames[start : start + _AT_ONCE]
        parts = np.concatenate([some[:, :8], some[:, _FRAME:]], axis=1)
        yield from (parts.view(order).astype(np.uint32) @ weights).tolist()


@cache
def _weights(pairs: int) -> tuple[Any, list[list[int]]]:
    """How so many pairs of words count in the checksum after them, and how what was before counts.

    SQLite's checksum of words x, y is s1 += x + s2, s2 += y + s1: a linear map A of (s1, s2), with (1, 1) x +
    (0, 1) y added. So the pair that k others follow counts A^k times that, and the start A^pairs.
    """
    out = np.empty((2 * pairs, 2), np.uint32)
    a, b, c, d = 1, 0, 0, 1  # A^k
    for k in range(pairs):
        at = 2 * (pairs - 1 - k)
        out[at], out[at + 1] = ((a + b) & _MASK, (c + d) & _MASK), (b, d)
        a, b, c, d = (a + b) & _MASK, (a + 2 * b) & _MASK, (c + d) & _MASK, (c + 2 * d) & _MASK
    return out, [[a, b], [c, d]]


def _checksum(data: bytes, order: str, s1: int, s2: int) -> tuple[int, int]:
    """SQLite's checksum of words, continued."""
    weights, ((a, b), (c, d)) = _weights(len(data) // 8)
    own = (np.frombuffer(data, order).astype(np.uint32) @ weights).tolist()
    return (a * s1 + b * s2 + own[0]) & _MASK, (c * s1 + d * s2 + own[1]) & _MASK
