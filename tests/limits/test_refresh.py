"""Deferred subscriptions of an engine: groups, conditions, validity, files, threads."""

from __future__ import annotations

import asyncio
import json
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from tests.clocks import Clock
from tocsin.aio import AsyncEngine
from tocsin.cli import app
from tocsin.engine import Engine
from tocsin.errors import CatalogError, SqlError, SubscriptionError, SumOverflow
from tocsin.limits.groups import RefreshGroups
from tocsin.limits.options import Every, OnDemand, When
from tocsin.model.delta import Deltas
from tocsin.network.form_choice import can_be_followed
from tocsin.store.copies import WaitingChanges

DEFINITIONS = """
CREATE TABLE items (id BIGINT, shop BIGINT, price DOUBLE, PRIMARY KEY (id));
CREATE TABLE shops (id BIGINT, city STRING, PRIMARY KEY (id));
"""
JOINED = "SELECT MIN(price) AS cheapest FROM items JOIN shops ON items.shop = shops.id WHERE city = 'Oslo'"
ITEMS = "SELECT id FROM items WHERE price < 10"
DEMAND = "refresh = 'on demand'"


@pytest.fixture
def clock() -> Clock:
    return Clock(datetime(2024, 1, 1, tzinfo=UTC))


@pytest.fixture
def engine(clock: Clock) -> Engine:
    made = Engine(clock=clock)
    made.execute(DEFINITIONS)
    made.apply("shops", [{"id": n, "city": ("Oslo", "Rome")[n % 2]} for n in range(4)])
    made.apply("items", [{"id": n, "shop": n % 4, "price": float(n)} for n in range(8)])
    return made


def with_(sql: str, options: str) -> str:
    return f"{sql} WITH ({options})"


def read(deltas: Deltas) -> list[tuple[int, dict[str, Any]]]:
    return [(d.sign, d.row) for d in deltas]


# -- refreshing -------------------------------------------------------------------------------------


def test_changes_are_coalesced_and_emitted_net(engine: Engine) -> None:
    s = engine.subscribe(with_(ITEMS, DEMAND))
    for price in (50.0, 5.0, 60.0, 70.0):
        assert not len(engine.update("items", {"id": 1, "price": price}))
    engine.insert("items", {"id": 100, "shop": 1, "price": 1.0})
    engine.delete("items", {"id": 100})
    engine.delete("items", {"id": 2})
    engine.insert("items", {"id": 2, "shop": 1, "price": 2.0})
    engine.update("items", {"id": 3, "price": 3.5})
    waiting = engine.limits(s).waiting
    assert waiting == {"items": 3}, "keys 1, 2 and 3: what was inserted and deleted is gone"
    assert read(engine.refresh(s)) == [(-1, {"id": 1})]
    assert engine.limits(s).waiting == {"items": 0}
    assert not len(engine.refresh(s))


def test_refreshing_one_refreshes_its_group_and_delivers_to_one(engine: Engine) -> None:
    one = engine.subscribe(with_(ITEMS, f"{DEMAND}, group = 'g'"))
    other = engine.subscribe(with_("SELECT COUNT(*) AS n FROM items", f"{DEMAND}, group = 'g'"))
    joined = engine.subscribe(with_(JOINED, f"{DEMAND}, group = 'g'"))
    assert len(engine.stats()["refresh"]["groups"]) == 1
    engine.insert("items", {"id": 50, "shop": 0, "price": -1.0})
    assert read(engine.refresh(one)) == [(1, {"id": 50})]
    assert engine.content(other, stale=True) == [{"n": 8}]
    assert engine.limits(other).waiting == {"items": 0, "shops": 0}
    assert read(engine.refresh(other)) == [(-1, {"n": 8}), (1, {"n": 9})]
    assert read(engine.refresh(joined)) == [(-1, {"cheapest": 0.0}), (1, {"cheapest": -1.0})]


