"""What a worker needs to match events of a DataFrame: the filters over a stream, and the form of the output.

A `Matcher` is sent with the task. It has either a packed set of subscriptions, of which each worker builds
an index once, or the path of versions, and then the index is mapped from files: that of the version that the
task's micro-batch is pinned to, or that a batch job was planned with.

    <folder>/filters/<stream>/index/          segments and versions of the index
    <folder>/filters/<stream>/v000012.json    which of them holds version 12 of the subscriptions
    <folder>/filters/<stream>/3.ids.npy       the id of each slot of the index's version 3, and its digest

The folder is that of the versions or, if they are in an object store, one in the cache of each host. The
first process that needs a version builds its index from the nearest earlier one: it removes and adds filters,
and shares the segments that stay. Others wait for the lock, and find it. A process opens an index in
milliseconds; a page is read when a match touches it, once per machine.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.types as pt
from pyspark import TaskContext

from tocsin.errors import BadRow, SubscriptionError, TocsinError
from tocsin.language.shape import plan
from tocsin.language.template import Parser
from tocsin.match._kernels.ordering import lists_by_event
from tocsin.match.index import Auto, MergePolicy
from tocsin.match.nested import match_computed
from tocsin.match.segments.files import FORMAT
from tocsin.model.change import ChangeBatch
from tocsin.model.columns import Index
from tocsin.model.paths import is_inside
from tocsin.model.schema import Catalog, Stream
from tocsin.predicate.compile import flatten
from tocsin.spark.sharded_match import LISTS, AttributeRoutes, IndexShard
from tocsin.spark.stages.route import utc_now
from tocsin.spark.stages.wire import unpack
from tocsin.spark.storage.store import open_store
from tocsin.spark.versions.batch import Pin, Pins, relations_of
from tocsin.spark.versions.blocks import BlockKind, SubscriptionBlock
from tocsin.spark.versions.store import Version, Versions, draft
from tocsin.spark.versions.subscription_sets import SubscriptionSet
from tocsin.spark.worker_daemon import drop_archives
from tocsin.store.database import find_relation
from tocsin.subscriptions.bulk import Load, load_predicates, load_template, load_texts

__all__ = ["COLUMN", "MAPS", "Matcher", "StreamFilters", "mapped_filters", "stream_filters"]

COLUMN = {"rows": "subscription", "lists": LISTS}  # by output
MAPS = ("attributes", "texts")  # columns of an open stream with one entry per attribute
RESERVED = ("_op", "_seq")  # columns with a meaning of their own in a batch for the engine
MAX_CACHED = 4  # indexes per worker

_READ_ONLY = MergePolicy(review_events=2**62)  # a worker that rebuilt a segment would copy what it shares
_LIMITS = np.iinfo(np.int64)
FREE = _LIMITS.min
"""The id of a free slot: no subscription's id is so low."""

_filters: dict[str, StreamFilters] = {}  # of this worker, least recently used first


# -- filters over a stream, in memory or mapped --------------------------------------------------------


