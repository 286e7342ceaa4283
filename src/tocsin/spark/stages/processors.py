"""The two stateful stages as Spark runs them: state in RocksDB, live engines in hosts beside the executor.

The state of a shard is a list of blobs (a snapshot of its tables, then one blob per table and batch) and a
`StateMeta` that describes them. Its *token* is random and new with every batch. The live engine that belongs
to a state is cached under that token: in a host process (`hosting/client.py`), or with `hosts=0` in this
worker. Workers and hosts may die, tasks may be retried and batches replayed; `hosting/engines.py` says why
the cache stays correct.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from tocsin.spark.stages.steps import PipelinePaths, ShardMessage, ShardMessageKind, ShardStep, StateMeta

if TYPE_CHECKING:
    from tocsin.spark.hosting.engines import LiveShards

__all__ = ["QueryShards", "TableShards", "clear_live_shards"]

_META = "token string, version bigint, micros bigint, snapshot bigint, since bigint, blobs bigint"


class _Shards(StatefulProcessor):
    """Both stages: read a shard's state, have its engine run the batch, write the state."""

    stage: str

    def __init__(self, paths: PipelinePaths) -> None:
        self.paths = paths

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
        for shard, kind, payload in self.handle(name, messages):
            yield Row(shard=shard, kind=str(kind), payload=payload)  # Spark's pickler knows no enums

    def handle(self, name: str, messages: dict[str, list[bytes]]) -> list[ShardMessage]:
        """The whole step, finished before anything is yielded: Spark may drop a generator half-way."""
        if name.startswith("out|"):  # finished in stage 1: passes through
            return [ShardMessage("", kind, one) for kind, payloads in messages.items() for one in payloads]
        from tocsin.spark.hosting.client import (
            hosts_for,  # not where Spark only asks for the names of the state
        )

        shards = hosts_for(self.paths.hosts) or _live_shards()
        if ShardMessageKind.DROP in messages:
            shards.drop(self.paths, name)
            self._blobs.clear()
            self._meta.clear()
            return []
        kept = self._meta.get() if self._meta.exists() else None
        meta = StateMeta(*kept) if kept is not None else None
        result = shards.step(ShardStep(self.paths, self.stage, name, meta, messages), self._read_blobs)
        blobs = [(blob,) for blob in result.blobs]
        if result.replace and blobs:
            self._blobs.put(blobs)
        elif result.replace:
            self._blobs.clear()
        elif blobs:
            self._blobs.appendList(blobs)
        self._meta.update(tuple(result.meta))
        return result.messages

    def _read_blobs(self) -> list[bytes]:
        return [bytes(blob) for (blob,) in self._blobs.get()]


class TableShards(_Shards):
    """Stage 1: keeps rows, evaluates filters."""

    stage = "table"


class QueryShards(_Shards):
    """Stage 2: evaluates everything else; what stage 1 has finished (`out|...`) passes through."""

    stage = "query"


@lru_cache(maxsize=1)
def _live_shards() -> LiveShards:
    """The engines of this process. Imported late: with hosts, a worker needs no engine code."""
    from tocsin.spark.hosting.engines import LiveShards

    return LiveShards()


def clear_live_shards() -> None:
    """Empty this process's cache, as if a new worker had started."""
    _live_shards().clear()
