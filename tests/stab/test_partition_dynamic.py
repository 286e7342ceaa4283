"""Partitions under insertion and deletion: valid, small, and their moves are complete."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.stab.pairs import ENDS, GREATEST, LEAST, Consumer, Pair, batches, fewest
from tocsin.stab.dynamic import (
    DynamicPartition,
    LazyPartition,
    MaintainedPartition,
    PartitionConfig,
    RefinedPartition,
)
from tocsin.stab.hotspots import HotspotConfig, Hotspots

Make = Callable[[PartitionConfig], MaintainedPartition]
EVERY: list[Make] = [LazyPartition, RefinedPartition]


@pytest.mark.parametrize("make", EVERY)
@given(batches(open_ends=True), st.sampled_from([0.01, 0.3, 1.0, 4.0]), st.booleans())
def test_groups_share_a_point_and_are_few(make, drawn, eps: float, every_loss: bool) -> None:
    partition = make(PartitionConfig(eps, every_loss))
    consumer = Consumer(partition)
    for batch in drawn:
        consumer.apply(batch)
        partition._check()
        consumer.check()
        groups, points = partition.groups().tolist(), partition.points()
        assert not np.isin(points, ENDS).any() and np.all(points[:-1] < points[1:])
        for group, point in zip(groups, points.tolist(), strict=True):
            for i in partition.members(group).tolist():
                low, high = consumer.living[i]
                assert low <= point <= high
        assert len(groups) <= (1 + eps) * fewest(list(consumer.living.values())) + 1e-9


@pytest.mark.parametrize("make", EVERY)
@given(batches())
def test_one_by_one_is_as_in_bulk(make, drawn) -> None:
    """Unless there is nothing yet: then many are partitioned at once."""
    bulk, single = make(PartitionConfig()), make(PartitionConfig())
    together, alone = Consumer(bulk), Consumer(single)
    for consumer in (together, alone):
        consumer.apply(([], {99: (1000, 1000)}))
    for gone, come in drawn:
        together.apply((gone, come))
        for i in gone:
            alone.apply(([i], {}))
        for i, pair in come.items():
            alone.apply(([], {i: pair}))
        assert bulk.group_of(np.arange(100)).tolist() == single.group_of(np.arange(100)).tolist()
        assert bulk.points().tolist() == single.points().tolist()


@pytest.mark.parametrize("make", EVERY)
def test_a_random_crowd_in_one_call(make: Make) -> None:
    rng = np.random.default_rng(7)
    partition = make(PartitionConfig(0.2))
    ids, comes = crowd(rng, 300, 5000)
    low = rng.integers(0, 2000, len(ids))
    partition.update(ids, low, low + rng.integers(0, 60, len(ids)), comes)
    partition._check()
    assert partition.rebuilds > 1 and partition.moved > 0


def crowd(rng: np.random.Generator, size: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Updates: an id is inserted, or removed if it is present."""
    ids = rng.integers(0, 2 * size, count)
    comes, here = np.empty(count, np.bool_), np.zeros(2 * size, np.bool_)
    for k, i in enumerate(ids.tolist()):
        here[i] = comes[k] = not here[i]
    return ids, comes


def test_a_rebuild_keeps_group_numbers_where_it_can() -> None:
    """Two far clusters: trouble in one does not move the other."""
    partition = RefinedPartition(PartitionConfig(0.1))
    partition.insert(np.arange(100), np.full(100, 1000), np.full(100, 1010))
    group = int(partition.group_of(0))
    before = partition.rebuilds
    for i in range(100, 120):
        assert 0 not in partition.insert([i], [20 * i], [20 * i + 3]).id.tolist()
    assert partition.rebuilds > before and np.all(partition.group_of(np.arange(100)) == group)


def test_witnesses_spare_rebuilds() -> None:
    """Of one group of a thousand, every loss would be a rebuild; the loss of a witness is a rare one."""
    many = [RefinedPartition(PartitionConfig(1.0, every_loss)) for every_loss in (False, True)]
    for partition in many:
        partition.insert(np.arange(1000), np.arange(1000), np.arange(1000) + 1000)
        partition.remove(np.arange(1, 500))
    assert many[0].rebuilds == 1 and many[1].rebuilds > 400


@pytest.mark.parametrize("make", EVERY)
def test_open_ends(make: Make) -> None:
    partition = make(PartitionConfig())
    partition.insert([0, 1, 2, 3], [LEAST, 5, LEAST, 3], [4, GREATEST, GREATEST, 3])
    assert partition.points().tolist() == [3, 5]
    partition.remove([0, 1, 3])
    assert partition.points().tolist() == [0] or partition.points()[0] == 3
    partition._check()


@pytest.mark.parametrize("make", [*EVERY, lambda _: Hotspots(HotspotConfig(0.2))])
def test_bad_updates_are_rejected(make: Make) -> None:
    partition: DynamicPartition = make(PartitionConfig())
    partition.insert([3], [1], [2])
    with pytest.raises(ValueError, match="id 3 is in use"):
        partition.insert([1, 3], [1, 1], [2, 2])
    with pytest.raises(ValueError, match="id 1 is not in use"):
        partition.remove([3, 1])
    with pytest.raises(ValueError, match="id 2 is in use"):
        partition.insert([2, 2], [1, 1], [2, 2])
    with pytest.raises(ValueError, match="interval 0 is empty"):
        partition.insert([4], [3], [2])
    for bad in (-4, 2**31):
        with pytest.raises(ValueError, match=f"ids are slots, from 0 to 2147483646: {bad} is not"):
            partition.insert([bad], [1], [2])
    assert partition.group_of([-1, 1, 3, 999]).tolist() == [-1, -1, 0, -1]
    partition._check()


def test_mixed_updates_are_validated_first() -> None:
    partition = RefinedPartition()
    partition.update([1, 1, 1], [5, 9, 7], [6, 0, 8], [True, False, True])  # what goes has no ends
    assert partition.points().tolist() == [8]
    with pytest.raises(ValueError, match=r"interval 0 is empty: 9\.\.0"):
        partition.update([1, 2], [5, 9], [6, 0], [False, True])
    assert partition.group_of([1, 2]).tolist() == [0, -1]


def test_eps_must_be_above_0() -> None:
    with pytest.raises(ValueError, match="eps must be above 0"):
        PartitionConfig(0.0)


def test_merging_common_intersections_is_not_enough() -> None:
    """Groups {0..10+2i, 9+2i..100}: their intersections are apart, but two groups would do."""
    pairs: list[Pair] = [pair for i in range(6) for pair in ((0, 10 + 2 * i), (9 + 2 * i, 100))]
    assert fewest(pairs) == 2
    partition = RefinedPartition(PartitionConfig(0.01))
    for i, (low, high) in enumerate(pairs):
        partition.insert([i], [low], [high])
    assert len(partition.groups()) == 2