@dataclass
class StreamFilters:
    """An index over the events of a stream, and the subscription of each slot."""

    stream: Stream
    index: Auto
    ids: Index  # by slot
    digests: Any  # by slot; undefined for a free slot
    times: Index | None = None  # by slot: valid from and to, in microseconds; None if no filter has a period
    shard: IndexShard | None = None  # if it has only some of the filters
    routes: AttributeRoutes | None = None  # then: which events it must see

    def read(self, events: Any) -> tuple[ChangeBatch, list[BadRow]]:
        """Read events from an Arrow table or an array of JSON texts; returns invalid ones apart."""
        if isinstance(events, pa.Table):
            return ChangeBatch.from_arrow(self.stream, events)
        return ChangeBatch.from_json(self.stream, ["insert"] * len(events), None, events)

    def match(self, events: Any, micros: int = 0) -> tuple[Index, Index, list[BadRow]]:
        """The offset of each event's subscriptions, the subscriptions, and the invalid events."""
        batch, bad = self.read(events)
        packed = match_computed(self.index, batch.rows)
        if self.times is not None:
            begins, ends = self.times
            slot = packed >> 32
            packed = packed[(begins[slot] <= micros) & (micros < ends[slot])]
        found = np.empty(len(packed), np.int64)
        return lists_by_event(packed, batch.origin, self.ids, len(events), found), found, bad

    def change(self, subscriptions: SubscriptionSet, catalog: Catalog) -> None:
        """Remove the filters that are not in the set, and add those that are missing."""
        used = np.flatnonzero(self.ids != FREE)
        at = subscriptions.find(self.ids[used])
        same = at >= 0
        if len(subscriptions):
            same &= subscriptions.digests[at] == self.digests[used]
        gone = used[~same]
        if len(gone):
            self.index.remove(gone)
            self.ids[gone] = FREE
        for block in subscriptions.without(self.ids[used[same]]).blocks():
            self._add(block, catalog)

    def _add(self, block: SubscriptionBlock, catalog: Catalog) -> None:
        load = _loaded(block, self.stream, catalog)
        parts: list[tuple[Index, Any]] = [(ids, plans.first_filters) for ids, _, plans in load.batches]
        if load.single:
            single = flatten(plan(query, text=sql).filters[0] for _, _, sql, query in load.single)
            parts.append((np.array([id for id, _, _, _ in load.single], np.int64), single))
        order = np.argsort(block.ids)
        for ids, filters in parts:
            if self.shard is not None and self.routes is not None:
                filters = filters.flat()
                if any(map(is_inside, filters.names)):
                    hint = "events are sent to shards by their own attributes: match with shards=1"
                    raise SubscriptionError("a sharded index takes no paths and expressions", hint=hint)
                mine = self.routes.place(filters) == self.shard.number
                ids, filters = ids[mine], filters.take(mine)
            rows = order[np.searchsorted(block.ids[order], ids)]
            slots = np.arange(len(self.ids), len(self.ids) + len(ids))
            self.index.add(slots, filters)
            self.ids = np.concatenate([self.ids, ids])
            self.digests = np.concatenate([self.digests, block.digests[rows]])
            self._add_times(block, rows)

    def _add_times(self, block: SubscriptionBlock, rows: Index) -> None:
        columns = ("valid_from", "valid_to")
        timed = block.kind == BlockKind.TEXTS and any(
            block.table[name].null_count < len(block) for name in columns
        )
        if self.times is None and not timed:
            return
        if self.times is None:
            before = len(self.ids) - len(rows)
            self.times = np.repeat([[_LIMITS.min], [_LIMITS.max]], before, axis=1)
        mine = np.repeat([[_LIMITS.min], [_LIMITS.max]], len(rows), axis=1)
        if timed:
            for i, name in enumerate(columns):
                micros = block.table[name].cast(pa.int64()).take(pa.array(rows))
                mine[i] = micros.fill_null(int(mine[i, 0])).to_numpy()
        self.times = np.concatenate([self.times, mine], axis=1)


def stream_filters(version: Version, stream: Stream, catalog: Catalog) -> StreamFilters:
    """The filters of a version over a stream, in memory."""
    made = _empty(stream, Auto())
    made.change(_filters_over(version, stream), catalog)
    return made


def mapped_filters(
    versions: Versions, number: int, stream: Stream, catalog: Catalog, shard: IndexShard | None = None
) -> StreamFilters:
    """The same, or one shard of it, mapped from files; builds the files if there are none."""
    name = quote(stream.name, safe="")
    if shard is not None:
        name += f"+{shard.number}of{shard.shards}"
    folder = versions.store.work_folder() / "filters" / name
    version = versions.load(number)
    found = _index_version(folder, number, version.uuid)
    if found is None:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder / ".lock"):
            found = _index_version(folder, number, version.uuid)
            if found is None:
                found = _build(folder, versions, version, stream, catalog, shard)
    return _open(folder, found, stream, _READ_ONLY, shard)


def _filters_over(version: Version, stream: Stream) -> SubscriptionSet:
    by_key = version.subscriptions.by_shard_key()
    return SubscriptionSet.union(some for key, some in by_key.items() if key.tables == (stream.name,))


def _index_version(folder: Path, number: int, uuid: str) -> int | None:
    """The version of the index that holds a version of the subscriptions; None if it is not built."""
    try:
        facts = json.loads((folder / f"v{number:06d}.json").read_text())
    except FileNotFoundError:
        return None
    is_current = facts["uuid"] == uuid and facts.get("format") == FORMAT
    return int(facts["index"]) if is_current else None  # one of an earlier format is built again


