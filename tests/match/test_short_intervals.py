"""Lists of intervals with two ends: of short ones, as of prefixes, few are looked at."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tocsin.engine import Engine
from tocsin.lab.bench.json_workloads import holds_rule, json_workload, rules_table
from tocsin.match.build.cost import CostModel
from tocsin.match.index import Auto, MergePolicy
from tocsin.match.scan import Scan
from tocsin.model.columns import Rows, Vector
from tocsin.model.schema import Stream, Type
from tocsin.predicate.columnar import flat_predicates

LISTS = MergePolicy(costs=CostModel(hit=1e9, bit=1e9), batch_share=0.0)
SPANS = st.tuples(st.integers(0, 60), st.one_of(st.integers(0, 4), st.integers(0, 60)))


def test_prefixes_are_found_among_few_candidates() -> None:
    rules, events = json_workload("prefix", 4000, 60, 3)
    engine = Engine()
    engine.execute("CREATE STREAM ev")
    engine.subscribe_predicates("ev", rules_table(rules))
    right = [{i for i, rule in enumerate(rules) if holds_rule(rule, event)} for event in events]
    found = engine.apply("ev", b"\n".join(json.dumps(event).encode() for event in events))
    for n, wanted in enumerate(right):
        assert set(found.subscription[found.seq == n + 1].tolist()) == wanted
        assert set(engine.publish("ev", events[n]).subscription.tolist()) == wanted
    seen = engine.stats()["match"]["ev"]
    assert seen["paths"]["checked"] == len(rules)
    assert seen["candidates_per_event"]["lists"] < len(rules) / 100  # a value is in one prefix of 200


@given(st.lists(st.lists(SPANS, min_size=1, max_size=2), min_size=1, max_size=40), st.data())
def test_lists_of_short_and_long_intervals(written: list[list[tuple[int, int]]], data: st.DataObject) -> None:
    tests = [
        [
            {"attribute": f"a{n}", "op": op, "number": float(number)}
            for n, (low, width) in enumerate(spans)
            for op, number in ((">=", low), ("<=", low + width))
        ]
        for spans in written
    ]
    filters, bad = flat_predicates(Stream("ev", ()), pa.table({"id": range(len(tests)), "predicates": tests}))
    assert not bad
    index, scan, slots = Auto(LISTS), Scan(), np.arange(len(tests))
    for one in (index, scan):
        one.add(slots, filters)
    going = np.array(sorted(data.draw(st.sets(st.sampled_from(slots.tolist())))), np.int64)
    values = data.draw(st.lists(st.integers(-1, 125), min_size=1, max_size=20))
    other = [data.draw(st.integers(-1, 125)) for _ in values]
    rows = Rows.of(a0=Vector.of(Type.BIGINT, values), a1=Vector.of(Type.BIGINT, other))
    for leaving in (going, going[:0]):
        by_index, by_scan = (sorted(one.match(rows).tolist()) for one in (index, scan))
        assert by_index == by_scan
        index._check()
        for one in (index, scan):
            one.remove(leaving)
