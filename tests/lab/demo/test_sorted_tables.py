"""Rows near a condition: all that satisfy it, and of a range no others of its kind."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime

from hypothesis import given
from hypothesis import strategies as st

from tocsin.lab.demo.check import SortedTables
from tocsin.language.algebra import Between, Column, Compare
from tocsin.reference import holds

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 2),
    st.sampled_from([-math.inf, -0.0, 0.5, math.inf, math.nan]),
    st.sampled_from(["", "a", "b"]),
    st.sampled_from([datetime(2013, 3, 8), datetime(2013, 3, 8, 1, tzinfo=UTC), date(2013, 3, 8)]),
)
BOUNDS = VALUES.filter(lambda value: value is not None)
CONDITIONS = st.one_of(
    st.builds(Compare, st.just(Column("x")), st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), BOUNDS),
    st.builds(Between, st.just(Column("x")), BOUNDS, BOUNDS),
)


@given(st.lists(VALUES, max_size=8), st.lists(CONDITIONS, max_size=3))
def test_no_row_is_left_out_that_satisfies_all(values, conditions):
    rows = [{"id": i, "x": value} for i, value in enumerate(values)]
    near = [row["id"] for row in SortedTables({"t": rows}).candidates("t", conditions)]
    assert len(near) == len(set(near))
    for row in rows:
        if all(holds(condition, row) for condition in conditions):
            assert row["id"] in near
