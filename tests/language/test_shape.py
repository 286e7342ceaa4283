"""Plans: rooms, conditions by table, what can never match."""

from __future__ import annotations

import pytest

from tocsin.errors import NormalFormError
from tocsin.language.algebra import Column, Compare
from tocsin.language.shape import Plan, Shape, plan
from tocsin.language.sql import parse_definitions, parse_query
from tocsin.model.schema import Stream, Table, Type

DDL = """CREATE TABLE a (id BIGINT PRIMARY KEY, v DOUBLE); CREATE TABLE b (id BIGINT PRIMARY KEY, w DOUBLE);
         CREATE STREAM s"""
CATALOG = {d.name: d for d in parse_definitions(DDL) if isinstance(d, Table | Stream)}


def planned(text: str) -> Plan:
    return plan(parse_query(text, CATALOG), text=text)


def test_conditions_are_split_by_table() -> None:
    p = planned("SELECT * FROM a JOIN b USING (id) WHERE v > 1 AND w > 2 AND v < 5 AND (v > 3 OR w > 4)")
    assert p.shape is Shape.JOIN
    assert [str(f) for f in p.filters] == ["v > 1 AND v < 5", "w > 2"]
    assert p.filters[1].groups == ((Compare(Column("w", Type.DOUBLE), ">", 2),),), "without the alias"
    assert str(p.residual) == "a.v > 3 OR b.w > 4"
    assert (p.never, p.warnings) == (False, ())


def test_no_condition_is_always_true() -> None:
    p = planned("SELECT * FROM a JOIN b USING (id)")
    assert all(f.always for f in p.filters)
    assert p.residual is None


@pytest.mark.parametrize(
    "condition",
    [
        "v > 1 AND v < 1",
        "FALSE",
        "NULL",
        "w = NULL",
        "a.id - b.id > 3 AND a.id - b.id < 3",
        "a.id - b.id BETWEEN 3 AND 2",
    ],
)
def test_never(condition: str) -> None:
    p = planned(f"SELECT * FROM a JOIN b ON a.id = b.id WHERE {condition}")
    assert p.never
    assert p.warnings == ("this query can never match: its conditions contradict each other",)


def test_parts_over_the_cap_are_shared_columns() -> None:
    pairs = " OR ".join(f"(x{i} = 1 AND y{i} = 1)" for i in range(20))
    p = planned(f"SELECT * FROM s WHERE ({pairs}) AND ({pairs.replace('x', 'z')})")
    (form,) = p.filters
    assert (form.kind, len(form.groups)) == ("dnf", 1)
    assert [str(literal).startswith("held('") for literal in form.groups[0]] == [True, True]


def test_over_the_cap_points_at_where() -> None:
    """Conditions that are over several tables stay as they are."""
    pairs = " OR ".join(f"(a.id = {i} AND b.w > {i})" for i in range(20))
    text = f"SELECT * FROM a JOIN b ON a.id = b.id WHERE ({pairs}) AND ({pairs.replace('>', '<')})"
    with pytest.raises(NormalFormError) as caught:
        planned(text)
    assert caught.value.position is not None
    assert (caught.value.position.column, caught.value.hint is None) == (39, False)
    assert caught.value.fact.startswith("the condition has 400 conjunctions")
