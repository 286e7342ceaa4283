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
from pathlib import Path

import numpy as np

__all__ = ["torn_bytes"]

_HEADER, _FRAME = 32, 24
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
    while at + _FRAME <= len(data):
        head = struct.unpack(">6I", data[at : at + _FRAME])
        if list(head[2:4]) != salts:  # of a log that was used before: not torn
            return at - whole
        if at + size > len(data):
            break
        s1, s2 = _checksum(data[at : at + 8], order, s1, s2)
        s1, s2 = _checksum(data[at + _FRAME : at + size], order, s1, s2)
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


def _checksum(data: bytes, order: str, s1: int, s2: int) -> tuple[int, int]:
    """SQLite's checksum of words, continued."""
    words = np.frombuffer(data, order).tolist()
    for first, second in zip(words[::2], words[1::2], strict=True):
        s1 = (s1 + first + s2) & 0xFFFFFFFF
        s2 = (s2 + second + s1) & 0xFFFFFFFF
    return s1, s2
