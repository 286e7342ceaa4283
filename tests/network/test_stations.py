"""Servers, brokers and clients over real sockets."""

from __future__ import annotations

import random
import shutil
import socket
import ssl
import struct
import subprocess
import time
from contextlib import suppress

import numpy as np
import pytest

from tests.network.histories import TABLES, change, equal
from tocsin.engine import Engine
from tocsin.errors import CatalogError, SubscriptionError, TocsinError, UsageError
from tocsin.network.connect import connect
from tocsin.network.server import serve
from tocsin.network.stations import Broker, LoopThread, address_of
from tocsin.network.wire import (
    FRAMES,
    MAX_FRAME,
    VERSION,
    Bye,
    ClientRequest,
    Hello,
    Replay,
    Resume,
    Welcome,
    decode,
    encode,
    write_boxes,
)

SQL = [
    "SELECT * FROM r JOIN s ON r.k = s.k WHERE a BETWEEN 1 AND 5",
    "SELECT n, c FROM r JOIN s ON r.k = s.k WHERE c < 6 AND n <> 'y'",
    "SELECT x.id, y.n FROM r x JOIN r y ON x.k = y.k WHERE x.a > 2 AND y.a < 6",
]


@pytest.fixture
def engine():
    made = Engine()
    made.execute(TABLES)
    return made


class Brokers:
    """Brokers in a loop of their own."""

    def __init__(self) -> None:
        self.thread = LoopThread("brokers")
        self.running: list[Broker] = []

    def start(self, *up: str, port: int = 0, **given) -> Broker:
        broker = Broker(up, **given)
        self.thread.run(broker.listen(f"127.0.0.1:{port}"))
        self.running.append(broker)
        return broker

    def stop(self, broker: Broker) -> None:
        self.thread.run(broker.close())
        self.running.remove(broker)

    def cut(self, broker: Broker) -> None:
        """Cut all connections of a broker at once."""

        async def abort() -> None:
            for peer in list(broker.peers.values()):
                peer.abort()

        self.thread.run(abort())

    def close(self) -> None:
        for broker in list(self.running):
            self.stop(broker)
        self.thread.close()


@pytest.fixture
def brokers():
    made = Brokers()
    yield made
    made.close()


def test_a_client_has_the_answers_of_the_server(engine) -> None:
    rng = random.Random(1)
    with serve(engine, "127.0.0.1:0") as server, connect(f"127.0.0.1:{server.port}") as client:
        engine.insert("r", {"id": 1, "k": 1, "a": 3, "n": "x"})
        followed = [client.subscribe(sql) for sql in SQL]
        engine.insert("s", {"name": "one", "k": 1, "c": 4})
        change_1 = followed[0].next(10)
        assert change_1.seq == engine.last_seq
        assert [(d.sign, d.row["name"]) for d in change_1.deltas] == [(1, "one")]
        for _ in range(60):
            change(rng, engine)
        equal(engine, followed)
        followed[1].unsubscribe()
        assert followed[0].next(0.01) is not None
        with pytest.raises(SubscriptionError, match="there is no column"):
            client.subscribe("SELECT * FROM r JOIN s ON r.k = s.k WHERE nothing > 1")
        with pytest.raises(SubscriptionError, match="an aggregate cannot be followed"):
            client.subscribe("SELECT COUNT(*) FROM r WHERE a > 1")
        equal(engine, followed[::2])


def test_brokers_pass_on_and_may_be_cut_and_killed(engine, brokers) -> None:
    rng = random.Random(2)
    with serve(engine, "127.0.0.1:0") as server:
        first = brokers.start(f"127.0.0.1:{server.port}")
        second = brokers.start(f"127.0.0.1:{first.port}", f"127.0.0.1:{server.port}")
        with connect(f"127.0.0.1:{second.port}", f"127.0.0.1:{first.port}") as client:
            followed = [client.subscribe(sql) for sql in SQL]
            for fault in range(6):
                for _ in range(10):
                    change(rng, engine)
                if fault in (1, 4):
                    brokers.cut(second if fault == 1 else first)
                if fault == 3:
                    brokers.stop(second)  # the client goes to the first, and resumes
                equal(engine, followed)
            assert not server.server.refused