def _build(
    folder: Path,
    versions: Versions,
    version: Version,
    stream: Stream,
    catalog: Catalog,
    shard: IndexShard | None,
) -> int:
    base = _nearest(folder, versions, version.number)
    made = (
        _empty(stream, Auto(), shard) if base is None else _open(folder, base, stream, MergePolicy(), shard)
    )
    if np.count_nonzero(made.ids == FREE) > len(made.ids) // 2:
        made = _empty(stream, Auto(), shard)
    made.change(_filters_over(version, stream), catalog)
    number = made.index.save(folder / "index")
    np.save(folder / f"{number}.ids.npy", made.ids)
    np.save(folder / f"{number}.digests.npy", made.digests)
    if made.times is not None:
        np.save(folder / f"{number}.times.npy", made.times)
    if made.routes is not None:
        open_store(folder).put(f"{number}.routes.json", json.dumps(made.routes.to_json()).encode())
    facts = {"index": number, "uuid": version.uuid, "format": FORMAT}
    open_store(folder).put(f"v{version.number:06d}.json", json.dumps(facts).encode())
    return number


def _nearest(folder: Path, versions: Versions, number: int) -> int | None:
    """The version of the index for the nearest earlier version of the subscriptions."""
    there = set(versions.numbers())
    known = sorted((int(file.stem[1:]) for file in folder.glob("v*.json")), reverse=True)
    for other in known:
        if other < number and other in there:
            found = _index_version(folder, other, versions.manifest(other)["uuid"])
            if found is not None:
                return found
    return None


def _open(
    folder: Path, number: int, stream: Stream, policy: MergePolicy, shard: IndexShard | None
) -> StreamFilters:
    def load(name: str) -> Any:
        return np.asarray(np.load(folder / f"{number}.{name}.npy", mmap_mode="c"))

    index = Auto.open(folder / "index", number, policy=policy)
    timed = (folder / f"{number}.times.npy").exists()
    times = load("times") if timed else None
    routes = None
    if shard is not None:
        routes = AttributeRoutes.from_json(json.loads((folder / f"{number}.routes.json").read_text()))
    return StreamFilters(stream, index, load("ids"), load("digests"), times, shard, routes)


def _empty(stream: Stream, index: Auto, shard: IndexShard | None = None) -> StreamFilters:
    routes = None if shard is None else AttributeRoutes(shard.shards)
    return StreamFilters(
        stream, index, np.empty(0, np.int64), np.empty(0, np.uint64), shard=shard, routes=routes
    )


def _loaded(block: SubscriptionBlock, stream: Stream, catalog: Catalog) -> Load:
    table = block.table.drop_columns(["subscriber"])
    if block.kind == BlockKind.TEMPLATE:
        return load_template(block.subject, table, catalog).without_options()
    if block.kind == BlockKind.PREDICATES:
        return load_predicates(stream, table)
    texts = table["sql"].to_pylist()
    return load_texts(texts, block.ids.tolist(), None, Parser(catalog), 0).without_options()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def micros_of(time: datetime) -> int:
    """A time in microseconds, the unit of validity periods."""
    return int(time.timestamp() * 1_000_000)


