"""The reference, against answers worked out by hand: each case is a line of the semantics."""

import math
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest

from tocsin.errors import TocsinError
from tocsin.language.algebra import (
    Aggregate,
    And,
    Band,
    Between,
    Column,
    Compare,
    Equal,
    In,
    IsNull,
    Item,
    Like,
    Not,
    Or,
    OrderKey,
    Predicate,
    Query,
    Rlike,
    TableRef,
    Truth,
)
from tocsin.model.schema import Type
from tocsin.reference import as_bag, evaluate, holds, row_key

NAN, INF = math.nan, math.inf
X = Column("x")
Rows = dict[str, list[dict[str, Any]]]
TRUE, FALSE, UNKNOWN = Truth(True), Truth(False), Truth(None)


def truth(predicate: Predicate, x: Any) -> bool | None:
    return holds(predicate, {"x": x})


# -- three-valued logic ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        (Not(UNKNOWN), None),
        (And((TRUE, UNKNOWN)), None),
        (And((UNKNOWN, FALSE)), False),
        (Or((FALSE, UNKNOWN)), None),
        (Or((UNKNOWN, TRUE)), True),
        (Not(And((UNKNOWN, FALSE))), True),
    ],
    ids=str,
)
def test_truth_has_three_values(predicate: Predicate, expected: bool | None) -> None:
    assert holds(predicate, {}) is expected


@pytest.mark.parametrize(
    "predicate",
    [
        Compare(X, "=", 1),
        Between(X, 0, 1),
        In(X, (1, 2)),
        Like(X, "%"),
        Rlike(X, ""),
        Not(Like(X, "a%")),
    ],
    ids=str,
)
def test_null_and_missing_are_unknown_to_all_but_is_null(predicate: Predicate) -> None:
    assert truth(predicate, None) is None
    assert holds(predicate, {}) is None
    assert truth(IsNull(X), None) is True
    assert holds(IsNull(X), {}) is True
    assert truth(Not(IsNull(X)), 0) is True


def test_a_null_operand_is_unknown_unless_the_rest_decides() -> None:
    assert truth(Compare(X, "=", None), 1) is None
    assert truth(In(X, (1, None)), 1) is True
    assert truth(In(X, (1, None)), 2) is None  # so NOT IN with a NULL never holds
    assert truth(Not(In(X, (1, None))), 2) is None
    assert truth(Between(X, None, 5), 7) is False  # 7 <= 5 is false whatever the lower end is
    assert truth(Between(X, None, 5), 3) is None


# -- comparing values ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "op", "right"),
    [
        (NAN, "=", NAN),
        (NAN, ">", INF),
        (NAN, "!=", 1),
        (-0.0, "=", 0.0),
        (-0.0, "=", 0),
        (2**53 + 1, ">", 2.0**53),  # equal if the integer were made a double
        (2**53, "=", 2.0**53),
        (2**63 - 1, "<", 2.0**63),
        (False, "<", True),
        ("Z", "<", "a"),
        ("z", "<", "ä"),
        ("\uff5e", "<", "😀"),  # by code point; UTF-16 would have it the other way
        (date(2013, 1, 31), "=", datetime(2013, 1, 31, tzinfo=UTC)),
        (date(2013, 1, 31), "<", datetime(2013, 1, 31, 0, 0, 0, 1, tzinfo=UTC)),
        (datetime(2013, 1, 31, 1, tzinfo=timezone(timedelta(hours=1))), "=", date(2013, 1, 31)),
    ],
)
def test_values_compare(left: Any, op: str, right: Any) -> None:
    assert truth(Compare(X, op, right), left) is True
    assert truth(Not(Compare(X, op, right)), left) is False


def test_nan_is_between_anything_and_nan() -> None:
    assert truth(Between(X, 0.0, NAN), NAN) is True
    assert truth(Between(X, 0.0, INF), NAN) is False
    assert truth(In(X, (1.0, NAN)), NAN) is True


@pytest.mark.parametrize(
    ("left", "right"),
    [(1, "1"), (True, 1), (0.0, False), ("x", date(2013, 1, 31)), (date(2013, 1, 31), "2013-01-31")],
)
def test_different_kinds_are_unknown_to_each_other(left: Any, right: Any) -> None:
    for op in ("=", "!=", "<", ">="):
        assert truth(Compare(X, op, right), left) is None
        assert truth(Not(Compare(X, op, right)), left) is None
    assert truth(Like(X, "%"), 1) is None
    assert truth(In(X, ("1", 1)), 1) is True
    assert truth(In(X, ("1", 2)), 1) is None


