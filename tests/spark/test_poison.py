"""A stream with bad rows of twenty kinds: all are dead letters with a reason, and no other row is lost."""

import json
import os
import random
from collections import Counter

import pytest

from tests.spark.simulated import Simulated
from tests.spark.workload import DDL, Embedded, World, emitted, subscriptions
from tocsin.spark import Pipeline
from tocsin.spark.sinks import MemorySink
from tocsin.spark.versions.batch import Layout

DEEP = "[" * 100_000 + "]" * 100_000

# Bad changes: table, op, row as text, seq ("fresh", "old": one that was before), a part of the reason.
# No row has the key Z; unit 77 is there from the start.
KINDS = {
    "broken JSON": ("stocks", "insert", '{"symbol": "Z', "fresh", "malformed row: Unterminated"),
    "no object": ("stocks", "insert", "[1, 2]", "fresh", "not a JSON object but list"),
    "a wrong type": ("stocks", "insert", '{"symbol": "Z", "per": "much"}', "fresh", "per"),
    "an unknown table": ("stonks", "insert", '{"symbol": "Z"}', "fresh", "no table or stream 'stonks'"),
    "no table": (None, "insert", '{"symbol": "Z"}', "fresh", "table is missing"),
    "an unknown op": ("stocks", "replace", '{"symbol": "Z"}', "fresh", "replace"),
    "no op": ("stocks", None, '{"symbol": "Z"}', "fresh", "op"),
    "no seq": ("stocks", "insert", '{"symbol": "Z"}', None, "seq is missing"),
    "a seq below 0": ("stocks", "insert", '{"symbol": "Z"}', -5, "below 0"),
    "a seq that was before": (
        "units",
        "update",
        '{"id": 77, "team": "x"}',
        "old",
        "the last applied to this",
    ),
    "no key": ("stocks", "insert", '{"per": 3}', "fresh", "symbol"),
    "a key of NULL": ("reviews", "upsert", '{"id": null, "rating": 2}', "fresh", "id"),
    "no row": ("stocks", "insert", None, "fresh", "row"),
    "an unknown column": ("stocks", "insert", '{"symbol": "Z", "pre": 3}', "fresh", "pre"),
    "an update of what is not there": ("stocks", "update", '{"symbol": "Z", "per": 3}', "fresh", "Z"),
    "a delete of what is not there": ("stocks", "delete", '{"symbol": "Z"}', "fresh", "Z"),
    "an insert of what is there": ("units", "insert", '{"id": 77, "team": "red"}', "fresh", "77"),
    "JSON too deep": ("signals", "insert", DEEP, "fresh", "recursion"),
    "a number too large": ("reviews", "insert", '{"id": 99999999999999999999}', "fresh", "id"),
    "an event that is updated": ("listings", "update", '{"model": "x5"}', "fresh", "update"),
}


def poisoned(world: World, good: int, seed: int) -> tuple[list, list, list]:
    """Changes with one of each kind strewn in: (all, the good ones, the bad ones with kind and reason).

    The first is good, and is to be a batch of its own: a seq is old only if its batch is over.
    """
    draw, everything, right, wrong = random.Random(seed), [], [], []
    places = set(draw.sample(range(1, good), len(KINDS)))
    kinds = draw.sample(sorted(KINDS), len(KINDS))
    first = {"table": "units", "op": "insert", "row": '{"id": 77, "pos": 999}', "seq": world.seq + 1}
    world.seq += 1
    everything.append(first)
    right.append(first)
    for number in range(good):
        if number in places:
            kind = kinds.pop()
            table, op, row, seq, reason = KINDS[kind]
            if seq == "fresh":
                world.seq += 1
                seq = world.seq
            elif seq == "old":
                seq = first["seq"]
            everything.append({"table": table, "op": op, "row": row, "seq": seq})
            wrong.append((kind, everything[-1], reason))
        (change,) = world.changes(1)
        everything.append(change)
        right.append(change)
    return everything, right, wrong


