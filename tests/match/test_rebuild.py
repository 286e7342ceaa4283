"""Conjunctions survive the rebuilding of their segment; odd batches do no harm."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import tocsin
from tocsin.errors import SubscriptionError
from tocsin.match.index import Auto, MergePolicy
from tocsin.model.columns import SparseRows
from tocsin.model.schema import Stream
from tocsin.predicate.columnar import flat_predicates
from tocsin.predicate.events import events_of


def test_absence_stays_with_its_attribute_when_a_segment_is_rebuilt() -> None:
    e = tocsin.Engine()
    e.execute("CREATE STREAM s")
    e.subscribe("SELECT * FROM s WHERE c NOT LIKE 'a%b'")
    e.subscribe("SELECT * FROM s WHERE b = 1 AND c IS NULL")
    e.subscribe(
        "SELECT * FROM s WHERE (p = 1 OR q = 2) AND (r = 3 OR t = 4) AND u IN (1, 2, 3) AND v NOT IN (7, 8)"
    )
    for i in range(6):
        e.subscribe(f"SELECT * FROM s WHERE z = {i}")
    events = ({"w": 1}, {"c": "q"}, {"b": 1}, {"b": 1, "c": "aab"})
    expected = [[], [1], [2], []]
    assert [e.publish("s", event).subscription.tolist() for event in events] == expected
    for i in range(4, 9):  # enough to have the segment rebuilt
        e.unsubscribe(i)
    assert [e.publish("s", event).subscription.tolist() for event in events] == expected
    e._check()


def test_a_dictionary_may_name_an_attribute_twice() -> None:
    e = tocsin.Engine()
    e.execute("CREATE STREAM s")
    e.subscribe("SELECT * FROM s WHERE a = 1")
    e.subscribe("SELECT * FROM s WHERE b = 2")
    keys = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 1], pa.int32()), pa.array(["a", "b", "a"]))
    both = pa.MapArray.from_arrays(pa.array([0, 2, 4], pa.int32()), keys, pa.array([1.0, 2.0, 1.0, 2.0]))
    assert e.apply("s", pa.table({"attributes": both})).subscription.tolist() == [1, 2, 1, 2]


@pytest.mark.parametrize("kind", [pa.timestamp("s"), pa.timestamp("ns"), pa.timestamp("us", "Europe/Berlin")])
def test_parameters_may_be_timestamps_of_any_kind(kind: pa.DataType, tmp_path: Path) -> None:
    e = tocsin.Engine()
    e.execute("CREATE STREAM s (ts TIMESTAMP)")
    e.subscribe_many("SELECT * FROM s WHERE ts >= :m", pa.table({"id": [1], "m": pa.array([0], kind)}))
    event = {"ts": datetime(1970, 1, 1, 0, 30)}
    assert e.publish("s", event).subscription.tolist() == [1]
    assert "1970-01-01 00:00:00" in e.subscriptions()[0].sql
    e.save(tmp_path / "saved")
    loaded = tocsin.Engine.load(tmp_path / "saved")
    assert loaded.publish("s", event).subscription.tolist() == [1]


def test_ids_that_do_not_fit() -> None:
    e = tocsin.Engine()
    e.execute("CREATE STREAM s")
    e.subscribe("SELECT * FROM s", id=-1)
    with pytest.raises(SubscriptionError, match="there is no subscription"):
        e.unsubscribe_many(np.array([2**64 - 1], np.uint64))
    with pytest.raises(SubscriptionError):
        e.subscribe_texts(["SELECT * FROM s"], ids=[2**64])
    with pytest.raises(SubscriptionError):
        e.subscribe_texts(["SELECT * FROM s"], subscribers=[5])  # type: ignore[list-item]
    e.unsubscribe_many(pa.array([-1]))
    assert not e.subscriptions()


def test_coming_and_going_leaves_nothing_behind() -> None:
    e = tocsin.Engine()
    e.execute("CREATE STREAM s (a BIGINT)")
    for _ in range(1100):
        e.unsubscribe(e.subscribe("SELECT a FROM s WHERE a = 1"))
    index = e._roster.rooms["match"]._indexes["s"]  # type: ignore[attr-defined]
    assert len(index._segments.waiting) < 100
    e.execute("DROP STREAM s")
    assert not e.stats()["match"]


def test_filters_that_can_never_match_have_no_segment_when_a_mutable_one_is_frozen(tmp_path: Path) -> None:
    index = Auto(MergePolicy(cost_factor=1e9))
    some = [[("a", float(i))] for i in range(8)]
    for first, given in enumerate([some, [[("b", 1.0), ("b", 2.0)], [("a", 7.0)]]]):
        rows = [[{"attribute": a, "op": "=", "number": n} for a, n in row] for row in given]
        ids = np.arange(8 * first, 8 * first + len(rows))
        found, bad = flat_predicates(Stream("s", ()), pa.table({"id": ids, "predicates": rows}))
        assert not bad
        index.add(ids, found)
        assert index.match(SparseRows.from_dicts([{"a": 7.0}])) is not None
    assert index._segments.mutable
    index.save(tmp_path)
    index._check()


def test_a_suffix_that_is_gone_leaves_its_dimension() -> None:
    def part(attribute: str, op: str, text: str) -> dict[str, str]:
        return {"attribute": attribute, "op": op, "text": text}

    given = [[part("t", "suffix", "b")], [part("t", "suffix", "c")], *([part(a, "=", a)] for a in "tuv")]
    found, bad = flat_predicates(Stream("s", ()), pa.table({"id": np.arange(5), "predicates": given}))
    assert not bad
    index = Auto()
    index.add(np.arange(5), found)
    assert (index.match(SparseRows.from_dicts([{"t": "ab"}])) >> 32).tolist() == [0]
    index.remove(np.array([0, 1]))
    index.match(SparseRows.from_dicts([{"u": "u"}]))
    (state,) = index._segments.immutable
    assert not index._segments.mutable
    rows = SparseRows.from_dicts([{"t": "x"}, {"t": "y"}])
    events = events_of(rows)
    codes = state.segment.encode(events, index._segments.names.attributes.find(events.names))
    assert len(codes.texts[1]) == 2, "texts backwards have codes as long as a dimension reads them"
    assert not len(index.match(rows))
