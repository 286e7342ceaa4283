"""Growing and probing a BE-Tree in flat pools.

A node is a leaf with two kinds of children: halves of its interval (the c-directory), and one tree for
each attribute that divides its conjunctions (the p-directory):

    node  0   leaf: up to CAP conjunctions, a linked list from HEAD
          |-- p-node A --> node 1  A in all codes --+-- node 2   A <= 25
          |                                         +-- node 3   A >= 26
          +-- p-node B --> node 4  B in all codes
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tocsin.compiled import kernel
from tocsin.match._kernels.scan import clear_table, fill_table, grown, holds, new_table
from tocsin.predicate.flat import ABSENT, NEGATED, OR_NEXT

__all__ = ["BETreeArrays", "Keys", "delete", "descend", "insert", "keys_of", "match_tree", "new_tree"]

LOW, HIGH, LEFT, RIGHT, HEAD, COUNT, CAP, FIRST, DIRS, DIM, UP = range(11)  # columns of a node
ATTRIBUTE, ROOT, NEXT, OWNER = range(4)  # columns of a p-node
HOME, AFTER, BEFORE = range(3)  # columns of a conjunction's link
_LEAST, _GREATEST = -(2**63), 2**63 - 1


class BETreeArrays(NamedTuple):
    """The pools, with spare capacity; columns see above."""

    node: Any  # rows of eleven: interval, halves, leaf, p-nodes, dimension, the node above its p-node
    pnode: Any  # rows of four: dimension, its tree, the next p-node of the same node, that node
    table: Any  # p-nodes by owner and dimension, open addressing; -1 is free
    used: Any  # nodes and p-nodes


class Keys(NamedTuple):
    """What can divide conjunctions: for each dimension that a matching event must have, an interval."""

    start: Any
    dim: Any
    low: Any
    high: Any
    gain: Any  # the share of events that it excludes


@kernel
def new_tree(cap):
    """A tree of one node."""
    tree = BETreeArrays(
        np.zeros((16, 11), np.int64),
        np.zeros((16, 4), np.int64),
        np.full(32, -1, np.int32),
        np.zeros(2, np.int64),
    )
    _add_node(tree, (_LEAST, _GREATEST), -1, -1, cap)
    return tree


@kernel
def keys_of(added, domain, presence):
    """Keys of conjunctions: clauses within one dimension and without ABSENT, intersected by dimension."""
    start, flags = added.start, added.flags
    first = np.zeros(len(start), np.int64)
    dim, n = np.empty(len(added.dim), np.int32), 0
    low, high = np.empty(len(added.dim), np.int64), np.empty(len(added.dim), np.int64)
    for c in range(len(start) - 1):
        i = start[c]
        while i < start[c + 1]:
            d, usable, a, b = added.dim[i], True, np.int64(_GREATEST), np.int64(_LEAST)
            while True:
                usable = usable and added.dim[i] == d and not flags[i] & ABSENT
                if flags[i] & NEGATED:
                    a, b = np.int64(_LEAST), np.int64(_GREATEST)
                elif added.low[i] <= added.high[i]:
                    a, b = min(a, added.low[i]), max(b, added.high[i])
                i += 1
                if not flags[i - 1] & OR_NEXT:
                    break
            if usable:
                k = first[c]
                while k < n and dim[k] != d:
                    k += 1
                if k == n:
                    dim[n], low[n], high[n] = d, a, b
                    n += 1
                else:
                    low[k], high[k] = max(low[k], a), min(high[k], b)
        first[c + 1] = n
    gain = np.empty(n, np.float64)
    for k in range(n):
        a, b = np.float64(domain[0][dim[k]]), np.float64(domain[1][dim[k]])
        width = min(np.float64(high[k]), b) - max(np.float64(low[k]), a) + 1
        share = max(0.0, min(1.0, width / (b - a + 1))) if a <= b else 1.0
        gain[k] = 1 - presence[dim[k]] * share
    return first, dim[:n].copy(), low[:n].copy(), high[:n].copy(), gain


# -- pools --------------------------------------------------------------------------------------------


@kernel
def _add_node(tree, interval, dim, up, cap):
    n = tree.used[0]
    tree.used[0] += 1
    row = tree.node[n]
    row[LOW], row[HIGH] = interval
    row[LEFT] = row[RIGHT] = row[HEAD] = row[FIRST] = -1
    row[DIRS] = row[COUNT] = 0
    row[CAP], row[DIM], row[UP] = cap, dim, up
    return n


@kernel
def _spot(tree, owner, dim):
    """Where the p-node of an owner and dimension is in the table, or would be."""
    mask = np.uint64(len(tree.table) - 1)
    mixed = (np.uint64(owner) << np.uint64(32) | np.uint64(dim)) * np.uint64(0x9E3779B97F4A7C15)
    spot = (mixed >> np.uint64(32)) & mask
    while True:
        p = tree.table[spot]
        if p < 0 or (tree.pnode[p, OWNER] == owner and tree.pnode[p, ATTRIBUTE] == dim):
            return spot
        spot = (spot + np.uint64(1)) & mask


@kernel
def _add_pnode(tree, owner, dim, cap):
    """Adds a p-node with a tree of its own; returns the root of that."""
    p = tree.used[1]
    tree.used[1] += 1
    root = _add_node(tree, (_LEAST, _GREATEST), dim, owner, cap)
    row = tree.pnode[p]
    row[ATTRIBUTE], row[ROOT], row[NEXT], row[OWNER] = dim, root, tree.node[owner, FIRST], owner
    tree.node[owner, FIRST] = p
    tree.node[owner, DIRS] += 1
    tree.table[_spot(tree, owner, dim)] = p
    return root


@kernel
def _grow(tree):
    """The tree with capacity for two more nodes and a p-node."""
    node, pnode, table, used = tree
    if used[0] + 2 > len(node):
        node = np.zeros((2 * len(node), 11), np.int64)
        node[: used[0]] = tree.node[: used[0]]
    if used[1] + 1 <= len(pnode):
        return BETreeArrays(node, pnode, table, used)
    pnode = np.zeros((2 * len(pnode), 4), np.int64)
    pnode[: used[1]] = tree.pnode[: used[1]]
    tree = BETreeArrays(node, pnode, np.full(2 * len(table), -1, np.int32), used)
    for p in range(used[1]):
        tree.table[_spot(tree, pnode[p, OWNER], pnode[p, ATTRIBUTE])] = p
    return tree


@kernel
def _link(node, links, c, n):
    head = node[n, HEAD]
    links[c, HOME], links[c, AFTER], links[c, BEFORE] = n, head, -1
    if head >= 0:
        links[head, BEFORE] = c
    node[n, HEAD] = c
    node[n, COUNT] += 1


@kernel
def _unlink(node, links, c):
    n, after, before = links[c, HOME], links[c, AFTER], links[c, BEFORE]
    if before >= 0:
        links[before, AFTER] = after
    else:
        node[n, HEAD] = after
    if after >= 0:
        links[after, BEFORE] = before
    node[n, COUNT] -= 1
    links[c, HOME] = -1


# -- insertion ----------------------------------------------------------------------------------------


@kernel
def _key(keys, c, dim):
    """The conjunction's key of a dimension, or -1."""
    for k in range(keys.start[c], keys.start[c + 1]):
        if keys.dim[k] == dim:
            return k
    return np.int64(-1)


