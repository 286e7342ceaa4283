"""Lookups: a table that is filled on demand from elsewhere, under a budget.

    events ─► keys they join by ─► missing? fetch, once per batch ─► rows of the table ─► the enrich room
                                                     └─► over the budget? the policy's victims leave

To subscriptions it is as if the table had every row there is: a key is fetched before the first event that
needs it is staged. A key that has no row is remembered as absent, under the same budget. If a fetch raises,
the batch is rejected and nothing changes. The policy counts references, never the clock, so a replay decides
alike if `fetch` returns alike.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC as _UTC
from datetime import datetime, time, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.errors import CatalogError, ChangeError, SubscriptionError, UsageError
from tocsin.join.signature import Signature
from tocsin.language.algebra import Query
from tocsin.language.options import Budget
from tocsin.language.shape import Shape
from tocsin.language.spans import BadAmount, read_bytes, read_span
from tocsin.limits.cache import Cache, cache_policy
from tocsin.limits.models.base import Arrivals, Doubles
from tocsin.model.change import DELETE, INSERT, ChangeBatch
from tocsin.model.columns import Index, Rows, Vector
from tocsin.model.delta import Deltas
from tocsin.model.inputs import read_batch
from tocsin.model.schema import Stream, Table, Type
from tocsin.store.database import Database
from tocsin.store.step import Step

__all__ = ["Fetch", "Lookup", "LookupSetting", "Lookups"]

Fetch = Callable[[list[Any]], Any]
"""From distinct keys to their rows: dicts, Arrow or a data frame. Keys without a row are left out."""

Apply = Callable[[Step, datetime], Deltas]
Probes = Callable[[str], set[tuple[str, str]]]

_ROW_BYTES, _COLUMN_BYTES, _TEXT_BYTES = 600, 20, 60  # a cached key; one more column; one more text
_SLACK_FROM = 1000  # rows from which on 5 % more than needed leave at once
_MIDNIGHT = time(tzinfo=_UTC)


@dataclass(frozen=True)
class LookupSetting:
    """How a table is looked up: by which column, in how much memory, and which rows leave when it is full."""

    key: str
    memory: Budget
    policy: str = "heeb"
    ttl: timedelta | None = None

    @classmethod
    def of(cls, key: str, memory: str | int, policy: str, ttl: str | timedelta | None) -> LookupSetting:
        """From what a user writes.

        >>> LookupSetting.of("sku", "64 MB", "lru", "1 hour").memory.amount
        67108864
        """
        if isinstance(memory, bool) or not isinstance(memory, str | int):
            raise UsageError(
                f"memory cannot be {memory!r}", hint="memory = '64 MB', or a whole number of rows"
            )
        if not (ttl is None or isinstance(ttl, str | timedelta)):
            raise UsageError(f"ttl cannot be {ttl!r}", hint="ttl = '10 minutes', or a timedelta")
        try:
            amount = Budget(read_bytes(memory)) if isinstance(memory, str) else Budget(memory, rows=True)
            life = read_span(ttl) if isinstance(ttl, str) else ttl
        except BadAmount as error:
            raise UsageError(error.fact, hint=error.hint) from None
        if amount.amount < 1 or (life is not None and life <= timedelta(0)):
            raise UsageError("memory and ttl are above 0", hint="memory = '64 MB', or a number of rows")
        return cls(key, amount, policy, life)


class Lookup:
    """One table that is filled on demand."""

    def __init__(self, table: Table, fetch: Fetch, setting: LookupSetting) -> None:
        self.table, self.fetch, self.setting = table, fetch, setting
        budget = setting.memory
        slack = 0.05 if budget.amount >= (_SLACK_FROM if budget.rows else _SLACK_FROM * _ROW_BYTES) else 0.0
        self.cache = Cache(budget.amount, cache_policy(setting.policy), slack)
        self.fetches = 0
        self._codes: dict[Any, int] = {}
        self._keys: list[Any] = []  # by code
        self._free: list[int] = []
        self._has_row: NDArray[np.bool_] = np.zeros(64, np.bool_)  # by code
        self._references = 0
        field = next(field for field in table.fields if field.name == setting.key)
        self._type = field.type

    # -- before a step -----------------------------------------------------------------------------

    def prepare(self, columns: list[Vector], now: datetime) -> list[ChangeBatch]:
        """What the table needs so that all these keys are there: batches to apply, the first one deletes."""
        keys = self._references_of(columns)
        if not len(keys):
            return []
        expired = self.cache.due(now.timestamp())
        missing = self.cache.missing(keys)
        wanted = np.union1d(missing, np.intersect1d(expired, keys))
        try:
            found = self._fetched([self._keys[code] for code in wanted.tolist()])
        except BaseException:
            self._release(missing)
            raise
        old = expired[self._has_row[expired]]
        batches = [self._batch_of(old)] if len(old) else []
        self.cache.drop(expired)
        self._has_row[expired] = False
        sizes = np.full(len(self._keys), 1 if self.setting.memory.rows else _ROW_BYTES, np.int64)
        if found is not None and len(found):
            codes = np.array([self._codes[key] for key in self._keys_of(found)], np.int64)
            self._has_row[codes] = True
            if not self.setting.memory.rows:
                sizes[codes] += _bytes_of(found.rows)
            batches.append(found)
        ends = math.inf if self.setting.ttl is None else (now + self.setting.ttl).timestamp()
        at = self._references + np.arange(1.0, len(keys) + 1.0)
        self._references += len(keys)
        self.cache.enter(Arrivals(keys, self._numbers(keys), at), sizes[keys], ends)
        self._release(np.setdiff1d(expired, wanted))
        return batches

    def _references_of(self, columns: list[Vector]) -> Index:
        """Codes of the keys of events, in order; NULLs and what no key can equal are left out."""
        parts = []
        for vector in columns:
            encoded = vector.arrow.dictionary_encode()
            codes = [self._code(key_of(self._type, value)) for value in encoded.dictionary.to_pylist()]
            valid = np.asarray(encoded.is_valid())
            numbers = np.asarray(encoded.indices.fill_null(0))[valid]
            found = np.array(codes, np.int64)[numbers] if len(codes) else np.empty(0, np.int64)
            parts.append(found[found >= 0])
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def _code(self, key: Any) -> int:
        if key is None:
            return -1
        code = self._codes.get(key)
        if code is None:
            if self._free:
                code = self._free.pop()
                self._keys[code] = key
            else:
                code = len(self._keys)
                self._keys.append(key)
            self._codes[key] = code
            if code >= len(self._has_row):
                self._has_row = np.concatenate([self._has_row, np.zeros(len(self._has_row), np.bool_)])
        return code

    def _fetched(self, keys: list[Any]) -> ChangeBatch | None:
        """The rows of keys, checked; None if no key is missing."""
        if not keys:
            return None
        name = self.table.name
        self.fetches += 1
        try:
            data = self.fetch(keys)
        except Exception as error:
            fact = f"fetching {len(keys)} keys of {name} failed: {type(error).__name__}: {error}"
            raise ChangeError(fact, hint="nothing of this batch was applied") from error
        try:
            batch, bad = read_batch(self.table, [] if data is None else data)
        except ChangeError as error:
            raise ChangeError(
                f"what fetch returned is not rows of {name}: {error.fact}", hint=error.hint
            ) from None
        if bad:
            raise ChangeError(f"fetch returned a bad row of {name}: {bad[0].reason}", bad[0].row)
        if np.any(batch.op != INSERT):
            raise ChangeError(f"fetch returned a change of {name}", hint="return rows, without _op")
        wanted, seen = set(keys), set()
        stay = np.zeros(len(batch), np.bool_)
        for number, key in enumerate(self._keys_of(batch)):
            if key in seen:
                raise ChangeError(f"fetch returned two rows of {name} with key {key!r}", number)
            stay[number] = key in wanted
            seen.add(key)
        return batch if stay.all() else batch.take(np.flatnonzero(stay))

    def _keys_of(self, batch: ChangeBatch) -> list[Any]:
        found: list[Any] = batch.rows.vectors(self.setting.key)[0].to_list()
        return found

    def _numbers(self, keys: Index) -> Doubles | None:
        """Keys as numbers, for the models of HEEB; None for texts and booleans."""
        if self._type in (Type.STRING, Type.BOOLEAN):
            return None
        distinct, number = np.unique(keys, return_inverse=True)
        vector = Vector.of(self._type, [self._keys[code] for code in distinct.tolist()])
        return vector.values.astype(np.float64)[number]

    # -- after it ----------------------------------------------------------------------------------

    def shrink(self) -> ChangeBatch | None:
        """The rows that leave because the budget is exceeded."""
        gone = self.cache.shrink(float(self._references))
        rows = gone[self._has_row[gone]]
        batch = self._batch_of(rows)
        self._has_row[gone] = False
        self._release(gone)
        return batch if len(rows) else None

    def _batch_of(self, codes: Index) -> ChangeBatch:
        """Deletes rows by key."""
        keys = [self._keys[code] for code in codes.tolist()]
        rows = [{self.setting.key: key} for key in keys]
        batch, bad = ChangeBatch.from_dicts(self.table, rows, "delete")
        assert not bad and np.all(batch.op == DELETE)
        return batch

    def _release(self, codes: Index) -> None:
        """Codes of keys that are not known any more."""
        fresh = [code for code in codes.tolist() if self._codes.get(self._keys[code]) == code]
        for code in fresh:
            if code not in self.cache:
                del self._codes[self._keys[code]]
                self._keys[code] = None
                self._free.append(code)

    def stats(self) -> dict[str, Any]:
        cache = self.cache
        return {
            "hits": cache.hits,
            "misses": cache.misses,
            "evictions": cache.evictions,
            "fetches": self.fetches,
            "rows": int(self._has_row.sum()),
            "absent": len(cache) - int(self._has_row.sum()),
            "bytes": None if self.setting.memory.rows else cache.size,
            "policy": self.setting.policy,
        }

    def _check(self) -> None:
        self.cache._check()
        known = set(self._codes.values())
        assert set(self.cache.keys().tolist()) == known and not known & set(self._free)
        assert set(np.flatnonzero(self._has_row).tolist()) <= known


class Lookups:
    """All lookups of an engine. `probes`: which columns of streams are joined with a table's key."""

    def __init__(
        self, database: Database, probes: Probes | None, deliver_later: Callable[[Deltas], None]
    ) -> None:
        self._database, self._deliver_later = database, deliver_later
        self._probes: Probes = probes if probes is not None else lambda table: set()
        self._by_table: dict[str, Lookup] = {}
        self._fetching = False

    def __bool__(self) -> bool:
        return bool(self._by_table)

    def __contains__(self, table: object) -> bool:
        return table in self._by_table

    def add(self, name: str, fetch: Fetch, setting: LookupSetting) -> None:
        """Fill a declared, empty table on demand."""
        if not callable(fetch) or inspect.iscoroutinefunction(fetch):
            hint = "give a function of a list of keys that returns rows; one that awaits does not work"
            raise UsageError(f"fetch cannot be {fetch!r}", hint=hint)
        table = self._database.relation(name)
        if isinstance(table, Stream):
            raise CatalogError(f"{table.name} is a stream", hint="a lookup fills a table")
        if table.key != (setting.key,):
            hint = f"declare it with PRIMARY KEY ({setting.key}), or give key={', '.join(table.key)!r}"
            raise CatalogError(f"{setting.key!r} is not the primary key of {table.name}", hint=hint)
        if len(self._database.tables[table.name]):
            raise CatalogError(f"{table.name} has rows", hint="a lookup begins with an empty table")
        self._by_table[table.name] = Lookup(table, fetch, setting)

    def remove(self, table: str) -> None:
        self._by_table.pop(table, None)

    def check_change(self, table: str) -> None:
        """Raise if users may not change a table."""
        if self._fetching:
            raise ChangeError("fetch changes the engine", hint="return the rows instead")
        if table in self._by_table and self._is_current(table):
            hint = "it is fetched again after its ttl, or when its row has left the cache"
            raise ChangeError(f"{table} is filled by a lookup: only its fetch function gives rows", hint=hint)

    def check(self, query: Query, shape: Shape) -> None:
        """Raise unless a subscription only joins events with lookups, by their keys."""
        for table in query.tables if self._by_table else ():
            lookup = self._by_table.get(table.name)
            if lookup is None or not self._is_current(table.name):
                continue
            joined = f"FROM events e JOIN {table.name} t ON e.x = t.{lookup.setting.key}"
            hint = f"join a stream with it, as in {joined}"
            if shape is not Shape.ENRICH:
                raise SubscriptionError(f"{table.name} is filled by a lookup, so it never has all rows", hint)
            signature = Signature.of(query)
            place = next(p for p, t in enumerate(query.tables) if t is table)
            edges = [edge for edge in signature.edges if place in edge.places]
            by_stream = [
                edge
                for edge in edges
                if query.tables[edge.other(place)].stream and lookup.setting.key in edge.key(place).columns
            ]
            if not by_stream:
                fact = f"{table.name} is filled by a lookup, by the column {lookup.setting.key}"
                raise SubscriptionError(f"{fact}, which must equal one of the stream's", hint)

    def _is_current(self, name: str) -> bool:
        """Whether the table is still the one that was declared when the lookup began."""
        if self._database.catalog.get(name) is self._by_table[name].table:
            return True
        del self._by_table[name]
        return False

    @contextmanager
    def filled(self, batches: Mapping[str, Any], now: datetime, apply: Apply) -> Iterator[Mapping[str, Any]]:
        """Around a step: before it the rows that its events need are there, after it those too many leave."""
        if not self._by_table and not self._fetching:
            yield batches
            return
        for name in batches:
            self.check_change(self._database.relation(name).name)
        batches = self._read(batches)
        used = []
        for name in [name for name in self._by_table if self._is_current(name)]:
            columns = self._columns(name, batches)
            if columns:
                used.append((self._by_table[name], columns))
        try:
            self._fill(used, now, apply)
            yield batches
        finally:
            for lookup, _ in used:
                gone = lookup.shrink()
                if gone is not None:
                    self._change(lookup, gone, now, apply)

    def _fill(self, used: list[tuple[Lookup, list[Vector]]], now: datetime, apply: Apply) -> None:
        prepared = []
        self._fetching = True
        try:
            for lookup, columns in used:
                prepared.append((lookup, lookup.prepare(columns, now)))
        finally:
            self._fetching = False
            for lookup, changes in prepared:  # what was fetched stays, even if another fetch failed
                for batch in changes:
                    self._change(lookup, batch, now, apply)

    def _change(self, lookup: Lookup, batch: ChangeBatch, now: datetime, apply: Apply) -> None:
        """A step of the table alone. No answer depends on it, but a refresh may be due by the clock."""
        deltas = apply(self._database.stage_unnumbered(lookup.table.name, batch), now)
        if len(deltas):
            self._deliver_later(deltas)

    def _read(self, batches: Mapping[str, Any]) -> dict[str, Any]:
        """Batches of streams that lookups need, read; what has bad rows is left for the step to report."""
        found = dict(batches)
        streams = {stream for table in self._by_table for stream, _ in self._probes(table)}
        for name, data in batches.items():
            relation = self._database.relation(name)
            if relation.name in streams and not isinstance(data, ChangeBatch):
                data = list(data) if isinstance(data, Iterator) else data
                batch, bad = read_batch(relation, data)
                found[name] = data if bad or batch.nested else batch
        return found

    def _columns(self, table: str, batches: Mapping[str, Any]) -> list[Vector]:
        """The columns of events that are joined with a table's key."""
        probes = sorted(self._probes(table))
        found = []
        for name, data in batches.items():
            relation = self._database.relation(name)
            for stream, column in probes:
                if stream != relation.name:
                    continue
                batch = data if isinstance(data, ChangeBatch) else read_batch(relation, data)[0]
                found += [vector for vector in batch.rows.vectors(column) if len(vector)]
        return found

    def stats(self) -> dict[str, Any]:
        return {name: lookup.stats() for name, lookup in self._by_table.items()}

    def _check(self) -> None:
        for name, lookup in self._by_table.items():
            if self._is_current(name):
                lookup._check()
                assert len(self._database.tables[name]) == lookup.stats()["rows"]


def key_of(type: Type, value: Any) -> Any:
    """A value of an event's column as a key of a type; None if no key equals it, as NaN: no key is NaN.

    >>> key_of(Type.BIGINT, 5.0), key_of(Type.BIGINT, 5.5), key_of(Type.DOUBLE, 5)
    (5, None, 5.0)
    """
    if value is None or value != value:
        return None
    if type is Type.BIGINT and isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < 2**63 else None
    if type is Type.DOUBLE:
        return float(value)
    if type is Type.TIMESTAMP and not isinstance(value, datetime):
        return datetime.combine(value, _MIDNIGHT)
    if type is Type.DATE and isinstance(value, datetime):
        return value.date() if value.time() == time() else None
    return value


def _bytes_of(rows: Rows) -> NDArray[np.int64]:
    """About how many bytes each row takes in the table."""
    out = np.full(len(rows), _COLUMN_BYTES * len(rows.names), np.int64)
    for name in rows.names:
        vector = rows.vectors(name)[0]
        if vector.type is Type.STRING:
            out += _TEXT_BYTES + np.array([len(text) for text in vector.values.tolist()], np.int64)
    return out
