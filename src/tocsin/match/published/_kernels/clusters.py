"""Clusters of subscriptions under access predicates: where a line belongs, going in and coming out.

single[predicate] -> access       hashed(table, predicates) -> access       access 0: always checked
access -> cluster -> next -> ...  its clusters, one per number of predicates left to check
cluster = block                   that many rows of predicates, and a last row of lines
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tocsin.match.published._kernels.blocks import append, take_out
from tocsin.match.published._kernels.predicates import EQUAL, mix

__all__ = [
    "ALWAYS",
    "SINGLE",
    "ClusterArrays",
    "TableArrays",
    "access_chances",
    "best_access",
    "choose",
    "enter",
    "find_access",
    "leave",
    "lines_under",
    "rehash",
]

ALWAYS, SINGLE = -2, -1  # instead of a table


class TableArrays(NamedTuple):
    """Schemas: table t has dims[start[t]:start[t + 1]], ascending; tables by their first dimension."""

    start: NDArray[np.int64]
    dims: NDArray[np.int32]
    first: NDArray[np.int64]
    table: NDArray[np.int32]


class ClusterArrays(NamedTuple):
    key: NDArray[np.int32]  # by access: table (or SINGLE, ALWAYS), first cluster, predicates
    members: NDArray[np.int32]  # by access: lines under it
    chance: NDArray[np.float64]  # by access: nu, the probability that an event satisfies it
    single: NDArray[np.int32]  # by predicate: the access of that predicate alone
    hashed: NDArray[np.int32]
    of: NDArray[np.int32]  # by cluster: its access
    cluster: NDArray[np.int32]  # by line: where it is
    place: NDArray[np.int32]
    benefit: NDArray[np.float64]  # by table
    used: NDArray[np.int64]  # accesses, clusters, accesses of tables


@njit(cache=True, nogil=True)
def _gather(p, pool, first, last, tables, t, own):
    """The predicates of a sorted run of equalities that make up table t's schema; False if one lacks."""
    j, n = first, 0
    for k in range(tables.start[t], tables.start[t + 1]):
        while j < last and p.group[pool[j]] >> 3 < tables.dims[k]:
            j += 1
        if j == last or p.group[pool[j]] >> 3 != tables.dims[k]:
            return False
        own[n] = pool[j]
        n += 1
    return True


@njit(cache=True, nogil=True)
def choose(lines, p, tables, chance, which):
    """For each line the table, or the single predicate, that an event satisfies least often.

    Returns table, predicate (where single), and the chance.
    """
    n = len(which)
    table, pick, best = np.full(n, ALWAYS, np.int32), np.full(n, -1, np.int32), np.ones(n)
    own = np.empty(64, np.int32)
    for k in range(n):
        at = lines.at[which[k]]
        last = at
        while last < at + lines.size[which[k]] and p.group[lines.pool[last]] & 7 == EQUAL:
            q = lines.pool[last]
            if table[k] == ALWAYS or chance[q] < best[k]:
                table[k], pick[k], best[k] = SINGLE, q, chance[q]
            last += 1
        if len(tables.table) == 0:
            continue
        for i in range(at, last):
            d = p.group[lines.pool[i]] >> 3
            if d + 1 >= len(tables.first):
                continue
            for j in range(tables.first[d], tables.first[d + 1]):
                t = tables.table[j]
                if _gather(p, lines.pool, i, last, tables, t, own):
                    product = 1.0
                    for m in range(tables.start[t + 1] - tables.start[t]):
                        product *= chance[own[m]]
                    if product < best[k]:
                        table[k], best[k] = t, product
    return table, pick, best


@njit(cache=True, nogil=True)
def find_access(c, t, own, n):
    """The access of table t with these predicates, or -1 - (its free place in the hash)."""
    h = np.uint64(t)
    for k in range(n):
        h = mix(h, own[k])
    mask = np.int64(len(c.hashed) - 1)
    i = np.int64(h >> np.uint64(20)) & mask
    while c.hashed[i] >= 0:
        a = c.hashed[i]
        if c.key[a, 0] == t:
            same = n == c.key.shape[1] - 2 or c.key[a, 2 + n] < 0
            for k in range(n):
                same = same and c.key[a, 2 + k] == own[k]
            if same:
                return np.int64(a)
        i = (i + 1) & mask
    return -1 - i