# -- texts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "hits", "misses"),
    [
        ("ab%", ["ab", "abc", "ab\ncd"], ["a", "xab", "AB"]),
        ("%ab%", ["ab", "xabx"], ["a b"]),
        ("a_c", ["abc", "a😀c", "a\nc"], ["ac", "abbc"]),
        ("%a%b%", ["ab", "xaxxbx"], ["ba"]),
        (r"50\%", ["50%"], ["50x", r"50\x"]),
        (r"\_%", ["_", "_a"], ["a"]),
        (r"a\\b", [r"a\b"], ["ab"]),
        (r"\a", ["a"], [r"\a"]),
        ("", [""], ["a"]),
        ("a.c", ["a.c"], ["abc"]),
    ],
)
def test_like_matches_the_whole_text(pattern: str, hits: list[str], misses: list[str]) -> None:
    assert all(truth(Like(X, pattern), text) is True for text in hits)
    assert all(truth(Like(X, pattern), text) is False for text in misses)


@pytest.mark.parametrize(
    ("pattern", "hits", "misses"),
    [
        ("b", ["abc"], ["ac"]),
        ("^b", ["bc"], ["abc"]),
        ("b$", ["ab"], ["ab\n", "ab\nc"]),  # $ is the end of the text, not of a line
        ("(?i)ä", ["Ä"], ["a"]),
        ("^.$", ["😀"], ["ab"]),
        (r"\d{2}", ["x12"], ["1x2"]),
    ],
)
def test_rlike_finds_an_re2_pattern_anywhere(pattern: str, hits: list[str], misses: list[str]) -> None:
    assert all(truth(Rlike(X, pattern), text) is True for text in hits)
    assert all(truth(Rlike(X, pattern), text) is False for text in misses)


# -- filters and projection ------------------------------------------------------------------------

A, B = Column("a", Type.BIGINT), Column("b", Type.DOUBLE)
T = (TableRef("t", "t"),)
KEYS = {"t": ("k",), "l": ("k",), "r": ("k",)}


def items(*columns: Column) -> tuple[Item, ...]:
    return tuple(Item(column, column.name) for column in columns)


def values(query: Query, *rows: dict[str, Any]) -> list[Any]:
    """The answer over one table t, as tuples; its key k is the place in the list."""
    table = [{"k": k, **row} for k, row in enumerate(rows)]
    return [tuple(row.values()) for row in evaluate(query, {"t": table}, KEYS)]


def test_a_filter_keeps_what_is_true_and_is_a_bag() -> None:
    query = Query(items(B), T, where=Not(Compare(A, "=", 1)))
    assert values(query, {"a": 1, "b": 0.5}, {"a": 2, "b": 1.5}, {"b": 2.5}, {"a": 3, "b": 1.5}) == [
        (1.5,),
        (1.5,),
    ]


def test_a_projected_attribute_that_is_missing_is_null() -> None:
    assert values(Query((Item(A, "x"), Item(B, "y")), T), {"a": 1}) == [(1, None)]


def test_no_items_are_all_attributes_an_event_has() -> None:
    events: Rows = {"s": [{"a": 1, "b": None}, {"c": "x"}]}
    assert evaluate(Query((), (TableRef("s", "s"),)), events, {}) == [{"a": 1}, {"c": "x"}]


def test_distinct_is_a_set_in_which_null_equals_null_and_nan_nan() -> None:
    rows = [{"b": b} for b in (NAN, None, 0.0, -0.0, NAN, None, 1.0)]
    assert len(values(Query(items(B), T, distinct=True), *rows)) == 4
    pairs: list[dict[str, Any]] = [{"a": 1, "b": NAN}, {"a": 1, "b": None}, {"a": 1, "b": NAN}]
    assert len(values(Query(items(A, B), T, distinct=True), *pairs)) == 2


# -- joins -----------------------------------------------------------------------------------------


def joined(join: Equal | Band, left: list[Any], right: list[Any]) -> list[tuple[Any, Any]]:
    """The pairs of values x of l and y of r that join."""
    query = Query(
        (Item(join.left, "x"), Item(join.right, "y")), (TableRef("l", "l"), TableRef("r", "r")), (join,)
    )
    sides = (("l", left), ("r", right))
    database = {name: [{"k": k, "x": x} for k, x in enumerate(values)] for name, values in sides}
    return [(row["x"], row["y"]) for row in evaluate(query, database, KEYS)]


def sides(left: Type, right: Type) -> tuple[Column, Column]:
    return Column("x", left, "l"), Column("x", right, "r")


def test_equal_joins_nan_and_zeros_but_never_null() -> None:
    join = Equal(*sides(Type.DOUBLE, Type.DOUBLE))
    assert joined(join, [None, 1.0, -0.0], [None, 1.0, 0.0]) == [(1.0, 1.0), (-0.0, 0.0)]
    assert len(joined(join, [NAN], [NAN, 1.0])) == 1
    assert len(joined(join, [1.0, 1.0], [1.0, 1.0])) == 4


