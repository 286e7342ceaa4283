"""Joins of two streams with one signature and one budget: filters, rows, and what came of them.

    events of a side ─► wanted by a filter? ─► key ─► kept rows ─► pairs ─► joined rows ─► match room

Pairs are found for all subscriptions at once; the room filters joined rows as events of a virtual relation. A
key that is hashed is verified pair by pair, and so are bands that do not bound time.

A family is saved as Arrow tables, with which a new engine goes on and decides alike:

    family     name, counts, clocks, columns, and the models (pickled), in one row
    side0, side1     kept rows: code of the key, seq, time, weight, columns
    keys       keys by code; codes that are free, in order
    dropped    the log of dropped rows

Pickles are read by a reader that knows the classes of scores, of models and of NumPy's arrays, and nothing
else.
"""

from __future__ import annotations

import io
import json
import pickle
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tocsin.enrich.virtual import column_of, virtual_column
from tocsin.errors import TocsinError
from tocsin.join.scan import band_holds
from tocsin.join.tables import codes_as
from tocsin.language.algebra import TableRef
from tocsin.language.options import ADAPTIVE, Options
from tocsin.language.windows import event_time
from tocsin.limits._kernels.joining import FREE, FREED, LIVE, USED, equal_texts
from tocsin.limits.join_keys import NEVER, is_exact, key_hashes
from tocsin.limits.scores import AdaptiveHeeb, Heeb, Score, score_of
from tocsin.limits.stream_rows import ArrivingRows, StreamRows
from tocsin.limits.stream_spec import StreamJoinSpec
from tocsin.match.base import MatchIndex
from tocsin.match.nested import match_computed
from tocsin.model.change import ChangeBatch
from tocsin.model.columns import Index, Mask, Rows, TextVector, Vector, longer
from tocsin.model.schema import Stream, Type
from tocsin.predicate.flat import FlatFilters

__all__ = ["JoinCounts", "JoinedEvents", "SideFilters", "StreamFamily", "read_family", "write_family"]


class SideFilters:
    """Conditions of subscriptions on one side, by slot."""

    def __init__(self, make_index: Callable[[], MatchIndex]) -> None:
        self._make_index = make_index
        self._index: MatchIndex | None = None
        self._tested: Mask = np.zeros(0, np.bool_)  # by slot: is it in the index?
        self.unconditional = 0
        self.conditional = 0

    def add(self, slots: Index, filters: FlatFilters) -> None:
        free = np.zeros(filters.count, np.bool_)
        free[filters.owner[filters.sizes == 0]] = True
        top = int(slots.max(initial=-1)) + 1
        if top > len(self._tested):
            self._tested = longer(self._tested, max(64, 2 * top))
        if not free.all():
            if self._index is None:
                self._index = self._make_index()
            self._index.add(slots[~free], filters.take(~free))
        self._tested[slots] = ~free
        self.unconditional += int(free.sum())
        self.conditional += int((~free).sum())

    def remove(self, slots: Index) -> None:
        tested = self._tested[slots]
        if tested.any():
            assert self._index is not None
            self._index.remove(slots[tested])
        self.unconditional -= int((~tested).sum())
        self.conditional -= int(tested.sum())
        self._tested[slots] = False

    def weights(self, rows: Rows, exact: bool) -> NDArray[np.int32]:
        """How many want each row; unless `exact`, it matters only whether any does."""
        out = np.full(len(rows), self.unconditional, np.int32)
        if not self.conditional or (self.unconditional and not exact):
            return out
        assert self._index is not None
        row = match_computed(self._index, rows) & 0xFFFFFFFF
        return out + np.bincount(row, minlength=len(rows)).astype(np.int32)

    def _check(self) -> None:
        assert self.conditional == int(self._tested.sum())
        if self._index is not None:
            self._index._check()
            assert self._index.stats()["subscriptions"] == self.conditional


_DAY = 86_400_000_000


@dataclass
class JoinCounts:
    """What a family, or a step of it, has seen."""

    events: int = 0  # of both sides
    wanted: int = 0  # ... that have a key and pass a filter
    produced: int = 0  # pairs
    equal: int = 0  # pairs of equal keys, near enough in time
    missed: int = 0  # ... whose older row was dropped
    late: int = 0  # rows older than the clock of event time

    def add(self, other: JoinCounts) -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)

    @property
    def missing(self) -> int:
        """Pairs missed: of those of equal keys, the share of the produced ones that satisfy further bands."""
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
        zero, one = self.rows.pairs()
        step.counts.missed = self.rows.missed()
        if len(zero) and not is_exact(self.spec.keys[0]):
            same = self._equal_keys(zero, one)
            zero, one = zero[same], one[same]
        step.counts.equal = len(zero)
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
        """Whether every pair of equal keys, near in time, is a pair: then what is missed is known exactly."""
        return not self.spec.bands

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


