"""Over columns, row by row and in events: an expression has the same values; and it prints as it reads."""

from __future__ import annotations

import pytest

from tests.expressions.evaluated import STREAM, column_of, comparable, computed, equal
from tests.strategies.expressions import expressions, rows
from tocsin.language.dialect import read
from tocsin.language.expressions import read_expression
from tocsin.language.literals import Constant
from tocsin.model.columns import SparseRows
from tocsin.model.expressions.derived import DerivedColumn, expression_of
from tocsin.model.expressions.tree import text_of

EXPRESSIONS = [pair for seed in range(4) for pair in expressions(seed, 120, 1 + seed % 3)]
ROWS = rows(1, 40)


def test_columns_and_rows_have_the_same_values() -> None:
    found = computed([text for _, text in EXPRESSIONS], ROWS)
    for (kind, text), (by_column, by_row) in zip(EXPRESSIONS, found, strict=True):
        for row, one, other in zip(ROWS, by_column, by_row, strict=True):
            assert equal(comparable(kind, one), comparable(kind, other)), (text, row)


def test_an_expression_prints_as_it_reads() -> None:
    for _, text in EXPRESSIONS:
        column = column_of(text)
        if not isinstance(column, Constant):
            assert read_expression(text_of(column.name)) == expression_of(column.name).tree, text


def test_events_of_an_open_stream_mean_what_their_types_say() -> None:
    """Attributes that an event lacks are NULL; a batch and single events agree."""
    plain = [{name: value for name, value in row.items() if value is not None} for row in ROWS]
    batch = SparseRows.from_dicts(plain)
    for kind, text in EXPRESSIONS[:200]:
        trees, _ = read(f"SELECT * FROM r WHERE {text}")
        assert trees
        column = column_of(text)
        if isinstance(column, Constant):
            continue
        own = DerivedColumn(expression_of(column.name).tree, ())
        vectors = own.of_rows(batch)
        for n, event in enumerate(plain):
            values = [vector.to_list()[n] for vector in vectors if vector.valid[n]]
            one = own.of_event(event)
            assert len(values) <= 1
            assert equal(one, values[0] if values else None), (text, event, kind)


def test_a_name_is_enough_to_compute_an_expression() -> None:
    column = column_of("lower(s) || '-' || CAST(a AS STRING)")
    assert not isinstance(column, Constant)
    from tocsin.model.expressions import derived

    derived._known.clear()
    assert expression_of(column.name).of_row({"s": "AB", "a": 5}) == "ab-5"


@pytest.mark.parametrize("field", STREAM.fields, ids=str)
def test_a_column_by_itself_is_its_value(field) -> None:
    column = column_of(f"coalesce({field.name}, {field.name})")
    assert not isinstance(column, Constant) and column.type is field.type
