"""Bulk forms: the same queries as single subscriptions, and bad rows with their numbers."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest

from tocsin.errors import SqlError, SubscriptionError
from tocsin.language import bulk as bulk_module
from tocsin.language.bulk import Bulk, expand_predicates, expand_template
from tocsin.language.shape import plan
from tocsin.language.sql import parse_definitions, parse_query
from tocsin.model.schema import Stream, Table

DDL = """
CREATE STREAM hits (page STRING, ms BIGINT, load DOUBLE, bot BOOLEAN, day DATE, at TIMESTAMP);
CREATE TABLE a (x BIGINT PRIMARY KEY, v DOUBLE); CREATE TABLE b (y BIGINT PRIMARY KEY, w DOUBLE);
CREATE STREAM open
"""
CATALOG = {d.name: d for d in parse_definitions(DDL) if isinstance(d, Table | Stream)}


def wheres(bulk: Bulk) -> list[str]:
    return [str(query.where) for query in bulk.queries]


def test_a_template_gives_the_queries_of_its_texts() -> None:
    params = pa.table({
        "id": [5, 6], "subscriber": ["ann", None], "p": ["x%", "it's"], "most": [10, None],
        "load": [-0.0, math.nan], "bot": [True, False], "day": [date(2013, 1, 31), None],
        "at": ["2013-01-31 05:00:00", "2013-02-01"],
    })  # fmt: skip
    text = (
        "SELECT page FROM hits WHERE page LIKE :p AND ms <= :most AND load != :load AND bot = :bot "
        "AND day IN (:day, '2013-01-01') AND at > :at"
    )
    bulk = expand_template(text, params, CATALOG)
    assert (bulk.ids, bulk.subscribers, bulk.bad, len(bulk)) == ([5, 6], ["ann", None], (), 2)
    literals = [
        ("'x%'", "10", "0.0", "TRUE", "DATE '2013-01-31'", "'2013-01-31 05:00:00'"),
        ("'it\\'s'", "NULL", "CAST('NaN' AS DOUBLE)", "FALSE", "NULL", "'2013-02-01'"),
    ]
    for (_, _, sql, query), values in zip(bulk.rows(), literals, strict=True):
        single = text
        for name, value in zip((":p", ":most", ":load", ":bot", ":day", ":at"), values, strict=True):
            single = single.replace(name + " ", value + " ").replace(name + ",", value + ",")
            single = single.removesuffix(name) + value if single.endswith(name) else single
        assert query == parse_query(single, CATALOG)
        assert parse_query(sql, CATALOG) == query


def test_a_template_is_parsed_once_per_combination_of_nulls(monkeypatch: pytest.MonkeyPatch) -> None:
    parses = []
    trace = bulk_module.trace_query
    monkeypatch.setattr(bulk_module, "trace_query", lambda *args: parses.append(args) or trace(*args))
    params = pa.table(
        {"id": list(range(100)), "m": [i if i % 3 else None for i in range(100)], "z": [1.5] * 100}
    )
    bulk = expand_template("SELECT * FROM hits WHERE ms > :m AND load < :z", params, CATALOG)
    assert len(parses) == 2
    assert wheres(bulk)[:2] == ["ms > NULL AND load < 1.5", "ms > 1 AND load < 1.5"]


def test_parameters_elsewhere() -> None:
    """Ends of bands, LIMIT, and two constants beside each other."""
    params = pa.table({"id": [1, 2, 3], "lo": [1, 1, 2], "k": [3, 4, 0]})
    band = expand_template(
        "SELECT a.x FROM a, b WHERE a.x - b.y BETWEEN :lo AND 9 AND v > :k", params, CATALOG
    )
    assert [str(q.joins[0]) for q in band.queries][2] == "a.x - b.y >= 2 AND a.x - b.y <= 9"
    assert wheres(band) == ["a.v > 3", "a.v > 4", "a.v > 0"]
    first = expand_template("SELECT * FROM a ORDER BY v LIMIT :k", params, CATALOG)
    assert [q.limit for q in first.queries] == [3, 4]
    assert first.bad == ((2, "LIMIT must be above 0"),)
    folded = expand_template("SELECT * FROM a WHERE :lo = 1 AND x > :k", params, CATALOG)
    assert wheres(folded) == ["TRUE AND x > 3", "TRUE AND x > 4", "FALSE AND x > 0"]


def test_arrow_types_of_parameters() -> None:
    stamps = pa.array([datetime(2013, 1, 31, 5, tzinfo=UTC)], pa.timestamp("ns", "Europe/Berlin"))
    params = pa.table({
        "id": pa.array([1], pa.uint8()), "at": stamps, "day": pa.array([date(2013, 1, 31)], pa.date64()),
        "page": pa.array(["x"]).dictionary_encode(), "n": pa.nulls(1), "subscriber": pa.nulls(1),
    })  # fmt: skip
    text = "SELECT * FROM hits WHERE at = :at AND day = :day AND page = :page AND ms = :n"
    expected = "at = TIMESTAMP '2013-01-31 05:00:00' AND day = DATE '2013-01-31' AND page = 'x' AND ms = NULL"
    assert wheres(expand_template(text, params.to_batches()[0], CATALOG)) == [expected]
    with pytest.raises(SubscriptionError, match="column 'n' is list"):
        expand_template("SELECT * FROM hits WHERE ms = :n", pa.table({"id": [1], "n": [[1]]}), CATALOG)


def test_bad_rows_of_a_template() -> None:
    params = pa.table({"id": [1, 2, 2, None, 5], "at": ["2013-01-01", "x", "2013-01-01", "2013-01-01", None]})
    bulk = expand_template("SELECT * FROM hits WHERE at > :at", params, CATALOG)
    assert bulk.ids == [1, 5]
    reasons = ["'x' is not a TIMESTAMP", "the id 2 occurs twice", "the id is null"]
    assert [tuple(row) for row in bulk.bad] == list(zip([1, 2, 3], reasons, strict=True))
    with pytest.raises(
        SubscriptionError, match="3 rows are bad, so no row was added; row 1: 'x' is not a"
    ) as caught:
        list(bulk.rows())
    assert caught.value.rows == bulk.bad


def test_a_type_that_never_fits_is_reported_for_a_limited_number_of_rows() -> None:
    count = bulk_module.MAX_FAILURES + 50
    params = pa.table({"id": list(range(count)), "p": ["a"] * count})
    bulk = expand_template("SELECT * FROM hits WHERE ms > :p", params, CATALOG)
    assert len(bulk.bad) == count
    assert bulk.bad[0].reason == "ms is a BIGINT and cannot be compared with a STRING"
    assert "too many rows before it" in bulk.bad[-1].reason


@pytest.mark.parametrize(
    ("template", "match"),
    [
        ("SELECT * FROM hits WHERE nope > :p", "there is no column 'nope' in hits"),
        ("SELECT * FROM hits WHERE ms > :q", "there is no column for the parameter 'q'"),
        ("SELECT * FROM hits WHERE", "syntax error"),
    ],
)
@pytest.mark.parametrize("rows", [0, 2])
def test_a_wrong_template_is_one_error(template: str, match: str, rows: int) -> None:
    params = pa.table({"id": pa.array(range(rows), pa.int64()), "p": pa.array(range(rows), pa.int64())})
    with pytest.raises(SqlError, match=match):
        expand_template(template, params, CATALOG)


@pytest.mark.parametrize(
    ("table", "match"),
    [
        (pa.table({"p": [1]}), "there is no column 'id'"),
        (pa.table({"id": ["a"]}), "column 'id' is string"),
        (pa.table({"id": pa.array([2**63], pa.uint64())}), "an id does not fit"),
        (pa.table({"id": [1], "subscriber": [5]}), "column 'subscriber' is int64"),
        ({"id": [1]}, "a pyarrow Table is needed, not dict"),
    ],
)
def test_tables_that_are_wrong(table: Any, match: str) -> None:
    with pytest.raises(SubscriptionError, match=match):
        expand_template("SELECT * FROM hits", table, CATALOG)
    with pytest.raises(SubscriptionError, match=match):
        expand_predicates(CATALOG["hits"], table)


def part(attribute: str | None, op: str | None, **operands: Any) -> dict[str, Any]:
    return {"attribute": attribute, "op": op, **operands}


@pytest.mark.parametrize(
    ("predicate", "sql"),
    [
        (part("ms", "=", number=5.0), "ms = 5"),
        (part("MS", "!=", text="9007199254740993"), "ms != 9007199254740993"),
        (part("load", "<", number=2.5), "load < 2.5"),
        (part("load", ">=", text="NaN"), "load >= CAST('NaN' AS DOUBLE)"),
        (part("bot", "=", text="true"), "bot = TRUE"),
        (part("day", "<=", text="2013-01-31"), "day <= DATE '2013-01-31'"),
        (part("at", ">", text="2013-01-31 05:00:00"), "at > TIMESTAMP '2013-01-31 05:00:00'"),
        (part("ms", "between", number=1.0, high=2.5), "ms BETWEEN 1 AND 2.5"),
        (part("page", "not_between", text="a", high_text="b"), "NOT page BETWEEN 'a' AND 'b'"),
        (part("ms", "in", values=["1", "2", None]), "ms IN (1, 2, NULL)"),
        (part("page", "not_in", values=["a"]), "NOT page IN ('a')"),
        (part("page", "prefix", text="50%"), "page LIKE '50\\\\%%'"),
        (part("page", "suffix", text="a_b"), "page LIKE '%a\\\\_b'"),
        (part("page", "contains", text="\\"), "page LIKE '%\\\\\\\\%'"),
        (part("page", "rlike", text="^a+$"), "page RLIKE '^a+$'"),
        (part("ms", "is_null"), "ms IS NULL"),
        (part("ms", "is_not_null", number=5.0), "NOT ms IS NULL"),
    ],
)
def test_operators_of_predicates(predicate: dict[str, Any], sql: str) -> None:
    bulk = expand_predicates(CATALOG["hits"], pa.table({"id": [1], "predicates": [[predicate]]}))
    assert (wheres(bulk), bulk.bad) == ([sql], ())
    assert bulk.queries == [parse_query(f"SELECT * FROM hits WHERE {sql}", CATALOG)]


@pytest.mark.parametrize(
    ("predicate", "reason"),
    [
        (None, "a predicate is null"),
        (part(None, "="), "a predicate has no attribute"),
        (part("ms", None), "a predicate has no op"),
        (part("ms", "=="), "there is no op '=='"),
        (part("mss", "=", number=1.0), "there is no column 'mss' in hits: did you mean 'ms'?"),
        (part("ms", "="), "= needs a number or a text"),
        (part("ms", "=", text="x"), "ms is a BIGINT, and 'x' is none"),
        (part("page", "=", number=1.0), "page is a STRING and cannot be compared with a number"),
        (part("ms", "between", number=1.0), "between needs number and high, or text and high_text"),
        (part("ms", "between", text="1"), "between needs a number or a text"),
        (part("ms", "in"), "in needs values"),
        (part("ms", "in", values=[]), "in needs values"),
        (part("ms", "prefix", text="1"), "prefix is for text, and ms is a BIGINT"),
        (part("page", "contains"), "contains needs a text"),
        (part("page", "rlike", text="("), "the pattern is not valid: missing ): ("),
        (part("bot", "=", text="yes"), "bot is a BOOLEAN, and 'yes' is none"),
    ],
)
def test_bad_predicates(predicate: dict[str, Any] | None, reason: str) -> None:
    fine = part("load", "<", number=1.0)
    table = pa.table({"id": [1, 2], "predicates": [[fine, predicate], [fine]]})
    bulk = expand_predicates(CATALOG["hits"], table)
    assert bulk.ids == [2]
    assert [tuple(row) for row in bulk.bad] == [(0, reason)]


def test_predicates_of_open_streams_and_empty_lists() -> None:
    both = [part("Any Name", "=", number=1.0, text=None), part("b", "=", number=None, text="1")]
    table = pa.table({"id": [1, 2, 3], "predicates": [both, [], None]})
    bulk = expand_predicates(CATALOG["open"], table)
    assert wheres(bulk) == ["`Any Name` = 1.0 AND b = '1'", "TRUE"]
    assert [tuple(row) for row in bulk.bad] == [(2, "the list of predicates is null")]
    empty = expand_predicates(CATALOG["open"], pa.table({"id": [1], "predicates": [[]]}))
    assert wheres(empty) == ["TRUE"]


@pytest.mark.parametrize(
    ("column", "match"),
    [
        (["a"], "column 'predicates' is string"),
        ([[{"attribute": 1, "op": "="}]], "field 'attribute' of 'predicates' is int64"),
        ([[{"attribute": "ms", "op": "=", "number": "1"}]], "field 'number' of 'predicates' is string"),
        ([[{"attribute": "ms", "op": "in", "values": "1"}]], "field 'values' of 'predicates' is string"),
    ],
)
def test_columns_of_predicates_that_are_wrong(column: list[Any], match: str) -> None:
    with pytest.raises(SubscriptionError, match=match):
        expand_predicates(CATALOG["hits"], pa.table({"id": [1], "predicates": column}))
    with pytest.raises(SubscriptionError, match="there is no column 'predicates'"):
        expand_predicates(CATALOG["hits"], pa.table({"id": [1]}))


def test_times_outside_the_calendar_are_bad_rows() -> None:
    late = 2**62 // 10**6
    params = pa.table({
        "id": [1, 2, 3], "at": pa.array([0, late, None], pa.timestamp("s", "Nowhere/Land")),
        "day": pa.array([0, 1, 2**30], pa.date32()),
    })  # fmt: skip
    bulk = expand_template("SELECT * FROM hits WHERE at = :at AND day = :day", params, CATALOG)
    assert wheres(bulk) == ["at = TIMESTAMP '1970-01-01 00:00:00' AND day = DATE '1970-01-01'"]
    assert bulk.bad == (
        (1, "column at: not between the years 1 and 9999"),
        (2, "column day: not between the years 1 and 9999"),
    )


def test_names_given_twice() -> None:
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array([3])], ["id", "m", "m"])
    with pytest.raises(SubscriptionError, match="column 'm' occurs twice"):
        expand_template("SELECT * FROM hits WHERE ms = :m", twice, CATALOG)
    with pytest.raises(SubscriptionError, match="column 'm' occurs twice"):
        expand_predicates(CATALOG["hits"], twice)
    struct = pa.StructArray.from_arrays([pa.array(["ms"])] * 2, ["attribute", "attribute"])
    lists = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), struct)
    with pytest.raises(SubscriptionError, match="field 'attribute' of 'predicates' occurs twice"):
        expand_predicates(CATALOG["hits"], pa.table({"id": [1], "predicates": lists}))


def test_whole_numbers_that_are_no_doubles() -> None:
    numbers = [2**53, 2**53 + 1, -(2**53) - 1, 2**60, None]
    predicates = [[{"attribute": "ms", "op": ">", "number": n, "text": "7"}] for n in numbers]
    for kind, count in ((pa.int64(), 5), (pa.uint64(), 2)):
        struct = pa.struct(
            [("attribute", pa.string()), ("op", pa.string()), ("number", kind), ("text", pa.string())]
        )
        table = pa.table({"id": range(count), "predicates": pa.array(predicates[:count], pa.list_(struct))})
        bulk = expand_predicates(CATALOG["hits"], table)
        assert bulk.bad[0] == (1, "number 9007199254740993 is not exactly a double: give it as text")
        assert bulk.ids == [i for i in range(count) if i not in (1, 2)]
        assert wheres(bulk)[0] == "ms > 9007199254740992"
    huge = expand_predicates(CATALOG["hits"], _texts(str(10**400)))
    assert wheres(huge) == [f"ms < {10**400}"]
    assert plan(huge.queries[0]).normal == "hits: NOT ms IS NULL"
    assert expand_predicates(CATALOG["hits"], _texts("1" * 4301)).bad[0].row == 0


def _texts(text: str) -> Any:
    return pa.table({"id": [1], "predicates": [[{"attribute": "ms", "op": "<", "text": text}]]})


def test_a_template_is_text() -> None:
    params = pa.table({"id": [1]})
    with pytest.raises(SqlError, match="a template is text, not int"):
        expand_template(5, params, CATALOG)  # type: ignore[arg-type]
    with pytest.raises(SqlError, match="is half of a character"):
        expand_template("SELECT * FROM hits WHERE page = '\ud800'", params, CATALOG)
