"""What filters ask of the attributes of an open stream.

>>> from tocsin.language.algebra import Column, Compare
>>> from tocsin.language.rewrite import normalise
>>> from tocsin.predicate.compile import flatten
>>> watch = AttributeWatch()
>>> watch.add(flatten([normalise(Compare(Column("price"), "<", 5))]))
>>> dict(watch.asked)
{'price': 1}
"""

from __future__ import annotations

from enum import IntFlag

import numpy as np
import pyarrow.compute as pc

from tocsin.predicate.deferred import DeferredFilters
from tocsin.predicate.flat import CodeSpace, FlatFilters

__all__ = ["AttributeWatch", "Kinds"]


class Kinds(IntFlag):
    """Kinds of values; values of one kind compare with each other."""

    NUMBER = 1
    TEXT = 2
    BOOLEAN = 4
    TIME = 8


_KINDS_OF_SPACES = np.zeros(16, np.uint8)  # presence (ANY) asks for no kind
for _kind, _spaces in {
    Kinds.NUMBER: (CodeSpace.BIGINT, CodeSpace.DOUBLE),
    Kinds.TEXT: (CodeSpace.TEXT, CodeSpace.REVERSED, CodeSpace.PATTERN),
    Kinds.BOOLEAN: (CodeSpace.BOOLEAN,),
    Kinds.TIME: (CodeSpace.DATE, CodeSpace.TIMESTAMP),
}.items():
    _KINDS_OF_SPACES[list(_spaces)] = _kind


class AttributeWatch:
    """The attributes that filters of one open stream use, and the kinds they compare them with."""

    def __init__(self) -> None:
        self.asked: dict[str, int] = {}  # `Kinds` by attribute; filters that left are still counted

    def add(self, filters: FlatFilters | DeferredFilters) -> None:
        """Count in the attributes of filters."""
        if isinstance(filters, DeferredFilters):  # these compare with numbers
            names = pc.unique(pc.struct_field(pc.list_flatten(filters.lists), "attribute"))
            for name in names.to_pylist():
                self._ask(name, Kinds.NUMBER)
            return
        kinds = _KINDS_OF_SPACES[filters.space]
        for attribute, kind in {*zip(filters.attribute.tolist(), kinds.tolist(), strict=True)}:
            self._ask(filters.names[attribute], kind)

    def _ask(self, name: str, kinds: int) -> None:
        self.asked[name] = self.asked.get(name, 0) | kinds
