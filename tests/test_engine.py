"""The engine as a user meets it: ids, validity, batches, bad input, explanations, saving."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import tocsin
from tests.clocks import Clock
from tocsin.errors import CatalogError, ChangeError, SqlError, SubscriptionError, TocsinError

STOCKS = "CREATE TABLE stocks (symbol STRING, per DOUBLE, risk DOUBLE, PRIMARY KEY (symbol))"
REVIEWS = "CREATE TABLE reviews (id BIGINT, symbol STRING, rating DOUBLE, PRIMARY KEY (id))"
START = datetime(2013, 1, 1, tzinfo=UTC)


@pytest.fixture
def engine() -> tocsin.Engine:
    e = tocsin.Engine()
    e.execute(STOCKS)
    e.execute(REVIEWS)
    return e


def emitted(deltas: tocsin.Deltas) -> list[tuple[int, int, dict[str, object]]]:
    return [(d.subscription, d.sign, d.row) for d in deltas]


# -- the example of the front page -----------------------------------------------------------------


def test_a_join_emits_when_the_partner_arrives(engine: tocsin.Engine) -> None:
    s = engine.subscribe(
        "SELECT * FROM stocks JOIN reviews USING (symbol) WHERE per BETWEEN 45 AND 70 AND rating >= 6",
        subscriber="ann",
    )
    assert (s.id, s.shape, s.subscriber, s.warnings) == (1, "join", "ann", ())
    assert emitted(engine.insert("stocks", {"symbol": "GOOG", "per": 52.1, "risk": 3.0})) == []
    row = {"symbol": "GOOG", "per": 52.1, "risk": 3.0, "id": 1, "rating": 7.0}
    assert emitted(engine.insert("reviews", {"id": 1, "symbol": "GOOG", "rating": 7})) == [(1, 1, row)]
    assert emitted(engine.update("stocks", {"symbol": "GOOG", "per": 80})) == [(1, -1, row)]
    assert engine.content(s) == []


# -- ids -------------------------------------------------------------------------------------------


def test_ids_are_given_or_the_next_and_never_assigned_twice(engine: tocsin.Engine) -> None:
    sql = "SELECT * FROM stocks"
    assert engine.subscribe(sql).id == 1
    assert engine.subscribe(sql, id=10).id == 10
    assert engine.subscribe(sql).id == 11
    engine.unsubscribe(11)
    assert engine.subscribe(sql).id == 12
    with pytest.raises(SubscriptionError, match="there is a subscription 10 already"):
        engine.subscribe(sql, id=10)
    assert engine.subscribe(sql, id=-5).id == -5
    assert [s.id for s in engine.subscriptions()] == [1, 10, 12, -5]


def test_unsubscribing_many_is_all_or_none(engine: tocsin.Engine) -> None:
    ids = [engine.subscribe("SELECT * FROM stocks").id for _ in range(3)]
    with pytest.raises(SubscriptionError, match="there is no subscription 99"):
        engine.unsubscribe_many([*ids, 99])
    assert len(engine.subscriptions()) == 3
    engine.unsubscribe_many(ids)
    assert engine.subscriptions() == []
    assert emitted(engine.insert("stocks", {"symbol": "A"})) == []
    engine._check()


def test_a_bad_subscription_changes_nothing(engine: tocsin.Engine) -> None:
    with pytest.raises(SqlError, match="did you mean 'per'"):
        engine.subscribe("SELECT * FROM stocks WHERE pre > 5")
    assert engine.subscriptions() == []


def test_a_query_that_can_never_match_is_taken_with_a_warning(engine: tocsin.Engine) -> None:
    s = engine.subscribe("SELECT * FROM stocks WHERE per > 5 AND per < 3")
    assert s.warnings
    assert emitted(engine.insert("stocks", {"symbol": "A", "per": 4})) == []


# -- validity --------------------------------------------------------------------------------------


def test_validity_begins_and_ends_by_the_clock() -> None:
    clock = Clock(START)
    e = tocsin.Engine(clock=clock)
    e.execute(STOCKS)
    e.insert("stocks", {"symbol": "A", "per": 1})
    day = timedelta(days=1)
    s = e.subscribe("SELECT symbol FROM stocks", valid_from=START + day, valid_to=START + 2 * day)
    c = e.subscribe("SELECT COUNT(*) AS n FROM stocks", valid_from=START + day)
    assert e.content(s) == [] and e.content(c) == []
    clock.now += day
    begun = list(e.insert("stocks", {"symbol": "B"}))
    assert [(d.seq, d.subscription, d.sign, d.row) for d in begun] == [
        (1, s.id, 1, {"symbol": "A"}),
        (1, c.id, 1, {"n": 1}),
        (2, s.id, 1, {"symbol": "B"}),
        (2, c.id, -1, {"n": 1}),
        (2, c.id, 1, {"n": 2}),
    ]
    clock.now += day
    assert sorted(d.row["symbol"] for d in e.tick() if d.sign < 0) == ["A", "B"]
    assert e.content(s) == []
    assert list(e.tick()) == []
    e._check()


def test_a_start_is_emitted_even_if_the_batch_fails() -> None:
    clock = Clock(START)
    e = tocsin.Engine(clock=clock)
    e.execute(STOCKS)
    e.insert("stocks", {"symbol": "A", "per": 1})
    e.subscribe("SELECT symbol FROM stocks", valid_from=START + timedelta(days=1))
    clock.now += timedelta(days=1)
    with pytest.raises(ChangeError):
        e.insert("stocks", {"symbol": "A"})
    assert emitted(e.tick()) == [(1, 1, {"symbol": "A"})]


def test_validity_that_ends_before_it_begins_is_refused(engine: tocsin.Engine) -> None:
    with pytest.raises(SubscriptionError, match="valid_to is not after valid_from"):
        engine.subscribe("SELECT * FROM stocks", valid_from=START, valid_to=START)


# -- definitions -----------------------------------------------------------------------------------


def test_a_table_in_use_is_not_dropped(engine: tocsin.Engine) -> None:
    first = engine.subscribe("SELECT * FROM stocks")
    second = engine.subscribe("SELECT * FROM stocks JOIN reviews USING (symbol)")
    with pytest.raises(CatalogError, match="2 subscriptions use stocks"):
        engine.execute("DROP TABLE stocks")
    engine.unsubscribe_many([first, second])
    engine.execute("DROP TABLE stocks")
    with pytest.raises(CatalogError, match="no stream or table 'stocks'"):
        engine.insert("stocks", {"symbol": "A"})


def test_definitions_are_taken_all_or_none(engine: tocsin.Engine) -> None:
    with pytest.raises(CatalogError, match="already"):
        engine.execute("CREATE STREAM s; CREATE TABLE Stocks (a BIGINT PRIMARY KEY)")
    assert [r.name for r in engine.schemas()] == ["stocks", "reviews"]
    with pytest.raises(CatalogError, match="stocks is a table"):
        engine.execute("DROP STREAM stocks")


# -- batches and bad input -------------------------------------------------------------------------

BAD_ROWS = [
    ({"symbol": ["A", "A"]}, 1, "has a row with key 'A' already"),
    ({"symbol": ["A", "B"], "_op": ["insert", "update"]}, 1, "no row with key 'B'"),
    ({"symbol": ["A", "B"], "_op": ["insert", "delete"]}, 1, "no row with key 'B'"),
    ({"symbol": ["A", None]}, 1, "key column symbol is missing or NULL"),
    ({"symbol": ["A", "B"], "_op": ["insert", "merge"]}, 1, "unknown operation 'merge'"),
    ({"symbol": ["A", "B"], "_seq": [5, 5]}, 1, "seq 5 is not above the last one, 5"),
    ({"symbol": ["A", "B"], "_seq": [5, None]}, 1, "seq is missing"),
    ({"per": [1.0]}, 0, "key column symbol is missing or NULL"),
]


@pytest.mark.parametrize(("columns", "row", "reason"), BAD_ROWS)
def test_a_bad_row_is_named_and_nothing_is_applied(
    engine: tocsin.Engine, columns: dict[str, list[object]], row: int, reason: str
) -> None:
    s = engine.subscribe("SELECT * FROM stocks")
    with pytest.raises(ChangeError, match=reason) as error:
        engine.apply("stocks", pa.table(columns))
    assert error.value.row == row
    assert engine.content(s) == [] and engine.last_seq == 0 and engine.rows("stocks").num_rows == 0
    good = engine.apply("stocks", pa.table({"symbol": ["A"]}))
    assert [d.seq for d in good] == [1]


def test_bad_rows_can_go_to_dead_letters_while_the_rest_goes_on(engine: tocsin.Engine) -> None:
    s = engine.subscribe("SELECT symbol FROM stocks")
    dead: list[tocsin.BadRow] = []
    engine.apply("stocks", pa.table({"symbol": ["A", None, "A", "B"]}), dead_letters=dead)
    assert [(bad.row, bad.reason.split(" ")[0]) for bad in dead] == [(1, "key"), (2, "stocks")]
    assert engine.content(s) == [{"symbol": "A"}, {"symbol": "B"}]


WRONG = [
    ({"symbol": "A", "per": "x"}, "column per: 'x' is not a DOUBLE"),
    ({"symbol": "A", "per": True}, "column per: True is not a DOUBLE"),
    ({"symbol": 3}, "column symbol: 3 is not a STRING"),
    ({"symbol": "A", "prise": 3}, "stocks has no column 'prise'"),
    ({"symbol": "\ud800"}, "is not a STRING"),
    ({}, "key column symbol is missing or NULL"),
]


@pytest.mark.parametrize(("row", "reason"), WRONG)
def test_a_wrong_row_is_refused(engine: tocsin.Engine, row: dict[str, object], reason: str) -> None:
    with pytest.raises(ChangeError, match=reason):
        engine.insert("stocks", row)
    assert engine.rows("stocks").num_rows == 0


def test_a_column_of_the_wrong_type_is_refused(engine: tocsin.Engine) -> None:
    with pytest.raises(ChangeError, match="column per has type string, which is not a DOUBLE"):
        engine.apply("stocks", pa.table({"symbol": ["A"], "per": ["1"]}))
    with pytest.raises(ChangeError, match="has no column 'x'"):
        engine.apply("stocks", pa.table({"symbol": ["A"], "x": [1]}))
    with pytest.raises(ChangeError, match="not one dict"):
        engine.apply("stocks", {"symbol": "A"})


def test_nan_in_a_key_is_refused() -> None:
    e = tocsin.Engine()
    e.execute("CREATE TABLE t (x DOUBLE, PRIMARY KEY (x))")
    for change in (
        lambda: e.insert("t", {"x": math.nan}),
        lambda: e.apply("t", pa.table({"x": [math.nan]})),
    ):
        with pytest.raises(ChangeError, match="key column x is NaN"):
            change()
    e.insert("t", {"x": -0.0})
    with pytest.raises(ChangeError, match="already"):
        e.insert("t", {"x": 0.0})


def test_several_tables_are_one_step_in_order_of_seq(engine: tocsin.Engine) -> None:
    engine.subscribe("SELECT COUNT(*) AS n FROM stocks")
    j = engine.subscribe("SELECT id FROM stocks JOIN reviews USING (symbol)")
    deltas = engine.apply_all(
        {
            "stocks": pa.table({"_seq": [1, 4], "_op": ["insert", "delete"], "symbol": ["A", "A"]}),
            "reviews": pa.table({"_seq": [2, 3, 5], "id": [1, 2, 3], "symbol": ["A", "A", "A"]}),
        }
    )
    joined = [(d.seq, d.sign, d.row["id"]) for d in deltas if d.subscription == j.id]
    assert joined == [(2, 1, 1), (3, 1, 2), (4, -1, 1), (4, -1, 2)]
    with pytest.raises(ChangeError, match="seq 7 occurs twice"):
        engine.apply_all(
            {
                "stocks": pa.table({"_seq": [7], "symbol": ["B"]}),
                "reviews": pa.table({"_seq": [7], "id": [9]}),
            }
        )
    engine._check()


def test_net_emits_only_the_difference(engine: tocsin.Engine) -> None:
    engine.subscribe("SELECT symbol FROM stocks")
    batch = pa.table({"_op": ["insert", "delete", "insert"], "symbol": ["A", "A", "B"]})
    deltas = engine.apply("stocks", batch, net=True)
    assert [(d.seq, d.sign, d.row) for d in deltas] == [(3, 1, {"symbol": "B"})]


def test_partial_updates_keep_what_is_not_given(engine: tocsin.Engine) -> None:
    s = engine.subscribe("SELECT * FROM stocks")
    engine.insert("stocks", {"symbol": "A", "per": 1, "risk": 2})
    engine.update("stocks", {"symbol": "A", "per": None})
    assert engine.content(s) == [{"symbol": "A", "per": None, "risk": 2.0}]
    chain = pa.table(
        {"_op": ["update", "upsert", "upsert"], "symbol": ["A", "A", "B"], "per": [5.0, 6.0, 7.0]}
    )
    engine.apply("stocks", chain)
    assert engine.content(s) == [
        {"symbol": "A", "per": 6.0, "risk": 2.0},
        {"symbol": "B", "per": 7.0, "risk": None},
    ]


def test_deltas_as_arrow(engine: tocsin.Engine) -> None:
    engine.subscribe("SELECT symbol, per FROM stocks", id=2**40)
    deltas = engine.apply("stocks", pa.table({"symbol": ['say "x"', "b"], "per": [math.nan, 1.5]}))
    assert len(deltas) == 2
    assert deltas.to_arrow().column_names == ["seq", "subscription", "sign"]
    assert deltas.to_arrow(rows=True).to_pylist() == [
        {"seq": 1, "subscription": 2**40, "sign": 1, "row": '{"symbol":"say \\"x\\"","per":"NaN"}'},
        {"seq": 2, "subscription": 2**40, "sign": 1, "row": '{"symbol":"b","per":1.5}'},
    ]


def test_listeners_are_called_until_they_stop(engine: tocsin.Engine) -> None:
    engine.subscribe("SELECT symbol FROM stocks")
    received: list[int] = []
    stop = engine.on_delta(lambda deltas: received.append(len(deltas)))
    engine.insert("stocks", {"symbol": "A"})
    engine.update("stocks", {"symbol": "A", "per": 1})  # alters no answer
    stop()
    engine.insert("stocks", {"symbol": "B"})
    assert received == [1]


# -- streams ---------------------------------------------------------------------------------------


def test_an_open_stream_takes_any_attribute() -> None:
    e = tocsin.Engine()
    e.execute("CREATE STREAM listings")
    s = e.subscribe("SELECT * FROM listings WHERE model = 'x5' AND price <= 580")
    n = e.subscribe("SELECT `unit price`, model FROM listings WHERE `unit price` != 'cheap'")
    assert emitted(e.publish("listings", {"model": "x5", "price": 499})) == [
        (s.id, 1, {"model": "x5", "price": 499})
    ]
    assert emitted(e.publish("listings", {"model": 5, "price": 499})) == []
    # a number is neither equal nor unequal to text
    assert emitted(e.publish("listings", {"unit price": 3})) == []
    assert emitted(e.publish("listings", {"unit price": "dear"})) == [
        (n.id, 1, {"unit price": "dear", "model": None})
    ]
    assert e.content(s) == []
    numbers = pa.array([[("price", 1.0)]], pa.map_(pa.string(), pa.float64()))
    texts = pa.array([[("price", "x")]], pa.map_(pa.string(), pa.string()))
    with pytest.raises(ChangeError, match="attribute price occurs twice"):
        e.apply("listings", pa.table({"attributes": numbers, "texts": texts}))
    with pytest.raises(ChangeError, match="is a stream"):
        e.update("listings", {"price": 1})
    with pytest.raises(TocsinError, match="is a stream: it keeps no rows"):
        e.rows("listings")


def test_publishing_to_a_table_is_refused(engine: tocsin.Engine) -> None:
    with pytest.raises(TocsinError, match="stocks is a table"):
        engine.publish("stocks", {"symbol": "A"})


# -- explanations ----------------------------------------------------------------------------------


def test_explain_names_each_predicate(engine: tocsin.Engine) -> None:
    s = engine.subscribe(
        "SELECT * FROM stocks WHERE per > 5 AND (risk IS NULL OR risk < 3) AND symbol NOT LIKE 'A%'"
    )
    why = engine.explain(s, {"symbol": "B", "per": 4})
    assert not why.held
    assert [(check.level, check.text, check.held) for check in why.checks] == [
        (0, "per > 5", False),
        (0, "any of", True),
        (1, "risk IS NULL", True),
        (1, "risk < 3", None),
        (0, "NOT symbol LIKE 'A%'", True),
    ]
    assert engine.explain(s, {"symbol": "B", "per": 6}).held


def test_explain_says_why_it_is_unknown() -> None:
    engine = tocsin.Engine()
    engine.execute("CREATE STREAM hits; CREATE STREAM calls (ms BIGINT)")
    hits = engine.subscribe("SELECT * FROM hits WHERE ms > 1 AND (page = 2 OR code = 3)")
    assert str(engine.explain(hits, {"ms": "5", "page": "/"})).splitlines()[1:] == [
        "  ?    ms > 1  (unknown: ms is '5')",
        "  ?    any of  (unknown)",
        "  ?      page = 2  (unknown: page is '/')",
        "  ?      code = 3  (unknown: NULL or missing)",
    ]
    for condition, why in [("NOT ms > 1", "ms is '5'"), ("ms IN (1, NULL)", "compared with NULL")]:
        other = engine.subscribe(f"SELECT * FROM hits WHERE {condition}")
        assert engine.explain(other, {"ms": "5"}).checks[0].why == why
    calls = engine.subscribe("SELECT * FROM calls WHERE ms > 1")
    with pytest.raises(tocsin.TocsinError, match="calls has no column 'mss'"):
        engine.explain(calls, {"mss": 1})
    with pytest.raises(tocsin.TocsinError, match="of no table of the query"):
        engine.explain(calls, {1: 1})


def test_explain_a_join(engine: tocsin.Engine) -> None:
    s = engine.subscribe("SELECT * FROM stocks JOIN reviews USING (symbol) WHERE per > 5 AND rating >= 6")
    engine.insert("reviews", {"id": 1, "symbol": "A", "rating": 3})
    why = engine.explain(s, {"symbol": "A", "per": 9}, table="stocks")
    assert not why.held
    assert why.notes[0] == "reviews: 1 row joined, 0 of them satisfy its conditions"
    engine.insert("reviews", {"id": 2, "symbol": "A", "rating": 7})
    assert engine.explain(s, {"symbol": "A", "per": 9}, table="stocks").held
    assert engine.rows("stocks").num_rows == 0, "explaining changes nothing"
    with pytest.raises(TocsinError, match="the row is of no table"):
        engine.explain(s, {"nonsense": 1})
    engine._check()


def test_explain_a_rank(engine: tocsin.Engine) -> None:
    k = engine.subscribe("SELECT * FROM stocks WHERE risk < 5 ORDER BY per DESC LIMIT 2")
    m = engine.subscribe("SELECT MIN(per) FROM stocks")
    engine.apply(
        "stocks", pa.table({"symbol": ["A", "B", "C"], "per": [1.0, 2.0, 3.0], "risk": [1.0, 1.0, 9.0]})
    )
    assert engine.explain(k, {"symbol": "A", "per": 1.0, "risk": 1}).held
    why = engine.explain(k, {"symbol": "Z", "per": 0.5, "risk": 1})
    assert not why.held
    assert why.notes == (
        "rank 3 of 3 selected rows; the answer holds the first 2",
        "the last row in it has per = 1.0",
    )
    assert engine.explain(m, {"symbol": "Z", "per": 0.5}).held
    assert engine.explain(m, {"symbol": "Z", "per": 7}).notes == ("MIN(per) = 1.0, the row has 7.0",)


# -- saving ----------------------------------------------------------------------------------------


def test_an_engine_is_saved_and_loaded(tmp_path: Path) -> None:
    e = tocsin.Engine()
    e.execute("CREATE STREAM hits")
    e.execute("CREATE TABLE `odd name` (d DATE, `when` TIMESTAMP, `x y` DOUBLE, PRIMARY KEY (d))")
    e.insert("odd name", {"d": date(2013, 1, 1), "when": START, "x y": math.inf})
    s = e.subscribe(
        "SELECT * FROM `odd name` WHERE `x y` > 3", id=7, subscriber="ann", valid_to=START + timedelta(9**5)
    )
    e.subscribe("SELECT MAX(`x y`) AS m FROM `odd name`")
    e.unsubscribe(8)
    e.save(tmp_path / "saved")
    e.save(tmp_path / "saved")  # over the one before
    loaded = tocsin.Engine.load(tmp_path / "saved")
    assert loaded.subscriptions() == e.subscriptions()
    assert loaded.content(s) == e.content(s) == [{"d": date(2013, 1, 1), "when": START, "x y": math.inf}]
    assert loaded.last_seq == 1
    assert loaded.subscribe("SELECT * FROM hits").id == 9
    assert [d.seq for d in loaded.delete("odd name", {"d": date(2013, 1, 1)})] == [2]
    assert [p.name for p in tmp_path.iterdir()] == ["saved"]


def test_what_is_not_a_saved_engine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TocsinError, match="is not a saved engine"):
        tocsin.Engine.load(tmp_path)
    (tmp_path / "mine").mkdir()
    with pytest.raises(TocsinError, match="is not a saved engine"):
        tocsin.Engine().save(tmp_path / "mine")


def test_a_sum_that_is_no_bigint_is_refused_when_subscribing() -> None:
    e = tocsin.Engine()
    e.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT)")
    e.apply("t", pa.table({"id": [1, 2], "n": [2**63 - 1, 1]}))
    with pytest.raises(TocsinError, match="BIGINT overflow"):
        e.subscribe("SELECT SUM(n) FROM t")
    assert e.subscriptions() == []
    e.delete("t", {"id": 2})
    s = e.subscribe("SELECT SUM(n) AS n FROM t")
    with pytest.raises(TocsinError, match="BIGINT overflow"):
        e.insert("t", {"id": 3, "n": 5})
    assert e.content(s) == [{"n": 2**63 - 1}]
    e._check()
