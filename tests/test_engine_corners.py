"""Corners of the engine that a careful user once cut themselves on."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import tocsin
from tests.clocks import Clock
from tocsin.errors import (
    CatalogError,
    ChangeError,
    ListenerError,
    SubscriptionError,
    SumOverflow,
    TocsinError,
)
from tocsin.reference import evaluate

TABLE = "CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT, x DOUBLE, s STRING, d DATE, ts TIMESTAMP)"
START = datetime(2013, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture
def engine() -> tocsin.Engine:
    e = tocsin.Engine()
    e.execute(TABLE)
    return e


# -- LIKE ------------------------------------------------------------------------------------------

PARTS = ("", "%", "_", "a", r"\\", r"\%")
PATTERNS = sorted({a + b + c + d for a in PARTS for b in PARTS for c in PARTS for d in ("", "%", "a")})


def test_like_is_what_the_reference_says(engine: tocsin.Engine) -> None:
    texts = ["", "a", "aa", "\\", "\\a", "\\\\a", "a\\", "%", "a%", "%a", "\n", "a\na", "ä", "aaa"]
    engine.apply("t", pa.table({"id": range(len(texts)), "s": texts}))
    database = {"t": engine.rows("t").to_pylist()}
    for pattern in PATTERNS:
        s = engine.subscribe(f"SELECT id FROM t WHERE s LIKE r'{pattern}'")
        expected = evaluate(engine.query(s), database, {"t": ("id",)})
        assert engine.content(s) == expected, pattern
        engine.unsubscribe(s)


# -- validity and saving ---------------------------------------------------------------------------


def test_starts_and_ends_while_saved_are_emitted(tmp_path: Path) -> None:
    clock = Clock(START)
    e = tocsin.Engine(clock=clock)
    e.execute(TABLE)
    e.insert("t", {"id": 1})
    e.subscribe("SELECT id FROM t", valid_from=START + DAY)
    e.subscribe("SELECT id FROM t", valid_to=START + DAY)
    e.subscribe("SELECT id FROM t", valid_to=START + DAY / 2)
    e.save(tmp_path / "e")
    clock.now += 2 * DAY
    loaded = tocsin.Engine.load(tmp_path / "e", clock=clock)
    expected = [(1, 1, {"id": 1}), (2, -1, {"id": 1}), (3, -1, {"id": 1})]
    assert sorted((d.subscription, d.sign, d.row) for d in loaded.tick()) == expected
    assert list(loaded.tick()) == []
    loaded._check()


def test_pending_deltas_are_emitted_after_loading(tmp_path: Path) -> None:
    clock = Clock(START)
    e = tocsin.Engine(clock=clock)
    e.execute(TABLE)
    e.insert("t", {"id": 1})
    s = e.subscribe("SELECT id FROM t", valid_from=START + DAY)
    clock.now += DAY
    assert e.content(s) == [{"id": 1}]  # it began, but no deltas were found yet
    e.save(tmp_path / "e")
    assert [d.sign for d in tocsin.Engine.load(tmp_path / "e", clock=clock).tick()] == [1]
    assert [d.sign for d in e.tick()] == [1]


def test_an_expired_subscription_of_a_dropped_table_does_not_spoil_a_save(tmp_path: Path) -> None:
    clock = Clock(START)
    e = tocsin.Engine(clock=clock)
    e.execute(TABLE)
    e.subscribe("SELECT id FROM t", valid_to=START + DAY)
    clock.now += DAY
    e.tick()
    e.execute("DROP TABLE t")
    e.save(tmp_path / "e")
    assert tocsin.Engine.load(tmp_path / "e").subscriptions() == []


def test_a_clock_without_a_zone_is_utc() -> None:
    e = tocsin.Engine(clock=lambda: datetime(2013, 1, 1))
    e.execute(TABLE)
    e.subscribe("SELECT * FROM t", valid_from=datetime(2013, 1, 1), valid_to=datetime(2014, 1, 1))
    assert [d.sign for d in e.insert("t", {"id": 1})] == [1]


def test_a_sum_that_overflows_when_it_begins_harms_nobody_else() -> None:
    clock = Clock(START)
    e = tocsin.Engine(clock=clock)
    e.execute(TABLE)
    e.apply("t", pa.table({"id": [1, 2], "a": [2**63 - 1, 2**63 - 1]}))
    s = e.subscribe("SELECT SUM(a) FROM t", valid_from=START + DAY)
    n = e.subscribe("SELECT COUNT(*) AS n FROM t")
    clock.now += DAY
    assert [d.row for d in e.insert("t", {"id": 3})] == [{"n": 2}, {"n": 3}]
    assert e.content(s) == [] and e.content(n) == [{"n": 3}]
    [found] = [x for x in e.subscriptions() if x.id == s.id]
    assert "BIGINT overflow" in found.warnings[-1]
    e._check()


def test_an_overflow_names_the_subscription(engine: tocsin.Engine) -> None:
    engine.subscribe("SELECT SUM(a) FROM t", id=77)
    engine.insert("t", {"id": 1, "a": 2**63 - 1})
    with pytest.raises(SumOverflow, match="subscription 77: BIGINT overflow"):
        engine.insert("t", {"id": 2, "a": 1})
    engine.apply("t", pa.table({"id": [3, 4], "a": [-5, 3]}))
    with pytest.raises(SumOverflow, match="subscription 78: BIGINT overflow"):
        engine.subscribe("SELECT SUM(id), SUM(a) FROM t WHERE a > 0", id=78)
    engine._check()


# -- ends of the numbers ---------------------------------------------------------------------------


def test_ids_and_seqs_can_run_out(engine: tocsin.Engine) -> None:
    engine.subscribe("SELECT * FROM t", id=2**63 - 1)
    with pytest.raises(SubscriptionError, match="no id left"):
        engine.subscribe("SELECT * FROM t")
    engine.insert("t", {"id": 1, "_seq": 2**63 - 1})
    with pytest.raises(ChangeError, match="no sequence number left"):
        engine.insert("t", {"id": 2})
    engine._check()


def test_times_before_1970_are_rounded_down(engine: tocsin.Engine) -> None:
    ns = pa.array([-100], pa.int64()).cast(pa.timestamp("ns"))
    day = pa.array([-1], pa.int64()).cast(pa.date64())
    engine.apply("t", pa.table({"id": [1], "ts": ns, "d": day}))
    row = engine.rows("t").to_pylist()[0]
    assert row["ts"] == datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
    assert str(row["d"]) == "1969-12-31"
    far = pa.array([18446744073710], pa.int64()).cast(pa.timestamp("s"))
    with pytest.raises(ChangeError, match="years 1 and 9999"):
        engine.apply("t", pa.table({"id": [2], "ts": far}))


# -- bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [pa.table({"a": pa.array([], pa.int64())}), pa.table({})])
def test_an_empty_batch_is_no_change(engine: tocsin.Engine, batch: pa.Table) -> None:
    assert len(engine.apply("t", batch)) == 0


def test_rows_without_a_key_are_dead_letters(engine: tocsin.Engine) -> None:
    dead: list[tocsin.BadRow] = []
    engine.apply("t", pa.table({"a": [1]}), dead_letters=dead)
    assert [bad.row for bad in dead] == [0]


@pytest.mark.parametrize(
    "batch",
    [
        pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["id", "id"]),
        pa.Table.from_arrays(
            [pa.array([1]), pa.array(["insert"]), pa.array(["insert"])], ["id", "_op", "_op"]
        ),
        pa.table({"id": [1], "_op": [["insert"]]}),
        pa.table({"id": [1], "s": pa.array([b"\xff"]).view(pa.string())}),
        pa.table({"id": [1], "a": [[1]]}),
    ],
)
def test_batches_that_cannot_be_read_are_refused(engine: tocsin.Engine, batch: pa.Table) -> None:
    with pytest.raises(ChangeError):
        engine.apply("t", batch)
    assert engine.rows("t").num_rows == 0


def test_an_attribute_that_is_no_text_is_refused() -> None:
    e = tocsin.Engine()
    e.execute("CREATE STREAM o")
    e.subscribe("SELECT * FROM o WHERE a > 1")
    for event in ({"\ud800": 5, "a": 9}, {5: 5, "a": 9}):
        with pytest.raises(ChangeError, match="an attribute's name is text"):
            e.publish("o", event)  # type: ignore[arg-type]


def test_things_of_the_wrong_kind_are_refused(engine: tocsin.Engine, tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match="named by text"):
        engine.insert(5, {"id": 1})  # type: ignore[arg-type]
    with pytest.raises(SubscriptionError, match="named by text"):
        engine.subscribe("SELECT * FROM t", subscriber=5)  # type: ignore[arg-type]
    with pytest.raises(TocsinError, match="cannot be called"):
        engine.on_delta(5)  # type: ignore[arg-type]
    with pytest.raises(ChangeError, match="_op is for batches"):
        engine.insert("t", {"id": 1, "_op": "delete"})
    (tmp_path / "file").write_text("x")
    with pytest.raises(TocsinError, match="cannot be written"):
        engine.save(tmp_path / "file" / "below")


def test_a_listener_that_fails_stops_nobody(engine: tocsin.Engine) -> None:
    engine.subscribe("SELECT id FROM t")
    received: list[int] = []

    def broken(deltas: tocsin.Deltas) -> None:
        raise KeyError("oops")

    stop = engine.on_delta(broken)
    engine.on_delta(lambda deltas: received.append(len(deltas)))
    with pytest.raises(ListenerError, match="oops") as error:
        engine.insert("t", {"id": 1})
    assert received == [1] and [d.row for d in error.value.deltas] == [{"id": 1}]  # type: ignore[attr-defined]
    stop()
    stop()
    assert engine.rows("t").num_rows == 1


def test_bulk_names_the_rows_whose_ids_are_taken(engine: tocsin.Engine) -> None:
    engine.subscribe("SELECT * FROM t", id=7)
    with pytest.raises(SubscriptionError) as error:
        engine.subscribe_many("SELECT * FROM t WHERE a > :a", pa.table({"id": [6, 7], "a": [1, 2]}))
    assert [bad.row for bad in error.value.rows] == [1]
    assert len(engine.subscriptions()) == 1


def test_a_long_line_is_cut_around_the_place(engine: tocsin.Engine) -> None:
    many = ", ".join(map(str, range(10_000)))
    with pytest.raises(TocsinError) as error:
        engine.subscribe(f"SELECT * FROM t WHERE a IN ({many}) AND nope = 1")
    place, caret = str(error.value).splitlines()[1:3]
    assert len(place) < 300 and place[caret.index("^") :].startswith("nope")


# -- explanations ----------------------------------------------------------------------------------


def test_explain_tries_every_place_of_a_self_join(engine: tocsin.Engine) -> None:
    s = engine.subscribe("SELECT p.id AS pid, q.id AS qid FROM t p JOIN t q ON p.a = q.id WHERE p.x > 0")
    engine.apply("t", pa.table({"id": [1, 10], "a": [10, 99], "x": [1.0, -1.0]}))
    assert engine.explain(s, {"id": 10}).held
    assert not engine.explain(s, {"id": 10}, table="p").held
    assert engine.explain(s, {"id": 10}, table="q").held


def test_explain_fills_in_the_row_with_the_key(engine: tocsin.Engine) -> None:
    engine.insert("t", {"id": 1, "a": 10, "x": 1.0})
    s = engine.subscribe("SELECT * FROM t WHERE a = 10")
    k = engine.subscribe("SELECT * FROM t WHERE a IS NULL ORDER BY x LIMIT 3")
    m = engine.subscribe("SELECT MIN(x), COUNT(s) FROM t WHERE a = 10")
    assert engine.explain(s, {"id": 1}).held
    assert not engine.explain(k, {"id": 1}).held
    assert engine.explain(k, {"id": 1, "a": None}).held
    assert engine.explain(m, {"id": 1}).notes == (
        "it counts towards the answer",
        "COUNT(s): the row has NULL there",
    )
    with pytest.raises(TocsinError, match="column a: 'x' is not a BIGINT"):
        engine.explain(s, {"id": 1, "a": "x"})


def test_explain_knows_validity_and_not() -> None:
    e = tocsin.Engine(clock=Clock(START))
    e.execute(TABLE)
    s = e.subscribe("SELECT * FROM t WHERE NOT (a > 3 OR x > 3)", valid_from=START + DAY)
    why = e.explain(s, {"id": 1, "a": 1, "x": 1})
    assert not why.held and why.notes == ("the subscription is waiting",)
    assert [(c.text, c.held) for c in why.checks] == [
        ("NOT", True),
        ("any of", False),
        ("a > 3", False),
        ("x > 3", False),
    ]


def test_explain_walks_through_a_multi_way_join(engine: tocsin.Engine) -> None:
    s = engine.subscribe("SELECT p.id FROM t p JOIN t q ON p.a = q.id JOIN t r ON q.a = r.id WHERE r.x > 5")
    engine.apply("t", pa.table({"id": [1, 2, 3], "a": [2, 3, 0], "x": [0.0, 0.0, 1.0]}))
    assert engine.explain(s, {"id": 1}, table="p").notes == (
        "q: 1 row joined, 1 of them satisfy its conditions",
        "r: 1 row joined, 0 of them satisfy its conditions",
        "0 joined rows in the answer because of it",
    )


def test_a_filter_of_a_table_ends_beside_one_that_looks_into_events() -> None:
    """Only the open stream has nested attributes to remove."""
    engine = tocsin.Engine()
    engine.execute("CREATE STREAM listings; CREATE TABLE stocks (symbol STRING, PRIMARY KEY (symbol))")
    nested = engine.subscribe("SELECT * FROM listings WHERE item.brand = 'acme'")
    plain = engine.subscribe("SELECT * FROM stocks WHERE symbol = 'GOOG'")
    engine.unsubscribe(plain)
    engine._check()
    engine.unsubscribe(nested)
    engine._check()


def test_texts_of_one_template_that_look_into_events() -> None:
    """A text that differs from another in literals alone needs its paths looked up too."""
    texts = [f"SELECT * FROM listings WHERE item.brand = 'b{n}' AND item.n != 7" for n in range(20)]
    one_by_one, together = tocsin.Engine(), tocsin.Engine()
    for engine in (one_by_one, together):
        engine.execute("CREATE STREAM listings")
    for text in texts:
        one_by_one.subscribe(text)
    together.subscribe_texts(texts)
    for engine in (one_by_one, together):
        assert engine.publish("listings", {"item": {"brand": "b3", "n": 5}}).subscription.tolist() == [4]
        assert engine.apply("listings", [{"item": {"brand": "b19", "n": 5}}]).subscription.tolist() == [20]
