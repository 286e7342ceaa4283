"""Joins of streams: keys by code, rows of a key as a chain, pairs.

A key is 64 bits: the value itself, or a hash of it. Keys that have rows are numbered densely; `table` is an
open hash table of these codes, without tombstones: removing one moves those behind it. Rows of a side with
one key are a chain, the newest first:

    heads[side, code] ─► row 17 ─► row 12 ─► row 3 ─► -1
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.compiled import kernel

__all__ = [
    *("COUNT", "DONE", "FREE", "FREED", "LIVE", "USED"),
    *("ProbeRows", "ChainRows", "JoinPairs", "KeyArrays"),
    *("add_gone", "clear_gone", "collect_dead", "equal_texts", "find_keys", "gone_near", "gone_of"),
    *("join_chains", "link_gone", "link_rows"),
    *("place_keys", "put_keys", "remove_keys", "unlink_all"),
]

USED, FREE, LIVE = 0, 1, 2  # of `state`: codes ever given, codes in `free`, keys
DONE, COUNT = 0, 1  # of `progress`
FREED = -2  # the head of a code without a key


class KeyArrays(NamedTuple):
    """Keys by code; `gone`: by side and code, how many dropped rows would still join, or the first + 1."""

    table: NDArray[np.int32]
    key: NDArray[np.int64]
    heads: NDArray[np.int32]
    gone: NDArray[np.int32]
    free: NDArray[np.int32]
    state: NDArray[np.int64]


class ChainRows(NamedTuple):
    """Rows of the side that is asked: chains and times; rows before `first` join if not before `oldest`."""

    next: NDArray[np.int32]
    time: NDArray[np.int64]
    first: int
    oldest: int
    limit: int  # rows from here on are not probed
    ordered: bool  # times descend along chains


class ProbeRows(NamedTuple):
    """Rows that look for partners whose time differs from theirs by low .. high; `heads` by code."""

    code: NDArray[np.int32]
    time: NDArray[np.int64]
    heads: NDArray[np.int32]
    low: int
    high: int


class JoinPairs(NamedTuple):
    """Pairs found: (probing row, row found); `progress` says how far."""

    first: NDArray[np.int32]
    second: NDArray[np.int32]
    progress: NDArray[np.int64]


@kernel(inline=True, allocates=False)
def _bucket(key, mask):
    h = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    h = (h ^ (h >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    return np.int64(h >> np.uint64(32)) & mask


@kernel(allocates=False)
def put_keys(wanted, keys, out):
    """The code of each key; a new key gets a free code. There is space for all."""
    mask = np.int64(len(keys.table) - 1)
    for i in range(len(wanted)):
        at = _bucket(wanted[i], mask)
        while keys.table[at] >= 0 and keys.key[keys.table[at]] != wanted[i]:
            at = (at + 1) & mask
        code = keys.table[at]
        if code < 0:
            if keys.state[FREE] > 0:
                keys.state[FREE] -= 1
                code = keys.free[keys.state[FREE]]
            else:
                code = np.int32(keys.state[USED])
                keys.state[USED] += 1
            keys.state[LIVE] += 1
            keys.table[at] = code
            keys.key[code] = wanted[i]
            for side in range(2):
                keys.heads[side, code] = -1
                keys.gone[side, code] = 0
        out[i] = code


@kernel(allocates=False)
def find_keys(wanted, keys, out):
    """The code of each key, -1 if it has none."""
    mask = np.int64(len(keys.table) - 1)
    for i in range(len(wanted)):
        at = _bucket(wanted[i], mask)
        while keys.table[at] >= 0 and keys.key[keys.table[at]] != wanted[i]:
            at = (at + 1) & mask
        out[i] = keys.table[at]


@kernel(allocates=False)
def place_keys(keys):
    """Enter all keys into an empty table."""
    mask = np.int64(len(keys.table) - 1)
    for code in range(keys.state[USED]):
        if keys.heads[0, code] == FREED:
            continue
        at = _bucket(keys.key[code], mask)
        while keys.table[at] >= 0:
            at = (at + 1) & mask
        keys.table[at] = code


@kernel(allocates=False)
def remove_keys(codes, keys):
    """Remove keys and free their codes."""
    mask = np.int64(len(keys.table) - 1)
    for i in range(len(codes)):
        code = codes[i]
        at = _bucket(keys.key[code], mask)
        while keys.table[at] != code:
            at = (at + 1) & mask
        hole, at = at, (at + 1) & mask
        while keys.table[at] >= 0:  # what could not be at its place because of the hole moves into it
            home = _bucket(keys.key[keys.table[at]], mask)
            if ((at - home) & mask) >= ((at - hole) & mask):
                keys.table[hole] = keys.table[at]
                hole = at
            at = (at + 1) & mask
        keys.table[hole] = -1
        keys.heads[0, code] = FREED
        keys.free[keys.state[FREE]] = code
        keys.state[FREE] += 1
        keys.state[LIVE] -= 1


@kernel(allocates=False)
def collect_dead(keys, out):
    """Codes of keys without rows, kept or counted as dropped; returns how many."""
    n = 0
    for code in range(keys.state[USED]):
        if keys.heads[0, code] != -1 or keys.heads[1, code] != -1:
            continue
        if keys.gone[0, code] == 0 and keys.gone[1, code] == 0:
            out[n] = code
            n += 1
    return n


@kernel(allocates=False)
def unlink_all(keys):
    for code in range(keys.state[USED]):
        if keys.heads[0, code] != FREED:
            keys.heads[0, code] = -1
            keys.heads[1, code] = -1


@kernel(allocates=False)
def link_rows(heads, following, code, first, last):
    """Rows first .. last - 1 go to the front of their chains."""
    for row in range(first, last):
        following[row] = heads[code[row]]
        heads[code[row]] = row


@kernel(allocates=False)
def join_chains(probes, rows, out):
    """Every probing row with the rows of its chain that are near enough in time."""
    n, size = out.progress[COUNT], len(out.first)
    for i in range(out.progress[DONE], len(probes.code)):
        begin = n
        row = probes.heads[probes.code[i]]
        low, high = probes.time[i] + probes.low, probes.time[i] + probes.high
        while row >= 0:
            time = rows.time[row]
            if row < rows.limit and (row >= rows.first or time >= rows.oldest):
                if rows.ordered and time < low:
                    break
                if low <= time <= high:
                    if n == size:
                        out.progress[COUNT] = begin
                        return
                    out.first[n] = i
                    out.second[n] = row
                    n += 1
            row = rows.next[row]
        out.progress[DONE] = i + 1
        out.progress[COUNT] = n


@kernel(allocates=False)
def gone_of(codes, gone):
    """How many dropped rows have the keys of arriving rows, in all."""
    total = 0
    for i in range(len(codes)):
        total += gone[codes[i]]
    return total


@kernel(allocates=False)
def gone_near(probes, time, following):
    """How many dropped rows have the keys of arriving rows and are near enough in time, in all."""
    total = 0
    for i in range(len(probes.code)):
        low, high = probes.time[i] + probes.low, probes.time[i] + probes.high
        row = probes.heads[probes.code[i]] - 1
        while row >= 0:
            if low <= time[row] <= high:
                total += 1
            row = following[row]
    return total


@kernel(allocates=False)
def add_gone(gone, side, code, sign):
    for i in range(len(code)):
        gone[side[i], code[i]] += sign


@kernel(allocates=False)
def clear_gone(gone, side, code):
    """Empty the chains of all dropped rows."""
    for i in range(len(code)):
        gone[side[i], code[i]] = 0


@kernel(allocates=False)
def link_gone(gone, following, side, code, first):
    """Dropped rows from `first` on go to the front of the chains of their keys."""
    for row in range(first, len(code)):
        following[row] = gone[side[row], code[row]] - 1
        gone[side[row], code[row]] = row + 1


@kernel(allocates=False)
def equal_texts(data, begin, size, other_data, other_begin, other_size, out):
    """Clears `out` where two texts differ."""
    for i in range(len(out)):
        if size[i] != other_size[i]:
            out[i] = False
            continue
        for j in range(size[i]):
            if data[begin[i] + j] != other_data[other_begin[i] + j]:
                out[i] = False
                break
