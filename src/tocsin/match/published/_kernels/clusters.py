"""Compiled loops of F01's clusters: storing lines under access predicates, matching, and weighing tables.

    single[predicate] -> access       hashed(table, predicates) -> access       access 0: unconditional
    access -> cluster -> next -> ...  its clusters, one per number of predicates left to check
    cluster = block                   that many rows of predicates, and a last row of lines

Matching reads a cluster column by column: it reads a subscription's second predicate only if the first one
holds, so most cache lines of the later rows are never touched.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.compiled import kernel
from tocsin.compiled.instructions import prefetch
from tocsin.match._kernels.scan import grown
from tocsin.match.published._kernels.counting import (
    EQUAL,
    append_column,
    mix,
    new_satisfied,
    remove_column,
    satisfy,
)

__all__ = [
    "ACCESSES",
    "CLUSTERS",
    "HASHED",
    "KEY_CLUSTER",
    "KEY_PREDICATES",
    "KEY_TABLE",
    "SINGLE",
    "UNCONDITIONAL",
    "ClusterArrays",
    "ClusterIndex",
    "LineSource",
    "TableArrays",
    "access_chances",
    "choose",
    "current_chances",
    "enter",
    "find_access",
    "leave",
    "lines_under",
    "match_clusters",
    "move_to",
    "rehash",
    "schemas_in",
    "weigh",
]

UNCONDITIONAL, SINGLE = -2, -1  # instead of a table
KEY_TABLE, KEY_CLUSTER, KEY_PREDICATES = range(3)  # columns of `ClusterArrays.key`; predicates up to the end
ACCESSES, CLUSTERS, HASHED = range(3)  # in `ClusterArrays.used`
_LINE = 16  # numbers in a cache line
_AHEAD = 4 * _LINE  # how far ahead to prefetch
_EQUALITIES = 8  # of a line, that make schemas


class TableArrays(NamedTuple):
    """Schemas: table t has dims[start[t]:start[t + 1]], ascending; tables by their first dimension."""

    start: NDArray[np.int64]
    dims: NDArray[np.int32]
    first: NDArray[np.int64]
    table: NDArray[np.int32]


class ClusterArrays(NamedTuple):
    """Accesses and clusters, with spare capacity."""

    key: NDArray[np.int32]  # by access: KEY_TABLE (or SINGLE, UNCONDITIONAL), KEY_CLUSTER, KEY_PREDICATES
    members: NDArray[np.int32]  # by access: number of lines under it
    chance: NDArray[np.float64]  # by access: nu, the probability that an event satisfies it
    single: NDArray[np.int32]  # by predicate: the access of that predicate alone
    hashed: NDArray[np.int32]
    of: NDArray[np.int32]  # by cluster: its access
    cluster: NDArray[np.int32]  # by line; -1: none
    place: NDArray[np.int32]  # by line: its column in the cluster
    benefit: NDArray[np.float64]  # by table
    used: NDArray[np.int64]  # numbers of ACCESSES, CLUSTERS, and HASHED accesses


class ClusterIndex(NamedTuple):
    """All that matching reads in phase 2."""

    clusters: Any  # ClusterArrays
    blocks: Any
    tables: Any  # TableArrays
    slot: Any  # by line


class LineSource(NamedTuple):
    """Lines to be stored, and what decides where."""

    lines: Any  # LineArrays
    predicates: Any  # PredicateArrays
    tables: Any  # TableArrays
    chance: Any  # by predicate: the probability that an event satisfies it


@kernel
def _gather(p, pool, first, last, tables, t, own):
    """Copies the predicates of sorted equalities on table t's dimensions; False if one is missing."""
    j, n = first, 0
    for k in range(tables.start[t], tables.start[t + 1]):
        while j < last and p.group[pool[j]] >> 3 < tables.dims[k]:
            j += 1
        if j == last or p.group[pool[j]] >> 3 != tables.dims[k]:
            return False
        own[n] = pool[j]
        n += 1
    return True


@kernel
def choose(source, which):
    """By line: the table or the single predicate that events satisfy least often, and that probability."""
    lines, p, tables, chance = source
    n = len(which)
    table, pick, best = np.full(n, UNCONDITIONAL, np.int32), np.full(n, -1, np.int32), np.ones(n)
    own = np.empty(64, np.int32)
    for k in range(n):
        at = lines.at[which[k]]
        last = at
        while last < at + lines.size[which[k]] and p.group[lines.pool[last]] & 7 == EQUAL:
            q = lines.pool[last]
            if table[k] == UNCONDITIONAL or chance[q] < best[k]:
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


