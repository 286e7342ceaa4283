"""Keys in order, numbers of objects, and their places in the order, change by change."""

from __future__ import annotations

import numpy as np
from numba import njit

__all__ = ["follow", "lower_bounds", "spread"]


@njit(cache=True, nogil=True)
def lower_bounds(keys, asked, at, there):
    """For each asked row, the first row of the sorted `keys` not below it, and whether it is equal."""
    width = keys.shape[1]
    for i in range(len(asked)):
        low, high = 0, len(keys)
        while low < high:
            middle = (low + high) // 2
            below = False
            for c in range(width):
                if keys[middle, c] != asked[i, c]:
                    below = keys[middle, c] < asked[i, c]
                    break
            if below:
                low = middle + 1
            else:
                high = middle
        at[i] = low
        there[i] = low < len(keys)
        if there[i]:
            for c in range(width):
                if keys[low, c] != asked[i, c]:
                    there[i] = False
                    break


@njit(cache=True, nogil=True)
def spread(labels, at, gap, out):
    """Even labels for new keys, ascending, that belong before the places `at`; False if there is no room."""
    i = 0
    while i < len(at):
        run = i
        while run < len(at) and at[run] == at[i]:
            run += 1
        count, place = run - i, at[i]
        if count > 1 << 20:  # so that no product below is too large
            return False
        if place == len(labels):
            first, step = labels[-1] + gap, gap
            if labels[-1] > np.int64(2**61) - gap * count:
                return False
        elif place == 0:
            first, step = labels[0] - gap * count, gap
            if labels[0] < -np.int64(2**61) + gap * count:
                return False
        else:
            step = ((labels[place] - labels[place - 1]) // (count + 1)) & ~np.int64(1)
            first = labels[place - 1] + step
            if step < 2:
                return False
        for n in range(count):
            out[i + n] = first + n * step
        i = run
    return True


@njit(cache=True, nogil=True)
def follow(old, new, base, number, label, free, state, out_number, out_label, absent):
    """Number the object of each move, and label its new version; what an object is now is kept.

    `number` is by row, `label` by object; `free` is a stack of numbers, `state` its height and the next
    fresh number. A version with the label of the one before takes the place beside it, so that the move is
    seen.
    """
    for i in range(len(old)):
        if old[i] >= 0:
            n = number[old[i]]
        elif state[0] > 0:
            state[0] -= 1
            n = np.int64(free[state[0]])
            label[n] = absent
        else:
            n = state[1]
            state[1] += 1
            label[n] = absent
        out_number[i] = n
        if new[i] >= 0:
            number[new[i]] = n
            label[n] = (
                label[n] ^ 1 if label[n] != absent and (label[n] & ~np.int64(1)) == base[i] else base[i]
            )
        else:
            label[n] = absent
            free[state[0]] = n
            state[0] += 1
        out_label[i] = label[n]
