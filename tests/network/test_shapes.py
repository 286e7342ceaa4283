"""All shapes of queries over real sockets; leases, large rows, changed definitions, private tokens."""

from __future__ import annotations

import random
import time

import numpy as np
import pytest

from tests.network.histories import SHAPES, TABLES, bag, change, equal
from tests.network.test_described import Linked
from tocsin.engine import Engine
from tocsin.errors import CatalogError, SubscriptionError, TocsinError
from tocsin.network import rows
from tocsin.network.connect import ChangesLost, connect
from tocsin.network.described import TokenScope, describe
from tocsin.network.server import serve
from tocsin.network.stations import Broker, LoopThread


@pytest.fixture
def engine():
    made = Engine()
    made.execute(TABLES)
    return made


def test_all_shapes_through_a_broker_that_is_cut(engine) -> None:
    rng = random.Random(4)
    loop = LoopThread("broker")
    texts = [made(rng) for made in SHAPES.values() for _ in range(3)]
    with serve(engine, "127.0.0.1:0") as server:
        broker = Broker([f"127.0.0.1:{server.port}"])
        loop.run(broker.listen("127.0.0.1:0"))
        with connect(f"127.0.0.1:{broker.port}") as client:
            followed = client.subscribe_all(texts)
            contents = [bag(one.content()) for one in followed]
            for step in range(40):
                change(rng, engine)
                if step in (13, 27):

                    async def cut() -> None:
                        for peer in list(broker.peers.values()):
                            peer.abort()

                    loop.run(cut())
            equal(engine, followed)
            for one, content in zip(followed, contents, strict=True):
                for found in one.follow(0):
                    for delta in found.deltas:
                        content[next(iter(bag([delta.row])))] += delta.sign
                assert +content == bag(one.content()), one.sql
        loop.run(broker.close())
    loop.close()


def test_events_of_a_stream_come_once_and_are_not_kept(engine) -> None:
    with serve(engine, "127.0.0.1:0") as server, connect(f"127.0.0.1:{server.port}") as client:
        texts = ["SELECT a FROM e WHERE a > 2", "SELECT * FROM e WHERE n = 'x'"]
        texts += ["SELECT k FROM e WHERE a < 4"]
        followed = client.subscribe_all(texts)
        for a in range(6):
            engine.publish("e", {"a": a, "n": "xy"[a % 2], "k": a})
        engine.apply("e", [{"a": 9, "n": "x"}, {"a": None, "n": "x"}, {"n": "y", "k": 1}])
        for one in followed:
            one.wait(engine.last_seq)
            assert one.content() == []
        rows = [[delta.row for change in one.follow(0) for delta in change.deltas] for one in followed]
        assert rows[0] == [{"a": a} for a in (3.0, 4.0, 5.0, 9.0)]
        assert [row["a"] for row in rows[1]] == [0.0, 2.0, 4.0, 9.0, None]
        assert rows[2] == [{"k": k} for k in range(4)]


def test_missed_events_are_said_to_be_missing(engine) -> None:
    server = serve(engine, "127.0.0.1:0")
    with connect(f"127.0.0.1:{server.port}") as client:
        one = client.subscribe("SELECT a FROM e WHERE a > 2")
        port = server.port
        server.close()
        engine.publish("e", {"a": 3})
        with serve(engine, f"127.0.0.1:{port}"), pytest.raises(ChangesLost, match="events of"):
            one.next(10)


def test_a_client_that_ends_without_a_word_is_forgotten(engine) -> None:
    with serve(engine, "127.0.0.1:0", lease=1.5) as server:
        one, two = (connect(f"127.0.0.1:{server.port}") for _ in range(2))
        one.subscribe("SELECT * FROM r WHERE a > 1")
        kept = two.subscribe("SELECT MIN(a) FROM r WHERE id > 1")
        one._thread.run(one._end())  # as a process that is killed
        one._thread.close()
        with pytest.raises(CatalogError, match="2 subscriptions use r"):
            engine.execute("DROP TABLE r")
        until = time.monotonic() + 20
        while server.server.service.stats()["subscriptions"] > 1 and time.monotonic() < until:
            time.sleep(0.05)
        assert server.server.service.stats()["subscriptions"] == 1
        time.sleep(2)  # the other one renews its lease
        engine.insert("r", {"id": 5, "a": 3})
        equal(engine, [kept])
        two.close()
        until = time.monotonic() + 5
        while server.server.service.stats()["subscriptions"] and time.monotonic() < until:
            time.sleep(0.01)
        engine.execute("DROP TABLE r")