def test_bigint_joins_double_exactly_and_a_date_its_midnight() -> None:
    join = Equal(*sides(Type.BIGINT, Type.DOUBLE))
    assert joined(join, [2**53, 2**53 + 1, 3], [2.0**53, 3.5]) == [(2**53, 2.0**53)]
    midnight, day = datetime(2013, 1, 1, tzinfo=UTC), date(2013, 1, 1)
    assert joined(Equal(*sides(Type.DATE, Type.TIMESTAMP)), [day], [midnight]) == [(day, midnight)]


def test_a_band_has_closed_open_and_absent_ends() -> None:
    left, right = sides(Type.BIGINT, Type.BIGINT)
    assert joined(Band(left, right, -1, 1), [0, 1, 2, 3], [1]) == [(0, 1), (1, 1), (2, 1)]
    assert joined(Band(left, right, -1, 1, True, True), [0, 1, 2, 3], [1]) == [(1, 1)]
    assert joined(Band(left, right, 1), [0, 1, 2, 3], [1]) == [(2, 1), (3, 1)]
    assert joined(Band(left, right, None, 0, high_open=True), [0, 1, None], [1, None]) == [(0, 1)]


def test_a_band_of_bigint_is_exact_and_with_a_double_as_doubles_are() -> None:
    big = 2**63 - 1
    exact = Band(*sides(Type.BIGINT, Type.BIGINT), 2**64 - 1, 2**64 - 1)
    assert joined(exact, [big, big - 1], [-(2**63)]) == [(big, -(2**63))]
    mixed = Band(*sides(Type.BIGINT, Type.DOUBLE), 0, 0)  # the integer is made a double first
    assert joined(mixed, [2**53 + 1], [2.0**53]) == [(2**53 + 1, 2.0**53)]
    doubles = Band(*sides(Type.DOUBLE, Type.DOUBLE), 0.2, 0.2)
    assert joined(doubles, [0.3], [0.1]) == []  # 0.3 - 0.1 is 0.19999999999999998


@pytest.mark.parametrize(
    ("left", "right", "low", "high", "expected"),
    [
        (INF, INF, 0, 0, True),
        (NAN, NAN, 0, 0, True),
        (INF, -INF, 5, INF, True),
        (INF, 1.0, 5, 1e308, False),
        (NAN, 1.0, 5, None, True),  # NaN is above every number ...
        (NAN, 1.0, None, INF, False),
        (1.0, NAN, None, 5, True),  # ... so what NaN is taken from is below
        (1.0, NAN, -INF, None, False),
        (1e308, -1e308, INF, None, True),
    ],
)
def test_a_band_at_the_ends_of_numbers(left: Any, right: Any, low: Any, high: Any, expected: bool) -> None:
    band = Band(*sides(Type.DOUBLE, Type.DOUBLE), low, high)
    assert len(joined(band, [left], [right])) == expected


def test_a_band_of_times_counts_microseconds() -> None:
    noon, day = datetime(2013, 1, 1, 12, tzinfo=UTC), date(2013, 1, 1)
    half_day = 12 * 3600 * 10**6
    assert joined(Band(*sides(Type.TIMESTAMP, Type.DATE), half_day, half_day), [noon], [day]) == [(noon, day)]
    assert joined(Band(*sides(Type.TIMESTAMP, Type.DATE), half_day + 1, None), [noon], [day]) == []
    far, first = date(9999, 12, 31), date(1, 1, 1)
    whole = Band(*sides(Type.DATE, Type.DATE), 3652058 * 2 * half_day, None)
    assert joined(whole, [far], [first]) == [(far, first)]


def test_three_tables_join_as_a_tree_and_a_table_joins_itself() -> None:
    row = tuple(Item(Column("k", Type.BIGINT, alias), alias) for alias in "pqr")
    tables = tuple(TableRef("t", alias) for alias in "pqr")
    x = {alias: Column("a", Type.BIGINT, alias) for alias in "pqr"}
    joins = (Equal(x["p"], x["q"]), Equal(x["q"], x["r"]))
    query = Query(row, tables, joins, Compare(Column("k", relation="p"), "=", 0))
    table: Rows = {"t": [{"k": 0, "a": 1}, {"k": 1, "a": 1}, {"k": 2, "a": 2}, {"k": 3, "a": None}]}
    found = [tuple(r.values()) for r in evaluate(query, table, KEYS)]
    assert found == [(0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 1, 1)]


# -- top-k -----------------------------------------------------------------------------------------

