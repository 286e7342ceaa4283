"""Joins of an engine, followed by clients: their answers equal the engine's own after every step."""

from __future__ import annotations

import random
from collections import Counter

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin.engine import Engine
from tocsin.errors import TocsinError
from tocsin.network.answers import LocalAnswer
from tocsin.network.described import DescribedJoins, encoded_request
from tocsin.network.follower import ClientNode, Snapshot
from tocsin.network.root import Root
from tocsin.network.wire import decode, encode

TABLES = """CREATE TABLE r (id BIGINT, k BIGINT, a DOUBLE, n STRING, PRIMARY KEY (id));
    CREATE TABLE s (name STRING, k BIGINT, c BIGINT, d DATE, PRIMARY KEY (name))"""
LINK = 1


class Followed:
    """An engine with a server's node, and a client linked to it directly; frames go through the wire."""

    def __init__(self, engine: Engine, scheme: str = "ref-sj-clu+") -> None:
        self.engine = engine
        self.service = DescribedJoins(engine, scheme=scheme)
        self.root = Root("one", self.service)
        self.root.add_child(LINK, is_client=True)
        self.answers: dict[int, LocalAnswer] = {}
        self.sql: dict[int, str] = {}
        self.client = ClientNode("me")
        self.deltas = 0
        self._to_root(self.client.connected("one"))

    def _to_root(self, frames) -> None:
        for frame in frames:
            self._to_client(self.root.take(LINK, decode(encode(frame)[4:])))

    def _to_client(self, sends) -> None:
        for _, frame in sends:
            self._to_root(self.client.take(decode(encode(frame)[4:])))

    def follow(self, name: int, sql: str) -> None:
        self.sql[name] = sql
        self._to_root(self.client.subscribe(name, encoded_request("", f"me/{name}", sql)))
        followed = self.client.followed[name]
        if followed.failure:
            raise TocsinError(followed.failure)
        data = self.service.snapshots([followed.number], self.engine.last_seq)[0]
        answer = self.answers[name] = LocalAnswer(sql, msgspec.msgpack.decode(data, type=Snapshot))
        followed.contents.on_change = answer.change

    def flush(self) -> None:
        self._to_client(self.root.flush())
        self._to_client(self.root.tick())
        for answer in self.answers.values():
            self.deltas += len(answer.flush())

    def compare(self) -> None:
        for name, answer in self.answers.items():
            sql = self.sql[name]
            wanted = self.engine.subscribe(sql)
            assert bag(answer.content()) == bag(self.engine.content(wanted)), sql
            self.engine.unsubscribe(wanted)
        self.service._check()


def bag(rows) -> Counter:
    return Counter(repr(sorted(row.items())) for row in rows)


def queries(rng: random.Random) -> str:
    low = rng.randint(0, 6)
    mine = rng.choice(
        [
            f"a BETWEEN {low} AND {low + rng.randint(0, 4)}",
            f"a >= {low}",
            "n = 'x'",
            f"a > {low} AND n <> 'y'",
            "n LIKE 'x%'",
            f"a = {low}",
            "TRUE",
            f"a > {low} AND a < {low - 1}",
        ]
    )
    other = rng.choice([f"c < {low}", f"c BETWEEN 2 AND {low}", "d > DATE '2020-01-03'", "c IS NULL", "TRUE"])
    both = rng.choice(["", "", " AND a > c"])
    return rng.choice(
        [
            f"SELECT * FROM r JOIN s ON r.k = s.k WHERE {mine} AND {other}{both}",
            f"SELECT n, c FROM r JOIN s ON s.k = r.k WHERE {mine} AND {other}{both}",
            f"SELECT x.id, y.n FROM r x JOIN r y ON x.k = y.k WHERE x.a > {low} AND y.a < {low + 2}",
        ]
    )


def change(rng: random.Random, engine: Engine) -> None:
    """One step: a row, or several, perhaps of both tables and of one row twice."""
    batches: dict[str, list[dict]] = {}
    for _ in range(rng.choice([1, 1, 1, 4])):
        gone = rng.random() < 0.25
        op = "delete" if gone else "upsert"
        if rng.random() < 0.5:
            row = {"id": rng.randrange(6)}
            if not gone:
                row |= {"k": rng.choice([1, 2, None]), "a": rng.choice([None, 1.5, float("nan"), *range(8)])}
                row |= {"n": rng.choice(["x", "y", "xyz", None])}
            known = set(engine.rows("r")["id"].to_pylist())
            table, key = "r", "id"
        else:
            row = {"name": rng.choice("abcde")}
            if not gone:
                row |= {"k": rng.choice([1, 2, None]), "c": rng.choice([None, *range(8)])}
                row |= {"d": rng.choice([None, "2020-01-02", "2020-01-05"])}
            known = set(engine.rows("s")["name"].to_pylist())
            table, key = "s", "name"
        pending = [r for r in batches.get(table, ()) if r[key] == row[key]]
        there = pending[-1]["_op"] != "delete" if pending else row[key] in known
        if gone and not there:
            continue
        batches.setdefault(table, []).append(row | {"_op": op})
    if batches:
        engine.apply_all(batches)


@pytest.mark.property
@settings(deadline=None)
@given(seed=st.integers(0, 2**32), scheme=st.sampled_from(["ref-sj-clu+", "rel-sel", "ref-sj-sub"]))
def test_answers_of_clients_are_those_of_the_engine(seed, scheme) -> None:
    rng = random.Random(seed)
    engine = Engine()
    engine.execute(TABLES)
    for _ in range(rng.randint(0, 12)):
        change(rng, engine)
    net = Followed(engine, scheme)
    for name in range(6):
        net.follow(name, queries(rng))
        change(rng, engine)
    for step in range(30):
        change(rng, engine)
        if rng.random() < 0.7:
            net.flush()
            net.compare()
        if step == 15:
            net.follow(99, queries(rng))
    net.flush()
    net.compare()


def test_what_cannot_be_followed_is_refused() -> None:
    engine = Engine()
    engine.execute(TABLES)
    with pytest.raises(TocsinError, match="there is no scheme 'ref-j'"):
        DescribedJoins(engine, scheme="ref-j")
    net = Followed(engine)
    for sql, reason in {
        "SELECT * FROM r WHERE a > 3": "filter",
        "SELECT * FROM r JOIN s ON r.a - s.c BETWEEN 0 AND 2": "band",
        "SELECT MIN(a) FROM r WHERE k > 1": "network",
        "SELECT * FROM nowhere": "nowhere",
    }.items():
        with pytest.raises(TocsinError, match=reason):
            net.follow(1, sql)
        net.client.unsubscribe(1)
    assert net.service.stats() == {"subscriptions": 0, "forms": 0}
