"""The one place that decides which shard a value, a row, a join or a subscription belongs to.

    shards_of(columns, count)     rows, by the hash of their key columns; subscriptions, by that of their id
    shard_of_text(text, count)    attributes, hosts, subscribers: whatever is named by a text
    shard_key_of(shape, query)    the tables that a subscription reads, and the join key through all of them

`shards_of` agrees wherever SQL says that two values are equal: 1 and 1.0, 0.0 and -0.0, a date and its
midnight. State on disk is kept by shard, so the hash must never change; if it does, or the form of the state,
`HASH_VERSION` changes with it, and a pipeline refuses state that was written under another one.

>>> shards_of([pa.array([1, 2, None])], 4).tolist(), shards_of([pa.array([1.0, 2.0, 2.5])], 4).tolist()
([1, 3, -1], [1, 3, 3])

Subscriptions that differ in constants alone have the same `ShardKey`. It is computed when they are written
to disk (`versions/subscription_sets.py`), so a shard finds its subscriptions among a million without parsing
one.

>>> from tocsin.engine import Engine
>>> engine = Engine()
>>> engine.execute("CREATE TABLE a (k BIGINT, PRIMARY KEY (k)); CREATE TABLE b (k BIGINT, PRIMARY KEY (k))")
>>> _ = engine.subscribe("SELECT * FROM a JOIN b USING (k)")
>>> shape, query, _ = next(iter(engine.queries()))
>>> shard_key_of(shape, query).signature
'a(k)=b(k)'
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.types as pt
from numpy.typing import NDArray

from tocsin.language.algebra import And, Equal, Query, Truth
from tocsin.language.options import Options
from tocsin.language.shape import Shape
from tocsin.model.schema import quote

__all__ = ["HASH_VERSION", "ShardKey", "join_key", "mix", "shard_key_of", "shard_of_text", "shards_of"]

HASH_VERSION = 3  # since 3, blobs are numbered

Hashes = NDArray[np.uint64]

_NUMBER, _TRUTH, _TEXT, _TIME = (np.uint64(tag) for tag in (1, 2, 3, 4))
_STEP = np.uint64(0x9E3779B97F4A7C15)
_DAY = 86_400_000_000  # microseconds
_KEYED = (
    Shape.JOIN,
    Shape.MULTIWAY,
    Shape.ENRICH,
    Shape.STREAMJOIN,
    Shape.SEQUENCE,
)  # rows meet by their join key


# -- by value ------------------------------------------------------------------------------------------


def shards_of(columns: Sequence[Any], count: int) -> NDArray[np.int64]:
    """The shard of each row of some Arrow columns; -1 where a value is NULL, which joins nothing."""
    mixed = np.zeros(len(columns[0]), np.uint64)
    absent = np.zeros(len(mixed), np.bool_)
    for column in columns:
        array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        if array.null_count:
            valid = array.is_valid().to_numpy(zero_copy_only=False)
            absent |= ~valid
            bits, tag = _bits(array.drop_null())
            mixed[valid] = mix(mixed[valid] * _STEP + mix(bits) + tag)
        else:
            bits, tag = _bits(array)
            mixed = mix(mixed * _STEP + mix(bits) + tag)
    found = ((mixed >> np.uint64(32)) % np.uint64(count)).astype(np.int64)
    return np.where(absent, -1, found)


def shard_of_text(text: str, count: int) -> int:
    """The shard of something that is named by a text."""
    return zlib.crc32(text.encode()) % count


def _bits(array: Any) -> tuple[Hashes, np.uint64]:
    """64 bits per value and the tag of its kind, equal for equal values: NaN and NaN, 1.0 and 1."""
    kind = array.type
    if pt.is_integer(kind):
        return array.to_numpy().astype(np.int64).view(np.uint64), _NUMBER
    if pt.is_floating(kind):
        values = array.to_numpy().astype(np.float64)
        whole = (np.trunc(values) == values) & (values >= -(2.0**63)) & (values < 2.0**63)
        bits = np.where(np.isnan(values), np.nan, values).view(np.uint64)
        integers = np.where(whole, values, 0).astype(np.int64).view(np.uint64)
        return np.where(whole, integers, bits), _NUMBER
    if pt.is_boolean(kind):
        return array.to_numpy(zero_copy_only=False).astype(np.uint64), _TRUTH
    if pt.is_date(kind):
        days = array.cast(pa.date32()).view(pa.int32()).to_numpy()
        return (days * np.int64(_DAY)).view(np.uint64), _TIME
    if pt.is_timestamp(kind):
        micros = array.cast(pa.timestamp("us", kind.tz)).view(pa.int64()).to_numpy()
        return micros.view(np.uint64), _TIME
    crcs = (zlib.crc32(text.encode()) for text in array.to_pylist())
    return np.fromiter(crcs, np.uint64, len(array)), _TEXT


def mix(numbers: Hashes) -> Hashes:
    """The last step of splitmix64: every bit of the result depends on every bit of the number."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


