"""Stabbing partitions against their definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from tests.stab.pairs import ENDS, Pair, columns, fewest, intervals
from tocsin.stab.partition import canonical


@given(intervals())
def test_it_is_a_partition_into_groups_with_a_point_and_the_smallest(drawn: list[Pair]) -> None:
    low, high = columns(drawn)
    partition = canonical(low, high)
    partition._check(low, high)
    assert partition.tau == fewest(drawn)
    assert sorted(set(partition.group.tolist())) == list(range(partition.tau))


@given(intervals(open_ends=True))
def test_no_point_is_an_open_end(drawn: list[Pair]) -> None:
    partition = canonical(*columns(drawn))
    assert not np.isin(partition.point, ENDS).any()


def test_nothing_has_no_groups() -> None:
    partition = canonical([], [])
    assert partition.tau == len(partition.group) == 0


def test_intervals_that_touch_share_a_point() -> None:
    assert canonical([1, 4], [4, 9]).point.tolist() == [4]


def test_an_empty_interval_is_rejected_by_its_number() -> None:
    with pytest.raises(ValueError, match=r"interval 1 is empty: 5\.\.4"):
        canonical([1, 5], [2, 4])


def test_ends_of_different_number_are_rejected() -> None:
    with pytest.raises(ValueError, match="differ in shape"):
        canonical([1, 5], [2])
