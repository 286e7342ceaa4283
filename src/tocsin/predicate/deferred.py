"""Filters that are known to be right, and are made flat when somebody needs them.

Small batches of predicates come by the hundred between two batches of events. Making each flat takes a
fixed time, whatever its size; so batches that can be seen to be right wait as they are, and are made flat
together.

>>> import pyarrow as pa
>>> from tocsin.model.schema import Stream
>>> table = pa.table({"id": [1], "predicates": [[{"attribute": "price", "op": "<=", "number": 580.0}]]})
>>> later = later_filters(Stream("hits", ()), table)
>>> later.count, flat_together([later, later]).count
(1, 2)
>>> table = pa.table({"id": [1], "predicates": [[{"attribute": "price", "op": "is", "number": 580.0}]]})
>>> later_filters(Stream("hits", ()), table) is None
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
from tocsin.model.columns import Index
from tocsin.model.schema import Stream, Table, Type
from tocsin.model.texts import Texts, laid_out
from tocsin.predicate.columnar import flat_predicates
from tocsin.predicate.conjunctions import Names, Portion, dim_key
from tocsin.predicate.flat import FlatFilters, Space
from tocsin.predicate.operands import COMPARISONS, comparisons, locate_numbers

__all__ = ["LaterFilters", "flat_together", "later_filters", "portion_together"]

_OPS = pa.array(COMPARISONS)
_KNOWN = {"attribute": pa.string(), "op": pa.string(), "number": pa.float64()}


@dataclass(frozen=True)
class LaterFilters:
    """One filter for each row of predicates, none of them bad."""

    relation: Table | Stream
    lists: Any  # of structs

    @property
    def count(self) -> int:
        """How many filters there are."""
        return len(self.lists)

    @property
    def kind(self) -> Any:
        """What batches have alike that are made flat together."""
        return self.lists.type

    def flat(self) -> FlatFilters:
        """The filters."""
        return flat_together([self])


def later_filters(relation: Table | Stream, table: Any) -> LaterFilters | None:
    """The rows as filters for later, if nothing is to be said against any of them at first sight.

    That is: comparisons of attributes of an open stream with numbers that are exact as doubles.
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
    numbers = columns["number"].to_numpy()
    if not np.all(np.abs(numbers) < 2.0**53) or not pc.all(pc.is_in(columns["op"], value_set=_OPS)).as_py():
        return None
    return LaterFilters(relation, lists)


def flat_together(batches: Sequence[LaterFilters]) -> FlatFilters:
    """The filters of several batches of one relation and kind, one after the other."""
    by_type = pa.chunked_array([batch.lists for batch in batches], batches[0].lists.type)
    filters, bad = flat_predicates(batches[0].relation, pa.table({"predicates": by_type}))
    assert not bad, "they were seen to be right"
    return filters


def portion_together(batches: Sequence[LaterFilters], slots: Index, names: Names) -> Portion:
    """The same under these slots, in an index's names: what `Names.portion` makes of `flat_together`.

    Attributes are numbered as they stand there, each row is one conjunction, all is about doubles.
    """
    lists = pa.concat_arrays([batch.lists for batch in batches])
    rows = pc.list_flatten(lists)
    start, data = laid_out(Texts(pc.struct_field(rows, "attribute")))
    attribute = names.attributes.number(start, data)
    used = np.zeros(len(names.attributes), np.bool_)
    used[attribute] = True
    dim = (np.cumsum(used) - 1).astype(np.int32)[attribute]
    key = dim_key(np.flatnonzero(used), int(Space.DOUBLE), -1)
    numbers = pc.struct_field(rows, "number").to_numpy()
    places = locate_numbers(Type.DOUBLE, numbers + 0.0)
    low, high, flags = comparisons(_op_numbers(pc.struct_field(rows, "op")), places)
    begin = lists.offsets.to_numpy().astype(np.int64)
    none = pa.array([], pa.large_binary())
    whose = np.asarray(slots, np.int32)
    return Portion(whose, begin - begin[0], dim, low, high, flags, key, none, none)


def _op_numbers(ops: Any) -> Index:
    """The number of each operator, known by its first letter and its length."""
    start, data = laid_out(Texts(ops))
    known = np.zeros(512, np.int64)
    for number, op in enumerate(COMPARISONS):
        known[2 * ord(op[0]) + len(op) - 1] = number
    return np.asarray(known[2 * data[start[:-1]].astype(np.int64) + np.diff(start) - 1])
