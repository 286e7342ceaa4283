"""Described output: contents kept from messages equal the reference's after every batch.

Random histories run without Spark; one short history runs on Spark, through files.
"""

import json
import random
from collections import Counter

import pytest

from tests.spark.simulated import Simulated, clear_live_shards
from tests.spark.workload import DDL, JOINS, Embedded, World, subscriptions
from tocsin.engine import Engine
from tocsin.errors import TocsinError
from tocsin.model.json_rows import row_json
from tocsin.spark import Pipeline
from tocsin.spark.messages import MessageReader
from tocsin.spark.versions.batch import Layout
from tocsin.spark.versions.store import Versions

LAYOUT = Layout(tables=2, joins=3, subscriptions=2)
OTHERS = [s for s in subscriptions() if s[0] in (100, 401, 501, 600, 900)]  # delivered as deltas


def compare(reader: MessageReader, embedded: Embedded, present) -> None:
    for number, sql, _ in present:
        assert Counter(map(row_json, reader.content(number))) == embedded.answer(number), (number, sql)
    reader._check()


@pytest.mark.parametrize("seed", range(1))
def test_contents_from_messages_whatever_workers_do(tmp_path, seed):
    draw, world = random.Random(seed), World(seed)
    many = [*JOINS, *OTHERS]
    run = Simulated(tmp_path, DDL, many, LAYOUT, output="messages")
    embedded, reader = Embedded(many), MessageReader()
    for number, sql, _ in many:
        reader.follow(number, sql)
    for _ in range(8):
        changes = world.changes(draw.choice([0, 1, 5, 30]))
        embedded.apply(changes)
        draw.shuffle(changes)
        run.batch(changes, partitions=draw.choice([1, 3]), crash=draw.random() < 0.3)
        if draw.random() < 0.3:
            clear_live_shards()
        reader.apply(run.rows)
        compare(reader, embedded, many)
    assert run.sent["messages"] > 20
    assert {number for _, number, _, _ in run.emitted if number < 100} == {7}, "a band; the rest is described"


@pytest.mark.parametrize("seed", range(2))
def test_subscriptions_that_come_go_and_change_while_rows_do(tmp_path, seed):
    draw, world, every = random.Random(seed), World(seed), [*JOINS, *OTHERS]
    present = draw.sample(every, 8)
    run = Simulated(tmp_path, DDL, present, LAYOUT, output="messages")
    embedded, reader = Embedded(present), MessageReader()
    for number, sql, _ in present:
        reader.follow(number, sql)
    for turn in range(8):
        if turn and draw.random() < 0.8:
            unused = [s for s in every if s[0] not in {number for number, _, _ in present}]
            gone, added = draw.sample(present, 2), draw.sample(unused, min(3, len(unused)))
            present = [s for s in present if s not in gone] + added
            old = draw.choice([s for s in present if s not in added])  # replaced: another meaning, same id
            new = (old[0], draw.choice(every)[1], old[2])
            present = [new if s is old else s for s in present]
            embedded.engine.unsubscribe_many([number for number, _, _ in [*gone, old]])
            for one in [*added, new]:
                embedded.subscribe(*one)
            version = Versions(run.paths.versions).change(
                add=added, replace=[new], remove=[number for number, _, _ in gone]
            )
            for number, _, _ in gone:
                reader.forget(number)
            for number, sql, _ in [*added, new]:
                reader.follow(number, sql, version=version)
        changes = world.changes(draw.choice([0, 20]))
        embedded.apply(changes)
        run.batch(changes, crash=draw.random() < 0.3)
        if draw.random() < 0.5:
            clear_live_shards()
        reader.apply(run.rows)
        compare(reader, embedded, present)


def test_records_of_a_topic_in_any_order_and_twice(tmp_path):
    """Parts of an attempt that was cut short, then the whole batch: it is applied once, when it is whole."""
    world = World(1)
    run = Simulated(tmp_path, DDL, JOINS[:2], LAYOUT, output="messages")
    embedded, reader = Embedded(JOINS[:2]), MessageReader()
    for number, sql, _ in JOINS[:2]:
        reader.follow(number, sql)
    for _ in range(4):
        changes = world.changes(40)
        embedded.apply(changes)
        run.batch(changes)
        first = [row["data"] for row in run.rows if row["data"] is not None]
        run.number -= 1
        run.pins.store.path.joinpath(f"{run.number + 1}.applied").unlink()
        random.Random(0).shuffle(first)
        whole = [reader.take(data) for data in first[:-1]]
        assert not any(whole)
        assert reader.take(b'{"batch":1,"seq":3}') is False, "a delta beside"
        run.number += 1
        assert [reader.take(data) for data in first] == [False] * (len(first) - 1) + [True]
        assert not any(reader.take(data) for data in first), "again"
        run.pins.set_applied(run.number, world.seq)
        compare(reader, embedded, JOINS[:2])
    with pytest.raises(TocsinError, match="cannot be read"):
        reader.take(b"\x93\x01\x02\x03")
    with pytest.raises(TocsinError, match="there is no folder"):
        reader.read("nowhere")


