"""The two stateful stages as Spark runs them: state in RocksDB, live engines in its workers or beside them.

The state of a shard is a map of numbered blobs (a snapshot of its tables in pieces of a few megabytes, then
some blobs per table and batch) and a `StateMeta` that describes them. A batch adds its own blobs and touches
no other. The meta's *token* is random and new with every batch. The live engine that belongs to a state is
cached under that token: in this worker, or if wanted in a host process (`hosting/client.py`). Workers
and hosts may die, tasks may be retried and batches replayed; `hosting/engines.py` says why the cache stays
correct.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from tocsin.spark.spark_hash import key_of, name_of
from tocsin.spark.stages.steps import (
    LABELLED,
    PipelinePaths,
    ShardMessage,
    ShardMessageKind,
    ShardResult,
    ShardStep,
    StateMeta,
)
from tocsin.spark.worker_daemon import drop_archives

if TYPE_CHECKING:
    from tocsin.spark.hosting.client import Hosts
    from tocsin.spark.hosting.engines import LiveShards

__all__ = ["QueryShards", "TableShards", "clear_live_shards", "label"]

IDLE = 300.0  # seconds that a worker keeps a shard that other workers run now

_META = (
    "token string, version bigint, micros bigint, snapshot bigint, since bigint, blobs bigint, "
    "first bigint, line string"
)
_NUMBERS = ("seq", "version", "produced", "missed")  # facts of messages
_LABELLED = Row(*(column.split()[0] for column in LABELLED.split(", ")))


class _Shards(StatefulProcessor):
    """Both stages: read a shard's state, have its engine run the batch, write the state."""

    stage: str

    def __init__(self, paths: PipelinePaths) -> None:
        self.paths = paths

    def init(self, handle: StatefulProcessorHandle) -> None:
        drop_archives()
        self._blobs = handle.getMapState("chunks", "number bigint", "blob binary")
        self._meta = handle.getValueState("meta", _META)

    def close(self) -> None:
        pass

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        """Spark's entry: all messages of a batch for one shard."""
        name = name_of(key[0])
        messages: dict[str, list[bytes]] = {}
        for row in rows:
            messages.setdefault(row.kind, []).append(bytes(row.payload))
        for message in self.handle(name, messages):
            yield self.as_row(message)

    def as_row(self, message: ShardMessage) -> Row:
        """A message as the next stage receives it. Spark's pickler knows no enums."""
        to = key_of(message.shard) if message.shard else ""
        return Row(shard=to, kind=str(message.kind), payload=message.payload)

    def handle(self, name: str, messages: dict[str, list[bytes]]) -> list[ShardMessage]:
        """The whole step, finished before anything is yielded: Spark may drop a generator half-way."""
        if name.startswith("out|"):  # finished in stage 1: passes through
            return [ShardMessage("", kind, one) for kind, payloads in messages.items() for one in payloads]
        kept = self._meta.get()
        meta = StateMeta(*kept) if kept else None
        if ShardMessageKind.DROP in messages:
            del messages[ShardMessageKind.DROP]
            last: list[ShardMessage] = []
            if messages:  # it retracts what another shard has now
                last = self._step(ShardStep(self.paths, self.stage, name, meta, messages)).messages
            (_hosts(self.paths) or _live_shards()).drop(self.paths, name)
            self._blobs.clear()
            self._meta.clear()
            return last
        result = self._step(ShardStep(self.paths, self.stage, name, meta, messages))
        if result.replace and meta is not None:
            for number in range(meta.first, meta.first + meta.blobs):
                self._blobs.removeKey((number,))
        new = result.meta
        for number, blob in enumerate(result.blobs, new.first + new.blobs - len(result.blobs)):
            self._blobs.updateValue((number,), (blob,))
        self._meta.update(tuple(new))
        return result.messages

    def _step(self, step: ShardStep) -> ShardResult:
        """Run a step in a host beside this executor, or in this worker: if none is wanted, or can be had."""
        from tocsin.spark.hosting.client import NoHost

        def blobs(first: int) -> Iterator[bytes]:
            return self._read_blobs(step.meta, first)

        hosts = _hosts(self.paths)
        if hosts is not None:
            try:
                return hosts.step(step, blobs)
            except NoHost as error:
                log.warning("%s", error)
                _without_hosts.add(self.paths.hosts)
        live = _live_shards()
        live.evict_idle(IDLE)
        return live.run(step, live.take(step), blobs)

    def _read_blobs(self, meta: StateMeta | None, first: int) -> Iterator[bytes]:
        """The blobs of the state, without the first so many."""
        if meta is not None:
            for number in range(meta.first + first, meta.first + meta.blobs):
                found = self._blobs.getValue((number,))
                assert found is not None
                yield bytes(found[0])


class TableShards(_Shards):
    """Stage 1: keeps rows, evaluates filters."""

    stage = "table"


class QueryShards(_Shards):
    """Stage 2: evaluates everything else; what stage 1 has finished (`out|...`) passes through."""

    stage = "query"

    def as_row(self, message: ShardMessage) -> Row:
        """A message that leaves the shards (`steps.LABELLED`)."""
        return _LABELLED(*label(message.kind, message.payload))


def label(kind: str, payload: bytes) -> tuple[str | int | bytes | None, ...]:
    """A message with what counting and delivery need to know of it: the columns of `steps.LABELLED`.

    >>> import pyarrow as pa
    >>> from tocsin.spark.stages.wire import NO_ROWS, pack
    >>> table = pa.table({"seq": [1, 2], "split": [True, False]})
    >>> label("deltas", pack(table, version=3))[:-1], label("mark", pack(NO_ROWS, seq=5))[:-1]
    (('deltas', 2, 1, None, 3, None, None), ('mark', 0, 0, 5, None, None, None))
    """
    from tocsin.spark.stages.wire import unpack

    facts, table = unpack(payload)
    rows = split = int(facts.get("rows", table.num_rows))
    if kind != "deltas":
        split = 0
    elif "split" in table.column_names:
        split = int(table["split"].to_numpy().sum())
    seq, version, produced, missed = (int(facts[name]) if name in facts else None for name in _NUMBERS)
    return str(kind), rows, split, seq, version, produced, missed, payload


log = logging.getLogger(__name__)
_without_hosts: set[int | None] = set()  # what was wanted when none could be had


def _hosts(paths: PipelinePaths) -> Hosts | None:
    """The hosts that have this executor's live shards; None if its workers have them.

    Imported late: where Spark only asks for the names of the state, none is needed.
    """
    from tocsin.spark.hosting.client import hosts_for

    return None if paths.hosts in _without_hosts else hosts_for(paths.hosts)


@lru_cache(maxsize=1)
def _live_shards() -> LiveShards:
    """The engines of this process. Imported late: with hosts, a worker needs no engine code."""
    from tocsin.spark.hosting.engines import LiveShards

    return LiveShards()


def clear_live_shards() -> None:
    """Empty this process's cache, as if a new worker had started."""
    _live_shards().clear()
