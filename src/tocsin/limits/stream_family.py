"""Joins of two streams with one signature and one budget: filters, rows, and what came of them.

    events of a side ─► wanted by a filter? ─► key ─► kept rows ─► pairs ─► joined rows ─► match room

Pairs are found for all subscriptions at once; the room filters joined rows as events of a virtual relation. A
key that is hashed is verified pair by pair, and so are bands that do not bound time.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from tocsin.enrich.virtual import column_of, virtual_column
from tocsin.join.scan import band_holds
from tocsin.join.tables import codes_as
from tocsin.language.algebra import TableRef
from tocsin.language.options import ADAPTIVE, Options
from tocsin.language.windows import event_time
from tocsin.limits._kernels.joining import equal_texts
from tocsin.limits.dropped import NEVER
from tocsin.limits.join_keys import is_exact, key_hashes
from tocsin.limits.scores import AdaptiveHeeb, Heeb, Score, score_of
from tocsin.limits.side_filters import SideFilters
from tocsin.limits.stream_rows import ArrivingRows, StreamRows
from tocsin.limits.stream_spec import StreamJoinSpec
from tocsin.match.base import MatchIndex
from tocsin.model.change import ChangeBatch
from tocsin.model.columns import Index, Mask, Rows, TextVector, Vector
from tocsin.model.schema import Stream, Type

__all__ = ["JoinCounts", "JoinedEvents", "StreamFamily"]

_DAY = 86_400_000_000


@dataclass
class JoinCounts:
    """What a family, or a step of it, has seen."""

    events: int = 0  # of both sides
    wanted: int = 0  # ... that have a key and pass a filter
    produced: int = 0  # pairs
    equal: int = 0  # pairs of equal keys, whatever their times
    missed: int = 0  # pairs of equal keys whose older row was dropped
    late: int = 0  # rows older than the clock of event time

    def add(self, other: JoinCounts) -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)

    @property
    def missing(self) -> int:
        """Pairs missed: of those of equal keys, as many as of the produced ones are near enough in time."""
        return round(self.missed * self.produced / self.equal) if self.equal > self.produced else self.missed


class JoinedEvents(NamedTuple):
    """Joined rows in order of seq; `since`: the seq of the older event."""

    rows: Rows
    seq: Index
    since: Index


@dataclass
class _Step:
    """What a step has added, until it is final."""

    counts: JoinCounts = field(default_factory=JoinCounts)
    latest: int = -NEVER  # event time
    now: int = 0


class StreamFamily:
    """Subscriptions of one spec."""

    def __init__(self, name: str, spec: StreamJoinSpec, make_index: Callable[[], MatchIndex]) -> None:
        self.name, self.spec = name, spec
        self.count = 0
        self.mixed = False  # conditions differ by subscription, or are between the streams
        self.sides = (SideFilters(make_index), SideFilters(make_index))
        self.columns: dict[str, tuple[int, str]] = {}  # of joined rows
        self.rows = StreamRows(spec, _score(name, spec))
        self.counts = JoinCounts()
        self.latest = -NEVER  # the latest event time
        self.last_seq = 0
        self.time_columns = ["", ""]  # by side, of event time, once it is known
        self._step: _Step | None = None

    # -- a step ------------------------------------------------------------------------------------

    def join(self, batches: tuple[ChangeBatch | None, ChangeBatch | None], now: int) -> JoinedEvents | None:
        """Keep the events of a step that are wanted; the pairs that are complete with it."""
        step = self._step = _Step(
            now=max(now, self.rows.clock if self.spec.timing.clock == "arrival" else now)
        )
        if self.spec.timing.clock == "arrival":
            self.rows.advance(step.now)
        for side, batch in enumerate(batches):
            if batch is not None and len(batch):
                self._append(side, batch, step)
        zero, one, step.counts.equal = self.rows.pairs()
        step.counts.missed = self.rows.missed()
        if len(zero) and not is_exact(self.spec.keys[0]):
            same = self._equal_keys(zero, one)
            step.counts.equal -= int(np.count_nonzero(~same))
            zero, one = zero[same], one[same]
        if len(zero) and self.spec.bands:
            near = self._in_bands(zero, one)
            zero, one = zero[near], one[near]
        step.counts.produced = len(zero)
        return self._joined(zero, one) if len(zero) else None

    def commit(self) -> None:
        """The step is final."""
        step, self._step = self._step, None
        if step is None:
            return
        self.counts.add(step.counts)
        self.latest = max(self.latest, step.latest)
        timing = self.spec.timing
        if timing.clock == "event":
            clock = self.latest - timing.late if self.latest > -NEVER else -NEVER
            self.rows.settle(clock, self.latest)
        elif timing.clock == "arrival":
            self.rows.settle(step.now, step.now)
        else:
            self.rows.settle(-NEVER, self.last_seq)

    def rollback(self) -> None:
        """The step is not made."""
        if self._step is not None:
            self._step = None
            self.rows.undo()

    @property
    def is_plain(self) -> bool:
        """Whether every pair of equal keys is a pair: then what is missed is known exactly."""
        return not self.spec.bands and self.spec.timing.clock != "event"

    @property
    def is_exact(self) -> bool:
        """Whether what is missed has been counted row by row."""
        return self.is_plain and self.rows.dropped.weight == 1

    def wants(self, side: int) -> dict[str, str]:
        """Columns that rows of a side need: by name, as they are in the stream."""
        names = [own for place, own in self.columns.values() if place == side]
        if not is_exact(self.spec.keys[side]):
            names += self.spec.keys[side].columns
        for band in self.spec.bands:
            names += [column.name for column in (band.left, band.right) if column.relation == str(side)]
        return dict.fromkeys(names, "")

    # -- inside ------------------------------------------------------------------------------------

    def _append(self, side: int, batch: ChangeBatch, step: _Step) -> None:
        """Keep the rows of a batch that some subscription wants."""
        key = self.spec.keys[side]
        vectors = {name: column_of(batch, name) for name in (*self.wants(side), *key.columns)}
        self.rows.open(side, {name: vectors[name].type for name in self.wants(side)})
        hashes, valid = key_hashes(key, tuple(vectors[name] for name in key.columns))
        time, known = self._times(side, batch, step)
        weight = self.sides[side].weights(batch.rows, exact=self.spec.budget is not None)
        rows = np.flatnonzero(valid & known & (weight > 0))
        seq = np.asarray(batch.seq)
        if self.spec.timing.clock == "event":
            clock = self.rows.clock
            step.counts.late += int(np.count_nonzero(time[rows] < clock))
            step.latest = max(step.latest, int(time[known].max(initial=-NEVER)))
        step.counts.events += len(batch)
        step.counts.wanted += len(rows)
        new = ArrivingRows(rows, hashes[rows], seq[rows], time[rows], weight[rows], vectors)
        self.rows.append(side, new)
        self.last_seq = max(self.last_seq, int(seq[-1]))

    def _times(self, side: int, batch: ChangeBatch, step: _Step) -> tuple[Index, Mask]:
        """The time of each event by the family's clock, and which have one."""
        every = np.ones(len(batch), np.bool_)
        if self.spec.timing.clock == "seq":
            return np.asarray(batch.seq), every
        if self.spec.timing.clock == "arrival":
            return np.full(len(batch), step.now, np.int64), every
        self.time_columns[side] = self._time_column(side, batch)
        vector = column_of(batch, self.time_columns[side])
        unit = _DAY if vector.type is Type.DATE else 1
        return vector.values * unit, vector.valid

    def _time_column(self, side: int, batch: ChangeBatch) -> str:
        columns, timing = self.spec.timing.columns, self.spec.timing
        if columns is not None:
            return columns[side]
        stream = batch.relation
        assert isinstance(stream, Stream)
        named = Options(time=timing.time[side] if timing.time is not None else None)
        return event_time(named, TableRef(stream.name, stream.name), stream)

    def _equal_keys(self, zero: Index, one: Index) -> Mask:
        """Which pairs of equal hashes have equal keys."""
        holds, keys = np.ones(len(zero), np.bool_), self.spec.keys
        for left, right, type in zip(keys[0].columns, keys[1].columns, keys[0].types, strict=True):
            _clear_unequal(self._cells(0, left, zero), self._cells(1, right, one), type, holds)
        return holds

    def _in_bands(self, zero: Index, one: Index) -> Mask:
        holds = np.ones(len(zero), np.bool_)
        for band in self.spec.bands:
            left, right = (
                self._cells(int(column.relation), column.name, (zero, one)[int(column.relation)])
                for column in (band.left, band.right)
            )
            holds &= band_holds(band, left, right)
        return holds

    def _cells(self, side: int, name: str, rows: Index) -> Vector:
        buffer = self.rows.buffers[side]
        assert buffer is not None
        return buffer.take(name, rows)

    def _joined(self, zero: Index, one: Index) -> JoinedEvents:
        """Pairs as rows, in order of seq."""
        first, second = self.rows.buffers
        assert first is not None and second is not None
        seqs = first.seq[zero], second.seq[one]
        seq = np.maximum(*seqs)
        if np.any(seq[1:] < seq[:-1]):
            order = np.argsort(seq, kind="stable")
            zero, one, seq = zero[order], one[order], seq[order]
            seqs = seqs[0][order], seqs[1][order]
        columns = [
            (name, first.take(own, zero) if place == 0 else second.take(own, one))
            for name, (place, own) in self.columns.items()
        ]
        return JoinedEvents(Rows(columns, len(zero)), seq, np.minimum(*seqs))

    def _check(self) -> None:
        self.rows._check()
        for side in self.sides:
            side._check()
        assert all(name == virtual_column(*where) for name, where in self.columns.items())
        assert all(side.unconditional + side.conditional == self.count for side in self.sides)


def _score(name: str, spec: StreamJoinSpec) -> Score | None:
    """The score of a family's policy, seeded by its name."""
    if spec.budget is None:
        return None
    seed = zlib.crc32(name.encode())
    if spec.alpha == ADAPTIVE:
        return AdaptiveHeeb(seed=seed)
    return (
        score_of(spec.policy, seed=seed) if spec.alpha is None else Heeb(seed=seed, alpha=float(spec.alpha))
    )


def _clear_unequal(a: Vector, b: Vector, type: Type, holds: Mask) -> None:
    if isinstance(a, TextVector) and isinstance(b, TextVector):
        equal_texts(a.data, a.begin, a.end - a.begin, b.data, b.begin, b.end - b.begin, holds)
        return
    (x, _), (y, _) = codes_as(a, type, {}), codes_as(b, type, {})
    holds &= x == y
