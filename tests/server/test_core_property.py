"""The law across cuts: whatever is done, and wherever the process ends, content = snapshot + deltas.

A core is driven by random commands. At random moments its folder is copied as a killed process leaves it, and
a new core goes on from the copy; snapshots are cut at each of their steps. A client has contents and a
position, and catches up at random moments. Contents are compared with the reference.
"""

from __future__ import annotations

import shutil
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin.errors import TocsinError
from tocsin.reference import evaluate
from tocsin.server import steps
from tocsin.server.commands import (
    ApplyChanges,
    BulkSubscribe,
    Define,
    Pause,
    Remove,
    Replace,
    ResumeSubscriptions,
    Subscribe,
    arrow_bytes,
)
from tocsin.server.core import Core
from tocsin.server.intake import rows_table
from tocsin.server.keeper import Settings

SCHEMA = """
CREATE TABLE stocks (symbol STRING, per BIGINT, risk BIGINT, PRIMARY KEY (symbol));
CREATE TABLE reviews (id BIGINT, symbol STRING, rating BIGINT, PRIMARY KEY (id));
CREATE STREAM hits (page STRING, ms BIGINT) RETAIN '1 hour'
"""
QUERIES = (
    "SELECT * FROM stocks WHERE per > {n}",
    "SELECT symbol, rating FROM stocks JOIN reviews USING (symbol) WHERE per > {n}",
    "SELECT symbol, per FROM stocks WHERE risk > {n} ORDER BY per LIMIT 2",
    "SELECT COUNT(*), SUM(per) FROM stocks WHERE risk <= {n}",
    "SELECT DISTINCT risk FROM stocks WHERE per <= {n}",
    "SELECT MAX(per) FROM stocks WHERE risk <= {n}",
    "SELECT symbol FROM stocks WHERE per > {n} WITH (refresh = 'on demand')",
    "SELECT page FROM hits WHERE ms > {n} WITH (window = '10 minutes')",
    "SELECT DISTINCT page FROM hits WHERE ms > {n} WITH (window = '5 minutes', absent = '30 minutes')",
    "SELECT page FROM hits WHERE ms > {n}",
)
CUTS = ("snapshot.begin", "snapshot.manifest", "snapshot.end", "snapshot.drop")
_small = st.integers(0, 4)
_id = st.integers(1, 12)
_sql = st.builds(lambda text, n: text.format(n=n), st.sampled_from(QUERIES), _small)
_row = st.fixed_dictionaries({"symbol": st.sampled_from("ABCD"), "per": _small, "risk": _small})
_review = st.fixed_dictionaries({"id": _small, "symbol": st.sampled_from("ABCD"), "rating": _small})
_hit = st.fixed_dictionaries({"page": st.sampled_from("ab"), "ms": _small})
_op = st.sampled_from(["upsert", "upsert", "delete", "insert"])
_action = st.one_of(
    st.tuples(st.just("change"), st.just("stocks"), st.lists(_row, min_size=1, max_size=3), _op),
    st.tuples(st.just("change"), st.just("reviews"), st.lists(_review, min_size=1, max_size=3), _op),
    st.tuples(st.just("change"), st.just("hits"), st.lists(_hit, min_size=1, max_size=3), st.none()),
    st.tuples(st.just("subscribe"), _id, _sql, st.sampled_from([None, "ann"])),
    st.tuples(st.just("template"), st.lists(_id, min_size=1, max_size=70, unique=True)),
    st.tuples(st.just("replace"), _id, _sql),
    st.tuples(st.sampled_from(["pause", "resume", "remove"]), st.lists(_id, min_size=1, max_size=3)),
    st.tuples(st.just("expire"), _id, st.integers(0, 10)),
    st.tuples(st.just("content"), _id),
    st.tuples(st.just("wait"), st.integers(1, 20)),
    st.tuples(st.sampled_from(["kill", "snapshot", "catch up"])),
    st.tuples(st.just("cut"), st.sampled_from(CUTS)),
)


class _Cut(Exception):
    """The process ends here."""


