"""Queries of an engine, followed by clients: their answers equal the engine's own after every step."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.network.histories import EXAMPLES, SHAPES, TABLES, any_query, bag, change, mine
from tocsin.engine import Engine
from tocsin.errors import TocsinError
from tocsin.language.shape import Shape
from tocsin.network.answers import Answers
from tocsin.network.described import DescribedQueries, describe, encoded_request
from tocsin.network.follower import ClientNode
from tocsin.network.form_choice import _FOLLOWED, _JOINED, _REJECTED
from tocsin.network.root import Root
from tocsin.network.rows import RowIds, TableChanges, version_slots
from tocsin.network.wire import decode, encode

LINK = 1


class Linked:
    """An engine with a server's node, and a client linked to it directly; frames go through the wire."""

    def __init__(self, engine: Engine, scheme: str = "ref-sj-clu+", scopes=None) -> None:
        self.engine = engine
        self.service = DescribedQueries(engine, scopes, scheme=scheme)
        self.root = Root("one", self.service)
        self.root.watermark = engine.last_seq
        self.root.add_child(LINK, is_client=True)
        self.answers = Answers()
        self.client = ClientNode("me", self.answers)
        self.contents: dict[int, list] = {}  # as deltas make them
        self._to_root(self.client.connected("one"))

    def _to_root(self, frames) -> None:
        for frame in frames:
            self._to_client(self.root.take(LINK, decode(encode(frame)[4:])))

    def _to_client(self, sends) -> None:
        for _, frame in sends:
            self._to_root(self.client.take(decode(encode(frame)[4:])))

    def follow(self, name: int, sql: str, token: str = "") -> None:
        self.answers.sql[name] = sql
        self._to_root(self.client.subscribe(name, encoded_request(token, f"me/{name}", sql)))
        followed = self.client.followed[name]
        if followed.failure:
            raise TocsinError(followed.failure)
        self.account()
        self.contents[name] = bag(self.answers.content(name))

    def unfollow(self, name: int) -> None:
        self._to_root(self.client.unsubscribe(name, encoded_request("", f"me/{name}", "")))
        self.contents.pop(name, None)

    def flush(self) -> None:
        self._to_client(self.root.flush())
        self._to_client(self.root.tick())
        self.account()

    def account(self) -> None:
        """Apply deltas to contents."""
        for name, deltas in self.answers.flush(self.client.watermark):
            for delta in deltas:
                if name in self.contents:
                    self.contents[name][next(iter(bag([delta.row])))] += delta.sign

    def compare(self) -> None:
        for name in self.client.followed:
            sql = self.answers.sql[name]
            wanted = self.engine.subscribe(sql)
            expected, found = self.engine.content(wanted), self.answers.content(name)
            self.engine.unsubscribe(wanted)
            assert bag(found) == bag(expected), sql
            if "LIMIT" in sql:
                assert repr(found) == repr(expected), sql
            assert +self.contents[name] == bag(expected), sql
        self.service._check()
        self.client._check()
        self.answers._check()


@pytest.mark.property
@pytest.mark.parametrize("shape", list(SHAPES))
@settings(deadline=None, max_examples=EXAMPLES)
@given(seed=st.integers(0, 2**32), scheme=st.sampled_from(["ref-sj-clu+", "rel-sel", "ref-sj-sub"]))
def test_answers_of_clients_are_those_of_the_engine(shape, seed, scheme) -> None:
    rng = random.Random(seed)
    engine = Engine()
    engine.execute(TABLES)
    for _ in range(rng.randint(0, 12)):
        change(rng, engine)
    net = Linked(engine, scheme)
    for name in range(6):
        net.follow(name, SHAPES[shape](rng) if rng.random() < 0.7 else any_query(rng))
        change(rng, engine)
    for step in range(30):
        change(rng, engine)
        if rng.random() < 0.7:
            net.flush()
            net.compare()
        if step == 15:
            net.follow(99, SHAPES[shape](rng))
            net.unfollow(rng.randrange(6))
    net.flush()
    net.compare()


PAYLOADS = TABLES.replace("n STRING, PRIMARY KEY (id))", "n STRING, PRIMARY KEY (id)) PAYLOAD (k, n)")
assert PAYLOADS != TABLES