def test_subscriptions_with_equal_options_over_the_same_tables_share_a_group(engine: Engine) -> None:
    for options in (DEMAND, DEMAND, f"{DEMAND}, within = '1 second'"):
        engine.subscribe(with_(ITEMS, options))
    engine.subscribe(with_(JOINED, DEMAND))
    assert [g["subscriptions"] for g in engine.stats()["refresh"]["groups"]] == [2, 1, 1]


def test_a_named_group_has_one_limit(engine: Engine) -> None:
    engine.subscribe(with_(ITEMS, f"{DEMAND}, group = 'g', within = '1 second'"))
    with pytest.raises(SubscriptionError, match="the group 'g' has another limit"):
        engine.subscribe(with_(JOINED, f"{DEMAND}, group = 'g'"))
    engine.subscribe(with_(JOINED, "refresh = 'every 1 minute', group = 'g', within = '1 second'"))
    engine._check()


def test_a_new_member_begins_with_the_present(engine: Engine) -> None:
    first = engine.subscribe(with_(ITEMS, DEMAND))
    engine.delete("items", {"id": 0})
    second = engine.subscribe(with_(ITEMS, DEMAND))
    assert len(engine.content(second, stale=True)) == 7
    assert len(engine.content(first, stale=True)) == 8
    assert not len(engine.refresh(second))
    assert read(engine.refresh(first)) == [(-1, {"id": 0})]


def test_content_refreshes_and_listeners_receive_it(engine: Engine) -> None:
    s = engine.subscribe(ITEMS, refresh=OnDemand(within="200 ms"))
    received: list[Any] = []
    engine.on_delta(lambda deltas: received.extend(read(deltas)))
    engine.delete("items", {"id": 0})
    assert not received and len(engine.content(s, stale=True)) == 8 and not received
    assert len(engine.content(s)) == 7
    assert received == [(-1, {"id": 0})]


def test_a_net_batch_says_nothing_of_deferred_answers(engine: Engine) -> None:
    deferred, plain = engine.subscribe(with_(ITEMS, DEMAND)), engine.subscribe(ITEMS)
    batch = pa.table({"id": [0, 0], "price": [100.0, 5.0], "_op": ["update", "update"]})
    assert not len(engine.apply("items", batch, net=True))
    found = engine.apply("items", pa.table({"id": [1], "price": [100.0], "_op": ["update"]}), net=True)
    assert [d.subscription for d in found] == [plain.id]
    assert read(engine.refresh(deferred)) == [(-1, {"id": 1})]


def test_many_at_once(engine: Engine) -> None:
    params = pa.table({"id": range(10, 40), "most": [float(n) for n in range(30)]})
    template = f"SELECT id FROM items WHERE price < :most WITH ({DEMAND}, within = '1 second')"
    ids = engine.subscribe_many(template, params)
    counts = engine.subscribe_texts(
        [
            with_(f"SELECT COUNT(*) AS n FROM items, shops WHERE shop = shops.id AND price < {n}", DEMAND)
            for n in range(20)
        ]
    )
    engine.update("items", {"id": 7, "price": 0.5})
    assert read(engine.refresh(int(ids[3]))) == [(1, {"id": 7})]
    assert read(engine.refresh(int(counts[5]))) == [(-1, {"n": 5}), (1, {"n": 6})]
    assert not len(engine.refresh(int(ids[20])))
    engine.unsubscribe_many(ids)
    assert [g["subscriptions"] for g in engine.stats()["refresh"]["groups"]] == [20]
    engine._check()


def test_a_failed_change_leaves_no_trace(engine: Engine) -> None:
    s = engine.subscribe(with_(ITEMS, DEMAND))
    engine.subscribe("SELECT SUM(id) AS n FROM items")
    with pytest.raises(SumOverflow):
        engine.insert("items", {"id": 2**63 - 1, "price": 0.0})
    assert engine.limits(s).waiting == {"items": 0}
    assert not len(engine.refresh(s))
    engine._check()


