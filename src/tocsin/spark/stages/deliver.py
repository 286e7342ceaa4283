"""The end of a batch: count its messages, open them for the sinks, write dead letters, record the last seq.

    shards ─ observe ─► foreachBatch: deliver ─┬─ small messages: the driver opens, merges and sorts all
                                               ├─ few deltas: one task does
                                               └─ many: each task opens its own; those that may
                                                  cancel with another shard's meet in one task

Shards send their deltas as a few messages with an Arrow table each. Spark keeps the messages for the
duration of the batch as they are: as rows of Spark's, every delta would pass through the JVM several times.
A sink of files opens them in the task that writes them; only a sink that needs rows gets rows. The job that
runs the batch also collects its messages if they are small: no other job is needed then.

A message that leaves the shards has the columns that counting and delivery use (`processors.label`):

    kind     deltas | messages | dead | mark
    rows     how many deltas, messages or dead letters it has
    split    how many of its deltas may cancel with those of another shard
    seq      of a mark: the last seq applied
    version  of the subscriptions
    produced, missed   pairs of joins of streams
    payload  the table

An update that moves a row from one join shard to another is -x in one and +y in the other; they cancel if
the query does not show what changed. Shards mark such deltas as `split`; without the mark, every delta
counts as split.

With `output="messages"` rows have one more column, `data`: a part of what the batch is described by
(`messages.py`), made in one task; of deltas it is NULL.

Spark puts what `observe` counts into `lastProgress["observedMetrics"]` of the query, and listeners receive
it. It counts deltas as the shards send them: two that cancel between shards are still counted.

>>> table = pa.table({"seq": [1, 1, 1], "subscription": [7, 7, 7], "subscriber": ["ann"] * 3,
...                   "sign": pa.array([1, -1, 1], pa.int8()), "row": ["x", "x", "y"]})
>>> consolidated(table).select(["seq", "sign", "row"]).to_pylist()
[{'seq': 1, 'sign': 1, 'row': 'y'}]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from tocsin.spark.progress import IN, OUT
from tocsin.spark.stages.steps import PipelinePaths, ShardMessageKind
from tocsin.spark.stages.wire import DEAD_LETTERS, unpack
from tocsin.spark.versions.batch import Pins, load_placement

if TYPE_CHECKING:
    from tocsin.spark.sinks import Sink

__all__ = [
    "DEAD_LETTER_COLUMNS", "DELTA_COLUMNS", "DELTA_SCHEMA", "BatchDeltas", "Messages", "Opener",
    "consolidated", "count_changes", "count_messages", "deliver", "open_all", "open_dead_letters",
    "open_described", "open_plain", "open_split", "ordered", "write_dead_letters",
]  # fmt: skip

DELTA_COLUMNS = ["query", "batch", "seq", "subscription", "subscriber", "sign", "row"]
DEAD_LETTER_COLUMNS = ["query", "batch", "seq", "table", "op", "row", "reason"]
DELTA_SCHEMA = pa.schema(
    [
        ("seq", pa.int64()),
        ("subscription", pa.int64()),
        ("subscriber", pa.string()),
        ("sign", pa.int8()),
        ("row", pa.string()),
    ]
)

FEW = 250_000  # deltas of a batch that one task opens and sorts
SMALL = 1 << 16  # bytes of a message that the driver opens
CHUNK = 1 << 16  # rows that leave a worker at once

Opener = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]  # messages in, rows out
Messages: TypeAlias = DataFrame | pa.RecordBatch  # in tasks, or in the driver

_DELTAS = "seq bigint, subscription bigint, subscriber string, sign tinyint, row string"
_DATA = pa.field("data", pa.binary())
_DEAD_LETTERS = "table string, op string, row string, seq bigint, reason string"


# -- counting ------------------------------------------------------------------------------------------


def count_changes(changes: DataFrame) -> DataFrame:
    """The changes, observed: how many there are, and their highest seq."""
    return changes.observe(IN, F.count(F.lit(1)).alias("changes"), F.max("seq").alias("highest_seq"))


def count_messages(messages: DataFrame) -> DataFrame:
    """The messages that leave the last stage, observed."""
    return messages.observe(
        OUT,
        (_rows_of_kind(ShardMessageKind.DELTAS) + _rows_of_kind(ShardMessageKind.MESSAGES)).alias("deltas"),
        _rows_of_kind(ShardMessageKind.DEAD_LETTERS).alias("dead_letters"),
        F.max(F.when(F.col("kind") == ShardMessageKind.MARK.value, F.col("seq"))).alias("last_seq"),
        F.max("version").alias("version"),
        F.sum("produced").alias("produced"),
        F.sum("missed").alias("missed"),
        F.try_divide(F.sum("produced"), F.sum("produced") + F.sum("missed")).alias("share"),
    )


def _rows_of_kind(kind: ShardMessageKind) -> Column:
    return F.coalesce(F.sum(F.when(F.col("kind") == kind.value, F.col("rows"))), F.lit(0))


# -- delivering ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BatchDeltas:
    """The deltas of one batch, still packed into messages."""

    frame: DataFrame  # messages
    paths: PipelinePaths
    batch: int
    rows: int
    split: int  # of them
    query: str = ""  # the query's name in what leaves the pipeline
    messages: int = 0  # that describe the batch beside the deltas
    collected: pa.Table | None = None  # all messages, if they are small

    @property
    def schema(self) -> pa.Schema:
        """The columns of its rows, without query and batch."""
        return DELTA_SCHEMA if self.paths.output == "deltas" else DELTA_SCHEMA.append(_DATA)

    def openers(self) -> list[tuple[Messages, Opener]]:
        """Messages, each with the function that opens them where they are; together they are the batch.

        Small messages are in the driver. Few deltas are one frame with one task, in order. Of many, each
        task has its own in order.
        """
        if self.paths.output == "deltas":
            return self._delta_openers()
        described = self._of_kind(ShardMessageKind.MESSAGES)
        opener = partial(open_described, paths=self.paths, batch=self.batch)
        found = [(described, opener)] if self.messages else []
        deltas = self._delta_openers() if self.rows or not found else []
        return [*found, *((frame, partial(_beside, opener=each)) for frame, each in deltas)]

    def _of_kind(self, kind: ShardMessageKind) -> Messages:
        """The messages of a kind, in the driver or in one task."""
        if self.collected is not None:
            found = self.collected.filter(pc.equal(self.collected["kind"], kind.value)).combine_chunks()
            return next(iter(found.to_batches()), pa.RecordBatch.from_pylist([], found.schema))
        return self.frame.where(F.col("kind") == kind.value).coalesce(1)

    def _delta_openers(self) -> list[tuple[Messages, Opener]]:
        if self.rows <= FEW:
            return [(self._of_kind(ShardMessageKind.DELTAS), partial(open_all, paths=self.paths))]
        deltas = self.frame.where(F.col("kind") == ShardMessageKind.DELTAS.value)
        plain = (deltas.where("rows > split"), partial(open_plain, paths=self.paths))
        if not self.split:
            return [plain]
        split = deltas.where("split > 0").mapInArrow(partial(open_split, paths=self.paths), _DELTAS)
        met = (split.repartition("seq", "subscription"), _consolidate_rows)  # those that may cancel meet here
        return [plain, met] if self.split < self.rows else [met]

    def table(self) -> DataFrame:
        """The deltas as rows, with the columns of `DELTA_COLUMNS`."""
        is_plain = self.paths.output == "deltas"
        schema = _DELTAS if is_plain else f"{_DELTAS}, data binary"
        parts = [self._rows(messages, opener, schema) for messages, opener in self.openers()]
        columns = DELTA_COLUMNS if is_plain else [*DELTA_COLUMNS, "data"]
        return _with_batch(reduce(DataFrame.union, parts), self.query, self.batch, columns)

    def _rows(self, messages: Messages, opener: Opener, schema: str) -> DataFrame:
        if isinstance(messages, DataFrame):
            return messages.mapInArrow(opener, schema)
        rows = pa.Table.from_batches(opener([messages]), self.schema)
        return self.frame.sparkSession.createDataFrame(rows, schema)


def deliver(
    frame: DataFrame,
    batch: int,
    *,
    paths: PipelinePaths,
    sinks: Sequence[Sink],
    dead_letter_sinks: Sequence[Sink],
    query: str = "",
) -> None:
    """For `foreachBatch`: run the batch, write it to one sink after the other, record the last seq."""
    frame.sparkSession.conf.set(paths.batch_setting, str(batch))
    frame = frame.persist()
    try:
        small = F.when(F.length("payload") <= SMALL, F.col("payload"))
        found = frame.select("kind", "rows", "split", "seq", small.alias("payload")).toArrow()
        sums = found.group_by("kind").aggregate([("rows", "sum"), ("split", "sum"), ("seq", "max")])
        by_kind = {one.pop("kind"): one for one in sums.to_pylist()}
        counts = by_kind.get(ShardMessageKind.DELTAS, {"rows_sum": 0, "split_sum": 0})
        described = by_kind.get(ShardMessageKind.MESSAGES, {"rows_sum": 0})["rows_sum"]
        collected = None if found["payload"].null_count else found
        rows, split = counts["rows_sum"], counts["split_sum"]
        deltas = BatchDeltas(frame, paths, batch, rows, split, query, described, collected)
        for sink in sinks:
            write_packed = getattr(sink, "write_packed", None)
            if write_packed is not None:
                write_packed(deltas)
            else:
                sink(deltas.table(), batch)
        if ShardMessageKind.DEAD_LETTERS in by_kind:  # rare: spare a healthy batch the job
            write_dead_letters(frame, batch, dead_letter_sinks, query)
        if ShardMessageKind.MARK in by_kind:
            Pins(paths.pins, paths.query).set_applied(batch, by_kind[ShardMessageKind.MARK]["seq_max"])
    finally:
        frame.unpersist()


def write_dead_letters(frame: DataFrame, batch: int, sinks: Sequence[Sink], query: str) -> None:
    """Write the rejected changes of a batch, with their reasons, to the dead-letter sinks.

    `stages/table_shard.py` decides what is rejected; by default the sink is
    `<state_dir>/dead_letters/batch=<n>`.
    """
    messages = frame.where(F.col("kind") == ShardMessageKind.DEAD_LETTERS.value).coalesce(1)
    opened = messages.mapInArrow(open_dead_letters, _DEAD_LETTERS)
    for sink in sinks:
        sink(_with_batch(opened, query, batch, DEAD_LETTER_COLUMNS), batch)


def _with_batch(frame: DataFrame, query: str, batch: int, columns: list[str]) -> DataFrame:
    """The rows with the name of the query and the number of the batch."""
    return frame.withColumns({"query": F.lit(query), "batch": F.lit(batch).cast("bigint")}).select(columns)


# -- opening messages, in tasks ------------------------------------------------------------------------


def open_all(batches: Iterable[pa.RecordBatch], paths: PipelinePaths) -> Iterator[pa.RecordBatch]:
    """All deltas of a batch, in a task that has all messages: consolidated, and in order."""
    yield from _in_order(_opened(batches, paths), consolidate=True)


def open_plain(batches: Iterable[pa.RecordBatch], paths: PipelinePaths) -> Iterator[pa.RecordBatch]:
    """The deltas that cancel with none, in order."""
    yield from _in_order(table.filter(pc.invert(table["split"])) for table in _opened(batches, paths))


def open_split(batches: Iterable[pa.RecordBatch], paths: PipelinePaths) -> Iterator[pa.RecordBatch]:
    """The deltas that may cancel with those of another shard."""
    for table in _opened(batches, paths):
        split = table.filter(table["split"])
        yield from split.select(DELTA_SCHEMA.names).cast(DELTA_SCHEMA).to_batches(CHUNK)


def _consolidate_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Split deltas as rows, all of a (seq, subscription) in this task: consolidated, and in order."""
    yield from _in_order((pa.Table.from_batches([batch]) for batch in batches), consolidate=True)


