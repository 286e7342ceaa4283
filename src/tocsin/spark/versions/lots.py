"""Subscriptions as they are written down: texts, a template with its values, rows of predicates.

A *lot* is an Arrow table of subscriptions of one kind. Whatever the kind, it has the columns `id` and
`subscriber`; the rest is what an engine takes in bulk:

    texts        sql, valid_from, valid_to
    template     one column per parameter of the template
    predicates   `predicates`, of one stream or table

The *digest* of a row says what the subscription means (not whose it is): a row that was copied to another
file is the same subscription, and one with another digest under the same id is another.

>>> lot = template_lot("SELECT * FROM s WHERE a > :least", pa.table({"id": [7, 8], "least": [1, 2]}))
>>> lot.ids.tolist(), lot.kind
([7, 8], 'template')
>>> bool(lot.digests[0] == lot.digests[1]), bool(lot.digests[0] == lot.take(np.array([0])).digests[0])
(False, True)
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tocsin.errors import SubscriptionError, SumOverflow
from tocsin.model.columns import Index
from tocsin.spark.versions.entries import as_table

if TYPE_CHECKING:
    from tocsin.engine import Engine

__all__ = ["KINDS", "Lot", "lots_of", "predicate_lot", "subscribe", "template_lot", "text_lot"]

KINDS = ("texts", "template", "predicates")


@dataclass(frozen=True)
class Lot:
    """Subscriptions of one kind; `about` is the template, or the relation that predicates are of."""

    kind: str
    about: str
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
        out = np.full(len(self), zlib.crc32(f"{self.kind}:{self.about}".encode()), np.uint64)
        for name in rows.column_names:
            out = out * np.uint64(0x9E3779B97F4A7C15) + _hashes(_flat(rows[name]))
        return out

    def take(self, rows: Index) -> Lot:
        """Some of the rows."""
        return replace(self, table=self.table.take(pa.array(rows)))


def text_lot(subscriptions: Any) -> Lot:
    """From whatever `as_table` takes."""
    return Lot("texts", "", as_table(subscriptions).combine_chunks())


def template_lot(template: str, params: pa.Table) -> Lot:
    """A template and rows of its parameters, with `id` and perhaps `subscriber`."""
    return Lot("template", template, _headed(params))


def predicate_lot(relation: str, table: pa.Table) -> Lot:
    """Rows of `id`, `predicates` and perhaps `subscriber`."""
    table = _headed(table)
    if table.column_names != ["id", "subscriber", "predicates"]:
        raise SubscriptionError(
            f"a lot of predicates has the columns {', '.join(table.column_names)}",
            hint="id, predicates and perhaps subscriber",
        )
    return Lot("predicates", relation, table)


def lots_of(subscriptions: Any) -> list[Lot]:
    """Lots as they are; anything else as texts."""
    if isinstance(subscriptions, Lot):
        return [subscriptions]
    if isinstance(subscriptions, list | tuple) and any(isinstance(one, Lot) for one in subscriptions):
        if not all(isinstance(one, Lot) for one in subscriptions):
            raise SubscriptionError(
                "lots and single subscriptions are mixed", hint="put the single ones into a text_lot"
            )
        return list(subscriptions)
    return [text_lot(subscriptions)]


def subscribe(engine: Engine, lot: Lot) -> list[SumOverflow]:
    """Take a lot in; a subscription whose sum overflows is left out, and its error returned."""
    refused: list[SumOverflow] = []
    lot, timed = _timed(lot)
    while len(lot):
        try:
            _subscribe(engine, lot)
            break
        except SumOverflow as error:
            if error.id is None:
                raise
            refused.append(error)
            lot = lot.take(np.flatnonzero(lot.ids != error.id))
    for row in timed:
        try:
            engine.subscribe(**row)
        except SumOverflow as error:
            error.id = row["id"]
            refused.append(error)
    return refused


def _timed(lot: Lot) -> tuple[Lot, list[dict[str, Any]]]:
    """The lot without the texts that are valid for a time, and these."""
    if lot.kind != "texts":
        return lot, []
    table = lot.table
    timed = pc.or_(pc.is_valid(table["valid_from"]), pc.is_valid(table["valid_to"]))
    if not pc.any(timed).as_py():
        return lot, []
    return replace(lot, table=table.filter(pc.invert(timed))), table.filter(timed).to_pylist()


def _subscribe(engine: Engine, lot: Lot) -> None:
    table = lot.table
    if lot.kind == "template":
        engine.subscribe_many(lot.about, _without_nobody(table))
    elif lot.kind == "predicates":
        engine.subscribe_predicates(lot.about, _without_nobody(table))
    else:
        who = table["subscriber"].to_pylist()
        engine.subscribe_texts(table["sql"].to_pylist(), ids=lot.ids.tolist(), subscribers=who)


def _without_nobody(table: pa.Table) -> pa.Table:
    """Without the column of subscribers if nobody is named there."""
    return table.drop_columns(["subscriber"]) if table["subscriber"].null_count == len(table) else table


def _headed(table: pa.Table) -> pa.Table:
    """With `id` (int64) and `subscriber` first, and one chunk each."""
    if not isinstance(table, pa.Table) or "id" not in table.column_names:
        raise SubscriptionError("a lot is an Arrow table with a column id", hint="and what its kind needs")
    ids = table["id"]
    if not pa.types.is_integer(ids.type) or ids.null_count:
        raise SubscriptionError(f"column id is {ids.type} with {ids.null_count} NULLs", hint="ids are int64")
    named = "subscriber" in table.column_names
    who = table["subscriber"] if named else pa.nulls(len(table), pa.string())
    rest = [name for name in table.column_names if name not in ("id", "subscriber")]
    columns = {"id": ids.cast(pa.int64()), "subscriber": who.cast(pa.string())}
    return pa.table({**columns, **{name: table[name] for name in rest}}).combine_chunks()


def _flat(column: Any) -> Any:
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _hashes(array: Any) -> NDArray[np.uint64]:
    """64 bits for each value, the same in every process; nested values by their parts."""
    if pa.types.is_struct(array.type):
        out = np.asarray(array.is_valid().to_numpy(zero_copy_only=False), np.uint64)
        for name in (field.name for field in array.type):
            out = out * np.uint64(31) + _hashes(_flat(array.field(name)))
        return out
    if pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        starts = np.asarray(array.offsets, np.int64)
        inner = _hashes(_flat(array.values))
        place = _places(starts, len(inner))
        mixed = inner * (np.uint64(2) * place + np.uint64(0x9E3779B97F4A7C15))
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed, dtype=np.uint64)])
        return sums[starts[1:]] - sums[starts[:-1]] + np.diff(starts).astype(np.uint64)
    if pa.types.is_null(array.type):
        return np.zeros(len(array), np.uint64)
    hashed = pd.util.hash_array(_plain(array), categorize=False)
    there = np.asarray(array.is_valid().to_numpy(zero_copy_only=False))
    return np.where(there, hashed, np.uint64(1)).astype(np.uint64)


def _places(starts: Index, count: int) -> NDArray[np.uint64]:
    """The place of each inner value in its list; some may belong to none."""
    place = np.zeros(count, np.int64)
    place[starts[0] : starts[-1]] = np.arange(starts[-1] - starts[0]) - np.repeat(
        starts[:-1] - starts[0], np.diff(starts)
    )
    return place.astype(np.uint64)


def _plain(array: Any) -> Any:
    """As NumPy: times as integers, NULLs as anything."""
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