def test_a_server_that_starts_again_is_found_again(engine) -> None:
    rng = random.Random(3)
    server = serve(engine, "127.0.0.1:0")
    with connect(f"127.0.0.1:{server.port}") as client:
        followed = [client.subscribe(sql) for sql in SQL]
        change(rng, engine)
        equal(engine, followed)
        port = server.port
        server.close()
        for _ in range(10):
            change(rng, engine)
        with serve(engine, f"127.0.0.1:{port}"):
            for _ in range(10):
                change(rng, engine)
            equal(engine, followed)


def test_a_log_that_is_too_short_is_made_up_for_by_snapshots(engine, brokers) -> None:
    rng = random.Random(4)
    with serve(engine, "127.0.0.1:0", log_bytes=500) as server:
        broker = brokers.start(f"127.0.0.1:{server.port}")
        with connect(f"127.0.0.1:{broker.port}") as client:
            followed = [client.subscribe(sql) for sql in SQL]
            for _ in range(5):
                brokers.cut(broker)
                for _ in range(20):
                    change(rng, engine)
                equal(engine, followed)


def test_a_row_has_another_number_after_a_restart(engine) -> None:
    """The old number of one row may be the new number of another."""
    rows = [{"id": id, "k": 1, "a": id, "n": "x"} for id in (1, 2)]
    engine.apply("r", rows)
    engine.insert("s", {"name": "one", "k": 1, "c": 4})
    server = serve(engine, "127.0.0.1:0")
    with connect(f"127.0.0.1:{server.port}") as client:
        followed = [client.subscribe(SQL[0])]
        engine.apply("r", [rows[0] | {"a": 5, "_op": "upsert"}])  # in a later slot now
        equal(engine, followed)
        port = server.port
        server.close()
        server.close()  # again does nothing
        with serve(engine, f"127.0.0.1:{port}"):
            engine.insert("s", {"name": "two", "k": 1, "c": 4})
            equal(engine, followed)
            assert len(followed[0].content()) == 4


def test_a_step_larger_than_a_frame(engine, brokers) -> None:
    long = "z" * 1_000_000
    with serve(engine, "127.0.0.1:0") as server:
        broker = brokers.start(f"127.0.0.1:{server.port}")
        with connect(f"127.0.0.1:{broker.port}") as client:
            followed = [client.subscribe(SQL[0])]
            engine.insert("s", {"name": "one", "k": 1, "c": 4})
            engine.apply("r", [{"id": id, "k": 1, "a": 3, "n": long} for id in range(20)])
            equal(engine, followed)
            brokers.cut(broker)
            engine.apply("r", [{"id": id, "k": 1, "a": 4, "n": long, "_op": "upsert"} for id in range(20)])
            equal(engine, followed)  # also from the log
            with pytest.raises(SubscriptionError, match="the content has 19 MB"):
                client.subscribe(SQL[0])
            engine.insert("s", {"name": "two", "k": 1, "c": 4})
            equal(engine, followed)


def test_a_table_that_is_followed_cannot_be_dropped(engine) -> None:
    with serve(engine, "127.0.0.1:0") as server, connect(f"127.0.0.1:{server.port}") as client:
        one = client.subscribe(SQL[0])
        with pytest.raises(CatalogError, match="1 subscription uses s"):
            engine.execute("DROP TABLE s")
        one.unsubscribe()
        client.subscribe(SQL[2]).unsubscribe()  # the server knows both
        client.subscribe(SQL[2])
        engine.execute("DROP TABLE s")
        engine.insert("r", {"id": 1, "k": 1, "a": 3, "n": "x"})
        engine.execute("CREATE TABLE s (name STRING, k BIGINT, c BIGINT, e STRING, PRIMARY KEY (name))")
        engine.insert("s", {"name": "one", "k": 1, "c": 4, "e": "new"})
        again = client.subscribe(SQL[0])
        assert [row["e"] for row in again.content()] == ["new"]
        engine.insert("s", {"name": "two", "k": 1, "c": 4})
        equal(engine, [again])


def test_a_table_that_is_there_no_more_after_a_restart(engine) -> None:
    server = serve(engine, "127.0.0.1:0")
    with connect(f"127.0.0.1:{server.port}") as client:
        one = client.subscribe(SQL[0])
        port = server.port
        server.close()
        engine.execute("DROP TABLE s")
        with serve(engine, f"127.0.0.1:{port}"), pytest.raises(SubscriptionError, match="there is no"):
            one.next(10)


