"""The stream of changes: real, in order, and valid."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise

import pytest

from tocsin.engine import Engine
from tocsin.errors import TocsinError
from tocsin.lab.demo.flights import DDL, KEY, load_changes
from tocsin.lab.demo.script import Script
from tocsin.model.change import ChangeBatch

CHANGES = load_changes(2)


def test_changes_are_in_order_and_numbered():
    assert [c.seq for c in CHANGES] == list(range(1, len(CHANGES) + 1))
    assert all(a.time <= b.time for a, b in pairwise(CHANGES))


def test_every_flight_is_scheduled_once_and_then_leaves_or_is_cancelled():
    lives: dict[tuple, list[str]] = {}
    for change in CHANGES:
        if change.table == "flights":
            status = change.row.get("status", change.op)
            lives.setdefault(tuple(change.row[k] for k in KEY), []).append(status)
    assert len(lives) == 979 + 765
    kinds = Counter(map(tuple, lives.values()))
    assert set(kinds) == {
        ("scheduled", "departed", "arrived"),
        ("scheduled", "departed", "diverted"),
        ("scheduled", "delete"),
    }


def test_an_engine_takes_every_change():
    engine = Engine()
    engine.execute(DDL)
    for table in {c.table for c in CHANGES}:
        own = [c for c in CHANGES if c.table == table]
        rows = [json.loads(c.line())["row"] for c in own]
        batch, bad = ChangeBatch.from_json(
            engine.schema(table), [c.op for c in own], [c.seq for c in own], rows
        )
        assert bad == []
        engine.last_seq = 0
        engine.apply(table, batch)
    assert engine.rows("weather").num_rows == 144


def test_days_are_bounded():
    with pytest.raises(TocsinError, match="1 to 30 days"):
        Script(days=31).changes()
