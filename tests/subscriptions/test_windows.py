"""Windows in an engine: where they begin and end, what they count, and what cannot be done with them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.clocks import Clock
from tocsin import Engine
from tocsin.errors import BadRow, CatalogError, SqlError, SubscriptionError, SumOverflow
from tocsin.limits.options import Window
from tocsin.model.delta import Deltas
from tocsin.rank.recent import RecentExtremeFamily

BEGIN = datetime(2024, 5, 1, 10, tzinfo=UTC)
STREAM = "CREATE STREAM hits (page STRING, ms BIGINT, at TIMESTAMP, seen TIMESTAMP)"
COUNT = "SELECT COUNT(*) AS n FROM hits WITH (window = '10 seconds')"


@pytest.fixture
def clock() -> Clock:
    return Clock(BEGIN)


@pytest.fixture
def engine(clock: Clock) -> Engine:
    made = Engine(clock=clock)
    made.execute(STREAM)
    return made


def at(second: float, ms: int | None = 1, page: str = "a", **more: Any) -> dict[str, Any]:
    return {"page": page, "ms": ms, "at": BEGIN + timedelta(seconds=second), **more}


def plain(deltas: Deltas) -> list[tuple[int, int, Any]]:
    return [(d.seq, d.sign, next(iter(d.row.values()))) for d in deltas]


# -- windows in use --------------------------------------------------------------------------------


def test_equal_windows_are_one(engine: Engine) -> None:
    for n in range(3):
        engine.subscribe(f"SELECT * FROM hits WHERE ms > {n}", window="10 seconds")
    engine.subscribe("SELECT MAX(ms) FROM hits", window=timedelta(seconds=10))
    engine.subscribe("SELECT MAX(ms) FROM hits", window=Window("10 seconds", time="at"))
    engine.subscribe("SELECT MAX(ms) FROM hits", window=Window("10 seconds", time="seen"))
    engine.publish("hits", at(0))
    assert [w["rows"] for w in engine.stats()["windows"].values()] == [1, 1, 0]
    assert [w["without_time"] for w in engine.stats()["windows"].values()] == [0, 0, 1]
    assert engine.stats()["rows"] == {}


def test_a_window_ends_with_its_last_user(engine: Engine) -> None:
    first, second = (
        engine.subscribe(COUNT),
        engine.subscribe(COUNT.replace("COUNT", "MAX").replace("*", "ms")),
    )
    engine.publish("hits", at(0))
    engine.unsubscribe(first)
    assert engine.content(second) == [{"n": 1}]
    engine.unsubscribe(second)
    assert engine.stats()["windows"] == {}
    assert engine.content(engine.subscribe(COUNT)) == [{"n": 0}]
    engine._check()


def test_a_stream_cannot_be_dropped_while_a_window_reads_it(engine: Engine) -> None:
    s = engine.subscribe(COUNT)
    with pytest.raises(CatalogError, match="1 subscription uses hits"):
        engine.execute("DROP STREAM hits")
    engine.execute("CREATE TABLE other (k BIGINT, PRIMARY KEY (k))")  # windows stay
    engine.publish("hits", at(0))
    assert engine.content(s) == [{"n": 1}]
    engine.unsubscribe(s)
    engine.execute("DROP STREAM hits")
    engine._check()


def test_nobody_takes_the_name_of_a_window(engine: Engine) -> None:
    engine.subscribe(COUNT)
    (name,) = engine.stats()["windows"]
    with pytest.raises(CatalogError, match="already"):
        engine.execute(f"CREATE TABLE `{name}` (k BIGINT, PRIMARY KEY (k))")
    with pytest.raises(CatalogError, match="no stream or table"):
        engine.rows(name)


def test_indexes_of_dropped_windows_are_dropped(engine: Engine) -> None:
    s = engine.subscribe("SELECT * FROM hits WITH (window = '1 second')")
    assert len(engine.stats()["match"]) == 1
    engine.unsubscribe(s)
    assert not engine.stats()["match"]


def test_validity(engine: Engine, clock: Clock) -> None:
    later = clock.now + timedelta(seconds=5)
    s = engine.subscribe(COUNT, valid_from=later, valid_to=later + timedelta(seconds=7))
    engine.publish("hits", at(0))
    assert not engine.stats()["windows"]  # it begins with its first active user
    clock.forward(seconds=5)
    assert plain(engine.publish("hits", at(1))) == [(1, 1, 0), (2, -1, 0), (2, 1, 1)]
    assert engine.content(s) == [{"n": 1}]
    clock.forward(seconds=7)
    assert plain(engine.tick()) == [(2, -1, 1)]
    assert not engine.stats()["windows"]
    engine._check()


# -- ways to subscribe and to publish --------------------------------------------------------------


def test_many_at_once(engine: Engine) -> None:
    template = "SELECT MAX(ms) AS m FROM hits WHERE page = :p WITH (window = '10 seconds', time = 'at')"
    engine.subscribe_many(template, pa.table({"id": np.arange(20), "p": [f"p{n}" for n in range(20)]}))
    texts = [f"SELECT ms FROM hits WHERE ms > {n} WITH (window = '{5 + n % 2} seconds')" for n in range(30)]
    ids = engine.subscribe_texts(texts)
    assert len(engine.stats()["windows"]) == 3
    deltas = engine.apply("hits", pa.Table.from_pylist([at(n / 10, n, f"p{n}") for n in range(20)]))
    assert engine.content(7) == [{"m": 7}]
    assert len(engine.content(int(ids[0]))) == 19
    assert len(deltas) == 2 * 20 + sum(19 - n for n in range(19))
    engine.unsubscribe_many(np.arange(20))
    engine.unsubscribe_many(ids[::2])
    assert len(engine.stats()["windows"]) == 1
    engine._check()


def test_a_failed_load_leaves_no_window(engine: Engine) -> None:
    with pytest.raises(SubscriptionError):
        engine.subscribe_texts([COUNT] * 9 + ["SELECT nothing FROM hits WITH (window = '9 seconds')"])
    assert not engine.stats()["windows"]
    engine._check()


@pytest.mark.parametrize("how", ["one by one", "json", "batch", "lines", "arrow"])
def test_forms_of_events(engine: Engine, clock: Clock, how: str) -> None:
    s = engine.subscribe(
        "SELECT * FROM hits ORDER BY ms DESC LIMIT 2 WITH (window = '10 seconds', time = 'at')"
    )
    texts = [f'{{"page": "p{n}", "ms": {n % 3}, "at": "2024-05-01T10:00:{n:02}Z"}}' for n in range(12)]
    events = [{"page": f"p{n}", "ms": n % 3, "at": BEGIN + timedelta(seconds=n)} for n in range(12)]
    if how == "one by one":
        for event in events:
            engine.publish("hits", event)
    elif how == "json":
        for text in texts:
            engine.publish_json("hits", text)
    elif how == "batch":
        engine.apply("hits", events)
    elif how == "lines":
        engine.apply("hits", "\n".join(texts).encode())
    else:
        engine.apply("hits", pa.Table.from_pylist(events))
    found = engine.content(s)
    assert [(row["page"], row["ms"]) for row in found] == [("p2", 2), ("p5", 2)]
    assert set(found[0]) == {"page", "ms", "at", "seen"}  # the key of the window is hidden


def test_several_relations_in_one_step(engine: Engine) -> None:
    engine.execute("CREATE STREAM clicks (page STRING, at TIMESTAMP)")
    engine.execute("CREATE TABLE pages (page STRING, owner STRING, PRIMARY KEY (page))")
    s = engine.subscribe(
        "SELECT h.ms, p.owner FROM hits h JOIN clicks c ON h.page = c.page JOIN pages p ON p.page = c.page"
        " WITH (window = '10 seconds', time = 'at')"
    )
    deltas = engine.apply_all(
        {
            "hits": [{**at(0, 7), "_seq": 5}, {**at(30, 8), "_seq": 9}],
            "clicks": [{"page": "a", "at": BEGIN, "_seq": 6}],
            "pages": [{"page": "a", "owner": "ann", "_seq": 7}],
        }
    )
    assert plain(deltas) == [(7, 1, 7), (9, -1, 7), (9, 1, 8)]
    assert engine.content(s) == [{"ms": 8, "owner": "ann"}]


# -- the law in corners ----------------------------------------------------------------------------


def test_an_equal_event_that_leaves_and_comes_is_no_delta(engine: Engine) -> None:
    engine.subscribe("SELECT page FROM hits WITH (window = '10 seconds', time = 'at')")
    engine.subscribe("SELECT COUNT(*) AS n FROM hits WITH (window = '10 seconds', time = 'at')")
    engine.subscribe("SELECT MAX(ms) AS m FROM hits WITH (window = '10 seconds', time = 'at')")
    engine.subscribe("SELECT page FROM hits ORDER BY page LIMIT 1 WITH (window = '10 seconds', time = 'at')")
    assert len(engine.publish("hits", at(0))) == 6
    assert len(engine.publish("hits", at(10))) == 0


def test_a_batch_longer_than_its_window(engine: Engine) -> None:
    s = engine.subscribe(
        "SELECT COUNT(*) AS n, SUM(ms) AS s FROM hits WITH (window = '1 second', time = 'at')"
    )
    deltas = engine.apply("hits", [at(n / 2, n) for n in range(10)])
    assert engine.content(s) == [{"n": 2, "s": 17}]
    assert len(deltas) == 20
    engine._check()


def test_dead_letters_are_in_no_window(engine: Engine) -> None:
    s, bad = engine.subscribe(COUNT), list[BadRow]()
    engine.apply("hits", [at(0), {"ms": "x"}, at(1)], dead_letters=bad)
    assert [row.row for row in bad] == [1]
    assert engine.content(s) == [{"n": 2}]


def test_contents_are_as_of_now(engine: Engine, clock: Clock) -> None:
    s = engine.subscribe(COUNT)
    engine.publish("hits", at(0))
    clock.forward(seconds=10)
    assert engine.content(s) == [{"n": 0}]
    assert plain(engine.tick()) == [(1, -1, 1), (1, 1, 0)]
    assert plain(engine.tick()) == []


def test_a_clock_that_is_set_back(engine: Engine, clock: Clock) -> None:
    s = engine.subscribe(COUNT)
    engine.publish("hits", at(0))
    clock.forward(seconds=-5)
    engine.publish("hits", at(0))
    clock.forward(seconds=10)  # the second has left, the first came later
    assert engine.content(s) == [{"n": 1}]
    clock.forward(seconds=5)
    assert engine.content(s) == [{"n": 0}]


def test_a_failing_watcher_changes_nothing(engine: Engine, clock: Clock) -> None:
    s = engine.subscribe("SELECT COUNT(*) AS n FROM hits WITH (window = '10 seconds', time = 'at')")
    engine.apply("hits", [at(0), at(3)])

    def fails(step: Any) -> None:
        raise RuntimeError("no")

    stop = engine.on_step(fails)
    with pytest.raises(RuntimeError):
        engine.apply("hits", [at(12), at(1)])
    stop()
    engine._check()
    assert engine.content(s) == [{"n": 2}]
    assert plain(engine.publish("hits", at(12))) == []  # one in, one out
    assert next(iter(engine.stats()["windows"].values()))["too_late"] == 0


def test_a_sum_that_overflows_because_an_event_leaves_ends(
    engine: Engine, clock: Clock, tmp_path: Path
) -> None:
    s = engine.subscribe("SELECT SUM(ms) AS s FROM hits WITH (window = '10 seconds')")
    template = "SELECT SUM(ms) AS s FROM hits WHERE ms > :low WITH (window = '10 seconds')"
    engine.subscribe_many(template, pa.table({"id": [8, 9], "low": [-9, 0]}))
    n = engine.subscribe(COUNT)
    engine.publish("hits", at(0, -5))
    clock.forward(seconds=5)
    with pytest.raises(SumOverflow, match="subscription"):  # events that only enter are rejected
        engine.apply("hits", [at(0, 2**63 - 1), at(0, 8)])
    engine.apply("hits", [at(0, 2**63 - 1)])
    engine.unsubscribe(9)
    engine.publish("hits", at(0, 3))
    clock.forward(seconds=5)
    total = 2**63 - 3
    deltas = [(d.subscription, d.sign, next(iter(d.row.values()))) for d in engine.tick()]
    assert sorted(deltas[:2]) == [(s.id, -1, total), (8, -1, total)]
    assert deltas[2:] == [(n.id, -1, 3), (n.id, 1, 2)]
    assert [engine.content(one) for one in (s, 8, n)] == [[], [], [{"n": 2}]]
    warned = {one.id: one.warnings for one in engine.subscriptions()}
    assert all("it ended: " in warned[one][0] and "BIGINT overflow" in warned[one][0] for one in (s.id, 8))
    engine._check()
    engine.save(tmp_path / "saved")
    loaded = Engine.load(tmp_path / "saved", clock=clock)
    assert [loaded.content(one) for one in (s.id, 8, n.id)] == [[], [], [{"n": 2}]]


def test_a_sum_that_overflows_by_event_time_ends(clock: Clock) -> None:
    sql = "SELECT SUM(ms) AS s FROM hits WITH (window = '10 seconds', time = 'at')"
    for ends in (True, False):
        engine, dead = Engine(clock=clock, end_overflowing=ends), []
        engine.execute(STREAM)
        s = engine.subscribe(sql)
        engine.apply("hits", [at(0, -5), at(5, 2**63 - 1), at(5, 3)])
        if not ends:
            with pytest.raises(SumOverflow, match=f"subscription {s.id}"):
                engine.apply("hits", [at(12, 0)])
            engine._check()
            continue
        batch = (row for row in ({"ms": "no"}, at(12, 0)))  # read once
        assert plain(engine.apply("hits", batch, dead_letters=dead)) == [(3, -1, 2**63 - 3)]
        assert len(dead) == 1 and engine.last_seq == 4
        again = engine.subscribe("SELECT COUNT(*) AS n FROM hits WITH (window = '10 seconds', time = 'at')")
        assert engine.content(again) == [{"n": 0}]  # the window ended with its only subscription
        engine._check()


def test_values_that_become_worse_all_the_time(engine: Engine) -> None:
    template = "SELECT MIN(at) AS first FROM hits WHERE ms >= :low WITH (window = '60 seconds', time = 'at')"
    engine.subscribe_many(template, pa.table({"id": np.arange(300), "low": -np.arange(300)}))
    for n in range(10):  # each event is in all staircases
        engine.apply("hits", [at(n * 6 + m / 20) for m in range(100)])
    kinds = [family["family"] for family in engine.stats()["rank"]["families"]]
    assert kinds == ["extremes"]
    assert engine.content(5) == [{"first": BEGIN}]
    deltas = engine.publish("hits", at(60))
    assert len(deltas) == 600
    engine._check()


def test_staircases_answer_extremes(engine: Engine) -> None:
    engine.subscribe("SELECT MAX(ms) AS m FROM hits WITH (window = '60 seconds', time = 'at')")
    engine.publish("hits", at(0))
    (family,) = engine._roster.rooms["rank"]._families.values()  # type: ignore[attr-defined]
    assert isinstance(family, RecentExtremeFamily)


# -- retained events, backfill, explanations -------------------------------------------------------


def test_a_window_begins_with_retained_events(clock: Clock) -> None:
    engine = Engine(clock=clock)
    engine.execute(STREAM + " RETAIN '20 seconds'")
    for n in range(5):
        engine.publish("hits", at(n * 4, n))
        clock.forward(seconds=4)
    by_arrival = engine.subscribe("SELECT ms FROM hits", window="9 seconds")
    by_time = engine.subscribe("SELECT ms FROM hits", window="9 seconds", time="at")
    assert [row["ms"] for row in engine.content(by_arrival)] == [3, 4]
    assert [row["ms"] for row in engine.content(by_time)] == [2, 3, 4]
    clock.forward(seconds=4)
    assert plain(engine.tick()) == [(5, -1, 3)]
    engine._check()


def test_backfill_is_rejected(clock: Clock) -> None:
    engine = Engine(clock=clock)
    engine.execute(STREAM + " RETAIN '20 seconds'")
    with pytest.raises(SubscriptionError, match="not for windows"):
        engine.subscribe("SELECT ms FROM hits WITH (window = '9 seconds')", backfill=True)
    texts = [f"SELECT ms FROM hits WHERE ms > {n} WITH (window = '9 seconds')" for n in range(9)]
    with pytest.raises(SubscriptionError, match="not for windows"):
        engine.subscribe_texts(texts, backfill=True)
    assert not engine.stats()["windows"]


def test_explanations_by_event_time(engine: Engine) -> None:
    s = engine.subscribe("SELECT ms FROM hits WHERE ms > 5 WITH (window = '10 seconds', time = 'at')")
    top = engine.subscribe(
        "SELECT ms FROM hits ORDER BY ms DESC LIMIT 1 WITH (window = '10 seconds', time = 'at')"
    )
    engine.publish("hits", at(30, 9))
    left = engine.explain(s, at(20, 7))
    assert left.held is False and "outside the window" in left.notes[0] and "it left" in left.notes[1]
    assert engine.explain(s, at(25, 7)).held is True
    assert engine.explain(s, at(25, 3)).held is False
    assert "without event time" in engine.explain(s, {"ms": 7}).notes[0]
    second = engine.explain(top, at(25, 7))
    assert second.held is False and "rank 2 of 2" in second.notes[1]
    engine._check()
    assert engine.content(s) == [{"ms": 9}]


def test_explanations_by_arrival(engine: Engine, clock: Clock) -> None:
    s = engine.subscribe("SELECT ms FROM hits WITH (window = '10 seconds')")
    engine.publish("hits", at(0, 9))
    clock.forward(seconds=4)
    assert "it leaves at 2024-05-01 10:00:10" in engine.explain(s, {"ms": 9}).notes[0]
    clock.forward(seconds=6)
    assert "no such event" in engine.explain(s, {"ms": 9}).notes[0]


def test_event_time_must_be_known(engine: Engine) -> None:
    with pytest.raises(SqlError, match="2 TIMESTAMP columns"):
        engine.subscribe("SELECT ms FROM hits WITH (window = '9 seconds', late = '1 second')")


def test_a_stream_joined_with_itself_by_two_times(engine: Engine) -> None:
    s = engine.subscribe(
        "SELECT a.ms AS x, b.ms AS y FROM hits a JOIN hits b ON a.page = b.page"
        " WITH (window = '10 seconds', time = 'a.at, b.seen')"
    )
    assert len(engine.stats()["windows"]) == 2
    engine.publish("hits", at(0, 1, seen=BEGIN))
    assert plain(engine.publish("hits", at(20, 2))) == [(2, -1, 1), (2, 1, 2)]  # seen is NULL: only as a
    assert engine.content(s) == [{"x": 2, "y": 1}]
    engine._check()


def test_rows_of_tables_beside_windows_are_explained(engine: Engine) -> None:
    engine.execute("CREATE TABLE pages (page STRING PRIMARY KEY, owner STRING)")
    joined = "SELECT ms, owner FROM hits JOIN pages ON hits.page = pages.page"
    window = "window = '10 seconds'"
    plain = engine.subscribe(f"{joined} WITH ({window})")
    top = engine.subscribe(f"{joined} ORDER BY ms LIMIT 1 WITH ({window}, refresh = 'on demand')")
    engine.publish("hits", at(0, 9))
    for s in (plain, top):
        assert engine.explain(s, {"page": "a", "owner": "ann"}, table="pages").held is True
        assert engine.explain(s, {"page": "b", "owner": "ann"}, table="pages").held is False
    engine._check()


def test_extremes_of_numbers_far_apart(engine: Engine, clock: Clock) -> None:
    engine.execute("CREATE STREAM loads (load DOUBLE)")
    s = engine.subscribe("SELECT MIN(load) AS low FROM loads WITH (window = '10 seconds')")
    engine.apply("loads", [{"load": -2.25}])
    clock.forward(seconds=1)
    engine.apply("loads", [{"load": 7.75}])
    engine._check()  # codes of these differ by more than an int64 holds
    assert engine.content(s) == [{"low": -2.25}]
