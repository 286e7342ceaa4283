"""Distinct values of ranges against the scan."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rank.beside_scan import Beside, scripts
from tocsin.rank import distinct, members
from tocsin.rank.distinct import DistinctFamily


@given(st.sampled_from(["s", "b", "n", "d", "s, b", "x", "d, b AS c"]), scripts)
def test_deltas_equal_those_of_the_scan(columns, script) -> None:
    Beside(DistinctFamily, f"DISTINCT {columns}").run(script)


def test_many_rows_and_values_no_longer_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trees of several levels, a few rectangles at a time; numbers are assigned again."""
    monkeypatch.setattr(members, "_MAX_PAIRS", 0)
    monkeypatch.setattr(distinct, "_MIN_NUMBERS", 0)
    monkeypatch.setattr(distinct, "_MAX_UNUSED", 1)
    rng = np.random.default_rng(4)
    beside = Beside(DistinctFamily, "DISTINCT n, s")
    for round in range(4):
        ends = np.sort(rng.integers(0, 1000, (60, 2)), axis=1)
        beside.add([(int(a), int(z)) for a, z in ends])
        beside.step(
            [
                (
                    "delete" if rng.random() < 0.1 else "upsert",
                    int(rng.integers(0, 200)),
                    {"x": int(rng.integers(0, 1000)), "s": "ab"[round % 2], "n": int(rng.integers(0, 40))},
                )
                for _ in range(200)
            ],
            keep=True,
        )
        beside.remove(beside.slots.pop(7))
    beside.family._check()
    assert beside.family.stats()["values"] <= 160
