"""Bands: however a condition on a difference is spelled, the band says the same."""

from __future__ import annotations

import operator
from datetime import UTC, date, datetime, timedelta
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin.language.algebra import Band, Equal
from tocsin.language.shape import Shape, plan
from tocsin.language.sql import parse_definitions, parse_query
from tocsin.model.schema import Stream, Table

DDL = """CREATE TABLE a (x BIGINT PRIMARY KEY, d DATE, t TIMESTAMP);
         CREATE TABLE b (y BIGINT PRIMARY KEY, d DATE, t TIMESTAMP)"""
CATALOG = {d.name: d for d in parse_definitions(DDL) if isinstance(d, Table | Stream)}
OPS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "=": operator.eq}
GRID = list(product(range(-6, 7), range(-3, 4)))


def bands(condition: str) -> list[Equal | Band]:
    return list(parse_query(f"SELECT a.x FROM a, b WHERE {condition}", CATALOG).joins)


def inside(band: Band, x: float, y: float) -> bool:
    difference = x - y if band.left.relation == "a" else y - x
    low = band.low is None or (difference > band.low if band.low_open else difference >= band.low)
    high = band.high is None or (difference < band.high if band.high_open else difference <= band.high)
    return low and high


sides = st.sampled_from(
    [
        ("a.x - b.y", "{c}"),
        ("b.y - a.x", "{c}"),
        ("{c}", "a.x - b.y"),
        ("a.x", "b.y + {c}"),
        ("a.x", "b.y - {c}"),
        ("b.y + {c}", "a.x"),
        ("a.x + {c}", "b.y"),
        ("{c} + a.x", "(b.y)"),
        ("-b.y", "{c} - a.x"),
        ("a.x - {c} - b.y", "1"),
        ("a.x", "b.y"),
        ("-({c} - a.x)", "b.y"),
    ]
)


@st.composite
def spellings(draw: st.DrawFn) -> str:
    left, right = draw(sides)
    c = draw(st.sampled_from(["3", "-2", "0", "1.5", "(-1)"]))
    if draw(st.booleans()):
        low, high = draw(st.sampled_from([("-2", "3"), ("0", "0"), ("1.5", "4"), ("3", "-3")]))
        whole = draw(
            st.sampled_from(["a.x - b.y BETWEEN {0} AND {1}", "a.x BETWEEN b.y + {0} AND b.y + {1}"])
        )
        return whole.format(low, high)
    return f"{left} {draw(st.sampled_from(sorted(OPS)))} {right}".format(c=c)


def truth(condition: str, x: int, y: int) -> bool:
    """The condition as Python says it."""
    if "BETWEEN" in condition:
        whole, _, ends = condition.partition(" BETWEEN ")
        low, _, high = ends.partition(" AND ")
        return truth(f"{whole} >= {low}", x, y) and truth(f"{whole} <= {high}", x, y)
    text = condition.replace("a.x", str(f"({x})")).replace("b.y", f"({y})")
    op = next(op for op in ("<=", ">=", "<", ">", "=") if f" {op} " in text)
    left, right = text.split(f" {op} ")
    return bool(OPS[op](eval(left), eval(right)))  # our own numbers


@settings(max_examples=max(300, settings().max_examples), deadline=None)
@given(st.lists(spellings(), min_size=1, max_size=3))
def test_property_a_band_says_what_was_written(conditions: list[str]) -> None:
    found = bands(" AND ".join(conditions))
    assert len([join for join in found if isinstance(join, Band)]) <= 1, "bounds on one pair are one band"
    for x, y in GRID:
        expected = all(truth(condition, x, y) for condition in conditions)
        got = all(inside(join, x, y) if isinstance(join, Band) else x == y for join in found)
        assert got == expected, f"{conditions} became {[str(j) for j in found]}"


@pytest.mark.parametrize(
    ("condition", "seconds"),
    [
        ("a.t - b.t <= INTERVAL '5' MINUTE", 300),
        ("a.t - b.t <= INTERVAL '5 minutes'", 300),
        ("a.t <= b.t + INTERVAL 5 MINUTES", 300),
        ("a.t - INTERVAL '2' HOUR <= b.t", 7200),
        ("a.t - b.t <= -INTERVAL '90' SECOND", -90),
        ("a.t - b.t <= INTERVAL '-1.5' SECONDS", -1.5),
        ("a.d - b.t <= INTERVAL 1 WEEK", 7 * 86400),
        ("a.d - b.d <= 3", 3 * 86400),
        ("a.t - b.t <= INTERVAL '1 day 250 milliseconds'", 86400.25),
        ("a.t - b.t <= INTERVAL 7 MICROSECOND", 7e-6),
        ("a.t <= b.d", 0),
    ],
)
def test_times_differ_by_intervals(condition: str, seconds: float) -> None:
    (band,) = bands(condition)
    assert isinstance(band, Band)
    assert (band.low, band.high) == (None, timedelta(seconds=seconds) // timedelta(microseconds=1))
    assert band.timed


def test_a_band_and_an_equality_are_a_band_join() -> None:
    planned = plan(
        parse_query("SELECT a.x FROM a JOIN b ON a.x = b.y AND a.t - b.t > INTERVAL 1 DAY", CATALOG)
    )
    assert planned.shape is Shape.BAND
    assert [type(join) for join in planned.query.joins] == [Equal, Band]


def test_times_are_read_beside_their_column() -> None:
    query = parse_query("SELECT * FROM a WHERE d = '2013-01-31' AND t > '2013-01-31 05:00:00+05:30'", CATALOG)
    values = [atom.value for atom in query.where.args]  # type: ignore[union-attr]
    assert values == [date(2013, 1, 31), datetime(2013, 1, 30, 23, 30, tzinfo=UTC)]