def check_letters(dead, wrong) -> None:
    letters = {(row["table"], row["op"], row["row"], row["seq"]): row["reason"] for row in dead}
    assert len(dead) == len(wrong)
    for kind, change, reason in wrong:
        written = letters[change["table"], change["op"], change["row"], change["seq"]]
        assert written, kind
        assert reason.lower() in written.lower(), (kind, written)


@pytest.mark.parametrize("seed", range(3))
def test_every_bad_row_is_a_dead_letter_and_no_other_is_lost(tmp_path, seed):
    """One in a hundred is bad, with a crash in between."""
    world, embedded = World(seed), Embedded(subscriptions())
    pipeline = Simulated(tmp_path, DDL, subscriptions(), Layout(2, 2, 2))
    everything, right, wrong = poisoned(world, 100 * len(KINDS) // 5, seed)
    half = len(everything) // 2
    for number, batch in enumerate([everything[:1], everything[1:half], everything[half:]]):
        pipeline.batch(batch, crash=number == 1)
    embedded.apply(right)
    assert pipeline.emitted == embedded.emitted
    check_letters(pipeline.dead, wrong)


@pytest.mark.spark
@pytest.mark.slow
def test_on_spark_from_a_file_with_lines_that_are_not_even_text(spark, tmp_path):
    """As above; also what is observed of it."""
    from tocsin.commands.connectors import SourceConfig
    from tocsin.commands.run import _changes

    world, embedded = World(5), Embedded(subscriptions())
    everything, right, wrong = poisoned(world, 60, 5)
    lines = [
        json.dumps({key: value for key, value in c.items() if value is not None}).encode() for c in everything
    ]
    world.seq += 1
    extra = [
        b'{"table": "stocks", "op": "insert", "row"',
        b"\xff\xfe\x00garbage",
        *(b'{"seq": %s, "table": "stocks"}' % seq for seq in (b'"x"', b"12.5", b"1" + b"0" * 19)),
        b"5",
        b'{"table": "stocks", "op": "insert", "row": {"symbol": "\xff"}, "seq": %d}' % world.seq,
    ]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_bytes(lines[0])
    (tmp_path / "in" / "2.json").write_bytes(b"\n".join([*lines[1:30], *extra, *lines[30:]]) + b"\n")
    os.utime(tmp_path / "in" / "1.json", (1, 1))
    sink, dead = MemorySink(), MemorySink()
    pipeline = Pipeline(
        spark, ddl=DDL, subscriptions=subscriptions(), state_dir=tmp_path / "state", layout=Layout(2, 2, 2)
    )
    changes = _changes(spark, SourceConfig("json", tmp_path / "in"))
    query = pipeline.start(changes, sink=sink, dead_letters=dead, trigger={"availableNow": True})
    query.awaitTermination()
    embedded.apply(right)
    assert emitted(sink.rows()) == embedded.emitted
    letters = dead.rows()
    assert len(letters) == len(wrong) + len(extra)
    assert all(letter["reason"] for letter in letters)
    texts = Counter(letter["row"] for letter in letters)
    assert texts[extra[0].decode()] == 1, "the text of a broken line is kept"
    why = Counter(letter["reason"] for letter in letters)
    assert why["malformed line: it is no JSON object"] == 4
    assert (
        why["seq x is not a BIGINT"]
        == why["seq 12.5 is not a BIGINT"]
        == why[f"seq {10**19} is not a BIGINT"]
        == 1
    )
    assert sum(str(text).startswith("not UTF-8: ") for text in texts) == 2
    seen = query.lastProgress["observedMetrics"]
    assert seen["tocsin_in"]["changes"] == len(everything) - 1 + len(extra)
    out = seen["tocsin_out"].asDict()
    assert out["dead_letters"] == len(letters)
    assert out["deltas"] >= sink.batches[1].num_rows
    assert (out["last_seq"], out["version"]) == (max(change["seq"] for change in right), 1)
