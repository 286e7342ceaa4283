"""Messages to many links: what each of them gets, written all at once.

A link gets few of a batch's messages, but there are many links: to take the messages of each link apart by
NumPy costs 0.2 ms by link, the kernel here some microseconds.

>>> from tocsin.network.batches import EMPTY
>>> split(EMPTY, Routed(*np.zeros((3, 0), np.int64)), most=1000)
[]
"""

from __future__ import annotations

import numpy as np

from tocsin.network._kernels.routing import SplitBuffers, split_messages
from tocsin.network.batches import PLANES, MessageBatch
from tocsin.network.routing import Routed, read_only
from tocsin.network.wire import PackedBatch

__all__ = ["split"]

_COLUMNS = 10
_ENDS = 4 * PLANES


def split(batch: MessageBatch, routed: Routed, most: int) -> list[list[PackedBatch]]:
    """By link that wants any of a batch: its messages, in batches of at most so many bytes."""
    links, first, message = routed
    if not len(links):
        return []
    regions = batch.messages.regions
    boxes, sizes = np.diff(regions.start)[message], np.diff(batch.ends, prepend=0)[message]
    counts = np.diff(first)
    boxes_of, bytes_of = np.add.reduceat(boxes, first[:-1]), np.add.reduceat(sizes, first[:-1])
    numbers_of = _COLUMNS * counts + _ENDS * boxes_of
    if (8 * numbers_of + bytes_of).max() > most:
        parts = [batch.take(part) for part in np.split(message, first[1:-1])]
        return [[PackedBatch.of(piece) for piece in part.pieces(most)] for part in parts]
    out = SplitBuffers(np.empty(numbers_of.sum(), np.int64), np.empty(bytes_of.sum(), np.uint8))
    split_messages(
        batch.columns(),
        read_only(regions.boxes).reshape(-1, _ENDS),
        np.frombuffer(batch.data, np.uint8),
        first,
        message,
        out,
    )
    numbers, data = out.numbers.data.cast("B"), out.data.data
    number = np.append(0, 8 * np.cumsum(numbers_of)).tolist()
    byte = np.append(0, np.cumsum(bytes_of)).tolist()
    return [
        [PackedBatch(n, b, b"".join([numbers[number[i] : number[i + 1]], data[byte[i] : byte[i + 1]]]))]
        for i, (n, b) in enumerate(zip(counts.tolist(), boxes_of.tolist(), strict=True))
    ]
