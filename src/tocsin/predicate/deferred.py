"""Deferred filters: known to be valid, and flattened only when needed.

Hundreds of small batches of predicates may arrive between two batches of events. Flattening one has a fixed
cost, whatever its size; so batches that are valid at first sight are kept as they are, and flattened
together.

>>> import pyarrow as pa
>>> from tocsin.model.schema import Stream
>>> table = pa.table({"id": [1], "predicates": [[{"attribute": "price", "op": "<=", "number": 580.0}]]})
>>> deferred = deferred_filters(Stream("hits", ()), table)
>>> deferred.count, flatten_deferred([deferred, deferred]).count
(1, 2)
>>> table = pa.table({"id": [1], "predicates": [[{"attribute": "price", "op": "is", "number": 580.0}]]})
>>> deferred_filters(Stream("hits", ()), table) is None
True
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tocsin.language.predicates import predicate_lists
from tocsin.model.buffers import Texts, laid_out, to_arrow, to_numpy
from tocsin.model.columns import Index
from tocsin.model.schema import Stream, Table, Type
from tocsin.predicate.codes import COMPARISONS, comparisons, locate_numbers
from tocsin.predicate.columnar import flat_predicates
from tocsin.predicate.conjunctions import Conjunctions, Names, dimension_key
from tocsin.predicate.flat import CodeSpace, FlatFilters

__all__ = ["DeferredFilters", "deferred_conjunctions", "deferred_filters", "flatten_deferred"]

_OPS = to_arrow(COMPARISONS, pa.string())
_KNOWN = {"attribute": pa.string(), "op": pa.string(), "number": pa.float64()}


@dataclass(frozen=True)
class DeferredFilters:
    """One filter for each row of predicates, all valid."""

    relation: Table | Stream
    lists: Any  # of structs

    @property
    def count(self) -> int:
        """Number of filters."""
        return len(self.lists)

    @property
    def kind(self) -> Any:
        """Batches of the same kind can be flattened together."""
        return self.lists.type

    def flat(self) -> FlatFilters:
        """The filters, flattened."""
        return flatten_deferred([self])


def deferred_filters(relation: Table | Stream, table: Any) -> DeferredFilters | None:
    """The rows as deferred filters, if all are valid at first sight, else None.

    Valid at first sight are comparisons of attributes of an open stream with numbers below 2^53.
    """
    lists = predicate_lists(table)
    if not relation.open or lists.null_count or not pa.types.is_struct(lists.type.value_type):
        return None
    rows = pc.list_flatten(lists)
    fields = {field.name: field.type for field in rows.type}
    if rows.null_count or any(fields.get(name) != kind for name, kind in _KNOWN.items()):
        return None
    columns = {name: pc.struct_field(rows, name) for name in fields}
    if any(len(c) != c.null_count if n not in _KNOWN else c.null_count for n, c in columns.items()):
        return None
    numbers = to_numpy(columns["number"])
    if not np.all(np.abs(numbers) < 2.0**53) or not pc.all(pc.is_in(columns["op"], value_set=_OPS)).as_py():
        return None
    return DeferredFilters(relation, lists)


def flatten_deferred(batches: Sequence[DeferredFilters]) -> FlatFilters:
    """Flattens several batches of one relation and kind, one after the other."""
    by_type = pa.chunked_array([batch.lists for batch in batches], batches[0].lists.type)
    filters, bad = flat_predicates(batches[0].relation, pa.table({"predicates": by_type}))
    assert not bad, "deferred filters are valid"
    return filters


def deferred_conjunctions(batches: Sequence[DeferredFilters], slots: Index, names: Names) -> Conjunctions:
    """The same as `names.conjunctions(slots, flatten_deferred(batches))`, in one step.

    Possible because each row is one conjunction and all tests are of doubles.
    """
    lists = pa.concat_arrays([batch.lists for batch in batches])
    rows = pc.list_flatten(lists)
    start, data = laid_out(Texts(pc.struct_field(rows, "attribute")))
    attribute = names.attributes.number(start, data)
    used = np.zeros(len(names.attributes), np.bool_)
    used[attribute] = True
    dim = (np.cumsum(used) - 1).astype(np.int32)[attribute]
    key = dimension_key(np.flatnonzero(used), int(CodeSpace.DOUBLE), -1)
    numbers = to_numpy(pc.struct_field(rows, "number"))
    positions = locate_numbers(Type.DOUBLE, numbers + 0.0)
    low, high, flags = comparisons(_op_numbers(pc.struct_field(rows, "op")), positions)
    begin = to_numpy(lists.offsets).astype(np.int64)
    none = to_arrow([], pa.large_binary())
    slot = np.asarray(slots, np.int32)
    return Conjunctions(slot, begin - begin[0], dim, low, high, flags, key, none, none)


def _op_numbers(ops: Any) -> Index:
    """The number of each operator in COMPARISONS, found by its first character and its length."""
    start, data = laid_out(Texts(ops))
    known = np.zeros(512, np.int64)
    for number, op in enumerate(COMPARISONS):
        known[2 * ord(op[0]) + len(op) - 1] = number
    return np.asarray(known[2 * data[start[:-1]].astype(np.int64) + np.diff(start) - 1])
