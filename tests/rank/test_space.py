"""The subscription space against a scan, while ranges are added and removed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.rank._kernels.near import ALL, EMPTY, any_near, focus, snap_near
from tocsin.rank._kernels.space import find_in
from tocsin.rank.space import SubscriptionSpace

LEAST, MOST = ENDS = -(2**63), 2**63 - 1


@st.composite
def interval(draw: st.DrawFn) -> tuple[int, int]:
    low = draw(st.integers(-20, 20))
    ends = low, low + draw(st.integers(0, 12))
    return draw(st.sampled_from([ends, ends, ends, (LEAST, ends[1]), (ends[0], MOST), ENDS]))


side = st.one_of(interval(), st.tuples(st.integers(-22, 34), st.integers(-22, 34)))  # may be empty
rectangle = st.tuples(side, side).map(lambda pair: (*pair[0], *pair[1]))


class Held:
    """A space and the same ranges as plain arrays."""

    def __init__(self) -> None:
        self.space = SubscriptionSpace()
        self.slots, self.ends = np.empty(0, np.int64), np.empty((0, 2), np.int64)

    def add(self, ends: np.ndarray) -> None:
        slots = self.slots.max(initial=-1) + 2 + np.random.default_rng(len(ends)).permutation(len(ends))
        self.space.add(slots, *ends.T)
        self.slots, self.ends = np.r_[self.slots, slots], np.concatenate([self.ends, ends])

    def remove(self, gone: np.ndarray) -> None:
        self.space.remove(self.slots[gone])
        self.slots, self.ends = self.slots[~gone], self.ends[~gone]

    def check(self, rectangles) -> None:
        """Every question about each rectangle."""
        space, (low, high) = self.space, self.ends.T
        space._check()
        assert len(space) == len(self.slots)
        number, slot = space.find(rectangles)
        again, same = space.find(rectangles, [0] * len(rectangles))  # looked up together
        order, other = np.lexsort((slot, number)), np.lexsort((same, again))
        assert np.array_equal(number[order], again[other]) and np.array_equal(slot[order], same[other])
        for i, (a, b, c, d) in enumerate(rectangles):
            inside = (a <= low) & (low <= b) & (c <= high) & (high <= d)
            assert sorted(slot[number == i].tolist()) == sorted(self.slots[inside].tolist())
            assert space.count((a, b, c, d)) == inside.sum() and space.any((a, b, c, d)) == inside.any()
            x, y = low[inside], high[inside]
            tight = (x.min(), x.max(), y.min(), y.max()) if inside.any() else None
            assert space.snap((a, b, c, d)) == tight


batch = st.tuples(
    st.lists(interval(), max_size=40), st.sampled_from([1, 1, 20]), st.integers(0, 2**32), st.floats(0, 1)
)


@given(st.lists(batch, min_size=1, max_size=5), st.lists(rectangle, min_size=1, max_size=5))
def test_all_queries_while_ranges_are_added_and_removed(batches, rectangles) -> None:
    held = Held()
    for drawn, times, seed, share in batches:
        held.add(np.array(drawn * times, np.int64).reshape(-1, 2))
        held.remove(np.random.default_rng(seed).random(len(held.slots)) < share * share)
        held.check([*rectangles, (*ENDS, *ENDS)])


@pytest.mark.parametrize("kind", ["uniform", "short", "equal left ends", "few values"])
def test_many_ranges_in_several_trees(kind) -> None:
    """Three levels of groups; trees that are packed again after additions and after removals."""
    rng = np.random.default_rng(7)
    held, most = Held(), 10**15
    for count, share in ((12_000, 0.001), (900, 0.1), (300, 0), (1, 0.02), (2500, 0.3), (3, 0.999)):
        low = rng.integers(0, 5 if kind == "few values" else most, count)
        if kind == "equal left ends":
            low[:] = 77
        high = low + rng.integers(0, {"short": 10**9, "few values": 4}.get(kind, most), count)
        held.add(np.stack([low, high], axis=1))
        held.remove(rng.random(len(held.slots)) < share)
        corners = rng.choice(held.ends, 20)
        wide = corners + (rng.random((20, 2)) ** 8 * most / 4).astype(np.int64)
        wanted = np.stack([corners[:, 0], wide[:, 0], corners[:, 1], wide[:, 1]], axis=1).tolist()
        held.check([*wanted, (*ENDS, *ENDS)])
        x = int(corners[0, 0])
        reached = held.slots[(held.ends[:, 0] <= x) & (x <= held.ends[:, 1])]
        assert sorted(held.space.stab(x).tolist()) == sorted(reached.tolist())
    assert held.space.arrays.ends.nbytes < 20_000  # what is empty is given back


def test_packed_trees_are_small_and_few() -> None:
    rng, space = np.random.default_rng(3), SubscriptionSpace()
    space.add(np.arange(100_000), np.arange(100_000), np.arange(100_000) + 9)
    assert space.bytes < 29 * len(space)
    for first in range(100_000, 130_000, 600):
        low = rng.integers(0, 100_000, 600)
        space.add(np.arange(first, first + 600), low, low + 50)
        space.remove(rng.choice(np.flatnonzero(space._locations.place >= 0), 500, replace=False))
        assert space.bytes < 40 * len(space) and len(space._trees) < 8
    space._check()


def test_a_short_output_buffer_is_reported() -> None:
    space = SubscriptionSpace()
    space.add(np.arange(1000), np.arange(1000), np.arange(1000) + 5)
    needed = -1 - find_in(space.arrays, 100, 899, *ENDS, np.empty(50, np.int32), 10)
    out = np.full(needed, -1, np.int32)
    assert 810 <= needed < 900 and find_in(space.arrays, 100, 899, *ENDS, out, 10) == 810
    assert sorted(out[10:810].tolist()) == list(range(100, 900)) and np.all(out[:10] == -1)


def test_rectangles_of_one_region_are_looked_up_together() -> None:
    """Points, leaves and groups at hand; whole groups in one piece, and with gaps."""
    rng = np.random.default_rng(6)
    low = rng.integers(0, 10_000, 60_000)
    high = low + rng.integers(0, 10_000, len(low))
    there, space = np.ones(len(low), np.bool_), SubscriptionSpace()
    space.add(np.arange(len(low)), low, high)
    for _ in range(2):
        widths = rng.choice([0, 40, 400, 1500, 4000, 20_000], 40)
        region = np.repeat(np.arange(40), rng.integers(1, 12, 40))
        corner = rng.integers(0, 10_000, (40, 2))[region]
        size = (rng.random((len(region), 4)) * widths[region, None]).astype(np.int64)
        l_low, r_low = corner[:, 0] + size[:, 0], corner[:, 1] + size[:, 1]
        wanted = np.stack([l_low, l_low + size[:, 2], r_low, r_low + size[:, 3]], axis=1)
        start, slots = space.runs(wanted, region)
        for i, (a, b, c, d) in enumerate(wanted.tolist()):
            inside = there & (a <= low) & (low <= b) & (c <= high) & (high <= d)
            assert sorted(slots[start[i] : start[i + 1]].tolist()) == np.flatnonzero(inside).tolist()
        gone = there & (rng.random(len(low)) < 0.02)
        space.remove(np.flatnonzero(gone))
        there &= ~gone


def test_rejected_input_changes_nothing() -> None:
    space = SubscriptionSpace()
    space.add([], [], [])
    space.add(5, [1], [2])
    for slots in ([5], [6, 6]):
        with pytest.raises(ValueError, match=f"slot {slots[0]} is in use"):
            space.add(slots, [1] * len(slots), [2] * len(slots))
    for gone in ([7], [5, 5], [999]):
        with pytest.raises(ValueError, match=f"slot {gone[0]} is not in use"):
            space.remove(gone)
    with pytest.raises(ValueError, match="slots are numbers from 0"):
        space.add([-1], [1], [2])
    with pytest.raises(ValueError, match=r"interval 0 is empty: 3\.\.2"):
        space.add([1], [3], [2])
    with pytest.raises(ValueError, match="2 slots for 1 ranges"):
        space.add([1, 2], [1], [2])
    space._check()
    assert space.stab(1).tolist() == [5] and space.count((*ENDS, *ENDS)) == 1


def test_a_region_at_hand() -> None:
    """Points at hand, leaves at hand, groups at hand: questions within a region are answered as by all."""
    rng = np.random.default_rng(5)
    low = rng.integers(0, 10_000, 60_000)
    high = low + rng.integers(0, 10_000, len(low))
    space = SubscriptionSpace()
    space.add(np.arange(len(low)), low, high)
    bounds = np.empty(4, np.int64)
    for width in (0, 40, 400, 1500, 4000, 20_000):
        a, c = (int(v) for v in rng.integers(0, 10_000, 2))
        focus(space.arrays, a, a + width, c, c + width, False)
        for _ in range(60):
            l_low, l_high = sorted(int(v) for v in rng.integers(a, a + width + 1, 2))
            r_low, r_high = sorted(int(v) for v in rng.integers(c, c + width + 1, 2))
            inside = (l_low <= low) & (low <= l_high) & (r_low <= high) & (high <= r_high)
            l, r = low[inside], high[inside]  # noqa: E741
            rectangle = (l_low, l_high, r_low, r_high)
            assert any_near(space.arrays, *rectangle) == inside.any()
            assert (snap_near(space.arrays, *rectangle, bounds, False) == ALL) == inside.any()
            if inside.any():
                assert bounds.tolist() == [l.min(), l.max(), r.min(), r.max()]
            found = snap_near(space.arrays, *rectangle, bounds, True)
            assert (found == EMPTY) == (not inside.any())
            if found not in (ALL, EMPTY):
                assert l.min() <= bounds[0] < bounds[1] <= l.max()
                assert r.min() <= bounds[2] < bounds[3] <= r.max()
                assert np.isin(bounds[:2], l).all() and np.isin(bounds[2:], r).all()