_OWN = ("tocsin.limits.scores", "tocsin.limits.models")
_NUMPY = {
    ("numpy", "dtype"), ("numpy", "ndarray"), ("numpy", "float64"), ("numpy", "int64"), ("numpy", "float32"),
    ("numpy._core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "scalar"),
    ("numpy._core.numeric", "_frombuffer"), ("collections", "deque"), ("collections", "OrderedDict"),
    ("collections", "defaultdict"), ("builtins", "set"), ("builtins", "frozenset"), ("builtins", "slice"),
}  # fmt: skip


class _ModelUnpickler(pickle.Unpickler):
    """Reads objects of known classes."""

    def find_class(self, module: str, name: str) -> Any:
        known = (module, name) in _NUMPY or any(module == own or module.startswith(f"{own}.") for own in _OWN)
        if not known or "." in name:
            raise TocsinError(f"a saved model has a {module}.{name}", hint="save the engine again")
        return super().find_class(module, name)


def write_family(name: str, family: StreamFamily) -> dict[str, Any]:
    """The tables of a family."""
    rows, keys = family.rows, family.rows.keys.arrays
    used = rows.keys.used
    types = [{} if b is None else {n: c.type.value for n, c in b.columns.items()} for b in rows.buffers]
    about = {
        "name": name,
        "counts": vars(family.counts),
        "latest": family.latest,
        "last_seq": family.last_seq,
        "clock": rows.clock,
        "evicted": rows.evicted,
        "mixed": family.mixed,
        "since_purge": rows._since_purge,
        "halvings": rows.dropped.halvings,
        "columns": types,
        "time_columns": family.time_columns,
        "table": len(keys.table),  # its bytes count, so it is to be as large again
        "free": keys.free[: keys.state[FREE]].tolist(),
    }
    model = pickle.dumps(rows.score)
    out = {"family": pa.table({"about": [json.dumps(about)], "model": pa.array([model], pa.large_binary())})}
    for side, buffer in enumerate(rows.buffers):
        if buffer is not None:
            every = np.arange(buffer.count)
            own = {f: getattr(buffer, f)[: buffer.count] for f in ("code", "seq", "time", "weight")}
            cells = {f"column {n}": buffer.take(n, every).arrow for n in buffer.columns}
            out[f"side{side}"] = pa.table({**own, **cells})
    out["keys"] = pa.table({"key": keys.key[:used]})
    log, count = rows.dropped, rows.dropped.count
    own = {f: getattr(log, f)[:count] for f in ("side", "code", "time", "draw")}
    out["dropped"] = pa.table({**own, "expires": log.expires()})
    return out


def read_family(tables: Mapping[str, Any], families: Mapping[str, StreamFamily]) -> None:
    """Fill the family of that name, if it has subscriptions."""
    about = json.loads(tables["family"]["about"][0].as_py())
    family = families.get(about["name"])
    if family is None:
        return
    rows = family.rows
    rows.score = _ModelUnpickler(io.BytesIO(tables["family"]["model"][0].as_py())).load()
    family.counts = JoinCounts(**about["counts"])
    family.latest, family.last_seq = about["latest"], about["last_seq"]
    family.time_columns = list(about["time_columns"])
    family.mixed |= about.get("mixed", False)  # by subscriptions that have left, too
    rows.clock, rows.evicted, rows._since_purge = about["clock"], about["evicted"], about["since_purge"]
    _read_keys(family, tables["keys"], about["free"], about["table"])
    for side, columns in enumerate(about["columns"]):
        if f"side{side}" in tables:
            _read_side(family, side, tables[f"side{side}"], {n: Type(t) for n, t in columns.items()})
    log, saved = rows.dropped, tables["dropped"]
    log.halvings = about["halvings"]
    sides, code, draw = (np.asarray(saved[name]) for name in ("side", "code", "draw"))
    if "time" in saved.column_names:
        time = np.asarray(saved["time"])
    else:  # of an earlier version, which estimated what is missed by event time
        reach = np.array([family.spec.timing.reach(side) for side in range(2)])
        time = np.asarray(saved["expires"]) - reach[sides]
        family.mixed |= family.spec.timing.clock == "event"
    log.load(rows.keys, sides, code, time, draw)


def _read_keys(family: StreamFamily, saved: Any, free: list[int], table: int) -> None:
    keys = family.rows.keys
    used = len(saved)
    keys._reserve(used)
    arrays = keys.arrays
    arrays.key[:used] = np.asarray(saved["key"])
    arrays.heads[:, :used], arrays.gone[:, :used] = -1, 0
    arrays.heads[0, free] = FREED
    arrays.free[: len(free)] = free
    arrays.state[USED], arrays.state[FREE], arrays.state[LIVE] = used, len(free), used - len(free)
    keys.replace_table(table)


def _read_side(family: StreamFamily, side: int, saved: Any, columns: dict[str, Type]) -> None:
    buffer = family.rows.open(side, columns)
    vectors = {
        name: Vector.from_arrow(type, saved[f"column {name}"].combine_chunks())
        for name, type in columns.items()
    }
    code, seq, time, weight = (np.asarray(saved[name]) for name in ("code", "seq", "time", "weight"))
    buffer.append(np.arange(len(saved)), code, seq, time, weight, vectors)
    buffer.link(family.rows.keys.arrays.heads[side])
    family.rows._first[side] = buffer.count
