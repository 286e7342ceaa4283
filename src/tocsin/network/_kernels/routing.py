"""Which links want a message, and the messages of each link as bytes.

Boxes over planes have eight ends, (low, high) by dimension, and the number of a form. Entries of a table lie
in blocks of 32, blocks in groups of 32; each block and each group has bounds, the least box that holds its
boxes. A box of a message is tested against bounds of groups, of blocks, then against entries.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.compiled import kernel

__all__ = ["BLOCK", "BoxTree", "SplitBuffers", "find_links", "split_messages"]

BLOCK = 32


class BoxTree(NamedTuple):
    """Entries in blocks; forms as (low, high), as those of bounds are."""

    slot: NDArray[np.int64]
    boxes: NDArray[np.int64]  # by entry, eight ends
    forms: NDArray[np.int64]  # by entry, (low, high)
    block_boxes: NDArray[np.int64]
    block_forms: NDArray[np.int64]
    group_boxes: NDArray[np.int64]
    group_forms: NDArray[np.int64]


class SplitBuffers(NamedTuple):
    """Where the messages of links are written, one link after the other."""

    numbers: NDArray[np.int64]  # ten columns, then boxes
    data: NDArray[np.uint8]  # bodies


@kernel(inline=True, allocates=False)
def meet(form, box, forms, boxes, i):
    """Whether a box meets the i-th of others."""
    if form < forms[i, 0] or form > forms[i, 1]:
        return False
    for k in range(0, 8, 2):
        if box[k] > boxes[i, k + 1] or box[k + 1] < boxes[i, k]:
            return False
    return True


@kernel(allocates=False)
def find_in_tree(tree, form, box, link, seen, m, out, n):
    """Enter pairs of message m and links that were not seen with it yet, from n on; how many there are."""
    for g in range(len(tree.group_forms)):
        if not meet(form, box, tree.group_forms, tree.group_boxes, g):
            continue
        for b in range(g * BLOCK, min((g + 1) * BLOCK, len(tree.block_forms))):
            if not meet(form, box, tree.block_forms, tree.block_boxes, b):
                continue
            for i in range(b * BLOCK, min((b + 1) * BLOCK, len(tree.slot))):
                number = link[tree.slot[i]]
                if number < 0 or seen[number] == m:
                    continue
                if meet(form, box, tree.forms, tree.boxes, i):
                    seen[number] = m
                    out[0, n], out[1, n] = m, number
                    n += 1
    return n


@kernel(allocates=False)
def find_links(sorted_tree, recent, forms, boxes, start, link, seen, out):
    """Pairs of a message and a link that wants it, each once.

    Begins with message out[0, 0]. Returns how many there are, and the message to go on with: the last one, or
    the one for which `out` may be too short.
    """
    n, m = 0, out[0, 0]
    while m < len(start) - 1 and n + len(seen) <= out.shape[1]:
        for b in range(start[m], start[m + 1]):
            n = find_in_tree(sorted_tree, forms[m], boxes[b], link, seen, m, out, n)
            n = find_in_tree(recent, forms[m], boxes[b], link, seen, m, out, n)
        m += 1
    return n, m


@kernel(allocates=False)
def split_messages(columns, boxes, data, first, message, out):
    """Write the messages of each part, message[first[p]] to message[first[p + 1]], as `to_bytes` would.

    `columns` has ten by message; the last two are the ends of its boxes and of its body.
    """
    number = byte = 0
    for p in range(len(first) - 1):
        a, z = first[p], first[p + 1]
        for c in range(8):
            for i in range(a, z):
                out.numbers[number] = columns[c, message[i]]
                number += 1
        ends = number
        number += 2 * (z - a)
        own_boxes = own_bytes = 0
        for i in range(a, z):
            m = message[i]
            begin = columns[8, m - 1] if m > 0 else 0
            for b in range(begin, columns[8, m]):
                for k in range(8):
                    out.numbers[number] = boxes[b, k]
                    number += 1
            own_boxes += columns[8, m] - begin
            begin = columns[9, m - 1] if m > 0 else 0
            for d in range(begin, columns[9, m]):
                out.data[byte] = data[d]
                byte += 1
            own_bytes += columns[9, m] - begin
            out.numbers[ends + i - a] = own_boxes
            out.numbers[ends + (z - a) + (i - a)] = own_bytes
