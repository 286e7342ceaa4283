"""Streams joined with tables: each event with the rows as they are, by brute force; for both rooms."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

from tests.strategies.changes import Model, Row, Step, event, steps, to_arrow
from tests.strategies.pick import Pick, picked
from tests.strategies.queries import WrittenQuery, enriched
from tests.strategies.schemas import tables
from tests.strategies.values import TYPES, Values
from tocsin.engine import Engine, Rooms
from tocsin.enrich.room import EnrichRoom
from tocsin.enrich.scan import EnrichScan
from tocsin.errors import SubscriptionError, TocsinError
from tocsin.model.schema import Stream, Table
from tocsin.reference import evaluate, row_key

ROOMS = [EnrichRoom, EnrichScan]
Batch = tuple[Row, ...]


@dataclass(frozen=True)
class EnrichCase:
    """A stream, tables, subscriptions, and steps: changes of a table, or events."""

    stream: Stream
    tables: tuple[Table, ...]
    written: tuple[WrittenQuery, ...]
    steps: tuple[Step | Batch, ...]


def _case(pick: Pick) -> EnrichCase:
    values = Values(pick, 3, edges=True)
    first, *made = tables(pick, 2, 3, TYPES)
    source = Stream("s", first.fields)
    written = tuple(enriched(pick, source, made, values) for _ in range(pick.between(1, 4)))
    drawn: list[Step | Batch] = []
    for step in steps(pick, tuple(made), values, 3, 8):
        drawn.append(step)
        drawn.append(tuple(event(pick, source, values) for _ in range(pick.between(1, 4))))
    return EnrichCase(source, tuple(made), written, tuple(drawn))


enrich_cases = picked(_case)


def expected(case: EnrichCase, model: Model, row: Row) -> Counter[Any]:
    database = {**model.database(), case.stream.name: [row]}
    return Counter(
        (n, row_key(found))
        for n, one in enumerate(case.written)
        for found in evaluate(one.query, database, model.keys)
    )


def run(engine: Engine, case: EnrichCase) -> None:
    for relation in (case.stream, *case.tables):
        engine.execute(str(relation))
    ids = [engine.subscribe(one.sql).id for one in case.written]
    assert {engine.query(key).tables for key in ids}
    model = Model(case.tables)
    for n, step in enumerate(case.steps):
        if isinstance(step, Step):
            batch = to_arrow(step.table, [c.row for c in step.changes], [c.op for c in step.changes])
            assert not list(engine.apply(step.table.name, batch)), "a change of a table emits nothing"
            for change in step.changes:
                model.apply(step.table, change)
            continue
        if n % 3:
            deltas = [*engine.apply(case.stream.name, to_arrow(case.stream, step))]
        else:
            deltas = [delta for row in step for delta in engine.publish(case.stream.name, row)]
        first = engine.last_seq - len(step) + 1
        for seq, row in enumerate(step, first):
            mine = [d for d in deltas if d.seq == seq]
            assert Counter((ids.index(d.subscription), row_key(d.row)) for d in mine) == expected(
                case, model, row
            )
            assert all(d.sign == 1 for d in mine)
        engine._check()
    assert all(engine.content(key) == [] for key in ids)


@pytest.mark.parametrize("room", ROOMS)
def test_each_event_joins_the_rows_as_they_are(room: Any) -> None:
    @settings(max_examples=max(40, settings().max_examples))
    @given(enrich_cases())
    def check(case: EnrichCase) -> None:
        run(Engine(rooms=Rooms(enrich=room)), case)

    check()


DDL = """
CREATE STREAM hits (page STRING, ms BIGINT);
CREATE TABLE pages (page STRING, owner STRING, PRIMARY KEY (page));
CREATE TABLE owners (owner STRING, team STRING, PRIMARY KEY (owner))
"""
PAIR = "SELECT h.page, p.owner, h.ms FROM hits h JOIN pages p ON h.page = p.page"


def engine(room: Any = EnrichRoom) -> Engine:
    made = Engine(rooms=Rooms(enrich=room))
    made.execute(DDL)
    made.insert("pages", {"page": "/a", "owner": "ann"})
    return made


@pytest.mark.parametrize("room", ROOMS)
def test_a_step_of_stream_and_table_goes_by_seq(room: Any) -> None:
    e = engine(room)
    e.subscribe(PAIR)
    events = [{"page": "/a", "ms": n, "_seq": seq} for n, seq in enumerate((10, 12, 14))]
    changes = [{"page": "/a", "owner": "bob", "_op": "update", "_seq": 11}]
    changes.append({"page": "/a", "_op": "delete", "_seq": 13})
    found = [(d.seq, d.row["owner"]) for d in e.apply_all({"hits": events, "pages": changes})]
    assert found == [(10, "ann"), (12, "bob")]


def test_a_template_means_the_same_as_its_texts() -> None:
    e, other = engine(), engine()
    sql = (
        "SELECT h.ms FROM hits h JOIN pages p ON h.page = p.page JOIN owners o ON o.owner = p.owner "
        "WHERE (h.ms > :m OR h.page = '/b') AND (o.team = :t OR p.owner IN ('bob', 'cy'))"
    )
    rows: list[dict[str, Any]] = [{"id": n, "m": n % 7, "t": f"t{n % 3}"} for n in range(100)]
    e.subscribe_many(sql, pa.Table.from_pylist(rows))
    for row in rows:
        other.subscribe(sql.replace(":m", str(row["m"])).replace(":t", f"'{row['t']}'"), id=row["id"])
    for one in (e, other):
        one.apply("owners", [{"owner": o, "team": f"t{n}"} for n, o in enumerate(("ann", "bob", "cy", "di"))])
        one.apply(
            "pages",
            [{"page": f"/{p}", "owner": o} for p, o in zip("bcde", ("bob", "cy", "di", "ann"), strict=True)],
        )
    events = [{"page": f"/{p}", "ms": ms} for p in "abcdefg" for ms in range(8)]
    found = [(d.seq, d.subscription, d.row) for d in e.apply("hits", events)]
    assert found == [(d.seq, d.subscription, d.row) for d in other.apply("hits", events)]
    assert found
    e.unsubscribe_many(np.arange(50))
    e._check()
    assert {d.subscription for d in e.apply("hits", events)} == {s for _, s, _ in found if s >= 50}


@pytest.mark.parametrize("room", ROOMS)
def test_explain_says_what_an_event_joins(room: Any) -> None:
    e = engine(room)
    s = e.subscribe(f"{PAIR} WHERE p.owner = 'ann' AND h.ms > 5")
    held = e.explain(s, {"page": "/a", "ms": 9}, table="hits")
    assert held.held and "p: 1 row joined, 1 of them satisfy its conditions" in str(held)
    assert e.explain(s, {"page": "/a", "ms": 3}, table="h").held is False
    assert e.explain(s, {"page": "/x", "ms": 9}, table="h").held is False


def test_what_is_rejected() -> None:
    e = engine()
    with pytest.raises(SubscriptionError, match="backfill is for filters"):
        e.subscribe(PAIR, backfill=True)
    e.execute("CREATE TABLE limits (ms BIGINT, PRIMARY KEY (ms))")
    with pytest.raises(TocsinError, match="joins tables by = alone"):
        e.subscribe("SELECT * FROM hits h JOIN limits l ON h.ms > l.ms")
    s = e.subscribe(PAIR)
    with pytest.raises(TocsinError, match="1 subscription uses pages"):
        e.execute("DROP TABLE pages")
    e.unsubscribe(s)
    e.execute("DROP TABLE pages")


def test_a_failed_step_changes_nothing_and_a_saved_engine_goes_on() -> None:
    e = engine()
    e.subscribe(PAIR)
    with pytest.raises(TocsinError, match="has a row with key"):
        e.apply_all(
            {"pages": [{"page": "/b", "owner": "cy"}, {"page": "/a"}], "hits": [{"page": "/b", "ms": 1}]}
        )
    assert not list(e.publish("hits", {"page": "/b", "ms": 1}))
    with TemporaryDirectory() as folder:
        e.save(Path(folder) / "saved")
        e = Engine.load(Path(folder) / "saved")
    assert [d.row for d in e.publish_json("hits", '{"page": "/a", "ms": 7}')] == [
        {"page": "/a", "owner": "ann", "ms": 7}
    ]
