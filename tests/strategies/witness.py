"""A witness: an engine, a client and a plain model side by side, compared after every change.

the law         content(after) = content(before) + deltas, for engine and client
the meaning     content = the query over the tables, by brute force
no noise        the deltas of one change are exactly the difference of two answers,
                no row both removed and added, -1 before +1
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from itertools import groupby
from typing import Any

import pytest

from tests.strategies.changes import Change, Model, Row, Step, to_arrow
from tests.strategies.queries import WrittenQuery
from tocsin.client import Client
from tocsin.engine import Engine
from tocsin.errors import TocsinError
from tocsin.language.algebra import Query
from tocsin.model.delta import Delta
from tocsin.model.schema import Table
from tocsin.reference import as_bag, evaluate, row_key

__all__ = ["Witness", "signed"]

Signed = dict[Hashable, int]


class Witness:
    """Takes a case step by step; any method raises AssertionError when the three disagree."""

    def __init__(self, tables: Sequence[Table]) -> None:
        self.engine, self.client, self.model = Engine(), Client(), Model(tables)
        self.queries: dict[int, Query] = {}
        self.answers: dict[int, list[Row]] = {}  # by the reference, now
        self.never: set[int] = set()  # subscriptions said to never match
        self.last_seq = 0
        for table in tables:
            self.engine.execute(str(table))

    def subscribe(self, written: WrittenQuery) -> int:
        subscription = self.engine.subscribe(written.sql)
        key = subscription.id
        self.queries[key] = written.query
        if any("never match" in warning for warning in subscription.warnings):
            self.never.add(key)
        self.answers[key] = self._answer(key)
        self.client.start(subscription, self.engine.content(subscription))
        self.check()
        return key

    def unsubscribe(self, key: int) -> None:
        self.engine.unsubscribe(key)
        self.client.stop(key)
        del self.queries[key], self.answers[key]

    def step(self, step: Step) -> None:
        """Apply a step to the model and to the engine, and compare."""
        self.compare([(step.table, change) for change in step.changes], self.send(step), net=step.net)

    def send(self, step: Step) -> list[Delta]:
        """Apply a step to the engine alone."""
        name, changes = step.table.name, step.changes
        if step.batch:
            batch = to_arrow(step.table, [c.row for c in changes], [c.op for c in changes])
            return list(self.engine.apply(name, batch, net=step.net))
        [change] = changes
        return list(getattr(self.engine, change.op)(name, change.row))

    def compare(
        self, changes: Iterable[tuple[Table, Change]], deltas: Sequence[Delta], *, net: bool = False
    ) -> None:
        """Make the changes in the model; the deltas must say just what became different."""
        wanted: dict[int, list[Signed]] = {key: [] for key in self.queries}
        for table, change in changes:
            self.model.apply(table, change)
            for key, differs in self._advance(table).items():
                wanted[key].append(differs)
        if net:
            wanted = {key: _without_empty([_sum(parts)]) for key, parts in wanted.items()}
        found = signed(deltas)
        assert {key: parts for key, parts in wanted.items() if parts} == found
        seqs = [delta.seq for delta in deltas]
        assert seqs == sorted(seqs), "deltas are in order of seq"
        assert not seqs or seqs[0] > self.last_seq, "a new change has a new seq"
        self.last_seq = max([self.last_seq, *seqs])
        self.client.receive(deltas)
        self.check(deltas)

    def step_or_overflow(self, step: Step) -> bool:
        """A step; if it makes a sum too great for BIGINT, it must fail and change nothing."""
        try:
            self._foresee(step)
        except TocsinError:
            with pytest.raises(TocsinError, match="overflow"):
                self.send(step)
            self.check()
            return False
        self.step(step)
        return True

    def _foresee(self, step: Step) -> None:
        ahead = copy.deepcopy(self.model)
        for change in step.changes:
            ahead.apply(step.table, change)
            for query in self.queries.values():
                evaluate(query, ahead.database(), ahead.keys)

    def check(self, deltas: Iterable[Delta] = ()) -> None:
        """All contents are what the reference says; rows have the selected columns, in order."""
        for delta in deltas:
            assert list(delta.row) == [item.name for item in self.queries[delta.subscription].items]
        for key, query in self.queries.items():
            content = self.engine.content(key)
            assert all(list(row) == [item.name for item in query.items] for row in content)
            expected = self.answers[key]
            assert not expected or query.aggregates or key not in self.never, query
            if query.order and not query.partition:
                assert [row_key(row) for row in content] == [row_key(row) for row in expected], query
            assert as_bag(content) == as_bag(expected), query
            assert as_bag(self.client.content(key)) == as_bag(expected), query

    def _answer(self, key: int) -> list[Row]:
        return evaluate(self.queries[key], self.model.database(), self.model.keys)

    def _advance(self, table: Table) -> dict[int, Signed]:
        """What a change of this table made different, by subscription."""
        out = {}
        for key, query in self.queries.items():
            if any(ref.name == table.name for ref in query.tables):
                before, self.answers[key] = self.answers[key], self._answer(key)
                differs = as_bag(self.answers[key])
                differs.subtract(as_bag(before))
                if any(differs.values()):
                    out[key] = {row: n for row, n in differs.items() if n}
        return out


def signed(deltas: Iterable[Delta]) -> dict[int, list[Signed]]:
    """Deltas by subscription, and there by seq: row -> how often it was added (negative: removed)."""
    out: dict[int, list[Signed]] = {}
    ordered = sorted(deltas, key=lambda d: (d.subscription, d.seq))  # stable: signs stay in order
    for (key, _), group in groupby(ordered, key=lambda d: (d.subscription, d.seq)):
        listed = list(group)
        signs = [delta.sign for delta in listed]
        assert set(signs) <= {-1, 1}
        assert signs == sorted(signs), "-1 is before +1"
        removed = {row_key(d.row) for d in listed if d.sign < 0}
        added = {row_key(d.row) for d in listed if d.sign > 0}
        assert not removed & added, "a row removed and added again is no change"
        total: Counter[Hashable] = Counter()
        for delta in listed:
            total[row_key(delta.row)] += delta.sign
        out.setdefault(key, []).append(dict(total))
    return out


def _sum(parts: Iterable[Signed]) -> Signed:
    total: dict[Hashable, int] = {}
    for part in parts:
        for row, n in part.items():
            total[row] = total.get(row, 0) + n
    return {row: n for row, n in total.items() if n}


def _without_empty(parts: list[Signed]) -> list[Any]:
    return [part for part in parts if part]
