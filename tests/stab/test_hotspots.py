"""Hotspots: the invariants I1 to I3 of T07, 4.2.2, under random changes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.stab.pairs import Consumer, batches, fewest
from tocsin.stab.hotspots import HotspotConfig, Hotspots


@given(batches(open_ends=True), st.sampled_from([0.05, 0.2, 0.34, 1.0]), st.sampled_from([0.1, 0.5, 3.0]))
def test_groups_are_on_their_side(drawn, alpha: float, eps: float) -> None:
    hotspots = Hotspots(HotspotConfig(alpha, eps))
    consumer = Consumer(hotspots)
    for batch in drawn:
        consumer.apply(batch)
        hotspots._check()
        consumer.check()
        n = len(consumer.living)
        count: dict[tuple[int, bool], int] = {}
        for place in consumer.known.values():
            count[place] = count.get(place, 0) + 1
        hot = [size for (_, is_hot), size in count.items() if is_hot]
        assert all(size >= alpha / 2 * n for size in hot) and len(hot) <= 2 / alpha
        assert all(size < alpha * n for (_, is_hot), size in count.items() if not is_hot)
        assert len(count) <= (1 + eps) * fewest(list(consumer.living.values())) + 2 / alpha + 1e-9
        assert hotspots.coverage == pytest.approx(sum(hot) / max(n, 1))


def test_points_stab_their_groups() -> None:
    rng = np.random.default_rng(1)
    hotspots = Hotspots(HotspotConfig(alpha=0.02))
    low = rng.normal(5000, 600, 2000).astype(np.int64)
    high = low + rng.integers(0, 300, 2000)
    hotspots.insert(np.arange(2000), low, high)
    assert 0 < hotspots.coverage < 1
    parts = [(hotspots.hot_groups(), hotspots.hot_points()), (hotspots.groups(), hotspots.points())]
    seen = 0
    for groups, points in parts:
        assert np.all(np.diff(points) >= 0)
        for group, point in zip(groups.tolist(), points.tolist(), strict=True):
            ids = hotspots.members(group)
            assert np.all(low[ids] <= point) and np.all(point <= high[ids])
            seen += len(ids)
    assert seen == 2000 and hotspots.is_hot(np.arange(2000)).mean() == pytest.approx(hotspots.coverage)


@pytest.mark.parametrize(("alpha", "eps"), [(0.002, 0.5), (0.02, 0.1), (0.1, 2.0)])
def test_twenty_thousand_changes(alpha: float, eps: float) -> None:
    """Popular places change, and the crowd grows and shrinks: bench/stabbing.py has a million."""
    rng = np.random.default_rng(3)
    hotspots = Hotspots(HotspotConfig(alpha, eps))
    ids, low, high, comes = fashions(rng, 20_000)
    for part in np.array_split(np.arange(len(ids)), 20):
        hotspots.update(ids[part], low[part], high[part], comes[part])
        hotspots._check()
    assert 0 < hotspots.crossings <= 5 * len(ids) and hotspots.rebuilds > 1


def fashions(rng: np.random.Generator, count: int) -> tuple[np.ndarray, ...]:
    """Inserts and deletes, one or the other more frequent by turns; popular centres that change."""
    ids, comes = np.empty(count, np.int64), np.empty(count, np.bool_)
    living: list[int] = []
    for k in range(count):
        comes[k] = not living or rng.random() < (0.75 if k // 2000 % 2 == 0 else 0.3)
        if comes[k]:
            ids[k] = k
            living.append(k)
        else:
            at = int(rng.integers(len(living)))
            ids[k], living[at] = living[at], living[-1]
            living.pop()
    era = np.arange(count) // 3000
    popular = 1000 * ((7 * era + rng.zipf(1.5, count)) % 50)
    centre = np.where(rng.random(count) < 0.8, popular, rng.integers(0, 50_000, count))
    low = centre - rng.integers(0, 40, count)
    return ids, low, centre + rng.integers(0, 40, count), comes


def test_a_group_crosses_as_a_whole_and_keeps_its_number() -> None:
    hotspots = Hotspots(HotspotConfig(alpha=0.5))
    hotspots.insert(np.arange(4), np.full(4, 10), np.full(4, 12))
    group = int(hotspots.group_of(0))
    assert hotspots.hot_groups().tolist() == [group] and hotspots.hot_sizes().tolist() == [4]
    moves = hotspots.insert(np.arange(4, 17), np.arange(4, 17) * 10, np.arange(4, 17) * 10)
    assert np.all(hotspots.group_of(np.arange(4)) == group) and not hotspots.is_hot(0)
    crossed = moves.was_hot & ~moves.is_hot
    assert sorted(moves.id[crossed].tolist()) == [0, 1, 2, 3]
    assert np.all(moves.before[crossed] == moves.after[crossed])
    assert hotspots.coverage == 0.0


def test_alpha_is_a_share() -> None:
    for alpha in (0.0, 1.5, -1.0):
        with pytest.raises(ValueError, match="alpha must be"):
            HotspotConfig(alpha)
