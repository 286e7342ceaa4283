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
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

from tocsin.language.ddl import parse_definitions
from tocsin.model.schema import Stream, Table
from tocsin.spark.stages.state import Layout
from tocsin.spark.versions.parts import Chosen, merged
from tocsin.spark.versions.versions import Version, Versions

__all__ = [
    "EMPTY", "Group", "Layout", "Placement", "continues", "load_placement", "placement_of", "relations_of",
]  # fmt: skip


@dataclass(frozen=True)
class Group:
    """Shards with the same subscriptions. `tables` maps each table to its key, () for "send every row"."""

    chosen: Chosen
    tables: Mapping[str, tuple[str, ...]]
    shards: tuple[str, ...]


@dataclass(frozen=True)
class Placement:
    """Where everything of one version is."""

    version: int
    ddl: str
    relations: Mapping[str, Table | Stream]
    filters: Chosen
    groups: tuple[Group, ...]
    uuid: str = ""  # of the version
    every: Chosen = field(default_factory=Chosen)  # all subscriptions

    @property
    def identity(self) -> tuple[int, str]:
        """What tells one version from another, also if it was made anew under the same number."""
        return self.version, self.uuid

    def tables_alone(self) -> Placement:
        """The definitions without anyone subscribed, as before a first version."""
        return Placement(0, self.ddl, self.relations, Chosen(), ())

    @cached_property
    def by_shard(self) -> dict[str, Group]:
        """The group of each query shard."""
        return {shard: group for group in self.groups for shard in group.shards}

    def reached(self) -> set[tuple[str, str]]:
        """Every (shard, table) that is sent rows."""
        return {(shard, table) for shard, group in self.by_shard.items() for table in group.tables}


EMPTY = Placement(0, "", {}, Chosen(), ())


def placement_of(version: Version, layout: Layout) -> Placement:
    """Give each subscription of a version its place."""
    filters: list[Chosen] = []
    joins: dict[str, tuple[dict[str, tuple[str, ...]], list[Chosen]]] = {}
    others: dict[int, tuple[dict[str, tuple[str, ...]], list[Chosen]]] = {}
    for home, chosen in version.chosen.by_home().items():
        if home.shape == "filter":
            filters.append(chosen)
        elif home.key is not None:
            key = dict(zip(home.tables, home.key, strict=True))
            joins.setdefault(home.signature, (key, []))[1].append(chosen)
        else:
            for number, some in chosen.by_bucket(layout.subscriptions).items():
                tables, parts = others.setdefault(number, ({}, []))
                tables.update(dict.fromkeys(home.tables, ()))
                parts.append(some)
    groups = [
        Group(merged(parts), key, tuple(f"join|{signature}|{n}" for n in range(layout.joins)))
        for signature, (key, parts) in sorted(joins.items())
    ]
    groups += [
        Group(merged(parts), tables, (f"subscriptions|{n}",)) for n, (tables, parts) in sorted(others.items())
    ]
    return Placement(
        version.number,
        version.ddl,
        relations_of(version.ddl),
        merged(filters),
        tuple(groups),
        version.uuid,
        version.chosen,
    )


def relations_of(ddl: str) -> dict[str, Table | Stream]:
    """What some definitions define."""
    from tocsin.store.database import Database

    database = Database()
    if ddl:  # nothing is defined before the first version
        database.define(parse_definitions(ddl), {})
    return dict(database.catalog)


def continues(old: Table | Stream | None, new: Table | Stream | None) -> bool:
    """Whether rows of the one are rows of the other: the same, or with more columns, which are NULL then."""
    if old is None or new is None or type(old) is not type(new) or old.open != new.open:
        return old == new
    types = {field.name: field.type for field in new.fields}
    wider = all(types.get(field.name) == field.type for field in old.fields)
    return wider and replace(new, fields=old.fields) == old


def load_placement(path: str, number: int, layout: Layout) -> Placement:
    """The placement of a version on disk, made once per process."""
    return EMPTY if number == 0 else _load(path, number, Versions(path).uuid(number), layout)


@lru_cache(maxsize=4)
def _load(path: str, number: int, uuid: str, layout: Layout) -> Placement:
    return placement_of(Versions(path).load(number), layout)
