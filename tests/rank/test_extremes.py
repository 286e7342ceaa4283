"""Messages of range minima, maxima and distinct values, against brute force."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.rank.extremes import DistinctRanges, Extremes, MessageGenerator

LEAST, MOST = -(2**63), 2**63 - 1
place = st.one_of(st.integers(0, 7), st.integers(0, 7), st.sampled_from([LEAST, MOST]))
height = st.one_of(st.integers(0, 4), st.integers(0, 30), st.sampled_from([LEAST, MOST]))
start = st.lists(st.tuples(place, height), max_size=9)
step = st.tuples(st.integers(0, 11), st.booleans(), st.sampled_from("xy+-"), place, height)
steps = st.lists(step, max_size=12)
ENDS = [LEAST, LEAST + 1, *range(-1, 9), MOST - 1, MOST]
RANGES = [(low, high) for low in ENDS for high in ENDS if low <= high]


def columns(rows, width=2):
    return np.array(rows, np.int64).reshape(-1, width).T


def batch(objects: dict[int, tuple[int, ...]], drawn):
    """Updates of one attribute, of all, and deletes; the states after each."""
    rows, states, now = [], [objects], objects
    for number, both, what, *values in drawn:
        if what == "-":
            rows.append((number, 0, *[7] * len(values)))
            now = {key: row for key, row in now.items() if key != number}
        else:
            row = list(now.get(number, values)) if not both else list(values)
            row[-1 if what == "y" else 0] = values[-1 if what == "y" else 0]
            rows.append((number, 1, *row))
            now = {**now, number: tuple(row)}
        states.append(now)
    return rows, states


def run(structure: MessageGenerator, rows, width=2):
    number, has, *codes = columns(rows, 2 + width)
    return structure.update(number, *codes, has != 0)


def values_of(state, low, high):
    return [y for x, y in state.values() if low <= x <= high]


@given(start, steps, st.booleans(), st.sampled_from([1, 4096]))
def test_each_affected_range_gets_one_correct_message(first, drawn, largest, rows_of_output) -> None:
    extremes = Extremes(*columns(first), largest=largest)
    extremes._out = extremes._out[:rows_of_output]
    pick = max if largest else min
    rows, states = batch(dict(enumerate(first)), drawn)
    messages = run(extremes, rows)
    extremes._check()
    affected = [0] * len(rows)
    for low, high in RANGES:
        mine = messages.reach(low, high)
        updated = {
            int(messages.update[m]): None if messages.empty[m] else int(messages.value[m]) for m in mine
        }
        assert len(updated) == len(mine), "two messages of one update"
        for k in range(len(rows)):
            before, after = (pick(values_of(s, low, high), default=None) for s in states[k : k + 2])
            assert (k in updated) == (before != after) and updated.get(k, after) == after
            affected[k] += before != after
    counters = extremes.counters
    assert counters["ignorable"] + counters["easy"] + counters["difficult"] == len(rows)
    assert counters["ignorable"] == sum(not count for count in affected)
    assert counters["messages"] == len(messages)
    value, empty = extremes.contents(*columns(RANGES))
    truth = [pick(values_of(states[-1], *ends), default=None) for ends in RANGES]
    assert [None if e else v for v, e in zip(value.tolist(), empty.tolist(), strict=True)] == truth


@given(start, step)
def test_an_easy_update_is_one_message(first, drawn) -> None:
    extremes = Extremes(*columns(first))
    (row,), (before, after) = batch(dict(enumerate(first)), [drawn])
    messages, counters = run(extremes, [row]), extremes.counters
    moved = row[0] in before and row[0] in after and before[row[0]][0] != after[row[0]][0]
    if counters["easy"]:
        assert len(messages) <= (3 if moved else 1)
    if not moved:
        assert counters["hull"] == counters["difficult"] and counters["mar"] <= 2


@given(start, steps)
def test_distinct_values_are_gained_and_lost(first, drawn) -> None:
    distinct = DistinctRanges(*columns(first))
    rows, states = batch(dict(enumerate(first)), drawn)
    messages = run(distinct, rows)
    distinct._check()
    for low, high in RANGES:
        mine = messages.reach(low, high)
        updated = sorted(
            zip(
                *(part[mine].tolist() for part in (messages.update, messages.value, messages.empty)),
                strict=True,
            )
        )
        truth = []
        for k in range(len(rows)):
            before, after = (set(values_of(state, low, high)) for state in states[k : k + 2])
            truth += [(k, value, value in before) for value in before ^ after]
        assert updated == sorted(truth)
        assert distinct.contents(low, high) == set(values_of(states[-1], low, high))


def test_many_objects_many_updates() -> None:
    """Trees of some levels, hulls of some length, outputs that are full in between."""
    rng = np.random.default_rng(2)
    x, y = rng.integers(0, 900, 3000), rng.integers(0, 9000, 3000)
    extremes = Extremes(x, y)
    low = rng.integers(0, 900, 400)
    high = low + rng.integers(0, 300, 400)
    value, empty = extremes.contents(low, high)
    for _ in range(20):
        number, has = rng.integers(0, 3300, 200), rng.random(200) < 0.8
        messages = extremes.update(number, rng.integers(0, 900, 200), rng.integers(0, 9000, 200), has)
        for i in range(len(low)):
            for m in messages.reach(low[i], high[i])[-1:]:
                value[i], empty[i] = messages.value[m], messages.empty[m]
        truth = extremes.contents(low, high)
        assert np.array_equal(value, truth[0]) and np.array_equal(empty, truth[1])
    extremes._check()
    assert extremes.counters["difficult"] > 100 and extremes.bytes > 0 and len(extremes) > 2000


def test_numbers_are_checked() -> None:
    with pytest.raises(ValueError, match="numbered from 0"):
        Extremes().update([-1], [1], [1])
    with pytest.raises(ValueError, match="differ in length"):
        Extremes().update([1], [1], [1], [True, False])
