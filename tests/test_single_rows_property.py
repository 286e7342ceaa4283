"""One row at a time is the same as a batch: rows of tables, under subscriptions of every shape.

Two engines run the same script. One takes each row by itself, or a few as a list of dicts; the other takes
each as a `ChangeBatch` and applies it as columns. Deltas, listeners, contents and errors must be the same.
"""

from __future__ import annotations

import re
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies.cases import Case, cases
from tests.strategies.changes import Change, Step
from tests.strategies.queries import SHAPES
from tests.test_single_property import plain
from tocsin.client import Client
from tocsin.engine import Engine
from tocsin.errors import TocsinError
from tocsin.model.change import ChangeBatch
from tocsin.model.delta import Deltas
from tocsin.model.schema import Table
from tocsin.rank.topk import RankedFamily
from tocsin.reference import as_bag, evaluate


def listed(deltas: Deltas) -> list[Any]:
    """Deltas, which are in order of seq; those of one change are in order of slots, which may differ."""
    found = plain(deltas)
    assert np.all(np.diff(deltas.seq) >= 0)
    return sorted(found, key=repr)


class Pair:
    """`one` takes rows one by one, `many` takes batches."""

    def __init__(self, definitions: str) -> None:
        self.one, self.many = Engine(), Engine()
        self.received: tuple[list[Any], list[Any]] = [], []
        for engine, received in zip((self.one, self.many), self.received, strict=True):
            engine.execute(definitions)
            engine.on_delta(lambda deltas, received=received: received.extend(listed(deltas)))

    def subscribe(self, sql: str) -> int:
        mine, other = (engine.subscribe(sql).id for engine in (self.one, self.many))
        assert mine == other
        return mine

    def change(self, table: Table, changes: tuple[Change, ...], net: bool = False) -> None:
        """One row by its own call; several as a list of dicts."""
        rows, ops = [change.row for change in changes], [change.op for change in changes]
        try:
            batch, bad = ChangeBatch.from_dicts(table, rows, ops)
            together = self._together(table, batch.or_raise(bad), net)
        except TocsinError as error:
            with pytest.raises(type(error), match=re.escape(error.fact)):
                self._singly(table, rows, ops, net)
        else:
            singly = self._singly(table, rows, ops, net)
            assert listed(singly) == listed(together)
            assert plain(Deltas.concat([singly])) == plain(singly)
        assert self.received[0] == self.received[1]
        assert self.one.last_seq == self.many.last_seq

    def _together(self, table: Table, batch: ChangeBatch, net: bool) -> Deltas:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(RankedFamily, "_few_moves", -1)
            return self.many.apply(table.name, batch, net=net)

    def _singly(self, table: Table, rows: list[Any], ops: list[str], net: bool) -> Deltas:
        if len(rows) == 1 and not net:
            deltas: Deltas = getattr(self.one, ops[0])(table.name, rows[0])
            return deltas
        few = [row | {"_op": op} for row, op in zip(rows, ops, strict=True)]
        return self.one.apply(table.name, few, net=net)

    def reload(self) -> None:
        """Save and load the engine that takes single rows."""
        with TemporaryDirectory() as folder:
            self.one.save(Path(folder) / "saved")
            self.one = Engine.load(Path(folder) / "saved")
        self.one.on_delta(lambda deltas: self.received[0].extend(listed(deltas)))

    def check(self) -> None:
        for name in self.one._database.tables:
            one, many = (as_bag(engine.rows(name).to_pylist()) for engine in (self.one, self.many))
            assert one == many
        for subscription in self.many.subscriptions():
            assert as_bag(self.one.content(subscription.id)) == as_bag(self.many.content(subscription.id))
        self.one._check()
        self.many._check()


def bad_step(step: Step, random: Random) -> tuple[Change, ...]:
    """The step with one row that must be rejected."""
    table, row = step.table, dict(step.changes[0].row)
    name = table.names[-1]
    bad = random.choice(
        [
            Change("insert", row | {name: [1]}),
            Change("upsert", row | {"nowhere": 1}),
            Change("update", {n: v for n, v in row.items() if n != table.key[0]}),
            Change("upsert", row | {table.key[0]: None}),
        ]
    )
    return (*step.changes, bad) if random.random() < 0.5 else (bad,)


