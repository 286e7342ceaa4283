"""Members of groups in a rectangle, and skylines over many subscriptions, against brute force."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tocsin.join._kernels.orders import find_run
from tocsin.join.tables import OrderedRows
from tocsin.model.message import GREATEST, LEAST
from tocsin.reformulate._kernels.selected import WHOLE, any_between, find_selected, reach
from tocsin.reformulate._kernels.skylines import (
    CLUSTERS,
    FEWEST,
    MERGED,
    RANGES,
    TUPLES,
    SidePlan,
    SkylineScratch,
    is_anyone_affected,
    skyline,
)
from tocsin.stab.groups import Ranges, StabbingSets

Rectangle = tuple[np.int64, np.int64, np.int64, np.int64]


def random_ranges(
    rng: np.random.Generator, count: int, top: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Some of them open, some single values."""
    ends = np.sort(rng.integers(0, top + 1, (2, count)), axis=0)
    low, high = ends[0].astype(np.int64), ends[1].astype(np.int64)
    kind = rng.random(count)
    high[kind < 0.07] = low[kind < 0.07]
    low[(kind > 0.8) & (kind < 0.9)] = LEAST
    high[kind > 0.87] = GREATEST
    return low, high


def random_world(seed: int, most: int) -> tuple[StabbingSets, Ranges, Rectangle, np.random.Generator, int]:
    rng = np.random.default_rng(seed)
    top, count = int(rng.choice([5, 30, 1000])), int(rng.integers(1, most))
    ranges = Ranges(*random_ranges(rng, count, top), *random_ranges(rng, count, top))
    sets = StabbingSets()
    sets.add(np.arange(count), ranges)
    gone = np.flatnonzero(rng.random(count) < 0.1)  # gaps, and a tail of those that come again
    sets.remove(gone)
    sets.add(gone, ranges.take(gone))
    value = int(rng.integers(0, top + 1))
    near = np.sort(rng.integers(0, top + 1, 2))
    forms = [
        (LEAST, value, value, GREATEST),
        (min(int(near[0]), value), value, value, max(int(near[1]), value)),
        (LEAST, value, value, value + 1),
    ]
    chosen = forms[int(rng.integers(0, 3))]
    return sets, ranges, tuple(np.int64(end) for end in chosen), rng, top  # type: ignore[return-value]


def selected_of(ranges: Ranges, rectangle: Rectangle) -> NDArray[np.bool_]:
    a, b, c, d = rectangle
    inside = (a <= ranges.own_low) & (ranges.own_low <= b) & (c <= ranges.own_high) & (ranges.own_high <= d)
    return np.asarray(inside)


@settings(max_examples=max(25, settings().max_examples), deadline=None)
@given(st.integers(0, 2**32))
def test_property_members_in_a_rectangle(seed: int) -> None:
    sets, ranges, rectangle, rng, top = random_world(seed, 300)
    groups, selected = sets.index.arrays, selected_of(ranges, rectangle)
    q1, q2 = (np.int64(end) for end in np.sort(rng.integers(-1, top + 2, 2)))
    other = np.int64(LEAST), q2, q1, np.int64(GREATEST)
    wanted = selected & (ranges.low <= q2) & (ranges.high >= q1)
    found: list[int] = []
    for g in sets.index.active:
        mine = np.flatnonzero(selected & (sets.index.group_of(np.arange(len(selected))) == g))
        low, high = reach(groups, g, rectangle)
        assert (low, high) == (ranges.low[mine].min(initial=GREATEST), ranges.high[mine].max(initial=LEAST))
        inside = np.any((ranges.low[mine] > q1) & (ranges.high[mine] < q2))
        assert any_between(groups, g, rectangle, q1, q2) == inside
        out = np.zeros((3, len(selected)), np.int64)
        n = find_selected(groups, g, (rectangle, WHOLE), out, 0)
        assert sorted(out[2, :n].tolist()) == mine.tolist()
        assert np.array_equal(out[0, :n], ranges.low[out[2, :n]])
        n = find_selected(groups, g, (rectangle, other), out, 0)
        found += out[2, :n].tolist()
    assert sorted(found) == np.flatnonzero(wanted).tolist()


def points_of(
    policy: int, sets: StabbingSets, values: list[int], rectangle: Rectangle
) -> list[tuple[int, int]]:
    index = sets.index
    order = OrderedRows.build(np.zeros(len(values), np.int64), values)
    active = index.active[np.argsort(index.arrays.point[index.active])]
    plan = SidePlan(order.arrays, order.arrays, index.arrays, index.arrays.point[active], active)
    size = max(len(index), len(values)) + 2
    lines = [np.empty(size, np.int64) for _ in range(3)]
    scratch = SkylineScratch(*lines, np.empty((3, size), np.int64), np.empty((3, size), np.int64))
    run = find_run(order.arrays, 0)
    n = skyline(policy, plan, run, rectangle, scratch)
    assert (n > 0) == is_anyone_affected(plan, run, rectangle)
    return list(zip(scratch.x[:n].tolist(), scratch.y[:n].tolist(), strict=True))


def affected_by(ranges: Ranges, values: list[int]) -> NDArray[np.bool_]:
    lines = np.array(values)[:, None]
    return np.asarray(((ranges.low <= lines) & (lines <= ranges.high)).any(axis=0))


@settings(max_examples=max(25, settings().max_examples), deadline=None)
@given(st.integers(0, 2**32))
def test_property_skylines_reach_the_affected_only(seed: int) -> None:
    sets, ranges, rectangle, rng, top = random_world(seed, 300)
    values = rng.integers(0, top + 1, int(rng.integers(1, 40))).tolist()
    selected, affected = selected_of(ranges, rectangle), affected_by(ranges, values)
    sizes = {}
    for policy in (TUPLES, RANGES, CLUSTERS, MERGED, FEWEST):
        points = points_of(policy, sets, values, rectangle)
        receives = np.zeros(len(selected), np.bool_)
        for x, y in points:
            receives |= (ranges.low <= x) & (y <= ranges.high)
        assert np.array_equal(receives[selected], affected[selected]), policy
        assert points == sorted(points) and [y for _, y in points] == sorted(y for _, y in points)
        sizes[policy] = len(points)
    assert sizes[FEWEST] <= sizes[MERGED] <= sizes[CLUSTERS] <= 2 * len(sets.index.active)
    assert sizes[FEWEST] <= min(sizes[RANGES], sizes[TUPLES])


@settings(max_examples=max(40, settings().max_examples), deadline=None)
@given(st.integers(0, 2**32))
def test_property_no_skyline_has_fewer_points(seed: int) -> None:
    """By trying all sets of quadrants, for few subscriptions."""
    sets, ranges, rectangle, rng, top = random_world(seed, 9)
    values = rng.integers(0, top + 1, int(rng.integers(1, 5))).tolist()
    points = points_of(FEWEST, sets, values, rectangle)
    selected, affected = selected_of(ranges, rectangle), affected_by(ranges, values)
    spans = list(zip(ranges.low.tolist(), ranges.high.tolist(), strict=True))
    mine = {spans[i] for i in np.flatnonzero(selected & affected)}
    others = {spans[i] for i in np.flatnonzero(selected & ~affected)}
    received = {
        frozenset(span for span in mine if span[0] <= x and y <= span[1])
        for x in {low for low, _ in mine}
        for y in {high for _, high in mine}
        if not any(low <= x and y <= high for low, high in others)
    }
    for size in range(len(points)):
        for some in itertools.combinations(received, size):
            assert frozenset().union(*some) != frozenset(mine), "fewer points suffice"
