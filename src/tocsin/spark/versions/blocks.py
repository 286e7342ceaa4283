"""Subscriptions as the user gives them, and as blocks of one kind, in the form that an engine loads in bulk.

A block has the columns `id` and `subscriber`, and those of its kind:

    texts        sql, valid_from, valid_to
    template     one column per parameter of the template
    predicates   `predicates`, over one stream or table

The *digest* of a row hashes what the subscription means, not whose it is.

>>> block = template_block("SELECT * FROM s WHERE a > :least", pa.table({"id": [7, 8], "least": [1, 2]}))
>>> block.ids.tolist(), str(block.kind)
([7, 8], 'template')
>>> bool(block.digests[0] == block.digests[1]), bool(block.digests[0] == block.take(np.array([0])).digests[0])
(False, True)
>>> as_table([(7, "SELECT * FROM s", "ann")]).column("subscriber").to_pylist()
['ann']
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tocsin.errors import SubscriptionError, SumOverflow
from tocsin.model.columns import Index

if TYPE_CHECKING:
    from tocsin.engine import Engine

__all__ = [
    "SCHEMA",
    "BlockKind",
    "SubscriptionBlock",
    "SubscriptionRow",
    "as_table",
    "blocks_of",
    "definitions",
    "predicate_block",
    "split_timed",
    "subscribe",
    "template_block",
    "text_block",
]

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("subscriber", pa.string()),
        pa.field("sql", pa.string(), nullable=False),
        pa.field("valid_from", pa.timestamp("us", tz="UTC")),
        pa.field("valid_to", pa.timestamp("us", tz="UTC")),
    ]
)


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
