"""Joins of streams against the meaning by loops: exact without a limit; under one, what is emitted is part of
it and what is missed is counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from tests.clocks import Clock
from tests.strategies.changes import Row, event, to_arrow
from tests.strategies.pick import Pick, picked
from tests.strategies.queries import WrittenQuery, stream_pair
from tests.strategies.schemas import tables
from tests.strategies.values import TYPES, Values
from tocsin.engine import Engine, Rooms
from tocsin.language.options import Budget, Options
from tocsin.limits.scores import JOIN_POLICIES
from tocsin.limits.stream_scan import StreamJoinScan
from tocsin.limits.streams import StreamJoins
from tocsin.model.schema import Field, Stream, Type
from tocsin.reference import join_streams, row_key

ROOMS = [StreamJoins, StreamJoinScan]
NOON = datetime(2013, 1, 31, 12, tzinfo=UTC)
SECOND = 1_000_000


@dataclass(frozen=True)
class Batch:
    """Events by stream that come at one time; `single`: each by a call of its own."""

    now: datetime
    events: dict[str, list[Row]]
    single: bool


@dataclass(frozen=True)
class StreamCase:
    """Two streams, subscriptions that join them, and batches."""

    streams: tuple[Stream, ...]
    written: tuple[WrittenQuery, ...]
    batches: tuple[Batch, ...]


def _options(pick: Pick, limited: bool) -> tuple[Options, bool]:
    """Options, and whether the query needs a band on times."""
    memory = Budget(pick.between(1, 12) if limited else 10**6, rows=True)
    kind = pick.between(0, 3)
    window = pick.between(1, 9) * SECOND
    late = pick.one((None, SECOND, 4 * SECOND))
    policy = pick.one((None, *JOIN_POLICIES)) if limited else None
    if kind == 0:
        return Options(memory=memory, policy=policy), False
    if kind == 1:
        return Options(window=window, memory=memory, policy=policy), False
    if kind == 2:
        time = None if late is not None and pick.chance(50) else "at"
        return Options(window=window, time=time, late=late, memory=memory, policy=policy), False
    bounded = limited or pick.chance(50)
    return Options(late=late, memory=memory if bounded else None, policy=policy if bounded else None), True


def _case(pick: Pick, limited: bool = False) -> StreamCase:
    values = Values(pick, 3, edges=True)
    made = []
    for table in tables(pick, 2, 2, TYPES):
        own = tuple(f for f in table.fields if f.name.lower() != "at" and f.type is not Type.TIMESTAMP)
        made.append(Stream(table.name, (*own, Field("at", Type.TIMESTAMP))))
    written = []
    for _ in range(1 if limited else pick.between(1, 4)):
        options, banded = _options(pick, limited)
        written.append(stream_pair(pick, made, values, options, banded))
    batches, now = [], NOON
    for _ in range(pick.between(3, 8)):
        now += timedelta(seconds=pick.one((0, 1, 3, 7, -2)))
        chosen = pick.some(made, 1, 2)
        events = {s.name: [_event(pick, s, values, now) for _ in range(pick.between(1, 4))] for s in chosen}
        batches.append(Batch(now, events, pick.chance(40)))
    return StreamCase(tuple(made), tuple(written), tuple(batches))


def _event(pick: Pick, stream: Stream, values: Values, now: datetime) -> Row:
    row = event(pick, stream, values)
    row["at"] = None if pick.chance(5) else now + timedelta(seconds=pick.between(-6, 3))
    return row


exact_cases = picked(lambda pick: _case(pick))
limited_cases = picked(lambda pick: _case(pick, limited=True))


def started(case: StreamCase, room: Any = StreamJoins) -> tuple[Engine, Clock, list[int]]:
    clock = Clock(NOON)
    engine = Engine(clock=clock, rooms=Rooms(streams=room))
    for stream in case.streams:
        engine.execute(str(stream))
    return engine, clock, [engine.subscribe(one.sql).id for one in case.written]


def emitted(engine: Engine, clock: Clock, batch: Batch) -> list[Any]:
    """The deltas of a batch."""
    clock.now = batch.now
    if batch.single:
        return [d for name, rows in batch.events.items() for row in rows for d in engine.publish(name, row)]
    streams = {name: engine.schema(name) for name in batch.events}
    return [*engine.apply_all({n: to_arrow(streams[n], rows) for n, rows in batch.events.items()})]


def meaning(case: StreamCase, written: WrittenQuery) -> list[list[tuple[int, Any]]]:
    """What the subscription would be emitted without a budget: by batch."""
    seq, steps, sizes = 0, [], []
    for batch in case.batches:
        parts: list[list[tuple[int, str, Row]]] = [[]]
        for name, rows in batch.events.items():
            for row in rows:
                seq += 1
                parts[-1].append((seq, name, row))
                if batch.single:
                    parts.append([])
        steps += [(batch.now, part) for part in parts if part]
        sizes.append(sum(1 for part in parts if part))
    options = written.query.options
    times = (
        ("at", "at") if options.window is not None and (options.late or options.time) is not None else None
    )
    found, out = iter(join_streams(written.query, steps, times)), []
    for size in sizes:
        out.append([(s, row_key(row)) for _ in range(size) for s, row in next(found)])
    return out


@pytest.mark.parametrize("room", ROOMS)
def test_without_a_limit_every_pair_is_emitted_once(room: Any) -> None:
    @settings(max_examples=max(60, settings().max_examples))
    @given(exact_cases())
    def check(case: StreamCase) -> None:
        engine, clock, ids = started(case, room)
        wanted = [meaning(case, one) for one in case.written]
        for n, batch in enumerate(case.batches):
            deltas = emitted(engine, clock, batch)
            assert all(d.sign == 1 for d in deltas)
            for key, want in zip(ids, wanted, strict=True):
                mine = [(d.seq, row_key(d.row)) for d in deltas if d.subscription == key]
                assert Counter(mine) == Counter(want[n]), case.written[ids.index(key)].sql
            engine._check()
        assert all(engine.content(key) == [] for key in ids)

    check()


def test_under_a_limit_part_is_emitted_and_the_rest_counted() -> None:
    @settings(max_examples=max(100, settings().max_examples))
    @given(limited_cases())
    def check(case: StreamCase) -> None:
        engine, clock, (key,) = started(case)
        query = case.written[0].query
        wanted, produced, total = meaning(case, case.written[0]), 0, 0
        for n, batch in enumerate(case.batches):
            found = [(d.seq, row_key(d.row)) for d in emitted(engine, clock, batch)]
            assert not Counter(found) - Counter(wanted[n]), "an emitted pair is a pair, and once"
            produced, total = produced + len(found), total + len(wanted[n])
            engine._check()
            report = engine.limits(key)
            assert report.produced == produced
            assert query.options.memory is None or report.rows <= query.options.memory.amount
            if report.exact:
                assert produced + report.missed == total, case.written[0].sql

    check()


def test_a_saved_engine_goes_on_alike() -> None:
    @settings(max_examples=max(30, settings().max_examples))
    @given(limited_cases())
    def check(case: StreamCase) -> None:
        engine, clock, (key,) = started(case)
        half = len(case.batches) // 2
        for batch in case.batches[:half]:
            emitted(engine, clock, batch)
        with TemporaryDirectory() as folder:
            engine.save(Path(folder) / "saved")
            other_clock = Clock(NOON)
            other = Engine.load(Path(folder) / "saved", clock=other_clock)
        assert other.limits(key) == replace(engine.limits(key), bytes=other.limits(key).bytes)
        for batch in case.batches[half:]:
            found, again = emitted(engine, clock, batch), emitted(other, other_clock, batch)
            assert [(d.seq, row_key(d.row)) for d in found] == [(d.seq, row_key(d.row)) for d in again]
            other._check()
        assert other.limits(key) == replace(engine.limits(key), bytes=other.limits(key).bytes)

    check()


@pytest.mark.parametrize("policy", JOIN_POLICIES)
def test_a_replay_decides_alike_and_counts_what_is_missed(policy: str) -> None:
    rng = np.random.default_rng(7)
    keys, sides = rng.zipf(1.6, 3000) % 100, rng.integers(0, 2, 3000)

    def run() -> tuple[list[Any], Any]:
        engine = Engine(clock=Clock(NOON))
        engine.execute("CREATE STREAM a (k BIGINT); CREATE STREAM b (k BIGINT)")
        key = engine.subscribe(
            f"SELECT * FROM a JOIN b USING (k) WITH (memory = 100, policy = '{policy}')"
        ).id
        found: list[Any] = []
        for begin in range(0, len(keys), 150):
            part = slice(begin, begin + 150)
            events = {n: [{"k": int(k)} for k in keys[part][sides[part] == s]] for s, n in enumerate("ab")}
            found += engine.apply_all(events)
        engine._check()
        return [(d.seq, d.row) for d in found], engine.limits(key)

    first, report = run()
    assert (first, report) == run()
    counts = [np.bincount(keys[sides == side], minlength=100) for side in range(2)]
    assert report.exact and report.produced == len(first)
    assert report.produced + report.missed == int((counts[0] * counts[1]).sum())
    assert 0 < report.share < 1 and report.rows <= 100
