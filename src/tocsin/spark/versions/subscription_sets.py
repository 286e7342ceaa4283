"""Sets of subscriptions: as the user gives them, as blocks of one kind, and as rows chosen from block files.

    SubscriptionBlock   an Arrow table of subscriptions of one kind, in the form that an engine loads in bulk
    BlockFile           a block with the digest and the shard key of each row: an immutable, mapped file
    SubscriptionSet     rows of some block files; a version of the subscriptions is one

A block has the columns `id` and `subscriber`, and those of its kind:

    texts        sql, valid_from, valid_to
    template     one column per parameter of the template
    predicates   `predicates`, over one stream or table

The *digest* of a row hashes what the subscription means, not whose it is. A row that is copied to another
file keeps its digest; another digest under the same id is another subscription.

Removing a subscription drops its row from the set; the row stays in its file until a compaction.

>>> block = template_block("SELECT * FROM s WHERE a > :least", pa.table({"id": [7, 8], "least": [1, 2]}))
>>> block.ids.tolist(), str(block.kind)
([7, 8], 'template')
>>> bool(block.digests[0] == block.digests[1]), bool(block.digests[0] == block.take(np.array([0])).digests[0])
(False, True)
>>> as_table([(7, "SELECT * FROM s", "ann")]).column("subscriber").to_pylist()
['ann']
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc as ipc
from numpy.typing import NDArray

from tocsin.errors import SubscriptionError, SumOverflow
from tocsin.model.columns import Index
from tocsin.spark.sharding import ShardKey, shard_key_of, shards_of
from tocsin.spark.storage.store import Store, open_store
from tocsin.spark.versions.stretches import RangeColumn, RowRanges, place_ranges

if TYPE_CHECKING:
    from tocsin.engine import Engine, Rooms

__all__ = [
    "SCHEMA", "BlockFile", "BlockKind", "SubscriptionBlock", "SubscriptionRow", "SubscriptionSet", "as_table",
    "blocks_of", "check", "definitions", "load_block_file", "predicate_block", "split_timed", "subscribe",
    "template_block", "text_block", "trial_engine", "write_block_file",
]  # fmt: skip

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("subscriber", pa.string()),
        pa.field("sql", pa.string(), nullable=False),
        pa.field("valid_from", pa.timestamp("us", tz="UTC")),
        pa.field("valid_to", pa.timestamp("us", tz="UTC")),
    ]
)
_FILE_COLUMNS = ("_digest", "_home", "_range", "_low", "_high")  # of a block file, beside those of its block


class SubscriptionRow(NamedTuple):
    """One subscription as text."""

    id: int
    sql: str
    subscriber: str | None = None
    valid_from: datetime | None = None
    valid_to: datetime | None = None


class BlockKind(StrEnum):
    """The form of a block's subscriptions."""

    TEXTS = "texts"
    TEMPLATE = "template"
    PREDICATES = "predicates"


# -- from what the user gives --------------------------------------------------------------------------


def as_table(subscriptions: Any) -> pa.Table:
    """An Arrow table with the columns of `SCHEMA`, from such a table, an engine, or rows.

    Rows are mappings or tuples (id, sql, subscriber, valid_from, valid_to); the first two are required.
    """
    if isinstance(subscriptions, pa.Table):
        return _from_arrow(subscriptions)
    if hasattr(subscriptions, "subscriptions"):  # an engine
        subscriptions = [
            {name: getattr(s, name) for name in SCHEMA.names} for s in subscriptions.subscriptions()
        ]
    if isinstance(subscriptions, str) or not isinstance(subscriptions, Iterable):
        raise SubscriptionError(
            f"a set of subscriptions cannot be made of {type(subscriptions).__name__}",
            hint="give an engine, an Arrow table, a list of (id, sql) or a directory of versions",
        )
    return pa.Table.from_pylist([_checked_row(row) for row in subscriptions], schema=SCHEMA)


def definitions(engine: Engine) -> str:
    """The CREATE statements of an engine's streams and tables."""
    return ";\n".join(map(str, engine.schemas()))


