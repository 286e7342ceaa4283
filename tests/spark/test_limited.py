"""Joins of streams, and subscriptions under limits, in a pipeline: as in an engine, whatever workers do."""

from __future__ import annotations

import json
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.spark.simulated import Simulated, clear_live_shards
from tests.spark.workload import emitted
from tocsin.engine import Engine
from tocsin.spark.versions.placement import Layout

LAYOUT = Layout(2, 2, 2)
DDL = """
CREATE TABLE pages (page BIGINT, site STRING, rank DOUBLE, PRIMARY KEY (page));
CREATE STREAM hits (page BIGINT, ms DOUBLE, at TIMESTAMP);
CREATE STREAM buys (page BIGINT, price DOUBLE, at TIMESTAMP)
"""
ENRICHED = [
    "SELECT h.ms, p.site FROM hits h JOIN pages p ON h.page = p.page WHERE p.rank > 3 AND h.ms > 20",
    "SELECT * FROM hits JOIN pages USING (page) WHERE site = 'a' OR ms > 80",
]
START = datetime(2013, 1, 31, tzinfo=UTC)


class World:
    """Random changes, applied batch by batch to a simulated pipeline and to one engine."""

    def __init__(self, path: Any, queries: list[str], seed: int) -> None:
        self.random, self.seq, self.now = random.Random(seed), 0, START
        numbered = [(number, sql, "ann") for number, sql in enumerate(queries, 1)]
        self.pipeline = Simulated(path, DDL, numbered, LAYOUT)
        self.engine = Engine(clock=lambda: self.now, retain=False)
        self.engine.execute(DDL)
        self.emitted: Counter[Any] = Counter()
        for number, sql, _ in numbered:
            self.engine.subscribe(sql, id=number, subscriber="ann")
        self._emit(self.engine.contents())
        self.pages: set[int] = set()

    def batch(self, count: int, **how: Any) -> None:
        self.now += timedelta(seconds=self.random.choice([0, 1, 7, 30]))
        self._emit(self.engine.tick())
        changes = [self._change() for _ in range(count)]
        for change in changes:
            row = {**json.loads(change["row"]), "_op": change["op"], "_seq": change["seq"]}
            self._emit(self.engine.apply(change["table"], [row]))
        self.pipeline.now = self.now
        self.pipeline.batch(changes, **how)

    def check(self) -> None:
        """Each delta, up to those of ticks, which a pipeline emits at the last seq of the batch before."""
        assert self.pipeline.emitted == self.emitted
        assert not self.pipeline.dead

    def _emit(self, deltas: Any) -> None:
        self.emitted.update(emitted(deltas.to_arrow(rows=True).to_pylist()))

    def _change(self) -> dict[str, Any]:
        self.seq += 1
        table, op, page = self.random.choice(["pages", "hits", "buys"]), "insert", self.random.randrange(6)
        at = str(START + timedelta(seconds=self.seq + self.random.randrange(20)))
        row: dict[str, Any] = {"page": page, "at": at}
        if table == "pages":
            there = page in self.pages
            op = self.random.choice(["update", "delete"]) if there else "insert"
            self.pages ^= {page} if op != "update" else set()
            row = {"page": page, "site": self.random.choice("ab"), "rank": float(self.random.randrange(7))}
        else:
            row["ms" if table == "hits" else "price"] = self.random.choice([None, 10.0, 25.0, 50.0, 99.0])
        return {"table": table, "op": op, "row": json.dumps(row), "seq": self.seq}


@pytest.mark.parametrize("seed", range(3))
def test_streams_join_tables_like_in_an_engine(tmp_path, seed):
    world = World(tmp_path, ENRICHED, seed)
    for number in range(8):
        world.batch(12, crash=number % 3 == 1)
        if number % 2:
            clear_live_shards()
        world.check()
    assert sum(world.emitted.values()) > 10
