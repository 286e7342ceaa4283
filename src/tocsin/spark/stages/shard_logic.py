"""What one shard does with one batch. No Spark here: shards are engines that take messages.

    changes ─► TableShard ─┬─ inserts, updates, deletes ─► QueryShard ─► deltas
               by (table,  │  of whole rows                by join key or
               primary key)├─ deltas of filters            by subscription
                           └─ dead letters

Only the table shard of a key knows the row that an update or delete replaces, and so which
join shards it leaves and which it enters: a change of the join key is a delete in one and an
insert in the other.

A shard numbers the changes of a batch itself, by position, and puts the senders' seq back on the
way out; the engine inside never sees it. So a seq that occurs twice, against the rules, is
still answered rather than fatal.

When a batch comes with another version of the subscriptions than the last one, a shard first
drops those that are gone, takes the answers back of those that say something else under the same id
(-1 for each row), takes in tables it did not need
before (their table shards *load* it with the rows as they were), and answers the new ones with
their content so far. The rows of a table that was dropped and defined anew are not kept.

A subscription whose sum overflows is *left out* for as long as it stays: a dead letter says so once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tocsin.engine import Engine
from tocsin.errors import BadRow, CatalogError, SumOverflow
from tocsin.model.change import ChangeBatch
from tocsin.model.columns import Index
from tocsin.model.delta import Deltas
from tocsin.model.schema import Stream, Table, quote
from tocsin.spark.stages.row_moves import Moved, numbered, places, with_op
from tocsin.spark.stages.wire import DEAD, DELTAS, Message, pack, unpack
from tocsin.spark.versions.lots import subscribe
from tocsin.spark.versions.parts import Chosen, merged
from tocsin.spark.versions.placement import EMPTY, Layout, Placement, continues, relations_of
from tocsin.spark.versions.versions import Pin

__all__ = ["FIRST_OWN_ID", "Outcome", "QueryShard", "Shard", "TableShard"]

FIRST_OWN_ID = -(2**63)  # ids of a table shard's own subscriptions, one per table
VALUED = ("extreme", "aggregate")  # shapes with one row, whatever there is
_NO_ROWS = pa.table({"seq": pa.array([], pa.int64())})


@dataclass
class Outcome:
    """What a step sends on, and the blobs that repeat its changes in a later engine."""

    messages: list[Message] = field(default_factory=list)
    blobs: list[bytes] = field(default_factory=list)
    rewrite: bool = False  # blobs do not suffice: keep a snapshot instead


@dataclass
class Halves:
    """Deltas that may cancel with those of another shard: of some ids at one seq, and of some changes."""

    told: int
    ids: Index
    seqs: list[Index] = field(default_factory=list)

    def among(self, deltas: Deltas) -> NDArray[np.bool_]:
        """Which of them those are."""
        halved = np.concatenate([*self.seqs, np.empty(0, np.int64)])
        out = np.isin(deltas.seq, halved) if len(halved) else np.zeros(len(deltas), np.bool_)
        if len(self.ids):
            out |= (deltas.seq == self.told) & np.isin(deltas.subscription, self.ids)
        return out


class Shard(ABC):
    """An engine with some of the subscriptions, at one version and one time."""

    def __init__(self, name: str, layout: Layout) -> None:
        self.name, self.layout = name, layout
        self.placement: Placement = EMPTY
        self.now = datetime.fromtimestamp(0, UTC)
        self.engine = Engine(clock=lambda: self.now, retain=False)
        self.left_out: set[int] = set()  # subscriptions whose sums overflowed
        self.refused: list[str] = []  # why, to be told with the batch

    @abstractmethod
    def chosen(self, placement: Placement) -> Chosen:
        """The subscriptions that this shard answers."""

    @abstractmethod
    def tables(self, placement: Placement) -> set[str]:
        """The tables whose rows this shard keeps."""

    def restore(self, placement: Placement, now: datetime, blobs: Iterable[bytes]) -> None:
        """Become what a shard was at the end of a batch, from its state."""
        self.now = now
        self.engine = self._engine(placement)
        kept = self.tables(placement) & placement.relations.keys()
        parts: dict[str, list[pa.Table]] = {}
        left_out: set[int] = set()
        for facts, table in map(unpack, blobs):
            if "left_out" in facts:
                left_out.update(map(int, facts["left_out"].split(",")))
            elif facts["table"] in kept and _fits(facts, placement.relations[facts["table"]]):
                parts.setdefault(facts["table"], []).append(table)  # else it was dropped and defined anew
        for name, tables in parts.items():
            self.engine.apply(name, pa.concat_tables(map(with_op, tables), promote_options="default"))
        self.placement = placement
        mine = self.chosen(placement)
        self.left_out = left_out.intersection(mine.only(_array(left_out)).ids.tolist())
        self._subscribe(mine.without(_array(self.left_out)))

    def snapshot(self) -> list[bytes]:
        """Blobs that hold all rows, and which subscriptions are left out."""
        tables = ((name, self.engine.rows(name)) for name in sorted(self.tables(self.placement)))
        return [*(self._blob(name, rows) for name, rows in tables if rows.num_rows), *self._left_out()]

    def _blob(self, name: str, rows: pa.Table) -> bytes:
        return pack(rows, table=name, definition=str(self.placement.relations[name]))

    def _left_out(self) -> list[bytes]:
        return [pack(_NO_ROWS, left_out=",".join(map(str, sorted(self.left_out))))] if self.left_out else []

    def _leave_out(self, number: int, error: SumOverflow) -> None:
        self.left_out.add(number)
        self.refused.append(error.fact)

    def _engine(self, placement: Placement) -> Engine:
        engine = Engine(clock=lambda: self.now, retain=False)
        if placement.ddl:
            engine.execute(placement.ddl)
        return engine

    def _subscribe(self, chosen: Chosen) -> None:
        for lot in chosen.lots():
            for error in subscribe(self.engine, lot):
                assert error.id is not None
                self._leave_out(error.id, error)

    def _advance(
        self, placement: Placement, pin: Pin, loads: Iterable[tuple[str, pa.Table]] = ()
    ) -> list[Deltas]:
        """Come to a batch's time and version; what subscriptions that begin, end or are new receive."""
        if placement.identity == self.placement.identity:
            self.now = pin.time
            return [self.engine.tick().at(pin.told)]
        was, now = self.chosen(self.placement), self.chosen(placement)
        stay = now.take(self._stays(was, now, placement))
        stays = stay.ids
        left = was.without(np.concatenate([stays, _array(self.left_out)])).ids
        replaced = self.engine.contents(left[placement.every.find(left) >= 0])  # as they were told
        self.now = pin.time
        self.engine.unsubscribe_many(left)
        self.left_out.intersection_update(stay.only(_array(self.left_out)).ids.tolist())
        ticked = self.engine.tick()
        if placement.ddl != self.placement.ddl:
            self.restore(*self._moved(placement, stays))
        for name in sorted(self.tables(self.placement) - self.tables(placement)):
            self._empty(name)
        self.placement = placement
        for name, rows in loads:
            self.engine.apply(name, rows)
        added = now.without(stays)
        self._subscribe(added)
        begun = self._contents(added.without(_array(self.left_out)))
        return [deltas.at(pin.told) for deltas in (ticked, replaced.negated(), begun)]

    def _given_anew(self, placement: Placement, pin: Pin) -> Halves:
        """Ids that say something else than before: what one shard takes back may be told anew by another."""
        if placement.identity == self.placement.identity:
            return Halves(pin.told, np.empty(0, np.int64))
        was, now = self.placement.every, placement.every
        return Halves(pin.told, now.ids[(was.find(now.ids) >= 0) & ~self._stays(was, now, placement)])

    def _contents(self, chosen: Chosen) -> Deltas:
        """The answers of subscriptions that have just begun; of none where all tables are empty."""
        empty = {name for name in self.tables(self.placement) if not self.engine.rows(name).num_rows}
        some = [
            part
            for home, part in chosen.by_home().items()
            if home.shape in VALUED or not empty.intersection(home.tables)
        ]
        return self.engine.contents(merged(some).ids)

    def _stays(self, was: Chosen, now: Chosen, placement: Placement) -> NDArray[np.bool_]:
        """Which of those now say the same as before; an id may have been given anew in between."""
        relations = self.placement.relations
        other = {name for name, one in relations.items() if placement.relations.get(name) != one}
        same = now.same_as(was)
        return same & ~now.using(other) if other else same

    def _moved(self, placement: Placement, stay: Index) -> tuple[Placement, datetime, list[bytes]]:
        """This shard as a state of the new definitions, with the subscriptions that stay."""
        between = replace(
            self.placement,
            ddl=placement.ddl,
            relations=placement.relations,
            filters=self.placement.filters.only(stay),
            groups=tuple(replace(group, chosen=group.chosen.only(stay)) for group in self.placement.groups),
        )
        return between, self.now, self.snapshot()

    def _empty(self, name: str) -> None:
        if name in self.placement.relations:
            rows = self.engine.rows(name)
            self.engine.apply(name, rows.append_column("_op", pa.array(["delete"] * len(rows), pa.string())))


