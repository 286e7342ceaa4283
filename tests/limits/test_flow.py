"""Min-cost flows against exhaustive search, and the thesis's example where FlowExpect is not optimal."""

from __future__ import annotations

import itertools
import random
import sys
import time
from functools import lru_cache

import pytest

from tocsin.errors import UsageError
from tocsin.limits.flow import caching_streams, flow_expect, lfd_hits, opt_offline


def exhaustive(first, second, slots, window):
    """The most matches by trying every choice of what to keep."""

    @lru_cache(None)
    def best(now, kept):
        if now == len(first):
            return 0
        kept = tuple(x for x in kept if window is None or now <= x[2] + window)
        found = sum((second, first)[side][now] == value for side, value, _ in kept)
        new = tuple((i, x[now], now) for i, x in enumerate((first, second)) if x[now] is not None)
        choices = itertools.combinations(kept + new, min(slots, len(kept + new)))
        return found + max(best(now + 1, choice) for choice in choices)

    return best(0, ())


def test_opt_offline_equals_exhaustive_search():
    for seed in range(150):
        draw = random.Random(seed)
        steps, slots, window = draw.randint(1, 8), draw.randint(1, 3), draw.choice((None, None, 2, 3))
        first, second = ([draw.choice((0, 1, 2, None)) for _ in range(steps)] for _ in range(2))
        assert opt_offline(first, second, slots, window) == exhaustive(first, second, slots, window), seed


def test_opt_offline_of_5000_steps_takes_less_than_two_seconds():
    draw = random.Random(1)
    first = [t + draw.randint(-10, 10) for t in range(5000)]
    second = [t + 1 + draw.randint(-15, 15) for t in range(5000)]
    began = time.process_time()
    assert opt_offline(first, second, 10) > 4000
    assert time.process_time() - began < 2.0


def test_opt_offline_of_caching_is_lfd():
    for seed in range(200):
        draw = random.Random(seed)
        references = [int(draw.paretovariate(1)) % 7 for _ in range(draw.randint(2, 40))]
        slots = draw.randint(1, 4)
        assert opt_offline(*caching_streams(references), slots) == lfd_hits(references, slots), seed


def predetermined(candidates, slots, ahead, gain):
    """The best sequence of decisions that looks at no value, by trying all."""

    @lru_cache(None)
    def best(d, kept):
        found = sum(gain(x, d + 1) for x in kept)
        if d + 1 == ahead:
            return found
        pool = (*kept, (0, d + 1), (1, d + 1))
        return found + max(best(d + 1, choice) for choice in itertools.combinations(pool, slots))

    return max(best(0, choice) for choice in itertools.combinations(range(candidates), slots))


def test_flow_expect_is_the_best_predetermined_sequence():
    for seed in range(120):
        draw = random.Random(seed)
        slots, ahead = draw.choice((1, 2)), draw.choice((2, 3, 4))
        gains = {(x, d): draw.random() ** 2 for x in range(slots + 2) for d in range(1, ahead + 1)}
        for arrival, stream in itertools.product(range(1, ahead), (0, 1)):
            gains |= {((stream, arrival), d): draw.random() ** 2 for d in range(arrival + 1, ahead + 1)}

        def gain(x, d, gains=gains):
            return gains[x, d]

        found = flow_expect(slots + 2, slots, ahead, gain)
        assert len(found.kept) == slots
        assert abs(found.benefit - predetermined(slots + 2, slots, ahead, gain)) < 1e-4, seed


def test_an_adaptive_policy_beats_flow_expect():
    """Thesis 3.3.4: FlowExpect keeps R tuple 1 for 1.60; keeping S tuple 2 is worth 1.75."""
    r = {1: [(1.0, 2)], 2: [(1.0, 3)], 3: [(0.5, 2), (0.5, None)]}
    s = {1: [(0.5, 3), (0.5, None)], 2: [(0.8, 1), (0.2, None)], 3: [(0.8, 1), (0.2, None)]}
    candidates = [(0, 1), (0, None), (1, 2)]

    def likely(law, value):
        return sum(p for p, other in law if other == value and other is not None)

    def gain(x, d):
        if isinstance(x, tuple):
            own, other = (r, s) if x[0] == 0 else (s, r)
            return sum(p * likely(other[d], value) for p, value in own[x[1]])
        side, value = candidates[x]
        return likely((s if side == 0 else r)[d], value)

    found = flow_expect(3, 1, 3, gain)
    assert found.kept == (0,) and abs(found.benefit - 1.60) < 1e-6

    @lru_cache(None)
    def adaptive(d, kept):
        if d == 3:
            return 0.0
        out = 0.0
        for (p, a), (q, b) in itertools.product(r[d + 1], s[d + 1]):
            hit = kept[1] is not None and (b, a)[kept[0]] == kept[1]
            out += p * q * (hit + max(adaptive(d + 1, x) for x in (kept, (0, a), (1, b))))
        return out

    assert abs(adaptive(0, (1, 2)) - 1.75) < 1e-9 and adaptive(0, (0, 1)) < 1.75


def test_without_ortools_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ortools.graph.python", None)
    with pytest.raises(UsageError, match="need ortools") as error:
        opt_offline([1, 2], [2, 1], 1)
    assert "tocsin[limits]" in str(error.value)


def test_streams_of_different_length_are_rejected():
    with pytest.raises(UsageError, match="two streams of one length"):
        opt_offline([1], [1, 2], 1)
