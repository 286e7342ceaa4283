"""Joins of streams, and subscriptions under limits, in a pipeline: as in an engine, whatever workers do."""

from __future__ import annotations

import json
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest

from tests.spark.simulated import Simulated, clear_live_shards
from tests.spark.workload import emitted
from tocsin.engine import Engine, Rooms
from tocsin.errors import SubscriptionError
from tocsin.limits.groups import RefreshGroups
from tocsin.model.delta import Deltas
from tocsin.spark.stages import limited_shard
from tocsin.spark.versions.batch import Layout
from tocsin.spark.versions.store import Versions

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
EXPIRING = "WITH (window = '20 seconds')"
TIMED = "WITH (window = '25 seconds', time = 'at', late = '5 seconds')"
WINDOWED = [
    f"{text} {window}"
    for window in (EXPIRING, TIMED)
    for text in (
        "SELECT * FROM hits WHERE ms > 20",
        "SELECT h.ms, p.site FROM hits h JOIN pages p ON h.page = p.page WHERE p.rank > 2",
        "SELECT h.ms, b.price FROM hits h JOIN buys b ON h.page = b.page WHERE h.ms > 20",
        "SELECT MIN(ms) AS least FROM hits WHERE page < 4",
        "SELECT COUNT(*) AS n, SUM(ms) AS total FROM hits WHERE page IN (1, 2, 3)",
        "SELECT DISTINCT page FROM hits WHERE ms IS NOT NULL",
        "SELECT page, ms FROM hits WHERE page > 1 ORDER BY ms DESC LIMIT 2",
    )
]
PAIRS = [
    "SELECT h.ms, b.price FROM hits h JOIN buys b ON h.page = b.page WHERE h.ms > 20",
    "SELECT h.ms, b.price FROM hits h JOIN buys b ON h.page = b.page",
    "SELECT a.ms, b.at FROM hits a JOIN hits b ON a.page = b.page AND a.ms = b.ms WHERE a.page > 2",
]
ENOUGH = [
    "WITH (memory = 100000)",
    "WITH (window = '9 seconds', memory = '64 MB')",
    "WITH (memory = 100000, policy = 'rand')",
]
BAND = (
    "SELECT h.ms, b.price FROM hits h JOIN buys b ON h.page = b.page "
    "AND b.at - h.at BETWEEN INTERVAL '0' SECOND AND INTERVAL '9' SECOND"
)
_JOINED = "FROM hits h JOIN pages p ON h.page = p.page"
DEFERRED = [
    "SELECT page, site FROM pages WHERE rank > 2 WITH (refresh = 'on demand')",
    "SELECT MAX(rank) AS top FROM pages WITH (refresh = 'when', when = 'changes > 4 OR moved(top) > 30 %')",
    "SELECT site, rank FROM pages ORDER BY rank LIMIT 2 WITH (refresh = 'every 20 seconds')",
    f"SELECT COUNT(*) AS n {_JOINED} WITH (window = '20 seconds', refresh = 'on demand', within = '1 ms')",
    f"SELECT DISTINCT p.site {_JOINED} WITH (window = '25 seconds', late = '5 seconds', "
    "refresh = 'when', when = 'rows > 1 OR age > 1 minute')",
    f"SELECT h.ms, p.site {_JOINED} WITH (window = '30 seconds', refresh = 'when', "
    "when = 'changes > 9', within = '1 ms', group = 'both')",
    f"SELECT MIN(h.ms) AS least {_JOINED} WITH (window = '30 seconds', refresh = 'on demand', "
    "within = '1 ms', group = 'both')",
]
START = datetime(2013, 1, 31, tzinfo=UTC)


