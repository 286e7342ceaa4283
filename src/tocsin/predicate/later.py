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
from tocsin.model.schema import Stream, Table
from tocsin.predicate.columnar import flat_predicates
from tocsin.predicate.flat import FlatFilters
from tocsin.predicate.operands import COMPARISONS

__all__ = ["LaterFilters", "flat_together", "later_filters"]

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
