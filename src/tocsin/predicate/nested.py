"""Conditions on elements of lists, over whole batches of events.

The truth of `exists(items, e1 -> ...)` for each event: its condition is evaluated over all elements of the
batch at once, as over events `{"e1": element}`.

>>> from tocsin.language.algebra import Column, Compare, Exists
>>> new = Exists("tags", Compare(Column("e1"), "=", "new"), "e1")
>>> rows = SparseRows.from_dicts([{"tags": ["old", "new"]}, {"tags": []}, {"tags": "new"}])
>>> exists_vector(rows, new).to_list()
[True, False, None]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tocsin.language.algebra import Exists
from tocsin.model.columns import SparseRows, Vector
from tocsin.model.paths import ALL_VALUES, leaves, read_path
from tocsin.model.schema import Type

__all__ = ["elements_of", "exists_vector"]


def elements_of(exists: Exists, event: Mapping[str, Any]) -> Iterator[Any] | None:
    """The elements that a condition is about; None if there is no list."""
    if exists.items == ALL_VALUES:
        return leaves(event)
    return read_path(exists.items).elements(event)


def exists_vector(rows: SparseRows, exists: Exists) -> Vector:
    """The truth of a condition on elements, by event."""
    from tocsin.predicate.evaluate import Facts

    known = np.zeros(len(rows), np.bool_)
    owner: list[int] = []
    inner: list[dict[str, Any]] = []
    for n, event in enumerate(rows.events):
        found = elements_of(exists, event)
        if found is not None:
            known[n] = True
            inner.extend({exists.variable: element} for element in found)
            owner.extend([n] * (len(inner) - len(owner)))
    held = Facts(SparseRows.read(inner, {})).holds(exists.where)
    true = np.zeros(len(rows), np.bool_)
    true[np.array(owner, np.int64)[held]] = True
    return Vector(Type.BOOLEAN, true, known)