class World:
    """Random changes, applied batch by batch to a simulated pipeline and to one engine."""

    def __init__(
        self, path: Any, queries: list[str], seed: int, *, deferred: bool = False, output: str = "deltas"
    ) -> None:
        """With `deferred`, a batch is one step of the engine too, and deltas are compared without seq."""
        self.random, self.seq, self.now, self.deferred = random.Random(seed), 0, START, deferred
        numbered = [(number, sql, "ann") for number, sql in enumerate(queries, 1)]
        self.pipeline = Simulated(path, DDL, numbered, LAYOUT, output=output)
        rooms = Rooms(refresh=partial(RefreshGroups, by_batch=True))
        self.engine = Engine(clock=lambda: self.now, retain=False, rooms=rooms)
        self.engine.execute(DDL)
        self.emitted: Counter[Any] = Counter()
        for number, sql, _ in numbered:
            self.engine.subscribe(sql, id=number, subscriber="ann")
        self._emit(self.engine.contents())
        self.pages: set[int] = set()

    def batch(self, count: int, passes: int | None = None, refresh: Any = (), **how: Any) -> None:
        seconds = self.random.choice([0, 1, 7, 30]) if passes is None else passes
        self.now += timedelta(seconds=seconds)
        self._emit(self.engine.tick())
        changes = [self._change() for _ in range(count)]
        tables: dict[str, list[Any]] = {}
        for change in changes:
            row = {**json.loads(change["row"]), "_op": change["op"], "_seq": change["seq"]}
            tables.setdefault(change["table"], []).append(row)
            if not self.deferred:
                self._emit(self.engine.apply(change["table"], [row]))
        if self.deferred and tables:
            self._emit(self.engine.apply_all(tables))
        if refresh:
            Versions(self.pipeline.paths.versions).change(refresh=refresh)
        for id in refresh:
            self._emit(self.engine.refresh(id))
        self.pipeline.now = self.now
        self.pipeline.batch(changes, **how)
        self.last = changes

    def change(self, *, add: Any = (), replace: Any = (), remove: Any = ()) -> None:
        """New subscriptions (id, sql), from the next batch on."""
        versions = Versions(self.pipeline.paths.versions)
        named = [[(id, sql, "ann") for id, sql in some] for some in (add, replace)]
        versions.change(add=named[0], replace=named[1], remove=remove)
        retracted = self.engine.contents([id for id, _ in replace], stale=True).negated()
        self.engine.unsubscribe_many([*remove, *(id for id, _ in replace)])
        self.now += timedelta(seconds=3)
        self._emit(self.engine.tick())
        for id, sql in (*add, *replace):
            self.engine.subscribe(sql, id=id, subscriber="ann")
        begun = self.engine.contents([id for id, _ in (*add, *replace)])
        self._emit(Deltas.concat([retracted, begun]).at(self.seq).consolidate())

    def check(self) -> None:
        """Each delta, up to those of ticks, which a pipeline emits at the last seq of the batch before."""
        found, expected = self.pipeline.emitted, self.emitted
        if self.deferred:
            found, expected = _whatever_seq(found), _whatever_seq(expected)
        assert found == expected
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


def _whatever_seq(deltas: Counter[Any]) -> Counter[Any]:
    found = Counter[Any]()
    for (_, *rest), count in deltas.items():
        found[tuple(rest)] += count
    return found


@pytest.mark.parametrize("seed", range(2))
def test_streams_join_tables_like_in_an_engine(tmp_path, seed):
    world = World(tmp_path, ENRICHED, seed)
    for number in range(8):
        world.batch(12, crash=number % 3 == 1)
        if number % 2:
            clear_live_shards()
        world.check()
    assert sum(world.emitted.values()) > 10


def test_windows_are_those_of_an_engine(tmp_path):
    world = World(tmp_path, WINDOWED, 1)
    for number in range(10):
        world.batch(0 if number == 5 else 8, crash=number % 3 == 1)
        if number % 2:
            clear_live_shards()
        world.check()
    assert sum(world.emitted.values()) > 100
    assert any(sign < 0 for _, _, sign, _ in world.emitted)


def test_subscriptions_to_windows_come_and_go(tmp_path):
    """A new one finds the events that came before it, in whatever shard it is, and none before the window."""
    world = World(tmp_path, [*WINDOWED[:3], *WINDOWED[7:10]], 0)
    counting = "SELECT COUNT(*) AS n FROM hits WITH (window = '50 seconds')"
    for number in range(11):
        added = {1: (20, WINDOWED[3]), 2: (21, WINDOWED[11]), 4: (22, WINDOWED[2]), 5: (23, WINDOWED[4])}
        if number in added:
            world.change(add=[added[number]])
        elif number == 3:
            world.change(replace=[(1, WINDOWED[1]), (4, WINDOWED[10])])
        elif number == 6:
            world.change(remove=[1, 4, 21])
        elif number in (7, 9):
            world.change(add=[(number + id, counting) for id in ((30,) if number == 7 else (40, 50))])
        world.batch(6, passes=5 if number in (0, 8, 10) else 0, crash=number % 2 == 1)
        if number % 3 == 2:
            clear_live_shards()
        world.check()


def test_the_state_of_a_window_grows_by_its_batches(tmp_path):
    """One blob per batch; all are replaced when they outweigh what was there, or most has expired."""
    world = World(tmp_path, ["SELECT COUNT(*) AS n FROM hits WITH (window = '40 seconds')"], 1)
    state = world.pipeline.states[1].values

    def blobs() -> dict[str, list[Any]]:
        return {shard: list(value.values()) for (shard, name), value in state.items() if name == "chunks"}

    def rewritten(before: dict[str, list[Any]]) -> bool:
        return any(blobs()[shard][: len(old)] != old for shard, old in before.items())

    world.batch(3)
    for _ in range(8):
        before = blobs()
        world.batch(3, passes=1)
        assert set(before) == {"limits|0", "limits|1"}
        assert not rewritten(before)
        assert all(len(blobs()[shard]) - len(old) in (0, 1) for shard, old in before.items())
    with patch.object(limited_shard, "_FEW", 4):
        world.batch(3, passes=39)
    assert rewritten(before)
    clear_live_shards()
    world.batch(3, passes=39)
    world.check()


