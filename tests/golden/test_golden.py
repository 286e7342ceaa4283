"""Golden cases: SQL and its normal form; bad SQL and its message. See `cases.py`."""

from __future__ import annotations

import pytest

from tests.golden.cases import load, outcome
from tocsin.language.rewrite import normalise
from tocsin.language.shape import Shape, plan
from tocsin.language.sql import parse_query
from tocsin.language.statements import Statement
from tocsin.language.template import Parser
from tocsin.model.schema import Stream, Table


def catalog_of(statements: list[Statement]) -> dict[str, Table | Stream]:
    catalog: dict[str, Table | Stream] = {}
    for statement in statements:
        if statement.text.startswith("CREATE") and not statement.expected:
            outcome(statement, catalog)
    return catalog


GOOD, BAD = load("good.sql"), load("bad.sql")
GOOD_CATALOG, BAD_CATALOG = catalog_of(GOOD), catalog_of(BAD)
SUBSCRIPTIONS = [s for s in GOOD if s.text.startswith("SELECT")]
REJECTED = [s for s in BAD if s.expected]


def name(statement: Statement) -> str:
    return f"line {statement.line}"


@pytest.mark.parametrize("statement", SUBSCRIPTIONS, ids=name)
def test_good(statement: Statement) -> None:
    assert outcome(statement, GOOD_CATALOG) == statement.expected


@pytest.mark.parametrize("statement", SUBSCRIPTIONS, ids=name)
def test_good_prints_and_parses_back(statement: Statement) -> None:
    query = parse_query(statement.text, GOOD_CATALOG)
    assert parse_query(str(query), GOOD_CATALOG) == query
    assert Parser(GOOD_CATALOG).parse(statement.text) == query
    planned = plan(query)
    for form in planned.filters:
        assert normalise(form.predicate) == form, "a normal form is its own normal form"


@pytest.mark.parametrize("statement", REJECTED, ids=name)
def test_bad(statement: Statement) -> None:
    assert outcome(statement, dict(BAD_CATALOG)) == statement.expected
    assert list(statement.expected) == ["error"]


def test_there_are_enough() -> None:
    assert len(SUBSCRIPTIONS) >= 60
    assert len(REJECTED) >= 60
    assert {s.expected["shape"] for s in SUBSCRIPTIONS} == set(Shape)
