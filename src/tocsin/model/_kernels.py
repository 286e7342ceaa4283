"""Compiled loops over doubles, texts, values of events, and deltas."""

from __future__ import annotations

import numpy as np

from tocsin.compiled import kernel

__all__ = ["are_ordered", "find_texts", "gather_texts", "has_repeats", "order_doubles", "put_texts"]


_BLOCK = 64  # texts looked up at a time
_SIZE, _INFINITY, _NAN = np.int64(2**63 - 1), np.int64(0x7FF << 52), np.int64(0x7FF8 << 48)


@kernel(allocates=False)
def order_doubles(bits, out):
    """The bits of doubles as integers of the same order, with one NaN above all and one zero."""
    for i in range(len(bits)):
        size = bits[i] & _SIZE
        if size > _INFINITY:
            out[i] = _NAN
        else:
            out[i] = -size if bits[i] < 0 else size


@kernel(inline=True, allocates=False)
def _bucket(table, data, a, z):
    """The first bucket of a text in the hash table."""
    h = np.uint64(0xCBF29CE484222325)
    for j in range(a, z):
        h = (h ^ np.uint64(data[j])) * np.uint64(0x100000001B3)
    return (h ^ (h >> np.uint64(29))) & np.uint64(len(table) - 1)


@kernel(inline=True, allocates=False)
def _is_same(data, b, c, own_data, a, z):
    """Whether bytes b..c-1 equal bytes a..z-1 of `own_data`."""
    if c - b != z - a:
        return False
    for j in range(z - a):
        if data[b + j] != own_data[a + j]:
            return False
    return True


@kernel(inline=True, allocates=False)
def _find_bucket(table, start, data, own_data, a, z, at):
    """The bucket, from `at` on, of the same text, or the first free one."""
    while table[at] >= 0:
        number = table[at]
        if _is_same(data, start[number], start[number + 1], own_data, a, z):
            break
        at = (at + np.uint64(1)) & np.uint64(len(table) - 1)
    return at


@kernel
def find_texts(table, start, data, own_start, own_data):
    """The number of each text, -1 if it is absent.

    Texts are looked up in blocks, one step for the whole block at a time, so that memory reads overlap.
    """
    out = np.empty(len(own_start) - 1, np.int64)
    bucket, number, begin = np.empty(_BLOCK, np.uint64), np.empty(_BLOCK, np.int64), 0
    bounds = np.empty((_BLOCK, 2), np.int64)
    while begin < len(out):
        count = min(_BLOCK, len(out) - begin)
        for k in range(count):
            bucket[k] = _bucket(table, own_data, own_start[begin + k], own_start[begin + k + 1])
            number[k] = table[bucket[k]]
        for k in range(count):
            bounds[k, 0], bounds[k, 1] = start[max(0, number[k])], start[max(0, number[k]) + 1]
        for k in range(count):
            a, z = own_start[begin + k], own_start[begin + k + 1]
            if number[k] >= 0 and not _is_same(data, bounds[k, 0], bounds[k, 1], own_data, a, z):
                number[k] = table[_find_bucket(table, start, data, own_data, a, z, bucket[k])]
            out[begin + k] = number[k]
        begin += count
    return out


@kernel(allocates=False)
def put_texts(table, start, data, count, own_start, own_data, chosen, numbers):
    """Adds the chosen texts and writes their numbers; returns the new count. The buffers are large enough.

    With a count of -1 the texts are the table's own and keep their numbers.
    """
    for i in chosen:
        a, z = own_start[i], own_start[i + 1]
        at = _find_bucket(table, start, data, own_data, a, z, _bucket(table, own_data, a, z))
        if count < 0:
            table[at] = numbers[i]
        elif table[at] >= 0:  # the same text, a second time
            numbers[i] = table[at]
        else:
            end = start[count]
            for j in range(z - a):  # slices would compile the text of an error about their lengths
                data[end + j] = own_data[a + j]
            table[at] = numbers[i] = count
            count += 1
            start[count] = end + z - a
    return count


@kernel
def has_repeats(event, name, names):
    """Whether an event has a name twice. Events ascend; `names` counts all names."""
    last = np.full(names, -1, np.int64)
    for i in range(len(event)):
        if last[name[i]] == event[i]:
            return True
        last[name[i]] = event[i]
    return False


@kernel(allocates=False)
def are_ordered(seq, subscription, sign):
    """Whether deltas are in order of seq, then subscription, then sign."""
    for i in range(1, len(seq)):
        if seq[i - 1] < seq[i]:
            continue
        if seq[i - 1] > seq[i] or subscription[i - 1] > subscription[i]:
            return False
        if subscription[i - 1] == subscription[i] and sign[i - 1] > sign[i]:
            return False
    return True


@kernel(allocates=False)
def gather_texts(data, begin, end, start, out):
    """Copies the texts begin[i]..end[i]-1 one behind the other; `start` receives where each begins."""
    n = 0
    for i in range(len(begin)):
        start[i] = n
        for j in range(begin[i], end[i]):
            out[n] = data[j]
            n += 1
    start[len(begin)] = n
