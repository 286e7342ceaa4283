"""Numbers that remember what became of them: how the end of a band depends on a parameter.

The ends of a band are sums: `a.x - b.y <= :most + 5` has its high end at `most + 5`. To know that
of all rows after one parse, a template is read with numbers that behave like their values and keep a
list of the steps taken since:

>>> given, decided = traced({"most": 10})
>>> end = -(given["most"] + 5)
>>> int(end), slot_of(end).read(20), sorted(decided)
(-15, -25, [])

A number that was compared with something (which of two ends is the narrower?), or added to another
one, has *decided* the parse: what was read is right for that value alone.

>>> given["most"] < 7, sorted(decided)
(False, ['most'])
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tocsin.language.algebra import Value
from tocsin.language.literals import Slot

__all__ = ["Plus", "Times", "as_end", "as_span", "slot_of", "traced"]


@dataclass(frozen=True, slots=True)
class Plus:
    """A step: something is added to a number, or to an array of them."""

    amount: int | float

    def __call__(self, value: Any) -> Any:
        return value + self.amount


@dataclass(frozen=True, slots=True)
class Times:
    """A step: a number, or an array of them, is multiplied."""

    factor: int | float

    def __call__(self, value: Any) -> Any:
        return value * self.factor


def as_end(value: Value) -> Value:
    """The first step of an end: a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError("the ends of a band are finite numbers or intervals")
    return value


def as_span(value: Value) -> Value:
    """The last step of an end between times: microseconds."""
    if not isinstance(value, int) or abs(value) >= 2**63:
        raise ValueError("the interval is out of range")
    return value


class _Traced:
    """What whole numbers and doubles share."""

    key: str
    steps: tuple[Callable[[Any], Any], ...]
    decided: set[str]
    plain: type[Any]

    def then(self, step: Callable[[Any], Any]) -> Any:
        return _made(step(self.plain(self)), self.key, (*self.steps, step), self.decided)

    def decides(self, other: Any) -> tuple[Any, Any]:
        """Both as plain numbers; the parse depends on them."""
        self.decided.add(self.key)
        if isinstance(other, _Traced):
            other.decided.add(other.key)
            other = other.plain(other)
        return self.plain(self), other

    def __add__(self, other: Any) -> Any:
        return operator.add(*self.decides(other)) if isinstance(other, _Traced) else self.then(Plus(other))

    def __mul__(self, other: Any) -> Any:
        return operator.mul(*self.decides(other)) if isinstance(other, _Traced) else self.then(Times(other))

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Any:
        return self.then(Times(-1))

    def __bool__(self) -> bool:
        return True  # a zero is not left out

    def __eq__(self, other: object) -> bool:
        return bool(operator.eq(*self.decides(other)))

    def __ne__(self, other: object) -> bool:
        return bool(operator.ne(*self.decides(other)))

    def __lt__(self, other: Any) -> bool:
        return bool(operator.lt(*self.decides(other)))

    def __le__(self, other: Any) -> bool:
        return bool(operator.le(*self.decides(other)))

    def __gt__(self, other: Any) -> bool:
        return bool(operator.gt(*self.decides(other)))

    def __ge__(self, other: Any) -> bool:
        return bool(operator.ge(*self.decides(other)))

    def __hash__(self) -> int:
        return hash(self.plain(self))


class _Whole(_Traced, int):
    plain = int


class _Double(_Traced, float):
    plain = float


def _made(
    value: int | float, key: str, steps: tuple[Callable[[Any], Any], ...], decided: set[str]
) -> _Whole | _Double:
    number = _Whole(value) if isinstance(value, int) else _Double(value)
    number.key, number.steps, number.decided = key, steps, decided
    return number


def traced(values: Mapping[str, Value]) -> tuple[dict[str, Any], set[str]]:
    """The values with traced numbers among them, and the keys of those that have decided something."""
    decided: set[str] = set()
    numbers = {
        key: _made(value, key, (), decided)
        for key, value in values.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    return {**values, **numbers}, decided


def slot_of(number: Any) -> Slot | None:
    """Where a traced number came from, and the way to it; None if it is a plain one."""
    return Slot(number.key, (as_end, *number.steps)) if isinstance(number, _Traced) else None