def _from_arrow(table: pa.Table) -> pa.Table:
    columns = []
    for field in SCHEMA:
        there = field.name in table.column_names
        if not field.nullable and (not there or table[field.name].null_count):
            raise SubscriptionError(
                f"the subscriptions have {'a NULL in' if there else 'no'} column {field.name}",
                hint="an id (integer) and an sql (text) are needed",
            )
        column = table[field.name] if there else pa.nulls(len(table))
        try:
            columns.append(column.cast(field.type))
        except pa.ArrowException as error:
            raise SubscriptionError(
                f"column {field.name} of the subscriptions is no {field.type}: {error}",
                hint=f"it is {column.type}",
            ) from None
    return pa.table(columns, schema=SCHEMA)


_ROW_TYPES: dict[str, tuple[type, ...]] = {
    "id": (int,),
    "sql": (str,),
    "subscriber": (str, type(None)),
    "valid_from": (datetime, type(None)),
    "valid_to": (datetime, type(None)),
}


def _checked_row(row: Any) -> dict[str, Any]:
    hint = "an id (integer) and an sql (text) are needed; then subscriber, valid_from and valid_to may follow"
    try:
        values = dict(row) if isinstance(row, Mapping) else SubscriptionRow(*row)._asdict()
    except TypeError:  # too few, too many, or not iterable
        raise SubscriptionError(f"not a subscription: {row!r}", hint=hint) from None
    unknown = [name for name in values if name not in _ROW_TYPES]
    if unknown:
        raise SubscriptionError(f"a subscription has no {unknown[0]!r}: {row!r}", hint=hint)
    for name, types in _ROW_TYPES.items():
        if not isinstance(values.get(name), types) or isinstance(values.get(name), bool):
            raise SubscriptionError(
                f"not a subscription: {row!r}: {name} is {values.get(name)!r}",
                hint=hint
                if name in ("id", "sql")
                else f"{name} is {'text' if str in types else 'a datetime'}",
            )
    if not -(2**63) <= values["id"] < 2**63:
        raise SubscriptionError(f"subscription id {values['id']} is no BIGINT", hint="ids are below 2^63")
    return values


# -- blocks --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SubscriptionBlock:
    """Subscriptions of one kind; `subject` is the template, or the relation that the predicates are over."""

    kind: BlockKind
    subject: str
    table: pa.Table

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @cached_property
    def ids(self) -> Index:
        return np.asarray(self.table["id"].to_numpy(), np.int64)

    @cached_property
    def digests(self) -> NDArray[np.uint64]:
        """What each row means, in 64 bits."""
        rows = self.table.drop_columns(["id", "subscriber"]).combine_chunks()
        out = np.full(len(self), zlib.crc32(f"{self.kind}:{self.subject}".encode()), np.uint64)
        for name in rows.column_names:
            out = out * np.uint64(0x9E3779B97F4A7C15) + _digests(_flat(rows[name]))
        return out

    def take(self, rows: Index) -> SubscriptionBlock:
        """Some of the rows."""
        return replace(self, table=self.table.take(pa.array(rows)))


def text_block(subscriptions: Any) -> SubscriptionBlock:
    """From anything that `as_table` accepts."""
    return SubscriptionBlock(BlockKind.TEXTS, "", as_table(subscriptions).combine_chunks())


def template_block(template: str, params: pa.Table) -> SubscriptionBlock:
    """A template and rows of its parameters, with `id` and optionally `subscriber`."""
    return SubscriptionBlock(BlockKind.TEMPLATE, template, _with_head(params))


def predicate_block(relation: str, table: pa.Table) -> SubscriptionBlock:
    """Rows of `id`, `predicates` and optionally `subscriber`."""
    table = _with_head(table)
    if table.column_names != ["id", "subscriber", "predicates"]:
        raise SubscriptionError(
            f"a block of predicates has the columns {', '.join(table.column_names)}",
            hint="id, predicates and perhaps subscriber",
        )
    return SubscriptionBlock(BlockKind.PREDICATES, relation, table)


