"""A query shard of subscriptions under limits: it keeps windows, rows of joined streams, and refresh groups.

    state = a snapshot ─┬─ rows of tables
                        ├─ parts: what the engine keeps beside tables and subscriptions (`Engine.parts`)
                        └─ its time and last seq
            + steps, one blob per batch: changes and events with their seqs, the time, who was refreshed

A shard is rebuilt by running the steps on the snapshot: the engine decides by times, seqs and rows alone, so
it comes to the same windows, evicts the same rows, and holds the same deltas back. A batch costs the blob of
its own changes, however large the windows are. A new snapshot replaces all blobs when these outweigh the old
one, or when most rows in them have expired or were evicted.

How long propagating takes is measured here as anywhere, and differs from run to run. It decides when deferred
work is done, never what is emitted (`RefreshGroups(by_batch=True)`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from tocsin.engine import Engine, Rooms
from tocsin.errors import SumOverflow
from tocsin.language.shape import Shape
from tocsin.limits.groups import RefreshGroups
from tocsin.limits.streams import StreamJoins
from tocsin.model.columns import Index
from tocsin.model.delta import Deltas
from tocsin.spark.stages.shard_logic import FIRST_OWN_ID, QueryShard, ShardOutput
from tocsin.spark.stages.steps import ShardMessage, ShardMessageKind
from tocsin.spark.stages.wire import NO_ROWS, pack, unpack
from tocsin.spark.versions.batch import Pin, ShardPlacement
from tocsin.spark.versions.subscription_sets import SubscriptionSet

__all__ = ["LimitedShard"]

_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
_NO_PAIRS: Index = np.zeros(2, np.int64)
_FEW = 4096  # rows that are not worth a new snapshot


class LimitedShard(QueryShard):
    """Stage 2: evaluates subscriptions under limits, for some join keys or some subscriptions."""

    most_blobs = 1024

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._saved: dict[str, pa.Table] = {}  # parts of a snapshot, until the engine has them
        self._saved_seq = 0
        self._windows: dict[str, int] = {}  # own subscriptions that keep windows open, by text
        self._written = 0  # rows in the blobs
        self._asked: list[int] = []  # refreshed in this batch
        self._failed: set[int] = set()  # subscriptions that could not be refreshed, which was reported
        super().__init__(*args, **kwargs)

    # -- state -------------------------------------------------------------------------------------

    def restore(self, placement: ShardPlacement, now: datetime, blobs: Iterable[bytes]) -> None:
        rows, steps, then = [], [], now
        self._saved, self._saved_seq, self._written = {}, 0, 0
        for blob in blobs:
            facts, table = unpack(blob)
            self._written += len(table)
            if "step" in facts:
                steps.append((facts, table))
            elif "part" in facts:
                name = facts.pop("part")
                self._saved[name] = table.replace_schema_metadata(facts)
            elif "clock" in facts:
                then, self._saved_seq = _time(facts["clock"]), int(facts["seq"])
            else:
                rows.append(blob)
        super().restore(placement, then, rows)
        for facts, table in steps:
            self._repeat(facts, table)
        self.now = now
        self.engine.tick()  # batches without changes
        self._failed = set(self._overflowing())

    def _repeat(self, facts: Mapping[str, str], changes: pa.Table) -> None:
        """Run a step of an earlier batch again, for its effect."""
        self.now = _time(facts["step"])
        self.engine.tick()
        batches = {
            row["relation"]: unpack(row["changes"])[1].replace_schema_metadata(None)
            for row in changes.to_pylist()
        }
        self._written += sum(map(len, batches.values()))
        if batches:
            self.engine.apply_all(batches)
        for id in facts["refreshed"].split(","):
            if id and int(id) not in self.left_out:
                self.engine.refresh(int(id))

    def snapshot(self) -> list[bytes]:
        parts = self.engine.parts()
        clock = pack(NO_ROWS, clock=_micros(self.now), seq=self.engine.last_seq)
        self._written = self._live_rows()
        return [
            *super().snapshot(),
            *(pack(table, part=name, **_texts(table)) for name, table in parts.items()),
            clock,
        ]

    def is_mostly_stale(self) -> bool:
        return self._written > _FEW and self._written > 2 * self._live_rows()

    def _live_rows(self) -> int:
        """Rows of tables, windows and joined streams."""
        stats = self.engine.stats()
        kept = (*stats["windows"].values(), *stats["streams"].values())
        return sum(stats["rows"].values()) + sum(one["rows"] for one in kept)

    def _record(self, loads: Iterable[tuple[str, pa.Table]], batches: Mapping[str, pa.Table]) -> list[bytes]:
        """One blob that repeats the batch; none if only time has passed, unless conditions look at it.

        None of the rows that were loaded: a new version writes a snapshot.
        """
        if not batches and not self._asked and not self._defers():
            return []
        self._written += sum(map(len, batches.values()))
        changes = pa.table(
            {
                "relation": pa.array(list(batches), pa.string()),
                "changes": pa.array([pack(table) for table in batches.values()], pa.binary()),
            }
        )
        refreshed = ",".join(map(str, self._asked))
        return [pack(changes, step=_micros(self.now), refreshed=refreshed)]

    def _defers(self) -> bool:
        keys = self.subscriptions(self.placement).by_shard_key()
        return any(key.shape is Shape.DEFERRED for key in keys)

    # -- subscriptions -----------------------------------------------------------------------------

    def can_catch_up(self, placement: ShardPlacement) -> bool:
        return False  # a step is repeated whole, with the deltas that it holds back

    def _must_rewrite(self, placement: ShardPlacement) -> bool:
        """A step is repeated under the subscriptions that it had: others begin with a snapshot."""
        return self._differs(placement)

    def _differs(self, placement: ShardPlacement) -> bool:
        old, new = (one.by_shard.get(self.name) for one in (self.placement, placement))
        windows = [() if group is None else group.windows for group in (old, new)]
        return super()._differs(placement) or windows[0] != windows[1]

    def _make_engine(self) -> Engine:
        self._windows = {}
        self._joins = StreamJoins(shares=self.layout.joins if self.name.count("|") > 1 else 1)
        rooms = Rooms(streams=lambda: self._joins, refresh=partial(RefreshGroups, by_batch=True))
        return Engine(clock=lambda: self.now, retain=False, rooms=rooms, end_overflowing=False)

    def _subscribe(self, subscriptions: SubscriptionSet) -> None:
        saved, self._saved = self._saved, {}
        self.engine.last_seq = max(self.engine.last_seq, self._saved_seq)
        with self.engine.restoring(saved):
            self._keep_windows()
            super()._subscribe(subscriptions)

    def _keep_windows(self) -> None:
        """Keep open the windows of all shards like this one, also of subscriptions that others evaluate."""
        group = self.placement.by_shard.get(self.name)
        wanted = group.windows if group is not None else ()
        for text in [text for text in self._windows if text not in wanted]:
            self.engine.unsubscribe(self._windows.pop(text))
        free = iter(sorted(set(range(len(wanted))) - {id - FIRST_OWN_ID for id in self._windows.values()}))
        for text in wanted:
            if text not in self._windows:
                self._windows[text] = FIRST_OWN_ID + next(free)
                self.engine.subscribe(text, id=self._windows[text])

    def _delivered(self, ids: Index) -> Deltas:
        return self.engine.contents(ids, stale=True)

    # -- a batch -----------------------------------------------------------------------------------

    def step(self, placement: ShardPlacement, pin: Pin, messages: Mapping[str, list[bytes]]) -> ShardOutput:
        """One batch, and how many pairs its joins of streams have produced and missed."""
        before = self._counts()
        output = super().step(placement, pin, messages)
        counts = {name: now - before.get(name, _NO_PAIRS) for name, now in self._counts().items()}
        if counts:
            produced, missed = sum(counts.values(), _NO_PAIRS).tolist()
            facts = {"produced": produced, "missed": missed}
            output.messages.append(ShardMessage("", ShardMessageKind.COUNTS, pack(NO_ROWS, **facts)))
        return output

    def _refreshed(self, old: ShardPlacement) -> list[Deltas]:
        new = [id for id, version in self.placement.asked.items() if version > old.version]
        mine = self.subscriptions(self.placement).only(np.array(new, np.int64)).ids.tolist() if new else []
        self._asked, found = [id for id in mine if id not in self.left_out], []
        for id in self._asked:
            try:
                found.append(self.engine.refresh(id))
            except SumOverflow as error:
                self.engine.unsubscribe(id)
                self._leave_out(id, error)
        failed = self._overflowing() if self._defers() else {}
        self.overflows += [reason for id, reason in failed.items() if id not in self._failed]
        self._failed = set(failed)
        return found

    def _overflowing(self) -> dict[int, str]:
        """Subscriptions whose condition holds and whose sum overflows, and why."""
        return {one["subscription"]: one["reason"] for one in self.engine.stats()["refresh"]["overflows"]}

    def _counts(self) -> dict[str, Index]:
        """Pairs produced and missed so far, by join of streams."""
        joins = self._joins.stats().items()
        return {name: np.array([counts["produced"], counts["missed"]]) for name, counts in joins}


def _micros(time: datetime) -> int:
    return (time - _EPOCH) // _MICROSECOND


def _time(micros: str) -> datetime:
    return _EPOCH + int(micros) * _MICROSECOND


def _texts(table: pa.Table) -> dict[str, str]:
    """The metadata of a table."""
    return {key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()}
