"""Stage 1: a shard of rows by (table, primary key).

It checks changes, keeps rows and the order of their keys, evaluates filters, and sends each query shard the
changes that it must apply.

    changes ─► in order of seq ─► late? ─► the engine: the row before and after ─┬─► deltas of filters
                     dead letters ◄─┴─ rejected? ◄┘                              └─► changes for query shards
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tocsin.engine import Engine
from tocsin.errors import BadRow, CatalogError
from tocsin.model.change import ChangeBatch
from tocsin.model.columns import Index
from tocsin.model.delta import Deltas
from tocsin.model.schema import Table, quote
from tocsin.spark.stages.effective import EffectiveChanges
from tocsin.spark.stages.key_order import KeyOrder, key_hashes, keys_of
from tocsin.spark.stages.shard_logic import FIRST_OWN_ID, Shard, ShardOutput, fits, row_blobs
from tocsin.spark.stages.steps import Layout, ShardMessage, ShardMessageKind
from tocsin.spark.stages.wire import CHANGES, DEAD_LETTERS, NO_ROWS, pack, unpack
from tocsin.spark.versions.pins import Pin
from tocsin.spark.versions.placement import Group, ShardPlacement, ShardRowCodes, continues
from tocsin.spark.versions.subscription_sets import SubscriptionSet

__all__ = ["TableShard"]


class TableShard(Shard):
    """Stage 1: keeps rows, checks changes, evaluates filters, sends changed rows to query shards."""

    def __init__(self, name: str, layout: Layout, output: str = "deltas") -> None:
        super().__init__(name, layout, output)
        self.order: dict[str, KeyOrder] = {}  # by table

    _own: tuple[str, ...] = ()  # relations that its own subscriptions, from FIRST_OWN_ID on, may read
    _streams: tuple[str, ...] = ()  # the streams among them that are read

    def subscriptions(self, placement: ShardPlacement) -> SubscriptionSet:
        return placement.filters

    def tables(self, placement: ShardPlacement) -> set[str]:
        return {name for name, relation in placement.relations.items() if isinstance(relation, Table)}

    def _new_engine(self, placement: ShardPlacement) -> Engine:
        """Subscribes to every table itself: the deltas are the rows before and after a change."""
        engine = super()._new_engine(placement)
        tables = sorted(self.tables(placement))
        self._own = (*tables, *sorted(placement.relations.keys() - set(tables)))
        self._streams = ()
        for number, name in enumerate(tables, FIRST_OWN_ID):
            engine.subscribe(f"SELECT * FROM {quote(name)}", id=number)
        return engine

    def restore(self, placement: ShardPlacement, now: datetime, blobs: Iterable[bytes]) -> None:
        self.order = {}
        super().restore(placement, now, blobs)

    def _restore_order(self, placement: ShardPlacement, facts: Mapping[str, str], order: pa.Table) -> None:
        relation = placement.relations.get(facts["order"])
        if isinstance(relation, Table) and fits(facts, relation):
            keys, seqs = order["key"].to_numpy(), order["seq"].to_numpy()
            self.order.setdefault(relation.name, KeyOrder()).record(keys, seqs)

    def snapshot(self) -> list[bytes]:
        """Blobs with all rows and the last seqs of their keys."""
        blobs = super().snapshot()
        for name in sorted(self.tables(self.placement) & self.order.keys()):
            relation = self.placement.relations[name]
            assert isinstance(relation, Table)
            self.order[name] = self.order[name].without_excess(keys_of(relation, self.engine.rows(name)))
            blobs += self._order_blobs(name, self.order[name].arrays())
        return blobs

    def _order_blobs(self, name: str, order: pa.Table) -> list[bytes]:
        return row_blobs(order, order=name, definition=str(self.placement.relations[name]))

    def _read_streams(self, streams: tuple[str, ...]) -> None:
        """Subscribe to the streams whose events query shards receive, and to no others."""
        if streams == self._streams:
            return
        for name in {*self._streams, *streams}:
            number = FIRST_OWN_ID + self._own.index(name)
            if name not in self._streams:
                self.engine.subscribe(f"SELECT * FROM {quote(name)}", id=number)
            elif name not in streams:
                self.engine.unsubscribe(number)
        self._streams = streams

    def step(self, placement: ShardPlacement, pin: Pin, messages: Mapping[str, list[bytes]]) -> ShardOutput:
        """One batch: changes in any order. Shard 0 also forwards the tick to every query shard."""
        old, tick = self.placement, messages[ShardMessageKind.TICK][0]
        output, is_new = (
            ShardOutput(rewrite=self._must_rewrite(placement)),
            placement.identity != old.identity,
        )
        if is_new:
            output.messages += self._load_messages(placement)
        deltas, split = self._advance(placement, pin)
        self._read_streams(placement.streams)
        begins = self.describer.began() if self.describer is not None else []
        if self.describer is not None and self.name == "0" and is_new:
            begins += self.describer.ended(old, placement)
        parts = [unpack(payload)[1] for payload in messages.get(ShardMessageKind.CHANGES, ())]
        changes = pa.concat_tables(parts) if parts else CHANGES.empty_table()
        changes = changes.take(np.argsort(changes["seq"].fill_null(-1).to_numpy(), kind="stable"))
        reasons = _bad_changes(changes)
        seqs = changes["seq"].fill_null(pin.start_seq).to_numpy()
        for name, positions in self._by_relation(changes["table"].combine_chunks(), reasons).items():
            first = self.engine.last_seq + 1
            applied, order = self._apply(name, positions, changes, reasons)
            output.blobs += order
            if self.describer is not None:
                self.describer.collect(first, seqs)
            own = applied.subscription < FIRST_OWN_ID + len(self._own)
            rest = applied.take(~own)
            deltas.append(replace(rest, seq=seqs[rest.seq]))
            if own.any():
                rows = EffectiveChanges.of(applied.take(own), seqs)
                if isinstance(placement.relations[name], Table):
                    whole = rows.part(rows.old >= 0, rows.new >= 0)
                    output.blobs += self._blobs(name, whole.drop_columns(["_seq"]))
                output.messages += self._change_messages(placement, name, rows)
        bad = np.array(sorted(reasons), np.int64)
        good = np.setdiff1d(np.arange(len(changes)), bad)
        last = max(pin.seq, int(seqs[good].max())) if len(good) else pin.seq
        out = f"out|{self.name}"
        output.messages += split.messages(deltas, out, placement.version)
        if self.describer is not None:
            output.messages += self.describer.messages(pin.start_seq, begins, placement.version, out)
        if len(bad):
            output.messages.append(_dead_letters(changes, bad, reasons, out))
        mark = pack(NO_ROWS, seq=last, version=pin.version)
        output.messages.append(ShardMessage(out, ShardMessageKind.MARK, mark))
        if self.name == "0":
            shards = placement.by_shard
            output.messages += [ShardMessage(name, ShardMessageKind.TICK, tick) for name in shards]
            gone = [name for name in old.by_shard if name not in shards]
            output.messages += [ShardMessage(name, ShardMessageKind.DROP, tick) for name in gone]
            moving = [name for name in gone if _has_moved(old.by_shard[name], placement)]
            output.messages += [ShardMessage(name, ShardMessageKind.TICK, tick) for name in moving]
        return output

    def _by_relation(self, names: Any, reasons: dict[int, str]) -> dict[str, Index]:
        """Positions by relation, without those in `reasons`; a change of no known relation gets a reason."""
        encoded = names.dictionary_encode(null_encoding="encode")
        code = encoded.indices.to_numpy()
        code = np.where(np.isin(np.arange(len(code)), list(reasons)), -1, code) if reasons else code
        found: dict[str, list[Index]] = {}
        for number, name in enumerate(encoded.dictionary.to_pylist()):
            here = np.flatnonzero(code == number)
            if name is None:
                reasons.update(dict.fromkeys(here.tolist(), "table is missing"))
                continue
            try:
                relation = self.engine.schema(name).name
            except CatalogError:
                reasons.update(dict.fromkeys(here.tolist(), f"there is no table or stream {name!r}"))
                continue
            if len(here):
                found.setdefault(relation, []).append(here)
        return {relation: np.sort(np.concatenate(parts)) for relation, parts in found.items()}

    def _apply(
        self, name: str, positions: Index, changes: pa.Table, reasons: dict[int, str]
    ) -> tuple[Deltas, list[bytes]]:
        """Apply the changes of one relation, numbered by position; a rejected change gets a reason.

        Returns also the blob with the last seqs of the keys.
        """
        some = changes.take(pa.array(positions))
        first = self.engine.last_seq + 1
        relation = self.engine.schema(name)
        batch, bad = ChangeBatch.from_json(
            relation, some["op"].to_pylist(), None, some["row"].combine_chunks()
        )
        reasons.update({int(positions[i]): reason for i, reason in bad})
        order = None
        if isinstance(relation, Table):
            order = self.order.setdefault(name, KeyOrder())
            batch = _in_time(batch, order, positions, some["seq"], reasons)
        batch = batch.with_seq(first + positions[batch.origin])
        rejected: list[BadRow] = []
        applied = self.engine.apply(name, batch, dead_letters=rejected)
        reasons.update({int(positions[i]): reason for i, reason in rejected})
        blobs = []
        if isinstance(relation, Table) and order is not None and len(batch):
            good = batch.take(np.flatnonzero(~np.isin(batch.origin, [i for i, _ in rejected])))
            keys, seqs = key_hashes(relation, good.rows), some["seq"].to_numpy()[good.origin]
            order.record(keys, seqs)
            blobs = self._order_blobs(name, pa.table({"key": keys, "seq": seqs}))
        return replace(applied, seq=applied.seq - first), blobs

    def _change_messages(
        self, placement: ShardPlacement, name: str, rows: EffectiveChanges
    ) -> Iterator[ShardMessage]:
        """The changes of one table that each query shard must apply."""
        codes = ShardRowCodes(placement.relations[name], rows.rows)
        for group in placement.groups:
            if name in group.tables:
                shard = np.append(
                    group.shards_of_rows(name, rows.rows, codes), -1
                )  # index -1 finds the appended -1
                old, new = shard[rows.old], shard[rows.new]
                split = (old != new) & (old >= 0) & (new >= 0)
                for number, to in enumerate(group.shards):
                    part = rows.part(old == number, new == number, split)
                    if part.num_rows:
                        yield ShardMessage(to, ShardMessageKind.CHANGES, pack(part, table=name))

    def _load_messages(self, placement: ShardPlacement) -> Iterator[ShardMessage]:
        """The rows before the batch, for query shards that did not need the table so far."""
        fresh = placement.reached() - self.placement.reached()
        before = self.placement.relations
        known = {n for n in self.tables(self.placement) if continues(before[n], placement.relations.get(n))}
        for group in placement.groups:
            for name in group.tables:
                rows = self.engine.rows(name) if name in known else None
                if rows is None or not rows.num_rows:
                    continue
                shard = group.shards_of_rows(name, rows, ShardRowCodes(placement.relations[name], rows))
                for number, to in enumerate(group.shards):
                    part = rows.filter(pa.array(shard == number))
                    if (to, name) in fresh and part.num_rows:
                        yield ShardMessage(to, ShardMessageKind.LOAD, pack(part, table=name))


def _has_moved(group: Group, placement: ShardPlacement) -> bool:
    """Whether another shard has a subscription of a lost group: then the old one retracts its content."""
    ids = group.subscriptions.ids
    return bool(len(ids)) and bool((placement.subscriptions.find(ids) >= 0).any())


# -- changes and dead letters --------------------------------------------------------------------------


def _bad_changes(changes: pa.Table) -> dict[int, str]:
    """The changes that cannot be applied whatever came before, and why; by position."""
    seqs = changes["seq"].fill_null(0).to_numpy()
    reasons = {i: f"seq {seqs[i]} is below 0" for i in np.flatnonzero(seqs < 0).tolist()}
    faults = changes["fault"]
    if faults.null_count < len(faults):
        reasons |= {i: why for i, why in enumerate(faults.to_pylist()) if why is not None}
    return reasons


def _in_time(
    batch: ChangeBatch, order: KeyOrder, positions: Index, seqs: Any, reasons: dict[int, str]
) -> ChangeBatch:
    """The changes that are not late; the others, and those without a seq, get a reason."""
    relation = batch.relation
    assert isinstance(relation, Table)
    missing = seqs.is_null().to_numpy(zero_copy_only=False)[batch.origin]
    reasons.update(dict.fromkeys(positions[batch.origin[missing]].tolist(), "seq is missing"))
    batch = batch.take(np.flatnonzero(~missing))
    own = seqs.fill_null(0).to_numpy()[batch.origin]
    last = order.late(key_hashes(relation, batch.rows), own)
    for i in np.flatnonzero(last >= 0).tolist():
        fact = f"seq {own[i]} is not above {last[i]}, the last applied to this key"
        reasons[int(positions[batch.origin[i]])] = fact
    return batch.take(np.flatnonzero(last < 0))


def _dead_letters(
    changes: pa.Table, bad: NDArray[np.int64], reasons: Mapping[int, str], shard: str
) -> ShardMessage:
    """The rejected changes with their reasons; `deliver.py` writes them to the dead-letter sinks."""
    why = pa.array([reasons[i] for i in bad.tolist()], pa.string())
    rows = changes.take(bad).append_column("reason", why)
    return ShardMessage(shard, ShardMessageKind.DEAD_LETTERS, pack(rows.select(DEAD_LETTERS.names)))
