"""Batches in any form: the same value means the same whatever contains it."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.engine import Engine
from tocsin.errors import BadRow, ChangeError
from tocsin.model.inputs import read_batch
from tocsin.model.schema import Field, Stream, Table, Type, read, read_time
from tocsin.model.times import read_times

OPEN = Stream("s")
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
REFUSED = "refused"


def declared(type: Type) -> Stream:
    return Stream("d", (Field("v", type),))


def taken(relation: Table | Stream, batch: Any) -> Any:
    """The value of attribute v in the only row; REFUSED if the row, or the whole batch, is bad."""
    try:
        found, bad = read_batch(relation, batch)
    except ChangeError:
        return REFUSED
    return REFUSED if bad else found.rows.to_dicts()[0].get("v")


def same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a):
        return math.isnan(b)
    return type(a) is type(b) and bool(a == b)


BIG, DOUBLE, TEXT, BOOL, DATE, TIME = Type
# A value, the same in Arrow (None: there is none), and what it becomes in each type and in an open stream.
RULES: list[tuple[Any, Any, dict[Type | None, Any]]] = [
    (1, pa.array([1], pa.int32()), {BIG: 1, DOUBLE: 1.0, None: 1}),
    (np.int16(7), pa.array([7], pa.int16()), {BIG: 7, DOUBLE: 7.0, None: 7}),
    (2**63, pa.array([2**63], pa.uint64()), {DOUBLE: 2.0**63, None: 2.0**63}),
    (2**63 - 1, pa.array([2**63 - 1], pa.uint64()), {BIG: 2**63 - 1, DOUBLE: 2.0**63, None: 2**63 - 1}),
    (1.0, pa.array([1.0]), {BIG: 1, DOUBLE: 1.0, None: 1.0}),
    (np.float32(2.0), pa.array([2.0], pa.float32()), {BIG: 2, DOUBLE: 2.0, None: 2.0}),
    (-(2.0**63), pa.array([-(2.0**63)]), {BIG: -(2**63), DOUBLE: -(2.0**63), None: -(2.0**63)}),
    (2.0**63, pa.array([2.0**63]), {DOUBLE: 2.0**63, None: 2.0**63}),
    (1.5, pa.array([1.5]), {DOUBLE: 1.5, None: 1.5}),
    (math.nan, pa.array([math.nan]), {DOUBLE: math.nan, None: math.nan}),
    (math.inf, pa.array([math.inf]), {DOUBLE: math.inf, None: math.inf}),
    (Decimal("3"), pa.array([Decimal("3")]), {BIG: 3, DOUBLE: 3.0, None: 3}),
    (Decimal("3.00"), pa.array([Decimal("3.00")]), {BIG: 3, DOUBLE: 3.0, None: 3.0}),
    (Decimal("0.1"), pa.array([Decimal("0.1")]), {DOUBLE: 0.1, None: 0.1}),
    (
        Decimal(2**53 + 1),
        pa.array([Decimal(2**53 + 1)]),
        {BIG: 2**53 + 1, DOUBLE: 2.0**53, None: 2**53 + 1},
    ),
    (Decimal(10**30), pa.array([Decimal(10**30)]), {DOUBLE: 1e30, None: 1e30}),
    (Decimal("NaN"), None, {DOUBLE: math.nan, None: math.nan}),
    (True, pa.array([True]), {BOOL: True, None: True}),
    (np.bool_(False), pa.array([False]), {BOOL: False, None: False}),
    ("x", pa.array(["x"]), {TEXT: "x", None: "x"}),
    (np.str_("x"), pa.array(["x"], pa.large_string()), {TEXT: "x", None: "x"}),
    ("1", pa.array(["1"]), {TEXT: "1", None: "1"}),
    (
        "2024-05-01",
        pa.array(["2024-05-01"]),
        {
            TEXT: "2024-05-01",
            DATE: date(2024, 5, 1),
            TIME: datetime(2024, 5, 1, tzinfo=UTC),
            None: "2024-05-01",
        },
    ),
    (
        "2024-05-01T12:00Z",
        pa.array(["2024-05-01T12:00Z"]),
        {TEXT: "2024-05-01T12:00Z", TIME: NOON, None: "2024-05-01T12:00Z"},
    ),
    (
        date(2024, 5, 1),
        pa.array([date(2024, 5, 1)]),
        {DATE: date(2024, 5, 1), TIME: datetime(2024, 5, 1, tzinfo=UTC), None: date(2024, 5, 1)},
    ),
    (
        np.datetime64("2024-05-01"),
        pa.array([date(2024, 5, 1)], pa.date64()),
        {DATE: date(2024, 5, 1), TIME: datetime(2024, 5, 1, tzinfo=UTC), None: date(2024, 5, 1)},
    ),
    (NOON, pa.array([NOON]), {TIME: NOON, None: NOON}),
    (NOON.replace(tzinfo=None), pa.array([NOON.replace(tzinfo=None)]), {TIME: NOON, None: NOON}),
    (
        datetime(2024, 5, 1, 14, tzinfo=timezone(timedelta(hours=2))),
        pa.array([NOON], pa.timestamp("ns", "Europe/Berlin")),
        {TIME: NOON, None: NOON},
    ),
    (
        np.datetime64("2024-05-01T12:00:00.000000999"),
        pa.array([NOON], pa.timestamp("ns")),
        {TIME: NOON, None: NOON},
    ),
    (pd.Timestamp("2024-05-01T12:00Z"), pa.array([NOON], pa.timestamp("s", "UTC")), {TIME: NOON, None: NOON}),
    (
        datetime(2024, 5, 1),
        pa.array([datetime(2024, 5, 1)]),
        {
            DATE: date(2024, 5, 1),
            TIME: datetime(2024, 5, 1, tzinfo=UTC),
            None: datetime(2024, 5, 1, tzinfo=UTC),
        },
    ),
    (b"x", pa.array([b"x"]), {}),
    (timedelta(1), pa.array([timedelta(1)]), {}),
    *[
        (missing, pa.nulls(1), dict.fromkeys([*Type, None]))
        for missing in (None, pd.NaT, pd.NA, np.datetime64("NaT"))
    ],
]  # fmt: skip


@pytest.mark.parametrize(("value", "array", "rules"), RULES)
@pytest.mark.parametrize("type", [*Type, None])
def test_a_value_is_the_same_in_every_container(value: Any, array: Any, rules: Any, type: Any) -> None:
    relation = OPEN if type is None else declared(type)
    expected = rules.get(type, REFUSED)
    assert same(taken(relation, [{"v": value}]), expected)
    if array is not None:
        assert same(taken(relation, pa.table({"v": array})), expected)


def test_numbers_are_no_timestamps_and_the_error_tells_what_to_do() -> None:
    _, bad = read_batch(declared(TIME), [{"v": 1714550400}])
    assert bad == [
        BadRow(
            0, "column v: 1714550400 is not a TIMESTAMP (a number has no unit: give ISO text or a datetime)"
        )
    ]
    with pytest.raises(ChangeError, match="a number has no unit"):
        read_batch(declared(TIME), pa.table({"v": [1714550400]}))


def test_bad_cells_of_columns_are_named_by_row() -> None:
    _, bad = read_batch(declared(BIG), pa.table({"v": [1.0, 2.5, math.nan]}))
    assert bad == [BadRow(1, "column v: 2.5 is not a BIGINT"), BadRow(2, "column v: nan is not a BIGINT")]
    _, bad = read_batch(declared(BIG), pa.table({"v": [Decimal("1.50"), Decimal("2.00")]}))
    assert bad == [BadRow(0, "column v: Decimal('1.50') is not a BIGINT")]
    _, bad = read_batch(declared(DATE), pa.table({"v": [datetime(2024, 5, 1), NOON.replace(tzinfo=None)]}))
    assert [b.row for b in bad] == [1] and "is not a DATE" in bad[0].reason


def test_unsigned_integers_of_an_open_stream_are_as_those_of_dicts() -> None:
    numbers = [5, 2**63 - 1, 2**63, 2**64 - 1, None]
    by_column, bad = read_batch(OPEN, pa.table({"v": pa.array(numbers, pa.uint64())}))
    by_row, _ = read_batch(OPEN, [{"v": n} for n in numbers])
    assert not bad and by_column.rows.to_dicts() == by_row.rows.to_dicts()
    whole = pa.table({"v": pa.array([Decimal(n) if n else n for n in numbers], pa.decimal128(38, 0))})
    assert read_batch(OPEN, whole)[0].rows.to_dicts() == by_row.rows.to_dicts()


# -- containers ---------------------------------------------------------------------------------------


ROWS = [{"k": 1, "x": 2.5, "s": "a"}, {"k": 2, "x": None, "s": None}]
STOCKS = Table("t", (Field("k", BIG), Field("x", DOUBLE), Field("s", TEXT)), ("k",))


@pytest.mark.parametrize(
    "batch",
    [
        pa.Table.from_pylist(ROWS),
        pa.RecordBatch.from_pylist(ROWS),
        pa.Table.from_pylist(ROWS).to_reader(),
        pl.DataFrame(ROWS),
        pd.DataFrame(ROWS),
        pd.DataFrame(ROWS, dtype=object),
        ROWS,
        tuple(ROWS),
        iter(ROWS),
    ],
    ids=lambda batch: type(batch).__module__ + "." + type(batch).__name__,
)
def test_every_container_gives_the_same_rows(batch: Any) -> None:
    found, bad = read_batch(STOCKS, batch)
    assert not bad and found.rows.to_dicts() == ROWS


def test_relations_of_duckdb() -> None:
    with duckdb.connect() as connection:
        rows = connection.sql("SELECT * FROM (VALUES (1, 2.5, 'a'), (2, NULL, NULL)) AS t (k, x, s)")
        found, bad = read_batch(STOCKS, rows)
    assert not bad and found.rows.to_dicts() == ROWS


class Array:
    """An object with only `__arrow_c_array__`."""

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        return pa.RecordBatch.from_pylist(ROWS).__arrow_c_array__(requested_schema)


def test_arrow_arrays_of_other_libraries() -> None:
    assert read_batch(STOCKS, Array())[0].rows.to_dicts() == ROWS


def test_missing_values_of_pandas_are_null_and_integers_with_gaps_are_integers() -> None:
    frame = pd.DataFrame({"k": [1, 2], "x": [math.nan, 1.0], "s": [None, "b"]})
    found, bad = read_batch(STOCKS, frame)
    assert not bad and found.rows.to_dicts() == [{"k": 1, "x": None, "s": None}, {"k": 2, "x": 1.0, "s": "b"}]
    gaps = pd.DataFrame({"v": [5, None]})  # a column of doubles
    assert [row["v"] for row in read_batch(declared(BIG), gaps)[0].rows.to_dicts()] == [5, None]


def test_a_pandas_column_of_several_types_is_read_by_row() -> None:
    frame = pd.DataFrame(
        {"v": [1, "x", 2.5, None, math.nan, pd.Timestamp(NOON), pd.NaT, 10**30]}, dtype=object
    )
    found, bad = read_batch(OPEN, frame)
    values = [1, "x", 2.5, None, None, NOON, None, 1e30]
    assert not bad and [row.get("v") for row in found.rows.to_dicts()] == values
    with pytest.raises(ChangeError, match="cannot be read"):
        read_batch(OPEN, pd.DataFrame([[1, 2]], columns=["a", "a"]))


def test_operations_and_sequence_numbers_are_keys_of_dicts() -> None:
    engine = Engine()
    engine.execute("CREATE TABLE t (k BIGINT, x DOUBLE, PRIMARY KEY (k))")
    s = engine.subscribe("SELECT * FROM t WHERE x > 1")
    deltas = engine.apply(
        "t",
        [
            {"k": 1, "x": 2, "_seq": 10},
            {"k": 1, "x": 3, "_op": "update", "_seq": np.int64(20)},
            {"k": 1, "_op": "delete", "_seq": 30},
        ],
    )
    assert [(d.seq, d.sign, d.row["x"]) for d in deltas] == [
        (10, 1, 2.0),
        (20, -1, 2.0),
        (20, 1, 3.0),
        (30, -1, 3.0),
    ]
    assert engine.content(s) == [] and engine.last_seq == 30


def test_bad_dicts_go_to_the_dead_letters_with_their_numbers() -> None:
    engine = Engine()
    engine.execute("CREATE STREAM s")
    dead: list[BadRow] = []
    rows = [{"a": 1}, 5, {"a": b"x"}, {"_op": "update"}, {"a": 2, "_op": None}, {"a": "x"}]
    engine.apply("s", rows, dead_letters=dead)
    assert [b.row for b in dead] == [1, 2, 3, 4]
    assert dead[0].reason == "a row is a dict, not int"
    with pytest.raises(ChangeError, match="row 1: a row is a dict, not int"):
        engine.apply("s", rows)
    engine.apply("s", [{"a": 1, "_seq": 10}, {"a": 2}], dead_letters=dead)
    assert dead[-1] == BadRow(1, "seq is missing")


@pytest.mark.parametrize(
    ("batch", "reason"),
    [
        ({"a": 1}, "not one dict"),
        ("text", "not str"),
        (7, "not int"),
        ([1, 2], "row 0: a row is a dict, not int"),
        (pl.LazyFrame({"a": [1]}), "collect"),
    ],
)
def test_what_is_no_batch(batch: Any, reason: str) -> None:
    with pytest.raises(ChangeError, match=reason):
        read_batch(OPEN, batch)


def test_an_empty_batch() -> None:
    for batch in ([], pd.DataFrame(), pl.DataFrame(), pa.table({})):
        found, bad = read_batch(OPEN, batch)
        assert len(found) == 0 and not bad


# -- nested values ------------------------------------------------------------------------------------


def test_nested_fields_that_no_subscription_uses_are_ignored() -> None:
    engine = Engine()
    engine.execute("CREATE STREAM s")
    engine.subscribe("SELECT * FROM s WHERE a > 0")
    event = {"a": 1, "user": {"name": "x"}, "tags": ["y"], "when": (1, 2), "b": "z"}
    [delta] = engine.publish("s", event)
    assert delta.row == {"a": 1, "b": "z"}
    for batch in ([event], pa.Table.from_pylist([event]), pl.DataFrame([event])):
        [delta] = engine.apply("s", batch)
        assert delta.row == {"a": 1, "b": "z"}


@pytest.mark.parametrize("sql", ["SELECT * FROM s WHERE user = 'x'", "SELECT user FROM s WHERE a > 0"])
def test_a_nested_field_that_a_subscription_uses_makes_a_bad_row(sql: str) -> None:
    engine = Engine()
    engine.execute("CREATE STREAM s")
    engine.subscribe(sql)
    rows = [{"a": 1, "user": {"name": "x"}}, {"a": 2}, {"a": 3, "user": "x"}, {"b": b""}, {"user": [1]}]
    with pytest.raises(ChangeError, match="attribute user: a nested value is not a number, text"):
        engine.publish("s", rows[0])
    dead: list[BadRow] = []
    engine.apply("s", rows, dead_letters=dead)
    assert [b.row for b in dead] == [0, 3, 4]
    dead.clear()
    column = pa.table({"a": [1, 2], "user": pa.array([{"name": "x"}, None])})
    engine.apply("s", column, dead_letters=dead)
    assert [b.row for b in dead] == [0]


# -- times in text --------------------------------------------------------------------------------------


SOME = st.sampled_from(
    ["", "2024", "2024-13-01", "2024-02-30", "0000-01-01", "9999-12-31 23:30-01:00", "soon"]
)
TIMES = st.datetimes().map(str) | st.datetimes().map(lambda t: t.isoformat() + "+05:30") | st.dates().map(str)


@given(st.lists(TIMES | SOME | st.text(max_size=12) | st.none(), max_size=8), st.sampled_from([DATE, TIME]))
def test_property_times_by_column_are_times_by_value(texts: list[str | None], type: Type) -> None:
    values, are_times = read_times(type, pa.array(texts, pa.string()))
    for text, value, is_time in zip(texts, values.tolist(), are_times.tolist(), strict=True):
        try:
            expected: Any = None if text is None else read_time(type, text)
        except ValueError:
            expected = None
        assert is_time == (expected is not None)
        if is_time:
            unit = timedelta(days=1) if type is DATE else timedelta(microseconds=1)
            epoch = datetime(1970, 1, 1, tzinfo=UTC)
            assert read(type, expected) == (epoch.date() if type is DATE else epoch) + value * unit
