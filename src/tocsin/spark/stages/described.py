"""What a shard describes instead of enumerating: joins of two tables by equality, and selections over tables
with a payload (`payloads.py`).

    subscriptions ─► ShardDescriber.enter ─► forms ─┐
    steps of the engine ────────────────────────────┴─► messages ─► ShardPart

It is the server's side of a network (`network/described.py`) in many shards, which die and are rebuilt. So
all numbers are functions of the data: a form's of its tables, key and attributes, a row's of its primary
key, a key's of its values. Rows of one join key are in one shard, whose messages are those of a server that
had nothing else.

Subscriptions with a validity period are left to the engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tocsin.engine import Engine
from tocsin.join.signature import Numbering, Signature
from tocsin.language.shape import plan
from tocsin.language.template import Parser
from tocsin.model.columns import Index
from tocsin.model.message import GREATEST, LEAST
from tocsin.model.schema import Stream, Table
from tocsin.model.texts import TextNumbers
from tocsin.network.batches import MessageBatch
from tocsin.network.forms import HeldRow, JoinForm, JoinKey
from tocsin.network.holdings import Part
from tocsin.network.rows import TableChanges
from tocsin.network.wire import PackedBatch
from tocsin.predicate.codes import text_hashes
from tocsin.predicate.compile import flatten
from tocsin.predicate.verify import selections
from tocsin.reformulate.joins import SemijoinsMerged
from tocsin.spark.messages import Begin, ShardPart, encoded
from tocsin.spark.sharding import ShardKey
from tocsin.spark.stages.payloads import FlatSubscriptions, KeyIds, ShardSelections, stable_hash
from tocsin.spark.stages.steps import ShardMessage, ShardMessageKind
from tocsin.spark.stages.wire import pack
from tocsin.spark.versions.placement import ShardPlacement
from tocsin.spark.versions.subscription_sets import (
    BlockKind,
    SubscriptionBlock,
    SubscriptionSet,
    split_timed,
)
from tocsin.stab.groups import Ranges
from tocsin.store.step import Step
from tocsin.subscriptions.bulk import Load, load_predicates, load_template, load_texts

__all__ = ["ShardDescriber"]


class ShardDescriber:
    """The described subscriptions of a shard's engine, by id."""

    def __init__(self, engine: Engine, *, is_first: bool) -> None:
        self._engine = engine
        self._is_first = is_first  # of the shards with these subscriptions: it reports those without rows
        self._joins, self._selections = ShardJoins(engine), ShardSelections(engine)
        self._started: list[int] = []
        self._collected: list[MessageBatch] = []

    def enter(self, subscriptions: SubscriptionSet) -> SubscriptionSet:
        """Add those that can be described; the others are returned."""
        relations = {relation.name: relation for relation in self._engine.schemas()}
        blocks, others = describable(subscriptions, relations)
        for block in blocks:
            for plans in _plans_of(self._engine, block):
                self._of(plans).enter(plans)
                self._started += plans.ids.tolist()
        return others

    def leave(self, ids: Index) -> None:
        """Remove subscriptions, if they are described."""
        for kind in (self._joins, self._selections):
            kind.leave([id for id in ids.tolist() if id in kind])

    def ended(self, old: ShardPlacement, new: ShardPlacement) -> list[Begin]:
        """Subscriptions that were described and are not any more: removed, or of another meaning."""
        before, after = (
            {id for block in describable(one.subscriptions, one.relations)[0] for id in block.ids.tolist()}
            for one in (old, new)
        )
        return [Begin(id, [], ends=True) for id in sorted(before - after)]

    def _of(self, plans: FlatSubscriptions) -> ShardJoins | ShardSelections:
        return self._joins if len(plans.filters) == 2 else self._selections

    def others(self, ids: Index) -> Index:
        """Those that are not described."""
        both = self._joins, self._selections
        return np.array([id for id in ids.tolist() if not any(id in kind for kind in both)], np.int64)

    def restart(self) -> None:
        """What happened so far is no part of the batch."""
        self._messages()
        self._started = []

    def _messages(self) -> MessageBatch:
        """Those of the steps since the last call."""
        return MessageBatch.concat([self._joins.described(), self._selections.described()])

    def began(self) -> list[Begin]:
        """The subscriptions entered since the last call, with the rows they hold now."""
        started, self._started = self._started, []
        kinds = [kind for id in started for kind in (self._joins, self._selections) if id in kind]
        begins = [kind.begin(id) for kind, id in zip(kinds, started, strict=True)]
        self._messages()  # rows that were loaded are in the begins
        return [begin for begin in begins if self._is_first or begin.has_rows]

    def collect(self, first: int, seqs: Index) -> None:
        """Take the messages of a step, numbered from `first` on, under the senders' seqs."""
        batch = self._messages()
        if len(batch):
            own = replace(batch.messages, seq=seqs[batch.messages.seq - first])
            self._collected.append(replace(batch, messages=own))

    def messages(self, start: int, begins: list[Begin], version: int, shard: str = "") -> list[ShardMessage]:
        """What the batch is described by, as one message; `start` is the last seq before it."""
        batch, self._collected = MessageBatch.concat(self._collected), []
        rows = len(batch) + len(begins)
        if not rows:
            return []
        numbered = replace(batch.messages, step=np.arange(len(batch)))
        part = ShardPart(start, begins, PackedBatch.of(replace(batch, messages=numbered)))
        table = pa.table({"data": pa.array([encoded(part)], pa.binary())})
        return [ShardMessage(shard, ShardMessageKind.MESSAGES, pack(table, version=version, rows=rows))]

    def _check(self) -> None:
        self._joins._check()
        self._selections._check()


