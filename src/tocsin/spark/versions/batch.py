"""What a batch runs on: the version of the subscriptions that is pinned for it, and the version's placement.

**Pins.** A micro-batch must see one version, also when it is replayed after a crash. The first process that
needs it, driver or worker, creates `pins/<query>/<batch>.json` with the newest version, the last applied seq
and the time; every other process, and every replay, reads that object. This is the only agreement between
processes, and `Store.put_new` makes it atomic: it writes the whole object, or nothing because there is one.

**Placement.** Which shard evaluates which subscription, and which shards a row must reach:

    filter            in the table shards themselves, which own the rows
    join, multiway    by the join key, if one key runs through all tables: rows with equal keys meet in one
                      shard, and every shard has all such subscriptions
    over one table    by the range that the subscription selects of one column: a shard has a stretch of the
                      rows, and the subscriptions inside it (`stretches.py`)
    everything else   by subscription: a shard has some of them and whole copies of their tables
    under limits      likewise, in shards of their own (`stages/limited_shard.py`). Without a join key,
                      those that share a budget are in one shard, and each shard keeps all windows, so
                      that a new subscription finds the events that came before it

Joins with one key share shards when the key is the same columns of the same tables (the *signature*),
whatever their conditions and aliases:

    FROM stocks s JOIN reviews r ON r.symbol = s.symbol     reviews(symbol)=stocks(symbol)

A table that is joined with itself over two different columns would put one pair of rows into two shards, so
such a join is placed by subscription. A row whose key is NULL joins nothing and reaches no join shard. The
hash and the join key are computed in `sharding.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tocsin.errors import TocsinError
from tocsin.language.ddl import parse_definitions
from tocsin.language.shape import Shape
from tocsin.model.columns import Index, Rows, Vector
from tocsin.model.expressions.derived import expression_of
from tocsin.model.expressions.tree import is_expression
from tocsin.model.schema import Stream, Table
from tocsin.spark.sharding import ShardKey, shard_of_text, shards_of
from tocsin.spark.stages.steps import Layout
from tocsin.spark.storage.store import Store, open_store
from tocsin.spark.versions.store import Version, Versions
from tocsin.spark.versions.stretches import RangeColumn, Stretch, codes_of, hull
from tocsin.spark.versions.subscription_sets import SubscriptionSet

__all__ = [
    "EMPTY",
    "LIMITED",
    "Group",
    "Layout",
    "Pin",
    "Pins",
    "ShardPlacement",
    "ShardRowCodes",
    "continues",
    "load_placement",
    "pinned_versions",
    "placement_of",
    "relations_of",
]  # fmt: skip

KEPT = 200  # pins of a query: Spark can replay the last 100 batches of a checkpoint
PRUNED_EVERY = 32  # batches
LIMITED = "limits|"
"""How the names of shards begin that keep windows, buffers and contents."""


# -- pins ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pin:
    """What a batch runs on: a version, the last seq applied before it, and its time in microseconds."""

    version: int
    seq: int
    micros: int

    @property
    def start_seq(self) -> int:
        """The seq of deltas that precede the changes of the batch; 0 if nothing is applied yet."""
        return max(self.seq, 0)

    @property
    def time(self) -> datetime:
        return datetime.fromtimestamp(self.micros // 1_000_000, UTC).replace(
            microsecond=self.micros % 1_000_000
        )


class Pins:
    """The pins of one query."""

    def __init__(self, place: str | Path | Store, query: str) -> None:
        self.store = open_store(place) / query

    def get(self, batch: int) -> Pin | None:
        """The pin of a batch; None if it is not created yet."""
        found = self.store.find(f"{batch}.json")
        return None if found is None else Pin(**json.loads(found))

    def pin(self, batch: int, versions: Versions, now: datetime) -> Pin:
        """The pin of a batch; created from the newest version and `now` if there is none."""
        found = self.store.find(f"{batch}.json")
        if found is None:
            numbers = versions.numbers()
            if not numbers:
                raise TocsinError(
                    "there is no version of the subscriptions to run on", hint=f"looked in {versions.store}"
                )
            micros = (now - datetime.fromtimestamp(0, UTC)) // datetime.resolution
            created = json.dumps(asdict(Pin(numbers[-1], self.applied(batch - 1), micros))).encode()
            is_mine = self.store.put_new(f"{batch}.json", created)
            if is_mine and batch % PRUNED_EVERY == 0:
                self.remove_before(batch - KEPT)
            found = created if is_mine else self.store.get(f"{batch}.json")  # of a faster process
        return Pin(**json.loads(found))

    def applied(self, batch: int) -> int:
        """The last seq applied up to the end of a batch; -1 before the first, so that seq 0 is allowed."""
        found = self.store.find(f"{batch}.applied") if batch >= 0 else None
        if found is not None:
            return int(found)
        before = [n for n, kind, _ in self._numbered() if kind == "applied" and n <= batch]
        return int(self.store.get(f"{max(before)}.applied")) if before else -1

    def set_applied(self, batch: int, seq: int) -> None:
        """Record the last seq of a finished batch; a replay records the same again."""
        self.store.put(f"{batch}.applied", str(seq).encode())

    def remove_before(self, batch: int) -> None:
        """Remove the pins of older batches, which Spark cannot replay."""
        self.store.delete([key for number, _, key in self._numbered() if number < batch])

    def clear(self) -> None:
        """Remove all pins: the query starts again from batch 0."""
        self.store.delete([entry.key for entry in self.store.list()])

    def _numbered(self) -> Iterator[tuple[int, str, str]]:
        """The batch, the kind and the key of what is kept for each batch."""
        for entry in self.store.list():
            number, _, kind = entry.key.partition(".")
            if number.isdigit():
                yield int(number), kind, entry.key


def pinned_versions(store: Store) -> set[int]:
    """Versions that a replay may need. A pipeline's pins are beside the versions, those of `match` inside."""
    found = set()
    for pins in (store.parent / "pins", store / "pins"):
        for entry in pins.list():
            if entry.key.endswith(".json"):
                pin = pins.find(entry.key)  # a running pipeline removes old ones
                found |= set() if pin is None else {int(json.loads(pin)["version"])}
    return found


