"""The group room without shared state: each answer is computed again at each moment that changes its rows.

The delta of a moment is the difference of two answers. O(rows) per subscription and moment.

The rows of joins come from a `JoinScan` that has the inner queries under the same slots.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tocsin.group.explain import explain_row
from tocsin.group.needs import Needs
from tocsin.group.plain import answer_of
from tocsin.group.source import RowBag, SignedRows, rows_of, rows_of_table, table_changes
from tocsin.join.scan import JoinScan
from tocsin.join.scan import content_of as joined_content
from tocsin.language.algebra import Query
from tocsin.language.shape import Plan, Shape
from tocsin.model.columns import Index, Rows
from tocsin.model.delta import Deltas
from tocsin.rank.sums import overflow_in
from tocsin.room import Room, ScanRoom
from tocsin.store.plans import FlatPlans
from tocsin.store.step import Step

__all__ = ["GroupScan", "check_sums", "content_of", "needs_of"]


class GroupScan(ScanRoom):
    """Answers each plan by itself."""

    name = "group"
    shapes = (Shape.GROUP, Shape.RANKED)

    def __init__(self, join: Callable[[], Room] = JoinScan) -> None:
        super().__init__()
        self._join = join()
        self._joined: set[int] = set()  # slots with an inner query in the join room

    def remove(self, slots: Index) -> None:
        mine = [slot for slot in slots.tolist() if slot in self._joined]
        if mine:
            self._join.remove(np.array(mine, np.int64))
            self._joined.difference_update(mine)
        super().remove(slots)

    def deltas(self, step: Step) -> Deltas:
        self._enter_joins(step)
        found = self._join.deltas(step) if self._joined else Deltas.none()
        parts = []
        for slot, plan in self._plans.items():
            if any(table.name in step.changed for table in plan.query.tables):
                parts.append(self._deltas(slot, plan, found, step))
        return Deltas.concat(parts).consolidate()

    def _enter_joins(self, step: Step) -> None:
        """Register the inner queries of new joins."""
        for slot, plan in self._plans.items():
            if len(plan.query.tables) > 1 and slot not in self._joined:
                self._join.add(np.array([slot]), [needs_of(plan.query, step).inner(plan)])
                self._joined.add(slot)

    def _deltas(self, slot: int, plan: Plan, joined: Deltas, step: Step) -> Deltas:
        needs = needs_of(plan.query, step)
        changes = self._changes(slot, plan, needs, joined, step)
        if not len(changes):
            return Deltas.none()
        answers, seqs = [], []
        with overflow_in(slot):
            for seq, rows in RowBag(inner_rows(plan, needs, step), changes).moments():
                answers.append(answer_of(plan.query, needs, rows))
                seqs.append(seq)
        parts = []
        for before, after, seq in zip(answers, answers[1:], seqs[1:], strict=False):
            assert seq is not None
            for rows, sign in ((before, -1), (after, 1)):
                parts.append(Deltas.of(np.full(len(rows), seq), slot, sign, rows, np.arange(len(rows))))
        return Deltas.concat(parts).consolidate()

    def _changes(self, slot: int, plan: Plan, needs: Needs, joined: Deltas, step: Step) -> SignedRows:
        if slot not in self._joined:
            return table_changes(plan, needs.name, step)
        mine = joined.take(joined.subscription == slot)
        return rows_of(mine) if len(mine) else SignedRows(mine.seq, mine.sign, Rows((), 0))

    def content(self, slot: int, step: Step) -> Rows:
        return content_of(slot, self._plans[slot], step)

    def check_answers(self, slots: Index, plans: Sequence[Plan] | FlatPlans, step: Step) -> None:
        check_sums(self, slots, plans, step)

    def explain(self, plan: Plan, place: int, slot: int, step: Step) -> tuple[bool, tuple[str, ...]]:
        return explain_row(plan, place, slot, step)


def needs_of(query: Query, step: Step) -> Needs:
    """What a query reads."""
    return Needs.of(query, {name: store.schema for name, store in step.tables.items()})


def inner_rows(plan: Plan, needs: Needs, step: Step) -> Rows:
    """The rows that a plan reads, after the step."""
    if len(plan.query.tables) == 1:
        return rows_of_table(plan, needs.name, step)
    return joined_content(needs.inner(plan), step)


def content_of(slot: int, plan: Plan, step: Step) -> Rows:
    """The answer of a plan over the database as it is; `slot` names it if a sum exceeds BIGINT."""
    needs = needs_of(plan.query, step)
    with overflow_in(slot):
        return answer_of(plan.query, needs, inner_rows(plan, needs, step))


def check_sums(room: Room, slots: Index, plans: Sequence[Plan] | FlatPlans, step: Step) -> None:
    """Raise a SumOverflow if a SUM over the current rows exceeds BIGINT."""
    if isinstance(plans, FlatPlans):
        if sums_integers(plans.query):
            room.contents(slots, step)
        return
    for slot, plan in zip(slots.tolist(), plans, strict=True):
        if sums_integers(plan.query):
            room.content(slot, step)


def sums_integers(query: Query) -> bool:
    """Whether an aggregate of SELECT or HAVING is a SUM of BIGINTs."""
    return any(a.function == "SUM" and a.type.is_exact for a in (*query.aggregates, *query.measures))
