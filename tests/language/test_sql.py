"""Names, answers and texts that no golden file can hold."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

import tocsin
from tocsin.errors import SqlError
from tocsin.language.algebra import Column, Compare, Like, Or
from tocsin.language.deep_stack import with_deep_stack
from tocsin.language.shape import plan
from tocsin.language.sql import Drop, parse_definitions, parse_query
from tocsin.language.template import Parser
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


def nested(opening: str, levels: int) -> str:
    """A subscription with a condition that begins with so many openings."""
    return "SELECT * FROM s WHERE " + opening * levels + "x < 1" + ")" * (opening * levels).count("(")


def alternating(levels: int) -> str:
    parts = (f"x = {i} {'AND' if i % 2 else 'OR'} (" for i in range(levels))
    return "SELECT * FROM s WHERE " + "".join(parts) + "y < 1" + ")" * levels


@pytest.mark.parametrize(
    "text",
    [
        nested("(", 500),
        nested("NOT ", 500),
        nested("NOT (", 500),
        nested("NOT (y = 1 AND ", 500),
        alternating(500),
    ],
    ids=["parentheses", "NOT", "NOT in parentheses", "NOT of AND", "AND and OR"],
)
def test_nesting_to_500_levels(text: str) -> None:
    limit = sys.getrecursionlimit()
    engine = tocsin.Engine()
    engine.execute("CREATE STREAM s")
    subscription = engine.subscribe(text)
    query = engine.query(subscription)
    assert plan(parse_query(str(query), CATALOG)).filters == plan(query).filters
    assert len(engine.publish("s", {"x": 0, "y": 0})) == 1
    assert sys.getrecursionlimit() == limit


def test_with_deep_stack_passes_errors_on() -> None:
    def fall(levels: int) -> None:
        if levels == 0:
            raise KeyError("the bottom")
        fall(levels - 1)

    with pytest.raises(KeyError, match="the bottom"):
        with_deep_stack(fall, 5000)
    with pytest.raises(RecursionError):
        with_deep_stack(fall, 10**6)


@pytest.mark.parametrize(
    "read", [Parser(CATALOG).parse, lambda text: parse_query(text, CATALOG), parse_definitions]
)
def test_a_text_is_text(read: Callable[[Any], object]) -> None:
    text = "SELECT *\nFROM a WHERE k = 'é\ud800'"
    with pytest.raises(SqlError) as caught:
        read(text)
    error = caught.value
    assert error.fact == "\\ud800 is half of a character"
    assert error.position is not None
    assert (error.position.line, error.position.start) == (2, text.index("\ud800"))
    assert str(error).encode("utf-8"), "it can be printed"
    for what in (None, 5, b"SELECT"):
        with pytest.raises(SqlError, match=f"is text, not {type(what).__name__}"):
            read(what)


@pytest.mark.parametrize(
    ("condition", "normal"),
    [
        ("m < 1{0}", "c: NOT m IS NULL"),
        ("m > -1{0}", "c: NOT m IS NULL"),
        ("m IN (5, 1{0})", "c: m = 5"),
        ("m BETWEEN 5 AND 1{0}", "c: m >= 5"),
        ("m < CAST('1{0}' AS BIGINT)", "c: NOT m IS NULL"),
    ],
)
def test_whole_numbers_beyond_doubles(condition: str, normal: str) -> None:
    text = "SELECT * FROM c WHERE " + condition.format("0" * 400)
    assert plan(parse_query(text, CATALOG)).normal == normal
    assert plan(Parser(CATALOG).parse(text)).normal == normal


def test_bands_beyond_doubles() -> None:
    text = "SELECT a.v FROM a, b WHERE a.v - b.w < 1.5 + 1" + "0" * 400
    with pytest.raises(SqlError, match="the ends of a band are finite numbers"):
        parse_query(text, CATALOG)


def test_many_alternatives_take_linear_time() -> None:
    """Each is looked at a few times, not once per other."""
    query = parse_query(
        "SELECT * FROM a WHERE " + " OR ".join(f"k LIKE '%{i}%'" for i in range(1000)), CATALOG
    )
    looks = 0
    equal = Like.__eq__

    def counted(self: Like, other: object) -> bool:
        nonlocal looks
        looks += 1
        return equal(self, other)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Like, "__eq__", counted)
        (form,) = plan(query).filters
    assert len(form.groups[0]) == 1000
    assert looks < 50 * 1000


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
        (nested("(", 501), "the text is nested too deeply: at most 500 levels are supported", "("),
        (nested("NOT ", 501), "the text is nested too deeply: at most 500 levels are supported", "NOT"),
        (
            "SELECT * FROM s WHERE x < 1" + "0" * 4300,
            "a whole number has at most 4,300 digits",
            "1" + "0" * 4300,
        ),
        (f"SELECT * FROM s WHERE x < CAST(1{'0' * 400} AS DOUBLE)", "the number is out of range", None),
        ("SELECT /*+ BROADCAST(a) */ * FROM a", "A HINT is not supported", "SELECT"),
        ("CREATE TABLE t (a BIGINT PRIMARY KEY)", "a subscription is a SELECT", "CREATE"),
    ],
)
def test_texts_that_cannot_be_read(text: str, fact: str, at: str | None) -> None:
    with pytest.raises(SqlError) as caught:
        parse_query(text, CATALOG)
    error = caught.value
    assert error.fact == fact
    assert error.position is not None
    if at is not None:
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
