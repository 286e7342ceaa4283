"""Values inside an event of an open stream: paths, and the attributes that stand for them.

    {"item": {"brand": "acme", "sizes": [3, 5]}, "tags": ["new", null]}

    item.brand          acme            item.sizes[1]       5
    item['brand']       acme            tags[7]             missing

A path that a query uses is an attribute like any other; only its name begins with `MARK`, so that the path
`item.brand` and an attribute that is called "item.brand" differ. Names that begin with it are reserved.

    name                            value
    MARK item.brand                 the value there, if it has none inside
    MARK typeof(item.brand)         null, object, array, string, number, boolean, time; missing if nothing is
    MARK (price * qty) MARK         what an expression computes (`model/expressions`)
    MARK ip_key(item.source)        what a function computes (`model/derived.py`)
    MARK exists(tags, e1 -> ...)    TRUE where an element meets the condition, FALSE where none does
    MARK MARK exists(...)           present where an element meets the condition: what indexes use

For lists, `[*]` stands for each element of a list, through lists in lists; any other value is its own only
element. `all_values()` are all values of an event without values inside, wherever they are.

>>> path = read_path("item.sizes[1]")
>>> path.steps, path.value({"item": {"sizes": [3, 5]}})
(('item', 'sizes', 1), 5)
>>> list(read_path("a[*].b[*]").elements({"a": [{"b": 1}, {"b": [2, [3]]}, {}]}))
[1, 2, 3]
>>> print(Path(("item", "unit price", 0)))
item.`unit price`[0]
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import date
from decimal import Decimal
from importlib import import_module
from numbers import Real
from types import EllipsisType
from typing import Any, NamedTuple

import numpy as np

from tocsin.model.derived import MISSING, derived, is_derived
from tocsin.model.expressions.tree import is_expression, text_of
from tocsin.model.schema import is_missing, is_nested, quote

__all__ = [
    "ALL_VALUES", "LISTED", "MARK", "MISSING", "Path", "Step", "is_exists", "is_inside", "leaves",
    "read_path", "shown_name", "type_name", "value_of",
]  # fmt: skip

MARK = "\x1f"
ALL_VALUES = "all_values()"
LISTED = MARK + "of"  # of an element: the list it is an element of
Step = str | int | EllipsisType  # a key, a place in a list, or [*]

_TOKEN = re.compile(r"\.?(?:`((?:[^`]|``)*)`|([A-Za-z_][A-Za-z0-9_]*))|\[([0-9]+|\*)\]")
_TYPEOF = re.compile(r"typeof\((.*)\)", re.DOTALL)


class Path(NamedTuple):
    """The steps from an event to a value; the first is an attribute."""

    steps: tuple[Step, ...]

    def __str__(self) -> str:
        first, *others = self.steps
        return quote(str(first)) + "".join(map(_step_text, others))

    @property
    def name(self) -> str:
        """The attribute that stands for it."""
        return str(self.steps[0]) if len(self.steps) == 1 else MARK + str(self)

    @property
    def spreads(self) -> bool:
        """Whether it has a [*]."""
        return ... in self.steps

    def value(self, event: Any) -> Any:
        """The value there, or MISSING; for a path without [*]."""
        at = event
        for step in self.steps:
            if (isinstance(step, str) and isinstance(at, Mapping) and step in at) or (
                isinstance(step, int) and _is_list(at) and step < len(at)
            ):
                at = at[step]
            else:
                return MISSING
        return at

    def elements(self, event: Any) -> Iterator[Any] | None:
        """The elements of the list there, or the values of a path with [*]; None if there is no list."""
        if self.spreads:
            return _spread(event, self.steps)
        found = self.value(event)
        return iter(found) if _is_list(found) else None


def _step_text(step: Step) -> str:
    if step is ...:
        return "[*]"
    return f".{quote(step)}" if isinstance(step, str) else f"[{step}]"


def read_path(text: str) -> Path:
    """The path that prints as this text."""
    steps: list[Step] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        assert match is not None, text
        quoted, plain, place = match.groups()
        if place is not None:
            steps.append(... if place == "*" else int(place))
        else:
            steps.append(plain if quoted is None else quoted.replace("``", "`"))
        at = match.end()
    return Path(tuple(steps))


def _spread(value: Any, steps: tuple[Step, ...]) -> Iterator[Any]:
    if not steps:
        yield value
        return
    step, rest = steps[0], steps[1:]
    if step is ...:
        if _is_list(value):
            for element in value:
                yield from _spread(element, steps)
        else:
            yield from _spread(value, rest)
    elif isinstance(step, str):
        if isinstance(value, Mapping) and step in value:
            yield from _spread(value[step], rest)
    elif _is_list(value) and step < len(value):
        yield from _spread(value[step], rest)


def leaves(value: Any) -> Iterator[Any]:
    """All values without values inside.

    >>> list(leaves({"a": [1, {"b": None}], "c": "x"}))
    [1, None, 'x']
    """
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from leaves(inner)
    elif _is_list(value):
        for inner in value:
            yield from leaves(inner)
    else:
        yield value


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple | np.ndarray)


def type_name(value: Any) -> str:
    """What `typeof` says of a value that is not MISSING.

    >>> [type_name(value) for value in (None, {}, [], "a", 1.5, True)]
    ['null', 'object', 'array', 'string', 'number', 'boolean']
    """
    if isinstance(value, str):
        return "string"
    if isinstance(value, bool | np.bool_):
        return "boolean"
    if isinstance(value, Mapping):
        return "object"
    if is_nested(value):
        return "array"
    if is_missing(value):
        return "null"
    if isinstance(value, date | np.datetime64):
        return "time"
    return "number" if isinstance(value, Real | Decimal) else "other"


# -- names of attributes -----------------------------------------------------------------------------


def is_inside(name: str) -> bool:
    """Whether an attribute stands for something inside an event."""
    return name.startswith(MARK)


def is_exists(name: str) -> bool:
    """Whether an attribute stands for a condition on elements: its truth, or where it is true."""
    return name.startswith((f"{MARK}exists(", f"{MARK}{MARK}exists("))


def shown_name(name: str) -> str:
    """An attribute as SQL text has it."""
    if is_expression(name):
        return text_of(name)
    return name.lstrip(MARK) if name.startswith(MARK) else quote(name)


def value_of(name: str, event: Mapping[str, Any]) -> Any:
    """The value of a path's attribute, or of its type; MISSING where there is none.

    >>> event = {"item": {"brand": "acme", "sizes": [3]}}
    >>> value_of(MARK + "item.brand", event), value_of(MARK + "typeof(item.sizes)", event)
    ('acme', 'array')
    """
    if is_expression(name):
        found = import_module("tocsin.model.expressions.derived").expression_of(name).of_event(event)
        return MISSING if found is None else found
    if is_derived(name):
        return derived(name)(event)
    text = name[1:]
    typed = _TYPEOF.fullmatch(text)
    if typed is not None:
        found = read_path(typed[1]).value(event)
        return MISSING if found is MISSING else type_name(found)
    found = read_path(text).value(event)
    return MISSING if found is MISSING or is_nested(found) else found