# -- matching in a worker ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Matcher:
    """All that a worker needs: a packed set of subscriptions, or the path of versions."""

    stream: str
    output: str
    strict: bool  # whether a subscription to something else is an error
    packed: bytes = b""
    key: str = ""  # a digest of `packed`
    versions: str = ""
    number: int = 0  # of the version, for a batch; a streaming query pins its own
    json: str | None = None
    reason: str | None = None
    keep: tuple[str, ...] = ()
    shards: int = 1
    shard: int = 0  # which of them
    ignored: tuple[str, ...] = ()  # columns that are not the events'
    reporter: str = ""  # a column that is true where this shard reports the event if it is invalid

    def filters(self) -> tuple[StreamFilters, int]:
        """The filters over the stream, from this worker's cache if possible; and the time in microseconds."""
        if not self.versions:
            return self._cached(self.key, lambda: self._draft()), micros_of(utc_now())
        versions, number, micros = Versions(self.versions), self.number, micros_of(utc_now())
        if not number:
            pin = _pinned(versions)
            number, micros = pin.version, pin.micros
        uuid = versions.manifest(number)["uuid"]
        key = f"{self.versions}|{number}|{uuid}|{self.stream}|{self.shard}/{self.shards}"
        return self._cached(key, lambda: self._mapped(versions, number)), micros

    def _cached(self, key: str, make: Callable[[], StreamFilters]) -> StreamFilters:
        found = _filters.pop(key, None) or make()
        while len(_filters) >= MAX_CACHED:
            _filters.pop(next(iter(_filters)))
        _filters[key] = found
        return found

    def _mapped(self, versions: Versions, number: int) -> StreamFilters:
        catalog = relations_of(versions.load(number).ddl)
        shard = IndexShard(self.shards, self.shard) if self.shards > 1 else None
        return mapped_filters(versions, number, self._stream(catalog), catalog, shard)

    def _draft(self) -> StreamFilters:
        facts, table = unpack(self.packed)
        catalog = relations_of(facts["ddl"])
        stream = self._stream(catalog)
        version = draft(facts["ddl"], table)
        for key, subscriptions in version.subscriptions.by_shard_key().items():
            if self.strict and key.tables != (stream.name,):
                first = subscriptions.ids.min()
                raise SubscriptionError(f"subscription {first} is not a filter over {stream.name}")
        return stream_filters(version, stream, catalog)

    def _stream(self, catalog: Catalog) -> Stream:
        relation = find_relation(self.stream, catalog)
        if not isinstance(relation, Stream):
            raise TocsinError(
                f"{relation.name} is a table", hint="match() takes streams; a table needs a Pipeline"
            )
        return relation

    def match(self, batch: pa.RecordBatch) -> tuple[Index, Index, list[BadRow]]:
        """The offset of each event's subscriptions, the subscriptions, and the invalid events."""
        filters, micros = self.filters()
        return filters.match(self.events(batch, filters.stream), micros)

    def events(self, batch: pa.RecordBatch, stream: Stream) -> Any:
        """The events of a batch: JSON texts, or the columns that are attributes or contain some."""
        if self.json is not None:
            return batch[self.json]
        own = [field for field in batch.schema if field.name not in self.ignored]
        wanted = [f.name for f in own if (_is_attribute(f) if stream.open else stream.find(f.name))]
        for name in wanted:
            if name.lower() in RESERVED:
                raise TocsinError(f"an event cannot have a column {name}", hint="rename it, or leave it out")
        return pa.Table.from_batches([batch]).select(wanted)

    def match_batches(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For `mapInArrow`: the events with their subscriptions."""
        drop_archives()
        for batch in batches:
            starts, subscription, bad = self.match(batch)
            if bad and self.reporter:
                reports = batch[self.reporter].to_numpy(zero_copy_only=False)
                bad = [fault for fault in bad if reports[fault.row]]
            batch = batch.select(list(self.keep))
            columns, names = [*batch.columns], [*batch.schema.names, COLUMN[self.output]]
            reasons = _reasons(bad, batch.num_rows) if self.reason else None
            if self.output == "lists":
                offsets = pa.array(starts.astype(np.int32))
                columns.append(pa.ListArray.from_arrays(offsets, pa.array(subscription)))
            else:
                columns, reasons = _by_match(batch, starts, subscription, reasons)
            if reasons is not None:
                columns, names = [*columns, reasons], [*names, self.reason]
            yield pa.RecordBatch.from_arrays(columns, names=names)


def _by_match(
    batch: pa.RecordBatch, starts: Index, subscription: Index, reasons: Any
) -> tuple[list[Any], Any]:
    """One row per match; with reasons, also one per invalid event."""
    counts = np.diff(starts)
    event = np.repeat(np.arange(batch.num_rows), counts)
    found = pa.array(subscription)
    if reasons is not None and reasons.null_count < len(reasons):
        wrong = np.flatnonzero(reasons.is_valid().to_numpy(zero_copy_only=False))
        event = np.concatenate([event, wrong])
        found = pa.concat_arrays([found, pa.nulls(len(wrong), pa.int64())])
    at = pa.array(event)
    kept = batch.take(at).columns if batch.num_columns else ()
    return [*kept, found], None if reasons is None else reasons.take(at)


def _reasons(bad: list[BadRow], count: int) -> Any:
    why = dict(bad)
    return pa.array([why.get(row) for row in range(count)] if why else [None] * count, pa.string())


def _is_attribute(field: pa.Field) -> bool:
    """Whether a column of the events can be an attribute of an open stream, or a map of some."""
    return (
        (field.name in MAPS)
        if pt.is_map(field.type)
        else not pt.is_nested(field.type) and not pt.is_binary(field.type)
    )


def _pinned(versions: Versions) -> Pin:
    """The pin of this task's batch; the newest version if Spark does not say which batch it is."""
    context = TaskContext.get()
    query = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
    batch = context.getLocalProperty("streaming.sql.batchId") if context is not None else None
    if query is None or batch is None:  # inside a foreachBatch of Spark Connect
        return Pin(versions.latest() or 0, -1, micros_of(utc_now()))
    return Pins(versions.store / "pins", query).pin(int(batch), versions, utc_now())
