"""DECIMAL columns: exact values in and out, in every kind of query, and what is rejected."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tocsin import ChangeError, Engine, SqlError, TocsinError
from tocsin.model.decimals import doubles_of, units_of, units_of_doubles
from tocsin.model.json_rows import to_json
from tocsin.model.schema import decimal_type


@pytest.fixture
def engine() -> Engine:
    made = Engine()
    made.execute("CREATE TABLE p (id BIGINT PRIMARY KEY, price DECIMAL(9,2), rate NUMERIC(5,3), qty BIGINT)")
    return made


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (5, "5.00"),
        (19.99, "19.99"),
        (0.125, "0.13"),
        ("-1.005", "-1.01"),
        (Decimal("2.5"), "2.50"),
        (None, None),
    ],
)
def test_values_are_rounded_half_up(engine, given, wanted):
    engine.insert("p", {"id": 1, "price": given})
    all_rows = engine.subscribe("SELECT price FROM p")
    assert engine.content(all_rows) == [{"price": None if wanted is None else Decimal(wanted)}]


@pytest.mark.parametrize(
    "given", [10**7, 9999999.995, "x", float("nan"), float("inf"), True, [], Decimal("1e400")]
)
def test_what_is_no_such_number_is_a_bad_row(engine, given):
    with pytest.raises(ChangeError, match="column price"):
        engine.insert("p", {"id": 1, "price": given})
    batch = pa.table({"id": [1], "price": [given]}) if isinstance(given, str | float) else None
    if batch is not None:
        with pytest.raises(ChangeError, match="column price"):
            engine.apply("p", batch)


def test_json_keeps_every_digit():
    e = Engine()
    e.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, x DECIMAL(18,2), y DOUBLE, n BIGINT)")
    all_rows = e.subscribe("SELECT x, y, n FROM t")
    e.apply(
        "t", b'{"id": 1, "x": 1234567890123456.78, "y": 0.1, "n": 5.0}\n{"id": 2, "x": 0.1249999999999999999}'
    )
    first, second = sorted(e.content(all_rows), key=lambda row: -row["x"])
    assert first == {"x": Decimal("1234567890123456.78"), "y": 0.1, "n": 5}
    assert second["x"] == Decimal("0.12")
    (delta,) = e.insert("t", {"id": 3, "x": Decimal("-0.05")})
    assert delta.row["x"] == Decimal("-0.05")


def test_json_rows_are_numbers_without_loss():
    from tocsin.model.columns import Rows, Vector

    vector = Vector.of(decimal_type(18, 2), [Decimal("1234567890123456.78"), None, Decimal("-0.05")])
    texts = to_json(Rows.of(x=vector)).to_pylist()
    assert texts == ['{"x":1234567890123456.78}', '{"x":null}', '{"x":-0.05}']
    assert vector.arrow.to_pylist() == vector.to_list()
    assert Vector.from_arrow(vector.type, vector.arrow[1:]).to_list() == vector.to_list()[1:]


def test_arrow_decimals_of_other_scales_are_taken(engine):
    values = [Decimal("19.9900"), Decimal("0.1250"), None]
    for kind in (pa.decimal128(20, 4), pa.decimal256(50, 6)):
        engine.apply("p", pa.table({"_op": ["upsert"] * 3, "id": [1, 2, 3], "price": pa.array(values, kind)}))
        found = {
            row["id"]: row["price"] for row in engine.content(engine.subscribe("SELECT id, price FROM p"))
        }
        assert found == {1: Decimal("19.99"), 2: Decimal("0.13"), 3: None}


def test_conditions_compare_exact_values(engine):
    engine.apply("p", [{"id": 1, "price": "19.99", "rate": 1}, {"id": 2, "price": 20, "rate": "0.125"}])
    ids = {
        "price = 19.99": [1], "price = 19.990": [1], "price >= 19.995": [2], "price = 20": [2],
        "price < 2e1": [1],
        "price IN (1, 19.99)": [1], "price BETWEEN 19.991 AND 20.001": [2], "price != 19.99": [2],
        "price > CAST('19.985' AS DECIMAL(9,3))": [1, 2], "rate = 1": [1], "price + rate > 20.5": [1],
        "price * 1.19 > 23.79": [2], "price * rate = 2.5": [2], "round(price, 1) = 20.0": [1, 2],
        "price > 19.98999999999999999999": [1, 2], "price < 19.98999999999999999999": [],
    }  # fmt: skip
    for condition, wanted in ids.items():
        found = engine.content(engine.subscribe(f"SELECT id FROM p WHERE {condition}"))
        assert sorted(row["id"] for row in found) == wanted, condition


def test_templates_take_doubles_and_decimals(engine):
    engine.insert("p", {"id": 1, "price": "19.99"})
    for number, given in enumerate(
        ([19.99, 19.995, 20.0], [Decimal("19.99"), Decimal("19.995"), Decimal("20")])
    ):
        params = pa.table({"id": [10 * number + 5 + n for n in range(3)], "low": given})
        ids = engine.subscribe_many("SELECT id FROM p WHERE price >= :low", params)
        assert [len(engine.content(id)) for id in ids] == [1, 0, 0]


def test_keys_of_several_scales_join():
    e = Engine()
    e.execute("CREATE TABLE a (k DECIMAL(9,2) PRIMARY KEY); CREATE TABLE b (k DECIMAL(6,1) PRIMARY KEY)")
    e.execute("CREATE TABLE n (k BIGINT PRIMARY KEY); CREATE TABLE x (k DOUBLE PRIMARY KEY)")
    pairs = {t: e.subscribe(f"SELECT a.k FROM a JOIN {t} ON a.k = {t}.k") for t in "bnx"}
    e.apply("a", [{"k": k} for k in ("0.50", "0.10", "3.00", "0.55")])
    e.apply("b", [{"k": k} for k in ("0.5", "3.0", "0.6")])
    e.apply("n", [{"k": 3}, {"k": 0}])
    e.apply("x", [{"k": k} for k in (0.5, 0.1, 3.0, float("inf"))])
    found = {t: sorted(str(row["k"]) for row in e.content(s)) for t, s in pairs.items()}
    assert found == {"b": ["0.50", "3.00"], "n": ["3.00"], "x": ["0.50", "3.00"]}  # no double is one tenth


def test_sums_and_averages_are_exact():
    e = Engine()
    e.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, g BIGINT, x DECIMAL(9,2))")
    whole = e.subscribe("SELECT SUM(x) AS s, AVG(x) AS a, MIN(x) AS low FROM t WHERE g < 5")
    groups = e.subscribe("SELECT g, SUM(x) AS s, AVG(x) AS a FROM t GROUP BY g HAVING SUM(x) > 0.25")
    e.apply("t", [{"id": n, "g": n % 2, "x": "0.10"} for n in range(7)])
    assert e.content(whole) == [{"s": Decimal("0.70"), "a": Decimal("0.100000"), "low": Decimal("0.10")}]
    assert sorted(row["s"] for row in e.content(groups)) == [Decimal("0.30"), Decimal("0.40")]
    e.update("t", {"id": 0, "x": "-0.11"})
    assert e.content(whole)[0]["a"] == Decimal("0.070000")
    e.delete("t", {"id": 1})
    assert e.content(whole)[0]["a"] == Decimal("0.065000")


def test_sums_beyond_64_bits_are_errors():
    e = Engine()
    e.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, x DECIMAL(18,0))")
    e.subscribe("SELECT SUM(x) AS s FROM t WHERE id < 100")
    with pytest.raises(TocsinError, match="DECIMAL overflow"):
        e.apply("t", [{"id": n, "x": 10**18 - 1} for n in range(10)])
    average = e.subscribe("SELECT AVG(x) AS a FROM t WHERE id < 200")
    e.apply("t", [{"id": n, "x": 10**18 - 1} for n in range(9)])
    assert e.content(average) == [{"a": Decimal(10**18 - 1)}]


def test_saved_engines_and_added_columns(engine, tmp_path):
    engine.insert("p", {"id": 1, "price": "19.99"})
    dear = engine.subscribe("SELECT * FROM p WHERE price > 19.985")
    engine.save(tmp_path / "saved")
    loaded = Engine.load(tmp_path / "saved")
    assert loaded.content(dear.id) == engine.content(dear) != []
    loaded.execute("ALTER TABLE p ADD COLUMN IF NOT EXISTS tax DECIMAL(5,1) NOT NULL DEFAULT 2.25")
    assert loaded.content(loaded.subscribe("SELECT tax FROM p")) == [{"tax": Decimal("2.3")}]
    assert "tax DECIMAL(5,1) NOT NULL DEFAULT 2.3" in str(loaded.schema("p"))


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM p WHERE price = 'x'",
        "SELECT * FROM p WHERE CAST(price AS DECIMAL(20,2)) > 1",
        "SELECT * FROM p a JOIN p b ON a.price < b.price",
        "SELECT * FROM p WHERE price LIKE '1%'",
    ],
)
def test_bad_queries_have_a_place_and_a_hint(engine, text):
    with pytest.raises(SqlError) as found:
        engine.subscribe(text)
    assert found.value.position is not None and found.value.hint


def test_conversions_of_columns_are_those_of_single_values():
    for scale in (0, 2, 9, 18):
        values = np.array([0.0, 0.5, 0.1, -0.25, 3.0, 1e17, 2.0**-18, -1e300, np.nan, np.inf])
        units, exact = units_of_doubles(values, scale)
        for value, own, is_exact in zip(values.tolist(), units.tolist(), exact.tolist(), strict=True):
            if is_exact:
                assert Decimal(own).scaleb(-scale) == Decimal(value)
        whole = np.array([0, 1, -5, 10**17 + 1, 2**53 + 1, -(10**18)])
        wanted = [float(Decimal(n).scaleb(-scale)) for n in whole.tolist()]
        assert doubles_of(whole, scale).tolist() == wanted
    assert units_of(json.loads("1e3"), 2) == 100_000


def test_a_sequence_with_a_key_of_decimals_goes_on_after_load(tmp_path: Path) -> None:
    engine = Engine(clock=lambda: datetime(2024, 1, 1, tzinfo=UTC))
    engine.execute("CREATE STREAM h (d DECIMAL(8,2), k BIGINT, n BIGINT)")
    engine.subscribe("SELECT b.n FROM h a FOLLOWED BY h b ON a.d = b.d AND a.k = b.k WITHIN '5 minutes'")
    engine.publish("h", {"d": "1.50", "k": 7, "n": 1})
    engine.save(tmp_path / "saved")
    again = Engine.load(tmp_path / "saved", clock=lambda: datetime(2024, 1, 1, tzinfo=UTC))
    assert [delta.row for delta in again.publish("h", {"d": "1.5", "k": 7, "n": 2})] == [{"n": 2}]
