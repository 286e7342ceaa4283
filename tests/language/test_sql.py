"""Names, answers and texts that no golden file can hold."""

from __future__ import annotations

import pytest

from tocsin.errors import SqlError
from tocsin.language.algebra import Column, Compare, Or
from tocsin.language.sql import Drop, parse_definitions, parse_query
from tocsin.model.schema import Stream, Table, Type

DDL = """
CREATE TABLE a (id BIGINT PRIMARY KEY, k STRING, v DOUBLE);
CREATE TABLE b (id BIGINT PRIMARY KEY, k STRING, w DOUBLE);
CREATE TABLE c (Id BIGINT, k STRING, m BIGINT, PRIMARY KEY (Id, k)); CREATE STREAM s; -- the end
"""
CATALOG = {d.name: d for d in parse_definitions(DDL) if isinstance(d, Table | Stream)}


def answer(text: str) -> list[str]:
    return [item.name for item in parse_query(text, CATALOG).items]


def test_definitions() -> None:
    assert [type(d) for d in CATALOG.values()] == [Table, Table, Table, Stream]
    assert CATALOG["c"].key == ("Id", "k")
    assert parse_definitions("drop stream s; DROP TABLE `A b`") == [
        Drop("STREAM", "s"),
        Drop("TABLE", "A b", True),
    ]
    assert str(Drop("TABLE", "A b")) == "DROP TABLE `A b`"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("SELECT * FROM a", ["id", "k", "v"]),
        ("SELECT * FROM a JOIN b USING (k)", ["k", "a.id", "v", "b.id", "w"]),
        ("SELECT * FROM a JOIN b USING (id, k)", ["id", "k", "v", "w"]),
        ("SELECT * FROM a JOIN b ON a.k = b.k", ["a.id", "a.k", "v", "b.id", "b.k", "w"]),
        ("SELECT * FROM a JOIN b USING (k) JOIN c USING (id)", ["id", "k"]),
        ("SELECT * FROM a JOIN b USING (k) JOIN c USING (k)", ["k", "a.id", "v", "b.id", "w", "c.Id", "m"]),
        ("SELECT * FROM a x JOIN a y ON x.k = y.k", ["x.id", "x.k", "x.v", "y.id", "y.k", "y.v"]),
        ("SELECT x.v, y.* FROM a x JOIN a y ON x.k = y.k", ["x.v", "id", "k", "y.v"]),
        ("SELECT x.v AS one, y.v FROM a x JOIN a y ON x.k = y.k", ["one", "v"]),
        ("SELECT K, ID FROM a", ["k", "id"]),
        ("SELECT COUNT(*), Count(v), AVG(v), min(ID) FROM a", ["count(1)", "count(v)", "avg(v)", "min(id)"]),
        ("SELECT x, X FROM s", ["x", "X"]),
        ("SELECT * FROM s", []),
    ],
)
def test_names_of_the_answer(text: str, names: list[str]) -> None:
    if names == ["id", "k"]:  # id is in two tables by then
        with pytest.raises(SqlError, match="'id' is in more than one table"):
            answer(text)
    else:
        assert answer(text) == names


def test_a_merged_column_needs_no_qualifier() -> None:
    query = parse_query("SELECT k FROM a JOIN b USING (k) WHERE k = 'x'", CATALOG)
    assert query.where == Compare(Column("k", Type.STRING, "a"), "=", "x")


def test_long_chains_cost_no_stack() -> None:
    text = "SELECT * FROM s WHERE " + " OR ".join(f"x{i} = {i}" for i in range(3000))
    where = parse_query(text, CATALOG).where
    assert isinstance(where, Or)
    assert len(where.args) == 3000


@pytest.mark.parametrize(
    ("text", "fact", "at"),
    [
        ("", "the text is empty", ""),
        (" ; ", "the text is empty", " ;"),
        ("-- nothing", "the text is empty", "-- nothing"),
        ("SELECT * FROM a; SELECT * FROM b", "one subscription is one statement", "SELECT"),
        ("SELECT * FROM a WHERE k = 'x", "this string is not closed", "'"),
        ("SELECT * FROM a WHERE `k = 'x'", "this quoted name is not closed", "`"),
        ("SELECT * FROM a /* WHERE", "this comment is not closed", "/*"),
        ("SELECT * FROM a WHERE k = 'it''s\\' AND", "this string is not closed", "'"),
        ("SELECT * FROM s WHERE " + "(" * 5000, "the text is nested too deeply", "("),
        ("SELECT /*+ BROADCAST(a) */ * FROM a", "A HINT is not supported", "SELECT"),
        ("CREATE TABLE t (a BIGINT PRIMARY KEY)", "a subscription is a SELECT", "CREATE"),
    ],
)
def test_texts_that_cannot_be_read(text: str, fact: str, at: str) -> None:
    with pytest.raises(SqlError) as caught:
        parse_query(text, CATALOG)
    error = caught.value
    assert error.fact == fact
    assert error.position is not None
    assert text[error.position.start : error.position.end] == at


def test_definitions_that_cannot_be_read() -> None:
    with pytest.raises(SqlError, match="the text is empty"):
        parse_definitions("  ")
    with pytest.raises(SqlError, match="a definition is CREATE TABLE"):
        parse_definitions("SELECT * FROM a")


def test_positions_are_right_on_later_lines() -> None:
    with pytest.raises(SqlError) as caught:
        parse_query("SELECT *\nFROM a\n\tWHERE vv > 5 -- value\n", CATALOG)
    assert str(caught.value).splitlines()[1:3] == [
        "  line 3, column 8:  WHERE vv > 5 -- value",
        " " * 27 + "^^",
    ]