@kernel
def find_access(c, t, own, n):
    """The access of table t with these predicates, or -1 - (its free place in the hash)."""
    h = np.uint64(t)
    for k in range(n):
        h = mix(h, own[k])
    mask = np.int64(len(c.hashed) - 1)
    i = np.int64(h >> np.uint64(20)) & mask
    while c.hashed[i] >= 0:
        a = c.hashed[i]
        if c.key[a, KEY_TABLE] == t:
            same = n == c.key.shape[1] - KEY_PREDICATES or c.key[a, KEY_PREDICATES + n] < 0
            for k in range(n):
                same = same and c.key[a, KEY_PREDICATES + k] == own[k]
            if same:
                return np.int64(a)
        i = (i + 1) & mask
    return -1 - i


@kernel
def _access(c, source, line, table, pick, own):
    """The access of a line, created if it is new, and the number of its predicates."""
    lines, p, tables, chance = source
    n = 0
    if table == UNCONDITIONAL:
        return np.int64(0), n
    if table == SINGLE:
        own[0], n = pick, 1
        a = np.int64(c.single[pick])
        if a >= 0:
            return a, n
        a = c.used[ACCESSES]
        c.single[pick] = a
    else:
        n = tables.start[table + 1] - tables.start[table]
        at = lines.at[line]
        _gather(p, lines.pool, at, at + lines.size[line], tables, table, own)
        a = find_access(c, table, own, n)
        if a >= 0:
            return a, n
        c.hashed[-1 - a] = c.used[ACCESSES]
        a = c.used[ACCESSES]
        c.used[HASHED] += 1
    c.used[ACCESSES] += 1
    c.key[a, KEY_TABLE], c.key[a, KEY_CLUSTER], c.chance[a], c.members[a] = table, -1, 1.0, 0
    for k in range(n):
        c.key[a, KEY_PREDICATES + k] = own[k]
        c.chance[a] *= chance[own[k]]
    return a, n


@kernel
def enter(c, blocks, source, added, done):
    """Stores lines (which, table, pick) in their clusters, from done[0] on, up to capacity."""
    lines = source.lines
    which, table, pick = added
    own = np.empty(64, np.int32)
    for k in range(done[0], len(which)):
        line = which[k]
        if (
            c.used[ACCESSES] == len(c.key)
            or c.used[CLUSTERS] == len(c.of)
            or 2 * (c.used[HASHED] + 1) > len(c.hashed)
        ):
            return
        a, n = _access(c, source, line, table[k], pick[k], own)
        width = np.int32(lines.size[line] - n + 1)
        b = c.key[a, KEY_CLUSTER]
        while b >= 0 and blocks.of[b].width != width:
            b = blocks.of[b].next
        if b < 0:
            b = np.int32(c.used[CLUSTERS])
            c.used[CLUSTERS] += 1
            c.of[b] = a
            block = blocks.of[b]
            block.at, block.count, block.capacity, block.width, block.next = (
                0,
                0,
                0,
                width,
                c.key[a, KEY_CLUSTER],
            )
            c.key[a, KEY_CLUSTER] = b
        place = append_column(blocks, b)
        if place < 0:
            return
        at, capacity = blocks.of[b].at, np.int64(blocks.of[b].capacity)
        row, j = 0, 0
        for i in range(lines.at[line], lines.at[line] + lines.size[line]):
            q = lines.pool[i]
            if j < n and own[j] == q:
                j += 1
            else:
                blocks.pool[at + row * capacity + place] = q
                row += 1
        blocks.pool[at + row * capacity + place] = line
        c.cluster[line], c.place[line] = b, place
        c.members[a] += 1
        if table[k] >= 0:
            c.benefit[table[k]] += 1.0 - c.chance[a]
        done[0] = k + 1


@kernel
def leave(c, blocks, which):
    """Removes lines from their clusters."""
    for line in which:
        b, i = c.cluster[line], c.place[line]
        remove_column(blocks, b, i)
        if i < blocks.of[b].count:
            row = np.int64(blocks.of[b].width - 1) * blocks.of[b].capacity
            c.place[blocks.pool[blocks.of[b].at + row + i]] = i
        a = c.of[b]
        c.members[a] -= 1
        if c.key[a, KEY_TABLE] >= 0:
            c.benefit[c.key[a, KEY_TABLE]] -= 1.0 - c.chance[a]
        c.cluster[line] = -1


