"""Sets of subscriptions: rows chosen from block files.

    SubscriptionBlock   an Arrow table of subscriptions of one kind (`blocks.py`)
    BlockFile           a block with the digest and the shard key of each row: an immutable, mapped file
    SubscriptionSet     rows of some block files; a version of the subscriptions is one

A row that is copied to another file keeps its digest; another digest under the same id is another
subscription. Removing a subscription drops its row from the set; the row stays in its file until a
compaction.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.ipc as ipc
from numpy.typing import NDArray

from tocsin.errors import SubscriptionError
from tocsin.model.columns import Index
from tocsin.spark.sharding import ShardKey, shard_key_of, shards_of
from tocsin.spark.storage.store import Store, open_store
from tocsin.spark.versions.blocks import (
    BlockKind,
    SubscriptionBlock,
    subscribe,
)
from tocsin.spark.versions.stretches import RangeColumn, RowRanges, place_ranges

if TYPE_CHECKING:
    from tocsin.engine import Engine, Rooms

__all__ = [
    "BlockFile", "SubscriptionSet", "check", "load_block_file", "trial_engine", "write_block_file",
]  # fmt: skip

_FILE_COLUMNS = ("_digest", "_home", "_range", "_low", "_high")  # of a block file, beside those of its block


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
