"""What travels between the stages: few rows, each with an Arrow table packed into one value.

A stateful operator costs per row, not per byte, so a stage sends a shard one message per table
and batch instead of a row per change:

    shard    which shard of the next stage it is for
    kind     tick | changes | load | drop | deltas | dead | mark
    payload  an Arrow IPC stream; small facts ride in its schema's metadata

>>> facts, table = unpack(pack(pa.table({"a": [1, 2]}), table="stocks"))
>>> facts, table.to_pydict()
({'table': 'stocks'}, {'a': [1, 2]})
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa
import pyarrow.ipc as ipc

__all__ = ["CHANGES", "DEAD", "DELTAS", "MESSAGE", "Message", "pack", "unpack"]

MESSAGE = "shard string, kind string, payload binary"
CHANGE = (("table", pa.string()), ("op", pa.string()), ("row", pa.string()), ("seq", pa.int64()))
CHANGES = pa.schema([*CHANGE, ("fault", pa.string())])  # what is wrong with it already where it is read
DEAD = pa.schema([*CHANGE, ("reason", pa.string())])
DELTAS = pa.schema(
    [("seq", pa.int64()), ("subscription", pa.int64()), ("sign", pa.int8()), ("row", pa.string())]
)

_OPTIONS = ipc.IpcWriteOptions(compression="lz4")


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