@pytest.mark.spark
@pytest.mark.slow
def test_messages_through_spark_and_a_batch_that_was_killed_before_its_commit(spark, tmp_path):
    world, embedded, reader, files = World(3), Embedded(JOINS[:6]), MessageReader(), tmp_path / "in"
    for number, sql, _ in JOINS[:6]:
        reader.follow(number, sql)
    files.mkdir()
    for turn in range(2):
        changes = world.changes(60)
        embedded.apply(changes)
        (files / f"{turn}.json").write_text("".join(json.dumps(change) + "\n" for change in changes))
        start(spark, tmp_path).awaitTermination()
        if turn:
            assert reader.read(tmp_path / "messages")
            compare(reader, embedded, JOINS[:6])
            break
        # as if it had been killed: Spark runs the batch again, and its files are written again
        last = max(int(path.name[6:]) for path in (tmp_path / "messages").glob("batch=*"))
        (tmp_path / "state" / "checkpoint" / "commits" / str(last)).unlink()
        (tmp_path / "state" / "checkpoint" / "commits" / f".{last}.crc").unlink(missing_ok=True)
    with pytest.raises(TocsinError, match="the output of this query is messages"):
        start(spark, tmp_path, output="deltas")


def start(spark, folder, output="messages"):
    pipeline = Pipeline(
        spark, ddl=DDL, subscriptions=JOINS[:6], state_dir=folder / "state", layout=Layout(2, 2, 2)
    )
    schema = "table string, op string, row string, seq bigint"
    changes = spark.readStream.schema(schema).json(str(folder / "in"))
    sink = f"parquet:{folder / 'messages'}"
    return pipeline.start(changes, sink=sink, output=output, trigger={"availableNow": True})


PICTURES = """
CREATE TABLE pictures (id BIGINT, score DOUBLE, title STRING, photo STRING, PRIMARY KEY (id)) PAYLOAD (photo)
"""
SELECTIONS = [
    (1, "SELECT * FROM pictures WHERE score BETWEEN 3 AND 6", None),
    (2, "SELECT id, photo FROM pictures WHERE score > 4 AND title LIKE 'a%'", None),
    (3, "SELECT * FROM pictures WHERE photo = 'x1'", None),
    (4, "SELECT title FROM pictures", None),
    (5, "SELECT id FROM pictures WHERE title = 'ab' OR score IS NULL", None),
    (6, "SELECT COUNT(*) AS n FROM pictures WHERE score > 4", None),
]


@pytest.mark.parametrize("seed", range(2))
def test_selections_over_a_table_with_a_payload(tmp_path, seed):
    """Exact after every batch; a payload is sent when it is new to somebody, and not with every score."""
    draw, rows, seq = random.Random(seed), {}, 0
    run = Simulated(tmp_path, PICTURES, SELECTIONS[:4], LAYOUT, output="messages")
    engine, reader = Engine(), MessageReader()
    engine.execute(PICTURES)
    for number, sql, _ in SELECTIONS[:4]:
        engine.subscribe(sql, id=number)
        reader.follow(number, sql)
    for turn in range(8):
        if turn == 4:  # more of them, which find rows there
            version = run.publish(SELECTIONS)
            for number, sql, _ in SELECTIONS[4:]:
                engine.subscribe(sql, id=number)
                reader.follow(number, sql, version=version)
        changes = []
        for _ in range(draw.choice([0, 3, 12])):
            seq, id = seq + 1, draw.randrange(6)
            op = "insert" if id not in rows else draw.choice(["update"] * 4 + ["delete"])
            row = {"id": id}
            if op != "delete":
                row |= {"score": draw.choice([1, 3, 4, 5, 6, 8, None]), "title": draw.choice(["ab", "b"])}
                row |= {"photo": f"x{draw.randrange(3)}"} if op == "insert" or draw.random() < 0.3 else {}
                rows[id] = row
            else:
                del rows[id]
            changes.append({"table": "pictures", "op": op, "row": json.dumps(row), "seq": seq})
            getattr(engine, op)("pictures", row)
        run.batch(changes, crash=draw.random() < 0.3)
        if draw.random() < 0.3:
            clear_live_shards()
        reader.apply(run.rows)
        for number, sql, _ in SELECTIONS[: 4 if turn < 4 else 6]:
            mine, theirs = reader.content(number), engine.content(number)
            assert Counter(map(row_json, mine)) == Counter(map(row_json, theirs)), (turn, sql)
    assert {key[1] for key in run.emitted} <= {6}, "the selections are described"
