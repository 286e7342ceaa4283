"""Deltas as the shards send them: a few messages with an Arrow table each, opened where they are needed.

The messages of a batch are kept for its duration as they are. Turned into rows of Spark's too early, every
delta would pass through the JVM several times; so a sink of files opens them in the very task that writes
them, and only a sink that asks for rows gets rows.

A message is *labelled* with what is counted and decided by:

    kind     deltas | dead | mark
    rows     how many deltas or dead letters are in it
    split    how many of its deltas may have to cancel with those of another shard
    seq      of a mark: the last seq applied
    version  of the subscriptions
    payload  the table itself

An update that moves a row from one join shard to another is -x in one and +y in the other, and cancels
if the query does not show what changed; such deltas are marked `split`. Where the mark is missing, every
delta counts as split.

>>> table = pa.table({"seq": [1, 1, 1], "subscription": [7, 7, 7], "subscriber": ["ann"] * 3,
...                   "sign": pa.array([1, -1, 1], pa.int8()), "row": ["x", "x", "y"]})
>>> settled(table).select(["seq", "sign", "row"]).to_pylist()
[{'seq': 1, 'sign': 1, 'row': 'y'}]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tocsin.spark.stages.processors import Place
from tocsin.spark.stages.wire import DEAD, unpack
from tocsin.spark.versions.versions import Versions

__all__ = [
    "DELTA_SCHEMA",
    "LABELLED",
    "Opener",
    "label",
    "letters",
    "opened_all",
    "opened_plain",
    "opened_split",
    "ordered",
    "settled",
    "settled_rows",
]

LABELLED = "kind string, rows bigint, split bigint, seq bigint, version bigint, payload binary"
DELTA_SCHEMA = pa.schema(
    [
        ("seq", pa.int64()),
        ("subscription", pa.int64()),
        ("subscriber", pa.string()),
        ("sign", pa.int8()),
        ("row", pa.string()),
    ]
)
CHUNK = 1 << 16  # rows that leave a worker at once

Opener = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]  # messages in, rows out

_LABELLED = pa.schema(
    [
        ("kind", pa.string()),
        ("rows", pa.int64()),
        ("split", pa.int64()),
        ("seq", pa.int64()),
        ("version", pa.int64()),
        ("payload", pa.binary()),
    ]
)


def label(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`: the messages that leave the shards, with what is in them."""
    for part in batches:
        for kind, payload in zip(part["kind"].to_pylist(), part["payload"].to_pylist(), strict=True):
            facts, table = unpack(payload)
            rows = split = table.num_rows
            if kind != "deltas":
                split = 0
            elif "split" in table.column_names:
                split = pc.sum(table["split"]).as_py() or 0
            told = (int(facts[name]) if name in facts else None for name in ("seq", "version"))
            values = [kind, rows, split, *told, payload]
            yield pa.RecordBatch.from_arrays(
                [pa.array([value], f.type) for value, f in zip(values, _LABELLED, strict=True)],
                schema=_LABELLED,
            )


# -- opening -------------------------------------------------------------------------------------------


def opened_all(batches: Iterator[pa.RecordBatch], place: Place) -> Iterator[pa.RecordBatch]:
    """All deltas of a task that has all messages: settled, and in order."""
    yield from _leaving(ordered(settled(_joined(_deltas(batches, place)))))


def opened_plain(batches: Iterator[pa.RecordBatch], place: Place) -> Iterator[pa.RecordBatch]:
    """The deltas that cancel with none, in order."""
    plain = [table.filter(pc.invert(table["split"])) for table in _deltas(batches, place)]
    yield from _leaving(ordered(_joined(plain)))


def opened_split(batches: Iterator[pa.RecordBatch], place: Place) -> Iterator[pa.RecordBatch]:
    """The deltas that may cancel with those of another shard."""
    for table in _deltas(batches, place):
        yield from _leaving(table.filter(table["split"]))


def settled_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Split deltas that are rows already, all of a (seq, subscription) in one task: settled, and in order."""
    yield from _leaving(ordered(settled(_joined(pa.Table.from_batches([part]) for part in batches))))


def letters(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Dead letters, in order of seq."""
    tables = [unpack(payload)[1] for part in batches for payload in part["payload"].to_pylist()]
    found = pa.concat_tables([DEAD.empty_table(), *tables])
    yield from found.sort_by("seq").to_batches(CHUNK)


