"""PAYLOAD in definitions of tables: kept wherever a definition goes, and no answer depends on it."""

from __future__ import annotations

from tocsin.engine import Engine
from tocsin.language.ddl import parse_definitions
from tocsin.model.schema import Table
from tocsin.spark.versions.batch import continues, relations_of

PLAIN = "CREATE TABLE pictures (id BIGINT, score DOUBLE, `a photo` STRING, PRIMARY KEY (id))"
TEXT = f"{PLAIN} PAYLOAD (`a photo`)"


def test_it_is_printed_back_and_part_of_the_definition() -> None:
    (table,) = parse_definitions(TEXT)
    assert isinstance(table, Table) and table.payload == ("a photo",)
    assert str(table) == TEXT and parse_definitions(str(table)) == [table]
    (lower,) = parse_definitions(TEXT.replace("PAYLOAD", "payload").replace("`a photo`)", "`a photo` )"))
    assert lower == table
    assert not continues(relations_of(PLAIN)["pictures"], table)


def test_a_column_may_have_its_name() -> None:
    (table,) = parse_definitions("CREATE TABLE t (payload BIGINT PRIMARY KEY, p STRING) PAYLOAD (p)")
    assert isinstance(table, Table) and (table.key, table.payload) == (("payload",), ("p",))


def test_answers_are_those_without_it_and_saved_engines_keep_it(tmp_path) -> None:
    engines = [Engine(), Engine()]
    for engine, text in zip(engines, (PLAIN, TEXT), strict=True):
        engine.execute(text)
        for sql in (
            "SELECT * FROM pictures WHERE score > 3",
            "SELECT id FROM pictures WHERE `a photo` = 'x'",
        ):
            engine.subscribe(sql)
    rows = [{"id": n, "score": n, "a photo": "xy"[n % 2]} for n in range(6)]
    deltas = [[list(engine.insert("pictures", row)) for row in rows] for engine in engines]
    deltas += [[list(engine.update("pictures", {"id": 4, "score": 1}))] for engine in engines]
    assert deltas[0] == deltas[1] and deltas[2] == deltas[3]
    engines[1].save(tmp_path / "saved")
    again = Engine.load(tmp_path / "saved")
    assert str(again.schema("pictures")) == TEXT
    assert again.content(1) == engines[0].content(1)
