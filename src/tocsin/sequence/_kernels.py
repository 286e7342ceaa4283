"""The compiled loop of sequences: how events begin, continue and end chains."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.compiled import kernel

__all__ = ["Chains", "Ended", "Nodes", "Reached", "Undone", "find_chain", "follow_chains", "place_chains"]

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


class Nodes(NamedTuple):
    """By node: the one before (-1: none), its step, the longest time of its sequences, its uses."""

    parent: NDArray[np.int64]
    depth: NDArray[np.int64]
    span: NDArray[np.int64]
    ends: NDArray[np.bool_]  # a sequence ends here
    continues: NDArray[np.bool_]  # a sequence goes on from here


class Chains(NamedTuple):
    """How far keys are: the last chain of each (node, key), found by hashing."""

    place: NDArray[np.int32]  # -1, or a number
    node: NDArray[np.int64]  # by number, and so on
    key: NDArray[np.int64]
    time: NDArray[np.int64]  # of the first event
    event: NDArray[np.int64]  # by step, where the event is kept
    used: NDArray[np.int64]


class Reached(NamedTuple):
    """Events that satisfy the conditions of nodes, in order; of one event, deeper nodes first."""

    node: NDArray[np.int64]
    key: NDArray[np.int64]
    time: NDArray[np.int64]
    event: NDArray[np.int64]


class Ended(NamedTuple):
    """Sequences that end: at which pair, and their events by step."""

    pair: NDArray[np.int64]
    time: NDArray[np.int64]
    event: NDArray[np.int64]


class Undone(NamedTuple):
    """Chains as they were before they were replaced."""

    number: NDArray[np.int64]
    time: NDArray[np.int64]
    event: NDArray[np.int64]


@kernel(inline=True, allocates=False)
def _place_of(chains, node, key):
    """Where a (node, key) is in the hash table, or would be."""
    mask = np.uint64(len(chains.place) - 1)
    mixed = (np.uint64(node) * _MULTIPLIER) ^ np.uint64(key)
    mixed = mixed * _MULTIPLIER
    h = (mixed ^ (mixed >> np.uint64(29))) & mask
    n = chains.place[h]
    while n >= 0 and (chains.node[n] != node or chains.key[n] != key):
        h = (h + np.uint64(1)) & mask
        n = chains.place[h]
    return h


@kernel(allocates=False)
def find_chain(chains, node, key):
    """The number of the chain of a (node, key), or -1."""
    return chains.place[_place_of(chains, node, key)]


@kernel(allocates=False)
def place_chains(chains):
    """Enter all chains into an empty hash table."""
    for n in range(chains.used[0]):
        chains.place[_place_of(chains, chains.node[n], chains.key[n])] = n


@kernel(allocates=False)
def follow_chains(nodes, chains, reached, ended, undone):
    """Follow events; returns how many sequences end, and how many chains were replaced.

    Of the chains that an event continues, the one that begins last is the only one that is kept: it ends
    last, and whatever ends an earlier one in time ends it too.
    """
    over, replaced = 0, 0
    for i in range(len(reached.node)):
        node, key, time = reached.node[i], reached.key[i], reached.time[i]
        depth, begin = nodes.depth[node], time
        before = np.int32(-1)
        if depth > 0:
            before = chains.place[_place_of(chains, nodes.parent[node], key)]
            if before < 0 or time - chains.time[before] > nodes.span[node]:
                continue
            begin = chains.time[before]
        if nodes.ends[node]:
            ended.pair[over], ended.time[over] = i, begin
            for d in range(depth):
                ended.event[over, d] = chains.event[before, d]
            ended.event[over, depth] = reached.event[i]
            over += 1
        if not nodes.continues[node]:
            continue
        h = _place_of(chains, node, key)
        n = chains.place[h]
        if n < 0:
            n = np.int32(chains.used[0])
            chains.used[0] = n + 1
            chains.place[h], chains.node[n], chains.key[n] = n, node, key
        else:
            undone.number[replaced], undone.time[replaced] = n, chains.time[n]
            for d in range(depth + 1):
                undone.event[replaced, d] = chains.event[n, d]
            replaced += 1
        chains.time[n] = begin
        for d in range(depth):
            chains.event[n, d] = chains.event[before, d]
        chains.event[n, depth] = reached.event[i]
    return over, replaced
