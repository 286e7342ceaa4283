r"""`held('condition')` as a value of rows and events (`language/held.py`): TRUE where the condition holds.

Indexes of open streams find these conditions themselves (`match/held.py`); elsewhere, and over declared
columns, they are computed here: over a batch by column, over a single row by the reference.

>>> from tocsin.model.derived import derived
>>> derived("\x1fheld('a = 1 OR b = \\'x\\'')")({"b": "x"})
True
>>> rows = Rows.of(a=Vector.of(Type.BIGINT, [1, 2]), b=Vector.of(Type.STRING, ["y", "y"]))
>>> from tocsin.model.expressions.derived import expression_of
>>> (found,) = expression_of("\x1f(held('a = 1 OR b = \\'x\\'', a, b))\x1fBIGINT,STRING").of_rows(rows)
>>> found.values.tolist()
[True, False]
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from tocsin.errors import TocsinError
from tocsin.language.held import held_condition
from tocsin.language.sql import parse_query
from tocsin.model.columns import Rows, Vector
from tocsin.model.derived import MISSING, Computed, unquoted
from tocsin.model.expressions.derived import DerivedColumn
from tocsin.model.expressions.tree import CallNode, ConstantNode, Ref, text_of, types_in
from tocsin.model.paths import MARK, read_path
from tocsin.model.schema import Field, Stream, Type
from tocsin.predicate.evaluate import Facts
from tocsin.reference import holds

__all__ = ["HeldColumn", "held_column", "of_condition"]

_CALL = re.compile(r"\(held\(('(?:[^'\\]|\\.)*')((?:, (?:`(?:[^`]|``)*`|[^,`]+))*)\)\)", re.DOTALL)
_NAME = re.compile(r", (`(?:[^`]|``)*`|[^,`]+)")


def of_condition(arguments: str) -> Computed:
    """`held('condition')` as an attribute of an open stream (`model/derived.py`)."""
    if re.fullmatch(r"\s*'(?:[^'\\]|\\.)*'\s*", arguments, re.DOTALL) is None:
        raise TocsinError("held takes a condition as text")
    condition = held_condition(f"{MARK}held({arguments.strip()})")

    def compute(event: Mapping[str, Any]) -> Any:
        return True if holds(condition, event) is True else MISSING

    return compute


class HeldColumn(DerivedColumn):
    """Where a condition over declared columns holds: TRUE or FALSE."""

    def __init__(self, text: str, names: list[str], types: list[Type]) -> None:
        super().__init__(CallNode("held", (ConstantNode(text), *map(Ref, names))), types)
        relation = Stream("s", tuple(map(Field, names, types)))
        where = parse_query(f"SELECT * FROM s WHERE {text}", {"s": relation}).where
        assert where is not None, text
        self._condition = where

    @property
    def kind(self) -> Type:
        return Type.BOOLEAN

    def of_row(self, row: Mapping[str, Any]) -> bool:
        return holds(self._condition, row) is True

    def of_plain(self, row: Mapping[str, Any]) -> bool:
        return holds(self._condition, row) is True

    def of_rows(self, rows: Rows) -> list[Vector]:
        found = Facts(rows).holds(self._condition)
        return [Vector(Type.BOOLEAN, found, np.ones(len(rows), np.bool_))]


def held_column(name: str) -> HeldColumn:
    """What `held('condition', column, ...)` stands for as an expression."""
    call = _CALL.fullmatch(text_of(name))
    assert call is not None, name
    names = [str(read_path(one).steps[0]) for one in _NAME.findall(call[2])]
    return HeldColumn(unquoted(call[1]), names, list(types_in(name)))
