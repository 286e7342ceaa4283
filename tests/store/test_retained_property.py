"""Retained events against a plain list of (arrival, seq, event)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.errors import CatalogError, ChangeError
from tocsin.language.ddl import parse_definitions
from tocsin.model.change import ChangeBatch
from tocsin.model.columns import Index, Rows, Vector
from tocsin.model.schema import Field, Stream, Type
from tocsin.store import retained
from tocsin.store.database import Database
from tocsin.store.retained import Retained

START = datetime(2024, 5, 1, tzinfo=UTC)
TYPED = Stream("s", (Field("a", Type.BIGINT), Field("b", Type.STRING)))
OPEN = Stream("o")
RETAIN = 10

typed_events = st.fixed_dictionaries({}, optional={"a": st.none() | st.integers(0, 9), "b": st.text("xy")})
attributes = st.integers(0, 3) | st.text("xy", max_size=2) | st.booleans() | st.floats(allow_nan=False)
open_events = st.dictionaries(st.sampled_from(["a", "b", "c d", "e"]), attributes, max_size=4)
layouts = st.sampled_from(["dicts", "arrow", "taken"])


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)


def steps(events: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Add a batch, expire or read, each after the clock went on (or was set back)."""
    clock = st.integers(0, 6) | st.sampled_from([-30, -3, 100])
    add = st.tuples(st.just("add"), clock, st.lists(events, max_size=5), layouts)
    look = st.tuples(st.sampled_from(["expire", "read"]), clock, st.just([]), layouts)
    return st.lists(st.one_of(add, add, look), max_size=25)


def rows_of(relation: Stream, events: list[dict[str, Any]], layout: str) -> Rows:
    """The events as a batch of dicts, of columns, or what is left of one after rows fell out."""
    if layout == "taken":
        batch, bad = ChangeBatch.from_dicts(relation, [{}, *events])
        batch = batch.take(np.arange(1, len(events) + 1))
    elif layout == "arrow" and not relation.open:
        names = [f.name for f in relation.fields if any(f.name in event for event in events)]
        columns = {n: pa.array([e.get(n) for e in events], relation.find(n).type.arrow) for n in names}
        if not columns:
            return rows_of(relation, events, "dicts")
        batch, bad = ChangeBatch.from_arrow(relation, pa.table(columns))
    else:
        batch, bad = ChangeBatch.from_dicts(relation, events)
    assert not bad
    return batch.rows


def flat(found: list[tuple[Index, Rows]]) -> list[tuple[int, dict[str, Any]]]:
    """The events one by one; a missing column is NULL."""
    return [
        (seq, {name: value for name, value in event.items() if value is not None})
        for seqs, rows in found
        for seq, event in zip(seqs.tolist(), rows.to_dicts(), strict=True)
    ]


def run(relation: Stream, drawn: list[Any]) -> None:
    kept, model = Retained(seconds(RETAIN)), []
    now, seq = START, 0
    for what, later, events, layout in drawn:
        now += seconds(later)
        if what == "add":
            numbers = np.arange(seq + 1, seq + 1 + len(events))
            seq += len(events)
            kept.add(now, numbers, rows_of(relation, events, layout))
            plain = [{name: value for name, value in e.items() if value is not None} for e in events]
            model.extend((now, *pair) for pair in zip(numbers.tolist(), plain, strict=True))
        elif what == "expire":
            kept.expire(now)
            model = [event for event in model if now < event[0] + seconds(RETAIN)]
        kept._check()
        assert kept.count == len(model)
        assert (kept.nbytes > 0) == (kept.count > 0)
        for moment in (now, now - seconds(2), now + seconds(5)):
            valid = [event[1:] for event in model if event[0] <= moment < event[0] + seconds(RETAIN)]
            assert flat(kept.events(moment)) == valid


@given(steps(typed_events))
def test_property_typed_events(drawn: list[Any]) -> None:
    run(TYPED, drawn)


@given(steps(open_events))
def test_property_open_events(drawn: list[Any]) -> None:
    run(OPEN, drawn)


@given(st.lists(st.integers(1, 5), max_size=12), st.integers(1, 8))
def test_property_small_batches_are_concatenated(sizes: list[int], most: int) -> None:
    kept, seq = Retained(seconds(RETAIN)), 0
    for size in sizes:
        kept.add(START, np.arange(seq, seq + size), rows_of(TYPED, [{"a": i} for i in range(size)], "dicts"))
        seq += size
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(retained, "_MAX_RUN", most)
        found = kept.events(START)
    lengths = [len(seqs) for seqs, _ in found]
    assert [n for seqs, _ in found for n in seqs.tolist()] == list(range(seq))
    assert all(length <= most or length in sizes for length in lengths)
    assert all(a + b > most for a, b in pairwise(lengths)) or most < 5


def test_the_end_of_validity_is_open() -> None:
    kept = Retained(seconds(RETAIN))
    kept.add(START, np.array([7]), rows_of(TYPED, [{"a": 1}], "dicts"))
    moment = timedelta(microseconds=1)
    assert flat(kept.events(START - moment)) == []
    assert flat(kept.events(START)) == flat(kept.events(START + seconds(RETAIN) - moment)) == [(7, {"a": 1})]
    assert flat(kept.events(START + seconds(RETAIN))) == []
    kept.expire(START + seconds(RETAIN) - moment)
    assert kept.count == 1
    kept.expire(START + seconds(RETAIN))
    assert (kept.count, kept.nbytes) == (0, 0)


