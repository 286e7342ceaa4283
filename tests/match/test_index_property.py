"""The default index on every path and under every policy: the same matches as the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies.cases import StreamCase, stream_cases
from tocsin.language.rewrite import normalise
from tocsin.match.base import unpack
from tocsin.match.build import assemble as arranging
from tocsin.match.build import cost as placing
from tocsin.match.build.cost import Costs
from tocsin.match.index import Auto, Policy
from tocsin.model.change import ChangeBatch
from tocsin.predicate.compile import flatten
from tocsin.reference import holds

POLICIES = {
    "lists": Policy(costs=Costs(hit=1e9, bit=1e9)),
    "pairs": Policy(costs=Costs(check=1e6, bit=1e6, hit=0, probe=0), fan=2, small=1),
    "bits": Policy(costs=Costs(check=1e6, hit=1e6, bit=0, spread=0, row=0)),
    "background": Policy(background=0, fan=2, small=1),
    "values": Policy(costs=Costs(check=1e6, bit=1e6, probe=1e9, look=0, find=0)),
    # every segment is built anew for every batch
    "anew": Policy(look=0, worse=0.0, least=-1.0, costs=Costs(build=0.0, begin=0.0)),
    "fronts": Policy(gust=100.0, front=1e9, felt=1e9, fronts=2),
    "paired fronts": Policy(gust=1e9, front=1e9, felt=1e9, costs=Costs(compare=1e3, follow=1e3, probe=0)),
    "melting": Policy(gust=1e9, front=1e9, moved=2, costs=Costs(move=0, coded=1e9, build=1e15, begin=1e15)),
    "fronts merged": Policy(gust=100.0, felt=0.0, soon=0, background=0),
    "no front": Policy(gust=0.0),
}


@pytest.mark.parametrize("name", [*POLICIES, "few bounds", "threads"])
def test_every_path_gives_the_same_matches(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = POLICIES.get(name, POLICIES["bits"])
    if name == "few bounds":
        monkeypatch.setattr(placing, "MOST_BOUNDS", 1)
        monkeypatch.setattr(arranging, "MOST_BOUNDS", 1)

    @settings(max_examples=max(15, settings().max_examples // 3))  # many ways, one after the other
    @given(stream_cases(), st.data())
    def check(case: StreamCase, data: st.DataObject) -> None:
        index = Auto(policy, threads=2 if name == "threads" else 1)
        wanted = {3 * n + 1: asked.query.where for n, asked in enumerate(case.written)}
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
            assert len(found) == len(set(found)), "each match is told once"
            rows = batch.rows.to_dicts()
            assert set(found) == {
                (slot, i) for slot, where in used.items() for i, row in enumerate(rows) if holds(where, row)
            }
            index._check()
            assert index.stats()["subscriptions"] == len(used)

    check()
