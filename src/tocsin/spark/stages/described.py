"""What a shard describes instead of enumerating: joins of two tables by equality, and selections over tables
with a payload.

    subscriptions ─► ShardDescriber.enter ─► forms ─┐
    steps of the engine ────────────────────────────┴─► messages ─► ShardPart

It is the server's side of a network (`network/described.py`) in many shards, which die and are rebuilt. So
all numbers are functions of the data (`StableNumbers`): a form's of its tables, key and attributes, a row's
of its primary key, a key's of its values. Rows of one join key are in one shard, whose messages are those of
a server that had nothing else.

Subscriptions with a validity period are left to the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tocsin.engine import Engine
from tocsin.join.signature import Numbering, Signature
from tocsin.language.algebra import Query
from tocsin.language.shape import Shape, plan
from tocsin.language.template import Parser
from tocsin.model.columns import Index, Mask, Rows, column_codes, longer
from tocsin.model.schema import Stream, Table, Type
from tocsin.model.texts import TextNumbers
from tocsin.network.batches import MessageBatch
from tocsin.network.described import DescribedQueries, Numbers
from tocsin.network.form_choice import FormKey, PlacedPart, Route, rows_part
from tocsin.network.forms import WHOLE, JoinKey
from tocsin.network.rows import RowIds
from tocsin.network.wire import PackedBatch
from tocsin.predicate.codes import text_hashes
from tocsin.predicate.compile import flatten
from tocsin.predicate.flat import FlatFilters
from tocsin.predicate.verify import Selections, selections
from tocsin.spark.messages import Begin, ShardPart, encoded
from tocsin.spark.sharding import ShardKey
from tocsin.spark.stages.steps import ShardMessage, ShardMessageKind
from tocsin.spark.stages.wire import pack
from tocsin.spark.versions.batch import ShardPlacement
from tocsin.spark.versions.blocks import BlockKind, SubscriptionBlock, split_timed
from tocsin.spark.versions.subscription_sets import SubscriptionSet
from tocsin.store.tables import TableStore
from tocsin.subscriptions.bulk import Load, load_predicates, load_template, load_texts

__all__ = ["ShardDescriber"]


class ShardDescriber:
    """The described subscriptions of a shard's engine, by id."""

    def __init__(self, engine: Engine, *, is_first: bool) -> None:
        self._engine = engine
        self._is_first = is_first  # of the shards with these subscriptions: it reports those without rows
        self._queries = ShardQueries(engine)
        self._started: list[int] = []
        self._collected: list[MessageBatch] = []

    def enter(self, subscriptions: SubscriptionSet) -> SubscriptionSet:
        """Add those that can be described; the others are returned."""
        relations = {relation.name: relation for relation in self._engine.schemas()}
        blocks, others = describable(subscriptions, relations)
        for block in blocks:
            for plans in _plans_of(self._engine, block):
                self._queries.enter(plans)
                self._started += plans.ids.tolist()
        return others

    def leave(self, ids: Index) -> None:
        """Remove subscriptions, if they are described."""
        self._queries.leave([id for id in ids.tolist() if id in self._queries])

    def ended(self, old: ShardPlacement, new: ShardPlacement) -> list[Begin]:
        """Subscriptions that were described and are not any more: removed, or of another meaning."""
        before, after = (
            {id for block in describable(one.subscriptions, one.relations)[0] for id in block.ids.tolist()}
            for one in (old, new)
        )
        return [Begin(id, (), [], ends=True) for id in sorted(before - after)]

    def others(self, ids: Index) -> Index:
        """Those that are not described."""
        return np.array([id for id in ids.tolist() if id not in self._queries], np.int64)

    def restart(self) -> None:
        """What happened so far is no part of the batch."""
        self._queries.described()
        self._started = []

    def began(self) -> list[Begin]:
        """The subscriptions entered since the last call, with the rows they hold now."""
        started, self._started = self._started, []
        begins = [self._queries.begin(id) for id in started]
        self._queries.described()  # rows that were loaded are in the begins
        return [begin for begin in begins if self._is_first or begin.has_rows]

    def collect(self, first: int, seqs: Index) -> None:
        """Take the messages of a step, numbered from `first` on, under the senders' seqs."""
        _, batch = self._queries.described()
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
        self._queries._check()


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
    if key.limited:
        return False
    if key.shape is Shape.FILTER:
        return isinstance(relation, Table) and bool(relation.payload)
    return key.shape is Shape.JOIN and key.key is not None


