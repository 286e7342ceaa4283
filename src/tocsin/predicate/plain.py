"""Filters that were subscribed to one by one: compared with single events as they are, until they are built.

Most texts that programs subscribe to differ from others in literals alone (`language/template.py`), and most
of these are comparisons of different attributes of a stream with numbers and texts, joined by AND. Such a
*plain* filter is ready as soon as its literals are known: it is neither normalised nor compiled. Plain
filters are in an index of dictionaries, in which one is entered in a microsecond:

    color = 'red' AND price < 5    equal   color ─► 'red' ─► price < 5
    price < 9                      rest    price ─► price < 9

Once they are many, or looking through lists of the rest has cost much, or a batch is to be matched, they are
compiled by column and built like all others (`match/segments/lifecycle.py`).

Events are plain too (`single.py`): exact ints, floats, texts and booleans. Python compares ints and floats
exactly, and texts by code points, which is the order of their bytes.

>>> from tocsin.language.sql import trace_query
>>> from tocsin.model.schema import Stream
>>> traced = trace_query("SELECT * FROM s WHERE color = 'red' AND price < :p", {"s": Stream("s")}, {"p": 1})
>>> plain = PlainTemplate.of(Template.of(traced), {"s": Stream("s")})
>>> index, owner = PlainIndex(), [0, 1, 2]
>>> for slot in (1, 2):
...     index.add(slot, slot, plain.fill({"p": 10 * slot}))
>>> index.match({"color": "red", "price": 15}, owner), index.match({"color": "red", "price": True}, owner)
([2], [])
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from tocsin.language.algebra import And, Between, Column, Compare, Predicate
from tocsin.language.literals import Slot
from tocsin.language.rewrite import NormalForm, normalise
from tocsin.language.shape import Shape, shape_of
from tocsin.language.template import Template
from tocsin.model.buffers import to_arrow
from tocsin.model.paths import is_inside
from tocsin.model.schema import Catalog, Stream, Type
from tocsin.predicate.compile import flatten
from tocsin.predicate.flat import FlatFilters
from tocsin.predicate.templated import flat_tables

__all__ = ["FEW_PLAIN", "PlainFilter", "PlainIndex", "PlainTemplate", "flat_plain"]

_COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_NUMBERS = (Type.BIGINT, Type.DOUBLE)
_EXACT = 2**53  # whole numbers below are doubles
FEW_PLAIN = 8  # filters of one template that are compiled one by one, with those of others
_LOOK_UP = 16  # comparisons that take as long as looking up an event's attributes

Open = tuple[Column, str, Any]  # column, operator, value or slot
Test = tuple[str, Callable[[Any, Any], bool], Any, bool]  # attribute, comparison, value, whether it is a text


class PlainFilter(NamedTuple):
    """One filter: its template, the raw values of the template's slots, and its tests."""

    template: PlainTemplate
    raw: Mapping[Any, Any]
    tests: list[Test]


class PlainTemplate:
    """A template all of whose filters are plain, as long as their literals are."""

    shape: ClassVar[Shape] = Shape.FILTER

    def __init__(self, template: Template, tests: Sequence[Open]) -> None:
        self.template, self._tests = template, tests
        self.stream = template.query.tables[0].name

    @classmethod
    def of(cls, template: Template, catalog: Catalog) -> PlainTemplate | None:
        """None if the conditions are others."""
        query = template.query
        if shape_of(query) is not cls.shape or not isinstance(catalog[query.tables[0].name], Stream):
            return None
        if query.options:
            return None
        tests: list[Open] = []
        columns = []
        for part in _conjuncts(query.where):
            if isinstance(part, Compare):
                tests.append((part.column, part.op, part.value))
            elif isinstance(part, Between):
                tests += [(part.column, ">=", part.low), (part.column, "<=", part.high)]
            else:
                return None
            columns.append(part.column.name)
        if len(set(columns)) < len(columns):  # they may contradict each other
            return None
        shown = [item.expression.name for item in query.items if isinstance(item.expression, Column)]
        if any(map(is_inside, [*columns, *shown])):  # the index finds them, or an expression computes them
            return None
        return cls(template, sorted(tests, key=lambda test: test[1] != "="))

    def fill(self, raw: Mapping[Any, Any]) -> PlainFilter | None:
        """The filter with these raw values; None if one is not plain, or wrong."""
        tests: list[Test] = []
        for column, op, given in self._tests:
            try:
                value = given.read(raw[given.key]) if isinstance(given, Slot) else given
            except ValueError:
                return None
            if not _is_plain(column.type, value):
                return None
            is_text = type(value) is str
            if tests and tests[-1][0] == column.name:  # the other end of a range
                low = tests[-1]
                if low[3] != is_text or low[2] > value:
                    return None
            tests.append((column.name, _COMPARED[op], value, is_text))
        return PlainFilter(self, raw, tests)