def test_only_deferred_subscriptions_are_refreshed(engine: Engine) -> None:
    s = engine.subscribe(ITEMS)
    with pytest.raises(SubscriptionError, match="always up to date"):
        engine.refresh(s)
    with pytest.raises(SubscriptionError, match="has no limits"):
        engine.limits(s)
    assert engine.content(s, stale=True) == engine.content(s)


def test_streams_are_not_deferred(engine: Engine) -> None:
    engine.execute("CREATE STREAM hits (ms BIGINT)")
    with pytest.raises(SqlError, match="refresh is for answers over tables"):
        engine.subscribe(f"SELECT * FROM hits WITH ({DEMAND})")


def test_options_are_not_followed_over_a_network(engine: Engine) -> None:
    with pytest.raises(SubscriptionError, match="WITH options cannot be followed"):
        can_be_followed(engine.plan(with_(ITEMS, DEMAND)))


# -- sums -------------------------------------------------------------------------------------------


def test_a_sum_that_overflows_concerns_its_subscription_alone(engine: Engine) -> None:
    total = engine.subscribe(with_("SELECT SUM(id) AS n FROM items", DEMAND))
    rows = engine.subscribe(with_(ITEMS, DEMAND))
    engine.insert("items", {"id": 2**63 - 1, "price": 0.0})
    with pytest.raises(SumOverflow, match=f"subscription {total.id}: BIGINT overflow") as error:
        engine.refresh(total)
    assert error.value.id == total.id
    assert engine.content(total, stale=True) == [{"n": 28}]
    assert read(engine.refresh(rows)) == [(1, {"id": 2**63 - 1})]
    engine.delete("items", {"id": 2**63 - 1})
    engine.delete("items", {"id": 7})
    assert read(engine.refresh(total)) == [(-1, {"n": 28}), (1, {"n": 21})]


def test_a_sum_that_overflows_at_its_own_time_is_reported(engine: Engine, clock: Clock) -> None:
    total = engine.subscribe("SELECT SUM(id) AS n FROM items", refresh=Every("10 seconds"))
    other = engine.subscribe("SELECT COUNT(*) AS n FROM items", refresh=Every("10 seconds"))
    clock.forward(seconds=11)
    found = engine.insert("items", {"id": 2**63 - 1, "price": 0.0})
    assert [(d.subscription, d.sign, d.row["n"]) for d in found] == [(other.id, -1, 8), (other.id, 1, 9)]
    assert "BIGINT overflow" in engine.limits(total).warnings[0]
    engine.delete("items", {"id": 2**63 - 1})
    assert not len(engine.refresh(total)) and not engine.limits(total).warnings


def test_a_sum_that_overflows_is_rejected_when_it_is_subscribed(engine: Engine) -> None:
    engine.insert("items", {"id": 2**63 - 1, "price": 0.0})
    with pytest.raises(SumOverflow):
        engine.subscribe(with_("SELECT SUM(id) AS n FROM items", DEMAND))
    assert not engine.stats()["refresh"]["groups"] and not engine.subscriptions()
    engine._check()


# -- conditions -------------------------------------------------------------------------------------


def test_changes_are_exact_at_each_change(engine: Engine) -> None:
    s = engine.subscribe(ITEMS, refresh=When("changes > 2"))
    assert not len(engine.delete("items", {"id": 0}))
    again = [{"id": 1, "_op": "delete"}, {"id": 1, "price": 1.5, "_op": "insert"}, {"id": 1, "_op": "delete"}]
    assert not len(engine.apply("items", again)), "a row counts once per batch"
    found = engine.delete("items", {"id": 4})
    assert read(found) == [(-1, {"id": 0}), (-1, {"id": 1}), (-1, {"id": 4})]
    assert {d.seq for d in found} == {engine.last_seq}
    assert not len(engine.delete("items", {"id": 5}))
    assert engine.limits(s).waiting == {"items": 1}