def test_one_address_refuses_and_the_next_does_not(engine) -> None:
    with (
        serve(engine, "127.0.0.1:0", tokens={"secret": None}) as first,
        serve(engine, "127.0.0.1:0") as second,
        connect(f"127.0.0.1:{first.port}", f"127.0.0.1:{second.port}") as client,
    ):
        until = time.monotonic() + 10
        while not client.is_connected and time.monotonic() < until:
            time.sleep(0.01)
        assert client.subscribe(SQL[0]).content() == []


def test_a_connection_that_is_closed(engine) -> None:
    with serve(engine, "127.0.0.1:0") as server:
        client = connect(f"127.0.0.1:{server.port}")
        one = client.subscribe(SQL[0])
        with pytest.raises(SubscriptionError, match="the text is empty"):
            client.subscribe(" ")
        client.close()
        client.close()
        assert one.next() is None and one.content() == []
        with pytest.raises(TocsinError, match="the connection is closed"):
            client.subscribe(SQL[0])
        with pytest.raises(TocsinError, match="the connection is closed"):
            one.wait(99)


# -- strangers -----------------------------------------------------------------------------------------


def spoken(port: int, *frames: bytes) -> str:
    """Send bytes; the reason with which the connection is closed."""
    with socket.create_connection(("127.0.0.1", port), 10) as one:
        data = b""
        with suppress(ConnectionError):  # it was closed before all was sent or read
            for frame in frames:
                one.sendall(frame)
            while part := one.recv(1 << 16):
                data += part
    while data:
        (length,) = struct.unpack("<I", data[:4])
        frame, data = decode(data[4 : 4 + length]), data[4 + length :]
        if isinstance(frame, Bye):
            return frame.reason
    return ""


def test_whoever_sends_nonsense_is_told_why_and_disturbs_nobody(engine) -> None:
    rng = random.Random(5)
    hello = encode(Hello(VERSION, "", "x", True))
    with serve(engine, "127.0.0.1:0") as server, connect(f"127.0.0.1:{server.port}") as client:
        followed = [client.subscribe(sql) for sql in SQL]
        port = server.port
        assert "the first frame is a Hello" in spoken(port, encode(ClientRequest(1, b"")))
        assert "version 9" in spoken(port, encode(Hello(9, "", "x", True)))
        assert "a first frame of" in spoken(port, struct.pack("<I", MAX_FRAME))
        assert "unknown kind" in spoken(port, hello, struct.pack("<IB", 5, 99) + b"1234")
        assert "has no place" in spoken(port, hello, encode(Welcome(1, "")))
        assert "bytes" in spoken(port, hello, struct.pack("<I", 2**32 - 1))
        valid = [encode(frame) for frame in (ClientRequest(3, b"?" * 50), Hello(VERSION, "", "x", True))]
        for _ in range(150):
            data = bytearray(rng.choice(valid))
            for _ in range(rng.randint(1, 4)):
                data[rng.randrange(4, len(data))] = rng.randrange(256)
            spoken(port, hello, bytes(data), encode(Bye("enough")))
        change(rng, engine)
        equal(engine, followed)


def test_any_bytes_are_a_frame_or_an_error() -> None:
    rng = random.Random(6)
    for _ in range(3000):
        data = bytes([rng.randrange(len(FRAMES) + 2)]) + rng.randbytes(rng.randrange(40))
        try:
            frame = decode(data)
        except TocsinError:
            continue
        if hasattr(frame, "batch"):
            try:
                frame.batch.open()
            except TocsinError:
                continue


def test_tokens_and_their_tables(engine) -> None:
    with serve(engine, "127.0.0.1:0", tokens={"all": None, "r": ["r"]}) as server:
        address = f"127.0.0.1:{server.port}"
        with connect(address, token="wrong") as client, pytest.raises(SubscriptionError, match="token"):
            client.subscribe(SQL[0], seconds=5)
        with connect(address, token="r") as client:
            client.subscribe(SQL[2])
            with pytest.raises(SubscriptionError, match="does not allow to read s"):
                client.subscribe(SQL[0])
        with connect(address, token="all") as client:
            assert client.subscribe(SQL[0]).content() == []