def _conjuncts(where: Predicate) -> tuple[Predicate, ...]:
    return where.args if isinstance(where, And) else (where,)


def _is_plain(type_: Type | None, value: Any) -> bool:
    kind = type(value)
    if kind is str:
        return type_ is None or type_ is Type.STRING
    if kind is int:
        return -_EXACT < value < _EXACT and (type_ is None or type_ in _NUMBERS)
    return kind is float and -_EXACT < value < _EXACT and (type_ is None or type_ is Type.DOUBLE)


def flat_plain(filters: Sequence[PlainFilter]) -> FlatFilters:
    """Filters as flat arrays: by column, if they are several of one template, else one by one.

    Plain filters are in normal form as they are.
    """
    template = filters[0].template.template
    if len(filters) < FEW_PLAIN or filters[0].template is not filters[-1].template:
        conditions: Any = (_conjuncts(one.template.template.fill(one.raw).where) for one in filters)
        return flatten(NormalForm("dnf", (literals,)) for literals in conditions)
    columns = {key: to_arrow([one.raw[key] for one in filters]) for key in template.keys}
    found = flat_tables(template, columns, len(filters))
    if found is not None and not found.slow.any():
        return found.filters[0]
    return flatten(normalise(template.fill(one.raw).where) for one in filters)


class PlainIndex:
    """Plain filters under their slots, each with a number that says whether it still owns its slot."""

    def __init__(self) -> None:
        self.count = 0
        self.compared = 0  # filters in lists that were compared with an event; a look-up counts as some
        self._equal: dict[str, dict[Any, list[tuple[int, int, list[Test]]]]] = {}  # the rest of the tests
        self._rest: dict[str, list[tuple[int, int, list[Test]]]] = {}

    def add(self, number: int, slot: int, filter: PlainFilter) -> None:
        tests = filter.tests
        name, compare, value, _ = tests[0]
        self.count += 1
        if compare is operator.eq:
            self._equal.setdefault(name, {}).setdefault(value, []).append((number, slot, tests[1:]))
        else:
            self._rest.setdefault(name, []).append((number, slot, tests))

    def match(self, event: Mapping[str, Any], owner: Any) -> list[int]:
        """The slots of matching filters."""
        found: list[int] = []
        self.compared += _LOOK_UP
        for name, value in event.items():
            values = self._equal.get(name)
            if values is not None and type(value) is not bool and value in values:
                self._verify(values[value], event, owner, found)
            some = self._rest.get(name)
            if some is not None:
                self.compared += len(some)
                self._verify(some, event, owner, found)
        return found

    def _verify(self, some: Any, event: Mapping[str, Any], owner: Any, found: list[int]) -> None:
        """Append the slots of those whose tests hold, and that still own them."""
        for number, slot, tests in some:
            for name, compare, wanted, is_text in tests:
                value = event.get(name)
                kind = type(value)
                if (kind is not str) if is_text else (kind is not int and kind is not float):
                    break
                if not compare(value, wanted):
                    break
            else:
                if owner[slot] == number:
                    found.append(slot)