@njit(cache=True, nogil=True)
def _access(c, lines, p, tables, line, table, pick, chance, own):
    """The access of a line, made if need be, and how many predicates it has."""
    n = 0
    if table == ALWAYS:
        return np.int64(0), n
    if table == SINGLE:
        own[0], n = pick, 1
        a = np.int64(c.single[pick])
        if a >= 0:
            return a, n
        a = c.used[0]
        c.single[pick] = a
    else:
        n = tables.start[table + 1] - tables.start[table]
        at = lines.at[line]
        _gather(p, lines.pool, at, at + lines.size[line], tables, table, own)
        a = find_access(c, table, own, n)
        if a >= 0:
            return a, n
        c.hashed[-1 - a] = c.used[0]
        a = c.used[0]
        c.used[2] += 1
    c.used[0] += 1
    c.key[a, 0], c.key[a, 1], c.chance[a], c.members[a] = table, -1, 1.0, 0
    for k in range(n):
        c.key[a, 2 + k] = own[k]
        c.chance[a] *= chance[own[k]]
    return a, n


@njit(cache=True, nogil=True)
def enter(c, blocks, lines, p, tables, chance, added, done):
    """Put lines (which, table, pick) in their clusters, from done[0] on, while there is room."""
    which, table, pick = added
    own = np.empty(64, np.int32)
    for k in range(done[0], len(which)):
        line = which[k]
        if c.used[0] == len(c.key) or c.used[1] == len(c.of) or 2 * (c.used[2] + 1) > len(c.hashed):
            return
        a, n = _access(c, lines, p, tables, line, table[k], pick[k], chance, own)
        width = np.int32(lines.size[line] - n + 1)
        b = c.key[a, 1]
        while b >= 0 and blocks.of[b].width != width:
            b = blocks.of[b].next
        if b < 0:
            b = np.int32(c.used[1])
            c.used[1] += 1
            c.of[b] = a
            block = blocks.of[b]
            block.at, block.count, block.room, block.width, block.next = 0, 0, 0, width, c.key[a, 1]
            c.key[a, 1] = b
        place = append(blocks, b)
        if place < 0:
            return
        at, room = blocks.of[b].at, np.int64(blocks.of[b].room)
        row, j = 0, 0
        for i in range(lines.at[line], lines.at[line] + lines.size[line]):
            q = lines.pool[i]
            if j < n and own[j] == q:
                j += 1
            else:
                blocks.pool[at + row * room + place] = q
                row += 1
        blocks.pool[at + row * room + place] = line
        c.cluster[line], c.place[line] = b, place
        c.members[a] += 1
        if table[k] >= 0:
            c.benefit[table[k]] += 1.0 - c.chance[a]
        done[0] = k + 1


@njit(cache=True, nogil=True)
def leave(c, blocks, which):
    """Take lines out of their clusters."""
    for line in which:
        b, i = c.cluster[line], c.place[line]
        take_out(blocks, b, i)
        if i < blocks.of[b].count:
            row = np.int64(blocks.of[b].width - 1) * blocks.of[b].room
            c.place[blocks.pool[blocks.of[b].at + row + i]] = i
        a = c.of[b]
        c.members[a] -= 1
        if c.key[a, 0] >= 0:
            c.benefit[c.key[a, 0]] -= 1.0 - c.chance[a]
        c.cluster[line] = -1


@njit(cache=True, nogil=True)
def lines_under(c, blocks, accesses):
    """All lines under some accesses."""
    n = np.int64(0)
    for a in accesses:
        n += c.members[a]
    out, n = np.empty(n, np.int32), 0
    for a in accesses:
        b = c.key[a, 1]
        while b >= 0:
            row = blocks.of[b].at + np.int64(blocks.of[b].width - 1) * blocks.of[b].room
            for i in range(row, row + blocks.of[b].count):
                out[n] = blocks.pool[i]
                n += 1
            b = blocks.of[b].next
    return out


@njit(cache=True, nogil=True)
def access_chances(c, chance):
    """Chances of all accesses, and benefits of all tables, from the chances of predicates."""
    c.benefit[:] = 0.0
    for a in range(1, c.used[0]):
        c.chance[a] = 1.0
        k = 0
        while k < c.key.shape[1] - 2 and c.key[a, 2 + k] >= 0:
            c.chance[a] *= chance[c.key[a, 2 + k]]
            k += 1
        if c.key[a, 0] >= 0:
            c.benefit[c.key[a, 0]] += c.members[a] * (1.0 - c.chance[a])


@njit(cache=True, nogil=True)
def rehash(c):
    """Fill a new hash."""
    for a in range(c.used[0]):
        if c.key[a, 0] >= 0:
            n = 0
            while n < c.key.shape[1] - 2 and c.key[a, 2 + n] >= 0:
                n += 1
            i = find_access(c, c.key[a, 0], c.key[a, 2:], n)
            if i < 0:
                c.hashed[-1 - i] = a


@njit(cache=True, nogil=True)
def best_access(c, which):
    """The chances under which lines are checked now."""
    out = np.empty(len(which))
    for k in range(len(which)):
        out[k] = c.chance[c.of[c.cluster[which[k]]]]
    return out
