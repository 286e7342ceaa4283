"""Histograms of stabbing counts: against counting, against each other, and maintained."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.stab.pairs import ENDS, Pair, columns, intervals
from tocsin.stab.histograms import (
    CountsConfig,
    Histogram,
    HistogramConfig,
    StabbingCounts,
    equal_width,
    exact,
    optimal,
    relative_error,
    ssi,
)

DOMAIN = -2, 60
VALUES = np.arange(DOMAIN[0], DOMAIN[1] + 1)


def counted(pairs: list[Pair]) -> list[int]:
    return [sum(low <= x <= high for low, high in pairs) for x in VALUES.tolist()]


def squared_error(estimates: np.ndarray, pairs: list[Pair]) -> float:
    truth = np.array(counted(pairs), float)
    return float(np.mean(((estimates - truth) / np.maximum(truth, 1)) ** 2))


@given(intervals(open_ends=True))
def test_exact_is_exact(drawn: list[Pair]) -> None:
    histogram = exact(*columns(drawn), HistogramConfig(domain=DOMAIN))
    assert histogram.estimate(VALUES).tolist() == counted(drawn)
    assert histogram.estimate(ENDS).tolist() == [counted(drawn)[0], counted(drawn)[-1]]
    assert relative_error(histogram, *columns(drawn)) == 0


@given(intervals(open_ends=True))
def test_beyond_all_ends_are_only_open_ones(drawn: list[Pair]) -> None:
    far = np.array([-1000, 1000])
    expected = [sum(low <= x <= high for low, high in drawn) for x in far.tolist()]
    assert exact(*columns(drawn)).estimate(far).tolist() == expected


@pytest.mark.parametrize("build", [equal_width, optimal, ssi])
@given(intervals(open_ends=True), st.integers(1, 6))
def test_the_error_is_as_reported(build, drawn: list[Pair], buckets: int) -> None:
    histogram = build(*columns(drawn), HistogramConfig(buckets, DOMAIN))
    error = squared_error(histogram.estimate(VALUES), drawn)
    assert relative_error(histogram, *columns(drawn)) == pytest.approx(error, abs=1e-9)
    assert relative_error(histogram, *columns(drawn), VALUES) == pytest.approx(error, abs=1e-9)
    assert histogram.start[0] == DOMAIN[0] and histogram.start[-1] == DOMAIN[1] + 1


@given(intervals(), st.integers(1, 3))
def test_optimal_is_as_good_as_any_cut(drawn: list[Pair], buckets: int) -> None:
    config = HistogramConfig(buckets, (0, 14))
    clipped = [(low, min(high, 14)) for low, high in drawn if low <= 14]
    histogram = optimal(*columns(clipped), config)
    assert len(histogram.value) <= buckets
    truth = np.array([sum(low <= x <= high for low, high in clipped) for x in range(15)], float)
    weight = 1 / np.maximum(truth, 1) ** 2
    best = np.inf
    for inner in combinations(range(1, 15), buckets - 1):
        cost = 0.0
        for a, b in zip((0, *inner), (*inner, 15), strict=True):
            mean = np.average(truth[a:b], weights=weight[a:b])
            cost += float(np.sum(weight[a:b] * (truth[a:b] - mean) ** 2))
        best = min(best, cost / 15)
    assert relative_error(histogram, *columns(clipped)) == pytest.approx(best, abs=1e-9)


@given(intervals(min_size=1), st.integers(1, 8))
def test_equal_width_is_the_mean_of_each_cell(drawn: list[Pair], buckets: int) -> None:
    histogram = equal_width(*columns(drawn), HistogramConfig(buckets, DOMAIN))
    truth = np.array(counted(drawn), float)
    for first, after, value in zip(histogram.start[:-1], histogram.start[1:], histogram.value, strict=True):
        assert value == pytest.approx(truth[first - DOMAIN[0] : after - DOMAIN[0]].mean())
    assert np.ptp(np.diff(histogram.start)) <= 1


@given(intervals(), st.booleans())
def test_enough_buckets_leave_no_error(drawn: list[Pair], joined: bool) -> None:
    """Every interval may have a subset with all steps it needs."""
    histogram = ssi(*columns(drawn), HistogramConfig(50 * len(drawn) + 1, DOMAIN, joined))
    assert relative_error(histogram, *columns(drawn)) == pytest.approx(0, abs=1e-12)


def chapter(rng: np.random.Generator, count: int, deviation: float) -> tuple[np.ndarray, np.ndarray]:
    """Normal midpoints and lengths, within 0..10000 (T07, 4.6.6)."""
    middle, length = rng.normal(5000, 1500, 4 * count), rng.normal(1000, deviation, 4 * count)
    low, high = np.round(middle - length / 2), np.round(middle + length / 2)
    inside = (length > 0) & (low >= 0) & (high <= 10_000)
    return low[inside][:count].astype(np.int64), high[inside][:count].astype(np.int64)


@pytest.mark.parametrize("deviation", [150, 2000])
@pytest.mark.parametrize("joined", [True, False])
def test_twenty_buckets_by_groups_have_a_third_of_the_error(deviation: float, joined: bool) -> None:
    low, high = chapter(np.random.default_rng(1), 20_000, deviation)
    config = HistogramConfig(20, (0, 10_000), joined)
    plain = relative_error(equal_width(low, high, config), low, high)
    best = relative_error(optimal(low, high, config), low, high)
    error = relative_error(ssi(low, high, config), low, high)
    assert error <= plain / 3
    if joined:
        assert error <= 1.2 * best


def test_buckets_go_where_events_are() -> None:
    rng = np.random.default_rng(2)
    low, high = chapter(rng, 5000, 500)
    events = rng.integers(6000, 7000, 2000)
    config = HistogramConfig(10, (0, 10_000))
    aware, unaware = ssi(low, high, config, events), ssi(low, high, config)
    errors = [relative_error(one, low, high, events) for one in (aware, unaware)]
    assert errors[0] < errors[1] / 10


def test_empty_input_and_bad_settings() -> None:
    for build in (exact, equal_width, optimal, ssi):
        assert build([], []).estimate([5]).tolist() == [0.0]
    with pytest.raises(ValueError, match="there must be a bucket"):
        HistogramConfig(0)
    with pytest.raises(ValueError, match=r"the domain is empty: 5\.\.4"):
        HistogramConfig(domain=(5, 4))


# -- kept up -----------------------------------------------------------------------------------------


def mean_relative(counts: StabbingCounts | Histogram, low, high, values) -> float:
    truth = exact(low, high, HistogramConfig(domain=(0, 10_000))).estimate(values)
    return float(np.mean(np.abs(counts.estimate(values) - truth) / np.maximum(truth, 1)))


def test_counts_follow_changes() -> None:
    rng = np.random.default_rng(4)
    low, high = chapter(rng, 20_000, 500)
    low[10_000:], high[10_000:] = low[10_000:] // 2, high[10_000:] // 2  # another crowd
    counts = StabbingCounts(CountsConfig(HistogramConfig(50, (0, 10_000))))
    counts.insert(np.arange(10_000), low[:10_000], high[:10_000])
    values = rng.integers(1000, 6000, 500)
    for at in range(0, 10_000, 500):
        counts.remove(np.arange(at, at + 500))
        new = np.arange(10_000 + at, 10_500 + at)
        counts.insert(new, low[new], high[new])
        counts._check()
        living = slice(at + 500, 10_500 + at)
        assert mean_relative(counts, low[living], high[living], values) < 0.2
    assert len(counts) == 10_000 and 2 < counts.rebuilds < 15


@given(intervals(open_ends=True, min_size=1))
def test_removing_everything_leaves_nothing(drawn: list[Pair]) -> None:
    counts = StabbingCounts(CountsConfig(HistogramConfig(5, DOMAIN)))
    counts.insert([0, 1], [3, 0], [20, 50])
    before = counts.estimate(VALUES)
    ids = np.arange(2, 2 + len(drawn))
    counts.insert(ids, *columns(drawn))
    during = counts.estimate(VALUES)
    assert np.mean(during - before) == pytest.approx(np.mean(counted(drawn)))
    counts.remove(ids)
    assert counts.estimate(VALUES) == pytest.approx(before)
    counts._check()


def test_observed_events_matter_at_the_next_rebuild() -> None:
    rng = np.random.default_rng(5)
    low, high = chapter(rng, 5000, 500)
    counts = StabbingCounts(CountsConfig(HistogramConfig(10, (0, 10_000))))
    counts.insert(np.arange(5000), low, high)
    events = rng.integers(6000, 7000, 2000)
    before = mean_relative(counts, low, high, events)
    counts.observe(events)
    counts.rebuild()
    assert mean_relative(counts, low, high, events) < before / 3


def test_ids_of_counts() -> None:
    counts = StabbingCounts()
    counts.insert(5, 1, 2)
    for ids in ([5], [6, 6]):
        with pytest.raises(ValueError, match="in use"):
            counts.insert(ids, [1] * len(ids), [2] * len(ids))
    for ids in ([7], [5, 5], [-1], [999]):
        with pytest.raises(ValueError, match="not in use"):
            counts.remove(ids)
    with pytest.raises(ValueError, match="ids are slots"):
        counts.insert([-1], [1], [2])
    with pytest.raises(ValueError, match="2 ids for 1"):
        counts.insert([1, 2], [1], [2])


@pytest.mark.parametrize(
    ("low", "high"),
    [
        ([4617315517961601024] * 2, [4617315517961601024, 4617315517961601025]),
        ([-(2**63) + 1, 5], [2**63 - 2, 7]),
        ([2**63 - 2], [2**63 - 2]),
        ([-(2**63)], [2**63 - 1]),
    ],
)
def test_codes_that_a_float_cannot_tell_apart(low: list[int], high: list[int]) -> None:
    values = [low[0], high[-1]]
    for make in (exact, equal_width):
        found = make(low, high, HistogramConfig(buckets=512)).estimate(values)
        assert np.all(found >= 0) and np.all(found <= len(low))
    truth = [sum(a <= v <= z for a, z in zip(low, high, strict=True)) for v in values]
    if max(abs(v) for v in values) < 2**62 or len(low) > 1:
        assert exact(low, high).estimate(values).tolist()[0] == truth[0]
