"""Lifting literals: agrees with sqlglot's tokens, and with a parse of the whole text."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlglot.errors import TokenError
from sqlglot.tokens import TokenType

from tests.language.trees import COLUMNS, KEPT, OPEN, OPEN_COLUMNS, TYPED, predicates, worlds
from tocsin.errors import SqlError
from tocsin.language.algebra import Query
from tocsin.language.dialect import TocsinDialect
from tocsin.language.sql import parse_query
from tocsin.language.statements import lexemes
from tocsin.language.template import Parser, lift
from tocsin.model.schema import Catalog

CATALOG = {"typed": TYPED, "kept": KEPT, "open": OPEN}
PIECES = r"""
    SELECT x x5 5x 5 05 1.5 1. .5 1e5 1e 1e+5 1E-5x 10L 1.5D 0x1F ' " ` \ '' -- /* */ / * - 'a' 'it''s' '\''
    "b" `c` `c``d` . , ( ) = <=> || :: :p {{ { # @ $ é r' r'\' X'1F' N'a' ; and
""".split()
PIECES += [" ", "\n", "\t"]
noise = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)


def sqlglot_literals(text: str) -> list[tuple[int, str]] | None:
    try:
        tokens = TocsinDialect().tokenize(text)
    except TokenError:
        return None
    wanted = (TokenType.NUMBER, TokenType.STRING)
    return [(token.start, token.text) for token in tokens if token.token_type in wanted]


@settings(max_examples=max(1500, settings().max_examples), deadline=None)
@given(noise)
def test_property_lifted_literals_are_the_tokens_of_sqlglot(text: str) -> None:
    lifted = lift(text)
    if lifted is None:
        return
    expected = sqlglot_literals(text)
    assert expected is not None
    assert lifted.starts == [start for start, _ in expected]
    for value, (_, token) in zip(lifted.values, expected, strict=True):
        assert value == (token if isinstance(value, str) else type(value)(token))


@settings(max_examples=max(1500, settings().max_examples), deadline=None)
@given(noise)
def test_property_lexemes_cover_the_text_and_agree_with_sqlglot(text: str) -> None:
    found = list(lexemes(text))
    assert "".join(lexeme.text for lexeme in found) == text
    if any(lexeme.kind == "odd" for lexeme in found) or "/*+" in text:
        return
    try:
        tokens = TocsinDialect().tokenize(text)
    except TokenError:
        return  # a number such as 0xZZ; no matter for where statements end
    semicolons = [token.start for token in tokens if token.token_type is TokenType.SEMICOLON]
    assert [x.start for x in found if x.text == ";"] == semicolons
    names = [token.start for token in tokens if token.token_type is TokenType.IDENTIFIER]
    assert [x.start for x in found if x.kind == "name"] == names


def outcome(parse: Parser | None, text: str, catalog: Catalog) -> Query | str:
    try:
        return parse.parse(text) if parse is not None else parse_query(text, catalog)
    except SqlError as error:
        return str(error)


@settings(max_examples=max(150, settings().max_examples), deadline=None)
@given(st.data())
def test_property_lifted_parse_is_the_parse(data: st.DataObject) -> None:
    """Texts of one shape with other literals, some of them wrong, through one parser."""
    parser = Parser(CATALOG)
    shape = data.draw(st.sampled_from(SHAPES))
    spots = shape.count("{}")
    for _ in range(4):
        text = shape.format(*(data.draw(st.sampled_from(LITERALS)) for _ in range(spots)))
        assert outcome(parser, text, CATALOG) == outcome(None, text, CATALOG), text


SHAPES = [
    "SELECT * FROM typed WHERE n = {} AND s = {}",
    "SELECT * FROM typed WHERE x BETWEEN {} AND -{} OR NOT s LIKE {}",
    "SELECT * FROM typed WHERE d > {} AND t <= TIMESTAMP {} AND d != DATE {}",
    "SELECT * FROM typed WHERE s RLIKE {} OR b = {} OR {} = {}",
    "SELECT * FROM kept WHERE n IN ({}, {}, NULL) ORDER BY x LIMIT {}",
    "SELECT a.n FROM kept a JOIN kept b ON a.x - b.x BETWEEN {} AND {} WHERE a.s = {}",
    "SELECT a.n FROM kept a JOIN kept b ON a.t <= b.t + INTERVAL {} MINUTE AND a.s = b.s WHERE a.n > {}",
    "SELECT * FROM typed WHERE s LIKE {} ESCAPE {}",
    "SELECT * FROM open WHERE p = {} AND q > {} AND `p 5` != CAST({} AS DOUBLE)",
    "SELECT COUNT({}) AS n, MIN(n) AS {} FROM kept WHERE s = {}",
]
LITERALS = r"""
    1 2 0 -3 1.5 1e3 1e999 'a' 'b%' '(a' '2013-01-01' '2013-01-02T05:00:00' "a" 'it''s' '\\' TRUE NULL '5'
    'nan' '' r'\d' 7L 99999999999999999999
""".split()


@settings(max_examples=max(150, settings().max_examples), deadline=None)
@given(
    worlds([COLUMNS, OPEN_COLUMNS]).flatmap(lambda world: st.lists(predicates(world), min_size=2, max_size=4))
)
def test_property_one_parser_for_many_conditions(drawn: list[object]) -> None:
    parser = Parser(CATALOG)
    for predicate in drawn * 2:
        relation = "open" if any(f"{name} " in str(predicate) for name in OPEN_COLUMNS) else "typed"
        text = f"SELECT * FROM {relation} WHERE {predicate}"
        assert outcome(parser, text, CATALOG) == outcome(None, text, CATALOG)


def test_two_thousand_texts_of_ten_templates_are_ten_parses() -> None:
    templates = [f"SELECT * FROM typed WHERE n > %d AND s = 'a%d' AND x <= {i}" for i in range(10)]
    texts = [t % (i, i) for i in range(200) for t in templates]
    parser = Parser(CATALOG)
    start = time.process_time()
    for text in texts:
        parser.parse(text)
    assert time.process_time() - start < 0.3
    assert parser.parsed == 1  # these ten differ in a literal, too


def test_a_changed_catalog_is_noticed() -> None:
    catalog = {"typed": TYPED}
    parser = Parser(catalog)
    parser.parse("SELECT * FROM typed WHERE n = 1")
    del catalog["typed"]
    with pytest.raises(SqlError, match="there is no table or stream 'typed'"):
        parser.parse("SELECT * FROM typed WHERE n = 1")
