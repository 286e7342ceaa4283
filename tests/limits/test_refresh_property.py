"""The law of deferral: what was emitted = the reference at each refresh, nothing between, nothing needless.

Every shape, and aggregates, DISTINCT and top-k over joins; every policy, with a timer that runs as it likes,
so that tables are propagated at any moment and in any order.
"""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from tests.strategies.changes import Model, Row, Step, steps, to_arrow
from tests.strategies.pick import Pick, picked
from tests.strategies.queries import DEFERRED, WrittenQuery, write_query
from tests.strategies.schemas import tables
from tests.strategies.values import TYPES, Values
from tests.strategies.witness import signed
from tocsin.engine import Engine
from tocsin.errors import SumOverflow, TocsinError
from tocsin.language.algebra import Query
from tocsin.limits.groups import RefreshGroups
from tocsin.model.schema import Table, Type
from tocsin.reference import as_bag, evaluate, row_key

POLICIES = ("at once", "naive", "online", "simulate", "adapt")
_TYPES = (Type.BIGINT, Type.DOUBLE, Type.STRING, *TYPES)
_START = datetime(2024, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class DeferralCase:
    tables: tuple[Table, ...]
    written: tuple[WrittenQuery, ...]
    options: tuple[str, ...]
    steps: tuple[Step, ...]
    actions: tuple[tuple[str, int], ...]  # after each step: what, and of which subscription
    timer: tuple[float, ...]


def _deferral_case(pick: Pick, shape: str, least: int = 4, most: int = 12) -> DeferralCase:
    overflows = pick.chance(30)
    values = Values(pick, 3, edges=not overflows)
    made = tables(pick, 1, 2, _TYPES)
    names = [pick.one(tuple(DEFERRED)) if shape == "any" else shape for _ in range(pick.between(1, 3))]
    wanted = tuple(_deferrable(pick, name, made, values) for name in names)
    options = tuple(_options(pick) for _ in wanted)
    drawn = steps(pick, made, values, least, most)
    actions = tuple(
        (pick.one(("", "", "refresh", "content", "stale", "contents", "save", "end")), pick.between(0, 2))
        for _ in drawn
    )
    timer = tuple(pick.one((0.0, 1e-6, 1e-3, 0.02)) for _ in range(8))
    return DeferralCase(made, wanted, options, drawn, actions, timer)


def _deferrable(pick: Pick, shape: str, made: Sequence[Table], values: Values) -> WrittenQuery:
    """A query of a shape; not a SUM of exact numbers over groups, which cannot be deferred."""
    written = write_query(pick, shape, made, values)
    query = written.query
    sums = any(a.function == "SUM" and a.type.is_exact for a in (*query.aggregates, *query.measures))
    return write_query(pick, "filter", made, values) if query.grouped and sums else written


def _options(pick: Pick) -> str:
    within = pick.one(("", ", within = '1 microsecond'", ", within = '5 ms'", ", within = '1 second'"))
    policy = f", policy = '{pick.one(POLICIES)}'" if pick.chance(70) else ""
    return f"refresh = 'on demand'{within}{policy}"


deferral_cases = picked(_deferral_case)


class DeferralWitness:
    """An engine with deferred subscriptions beside a model; compares what was emitted with the reference."""

    def __init__(self, case: DeferralCase) -> None:
        self.case, self.model = case, Model(case.tables)
        self.now, self.ticks = _START, 0
        self.engine = self._prepared(Engine(clock=lambda: self.now))
        self.received: list[Any] = []
        self.engine.on_delta(self.received.extend)
        for table in case.tables:
            self.engine.execute(str(table))
        self.queries: dict[int, Query] = {}
        self.emitted: dict[int, list[Row]] = {}
        for written, options in zip(case.written, case.options, strict=True):
            self._subscribe(written, options)

    def _prepared(self, engine: Engine) -> Engine:
        groups = engine._roster.rooms["refresh"]
        assert isinstance(groups, RefreshGroups)
        groups.timer = self._timer
        return engine

    def _timer(self) -> float:
        self.ticks += 1
        return sum(self.case.timer) * self.ticks + self.case.timer[self.ticks % len(self.case.timer)]

    def _subscribe(self, written: WrittenQuery, options: str) -> None:
        sql = f"{written.sql} WITH ({options})"
        key = self.engine.subscribe(sql).id
        assert str(self.engine.query(key)) == str(self.engine._parser.parse(str(self.engine.query(key))))
        self.queries[key], self.emitted[key] = written.query, self._answer(written.query)
        self._compare_content(self.engine.content(key), key)

    def run(self) -> None:
        for step, (what, which) in zip(self.case.steps, self.case.actions, strict=True):
            self.now += timedelta(seconds=1)
            assert not self._send(step), "nothing is emitted between refreshes"
            for change in step.changes:
                self.model.apply(step.table, change)
            if self.queries:
                getattr(self, f"_{what or 'nothing'}")(list(self.queries)[which % len(self.queries)])
            self.engine._check()
        for key in list(self.queries):
            self._refresh(key)

    def _send(self, step: Step) -> list[Any]:
        name, changes = step.table.name, step.changes
        if step.batch:
            batch = to_arrow(step.table, [c.row for c in changes], [c.op for c in changes])
            return list(self.engine.apply(name, batch, net=step.net))
        return list(getattr(self.engine, changes[0].op)(name, changes[0].row))

    def _nothing(self, key: int) -> None:
        pass

    def _refresh(self, key: int) -> None:
        """The deltas are just the difference to the reference now; another refresh has none."""
        self.received.clear()
        try:
            answer = self._answer(self.queries[key])
        except TocsinError:
            with pytest.raises(SumOverflow, match=rf"subscription {key}: (BIGINT|DECIMAL) overflow"):
                self.engine.refresh(key)
            self._stale(key)
            return
        found = list(self.engine.refresh(key))
        assert signed(self.received) == signed(found)
        self._compare_deltas(found, key, answer)
        assert not len(self.engine.refresh(key)), "a needless delta"
        self._stale(key)

    def _compare_deltas(self, found: list[Any], key: int, answer: list[Row]) -> None:
        differs: Counter[Hashable] = as_bag(answer)
        differs.subtract(as_bag(self.emitted[key]))
        wanted = {row: n for row, n in differs.items() if n}
        assert signed(found) == ({key: [wanted]} if wanted else {})
        assert all(delta.seq == self.engine.last_seq for delta in found)
        self.emitted[key] = answer

    def _content(self, key: int) -> None:
        """It refreshes first, and listeners receive the deltas."""
        self.received.clear()
        try:
            answer = self._answer(self.queries[key])
        except TocsinError:
            with pytest.raises(SumOverflow, match=r"(BIGINT|DECIMAL) overflow"):
                self.engine.content(key)
            return
        content = self.engine.content(key)
        self._compare_deltas(self.received, key, answer)
        self._compare_content(content, key)

    def _stale(self, key: int) -> None:
        self._compare_content(self.engine.content(key, stale=True), key)

    def _contents(self, key: int) -> None:
        try:
            answers = {key: self._answer(query) for key, query in self.queries.items()}
        except TocsinError:
            return
        found = list(self.engine.contents())
        for key, answer in answers.items():
            assert as_bag(d.row for d in found if d.subscription == key) == as_bag(answer)
            self.emitted[key] = answer

    def _save(self, key: int) -> None:
        """What was not delivered is delivered by the engine that is loaded."""
        with tempfile.TemporaryDirectory() as folder:
            self.engine.save(Path(folder) / "saved")
            self.engine = self._prepared(Engine.load(Path(folder) / "saved", clock=lambda: self.now))
        self.received = []
        self.engine.on_delta(self.received.extend)
        for other in self.queries:
            self._stale(other)

    def _end(self, key: int) -> None:
        """An end sends what was delivered, as -1; here the subscription is removed, which sends nothing."""
        self.engine.unsubscribe(key)
        del self.queries[key], self.emitted[key]

    def _compare_content(self, content: list[Row], key: int) -> None:
        query, expected = self.queries[key], self.emitted[key]
        if query.order:
            assert [row_key(row) for row in content] == [row_key(row) for row in expected], query
        assert as_bag(content) == as_bag(expected), query
        assert all(list(row) == [item.name for item in query.items] for row in content)

    def _answer(self, query: Query) -> list[Row]:
        return evaluate(query, self.model.database(), self.model.keys)


@pytest.mark.parametrize("shape", [*DEFERRED, "any"])
def test_emitted_is_the_answer_at_each_refresh(shape: str) -> None:
    @given(deferral_cases(shape))
    def check(case: DeferralCase) -> None:
        DeferralWitness(case).run()

    check()


def test_many_changes() -> None:
    """10,000 changes and more than 500 refreshes in the long version, some in the others."""
    cases, changes = (20, 500) if settings().max_examples >= 500 else (2, 60)
    for seed in range(cases):
        pick = Pick(random.Random(seed).randbytes(100 * changes))
        try:
            witness = DeferralWitness(_deferral_case(pick, "any", changes, changes))
        except SumOverflow:
            continue  # at subscribe, over the first rows
        witness.run()
