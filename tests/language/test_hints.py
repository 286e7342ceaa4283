"""Mistakes of newcomers: each error has a place and a hint, and what the hint says to write works."""

from __future__ import annotations

import pytest

from tocsin.errors import SqlError
from tocsin.language.sql import parse_definitions, parse_query
from tocsin.model.schema import Stream, Table

DDL = """
CREATE STREAM ev;
CREATE STREAM hits (ms DOUBLE, qty BIGINT, price DOUBLE, page STRING, at TIMESTAMP);
CREATE TABLE stocks (symbol STRING, per DOUBLE, risk BIGINT, PRIMARY KEY (symbol));
CREATE TABLE reviews (id BIGINT, symbol STRING, rating DOUBLE, PRIMARY KEY (id))
"""
CATALOG = {made.name: made for made in parse_definitions(DDL) if isinstance(made, Stream | Table)}

CASES = [  # mistake, where, hint, mended as the hint says
    ("SELECT symbol, COUNT(*) FROM stocks", "symbol", "write GROUP BY symbol",
     "SELECT symbol, COUNT(*) FROM stocks GROUP BY symbol"),
    ("SELECT symbol, per FROM stocks GROUP BY symbol", "per", "add it to GROUP BY",
     "SELECT symbol, MAX(per) FROM stocks GROUP BY symbol"),
    ("SELECT COUNT(*) FROM stocks WHERE COUNT(*) > 3", "COUNT(*)", "compare it in HAVING",
     "SELECT COUNT(*) FROM stocks HAVING COUNT(*) > 3"),
    ("SELECT symbol FROM stocks QUALIFY RANK() OVER (ORDER BY per) < 3", "QUALIFY", "QUALIFY ROW_NUMBER()",
     "SELECT symbol FROM stocks QUALIFY ROW_NUMBER() OVER (PARTITION BY symbol ORDER BY per) <= 3"),
    ("SELECT symbol, RANK() OVER (ORDER BY per) FROM stocks", "RANK()",
     "ORDER BY column LIMIT n", "SELECT symbol FROM stocks ORDER BY per LIMIT 3"),
    ("SELECT SUM(per) OVER () FROM stocks", "SUM(per)", "leave out OVER", "SELECT SUM(per) FROM stocks"),
    ("SELECT 'alert' AS kind, ms FROM hits", "'alert'", "leave it out", "SELECT ms FROM hits"),
    ("SELECT 1 FROM hits", "1", "leave it out", "SELECT * FROM hits"),
    ("SELECT 'ms' FROM hits", "'ms'", "backticks", "SELECT `ms` FROM hits"),
    ("SELECT * FORM ev", "FORM", "did you mean FROM?", "SELECT * FROM ev"),
    ("SELECT * FROM ev WHRE a = 1", "WHRE", "did you mean WHERE?", "SELECT * FROM ev WHERE a = 1"),
    ("SELEC * FROM ev", "SELEC", "did you mean SELECT?", "SELECT * FROM ev"),
    ("SELECT * FROM hits WHERE at > now()", "now()", "TIMESTAMP '2025-12-31 23:59:59'",
     "SELECT * FROM hits WHERE at > TIMESTAMP '2025-12-31 23:59:59'"),
    ("SELECT * FROM hits WHERE at > CURRENT_TIMESTAMP - INTERVAL 1 DAY",
     "CURRENT_TIMESTAMP", "TIMESTAMP '2025-12-31 23:59:59'",
     "SELECT * FROM hits WHERE at > TIMESTAMP '2025-12-31 23:59:59' - INTERVAL 1 DAY"),
    ("SELECT * FROM hits WHERE flor(ms) > 3", "flor(ms)", "did you mean 'floor'?",
     "SELECT * FROM hits WHERE floor(ms) > 3"),
    ("SELECT * FROM hits WHERE page + 'x' = at", "page + 'x' = at", "CAST",
     "SELECT * FROM hits WHERE CAST(page || 'x' AS TIMESTAMP) = at"),
    ("SELECT * FROM hits WHERE at - INTERVAL 5 CENTURIES > at", "INTERVAL 5 CENTURIES", "MONTH and YEAR",
     "SELECT * FROM hits WHERE at - INTERVAL 500 YEARS > at"),
    ("SELECT * FROM ev WHERE a LIKE 5", "5", "write LIKE '5'", "SELECT * FROM ev WHERE a LIKE '5'"),
    ("SELECT * FROM (SELECT * FROM hits)", "SELECT", "read its table", "SELECT * FROM hits"),
    ("SELECT * FROM ev LIMIT 10", "LIMIT", "leave out ORDER BY and LIMIT", "SELECT * FROM ev"),
    ("SELECT DISTINCT page FROM hits", "DISTINCT", "leave out DISTINCT", "SELECT page FROM hits"),
    ("SELECT SUM(DISTINCT per) FROM stocks", "SUM(DISTINCT per)", "COUNT(DISTINCT column)",
     "SELECT COUNT(DISTINCT per) FROM stocks"),
    ("SELECT * FROM hits WHERE page MATCHES 'x'", "MATCHES", "write RLIKE",
     "SELECT * FROM hits WHERE page RLIKE 'x'"),
    ("SELECT * FROM hits WHERE page CONTAINS 'x'", "CONTAINS", "write LIKE '%...%'",
     "SELECT * FROM hits WHERE page LIKE '%x%'"),
    ("SELECT * FROM ev WHERE a > 5 && b < 3", "&&", "write AND", "SELECT * FROM ev WHERE a > 5 AND b < 3"),
    ("SELECT * FROM ev WHERE a > 5 || b < 3", "a > 5 || b", "write OR",
     "SELECT * FROM ev WHERE a > 5 OR b < 3"),
    ("SELECT * FROM ev WHERE a = 'it's'", "'", "'it''s'", "SELECT * FROM ev WHERE a = 'it''s'"),
    ("SELECT * FROM hits WHERE ms BETWEEN 5", "5", "BETWEEN low AND high",
     "SELECT * FROM hits WHERE ms BETWEEN 5 AND 6"),
    ("SELECT * FROM hits WHERE (ms > 5", "5", "close the parenthesis", "SELECT * FROM hits WHERE (ms > 5)"),
    ("SELECT * FROM hits WHERE ms > 5 AND", "D", "a condition after AND",
     "SELECT * FROM hits WHERE ms > 5 AND ms < 9"),
    ("SELECT TOP 5 * FROM stocks", "TOP", "ORDER BY column LIMIT n",
     "SELECT * FROM stocks ORDER BY per LIMIT 5"),
    ("SELECT * FROM ev EMIT CHANGES", "EMIT", "leave it out", "SELECT * FROM ev"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "place", "hint", "mended"), CASES, ids=[case[0] for case in CASES])