def describable(
    subscriptions: SubscriptionSet, relations: Mapping[str, Table | Stream]
) -> tuple[list[SubscriptionBlock], SubscriptionSet]:
    """Blocks of subscriptions that can be described, and the others."""
    found, others = [], []
    for key, part in subscriptions.by_shard_key().items():
        if not _is_described(key, relations):
            others.append(part)
            continue
        for block in part.blocks():
            untimed, timed = split_timed(block)
            found.append(untimed)
            others.append(part.only(np.array(sorted(row["id"] for row in timed), np.int64)))
    return [block for block in found if len(block)], SubscriptionSet.union(others)


def _is_described(key: ShardKey, relations: Mapping[str, Table | Stream]) -> bool:
    """Whether it is a join that is placed by its key, or a selection over a table with a payload."""
    relation = relations.get(key.tables[0])
    if key.shape == "filter":
        return isinstance(relation, Table) and bool(relation.payload)
    return key.shape == "join" and key.key is not None


def _plans_of(engine: Engine, block: SubscriptionBlock) -> Iterator[FlatSubscriptions]:
    """The subscriptions of a block, by template."""
    load = _load(engine, block)
    for ids, _, plans in load.batches:
        yield FlatSubscriptions(ids, plans.query, plans.filters, plans.never)
    for request in load.single:
        made = plan(request.query, text=request.sql)
        filters = [flatten([one]) for one in made.filters]
        yield FlatSubscriptions(np.array([request.id]), made.query, filters, np.array([made.never]))


def _load(engine: Engine, block: SubscriptionBlock) -> Load:
    catalog = {relation.name: relation for relation in engine.schemas()}
    if block.kind == BlockKind.TEXTS:
        return load_texts(block.table["sql"].to_pylist(), block.ids.tolist(), None, Parser(catalog), 0)
    if block.kind == BlockKind.TEMPLATE:
        return load_template(block.subject, block.table.drop_columns(["subscriber"]), catalog)
    return load_predicates(engine.schema(block.subject), block.table.drop_columns(["subscriber"]))


# -- joins -------------------------------------------------------------------------------------------


class _Place(NamedTuple):
    """Where a subscription is; without a form it can never have an answer."""

    form: JoinForm | None
    slot: int


