"""Random joins under a budget, counted; `python bench/limits_show.py counts` runs 1,000."""

from __future__ import annotations

import pytest

from tocsin.lab.bench.stream_counts import CLOCKS, run_counted


@pytest.mark.parametrize("clock", CLOCKS)
def test_what_is_emitted_and_missed_is_all_there_is(clock: str) -> None:
    cases = [run_counted(seed, clock) for seed in range(1 if clock == "bytes" else 12)]
    assert [case for case in cases if not case.holds] == []
    assert all(case.is_exact for case in cases) or clock in ("event", "bytes")
    assert any(case.missed for case in cases)