def test_changes_are_those_since_the_own_refresh_whatever_was_propagated(engine: Engine) -> None:
    mine = engine.subscribe(ITEMS, refresh=When("changes > 2", policy="at once"))
    other = engine.subscribe(ITEMS, refresh=When("changes > 100", policy="at once"))
    assert not len(engine.delete("items", {"id": 0}))
    assert len(engine.refresh(other)) == 1
    assert not len(engine.delete("items", {"id": 1}))
    found = engine.delete("items", {"id": 4})
    assert read(found) == [(-1, {"id": 0}), (-1, {"id": 1}), (-1, {"id": 4})]
    assert set(found.subscription.tolist()) == {mine.id}


def test_age_is_exact_at_each_change_and_tick(engine: Engine, clock: Clock) -> None:
    engine.execute("CREATE STREAM hits (ms BIGINT)")
    engine.subscribe(ITEMS, refresh=Every("10 seconds"))
    engine.delete("items", {"id": 0})
    clock.forward(seconds=10)
    assert not len(engine.tick())
    clock.forward(seconds=0.001)
    assert read(engine.tick()) == [(-1, {"id": 0})]
    clock.forward(seconds=9)
    assert not len(engine.delete("items", {"id": 1}))
    clock.forward(seconds=2)
    assert read(engine.publish("hits", {"ms": 5})) == [(-1, {"id": 1})], "an event is a change too"
    clock.forward(seconds=20)
    assert not len(engine.tick()), "nothing to emit"


def test_a_refresh_restarts_the_age(engine: Engine, clock: Clock) -> None:
    s = engine.subscribe(ITEMS, refresh=Every("10 seconds"))
    other = engine.subscribe(ITEMS, refresh=Every("10 seconds"))
    clock.forward(seconds=6)
    engine.delete("items", {"id": 0})
    assert len(engine.refresh(s)) == 1
    clock.forward(seconds=6)
    assert [d.subscription for d in engine.delete("items", {"id": 1})] == [other.id] * 2
    engine._check()
    clock.forward(seconds=5)
    assert read(engine.tick()) == [(-1, {"id": 1})]


def test_moved_is_never_early_and_at_most_a_check_late(engine: Engine, clock: Clock) -> None:
    engine.update("items", {"id": 0, "price": 100.0})
    engine.update("items", {"id": 2, "price": 200.0})
    for n in (4, 6):
        engine.delete("items", {"id": n})
    engine.subscribe(JOINED, refresh=When("moved(cheapest) > 5 %", check="2 seconds"))
    clock.forward(seconds=3)
    assert not len(engine.update("items", {"id": 0, "price": 96.0})), "looked at, and not far enough"
    clock.forward(seconds=1)
    assert not len(engine.update("items", {"id": 0, "price": 90.0})), "far enough, not looked at yet"
    clock.forward(seconds=1)
    assert read(engine.tick()) == [(-1, {"cheapest": 100.0}), (1, {"cheapest": 90.0})]


def test_rows_and_moved_of_one_table_are_looked_at_with_each_change(engine: Engine) -> None:
    engine.subscribe("SELECT MAX(price) AS top FROM items", refresh=When("moved(top) > 50 %"))
    engine.subscribe("SELECT id FROM items ORDER BY price LIMIT 3", refresh=When("rows > 2"))
    assert not len(engine.update("items", {"id": 7, "price": 10.0}))
    assert read(engine.update("items", {"id": 7, "price": 11.0})) == [(-1, {"top": 7.0}), (1, {"top": 11.0})]
    assert not len(engine.delete("items", {"id": 0}))
    assert read(engine.delete("items", {"id": 1})) == [
        (-1, {"id": 0}), (-1, {"id": 1}), (1, {"id": 3}), (1, {"id": 4}),
    ]  # fmt: skip


