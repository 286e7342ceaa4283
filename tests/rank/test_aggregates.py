"""Counts, sums and averages against the scan, and exact sums against Python's integers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rank.beside_scan import Beside, scripts
from tocsin.rank import members
from tocsin.rank._kernels import aggregates
from tocsin.rank.aggregates import AggregateFamily
from tocsin.rank.sums import exact_sum, exact_units, rounded

ITEMS = ["COUNT(*)", "COUNT(s)", "COUNT(n)", "SUM(n)", "AVG(n)", "SUM(d)", "AVG(d)", "COUNT(d)", "SUM(k)"]
selects = st.one_of(
    st.sampled_from(["COUNT(*)", "SUM(n)", "AVG(n)", "SUM(d)", "AVG(d)"]),
    st.lists(st.sampled_from(ITEMS), min_size=2, max_size=4, unique=True).map(", ".join),
)


@given(selects, scripts)
def test_deltas_equal_those_of_the_scan(select, script) -> None:
    Beside(AggregateFamily, select).run(script)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=12), st.booleans())
def test_sums_are_rounded_once(values, cancels) -> None:
    values = [*values, *(-v for v in values[1:])] if cancels else values
    found, wanted = exact_sum(values), rounded(int(exact_units(np.array(values, float)).sum()))
    assert found == wanted and math.copysign(1, found) == math.copysign(1, wanted)


@pytest.mark.parametrize("tail", [0.0, 5e-324, -5e-324, 1e-40, -1e-40])
def test_a_sum_half_way_between_two_doubles(tail) -> None:
    """Ties go to even, and the least bit far below decides."""
    for exact in (1.0, 1.0 + 2**-52):
        for half in (2.0**-53, -(2.0**-54)):
            values = [exact, half, tail]
            assert exact_sum(values) == math.fsum(values)
            assert exact_sum([-v for v in values]) == -math.fsum(values)


@pytest.mark.parametrize("rounded", [aggregates._rounded, aggregates._rounded.py_func])
def test_a_sum_beyond_the_largest_double_is_infinite(rounded) -> None:
    """Compiled or interpreted: Python's `ldexp` raises where C's has an infinite result."""
    for digit in (1, -1):
        cells = np.array([[0, digit]], np.int64)
        assert rounded(cells, 0, 0, 2, 991, False) == digit * 2.0**1023
        assert rounded(cells, 0, 0, 2, 992, False) == digit * math.inf
        assert rounded(cells, 0, 0, 2, -1106, False) == digit * 2.0**-1074


def test_many_of_both(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some hundred members and rows that come, go and move, a few changes at a time."""
    monkeypatch.setattr(members, "_MAX_PAIRS", 0)
    rng = np.random.default_rng(3)
    beside = Beside(AggregateFamily, "SUM(d), AVG(n), COUNT(*)")
    for _ in range(3):
        ends = np.sort(rng.integers(0, 1000, (60, 2)), axis=1)
        beside.add([(int(a), int(z)) for a, z in ends])
        changes = [
            (
                "delete" if rng.random() < 0.1 else "upsert",
                int(rng.integers(0, 200)),
                {
                    "x": int(rng.integers(0, 1000)),
                    "d": float(rng.normal() * 10.0 ** rng.integers(-9, 9)),
                    "n": 5,
                },
            )
            for _ in range(150)
        ]
        beside.step(changes, keep=True)
        beside.remove(beside.slots.pop(7))
    beside.family._check()
