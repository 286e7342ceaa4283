"""A power-law network of nodes, some of which are brokers, and how many links are between brokers.

Degrees follow a power law (exponent 2.22, at least 2) for 70 % of the nodes: a tree by preference, then 30 %
leaves by preference, then the free ends of links in pairs at random. INET does the same, with another weight.

>>> topology = draw_topology(500, 20, seed=1)
>>> topology.distance.shape, int(topology.distance.max()) < 12
((20, 20), True)

J08, section 6: 20,000 nodes by INET 3.0, 1,000 of them brokers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.lab.simulate._kernels import distances
from tocsin.model.columns import Index

__all__ = ["Topology", "draw_topology"]

EXPONENT, LEAST_DEGREE, LEAVES = 2.22, 2, 0.3


class Topology(NamedTuple):
    nodes: int
    links: int
    distance: NDArray[np.int32]  # links between brokers


def draw_topology(nodes: int, brokers: int, seed: int) -> Topology:
    """A connected network; brokers are nodes drawn at random."""
    rng = np.random.default_rng(seed)
    one, two = _links(nodes, rng)
    ends, others = np.concatenate([one, two]), np.concatenate([two, one])
    order = np.argsort(ends, kind="stable")
    start = np.searchsorted(ends[order], np.arange(nodes + 1))
    places = rng.choice(nodes, brokers, replace=False)
    found = np.empty((brokers, nodes), np.int32)
    distances(start, others[order], places, found)
    return Topology(nodes, len(one), np.ascontiguousarray(found[:, places]))


def _links(nodes: int, rng: np.random.Generator) -> tuple[Index, Index]:
    core = max(2, int(nodes * (1 - LEAVES)))
    drawn = LEAST_DEGREE * (1 - rng.random(core)) ** (-1 / (EXPONENT - 1))
    degree = np.sort(np.minimum(drawn.astype(np.int64), max(LEAST_DEGREE, nodes // 20)))[::-1]
    weights = np.minimum(degree, 64)
    weights[0] = degree[0]
    ends = np.cumsum(weights)  # a node is preferred as often as it has ends of links
    to = np.empty(nodes, np.int64)
    to[0] = 0
    to[1:core] = np.searchsorted(ends, rng.integers(0, ends[: core - 1]), "right")
    to[core:] = np.searchsorted(ends, rng.integers(0, ends[-1], nodes - core), "right")
    used = np.bincount(to[1:core], minlength=core) + (np.arange(core) > 0)
    free = rng.permutation(np.repeat(np.arange(core), np.maximum(degree - used, 0)))
    half = len(free) // 2
    one, two = free[:half], free[half : 2 * half]
    apart = one != two
    return np.concatenate([np.arange(1, nodes), one[apart]]), np.concatenate([to[1:], two[apart]])
