"""Stage 1: a shard of rows by (table, primary key).

It checks changes, keeps rows and the order of their keys, evaluates filters, and sends each query shard the
changes that it must apply.

    changes ─► in order of seq ─► late? ─► the engine: the row before and after ─┬─► deltas of filters
                     dead letters ◄─┴─ rejected? ◄┘                              └─► changes for query shards
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tocsin.engine import Engine
from tocsin.errors import BadRow
from tocsin.model.change import ChangeBatch
from tocsin.model.columns import Index, Rows, Vector, longer
from tocsin.model.delta import Deltas
from tocsin.model.schema import Stream, Table, quote
from tocsin.predicate.codes import vector_codes
from tocsin.spark.sharding import mix
from tocsin.spark.stages.shard_logic import FIRST_OWN_ID, Shard, ShardOutput, fits, row_blobs
from tocsin.spark.stages.steps import Layout, ShardMessage, ShardMessageKind
from tocsin.spark.stages.wire import CHANGES, DEAD_LETTERS, NO_ROWS, pack, unpack
from tocsin.spark.versions.batch import Group, Pin, ShardPlacement, ShardRowCodes, continues
from tocsin.spark.versions.subscription_sets import SubscriptionSet
from tocsin.store.ids import IdMap

__all__ = ["EffectiveChanges", "KeyOrder", "TableShard"]

FEW = 1 << 16  # deleted keys that are always kept
_OPS = ["insert", "update", "delete"]


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
            blobs += row_blobs(self.order[name].arrays(), relation, "order")
        return blobs

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
            relation, first = placement.relations[name], self.engine.last_seq + 1
            applied, order = self._apply(relation, positions, changes, reasons)
            output.blobs += order
            if self.describer is not None:
                self.describer.collect(first, seqs)
            own = applied.subscription < FIRST_OWN_ID + len(self._own)
            rest = applied.take(~own)
            deltas.append(replace(rest, seq=seqs[rest.seq]))
            if own.any():
                rows = EffectiveChanges.of(applied.take(own), seqs)
                if isinstance(relation, Table):
                    whole = rows.part(rows.old >= 0, rows.new >= 0)
                    output.blobs += row_blobs(whole.drop_columns(["_seq"]), relation)
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
            relation = self.placement.by_name.get(name.lower())
            if relation is None:
                reasons.update(dict.fromkeys(here.tolist(), f"there is no table or stream {name!r}"))
            elif len(here):
                found.setdefault(relation.name, []).append(here)
        return {relation: np.sort(np.concatenate(parts)) for relation, parts in found.items()}

    def _apply(
        self, relation: Table | Stream, positions: Index, changes: pa.Table, reasons: dict[int, str]
    ) -> tuple[Deltas, list[bytes]]:
        """Apply the changes of one relation, numbered by position; a rejected change gets a reason.

        Returns also the blobs with the last seqs of the keys.
        """
        some, first = changes.take(pa.array(positions)), self.engine.last_seq + 1
        batch, bad = ChangeBatch.from_json(
            relation, some["op"].to_pylist(), None, some["row"].combine_chunks()
        )
        reasons.update({int(positions[i]): reason for i, reason in bad})
        order, keys, seqs = KeyOrder(), np.empty(0, np.int64), some["seq"].fill_null(0).to_numpy()
        if isinstance(relation, Table):
            missing = some["seq"].is_null().to_numpy(zero_copy_only=False)[batch.origin]
            reasons.update(dict.fromkeys(positions[batch.origin[missing]].tolist(), "seq is missing"))
            batch = batch.take(np.flatnonzero(~missing))
            order = self.order.setdefault(relation.name, order)
            keys, own = key_hashes(relation, batch.rows), seqs[batch.origin]
            last = order.late(keys, own)
            for i in np.flatnonzero(last >= 0).tolist():
                fact = f"seq {own[i]} is not above {last[i]}, the last applied to this key"
                reasons[int(positions[batch.origin[i]])] = fact
            batch, keys = batch.take(np.flatnonzero(last < 0)), keys[last < 0]
        batch = batch.with_seq(first + positions[batch.origin])
        rejected: list[BadRow] = []
        applied = self.engine.apply(relation.name, batch, dead_letters=rejected)
        applied = replace(applied, seq=applied.seq - first)
        reasons.update({int(positions[i]): reason for i, reason in rejected})
        if not len(keys):
            return applied, []
        good = ~np.isin(batch.origin, [i for i, _ in rejected])
        keys, seqs = keys[good], seqs[batch.origin[good]]
        order.record(keys, seqs)
        return applied, row_blobs(pa.table({"key": keys, "seq": seqs}), relation, "order")

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


def _dead_letters(
    changes: pa.Table, bad: NDArray[np.int64], reasons: Mapping[int, str], shard: str
) -> ShardMessage:
    """The rejected changes with their reasons; `deliver.py` writes them to the dead-letter sinks."""
    why = pa.array([reasons[i] for i in bad.tolist()], pa.string())
    rows = changes.take(bad).append_column("reason", why)
    return ShardMessage(shard, ShardMessageKind.DEAD_LETTERS, pack(rows.select(DEAD_LETTERS.names)))


# -- the order of changes of a key -----------------------------------------------------------------------


def key_hashes(table: Table, rows: Rows) -> Index:
    """A hash of the primary key of each row, the same in every process."""
    mixed = np.zeros(len(rows), np.uint64)
    for name in table.key:
        codes = vector_codes(rows.vectors(name)[0]).view(np.uint64)
        mixed = mix(mixed * np.uint64(0x9E3779B97F4A7C15) + codes)
    return mixed.view(np.int64)


def keys_of(table: Table, rows: pa.Table) -> Index:
    """The same of an Arrow table with the rows as the store returns them."""
    columns = [
        (field.name, Vector.from_arrow(field.type, rows[field.name].combine_chunks()))
        for field in table.fields
        if field.name in table.key
    ]
    return key_hashes(table, Rows(columns, rows.num_rows))


class KeyOrder:
    """Order per key: the seq of the last change applied to each key of a table, also to deleted keys.

    A change is applied if its seq is above the last one of its own key. What other keys have received does
    not matter, so two partitions of a topic may be far apart: nothing of the slower one is late.

        partition 0    A@7001  B@7002          applied first
        partition 1    C@12    D@13  C@14      10,000 changes behind: applied all the same
                       C@13                    late: C has 14 already; a dead letter

    A key is a 64-bit hash of its values: two of a million keys share one with a probability of 1 in 37
    million, and then a change of one is late if it comes out of order with the other. An entry takes 16 bytes
    in the state. A deleted key keeps its entry, so that an older insert that arrives later does not bring the
    row back; when there are more deleted keys than rows (and than `FEW`), a snapshot drops those with the
    lowest seqs.

    >>> order = KeyOrder()
    >>> keys, seqs = np.array([5, 6, 5]), np.array([10, 12, 12])
    >>> order.late(keys, seqs).tolist()  # the last seq of those that are late, -1 for the others
    [-1, -1, -1]
    >>> order.record(keys, seqs)
    >>> order.late(np.array([5, 6, 7]), np.array([12, 13, 1])).tolist()
    [12, -1, -1]

    In flat arrays: 20 bytes a key besides the free places of the hash map.
    """

    def __init__(self) -> None:
        self._slots = IdMap()
        self._key: Index = np.empty(0, np.int64)  # by slot
        self._seq: Index = np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self._slots)

    def late(self, keys: Index, seqs: Index) -> Index:
        """For changes in order of seq: the last seq of the key where it is not below theirs, else -1."""
        if not len(keys):
            return np.empty(0, np.int64)
        slot = self._slots.find(keys)
        last = np.full(len(keys), -1, np.int64)
        last[slot >= 0] = self._seq[slot[slot >= 0]]
        by_key = np.argsort(keys, kind="stable")
        same = keys[by_key[1:]] == keys[by_key[:-1]]
        before = np.where(same, seqs[by_key[:-1]], -1)  # of the change of this key before, in this batch
        last[by_key[1:]] = np.maximum(last[by_key[1:]], before)
        return np.where(seqs <= last, last, -1)

    def record(self, keys: Index, seqs: Index) -> None:
        """Changes were applied: in order of seq, as far as they have the same key."""
        slot = self._slots.find(keys).astype(np.int64)
        fresh = np.unique(keys[slot < 0])
        count = len(self._slots)
        self._reserve(count + len(fresh))
        at = np.arange(count, count + len(fresh))
        self._key[at] = fresh
        self._slots.put(fresh, at)
        if len(fresh):
            slot = self._slots.find(keys).astype(np.int64)
        self._seq[slot] = seqs  # of several for one slot, the last one stays

    def arrays(self) -> pa.Table:
        """All entries."""
        count = len(self._slots)
        return pa.table({"key": self._key[:count], "seq": self._seq[:count]})

    def without_excess(self, present: Index) -> KeyOrder:
        """The entries of the keys that are present, and of the deleted ones that are worth keeping."""
        count = len(self._slots)
        deleted = ~np.isin(self._key[:count], present)
        most = max(FEW, len(present))
        if np.count_nonzero(deleted) <= most:
            return self
        at = np.flatnonzero(deleted)
        deleted[at[np.argsort(self._seq[at])[-most:]]] = False
        kept = KeyOrder()
        kept.record(self._key[:count][~deleted], self._seq[:count][~deleted])
        return kept

    def _reserve(self, count: int) -> None:
        if count > len(self._key):
            size = max(64, count, 2 * len(self._key))
            self._key, self._seq = longer(self._key, size), longer(self._seq, size)

    def _check(self) -> None:
        count = len(self._slots)
        assert self._slots.find(self._key[:count]).tolist() == list(range(count))
        assert len(np.unique(self._key[:count])) == count


# -- what changed ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EffectiveChanges:
    """Effective changes of one table: the positions of the row before and after in `rows`, -1 for none.

    Each query shard receives its part of them: a row that moves from one shard to another is deleted in one
    and inserted in the other.
    """

    rows: pa.Table
    seq: NDArray[np.int64]
    old: NDArray[np.int64]
    new: NDArray[np.int64]

    @classmethod
    def of(cls, deltas: Deltas, seqs: NDArray[np.int64]) -> EffectiveChanges:
        """From the deltas of `SELECT *`; a change has at most one of each sign."""
        position, change = np.unique(deltas.seq, return_inverse=True)
        old, new = np.full(len(position), -1, np.int64), np.full(len(position), -1, np.int64)
        index = np.arange(len(deltas))
        gone = deltas.sign < 0
        old[change[gone]], new[change[~gone]] = index[gone], index[~gone]
        parts, order = [], []
        for source in np.unique(deltas.source).tolist():
            here = np.flatnonzero(deltas.source == source)
            columns = deltas.sources[source].columns
            parts.append(pa.table({name: vector.take(deltas.row[here]).arrow for name, vector in columns}))
            order.append(here)
        table = pa.concat_tables(parts).take(pa.array(np.argsort(np.concatenate(order))))
        return cls(table, seqs[position], old, new)

    def part(
        self, old: NDArray[np.bool_], new: NDArray[np.bool_], split: NDArray[np.bool_] | None = None
    ) -> pa.Table:
        """The changes for a receiver that has the rows before where `old`, and gets those after where `new`.

        `split`, if given, becomes a column: the other half of the change goes to another shard.
        """
        chosen = np.flatnonzero(old | new)
        row = np.where(new, self.new, self.old)[chosen]
        op = np.where(old & new, 1, np.where(new, 0, 2))[chosen]
        changes = (
            self.rows.take(pa.array(row))
            .append_column("_op", pa.array(_OPS).take(pa.array(op)))
            .append_column("_seq", pa.array(self.seq[chosen]))
        )
        return changes if split is None else changes.append_column("_split", pa.array(split[chosen]))
