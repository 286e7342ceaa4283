"""Stage 2: a shard that evaluates joins for some join keys, or some subscriptions over rows it receives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial

import pyarrow as pa

from tocsin.model.delta import Deltas
from tocsin.model.schema import Table
from tocsin.spark.stages.effective import numbered
from tocsin.spark.stages.shard_logic import Shard, ShardOutput
from tocsin.spark.stages.steps import ShardMessage, ShardMessageKind
from tocsin.spark.stages.wire import DEAD_LETTERS, pack, unpack
from tocsin.spark.versions.pins import Pin
from tocsin.spark.versions.placement import ShardPlacement
from tocsin.spark.versions.subscription_sets import SubscriptionSet

__all__ = ["QueryShard"]


class QueryShard(Shard):
    """Stage 2: evaluates joins for some join keys, or some subscriptions over whole tables."""

    def subscriptions(self, placement: ShardPlacement) -> SubscriptionSet:
        group = placement.by_shard.get(self.name)
        return SubscriptionSet() if group is None else group.subscriptions

    def tables(self, placement: ShardPlacement) -> set[str]:
        group = placement.by_shard.get(self.name)
        read = set() if group is None else set(group.tables)
        return {name for name in read if isinstance(placement.relations.get(name), Table)}

    def step(self, placement: ShardPlacement, pin: Pin, messages: Mapping[str, list[bytes]]) -> ShardOutput:
        """One batch: rows to load, if the version is new, and changes of whole rows."""
        output, old = ShardOutput(rewrite=self._must_rewrite(placement)), self.placement
        loads = [
            (facts["table"], table) for facts, table in map(unpack, messages.get(ShardMessageKind.LOAD, ()))
        ]
        before = self.left_out.copy()
        deltas, split = self._advance(placement, pin, loads)
        begins = self.describer.began() if self.describer is not None else []
        tables: dict[str, list[pa.Table]] = {}
        for facts, table in map(unpack, messages.get(ShardMessageKind.CHANGES, ())):
            split.seqs.append(table["_seq"].filter(table["_split"]).to_numpy())
            tables.setdefault(facts["table"], []).append(table.drop_columns(["_split"]))
        kept: dict[str, pa.Table] = {}
        end = pin.start_seq
        if tables:
            first = self.engine.last_seq + 1
            batches = {name: pa.concat_tables(parts) for name, parts in sorted(tables.items())}
            kept, seqs = numbered(batches, first)
            applied = self._without_overflow(partial(self.engine.apply_all, kept))  # as one step
            deltas.append(replace(applied, seq=seqs[applied.seq - first]))
            if self.describer is not None:
                self.describer.collect(first, seqs)
            end = int(seqs[-1])
        deltas.append(self._refreshed(old).at(end))
        output.blobs = [*self._record_loads(loads), *self._record(kept)]
        if self.left_out != before:
            output.blobs.append(self._left_out_blob())
        if self.overflows:
            rows = [{"seq": pin.start_seq, "reason": reason} for reason in self.overflows]
            letters = pa.Table.from_pylist(rows, schema=DEAD_LETTERS)
            output.messages.append(ShardMessage("", ShardMessageKind.DEAD_LETTERS, pack(letters)))
            self.overflows = []
        output.messages += split.messages(deltas, "", placement.version)
        if self.describer is not None:
            output.messages += self.describer.messages(pin.start_seq, begins, placement.version)
        return output

    def _refreshed(self, old: ShardPlacement) -> Deltas:
        """The deltas of subscriptions that were asked to be refreshed since an earlier placement."""
        return Deltas.none()

    def _record(self, batches: Mapping[str, pa.Table]) -> list[bytes]:
        """The blobs that repeat a batch: its changes of tables, as only these are kept."""
        kept = self.tables(self.placement)
        return [
            blob
            for name, table in batches.items()
            if name in kept
            for blob in self._blobs(name, table.drop_columns(["_seq"]))
        ]

    def _record_loads(self, loads: Iterable[tuple[str, pa.Table]]) -> list[bytes]:
        """The blobs of rows that were loaded."""
        return [blob for name, rows in loads for blob in self._blobs(name, rows)]
