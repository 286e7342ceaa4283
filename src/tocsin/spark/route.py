"""The stateless ends of a pipeline: changes to their table shards, and messages back to rows.

    changes ─ route ─► [TableShards] ─► [QueryShards] ─ flatten ─► rows of deltas and dead letters

`route` asks for the batch's pin and hands it to every table shard with a *tick*, so that a shard
hears of each batch even if none of its rows changed: a new version or the mere passing of time may
concern it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark import TaskContext

from tocsin.errors import TocsinError
from tocsin.model.schema import Stream, Table
from tocsin.model.values import read
from tocsin.spark.placement import load_placement
from tocsin.spark.shards import Place
from tocsin.spark.versions import Pins, Versions
from tocsin.spark.wire import CHANGES, bucket, pack, unpack

__all__ = ["INPUT", "OUTPUT", "Clock", "flatten", "home", "route"]

INPUT = "table string, op string, row string, seq bigint, wake boolean"
OUTPUT = (
    "kind string, seq bigint, subscription bigint, subscriber string, sign tinyint, "
    "table string, op string, row string, reason string"
)
Clock = Callable[[], datetime]

_MESSAGE = pa.schema([("shard", pa.string()), ("kind", pa.string()), ("payload", pa.binary())])
_OUTPUT = pa.schema(
    [
        ("kind", pa.string()),
        ("seq", pa.int64()),
        ("subscription", pa.int64()),
        ("subscriber", pa.string()),
        ("sign", pa.int8()),
        ("table", pa.string()),
        ("op", pa.string()),
        ("row", pa.string()),
        ("reason", pa.string()),
    ]
)
_EMPTY = pa.table({"seq": pa.array([], pa.int64())})


def utc_now() -> datetime:
    return datetime.now(UTC)


def route(
    batches: Iterator[pa.RecordBatch], place: Place, clock: Clock = utc_now
) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`: one message per table shard and Arrow batch, and the ticks."""
    pin = Pins(place.pins, place.query).pin(_batch(place), Versions(place.versions), clock())
    tick = pack(_EMPTY, version=pin.version, seq=pin.seq, micros=pin.micros)
    shards = [str(n) for n in range(place.layout.tables)]
    yield _messages(shards, ["tick"] * len(shards), [tick] * len(shards))
    relations = load_placement(place.versions, pin.version, place.layout).relations
    for part in batches:
        changes = pa.Table.from_batches([part])
        changes = changes.filter(pc.invert(changes["wake"])).select(CHANGES.names)
        if not changes.num_rows:
            continue
        homes = homes_of(changes, relations, len(shards))
        used = np.unique(homes).tolist()
        payloads = [pack(changes.filter(pa.array(homes == n))) for n in used]
        yield _messages([str(n) for n in used], ["changes"] * len(used), payloads)


def homes_of(changes: pa.Table, relations: Mapping[str, Table | Stream], count: int) -> NDArray[np.int64]:
    """The table shard of each change."""
    found = {}
    for name in pc.unique(changes["table"]).to_pylist():
        alike = [r for r in relations.values() if name is not None and r.name.lower() == name.lower()]
        found[name] = relations.get(name) or (alike[0] if len(alike) == 1 else None)
    rows = zip(*(changes[name].to_pylist() for name in ("table", "row", "seq")), strict=True)
    return np.array([home(found[table], row, seq, count) for table, row, seq in rows], np.int64)


def home(relation: Table | Stream | None, row: str | None, seq: int | None, count: int) -> int:
    """The table shard of one change: by primary key; by seq if it is an event; any if it is bad anyway."""
    if relation is None or row is None:
        return 0
    if not relation.key:
        return (seq or 0) % count
    try:
        values = json.loads(row)
        return bucket((relation.name, *_key(relation, values)), count)
    except (ValueError, TypeError, AttributeError, RecursionError):
        return 0


def _key(relation: Table | Stream, values: dict[str, Any]) -> list[Any]:
    """The key's values, in the columns' types: two spellings of one instant are one key."""
    given = {
        found.name: value for name, value in values.items() if (found := relation.find(name)) is not None
    }
    types = {field.name: field.type for field in relation.fields}
    return [read(types[name], given.get(name), json=True) for name in relation.key]


def flatten(batches: Iterator[pa.RecordBatch], place: Place) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`: the rows in the messages, and whose they are."""
    for part in batches:
        for kind, payload in zip(part["kind"].to_pylist(), part["payload"].to_pylist(), strict=True):
            yield from _rows(kind, payload, place).to_batches()


def _rows(kind: str, payload: bytes, place: Place) -> pa.Table:
    facts, table = unpack(payload)
    if kind == "deltas":
        columns = {name: table[name] for name in table.column_names}
        columns["subscriber"] = _subscribers(table["subscription"], place, int(facts["version"]))
    elif kind == "dead":
        columns = {name: table[name] for name in table.column_names}
    else:
        columns = {"seq": pa.array([int(facts["seq"])], pa.int64())}
    length = len(next(iter(columns.values())))
    columns["kind"] = pa.array([kind] * length, pa.string())
    return pa.table([columns.get(f.name, pa.nulls(length, f.type)) for f in _OUTPUT], schema=_OUTPUT)


def _subscribers(ids: pa.ChunkedArray, place: Place, version: int) -> Any:
    chosen, named = Versions(place.versions).load(version).subscribers
    return (
        pa.nulls(len(ids), pa.string())
        if named is None
        else named.take(pa.array(chosen.find(ids.to_numpy())))
    )


def _messages(shards: list[str], kinds: list[str], payloads: list[bytes]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array(shards, pa.string()), pa.array(kinds, pa.string()), pa.array(payloads, pa.binary())],
        schema=_MESSAGE,
    )


def _batch(place: Place) -> int:
    """The batch that this task is part of. `deliver` says so before it runs anything.

    Spark's own property (`streaming.sql.batchId`) is not there when `foreachBatch` runs in a Connect server.
    """
    context = TaskContext.get()
    batch = context.getLocalProperty(place.batch_setting) if context is not None else None
    if batch is None:
        raise TocsinError("no batch is known here", hint="run a pipeline by Pipeline.start")
    return int(batch)
