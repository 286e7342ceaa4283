"""Shards on Spark: state in RocksDB, the live engine in a host beside the executor.

A shard's state is a list of blobs (a snapshot of its tables, then one blob per table and batch)
and a line about them with a random *token*, new with every batch; it ends in the uuid of the version.
The engine that belongs to a state is kept elsewhere under that token: in a host process (`hosts.py`), or
with `hosts=0` in this very worker. Workers and hosts come and go, tasks are retried, batches are
replayed: `live.py` says why that does no harm.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from tocsin.spark.hosting.client import Hosts, hosts_for
from tocsin.spark.stages.state import Done, Meta, Place, Step
from tocsin.spark.stages.wire import Message

if TYPE_CHECKING:
    from tocsin.spark.hosting.engines import Live

__all__ = ["Place", "QueryShards", "TableShards", "forget_live_shards"]

_META = "token string, version bigint, micros bigint, snapshot bigint, since bigint, blobs bigint"


class _Shards(StatefulProcessor):
    """What both stages share: a shard's state before and after a step."""

    stage: str

    def __init__(self, place: Place) -> None:
        self.place = place

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._blobs = handle.getListState("blobs", "blob binary")
        self._meta = handle.getValueState("meta", _META)

    def close(self) -> None:
        pass

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        """Spark's entry: all messages of a batch for one shard."""
        (name,) = key
        messages: dict[str, list[bytes]] = {}
        for row in rows:
            messages.setdefault(row.kind, []).append(bytes(row.payload))
        yield from (Row(**message._asdict()) for message in self.handle(name, messages))

    def handle(self, name: str, messages: dict[str, list[bytes]]) -> list[Message]:
        """The whole step, done before anything is yielded: a generator may be dropped half-way."""
        kept = self._meta.get() if self._meta.exists() else None
        meta = Meta(*kept) if kept is not None else None
        done = self._keeper().step(Step(self.place, self.stage, name, meta, messages), self._read)
        self._keep(done)
        return done.messages

    def _keeper(self) -> Hosts | Live:
        """Who has the live engines."""
        return hosts_for(self.place.hosts) or _live()

    def _read(self) -> list[bytes]:
        return [bytes(blob) for (blob,) in self._blobs.get()]

    def _keep(self, done: Done) -> None:
        blobs = [(blob,) for blob in done.blobs]
        if done.whole and blobs:
            self._blobs.put(blobs)
        elif done.whole:
            self._blobs.clear()
        elif blobs:
            self._blobs.appendList(blobs)
        self._meta.update(tuple(done.meta))


class TableShards(_Shards):
    """Stage 1: keeps rows, answers filters."""

    stage = "table"


class QueryShards(_Shards):
    """Stage 2: answers everything else. What stage 1 has finished (`out`) passes through."""

    stage = "query"

    def handle(self, name: str, messages: dict[str, list[bytes]]) -> list[Message]:
        if name.startswith("out|"):
            return [Message("", kind, payload) for kind, payloads in messages.items() for payload in payloads]
        if "drop" in messages:
            self._keeper().forget(self.place, name)
            self._blobs.clear()
            self._meta.clear()
            return []
        return super().handle(name, messages)


@lru_cache(maxsize=1)
def _live() -> Live:
    """This process's own engines. Loaded late: with hosts, a worker has no use for an engine's code."""
    from tocsin.spark.hosting.engines import Live

    return Live()


def forget_live_shards() -> None:
    """Empty this process's cache, as a new worker would start."""
    _live().clear()