@pytest.mark.parametrize("shape", SHAPES)
def test_single_rows_are_like_batches(shape: str) -> None:
    @settings(max_examples=max(15, settings().max_examples))
    @given(cases(shape), st.randoms(use_true_random=False))
    def check(case: Case, random: Any) -> None:
        pair = Pair("; ".join(map(str, case.tables)))
        alive: dict[int, int] = {}
        for i, step in enumerate(case.steps):
            for n, written in enumerate(case.written):
                if case.at[n] == i:
                    alive[n] = pair.subscribe(written.sql)
                if case.until[n] == i:
                    gone = alive.pop(n)
                    pair.one.unsubscribe(gone)
                    pair.many.unsubscribe(gone)
            if random.random() < 0.2:
                pair.change(step.table, bad_step(step, random))
            if random.random() < 0.1:
                pair.reload()
            pair.change(step.table, step.changes, step.net)
            if random.random() < 0.2:  # again: perhaps the key is there now, or gone
                pair.change(step.table, step.changes)
        pair.check()

    check()


QUERIES = [
    *(f"SELECT id, y FROM t WHERE x BETWEEN {a} AND {a + 5} ORDER BY y LIMIT {1 + a % 4}" for a in range(12)),
    *(f"SELECT id FROM t WHERE x > {a} ORDER BY y DESC NULLS LAST, name LIMIT 3" for a in range(4)),
    *(f"SELECT y, name FROM t WHERE x < {a} ORDER BY name LIMIT 2" for a in range(4, 14, 3)),
    *(f"SELECT * FROM t WHERE name = '{name}' AND x >= 5 ORDER BY y LIMIT 2" for name in "abc"),
    *(f"SELECT name FROM t WHERE y > 3 AND x <= {a} ORDER BY x LIMIT 4" for a in range(6)),
    *(f"SELECT MIN(y) FROM t WHERE x BETWEEN {a} AND {a + 4}" for a in range(9)),
    *(f"SELECT MAX(name) AS last FROM t WHERE x BETWEEN {a} AND {a + 7}" for a in range(6)),
    *(f"SELECT MIN(y), COUNT(*), SUM(y) FROM t WHERE x >= {a}" for a in range(3)),
    *(f"SELECT COUNT(y) AS n FROM t WHERE x BETWEEN {a} AND {a + 2}" for a in range(9)),
    *(f"SELECT DISTINCT name FROM t WHERE x BETWEEN {a} AND {a + 6}" for a in range(7)),
    *(f"SELECT id FROM t WHERE x = {a} OR name = 'b'" for a in range(5)),
]
TABLE = "CREATE TABLE t (id BIGINT, x BIGINT, y DOUBLE, name STRING, PRIMARY KEY (id))"


def drawn_change(random: Random, there: set[int]) -> Change:
    """A change that fits, of few values, so that there are ties, with NULLs and NaN."""
    number = random.randrange(40)
    ops = ("update", "update", "update", "upsert", "delete") if number in there else ("insert", "upsert")
    cells: dict[str, Any] = {
        "x": random.choice([None, *range(14)]),
        "y": random.choice([None, float("nan"), -0.0, 1, 2.5, 3, 4, 5.5]),
        "name": random.choice([None, "a", "b", "c", "é"]),
    }
    given = [name for name in cells if random.random() < 0.5]
    return Change(random.choice(ops), {"id": number} | {name: cells[name] for name in given})


