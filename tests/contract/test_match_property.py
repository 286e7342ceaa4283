"""Every matching index against the reference: same matches, each once, as filters are added and removed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies.cases import StreamCase, stream_cases
from tocsin.lab.discover import implementations
from tocsin.language.rewrite import normalise
from tocsin.match.base import MatchIndex, unpack
from tocsin.model.change import ChangeBatch
from tocsin.predicate.compile import flatten
from tocsin.reference import holds

NAMES = "Auto BETree Counting Dynamic KIndex OpIndex OpIndexBS Propagation PropagationPrefetch Scan Static"
INDEXES = implementations(MatchIndex, "tocsin.match")


def test_every_index_is_found() -> None:
    assert {index.__name__ for index in INDEXES} >= set(NAMES.split())


@pytest.mark.parametrize("make", INDEXES)
def test_matches_what_the_reference_says(make: type[MatchIndex]) -> None:
    @settings(max_examples=max(25, settings().max_examples))  # there are many of them
    @given(stream_cases(), st.data())
    def check(case: StreamCase, data: st.DataObject) -> None:
        index = make()
        wanted = {3 * n + 1: written.query.where for n, written in enumerate(case.written)}
        forms = {slot: normalise(where) for slot, where in wanted.items()}
        supported = index.supports(flatten(forms.values()))
        taken = [slot for slot, fine in zip(forms, supported.tolist(), strict=True) if fine]
        half = len(taken) // 2  # in two batches, so that the second is added to a built index
        for part in (taken[:half], taken[half:]):
            index.add(np.array(part, np.int64), flatten(forms[slot] for slot in part))
        gone = data.draw(st.sets(st.sampled_from(taken))) if taken else set()
        for events in case.batches:
            batch, bad = ChangeBatch.from_dicts(case.stream, events)
            assert not bad
            found = list(zip(*(part.tolist() for part in unpack(index.match(batch.rows))), strict=True))
            assert len(found) == len(set(found)), "each match is found once"
            rows = batch.rows.to_dicts()
            assert set(found) == {
                (slot, i) for slot in taken for i, row in enumerate(rows) if holds(wanted[slot], row)
            }
            index._check()
            if gone:  # from the second batch on, some filters are removed
                index.remove(np.array(sorted(gone)))
                taken = [slot for slot in taken if slot not in gone]
                gone = set()
        assert index.stats()["subscriptions"] == len(taken)
        index.remove(np.array(taken, np.int64))  # and their slots can be used again
        index.add(np.array(taken[::-1], np.int64), flatten(forms[slot] for slot in taken[::-1]))
        moved = [
            *taken[1:],
            *taken[:1],
        ]  # each slot now has the filter of the next
        index.remove(np.array(taken, np.int64))
        index.add(np.array(taken, np.int64), flatten(forms[slot] for slot in moved))
        now = dict(zip(taken, moved, strict=True))
        for events in case.batches:
            batch, _ = ChangeBatch.from_dicts(case.stream, events)
            found = list(zip(*(part.tolist() for part in unpack(index.match(batch.rows))), strict=True))
            rows = batch.rows.to_dicts()
            assert sorted(found) == [
                (slot, i) for slot in taken for i, row in enumerate(rows) if holds(wanted[now[slot]], row)
            ]
        index._check()

    check()
