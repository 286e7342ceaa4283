"""The database: definitions, tables, and how batches become a step.

    batches by name ─► checked rows ─► sequence numbers ─► staged versions ─► Step
                          │                  │                  │
                          └───── bad rows: raise, or collect and go on ─────┘

Nothing changes until `commit`; `rollback` discards the step. A commit with a time keeps the events of
streams declared with RETAIN (`retained.py`).
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa

from tocsin.errors import BadRow, CatalogError, ChangeError
from tocsin.language.ddl import AddColumns, Definition, Drop, IfNotExists
from tocsin.language.windows import WindowSpec
from tocsin.model.change import OPS, ChangeBatch
from tocsin.model.columns import Index, Rows
from tocsin.model.constraints import constrained
from tocsin.model.inputs import read_batch
from tocsin.model.one_row import one_row
from tocsin.model.row_reader import RowReader
from tocsin.model.schema import Stream, Table, Type, quote
from tocsin.store.retained import Retained
from tocsin.store.step import Step
from tocsin.store.tables import FEW_ROWS, Changed, TableStore
from tocsin.store.window_set import WindowSet

__all__ = ["BadRows", "Database", "find_relation"]

BadRows = dict[str, list[BadRow]]


class Database:
    """Declared streams and tables, rows of tables, retained events, the last sequence number."""

    def __init__(self) -> None:
        self.catalog: dict[str, Table | Stream] = {}
        self.tables: dict[str, TableStore] = {}
        self.constrained: set[str] = set()  # relations whose columns have constraints
        self.altered: set[str] = set()  # tables that got columns after subscriptions may have read them
        self.last_seq = 0
        self.in_use: Callable[[str, Iterable[str]], Collection[str]] = lambda stream, attributes: ()
        self.windows = WindowSet()  # whose stores are among the tables, but not in the catalog
        self._retained: dict[str, Retained] = {}
        self._staged_seq = 0
        self._staged_events: dict[str, ChangeBatch] = {}  # by stream
        self._sequenced: dict[str, ChangeBatch] = {}  # of the last `stage`
        self._types: dict[str, tuple[Table | Stream, dict[str, Type]]] = {}  # of columns, by relation
        self._readers: dict[str, RowReader] = {}  # by table

    # -- definitions -------------------------------------------------------------------------------

    def define(self, definitions: Sequence[Definition], users: Mapping[str, int]) -> None:
        """Create and drop, all or nothing; `users` counts the subscriptions of each relation."""
        catalog = dict(self.catalog)
        for definition in definitions:
            if isinstance(definition, IfNotExists):
                if any(definition.name.lower() == name.lower() for name in catalog):
                    continue
                definition = definition.made
            is_known = any(definition.name.lower() == name.lower() for name in catalog)
            if isinstance(definition, Drop) and definition.if_exists and not is_known:
                continue
            if isinstance(definition, AddColumns):
                old = find_relation(definition.name, catalog)
                catalog[old.name] = self._with_columns(old, definition)
            elif isinstance(definition, Drop):
                relation = find_relation(definition.name, catalog)
                what = "stream" if isinstance(relation, Stream) else "table"
                if definition.kind.lower() != what:
                    raise CatalogError(f"{relation.name} is a {what}", hint=f"use DROP {what.upper()}")
                if count := users.get(relation.name, 0):
                    who = "1 subscription uses" if count == 1 else f"{count} subscriptions use"
                    raise CatalogError(f"{who} {relation.name}", hint="unsubscribe them first")
                del catalog[relation.name]
            else:
                if any(definition.name.lower() == name.lower() for name in (*catalog, *self.windows.stores)):
                    raise CatalogError(
                        f"there is a stream or table {definition.name} already",
                        hint="DROP it first, or take another name",
                    )
                catalog[definition.name] = definition
        tables = {name: r for name, r in catalog.items() if isinstance(r, Table)}
        kept = {n: s for n, s in self.tables.items() if n in tables and _is_extended(s.schema, tables[n])}
        for name, store in kept.items():
            store.extend(tables[name])
        self.tables = {
            name: kept[name] if name in kept else TableStore(table) for name, table in tables.items()
        }
        self.tables |= self.windows.stores
        self._retained = {
            name: self._retained[name] if self.catalog.get(name) is stream else Retained(stream.retain)
            for name, stream in catalog.items()
            if isinstance(stream, Stream) and stream.retain is not None
        }
        self.catalog = catalog
        self.constrained = {n for n, r in catalog.items() if any(field.is_constrained for field in r.fields)}

    def _with_columns(self, relation: Table | Stream, added: AddColumns) -> Table:
        """A table with more columns."""
        if not isinstance(relation, Table):
            hint = "define another stream, or leave its columns open"
            raise CatalogError(f"{relation.name} is a stream: its columns do not change", hint=hint)
        fields = list(relation.fields)
        for field in added.fields:
            if relation.find(field.name) is not None or any(
                f.name.lower() == field.name.lower() for f in fields
            ):
                if added.if_absent:
                    continue
                hint = "take another name, or write ADD COLUMN IF NOT EXISTS"
                raise CatalogError(f"{relation.name} has a column {field.name} already", hint=hint)
            store = self.tables.get(relation.name)
            if field.required and field.default is None and store is not None and len(store):
                hint = "give it a default, or leave NOT NULL out"
                raise CatalogError(
                    f"{relation.name} has rows, which would have NULL in {field.name}", hint=hint
                )
            fields.append(field)
        if relation.name in self.catalog:
            self.altered.add(relation.name)
        return replace(relation, fields=tuple(fields))

    def relation(self, name: str) -> Table | Stream:
        """A declared stream or table, by its name in any case."""
        found = self.catalog.get(name) if isinstance(name, str) else None
        return find_relation(name, self.catalog) if found is None else found

    def rows(self, name: str, limit: int | None = None) -> Any:
        """A table's rows, or the first of them, as a pyarrow Table."""
        relation = self.relation(name)
        if isinstance(relation, Stream):
            raise CatalogError(f"{relation.name} is a stream: it keeps no rows")
        store = self.tables[relation.name]
        rows = store.rows.take(store.alive()[:limit])
        return pa.table({name: vector.arrow for name, vector in rows.columns})

    def retaining(self) -> Iterable[tuple[str, Retained]]:
        """The retained events by stream."""
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
        """Drop events that are no longer valid."""
        for events in self._retained.values():
            events.expire(now)

    # -- windows -----------------------------------------------------------------------------------

    def begin_window(self, spec: WindowSpec, now: datetime) -> None:
        """Begin a window: with events that were saved, else with retained ones, else with none."""
        stream = self.catalog[spec.stream]
        assert isinstance(stream, Stream)
        past = self._retained[spec.stream].arrivals(now) if spec.stream in self._retained else ()
        self.tables[spec.table] = self.windows.begin(spec, stream, past, now)

    def end_window(self, spec: WindowSpec) -> None:
        """Drop a window and its events."""
        self.windows.end(spec)
        del self.tables[spec.table]

    def stage_expiry(self, now: datetime) -> Step | None:
        """Advance windows to a time: the step of the events that leave by then, or None."""
        moved = self.windows.expire(now)
        if not moved:
            return None
        seq = np.full(sum(moved.values()), self.last_seq)
        begins = np.cumsum([0, *moved.values()]).tolist()
        changed = {
            name: self.windows.stores[name].place(np.arange(begin, begin + count))
            for (name, count), begin in zip(moved.items(), begins, strict=False)
        }
        self._staged_seq, self._staged_events = self.last_seq, {}
        return Step(self.tables, seq, changed, shared=True)

    # -- changes -----------------------------------------------------------------------------------

    def stage(self, batches: Mapping[str, Any], dead_letters: BadRows | None = None) -> Step:
        """Stage batches over the tables as one step, in order of seq.

        Bad rows raise a ChangeError or, if `dead_letters` is given, are collected there and left out.
        """
        step = self._stage_few(batches)
        if step is not None:
            return step
        faults: BadRows = {}
        read: dict[str, ChangeBatch] = {}
        for name, data in batches.items():
            relation = self.relation(name)
            batch, bad = read_batch(relation, data)
            if relation.name in self.constrained:
                batch, worse = constrained(batch)
                bad = sorted([*bad, *worse])
            if batch.nested:
                batch, worse = batch.without_nested(self.in_use(relation.name, batch.nested))
                bad = sorted([*bad, *worse])
            read[relation.name], faults[relation.name] = batch, bad
        _reject_bad(faults, dead_letters)
        self._sequenced = self._sequence(read, faults)
        _reject_bad(faults, dead_letters)
        return self._stage_sequenced(self._sequenced, faults, dead_letters)

    def stage_again(self) -> Step:
        """Stage once more the batches of the last `stage`, which was rolled back, without its bad rows."""
        return self._stage_sequenced(self._sequenced, {name: [] for name in self._sequenced}, {})

    def _stage_sequenced(
        self, sequenced: Mapping[str, ChangeBatch], faults: BadRows, dead_letters: BadRows | None
    ) -> Step:
        seqs = [np.asarray(batch.seq) for batch in sequenced.values()]
        changed: dict[str, Changed] = {}
        try:
            moved = self.windows.stage(sequenced)
            seq = np.sort(np.concatenate([np.empty(0, np.int64), *seqs, *moved.values()]))
            changed.update(self.windows.place(moved, seqs))
            for name, batch in sequenced.items():
                if name in self.tables:
                    position = np.searchsorted(seq, np.asarray(batch.seq))
                    changed[name], faults[name] = self.tables[name].stage(batch, position)
            _reject_bad(faults, dead_letters)
        except BaseException:
            self.rollback()
            raise
        self._staged_seq = int(seq[-1]) if len(seq) else self.last_seq
        self._staged_events = {n: batch for n, batch in sequenced.items() if n not in self.tables}
        changed = {name: change for name, change in changed.items() if len(change.position)}
        return Step(self.tables, seq, changed, self._staged_events, shared=bool(moved))

    def stage_rows(self, table: Table, ops: Sequence[str], rows: Sequence[dict[str, Any]]) -> Step | None:
        """As `stage`, for a few rows of a table; None if they must be staged as a batch.

        That accepts or rejects what is not plain, and says what is wrong.
        """
        if table.name in self.constrained:
            return None
        reader = self._readers.get(table.name)
        if reader is None or reader.table is not table:
            reader = self._readers[table.name] = RowReader(table)
        read = []
        for row in rows:
            values = reader.read(row)
            if values is None:
                return None
            read.append(values)
        last = self.last_seq + len(rows)
        if last >= 2**63:
            return None
        changed = self.tables[table.name].stage_rows([OPS[op] for op in ops], read)
        if changed is None:
            return None
        self._staged_seq, self._staged_events = last, {}
        seq = np.arange(self.last_seq + 1, last + 1)
        return Step(self.tables, seq, {table.name: changed} if len(changed.position) else {})

    def stage_unnumbered(self, name: str, batch: ChangeBatch) -> Step:
        """Stage changes of a table that take no sequence numbers: no answer depends on them."""
        changed, bad = self.tables[name].stage(batch, np.arange(len(batch)))
        if bad:
            self.rollback()
            raise ChangeError(f"{name}: {bad[0].reason}")
        self._staged_seq, self._staged_events = self.last_seq, {}
        return Step(self.tables, np.full(len(batch), self.last_seq), {name: changed}, shared=True)

    def _stage_few(self, batches: Mapping[str, Any]) -> Step | None:
        """The step of one batch of a few plain dicts; None for all others."""
        if len(batches) != 1:
            return None
        ((name, rows),) = batches.items()
        relation = self.catalog.get(name)
        if type(rows) is not list or not 0 < len(rows) <= FEW_ROWS or not isinstance(relation, Table):
            return None
        if not all(type(row) is dict and "_seq" not in row for row in rows):
            return None
        ops = [row.get("_op", "insert") for row in rows]
        if not all(type(op) is str and op in OPS for op in ops):
            return None
        body = [{n: v for n, v in row.items() if n != "_op"} if "_op" in row else row for row in rows]
        return self.stage_rows(relation, ops, body)

    def commit(self, now: datetime | None = None) -> None:
        """Make the step the state. `now` is when its events arrived; without it none are retained."""
        for store in self.tables.values():
            store.commit()
        self.last_seq = self._staged_seq
        self._sequenced = {}
        events, self._staged_events = self._staged_events, {}
        if now is not None and self._retained:
            for name, batch in events.items():
                if name in self._retained:
                    self._retained[name].add(now, np.asarray(batch.seq), batch.rows)
            self.expire(now)

    def types(self, relation: Table | Stream) -> dict[str, Type] | None:
        """The types of a relation's columns, each time the same dict; None if it is open."""
        if relation.open:
            return None
        known = self._types.get(relation.name)
        if known is None or known[0] is not relation:
            known = self._types[relation.name] = relation, {f.name: f.type for f in relation.fields}
        return known[1]

    @property
    def retains(self) -> bool:
        """Whether a stream retains events."""
        return bool(self._retained)

    def commit_one(self, stream: Stream, seq: int, event: dict[str, Any], now: datetime | None) -> None:
        """As `commit`, for one good event that was not staged."""
        self.last_seq = seq
        if now is not None and self._retained:
            if stream.name in self._retained:
                row = one_row(event.copy(), self.types(stream))
                self._retained[stream.name].add(now, np.array([seq], np.int64), row)
            self.expire(now)

    def rollback(self) -> None:
        """Discard the step."""
        for store in self.tables.values():
            store.rollback()
        self._staged_events = {}

    def _sequence(self, batches: Mapping[str, ChangeBatch], faults: BadRows) -> dict[str, ChangeBatch]:
        """Give every row its seq, increasing and above the last; rows out of order become faults."""
        out: dict[str, ChangeBatch] = {}
        if len({batch.seq is None for batch in batches.values() if len(batch)}) > 1:
            raise ChangeError("some batches have `_seq` and others do not", hint="give it in all or in none")
        last, used = self.last_seq, np.empty(0, np.int64)
        for name, batch in batches.items():
            if batch.seq is None:
                if last + len(batch) >= 2**63:
                    raise ChangeError(f"there is no sequence number left after {last}")
                out[name] = replace(batch, seq=np.arange(last + 1, last + 1 + len(batch)))
                last += len(batch)
                continue
            before = np.maximum.accumulate(np.concatenate([[self.last_seq], batch.seq]))[:-1]
            wrong = (batch.seq <= before) | np.isin(batch.seq, used)
            for i in np.flatnonzero(wrong).tolist():
                reason = f"seq {batch.seq[i]} is not above the last one, {before[i]}"
                if batch.seq[i] > before[i]:
                    reason = f"seq {batch.seq[i]} occurs twice"
                faults[name].append(BadRow(int(batch.origin[i]), reason))
            out[name] = batch.take(np.flatnonzero(~wrong))
            used = np.concatenate([used, batch.seq[~wrong]])
        return out

    def _check(self) -> None:
        for store in self.tables.values():
            store._check()
        for events in self._retained.values():
            events._check()


def _is_extended(old: Table, new: Table) -> bool:
    """Whether a table is the same, or has only got more columns."""
    same = old is new or (old.name == new.name and old.key == new.key and old.payload == new.payload)
    return same and new.fields[: len(old.fields)] == old.fields


def _reject_bad(faults: BadRows, dead_letters: BadRows | None) -> None:
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