BEST = [{"b": b} for b in (2.0, None, NAN, -INF, 2.0, INF)]  # the places 0 .. 5 are the primary keys
K = items(Column("k", Type.BIGINT))


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (OrderKey(B), [1, 3, 0, 4, 5, 2]),
        (OrderKey(B, nulls_first=False), [3, 0, 4, 5, 2, 1]),
        (OrderKey(B, descending=True, nulls_first=False), [2, 5, 0, 4, 3, 1]),
        (OrderKey(B, descending=True, nulls_first=True), [1, 2, 5, 0, 4, 3]),
    ],
    ids=str,
)
def test_top_k_puts_nan_above_numbers_and_breaks_ties_by_key(key: OrderKey, expected: list[int]) -> None:
    for limit in range(1, 8):
        assert values(Query(K, T, order=(key,), limit=limit), *BEST) == [(k,) for k in expected[:limit]]


def test_top_k_by_several_keys() -> None:
    rows: list[dict[str, Any]] = [
        {"a": 1, "b": 5.0},
        {"a": 0, "b": 1.0},
        {"a": 1, "b": 7.0},
        {"a": 0, "b": None},
    ]
    query = Query(K, T, order=(OrderKey(A, descending=True), OrderKey(B)), limit=3)
    assert values(query, *rows) == [(0,), (2,), (3,)]


# -- aggregates ------------------------------------------------------------------------------------


def aggregate(function: str, column: Column | None, *found: Any) -> Any:
    query = Query((Item(Aggregate(function, column), "v"),), T)
    [row] = values(query, *({column.name: value} if column else {} for value in found))
    return row[0]


def test_an_aggregate_of_nothing_is_one_row() -> None:
    functions = ("COUNT", "SUM", "AVG", "MIN", "MAX")
    query = Query(tuple(Item(Aggregate(f, B), f) for f in functions), T, where=FALSE)
    assert values(query, {"b": 1.0}) == [(0, None, None, None, None)]
    assert values(Query((Item(Aggregate("COUNT"), "n"),), T)) == [(0,)]


def test_aggregates_skip_null_and_count_counts_rows() -> None:
    assert aggregate("COUNT", None, 1, 2, 3) == 3
    assert aggregate("COUNT", A, 1, None, 3) == 2
    assert aggregate("AVG", A, 1, None, 2) == 1.5
    assert aggregate("SUM", A, None, None) is None
    assert aggregate("MIN", A, None, 3, 2) == 2


def test_sum_of_bigint_is_exact_and_overflow_an_error() -> None:
    assert aggregate("SUM", A, 2**63 - 1, 1, -1) == 2**63 - 1
    assert aggregate("SUM", A, -(2**63)) == -(2**63)
    with pytest.raises(TocsinError, match="BIGINT overflow"):
        aggregate("SUM", A, 2**63 - 1, 1)
    assert aggregate("AVG", A, 2**63 - 1, 2**63 - 1) == float(2**63)  # an average cannot overflow


def test_sum_of_double_is_the_exact_sum_rounded_once() -> None:
    assert aggregate("SUM", B, *[0.1] * 10) == 1.0  # adding up gives 0.9999999999999999
    assert aggregate("SUM", B, 1e308, 1e308, -1e308) == 1e308  # adding up overflows
    assert aggregate("SUM", B, 1e308, 1e308) == INF
    assert aggregate("SUM", B, -1e308, -1e308) == -INF
    assert aggregate("SUM", B, INF, 1.0) == INF
    assert math.isnan(aggregate("SUM", B, INF, -INF))
    assert math.isnan(aggregate("SUM", B, NAN, -INF))
    assert aggregate("AVG", B, 0.1, 0.1, 0.1) == 0.30000000000000004 / 3  # the rounded sum, divided


def test_min_and_max_put_nan_above_and_order_every_type() -> None:
    assert aggregate("MIN", B, NAN, INF, None) == INF
    assert math.isnan(aggregate("MAX", B, NAN, INF, None))
    assert aggregate("MIN", Column("c", Type.BOOLEAN), True, False) is False
    assert aggregate("MAX", Column("c", Type.STRING), "ab", "b", "B") == "b"
    assert aggregate("MAX", Column("c", Type.DATE), date(2013, 1, 1), date(2012, 12, 31)) == date(2013, 1, 1)


# -- comparing answers -----------------------------------------------------------------------------


def test_rows_are_counted_by_value_and_type() -> None:
    assert row_key({"a": NAN, "b": None}) == row_key({"b": None, "a": NAN})
    assert row_key({"a": -0.0}) == row_key({"a": 0.0})
    assert len({row_key({"a": a}) for a in (1, True, 1.0, "1", None)}) == 5
    assert row_key({"a": None}) != row_key({})
    assert as_bag([{"a": NAN}, {"a": NAN}, {"a": 1}]).total() == 3
    assert max(as_bag([{"a": NAN}, {"a": float("nan")}]).values()) == 2
