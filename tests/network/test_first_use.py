"""What new users of connections do first, and settings that cannot be meant."""

from __future__ import annotations

import threading
import time

import pytest

from tests.network.test_placement import free_port
from tests.network.test_stations import brokers, engine  # noqa: F401  fixtures
from tocsin.engine import Engine
from tocsin.errors import SubscriptionError, UsageError
from tocsin.network.connect import connect
from tocsin.network.described import TokenScope
from tocsin.network.root import Root
from tocsin.network.server import serve


def test_filters_over_an_open_stream() -> None:
    made = Engine()
    made.execute("CREATE STREAM listings")
    texts = ["model = 'x5' AND price <= 580", "price BETWEEN 1 AND 500", "model LIKE 'x%' OR price = 3"]
    with serve(made, "127.0.0.1:0") as server, connect(f"127.0.0.1:{server.port}") as client:
        followed = client.subscribe_all([f"SELECT * FROM listings WHERE {text}" for text in texts])
        made.publish("listings", {"model": "x5", "price": 570, "color": "red"})
        made.publish("listings", {"model": "y", "price": 3})
        for one, prices in zip(followed, [[570], [3], [570, 3]], strict=True):
            one.wait(made.last_seq)
            rows = [delta.row for change in one.follow(0) for delta in change.deltas]
            assert [row["price"] for row in rows] == prices


def test_a_snapshot_then_changes_repeats_nothing(engine) -> None:  # noqa: F811
    with serve(engine, "127.0.0.1:0") as server, connect(f"127.0.0.1:{server.port}") as client:
        one = client.subscribe("SELECT id FROM r")
        engine.insert("r", {"id": 1})
        one.wait(engine.last_seq)
        seq, rows = one.snapshot()
        assert (seq, rows) == (engine.last_seq, [{"id": 1}])
        engine.insert("r", {"id": 2})
        one.wait(engine.last_seq)
        assert [delta.row for change in one.follow(0) for delta in change.deltas] == [{"id": 2}]


def test_following_ends_with_the_subscription(engine) -> None:  # noqa: F811
    with serve(engine, "127.0.0.1:0") as server, connect(f"127.0.0.1:{server.port}") as client:
        one = client.subscribe("SELECT id FROM r")
        reader = threading.Thread(target=lambda: list(one.follow()))
        reader.start()
        one.unsubscribe()
        reader.join(10)
        assert not reader.is_alive()
        with pytest.raises(Exception, match="the subscription has ended"):
            one.wait(10**9)


def test_a_nearer_broker_that_cannot_be_reached_is_tried_once(engine, brokers) -> None:  # noqa: F811
    with serve(engine, "127.0.0.1:0") as server:
        address = f"127.0.0.1:{server.port}"
        broker = brokers.start(address, public=f"127.0.0.1:{free_port()}")
        with connect(f"127.0.0.1:{broker.port}") as near, connect(address, placement="interest") as client:
            sql = "SELECT * FROM r JOIN s ON r.k = s.k WHERE a BETWEEN 1 AND 5"
            near.subscribe(sql)
            client.subscribe(sql)
            until = time.monotonic() + 20
            while not client._unreachable and time.monotonic() < until:
                time.sleep(0.05)
            while not client.is_connected and time.monotonic() < until:
                time.sleep(0.05)
            peer = client._peer
            time.sleep(1)
            assert peer is not None and client._peer is peer and len(client._unreachable) == 1


def test_a_fault_of_a_request_is_an_answer(engine, monkeypatch) -> None:  # noqa: F811
    with serve(engine, "127.0.0.1:0") as server, connect(f"127.0.0.1:{server.port}") as client:
        one = client.subscribe("SELECT id FROM r")
        peer = client._peer
        assert isinstance(server.server.root, Root)
        with monkeypatch.context() as patched:
            patched.setattr(server.server.service, "reply", lambda *_: 1 // 0)
            with pytest.raises(SubscriptionError, match="the server failed: ZeroDivisionError"):
                client.subscribe("SELECT k FROM r")
        engine.insert("r", {"id": 1})
        one.wait(engine.last_seq)
        assert client._peer is peer


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"lease": 0}, "a lease of 0 seconds\nhint: None"),
        ({"log_bytes": -1}, "a log of -1 bytes"),
        ({"tokens": {"secret": "stocks"}}, r"are 'stocks'\nhint: a list: \['stocks'\]"),
    ],
)
def test_settings_that_cannot_be_meant(engine, setting, message) -> None:  # noqa: F811
    with pytest.raises(UsageError, match=message):
        serve(engine, "127.0.0.1:0", **setting)
    assert TokenScope.of(["stocks"]).tables == ["stocks"]
