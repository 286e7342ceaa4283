"""What is printed parses back to the same thing: conditions, definitions, whole queries, any names."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st
from sqlglot.tokens import Tokenizer

from tests.language.trees import COLUMNS, OPEN, OPEN_COLUMNS, TYPED, predicates, worlds
from tocsin.language.algebra import Column, Compare, Item, Like, OrderKey, Predicate, Query, TableRef, Truth
from tocsin.language.sql import parse_definitions, parse_query
from tocsin.model.schema import Field, Stream, Table, Type

KEYWORDS = sorted(word.lower() for word in Tokenizer.KEYWORDS if word.isidentifier())
texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
names = st.one_of(
    st.sampled_from(KEYWORDS),
    st.sampled_from(
        ["order", "interval", "date", "x.y", "a`b", "``", "é", "1", "1e5", "a b", "select", "stream", "if"]
    ),
    texts.filter(bool),
)


@settings(max_examples=max(300, settings().max_examples), deadline=None)
@given(worlds([COLUMNS]).flatmap(predicates))
def test_property_conditions_print_and_parse_back(predicate: Predicate) -> None:
    query = parse_query(f"SELECT * FROM typed WHERE {predicate}", {"typed": TYPED})
    assert str(query.where) == str(predicate)
    assert query.where == predicate
    assert parse_query(str(query), {"typed": TYPED}) == query


@settings(max_examples=max(150, settings().max_examples), deadline=None)
@given(worlds([OPEN_COLUMNS]).flatmap(predicates))
def test_property_conditions_of_open_streams_print_and_parse_back(predicate: Predicate) -> None:
    query = parse_query(f"SELECT * FROM open WHERE {predicate}", {"open": OPEN})
    assert (query.where, query.items) == (predicate, ())


@settings(max_examples=max(300, settings().max_examples), deadline=None)
@given(texts, st.floats(allow_nan=False), st.integers())
@example("\\", -0.0, 2**70)
@example("'\"`\\'", 1e-320, -1)
def test_property_literals_of_any_value(text: str, number: float, whole: int) -> None:
    s, x, n = Column("s", Type.STRING), Column("x", Type.DOUBLE), Column("n", Type.BIGINT)
    for condition in (Compare(s, "=", text), Compare(x, "<", number + 0.0), Compare(n, ">=", whole)):
        assert parse_query(f"SELECT * FROM typed WHERE {condition}", {"typed": TYPED}).where == condition
    pattern = Like(s, text.replace("\\", "\\\\"))
    assert parse_query(f"SELECT * FROM typed WHERE {pattern}", {"typed": TYPED}).where == pattern


@settings(max_examples=max(300, settings().max_examples), deadline=None)
@given(st.lists(names, min_size=4, max_size=6, unique_by=str.lower), st.booleans())
def test_property_any_name_can_be_quoted(drawn: list[str], joined: bool) -> None:
    relation, alias, first, *others = drawn
    fields = tuple(Field(name, Type.BIGINT) for name in (first, *others) if name not in ("_op", "_seq"))
    for definition in (
        Table(relation, fields, (fields[0].name,)),
        Stream(relation, fields),
        Stream(relation),
    ):
        assert parse_definitions(str(definition)) == [definition]
    table = Table(relation, fields, (fields[0].name,))
    if joined:
        left, right = TableRef(relation, alias), TableRef(relation, "other_" + alias)
        a = Column(fields[0].name, Type.BIGINT, left.alias)
        b = Column(fields[-1].name, Type.BIGINT, right.alias)
        query = parse_query(f"SELECT {a} FROM {left} CROSS JOIN {right} WHERE {a} = {b}", {relation: table})
    else:
        key = OrderKey(Column(fields[0].name, Type.BIGINT))
        items = tuple(Item(Column(f.name, f.type), f"{f.name}2") for f in fields)
        query = Query(items, (TableRef(relation, alias),), order=(key,), limit=3)
        assert parse_query(str(query), {relation: table}) == query
    assert parse_query(str(query), {relation: table}) == query


@settings(max_examples=max(100, settings().max_examples), deadline=None)
@given(st.permutations(["a", "b", "c"]))
def test_property_order_by_means_the_column_that_is_printed(order: list[str]) -> None:
    """Aliases that are names of other columns do not confuse ORDER BY."""
    columns = [Column(name, Type.BIGINT) for name in ("a", "b", "c")]
    table = Table("t", tuple(Field(c.name, Type.BIGINT) for c in columns), ("a",))
    items = tuple(Item(c, name) for c, name in zip(columns, order, strict=True))
    query = Query(items, (TableRef("t", "t"),), where=Truth(True), order=(OrderKey(columns[0]),), limit=1)
    assert parse_query(str(query), {"t": table}) == query
