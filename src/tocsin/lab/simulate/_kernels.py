"""Distances in a graph, and affected subscriptions by value, counted."""

from __future__ import annotations

import numpy as np

from tocsin.compiled import kernel

__all__ = ["add_affected", "distances"]


@kernel
def distances(start, near, sources, out):
    """Links from each source to each node, breadth first; -1: not connected."""
    queue = np.empty(out.shape[1], np.int64)
    for s in range(len(sources)):
        row = out[s]
        row[:] = -1
        row[sources[s]] = 0
        queue[0] = sources[s]
        head, tail = 0, 1
        while head < tail:
            node = queue[head]
            head += 1
            for i in range(start[node], start[node + 1]):
                if row[near[i]] < 0:
                    row[near[i]] = row[node] + 1
                    queue[tail] = near[i]
                    tail += 1


@kernel(allocates=False)
def add_affected(points, upto, far, steps):
    """Differences by value of A: affected subscriptions and their joined rows, also times the distance.

    A subscription with w joining values in its range of C is affected by all values of its range of A.
    `upto` has, by value of C, how many joining values are at most that; 0 comes first.
    """
    for i in range(len(points)):
        w = upto[points[i, 3] + 1] - upto[points[i, 2]]
        if w > 0:
            low, above = points[i, 0], points[i, 1] + 1
            steps[0, low] += 1
            steps[0, above] -= 1
            steps[1, low] += w
            steps[1, above] -= w
            steps[2, low] += far[i]
            steps[2, above] -= far[i]
            steps[3, low] += w * far[i]
            steps[3, above] -= w * far[i]