class TableShard(Shard):
    """Stage 1: keeps rows, checks changes, answers filters, tells query shards what really changed."""

    _watched: Mapping[int, str] = {}  # own subscriptions

    def chosen(self, placement: Placement) -> Chosen:
        return placement.filters

    def tables(self, placement: Placement) -> set[str]:
        return {name for name, relation in placement.relations.items() if isinstance(relation, Table)}

    def _engine(self, placement: Placement) -> Engine:
        """With a subscription of its own to every table: its deltas are the rows before and after."""
        engine = super()._engine(placement)
        self._watched = {FIRST_OWN_ID + i: name for i, name in enumerate(sorted(self.tables(placement)))}
        for number, name in self._watched.items():
            engine.subscribe(f"SELECT * FROM {quote(name)}", id=number)
        return engine

    def step(self, placement: Placement, pin: Pin, changes: pa.Table) -> Outcome:
        """One batch: `changes` has the columns of `CHANGES`, in any order."""
        outcome = Outcome(rewrite=placement.identity != self.placement.identity)
        halves = self._given_anew(placement, pin)
        if outcome.rewrite:
            outcome.messages += self._loads(placement)
        deltas = self._advance(placement, pin)
        changes = changes.take(np.argsort(changes["seq"].fill_null(-1).to_numpy(), kind="stable"))
        reasons: dict[int, str] = dict(self._bad_seqs(changes["seq"], pin.seq))
        reasons |= _faults(changes["fault"])
        seqs = changes["seq"].fill_null(0).to_numpy()
        for name, positions in self._by_relation(changes["table"].combine_chunks(), reasons).items():
            applied = self._apply(name, positions, changes, reasons)
            own = applied.subscription < FIRST_OWN_ID + len(self._watched)
            rest = applied.take(~own)
            deltas.append(replace(rest, seq=seqs[rest.seq]))
            if own.any():
                moved = Moved.of(applied.take(own), seqs)
                outcome.blobs.append(self._blob(name, moved.whole().drop_columns(["_seq"])))
                outcome.messages += self._sent(placement, name, moved)
        bad = np.array(sorted(reasons), np.int64)
        good = np.setdiff1d(np.arange(len(changes)), bad)
        last = max(pin.seq, int(seqs[good].max())) if len(good) else pin.seq
        outcome.messages += [
            *_deltas(deltas, f"out|{self.name}", placement, halves),
            *self._dead(changes, bad, reasons),
        ]
        mark = pack(_NO_ROWS, seq=last, version=pin.version)
        outcome.messages.append(Message(f"out|{self.name}", "mark", mark))
        return outcome

    def _bad_seqs(self, seqs: pa.ChunkedArray, last: int) -> Iterator[tuple[int, str]]:
        """Which changes, in order of seq, cannot be placed after all before them, and why."""
        numbers = seqs.fill_null(-1).to_numpy()
        after = np.maximum.accumulate(np.concatenate([[max(last, -1)], numbers]))[:-1]  # the last one applied
        for i in np.flatnonzero(numbers <= after).tolist():
            seq = seqs[i].as_py()
            if seq is None:
                yield i, "seq is missing"
            elif seq < 0:
                yield i, f"seq {seq} is below 0"
            else:
                yield i, f"seq {seq} is not above the last applied, {after[i]}"

    def _by_relation(self, names: Any, reasons: dict[int, str]) -> dict[str, Index]:
        """Positions by relation; a row of no relation gets its reason."""
        encoded = names.dictionary_encode(null_encoding="encode")
        code = encoded.indices.to_numpy()
        code = np.where(np.isin(np.arange(len(code)), list(reasons)), -1, code) if reasons else code
        found: dict[str, list[Index]] = {}
        for number, name in enumerate(encoded.dictionary.to_pylist()):
            relation, here = self._resolve(name), np.flatnonzero(code == number)
            if relation is None:
                why = "table is missing" if name is None else f"there is no table or stream {name!r}"
                reasons.update(dict.fromkeys(here.tolist(), why))
            elif len(here):
                found.setdefault(relation, []).append(here)
        return {relation: np.sort(np.concatenate(parts)) for relation, parts in found.items()}

    def _resolve(self, name: str | None) -> str | None:
        if name is None:
            return None
        try:
            return self.engine.schema(name).name
        except CatalogError:
            return None

    def _apply(self, name: str, positions: Index, changes: pa.Table, reasons: dict[int, str]) -> Deltas:
        """Apply the changes of one relation, numbered by position, and note why some were left out."""
        some = changes.take(pa.array(positions))
        first = self.engine.last_seq + 1
        batch, bad = ChangeBatch.from_json(
            self.engine.schema(name), some["op"].to_pylist(), None, some["row"].combine_chunks()
        )
        worse: list[BadRow] = []
        batch = batch.with_seq(first + positions[batch.origin])
        applied = self.engine.apply(name, batch, dead_letters=worse)
        reasons.update({int(positions[i]): reason for i, reason in [*bad, *worse]})
        return replace(applied, seq=applied.seq - first)

    def _dead(self, changes: pa.Table, bad: NDArray[np.int64], reasons: dict[int, str]) -> list[Message]:
        if not len(bad):
            return []
        why = pa.array([reasons[i] for i in bad.tolist()], pa.string())
        rows = changes.take(bad).append_column("reason", why)
        return [Message(f"out|{self.name}", "dead", pack(rows.select(DEAD.names)))]

    def _sent(self, placement: Placement, name: str, moved: Moved) -> Iterator[Message]:
        """What each query shard must hear of some changes of one table."""
        for group in placement.groups:
            if name in group.tables:
                old, new = moved.buckets(group.tables[name], len(group.shards))
                split = (old != new) & (old >= 0) & (new >= 0)
                for number, shard in enumerate(group.shards):
                    part = moved.part(old == number, new == number, split)
                    if part.num_rows:
                        yield Message(shard, "changes", pack(part, table=name))

    def _loads(self, placement: Placement) -> Iterator[Message]:
        """The rows, as they are before the batch, for query shards that did not need the table so far."""
        fresh = placement.reached() - self.placement.reached()
        before = self.placement.relations
        known = {n for n in self.tables(self.placement) if continues(before[n], placement.relations.get(n))}
        for group in placement.groups:
            for name, key in group.tables.items():
                rows = self.engine.rows(name) if name in known else None
                if rows is None or not rows.num_rows:
                    continue
                place = places(rows, key, len(group.shards))
                for number, shard in enumerate(group.shards):
                    part = rows.filter(pa.array(place == number))
                    if (shard, name) in fresh and part.num_rows:
                        yield Message(shard, "load", pack(part, table=name))