def blocks_of(subscriptions: Any) -> list[SubscriptionBlock]:
    """Blocks unchanged; anything else as one block of texts."""
    if isinstance(subscriptions, SubscriptionBlock):
        return [subscriptions]
    if isinstance(subscriptions, list | tuple) and any(
        isinstance(one, SubscriptionBlock) for one in subscriptions
    ):
        if not all(isinstance(one, SubscriptionBlock) for one in subscriptions):
            raise SubscriptionError(
                "blocks and single subscriptions are mixed", hint="put the single ones into a text_block"
            )
        return list(subscriptions)
    return [text_block(subscriptions)]


def subscribe(engine: Engine, block: SubscriptionBlock) -> list[SumOverflow]:
    """Subscribe a block, except subscriptions whose sum overflows; returns their errors."""
    overflows: list[SumOverflow] = []
    block, timed = split_timed(block)
    while len(block):
        try:
            _subscribe_untimed(engine, block)
            break
        except SumOverflow as error:
            if error.id is None:
                raise
            overflows.append(error)
            block = block.take(np.flatnonzero(block.ids != error.id))
    for row in timed:
        try:
            engine.subscribe(**row)
        except SumOverflow as error:
            error.id = row["id"]
            overflows.append(error)
    return overflows


def split_timed(block: SubscriptionBlock) -> tuple[SubscriptionBlock, list[dict[str, Any]]]:
    """The block without the texts that have a validity period, and those texts as rows."""
    if block.kind != BlockKind.TEXTS:
        return block, []
    table = block.table
    timed = pc.or_(pc.is_valid(table["valid_from"]), pc.is_valid(table["valid_to"]))
    if not pc.any(timed).as_py():
        return block, []
    return replace(block, table=table.filter(pc.invert(timed))), table.filter(timed).to_pylist()


def _subscribe_untimed(engine: Engine, block: SubscriptionBlock) -> None:
    table = block.table
    if block.kind == BlockKind.TEXTS:
        names = table["subscriber"].to_pylist()
        engine.subscribe_texts(table["sql"].to_pylist(), ids=block.ids.tolist(), subscribers=names)
        return
    if table["subscriber"].null_count == len(table):
        table = table.drop_columns(["subscriber"])
    if block.kind == BlockKind.TEMPLATE:
        engine.subscribe_many(block.subject, table)
    else:
        engine.subscribe_predicates(block.subject, table)


def _with_head(table: pa.Table) -> pa.Table:
    """The table with `id` (int64) and `subscriber` as its first columns, in one chunk each."""
    if not isinstance(table, pa.Table) or "id" not in table.column_names:
        raise SubscriptionError("a block is an Arrow table with a column id", hint="and what its kind needs")
    ids = table["id"]
    if not pa.types.is_integer(ids.type) or ids.null_count:
        raise SubscriptionError(f"column id is {ids.type} with {ids.null_count} NULLs", hint="ids are int64")
    named = "subscriber" in table.column_names
    names = table["subscriber"] if named else pa.nulls(len(table), pa.string())
    rest = [name for name in table.column_names if name not in ("id", "subscriber")]
    columns = {"id": ids.cast(pa.int64()), "subscriber": names.cast(pa.string())}
    return pa.table({**columns, **{name: table[name] for name in rest}}).combine_chunks()


def _flat(column: Any) -> Any:
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _digests(array: Any) -> NDArray[np.uint64]:
    """64 bits per value, the same in every process; nested values are hashed by their elements."""
    if pa.types.is_struct(array.type):
        out = np.asarray(array.is_valid().to_numpy(zero_copy_only=False), np.uint64)
        for name in (field.name for field in array.type):
            out = out * np.uint64(31) + _digests(_flat(array.field(name)))
        return out
    if pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        starts = np.asarray(array.offsets, np.int64)
        inner = _digests(_flat(array.values))
        position = np.zeros(len(inner), np.int64)  # of each value in its list; some belong to no list
        position[starts[0] : starts[-1]] = np.arange(starts[-1] - starts[0]) - np.repeat(
            starts[:-1] - starts[0], np.diff(starts)
        )
        mixed = inner * (np.uint64(2) * position.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15))
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed, dtype=np.uint64)])
        return sums[starts[1:]] - sums[starts[:-1]] + np.diff(starts).astype(np.uint64)
    if pa.types.is_null(array.type):
        return np.zeros(len(array), np.uint64)
    hashed = pd.util.hash_array(_as_numpy(array), categorize=False)
    valid = np.asarray(array.is_valid().to_numpy(zero_copy_only=False))
    return np.where(valid, hashed, np.uint64(1)).astype(np.uint64)