# -- by subscription -----------------------------------------------------------------------------------


class ShardKey(NamedTuple):
    """A subscription's shape, its relations in order of name, and the join key columns of each, if any.

    The answer of a `limited` one depends on more than rows: on times, budgets or requests. Those of one
    `group` share a budget or a queue, and so a shard. `windows` are texts that keep its windows open.
    """

    shape: Shape
    tables: tuple[str, ...]
    key: tuple[tuple[str, ...], ...] | None
    limited: bool = False
    group: str = ""
    windows: tuple[str, ...] = ()

    @property
    def signature(self) -> str:
        """Joins of one signature share shards."""
        assert self.key is not None
        return "=".join(
            f"{table}({','.join(columns)})" for table, columns in zip(self.tables, self.key, strict=True)
        )

    @classmethod
    def from_json(cls, plain: Any) -> ShardKey:
        """From the lists that JSON makes of the tuples."""
        given: list[Any] = list(plain)
        given += [False, "", ()][len(given) - 3 :]  # files written before there were limits have no more
        shape, tables, key, limited, group, windows = given
        key = None if key is None else tuple(map(tuple, key))
        return cls(Shape(shape), tuple(tables), key, limited, group, tuple(windows))


def shard_key_of(shape: Shape, query: Query) -> ShardKey:
    """The shard key of a query.

    None goes by join key that needs all keys: events of each move a clock of event time, and a refresh may
    aggregate them.
    """
    tables, options = tuple(sorted({table.name for table in query.tables})), query.options
    whole = options.refresh is not None or (
        options.memory is None and (options.late or options.time) is not None
    )
    key = join_key(query) if shape in _KEYED and not whole else None
    columns = None if key is None else tuple(key[table] for table in tables)
    limited = bool(options) or shape in (Shape.STREAMJOIN, Shape.SEQUENCE)
    if columns is not None or not limited:
        return ShardKey(shape, tables, columns, limited)
    return ShardKey(shape, tables, None, True, _group(tables, options), _windows(query))


def _group(tables: Sequence[str], options: Options) -> str:
    """Who shares a budget or a limit; "" if nobody does."""
    if options.group is not None:
        return f"group {options.group}"
    has_budget = options.memory is not None or options.group_memory is not None
    return f"{', '.join(tables)} {options}" if has_budget else ""


def _windows(query: Query) -> tuple[str, ...]:
    """Queries without answers that read the windows of a query."""
    options = query.options
    if options.window is None or options.memory is not None:
        return ()
    if options.absent is not None or query.exists:  # windows of keys
        return (str(replace(query, where=And((query.where, Truth(False))))),)
    window = Options(window=options.window, time=options.time, late=options.late)
    return tuple(
        f"SELECT * FROM {quote(table.name)} AS {quote(table.alias)} WHERE FALSE {window}"
        for table in query.tables
        if table.stream or len(query.tables) == 1
    )


def join_key(query: Query) -> dict[str, tuple[str, ...]] | None:
    """The columns of each table that are equal in every joined row; None if no key is in all tables."""
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