def test_events_come_in_order_of_arrival_though_the_clock_is_set_back() -> None:
    kept = Retained(seconds(RETAIN))
    for seq, at in (1, 5), (2, 3), (3, 4):
        kept.add(START + seconds(at), np.array([seq]), rows_of(TYPED, [{"a": seq}], "dicts"))
    assert [seq for seq, _ in flat(kept.events(START + seconds(6)))] == [1, 2, 3]
    assert [seq for seq, _ in flat(kept.events(START + seconds(4)))] == [2, 3]
    kept.expire(START + seconds(3 + RETAIN))
    assert [seq for seq, _ in flat(kept.events(START + seconds(6)))] == [1, 3]


def test_an_attribute_of_several_types_stays_so() -> None:
    kept, events = Retained(seconds(RETAIN)), [{"a": 1, "b": "x"}, {"a": "y"}]
    for seq in (1, 3):
        kept.add(START, np.array([seq, seq + 1]), rows_of(OPEN, events, "taken"))
    ((_, rows),) = kept.events(START)
    assert rows.to_dicts() == events + events


def test_the_longest_time_does_not_overflow() -> None:
    kept = Retained(timedelta.max)
    kept.add(datetime.max.replace(tzinfo=UTC), np.array([1]), rows_of(OPEN, [{"x": 1}], "dicts"))
    kept.expire(datetime.max.replace(tzinfo=UTC))
    assert kept.count == 1
    assert kept.events(datetime.min.replace(tzinfo=UTC)) == []


def test_events_are_copies() -> None:
    values, seq = np.array([1, 2, 3]), np.array([5])
    kept = Retained(seconds(RETAIN))
    kept.add(START, seq, Rows.of(a=Vector(Type.BIGINT, values[1:2], np.array([True]))))
    values[:], seq[:] = 0, 0
    assert flat(kept.events(START)) == [(5, {"a": 2})]
    (_, rows), (_, again) = kept.events(START) + kept.events(START)
    assert rows is not again, "values cached for one answer are not kept"


def test_what_cannot_be_kept() -> None:
    with pytest.raises(ValueError, match="a positive time"):
        Retained(timedelta(0))
    with pytest.raises(ValueError, match="1 events come with 2 sequence numbers"):
        Retained(seconds(1)).add(START, np.array([1, 2]), rows_of(TYPED, [{"a": 1}], "dicts"))


# -- in the database -----------------------------------------------------------------------------------

DDL = """
CREATE STREAM s (a BIGINT) RETAIN '10 seconds'; CREATE STREAM o RETAIN '1 minute';
CREATE STREAM plain; CREATE TABLE t (a BIGINT PRIMARY KEY)
"""


def database() -> Database:
    made = Database()
    made.define(parse_definitions(DDL), {})
    return made


def test_a_commit_that_knows_the_time_keeps_events() -> None:
    db = database()
    db.stage({"s": pa.table({"a": [1, 2]}), "t": pa.table({"a": [1]}), "plain": pa.table({"x": [1]})})
    db.commit(START)
    db.stage({"S": pa.table({"a": [3]}), "o": pa.table({"x": ["y"]})})
    db.commit(START + seconds(4))
    assert flat(db.retained("S", START + seconds(4))) == [(1, {"a": 1}), (2, {"a": 2}), (5, {"a": 3})]
    assert flat(db.retained("o", START + seconds(4))) == [(6, {"x": "y"})]
    assert flat(db.retained("s", START + seconds(10))) == [(5, {"a": 3})]
    db.stage({"t": pa.table({"a": [2]})})
    db.commit(START + seconds(20))  # any commit drops expired events
    assert (db._retained["s"].count, db._retained["o"].count) == (0, 1)
    db.expire(START + seconds(64))
    assert db._retained["o"].count == 0
    db._check()


def test_rows_that_fell_out_are_not_kept() -> None:
    db = database()
    batch = pa.table({"a": [1, 2, 3], "_seq": [5, 4, 9]})
    db.stage({"s": batch}, {})
    db.commit(START)
    assert flat(db.retained("s", START)) == [(5, {"a": 1}), (9, {"a": 3})]


def test_a_step_that_is_rolled_back_keeps_nothing() -> None:
    db = database()
    db.stage({"s": pa.table({"a": [1]})})
    db.rollback()
    db.commit(START)
    with pytest.raises(ChangeError):
        db.stage({"s": pa.table({"a": [1]}), "t": pa.table({"a": [1, 1]})})
    db.commit(START)
    assert db.retained("s", START) == []


def test_a_commit_without_the_time_keeps_nothing() -> None:
    db = database()
    db.stage({"s": pa.table({"a": [1]})})
    db.commit()
    db.commit(START)
    assert db.retained("s", START) == []


def test_a_stream_that_is_defined_again_begins_empty() -> None:
    db = database()
    db.stage({"s": pa.table({"a": [1]}), "o": pa.table({"x": [1]})})
    db.commit(START)
    db.define(parse_definitions("CREATE STREAM other RETAIN '1 day'"), {})
    assert len(flat(db.retained("s", START))) == 1, "other definitions do not matter"
    db.define(parse_definitions("DROP STREAM s; CREATE STREAM s (a BIGINT) RETAIN '10 seconds'"), {})
    assert db.retained("s", START) == []
    assert len(flat(db.retained("o", START))) == 1
    db.define(parse_definitions("DROP STREAM o; CREATE STREAM o"), {})
    with pytest.raises(CatalogError, match="stream o retains no events"):
        db.retained("o", START)


def test_who_retains_nothing() -> None:
    db = database()
    with pytest.raises(CatalogError, match="stream plain retains no events\nhint: define it with RETAIN"):
        db.retained("plain", START)
    with pytest.raises(CatalogError, match="t is a table"):
        db.retained("t", START)
    with pytest.raises(CatalogError, match="there is no stream or table 'x'"):
        db.retained("x", START)