def _as_numpy(array: Any) -> Any:
    """As NumPy: times as integers, decimals as texts, NULLs as any value."""
    kind = array.type
    if pa.types.is_timestamp(kind):
        array = array.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
    elif pa.types.is_date(kind):
        array = array.cast(pa.int32()) if pa.types.is_date32(kind) else array.cast(pa.int64())
    elif pa.types.is_decimal(kind):
        array = array.cast(pa.string())
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        return np.asarray(array.fill_null("").to_numpy(zero_copy_only=False), object)
    return np.asarray(pc.fill_null(array, pa.scalar(0).cast(array.type)).to_numpy(zero_copy_only=False))


# -- block files ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class BlockFile:
    """A block, what each row means, and the key that decides which shards evaluate it."""

    name: str  # of the file; empty if it is not written yet
    block: SubscriptionBlock
    digests: NDArray[np.uint64]
    shard_keys: tuple[ShardKey, ...]
    key_code: NDArray[np.int16]  # by row: its place in `shard_keys`
    ranges: RowRanges

    def __len__(self) -> int:
        return len(self.block)

    def take(self, rows: Index) -> BlockFile:
        """Some of the rows, not written yet."""
        block, codes = self.block.take(rows), self.key_code[rows]
        return BlockFile("", block, self.digests[rows], self.shard_keys, codes, self.ranges.take(rows))

    @cached_property
    def _shards(self) -> dict[int, Index]:
        return {}

    def shards(self, count: int) -> Index:
        """Which of `count` shards has each row, if it is placed by subscription."""
        if count not in self._shards:
            self._shards[count] = shards_of([pa.array(self.block.ids)], count)
        return self._shards[count]


def trial_engine(ddl: str, shares: int = 1, rooms: Rooms | None = None) -> Engine:
    """An engine that rejects what a shard would reject; `shares` of a budget of memory, one for each."""
    from tocsin.engine import Engine, Rooms
    from tocsin.limits.streams import StreamJoins

    rooms = replace(rooms or Rooms(), streams=partial(StreamJoins, shares=shares))
    engine = Engine(retain=False, rooms=rooms)
    engine.execute(ddl)
    return engine


def check(ddl: str, blocks: Sequence[SubscriptionBlock], shares: int = 1) -> tuple[Engine, list[BlockFile]]:
    """Blocks as unwritten files; raises if a row is no subscription over what `ddl` defines."""
    from tocsin.spark.versions.range_notes import NotingRooms, ranges_of

    noting = NotingRooms()
    engine = trial_engine(ddl, shares, noting)
    for block in blocks:
        number, count = np.unique(block.ids, return_counts=True)
        if len(number) < len(block):
            raise SubscriptionError(f"subscription {number[count > 1][0]} is there {count.max()} times")
        try:
            subscribe(engine, block)
        except SubscriptionError as error:
            if block.kind == BlockKind.TEXTS and error.rows:
                engine.subscribe(block.table["sql"][error.rows[0].row].as_py())  # raises with more detail
            raise
    keys: dict[ShardKey, int] = {}
    ids, codes = [], []
    for shape, query, some in engine.queries():
        ids.append(some)
        codes.append(np.full(len(some), keys.setdefault(shard_key_of(shape, query), len(keys)), np.int64))
    all_ids = np.concatenate([*ids, np.empty(0, np.int64)])
    order = np.argsort(all_ids)
    ordered, code = all_ids[order], np.concatenate([*codes, np.empty(0, np.int64)])[order]
    known = list(keys)
    files = []
    for block in blocks:
        used, key_code = np.unique(code[np.searchsorted(ordered, block.ids)], return_inverse=True)
        own = tuple(known[n] for n in used.tolist())
        ranges = ranges_of(engine, noting.notes, block.ids)
        files.append(BlockFile("", block, block.digests, own, key_code.astype(np.int16), ranges))
    return engine, files


