"""Which shard answers which subscription, and which shards a row must reach.

    filter                  in the table shards themselves: they own the rows
    join, multiway          by the join key, if one key runs through all tables: rows with equal
                            keys meet in one shard, and every shard has all such subscriptions
    everything else         by subscription: a shard has some of them and whole copies of their tables

Joins with one key share shards when the key is the same columns of the same tables (the
*signature*), whatever their conditions and aliases say:

    FROM stocks s JOIN reviews r ON r.symbol = s.symbol     reviews(symbol)=stocks(symbol)

A table joined with itself over two different columns would put one pair of rows into two
shards, so it goes by subscription. A row whose key is NULL joins nothing and reaches no join shard.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache

from tocsin.engine import Engine
from tocsin.language.algebra import Equal, Query
from tocsin.model.schema import Stream, Table
from tocsin.spark.versions import Entry, Version, Versions
from tocsin.spark.wire import bucket

__all__ = ["EMPTY", "Group", "Layout", "Placement", "join_key", "load_placement", "placement_of"]


@dataclass(frozen=True)
class Layout:
    """How many shards of each kind. Fixed for the life of a pipeline: state is kept by shard."""

    tables: int = 4
    joins: int = 4
    subscriptions: int = 4

    def as_dict(self) -> dict[str, int]:
        return asdict(self)


@dataclass(frozen=True)
class Group:
    """Shards with the same subscriptions. `tables` maps each table to its key, () for "send every row"."""

    ids: tuple[int, ...]
    tables: Mapping[str, tuple[str, ...]]
    shards: tuple[str, ...]


@dataclass(frozen=True)
class Placement:
    """Where everything of one version is."""

    version: int
    ddl: str
    relations: Mapping[str, Table | Stream]
    entries: Mapping[int, Entry]
    filters: tuple[int, ...]
    groups: tuple[Group, ...]
    uuid: str = ""  # of the version

    @property
    def identity(self) -> tuple[int, str]:
        """What tells one version from another, also if it was made anew under the same number."""
        return self.version, self.uuid

    def tables_alone(self) -> Placement:
        """The definitions without anyone subscribed, as before a first version."""
        return Placement(0, self.ddl, self.relations, {}, (), ())

    @cached_property
    def by_shard(self) -> dict[str, Group]:
        """The group of each query shard."""
        return {shard: group for group in self.groups for shard in group.shards}

    def reached(self) -> set[tuple[str, str]]:
        """Every (shard, table) that is sent rows."""
        return {(shard, table) for shard, group in self.by_shard.items() for table in group.tables}


EMPTY = Placement(0, "", {}, {}, (), ())


def join_key(query: Query) -> dict[str, tuple[str, ...]] | None:
    """The columns of each table that are equal in every joined row; None if no key runs through all."""
    if not query.joins or not all(isinstance(join, Equal) for join in query.joins):
        return None
    classes: list[set[tuple[str, str]]] = []  # sets of (alias, column) that are equal
    for join in query.joins:
        assert isinstance(join, Equal)
        merged = {(join.left.relation, join.left.name), (join.right.relation, join.right.name)}
        apart = [c for c in classes if not c & merged]
        merged.update(*(c for c in classes if c & merged))
        classes = [*apart, merged]
    table_of = {table.alias: table.name for table in query.tables}
    keys = []
    for equal in classes:
        columns = {alias: min(c for a, c in equal if a == alias) for alias, _ in equal}
        if columns.keys() == table_of.keys():
            key = {table_of[alias]: column for alias, column in sorted(columns.items())}
            if all(key[table_of[alias]] == column for alias, column in columns.items()):
                keys.append(key)
    keys.sort(key=lambda key: sorted(key.items()))
    return {name: tuple(key[name] for key in keys) for name in sorted(keys[0])} if keys else None


def placement_of(version: Version, layout: Layout) -> Placement:
    """Parse a version's subscriptions and give each its place."""
    engine = Engine(retain=False)
    engine.execute(version.ddl)
    entries = {entry.id: entry for entry in version.entries()}
    filters: list[int] = []
    joins: dict[str, tuple[dict[str, tuple[str, ...]], list[int]]] = {}
    others: dict[int, tuple[dict[str, tuple[str, ...]], list[int]]] = {}
    for entry in entries.values():
        subscription = engine.subscribe(entry.sql, id=entry.id)
        query = engine.query(subscription)
        key = join_key(query) if subscription.shape in ("join", "multiway") else None
        if subscription.shape == "filter":
            filters.append(entry.id)
        elif key is not None:
            signature = "=".join(f"{table}({','.join(columns)})" for table, columns in key.items())
            joins.setdefault(signature, (key, []))[1].append(entry.id)
        else:
            tables, ids = others.setdefault(bucket((entry.id,), layout.subscriptions), ({}, []))
            tables.update({table.name: () for table in query.tables})
            ids.append(entry.id)
    groups = [
        Group(tuple(ids), key, tuple(f"join|{signature}|{n}" for n in range(layout.joins)))
        for signature, (key, ids) in sorted(joins.items())
    ]
    groups += [
        Group(tuple(ids), tables, (f"subscriptions|{n}",)) for n, (tables, ids) in sorted(others.items())
    ]
    return Placement(
        version.number,
        version.ddl,
        {relation.name: relation for relation in engine.schemas()},
        entries,
        tuple(filters),
        tuple(groups),
        version.uuid,
    )


def load_placement(path: str, number: int, layout: Layout) -> Placement:
    """The placement of a version on disk, made once per process."""
    return EMPTY if number == 0 else _load(path, number, Versions(path).uuid(number), layout)


@lru_cache(maxsize=4)
def _load(path: str, number: int, uuid: str, layout: Layout) -> Placement:
    return placement_of(Versions(path).load(number), layout)
