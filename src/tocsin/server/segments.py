"""Subscriptions in segments: what a snapshot writes once and a restart loads by column.

    bulk                    ─► a segment at once: its table of texts, parameters or predicates
    single subscriptions    ─► loose, until a snapshot seals them as a segment of texts
    ... with times, paused  ─► loose for ever: records in the manifest

A segment's file is written once. What is removed is marked in the next manifest; a segment of which more than
half is gone is written anew. Segments of texts are merged when they are many. Loading uses the engine's bulk
methods, which read each *form* of text once and its literals by column: a million takes seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tocsin.engine import Engine
from tocsin.model.columns import Index
from tocsin.server.commands import BulkForm

__all__ = ["SegmentInfo", "SubscriptionSegment", "SubscriptionSegments", "load_segment"]

MOST_OF_TEXTS = 8
FEW_LOOSE = 64


class SegmentInfo(msgspec.Struct):
    """A segment in a manifest; `gone` has the numbers of removed rows as bytes of int32."""

    file: str
    form: BulkForm
    of: str
    gone: bytes = b""


@dataclass(eq=False)
class SubscriptionSegment:
    """Subscriptions of one table; `ids` ascending, `rows` where each is in it."""

    form: BulkForm
    of: str
    table: Any  # None once it is in a file
    ids: Index
    rows: NDArray[np.int32]
    alive: NDArray[np.bool_]
    file: str | None = None
    left: int = field(init=False)

    def __post_init__(self) -> None:
        self.left = int(self.alive.sum())

    @classmethod
    def of_table(cls, form: BulkForm, of: str, table: Any, file: str | None = None) -> SubscriptionSegment:
        """The segment of a table with ids."""
        ids = np.asarray(table["id"]).astype(np.int64)
        order = np.argsort(ids)
        rows = order.astype(np.int32)
        return cls(form, of, None if file else table, ids[order], rows, np.ones(len(ids), np.bool_), file)

    def remove(self, ids: Index) -> NDArray[np.bool_]:
        """Mark ids as removed; returns which of them were here."""
        at = np.minimum(np.searchsorted(self.ids, ids), max(len(self.ids) - 1, 0))
        here: NDArray[np.bool_] = np.zeros(len(ids), np.bool_)
        if len(self.ids):
            here = (self.ids[at] == ids) & self.alive[at]
            self.alive[at[here]] = False
            self.left -= int(here.sum())
        return here

    def gone(self) -> NDArray[np.int32]:
        """The rows that were removed."""
        return self.rows[~self.alive]

    def whole(self, folder: Path) -> Any:
        """The rows that are left, as a table."""
        table = self.table if self.table is not None else _read(folder / (self.file or ""))
        return table if self.left == len(self.ids) else table.take(pa.array(np.sort(self.rows[self.alive])))


class SubscriptionSegments:
    """All subscriptions of an engine by segment; `loose` has the ids that are in none."""

    def __init__(self) -> None:
        self.segments: list[SubscriptionSegment] = []
        self.loose: dict[int, None] = {}
        self._number = 0

    def add_bulk(self, form: BulkForm, of: str, table: Any) -> None:
        """A bulk was registered."""
        self.segments.append(SubscriptionSegment.of_table(form, of, table))

    def remove(self, ids: Iterable[int]) -> None:
        """Subscriptions are gone."""
        left = [id for id in ids if self.loose.pop(id, 0) == 0]
        wanted = np.array(left, np.int64)
        for segment in self.segments:
            if not len(wanted):
                return
            wanted = wanted[~segment.remove(wanted)]

    def seal(self, records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Make a segment of loose records that are active without end; returns the others."""
        plain = [r for r in records if r["valid"] == [None, None] and r["state"] == "active"]
        if len(plain) < FEW_LOOSE:
            return list(records)
        table = pa.table(
            {
                "id": pa.array([r["id"] for r in plain], pa.int64()),
                "sql": pa.array([r["sql"] for r in plain], pa.string()),
                "subscriber": pa.array([r["subscriber"] for r in plain], pa.string()),
            }
        )
        self.segments.append(SubscriptionSegment.of_table("texts", "", table))
        for record in plain:
            del self.loose[record["id"]]
        return [r for r in records if r["id"] in self.loose]

    def tidy(self, folder: Path) -> None:
        """Drop empty segments, shrink those that are half empty, merge texts that are in many."""
        self.segments = [s for s in self.segments if s.left]
        self.segments = [
            SubscriptionSegment.of_table(s.form, s.of, s.whole(folder)) if 2 * s.left < len(s.ids) else s
            for s in self.segments
        ]
        texts = [s for s in self.segments if s.form == "texts"]
        if len(texts) > MOST_OF_TEXTS:
            texts = sorted(texts, key=lambda s: s.left)[: len(texts) // 2 + 1]
            names = ("id", "sql", "subscriber")
            tables = [_with_subscriber(s.whole(folder)).select(names) for s in texts]
            merged = SubscriptionSegment.of_table("texts", "", pa.concat_tables(tables).combine_chunks())
            self.segments = [s for s in self.segments if s not in texts] + [merged]

    def next_file(self) -> str:
        """The name of a new file."""
        self._number += 1
        return f"segment-{self._number:06}.arrow"

    def restore(self, infos: Iterable[SegmentInfo], folder: Path, engine: Engine) -> None:
        """Load the segments of a manifest into an engine."""
        for info in infos:
            table = _read(folder / info.file)
            segment = SubscriptionSegment.of_table(info.form, info.of, table, info.file)
            gone = np.frombuffer(info.gone, np.int32)
            segment.remove(np.asarray(table["id"]).astype(np.int64)[gone])
            load_segment(engine, info.form, info.of, segment.whole(folder))
            self.segments.append(segment)
            self._number = max(self._number, int(info.file[8:14]))

    def _check(self) -> None:
        alive = [s.ids[s.alive] for s in self.segments]
        every = np.concatenate([*alive, np.array(list(self.loose), np.int64)])
        assert len(np.unique(every)) == len(every)
        for segment in self.segments:
            assert segment.left == segment.alive.sum() and np.all(np.diff(segment.ids) > 0)


def load_segment(engine: Engine, form: BulkForm, of: str, table: Any, backfill: bool = False) -> Index:
    """Register the rows of a table, in the way of its form; returns the ids."""
    if form == "template":
        return engine.subscribe_many(of, table, backfill=backfill)
    if form == "predicates":
        return engine.subscribe_predicates(of, table, backfill=backfill)
    whose = table["subscriber"].to_pylist() if "subscriber" in table.column_names else None
    texts, ids = table["sql"].to_pylist(), table["id"].to_pylist()
    return engine.subscribe_texts(texts, ids=ids, subscribers=whose, backfill=backfill)


def _with_subscriber(table: Any) -> Any:
    if "subscriber" in table.column_names:
        return table
    return table.append_column("subscriber", pa.nulls(table.num_rows, pa.string()))


def _read(file: Path) -> Any:
    with pa.memory_map(str(file)) as source:
        return pa.ipc.open_file(source).read_all()
