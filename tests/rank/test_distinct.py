"""Distinct values of ranges against the scan."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rank.beside_scan import Beside, scripts
from tocsin.rank import distinct as values
from tocsin.rank import members
from tocsin.rank.distinct import Values


@given(st.sampled_from(["s", "b", "n", "d", "s, b", "x", "d, b AS c"]), scripts)
def test_tells_what_the_scan_tells(columns, script) -> None:
    Beside(Values, f"DISTINCT {columns}").run(script)


def test_many_rows_and_values_that_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trees of some levels, a few rectangles at a time; numbers are dealt out anew."""
    monkeypatch.setattr(members, "_PAIRS", 0)
    monkeypatch.setattr(values, "_FEW", 0)
    monkeypatch.setattr(values, "_IDLE", 1)
    rng = np.random.default_rng(4)
    beside = Beside(Values, "DISTINCT n, s")
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
