"""`tocsin bench single`: every workload checks its answers, and its parts add up to the whole."""

from __future__ import annotations

import pytest

from tocsin.errors import UsageError
from tocsin.lab.bench.single import PARTS, WORKLOADS, SingleSetting, measure_single

SMALL = SingleSetting(subscriptions=200, ranked=30, calls=12, warm=2)


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_workload_is_checked_timed_and_divided_into_parts(name: str) -> None:
    (result,) = measure_single([name], SMALL)
    assert result.checked > 0
    assert 0 < result.median_us <= result.p99_us
    assert result.loop_p99_us > 0
    assert set(result.profile_us) == {*PARTS, "rest"}
    assert result.to_dict()["per_second"] > 0


def test_functions_are_as_before_after_profiling() -> None:
    before = [vars(owner)[name] for functions in PARTS.values() for owner, name in functions]
    measure_single(["subscribe"], SMALL)
    assert before == [vars(owner)[name] for functions in PARTS.values() for owner, name in functions]


def test_an_unknown_workload_is_rejected() -> None:
    with pytest.raises(UsageError, match="there is no workload 'x'"):
        measure_single(["x"], SMALL)
