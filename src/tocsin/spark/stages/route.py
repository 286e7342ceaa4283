"""The stateless beginning of a pipeline: changes to their table shards.

    changes ─ route ─► [TableShards] ─► [QueryShards] ─ deliver ─► sinks

`route` asks for the batch's pin and hands it to every table shard with a *tick*, so that a shard
hears of each batch even if none of its rows changed: a new version or the mere passing of time may
concern it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark import TaskContext

from tocsin.errors import TocsinError
from tocsin.model.arrow import convert, flat
from tocsin.model.columns import Vector
from tocsin.model.json_rows import json_columns
from tocsin.model.schema import Field, Stream, Table, read
from tocsin.spark.hashing import buckets
from tocsin.spark.stages.processors import Place
from tocsin.spark.stages.wire import CHANGES, pack
from tocsin.spark.versions.placement import load_placement
from tocsin.spark.versions.versions import Pins, Versions

__all__ = ["Clock", "homes_of", "route"]

Clock = Callable[[], datetime]

_MESSAGE = pa.schema([("shard", pa.string()), ("kind", pa.string()), ("payload", pa.binary())])
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
    """The table shard of each change: by primary key; by seq if it is an event; any if it is bad anyway."""
    names = changes["table"].combine_chunks().dictionary_encode()
    code = names.indices.fill_null(-1).to_numpy()
    seqs = changes["seq"].fill_null(0).to_numpy()
    rows = changes["row"].combine_chunks()
    homes = np.zeros(len(changes), np.int64)
    for number, name in enumerate(names.dictionary.to_pylist()):
        alike = [r for r in relations.values() if r.name.lower() == name.lower()]
        relation = relations.get(name) or (alike[0] if len(alike) == 1 else None)
        here = np.flatnonzero(code == number)
        if relation is not None:
            texts = rows.take(pa.array(here))
            homes[here] = _by_key(relation, texts, count) if relation.key else seqs[here] % count
    return homes


def _by_key(relation: Table | Stream, texts: Any, count: int) -> NDArray[np.int64]:
    """The shard of each row by its key, in the columns' types: two spellings of one instant are one key."""
    fields = [field for name in relation.key for field in relation.fields if field.name == name]
    table = json_columns(fields, texts, only_these=False)
    homes = np.full(len(texts), -1, np.int64)
    if table is not None:
        homes = buckets([convert(f.name, f.type, flat(table[f.name]))[0].arrow for f in fields], count)
    rest = np.flatnonzero(homes < 0)  # a key's name may be there in other case
    keys = [_key(relation, fields, text) for text in texts.take(pa.array(rest)).to_pylist()]
    if keys:
        vectors = [Vector.of(f.type, values) for f, *values in zip(fields, *keys, strict=True)]
        homes[rest] = buckets([vector.arrow for vector in vectors], count)
    return np.maximum(homes, 0)


def _key(relation: Table | Stream, fields: Sequence[Field], text: str | None) -> list[Any]:
    """The values of a row's key; nothing if it has none."""
    try:
        values = json.loads(text or "")
        given = {
            found.name: value for name, value in values.items() if (found := relation.find(name)) is not None
        }
        return [read(field.type, given.get(field.name), json=True) for field in fields]
    except (ValueError, TypeError, AttributeError, RecursionError):
        return [None] * len(fields)


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
