"""What decides where a subscription is answered: its shape, its tables, and the key that runs through a join.

All subscriptions that differ in constants alone have one home. It is worked out when they are written down
(`parts.py`), so that a shard finds its own among a million without reading one.

>>> from tocsin.engine import Engine
>>> engine = Engine()
>>> engine.execute("CREATE TABLE a (k BIGINT, PRIMARY KEY (k)); CREATE TABLE b (k BIGINT, PRIMARY KEY (k))")
>>> shape, query, _ = next(iter(_queries(engine, "SELECT * FROM a JOIN b USING (k)")))
>>> home_of(shape, query).signature
'a(k)=b(k)'
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from tocsin.language.algebra import Equal, Query

if TYPE_CHECKING:
    from tocsin.engine import Engine

__all__ = ["Home", "home_of", "join_key"]


class Home(NamedTuple):
    """The shape, the tables in order of name, and the columns of each that are the key of a join, if any."""

    shape: str
    tables: tuple[str, ...]
    key: tuple[tuple[str, ...], ...] | None

    @property
    def signature(self) -> str:
        """Joins of one signature share shards."""
        assert self.key is not None
        return "=".join(
            f"{table}({','.join(columns)})" for table, columns in zip(self.tables, self.key, strict=True)
        )

    @classmethod
    def of(cls, plain: Any) -> Home:
        """From what JSON makes of one."""
        shape, tables, key = plain
        return cls(shape, tuple(tables), None if key is None else tuple(map(tuple, key)))


def home_of(shape: str, query: Query) -> Home:
    """The home of a query."""
    tables = tuple(sorted({table.name for table in query.tables}))
    key = join_key(query) if shape in ("join", "multiway") else None
    return Home(str(shape), tables, None if key is None else tuple(key[table] for table in tables))


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


def _queries(engine: Engine, sql: str) -> Iterable[Any]:
    engine.subscribe(sql)
    return engine.queries()
