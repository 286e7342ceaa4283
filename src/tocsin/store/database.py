"""The database: what is declared, the tables, and how a batch becomes a step.

    batches by name ─► checked rows ─► sequence numbers ─► staged versions ─► Step
                          │                  │                  │
                          └───── bad rows: raise, or collect and go on ─────┘

Nothing is changed until `commit`; `rollback` forgets the step. Of streams that RETAIN events, a
commit that is told the time keeps those of the step (`retained.py`).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa

from tocsin.errors import BadRow, CatalogError, ChangeError
from tocsin.language.ddl import Definition, Drop
from tocsin.model.change import ChangeBatch
from tocsin.model.columns import Index, Rows
from tocsin.model.schema import Stream, Table, quote
from tocsin.store.retained import Retained
from tocsin.store.step import Events, Step
from tocsin.store.tables import Changed, TableStore

__all__ = ["BadRows", "Database", "find_relation"]

BadRows = dict[str, list[BadRow]]


class Database:
    """Declared streams and tables, the rows of tables, events still valid, the last sequence number."""

    def __init__(self) -> None:
        self.catalog: dict[str, Table | Stream] = {}
        self.tables: dict[str, TableStore] = {}
        self.last_seq = 0
        self._pending_seq = 0
        self._retained: dict[str, Retained] = {}
        self._pending_events: dict[str, ChangeBatch] = {}  # of streams that retain theirs

    # -- definitions -------------------------------------------------------------------------------

    def define(self, definitions: Sequence[Definition], users: Mapping[str, int]) -> None:
        """Create and drop, all or nothing; `users` counts the subscriptions of each relation."""
        catalog = dict(self.catalog)
        for definition in definitions:
            if isinstance(definition, Drop):
                relation = find_relation(definition.name, catalog)
                what = "stream" if isinstance(relation, Stream) else "table"
                if definition.kind.lower() != what:
                    raise CatalogError(f"{relation.name} is a {what}", hint=f"use DROP {what.upper()}")
                if count := users.get(relation.name, 0):
                    who = "1 subscription uses" if count == 1 else f"{count} subscriptions use"
                    raise CatalogError(f"{who} {relation.name}", hint="unsubscribe them first")
                del catalog[relation.name]
            else:
                if any(definition.name.lower() == name.lower() for name in catalog):
                    raise CatalogError(
                        f"there is a stream or table {definition.name} already",
                        hint="DROP it first, or take another name",
                    )
                catalog[definition.name] = definition
        tables = {name: r for name, r in catalog.items() if isinstance(r, Table)}
        kept = {n: s for n, s in self.tables.items() if tables.get(n) is s.schema}
        self.tables = {name: kept.get(name) or TableStore(table) for name, table in tables.items()}
        self._retained = {
            name: self._retained[name] if self.catalog.get(name) is stream else Retained(stream.retain)
            for name, stream in catalog.items()
            if isinstance(stream, Stream) and stream.retain is not None
        }
        self.catalog = catalog

    def relation(self, name: str) -> Table | Stream:
        """A declared stream or table, by its name in any case."""
        return find_relation(name, self.catalog)

    def rows(self, name: str) -> Any:
        """A table's rows as a pyarrow Table."""
        relation = self.relation(name)
        if isinstance(relation, Stream):
            raise CatalogError(f"{relation.name} is a stream: it keeps no rows")
        store = self.tables[relation.name]
        rows = store.rows.take(store.alive())
        return pa.table({name: vector.arrow for name, vector in rows.columns})

    def retaining(self) -> Iterable[tuple[str, Retained]]:
        """The events kept by stream."""
        return self._retained.items()

    def retained(self, name: str, now: datetime) -> list[tuple[Index, Rows]]:
        """Sequence numbers and rows of a stream's events still valid, batches in order of arrival."""
        relation = self.relation(name)
        if relation.name in self._retained:
            return self._retained[relation.name].events(now)
        if isinstance(relation, Table):
            raise CatalogError(f"{relation.name} is a table: it keeps rows, not events")
        hint = f"define it with RETAIN, as in CREATE STREAM {quote(relation.name)} ... RETAIN '10 minutes'"
        raise CatalogError(f"stream {relation.name} retains no events", hint=hint)

    def expire(self, now: datetime) -> None:
        """Let go of events that are valid no longer."""
        for events in self._retained.values():
            events.expire(now)

    # -- changes -----------------------------------------------------------------------------------

    def stage(self, batches: Mapping[str, Any], dead_letters: BadRows | None = None) -> Step:
        """Lay batches over the tables as one step, in order of seq.

        Bad rows raise a ChangeError, or, if `dead_letters` is given, go there and the rest goes on.
        """
        faults: BadRows = {}
        checked: dict[str, ChangeBatch] = {}
        for name, data in batches.items():
            relation = self.relation(name)
            ready = (data, []) if isinstance(data, ChangeBatch) else ChangeBatch.from_arrow(relation, data)
            checked[relation.name], faults[relation.name] = ready
        self._drop_bad(faults, dead_letters)
        sequenced = self._sequence(checked, faults)
        self._drop_bad(faults, dead_letters)
        seq = np.sort(
            np.concatenate([np.empty(0, np.int64), *(b.seq for b in sequenced.values() if b.seq is not None)])
        )
        changed: dict[str, Changed] = {}
        events: dict[str, Events] = {}
        try:
            for name, batch in sequenced.items():
                position = np.searchsorted(seq, np.asarray(batch.seq))
                if name in self.tables:
                    changed[name], faults[name] = self.tables[name].stage(batch, position)
                else:
                    events[name] = Events(position, batch.rows)
            self._drop_bad(faults, dead_letters)
        except BaseException:
            self.rollback()
            raise
        self._pending_seq = int(seq[-1]) if len(seq) else self.last_seq
        self._pending_events = {n: batch for n, batch in sequenced.items() if n in self._retained}
        return Step(self.tables, seq, {n: c for n, c in changed.items() if len(c.position)}, events)

    def commit(self, now: datetime | None = None) -> None:
        """Make the step the state. `now` is when its events arrived; without it none are retained."""
        for store in self.tables.values():
            store.commit()
        self.last_seq = self._pending_seq
        pending, self._pending_events = self._pending_events, {}
        if now is not None:
            for name, batch in pending.items():
                self._retained[name].add(now, np.asarray(batch.seq), batch.rows)
            self.expire(now)

    def rollback(self) -> None:
        """Forget the step."""
        for store in self.tables.values():
            store.rollback()
        self._pending_events = {}

    def _sequence(self, batches: Mapping[str, ChangeBatch], faults: BadRows) -> dict[str, ChangeBatch]:
        """Give every row its seq, increasing and above the last; rows out of order fall out."""
        out: dict[str, ChangeBatch] = {}
        if len({batch.seq is None for batch in batches.values() if len(batch)}) > 1:
            raise ChangeError("some batches have `_seq` and others do not", hint="give it in all or in none")
        last, taken = self.last_seq, np.empty(0, np.int64)
        for name, batch in batches.items():
            if batch.seq is None:
                if last + len(batch) >= 2**63:
                    raise ChangeError(f"there is no sequence number left after {last}")
                out[name] = batch.with_seq(np.arange(last + 1, last + 1 + len(batch)))
                last += len(batch)
                continue
            before = np.maximum.accumulate(np.concatenate([[self.last_seq], batch.seq]))[:-1]
            wrong = (batch.seq <= before) | np.isin(batch.seq, taken)
            for i in np.flatnonzero(wrong).tolist():
                reason = f"seq {batch.seq[i]} is not above the last one, {before[i]}"
                if batch.seq[i] > before[i]:
                    reason = f"seq {batch.seq[i]} occurs twice"
                faults[name].append(BadRow(int(batch.origin[i]), reason))
            out[name] = batch.take(np.flatnonzero(~wrong))
            taken = np.concatenate([taken, batch.seq[~wrong]])
        return out

    def _drop_bad(self, faults: BadRows, dead_letters: BadRows | None) -> None:
        """Raise the first bad row, or move all of them to the dead letters."""
        for name, rows in faults.items():
            if rows and dead_letters is None:
                first = min(rows)
                more = f" (and {len(rows) - 1} more bad rows)" if len(rows) > 1 else ""
                raise ChangeError(
                    f"{first.reason}{more}", first.row, hint=f"nothing of the batch for {name} was applied"
                )
            if rows and dead_letters is not None:
                dead_letters.setdefault(name, []).extend(rows)
                rows.clear()

    def _check(self) -> None:
        for store in self.tables.values():
            store._check()
        for events in self._retained.values():
            events._check()


def find_relation(name: str, catalog: Mapping[str, Table | Stream]) -> Table | Stream:
    """A declared stream or table, by its name in any case."""
    if not isinstance(name, str):
        raise CatalogError(f"a stream or table is named by text, not {name!r}")
    if name in catalog:
        return catalog[name]
    for known in catalog:
        if known.lower() == name.lower():
            return catalog[known]
    near = difflib.get_close_matches(name, catalog, 1)
    hint = f"did you mean {near[0]!r}?" if near else "declare it with CREATE TABLE or CREATE STREAM"
    raise CatalogError(f"there is no stream or table {name!r}", hint=hint)