class ShardJoins:
    """Joins by id; the numbers of forms, rows and keys are the same in every shard, whenever it is built."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._forms: dict[JoinKey, JoinForm] = {}
        self._ids: dict[str, KeyIds] = {}
        self._places: dict[int, _Place] = {}
        self._free: dict[JoinKey, list[int]] = {}  # slots
        self._described: list[MessageBatch] = []
        engine.on_step(self._step)

    def __contains__(self, id: int) -> bool:
        return id in self._places

    def described(self) -> MessageBatch:
        """The messages since the last call."""
        batch, self._described = MessageBatch.concat(self._described), []
        return batch

    def enter(self, plans: FlatSubscriptions) -> None:
        """Add subscriptions under ids that are not in use."""
        ids, signature = plans.ids, Signature.of(plans.query)
        (edge,) = signature.edges
        both = [selections(flat) for flat in plans.filters]
        ranged = ((found.attribute >= 0) & (found.low > found.high) for found in both)
        never = np.logical_or.reduce([plans.never, *(found.never for found in both), *ranged])
        for id in ids[never].tolist():
            self._places[id] = _Place(None, -1)
        code = both[0].attribute * (len(both[1].names) + 1) + both[1].attribute
        for number in np.unique(code[~never]).tolist():
            mine = np.flatnonzero((code == number) & ~never)
            names = [
                found.names[found.attribute[mine[0]]] if found.attribute[mine[0]] >= 0 else None
                for found in both
            ]
            tables = signature.tables[0], signature.tables[1]
            form = self._form(JoinKey(tables, edge.keys, (names[0], names[1])))
            ends = [
                (found.low[mine], found.high[mine]) if name is not None else _whole(len(mine))
                for found, name in zip(both, names, strict=True)
            ]
            self._add(form, ids[mine], ends)

    def _add(self, form: JoinForm, ids: Index, ends: Sequence[tuple[Index, Index]]) -> None:
        """Enter subscriptions into a form, all at once."""
        free = self._free[form.key]
        slots = [free.pop() for _ in range(min(len(ids), len(free)))]
        used = len(form.points) + len(free)
        slots += range(used + len(slots), used + len(ids))
        (own_low, own_high), (low, high) = ends
        form.scheme.subscribe(np.array(slots, np.int64), Ranges(low, high, own_low, own_high))
        columns = [column.tolist() for column in (own_low, own_high, low, high)]
        for id, slot, a, b, c, d in zip(ids.tolist(), slots, *columns, strict=True):
            form.points[slot] = (a, b), (c, d)
            self._places[id] = _Place(form, slot)

    def leave(self, ids: Iterable[int]) -> None:
        """Remove subscriptions; forms without any are dropped."""
        gone: dict[JoinKey, list[int]] = {}
        for id in ids:
            form, slot = self._places.pop(id)
            if form is not None:
                gone.setdefault(form.key, []).append(slot)
        for key, slots in gone.items():
            form = self._forms[key]
            for slot in slots:
                form.remove(slot)
            self._free[key] += slots
            if not form.points:
                del self._forms[key], self._free[key]
        used = {table for key in self._forms for table in key.tables}
        self._ids = {table: known for table, known in self._ids.items() if table in used}

    def begin(self, id: int) -> Begin:
        """A subscription with the rows that it holds now."""
        form, slot = self._places[id]
        if form is None:
            return Begin(id, [])
        step = self._engine.step()
        rows: list[list[HeldRow]] = [[], []]
        if all(len(step.tables[table]) for table in form.tables):
            rows = form.held(slot, step, self._ids)
        return Begin(id, [Part(form.number, form.kind, form.tables, form.points[slot], 0, rows)])

    def _form(self, key: JoinKey) -> JoinForm:
        if key not in self._forms:
            form = self._forms[key] = JoinForm(stable_hash(repr(key).encode()), key, SemijoinsMerged)
            form._numbers = _KeyHashes()
            self._free[key] = []
            step = self._engine.step()
            for table in key.tables:
                if table not in self._ids:
                    self._ids[table] = KeyIds(step.tables[table])
            form.load(step, self._ids)
        return self._forms[key]

    def _step(self, step: Step) -> None:
        """Describe a step that is about to be committed."""
        changes = {}
        for table, ids in self._ids.items():
            if table in step.changed:
                position, old, new = step.changed[table]
                changes[table] = TableChanges(position, old, new, ids.advance(old, new))
        for key, form in self._forms.items():
            if any(table in changes for table in key.tables):
                told = form.describe(step, changes, self._ids)
                if told is not None:
                    messages = replace(told.messages, seq=step.seq[told.messages.seq])
                    self._described.append(MessageBatch.of(messages, form.number, told.texts))
        for table, mine in changes.items():
            self._ids[table].forget(mine.new, mine.ids)

    def _check(self) -> None:
        tables = self._engine.step().tables
        for form in self._forms.values():
            form._check()
        for table, ids in self._ids.items():
            ids._check(tables[table])


def _whole(count: int) -> tuple[Index, Index]:
    return np.full(count, LEAST, np.int64), np.full(count, GREATEST, np.int64)


class _TextHashes(TextNumbers):
    """Texts under hashes instead of numbers: keys that share one are candidates, which clients verify."""

    def number(self, start: Index, data: Any) -> Index:
        return text_hashes(start, data)


class _KeyHashes(dict[Numbering, TextNumbers]):
    """Numberings of keys, each by hashes."""

    def __missing__(self, key: Numbering) -> TextNumbers:
        self[key] = _TextHashes()
        return self[key]

    def __contains__(self, key: object) -> bool:
        return True
