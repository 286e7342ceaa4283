"""The end of a micro-batch whose sink is Spark's own: messages become rows in tasks, without `foreachBatch`.

    shards ─ address ─► exchange by target ─ open_rows ─► seq, subscription, subscriber, sign, row

Deltas that cancel with none are opened where they are. Those that may cancel with deltas of another shard
are cut by (seq, subscription), so that each pair meets in one task. One task receives what a batch leaves
beside its deltas: the last seq that was applied, for the next batch, and dead letters, which it writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as parquet
from pyspark import TaskContext

from tocsin.model.change import ChangeBatch
from tocsin.model.schema import Field, Stream
from tocsin.spark.sharding import shards_of
from tocsin.spark.spark_hash import key_of
from tocsin.spark.stages.deliver import open_all
from tocsin.spark.stages.route import current_batch, current_query
from tocsin.spark.stages.steps import PipelinePaths, ShardMessageKind
from tocsin.spark.stages.wire import DEAD_LETTERS, pack, unpack
from tocsin.spark.storage.store import open_store
from tocsin.spark.versions.batch import Pins

__all__ = ["ADDRESSED", "RowOpener", "address"]

ADDRESSED = "target string, kind string, payload binary"
_SCHEMA = pa.schema([("target", pa.string()), ("kind", pa.string()), ("payload", pa.binary())])
_ONE = ShardMessageKind.MARK, ShardMessageKind.DEAD_LETTERS


def address(batches: Iterable[pa.RecordBatch], targets: int) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`: the messages that leave the shards, each with the task that opens it."""
    context = TaskContext.get()
    own = (context.partitionId() if context is not None else 0) % targets
    last = None
    for batch in batches:
        for kind, payload in zip(batch["kind"].to_pylist(), batch["payload"].to_pylist(), strict=True):
            if kind == ShardMessageKind.MARK:
                last = max(last or (-1, b""), (int(unpack(payload)[0]["seq"]), payload))
            elif kind == ShardMessageKind.DEAD_LETTERS:
                yield _addressed(0, kind, payload)
            elif kind == ShardMessageKind.DELTAS:
                for target, part in _cut(payload, own, targets):
                    yield _addressed(target, kind, part)
    if last is not None:
        yield _addressed(0, ShardMessageKind.MARK.value, last[1])


def _addressed(target: int, kind: str, payload: bytes) -> pa.RecordBatch:
    columns = [pa.array([key_of(str(target))]), pa.array([str(kind)]), pa.array([payload], pa.binary())]
    return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)


def _cut(payload: bytes, own: int, targets: int) -> Iterator[tuple[int, bytes]]:
    """A message of deltas; what may cancel goes to the tasks of its seqs and subscriptions."""
    facts, table = unpack(payload)
    if targets == 1 or "split" not in table.column_names or not pc.any(table["split"]).as_py():
        yield own, payload
        return
    to = np.full(len(table), own, np.int64)
    split = table["split"].to_numpy()
    to[split] = shards_of([table[name].filter(pa.array(split)) for name in ("seq", "subscription")], targets)
    for target in np.unique(to).tolist():
        yield target, pack(table.filter(pa.array(to == target)), **facts)


@dataclass(frozen=True)
class RowOpener:
    """Opens the messages that reach one task, for `mapInArrow`.

    `fields` are the columns of every answer if they all share them: then a row is a struct, else JSON text.
    """

    paths: PipelinePaths
    dead_letters: str
    fields: tuple[Field, ...] | None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Deltas in order of seq; dead letters and the last seq are written here."""
        found: dict[str, list[bytes]] = {}
        for batch in batches:
            for kind, payload in zip(batch["kind"].to_pylist(), batch["payload"].to_pylist(), strict=True):
                found.setdefault(kind, []).append(payload)
        if ShardMessageKind.MARK in found:
            seq = max(int(unpack(payload)[0]["seq"]) for payload in found[ShardMessageKind.MARK])
            Pins(self.paths.pins, current_query(self.paths)).set_applied(current_batch(self.paths), seq)
        if ShardMessageKind.DEAD_LETTERS in found:
            self._write_dead_letters(found[ShardMessageKind.DEAD_LETTERS])
        payloads = pa.array(found.get(ShardMessageKind.DELTAS, []), pa.binary())
        for batch in open_all(iter([pa.RecordBatch.from_arrays([payloads], names=["payload"])]), self.paths):
            yield batch if self.fields is None else self._with_structs(batch)

    def _with_structs(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        assert self.fields is not None
        at = batch.schema.get_field_index("row")
        texts = batch.column(at)
        answer = Stream("answer", self.fields)
        read, bad = ChangeBatch.from_json(answer, ["insert"] * len(texts), None, texts)
        assert not bad, bad[0]
        columns = [vector.arrow for _, vector in read.rows.columns]
        row = pa.StructArray.from_arrays(columns, names=[field.name for field in self.fields])
        return batch.set_column(at, "row", row)

    def _write_dead_letters(self, payloads: list[bytes]) -> None:
        tables = [unpack(payload)[1] for payload in payloads]
        letters = pa.concat_tables([DEAD_LETTERS.empty_table(), *tables], promote_options="default")
        put_dead_letters(self.dead_letters, current_query(self.paths), current_batch(self.paths), letters)


def put_dead_letters(address: str, query: str, batch: int, letters: Any) -> None:
    """The dead letters of a batch as one Parquet file, which a replay replaces."""
    sink = pa.BufferOutputStream()
    parquet.write_table(letters.sort_by("seq"), sink)
    (open_store(address) / query / f"batch={batch}").put("part-0.parquet", sink.getvalue())