def test_a_row_that_is_too_long_is_missed_and_nothing_else(engine, monkeypatch) -> None:
    monkeypatch.setattr(rows, "MAX_TEXT", 5000)
    with serve(engine, "127.0.0.1:0") as server, connect(f"127.0.0.1:{server.port}") as client:
        one = client.subscribe("SELECT id, n FROM r WHERE a > 1")
        other = client.subscribe("SELECT id FROM r WHERE a > 5")
        first = client.subscribe("SELECT id FROM r WHERE a > 1 ORDER BY a LIMIT 1")
        engine.insert("r", {"id": 1, "a": 2, "n": "x" * 10_000})
        engine.insert("r", {"id": 2, "a": 9, "n": "x"})
        equal(engine, [other])
        one.wait(engine.last_seq)
        for incomplete in (one, first):
            with pytest.raises(TocsinError, match="is too long to be sent"):
                incomplete.content()
        late = client.subscribe("SELECT id FROM r WHERE a < 4")
        with pytest.raises(TocsinError, match="is too long to be sent"):
            late.content()
        engine.update("r", {"id": 1, "n": "short"})
        equal(engine, [one, other, first, late])
        assert client.is_connected


def test_a_row_longer_than_a_frame(engine) -> None:
    with serve(engine, "127.0.0.1:0") as server, connect(f"127.0.0.1:{server.port}") as client:
        one = client.subscribe("SELECT id FROM r WHERE a > 1")
        engine.insert("r", {"id": 1, "a": 2, "n": "x" * (17 << 20)})
        engine.insert("r", {"id": 2, "a": 3})
        one.wait(engine.last_seq)
        with pytest.raises(TocsinError, match="a row of 17"):
            one.content()
        engine.delete("r", {"id": 1})
        equal(engine, [one])


def test_columns_that_change_over_a_restart(engine) -> None:
    server = serve(engine, "127.0.0.1:0")
    with connect(f"127.0.0.1:{server.port}") as client:
        engine.insert("r", {"id": 1, "a": 3, "n": "x"})
        whole = client.subscribe("SELECT * FROM r WHERE a > 1")
        least = client.subscribe("SELECT MIN(a) AS least FROM r")
        gone = client.subscribe("SELECT n FROM r WHERE a > 1")
        port = server.port
        server.close()
        engine.execute("DROP TABLE r")
        engine.execute("CREATE TABLE r (id BIGINT, a BIGINT, extra STRING, PRIMARY KEY (id))")
        engine.insert("r", {"id": 7, "a": 5, "extra": "new"})
        with serve(engine, f"127.0.0.1:{port}"):
            found = {(d.sign, d.row.get("extra", d.row.get("n"))) for d in whole.next(10).deltas}
            assert found == {(-1, "x"), (1, "new")}
            assert [(d.sign, d.row["least"]) for d in least.next(10).deltas] == [(-1, 3.0), (1, 5)]
            equal(engine, [whole, least])
            with pytest.raises(SubscriptionError, match="there is no column"):
                gone.next(10)


def test_regions_of_a_private_token_show_no_other_rows(engine) -> None:
    """Whatever a message says, region included, is in the row that it brings, or brought before."""
    rng = random.Random(8)
    texts = ["SELECT r.id FROM r JOIN s ON r.k = s.k WHERE a > 2 AND c < 5"]
    texts += ["SELECT MIN(a) FROM r WHERE id > 2"]
    texts += ["SELECT id FROM r WHERE a > 1 ORDER BY a LIMIT 2", "SELECT DISTINCT n FROM r WHERE a > 3"]
    net = Linked(engine, scopes={"open": None, "own": TokenScope(["r", "s"], private=True)})
    with pytest.raises(TocsinError, match="does not allow to read t"):
        net.follow(90, "SELECT * FROM t", "own")
    net.client.unsubscribe(90)
    for name, sql in enumerate(texts):
        net.follow(name, sql, "own")
    net.follow(50, texts[0], "open")
    private = {form.number for form in net.service._forms.values() if type(form).__name__ == "RowsForm"}
    received = []
    receive = net.client._receive
    net.client._receive = lambda batch: (received.append(batch), receive(batch))
    for _ in range(60):
        change(rng, engine)
        net.flush()
    net.compare()
    boxes = 0
    for batch in received:
        for i, form in enumerate(batch.form.tolist()):
            if form in private:
                ends = batch.messages.regions.take([i]).boxes
                value = ends[0, 0, 1]
                assert ends.shape[0] == 1 and (ends[0, 0] == [-(2**63), value, value, 2**63 - 1]).all()
                boxes += 1
    assert boxes > 20


def test_messages_without_a_network(engine) -> None:
    described = describe(engine)
    followed = described.follow("SELECT id FROM r WHERE a BETWEEN 2 AND 5")
    engine.insert("r", {"id": 1, "a": 3})
    engine.insert("r", {"id": 2, "a": 7})
    seq, batch = described.described()
    assert seq == engine.last_seq and batch.form.tolist() == [followed.forms[0]] * 2
    assert batch.messages.regions.contain(np.array(followed.points[0])).tolist() == [True, False]
    described.unfollow(followed)
    engine.insert("r", {"id": 3, "a": 3})
    assert len(described.described()[1]) == 0
    described.close()
    engine.execute("DROP TABLE r")