def write_block_file(store: Store, file: BlockFile) -> str:
    """Write a block file, whole or not at all; returns its name. The names in the metadata are the format."""
    name = uuid4().hex
    ranges = file.ranges
    facts = {
        "kind": file.block.kind,
        "about": file.block.subject,
        "homes": json.dumps(file.shard_keys),
        "ranges": json.dumps(ranges.columns),
    }
    table, own = file.block.table, (file.digests, file.key_code, ranges.column, ranges.low, ranges.high)
    for column, values in zip(_FILE_COLUMNS, own, strict=True):
        table = table.append_column(column, pa.array(values))
    table = table.replace_schema_metadata(facts)
    with pa.BufferOutputStream() as out:
        with ipc.new_file(out, table.schema) as writer:
            writer.write_table(table)
        store.put(f"parts/{name}.arrow", memoryview(out.getvalue()))
    return name


@lru_cache(maxsize=512)
def load_block_file(address: str, name: str) -> BlockFile:
    """A block file of the versions at an address, mapped; cached per process."""
    with open_store(address).map(f"parts/{name}.arrow") as source:
        table: Any = ipc.open_file(source).read_all()
    facts = {key.decode(): value.decode() for key, value in table.schema.metadata.items()}
    there = [column for column in _FILE_COLUMNS if column in table.column_names]  # format 3 has no ranges
    own = table.drop_columns(there).replace_schema_metadata(None)
    block = SubscriptionBlock(BlockKind(facts["kind"]), facts["about"], own)
    keys = tuple(map(ShardKey.from_json, json.loads(facts["homes"])))
    columns = tuple(RangeColumn.from_json(one) for one in json.loads(facts.get("ranges", "[]")))
    ranges = RowRanges.none(len(own))
    if "_range" in there:
        ranges = RowRanges(columns, *(table[column].to_numpy() for column in ("_range", "_low", "_high")))
    return BlockFile(name, block, table["_digest"].to_numpy(), keys, table["_home"].to_numpy(), ranges)