# -- placement -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Group:
    """Query shards with the same subscriptions; `tables` maps each table to its join key, () for all rows."""

    subscriptions: SubscriptionSet
    tables: Mapping[str, tuple[str, ...]]
    shards: tuple[str, ...]
    windows: tuple[str, ...] = ()  # queries that keep windows open, whoever reads them
    stretch: Stretch | None = None  # of the rows that its one shard has

    def shards_of_rows(self, table: str, rows: pa.Table, codes: ShardRowCodes) -> Index:
        """The shard of each row of a table, as a position in `shards`; -1 if it is in none.

        A join shard has no row whose key is NULL, that of a stretch no other rows. `codes` are of the rows.
        """
        if self.stretch is not None:
            return np.where(self.stretch.holds(*codes(self.stretch.column)), 0, -1)
        key = self.tables[table]
        if not key:
            return np.zeros(len(rows), np.int64)
        columns = [_computed(rows, name) if is_expression(name) else rows[name] for name in key]
        return shards_of(columns, len(self.shards))


def _computed(rows: pa.Table, name: str) -> Any:
    """The values of an expression over some rows."""
    expression = expression_of(name)
    columns = [
        (own, Vector.from_arrow(type, rows[own].combine_chunks()))
        for own, type in zip(expression.refs, expression.types, strict=True)
    ]
    return pa.chunked_array([expression.of_rows(Rows(columns, len(rows)))[0].arrow])


class ShardRowCodes:
    """The codes of some rows of a table by column, each computed once."""

    def __init__(self, relation: Table | Stream, rows: pa.Table) -> None:
        self._relation, self._rows = relation, rows
        self._known: dict[RangeColumn, tuple[Index, NDArray[np.bool_]]] = {}

    def __call__(self, column: RangeColumn) -> tuple[Index, NDArray[np.bool_]]:
        if column not in self._known:
            self._known[column] = codes_of(self._relation, column.column, self._rows)
        return self._known[column]


@dataclass(frozen=True)
class ShardPlacement:
    """The shards of all subscriptions of one version."""

    version: int
    ddl: str
    relations: Mapping[str, Table | Stream]
    filters: SubscriptionSet
    groups: tuple[Group, ...]
    uuid: str = ""  # of the version
    subscriptions: SubscriptionSet = field(default_factory=SubscriptionSet)  # all
    asked: Mapping[int, int] = field(default_factory=dict)  # by id, the version that asked for a refresh

    @property
    def identity(self) -> tuple[int, str]:
        """Tells versions apart, also two of the same number in a directory that was removed between them."""
        return self.version, self.uuid

    def tables_alone(self) -> ShardPlacement:
        """The definitions without subscriptions, as before a first version."""
        return ShardPlacement(0, self.ddl, self.relations, SubscriptionSet(), ())

    @cached_property
    def by_shard(self) -> dict[str, Group]:
        """The group of each query shard."""
        return {shard: group for group in self.groups for shard in group.shards}

    @cached_property
    def by_name(self) -> dict[str, Table | Stream]:
        """The relations by name in lower case: no two differ by case alone."""
        return {name.lower(): relation for name, relation in self.relations.items()}

    @cached_property
    def streams(self) -> tuple[str, ...]:
        """The streams whose events query shards receive, in order of name."""
        read = {name for group in self.groups for name in group.tables}
        return tuple(sorted(name for name in read if isinstance(self.relations.get(name), Stream)))

    def reached(self) -> set[tuple[str, str]]:
        """Every (shard, table) that receives rows."""
        return {(shard, table) for shard, group in self.by_shard.items() for table in group.tables}


