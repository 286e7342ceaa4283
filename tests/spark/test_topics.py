"""Described output in a topic: contents are exact, whatever is sent twice, and for whoever starts again.

The topic is one of librdkafka's own brokers; `tests/kafka` runs a real one, with Spark.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import orjson
import pytest

from tests.spark.simulated import Simulated
from tests.spark.test_messages import OTHERS, compare
from tests.spark.workload import DDL, JOINS, Embedded, World
from tocsin.errors import TocsinError
from tocsin.network.connect import connect
from tocsin.spark.messages import MessageReader
from tocsin.spark.serving import serve_sink
from tocsin.spark.topic import ID, Topic
from tocsin.spark.versions.batch import Layout

kafka = pytest.importorskip("confluent_kafka")
LAYOUT = Layout(tables=2, joins=3, subscriptions=2)


class Brokers:
    """A cluster in this process, and what the sink of a query sends to it."""

    def __init__(self, producer: Any) -> None:
        self.producer = producer
        host = next(iter(producer.list_topics(timeout=10).brokers.values()))
        self.address = f"{host.host}:{host.port}"

    def send(self, rows: Sequence[dict[str, Any]], topic: str = "messages") -> None:
        """Rows of a batch as records, as `sinks/kafka.py` makes them."""
        numbers = Counter[int]()
        for row in rows:
            if row["data"] is not None:
                self.producer.produce(topic, row["data"], key="q")
                continue
            numbers[row["subscription"]] += 1
            head = {name: row[name] for name in ("batch", "seq", "subscription", "sign")}
            value = orjson.dumps({**head, "row": orjson.loads(row["row"])})
            key = str(row["subscription"])
            id = f"q/{row['batch']}/{row['seq']}/{key}/{numbers[row['subscription']]}"
            self.producer.produce(topic, value, key=key, headers={ID: id.encode()})
        self.producer.flush(10)


@contextmanager
def brokers() -> Iterator[Brokers]:
    yield Brokers(
        kafka.Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "ignored", "logger": None})
    )


def in_order(run: Simulated) -> list[dict[str, Any]]:
    """A batch's rows with its number, deltas in the order of their records."""
    rows = [{**row, "batch": run.number} for row in run.rows]
    return sorted(rows, key=lambda row: (row["data"] is None, row["seq"] or 0, row["sign"] or 0))


def test_a_reader_of_a_topic_is_exact_and_so_is_one_that_starts_again(tmp_path):
    draw, world, many = random.Random(4), World(4), [*JOINS[:3], *OTHERS]
    run = Simulated(tmp_path, DDL, many, LAYOUT, output="messages")
    embedded = Embedded(many)

    def reader() -> MessageReader:
        made = MessageReader()
        for number, sql, _ in many:
            made.follow(number, sql)
        return made

    with brokers() as cluster:
        first, topic = reader(), None
        for _ in range(3):
            changes = world.changes(25)
            embedded.apply(changes)
            run.batch(changes)
            rows = in_order(run)
            if draw.random() < 0.6:  # the query is killed while it sends: the batch is run and sent again
                cluster.send(rows[: draw.randrange(len(rows))])
            cluster.send(rows)
            topic = topic or Topic("messages", cluster.address)
            assert first.read(topic) == [run.number]
            compare(first, embedded, many)
        assert first.read(topic) == [] and topic is not None
        topic.close()
        with Topic("messages", cluster.address) as topic:
            second = reader()
            assert second.read(topic) == list(range(3))
        compare(second, embedded, many)


def test_clients_follow_a_pipeline_through_its_topic(tmp_path):
    world = World(6)
    run, embedded = (
        Simulated(tmp_path, DDL, JOINS[:3], Layout(2, 3, 2), output="messages"),
        Embedded(JOINS[:3]),
    )

    with brokers() as cluster:

        def batch() -> None:
            changes = world.changes(30)
            embedded.apply(changes)
            run.batch(changes)
            cluster.send(in_order(run))

        for _ in range(3):
            batch()
        with (
            serve_sink(Topic("messages", cluster.address), "127.0.0.1:0", state_dir=tmp_path) as server,
            connect(f"127.0.0.1:{server.port}") as connection,
        ):
            followed = {
                number: connection.subscribe(sql) for number, sql, _ in JOINS[:2]
            }  # from past messages
            batch()
            followed[JOINS[2][0]] = connection.subscribe(JOINS[2][1])
            batch()
            for number, subscription in followed.items():
                embedded.wait_until_equal(number, subscription)


def test_what_is_missing_is_said(tmp_path):
    with brokers() as cluster:
        with pytest.raises(TocsinError, match="no topic nothing"):
            Topic("nothing", cluster.address)
        cluster.send([{"data": b"\x93\x01\x02\x03"}])
        reader = MessageReader()
        reader.follow(1, JOINS[0][1])
        with Topic("messages", cluster.address) as topic, pytest.raises(TocsinError, match="cannot be read"):
            reader.read(topic)
        with Topic("messages", cluster.address) as topic:
            topic.starts_late = True
            with pytest.raises(TocsinError, match="beginning of the topic messages is gone"):
                serve_sink(topic, "127.0.0.1:0", state_dir=tmp_path)
            with pytest.raises(TocsinError, match="cannot be read"):
                reader.read(topic)
            with pytest.raises(TocsinError, match="beginning of the topic messages is gone"):
                reader.content(1)
    with pytest.raises(TocsinError, match="do not answer"):
        Topic("messages", "127.0.0.1:1", timeout=0.3)
