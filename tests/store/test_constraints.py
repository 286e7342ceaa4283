"""Sizes, NOT NULL, DEFAULT, IF [NOT] EXISTS and ALTER TABLE ADD COLUMN, on an engine with subscriptions."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tocsin
from tocsin.errors import CatalogError, ChangeError

DDL = """CREATE TABLE t (k INT PRIMARY KEY, name VARCHAR(5) NOT NULL DEFAULT 'none', n SMALLINT,
x DOUBLE DEFAULT 2.5,
note TEXT, ok BOOL NOT NULL)"""


@pytest.fixture
def engine() -> tocsin.Engine:
    made = tocsin.Engine()
    made.execute(DDL)
    return made


def test_a_definition_prints_as_it_reads(engine: tocsin.Engine) -> None:
    other = tocsin.Engine()
    other.execute(str(engine.schema("t")))
    assert other.schema("t") == engine.schema("t")
    assert "name VARCHAR(5) NOT NULL DEFAULT 'none'" in str(engine.schema("t"))


def test_a_new_row_has_the_defaults(engine: tocsin.Engine) -> None:
    engine.subscribe("SELECT * FROM t")
    row = {"k": 1, "name": "none", "n": None, "x": 2.5, "note": None, "ok": True}
    assert [d.row for d in engine.insert("t", {"k": 1, "ok": True})] == [row]
    assert [d.row for d in engine.apply("t", pa.table({"k": [2], "ok": [True]}))] == [{**row, "k": 2}]
    assert [d.row for d in engine.insert("t", {"k": 3, "ok": True, "x": None})] == [
        {**row, "k": 3, "x": None}
    ]
    assert [d.row for d in engine.upsert("t", {"k": 1, "n": 5})] == [row, {**row, "n": 5}]


@pytest.mark.parametrize(
    ("op", "row", "reason"),
    [
        ("insert", {"k": 2}, "ok is NOT NULL"),
        ("insert", {"k": 2, "ok": None}, "ok is NOT NULL"),
        ("insert", {"k": 2, "ok": True, "name": "longer"}, "longer than VARCHAR"),
        ("insert", {"k": 2, "ok": True, "n": 40_000}, "range of SMALLINT"),
        ("insert", {"k": 2**40, "ok": True}, "range of INT"),
        ("update", {"k": 1, "name": None}, "name is NOT NULL"),
        ("upsert", {"k": 5, "name": "a"}, "lacks a column that is NOT NULL"),
    ],
)
def test_a_bad_row_changes_nothing(engine: tocsin.Engine, op: str, row: dict[str, Any], reason: str) -> None:
    engine.insert("t", {"k": 1, "ok": True})
    before = engine.rows("t")
    with pytest.raises(ChangeError, match=reason):
        getattr(engine, op)("t", row)
    bad: list[Any] = []
    engine.apply("t", [{"_op": op, **row}, {"_op": "update", "k": 1, "ok": True}], dead_letters=bad)
    assert [one.row for one in bad] == [0] and reason in bad[0].reason
    assert engine.rows("t").equals(before)
    engine._check()


def test_events_have_defaults_in_every_form() -> None:
    engine = tocsin.Engine()
    engine.execute("CREATE STREAM s (a INT DEFAULT 5, b STRING NOT NULL)")
    engine.subscribe("SELECT * FROM s WHERE a = 5")
    expected = [{"a": 5, "b": "x"}]
    assert [d.row for d in engine.publish("s", {"b": "x"})] == expected
    assert [d.row for d in engine.publish_json("s", '{"b": "x"}')] == expected
    assert [d.row for d in engine.apply("s", b'{"b": "x"}\n')] == expected
    assert [d.row for d in engine.apply("s", pa.table({"b": ["x"]}))] == expected
    with pytest.raises(ChangeError, match="b is NOT NULL"):
        engine.publish("s", {"a": 1})


def test_if_exists(engine: tocsin.Engine) -> None:
    before = engine.schema("t")
    engine.execute("CREATE TABLE IF NOT EXISTS T (k BIGINT PRIMARY KEY); DROP TABLE IF EXISTS nothing")
    assert engine.schema("t") is before
    engine.execute("DROP TABLE IF EXISTS t; CREATE STREAM IF NOT EXISTS t (a BIGINT)")
    assert str(engine.schema("t")) == "CREATE STREAM t (a BIGINT)"


def test_columns_are_added_while_subscriptions_are_active(engine: tocsin.Engine, tmp_path: Path) -> None:
    engine.apply("t", [{"k": k, "ok": True} for k in range(5)])
    shown = engine.subscribe("SELECT * FROM t WHERE k < 3")
    top = engine.subscribe("SELECT k, x FROM t ORDER BY k DESC LIMIT 2")
    before = engine.content(shown), engine.content(top)
    engine.execute("ALTER TABLE t ADD COLUMN extra BIGINT DEFAULT 7")
    engine.execute("ALTER TABLE T ADD (p STRING, q DATE DEFAULT DATE '2024-01-01')")
    engine.execute("ALTER TABLE t ADD COLUMN IF NOT EXISTS extra STRING")
    assert (engine.content(shown), engine.content(top)) == before
    added = engine.subscribe("SELECT k, extra, p, q FROM t WHERE extra >= 7 AND k = 1")
    assert engine.content(added) == [{"k": 1, "extra": 7, "p": None, "q": date(2024, 1, 1)}]
    joined = engine.subscribe(
        "SELECT t.k, u.k AS uk FROM t JOIN t u ON t.extra = u.extra WHERE u.extra * 2 > 17"
    )
    engine.update("t", {"k": 1, "extra": 9})
    engine.insert("t", {"k": 9, "ok": False, "extra": 9})
    assert sorted((row["k"], row["uk"]) for row in engine.content(joined)) == [(1, 1), (1, 9), (9, 1), (9, 9)]
    engine._check()
    engine.save(tmp_path / "saved")
    loaded = tocsin.Engine.load(tmp_path / "saved")
    for one in (shown, top, added, joined):
        assert sorted(map(str, loaded.content(one.id))) == sorted(map(str, engine.content(one)))


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("ALTER TABLE t ADD COLUMN Name STRING", "has a column Name already"),
        ("ALTER TABLE t ADD COLUMN z BIGINT NOT NULL", "has rows"),
        ("ALTER TABLE s ADD COLUMN z BIGINT", "is a stream"),
        ("ALTER TABLE u ADD COLUMN z BIGINT", "there is no stream or table 'u'"),
    ],
)
def test_what_cannot_be_added(engine: tocsin.Engine, text: str, fact: str) -> None:
    engine.execute("CREATE STREAM s (a BIGINT)")
    engine.insert("t", {"k": 1, "ok": True})
    before = engine.schemas()
    with pytest.raises(CatalogError, match=fact):
        engine.execute(f"CREATE STREAM other; {text}")
    assert engine.schemas() == before