@pytest.mark.parametrize("seed", range(2))
def test_a_long_run_with_ties_and_nulls(seed: int) -> None:
    random, pair, there = Random(seed), Pair(TABLE), set[int]()
    table = pair.one.schema("t")
    assert isinstance(table, Table)
    ids = [pair.subscribe(sql) for sql in QUERIES]
    for at in range(90):
        changes = []
        for _ in range(1 if random.random() < 0.8 else random.randrange(2, 12)):
            changes.append(drawn_change(random, there))
            (there.discard if changes[-1].op == "delete" else there.add)(changes[-1].row["id"])
        pair.change(table, tuple(changes), net=random.random() < 0.1)
        if at % 45 == 44:
            pair.check()
            database = {"t": pair.one.rows("t").to_pylist()}
            for id in ids:
                expected = evaluate(pair.one.query(id), database, {"t": ("id",)})
                assert as_bag(pair.one.content(id)) == as_bag(expected)
    pair.check()


@pytest.mark.parametrize("size", [1, 5, 7, 8])
def test_labels_that_run_out(size: int) -> None:
    """Each row comes between the last two: after some forty there is no gap left, also within a list."""
    pair = Pair(TABLE)
    table = pair.one.schema("t")
    assert isinstance(table, Table)
    pair.subscribe("SELECT id, y FROM t WHERE x < 9 ORDER BY y LIMIT 3")
    pair.subscribe("SELECT MAX(y) FROM t WHERE x < 9")
    low, high = 0.0, 1.0
    waiting: list[Change] = []
    for number in range(144):
        middle = (low + high) / 2
        waiting.append(Change("upsert", {"id": number % 70, "x": number % 5, "y": middle}))
        low, high = (middle, high) if number % 2 else (low, middle)
        if len(waiting) == size:
            pair.change(table, tuple(waiting))
            waiting = []
    pair.check()


def test_most_keys_go_stale_within_a_list() -> None:
    engine = Engine()
    engine.execute(TABLE)
    mine = engine.subscribe("SELECT id, y FROM t WHERE x < 9 ORDER BY y LIMIT 3")
    client = Client()
    client.start(mine)
    client.receive(engine.apply("t", [{"id": i, "x": 1, "y": float(i)} for i in range(5000)]))
    client.receive(engine.apply("t", [{"_op": "delete", "id": i} for i in range(228, 5000)]))
    for first in range(0, 40, 8):
        client.receive(engine.apply("t", [{"_op": "delete", "id": i} for i in range(first, first + 8)]))
        assert sorted(map(str, client.content(mine))) == sorted(map(str, engine.content(mine)))
    engine._check()


def test_an_update_that_changes_nothing_has_a_seq_and_no_deltas() -> None:
    engine = Engine()
    engine.execute(TABLE)
    engine.subscribe("SELECT id, y FROM t WHERE x < 9 ORDER BY y LIMIT 3")
    engine.insert("t", {"id": 1, "x": 1, "y": float("nan")})
    assert len(engine.update("t", {"id": 1, "y": float("nan"), "name": None})) == 0
    assert engine.last_seq == 2
    assert [d.seq for d in engine.update("t", {"id": 1, "y": 2})] == [3, 3]
    engine._check()


def test_a_rejected_row_changes_nothing() -> None:
    engine = Engine()
    engine.execute(TABLE)
    mine = engine.subscribe("SELECT id, y FROM t WHERE x < 9 ORDER BY y LIMIT 3")
    engine.insert("t", {"id": 1, "x": 1, "y": 2})
    before = engine.rows("t").to_pylist()
    for op, row in [
        ("insert", {"id": 1}),
        ("update", {"id": 2, "y": 3}),
        ("delete", {"id": 2}),
        ("upsert", {"id": 1, "y": "high"}),
        ("upsert", {"y": 1}),
        ("update", {"id": 1, "z": 1}),
        ("update", {"id": 2**63}),
    ]:
        with pytest.raises(TocsinError):
            getattr(engine, op)("t", row)
    with pytest.raises(TocsinError):
        engine.apply("t", [{"id": 3, "x": 1, "y": 1}, {"id": 3}])
    assert engine.rows("t").to_pylist() == before
    assert engine.last_seq == 1
    assert engine.content(mine) == [{"id": 1, "y": 2.0}]
    assert [d.row["id"] for d in engine.insert("t", {"id": 3, "x": 1, "y": 1})] == [3]
    engine._check()
