"""The engine's methods for who keeps its state elsewhere, piece by piece: the server's snapshots.

`Engine.save` writes all at once. A server keeps subscriptions in files that it does not write again; beside
them it needs what is below. The other pieces are `rows`, `parts`, `restoring`, `last_seq`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby
from threading import RLock
from typing import Any

import numpy as np
import pyarrow as pa

from tocsin.language.template import Parser
from tocsin.model.columns import Rows
from tocsin.model.json_rows import to_json
from tocsin.model.jsonlines.changes import read_lines
from tocsin.store.database import Database
from tocsin.subscriptions.registry import Registry
from tocsin.subscriptions.roster import Roster

__all__ = ["TransferMethods", "retained_table"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class TransferMethods:
    """Part of `Engine`."""

    _lock: RLock
    _database: Database
    _registry: Registry
    _roster: Roster
    _parser: Parser

    @property
    def last_id(self) -> int:
        """The greatest id so far; the next one assigned is one more. Set it when an engine is rebuilt."""
        return self._registry.last_id

    @last_id.setter
    def last_id(self, id: int) -> None:
        self._registry.last_id = id

    def records(self, ids: Iterable[int]) -> list[dict[str, Any]]:
        """Subscriptions as `enter_records` takes them: id, sql, subscriber, times of validity, state."""
        with self._lock:
            entries = [self._registry.get(id) for id in ids]
            return [{"id": e.id, **e.source.record(e.row), "state": str(e.announced)} for e in entries]

    def enter_records(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Register subscriptions in the states that they had."""
        with self._lock:
            for record in records:
                self._roster.enter_saved(record, self._parser.parse(record["sql"]))

    def retained_batches(self) -> dict[str, Sequence[tuple[datetime, Any, Rows]]]:
        """What streams retain, by batch of arrival; `retained_table` makes a table of it."""
        with self._lock:
            now = self._roster.now()
            return {name: kept.arrivals(now) for name, kept in self._database.retaining()}

    def recent(self, stream: str, limit: int) -> list[dict[str, Any]]:
        """The last events that a stream retains, the latest first."""
        with self._lock:
            kept = dict(self._database.retaining()).get(self._database.relation(stream).name)
            return [] if kept is None else kept.last(self._roster.now(), limit)

    def restore_retained(self, stream: str, table: Any) -> None:
        """Retain the events of a table of `retained_table`, as they were."""
        with self._lock:
            kept = dict(self._database.retaining())[stream]
            batch, bad = read_lines(self._database.relation(stream), "\n".join(table["row"].to_pylist()))
            rows, arrived = batch.or_raise(bad).rows, table["arrived"].to_pylist()
            seqs, start = np.asarray(table["seq"]), 0
            for when, same in groupby(arrived):
                end = start + len(list(same))
                at = _EPOCH + timedelta(microseconds=when)
                kept.add(at, seqs[start:end], rows.take(np.arange(start, end)))
                start = end


def retained_table(batches: Sequence[tuple[datetime, Any, Rows]]) -> Any:
    """Retained events as a table: when each arrived, its seq, and itself as JSON."""
    whens = [(when - _EPOCH) // timedelta(microseconds=1) for when, _, _ in batches]
    texts = [to_json(rows) for _, _, rows in batches]
    return pa.table(
        {
            "arrived": pa.array(np.repeat(np.array(whens, np.int64), [len(seq) for _, seq, _ in batches])),
            "seq": pa.array(np.concatenate([seq for _, seq, _ in batches] or [np.empty(0, np.int64)])),
            "row": pa.concat_arrays(texts) if texts else pa.array([], pa.string()),
        }
    )