@kernel
def lines_under(c, blocks, accesses):
    """All lines under some accesses."""
    n = np.int64(0)
    for a in accesses:
        n += c.members[a]
    out, n = np.empty(n, np.int32), 0
    for a in accesses:
        b = c.key[a, KEY_CLUSTER]
        while b >= 0:
            row = blocks.of[b].at + np.int64(blocks.of[b].width - 1) * blocks.of[b].capacity
            for i in range(row, row + blocks.of[b].count):
                out[n] = blocks.pool[i]
                n += 1
            b = blocks.of[b].next
    return out


@kernel
def access_chances(c, chance):
    """Recomputes the chances of all accesses and the benefits of all tables."""
    c.benefit[:] = 0.0
    for a in range(1, c.used[ACCESSES]):
        c.chance[a] = 1.0
        k = 0
        while k < c.key.shape[1] - KEY_PREDICATES and c.key[a, KEY_PREDICATES + k] >= 0:
            c.chance[a] *= chance[c.key[a, KEY_PREDICATES + k]]
            k += 1
        if c.key[a, KEY_TABLE] >= 0:
            c.benefit[c.key[a, KEY_TABLE]] += c.members[a] * (1.0 - c.chance[a])


@kernel
def rehash(c):
    """Fills a new hash table."""
    for a in range(c.used[ACCESSES]):
        if c.key[a, KEY_TABLE] >= 0:
            n = 0
            while n < c.key.shape[1] - KEY_PREDICATES and c.key[a, KEY_PREDICATES + n] >= 0:
                n += 1
            i = find_access(c, c.key[a, KEY_TABLE], c.key[a, KEY_PREDICATES:], n)
            if i < 0:
                c.hashed[-1 - i] = a


@kernel
def current_chances(c, which):
    """By line: the probability that an event reads it where it is now."""
    out = np.empty(len(which))
    for k in range(len(which)):
        out[k] = c.chance[c.of[c.cluster[which[k]]]]
    return out


# -- matching -----------------------------------------------------------------------------------------------


@kernel
def _satisfied(pool, first, capacity, rows, bits):
    """Do the predicates of the column that starts at `first` hold?"""
    for _ in range(rows):
        if not bits[pool[first]]:
            return False
        first += capacity
    return True


@kernel
def _check(pool, block, bits, slot, e, out, n):
    """Checks all subscriptions of a cluster, one by one."""
    at, rows, count, capacity = block
    out = grown(out, n, count)
    for i in range(at, at + count):
        if _satisfied(pool, i, capacity, rows, bits):
            out[n] = (np.int64(slot[pool[i + rows * capacity]]) << 32) | e
            n += 1
    return out, n


@kernel
def _check_ahead(pool, block, bits, slot, e, out, n):
    """The same by whole cache lines; prefetches those of the first two rows."""
    at, rows, count, capacity = block
    whole = count - count % _LINE
    out = grown(out, n, count)
    for first in range(at, at + whole, _LINE):
        prefetch(pool, first + _AHEAD)
        if rows > 1:
            prefetch(pool, first + capacity + _AHEAD)
        for k in range(_LINE):
            if _satisfied(pool, first + k, capacity, rows, bits):
                out[n] = (np.int64(slot[pool[first + k + rows * capacity]]) << 32) | e
                n += 1
    for i in range(at + whole, at + count):
        if _satisfied(pool, i, capacity, rows, bits):
            out[n] = (np.int64(slot[pool[i + rows * capacity]]) << 32) | e
            n += 1
    return out, n


@kernel
def _tables_of(c, tables, d, equal, own, accesses, n):
    """Appends the accesses of tables whose first dimension is d, if the event has all their dimensions."""
    for j in range(tables.first[d], tables.first[d + 1]):
        t = tables.table[j]
        size = tables.start[t + 1] - tables.start[t]
        found = 0
        while found < size and equal[tables.dims[tables.start[t] + found]] >= 0:
            own[found] = equal[tables.dims[tables.start[t] + found]]
            found += 1
        if found == size:
            a = find_access(c, t, own, size)
            if a >= 0:
                accesses[n] = a
                n += 1
    return n


@kernel
def _prefetch_all(key, block_of, pool, accesses, n):
    """Prefetches the first clusters of n accesses, all at once."""
    for j in range(n):
        b = key[accesses[j], KEY_CLUSTER]
        if b >= 0:
            prefetch(block_of, b)
    for j in range(n):
        b = key[accesses[j], KEY_CLUSTER]
        if b >= 0:
            prefetch(pool, block_of[b].at)


