"""Phase 2 by counting."""

from __future__ import annotations

import numpy as np
from numba import njit

from tocsin.match._kernels.scan import grown
from tocsin.match.published._kernels.blocks import append
from tocsin.match.published._kernels.predicates import new_bits, satisfied

__all__ = ["associate", "count_matches"]


@njit(cache=True, nogil=True)
def associate(lists, lines, added, counts):
    """Enter lines into their predicates' lists, while there is room.

    `counts`: lines done, predicates of the next line done.
    """
    for k in range(counts[0], len(added)):
        line = added[k]
        at = lines.at[line]
        for i in range(counts[1], lines.size[line]):
            q = lines.pool[at + i]
            place = append(lists, q)
            if place < 0:
                counts[1] = i
                return
            lists.pool[lists.of[q].at + place] = line
        counts[0], counts[1] = k + 1, 0


@njit(cache=True, nogil=True)
def count_matches(p, index, lists, lines, events, used):
    """Packed (slot, event), and the number of counts.

    `left` counts down from the size, so that one comparison with 0 tells a match.
    """
    room = new_bits(p, events)
    bits, found, _ = room
    list_of, pool = lists.of, lists.pool  # taken out of their tuple once, not per access
    slot, size = lines.slot, lines.size[:used]
    left = size.copy()
    out, n, counts = np.empty(1024, np.int64), 0, 0
    for e in range(len(events.start) - 1):
        _, last = satisfied(p, index, events, e, room)
        walked = 0
        for j in range(last):
            q = found[j]
            bits[q] = 0
            at, count = list_of[q].at, list_of[q].count
            walked += count
            for i in range(at, at + count):
                line = pool[i]
                left[line] -= 1
                if left[line] == 0:
                    out = grown(out, n)
                    out[n] = (np.int64(slot[line]) << 32) | e
                    n += 1
        counts += walked
        if 32 * walked > used:
            left[:] = size
        else:
            for j in range(last):
                at, count = list_of[found[j]].at, list_of[found[j]].count
                for i in range(at, at + count):
                    left[pool[i]] = size[pool[i]]
    return out[:n].copy(), counts
