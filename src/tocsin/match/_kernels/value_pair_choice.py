"""Which two dimensions conjunctions are to hang on by their values: offers, and a greedy choice of them."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

import numpy as np
from numba import njit

from tocsin.match._kernels.build import EQUAL, by_values, value_tests
from tocsin.match._kernels.verify import wider

_CLEARLY = np.float32(0.5)  # times what it costs: better than that

__all__ = ["choose_couples", "offers"]


@njit(cache=True, nogil=True)
def offers(tests, chances, cut_count, cost, least):
    """What each conjunction would cost in each couple of dimensions that it asks for values in.

    Returns the couples (lesser dimension * width + the other), the conjunctions, and the costs, as far as
    they are below what a conjunction costs at `least`.
    """
    start, width = tests[0], np.int64(len(cut_count))
    couple, whose, price = np.empty(1024, np.int64), np.empty(1024, np.int32), np.empty(1024, np.float32)
    equal, often = np.empty(EQUAL, np.int64), np.empty(EQUAL)
    n = 0
    for c in range(len(start) - 1):
        equals = value_tests(tests, chances, cut_count, c, equal, often)
        if n + equals * equals > len(couple):
            couple, whose, price = wider(couple, n), wider(whose, n), wider(price, n)
        for x in range(equals):
            for y in range(x):
                own = by_values(often, equals, x, y, cost, start[c + 1] - start[c])
                p, q = np.int64(tests[1][equal[x]]), np.int64(tests[1][equal[y]])
                if own < least[c]:
                    couple[n], whose[n], price[n] = min(p, q) * width + max(p, q), c, own
                    n += 1
    return couple[:n].copy(), whose[:n].copy(), price[:n].copy()


@njit(cache=True, nogil=True)
def choose_couples(begin, whose, price, least, fixed, scale, most):
    """Couples that save more than they cost, best first: greedily, by what each saves beside those chosen.

    The offers of couple u are begin[u]..begin[u + 1]-1; it costs `fixed[u]` for every event. A conjunction
    counts `scale` times. What a couple saves only falls as others are chosen, so one that is still the best
    when it is worked out anew is the best of all.
    """
    now = least.copy()
    heap = [(0.0, np.int64(-1))]
    for u in range(len(fixed)):
        heap += [(-_saves(begin, whose, price, now, u) * scale + fixed[u], np.int64(u))]
    heapify(heap)
    chosen = np.empty(min(most, len(fixed)), np.int64)
    n = 0
    while n < len(chosen):
        _, u = heappop(heap)
        if u < 0:
            break
        loss = -_saves(begin, whose, price, now, u) * scale + fixed[u]
        if loss > heap[0][0]:
            heappush(heap, (loss, u))
            continue
        chosen[n] = u
        n += 1
        for i in range(begin[u], begin[u + 1]):
            now[whose[i]] = min(now[whose[i]], price[i])
    return chosen[:n]


@njit(cache=True, nogil=True)
def _saves(begin, whose, price, now, u):
    """What couple u would save; of what is hardly better, nothing: chances are known only so well."""
    saved = 0.0
    for i in range(begin[u], begin[u + 1]):
        if price[i] < _CLEARLY * now[whose[i]]:
            saved += now[whose[i]] - price[i]
    return saved
