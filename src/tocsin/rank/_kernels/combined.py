"""What several parts tell, filled in: an item that is not told of is as it was."""

from __future__ import annotations

from numba import njit

__all__ = ["fill"]


@njit(cache=True, nogil=True)
def fill(when, told, member, current, was, now):
    """Where a part's row is found before and after each change, both in order.

    `when` are all changes and `told` those of the part, ascending; `current` is by member where its row is
    found, which is the number of what was last told of it.
    """
    at = 0
    for i in range(len(when)):
        p = member[i]
        was[i] = current[p]
        if at < len(told) and told[at] == when[i]:
            current[p] = at
            at += 1
        now[i] = current[p]
