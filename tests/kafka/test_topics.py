"""The pipeline from topic to topic on a real broker, killed once: nothing lost, nothing doubled.

`make test-kafka` runs it. It needs Maven, which fetches the broker and Spark's connector into a cache;
`TOCSIN_KAFKA_JARS=a.jar,b.jar` names a connector of one's own, for a Spark that is not published yet.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.kafka.broker import CONNECTOR_JARS, NotReachable, broker, fetched
from tests.spark.workload import Embedded, World, emitted, subscriptions
from tocsin.spark import session

pytestmark = pytest.mark.skipif("TOCSIN_TEST_KAFKA" not in os.environ, reason="run by make test-kafka")
FILE = Path(__file__).with_name("topics.py")


def test_from_topic_to_topic_over_a_kill(tmp_path):
    try:
        jars = os.environ.get("TOCSIN_KAFKA_JARS") or ",".join(map(str, fetched(CONNECTOR_JARS, alone=True)))
        running = broker(tmp_path / "kafka")
        address = running.__enter__()
    except NotReachable as error:
        pytest.skip(f"Kafka is not tested: {error}")
    try:
        spark = session("tests", **{"spark.jars": jars})
        world = World(11)
        embedded = Embedded(row for row in subscriptions() if row[0] // 100 in (1, 3, 9))
        changes = world.changes(150)
        embedded.apply(changes)
        rows = [(change["seq"], json.dumps(change)) for change in changes]
        frame = spark.createDataFrame(rows, "seq bigint, value string").repartition(1)
        to = (
            frame.sortWithinPartitions("seq")
            .select("value")
            .write.format("kafka")
            .option("kafka.bootstrap.servers", address)
        )
        to.option("topic", "changes").save()

        kill_after_two_batches(tmp_path, address, jars)
        last = subprocess.run(command(tmp_path, address, jars), capture_output=True, text=True, timeout=300)
        assert last.returncode == 0, last.stderr[-3000:]

        source = spark.read.format("kafka").option("kafka.bootstrap.servers", address)
        source = source.option("includeHeaders", True).option("kafka.isolation.level", "read_committed")
        messages = source.option("subscribe", "deltas").load()
        found = messages.selectExpr("string(headers[0].value) AS id", "string(value) AS value").collect()
        by_id: dict[str, str] = {}
        for name, value in found:
            assert by_id.setdefault(name, value) == value, "one id, one message"
        assert emitted(map(delta, by_id.values())) == embedded.emitted
        assert {json.loads(value)["batch"] for value in by_id.values()} == set(range(5))
    finally:
        running.__exit__(None, None, None)


def delta(value: str) -> dict[str, object]:
    """A message as a row of deltas: the row itself is wanted as the text it was."""
    return {**json.loads(value), "row": value[value.index(',"row":') + 7 : -1]}


def command(folder: Path, address: str, jars: str, file: Path = FILE) -> list[str]:
    return [
        sys.executable,
        "-c",
        f"import runpy, sys; sys.path.insert(0, {str(Path.cwd())!r}); "
        f"sys.argv = [{file.name!r}, {str(folder)!r}, {address!r}, {jars!r}]; "
        f"runpy.run_path({str(file)!r}, run_name='__main__')",
    ]


def kill_after_two_batches(folder: Path, address: str, jars: str, file: Path = FILE) -> None:
    first = subprocess.Popen(command(folder, address, jars, file), stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 300
    while not (folder / "state" / "checkpoint" / "commits" / "1").exists():
        assert first.poll() is None, first.communicate()[1]
        assert time.monotonic() < deadline, "no second batch"
        time.sleep(0.02)
    first.kill()
    first.communicate()
