"""Conditions of a refresh: what they say, where they are wrong, when they hold."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin import Engine
from tocsin.errors import SqlError
from tocsin.language.options import Options
from tocsin.language.refresh_conditions import (
    AllHold,
    AnyHolds,
    BadCondition,
    RefreshCondition,
    Threshold,
    read_condition,
    thresholds,
)
from tocsin.language.sql import parse_query
from tocsin.limits.conditions import Waiting, condition_of, holds, moved, needs_propagation
from tocsin.model.schema import Field, Table, Type

STOCKS = Table(
    "stocks",
    (Field("symbol", Type.STRING), Field("per", Type.DOUBLE), Field("at", Type.TIMESTAMP)),
    ("symbol",),
)
CATALOG = {"stocks": STOCKS}

plain = st.one_of(
    st.builds(Threshold, st.sampled_from(["changes", "rows"]), st.integers(0, 10**12), st.booleans()),
    st.builds(Threshold, st.just("age"), st.integers(1, 10**13), st.booleans()),
    st.builds(
        Threshold,
        st.just("moved"),
        st.decimals(0, 10**6, places=3).map(lambda d: Fraction(d)),
        st.booleans(),
        st.sampled_from(["cheapest", "min(per)", "a `b`", "or"]),
    ),
)


def joined(inner: st.SearchStrategy[RefreshCondition]) -> st.SearchStrategy[RefreshCondition]:
    parts = st.lists(inner, min_size=2, max_size=3).map(tuple)
    return st.one_of(
        parts.map(lambda some: AllHold(tuple(p for one in some for p in _parts(one, AllHold)))),
        parts.map(lambda some: AnyHolds(tuple(p for one in some for p in _parts(one, AnyHolds)))),
    )


def _parts(one: RefreshCondition, kind: type) -> tuple[RefreshCondition, ...]:
    return one.parts if isinstance(one, kind) else (one,)  # type: ignore[union-attr,return-value]


conditions = st.recursive(plain, joined, max_leaves=8)


@given(conditions)
def test_conditions_print_back(condition: RefreshCondition) -> None:
    assert read_condition(str(condition)) == condition


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("changes>1000", "changes > 1000"),
        ("CHANGES >= 5 Or Age > 90 seconds", "changes >= 5 OR age > 1 minute 30 seconds"),
        ("(changes > 1)", "changes > 1"),
        ("changes > 1 or (rows > 2 or age > 1 ms)", "changes > 1 OR rows > 2 OR age > 0.001 seconds"),
        ("moved( `min(per)` ) > 2.50%", "moved(`min(per)`) > 2.5 %"),
        ("moved(cheapest) > 0.125 % and rows >= 1", "moved(cheapest) > 0.125 % AND rows >= 1"),
        ("rows > 1 /* many */ and (changes > 2 or changes > 3)", "rows > 1 AND (changes > 2 OR changes > 3)"),
    ],
)
def test_conditions_read(text: str, printed: str) -> None:
    assert str(read_condition(text)) == printed


@pytest.mark.parametrize(
    ("text", "fact", "hint", "where"),
    [
        ("", "this is not a condition", "changes > 1000", ""),
        ("change > 5", "there is no measure 'change'", "did you mean 'changes'?", "change"),
        ("waiting > 5", "there is no measure 'waiting'", "changes, age, rows or moved(column)", "waiting"),
        ("changes", "expecting > after changes, not the end", "changes > 1000", "s"),
        ("changes < 5", "expecting > after changes, not <", "changes > 1000", "<"),
        ("changes = 5", "expecting > after changes, not =", "changes > 1000", "="),
        ("changes > = 5", "expecting a number", "changes > 1000", "="),
        ("changes > 5 %", "changes is a number alone", "changes > 1000", "%"),
        ("changes > 5 minutes", "changes is a number alone", "changes > 1000", "minutes"),
        ("changes > 2.5", "changes is a whole number", "changes > 1000", "2.5"),
        ("changes > -5", "expecting a number", "changes > 1000", "-"),
        ("rows > many", "expecting a number", "rows > 10", "many"),
        ("rows(x) > 1", "rows takes no column", "rows > 10", "("),
        ("age > 5", "age is a time span, with a unit", "5 seconds", "5"),
        ("age > 5 %", "this is not a duration", "10 minutes", "5 %"),
        ("age > 5 minuts OR rows > 1", "'minuts' is not a unit of time", "did you mean", "5 minuts"),
        ("moved > 5 %", "moved needs a column of the answer", "moved(column) > 5 %", ">"),
        ("moved(a, b) > 5 %", "expecting ) after the column", "moved(cheapest)", ","),
        ("moved('a') > 5 %", "expecting a column", "backticks", "'a'"),
        ("moved(a) > 5", "moved is measured in percent", "write 5 %", "5"),
        ("moved(a) > 5 seconds", "moved is measured in percent", "write 5 %", "seconds"),
        ("changes > 5 age > 1 minute", "changes is a number alone", "changes > 1000", "age"),
        ("(changes > 5", "expecting )", "close the parenthesis", "5"),
        ("changes > 5)", "unexpected )", "leave it out", ")"),
        ("changes > 5 AND", "expecting a condition", "after AND", "D"),
        ("OR changes > 5", "expecting a condition before OR", "changes > 1000", "OR"),
        ("NOT changes > 5", "NOT is not supported", "above a bound", "NOT"),
        ("(" * 600 + "changes > 5" + ")" * 600, "levels of parentheses", "flatter", "("),
    ],
)
def test_what_is_no_condition_is_rejected_at_its_place(text: str, fact: str, hint: str, where: str) -> None:
    with pytest.raises(BadCondition) as raised:
        read_condition(text)
    error = raised.value
    assert fact in error.fact
    assert hint in error.hint
    assert text[error.start : error.end] == where


def query(select: str, when: str) -> object:
    return parse_query(f"SELECT {select} FROM stocks WITH (refresh = 'when', when = '{when}')", CATALOG)


def test_columns_are_checked_at_their_place() -> None:
    query("MIN(per) AS cheapest", "moved(Cheapest) > 5 % OR changes > 3")
    query("COUNT(*)", "moved(`count(1)`) > 5 %")
    for select, when, fact, where in (
        ("MIN(per) AS cheapest", "moved(cheepest) > 5 %", "no column 'cheepest'", "cheepest"),
        ("per", "rows > 1 OR moved(per) > 5 %", "answers of one row", "per"),
        ("MAX(at) AS latest", "moved(latest) > 5 %", "latest is a TIMESTAMP", "latest"),
        ("MIN(per)", "changes > ten", "expecting a number", "ten"),
    ):
        with pytest.raises(SqlError) as raised:
            query(select, when)
        error = raised.value
        assert fact in error.fact
        assert error.position is not None
        assert error.position.text[error.position.start : error.position.end] == where


def test_a_text_with_escapes_is_shown_as_a_whole() -> None:
    with pytest.raises(SqlError) as raised:
        query("MIN(per)", "changes > \\'ten")
    position = raised.value.position
    assert position is not None
    assert position.text[position.start : position.end] == "'changes > \\'ten'"


def test_python_gives_the_same_error() -> None:
    from tocsin.limits.options import When

    engine = Engine()
    engine.execute("CREATE TABLE stocks (symbol STRING, per DOUBLE, PRIMARY KEY (symbol))")
    with pytest.raises(SqlError, match="no measure 'rowz'"):
        engine.subscribe("SELECT MIN(per) FROM stocks", refresh=When("rowz > 5"))


# -- evaluation -----------------------------------------------------------------------------------------


def test_what_is_known_at_every_change_decides_at_once() -> None:
    text = "changes > 10 AND age > 1 second OR moved(n) >= 5 % OR rows > 3"
    condition = read_condition(text)
    assert needs_propagation(condition)
    assert not needs_propagation(read_condition("changes > 10 AND age > 1 second"))
    assert holds(condition, Waiting(11, 1_000_001)) is True
    assert holds(condition, Waiting(11, 1_000_000)) is None
    assert holds(condition, Waiting(0, 0, 4, {"n": 1}, {"n": 1})) is True
    assert holds(condition, Waiting(0, 0, 3, {"n": 100}, {"N": 104})) is False
    assert holds(condition, Waiting(0, 0, 3, {"n": 100}, {"N": 105})) is True
    both = read_condition("changes > 10 AND rows > 3")
    assert holds(both, Waiting(5, 0)) is False  # whatever rows are
    assert holds(both, Waiting(11, 0)) is None
    assert holds(both, Waiting(11, 0, 4)) is True


@given(
    conditions,
    st.integers(0, 100),
    st.integers(0, 10**8),
    st.integers(0, 20),
    st.integers(-5, 5),
    st.integers(-5, 5),
)
def test_what_is_decided_early_stays(
    condition: RefreshCondition, changes: int, age: int, rows: int, before: int, after: int
) -> None:
    columns = {one.column for one in thresholds(condition) if one.column is not None}
    early = holds(condition, Waiting(changes, age))
    late = holds(
        condition,
        Waiting(changes, age, rows, dict.fromkeys(columns, before), dict.fromkeys(columns, after)),
    )
    assert late is not None
    assert early is None or early == late
    assert needs_propagation(condition) or early is not None


@pytest.mark.parametrize(
    ("before", "after", "percent"),
    [
        (100, 95, 5.0),
        (-100, -95, 5.0),
        (1.0, -1.0, 200.0),
        (0, 0, 0.0),
        (0, 1, math.inf),
        (1, 0, math.inf),
        (None, 1, math.inf),
        (1, None, math.inf),
        (None, None, 0.0),
        (math.nan, math.nan, 0.0),
        (math.nan, 1.0, math.inf),
        (1.0, math.inf, math.inf),
        (math.inf, math.inf, 0.0),
        (10**18, 10**18 + 10**16, 1.0),
    ],
)
def test_how_far_a_number_moved(before: float | None, after: float | None, percent: float) -> None:
    assert moved(before, after) == pytest.approx(percent)


def test_conditions_of_options() -> None:
    assert condition_of(Options(refresh="on demand")) is None
    assert condition_of(Options()) is None
    assert str(condition_of(Options(refresh="every", every=60_000_000))) == "age > 1 minute"
    assert str(condition_of(Options(refresh="when", when="rows > 3"))) == "rows > 3"