@kernel
def _half(node, n, low, high):
    """The half of a node that covers an interval, or -1."""
    if node[n, LEFT] >= 0:
        middle = node[node[n, LEFT], HIGH]
        if high <= middle:
            return node[n, LEFT]
        if low > middle:
            return node[n, RIGHT]
    return np.int64(-1)


@kernel
def descend(tree, keys, c):
    """The node for a conjunction: down p-nodes by best gain, to the smallest interval around it."""
    node, n = tree.node, np.int64(0)
    while True:
        if node[n, DIM] >= 0:
            k = _key(keys, c, node[n, DIM])
            half = _half(node, n, keys.low[k], keys.high[k])
            while half >= 0:
                n = half
                half = _half(node, n, keys.low[k], keys.high[k])
        if node[n, FIRST] < 0:
            return n
        best, gain = np.int64(-1), -1.0
        for k in range(keys.start[c], keys.start[c + 1]):
            p = tree.table[_spot(tree, n, keys.dim[k])]
            if p >= 0 and keys.gain[k] > gain:
                best, gain = np.int64(p), keys.gain[k]
        if best < 0:
            return n
        n = tree.pnode[best, ROOT]


@kernel
def _best_attribute(tree, links, keys, n, score):
    """The dimension not used above with the highest sum of gains over the leaf, or -1. `score`: zeros."""
    node = tree.node
    c = node[n, HEAD]
    while c >= 0:
        for k in range(keys.start[c], keys.start[c + 1]):
            score[keys.dim[k]] += keys.gain[k]
        c = np.int64(links[c, AFTER])
    up = n
    while up >= 0:
        if node[up, DIM] >= 0:
            score[node[up, DIM]] = 0
        up = node[up, UP]
    best, most = np.int64(-1), 0.0
    c = node[n, HEAD]
    while c >= 0:
        for k in range(keys.start[c], keys.start[c + 1]):
            if score[keys.dim[k]] > most:
                best, most = np.int64(keys.dim[k]), score[keys.dim[k]]
            score[keys.dim[k]] = 0
        c = np.int64(links[c, AFTER])
    return best


