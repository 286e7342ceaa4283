"""Described output through a real broker: the pipeline is killed once, and so is whoever reads the topic.

`make test-kafka` runs it, as `test_topics.py`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands.test_broker import started
from tests.kafka.broker import CONNECTOR_JARS, NotReachable, broker, fetched
from tests.kafka.test_topics import command, kill_after_two_batches
from tests.spark.test_messages import compare
from tests.spark.workload import JOINS, Embedded, World
from tocsin.network.connect import connect
from tocsin.spark.messages import MessageReader
from tocsin.spark.serving import serve_sink
from tocsin.spark.topic import Topic

pytestmark = pytest.mark.skipif("TOCSIN_TEST_KAFKA" not in os.environ, reason="run by make test-kafka")
kafka = pytest.importorskip("confluent_kafka")
FILE = Path(__file__).with_name("described.py")
READER = """
import sys
from tests.spark.test_messages import JOINS
from tocsin.spark import MessageReader, Topic
reader = MessageReader()
for number, sql, _ in JOINS[:6]:
    reader.follow(number, sql)
with Topic("messages", sys.argv[1]) as topic:
    while True:
        for number in reader.read(topic):
            print(number, flush=True)
"""


def test_messages_through_a_topic_over_kills_of_the_pipeline_and_of_readers(tmp_path):
    try:
        jars = os.environ.get("TOCSIN_KAFKA_JARS") or ",".join(map(str, fetched(CONNECTOR_JARS, alone=True)))
        running = broker(tmp_path / "kafka", partitions=3)
        address = running.__enter__()
    except NotReachable as error:
        pytest.skip(f"Kafka is not tested: {error}")
    try:
        world, embedded = World(12), Embedded(JOINS[:6])
        send_changes(address, world, embedded, 100)
        kill_after_two_batches(tmp_path, address, jars, FILE)
        killed = subprocess.Popen([sys.executable, "-c", READER, address], stdout=subprocess.PIPE, text=True)
        assert killed.stdout is not None and killed.stdout.readline() == "0\n"
        killed.kill()
        killed.communicate()
        run_pipeline(tmp_path, address, jars)

        with Topic("messages", address) as topic:
            reader = new_reader()
            assert reader.read(topic)
            compare(reader, embedded, JOINS[:6])
            with serve_sink(
                Topic("messages", address), "127.0.0.1:0", state_dir=tmp_path / "state"
            ) as server:
                through_a_broker(tmp_path, address, jars, server.port, world, embedded)
            assert reader.read(topic)
            compare(reader, embedded, JOINS[:6])
            again = new_reader()
            with Topic("messages", address) as second:
                assert again.read(second)[-1] == reader.batch
            compare(again, embedded, JOINS[:6])
    finally:
        running.__exit__(None, None, None)


def through_a_broker(folder, address, jars, port, world, embedded) -> None:
    """A client of a broker process follows the pipeline, also over a kill of its broker."""
    up = ["--up", f"127.0.0.1:{port}", "--listen"]
    process, own = started(*up, "127.0.0.1:0")
    try:
        with connect(f"127.0.0.1:{own}") as connection:
            followed = {number: connection.subscribe(sql) for number, sql, _ in JOINS[:6]}
            wait_until_equal(followed, embedded)
            process.kill()
            process.wait()
            send_changes(address, world, embedded, 60)
            run_pipeline(folder, address, jars)
            process.stderr.close()
            process, _ = started(*up, f"127.0.0.1:{own}")
            wait_until_equal(followed, embedded)
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def wait_until_equal(followed, embedded) -> None:
    for number, subscription in followed.items():
        embedded.wait_until_equal(number, subscription)


def new_reader() -> MessageReader:
    reader = MessageReader()
    for number, sql, _ in JOINS[:6]:
        reader.follow(number, sql)
    return reader


def send_changes(address: str, world: World, embedded: Embedded, count: int) -> None:
    changes = world.changes(count)
    embedded.apply(changes)
    producer = kafka.Producer({"bootstrap.servers": address})
    for change in changes:
        producer.produce("changes", json.dumps(change).encode(), partition=0)
    assert producer.flush(30) == 0


def run_pipeline(folder: Path, address: str, jars: str) -> None:
    done = subprocess.run(command(folder, address, jars, FILE), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
