"""Conjunctions by two values they require: which pairs of dimensions, and what is found there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from tocsin.lab.bench.filter_workloads import drift
from tocsin.lab.bench.match import build_filters, event_rows
from tocsin.match._kernels.primitives import lower, upper
from tocsin.match.build.cost import CostModel, evened
from tocsin.match.index import Auto, MergePolicy
from tocsin.match.scan import Scan
from tocsin.match.segments.immutable import ImmutableSegment
from tocsin.model.change import ChangeBatch
from tocsin.model.columns import Rows
from tocsin.model.schema import Stream
from tocsin.predicate.columnar import flat_predicates
from tocsin.predicate.flat import FlatFilters

STREAM = Stream("events", ())
COSTS = CostModel(bit=100.0, turn=0.0, look_up=0.0)  # values are worth it, bits are not


def filters(
    count: int, attributes: int, fixed: int, rng: np.random.Generator, domain: int = 6
) -> FlatFilters:
    """Mostly equalities, `fixed` of them on the first attributes; some ranges and inequalities."""
    rows = []
    for _ in range(count):
        free = fixed + rng.choice(attributes - fixed, rng.integers(0, 4), replace=False)
        ops = [*["="] * fixed, *rng.choice(["=", "=", "<=", "!="], len(free)).tolist()]
        values = rng.integers(0, domain, fixed + len(free)).tolist()
        names = [*range(fixed), *free.tolist()]
        rows.append(
            [
                {"attribute": f"a{a}", "op": op, "number": float(value)}
                for a, op, value in zip(names, ops, values, strict=True)
            ]
        )
    found, bad = flat_predicates(STREAM, pa.table({"id": np.arange(count), "predicates": rows}))
    assert not bad
    return found


def events(count: int, attributes: int, rng: np.random.Generator, domain: int = 6) -> Rows:
    """Most attributes, some with values that no filter tests."""
    values = rng.integers(0, domain + 1, (count, attributes)) + 0.5 * (rng.random((count, attributes)) < 0.1)
    there = rng.random((count, attributes)) < 0.9
    maps = [
        [(f"a{a}", value) for a, value in enumerate(own) if there[e, a]]
        for e, own in enumerate(values.tolist())
    ]
    table = pa.table({"attributes": pa.array(maps, pa.map_(pa.string(), pa.float64()))})
    batch, bad = ChangeBatch.from_arrow(STREAM, table)
    assert not bad
    return batch.rows


def segments(index: Auto) -> list[ImmutableSegment]:
    index.wait()
    return [state.segment for state in index._segments.immutable]


@pytest.mark.parametrize(
    ("attributes", "fixed", "domain"), [(12, 2, 6), (30, 2, 6), (8, 3, 6), (24, 1, 6), (6, 2, 300), (8, 2, 1)]
)
def test_values_find_what_the_scan_finds(attributes: int, fixed: int, domain: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(attributes)
    some, count = filters(4000, attributes, fixed, rng, domain), 4000
    batches = [events(size, attributes, rng, domain) for size in (1, 65, 513)]
    index, scan = Auto(MergePolicy(removed_share=0.1, costs=COSTS)), Scan()
    for one in (index, scan):
        one.add(np.arange(count), some)

    def agree(auto: Auto) -> None:
        for rows in batches:
            assert np.array_equal(np.sort(auto.match(rows)), np.sort(scan.match(rows)))
        auto._check()

    agree(index)
    (built,) = segments(index)
    assert built.paths["values"] > 0
    assert (len(built.arrays.values.key) > 0) == (domain == 300)  # hashed, or places
    gone = np.sort(rng.choice(count, 1500, replace=False))
    for one in (index, scan):
        one.remove(gone)
    agree(index)
    index.save(tmp_path)
    agree(Auto.open(tmp_path))
    for one in (index, scan):
        one.add(gone, some.take(np.isin(np.arange(count), gone)))
    agree(index)


def test_no_events_and_very_many_matches_of_one() -> None:
    rng = np.random.default_rng(7)
    count, index = 4000, Auto(MergePolicy(costs=COSTS))
    index.add(np.arange(count), filters(count, 8, 2, rng))
    some = events(300, 8, rng)
    found = np.sort(index.match(some))
    (built,) = segments(index)
    assert built.paths["values"] > 0
    assert len(index.match(some.take(np.empty(0, np.int64)))) == 0
    built._last_match["per_event"] = 1 << 40  # as after one event with very many
    assert np.array_equal(np.sort(index.match(some)), found)
    built._last_match["per_event"] = 0  # too few: a larger one is made
    assert np.array_equal(np.sort(index.match(some)), found)


def test_chance_differences_of_a_few_events_are_not_believed() -> None:
    """All test values of the same two attributes: their pair does, whatever eight events suggest."""
    rng = np.random.default_rng(5)
    rows = [
        [
            {"attribute": f"a{a}", "op": "=", "number": float(value)}
            for a, value in zip([0, 1, *own], rng.integers(0, 35, 5).tolist(), strict=True)
        ]
        for own in (2 + rng.choice(30, 3, replace=False) for _ in range(20_000))
    ]
    some, bad = flat_predicates(STREAM, pa.table({"id": np.arange(20_000), "predicates": rows}))
    assert not bad
    index = Auto()
    index.add(np.arange(20_000), some)
    index.match(events(8, 32, rng, 35))
    assert [len(one.arrays.values.other) for one in segments(index)] == [1]


def test_shares_of_values_by_a_sample() -> None:
    rng = np.random.default_rng(3)
    even, skewed = rng.integers(0, 35, 1000), np.minimum(34, rng.zipf(1.5, 1000) - 1)
    dim = np.repeat(np.arange(3, dtype=np.int32), [1000, 1000, 0])
    rank = np.concatenate([np.sort(even), np.sort(skewed)]).astype(np.int32) * 2 + 1
    more, unit = evened(dim, rank, np.array([35, 35, 4]))
    shares = [
        (np.bincount(values, minlength=35) + more[d]) * unit[d] for d, values in ((0, even), (1, skewed))
    ]
    assert shares[0] == pytest.approx(1 / 35, rel=0.15)
    assert shares[1][0] == pytest.approx((skewed == 0).mean(), rel=0.1)
    assert [share.sum() for share in shares] == pytest.approx([1, 1], rel=0.01)
    assert more[2] * unit[2] == pytest.approx(1 / 5)  # nothing is known: values and what is between


def test_one_attribute_tested_twice_among_very_many() -> None:
    """In a conjunction of over 64, tests of one dimension are not made one; they are no pair of values."""
    rows = [
        [
            {"attribute": f"a{a}", "op": op, "number": number}
            for a, op, number in [
                (0, "=", float(v % 1000)),
                *((a, ">=", 0.0) for a in range(1, 64)),
                (0, "=", float(v % 1000)),
            ]
        ]
        for v in range(5000)
    ]
    some, bad = flat_predicates(STREAM, pa.table({"id": np.arange(5000), "predicates": rows}))
    assert not bad
    maps = pa.array([[(f"a{a}", 7.0) for a in range(64)]], pa.map_(pa.string(), pa.float64()))
    rows_of, _ = ChangeBatch.from_arrow(STREAM, pa.table({"attributes": maps}))
    index = Auto(MergePolicy(costs=COSTS))
    index.add(np.arange(5000), some)
    assert np.sort(index.match(rows_of.rows) >> 32).tolist() == [7, 1007, 2007, 3007, 4007]


def test_few_value_pairs_serve_many_conjunctions() -> None:
    """Any five of 16 attributes have two in one of four groups of four: 24 pairs would do, of 120."""
    work = next(drift("schema", 20_000, 10)).workload
    index = Auto()
    index.add(np.arange(20_000), build_filters(STREAM, work.subscriptions))
    index.match(event_rows(work.events))
    (built,) = segments(index)
    assert built.paths["values"] > 0 and len(built.arrays.values.other) < 60


@settings(max_examples=max(50, settings().max_examples))
@given(st.lists(st.integers(-50, 50), max_size=300), st.integers(-60, 60))
def test_places_are_those_that_numpy_finds(values: list[int], wanted: int) -> None:
    found = np.array(sorted(values), np.int64)
    assert _places(found, wanted) == (np.searchsorted(found, wanted), np.searchsorted(found, wanted, "right"))


@njit
def _places(values: Any, wanted: int) -> tuple[int, int]:
    return lower(values, 0, len(values), wanted), upper(values, 0, len(values), wanted)


def test_segments_that_have_cost_enough_become_one() -> None:
    rng = np.random.default_rng(1)
    index = Auto(
        MergePolicy(
            segments_per_size=100, costs=CostModel(build=1.0, build_start=1.0, compare=1e6, follow=1e6)
        )
    )
    for part in range(3):
        index.add(np.arange(2000) + 2000 * part, filters(2000, 12, 2, rng))
        index.match(events(1, 12, rng))
    assert len(segments(index)) == 3
    for _ in range(5):
        index.match(events(50, 12, rng))
    assert len(segments(index)) == 1
    index._check()