@kernel
def _split(tree, links, keys, domain, score, full, cap):
    """Brings a full leaf, and those it creates, back to capacity: halves its interval, then divides it."""
    stack, n = np.empty(64, np.int64), 1
    stack[0] = full
    while n:
        n -= 1
        at = stack[n]
        if tree.node[at, COUNT] <= tree.node[at, CAP]:
            continue
        dim = tree.node[at, DIM]
        if dim >= 0 and tree.node[at, LEFT] < 0:
            low, high = max(tree.node[at, LOW], domain[0][dim]), min(tree.node[at, HIGH], domain[1][dim])
            if low < high:
                tree = _grow(tree)
                middle = (low >> 1) + (high >> 1) + (low & high & 1)
                row = tree.node[at]
                row[LEFT] = _add_node(tree, (row[LOW], middle), dim, row[UP], cap)
                row[RIGHT] = _add_node(tree, (middle + 1, row[HIGH]), dim, row[UP], cap)
                _move(tree, links, keys, at, dim, -1)
                for half in (row[LEFT], row[RIGHT]):
                    stack = grown(stack, n, 1)
                    stack[n] = half
                    n += 1
        while tree.node[at, COUNT] > tree.node[at, CAP]:
            dim = _best_attribute(tree, links, keys, at, score)
            if dim < 0:  # no attribute divides them
                tree.node[at, CAP] = 2 * tree.node[at, COUNT]
                break
            tree = _grow(tree)
            root = _add_pnode(tree, at, dim, cap)
            _move(tree, links, keys, at, dim, root)
            stack = grown(stack, n, 1)
            stack[n] = root
            n += 1
    return tree


@kernel
def _move(tree, links, keys, at, dim, root):
    """Moves conjunctions of a leaf with the dimension to a root or, if it is -1, to the half around them."""
    c = tree.node[at, HEAD]
    while c >= 0:
        after = np.int64(links[c, AFTER])
        k = _key(keys, c, dim)
        to = np.int64(-1)
        if k >= 0:
            to = root if root >= 0 else _half(tree.node, at, keys.low[k], keys.high[k])
        if to >= 0:
            _unlink(tree.node, links, c)
            _link(tree.node, links, c, to)
        c = after


@kernel
def insert(tree, links, keys, domain, chosen, cap):
    """Inserts conjunctions first..last-1."""
    score = np.zeros(len(domain[0]), np.float64)
    for c in range(chosen[0], chosen[1]):
        n = descend(tree, keys, c)
        _link(tree.node, links, c, n)
        if tree.node[n, COUNT] > tree.node[n, CAP]:
            tree = _split(tree, links, keys, domain, score, n, cap)
    return tree


@kernel
def delete(tree, links, removed):
    """Unlinks conjunctions."""
    for c in removed:
        _unlink(tree.node, links, c)


# -- matching ------------------------------------------------------------------------------------------


@kernel
def match_tree(tree, links, given, events):
    """Candidates: the leaves on the event's path through the tree. Verification: all their tests."""
    node, pnode, table = tree.node, tree.pnode, new_table(events.dims)
    there, code = table.there, table.code
    stack, out, found = np.empty(64, np.int64), np.empty(1024, np.int64), 0
    for e in range(len(events.start) - 1):
        fill_table(table, events, e)
        stack[0], n = 0, 1
        while n:
            n -= 1
            at = stack[n]
            c = node[at, HEAD]
            out = grown(out, found, node[at, COUNT])
            while c >= 0:
                if holds(table, given, given.start[c], given.start[c + 1]):
                    out[found] = (np.int64(given.slot[c]) << 32) | e
                    found += 1
                c = np.int64(links[c, AFTER])
            if node[at, LEFT] >= 0:
                low = code[node[at, DIM]] <= node[node[at, LEFT], HIGH]
                stack[n] = node[at, LEFT] if low else node[at, RIGHT]  # in the place just freed
                n += 1
            p, entries = node[at, FIRST], events.start[e + 1] - events.start[e]
            stack = grown(stack, n, min(node[at, DIRS], entries))
            if node[at, DIRS] > entries:  # look up instead of walking
                p = np.int64(-1)
                for i in range(events.start[e], events.start[e + 1]):
                    own = tree.table[_spot(tree, at, events.dim[i])]
                    if own >= 0:
                        stack[n] = pnode[own, ROOT]
                        n += 1
            while p >= 0:
                if there[pnode[p, ATTRIBUTE]]:
                    stack[n] = pnode[p, ROOT]
                    n += 1
                p = pnode[p, NEXT]
        clear_table(table, events, e)
    return out[:found].copy()
