"""Joins of streams, each subscription by itself and without a budget: what the streams room is compared with.

All rows that may still have partners are kept, and every new row is paired with all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tocsin.enrich.virtual import column_of, virtual_column, virtual_plan
from tocsin.join.scan import band_holds
from tocsin.join.tables import codes_as
from tocsin.language.algebra import Column, TableRef
from tocsin.language.options import Options
from tocsin.language.shape import Plan, Shape
from tocsin.language.windows import event_time
from tocsin.limits.join_keys import NEVER
from tocsin.limits.stream_spec import StreamJoinSpec
from tocsin.model.change import ChangeBatch
from tocsin.model.columns import Index, Mask, Rows
from tocsin.model.delta import Deltas
from tocsin.model.schema import Stream, Type
from tocsin.predicate.evaluate import Facts
from tocsin.room import ScanRoom
from tocsin.store.plans import FlatPlans
from tocsin.store.step import Step

__all__ = ["StreamJoinScan"]

_DAY = 86_400_000_000


@dataclass
class _Kept:
    """Rows of one side: columns by name, seqs, times."""

    seq: Index = field(default_factory=lambda: np.empty(0, np.int64))
    time: Index = field(default_factory=lambda: np.empty(0, np.int64))
    rows: Rows | None = None

    def plus(self, batch: ChangeBatch, seq: Index, time: Index, keep: Mask) -> _Kept:
        columns = [(f.name, column_of(batch, f.name)) for f in batch.relation.fields]
        rows = Rows(columns, len(batch)).take(np.flatnonzero(keep))
        whole = rows if self.rows is None else Rows.concat([self.rows, rows])
        return _Kept(np.append(self.seq, seq[keep]), np.append(self.time, time[keep]), whole)

    def take(self, mask: Mask) -> _Kept:
        rows = None if self.rows is None else self.rows.take(np.flatnonzero(mask))
        return _Kept(self.seq[mask], self.time[mask], rows)


@dataclass
class _Reading:
    """One subscription."""

    spec: StreamJoinSpec
    kept: tuple[_Kept, _Kept] = field(default_factory=lambda: (_Kept(), _Kept()))
    clock: int = -NEVER
    latest: int = -NEVER


class StreamJoinScan(ScanRoom):
    """Pairs each event with all that are kept, plan by plan."""

    name = "streams"
    shapes = (Shape.STREAMJOIN,)

    def __init__(self) -> None:
        super().__init__()
        self._readings: dict[int, _Reading] = {}
        self._staged: dict[int, _Reading] = {}

    def add(self, slots: Index, plans: Any) -> None:
        super().add(slots, plans)
        for n, slot in enumerate(slots.tolist()):
            plan = plans.plan(n) if isinstance(plans, FlatPlans) else plans[n]
            self._readings[slot] = _Reading(StreamJoinSpec.of(plan.query))

    def remove(self, slots: Index) -> None:
        super().remove(slots)
        for slot in slots.tolist():
            del self._readings[slot]

    def reads(self, stream: str) -> bool:
        return any(stream in reading.spec.streams for reading in self._readings.values())

    def deltas(self, step: Step) -> Deltas:
        parts = []
        for slot, plan in self._plans.items():
            if any(name in step.events for name in self._readings[slot].spec.streams):
                parts.append(self._deltas(slot, plan, step))
        return Deltas.concat(parts)

    def commit(self) -> None:
        self._readings |= self._staged
        self._staged = {}

    def rollback(self) -> None:
        self._staged = {}

    def content(self, slot: int, step: Step) -> Rows:
        return Rows((), 0)

    def _deltas(self, slot: int, plan: Plan, step: Step) -> Deltas:
        old = self._readings[slot]
        spec, timing = old.spec, old.spec.timing
        clock = max(old.clock, step.now) if timing.clock == "arrival" else old.clock
        kept, latest, first = list(old.kept), old.latest, []
        for side, name in enumerate(spec.streams):
            if timing.clock == "arrival":
                kept[side] = kept[side].take(kept[side].time + timing.reach(side) >= clock)
            first.append(len(kept[side].seq))
            batch = step.events.get(name)
            if batch is not None and len(batch):
                time, known = _times(spec, side, batch, clock)
                latest = max(latest, int(time[known].max(initial=-NEVER)))
                kept[side] = kept[side].plus(batch, np.asarray(batch.seq), time, known)
        found = self._pairs(slot, plan, spec, kept, first)
        if timing.clock == "event" and latest > -NEVER:
            clock = latest - timing.late
            for side in range(2):
                if timing.reach(side) < NEVER:
                    kept[side] = kept[side].take(kept[side].time + timing.reach(side) >= clock)
        self._staged[slot] = _Reading(spec, (kept[0], kept[1]), clock, latest)
        return found

    def _pairs(
        self, slot: int, plan: Plan, spec: StreamJoinSpec, kept: list[_Kept], first: list[int]
    ) -> Deltas:
        """All pairs with a new row that satisfy the conditions."""
        left, right = kept
        if left.rows is None or right.rows is None:
            return Deltas.none()
        zero = np.repeat(np.arange(len(left.seq)), len(right.seq))
        one = np.tile(np.arange(len(right.seq)), len(left.seq))
        holds = (zero >= first[0]) | (one >= first[1])
        apart = right.time[one] - left.time[zero]
        holds &= (apart >= spec.timing.low) & (apart <= spec.timing.high)
        zero, one = zero[holds], one[holds]
        cells = [
            (virtual_column(place, name), vector.take(index))
            for place, (rows, index) in enumerate(((left.rows, zero), (right.rows, one)))
            for name, vector in rows.columns
        ]
        joined = Rows(cells, len(zero))
        passing = _equal(spec, joined)
        for band in spec.bands:
            ends = [
                joined.vectors(virtual_column(int(c.relation), c.name))[0] for c in (band.left, band.right)
            ]
            passing &= band_holds(band, ends[0], ends[1])
        virtual = virtual_plan(plan)
        passing &= Facts(joined).matches(virtual.filters[0])
        shown = {i.name: i.expression.name for i in virtual.query.items if isinstance(i.expression, Column)}
        at = np.flatnonzero(passing)
        seq = np.maximum(left.seq[zero[at]], right.seq[one[at]])
        return Deltas.of(seq, slot, 1, joined.take(at).project(shown), np.arange(len(at)))


def _times(spec: StreamJoinSpec, side: int, batch: ChangeBatch, clock: int) -> tuple[Index, Mask]:
    every, timing = np.ones(len(batch), np.bool_), spec.timing
    if timing.clock != "event":
        return (np.asarray(batch.seq) if timing.clock == "seq" else np.full(len(batch), clock)), every
    if timing.columns is not None:
        column = timing.columns[side]
    else:
        stream, named = batch.relation, Options(time=timing.time[side] if timing.time is not None else None)
        assert isinstance(stream, Stream)
        column = event_time(named, TableRef(stream.name, stream.name), stream)
    vector = column_of(batch, column)
    return vector.values * (_DAY if vector.type is Type.DATE else 1), vector.valid


def _equal(spec: StreamJoinSpec, joined: Rows) -> Mask:
    """Where the columns of the join key are equal."""
    holds = np.ones(len(joined), np.bool_)
    for left, right, type in zip(spec.keys[0].columns, spec.keys[1].columns, spec.keys[0].types, strict=True):
        a, b = joined.vectors(virtual_column(0, left))[0], joined.vectors(virtual_column(1, right))[0]
        holds &= a.valid & b.valid
        if type is Type.STRING:
            holds &= a.values.astype(object) == b.values.astype(object)
        else:
            (x, exact), (y, also) = codes_as(a, type, {}), codes_as(b, type, {})
            holds &= exact & also & (x == y)
    return holds