def test_a_mistake_has_a_hint_that_works(text: str, place: str, hint: str, mended: str) -> None:
    with pytest.raises(SqlError) as caught:
        parse_query(text, CATALOG)
    error = caught.value
    assert error.hint is not None and hint in error.hint
    assert error.position is not None
    assert text[error.position.start : error.position.end].startswith(place)
    parse_query(mended, CATALOG)


def test_rows_are_not_changed_by_sql() -> None:
    with pytest.raises(SqlError, match=r"engine\.insert"):
        parse_query("INSERT INTO hits VALUES (1)", CATALOG)


@pytest.mark.parametrize(
    ("text", "hint", "mended"),
    [
        ("CREATE STREAM s (a BIGINT,)", "leave out the comma", "CREATE STREAM s (a BIGINT)"),
        ("CREATE OR REPLACE STREAM s", "DROP it first, then CREATE it", "DROP STREAM s; CREATE STREAM s"),
        ("ALTER TABLE t DROP COLUMN c", "ADD COLUMN", "ALTER TABLE t ADD COLUMN c BIGINT"),
        ("CREATE STREAM s (a INT64)", "write BIGINT", "CREATE STREAM s (a BIGINT)"),
        ("CREATE TABLE t (a BIGINT)", "add PRIMARY KEY", "CREATE TABLE t (a BIGINT, PRIMARY KEY (a))"),
        ("CREATE STREAM s RETAIN 10 MINUTES", "RETAIN '10 minutes'", "CREATE STREAM s RETAIN '10 minutes'"),
        ("CREATE OR REPLACE STREAM s", "DROP it first", "DROP STREAM s; CREATE STREAM s"),
        ("SELECT * FROM ev", "subscribe", "CREATE STREAM ev"),
    ],
)
def test_a_bad_definition_has_a_hint_that_works(text: str, hint: str, mended: str) -> None:
    with pytest.raises(SqlError) as caught:
        parse_definitions(text)
    assert caught.value.hint is not None and hint in caught.value.hint
    assert caught.value.position is not None
    parse_definitions(mended)


@pytest.mark.parametrize("number", ["1e99999999", "1E400", "1e5000", "9" * 40])
@pytest.mark.parametrize("condition", ["a = {} + 1", "a * {} > 1", "a / {} > 2.5"])
def test_vast_numbers_in_arithmetic_get_the_usual_error(condition: str, number: str) -> None:
    with pytest.raises(SqlError):
        parse_query(f"SELECT * FROM ev WHERE {condition.format(number)}", CATALOG)