# -- validity and files -----------------------------------------------------------------------------


def test_an_end_sends_what_was_delivered(engine: Engine, clock: Clock) -> None:
    ends = clock.now + timedelta(seconds=10)
    engine.subscribe(with_(JOINED, DEMAND), valid_to=ends)
    engine.delete("items", {"id": 0})
    clock.forward(seconds=11)
    assert read(engine.tick()) == [(-1, {"cheapest": 0.0})]
    assert not engine.stats()["refresh"]["groups"]


def test_a_start_sends_the_content(engine: Engine, clock: Clock) -> None:
    s = engine.subscribe(with_(JOINED, DEMAND), valid_from=clock.now + timedelta(seconds=10))
    assert not len(engine.refresh(s)) and engine.content(s) == []
    engine.delete("items", {"id": 0})
    clock.forward(seconds=11)
    assert read(engine.tick()) == [(1, {"cheapest": 2.0})]


def test_tables_in_use_are_not_dropped(engine: Engine) -> None:
    s = engine.subscribe(with_(JOINED, DEMAND))
    with pytest.raises(CatalogError, match="1 subscription uses shops"):
        engine.execute("DROP TABLE shops")
    engine.unsubscribe(s)
    engine.execute("DROP TABLE shops")
    engine._check()


def test_saving_propagates_and_delivers_nothing(engine: Engine, clock: Clock, tmp_path: Path) -> None:
    one = engine.subscribe(with_(JOINED, "refresh = 'every 1 minute', within = '1 second'"))
    first = engine.subscribe(with_("SELECT id FROM items ORDER BY price DESC LIMIT 2", DEMAND))
    gone = engine.subscribe(with_("SELECT DISTINCT city FROM items JOIN shops ON shop = shops.id", DEMAND))
    engine.delete("items", {"id": 0})
    engine.update("items", {"id": 7, "price": -5.0})
    clock.forward(seconds=50)
    engine.save(tmp_path / "saved")
    assert engine.content(one, stale=True) == [{"cheapest": 0.0}]
    loaded = Engine.load(tmp_path / "saved", clock=clock)
    assert loaded.content(one, stale=True) == [{"cheapest": 0.0}]
    assert loaded.content(first, stale=True) == [{"id": 7}, {"id": 6}]
    assert read(loaded.refresh(first)) == [(-1, {"id": 7}), (1, {"id": 5})]
    assert loaded.content(first, stale=True) == [{"id": 6}, {"id": 5}]
    assert not len(loaded.refresh(gone))
    clock.forward(seconds=11)
    assert read(loaded.tick()) == [(-1, {"cheapest": 0.0}), (1, {"cheapest": 2.0})]
    loaded._check()


def test_replays_emit_alike(clock: Clock) -> None:
    def run(pace: float) -> list[Any]:
        time, ticks = Clock(datetime(2024, 1, 1, tzinfo=UTC)), [0.0]

        def timer() -> float:
            ticks[0] += pace
            return ticks[0]

        engine, out = Engine(clock=time), []
        engine._roster.rooms["refresh"].timer = timer  # type: ignore[attr-defined]
        engine.execute(DEFINITIONS)
        when = "changes > 5 OR age > 3 seconds OR moved(cheapest) > 10 %"
        engine.subscribe(JOINED, refresh=When(when, within="5 ms"))
        for n in range(40):
            time.forward(seconds=0.4)
            out += list(engine.upsert("shops", {"id": n % 3, "city": "Oslo" if n % 5 else "Rome"}))
            out += list(engine.upsert("items", {"id": n % 7, "shop": n % 3, "price": float(n * 37 % 11)}))
        return out

    assert run(1e-6) == run(0.01) == run(0.5)


# -- limits -----------------------------------------------------------------------------------------


