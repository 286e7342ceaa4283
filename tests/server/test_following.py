"""Followers that are slow or late, and what the server says about queries: backtests, cost, metrics."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta

import pytest

from tests.server.conftest import running
from tests.server.test_api import define, ok, subscribe
from tocsin.engine import Engine
from tocsin.server.backtests import backtest, source_of
from tocsin.server.keeper import Settings
from tocsin.server.log import Log


def test_a_slow_reader_ends_with_a_token_and_misses_nothing(server):
    define(server, "CREATE STREAM hits")
    subscribe(server, "SELECT n FROM hits WHERE n >= 0")
    seen, slow, token = [], 0, ok(server.get("/deltas"))["token"]
    padding, headers = "x" * 20_000, {"accept": "application/x-ndjson"}
    subscribe(server, "SELECT n, pad FROM hits WHERE n >= 0", subscriber="ann")
    token = ok(server.get("/deltas"))["token"]
    while len(seen) < 400:
        params = {"subscriber": "ann", "since": token, "queue": 5}
        with server.stream("GET", "/deltas", params=params, headers=headers) as answer:
            lines = answer.iter_lines()
            if not seen:
                for n in range(0, 400, 4):  # while nobody reads
                    ok(server.post("/changes/hits", json=[{"n": n + i, "pad": padding} for i in range(4)]))
            for line in lines:
                message = json.loads(line)
                token = message["token"]
                slow += message["type"] == "slow"
                seen += [delta["row"]["n"] for delta in message.get("deltas", ())]
                if message["type"] == "slow" or len(seen) >= 400:
                    break
    assert seen == list(range(400)) and slow


def test_a_token_that_is_too_old_is_answered_with_a_snapshot(tmp_path):
    with running(tmp_path, settings=Settings(delta_bytes=2000, look_every=0.02)) as server:
        define(server, "CREATE TABLE t (k BIGINT, v STRING, PRIMARY KEY (k))")
        id = subscribe(server, "SELECT k FROM t WHERE k > 0")
        token = ok(server.get("/deltas"))["token"]
        for k in range(1, 60):
            ok(server.post("/changes/t", json={"k": k, "v": "x" * 200}))
        end = time.monotonic() + 20
        while (found := ok(server.get("/deltas", params={"since": token}))).get("reset") is None:
            assert time.monotonic() < end
            time.sleep(0.05)
        assert found["reset"] == "too old"
        assert found["contents"] == [{"subscription": id, "rows": [{"k": k} for k in range(1, 60)]}]
        assert ok(server.get("/deltas", params={"since": found["token"]}))["deltas"] == []


@pytest.mark.parametrize("accept", ["application/json", "application/x-ndjson"])
def test_deltas_that_are_dropped_while_they_are_read_are_no_gap(server, monkeypatch, accept):
    define(server, "CREATE TABLE t (k BIGINT, PRIMARY KEY (k))")
    id = subscribe(server, "SELECT k FROM t WHERE k > 0")
    token = ok(server.get("/deltas"))["token"]
    for k in range(1, 6):
        ok(server.post("/changes/t", json={"k": k}))
    blocks = Log.blocks

    def one_block_and_no_more(log, after, limit=256):
        found = blocks(log, after, 1)
        log.trim_blocks(1)
        return found

    monkeypatch.setattr(Log, "blocks", one_block_and_no_more)
    params, wanted = {"since": token}, [{"subscription": id, "rows": [{"k": k} for k in range(1, 6)]}]
    if accept == "application/json":
        found = ok(server.get("/deltas", params=params))
        assert (found["reset"], found["contents"], found["deltas"]) == ("too old", wanted, [])
        return
    with server.stream("GET", "/deltas", params=params, headers={"accept": accept}) as answer:
        lines = answer.iter_lines()
        while (message := json.loads(next(lines)))["type"] == "deltas":
            assert message["deltas"][0]["row"] == {"k": 1}
    assert (message["type"], message["reason"], message["contents"]) == ("snapshot", "too old", wanted)


def test_a_backtest_counts_what_would_have_matched(server):
    define(server, "CREATE STREAM hits (n BIGINT) RETAIN '1 hour'")
    for n in range(10):
        ok(server.post("/changes/hits", json={"n": n}))
    before = ok(server.get("/stats"))["log"]["position"]
    found = ok(server.post("/backtest", json={"sql": "SELECT n FROM hits WHERE n > 6", "limit": 2}))
    assert (found["events"], found["matched"], found["rows"]) == (10, 3, [{"n": 7}, {"n": 8}])
    assert sum(bin["count"] for bin in found["histogram"]) == 3
    assert ok(server.get("/stats"))["log"]["position"] == before
    answer = server.post("/backtest", json={"sql": "SELECT n FROM hits WHERE m > 6"})
    assert answer.status_code == 400 and answer.json()["place"]["column"] == 26


def test_cost_and_activity_of_subscriptions_and_metrics(server):
    define(server, "CREATE STREAM hits")
    often, seldom = (subscribe(server, f"SELECT n FROM hits WHERE n > {n}") for n in (0, 7))
    for n in range(10):
        ok(server.post("/changes/hits", json={"n": n}))
    listed = ok(server.get("/subscriptions", params={"sort": "deltas"}))["subscriptions"]
    assert [(one["id"], one["deltas"]) for one in listed] == [(often, 9), (seldom, 2)]
    stats = ok(server.get(f"/subscriptions/{often}/stats"))
    assert stats["deltas"] == 9 and stats["cost_us"] > 0 and stats["last_fired"]
    text = server.get("/metrics").text
    assert 'tocsin_changes_total{tenant="default"} 10' in text and "tocsin_request_seconds_bucket" in text
    assert ok(server.get("/health")) == {"status": "ok"}
    assert server.get("/openapi.json").json()["openapi"] == "3.1.0"


def test_a_backtest_of_a_sequence_reads_one_stream_at_its_times():
    start = now = datetime(2024, 5, 1, tzinfo=UTC)
    engine = Engine(clock=lambda: now)
    engine.execute("CREATE STREAM logins (user STRING, ok BOOLEAN) RETAIN '1 hour'")
    for minute, ok_ in ((0, False), (9, True), (20, False), (23, True)):
        now = start + timedelta(minutes=minute)
        engine.publish("logins", {"user": "eve", "ok": ok_})
    sql = """SELECT b.user FROM logins a FOLLOWED BY logins b ON a.user = b.user WITHIN '5 minutes'
             WHERE NOT a.ok AND b.ok"""
    found = backtest(source_of(engine, sql), sql, 10)
    assert (found["events"], found["matched"], found["rows"]) == (4, 1, [b'{"user":"eve"}'])
