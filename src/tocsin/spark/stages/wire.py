"""What travels between the stages of a pipeline: messages, and the tables in them.

A stateful operator of Spark costs per row, not per byte, so a stage sends a shard one message per table and
batch instead of a row per change. A message is a row of three columns:

    shard    the shard of the next stage that receives it
    kind     a `ShardMessageKind`
    payload  an Arrow IPC stream; small facts are in the metadata of its schema

>>> facts, table = unpack(pack(pa.table({"a": [1, 2]}), table="stocks"))
>>> facts, table.to_pydict()
({'table': 'stocks'}, {'a': [1, 2]})
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.ipc as ipc

__all__ = ["CHANGES", "DEAD_LETTERS", "DELTAS", "MESSAGE_SCHEMA", "NO_ROWS", "pack", "unpack"]

MESSAGE_SCHEMA = pa.schema([("shard", pa.string()), ("kind", pa.string()), ("payload", pa.binary())])
_CHANGE = (("table", pa.string()), ("op", pa.string()), ("row", pa.string()), ("seq", pa.int64()))
CHANGES = pa.schema([*_CHANGE, ("fault", pa.string())])  # the source's reason to reject it; NULL: none
DEAD_LETTERS = pa.schema([*_CHANGE, ("reason", pa.string())])
DELTAS = pa.schema(
    [("seq", pa.int64()), ("subscription", pa.int64()), ("sign", pa.int8()), ("row", pa.string())]
)
NO_ROWS = pa.Table.from_batches([], pa.schema([("seq", pa.int64())]))

_OPTIONS = ipc.IpcWriteOptions(compression="lz4")


def pack(table: pa.Table, /, **facts: str | int) -> bytes:
    """A table and some facts about it as one value."""
    table = table.replace_schema_metadata({key: str(value) for key, value in facts.items()})
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
