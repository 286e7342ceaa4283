"""One event at a time finds what a batch finds, on every access path."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tocsin.lab.bench.filter_workloads import cnf_filters, dnf_filters, draw_groups, make_workload
from tocsin.lab.bench.match import STREAM, build_filters, event_rows
from tocsin.match.base import unpack
from tocsin.match.build.cost import CostModel
from tocsin.match.index import Auto, MergePolicy
from tocsin.model.columns import SparseRows
from tocsin.predicate.columnar import flat_predicates
from tocsin.predicate.flat import FlatFilters

COSTS = CostModel()
CHEAP_BITS = MergePolicy(costs=replace(COSTS, bit_entry=0.0, bit_row=0.0, bit=0.0))


def same_alone_and_together(index: Auto, events: list[dict[str, Any]]) -> dict[str, int]:
    """Compare; returns the conjunctions by path."""
    slot, row = unpack(index.match(SparseRows.from_dicts(events)))
    for number, event in enumerate(events):
        found = index.match_one(event)
        assert found is not None
        assert found.tolist() == sorted(slot[row == number].tolist())
    index._check()
    return {path: count for path, count in index.stats()["paths"].items() if count}


def drawn(name: str, n: int = 600, **options: Any) -> tuple[FlatFilters, list[dict[str, Any]]]:
    work = make_workload(name, n, 40, 1, **options)
    return build_filters(STREAM, work.subscriptions), event_rows(work.events).to_dicts()


def filled(filters: FlatFilters, policy: MergePolicy | None = None) -> Auto:
    index = Auto(policy)
    index.add(np.arange(filters.count), filters)
    return index


@pytest.mark.parametrize(
    ("name", "options", "policy"),
    [
        ("sparse", {"attributes": 60}, None),
        ("sparse", {"attributes": 60, "smallest": 2, "equality": 1.0, "domain": 4}, None),
        ("dense", {}, None),
        ("dense", {}, CHEAP_BITS),
        ("interval", {}, None),
        ("keywords", {"attributes": 300}, None),
        ("products", {}, None),
        ("prefix", {}, None),
    ],
)
def test_workloads(name: str, options: dict[str, Any], policy: MergePolicy | None) -> None:
    filters, events = drawn(name, **options)
    paths = same_alone_and_together(filled(filters, policy), events)
    assert paths
    if policy is CHEAP_BITS:
        assert paths["bits"]


@pytest.mark.parametrize("made", [dnf_filters, cnf_filters])
def test_several_conjunctions_and_clauses(made: Any) -> None:
    filters, events = drawn("sparse", 400, attributes=30)
    assert same_alone_and_together(filled(made(filters, draw_groups(400, 4, 1))), events)


def test_value_pairs_and_dimension_pairs() -> None:
    filters, events = drawn("sparse", 3000, attributes=200, smallest=3, equality=1.0, domain=3, event_size=60)
    costs = replace(COSTS, check=500.0, test=50.0, probe=0.0, turn=0.0, look_up=0.01)
    paths = same_alone_and_together(filled(filters, MergePolicy(costs=costs)), events)
    assert "pairs" in paths or "values" in paths


def predicates(rows: list[list[tuple[str, str, float]]]) -> FlatFilters:
    given = [[{"attribute": a, "op": op, "number": n} for a, op, n in row] for row in rows]
    return flat_predicates(STREAM, pa.table({"predicates": given}))[0]


def test_the_mutable_segment_its_pairs_removals_and_what_matches_everything() -> None:
    policy = MergePolicy(batch_share=100.0, mutable_share=1e9, cost_factor=1e9)
    index = filled(predicates([[("a", ">=", float(i))] for i in range(50)]), policy)
    events = [{"a": n % 60, "b": n % 7, "c": n % 5, "d": "text"} for n in range(40)]
    assert same_alone_and_together(index, events)
    some = [[("b", "=", float(i % 7)), ("c", "<=", float(i % 5))] for i in range(300)]
    index.add(np.arange(1000, 1300), predicates(some))
    index.add(np.array([2000]), predicates([[]]))  # matches every event
    assert same_alone_and_together(index, events)["mutable"] == 300
    index.remove(np.arange(1000, 1100))
    index.remove(np.arange(0, 20))
    same_alone_and_together(index, [*events, {}, {"b": None}, {"z": 1}])
    index.remove(np.array([2000]))
    same_alone_and_together(index, events)


def test_more_matches_and_more_attributes_than_there_is_space_for() -> None:
    index = filled(predicates([[(f"a{i % 100}", ">=", 0.0)] for i in range(5000)]))
    assert same_alone_and_together(index, [{f"a{n}": 1.0 for n in range(100)}, {"a7": 1}])


def test_sampling_and_merging_go_on_with_single_events() -> None:
    index = filled(predicates([[(f"a{i % 10}", "=", float(i))] for i in range(500)]))
    for number in range(1200):
        index.match_one({f"a{number % 10}": number % 500})
    assert len(index._segments.recent) >= index.policy.min_sample
    assert index.stats()["measured_us_per_event"] > 0
    index._check()


def test_what_is_not_plain_is_left_to_batches() -> None:
    index = filled(predicates([[("a", ">=", 0.0)]]))
    for value in (float("nan"), 2**53 + 1, np.float64(3.0), [1], "\ud800"):
        assert index.match_one({"a": value}) is None
    assert index.match_one({"a": 1, 5: 2}) is None  # type: ignore[dict-item]
    found = index.match_one({"a": 1})
    assert found is not None and found.tolist() == [0]


def test_names_are_numbered_as_filters_name_them(monkeypatch: pytest.MonkeyPatch) -> None:
    index = filled(predicates([[("a", "=", 1.0)]]))
    events: list[dict[str, Any]] = [{"a": 1, "b": 1, "z": 1}, {"b": 1}]
    same_alone_and_together(index, events)
    index.add(np.array([5]), predicates([[("b", "=", 1.0)]]))
    same_alone_and_together(index, events)
    for slot, name in enumerate(("_MOST_NAMES", "_MOST_EAGER"), 10):  # few names are remembered
        monkeypatch.setattr(f"tocsin.predicate.single.{name}", 2)
        index.add(np.array([slot]), predicates([[(name, "=", 1.0), ("b", ">=", 0.0)]]))
        more = [{f"{name}{n}": 1 for n in range(9)} | {"b": 1, name: 1} for _ in range(3)]
        same_alone_and_together(index, [*events, *more])
