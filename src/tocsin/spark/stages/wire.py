"""What travels between the processes of a pipeline: messages between stages, and steps of a shard.

A stateful operator of Spark costs per row, not per byte, so a stage sends a shard one message per table and
batch instead of a row per change. A message is a row of three columns:

    shard    the shard of the next stage that receives it
    kind     a `MessageKind`
    payload  an Arrow IPC stream; small facts are in the metadata of its schema

>>> facts, table = unpack(pack(pa.table({"a": [1, 2]}), table="stocks"))
>>> facts, table.to_pydict()
({'table': 'stocks'}, {'a': [1, 2]})

This module imports no engine: a Python worker of Spark that only forwards messages to a host stays small.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import NamedTuple

import pyarrow as pa
import pyarrow.ipc as ipc

__all__ = [
    "CHANGES", "DEAD_LETTERS", "DELTAS", "MESSAGE", "MESSAGE_SCHEMA", "NO_ROWS", "Blobs", "Layout",
    "MessageKind", "PipelinePaths", "ShardMessage", "ShardResult", "ShardStep", "StateMeta", "pack", "unpack",
]  # fmt: skip

MESSAGE = "shard string, kind string, payload binary"
MESSAGE_SCHEMA = pa.schema([("shard", pa.string()), ("kind", pa.string()), ("payload", pa.binary())])
_CHANGE = (("table", pa.string()), ("op", pa.string()), ("row", pa.string()), ("seq", pa.int64()))
CHANGES = pa.schema([*_CHANGE, ("fault", pa.string())])  # the source's reason to reject it; NULL: none
DEAD_LETTERS = pa.schema([*_CHANGE, ("reason", pa.string())])
DELTAS = pa.schema(
    [("seq", pa.int64()), ("subscription", pa.int64()), ("sign", pa.int8()), ("row", pa.string())]
)
NO_ROWS = pa.table({"seq": pa.array([], pa.int64())})

Blobs = Callable[[], Sequence[bytes]]  # reads the blobs of a shard's state

_OPTIONS = ipc.IpcWriteOptions(compression="lz4")


class MessageKind(StrEnum):
    """What a message carries."""

    TICK = "tick"  # the pin of the batch, for every shard in every batch
    CHANGES = "changes"  # changes of rows
    LOAD = "load"  # the rows of a table that a query shard did not need before
    DROP = "drop"  # the shard no longer exists
    DELTAS = "deltas"  # for the sinks
    DEAD_LETTERS = "dead"  # rejected changes, with the reason
    MARK = "mark"  # the last seq that a table shard applied


class ShardMessage(NamedTuple):
    """One row between two stages."""

    shard: str
    kind: str
    payload: bytes


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


@dataclass(frozen=True)
class Layout:
    """How many shards of each kind. Fixed for the life of a pipeline, because state is kept by shard."""

    tables: int = 4
    joins: int = 4
    subscriptions: int = 4

    def as_dict(self) -> dict[str, int]:
        return asdict(self)


@dataclass(frozen=True)
class PipelinePaths:
    """Where a pipeline keeps its files, and its layout: all that a worker needs to know about it.

    `hosts` is the number of processes per executor that keep the live engines (`hosting/client.py`). None
    leaves it to the machine; 0 keeps the engines in the Python workers.
    """

    versions: str
    pins: str
    layout: Layout
    query: str
    hosts: int | None = None

    @property
    def batch_setting(self) -> str:
        """The Spark setting that tells workers the number of their batch."""
        return f"spark.tocsin.batch.{self.query}"


class StateMeta(NamedTuple):
    """The description of a shard's blobs. Version and time are those of its last batch."""

    token: str  # random, new with each batch; ends in the uuid of the version
    version: int
    micros: int
    snapshot: int  # bytes of the snapshot
    since: int  # bytes of the blobs after the snapshot
    blobs: int  # number of blobs

    @property
    def uuid(self) -> str:
        """The uuid of the version."""
        return self.token.partition("@")[2]


class ShardStep(NamedTuple):
    """A batch for one shard. `stage` is "table" or "query"; a new shard has no `meta`."""

    paths: PipelinePaths
    stage: str
    name: str
    meta: StateMeta | None
    messages: dict[str, list[bytes]]


class ShardResult(NamedTuple):
    """What a step sends on, and the state after it: blobs that follow the old ones or replace them."""

    messages: list[ShardMessage]
    meta: StateMeta
    blobs: list[bytes]
    replace: bool