def _deltas(batches: Iterator[pa.RecordBatch], place: Place) -> Iterator[pa.Table]:
    """Each message's deltas, with their subscribers, and marked by `split`."""
    for part in batches:
        for payload in part["payload"].to_pylist():
            facts, table = unpack(payload)
            who = _subscribers(table["subscription"], place, int(facts["version"]))
            table = table.append_column("subscriber", who)
            if "split" not in table.column_names:
                table = table.append_column("split", pa.array(np.ones(table.num_rows, np.bool_)))
            yield table


def _subscribers(ids: pa.ChunkedArray, place: Place, version: int) -> Any:
    chosen, named = Versions(place.versions).load(version).subscribers
    return (
        pa.nulls(len(ids), pa.string())
        if named is None
        else named.take(pa.array(chosen.find(ids.to_numpy())))
    )


def _joined(tables: Iterable[pa.Table]) -> pa.Table:
    """As one table in few chunks: taking rows out of many is slow."""
    parts = list(tables)
    return pa.concat_tables(parts).combine_chunks() if parts else DELTA_SCHEMA.empty_table()


def _leaving(table: pa.Table) -> Iterator[pa.RecordBatch]:
    yield from table.select(DELTA_SCHEMA.names).cast(DELTA_SCHEMA).to_batches(CHUNK)


# -- what consolidation is, on one table -------------------------------------------------------------------


def settled(table: pa.Table) -> pa.Table:
    """Equal rows of one (seq, subscription) cancel or add up, where they are marked as split."""
    rest = []
    if "split" in table.column_names:
        marked = table["split"]
        rest = [table.filter(pc.invert(marked)).select(DELTA_SCHEMA.names)]
        table = table.filter(marked)
    keys = ["seq", "subscription", "subscriber", "row"]
    total = table.group_by(keys).aggregate([("sign", "sum")])
    sums = total["sign_sum"].to_numpy()
    chosen = total.take(pa.array(np.repeat(np.arange(len(sums)), np.abs(sums))))
    signs = pa.array(np.repeat(np.sign(sums), np.abs(sums)).astype(np.int8))
    settled = chosen.select(keys).append_column("sign", signs).select(DELTA_SCHEMA.names)
    return pa.concat_tables([settled, *rest])


def ordered(table: pa.Table) -> pa.Table:
    """By seq and subscription, -1 before +1, then by the text of the row. O(n log n)."""
    keys = [table[name].to_numpy() for name in ("seq", "subscription", "sign")]
    order = _sorted(keys)
    tied = np.ones(max(len(order) - 1, 0), np.bool_)  # with the next one
    for key in keys:
        tied &= key[order[1:]] == key[order[:-1]]
    if tied.any():
        order = _by_text(table["row"], order, tied)
    return table if (order[1:] > order[:-1]).all() else table.take(pa.array(order))


def _sorted(keys: list[NDArray[Any]]) -> NDArray[np.int64]:
    """As `np.lexsort`, first key first; by one number for all keys, where that fits, ten times as fast.

    The shards send runs that are in order already, which a stable sort merges.

    >>> _sorted([np.array([2, 1, 1]), np.array([0, 9, -5])]).tolist()
    [2, 1, 0]
    """
    if not len(keys[0]):
        return np.zeros(0, np.int64)
    ends = [(int(key.min()), int(key.max())) for key in keys]
    if math.prod(high - low + 1 for low, high in ends) >= 2**62:
        return np.lexsort(keys[::-1])
    number = np.zeros(len(keys[0]), np.int64)
    for key, (low, high) in zip(keys, ends, strict=True):
        number = number * (high - low + 1) + (key.astype(np.int64) - low)
    return np.argsort(number, kind="stable")


def _by_text(rows: pa.ChunkedArray, order: NDArray[np.int64], tied: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Put the rows that are tied in order of their texts; the others stay where they are."""
    member = np.zeros(len(order), np.bool_)
    member[:-1] |= tied
    member[1:] |= tied
    places = np.flatnonzero(member)
    group = np.cumsum(~np.concatenate([[False], tied]))[places]
    ranks = pc.rank(rows.take(pa.array(order[places])), tiebreaker="dense").to_numpy()
    order = order.copy()
    order[places] = order[places][np.lexsort((ranks, group))]
    return order