class FlatSubscriptions(NamedTuple):
    """Subscriptions that differ in constants alone."""

    ids: Index
    query: Query  # of one of them
    filters: Sequence[FlatFilters]  # by table
    never: Mask  # which can have no answer


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
        texts = block.table["sql"].to_pylist()
        return load_texts(texts, block.ids.tolist(), None, Parser(catalog), 0).without_options()
    if block.kind == BlockKind.TEMPLATE:
        table = block.table.drop_columns(["subscriber"])
        return load_template(block.subject, table, catalog).without_options()
    return load_predicates(engine.schema(block.subject), block.table.drop_columns(["subscriber"]))


class ShardQueries(DescribedQueries):
    """Joins and selections by id."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine, lease=None, numbers=StableNumbers())

    def __contains__(self, id: int) -> bool:
        return id in self._known

    def enter(self, plans: FlatSubscriptions) -> None:
        """Add subscriptions under ids that are not in use."""
        self._discard_dropped(self._engine.step().tables)
        found = [selections(flat) for flat in plans.filters]
        ranged = ((one.attribute >= 0) & (one.low > one.high) for one in found)
        never = np.logical_or.reduce([plans.never, *(one.never for one in found), *ranged])
        places = self._places(plans.query)
        for i, id in enumerate(plans.ids.tolist()):
            parts = [] if never[i] else [places([_route(one, i) for one in found])]
            self._enter(id, plans.query, parts)

    def _places(self, query: Query) -> Callable[[Sequence[Route]], PlacedPart]:
        """Where queries like this one are placed by the ranges of their tables."""
        if len(query.tables) == 1:
            table = self._engine.schema(query.tables[0].name)
            assert isinstance(table, Table)
            return lambda routes: rows_part(table, routes[0])
        signature = Signature.of(query)
        tables, keys = (signature.tables[0], signature.tables[1]), signature.edges[0].keys

        def placed(routes: Sequence[Route]) -> PlacedPart:
            one, two = routes
            key = JoinKey(tables, keys, (one.attribute, two.attribute))
            return PlacedPart(key, (one.ends, two.ends))

        return placed

    def leave(self, ids: Iterable[int]) -> None:
        """Remove subscriptions; forms without any are dropped."""
        for id in ids:
            self._remove(id)
        self._drop_unused()

    def begin(self, id: int) -> Begin:
        """A subscription with the rows that it holds now."""
        known, step = self._known[id], self._engine.step()
        tables = tuple(sorted({table.name for table in known.query.tables}))
        return Begin(id, tables, [self._part(form, slot, step) for form, slot in known.parts])


def _route(found: Selections, number: int) -> Route:
    at = int(found.attribute[number])
    ends = int(found.low[number]), int(found.high[number])
    return Route(None, WHOLE) if at < 0 else Route(found.names[at], ends)


# -- numbers as functions of the data ------------------------------------------------------------------


class StableNumbers(Numbers):
    """A form's number is a hash of what its subscriptions share, a row's is its primary key."""

    def form(self, key: FormKey) -> int:
        return _stable_hash(repr(key).encode())

    def rows(self, store: TableStore) -> RowIds:
        return KeyIds(store)

    def keys(self) -> dict[Numbering, TextNumbers]:
        return _KeyHashes()


def _stable_hash(data: bytes) -> int:
    """A number for some bytes, the same in every process."""
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little", signed=True)


def _keys_as_ids(table: Table, rows: Rows) -> Index:
    """A number for each row, by its primary key: the value itself, or a hash of a text or several columns.

    Two of a million rows of a table share a hash with a probability of 1 in 30 million.
    """
    if not len(rows):
        return np.empty(0, np.int64)
    vectors = [rows.vectors(name)[0] for name in table.key]
    if len(vectors) == 1 and vectors[0].type is not Type.STRING:
        return column_codes(vectors[0])
    columns: list[list[Any]] = [
        list(vector.values) if vector.type is Type.STRING else column_codes(vector).tolist()
        for vector in vectors
    ]
    return np.array([_stable_hash(repr(key).encode()) for key in zip(*columns, strict=True)], np.int64)


class KeyIds(RowIds):
    """The number of each row of a table by slot, from its primary key."""

    def __init__(self, store: TableStore) -> None:
        super().__init__(store)
        self._store = store
        present = np.flatnonzero(store.present())
        self._id[present] = _keys_as_ids(store.schema, store.rows.take(present))
        self._slot = dict(zip(self._id[present].tolist(), present.tolist(), strict=True))

    def advance(self, old: Index, new: Index) -> Index:
        size = int(new.max(initial=-1)) + 1
        if size > len(self._id):
            self._id = longer(self._id, max(size, 2 * len(self._id)))
        there = new >= 0
        ids = _keys_as_ids(self.schema, self._store.rows.take(np.where(there, new, old)))
        self._id[new[there]] = ids[there]
        self._slot.update(zip(ids[there].tolist(), new[there].tolist(), strict=True))
        return ids


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
