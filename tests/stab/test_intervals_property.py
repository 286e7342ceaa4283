"""Intervals, rectangles and groups against a scan, while members are added and removed."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin.stab.dynamic import LazyPartition
from tocsin.stab.groups import GroupIndex, HotSets, Ranges, StabbingSets
from tocsin.stab.hotspots import HotspotConfig
from tocsin.stab.intervals import IntervalIndex, RectangleIndex
from tocsin.stab.partition import canonical

LEAST, MOST = -(2**63), 2**63 - 1


@st.composite
def interval(draw: st.DrawFn) -> tuple[int, int]:
    low = draw(st.integers(-20, 20))
    ends = low, low + draw(st.integers(0, 12))
    return draw(st.sampled_from([ends, ends, ends, (LEAST, ends[1]), (ends[0], MOST), (LEAST, MOST)]))


value = st.one_of(st.integers(-22, 34), st.sampled_from([LEAST, MOST]))
rectangle = st.tuples(interval(), interval()).map(lambda pair: (*pair[0], *pair[1]))
members = st.lists(rectangle, max_size=25)
times = st.sampled_from([1, 1, 20])


def columns(rows) -> Ranges:
    return Ranges(*np.array(rows, np.int64).reshape(-1, 4).T.copy())


class Held:
    """Slots and rectangles, as a dict; draws the next ones to add and to remove."""

    def __init__(self) -> None:
        self.rows: dict[int, tuple[int, int, int, int]] = {}

    def more(self, rows):
        first = max(self.rows, default=-1) + 2
        slots = np.arange(first, first + len(rows))
        self.rows.update(zip(slots.tolist(), rows, strict=True))
        return slots, columns(rows)

    def fewer(self, data):
        gone = sorted(data.draw(st.sets(st.sampled_from(sorted(self.rows)))) if self.rows else [])
        for slot in gone:
            del self.rows[slot]
        return np.array(gone, np.int64)


def in_first(rows, x):
    return sorted(slot for slot, (low, high, *_) in rows.items() if low <= x <= high)


def in_both(rows, x, y):
    return sorted(s for s, (low, high, a, b) in rows.items() if low <= x <= high and a <= y <= b)


@given(st.lists(members, min_size=1, max_size=4), times, st.data())
def test_intervals_that_hold_a_value(parts, repeat, data) -> None:
    index, held = IntervalIndex(), Held()
    for part in parts:
        slots, ranges = held.more(part * repeat)
        index.add(slots, ranges.low, ranges.high)
        index.remove(held.fewer(data))
        index._check()
        x = data.draw(value)
        assert sorted(index.stab(x).tolist()) == in_first(held.rows, x) and len(index) == len(held.rows)


@given(st.lists(members, min_size=1, max_size=4), times, st.data())
def test_rectangles_that_hold_a_point(parts, repeat, data) -> None:
    index, held = RectangleIndex(), Held()
    for part in parts:
        slots, ranges = held.more(part * repeat)
        index.add(slots, *ranges)
        index.remove(held.fewer(data))
        index._check()
        x, y = data.draw(value), data.draw(value)
        assert sorted(index.containing(x, y).tolist()) == in_both(held.rows, x, y)


def reached(rows, own, q1, q2):
    return sorted(
        slot
        for slot, (low, high, a, b) in rows.items()
        if a <= own <= b and ((q1 is not None and low <= q1) or (q2 is not None and high >= q2))
    )


def look(index: GroupIndex, rows, data) -> None:
    """Every group, for two values around its point."""
    index._check()
    own, left, right = data.draw(value), data.draw(st.integers(0, 9)), data.draw(st.integers(0, 9))
    for g in index.active.tolist():
        point = int(index.arrays.point[g])
        mine = {slot: rows[slot] for slot in rows if index.group_of(np.array([slot]))[0] == g}
        for q1, q2 in ((point - left, point + right), (None, point + right), (point - left, None)):
            assert sorted(index.find(g, own, q1, q2).tolist()) == reached(mine, own, q1, q2)


@settings(max_examples=max(20, settings().max_examples))
@given(st.lists(members, min_size=1, max_size=4), times, st.booleans(), st.data())
def test_groups_find_members_that_reach_the_nearest_values(parts, repeat, lazy, data) -> None:
    sets, held = StabbingSets(LazyPartition() if lazy else None), Held()
    for part in parts:
        sets.add(*held.more(part * repeat))
        sets.remove(held.fewer(data))
        sets._check()
        look(sets.index, held.rows, data)
        assert len(sets.index) == len(held.rows)


@settings(max_examples=max(20, settings().max_examples))
@given(st.lists(members, min_size=1, max_size=4), times, st.sampled_from([0.05, 0.3, 1.0]), st.data())
def test_hot_groups_and_the_rest_are_all(parts, repeat, alpha, data) -> None:
    sets, held, cold = HotSets(HotspotConfig(alpha)), Held(), set()
    for part in parts:
        for moved in (sets.add(*held.more(part * repeat)), sets.remove(held.fewer(data))):
            assert set(moved.gone.tolist()) <= cold and not set(moved.fresh.tolist()) & cold
            cold = cold - set(moved.gone.tolist()) | set(moved.fresh.tolist())
        sets._check()
        assert cold | set(sets.index.slots().tolist()) == set(held.rows)
        assert len(cold) + len(sets.index) == len(held.rows)
        look(sets.index, {slot: held.rows[slot] for slot in held.rows if slot not in cold}, data)


def test_a_group_grows_moves_and_shrinks() -> None:
    """One by one, through tails, larger places and gaps."""
    rng = np.random.default_rng(3)
    index, rows = GroupIndex(), {}
    index.place([0, 1], [100, 500])
    for slot in range(900):
        group = int(rng.integers(0, 2))
        point, own = (100, 500)[group], int(rng.integers(0, 1000))
        row = (point - int(rng.integers(0, 50)), point + int(rng.integers(0, 50)), own, own + 100)
        index.add(np.array([slot]), columns([row]), np.array([group], np.int32))
        rows[slot] = (group, row)
        if slot % 3 == 2:
            gone = int(rng.choice(sorted(rows)))
            index.remove(np.array([gone]))
            del rows[gone]
        if slot % 90 == 89:
            index._check()
            for g, point in enumerate((100, 500)):
                mine = {s: row for s, (where, row) in rows.items() if where == g}
                for reach in (1, 40):
                    found = sorted(index.find(g, 444, point - reach, point + reach).tolist())
                    assert found == reached(mine, 444, point - reach, point + reach)
    index.remove(np.array(sorted(rows)))
    assert len(index) == 0 and not len(index.active)
    index._check()


def test_canonical_groups_are_loaded_at_once() -> None:
    rng = np.random.default_rng(5)
    low = rng.integers(0, 10_000, 3000)
    ranges = Ranges(low, low + rng.integers(0, 900, 3000), low, low + 500)
    partition = canonical(ranges.low, ranges.high)
    index = GroupIndex()
    index.load(np.arange(3000), ranges, partition.group, partition.point)
    index._check()
    assert len(index) == 3000 and index.bytes > 0 and len(index.active) == partition.tau