@pytest.mark.property
@settings(deadline=None, max_examples=2 * EXAMPLES)
@given(seed=st.integers(0, 2**32))
def test_answers_over_a_table_with_a_payload(seed) -> None:
    rng = random.Random(seed)
    engine = Engine()
    engine.execute(PAYLOADS)
    for _ in range(rng.randint(0, 12)):
        change(rng, engine)
    net = Linked(engine)
    for name in range(8):
        query = f"SELECT {rng.choice(['*', 'id', 'n, a'])} FROM r WHERE {mine(rng)}"
        net.follow(name, query if name < 5 else any_query(rng))
        change(rng, engine)
    for step in range(30):
        change(rng, engine)
        if rng.random() < 0.7:
            net.flush()
            net.compare()
        if step == 15:
            net.unfollow(rng.randrange(8))
    net.flush()
    net.compare()


def test_a_payload_is_sent_when_it_is_new_to_somebody() -> None:
    engine = Engine()
    engine.execute(PAYLOADS)
    engine.insert("r", {"id": 1, "k": 7, "a": 3, "n": "long"})
    described = describe(engine)
    low = described.follow("SELECT * FROM r WHERE a BETWEEN 0 AND 5")
    described.follow("SELECT * FROM r WHERE a > 4")
    assert low.snapshot.parts[0].rows == [[(0, 0, b'{"id":1,"a":3.0}')], [(0, 0, b'{"k":7,"n":"long"}')]]

    def received(a: float, n: str = "long") -> list[bytes]:
        engine.update("r", {"id": 1, "a": a, "n": n})
        _, batch = described.described()
        return [batch.body(i) for i in np.flatnonzero(batch.messages.regions.contain(low.points[0])).tolist()]

    assert received(4) == [b'{"id":1,"a":4.0}']
    assert received(9) == [b""], "it leaves the range"
    assert received(5) == [b'{"id":1,"a":5.0}', b'{"k":7,"n":"long"}']
    assert received(5, "other") == [b'{"k":7,"n":"other"}']


def test_what_cannot_be_followed_is_refused() -> None:
    engine = Engine()
    engine.execute(TABLES)
    engine.execute("CREATE STREAM hits (k BIGINT); CREATE STREAM clicks (k BIGINT)")
    with pytest.raises(TocsinError, match="there is no scheme 'ref-j'"):
        DescribedQueries(engine, scheme="ref-j")
    net = Linked(engine)
    for sql, reason in {
        "SELECT * FROM r JOIN s ON r.a - s.c BETWEEN 0 AND 2": "a band join cannot be followed",
        "SELECT COUNT(*) FROM r WHERE k > 1": "an aggregate cannot be followed over a network",
        "SELECT MIN(a), SUM(k) FROM r": "COUNT, SUM and AVG need every row",
        "SELECT * FROM hits h JOIN r ON h.k = r.k": "a stream joined with tables cannot be followed",
        "SELECT * FROM hits h JOIN clicks c ON h.k = c.k WITH (memory = '1 MB')": "leave out memory",
        "SELECT * FROM hits WITH (window = '1 minute')": "a query WITH options cannot be followed",
        "SELECT * FROM r LEFT JOIN s ON r.k = s.k": "an outer join cannot be followed",
        "SELECT * FROM r WHERE EXISTS (SELECT 1 FROM s WHERE r.k = s.k)": "a subquery cannot be followed",
        "SELECT k FROM r UNION ALL SELECT k FROM s": "a union cannot be followed",
        "SELECT * FROM nowhere": "nowhere",
    }.items():
        with pytest.raises(TocsinError, match=reason):
            net.follow(1, sql)
        net.client.unsubscribe(1)
    assert net.service.stats() == {"subscriptions": 0, "forms": 0}


def test_every_shape_is_either_described_or_rejected_with_a_hint() -> None:
    assert sorted([*_FOLLOWED, *_JOINED, *_REJECTED]) == sorted(Shape)


def test_versions_of_rows_are_found_whatever_their_numbers_are() -> None:
    rng = random.Random(1)
    ids = np.array([rng.randrange(-(2**63), 2**63) for _ in range(50)])
    store = Engine()
    store.execute(TABLES)
    rows = RowIds(store.step().tables["r"])
    position = np.arange(100)
    changes = TableChanges(position, np.where(position < 50, -1, position - 50), position, np.tile(ids, 2))
    assert version_slots(rows, changes, ids, np.full(50, 49)).tolist() == list(range(50))
    assert version_slots(rows, changes, ids, np.full(50, 99)).tolist() == list(range(50, 100))
