"""Pair verification against the reference, while filters are added and removed."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies.cases import StreamCase, stream_cases
from tocsin.language.rewrite import normalise
from tocsin.model.change import ChangeBatch
from tocsin.predicate.compile import flatten
from tocsin.predicate.verify import PairVerifier
from tocsin.reference import holds


@given(stream_cases(), st.data())
def test_holds_where_the_reference_says(case: StreamCase, data: st.DataObject) -> None:
    filters, wanted = PairVerifier(), {3 * n + 1: one.query.where for n, one in enumerate(case.written)}
    slots = list(wanted)
    while slots:
        some = [slots.pop() for _ in range(min(len(slots), data.draw(st.integers(1, 3))))]
        filters.add(np.array(some), flatten(normalise(wanted[slot]) for slot in some))
    removed = data.draw(st.sets(st.sampled_from(list(wanted)))) if wanted else set()
    filters.remove(np.array(sorted(removed), np.int64))
    filters._check()
    for events in case.batches:
        batch, _ = ChangeBatch.from_dicts(case.stream, events)
        pairs = [(slot, row) for slot in [*wanted, 999] for row in range(len(batch.rows))]
        slot, row = np.array(pairs, np.int64).reshape(-1, 2).T
        rows = batch.rows.to_dicts()
        found = filters.verify(batch.rows, slot, row)
        expected = [s in removed or s == 999 or bool(holds(wanted[s], rows[r])) for s, r in pairs]
        assert found.tolist() == expected