def test_memory_of_a_group_is_bounded(engine: Engine) -> None:
    engine.subscribe(with_(ITEMS, f"{DEMAND}, group_memory = 8"))
    with pytest.raises(SubscriptionError, match="take 12 rows, more than its 9 rows"):
        engine.subscribe(with_(JOINED, f"{DEMAND}, group_memory = 9"))
    with pytest.raises(SubscriptionError, match="more than its 100 bytes"):
        engine.subscribe(with_(JOINED, f"{DEMAND}, group_memory = '100 bytes'"))
    assert len(engine.stats()["refresh"]["groups"]) == 1
    engine._check()


def test_the_report_says_what_was_kept(engine: Engine) -> None:
    ticks = [0.0]

    def timer() -> float:
        ticks[0] += 0.004
        return ticks[0]

    engine._roster.rooms["refresh"].timer = timer  # type: ignore[attr-defined]
    s = engine.subscribe(with_(ITEMS, f"{DEMAND}, within = '1 ms', policy = 'naive'"))
    for n in range(8):
        engine.update("items", {"id": n, "price": n + 0.5})
        engine.refresh(s)
    report = engine.limits(s)
    assert report.policy == "naive" and report.spent
    assert report.promise is not None and report.promise.refreshes == 8
    assert report.promise.kept == 0.0 and not report.promise.feasible
    assert "no refresh can be within 1 ms" in report.warnings[0]
    assert report.to_dict()["waiting"] == {"items": 0}


def test_the_oracle_is_for_simulations(engine: Engine) -> None:
    with pytest.raises(SubscriptionError, match="oracle"):
        engine.subscribe(with_(ITEMS, f"{DEMAND}, within = '1 second', policy = 'oracle'"))
    engine._check()


def test_explanations_are_of_the_present(engine: Engine) -> None:
    first = with_("SELECT items.id FROM items JOIN shops ON shop = shops.id ORDER BY price LIMIT 2", DEMAND)
    s, low = engine.subscribe(first), engine.subscribe(with_(JOINED, DEMAND))
    engine.update("items", {"id": 7, "price": -1.0})
    found = engine.explain(s, {"id": 7}, table="items")
    assert found.held and "rank 1 of 8 joined rows" in found.notes[-1]
    assert not engine.explain(s, {"id": 6}, table="items").held
    assert engine.explain(low, {"id": 2}, table="items").held


# -- threads ----------------------------------------------------------------------------------------


def test_a_listener_may_refresh(engine: Engine) -> None:
    deferred = engine.subscribe(with_("SELECT COUNT(*) AS n FROM items", DEMAND))
    plain, seen = engine.subscribe(ITEMS), []

    def listen(deltas: Deltas) -> None:
        for delta in deltas:
            seen.append((delta.subscription, delta.row))
            if delta.subscription == plain.id:
                engine.refresh(deferred)

    engine.on_delta(listen)
    engine.delete("items", {"id": 0})
    assert seen == [(plain.id, {"id": 0}), (deferred.id, {"n": 8}), (deferred.id, {"n": 7})]


def test_threads_may_refresh_while_others_change(engine: Engine) -> None:
    s = engine.subscribe(with_("SELECT COUNT(*) AS n FROM items", f"{DEMAND}, within = '1 ms'"))
    counts: list[int] = []

    def refresh() -> None:
        counts.extend(engine.content(s)[0]["n"] for _ in range(50))

    threads = [threading.Thread(target=refresh) for _ in range(2)]
    for thread in threads:
        thread.start()
    for n in range(100, 200):
        engine.insert("items", {"id": n, "price": 50.0})
    for thread in threads:
        thread.join()
    assert engine.content(s) == [{"n": 108}] and all(8 <= n <= 108 for n in counts)
    engine._check()


