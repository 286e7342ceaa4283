"""Clients of a server over a folder of messages: contents are exact, also when subscriptions are replaced."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from tests.commands.test_broker import started
from tests.spark.simulated import Simulated
from tests.spark.workload import DDL, JOINS, Embedded, World
from tocsin.engine import Engine
from tocsin.errors import SubscriptionError
from tocsin.model.json_rows import row_json
from tocsin.network.connect import connect
from tocsin.spark.serving import serve_sink
from tocsin.spark.stages.deliver import DELTA_SCHEMA
from tocsin.spark.versions.batch import Layout
from tocsin.spark.versions.store import Versions

SCHEMA = DELTA_SCHEMA.append(pa.field("data", pa.binary()))


def write(run: Simulated, folder: Path) -> None:
    """The batch as a file sink leaves it."""
    aside = folder / f".{run.number}"
    aside.mkdir(parents=True)
    parquet.write_table(pa.Table.from_pylist(run.rows, schema=SCHEMA), aside / "part-0.parquet")
    aside.rename(folder / f"batch={run.number}")


@contextmanager
def entrance(through: str, port: int) -> Iterator[int]:
    """The port of the server itself, or of a broker process below it."""
    if through == "server":
        yield port
        return
    process, own = started("--up", f"127.0.0.1:{port}", "--listen", "127.0.0.1:0")
    try:
        yield own
    finally:
        process.terminate()
        process.wait(20)
        process.stderr.close()


@pytest.mark.parametrize("through", ["server", "broker"])
def test_clients_follow_a_pipeline_through_its_folder(tmp_path, through):
    world, folder = World(5), tmp_path / "messages"
    run, embedded = (
        Simulated(tmp_path, DDL, JOINS[:3], Layout(2, 3, 2), output="messages"),
        Embedded(JOINS[:3]),
    )

    def batch() -> int:
        changes = world.changes(30)
        embedded.apply(changes)
        run.batch(changes)
        write(run, folder)
        return world.seq

    batch()
    with (
        serve_sink(folder, "127.0.0.1:0", state_dir=tmp_path) as server,
        entrance(through, server.port) as port,
        connect(f"127.0.0.1:{port}") as connection,
    ):
        followed = {number: connection.subscribe(sql) for number, sql, _ in JOINS[:2]}
        for _ in range(2):
            batch()
            for number, subscription in followed.items():
                embedded.wait_until_equal(number, subscription)
        with pytest.raises(SubscriptionError, match="no subscription with this text"):
            connection.subscribe("SELECT * FROM stocks JOIN reviews USING (symbol) WHERE per = 77")
        Versions(run.paths.versions).change(remove=[2], add=[(6, JOINS[5][1])])
        embedded.engine.unsubscribe(2)
        embedded.subscribe(6, JOINS[5][1], "f")
        batch()
        embedded.wait_until_equal(1, followed[1])
        embedded.wait_until_equal(6, connection.subscribe(JOINS[5][1]))
        with pytest.raises(SubscriptionError, match="no subscription with this text"):
            connection.subscribe(JOINS[1][1])


PICTURES = "CREATE TABLE pictures (id BIGINT, score DOUBLE, photo STRING, PRIMARY KEY (id)) PAYLOAD (photo)"
SELECTION = "SELECT * FROM pictures WHERE score BETWEEN 3 AND 6"


def test_clients_follow_a_selection_whose_payloads_come_apart(tmp_path):
    folder, engine = tmp_path / "messages", Engine()
    run = Simulated(tmp_path, PICTURES, [(1, SELECTION, None)], Layout(2, 3, 2), output="messages")
    engine.execute(PICTURES)
    number = engine.subscribe(SELECTION).id
    rows = [(id, score, f"x{id}") for id, score in enumerate([1, 4, 5, 9, 3])]
    rows += [(0, 4, "x0"), (1, 8, "x1"), (2, 4, "x2"), (4, 3, "y")]  # in, out, another value, another payload

    def batch(begin: int, end: int) -> None:
        changes = []
        for seq, values in enumerate(rows[begin:end], begin + 1):
            row, op = (
                dict(zip(("id", "score", "photo"), values, strict=True)),
                "update" if begin else "insert",
            )
            getattr(engine, op)("pictures", row)
            changes.append({"table": "pictures", "op": op, "row": json.dumps(row), "seq": seq})
        run.batch(changes)
        write(run, folder)

    batch(0, 5)
    with (
        serve_sink(folder, "127.0.0.1:0", state_dir=tmp_path) as server,
        connect(f"127.0.0.1:{server.port}") as connection,
    ):
        first = connection.subscribe(SELECTION)
        assert Counter(map(row_json, first.content())) == Counter(map(row_json, engine.content(number)))
        batch(5, 9)
        until = time.monotonic() + 40
        while Counter(map(row_json, first.content())) != Counter(map(row_json, engine.content(number))):
            assert time.monotonic() < until
            time.sleep(0.05)
    with (
        serve_sink(folder, "127.0.0.1:0", state_dir=tmp_path) as server,
        connect(f"127.0.0.1:{server.port}") as connection,
    ):
        later = connection.subscribe(SELECTION).content()  # from the messages of both batches
        assert Counter(map(row_json, later)) == Counter(map(row_json, engine.content(number)))
