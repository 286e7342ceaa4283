"""Options of queries: printed and read back, in templates, from Python, rejected where nothing answers."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.engine import Engine
from tocsin.errors import SqlError, SubscriptionError
from tocsin.language.algebra import Query
from tocsin.language.options import NO_OPTIONS, Budget, Options
from tocsin.language.sql import parse_query
from tocsin.language.template import Parser
from tocsin.language.with_options import POLICIES
from tocsin.limits.options import Every, Memory, OnDemand, When, Window, check_supported, with_options

DDL = """
CREATE STREAM hits (page STRING, ms DOUBLE, at TIMESTAMP); CREATE STREAM sales (page STRING, at TIMESTAMP);
CREATE TABLE pages (page STRING PRIMARY KEY, owner STRING)
"""
PAIR = "SELECT h.ms FROM hits h JOIN sales s ON h.page = s.page"


def engine() -> Engine:
    made = Engine()
    made.execute(DDL)
    return made


CATALOG = {relation.name: relation for relation in engine().schemas()}

spans = st.integers(1, 10**15)
budgets = st.builds(Budget, st.integers(1, 2**50), st.booleans())
optional = st.none()
windows = st.builds(
    Options, window=spans, time=optional | st.just("at"), late=optional | spans, memory=optional | budgets
)
words = st.text(st.characters(codec="utf-8"), min_size=1).filter(str.strip)
refreshes = st.builds(
    Options,
    refresh=st.just("on demand"),
    within=optional | spans,
    group=optional | words,
    group_memory=optional | budgets,
    policy=optional | st.sampled_from(POLICIES["refresh"]),
)
conditions = st.builds(
    replace,
    refreshes,
    refresh=st.just("when"),
    when=st.sampled_from(["changes > 5", "rows > 1 OR age > 1 day"]),
    check=optional | spans,
) | st.builds(replace, refreshes, refresh=st.just("every"), every=spans)


@given(windows | refreshes | conditions)
def test_options_are_printed_as_they_are_read(options: Options) -> None:
    query = replace(parse_query(PAIR + " WITH (window = '1 day')", CATALOG), options=options)
    if options.window is None:
        query = replace(parse_query("SELECT page FROM pages", CATALOG), options=options)
    parser = Parser(CATALOG)
    assert parse_query(str(query), CATALOG) == query
    assert parser.parse(str(query)) == parser.parse(str(query)) == query


def test_texts_that_differ_in_options_have_different_templates() -> None:
    parser = Parser(CATALOG)
    text = "SELECT * FROM hits WHERE ms > {} WITH (window = '{} minutes')"
    found = {(n, m): parser.parse(text.format(n, m)) for n in (1, 2) for m in (10, 20)}
    assert parser.parsed == 2
    for (n, m), query in found.items():
        assert query == parse_query(text.format(n, m), CATALOG)
        assert query.options.window == m * 60_000_000
    assert parser.parse("SELECT * FROM hits WHERE ms > 3").options is NO_OPTIONS


def test_python_gives_the_same_query() -> None:
    parser = Parser(CATALOG)

    def same(sql: str, text: str, **options: object) -> None:
        assert parser.parse(with_options(sql, **options)) == parser.parse(text)

    same(
        "SELECT * FROM hits -- all\n;", "SELECT * FROM hits WITH (window = '10 minutes')", window="10 minutes"
    )
    same(
        "SELECT * FROM hits",
        "SELECT * FROM hits WITH (window = '10 minutes', late = '1 second', time = 'at')",
        window=Window(timedelta(minutes=10), "at", "1 second"),
    )
    same(
        PAIR + " WITH (window = '1 day')",
        PAIR + " WITH (window = '1 day', memory = '64 MB', policy = 'heeb', alpha = 2)",
        memory=Memory("64 MB", "heeb", 2.0),
    )
    same(
        PAIR + " WITH (window = '1 day')",
        PAIR + " WITH (window = '1 day', memory = '64 MB', alpha = 'Adaptive')",
        memory=Memory("64 MB", alpha="adaptive"),
    )
    table = "SELECT page FROM pages"
    same(table, table + " WITH (refresh = 'on demand', within = '200 ms')", refresh=OnDemand(within="200 ms"))
    same(table, table + " WITH (refresh = 'every 10 seconds')", refresh=Every(timedelta(seconds=10)))
    same(
        table,
        table + " WITH (refresh = 'when', when = 'changes > 5', check = '1 second', within = '1 second')",
        refresh=When("changes > 5", "1 second", within="1 second"),
    )
    assert with_options(table, window=None) == table


@pytest.mark.parametrize(
    ("options", "fact"),
    [
        ({"windw": "1 day"}, "there is no option 'windw'"),
        ({"window": 5.5}, "a time span is text with a unit"),
        ({"window": [5]}, "option 'window' cannot be"),
        ({"window": Window("1 day", late="1 second"), "late": "2 seconds"}, "'late' is given twice"),
        ({"window": timedelta(0)}, "a time span is above 0"),
        ({"refresh": True}, "option 'refresh' cannot be True"),
        ({"refresh": Every(5)}, "a time span cannot be 5"),
        ({"refresh": OnDemand}, "option 'refresh' cannot be <class"),
        ({"window": OnDemand()}, "OnDemand is not for 'window'(?s:.*)write refresh=OnDemand"),
        ({"window": "10 s"}, "'s' is not a unit of time(?s:.*)write '10 seconds'"),
        ({"window": "1 day", "time": "x.at"}, "time names no column of hits"),
        ({"refresh": "on demand", "policy": "lru"}, "'lru' is for memory, not for refresh"),
        ({"refresh": "when", "when": ""}, "the text is empty"),
    ],
)
def test_bad_options_in_python(options: dict[str, object], fact: str) -> None:
    e = engine()
    with pytest.raises((SqlError, SubscriptionError), match=fact):
        e.subscribe("SELECT * FROM hits", **options)
    assert not e.subscriptions()


def test_what_nothing_answers_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_supported(query: Query) -> None:
        check_supported(query.options, frozenset())

    monkeypatch.setattr("tocsin.subscriptions.roster.check_query", none_supported)
    e, text = engine(), "SELECT page FROM pages WHERE owner = 'a' WITH (refresh = 'on demand', group = 'b')"
    calls = (
        lambda: e.subscribe(text),
        lambda: e.subscribe_texts([text] * 20),
        lambda: e.subscribe_many(text.replace("'a'", ":a"), pa.table({"id": [*range(9)], "a": ["x"] * 9})),
    )
    for call in calls:
        with pytest.raises(SubscriptionError, match="the option refresh is not supported"):
            call()
        assert not e.subscriptions()