def test_asyncio() -> None:
    async def run() -> list[Any]:
        async with AsyncEngine() as engine:
            await engine.execute(DEFINITIONS)
            s = await engine.subscribe(with_(ITEMS, DEMAND))
            follower = engine.follow(s)
            await engine.insert("items", {"id": 1, "price": 5.0})
            assert len(await engine.refresh(s)) == 1
            assert (await engine.limits(s)).waiting == {"items": 0}
            async for deltas in follower:
                return read(deltas)
        return []

    assert asyncio.run(run()) == [(1, {"id": 1})]


def test_waiting_changes_follow_batches(engine: Engine) -> None:
    waits = engine._roster.rooms["refresh"]  # the queue itself is checked against its table
    engine.subscribe(with_(ITEMS, DEMAND))
    assert isinstance(waits, RefreshGroups)
    (queue,) = (w for g in waits._groups.values() for w in g.lagging.waiting.values())
    assert isinstance(queue, WaitingChanges)
    ops = [("update", 1), ("update", 1), ("delete", 1), ("insert", 1), ("insert", 90), ("delete", 90)]
    batch = [{"id": n, "price": float(i), "_op": op} for i, (op, n) in enumerate(ops)]
    engine.apply("items", batch)
    queue._check()
    assert queue.count == 1


def test_windows_are_deferred_too(engine: Engine, clock: Clock, tmp_path: Path) -> None:
    engine.execute("CREATE STREAM hits (item BIGINT, ms BIGINT)")
    window = f"{DEMAND}, window = '10 seconds'"
    count = engine.subscribe(with_("SELECT COUNT(*) AS n FROM hits", window))
    joined = engine.subscribe(
        with_("SELECT MAX(price) AS top FROM hits JOIN items ON item = items.id", window)
    )
    for n in (1, 5):
        assert not len(engine.publish("hits", {"item": n, "ms": 7}))
        clock.forward(seconds=6)
    assert read(engine.refresh(count)) == [(-1, {"n": 0}), (1, {"n": 1})], "the first has left"
    assert engine.content(joined) == [{"top": 5.0}]
    clock.forward(seconds=6)
    assert not len(engine.tick()) and engine.content(count, stale=True) == [{"n": 1}]
    engine.save(tmp_path / "saved")
    engine._check()
    loaded = Engine.load(tmp_path / "saved", clock=clock)
    for each in (engine, loaded):
        assert read(each.refresh(joined)) == [(-1, {"top": 5.0}), (1, {"top": None})]
        each._check()


def test_the_command_refreshes_and_reports(engine: Engine, tmp_path: Path) -> None:
    s = engine.subscribe(with_(JOINED, f"{DEMAND}, within = '10 seconds'"))
    engine.delete("items", {"id": 0})
    engine.save(tmp_path / "saved")
    run, folder = CliRunner().invoke, str(tmp_path / "saved")
    assert "within 10000 ms, adapt: not refreshed yet" in run(app, ["limits", folder]).stdout
    found = json.loads(run(app, ["refresh", folder, str(s.id), "--json"]).stdout)
    assert [(d["sign"], d["row"]) for d in found] == [(-1, {"cheapest": 0.0}), (1, {"cheapest": 2.0})]
    assert run(app, ["refresh", folder, str(s.id)]).stdout == ""
    assert json.loads(run(app, ["limits", folder, "--json"]).stdout)[0]["waiting"] == {"items": 0, "shops": 0}
    assert run(app, ["refresh", folder, "99"]).exit_code == 1


def test_definitions_leave_groups_alone(engine: Engine) -> None:
    engine.execute("CREATE TABLE notes (id BIGINT PRIMARY KEY, n BIGINT)")
    s = engine.subscribe(with_("SELECT COUNT(*) AS n FROM notes", DEMAND))
    engine.execute("CREATE STREAM hits (id BIGINT)")  # while notes has no rows
    engine.insert("notes", {"id": 1})
    engine.execute("DROP STREAM hits")
    engine.insert("notes", {"id": 2})
    assert read(engine.refresh(s)) == [(-1, {"n": 0}), (1, {"n": 2})]
    engine._check()
