"""All windows in use: which stream feeds which, and their changes in a step.

    events by stream ─► each window of the stream stages them ─► positions, by seq ─► versions of rows

Two windows of one query may be of one stream (by two columns of event time), so every change of every window
has a position of its own.

>>> from tocsin.model.change import ChangeBatch
>>> from tocsin.model.schema import Field, Type
>>> hits, windows = Stream("hits", (Field("ms", Type.BIGINT),)), WindowSet()
>>> store = windows.begin(WindowSpec("hits", 60_000_000), hits, (), datetime(2024, 5, 1, tzinfo=UTC))
>>> batch, _ = ChangeBatch.from_dicts(hits, [{"ms": 40}, {"ms": 70}], seqs=[1, 2])
>>> moved = windows.stage({"hits": batch})
>>> [changed.new.tolist() for changed in windows.place(moved, []).values()]
[[0, 1]]
>>> store.commit(); len(store), windows.expire(datetime(2024, 5, 1, 0, 1, tzinfo=UTC))
(2, {"hits WITH (window = '1 minute')": 2})
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from tocsin.language.windows import WindowSpec
from tocsin.model.change import ChangeBatch
from tocsin.model.columns import Index, Rows, Vector
from tocsin.model.schema import Field, Stream
from tocsin.store.presence import KeyWindow
from tocsin.store.tables import Changed
from tocsin.store.windows import Past, WindowState, WindowStore

__all__ = ["WindowSet"]

_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
_TIME = "_time"
"""The column of a saved window that says when an event counts from."""


def _microseconds(when: datetime) -> int:
    return (when - _EPOCH) // _MICROSECOND


class WindowSet:
    """The stores of the windows in use, by the names of their tables."""

    def __init__(self) -> None:
        self.stores: dict[str, WindowStore] = {}
        self._of_stream: dict[str, list[WindowStore]] = {}
        self._saved: dict[str, Any] = {}  # of a loaded engine, until they begin
        self._now = 0  # the engine's clock

    def __bool__(self) -> bool:
        return bool(self.stores)

    def reads(self, stream: str) -> bool:
        """Whether a window needs the events of a stream."""
        return stream in self._of_stream

    # -- life --------------------------------------------------------------------------------------

    def begin(
        self, spec: WindowSpec, stream: Stream, past: Iterable[tuple[datetime, Index, Rows]], now: datetime
    ) -> WindowStore:
        """Begin a window with its events of a saved engine, or else with those of the past still in it."""
        self._now = _microseconds(now)
        store = WindowStore(spec, stream) if spec.columns is None else KeyWindow(spec, stream)
        saved = self._saved.pop(spec.table, None)
        if saved is not None:
            state = WindowState(**json.loads(saved.schema.metadata[b"state"]))
            if isinstance(store, KeyWindow):
                store.read_back(saved, state)
            else:
                store.restore(*_read(saved, store), state)
        else:
            parts = [
                Past(np.full(len(seq), _microseconds(when)), np.asarray(seq), rows)
                for when, seq, rows in past
            ]
            store.begin(parts, self._now)
        self.stores[spec.table] = store
        self._of_stream.setdefault(spec.stream, []).append(store)
        return store

    def end(self, spec: WindowSpec) -> None:
        """Drop a window and its events."""
        store = self.stores.pop(spec.table)
        self._of_stream[spec.stream].remove(store)
        if not self._of_stream[spec.stream]:
            del self._of_stream[spec.stream]

    # -- steps -------------------------------------------------------------------------------------

    def expire(self, now: datetime) -> dict[str, int]:
        """Advance the clock; stage the events that leave windows by it: how many, by window."""
        self._now = _microseconds(now)
        moved = {name: store.stage_expiry(self._now) for name, store in self.stores.items()}
        return {name: count for name, count in moved.items() if count}

    def stage(self, batches: Mapping[str, ChangeBatch]) -> dict[str, Index]:
        """Stage batches of events, which come now: by window the seq of each of its changes."""
        moved = {}
        for stream, stores in self._of_stream.items():
            batch = batches.get(stream)
            if batch is not None and len(batch):
                for store in stores:
                    seq = store.stage_events(batch.rows, np.asarray(batch.seq), self._now)
                    moved[store.schema.name] = seq
        return moved

    def place(self, moved: Mapping[str, Index], others: Sequence[Index]) -> dict[str, Changed]:
        """Give the changes of windows their positions among all; `others` are the seqs of other changes.

        The change of a table has a seq of its own, so its position is the number of lower seqs.
        """
        if not moved:
            return {}
        parts = [*moved.values(), *others]
        order = np.argsort(np.concatenate(parts), kind="stable")
        position = np.empty(len(order), np.int64)
        position[order] = np.arange(len(order))
        changed, begin = {}, 0
        for name, seq in moved.items():
            changed[name] = self.stores[name].place(position[begin : begin + len(seq)])
            begin += len(seq)
        return changed

    # -- on disk -----------------------------------------------------------------------------------

    def saved(self) -> dict[str, Any]:
        """The events of windows by name, as pyarrow Tables; what a window knows is in their metadata."""
        return {
            name: _written(store).replace_schema_metadata({"state": json.dumps(store.state._asdict())})
            for name, store in self.stores.items()
        }

    def load(self, tables: Mapping[str, Any]) -> None:
        """What `saved` returned: windows begin with it."""
        self._saved = dict(tables)

    def forget_saved(self) -> None:
        """Drop what no window has begun with."""
        self._saved = {}

    def stats(self) -> dict[str, Any]:
        """By window: events, bytes, and the events that were too late or had no time."""
        return {name: store.stats() for name, store in self.stores.items()}

    def _check(self) -> None:
        for store in self.stores.values():
            store._check()
        assert sum(map(len, self._of_stream.values())) == len(self.stores)


def _written(store: WindowStore) -> Any:
    """The events of a window in order of seq, with the times they count from; or its keys."""
    if isinstance(store, KeyWindow):
        return store.written()
    slots = store.alive()
    rows = store.rows.take(slots)
    table = pa.table({name: vector.arrow for name, vector in rows.columns})
    return table.append_column(_TIME, pa.array(store.times[slots])).sort_by("_seq")


def _read(table: Any, store: WindowStore) -> tuple[Rows, Index]:
    columns = [(f.name, _column(table, f)) for f in store.schema.fields]
    return Rows(columns, table.num_rows), np.asarray(table[_TIME])


def _column(table: Any, field: Field) -> Vector:
    """A saved column; NULL if the stream has gained it since."""
    if field.name not in table.column_names:
        return Vector.blank(field.type, table.num_rows)
    return Vector.from_arrow(field.type, table[field.name].combine_chunks())