def test_nobody_receives_what_was_granted_to_others(engine, brokers) -> None:
    """A client that makes up a Resume, or calls itself a broker, receives nothing."""
    engine.insert("r", {"id": 1, "k": 1, "a": 3, "n": "x"})
    engine.insert("s", {"name": "one", "k": 1, "c": 4})
    everything = write_boxes(np.zeros(1, np.int64), np.array([[[-(2**63), 2**63 - 1] * 2] * 2]))
    with serve(engine, "127.0.0.1:0", tokens={"all": None, "r": ["r"]}) as server:
        broker = brokers.start(f"127.0.0.1:{server.port}", token="all", tokens=["all", "r"])
        with connect(f"127.0.0.1:{broker.port}", token="all") as client:
            followed = client.subscribe(SQL[0])
            for port in (server.port, broker.port):
                assert "not for brokers" in spoken(port, encode(Hello(VERSION, "r", "x", False)))
                for key in ("", "x", "/"):
                    resume = Resume(1, server.server.root.server, -1, everything, key, [0, 1])
                    received = overheard(port, encode(Hello(VERSION, "r", "x", True)), encode(resume), engine)
                    for frame in received:
                        assert not getattr(frame, "snapshots", None)
                        assert not len(frame.batch.open()) if hasattr(frame, "batch") else True
                    assert any(isinstance(frame, Replay) for frame in received)
            equal(engine, [followed])
            assert followed.content()


def overheard(port: int, hello: bytes, resume: bytes, engine: Engine) -> list:
    """The frames that come while a row changes."""
    with socket.create_connection(("127.0.0.1", port), 10) as one:
        one.sendall(hello + resume)
        time.sleep(0.3)
        engine.update("s", {"name": "one", "c": 3})
        engine.update("s", {"name": "one", "c": 4})
        one.settimeout(0.7)
        data = b""
        with suppress(TimeoutError, ConnectionError):
            while part := one.recv(1 << 16):
                data += part
    frames = []
    while data:
        (length,) = struct.unpack("<I", data[:4])
        frames.append(decode(data[4 : 4 + length]))
        data = data[4 + length :]
    return frames


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes certificates")
def test_tls_mutual_between_brokers(engine, brokers, tmp_path) -> None:
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"),
            *("-keyout", tmp_path / "key", "-out", tmp_path / "cert"),
        ],
        check=True,
        capture_output=True,
    )
    above = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=tmp_path / "cert")
    above.load_cert_chain(tmp_path / "cert", tmp_path / "key")
    above.verify_mode = ssl.CERT_OPTIONAL
    plain = ssl.create_default_context(cafile=tmp_path / "cert")
    known = ssl.create_default_context(cafile=tmp_path / "cert")
    known.load_cert_chain(tmp_path / "cert", tmp_path / "key")
    with serve(engine, "localhost:0", tls=above, needs_certificates=True) as server:
        address = f"localhost:{server.port}"
        stranger = brokers.start(address, tls_up=plain)
        broker = brokers.start(address, tls_up=known)
        with connect(f"127.0.0.1:{broker.port}") as client, connect(address, tls=plain) as direct:
            followed = [client.subscribe(SQL[0]), direct.subscribe(SQL[0])]
            engine.insert("r", {"id": 1, "k": 1, "a": 3, "n": "x"})
            engine.insert("s", {"name": "one", "k": 1, "c": 4})
            equal(engine, followed)
            assert len(followed[0].content()) == 1 and not stranger.connections


# -- addresses -----------------------------------------------------------------------------------------


def test_addresses() -> None:
    for text in ("nowhere", "host:", "host:x", "host:70000"):
        with pytest.raises(UsageError, match="is no address"):
            address_of(text)
    with pytest.raises(UsageError, match="needs a server"):
        Broker([])
    with pytest.raises(UsageError, match="no address"):
        connect()
    started = time.monotonic()
    with connect("127.0.0.1:1") as client, pytest.raises(SubscriptionError, match="no answer within"):
        client.subscribe(SQL[0], seconds=0.3)
    assert time.monotonic() - started < 5


def test_a_port_that_is_taken(engine) -> None:
    with serve(engine, "127.0.0.1:0") as server, pytest.raises(TocsinError, match="cannot listen at"):
        serve(engine, f"127.0.0.1:{server.port}")
