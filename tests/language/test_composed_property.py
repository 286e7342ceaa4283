"""Texts whose conditions are composed: the same query, or the same error, as if each was parsed alone."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin import Engine
from tocsin.errors import SqlError
from tocsin.language.composed import ComposedQueries
from tocsin.language.sql import parse_query, trace_query
from tocsin.language.template import Parser, Template, lift
from tocsin.model.schema import Catalog, Field, Stream, Table, Type
from tocsin.predicate.plain import PlainFilter, flat_plain
from tocsin.subscriptions.plain import PlainTexts

FIELDS = tuple(Field(name, kind) for name, kind in zip("nxtdzb", Type, strict=False))
CATALOG: Catalog = {
    "s": Stream("s"),
    "declared": Stream("declared", FIELDS),
    "rows": Table("rows", FIELDS, ("n",)),
}
NAMES = "a a7 A7 _x n N x t d z".split()
ODD_NAMES = (
    "b nothere not null true interval date timestamp case exists any all is in like between and or select "
    "from where array map struct cast current_date limit order with default div rlike if e1 values distinct"
).split()
LITERALS = ("1", "0", "-7", "2.5", "1E+2", "'v'", "''", "'2020-01-31'", '"w"', "'a%'")
ODD_LITERALS = (
    "- 7", "-1e3", "1e400", "9007199254740993", "99999999999999999999", "'a('", "'it''s'", "'b\\\\'", "TRUE",
    "NULL", "DATE '2020-01-01'", "1 + 2", "1 2", "-'v'", "c",
)  # fmt: skip


def mostly(usual: Sequence[str], odd: Sequence[str]) -> st.SearchStrategy[str]:
    return st.integers(0, 9).flatmap(lambda n: st.sampled_from(odd if n == 9 else usual))


names, literals = mostly(NAMES, ODD_NAMES), mostly(LITERALS, ODD_LITERALS)
comparisons = mostly("= != <> < <= > >=".split(), ["<=>", "==", "LIKE", "IS"])
conditions = st.one_of(
    st.builds("{} {} {}".format, names, comparisons, literals),
    st.builds("{}{}{}".format, names, st.sampled_from("= < >=".split()), literals),
    st.builds(
        "{} {} {} AND {}".format, names, mostly(["BETWEEN", "between"], ["NOT IN"]), literals, literals
    ),
    st.builds("{} {} {}".format, names, mostly(["LIKE", "rlike"], ["ILIKE", "NOT LIKE"]), literals),
    st.builds("{} IN ({}, {})".format, names, literals, literals),
    st.builds("{} IN ({})".format, names, literals),
)
heads = mostly(
    [
        "SELECT * FROM s WHERE ",
        "select n, x from S where ",
        "SELECT t FROM declared WHERE ",
        "SELECT * FROM rows WHERE ",
    ],
    [
        "SELECT * FROM rows w WHERE ",
        "SELECT DISTINCT t FROM rows WHERE ",
        "SELECT n AS m FROM rows WHERE ",
        "SELECT date FROM interval WHERE ",
        "SELECT * FROM nowhere WHERE ",
        "SELECT * FROM s, rows WHERE ",
    ],
)
texts = st.builds(
    lambda head, parts, glue, end: head + glue.join(parts) + end,
    heads,
    st.lists(conditions, min_size=1, max_size=4),
    mostly([" AND ", " and ", "  AND\n"], [" OR ", " AND NOT "]),
    mostly(["", " "], [";", " LIMIT 3", " ORDER BY n LIMIT 2", " OR n = 1", " + 1"]),
)


def outcome(read, text: str) -> object:
    """The query, or the error with its position."""
    try:
        return read(text)
    except SqlError as error:
        return str(error)


@given(st.lists(texts, min_size=1, max_size=12))
def test_composed_and_parsed_texts_are_equal(given: list[str]):
    parser = Parser(CATALOG)
    parser._composed = ComposedQueries(parser._trace, after=0)
    for text in given + given[::-1]:
        read = outcome(parser.parse, text)
        assert read == outcome(lambda text: parse_query(text, CATALOG), text)
        if isinstance(read, str):
            assert PlainTexts(parser).filter(text) is None


@given(heads, st.lists(conditions, min_size=1, max_size=4), st.data())
def test_conditions_are_composed_in_any_order(head: str, parts: list[str], data: st.DataObject):
    """What was composed of conditions that other texts have had is what the parser makes of the whole."""
    known = ComposedQueries(lambda text: trace_query(text, CATALOG), after=0)
    for part in parts:
        lifted = lift(head + part)
        if lifted is not None:
            known.query(head + part, lifted.skeleton, lifted.starts)
    text = head + " AND ".join(data.draw(st.permutations(parts)))
    lifted = lift(text)
    made = None if lifted is None else known.query(text, lifted.skeleton, lifted.starts)
    if lifted is None or made is None:
        return
    filled = Template.of(made).fill(dict(zip(lifted.starts, lifted.values, strict=True)))
    assert filled == parse_query(text, CATALOG)


def test_few_conditions_in_many_combinations_are_parsed_once_each():
    parser = Parser(CATALOG)
    for n in range(400):
        parser.parse(f"SELECT * FROM s WHERE a{n % 5} = 'v{n}' AND b{n // 5 % 8} <= {n} AND c{n // 40} > {n}")
    assert parser.parsed <= 8 + 5 + 8 + 10


def test_a_changed_relation_is_read_anew():
    catalog = dict(CATALOG)
    parser = Parser(catalog)
    for n in range(20):
        parser.parse(f"SELECT n FROM rows WHERE n = {n} AND x > {n}")
        parser.parse(f"SELECT n FROM rows WHERE n < {n} AND x {'>' if n % 2 else '<'} {n}")
    catalog["rows"] = Table("rows", (Field("n", Type.STRING),), ("n",))
    with pytest.raises(SqlError, match="no column 'x'"):
        parser.parse("SELECT n FROM rows WHERE x > 3 AND n < 3")


def test_bulk_texts_of_rare_templates_answer_as_single_ones():
    """Few texts of each template: plain filters, others, ids, subscribers, and all or none."""
    texts = [f"SELECT * FROM s WHERE a{n % 7} = 'v{n % 3}' AND b{n % 5} <= {n}" for n in range(60)]
    texts += ["SELECT a1 FROM s WHERE a1 = 'v1' OR b1 = 2", "SELECT b1 FROM s WHERE b1 BETWEEN 1 AND 30"]
    events = [{f"a{i}": f"v{i % 3}" for i in range(7)} | {f"b{i}": k for i in range(5)} for k in (0, 20, 70)]
    bulk, single = Engine(), Engine()
    for engine in (bulk, single):
        engine.execute("CREATE STREAM s")
    ids = list(range(100, 100 + len(texts)))[::-1]
    assert bulk.subscribe_texts(texts, ids=ids, subscribers=[f"u{i}" for i in ids]).tolist() == ids
    for id, text in zip(ids, texts, strict=True):
        single.subscribe(text, id=id, subscriber=f"u{id}")
    for event in events:
        one, other = (engine.publish("s", event) for engine in (bulk, single))
        assert {d.subscription: d.row for d in one} == {d.subscription: d.row for d in other}
        assert len(one)
    assert [bulk.query(id) for id in ids] == [single.query(id) for id in ids]
    assert bulk.subscribers() == single.subscribers()
    bulk.unsubscribe_many(ids[:30])
    with pytest.raises(Exception, match="already"):
        bulk.subscribe_texts(texts[:3], ids=[1, 2, ids[40]])
    with pytest.raises(Exception, match="row 3: a subscription is a SELECT"):
        bulk.subscribe_texts([*texts[:3], "SELEKT"], ids=[1, 2, 3, 4])
    assert len(bulk.subscriptions()) == len(texts) - 30
    bulk._check()


def test_plain_filters_of_several_templates_are_compiled_together():
    parser = Parser(CATALOG)
    plain = PlainTexts(parser)
    texts = ["SELECT * FROM s WHERE a = 'x' AND b <= 3", "SELECT * FROM s WHERE c BETWEEN 1 AND 2.5"]
    found: list[PlainFilter] = []
    for text in texts:
        parser.parse(text)
        one = plain.filter(text)
        assert one is not None
        found.append(one)
    flat = flat_plain(found)
    flat._check()
    assert flat.count == 2 and flat.sizes.tolist() == [2, 1] and sorted(flat.names) == ["a", "b", "c"]
