"""Joins of streams at the engine: templates, budgets in bytes, texts as keys, failures, explanations."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from tocsin.cli import app
from tocsin.engine import Engine
from tocsin.errors import SqlError, SubscriptionError, TocsinError
from tocsin.limits.options import Memory, Window
from tocsin.limits.stream_scan import StreamJoinScan
from tocsin.subscriptions.rooms import Rooms

DDL = """
CREATE STREAM a (k BIGINT, s STRING, x DOUBLE, at TIMESTAMP);
CREATE STREAM b (k BIGINT, s STRING, at TIMESTAMP)
"""
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
PAIR = "SELECT a.k, a.s, x, b.s AS t FROM a JOIN b ON a.k = b.k"


def engine(**options: Any) -> Engine:
    made = Engine(clock=lambda: NOON, **options)
    made.execute(DDL)
    return made


def events(count: int, keys: int, seed: int) -> dict[str, list[dict[str, Any]]]:
    rng = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = [
        {
            "k": int(rng.integers(keys)),
            "s": f"t{rng.integers(5)}",
            "at": NOON + timedelta(seconds=2 * seed + n % 3),
        }
        for n in range(count)
    ]
    half = count // 2
    return {"a": [{**row, "x": float(rng.random())} for row in rows[:half]], "b": rows[half:]}


def test_a_template_means_the_same_as_its_texts() -> None:
    one, other, scan = engine(), engine(), engine(rooms=Rooms(streams=StreamJoinScan))
    near = "b.at - a.at BETWEEN INTERVAL '-1' SECOND AND INTERVAL '5' SECOND"
    sql = f"{PAIR} AND {near} WHERE x > :x AND (b.s = :s OR b.s = 't0')"
    rows: list[dict[str, Any]] = [{"id": n, "x": n % 7 / 7, "s": f"t{n % 5}"} for n in range(40)]
    one.subscribe_many(sql, pa.Table.from_pylist(rows))
    for row in rows:
        text = sql.replace(":x", repr(row["x"])).replace(":s", f"'{row['s']}'")
        for e in (other, scan):
            e.subscribe(text, id=row["id"])
    found: list[list[Any]] = [[], [], []]
    for seed in range(6):
        for e, out in zip((one, other, scan), found, strict=True):
            deltas = e.apply_all(events(40, 5, seed))
            out += sorted((d.seq, d.subscription, sorted(map(str, d.row.items()))) for d in deltas)
    assert found[0] == found[1] == found[2] and len(found[0]) > 100


def test_a_budget_in_bytes_holds_after_every_step() -> None:
    e = engine()
    s = e.subscribe(PAIR, memory=Memory("256 KB", policy="prob"))
    for seed in range(60):
        e.apply_all(events(400, 3000, seed))
        report = e.limits(s)
        assert report.bytes <= 256 << 10
    assert report.evicted and report.missed and 0 < report.share < 1
    e._check()


def test_keys_of_texts_and_several_columns() -> None:
    e, scan = engine(), engine(rooms=Rooms(streams=StreamJoinScan))
    found = []
    for made in (e, scan):
        made.subscribe("SELECT a.k, a.s FROM a JOIN b ON a.s = b.s WITH (memory = 100000)")
        made.subscribe("SELECT a.k, a.s FROM a JOIN b ON a.s = b.s AND a.k = b.k WITH (memory = 100000)")
        deltas = [d for seed in range(5) for d in made.apply_all(events(60, 4, seed))]
        found.append(sorted((d.seq, d.subscription, d.row["k"], d.row["s"]) for d in deltas))
    assert found[0] == found[1] and found[0]


def test_a_failed_step_is_forgotten() -> None:
    e = engine()
    s = e.subscribe(f"{PAIR} WITH (memory = 10)")
    e.publish("a", {"k": 1, "s": "one"})

    def fail(step: Any) -> None:
        raise ValueError("no")

    stop = e.on_step(fail)
    with pytest.raises(ValueError, match="no"):
        e.publish("a", {"k": 1, "s": "two"})
    stop()
    e._check()
    assert [d.row["s"] for d in e.publish("b", {"k": 1, "s": "b"})] == ["one"]
    assert e.limits(s).rows == 2 and e.limits(s).produced == 1


def test_a_later_subscription_begins_when_it_is_registered(tmp_path: Path) -> None:
    e = engine()
    first = e.subscribe(f"{PAIR} WITH (memory = 10)")
    e.publish("a", {"k": 1})
    second = e.subscribe(f"{PAIR} WITH (memory = 10)")
    e.publish("a", {"k": 1})
    e.save(tmp_path / "saved")
    for made in (e, Engine.load(tmp_path / "saved", clock=lambda: NOON)):
        deltas = made.publish("b", {"k": 1})
        assert sorted(d.subscription for d in deltas) == [first.id, first.id, second.id]
        assert [made.limits(s).produced for s in (first, second)] == [2, 1]
        (family,) = made.stats()["streams"].values()
        assert family["subscriptions"] == 2 and family["rows"] == 3 and family["share"] == 1.0
    e.unsubscribe(first)
    e._check()
    with pytest.raises(TocsinError, match="1 subscription uses a"):
        e.execute("DROP STREAM a")
    e.unsubscribe(second)
    assert e.stats()["streams"] == {}
    e.execute("DROP STREAM a")


def test_explain_counts_what_is_kept_and_what_was_dropped() -> None:
    e = engine()
    s = e.subscribe(f"{PAIR} WHERE a.x > 0.5 WITH (memory = 2, policy = 'fifo')")
    for k, x in ((1, 0.9), (1, 0.1), (1, 0.7), (2, 0.8)):
        e.publish("a", {"k": k, "x": x})
    text = str(e.explain(s, {"k": 1}, table="b"))
    assert "a: 1 event kept that it joins, 1 of these pairs satisfy the conditions" in text
    assert "a: 1 event dropped that it would join" in text
    assert e.explain(s, {"k": 3}, table="b").held is False
    assert "join key is NULL" in str(e.explain(s, {"s": "x"}, table="b"))


def test_options_from_python_and_back() -> None:
    e = engine()
    s = e.subscribe(PAIR, window=Window("10 minutes"), memory=Memory(100, policy="lru"))
    assert str(e.query(s)).endswith("WITH (window = '10 minutes', memory = 100, policy = 'lru')")
    assert e.limits(s).policy == "lru" and e.limits(s).budget == "100 rows"


@pytest.mark.parametrize(
    ("sql", "fact"),
    [
        (PAIR, "would grow without end"),
        (f"{PAIR} AND b.at > a.at", "would grow without end"),
        (
            "SELECT * FROM a JOIN b ON b.at - a.at BETWEEN INTERVAL '0' SECOND AND INTERVAL '1' SECOND",
            "by an equality",
        ),
        (f"{PAIR} WITH (memory = '1 KB')", "too little"),
        (f"{PAIR} WITH (memory = '511 KB')", "too little"),
        (f"{PAIR} WITH (memory = '63 KB', policy = 'lru')", "too little"),
        (f"{PAIR} WITH (memory = 10, late = '1 second')", "late needs a window"),
        (f"{PAIR} WITH (memory = 10, policy = 'arc')", "not for joins of streams"),
        ("SELECT COUNT(*) FROM a JOIN b ON a.k = b.k WITH (memory = 10)", "over a join"),
    ],
)
def test_what_is_rejected(sql: str, fact: str) -> None:
    with pytest.raises((SqlError, SubscriptionError), match=fact):
        engine().subscribe(sql)


@pytest.mark.parametrize(
    "options", ["memory = '9 KB'", "memory = 9, policy = 'arc'", "memory = '9 MB', policy = 'lfd'"]
)
def test_what_is_rejected_has_a_place_in_every_form(options: str) -> None:
    name = options.rpartition(", ")[2].split(" ")[0]
    bad = f"{PAIR} WITH ({options})"
    template = f"{PAIR} WHERE a.k > :low WITH ({options})"
    e = engine()
    for subscribe in (
        lambda: e.subscribe(bad),
        lambda: e.subscribe_texts([f"{PAIR} WITH (memory = 9)", bad]),
        lambda: e.subscribe_many(template, pa.table({"id": [1, 2], "low": [1, 2]})),
    ):
        with pytest.raises(SubscriptionError) as raised:
            subscribe()
        at = raised.value.position
        assert at is not None and at.text[at.start : at.end] == name
    assert not e.subscriptions()


@pytest.mark.parametrize(("policy", "memory"), [("heeb", 512), ("prob", 64), ("fifo", 64)])
def test_the_least_memory_keeps_rows(policy: str, memory: int) -> None:
    """Of numbers too, which have most models; with more keys than there is place for."""
    e, rng = engine(), np.random.default_rng(3)
    s = e.subscribe("SELECT a.k FROM a JOIN b ON a.k = b.k", memory=Memory(f"{memory} KB", policy=policy))
    for _ in range(40):
        for name in "ab":
            e.apply(name, pa.table({"k": rng.integers(0, 10_000, 200)}))
        report = e.limits(s)
        assert report.rows > 100 and report.bytes <= memory << 10


def test_models_leave_place_for_rows_when_keys_change_their_nature() -> None:
    """A trend and a walk over 30,000 keys would need more than the whole budget for their tables."""
    e = engine()
    s = e.subscribe(f"{PAIR} WITH (memory = '512 KB')")
    for seed in range(12):
        e.apply_all(events(2000, 30_000 if seed % 2 else 50, seed))
        assert e.limits(s).bytes <= 512 << 10
    for k in range(40):
        e.apply("a", [{"k": k * 10 + j, "s": "x" * 50, "x": 1.0} for j in range(30)])
        e.apply("b", [{"k": k * 10, "s": "x"}] * 20)
        assert e.limits(s).bytes <= 512 << 10
    assert e.limits(s).rows > 100
    e._check()


@pytest.mark.parametrize("policy", ["heeb", "prob", "fifo"])
def test_keys_that_come_once_leave_nothing(policy: str) -> None:
    e = engine()
    e.execute("CREATE STREAM c (k BIGINT); CREATE STREAM d (k BIGINT)")
    s = e.subscribe(f"SELECT c.k FROM c JOIN d USING (k) WITH (memory = '600 KB', policy = '{policy}')")
    wanted = 0
    for n, count in enumerate((2000, 20_000, 2000, 2000, 2000)):
        once = 10**9 * (n + 1) + np.arange(count)
        some = np.arange(20)
        e.apply_all({"c": pa.table({"k": [*once, *some]}), "d": pa.table({"k": [*(once + 10**6), *some]})})
        e._check()
        assert e.limits(s).bytes <= 600 << 10
        wanted += 20 * (2 * n + 1)
    (family,) = e.stats()["streams"].values()
    report = e.limits(s)
    assert family["keys"] < 12_000 and report.rows > 100
    assert abs(report.produced + report.missed - wanted) <= 0.5 * wanted


def test_what_is_missed_is_an_estimate_where_conditions_differ() -> None:
    e = engine()
    alone = e.subscribe(f"{PAIR} WHERE x > 0.5 WITH (memory = 3)")
    across = e.subscribe(f"{PAIR} WHERE x > 0.5 OR b.s = 'none' WITH (memory = 4)")
    e.apply("a", events(20, 2, 1)["a"])
    e.apply("b", [{**row, "s": "some"} for row in events(20, 2, 1)["b"]])
    assert e.limits(alone).exact and not e.limits(across).exact
    e.subscribe(f"{PAIR} WHERE b.s = 'none' WITH (memory = 3)")
    assert not e.limits(alone).exact


def test_the_command_reports_joins_of_streams(tmp_path):
    engine = Engine()
    engine.execute("CREATE STREAM views (page BIGINT); CREATE STREAM clicks (page BIGINT)")
    joined = "SELECT * FROM views v JOIN clicks c ON v.page = c.page"
    engine.subscribe(f"{joined} WITH (memory = 2, policy = 'fifo')")
    engine.subscribe(f"{joined} WITH (memory = 2)", valid_from=datetime(2100, 1, 1, tzinfo=UTC))
    for page in range(5):
        engine.publish("views", {"page": page})
    for page in reversed(range(5)):
        engine.publish("clicks", {"page": page})
    engine.save(tmp_path / "saved")
    shown = CliRunner().invoke(app, ["limits", str(tmp_path / "saved")]).stdout
    shown = " ".join(shown.split())
    assert "1 pairs, 4 missed (20.0% emitted), 2 rows of 2 rows" in shown
    assert "subscription 2 is waiting" in shown


def test_what_a_subscription_that_left_has_mixed_stays_an_estimate(tmp_path):
    engine = Engine()
    engine.execute("CREATE STREAM views (page BIGINT, ms BIGINT); CREATE STREAM clicks (page BIGINT)")
    joined, options = (
        "SELECT * FROM views v JOIN clicks c ON v.page = c.page",
        "WITH (memory = 2, policy = 'fifo')",
    )
    stays = engine.subscribe(f"{joined} {options}")
    left = engine.subscribe(f"{joined} WHERE v.ms > 5 {options}")
    for page in range(5):
        engine.publish("views", {"page": page, "ms": page})
    engine.unsubscribe(left)
    engine.save(tmp_path / "saved")
    assert engine.limits(stays).exact == Engine.load(tmp_path / "saved").limits(stays.id).exact
