"""IdMap is a dict from ids to slots, whether ids come one at a time or together."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tocsin.store.ids import IdMap

IDS = st.integers(-(2**63), 2**63 - 1) | st.integers(-20, 20)


@given(st.lists(st.tuples(st.sampled_from(["put", "one", "remove", "find"]), st.lists(IDS, unique=True))))
def test_property_it_is_a_dict(steps: list[tuple[str, list[int]]]) -> None:
    ids, expected, slot = IdMap(), dict[int, int](), 0
    for what, given_ids in steps:
        fresh = {id: slot + n for n, id in enumerate(given_ids) if id not in expected}
        there = [id for id in given_ids if id in expected]
        if what == "put":
            ids.put(np.array([*fresh], np.int64), np.array([*fresh.values()], np.int32))
        elif what == "one":
            for id, own in fresh.items():
                ids.put_one(id, own)
        elif what == "remove":
            ids.remove(np.array(there, np.int64))
            expected = {id: own for id, own in expected.items() if id not in there}
        if what in ("put", "one"):
            expected |= fresh
            slot += len(given_ids)
        assert len(ids) == len(expected)
        assert [ids.find_one(id) for id in given_ids] == [expected.get(id, -1) for id in given_ids]
        if what == "find":
            assert ids.find(np.array(given_ids, np.int64)).tolist() == [
                expected.get(i, -1) for i in given_ids
            ]
    ids._check()
    assert ids.find(np.array([*expected], np.int64)).tolist() == [*expected.values()]


def test_many_that_came_one_at_a_time() -> None:
    ids = IdMap()
    for id in range(10_000):
        ids.put_one(3 * id, id)
    assert (ids.find_one(9), ids.find_one(29_997), ids.find_one(10), len(ids)) == (3, 9999, -1, 10_000)
    ids._check()
