"""Payloads and placement over real sockets."""

from __future__ import annotations

import random
import socket
import time

import pytest

from tests.network.test_described import bag, change
from tests.network.test_stations import SQL, brokers, engine, equal  # noqa: F401  fixtures
from tocsin.errors import UsageError
from tocsin.network.connect import connect
from tocsin.network.server import serve


def received(broker) -> int:
    """Bytes that a broker got from its parent."""
    return broker.parent.received if broker.parent is not None else 0


def test_a_row_crosses_a_link_once(engine, brokers) -> None:  # noqa: F811
    long = "z" * 20_000
    with serve(engine, "127.0.0.1:0") as server:
        address = f"127.0.0.1:{server.port}"
        keeps, plain = brokers.start(address, repository=1 << 20), brokers.start(address)
        below = brokers.start(f"127.0.0.1:{keeps.port}", repository=1 << 20)
        small = brokers.start(f"127.0.0.1:{keeps.port}", repository=30_000)  # one payload
        clients = [connect(f"127.0.0.1:{one.port}") for one in (keeps, plain, below, small)]
        try:
            followed = [client.subscribe(SQL[0]) for client in clients]
            for id in range(4):
                engine.insert("r", {"id": id, "k": 1, "a": 3, "n": long + str(id)})
            for turn in range(12):  # four rows are exposed each time
                engine.insert("s", {"name": "one", "k": 1, "c": turn})
                equal(engine, followed)
                engine.delete("s", {"name": "one"})
            equal(engine, followed)
            assert received(plain) > 12 * 4 * 20_000
            assert received(keeps) < received(plain) / 4 and received(below) < received(plain) / 4
            brokers.cut(keeps)  # what was acknowledged still counts
            engine.insert("s", {"name": "one", "k": 1, "c": 1})
            equal(engine, followed)
            assert bag(followed[0].content()) == bag(followed[3].content())
        finally:
            for client in clients:
                client.close()


def test_clients_move_to_the_broker_nearest_to_their_interest(engine, brokers) -> None:  # noqa: F811
    sql = "SELECT * FROM r JOIN s ON r.k = s.k WHERE a BETWEEN {} AND {}"
    rng = random.Random(1)
    with serve(engine, "127.0.0.1:0") as server:
        address = f"127.0.0.1:{server.port}"
        ports = [free_port() for _ in range(2)]
        both = [brokers.start(address, port=port, public=f"127.0.0.1:{port}") for port in ports]
        with connect(f"127.0.0.1:{ports[0]}") as low, connect(f"127.0.0.1:{ports[1]}") as high:
            low.subscribe(sql.format(10, 13))
            high.subscribe(sql.format(1000, 1003))
            for at, wanted in ((11, 0), (1001, 1), (12, 0)):
                with connect(address, placement="interest") as client:
                    followed = client.subscribe(sql.format(at, at + 2))
                    until = time.monotonic() + 20
                    while len(both[wanted].peers) < 3 and time.monotonic() < until:
                        time.sleep(0.02)
                    assert [len(one.peers) for one in both] == ([3, 2] if wanted == 0 else [2, 3])
                    for _ in range(10):
                        change(rng, engine)
                    equal(engine, [followed])
                until = time.monotonic() + 20
                while len(both[wanted].peers) > 2 and time.monotonic() < until:
                    time.sleep(0.02)
    with pytest.raises(UsageError, match="no placement 'fair'"):
        connect("127.0.0.1:1", placement="fair")


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]
