"""The ordered index against a sorted list."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.join._kernels.orders import insert_row
from tocsin.join.tables import OrderedRows

LEAST, MOST = -(2**63), 2**63 - 1
code = st.one_of(st.integers(-4, 4), st.sampled_from([LEAST, MOST]))
some = st.lists(st.tuples(code, code), max_size=40)


def many(drawn: list[tuple[int, int]], times: int) -> list[tuple[int, int, int]]:
    """Equal rows often, so that blocks are full of one key."""
    return [(k, v, row) for row, (k, v) in enumerate(drawn * times)]


@given(some, some, st.sampled_from([1, 30]), st.data())
def test_is_a_sorted_list(first, later, times, data) -> None:
    rows = many(first, times)
    keys, values, numbers = np.array(rows, np.int64).reshape(-1, 3).T
    order = OrderedRows.build(keys, values, numbers)
    order._check()
    assert order.entries() == sorted(rows)
    fresh = [(k, v, 10_000 + row) for k, v, row in many(later, times)]
    for row in fresh:
        order.insert(*row)
    rows += fresh
    order._check()
    gone = data.draw(st.lists(st.sampled_from(rows), unique=True)) if rows else []
    for row in gone * (1 if times == 1 else 3):
        assert order.delete(*row) == (row in rows)
        rows = [other for other in rows if other != row]
    order._check()
    assert order.entries() == sorted(rows) and len(order) == len(rows)
    key, low, high = data.draw(code), data.draw(code), data.draw(code)
    inside = sorted((k, v, row) for k, v, row in rows if k == key and low <= v <= high)
    assert order.rows_of(key, low, high).tolist() == [row for *_, row in inside]
    between = sorted((k, v, row) for k, v, row in rows if low <= k <= high)
    assert order.rows_between(low, high).tolist() == [row for *_, row in between]
    mine = [v for k, v, _ in rows if k == key]
    below, above = [v for v in mine if v < low], [v for v in mine if v >= low]
    assert order.neighbours(key, low) == (max(below, default=None), min(above, default=None))


def test_grows_and_shrinks_to_nothing() -> None:
    rng = np.random.default_rng(1)
    keys, values = rng.integers(0, 50, 5000), rng.integers(0, 50, 5000)
    order = OrderedRows()
    arrays = order.reserve(len(keys))
    for row, (key, value) in enumerate(zip(keys, values, strict=True)):
        assert insert_row(arrays, key, value, row), "the reserved space is enough"
    order._check()
    for row in rng.permutation(5000).tolist():
        assert order.delete(keys[row], values[row], row)
    order._check()
    assert len(order) == 0 and order.neighbours(3, 3) == (None, None) and not order.delete(1, 1, 1)
    order.insert(1, 2, 3)
    assert order.rows_of(1).tolist() == [3]


def test_without_room_nothing_is_done() -> None:
    order = OrderedRows()
    row = 0
    while insert_row(order.arrays, 1, 1, row):
        row += 1
    assert len(order) == row
    order._check()
    order.insert(1, 1, row)
    order._check()


def test_columns_of_different_length_are_refused() -> None:
    with pytest.raises(ValueError, match="differ in shape"):
        OrderedRows.build([1, 2], [1])