def open_dead_letters(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Dead letters in order of seq."""
    tables = [unpack(payload)[1] for batch in batches for payload in batch["payload"].to_pylist()]
    found = pa.concat_tables([DEAD_LETTERS.empty_table(), *tables])
    yield from found.sort_by("seq").to_batches(CHUNK)


def open_described(
    batches: Iterable[pa.RecordBatch], paths: PipelinePaths, batch: int
) -> Iterator[pa.RecordBatch]:
    """What describes a batch, in a task that has the messages of all shards: a row for each part."""
    from tocsin.spark.messages import encoded, parts_of

    shards, version = [], 0
    for one in batches:
        for payload in one["payload"].to_pylist():
            facts, table = unpack(payload)
            version = int(facts["version"])
            shards += table["data"].to_pylist()
    schema = DELTA_SCHEMA.append(_DATA)
    relations = load_placement(paths.versions, version, paths.layout).relations if shards else {}
    definitions = {name: str(relation) for name, relation in relations.items()}
    for part in parts_of(shards, batch, version, definitions):
        yield pa.RecordBatch.from_pylist([{"seq": part.seq, "data": encoded(part)}], schema=schema)


def _beside(batches: Iterable[pa.RecordBatch], opener: Opener) -> Iterator[pa.RecordBatch]:
    """Deltas beside messages: with the column that messages have."""
    for batch in opener(batches):
        yield batch.append_column(_DATA, pa.nulls(batch.num_rows, _DATA.type))


def _opened(batches: Iterable[pa.RecordBatch], paths: PipelinePaths) -> Iterator[pa.Table]:
    """The deltas of each message, with the columns `subscriber` and `split`."""
    for batch in batches:
        for payload in batch["payload"].to_pylist():
            facts, table = unpack(payload)
            version = int(facts["version"])
            subscriptions = load_placement(paths.versions, version, paths.layout).subscriptions
            names = subscriptions.subscribers
            if names is None:
                table = table.append_column("subscriber", pa.nulls(len(table), pa.string()))
            else:
                at = subscriptions.find(table["subscription"].to_numpy())
                table = table.append_column("subscriber", names.take(pa.array(at)))
            if "split" not in table.column_names:
                table = table.append_column("split", pa.array(np.ones(table.num_rows, np.bool_)))
            yield table


def _in_order(tables: Iterable[pa.Table], consolidate: bool = False) -> Iterator[pa.RecordBatch]:
    """The deltas of some tables as one, in order, in the columns of `DELTA_SCHEMA`."""
    parts = list(tables)
    if not parts:
        return
    table = pa.concat_tables(parts).combine_chunks()  # to take rows from many chunks is slow
    table = ordered(consolidated(table) if consolidate else table)
    yield from table.select(DELTA_SCHEMA.names).cast(DELTA_SCHEMA).to_batches(CHUNK)


def consolidated(table: pa.Table) -> pa.Table:
    """Equal rows of one (seq, subscription) cancel or add up, where they are marked as split."""
    rest = []
    if "split" in table.column_names:
        marked = table["split"]
        rest = [table.filter(pc.invert(marked)).select(DELTA_SCHEMA.names)]
        table = table.filter(marked)
    keys = ["seq", "subscription", "subscriber", "row"]
    total = table.group_by(keys).aggregate([("sign", "sum")])
    sums = total["sign_sum"].to_numpy()
    left = total.take(pa.array(np.repeat(np.arange(len(sums)), np.abs(sums))))
    signs = pa.array(np.repeat(np.sign(sums), np.abs(sums)).astype(np.int8))
    return pa.concat_tables(
        [left.select(keys).append_column("sign", signs).select(DELTA_SCHEMA.names), *rest]
    )


def ordered(table: pa.Table) -> pa.Table:
    """By seq and subscription, -1 before +1, then by the text of the row. O(n log n).

    Where the three numbers fit into one, sorting that one is ten times as fast as `np.lexsort`; the shards
    send runs that are in order already, which a stable sort merges. Only rows that are tied are sorted by
    their texts.
    """
    keys = [table[name].to_numpy() for name in ("seq", "subscription", "sign")]
    if not len(table):
        return table
    ends = [(int(key.min()), int(key.max())) for key in keys]
    if math.prod(high - low + 1 for low, high in ends) >= 2**62:
        order = np.lexsort(keys[::-1])
    else:
        number = np.zeros(len(table), np.int64)
        for key, (low, high) in zip(keys, ends, strict=True):
            number = number * (high - low + 1) + (key.astype(np.int64) - low)
        order = np.argsort(number, kind="stable")
    tied = np.ones(len(order) - 1, np.bool_)  # with the next one
    for key in keys:
        tied &= key[order[1:]] == key[order[:-1]]
    if tied.any():
        member = np.append(tied, False) | np.append(False, tied)
        at = np.flatnonzero(member)
        group = np.cumsum(~np.append(False, tied))[at]
        ranks = pc.rank(table["row"].take(pa.array(order[at])), tiebreaker="dense").to_numpy()
        order[at] = order[at][np.lexsort((ranks, group))]
    return table if (order[1:] > order[:-1]).all() else table.take(pa.array(order))
