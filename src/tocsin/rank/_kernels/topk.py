"""Keys in order, labels between them, and the objects of top-k families, change by change."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.compiled import kernel
from tocsin.rank._kernels.points import MAX

__all__ = [
    "FREE",
    "NEXT",
    "LabelledMoves",
    "ObjectTable",
    "ObjectVersions",
    "follow",
    "lower_bounds",
    "spread",
]

FREE, NEXT = 0, 1  # of `ObjectTable.counts`: how many numbers are free; the next number never used


class ObjectTable(NamedTuple):
    """Objects under dense numbers: a row keeps its number through updates."""

    number: NDArray[np.int64]  # by row
    label: NDArray[np.int64]  # by object, as last painted; MAX: absent
    free: NDArray[np.int64]  # a stack of unused numbers
    counts: NDArray[np.int64]  # FREE, NEXT


class LabelledMoves(NamedTuple):
    """Moves in order: row before and after (-1: none), and the label of the row after."""

    old: NDArray[np.int64]
    new: NDArray[np.int64]
    label: NDArray[np.int64]


class ObjectVersions(NamedTuple):
    """By move: the number of its object, and the label of the object's new version (MAX: absent)."""

    number: NDArray[np.int64]
    label: NDArray[np.int64]


@kernel
def lower_bounds(keys, wanted, at, there):
    """By wanted row: the first row of the sorted `keys` not below it, and whether they are equal."""
    width = keys.shape[1]
    for i in range(len(wanted)):
        low, high = 0, len(keys)
        while low < high:
            middle = (low + high) // 2
            below = False
            for c in range(width):
                if keys[middle, c] != wanted[i, c]:
                    below = keys[middle, c] < wanted[i, c]
                    break
            if below:
                low = middle + 1
            else:
                high = middle
        at[i] = low
        there[i] = low < len(keys)
        if there[i]:
            for c in range(width):
                if keys[low, c] != wanted[i, c]:
                    there[i] = False
                    break


@kernel
def spread(labels, at, gap, out):
    """Even labels for new keys, ascending, that belong before the places `at`; False if there is no gap."""
    i = 0
    while i < len(at):
        run = i
        while run < len(at) and at[run] == at[i]:
            run += 1
        count, place = run - i, at[i]
        if count > 1 << 20:  # so that no product below overflows
            return False
        if place == len(labels):
            first, step = labels[-1] + gap, gap
            if labels[-1] > np.int64(2**61) - gap * count:
                return False
        elif place == 0:
            first, step = labels[0] - gap * count, gap
            if labels[0] < -np.int64(2**61) + gap * count:
                return False
        else:
            step = ((labels[place] - labels[place - 1]) // (count + 1)) & ~np.int64(1)
            first = labels[place - 1] + step
            if step < 2:
                return False
        for n in range(count):
            out[i + n] = first + n * step
        i = run
    return True


@kernel
def follow(moves, table, out):
    """Number the object of each move and label its new version; `table` follows.

    A version with the label of the one before takes the odd label beside it, so that every move changes y.
    """
    old, new, base = moves
    number, label, free, counts = table
    for i in range(len(old)):
        if old[i] >= 0:
            n = number[old[i]]
        elif counts[FREE] > 0:
            counts[FREE] -= 1
            n = np.int64(free[counts[FREE]])
            label[n] = MAX
        else:
            n = counts[NEXT]
            counts[NEXT] += 1
            label[n] = MAX
        out.number[i] = n
        if new[i] >= 0:
            number[new[i]] = n
            same = label[n] != MAX and (label[n] & ~np.int64(1)) == base[i]
            label[n] = label[n] ^ 1 if same else base[i]
        else:
            label[n] = MAX
            free[counts[FREE]] = n
            counts[FREE] += 1
        out.label[i] = label[n]
