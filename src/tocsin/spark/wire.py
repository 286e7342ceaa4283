"""What travels between the stages: few rows, each with an Arrow table packed into one value.

A stateful operator costs per row, not per byte, so a stage sends a shard one message per table
and batch instead of a row per change:

    shard    which shard of the next stage it is for
    kind     tick | changes | load | drop | deltas | dead | mark
    payload  an Arrow IPC stream; small facts ride in its schema's metadata

Shards are chosen by `bucket`, a hash that is the same in every process and agrees wherever SQL
says two values are equal: 1 and 1.0, 0.0 and -0.0, a date and its midnight.

>>> bucket((1, "x"), 8) == bucket((1.0, "x"), 8)
True
>>> facts, table = unpack(pack(pa.table({"a": [1, 2]}), table="stocks"))
>>> facts, table.to_pydict()
({'table': 'stocks'}, {'a': [1, 2]})
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.ipc as ipc
from numpy.typing import NDArray

__all__ = ["CHANGES", "DEAD", "DELTAS", "MESSAGE", "Message", "bucket", "buckets", "pack", "unpack"]

MESSAGE = "shard string, kind string, payload binary"
CHANGES = pa.schema([("table", pa.string()), ("op", pa.string()), ("row", pa.string()), ("seq", pa.int64())])
DEAD = pa.schema([*CHANGES, ("reason", pa.string())])
DELTAS = pa.schema(
    [("seq", pa.int64()), ("subscription", pa.int64()), ("sign", pa.int8()), ("row", pa.string())]
)

_OPTIONS = ipc.IpcWriteOptions(compression="lz4")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Message(NamedTuple):
    """One row between two stages."""

    shard: str
    kind: str
    payload: bytes


def pack(table: pa.Table, /, **facts: str | int) -> bytes:
    """A table and some facts about it as one value."""
    metadata = {key: str(value) for key, value in facts.items()}
    table = table.replace_schema_metadata(metadata)
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, table.schema, options=_OPTIONS) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def unpack(payload: bytes) -> tuple[dict[str, str], pa.Table]:
    """The facts and the table."""
    table = ipc.open_stream(payload).read_all()
    metadata = table.schema.metadata or {}
    facts = {key.decode(): value.decode() for key, value in metadata.items()}
    return facts, table.replace_schema_metadata(None)


def bucket(values: Iterable[Any], count: int) -> int:
    """One of `count` buckets, the same for equal values in every process."""
    return zlib.crc32(b"\0".join(map(_canonical, values))) % count


def buckets(columns: Sequence[Any], count: int) -> NDArray[np.int64]:
    """The bucket of each row of some Arrow columns; -1 where a value is NULL: it joins nothing."""
    rows = zip(*(column.to_pylist() for column in columns), strict=True)
    found = (-1 if any(value is None for value in row) else bucket(row, count) for row in rows)
    return np.fromiter(found, np.int64, len(columns[0]))


def _canonical(value: Any) -> bytes:
    if value is None:
        return b"-"
    if isinstance(value, bool):
        return b"b1" if value else b"b0"
    if isinstance(value, float):
        if math.isfinite(value) and value == int(value):
            value = int(value)
        else:
            return f"f{value!r}".encode()
    if isinstance(value, int):
        return f"i{value}".encode()
    if isinstance(value, str):
        return b"s" + value.encode()
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day, tzinfo=UTC)
    return f"t{(value - _EPOCH) // datetime.resolution}".encode()
