"""Matches in order of row and slot."""

from __future__ import annotations

import numpy as np
import pytest

from tocsin.match.base import pack
from tocsin.match.room import in_order


@pytest.mark.parametrize("slots", [1, 2, 1000, 2**20, 2**26, 2**30])
@pytest.mark.parametrize(
    ("rows", "count"), [(1, 0), (1, 1), (1, 50), (127, 3), (128, 500), (129, 900), (5000, 9000)]
)
def test_by_row_then_slot(slots: int, rows: int, count: int) -> None:
    rng = np.random.default_rng(rows)
    slot, row = rng.integers(0, slots, count), rng.integers(0, rows, count)
    order = np.lexsort((slot, row))
    found = in_order(pack(slot, row), rows)
    assert np.array_equal(found[0], row[order]) and np.array_equal(found[1], slot[order])
    assert found[0].dtype == found[1].dtype == np.int64
