"""Expressions over whole columns: NumPy and Arrow where they do the same as the functions of single values.

A function without a form for columns is called once for each distinct combination of arguments.

>>> from tocsin.model.expressions.tree import CallNode, ConstantNode, Ref
>>> from tocsin.model.expressions.typed import resolve
>>> total = resolve(CallNode("*", (Ref("price"), ConstantNode(2))), {"price": Type.DOUBLE})
>>> column_of(total, [Vector.of(Type.DOUBLE, [1.5, None])], 2).to_list()
[3.0, None]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tocsin.model.buffers import to_arrow, to_numpy
from tocsin.model.columns import Mask, Vector, combine_codes, double_codes
from tocsin.model.derived import kilometres_of
from tocsin.model.expressions import casts, numbers, overloads, texts, times, typed
from tocsin.model.expressions.decimals import DecimalRun
from tocsin.model.expressions.overloads import OVERLOADS, Run
from tocsin.model.expressions.typed import Typed
from tocsin.model.schema import Type

__all__ = ["column_of"]


class ColumnPart(NamedTuple):
    """The values of a part of an expression; those of a constant are one value."""

    values: Any
    valid: Any  # a mask, or one truth for all rows
    is_constant: bool


Arrays = tuple[Any, Any]  # values, and where there are some
_Columns = Callable[..., Any]


def column_of(node: Typed, vectors: Sequence[Vector], length: int) -> Vector:
    """The values of an expression over columns of this length."""
    kind = node.kind if isinstance(node.kind, Type) else Type.STRING
    with np.errstate(all="ignore"):
        part = _Evaluation(vectors, length).part(node)
    out = Vector.blank(kind, length)
    valid = np.broadcast_to(np.asarray(part.valid, np.bool_), length)
    values = np.broadcast_to(np.asarray(part.values, out.values.dtype), length)
    out.values[valid] = values[valid]
    if kind is Type.DOUBLE:
        out.values[:] += 0.0
    return Vector(kind, out.values, valid.copy())


class _Evaluation:
    """One batch; a part that occurs twice is computed once."""

    def __init__(self, vectors: Sequence[Vector], length: int) -> None:
        self.vectors, self.length = vectors, length
        self._known: dict[int, ColumnPart] = {}

    def part(self, node: Typed) -> ColumnPart:
        if id(node) not in self._known:
            self._known[id(node)] = self._computed(node)
        return self._known[id(node)]

    def _computed(self, node: Typed) -> ColumnPart:
        if node.run is None:
            if node.place < 0:
                blank = "" if node.kind is Type.STRING else 0
                return ColumnPart(blank if node.value is None else node.value, node.value is not None, True)
            vector = self.vectors[node.place]
            if vector.type is not node.kind:  # NULL, of no type
                return ColumnPart(_blank(node.kind), False, False)
            return ColumnPart(vector.values, vector.valid, False)
        if node.lazy:
            return ColumnPart(*self._lazy(node), False)
        args = [self.part(arg) for arg in node.args]
        valid = _all_of([arg.valid for arg in args])
        if not np.any(valid):
            return ColumnPart(_blank(node.kind), False, False)
        by_columns = node.run.columns if isinstance(node.run, DecimalRun) else _COLUMNS.get(node.run)
        if by_columns is not None:
            found = by_columns(*[arg.values for arg in args])
            if isinstance(found, tuple):
                return ColumnPart(found[0], _all_of([valid, found[1]]), False)
            if found is not None:
                return ColumnPart(found, valid, False)
        return self._one_by_one(node, args, valid)

    # -- what looks at NULLs itself ----------------------------------------------------------------

    def _lazy(self, node: Typed) -> Arrays:
        args = [self.part(arg) for arg in node.args]
        return _LAZY[node.name](node, args, self.length)

    def _one_by_one(self, node: Typed, args: Sequence[ColumnPart], valid: Any) -> ColumnPart:
        """By single values: once for each distinct combination."""
        assert node.run is not None
        rows = np.flatnonzero(np.broadcast_to(np.asarray(valid, np.bool_), self.length))
        columns = [None if arg.is_constant else np.broadcast_to(arg.values, self.length) for arg in args]
        codes = [_codes(column[rows]) for column in columns if column is not None]
        code = combine_codes(codes, len(rows))
        _, first, which = np.unique(code, return_index=True, return_inverse=True)
        at = rows[first]
        given = [
            [arg.values] * len(at) if column is None else column[at].tolist()
            for arg, column in zip(args, columns, strict=True)
        ]
        results = [node.run(*values) for values in zip(*given, strict=True)] if given else []
        kind = node.kind if isinstance(node.kind, Type) else Type.STRING
        own = Vector.blank(kind, len(results))
        known = np.array([result is not None for result in results], np.bool_)
        own.values[known] = [result for result in results if result is not None]
        values, there = Vector.blank(kind, self.length).values, np.zeros(self.length, np.bool_)
        values[rows], there[rows] = own.values[which], known[which]
        return ColumnPart(values, there, False)


def _blank(kind: Any) -> Any:
    return "" if kind is Type.STRING else 0


def _all_of(masks: Sequence[Any]) -> Any:
    found: Any = True
    for mask in masks:
        found = found & mask if found is not True else mask
    return found


def _codes(values: Any) -> Any:
    if values.dtype == object:
        return to_numpy(to_arrow(values, pa.string()).dictionary_encode().indices).astype(np.int64)
    if values.dtype == np.float64:
        values = double_codes(values + 0.0)
    return np.unique(values, return_inverse=True)[1].astype(np.int64)


# -- lazily computed ones ----------------------------------------------------------------------------


def _masks(part: ColumnPart, length: int) -> tuple[Mask, Mask]:
    """Where a condition is true, and where it is false."""
    valid = np.broadcast_to(np.asarray(part.valid, np.bool_), length)
    truth = np.broadcast_to(np.asarray(part.values, np.bool_), length)
    return valid & truth, valid & ~truth


def _and(node: Typed, args: Sequence[ColumnPart], length: int) -> Arrays:
    masks = [_masks(arg, length) for arg in args]
    true = np.logical_and.reduce([one for one, _ in masks])
    return true, true | np.logical_or.reduce([other for _, other in masks])


def _or(node: Typed, args: Sequence[ColumnPart], length: int) -> Arrays:
    masks = [_masks(arg, length) for arg in args]
    true = np.logical_or.reduce([one for one, _ in masks])
    return true, true | np.logical_and.reduce([other for _, other in masks])


def _is_null(node: Typed, args: Sequence[ColumnPart], length: int) -> Arrays:
    return ~np.broadcast_to(np.asarray(args[0].valid, np.bool_), length), True


def _is_nan(node: Typed, args: Sequence[ColumnPart], length: int) -> Arrays:
    valid = np.broadcast_to(np.asarray(args[0].valid, np.bool_), length)
    return valid & np.isnan(np.asarray(args[0].values, np.float64)), True


def _is_true(node: Typed, args: Sequence[ColumnPart], length: int) -> Arrays:
    return _masks(args[0], length)[0], True


def _is_false(node: Typed, args: Sequence[ColumnPart], length: int) -> Arrays:
    return _masks(args[0], length)[1], True


def _chosen(node: Typed, choices: Sequence[tuple[Mask, ColumnPart]], length: int) -> Arrays:
    """By row the value of the first choice that is made."""
    kind = node.kind if isinstance(node.kind, Type) else Type.STRING
    out, open_ = Vector.blank(kind, length), np.ones(length, np.bool_)
    for mask, part in choices:
        here = open_ & mask
        open_ &= ~mask
        valid = here & np.broadcast_to(np.asarray(part.valid, np.bool_), length)
        if valid.any():
            out.values[valid] = np.broadcast_to(np.asarray(part.values, out.values.dtype), length)[valid]
            out.valid[valid] = True
    return out.values, out.valid


def _case(node: Typed, args: Sequence[ColumnPart], length: int) -> Arrays:
    choices = [(_masks(args[n], length)[0], args[n + 1]) for n in range(0, len(args) - 1, 2)]
    return _chosen(node, [*choices, (np.ones(length, np.bool_), args[-1])], length)


def _coalesce(node: Typed, args: Sequence[ColumnPart], length: int) -> Arrays:
    masks = [np.broadcast_to(np.asarray(arg.valid, np.bool_), length) for arg in args]
    return _chosen(node, list(zip(masks, args, strict=True)), length)


def _in(node: Typed, args: Sequence[ColumnPart], length: int) -> Arrays:
    own, found, unknown = args[0], np.zeros(length, np.bool_), np.zeros(length, np.bool_)
    for other in args[1:]:
        valid = np.broadcast_to(np.asarray(other.valid, np.bool_), length)
        found |= valid & np.broadcast_to(_ordered("=", own.values, other.values), length)
        unknown |= ~valid
    return found, own.valid & (found | ~unknown)


def _extreme(op: str, node: Typed, args: Sequence[ColumnPart], length: int) -> Arrays:
    kind = node.kind if isinstance(node.kind, Type) else Type.STRING
    best = Vector.blank(kind, length)
    for arg in args:
        valid = np.broadcast_to(np.asarray(arg.valid, np.bool_), length)
        values = np.broadcast_to(np.asarray(arg.values, best.values.dtype), length)
        better = valid & (~best.valid | np.broadcast_to(_ordered(op, values, best.values), length))
        best.values[better] = values[better]
        best.valid[better] = True
    return best.values, best.valid


def _same_value(node: Typed, args: Sequence[ColumnPart], length: int) -> Arrays:
    a, b = (np.broadcast_to(np.asarray(arg.valid, np.bool_), length) for arg in args)
    equal = np.broadcast_to(_ordered("=", args[0].values, args[1].values), length)
    return np.where(a & b, equal, a == b), True


_LAZY: dict[str, Callable[[Typed, Sequence[ColumnPart], int], Arrays]] = {
    "and": _and, "or": _or, "isnull": _is_null, "isnan": _is_nan, "istrue": _is_true, "isfalse": _is_false,
    "case": _case, "coalesce": _coalesce, "in": _in, "greatest": partial(_extreme, ">"),
    "least": partial(_extreme, "<"), "<=>": _same_value,
}  # fmt: skip


# -- comparisons -------------------------------------------------------------------------------------


def _orderable(values: Any) -> Any:
    """Doubles as codes in the order of SQL; other values as they are."""
    array = np.asarray(values)
    return double_codes(array.reshape(-1) + 0.0).reshape(array.shape) if array.dtype == np.float64 else values


def _ordered(op: str, a: Any, b: Any) -> Any:
    one, other = np.asarray(_orderable(a)), np.asarray(_orderable(b))
    if np.asarray(a).dtype.kind == "U" or np.asarray(b).dtype.kind == "U":
        one, other = one.astype(object), other.astype(object)
    return np.asarray(_OPS[op](one, other), np.bool_)


_OPS: dict[str, Any] = {
    "=": np.equal, "!=": np.not_equal, "<": np.less, "<=": np.less_equal, ">": np.greater,
    ">=": np.greater_equal,
}  # fmt: skip


# -- numbers -----------------------------------------------------------------------------------------


def _whole(value: Any) -> Any:
    return np.asarray(value, np.int64)


def _divide(a: Any, b: Any) -> Arrays:
    return np.divide(a, b) + 0.0, np.not_equal(b, 0)


def _integer_divide(a: Any, b: Any) -> Arrays:
    x, y = _whole(a), _whole(b)
    there = y != 0
    divisor = np.where(there & (y != -1), y, 1)
    quotient = np.floor_divide(x, divisor)
    quotient = quotient + ((x - quotient * divisor != 0) & ((x < 0) != (divisor < 0)))
    return np.where(y == -1, -x, quotient), there


def _remainder(a: Any, b: Any) -> Arrays:
    x, y = _whole(a), _whole(b)
    there = y != 0
    divisor = np.where(there & (y != -1), y, 1)
    return np.where(y == -1, 0, np.fmod(x, divisor)), there


def _round_double(x: Any, digits: Any) -> Any:
    """Where the digits are few and no tie is near; elsewhere one by one, by returning nothing."""
    if np.ndim(digits) or not 0 <= digits <= 12:
        return None
    values = np.asarray(x, np.float64)
    scaled = np.abs(values) * 10.0**digits
    part = scaled - np.floor(scaled)
    near = ~(scaled < 2.0**40) | (np.abs(part - 0.5) < 1e-3)
    found = np.copysign(np.floor(scaled + 0.5) / 10.0**digits, values) + 0.0
    uncertain = near & np.isfinite(values)
    if uncertain.any():
        flat, where = np.atleast_1d(found), np.flatnonzero(uncertain)
        own = [numbers.round_double(v, int(digits)) for v in np.atleast_1d(values)[where].tolist()]
        flat[where] = own
        found = flat.reshape(np.shape(found))
    return np.where(np.isfinite(values), found, values)


def _to_whole(x: Any) -> Any:
    values = np.asarray(x, np.float64)
    inside = (values >= -(2.0**63)) & (values < 2.0**63)
    edge = np.where(values > 0, numbers.MOST, numbers.LEAST)
    whole = np.where(inside, values, 0.0).astype(np.int64)
    return np.where(inside, whole, np.where(np.isnan(values), 0, edge))


# -- texts -------------------------------------------------------------------------------------------


def _arrow(values: Any) -> Any:
    return to_arrow(np.asarray(values, object), pa.string())


def _objects(found: Any) -> Any:
    return to_numpy(found).astype(object)


def _by_arrow(function: Callable[..., Any], *, ascii: bool = False) -> _Columns:
    """A function of one column of texts, and of constants."""

    def run(values: Any, *constants: Any) -> Any:
        if not np.ndim(values) or any(np.ndim(constant) for constant in constants):
            return None
        own = _arrow(values)
        if ascii and not pc.all(pc.string_is_ascii(own)).as_py():
            return None
        found = function(own, *constants)
        return None if found is None else _objects(found)

    return run


def _truths(function: Callable[..., Any]) -> _Columns:
    def run(values: Any, pattern: Any) -> Any:
        if not np.ndim(values) or np.ndim(pattern):
            return None
        found = function(_arrow(values), pattern)
        return np.asarray(found.to_numpy(zero_copy_only=False), np.bool_)

    return run


def _joined(*parts: Any) -> Any:
    found = np.asarray(parts[0], object)
    for part in parts[1:]:
        found = found + np.asarray(part, object)
    return found


def _substring(values: Any, start: int, length: int = 2**31) -> Any:
    if start < 1:
        return None
    return pc.utf8_slice_codeunits(values, start - 1, start - 1 + max(length, 0))


def _length(values: Any) -> Any:
    return (
        pc.utf8_length(_arrow(values)).cast(pa.int64()).to_numpy(zero_copy_only=False)
        if np.ndim(values)
        else None
    )


def _matches(values: Any, pattern: str) -> Any:
    return pc.match_substring_regex(values, pattern)


# -- times -------------------------------------------------------------------------------------------


def _unit(values: Any, unit: str) -> Any:
    return np.asarray(values, np.int64).astype("M8[D]").astype(f"M8[{unit}]")


def _year(days: Any) -> Any:
    return _unit(days, "Y").astype(np.int64) + 1970


def _month(days: Any) -> Any:
    return _unit(days, "M").astype(np.int64) % 12 + 1


def _day(days: Any) -> Any:
    return _whole(days) - _unit(days, "M").astype("M8[D]").astype(np.int64) + 1


def _in_days(days: Any) -> Arrays:
    return days, (days >= times.FIRST_DAY) & (days <= times.LAST_DAY)


def _truncated(unit: Any, at: Any) -> Any:
    if np.ndim(unit):
        return None
    name = unit.lower()
    if name in times.UNITS and name != "week":
        return _whole(at) // times.UNITS[name] * times.UNITS[name]
    code = {"month": "M", "mon": "M", "mm": "M", "year": "Y", "yyyy": "Y", "yy": "Y"}.get(name)
    if code is None:
        return None
    return _unit(_whole(at) // times.DAY, code).astype("M8[D]").astype(np.int64) * times.DAY


def _clock(unit: int, most: int, at: Any) -> Any:
    return _whole(at) % times.DAY // unit % most


_COLUMNS: dict[Run, _Columns] = {
    numbers.add: lambda a, b: _whole(a) + _whole(b),
    numbers.subtract: lambda a, b: _whole(a) - _whole(b),
    numbers.multiply: lambda a, b: _whole(a) * _whole(b),
    numbers.add_double: lambda a, b: np.add(a, b) + 0.0,
    numbers.subtract_double: lambda a, b: np.subtract(a, b) + 0.0,
    numbers.multiply_double: lambda a, b: np.multiply(a, b) + 0.0,
    numbers.divide: _divide,
    numbers.integer_divide: _integer_divide,
    numbers.remainder: _remainder,
    numbers.negate: lambda a: -_whole(a),
    numbers.absolute: lambda a: np.abs(_whole(a)),
    numbers.absolute_double: np.abs,
    numbers.round_double: _round_double,
    overloads.round_all: lambda x: _round_double(x, 0),
    numbers.floor_double: lambda x: _to_whole(np.floor(x)),
    numbers.ceil_double: lambda x: _to_whole(np.ceil(x)),
    numbers.to_whole: _to_whole,
    numbers.sign: np.sign,
    numbers.square_root: np.sqrt,
    OVERLOADS["distance_km"][0].run: kilometres_of,
    str.lower: _by_arrow(pc.utf8_lower, ascii=True),
    str.upper: _by_arrow(pc.utf8_upper, ascii=True),
    texts.trim: _by_arrow(lambda values, *given: pc.utf8_trim(values, *(given or (" ",)))),
    texts.trim_left: _by_arrow(lambda values, *given: pc.utf8_ltrim(values, *(given or (" ",)))),
    texts.trim_right: _by_arrow(lambda values, *given: pc.utf8_rtrim(values, *(given or (" ",)))),
    texts.substring: _by_arrow(_substring),
    texts.substring_from: _by_arrow(_substring),
    texts.replaced: _by_arrow(
        lambda values, old, new="": pc.replace_substring(values, old, new) if old else values
    ),
    len: _length,
    overloads.joined: _joined,
    str.startswith: _truths(pc.starts_with),
    str.endswith: _truths(pc.ends_with),
    str.__contains__: _truths(pc.match_substring),
    times.days_between: lambda end, start: _whole(end) - _whole(start),
    times.midnight: lambda days: _whole(days) * times.DAY,
    times.day_of: lambda at: _whole(at) // times.DAY,
    OVERLOADS["+"][2].run: lambda days, more: _in_days(_whole(days) + _whole(more)),
    OVERLOADS["year"][0].run: _year,
    OVERLOADS["month"][0].run: _month,
    OVERLOADS["day"][0].run: _day,
    OVERLOADS["quarter"][0].run: lambda days: (_month(days) + 2) // 3,
    OVERLOADS["dayofweek"][0].run: lambda days: (_whole(days) + 4) % 7 + 1,
    OVERLOADS["weekday"][0].run: lambda days: (_whole(days) + 3) % 7,
    OVERLOADS["hour"][0].run: partial(_clock, 3_600_000_000, 24),
    OVERLOADS["minute"][0].run: partial(_clock, 60_000_000, 60),
    OVERLOADS["second"][0].run: partial(_clock, 1_000_000, 60),
    OVERLOADS["date_trunc"][0].run: _truncated,
    float: lambda value: np.asarray(value, np.float64),
    int: _whole,
    casts.truth_of: lambda value: np.not_equal(value, 0),
    typed._not: np.logical_not,
    **{run: partial(_ordered, op) for op, run in typed._COMPARED.items()},
}
