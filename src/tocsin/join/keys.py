"""Join keys and selection attributes of rows as int64 codes that stay the same from step to step.

Two rows join where their keys have equal codes. For that the columns of both sides are read as values of one
type, the wider of the two; a value that is none of that type joins nothing:

    BIGINT = DOUBLE      double codes; 2^53 + 1 is no double
    DATE = TIMESTAMP     microseconds
    texts                numbered as they come
    several columns      their codes side by side, as bytes, numbered as they come

A key of a *band* keeps the order of values instead, and is rounded as subtraction does it.

A selection attribute has its rank code (`predicate/codes.py`), or a hash of its text, which finds
candidates only.

>>> key = KeySpec(("n",), (Type.DOUBLE,))
>>> codes, valid = key_codes(key, Rows.of(n=Vector.of(Type.BIGINT, [1, 2**53 + 1, None])), {})
>>> valid.tolist(), bool(codes[0] == column_codes(Vector.of(Type.DOUBLE, [1.0]))[0])
([True, False, False], True)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tocsin.model.columns import Index, Mask, Rows, Vector, double_codes
from tocsin.model.schema import Type
from tocsin.model.texts import TextNumbers, laid_out
from tocsin.predicate.codes import column_codes, text_hashes

__all__ = [
    "DAY",
    "KeySpec",
    "Numbering",
    "common_type",
    "key_codes",
    "value_codes",
]

DAY = 86_400_000_000


class KeySpec(NamedTuple):
    """Columns of a table, the types that their values are read as, and whether they may be rounded."""

    columns: tuple[str, ...]
    types: tuple[Type, ...]
    rounded: bool = False

    @property
    def numbering(self) -> Numbering | None:
        """Which numbers the key needs, if any."""
        return self.types if len(self.types) > 1 or self.types == (Type.STRING,) else None


Numbering = tuple[Type, ...]


def common_type(one: Type, other: Type) -> Type:
    """The type that values of both are read as."""
    if one is other:
        return one
    return Type.DOUBLE if one.numeric else Type.TIMESTAMP


def key_codes(spec: KeySpec, rows: Rows, numbers: dict[Numbering, TextNumbers]) -> tuple[Index, Mask]:
    """The code of each row's key, and where there is one."""
    parts, valid = [], np.ones(len(rows), np.bool_)
    for column, type in zip(spec.columns, spec.types, strict=True):
        vector = rows.vectors(column)[0]
        code, exact = _codes_as(vector, type, numbers)
        parts.append(code)
        valid &= vector.valid if spec.rounded else vector.valid & exact
    if len(parts) == 1:
        return parts[0], valid
    known = numbers.setdefault(spec.types, TextNumbers())
    data = np.ascontiguousarray(np.stack([np.where(valid, part, 0) for part in parts], axis=1))
    width = 8 * len(parts)
    return known.number(np.arange(len(rows) + 1) * width, data.view(np.uint8).ravel()), valid


def _codes_as(vector: Vector, type: Type, numbers: dict[Numbering, TextNumbers]) -> tuple[Index, Mask]:
    """Codes of the values as values of a type, and where that is exact."""
    every = np.ones(len(vector), np.bool_)
    if type is Type.STRING:
        return numbers.setdefault((type,), TextNumbers()).number(*laid_out(vector.values)), every
    if vector.type is type:
        return column_codes(vector), every
    if type is Type.TIMESTAMP:
        return vector.values * DAY, every
    assert type is Type.DOUBLE, type
    near = vector.values.astype(np.float64)
    inside = near < 2.0**63  # the greatest integers round up to it
    back = np.where(inside, near, 0.0).astype(np.int64)
    return double_codes(near), inside & (back == vector.values)


def value_codes(column: str, rows: Rows) -> tuple[Index, Mask]:
    """The code of each row's attribute, and where it is not NULL; of a text, its hash."""
    vector = rows.vectors(column)[0]
    if vector.type is Type.STRING:
        return text_hashes(*laid_out(vector.values)), vector.valid
    return column_codes(vector), vector.valid
