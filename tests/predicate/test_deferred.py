"""Deferred filters: only valid ones are deferred, and flattening gives the same filters."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.engine import Engine, Rooms
from tocsin.errors import TocsinError
from tocsin.match.scan import Scan
from tocsin.model.schema import Field, Stream, Type
from tocsin.predicate.columnar import flat_predicates
from tocsin.predicate.conjunctions import Names
from tocsin.predicate.deferred import deferred_conjunctions, deferred_filters, flatten_deferred

OPEN = Stream("s", ())
PLAIN = pa.struct([("attribute", pa.string()), ("op", pa.string()), ("number", pa.float64())])


def table(rows: list[list[dict[str, Any]]], type: Any = PLAIN) -> Any:
    return pa.table({"id": range(len(rows)), "predicates": pa.array(rows, pa.list_(type))})


numbers = st.one_of(
    st.integers(-3, 3).map(float), st.sampled_from([2.0**53, -(2.0**60), math.inf, math.nan]), st.none()
)
predicates = st.fixed_dictionaries(
    {
        "attribute": st.sampled_from(["a", "b", "", None]),
        "op": st.sampled_from(["=", "!=", "<", "<=", ">", ">=", "is", "between", None]),
        "number": numbers,
    }
)


@given(st.lists(st.lists(st.lists(predicates, max_size=3), max_size=4), min_size=1, max_size=3))
def test_the_same_filters_together(batches: list[list[list[dict[str, Any]]]]) -> None:
    given = [deferred_filters(OPEN, table(rows)) for rows in batches]
    for rows, deferred in zip(batches, given, strict=True):
        filters, bad = flat_predicates(OPEN, table(rows))
        if deferred is None:
            continue
        assert not bad and deferred.count == filters.count == len(rows)
    kept = [deferred for deferred in given if deferred is not None]
    if kept:
        whole = [
            row for rows, deferred in zip(batches, given, strict=True) if deferred is not None for row in rows
        ]
        one, other = flatten_deferred(kept), flat_predicates(OPEN, table(whole))[0]
        one._check()
        for name in ("owner", "start", "low", "high", "flags", "attribute", "space"):
            assert np.array_equal(getattr(one, name), getattr(other, name)), name
        assert list(one.names) == list(other.names)
        slots = np.arange(one.count) + 5
        first, second = Names().conjunctions(slots, one).by_key(), deferred_conjunctions(kept, slots, Names())
        for name in ("slot", "start", "dim", "low", "high", "flags", "key"):
            assert np.array_equal(getattr(first, name), getattr(second, name)), name


@pytest.mark.parametrize(
    "given",
    [
        table([[{"attribute": "a", "op": "=", "number": 2.0**53}]]),
        table([[{"attribute": "a", "op": "=", "number": math.nan}]]),
        table([[{"attribute": "a", "op": "=", "number": None}]]),
        table([[{"attribute": None, "op": "=", "number": 1.0}]]),
        table([[{"attribute": "a", "op": "like", "number": 1.0}]]),
        table([None]),  # type: ignore[list-item]
        table([[{"attribute": "a", "op": "=", "text": "x"}]], pa.struct([*PLAIN, ("text", pa.string())])),
        table(
            [[{"attribute": "a", "op": "=", "number": 1}]],
            pa.struct([*list(PLAIN)[:2], ("number", pa.int64())]),
        ),
    ],
)
def test_a_closer_look_is_taken(given: Any) -> None:
    assert deferred_filters(OPEN, given) is None


def test_typed_streams_are_looked_at() -> None:
    typed = Stream("s", (Field("a", Type.BIGINT),))
    assert deferred_filters(typed, table([[{"attribute": "a", "op": "=", "number": 1.0}]])) is None


@pytest.mark.parametrize("rooms", [Rooms(), Rooms(match=Scan)])
def test_batches_come_and_go_before_an_event(rooms: Rooms) -> None:
    engine = Engine(rooms=rooms)
    engine.execute("CREATE STREAM s")

    def rows(first: int, low: float) -> Any:
        given = [[{"attribute": "a", "op": ">=", "number": low + i}] for i in range(3)]
        return table(given).set_column(0, "id", pa.array(range(first, first + 3)))

    engine.subscribe_predicates("s", rows(0, 0.0))
    engine.subscribe_predicates("s", rows(10, 10.0))
    engine.unsubscribe_many(np.array([0, 10]))
    engine.subscribe_predicates("s", rows(20, 0.0))
    with pytest.raises(TocsinError, match="already"):
        engine.subscribe_predicates("s", rows(20, 0.0))
    with pytest.raises(TocsinError, match="no op"):
        engine.subscribe_predicates("s", table([[{"attribute": "a", "op": "is", "number": 1.0}]]))
    matched = sorted(delta.subscription for delta in engine.publish("s", {"a": 1.5}))
    assert matched == [1, 20, 21]
    assert "a >= 1.0" in str(engine.explain(1, {"a": 1.5}))
    engine._check()
