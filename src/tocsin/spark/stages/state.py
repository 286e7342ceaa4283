"""What a shard is to whoever keeps it: where its pipeline is, the line about its state, a step and its end.

Nothing here needs an engine, so that a Python worker of Spark's that only passes messages on stays light.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

from tocsin.spark.stages.wire import Message

__all__ = ["Blobs", "Done", "Layout", "Meta", "Place", "Step"]

Blobs = Callable[[], Sequence[bytes]]  # reads the blobs of a shard's state


@dataclass(frozen=True)
class Layout:
    """How many shards of each kind. Fixed for the life of a pipeline: state is kept by shard."""

    tables: int = 4
    joins: int = 4
    subscriptions: int = 4

    def as_dict(self) -> dict[str, int]:
        return asdict(self)


@dataclass(frozen=True)
class Place:
    """Where a pipeline keeps its files, and its layout: all that a worker needs to know of it.

    `hosts` is how many processes per executor keep the live engines (`hosts.py`): None leaves it to the
    machine, 0 keeps them in the Python workers.
    """

    versions: str
    pins: str
    layout: Layout
    query: str
    hosts: int | None = None

    @property
    def batch_setting(self) -> str:
        """The Spark setting through which workers learn which batch they are in."""
        return f"spark.tocsin.batch.{self.query}"


class Meta(NamedTuple):
    """The line about a shard's blobs; the version and time are those of its last batch."""

    token: str
    version: int
    micros: int
    snapshot: int  # bytes
    since: int  # bytes of the blobs after the snapshot
    blobs: int  # how many

    @property
    def uuid(self) -> str:
        """Of the version; the token ends in it."""
        return self.token.partition("@")[2]


class Step(NamedTuple):
    """A batch for one shard. `stage` is "table" or "query"; without `meta` the shard is a new one."""

    place: Place
    stage: str
    name: str
    meta: Meta | None
    messages: dict[str, list[bytes]]


class Done(NamedTuple):
    """What a step sends on, and its state after it: blobs that follow those it has, or replace them."""

    messages: list[Message]
    meta: Meta
    blobs: list[bytes]
    whole: bool
