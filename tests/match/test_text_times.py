"""Texts of open streams that hold dates and timestamps compare with DATE and TIMESTAMP literals."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.engine import Engine
from tocsin.language.algebra import And, Between, Column, Compare, In, IsNull, Not, Or, Predicate
from tocsin.language.rewrite import normalise
from tocsin.match.base import MatchIndex, unpack
from tocsin.match.index import Auto
from tocsin.match.published.counting import Counting
from tocsin.match.scan import Scan
from tocsin.model.columns import SparseRows
from tocsin.predicate.compile import flatten
from tocsin.predicate.evaluate import Facts
from tocsin.reference import holds

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
VALUES: list[Any] = [
    None, NOON, date(2024, 5, 1), "2024-05-01", "2024-05-01T12:00:00Z", "2024-05-01 14:00:00+02:00",
    "2024-5-1 12:00", "\u00a02024-05-01 ", "2024-05-02", "2024-13-01", "soon", "", 7, True,
]  # fmt: skip
LITERALS: list[Any] = [NOON, date(2024, 5, 1), date(2024, 5, 2), "2024-05-01", "soon", 7]
OPS = "= != < <= > >=".split()
AT, OTHER = Column("at"), Column("other")

atoms = st.one_of(
    st.builds(
        Compare,
        st.sampled_from([AT, OTHER]),
        st.sampled_from("= != < <= > >=".split()),
        st.sampled_from(LITERALS),
    ),
    st.builds(Between, st.just(AT), st.sampled_from(LITERALS), st.sampled_from(LITERALS)),
    st.builds(In, st.just(AT), st.lists(st.sampled_from(LITERALS), min_size=1, max_size=3).map(tuple)),
    st.just(IsNull(AT)),
)
conditions: st.SearchStrategy[Predicate] = st.recursive(
    atoms,
    lambda inner: st.one_of(
        inner.map(Not),
        st.lists(inner, min_size=2, max_size=3).map(lambda args: And(tuple(args))),
        st.lists(inner, min_size=2, max_size=3).map(lambda args: Or(tuple(args))),
    ),
    max_leaves=5,
)
events = st.fixed_dictionaries({"at": st.sampled_from(VALUES), "other": st.sampled_from(VALUES)})


@given(st.lists(conditions, min_size=1, max_size=6), st.lists(events, min_size=1, max_size=6))
def test_property_every_way_to_match_agrees_with_the_reference(
    filters: list[Predicate], rows: list[dict[str, Any]]
) -> None:
    batch = SparseRows.from_dicts(rows)
    expected = {(n, i) for n, where in enumerate(filters) for i, row in enumerate(rows) if holds(where, row)}
    facts = Facts(batch)
    assert {
        (n, int(i)) for n, where in enumerate(filters) for i in np.flatnonzero(facts.holds(where))
    } == expected
    indexes: list[MatchIndex] = [Scan(), Auto(), Counting()]
    for index in indexes:
        flat = flatten(normalise(where) for where in filters)
        taken = np.flatnonzero(index.supports(flat))
        index.add(taken, flatten(normalise(filters[n]) for n in taken.tolist()))
        for _ in range(2):
            found = list(zip(*(part.tolist() for part in unpack(index.match(batch))), strict=True))
            assert sorted(found) == sorted(pair for pair in expected if pair[0] in taken)
            if isinstance(index, Auto):  # one by one
                for i, row in enumerate(rows):
                    slots = index.match_one(dict(row))
                    assert slots is None or slots.tolist() == [
                        n for n in range(len(filters)) if (n, i) in expected
                    ]


def matching(engine: Engine, where: str, event: dict[str, Any]) -> bool:
    s = engine.subscribe(f"SELECT * FROM s WHERE {where}")
    found = len(engine.publish("s", event)) > 0
    assert bool(engine.explain(s, event).held) == found
    engine.unsubscribe(s)
    return found


def test_a_text_is_the_time_it_holds() -> None:
    engine = Engine()
    engine.execute("CREATE STREAM s")
    event = {"at": "2024-05-01T10:00:00Z", "name": "x"}
    for where in (
        "at >= TIMESTAMP '2024-01-01 00:00:00'",
        "at > DATE '2024-05-01'",
        "at = TIMESTAMP '2024-05-01 12:00:00+02:00'",
        "at BETWEEN DATE '2024-05-01' AND DATE '2024-05-02'",
        "at IN (TIMESTAMP '2024-05-01 10:00:00')",
        "at != DATE '2024-05-01'",
        "at LIKE '2024%' AND at < DATE '2024-06-01'",
        "at IS NOT NULL AND name = 'x'",
        "NOT at < DATE '2024-05-01'",
    ):
        assert matching(engine, where, event), where
    for where in ("at < DATE '2024-05-01'", "name > DATE '2024-05-01'", "NOT name > DATE '2024-05-01'"):
        assert not matching(engine, where, event), where


def test_a_declared_text_column_is_still_text() -> None:
    engine = Engine()
    engine.execute("CREATE STREAM d (at STRING)")
    with pytest.raises(Exception, match=r"TIMESTAMP|text"):
        engine.subscribe("SELECT * FROM d WHERE at >= TIMESTAMP '2024-01-01 00:00:00'")


def test_bulk_subscriptions_and_indexes_on_disk(tmp_path: Path) -> None:
    engine = Engine()
    engine.execute("CREATE STREAM s")
    times = pa.array([datetime(2024, 1, 1), datetime(2025, 1, 1)], pa.timestamp("us", "UTC"))
    engine.subscribe_many("SELECT * FROM s WHERE at > :since", pa.table({"id": [1, 2], "since": times}))
    assert engine.apply("s", [{"at": "2024-05-01"}, {"at": "no time"}]).subscription.tolist() == [1]
    index = Auto()
    index.add(np.array([7]), flatten([normalise(Compare(AT, ">", date(2024, 1, 1)))]))
    index.save(tmp_path)
    again = Auto.open(tmp_path)
    assert unpack(again.match(SparseRows.from_dicts([{"at": "2024-05-01"}])))[0].tolist() == [7]
