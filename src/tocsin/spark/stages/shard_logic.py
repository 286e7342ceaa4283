"""What one shard does with one batch. No Spark here: a shard is an engine that receives and sends messages.

    changes ─► TableShard ─┬─ inserts, updates, deletes ─► QueryShard ─► deltas
               by (table,  │  of whole rows                by join key or
               primary key)├─ deltas of filters            by subscription
                           └─ dead letters

Only the table shard of a key knows the row that an update or delete replaces, and so which join shards the
row leaves and which it enters: a change of the join key is a delete in one shard and an insert in another.

A shard numbers the changes of a batch by position, and restores the senders' seq in its deltas; the engine
never sees it. Seqs are compared per key alone (`KeyOrder`), and events of streams need none: one without
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
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tocsin.engine import Engine
from tocsin.errors import SumOverflow
from tocsin.language.shape import Shape
from tocsin.model.columns import Index
from tocsin.model.delta import Deltas
from tocsin.model.schema import Stream, Table
from tocsin.spark.stages.steps import Layout, ShardMessage, ShardMessageKind
from tocsin.spark.stages.wire import DEAD_LETTERS, DELTAS, NO_ROWS, pack, unpack
from tocsin.spark.versions.batch import EMPTY, Pin, ShardPlacement, continues, relations_of
from tocsin.spark.versions.blocks import subscribe
from tocsin.spark.versions.subscription_sets import SubscriptionSet

if TYPE_CHECKING:
    from tocsin.spark.stages.described import ShardDescriber

__all__ = ["FIRST_OWN_ID", "QueryShard", "Shard", "ShardOutput", "SplitDeltas", "fits", "row_blobs"]

FIRST_OWN_ID = -(2**63)  # ids of a table shard's own subscriptions, one per table
BLOB = 8 << 20  # bytes of rows; packed, a half to a quarter of it
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
    most_blobs = 512  # a new snapshot replaces more, whatever their size

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
        left_out = self._read_blobs(placement, blobs) or set()
        self.placement = placement
        mine = self.subscriptions(placement)
        self.left_out = left_out.intersection(mine.only(_array(left_out)).ids.tolist())
        self._subscribe(mine.without(_array(self.left_out)))
        if self.describer is not None:
            self.describer.restart()

    def can_catch_up(self, placement: ShardPlacement) -> bool:
        """Whether blobs written since suffice to come to a later state."""
        return not self._must_rewrite(placement)

    def catch_up(self, placement: ShardPlacement, pin: Pin, blobs: Iterable[bytes]) -> None:
        """Come to a later state, that other processes have written: by its version, and its blobs since."""
        self._advance(placement, pin)
        left_out = self._read_blobs(placement, blobs)
        if left_out is not None:
            self.engine.unsubscribe_many(_array(left_out - self.left_out))
            self.left_out = left_out
        self.overflows = []  # reported where they occurred first
        if self.describer is not None:
            self.describer.restart()

    def _read_blobs(self, placement: ShardPlacement, blobs: Iterable[bytes]) -> set[int] | None:
        """Apply the rows in some blobs, in large batches; returns who is left out, if it is said."""
        kept = self.tables(placement) & placement.relations.keys()
        parts: dict[str, list[pa.Table]] = {}
        left_out = None

        def apply(name: str) -> None:
            rows = pa.concat_tables(parts.pop(name), promote_options="default")
            self._without_overflow(partial(self.engine.apply, name, rows))

        for facts, table in map(unpack, blobs):
            if "left_out" in facts:
                left_out = {int(id) for id in facts["left_out"].split(",") if id}
            elif "order" in facts:
                self._restore_order(placement, facts, table)
            elif facts["table"] in kept and fits(facts, placement.relations[facts["table"]]):
                if "_op" not in table.column_names:  # a snapshot
                    table = table.append_column("_op", pa.array(["insert"] * len(table), pa.string()))
                found = parts.setdefault(facts["table"], [])
                found.append(table)
                if sum(part.nbytes for part in found) > BLOB:
                    apply(facts["table"])
        for name in list(parts):
            apply(name)
        return left_out

    def _restore_order(self, placement: ShardPlacement, facts: Mapping[str, str], order: pa.Table) -> None:
        """Restore the last seqs of some keys of a table."""
        raise AssertionError(f"shard {self.name} keeps no order")

    def snapshot(self) -> list[bytes]:
        """Blobs with all rows, and with the subscriptions that are left out."""
        relations = [self.placement.relations[name] for name in sorted(self.tables(self.placement))]
        blobs = [blob for one in relations for blob in row_blobs(self.engine.rows(one.name), one)]
        return [*blobs, *([self._left_out_blob()] if self.left_out else [])]

    def _left_out_blob(self) -> bytes:
        """It replaces an earlier one."""
        return pack(NO_ROWS, left_out=",".join(map(str, sorted(self.left_out))))

    def _leave_out(self, number: int, error: SumOverflow) -> None:
        self.left_out.add(number)
        self.overflows.append(error.fact)

    def is_mostly_stale(self) -> bool:
        """Whether most rows in the blobs are not needed any more."""
        return False

    def _make_engine(self) -> Engine:
        return Engine(clock=lambda: self.now, retain=False, end_overflowing=False)

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

    def _must_rewrite(self, placement: ShardPlacement) -> bool:
        """Whether the blobs of a placement do not fit to a new one. A new subscription rewrites none."""
        if placement.identity == self.placement.identity:
            return False
        lost = self.tables(self.placement) - self.tables(placement)
        return placement.ddl != self.placement.ddl or bool(lost)

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
        old, new = self.subscriptions(self.placement), self.subscriptions(placement)
        staying = new.take(self._unchanged(old, new, placement))
        leaving = old.without(np.concatenate([staying.ids, _array(self.left_out)])).ids
        moved = [leaving[new_all.find(leaving) >= 0], new.ids[old_all.find(new.ids) >= 0]]
        moved[1] = np.setdiff1d(moved[1], staying.ids)
        split = SplitDeltas(start, np.concatenate([new_all.ids[changed], *moved]))
        enumerated = self._enumerated(leaving)
        retracted = self._delivered(
            enumerated[new_all.find(enumerated) >= 0]
        )  # it has another meaning or shard
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
            kept, seqs = _numbered(batches, first)
            applied = self._without_overflow(partial(self.engine.apply_all, kept))  # as one step
            deltas.append(replace(applied, seq=seqs[applied.seq - first]))
            if self.describer is not None:
                self.describer.collect(first, seqs)
            end = int(seqs[-1])
        deltas += [found.at(end) for found in self._refreshed(old)]
        output.blobs = self._record(loads, kept)
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

    def _refreshed(self, old: ShardPlacement) -> list[Deltas]:
        """The deltas of subscriptions that were asked to be refreshed since an earlier placement."""
        return []

    def _record(self, loads: Iterable[tuple[str, pa.Table]], batches: Mapping[str, pa.Table]) -> list[bytes]:
        """The blobs that repeat a batch: loaded rows, and changes of tables, as only these are kept."""
        kept, relations = self.tables(self.placement), self.placement.relations
        changes = [(name, table.drop_columns(["_seq"])) for name, table in batches.items() if name in kept]
        return [blob for name, rows in (*loads, *changes) for blob in row_blobs(rows, relations[name])]


def _numbered(batches: dict[str, pa.Table], first: int) -> tuple[dict[str, pa.Table], NDArray[np.int64]]:
    """The batches in order of seq, numbered by position among all of them; and the seq of each position."""
    seqs = np.concatenate([table["_seq"].to_numpy() for table in batches.values()])
    order = np.argsort(seqs, kind="stable")
    position = np.empty(len(seqs), np.int64)
    position[order] = np.arange(len(seqs))
    out, start = {}, 0
    for name, table in batches.items():
        here = position[start : start + len(table)]
        own = np.argsort(here)
        body = table.drop_columns(["_seq"]).take(pa.array(own))
        out[name] = body.append_column("_seq", pa.array(first + here[own]))
        start += len(table)
    return out, seqs[order]


def row_blobs(rows: pa.Table, relation: Table | Stream, kind: str = "table") -> list[bytes]:
    """Rows of a relation as blobs of at most `BLOB` bytes each (before compression).

    Or what is kept of each of its keys: `kind` is "table" or "order".
    """
    count = len(rows)
    if not count:
        return []
    step = max(1, BLOB * count // max(1, rows.nbytes))
    facts = {kind: relation.name, "definition": str(relation)}
    return [pack(rows.slice(at, step), **facts) for at in range(0, count, step)]


def fits(facts: Mapping[str, str], relation: Table | Stream) -> bool:
    """Whether the rows of a blob are rows of the relation as it is defined now."""
    was = facts.get("definition", str(relation))
    return was == str(relation) or continues(relations_of(was).get(relation.name), relation)


def _array(ids: Iterable[int]) -> Index:
    return np.array(sorted(ids), np.int64)
