"""What one shard does with one batch. No Spark here: a shard is an engine that receives and sends messages.

    changes ─► TableShard ─┬─ inserts, updates, deletes ─► QueryShard ─► deltas
               by (table,  │  of whole rows                by join key or
               primary key)├─ deltas of filters            by subscription
                           └─ dead letters

Only the table shard of a key knows the row that an update or delete replaces, and so which join shards the
row leaves and which it enters: a change of the join key is a delete in one shard and an insert in another.

A shard numbers the changes of a batch by position, and restores the senders' seq in its deltas; the engine
never sees it. Seqs are compared per key alone (`key_order.py`), and events of streams need none: one without
comes before the changes of its batch, under the last seq before it.

When the version of the subscriptions differs from that of the last batch, a shard first
- removes the subscriptions that are gone, and retracts (-1 for each row) the contents of those that have
  another meaning under the same id;
- loads tables that it did not need before: their table shards send the rows as they were before the batch;
- adds the new subscriptions, and emits their initial contents.
It does not keep the rows of a table that was dropped and defined again.

A subscription whose sum overflows is *left out*: disabled until it is removed. One dead letter says so.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tocsin.engine import Engine
from tocsin.errors import BadRow, CatalogError, SumOverflow
from tocsin.language.shape import Shape
from tocsin.model.change import ChangeBatch
from tocsin.model.columns import Index
from tocsin.model.delta import Deltas
from tocsin.model.schema import Stream, Table, quote
from tocsin.spark.stages.effective import EffectiveChanges, numbered
from tocsin.spark.stages.key_order import KeyOrder, key_hashes, keys_of
from tocsin.spark.stages.steps import Layout, ShardMessage, ShardMessageKind
from tocsin.spark.stages.wire import CHANGES, DEAD_LETTERS, DELTAS, NO_ROWS, pack, unpack
from tocsin.spark.versions.pins import Pin
from tocsin.spark.versions.placement import EMPTY, ShardPlacement, continues, relations_of
from tocsin.spark.versions.subscription_sets import SubscriptionSet, subscribe

if TYPE_CHECKING:
    from tocsin.spark.stages.described import ShardDescriber

__all__ = ["FIRST_OWN_ID", "QueryShard", "Shard", "ShardOutput", "TableShard"]

FIRST_OWN_ID = -(2**63)  # ids of a table shard's own subscriptions, one per table
ONE_ROW = (Shape.EXTREME, Shape.AGGREGATE, Shape.GROUP)  # whose content may be one row if the table is empty

T = TypeVar("T")


@dataclass
class ShardOutput:
    """What a step sends on, and the blobs that repeat its changes when the engine is rebuilt."""

    messages: list[ShardMessage] = field(default_factory=list)
    blobs: list[bytes] = field(default_factory=list)
    rewrite: bool = False  # the blobs do not suffice: write a snapshot instead


@dataclass
class SplitDeltas:
    """Which deltas of a step may cancel with deltas of another shard.

    Two kinds: deltas at `start_seq` of subscriptions (`ids`) with a new meaning, which one shard retracts and
    another one emits; and deltas of changes (`seqs`) that move a row from one shard to another.
    """

    start_seq: int
    ids: Index
    seqs: list[Index] = field(default_factory=list)

    def messages(self, parts: list[Deltas], shard: str, version: int) -> list[ShardMessage]:
        """All deltas of a step as one message, with a column that marks the split ones."""
        deltas = Deltas.concat(parts)
        if not len(deltas):
            return []
        seqs = np.concatenate([*self.seqs, np.empty(0, np.int64)])
        split = np.isin(deltas.seq, seqs) if len(seqs) else np.zeros(len(deltas), np.bool_)
        if len(self.ids):
            split |= (deltas.seq == self.start_seq) & np.isin(deltas.subscription, self.ids)
        table: Any = deltas.to_arrow(rows=True).select(DELTAS.names).cast(DELTAS)
        table = table.append_column("split", pa.array(split))
        return [ShardMessage(shard, ShardMessageKind.DELTAS, pack(table, version=version))]


class Shard(ABC):
    """An engine with some of the subscriptions, at one version and one time."""

    describer: ShardDescriber | None = None  # of the subscriptions that messages are sent for
    most_blobs = 64  # a new snapshot replaces more, whatever their size

    def __init__(self, name: str, layout: Layout, output: str = "deltas") -> None:
        self.name, self.layout, self.output = name, layout, output
        self.placement: ShardPlacement = EMPTY
        self.now = datetime.fromtimestamp(0, UTC)
        self.engine = self._make_engine()
        self.left_out: set[int] = set()  # subscriptions whose sums overflowed
        self.overflows: list[str] = []  # why; reported with the batch

    @abstractmethod
    def step(self, placement: ShardPlacement, pin: Pin, messages: Mapping[str, list[bytes]]) -> ShardOutput:
        """Run one batch: payloads by kind of message."""

    @abstractmethod
    def subscriptions(self, placement: ShardPlacement) -> SubscriptionSet:
        """The subscriptions that this shard evaluates."""

    @abstractmethod
    def tables(self, placement: ShardPlacement) -> set[str]:
        """The tables whose rows this shard keeps."""

    def restore(self, placement: ShardPlacement, now: datetime, blobs: Iterable[bytes]) -> None:
        """Restore the shard as it was at the end of a batch, from its state."""
        self.now = now
        self.engine = self._new_engine(placement)
        if self.output == "messages":
            from tocsin.spark.stages.described import ShardDescriber

            self.describer = ShardDescriber(self.engine, is_first=self.name.rpartition("|")[2] == "0")
        kept = self.tables(placement) & placement.relations.keys()
        parts: dict[str, list[pa.Table]] = {}
        left_out: set[int] = set()
        for facts, table in map(unpack, blobs):
            if "left_out" in facts:
                left_out.update(map(int, facts["left_out"].split(",")))
            elif "order" in facts:
                self._restore_order(facts, table)
            elif facts["table"] in kept and _fits(facts, placement.relations[facts["table"]]):
                if "_op" not in table.column_names:  # a snapshot
                    table = table.append_column("_op", pa.array(["insert"] * len(table), pa.string()))
                parts.setdefault(facts["table"], []).append(table)
        for name, tables in parts.items():
            self.engine.apply(name, pa.concat_tables(tables, promote_options="default"))
        self.placement = placement
        mine = self.subscriptions(placement)
        self.left_out = left_out.intersection(mine.only(_array(left_out)).ids.tolist())
        self._subscribe(mine.without(_array(self.left_out)))
        if self.describer is not None:
            self.describer.restart()

    def _restore_order(self, facts: Mapping[str, str], order: pa.Table) -> None:
        """Restore the last seqs of some keys of a table."""
        raise AssertionError(f"shard {self.name} keeps no order")

    def snapshot(self) -> list[bytes]:
        """Blobs with all rows, and with the subscriptions that are left out."""
        tables = ((name, self.engine.rows(name)) for name in sorted(self.tables(self.placement)))
        return [*(self._blob(name, rows) for name, rows in tables if rows.num_rows), *self._left_out_blob()]

    def _blob(self, name: str, rows: pa.Table) -> bytes:
        return pack(rows, table=name, definition=str(self.placement.relations[name]))

    def _left_out_blob(self) -> list[bytes]:
        return [pack(NO_ROWS, left_out=",".join(map(str, sorted(self.left_out))))] if self.left_out else []

    def _leave_out(self, number: int, error: SumOverflow) -> None:
        self.left_out.add(number)
        self.overflows.append(error.fact)

    def is_mostly_stale(self) -> bool:
        """Whether most rows in the blobs are not needed any more."""
        return False

    def _make_engine(self) -> Engine:
        return Engine(clock=lambda: self.now, retain=False)

    def _new_engine(self, placement: ShardPlacement) -> Engine:
        engine = self._make_engine()
        if placement.ddl:
            engine.execute(placement.ddl)
        return engine

    def _subscribe(self, subscriptions: SubscriptionSet) -> None:
        if self.describer is not None:
            subscriptions = self.describer.enter(subscriptions)
        for block in subscriptions.blocks():
            for error in subscribe(self.engine, block):
                assert error.id is not None
                self._leave_out(error.id, error)

    def _enumerated(self, ids: Index) -> Index:
        """Those whose deltas are sent."""
        return ids if self.describer is None else self.describer.others(ids)

    def _differs(self, placement: ShardPlacement) -> bool:
        """Whether a placement has other definitions or subscriptions for this shard."""
        if placement.identity == self.placement.identity:
            return False
        before, after = self.subscriptions(self.placement), self.subscriptions(placement)
        same_tables = self.tables(self.placement) == self.tables(placement)
        return placement.ddl != self.placement.ddl or not same_tables or not after.is_copy(before)

    def _without_overflow(self, run: Callable[[], T]) -> T:
        """The result of a step; a subscription that overflows is removed, and the step is tried again."""
        while True:
            try:
                return run()
            except SumOverflow as error:
                if error.id is None:
                    raise
                self.engine.unsubscribe(error.id)
                self._leave_out(error.id, error)

    def _delivered(self, ids: Index) -> Deltas:
        """The contents of some subscriptions as their deltas have said them."""
        return self.engine.contents(ids)

    def _advance(
        self, placement: ShardPlacement, pin: Pin, loads: Iterable[tuple[str, pa.Table]] = ()
    ) -> tuple[list[Deltas], SplitDeltas]:
        """Advance to the batch's time and version; return the deltas of subscriptions that start or end.

        All these deltas have the last seq before the batch.
        """
        start = pin.start_seq
        if placement.identity == self.placement.identity:
            self.now = pin.time
            return [self._without_overflow(self.engine.tick).at(start)], SplitDeltas(
                start, np.empty(0, np.int64)
            )
        old_all, new_all = self.placement.subscriptions, placement.subscriptions
        changed = (old_all.find(new_all.ids) >= 0) & ~self._unchanged(old_all, new_all, placement)
        split = SplitDeltas(start, new_all.ids[changed])
        old, new = self.subscriptions(self.placement), self.subscriptions(placement)
        staying = new.take(self._unchanged(old, new, placement))
        leaving = old.without(np.concatenate([staying.ids, _array(self.left_out)])).ids
        enumerated = self._enumerated(leaving)
        retracted = self._delivered(enumerated[new_all.find(enumerated) >= 0])  # a new meaning, same id
        self.now = pin.time
        self.engine.unsubscribe_many(enumerated)
        if self.describer is not None:
            self.describer.leave(leaving)
        self.left_out.intersection_update(staying.only(_array(self.left_out)).ids.tolist())
        ticked = self._without_overflow(self.engine.tick)
        if placement.ddl != self.placement.ddl:
            self.restore(self._between(placement, staying.ids), self.now, self.snapshot())
        for name in sorted(self.tables(self.placement) - self.tables(placement)):
            if name in self.placement.relations:
                rows = self.engine.rows(name)
                deletes = pa.array(["delete"] * len(rows), pa.string())
                self.engine.apply(name, rows.append_column("_op", deletes))
        self.placement = placement
        for name, rows in loads:
            self.engine.apply(name, rows)
        added = new.without(staying.ids)
        self._subscribe(added)
        initial = self._contents(added.without(_array(self.left_out)))
        return [deltas.at(start) for deltas in (ticked, retracted.negated(), initial)], split

    def _contents(self, subscriptions: SubscriptionSet) -> Deltas:
        """The contents of new subscriptions; those whose tables are empty are skipped."""
        empty = {name for name in self.tables(self.placement) if not self.engine.rows(name).num_rows}
        some = [
            part
            for key, part in subscriptions.by_shard_key().items()
            if key.shape in ONE_ROW or key.limited or not empty.intersection(key.tables)
        ]
        return self.engine.contents(self._enumerated(SubscriptionSet.union(some).ids))

    def _unchanged(
        self, old: SubscriptionSet, new: SubscriptionSet, placement: ShardPlacement
    ) -> NDArray[np.bool_]:
        """Which new subscriptions mean what they meant before, over relations that are defined as before."""
        relations = self.placement.relations
        other = {name for name, one in relations.items() if placement.relations.get(name) != one}
        same = new.same_as(old)
        return same & ~new.using(other) if other else same

    def _between(self, placement: ShardPlacement, staying: Index) -> ShardPlacement:
        """The old placement with the new definitions, and only the subscriptions that stay."""
        return replace(
            self.placement,
            ddl=placement.ddl,
            relations=placement.relations,
            filters=self.placement.filters.only(staying),
            groups=tuple(
                replace(group, subscriptions=group.subscriptions.only(staying))
                for group in self.placement.groups
            ),
        )


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
        self._relations = placement.relations
        super().restore(placement, now, blobs)

    def _restore_order(self, facts: Mapping[str, str], order: pa.Table) -> None:
        relation = self._relations.get(facts["order"])
        if isinstance(relation, Table) and _fits(facts, relation):
            keys, seqs = order["key"].to_numpy(), order["seq"].to_numpy()
            self.order.setdefault(relation.name, KeyOrder()).record(keys, seqs)

    def snapshot(self) -> list[bytes]:
        """Blobs with all rows and the last seqs of their keys."""
        blobs = super().snapshot()
        for name in sorted(self.tables(self.placement) & self.order.keys()):
            relation = self.placement.relations[name]
            assert isinstance(relation, Table)
            self.order[name] = self.order[name].without_excess(keys_of(relation, self.engine.rows(name)))
            blobs.append(self._order_blob(name, self.order[name].arrays()))
        return blobs

    def _order_blob(self, name: str, order: pa.Table) -> bytes:
        return pack(order, order=name, definition=str(self.placement.relations[name]))

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
        output, is_new = ShardOutput(rewrite=self._differs(placement)), placement.identity != old.identity
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
                    output.blobs.append(self._blob(name, whole.drop_columns(["_seq"])))
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
            blobs = [self._order_blob(name, pa.table({"key": keys, "seq": seqs}))]
        return replace(applied, seq=applied.seq - first), blobs

    def _change_messages(
        self, placement: ShardPlacement, name: str, rows: EffectiveChanges
    ) -> Iterator[ShardMessage]:
        """The changes of one table that each query shard must apply."""
        for group in placement.groups:
            if name in group.tables:
                shard = np.append(group.shards_of_rows(name, rows.rows), -1)  # index -1 finds the appended -1
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
                shard = group.shards_of_rows(name, rows)
                for number, to in enumerate(group.shards):
                    part = rows.filter(pa.array(shard == number))
                    if (to, name) in fresh and part.num_rows:
                        yield ShardMessage(to, ShardMessageKind.LOAD, pack(part, table=name))


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
        output, old = ShardOutput(rewrite=self._differs(placement)), self.placement
        loads = [
            (facts["table"], table) for facts, table in map(unpack, messages.get(ShardMessageKind.LOAD, ()))
        ]
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
        output.blobs = self._record(kept)
        if self.overflows:
            output.blobs += self._left_out_blob()
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
        return [self._blob(name, t.drop_columns(["_seq"])) for name, t in batches.items() if name in kept]


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


def _fits(facts: Mapping[str, str], relation: Table | Stream) -> bool:
    """Whether the rows of a blob are rows of the relation as it is defined now."""
    was = facts.get("definition", str(relation))
    return was == str(relation) or continues(relations_of(was).get(relation.name), relation)


def _array(ids: Iterable[int]) -> Index:
    return np.array(sorted(ids), np.int64)
