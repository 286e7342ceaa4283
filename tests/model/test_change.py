"""Rows in, from every side: Python, JSON, Arrow."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.errors import ChangeError
from tocsin.model.change import ChangeBatch
from tocsin.model.columns import Rows, Vector, double_codes
from tocsin.model.json_rows import row_json, to_json
from tocsin.model.schema import Field, Stream, Table, Type

TABLE = Table(
    "t",
    (
        Field("k", Type.BIGINT),
        Field("x", Type.DOUBLE),
        Field("s", Type.STRING),
        Field("b", Type.BOOLEAN),
        Field("d", Type.DATE),
        Field("w", Type.TIMESTAMP),
    ),
    ("k",),
)
NOON = datetime(2013, 1, 1, 12, tzinfo=UTC)
ROW = {"k": 1, "x": 2.5, "s": "ä", "b": True, "d": date(2013, 1, 1), "w": NOON}


def rows_of(made: tuple[ChangeBatch, list[Any]]) -> list[dict[str, Any]]:
    batch, bad = made
    assert not bad
    return batch.rows.to_dicts()


def test_the_same_row_from_every_side() -> None:
    table = pa.table({f.name: pa.array([ROW[f.name]], f.type.arrow) for f in TABLE.fields})
    text = '{"k":1,"x":2.5,"s":"ä","b":true,"d":"2013-01-01","w":"2013-01-01T12:00:00Z"}'
    assert rows_of(ChangeBatch.from_dicts(TABLE, [ROW])) == [ROW]
    assert rows_of(ChangeBatch.from_json(TABLE, ["insert"], None, [text])) == [ROW]
    assert rows_of(ChangeBatch.from_arrow(TABLE, table)) == [ROW]
    assert rows_of(ChangeBatch.from_arrow(TABLE, table.to_batches()[0])) == [ROW]


@pytest.mark.parametrize(
    ("column", "array"),
    [
        ("k", pa.array([1], pa.uint8())),
        ("x", pa.array([2.5], pa.float32())),
        ("s", pa.array(["ä"]).dictionary_encode()),
        ("s", pa.array(["ä"], pa.large_string())),
        ("d", pa.array(["2013-01-01"])),
        ("d", pa.array([date(2013, 1, 1)], pa.date64())),
        ("w", pa.array(["2013-01-01T13:00:00+01:00"])),
        ("w", pa.array([datetime(2013, 1, 1, 12)], pa.timestamp("ms"))),
        ("w", pa.array([NOON], pa.timestamp("ns", tz="Europe/Berlin"))),
    ],
)
def test_arrow_types_that_fit(column: str, array: Any) -> None:
    table = pa.table({"k": pa.array([1])} | {column: array})
    [row] = rows_of(ChangeBatch.from_arrow(TABLE, table))
    assert row[column] == ROW[column]


def test_bad_cells_are_named_by_row() -> None:
    table = pa.table(
        {
            "k": pa.array([1, 2**64 - 1, 3], pa.uint64()),
            "d": pa.array(["2013-01-01", None, "soon"], pa.string()),
        }
    )
    batch, bad = ChangeBatch.from_arrow(TABLE, table)
    assert [b.row for b in bad] == [1, 2]
    assert "is not a BIGINT" in bad[0].reason and "'soon' is not a DATE" in bad[1].reason
    assert batch.origin.tolist() == [0]
    far = pa.array([10**15], pa.int64()).cast(pa.timestamp("s", tz="UTC"))
    _, bad = ChangeBatch.from_arrow(TABLE, pa.table({"k": [1], "w": far.cast(pa.timestamp("ms", tz="UTC"))}))
    assert "years 1 and 9999" in bad[0].reason


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "malformed row"),
        ("[1]", "not a JSON object but list"),
        (None, "not a JSON object but NoneType"),
        ('{"k":1,"x":"much"}', "column x: 'much' is not a DOUBLE"),
        ('{"k":1.5}', "column k: 1.5 is not a BIGINT"),
        ('{"k":1,"K":2}', "column k is given twice"),
        ('{"x":1}', "key column k is missing"),
    ],
)
def test_bad_json_is_left_out_with_its_reason(text: str | None, reason: str) -> None:
    batch, bad = ChangeBatch.from_json(TABLE, ["insert", "insert"], [1, 2], ['{"k":7}', text])
    assert [b.row for b in bad] == [1] and reason in bad[0].reason
    assert batch.rows.to_dicts()[0]["k"] == 7
    assert batch.seq is not None and batch.seq.tolist() == [1]


def test_json_has_words_for_what_is_no_json_number() -> None:
    texts = ['{"k":1,"x":"NaN"}', '{"k":2,"x":"-Infinity"}']
    found = [row["x"] for row in rows_of(ChangeBatch.from_json(TABLE, ["insert"] * 2, None, texts))]
    assert math.isnan(found[0]) and found[1] == -math.inf


def test_given_says_which_columns_an_update_sets() -> None:
    batch, _ = ChangeBatch.from_json(TABLE, ["update"] * 2, None, ['{"k":1,"x":null}', '{"k":1,"s":"a"}'])
    assert batch.gave("x").tolist() == [True, False]
    assert batch.gave("s").tolist() == [False, True]


def test_events_of_an_open_stream_keep_the_order_of_attributes() -> None:
    events = [{"b": 1, "a": "x", "c": None, "d": date(2013, 1, 1)}, {}, {"a": 2.5}]
    batch, bad = ChangeBatch.from_dicts(Stream("s"), events)
    assert not bad
    assert [list(row.items()) for row in batch.rows.to_dicts()] == [
        [("b", 1), ("a", "x"), ("d", date(2013, 1, 1))],
        [],
        [("a", 2.5)],
    ]
    with pytest.raises(ChangeError, match="which an event cannot hold"):
        ChangeBatch.from_arrow(Stream("s"), pa.table({"x": [b"1"]}))
    _, bad = ChangeBatch.from_dicts(Stream("s"), [{"x": b"1"}])
    assert "is not a number, text" in bad[0].reason


def test_sliced_maps_are_read_from_their_own_part() -> None:
    numbers = pa.array([[("x", 1.0)], None, [("x", 2.0), ("y", 3.0)]], pa.map_(pa.string(), pa.float64()))
    batch, bad = ChangeBatch.from_arrow(Stream("s"), pa.table({"attributes": numbers}).slice(1))
    assert not bad and batch.rows.to_dicts() == [{}, {"x": 2.0, "y": 3.0}]


texts = st.text(max_size=5)
values = st.fixed_dictionaries(
    {
        "k": st.integers(-(2**63), 2**63 - 1),
        "x": st.none() | st.floats(),
        "s": st.none() | st.text(alphabet=st.characters(exclude_categories=("Cs",)), max_size=5),
        "b": st.none() | st.booleans(),
        "d": st.none() | st.dates(),
        "w": st.none() | st.datetimes(timezones=st.just(UTC)),
    }
)


@given(st.lists(values, min_size=1, max_size=5))
def test_property_rows_survive_json(rows: list[dict[str, Any]]) -> None:
    batch, bad = ChangeBatch.from_dicts(TABLE, rows)
    assert not bad
    lines = to_json(batch.rows).to_pylist()
    assert [json.loads(line) for line in lines] == [
        json.loads(row_json(row)) for row in batch.rows.to_dicts()
    ]
    back, bad = ChangeBatch.from_json(TABLE, ["insert"] * len(rows), None, lines)
    assert not bad
    assert repr(back.rows.to_dicts()) == repr(batch.rows.to_dicts())


@given(st.lists(st.floats(), min_size=2, max_size=20))
def test_property_codes_of_doubles_keep_their_order(drawn: list[float]) -> None:
    code = double_codes(np.array(drawn)).tolist()
    for a, ca in zip(drawn, code, strict=True):
        for b, cb in zip(drawn, code, strict=True):
            below = (a < b) or (not math.isnan(a) and math.isnan(b))
            assert (ca < cb) == below


@given(
    st.lists(
        st.tuples(st.sampled_from([None, "a", "b"]), st.sampled_from([None, 1.0, math.nan])), max_size=12
    )
)
def test_property_rows_have_equal_codes_exactly_when_they_are_equal(pairs: list[Any]) -> None:
    rows = Rows.of(
        s=Vector.of(Type.STRING, [p[0] for p in pairs]), x=Vector.of(Type.DOUBLE, [p[1] for p in pairs])
    )
    code = rows.codes().tolist()
    for p, cp in zip(pairs, code, strict=True):
        for q, cq in zip(pairs, code, strict=True):
            assert (repr(p) == repr(q)) == (cp == cq)


@pytest.mark.parametrize("column", ["k", "x", "s", "w"])
def test_an_integer_that_python_does_not_write_is_named_by_its_size(column: str) -> None:
    _, bad = ChangeBatch.from_dicts(TABLE, [{"k": 1, column: 10**5000}])
    assert bad[0].reason.startswith(f"column {column}: an integer of more than 4,300 digits is not a ")
    _, bad = ChangeBatch.from_dicts(TABLE, [{"k": 1, column: [10**5000]}])
    assert "set_int_max_str_digits" not in bad[0].reason
