"""What a step of a shard is: its messages, its state, and where its pipeline keeps its files.

This module imports neither Arrow nor an engine: a process that only asks for the names of a shard's state
starts at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import NamedTuple

__all__ = [
    "LABELLED",
    "MESSAGE",
    "Blobs",
    "Layout",
    "PipelinePaths",
    "ShardMessage",
    "ShardMessageKind",
    "ShardResult",
    "ShardStep",
    "StateMeta",
]  # fmt: skip

MESSAGE = "shard string, kind string, payload binary"
LABELLED = (
    "kind string, rows bigint, split bigint, seq bigint, version bigint, produced bigint, missed bigint, "
    "payload binary"
)
"""A message that leaves the last stage (`deliver.py` says what its columns are)."""

SHORT = 12  # letters of a token in a line
KEPT_TOKENS = 16

Blobs = Callable[[int], Iterable[bytes]]  # reads the blobs of a shard's state from a number on


class ShardMessageKind(StrEnum):
    """What a message carries."""

    TICK = "tick"  # the pin of the batch, for every shard in every batch
    CHANGES = "changes"  # changes of rows
    LOAD = "load"  # the rows of a table that a query shard did not need before
    DROP = "drop"  # the shard no longer exists
    DELTAS = "deltas"  # for the sinks
    MESSAGES = "messages"  # for the sinks: what a shard describes (`described.py`)
    DEAD_LETTERS = "dead"  # rejected changes, with the reason
    MARK = "mark"  # the last seq that a table shard applied
    COUNTS = "counts"  # pairs of joins of streams, produced and missed


class ShardMessage(NamedTuple):
    """One row between two stages."""

    shard: str
    kind: str
    payload: bytes


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
    leaves it to the machine; 0 keeps the engines in the Python workers. `output` is what leaves the pipeline.
    """

    versions: str
    pins: str
    layout: Layout
    query: str
    hosts: int | None = None
    output: str = "deltas"  # or "messages"

    @property
    def batch_setting(self) -> str:
        """The Spark setting that tells workers the number of their batch."""
        return f"spark.tocsin.batch.{self.query}"


class StateMeta(NamedTuple):
    """The description of a shard's blobs. Version and time are those of its last batch.

    `line` has the last tokens since the snapshot, each with the number of blobs at that time: an engine that
    is cached under one of them needs only the blobs that came later.
    """

    token: str  # random, new with each batch; ends in the uuid of the version
    version: int
    micros: int
    snapshot: int  # bytes of the snapshot
    since: int  # bytes of the blobs after the snapshot
    blobs: int  # number of blobs
    first: int = 0  # the key of the first blob; the others follow
    line: str = ""

    @property
    def uuid(self) -> str:
        """The uuid of the version."""
        return self.token.partition("@")[2]

    def since_token(self, token: str) -> int | None:
        """How many blobs there were under an earlier token; None if it is not known."""
        for entry in self.line.split():
            name, _, blobs = entry.rpartition(":")
            if name == token[:SHORT]:
                return int(blobs)
        return None

    def line_with(self, token: str, blobs: int) -> str:
        """The line after one more batch."""
        return " ".join([*self.line.split()[1 - KEPT_TOKENS :], f"{token[:SHORT]}:{blobs}"])


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
