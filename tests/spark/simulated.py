"""The pipeline without Spark: the same processors and messages, with state in dictionaries.

It runs a batch in a millisecond or so where Spark takes a second, so that many random histories
can be tried: workers that lose their engines, batches that are run twice, new versions.
"""

from __future__ import annotations

import copy
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.compute as pc

from tests.spark.workload import Change, DeltaBag, plain
from tocsin.spark.hosting import client as hosting
from tocsin.spark.hosting.client import Hosts
from tocsin.spark.spark_hash import name_of
from tocsin.spark.stages import deliver as delivering
from tocsin.spark.stages import route as routing
from tocsin.spark.stages.processors import QueryShards, TableShards, clear_live_shards, label
from tocsin.spark.stages.steps import LABELLED, PipelinePaths
from tocsin.spark.stages.wire import CHANGES
from tocsin.spark.versions.batch import Layout, Pins
from tocsin.spark.versions.blocks import as_table
from tocsin.spark.versions.store import Versions


class States:
    """What a `StatefulProcessorHandle` offers, in memory; `key` is the shard at hand."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, str], Any] = {}
        self.written = 0  # bytes of blobs
        self.key = ""

    def getValueState(self, name: str, schema: str) -> _State:
        return _State(self, name)

    def getMapState(self, name: str, key_schema: str, schema: str) -> _Map:
        return _Map(self, name)


class _State:
    def __init__(self, states: States, name: str) -> None:
        self.states, self.name = states, name

    @property
    def place(self) -> tuple[str, str]:
        return self.states.key, self.name

    def exists(self) -> bool:
        return self.place in self.states.values

    def get(self) -> Any:
        return self.states.values.get(self.place, ())

    def update(self, value: Any) -> None:
        self.states.values[self.place] = value

    def clear(self) -> None:
        self.states.values.pop(self.place, None)


class _Map(_State):
    def getValue(self, key: Any) -> Any:
        return self.get()[key]

    def updateValue(self, key: Any, value: Any) -> None:
        self.states.written += len(value[0])
        self.states.values.setdefault(self.place, {})[key] = value

    def removeKey(self, key: Any) -> None:
        del self.states.values[self.place][key]


class Simulated:
    """One pipeline and its query."""

    def __init__(
        self,
        path: Path,
        ddl: str,
        subscriptions: Any,
        layout: Layout,
        *,
        hosts: Hosts | None = None,
        output: str = "deltas",
    ) -> None:
        """With `hosts` its shards live there; else in this process."""
        count = hosts.count if hosts is not None else 0
        folders = str(path / "subscriptions"), str(path / "pins")
        self.paths = PipelinePaths(*folders, layout, "q", hosts=count, output=output)
        self.hosts = hosts
        self.ddl = ddl
        self.publish(subscriptions)
        self.pins = Pins(self.paths.pins, "q")
        self.states = (States(), States())
        self.number = -1
        self.now = datetime(2013, 1, 31, tzinfo=UTC)
        self.emitted: DeltaBag = Counter()
        self.dead: list[dict[str, Any]] = []
        self.rows: list[dict[str, Any]] = []  # of the last batch, as a sink gets them
        self.pairs = Counter[str]()  # produced and missed by joins of streams
        self.sent = Counter[str]()  # rows of all batches by kind of message

    def publish(self, subscriptions: Any) -> int:
        return Versions(self.paths.versions).publish(self.ddl, as_table(subscriptions))

    def batch(self, changes: list[Change], *, partitions: int = 2, crash: bool = False) -> None:
        """Run a batch; with `crash`, run it once for nothing first, as after a lost commit."""
        self.number += 1
        if crash:
            before = [copy.deepcopy(states.values) for states in self.states]
            self._run(changes, partitions)
            for states, values in zip(self.states, before, strict=True):
                states.values = values
        messages = self._run(changes, partitions)
        self.rows = []
        for kind, rows in zip(*(messages[name].to_pylist() for name in ("kind", "rows")), strict=True):
            self.sent[kind] += rows
        if self.paths.output == "messages":
            described = iter(_of_kind(messages, "messages").to_batches())
            for part in delivering.open_described(described, self.paths, self.number):
                self.rows += part.to_pylist()
        for part in delivering.open_all(iter(_of_kind(messages, "deltas").to_batches()), self.paths):
            self.rows += [{**row, "data": None} for row in part.to_pylist()]
            for row in part.to_pylist():
                subscription = row["subscription"]
                self.emitted[row["seq"], subscription, row["sign"], plain(subscription, row["row"])] += 1
        for part in delivering.open_dead_letters(iter(_of_kind(messages, "dead").to_batches())):
            self.dead += part.to_pylist()
        for counts in _of_kind(messages, "counts").select(["produced", "missed"]).to_pylist():
            self.pairs.update(counts)
        self.pins.set_applied(self.number, pc.max(_of_kind(messages, "mark")["seq"]).as_py())

    def _run(self, changes: list[Change], partitions: int) -> pa.Table:
        """One batch; the messages that leave the shards, labelled."""
        wake = pa.field("wake", pa.bool_())
        schema = pa.schema([*CHANGES, wake])
        parts = [
            pa.RecordBatch.from_pylist([{**c, "wake": False} for c in changes[n::partitions]], schema=schema)
            for n in range(partitions)
        ]
        with (
            patch.object(routing, "current_batch", lambda paths: self.number),
            patch.object(hosting, "hosts_for", lambda wanted: self.hosts),
        ):
            routed = [
                {**m, "shard": name_of(m["shard"])}
                for part in parts
                for out in routing.route(iter([part]), self.paths, lambda: self.now)
                for m in out.to_pylist()
            ]
            one = self._stage(TableShards(self.paths), self.states[0], routed)
            two = self._stage(QueryShards(self.paths), self.states[1], one)
        return labelled(two)

    def _stage(self, processor: Any, states: States, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        processor.init(states)
        inboxes: dict[str, dict[str, list[bytes]]] = {}
        for message in messages:
            inboxes.setdefault(message["shard"], {}).setdefault(message["kind"], []).append(
                message["payload"]
            )
        out = []
        for states.key, inbox in sorted(inboxes.items()):
            out += [message._asdict() for message in processor.handle(states.key, inbox)]
        return out


_SCHEMA = pa.schema(
    [
        (name, {"string": pa.string(), "bigint": pa.int64(), "binary": pa.binary()}[kind])
        for name, kind in (column.split() for column in LABELLED.split(", "))
    ]
)


def labelled(messages: list[dict[str, Any]]) -> pa.Table:
    """Messages as they leave the shards."""
    rows = [label(message["kind"], message["payload"]) for message in messages]
    return pa.Table.from_pylist([dict(zip(_SCHEMA.names, row, strict=True)) for row in rows], schema=_SCHEMA)


def _of_kind(messages: pa.Table, kind: str) -> pa.Table:
    return messages.filter(pc.field("kind") == kind)


__all__ = ["Simulated", "clear_live_shards"]
