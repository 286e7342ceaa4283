"""Conjunctions by the values they ask for: two of them, or three where many ask for the same two."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tocsin.match.auto import Auto, Policy
from tocsin.match.placing import Costs
from tocsin.match.scan import Scan
from tocsin.match.segment import Segment
from tocsin.model.change import ChangeBatch
from tocsin.model.columns import Rows
from tocsin.model.schema import Stream
from tocsin.predicate.columnar import flat_predicates
from tocsin.predicate.flat import FlatFilters

STREAM, DOMAIN = Stream("events", ()), 6
COSTS = Costs(bit=100.0, look=0.0, find=0.0)  # values are worth it, bits are not


def filters(count: int, attributes: int, fixed: int, rng: np.random.Generator) -> FlatFilters:
    """Mostly equalities, `fixed` of them on the first attributes; some ranges and inequalities."""
    rows = []
    for _ in range(count):
        free = fixed + rng.choice(attributes - fixed, rng.integers(0, 4), replace=False)
        ops = [*["="] * fixed, *rng.choice(["=", "=", "<=", "!="], len(free)).tolist()]
        values = rng.integers(0, DOMAIN, fixed + len(free)).tolist()
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


def events(count: int, attributes: int, rng: np.random.Generator) -> Rows:
    """Most attributes, some with values that nobody asks for."""
    values = rng.integers(0, DOMAIN + 1, (count, attributes)) + 0.5 * (rng.random((count, attributes)) < 0.1)
    there = rng.random((count, attributes)) < 0.9
    maps = [
        [(f"a{a}", value) for a, value in enumerate(own) if there[e, a]]
        for e, own in enumerate(values.tolist())
    ]
    table = pa.table({"attributes": pa.array(maps, pa.map_(pa.string(), pa.float64()))})
    batch, bad = ChangeBatch.from_arrow(STREAM, table)
    assert not bad
    return batch.rows


def segments(index: Auto) -> list[Segment]:
    index.wait()
    return [held.segment for held in index._held if isinstance(held.segment, Segment)]


@pytest.mark.parametrize(("attributes", "fixed"), [(12, 2), (30, 2), (8, 3), (24, 1)])
def test_values_tell_what_the_scan_tells(attributes: int, fixed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(attributes)
    some, count = filters(4000, attributes, fixed, rng), 4000
    batches = [events(size, attributes, rng) for size in (1, 65, 300)]
    index, scan = Auto(Policy(dead=0.1, costs=COSTS)), Scan()
    for one in (index, scan):
        one.add(np.arange(count), some)

    def agree(auto: Auto) -> None:
        for rows in batches:
            assert np.array_equal(np.sort(auto.match(rows)), np.sort(scan.match(rows)))
        auto._check()

    agree(index)
    (built,) = segments(index)
    assert built.counts["values"] > 0
    assert built.counts["values"] == len(built.arrays.values.sieve)
    gone = np.sort(rng.choice(count, 1500, replace=False))
    for one in (index, scan):
        one.remove(gone)
    agree(index)
    index.save(tmp_path)
    agree(Auto.open(tmp_path))
    for one in (index, scan):
        one.add(gone, some.take(np.isin(np.arange(count), gone)))
    agree(index)


def test_one_attribute_asked_twice_among_very_many() -> None:
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
    index = Auto(Policy(costs=COSTS))
    index.add(np.arange(5000), some)
    assert np.sort(index.match(rows_of.rows) >> 32).tolist() == [7, 1007, 2007, 3007, 4007]