class _Run:
    """A core, a client, and the folder of both."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.lives = folder, 0
        self.now = datetime(2024, 5, 1, 10, tzinfo=UTC)
        self.core = self._open(folder / "0")
        self.core.call(Define(SCHEMA))
        self.known: dict[int, Counter[str]] = {}
        self.position = self.core.position

    def _open(self, folder: Path) -> Core:
        return Core(folder, clock=lambda: self.now, settings=Settings(snapshot_at_close=10**9))

    def do(self, action) -> None:
        kind, *given = action
        with suppress(TocsinError):
            getattr(self, f"_{kind.replace(' ', '_')}")(*given)

    def _change(self, relation, rows, op) -> None:
        body = b"\n".join(map(msgspec.json.encode, rows))
        self.core.call(ApplyChanges(relation, "lines", body, op, True))

    def _subscribe(self, id, sql, subscriber) -> None:
        self.core.call(Subscribe(id, sql, subscriber))

    def _template(self, ids) -> None:
        table = rows_table([{"id": 100 + id, "n": id % 5} for id in ids])
        sql = "SELECT symbol FROM stocks WHERE per > :n"
        self.core.call(BulkSubscribe("template", sql, arrow_bytes(table)))

    def _replace(self, id, sql) -> None:
        self.core.call(Replace(id, sql))

    def _expire(self, id, minutes) -> None:
        sql = self.core.read(lambda engine: engine.subscription(id).sql)
        at = (self.now + timedelta(minutes=minutes)).isoformat()
        self.core.call(Replace(id, sql, None, None, at))

    def _pause(self, ids) -> None:
        self.core.call(Pause(ids))

    def _resume(self, ids) -> None:
        self.core.call(ResumeSubscriptions(ids))

    def _remove(self, ids) -> None:
        self.core.call(Remove(ids))

    def _content(self, id) -> None:
        self.core.read(lambda _: self.core.applier.content(id))

    def _wait(self, minutes) -> None:
        self.now += timedelta(minutes=minutes)

    def _snapshot(self) -> None:
        self.core.snapshot()

    def _kill(self) -> None:
        self.lives += 1
        target = self.folder / str(self.lives)
        shutil.copytree(self.core.folder, target)
        self.core.close()
        self.core = self._open(target)

    def _cut(self, step) -> None:
        def cut(reached) -> None:
            if reached == step:
                raise _Cut

        steps.watch(cut)
        with suppress(_Cut):
            self.core.snapshot()
        steps.watch(None)
        self._kill()

    def _catch_up(self) -> None:
        while blocks := self.core.log.blocks(self.position):
            for block in blocks:
                for number, id in enumerate(block.subscription.tolist()):
                    rows = self.known.setdefault(id, Counter())
                    rows[block.texts[block.row[number]].decode()] += int(block.sign[number])
                self.position = block.position

    def check(self) -> None:
        """Contents are those of the reference, and those that the client has."""
        core = self.core
        ids = core.read(lambda engine: [s.id for s in engine.subscriptions()])
        contents = {id: core.read(lambda _, id=id: core.applier.content(id)) for id in ids}
        self._catch_up()
        core.applier.segments._check()
        core.engine._check()
        core.activity._check()
        database = {name: core.engine.rows(name).to_pylist() for name in ("stocks", "reviews")}
        keys = {"stocks": ("symbol",), "reviews": ("id",)}
        for id, content in contents.items():
            one = core.engine.subscription(id)
            found = Counter(msgspec.json.encode(row).decode() for row in content)
            if "hits" in one.sql and "window" not in one.sql:
                assert not content
                continue
            mine = self.known.get(id, Counter())
            assert not any(count < 0 for count in mine.values()), (one, mine)
            assert +mine == found, one
            if "hits" not in one.sql and core.engine.state(id) == "active":
                expected = evaluate(core.engine.query(id), database, keys)
                assert Counter(msgspec.json.encode(row).decode() for row in expected) == found, one


@settings(max_examples=25, deadline=None)
@given(st.lists(_action, min_size=3, max_size=25))
def test_content_is_snapshot_plus_deltas_wherever_it_is_cut(actions):
    with TemporaryDirectory() as folder:
        run = _Run(Path(folder))
        try:
            for action in actions:
                run.do(action)
            run.check()
            run.do(("kill",))
            run.check()
        finally:
            run.core.close()