class QueryShard(Shard):
    """Stage 2: answers joins for some join keys, or some subscriptions over whole tables."""

    def chosen(self, placement: Placement) -> Chosen:
        return placement.by_shard[self.name].chosen if self.name in placement.by_shard else Chosen()

    def tables(self, placement: Placement) -> set[str]:
        return set(placement.by_shard[self.name].tables) if self.name in placement.by_shard else set()

    def step(self, placement: Placement, pin: Pin, loads: list[bytes], changes: list[bytes]) -> Outcome:
        """One batch: rows to load, if the version is new, and changes of whole rows."""
        outcome = Outcome(rewrite=placement.identity != self.placement.identity)
        unpacked = [(facts["table"], table) for facts, table in map(unpack, loads)]
        halves = self._given_anew(placement, pin)
        deltas = self._advance(placement, pin, unpacked)
        tables: dict[str, list[pa.Table]] = {}
        for facts, table in map(unpack, changes):
            halves.seqs.append(table["_seq"].filter(table["_split"]).to_numpy())
            tables.setdefault(facts["table"], []).append(table.drop_columns(["_split"]))
        batches = {name: pa.concat_tables(parts) for name, parts in sorted(tables.items())}
        if batches:
            first = self.engine.last_seq + 1
            ordered, seqs = numbered(batches, first)
            applied = self._apply_all(ordered)
            deltas.append(replace(applied, seq=seqs[applied.seq - first]))
            outcome.blobs = [self._blob(name, t.drop_columns(["_seq"])) for name, t in ordered.items()]
        if self.refused:
            outcome.blobs += self._left_out()
            outcome.messages.append(Message("", "dead", pack(_letters(self.refused, pin))))
            self.refused = []
        outcome.messages += _deltas(deltas, "", placement, halves)
        return outcome

    def _apply_all(self, batches: dict[str, pa.Table]) -> Deltas:
        """Apply as one step; a subscription whose sum overflows is let go, and the rest is answered."""
        while True:
            try:
                return self.engine.apply_all(batches)
            except SumOverflow as error:
                if error.id is None:
                    raise
                self.engine.unsubscribe(error.id)
                self._leave_out(error.id, error)


