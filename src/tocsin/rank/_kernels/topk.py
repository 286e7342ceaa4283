"""Keys in order, labels between them, and the objects of top-k families, change by change."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.compiled import kernel
from tocsin.rank._kernels.paint import GAIN, NEW
from tocsin.rank._kernels.points import MAX, first_from, plain

__all__ = [
    "FREE",
    "KEYS",
    "NEXT",
    "LabelIndex",
    "LabelledMoves",
    "ObjectTable",
    "ObjectVersions",
    "PackedAnswers",
    "follow",
    "label_one",
    "lower_bounds",
    "pack_answers",
    "spread",
]

FREE, NEXT = 0, 1  # of `ObjectTable.counts`: how many numbers are free; the next number never used
KEYS, GAP, LIMIT = 0, 1, 2  # of `LabelIndex.counts`: how many keys; distance of labels; labels are below it
USED, PACKED = 0, 1  # of `PackedAnswers.counts`: how many rows; how many changes
SUBJECT_KIND, SUBJECT = 2, 3  # columns of a tile: its kind, its object


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


class LabelIndex(NamedTuple):
    """Keys in order, and their labels, in arrays with space for more."""

    keys: NDArray[np.int64]
    labels: NDArray[np.int64]
    counts: NDArray[np.int64]  # KEYS, GAP, LIMIT


class PackedAnswers(NamedTuple):
    """Changes of answers by one move: slot << 32 | (gains: 1, loses: 0) << 31 | number of the row."""

    rows: NDArray[np.int64]  # by number
    packed: NDArray[np.int64]
    counts: NDArray[np.int64]  # USED, PACKED


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


# -- one move ------------------------------------------------------------------------------------------


@plain
def _lower_bound(keys, count, key):
    """The first of the sorted `keys` not below a key; if they are equal, -1 - its place."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        order = 0
        for c in range(len(key)):
            if order == 0 and keys[middle, c] != key[c]:
                order = -1 if keys[middle, c] < key[c] else 1
        if order == 0:
            return -1 - middle
        if order < 0:
            low = middle + 1
        else:
            high = middle
    return low


@plain
def _label_between(index, at):
    """A label for a new key that belongs before the place `at`; MAX if there is no gap."""
    labels, count, gap = index.labels, index.counts[KEYS], index.counts[GAP]
    if count == 0:
        return 0
    if at == 0:
        label = labels[0] - gap
    elif at == count:
        label = labels[count - 1] + gap
    else:
        step = ((labels[at] - labels[at - 1]) // 2) & ~1
        if step < 2:
            return MAX
        label = labels[at - 1] + step
    return label if -index.counts[LIMIT] < label < index.counts[LIMIT] else MAX


@plain
def _move_gap(index, gap, to):
    """Move keys between two places by one, so that the key at `gap` is overwritten and `to` is free."""
    keys, labels = index.keys, index.labels
    step = 1 if gap < to else -1
    for place in range(gap, to, step):
        labels[place] = labels[place + step]
        for c in range(keys.shape[1]):
            keys[place, c] = keys[place + step, c]


@plain
def label_one(index, key, moves, table, out):
    """Label the row of one move and `follow` it; False if there is no gap for its key: nothing changes then.

    `key` is that of the row after. The key of the row before, which its object has no more, is dropped."""
    count, to, gone = index.counts[KEYS], -1, -1
    if moves.new[0] >= 0:
        to = _lower_bound(index.keys, count, key)
        moves.label[0] = _label_between(index, to) if to >= 0 else index.labels[-1 - to]
        if moves.label[0] == MAX:
            return False
    if moves.old[0] >= 0:
        label = table.label[table.number[moves.old[0]]] & ~1
        gone = first_from(index.labels, count, label)
        if gone == count or index.labels[gone] != label:
            gone = -1
        if moves.new[0] >= 0 and gone == -1 - to:  # the same key
            gone = -1
    if to >= 0:  # a new key: where the old one was, or at the end, is a gap
        if gone < 0:
            gone, index.counts[KEYS] = count, count + 1
        if gone < to:
            to -= 1
        _move_gap(index, gone, to)
        index.labels[to] = moves.label[0]
        for c in range(len(key)):
            index.keys[to, c] = key[c]
    elif gone >= 0:
        _move_gap(index, gone, count - 1)
        index.counts[KEYS] = count - 1
    follow(moves, table, out)
    return True


@plain
def pack_answers(tiles, start, slots, row_of, new, found):
    """Add the changes of one move: tile i reaches slots[start[i]:start[i + 1]].

    `row_of` has the row of each object before the move, `new` is that of the moved object after it."""
    used, at = found.counts[USED], found.counts[PACKED]
    for i in range(len(start) - 1):
        if start[i] == start[i + 1]:
            continue
        kind = tiles[i, SUBJECT_KIND]
        row = new if kind == NEW else row_of[tiles[i, SUBJECT]]
        number = used - 1  # mostly that of the last tile
        while number >= 0 and found.rows[number] != row:
            number -= 1
        if number < 0:
            found.rows[used] = row
            number, used = used, used + 1
        low = number | (int(kind == NEW or kind == GAIN) << 31)
        for place in range(start[i], start[i + 1]):
            found.packed[at] = (np.int64(slots[place]) << 32) | low
            at += 1
    found.counts[USED], found.counts[PACKED] = used, at