def test_joins_of_streams_with_enough_memory_are_exact(tmp_path):
    world = World(tmp_path, [f"{text} {memory}" for text, memory in zip(PAIRS, ENOUGH, strict=True)], 1)
    for number in range(10):
        if number == 4:
            world.change(add=[(20, f"{PAIRS[0]} {ENOUGH[0]}")], remove=[2])
        world.batch(8, passes=0 if number == 4 else None, crash=number % 3 == 1)
        if number % 2:
            clear_live_shards()
        world.check()
    assert sum(world.emitted.values()) > 50 and not world.pipeline.pairs["missed"]


@pytest.mark.parametrize("policy", ["heeb", "fifo"])
def test_a_budget_costs_pairs_and_says_how_many(tmp_path, policy):
    sql = "SELECT h.ms, h.at, b.price, b.at AS sold FROM hits h JOIN buys b ON h.page = b.page"
    world = World(tmp_path, [f"{sql} WITH (memory = 100000)"], 3)
    limited = Simulated(
        tmp_path / "limited", DDL, [(1, f"{sql} WITH (memory = 12, policy = '{policy}')", "ann")], LAYOUT
    )
    for number in range(12):
        world.batch(8)
        limited.now = world.now
        limited.batch(world.last, crash=number % 3 == 1)
        if number % 2:
            clear_live_shards()
    assert not limited.emitted - world.emitted
    assert limited.emitted.total() == limited.pairs["produced"] < world.emitted.total()
    assert limited.pairs["produced"] + limited.pairs["missed"] == world.emitted.total()


def test_a_band_loses_no_pair_that_an_engine_emits(tmp_path):
    """The clock of event time is the shard's own, so it is never ahead of an engine's."""
    world = World(tmp_path, [BAND], 5)
    world.engine.subscribe(f"{BAND} WITH (late = '1 hour')", id=2)
    for number in range(8):
        world.batch(8, crash=number % 3 == 1)
        if number % 2:
            clear_live_shards()
    everything, engine = (Counter(), Counter())
    for (seq, id, sign, row), count in world.emitted.items():
        (engine if id == 1 else everything)[seq, sign, row] += count
    found = Counter({(seq, sign, row): n for (seq, _, sign, row), n in world.pipeline.emitted.items()})
    assert engine <= found <= everything


def test_a_budget_too_small_for_its_shards_is_rejected(tmp_path):
    sql = "SELECT h.ms FROM hits h JOIN buys b ON h.page = b.page WITH (memory = {})"
    with pytest.raises(SubscriptionError, match="memory is divided by 4 shards, and 32 KB for each"):
        Versions(tmp_path / "subscriptions", 4).publish(DDL, [(1, sql.format("'128 KB'"))])
    (tmp_path / "layout.json").write_text('{"joins": 3}')
    with pytest.raises(SubscriptionError, match="0 rows for each is too little") as rejected:
        Versions(tmp_path / "subscriptions").publish(DDL, [(1, sql.format(2))])
    assert "line 1, column 62" in str(rejected.value)
    assert rejected.value.hint == "give 3 rows or more"


@pytest.mark.parametrize("seed", range(2))
def test_deferred_subscriptions_are_refreshed_as_in_an_engine(tmp_path, seed, monkeypatch):
    """Whatever propagating seems to take: each look at the timer finds up to 10 ms more."""
    draw, time = random.Random(seed), [0.0]

    def timer() -> float:
        time[0] += 0.01 * draw.random()
        return time[0]

    monkeypatch.setattr(limited_shard, "RefreshGroups", partial(RefreshGroups, timer=timer))
    world = World(tmp_path, DEFERRED, seed, deferred=True)
    for number in range(14):
        wanted = world.random.sample([1, 4, 5, 6, 7], world.random.choice([0, 0, 1, 2]))
        changes = number in (0, 5, 9)
        if number == 5:
            world.change(add=[(20, DEFERRED[3])], replace=[(1, DEFERRED[2])], remove=[2])
        elif number == 9:
            world.change(add=[(2, DEFERRED[1]), (21, DEFERRED[5])], remove=[7])
        wanted = [id for id in wanted if not (id == 7 and number >= 9)]
        world.batch(
            0 if number % 5 == 4 else 7,
            passes=0 if changes else None,
            refresh=wanted,
            crash=number % 3 == 1,
        )
        if number % 2:
            clear_live_shards()
        world.check()
    assert sum(world.emitted.values()) > 40


def test_deltas_of_limits_are_sent_beside_messages(tmp_path):
    queries = [DEFERRED[0], WINDOWED[2], f"{PAIRS[1]} {ENOUGH[0]}", DEFERRED[1]]
    world = World(tmp_path, queries, 3, deferred=True, output="messages")
    for number in range(5):
        world.batch(6, passes=0 if not number else 3, refresh=[1] if number > 2 else [], crash=number == 2)
        clear_live_shards()
        world.check()