def _fits(facts: Mapping[str, str], relation: Table | Stream) -> bool:
    """Whether the rows of a blob are rows of the relation as it is defined now."""
    was = facts.get("definition", str(relation))
    return was == str(relation) or continues(relations_of(was).get(relation.name), relation)


def _faults(column: pa.ChunkedArray) -> dict[int, str]:
    """What was wrong with some changes where they were read."""
    if column.null_count == len(column):
        return {}
    return {i: why for i, why in enumerate(column.to_pylist()) if why is not None}


def _array(ids: Iterable[int]) -> Index:
    return np.array(sorted(ids), np.int64)


def _letters(reasons: list[str], pin: Pin) -> pa.Table:
    """Dead letters that are about no change of anyone's."""
    rows = [{"seq": pin.told, "reason": reason} for reason in reasons]
    return pa.Table.from_pylist(rows, schema=DEAD)


def _deltas(parts: list[Deltas], shard: str, placement: Placement, halves: Halves) -> list[Message]:
    deltas = Deltas.concat(parts)
    if not len(deltas):
        return []
    table: Any = deltas.to_arrow(rows=True).select(DELTAS.names).cast(DELTAS)
    table = table.append_column("split", pa.array(halves.among(deltas)))
    return [Message(shard, "deltas", pack(table, version=placement.version))]
