"""Shards on Spark: state in RocksDB, the live engine in the Python worker.

A shard's state is a list of blobs (a snapshot of its tables, then one blob per table and batch)
and a line about them with a random *token*, new with every batch; it ends in the uuid of the version.
The engine that belongs to a state is kept in the worker under that token. Workers come and go, tasks
are retried, batches are replayed: an engine is used only if its token is the one in the state, is
taken out of the cache before it is touched, and otherwise is rebuilt from the blobs:

    state (before the batch)        cache of this worker
    token 7f3a  ───────────────────  7f3a: use it, keep it as 91bc when done
    token 7f3a  ───────────────────  02de, or nothing: rebuild from the blobs

When the blobs since the snapshot outweigh it, a new snapshot replaces them all, so a byte is
rewritten a bounded number of times however long the pipeline runs.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from tocsin.errors import TocsinError
from tocsin.spark.placement import Layout, load_placement
from tocsin.spark.steps import Outcome, QueryShard, Shard, TableShard
from tocsin.spark.versions import Pin, Versions
from tocsin.spark.wire import CHANGES, Message, unpack

__all__ = ["Place", "QueryShards", "TableShards", "forget_live_shards"]

SMALL = 1 << 16  # bytes of blobs that are not worth a new snapshot
MANY = 64  # blobs that are, whatever their size


@dataclass(frozen=True)
class Place:
    """Where a pipeline keeps its files, and its layout: all that a worker needs to know of it."""

    versions: str
    pins: str
    layout: Layout
    query: str

    @property
    def batch_setting(self) -> str:
        """The Spark setting through which workers learn which batch they are in."""
        return f"spark.tocsin.batch.{self.query}"


_live: dict[tuple[Place, str], tuple[str, Shard]] = {}  # (pipeline, shard) -> (token, engine)


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


_META = "token string, version bigint, micros bigint, snapshot bigint, since bigint, blobs bigint"


class _Shards(StatefulProcessor):
    """What both stages share: a shard from its state, and its state after a step."""

    def __init__(self, place: Place) -> None:
        self.place = place

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._blobs = handle.getListState("blobs", "blob binary")
        self._meta = handle.getValueState("meta", _META)

    def close(self) -> None:
        pass

    @abstractmethod
    def make(self, name: str) -> Shard:
        """A shard without state."""

    @abstractmethod
    def step(self, shard: Any, pin: Pin, messages: dict[str, list[bytes]]) -> Outcome:
        """What the shard does with a batch."""

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        """Spark's entry: all messages of a batch for one shard."""
        (name,) = key
        messages: dict[str, list[bytes]] = {}
        for row in rows:
            messages.setdefault(row.kind, []).append(bytes(row.payload))
        yield from (Row(**message._asdict()) for message in self.handle(name, messages))

    def handle(self, name: str, messages: dict[str, list[bytes]]) -> list[Message]:
        """The whole step, done before anything is yielded: a generator may be dropped half-way."""
        pin = pin_of(messages["tick"][0])
        meta, shard = self._take(name, pin)
        outcome = self.step(shard, pin, messages)
        self._keep(name, shard, meta, outcome, pin)
        return outcome.messages

    def _take(self, name: str, pin: Pin) -> tuple[Meta | None, Shard]:
        """The shard as its state says: live from the cache, else rebuilt.

        If the version it was at is not there any more (someone made the directory of versions anew),
        only the rows of its tables are kept, and the subscriptions of the batch are new ones.
        """
        cached = _live.pop((self.place, name), None)
        kept = self._meta.get() if self._meta.exists() else None
        if kept is None:
            return None, self.make(name)
        meta = Meta(*kept)
        same = self._is_there(meta)
        if same and cached is not None and cached[0] == meta.token:
            return meta, cached[1]
        shard = self.make(name)
        number = meta.version if same else pin.version
        placement = load_placement(self.place.versions, number, self.place.layout)
        if not same:
            placement = placement.tables_alone()
        shard.restore(
            placement, Pin(meta.version, 0, meta.micros).time, (bytes(blob) for (blob,) in self._blobs.get())
        )
        return meta, shard

    def _is_there(self, meta: Meta) -> bool:
        try:
            uuid = Versions(self.place.versions).uuid(meta.version)
        except TocsinError:
            return False
        return meta.uuid in ("", uuid)

    def _keep(self, name: str, shard: Shard, meta: Meta | None, outcome: Outcome, pin: Pin) -> None:
        token = f"{uuid4().hex}@{shard.placement.uuid}"
        size = sum(map(len, outcome.blobs))
        before = meta or Meta("", 0, 0, 0, 0, 0)
        since, count = before.since + size, before.blobs + len(outcome.blobs)
        if outcome.rewrite or count > MANY or since > max(SMALL, before.snapshot):
            blobs = shard.snapshot()
            if blobs:
                self._blobs.put([(blob,) for blob in blobs])
            else:
                self._blobs.clear()
            new = Meta(token, pin.version, pin.micros, sum(map(len, blobs)), 0, len(blobs))
        else:
            if outcome.blobs:
                self._blobs.appendList([(blob,) for blob in outcome.blobs])
            new = Meta(token, pin.version, pin.micros, before.snapshot, since, count)
        self._meta.update(tuple(new))
        _live[self.place, name] = (token, shard)


class TableShards(_Shards):
    """Stage 1. Besides its own messages, shard 0 hands the tick on to every query shard."""

    def make(self, name: str) -> Shard:
        return TableShard(name, self.place.layout)

    def step(self, shard: TableShard, pin: Pin, messages: dict[str, list[bytes]]) -> Outcome:
        placement = load_placement(self.place.versions, pin.version, self.place.layout)
        before = shard.placement
        parts = [unpack(payload)[1] for payload in messages.get("changes", ())]
        changes = pa.concat_tables(parts) if parts else CHANGES.empty_table()
        outcome = shard.step(placement, pin, changes)
        if shard.name == "0":
            tick = messages["tick"][0]
            outcome.messages += [Message(name, "tick", tick) for name in placement.by_shard]
            gone = [name for name in before.by_shard if name not in placement.by_shard]
            outcome.messages += [Message(name, "drop", tick) for name in gone]
        return outcome


class QueryShards(_Shards):
    """Stage 2. What stage 1 has finished (`out`) passes through."""

    def make(self, name: str) -> Shard:
        return QueryShard(name, self.place.layout)

    def handle(self, name: str, messages: dict[str, list[bytes]]) -> list[Message]:
        if name.startswith("out|"):
            return [Message("", kind, payload) for kind, payloads in messages.items() for payload in payloads]
        if "drop" in messages:
            _live.pop((self.place, name), None)
            self._blobs.clear()
            self._meta.clear()
            return []
        return super().handle(name, messages)

    def step(self, shard: QueryShard, pin: Pin, messages: dict[str, list[bytes]]) -> Outcome:
        placement = load_placement(self.place.versions, pin.version, self.place.layout)
        return shard.step(placement, pin, messages.get("load", []), messages.get("changes", []))


def pin_of(tick: bytes) -> Pin:
    """The pin that a tick carries."""
    facts, _ = unpack(tick)
    return Pin(int(facts["version"]), int(facts["seq"]), int(facts["micros"]))


def forget_live_shards() -> None:
    """Empty this process's cache, as a new worker would start."""
    _live.clear()