# -- sets ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class SubscriptionSet:
    """Rows of block files. Arrays by subscription follow the order of `ids`: file by file."""

    files: tuple[tuple[BlockFile, Index], ...] = ()

    def __len__(self) -> int:
        return sum(len(rows) for _, rows in self.files)

    @classmethod
    def all_of(cls, files: Iterable[BlockFile]) -> SubscriptionSet:
        """All rows of some files."""
        return cls(tuple((file, np.arange(len(file))) for file in files))

    @classmethod
    def union(cls, sets: Iterable[SubscriptionSet]) -> SubscriptionSet:
        """Several disjoint sets as one."""
        return cls(tuple(pair for one in sets for pair in one.files))

    @cached_property
    def ids(self) -> Index:
        found = [file.block.ids[rows] for file, rows in self.files]
        return np.concatenate(found) if found else np.empty(0, np.int64)

    @cached_property
    def digests(self) -> NDArray[np.uint64]:
        found = [file.digests[rows] for file, rows in self.files]
        return np.concatenate(found) if found else np.empty(0, np.uint64)

    @cached_property
    def placed_by_range(self) -> NDArray[np.bool_]:
        """Which have a range that they are placed by."""
        found = [file.ranges.column[rows] >= 0 for file, rows in self.files]
        return np.concatenate(found) if found else np.empty(0, np.bool_)

    @cached_property
    def subscribers(self) -> pa.ChunkedArray | None:
        """Whose they are; None if no subscription names a subscriber."""
        columns = [file.block.table["subscriber"].take(pa.array(rows)) for file, rows in self.files]
        chunks = [chunk for column in columns for chunk in column.chunks]
        return pa.chunked_array(chunks) if any(c.null_count < len(c) for c in chunks) else None

    @cached_property
    def _order(self) -> Index:
        return np.argsort(self.ids, kind="stable")

    def find(self, ids: Index) -> Index:
        """The position of each id in `self.ids`; -1 if it is not in the set."""
        if not len(self):
            return np.full(len(ids), -1, np.int64)
        ordered = self.ids[self._order]
        at = np.minimum(np.searchsorted(ordered, ids), len(ordered) - 1)
        return np.where(ordered[at] == ids, self._order[at], -1)

    def take(self, keep: NDArray[np.bool_]) -> SubscriptionSet:
        """The subscriptions where `keep` is true."""
        out, start = [], 0
        for file, rows in self.files:
            mine = rows[keep[start : start + len(rows)]]
            start += len(rows)
            if len(mine):
                out.append((file, mine))
        return SubscriptionSet(tuple(out))

    def without(self, ids: Index) -> SubscriptionSet:
        return self.take(~np.isin(self.ids, ids)) if len(ids) else self

    def only(self, ids: Index) -> SubscriptionSet:
        return self.take(np.isin(self.ids, ids))

    def same_as(self, other: SubscriptionSet) -> NDArray[np.bool_]:
        """Which subscriptions are in the other set with the same meaning."""
        at = other.find(self.ids)
        return (
            (at >= 0) & (other.digests[at] == self.digests) if len(other) else np.zeros(len(self), np.bool_)
        )

    def is_copy(self, other: SubscriptionSet) -> bool:
        """Whether both have the same rows of the same files."""
        return len(self.files) == len(other.files) and all(
            file.name == another.name and np.array_equal(rows, others)
            for (file, rows), (another, others) in zip(self.files, other.files, strict=True)
        )

    def using(self, tables: set[str]) -> NDArray[np.bool_]:
        """Which subscriptions read one of the tables."""
        found = [
            np.array([bool(tables.intersection(key.tables)) for key in file.shard_keys], np.bool_)[
                file.key_code[rows]
            ]
            for file, rows in self.files
        ]
        return np.concatenate(found) if found else np.zeros(0, np.bool_)

    def by_shard_key(self) -> dict[ShardKey, SubscriptionSet]:
        """The subscriptions of each shard key."""
        found: dict[ShardKey, list[tuple[BlockFile, Index]]] = {}
        for file, rows in self.files:
            if len(file.shard_keys) == 1:
                found.setdefault(file.shard_keys[0], []).append((file, rows))
                continue
            codes = file.key_code[rows]
            for code in np.unique(codes).tolist():
                found.setdefault(file.shard_keys[code], []).append((file, rows[codes == code]))
        return {key: SubscriptionSet(tuple(some)) for key, some in found.items()}

    def by_stretch(
        self, cuts: Mapping[RangeColumn, Sequence[int]], count: int
    ) -> tuple[dict[tuple[RangeColumn, int], SubscriptionSet], SubscriptionSet]:
        """The subscriptions of each stretch of `count`, by its column and number; and the others."""
        found: dict[tuple[RangeColumn, int], list[tuple[BlockFile, Index]]] = {}
        rest: list[tuple[BlockFile, Index]] = []
        for file, rows in self.files:
            shard = np.full(len(rows), -1, np.int64)
            for code, column in enumerate(file.ranges.columns):
                if column not in cuts:
                    continue
                mine = np.flatnonzero(file.ranges.column[rows] == code)
                own = rows[mine]
                shard[mine] = place_ranges(cuts[column], count, file.ranges.low[own], file.ranges.high[own])
                for number in np.unique(shard[mine]).tolist():
                    if number >= 0:
                        some = own[shard[mine] == number]
                        found.setdefault((column, number), []).append((file, some))
            rest.append((file, rows[shard < 0]))
        stretches = {place: SubscriptionSet(tuple(some)) for place, some in found.items()}
        return stretches, SubscriptionSet(tuple((file, rows) for file, rows in rest if len(rows)))

    def by_shard(self, count: int) -> dict[int, SubscriptionSet]:
        """The subscriptions of each of `count` shards, by the hash of their ids."""
        found: dict[int, list[tuple[BlockFile, Index]]] = {}
        for file, rows in self.files:
            codes = file.shards(count)[rows]
            for code in np.unique(codes).tolist():
                found.setdefault(code, []).append((file, rows[codes == code]))
        return {code: SubscriptionSet(tuple(some)) for code, some in found.items()}

    def blocks(self) -> list[SubscriptionBlock]:
        """The rows as blocks."""
        return [
            file.block if len(rows) == len(file) else file.block.take(rows)
            for file, rows in self.files
            if len(rows)
        ]
