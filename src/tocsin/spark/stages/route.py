"""The stateless first stage: sends each change to its table shard.

    changes ─ route ─► [TableShards] ─► [QueryShards] ─ deliver ─► sinks

`route` reads the batch's pin, or creates it, and sends it to every table shard as a *tick*. So a shard takes
part in each batch even if none of its rows changed: a new version, or the passing of time, may concern it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark import TaskContext

from tocsin.errors import TocsinError
from tocsin.model.arrow import convert, flat
from tocsin.model.json_rows import json_columns
from tocsin.model.schema import Field, Stream, Table, read
from tocsin.spark.sharding import shards_of
from tocsin.spark.spark_hash import key_of
from tocsin.spark.stages.steps import PipelinePaths, ShardMessageKind
from tocsin.spark.stages.wire import CHANGES, MESSAGE_SCHEMA, NO_ROWS, pack
from tocsin.spark.versions.batch import Pin, Pins, load_placement
from tocsin.spark.versions.store import Versions
from tocsin.spark.worker_daemon import drop_archives

__all__ = ["Clock", "current_batch", "current_query", "route", "table_shards_of", "utc_now"]

Clock = Callable[[], datetime]


def utc_now() -> datetime:
    return datetime.now(UTC)


def route(
    batches: Iterable[pa.RecordBatch], paths: PipelinePaths, clock: Clock = utc_now, pin: Pin | None = None
) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`: the ticks, then one message per table shard and Arrow batch."""
    if pin is None:
        pins = Pins(paths.pins, current_query(paths))
        pin = pins.pin(current_batch(paths), Versions(paths.versions), clock())
    tick = pack(NO_ROWS, version=pin.version, seq=pin.seq, micros=pin.micros)
    count = paths.layout.tables
    names = [key_of(str(n)) for n in range(count)]
    yield pa.RecordBatch.from_arrays(
        [
            pa.array(names),
            pa.array([ShardMessageKind.TICK.value] * count),
            pa.array([tick] * count, pa.binary()),
        ],
        schema=MESSAGE_SCHEMA,
    )
    relations = load_placement(paths.versions, pin.version, paths.layout).by_name
    for batch in batches:
        changes = pa.Table.from_batches([batch])
        changes = changes.filter(pc.invert(changes["wake"])).select(CHANGES.names)
        if not changes.num_rows:
            continue
        shard = table_shards_of(changes, relations, count)
        used = np.unique(shard).tolist()
        payloads = [pack(changes.filter(pa.array(shard == n))) for n in used]
        yield pa.RecordBatch.from_arrays(
            [
                pa.array([names[n] for n in used]),
                pa.array([ShardMessageKind.CHANGES.value] * len(used)),
                pa.array(payloads, pa.binary()),
            ],
            schema=MESSAGE_SCHEMA,
        )


def table_shards_of(
    changes: pa.Table, relations: Mapping[str, Table | Stream], count: int
) -> NDArray[np.int64]:
    """The table shard of each change: by its primary key, an event by its seq, any other to any.

    `relations` are by name in lower case. Keys are compared in the types of their columns: two
    spellings of one instant are one key.
    """
    names = changes["table"].combine_chunks().dictionary_encode()
    code = names.indices.fill_null(-1).to_numpy()
    given = changes["seq"]
    seqs = given.to_numpy() if not given.null_count else np.arange(len(given))  # any shard will do
    rows = changes["row"].combine_chunks()
    out = np.zeros(len(changes), np.int64)
    for number, name in enumerate(names.dictionary.to_pylist()):
        relation = relations.get(name.lower())
        here = np.flatnonzero(code == number)
        if relation is None:
            continue
        if not relation.key:
            out[here] = seqs[here] % count
            continue
        texts = rows.take(pa.array(here))
        fields = [field for key in relation.key for field in relation.fields if field.name == key]
        table = json_columns(fields, texts, only_these=False)
        shard = np.full(len(texts), -1, np.int64)
        if table is not None:
            shard = shards_of([convert(f.name, f.type, flat(table[f.name]))[0].arrow for f in fields], count)
        rest = np.flatnonzero(shard < 0)  # the key's name may be spelled in another case
        keys = [_key_values(relation, fields, text) for text in texts.take(pa.array(rest)).to_pylist()]
        if keys:
            columns = [pa.array(values, f.type.arrow) for f, *values in zip(fields, *keys, strict=True)]
            shard[rest] = shards_of(columns, count)
        out[here] = np.maximum(shard, 0)
    return out


def _key_values(relation: Table | Stream, fields: Sequence[Field], text: str | None) -> list[Any]:
    """The key of a row that is JSON text; NULLs if the row cannot be read."""
    try:
        values = json.loads(text or "")
        given = {
            found.name: value for name, value in values.items() if (found := relation.find(name)) is not None
        }
        return [read(field.type, given.get(field.name), json=True) for field in fields]
    except (ValueError, TypeError, AttributeError, RecursionError):
        return [None] * len(fields)


def current_batch(paths: PipelinePaths) -> int:
    """The batch that this task is part of; `deliver` sets it before it runs a job.

    Spark's own property is not set when `foreachBatch` runs in a Connect server.
    """
    drop_archives()
    context = TaskContext.get()
    setting = paths.batch_setting if paths.query else "streaming.sql.batchId"
    batch = context.getLocalProperty(setting) if context is not None else None
    if batch is None:
        raise TocsinError(
            "no batch is known here", hint="run a streaming query: Pipeline.start, or writeStream"
        )
    return int(batch)


def current_query(paths: PipelinePaths) -> str:
    """The query that this task is part of, as Spark names it in its checkpoint if a pipeline does not."""
    context = TaskContext.get()
    return paths.query or str(
        context.getLocalProperty("sql.streaming.queryId") if context is not None else ""
    )
