"""The default index on every path and under every policy: the same matches as the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies.cases import StreamCase, stream_cases
from tocsin.language.rewrite import normalise
from tocsin.match import index as index_module
from tocsin.match._kernels.candidates import match_each
from tocsin.match.base import unpack
from tocsin.match.build import assemble, cost
from tocsin.match.build.cost import CostModel
from tocsin.match.index import Auto, MergePolicy
from tocsin.model.change import ChangeBatch
from tocsin.predicate.compile import flatten
from tocsin.reference import holds

POLICIES = {
    "lists": MergePolicy(costs=CostModel(hit=1e9, bit=1e9)),
    "pairs": MergePolicy(
        costs=CostModel(check=1e6, bit=1e6, hit=0, probe=0), segments_per_size=2, smallest_size=1
    ),
    "bits": MergePolicy(costs=CostModel(check=1e6, hit=1e6, bit=0, bit_entry=0, bit_row=0)),
    "background": MergePolicy(background_size=0, segments_per_size=2, smallest_size=1),
    "values": MergePolicy(costs=CostModel(check=1e6, bit=1e6, probe=1e9, turn=0, look_up=0)),
    # every segment is rebuilt for every batch
    "rebuilt": MergePolicy(
        review_events=0, rebuild_ratio=0.0, min_cost=-1.0, costs=CostModel(build=0.0, build_start=0.0)
    ),
    "mutable": MergePolicy(batch_share=100.0, mutable_share=1e9, cost_factor=1e9, most_mutable=2),
    "mutable pairs": MergePolicy(
        batch_share=1e9, mutable_share=1e9, cost_factor=1e9, costs=CostModel(compare=1e3, follow=1e3, probe=0)
    ),
    "migrating": MergePolicy(
        batch_share=1e9,
        mutable_share=1e9,
        migrate_size=2,
        costs=CostModel(migrate=0, encode=1e9, build=1e15, build_start=1e15),
    ),
    "mutable merged": MergePolicy(batch_share=100.0, cost_factor=0.0, early_events=0, background_size=0),
    "never mutable": MergePolicy(batch_share=0.0),
}


@pytest.mark.parametrize("name", [*POLICIES, "few bounds", "threads", "one by one"])
def test_every_path_gives_the_same_matches(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = POLICIES.get(name, POLICIES["bits"])
    if name == "one by one":  # as before the kernels of batches are compiled
        monkeypatch.setattr(index_module, "_MANY", 0)
        monkeypatch.setattr(match_each, "pays", lambda seconds: False)
    if name == "few bounds":
        monkeypatch.setattr(cost, "MOST_BOUNDS", 1)
        monkeypatch.setattr(assemble, "MOST_BOUNDS", 1)

    @settings(max_examples=max(15, settings().max_examples))  # many ways, one after the other
    @given(stream_cases(), st.data())
    def check(case: StreamCase, data: st.DataObject) -> None:
        index = Auto(policy, threads=2 if name == "threads" else 1)
        wanted = {3 * n + 1: one.query.where for n, one in enumerate(case.written)}
        used: dict[int, Any] = {}
        free = list(wanted)
        for events in case.batches:
            coming = data.draw(st.sets(st.sampled_from(free))) if free else set()
            index.add(
                np.array(sorted(coming), np.int64), flatten(normalise(wanted[s]) for s in sorted(coming))
            )
            used |= {slot: wanted[slot] for slot in coming}
            going = data.draw(st.sets(st.sampled_from(sorted(used)))) if used else set()
            index.remove(np.array(sorted(going), np.int64))
            used = {slot: where for slot, where in used.items() if slot not in going}
            free = [slot for slot in wanted if slot not in used]
            batch, _ = ChangeBatch.from_dicts(case.stream, events)
            found = list(zip(*(part.tolist() for part in unpack(index.match(batch.rows))), strict=True))
            assert len(found) == len(set(found)), "each match is reported once"
            rows = batch.rows.to_dicts()
            assert set(found) == {
                (slot, i) for slot, where in used.items() for i, row in enumerate(rows) if holds(where, row)
            }
            index._check()
            assert index.stats()["subscriptions"] == len(used)

    check()