EMPTY = ShardPlacement(0, "", {}, SubscriptionSet(), ())


def placement_of(version: Version, layout: Layout) -> ShardPlacement:
    """Place each subscription of a version."""
    filters: list[SubscriptionSet] = []
    limited: list[tuple[ShardKey, SubscriptionSet]] = []
    joins: dict[str, tuple[dict[str, tuple[str, ...]], list[SubscriptionSet]]] = {}
    relations = relations_of(version.ddl)
    cuts = {column: ends for column, ends in version.cuts.items() if _is_there(relations, column)}
    stretches: dict[tuple[RangeColumn, int], list[SubscriptionSet]] = {}
    others: dict[str, tuple[dict[str, tuple[str, ...]], list[SubscriptionSet]]] = {}
    for shard_key, subscriptions in version.subscriptions.by_shard_key().items():
        if shard_key.shape is Shape.FILTER and not shard_key.limited:
            filters.append(subscriptions)
        elif shard_key.key is not None:
            key = dict(zip(shard_key.tables, shard_key.key, strict=True))
            name = f"{LIMITED if shard_key.limited else 'join|'}{shard_key.signature}"
            joins.setdefault(name, (key, []))[1].append(subscriptions)
        elif shard_key.limited:
            limited.append((shard_key, subscriptions))
        else:
            placed, rest = subscriptions.by_stretch(cuts, layout.subscriptions)
            for place, some in placed.items():
                stretches.setdefault(place, []).append(some)
            for number, some in rest.by_shard(layout.subscriptions).items():
                tables, sets = others.setdefault(f"subscriptions|{number}", ({}, []))
                tables.update(dict.fromkeys(shard_key.tables, ()))
                sets.append(some)
    union = SubscriptionSet.union
    groups = [
        Group(union(sets), key, tuple(f"{name}|{n}" for n in range(layout.joins)))
        for name, (key, sets) in sorted(joins.items())
    ]
    groups += [Group(union(sets), tables, (name,)) for name, (tables, sets) in sorted(others.items())]
    for (column, number), sets in sorted(stretches.items()):
        stretch = Stretch(column, *hull(cuts[column], layout.subscriptions, number))
        name = f"stretch|{column.table}.{column.column}|{number}"
        groups.append(Group(union(sets), {column.table: ()}, (name,), stretch=stretch))
    return ShardPlacement(
        version.number,
        version.ddl,
        relations,
        union(filters),
        (*groups, *_limited_groups(limited, layout.subscriptions)),
        version.uuid,
        version.subscriptions,
        version.asked,
    )


def _is_there(relations: Mapping[str, Table | Stream], column: RangeColumn) -> bool:
    """Whether a column still has the type under which ranges of it were read."""
    relation = relations.get(column.table)
    fields = relation.fields if isinstance(relation, Table) else ()
    return any((field.name, field.type) == (column.column, column.type) for field in fields)


def _limited_groups(found: Sequence[tuple[ShardKey, SubscriptionSet]], count: int) -> Iterator[Group]:
    """The shards of subscriptions under limits without a join key: each has all their tables and windows."""
    sets: list[list[SubscriptionSet]] = [[] for _ in range(count if found else 0)]
    tables = dict.fromkeys((name for key, _ in found for name in key.tables), ())
    windows = sorted({text for key, _ in found for text in key.windows})
    for key, subscriptions in found:
        if key.group:
            sets[shard_of_text(key.group, count)].append(subscriptions)
            continue
        for number, some in subscriptions.by_shard(count).items():
            sets[number].append(some)
    for number, mine in enumerate(sets):
        yield Group(SubscriptionSet.union(mine), tables, (f"{LIMITED}{number}",), tuple(windows))


def relations_of(ddl: str) -> dict[str, Table | Stream]:
    """The relations that some definitions define, by name."""
    from tocsin.store.database import Database

    database = Database()
    if ddl:  # empty before the first version
        database.define(parse_definitions(ddl), {})
    return dict(database.catalog)


def continues(old: Table | Stream | None, new: Table | Stream | None) -> bool:
    """Whether rows of `old` are rows of `new`: it is the same, or has more columns, which are NULL then."""
    if old is None or new is None or type(old) is not type(new) or old.open != new.open:
        return old == new
    types = {field.name: field.type for field in new.fields}
    wider = all(types.get(field.name) == field.type for field in old.fields)
    return wider and replace(new, fields=old.fields) == old


def load_placement(path: str, number: int, layout: Layout) -> ShardPlacement:
    """The placement of a version on disk; cached per process."""
    return EMPTY if number == 0 else _load(path, number, Versions(path).manifest(number)["uuid"], layout)


@lru_cache(maxsize=4)
def _load(path: str, number: int, uuid: str, layout: Layout) -> ShardPlacement:
    return placement_of(Versions(path).load(number), layout)
