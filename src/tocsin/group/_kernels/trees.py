"""Values of groups in order: a search tree for each group, over shared flat arrays of nodes.

A node is a distinct value with its count. The trees are zip trees: each node has a random rank, geometrically
distributed, a parent has a higher rank than its left child and at least that of its right one. So the depth
of a tree is logarithmic whatever the order of insertions, and an insertion or removal takes one way down.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.compiled import kernel

__all__ = ["Forest", "ValueChanges", "change_values"]


class Forest(NamedTuple):
    """By node: value, how often it is there, children (-1: none), rank; by group: root, number of nodes.

    `free` is a stack of unused nodes, whose height is `used[0]`.
    """

    key: NDArray[np.int64]
    times: NDArray[np.int64]
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    rank: NDArray[np.int8]
    root: NDArray[np.int32]
    size: NDArray[np.int64]
    free: NDArray[np.int32]
    used: NDArray[np.int64]


class ValueChanges(NamedTuple):
    """Rows by touch: the group of each touch and where its rows begin; sign, value and validity by row."""

    group: NDArray[np.int64]
    first: NDArray[np.int64]
    sign: NDArray[np.int64]
    value: NDArray[np.int64]
    valid: NDArray[np.bool_]


@kernel(allocates=False)
def _find(forest, group, value):
    """The node of a value; -1 if there is none."""
    at = forest.root[group]
    while at >= 0 and forest.key[at] != value:
        at = forest.left[at] if value < forest.key[at] else forest.right[at]
    return at


@kernel(allocates=False)
def _insert(forest, group, value, count):
    """Add a value that is not there."""
    key, left, right, rank = forest.key, forest.left, forest.right, forest.rank
    forest.used[0] -= 1
    x = forest.free[forest.used[0]]
    key[x], forest.times[x], left[x], right[x] = value, count, -1, -1
    forest.size[group] += 1
    at, above = forest.root[group], np.int32(-1)
    while at >= 0 and (rank[x] < rank[at] or (rank[x] == rank[at] and value > key[at])):
        above = at
        at = left[at] if value < key[at] else right[at]
    if above < 0:
        forest.root[group] = x
    elif value < key[above]:
        left[above] = x
    else:
        right[above] = x
    if at < 0:
        return
    if value < key[at]:
        right[x] = at
    else:
        left[x] = at
    above = x
    while at >= 0:  # unzip the rest of the way into smaller and greater values
        fix = above
        if key[at] < value:
            while at >= 0 and key[at] < value:
                above = at
                at = right[at]
        else:
            while at >= 0 and key[at] > value:
                above = at
                at = left[at]
        if key[fix] > value or (fix == x and key[above] > value):
            left[fix] = at
        else:
            right[fix] = at


@kernel(allocates=False)
def _remove(forest, group, value):
    """Remove the node of a value that is there."""
    key, left, right, rank = forest.key, forest.left, forest.right, forest.rank
    at, above = forest.root[group], np.int32(-1)
    while key[at] != value:
        above = at
        at = left[at] if value < key[at] else right[at]
    forest.free[forest.used[0]] = at
    forest.used[0] += 1
    forest.size[group] -= 1
    a, b = left[at], right[at]
    if a < 0:
        top = b
    elif b < 0:
        top = a
    else:
        top = a if rank[a] >= rank[b] else b
    if above < 0:
        forest.root[group] = top
    elif value < key[above]:
        left[above] = top
    else:
        right[above] = top
    while a >= 0 and b >= 0:  # zip both sides together
        if rank[a] >= rank[b]:
            while a >= 0 and rank[a] >= rank[b]:
                above = a
                a = right[a]
            right[above] = b
        else:
            while b >= 0 and (a < 0 or rank[a] < rank[b]):
                above = b
                b = left[b]
            left[above] = a


@kernel(allocates=False)
def _note(forest, group, out, t):
    """The least and the greatest value of a group and how many there are, into column t."""
    at = forest.root[group]
    out[2, t] = forest.size[group]
    if at < 0:
        out[0, t] = out[1, t] = 0
        return
    low = high = at
    while forest.left[low] >= 0:
        low = forest.left[low]
    while forest.right[high] >= 0:
        high = forest.right[high]
    out[0, t], out[1, t] = forest.key[low], forest.key[high]


@kernel(allocates=False)
def change_values(forest, changes, before, after):
    """Apply changes touch by touch; note least, greatest and number before and after each."""
    for t in range(len(changes.group)):
        group = changes.group[t]
        _note(forest, group, before, t)
        for r in range(changes.first[t], changes.first[t + 1]):
            if not changes.valid[r]:
                continue
            value, sign = changes.value[r], changes.sign[r]
            at = _find(forest, group, value)
            if at < 0:
                _insert(forest, group, value, sign)
                continue
            forest.times[at] += sign
            if forest.times[at] == 0:
                _remove(forest, group, value)
        _note(forest, group, after, t)