@kernel
def match_clusters(p, index, stored, events, seen, ahead):
    """Packed (slot, event), and the number of subscriptions checked.

    Adds to `seen` how often each predicate was satisfied and each dimension was present.
    """
    c, blocks, tables, slot = stored
    found = new_satisfied(p, events)
    bits, satisfying = found.bits, found.predicate
    hits, present = seen
    equal = np.full(max(events.dims, len(tables.first)), -1, np.int32)  # by dimension: its equality
    own = np.empty(c.key.shape[1], np.int32)
    accesses = np.empty(1 + len(equal) + len(tables.table), np.int64)
    key, single, group, pool, block_of = c.key, c.single, p.group, blocks.pool, blocks.of
    out, n, checked = np.empty(1024, np.int64), 0, 0
    for e in range(len(events.start) - 1):
        for i in range(events.start[e], events.start[e + 1]):
            if events.dim[i] < len(present):
                present[events.dim[i]] += 1.0
        equalities, last = satisfy(p, index, events, e, found)
        for j in range(equalities):
            equal[group[satisfying[j]] >> 3] = satisfying[j]
        candidates = 1
        accesses[0] = 0
        for j in range(equalities):
            q = satisfying[j]
            hits[q] += 1.0
            if single[q] >= 0:
                accesses[candidates] = single[q]
                candidates += 1
            d = group[q] >> 3
            if d + 1 < len(tables.first) and tables.first[d + 1] > tables.first[d]:
                candidates = _tables_of(c, tables, d, equal, own, accesses, candidates)
        if ahead:
            _prefetch_all(key, block_of, pool, accesses, candidates)
        for j in range(candidates):
            b = key[accesses[j], KEY_CLUSTER]
            while b >= 0:
                count = np.int64(block_of[b].count)
                block = block_of[b].at, np.int64(block_of[b].width - 1), count, np.int64(block_of[b].capacity)
                checked += count
                if ahead and count >= _LINE:
                    out, n = _check_ahead(pool, block, bits, slot, e, out, n)
                else:
                    out, n = _check(pool, block, bits, slot, e, out, n)
                b = block_of[b].next
        for j in range(equalities):
            equal[group[satisfying[j]] >> 3] = -1
        for j in range(last):
            bits[satisfying[j]] = 0
    return out[:n].copy(), checked


# -- possible tables ----------------------------------------------------------------------------------------


@kernel
def _count_bits(mask):
    n = 0
    while mask:
        mask &= mask - 1
        n += 1
    return n


@kernel
def _equalities(lines, p, line, own):
    """Copies the equalities of a line, one per dimension, up to the length of `own`."""
    n = 0
    for i in range(lines.at[line], lines.at[line] + lines.size[line]):
        q = lines.pool[i]
        if p.group[q] & 7 != EQUAL or n == len(own):
            break
        if n == 0 or p.group[own[n - 1]] != p.group[q]:
            own[n] = q
            n += 1
    return n


@kernel
def schemas_in(lines, p, chance, which, widest):
    """Every set of 2..widest equalities of every line: hash of its dimensions, line, subset, chance."""
    own = np.empty(_EQUALITIES, np.int32)
    total = 0
    for k in range(len(which)):
        m = _equalities(lines, p, which[k], own)
        for mask in range(3, 1 << m):
            total += 2 <= _count_bits(mask) <= widest
    key, line = np.empty(total, np.uint64), np.empty(total, np.int32)
    subset, product, n = np.empty(total, np.uint8), np.empty(total, np.float32), 0
    for k in range(len(which)):
        m = _equalities(lines, p, which[k], own)
        for mask in range(3, 1 << m):
            if 2 <= _count_bits(mask) <= widest:
                h, chances = np.uint64(1), 1.0
                for i in range(m):
                    if mask & (1 << i):
                        h = mix(h, p.group[own[i]])
                        chances *= chance[own[i]]
                key[n], line[n], subset[n], product[n] = h, k, mask, chances
                n += 1
    return key, line, subset, product


@kernel
def weigh(start, line, product, current):
    """By schema: checks saved per event, and lines that would move."""
    n = len(start) - 1
    gain, moved = np.zeros(n), np.zeros(n, np.int64)
    for s in range(n):
        for i in range(start[s], start[s + 1]):
            saved = current[line[i]] - product[i]
            if saved > 1e-5 * current[line[i]]:  # more than a rounding error
                gain[s] += saved
                moved[s] += 1
    return gain, moved


@kernel
def move_to(start, line, product, current, s):
    """Lowers the chances of lines that schema s improves."""
    for i in range(start[s], start[s + 1]):
        current[line[i]] = min(current[line[i]], product[i])
