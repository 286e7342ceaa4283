"""`alpha = 'adaptive'`: never much worse than the best of its three, alike on replay, within its memory."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tocsin.engine import Engine
from tocsin.errors import SqlError
from tocsin.lab.bench.limits.workloads import WORKLOADS, given_heeb, play_score
from tocsin.lab.bench.stream_joins import once, run_events, zipf
from tocsin.limits.models import Arrivals, KeptRows
from tocsin.limits.options import Memory
from tocsin.limits.scores import AdaptiveHeeb, Heeb, little_alpha

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
PAIR = "SELECT a.k FROM a JOIN b ON a.k = b.k"


@pytest.mark.parametrize("name", ["TOWER", "WALK"])
def test_it_is_not_much_worse_than_the_best_of_three(name: str) -> None:
    work, slots = WORKLOADS[name], 20
    streams = work.draw(2000, 1)
    fixed = [play_score(streams, given_heeb(work, f * little_alpha(slots)), slots) for f in (0.25, 1.0, 4.0)]
    score = AdaptiveHeeb(model=lambda side: work.model(side, -1))
    assert play_score(streams, score, slots) >= 0.95 * max(fixed)
    score._check()


@pytest.mark.parametrize("events", [zipf(5000, 5000, 0.8, 1000), once(5000, 1000, 100)], ids=["zipf", "once"])
def test_in_a_join_of_streams(events: Any) -> None:
    memory, found = ", memory = 100, alpha = ", {}
    for alpha in (0.25 * little_alpha(100), 4.0 * little_alpha(100), "'adaptive'"):
        found[alpha], report = run_events(events, f"{memory}{alpha}", 50, 2500)
    assert found["'adaptive'"] >= 0.9 * max(found.values()), found
    assert report.alpha > 0.0


def feed(score: Any, seed: int, first: int, last: int) -> list[Any]:
    """Steps of a buffer of 3,000 rows; the scores of rows of both sides."""
    found = []
    for n in range(first, last):
        rng = np.random.default_rng((seed, n))
        keys, at = rng.zipf(1.3, (2, 200)) % 2000, np.full(200, float(n))
        for side in (0, 1):
            score.seen(side, Arrivals(keys[side], keys[side].astype(float), at))
            rows = KeptRows(np.arange(50), np.arange(50.0), at[:50], np.full(50, 40.0))
            found.append(score(side, rows, float(n), 3000))
        if n % 7 == 0:
            score.discard(np.arange(1900, 1990))
    return found


def test_a_replay_and_a_saved_one_decide_alike() -> None:
    one, two = AdaptiveHeeb(), AdaptiveHeeb()
    feed(one, 1, 0, 40)
    feed(two, 1, 0, 40)
    three = pickle.loads(pickle.dumps(one))
    later = [feed(score, 1, 40, 60) for score in (one, two, three)]
    assert np.array_equal(later[0], later[1]) and np.array_equal(later[0], later[2])
    assert one.alpha_in_use == two.alpha_in_use == three.alpha_in_use


def test_ghosts_are_small_and_are_counted() -> None:
    score = AdaptiveHeeb()
    feed(score, 2, 0, 60)
    score._check()
    ghosts = score.nbytes - Heeb.nbytes.fget(score)  # type: ignore[attr-defined]
    assert 0 < ghosts <= 3 * 256 * 32 and score._every == 16


def run(e: Engine, first: int, last: int, now: list[datetime]) -> list[str]:
    told = []
    for n in range(first, last):
        now[0] = NOON + timedelta(seconds=n)
        rng = np.random.default_rng(n)
        found = e.apply_all({s: pa.table({"k": rng.zipf(1.4, 100) % 500}) for s in "ab"})
        told += [str(delta.row) for delta in found]
    return told


def test_in_sql_in_the_report_and_saved(tmp_path: Path) -> None:
    now = [NOON]
    e = Engine(clock=lambda: now[0])
    e.execute("CREATE STREAM a (k BIGINT); CREATE STREAM b (k BIGINT)")
    s = e.subscribe(PAIR, memory=Memory("512 KB", alpha="adaptive"), window="30 seconds")
    assert "alpha = 'adaptive'" in str(e.plan(s.sql).query.options)
    assert e.limits(s).alpha is None  # nothing had to be dropped
    run(e, 0, 60, now)
    assert e.limits(s).alpha > 0.0 and e.limits(s).bytes <= 512 << 10
    e.save(tmp_path / "saved")
    other = Engine.load(tmp_path / "saved", clock=lambda: now[0])
    assert run(e, 60, 90, now) == run(other, 60, 90, now)
    assert other.limits(s) == e.limits(s)
    with pytest.raises(SqlError, match="alpha is a number above 0"):
        e.subscribe(f"{PAIR} WITH (memory = 100, alpha = 'fast')")
