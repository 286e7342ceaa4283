"""How filters use the attributes of an open stream, and what its events have: to find likely mistakes.

An attribute that events lack, or have only with values of another kind than filters compare it with, is
*unmet*. Events are counted; they are looked at only as long as something is unmet. So a stream whose filters
are right pays for a counter.

>>> from tocsin.language.algebra import Column, Compare
>>> from tocsin.language.rewrite import normalise
>>> from tocsin.predicate.compile import flatten
>>> watch = AttributeWatch()
>>> watch.add(flatten([normalise(Compare(Column(name), "<", 5)) for name in ("price", "Size", "prise")]))
>>> for n in range(1000):
...     watch.see({"price": 3, "size": 9})
>>> sorted(watch.unmet)
['Size', 'prise']
>>> watch.warning("Size", Kinds.NUMBER)
"no event has had 'Size': did you mean 'size'?"
>>> watch.warning("prise", Kinds.NUMBER)
"no event has had 'prise': did you mean 'price'?"
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date
from enum import IntFlag
from typing import Any

import numpy as np
import pyarrow.compute as pc

from tocsin.language.scope import nearest
from tocsin.model.buffers import to_arrow
from tocsin.model.columns import Rows, Vector
from tocsin.model.schema import Type, read_time
from tocsin.model.times import read_times
from tocsin.predicate.deferred import DeferredFilters
from tocsin.predicate.flat import CodeSpace, FlatFilters

__all__ = ["PATIENCE", "AttributeWatch", "Kinds", "is_one_edit", "kind_named"]

PATIENCE = 1000  # events without an attribute until that is worth a warning
_MOST_NAMES = 1000  # attributes of events that are remembered


class Kinds(IntFlag):
    """Kinds of values; values of one kind compare with each other."""

    NUMBER = 1
    TEXT = 2
    BOOLEAN = 4
    TIME = 8


_NUMBER, _TEXT = int(Kinds.NUMBER), int(Kinds.TEXT)  # operators of flags are slow
_WORDS = {Kinds.NUMBER: "number", Kinds.TEXT: "text", Kinds.BOOLEAN: "boolean", Kinds.TIME: "time"}
_KIND_OF = {word: kind for kind, word in _WORDS.items()}
_KIND_OF_VALUE: dict[type, int] = {int: 1, float: 1, str: 2, bool: 4}
_KINDS_OF_SPACES = np.zeros(16, np.uint8)  # presence (ANY) needs no kind
for _kind, _spaces in {
    Kinds.NUMBER: (CodeSpace.BIGINT, CodeSpace.DOUBLE),
    Kinds.TEXT: (CodeSpace.TEXT, CodeSpace.REVERSED, CodeSpace.PATTERN),
    Kinds.BOOLEAN: (CodeSpace.BOOLEAN,),
    Kinds.TIME: (CodeSpace.DATE, CodeSpace.TIMESTAMP),
}.items():
    _KINDS_OF_SPACES[list(_spaces)] = _kind


class AttributeWatch:
    """The attributes that filters of one open stream use, with the kinds they compare them with."""

    def __init__(self) -> None:
        self.events = 0
        self.used: dict[str, int] = {}  # `Kinds` by attribute; filters that left are still counted
        self.shown: set[str] = set()  # attributes that filters select
        self.unmet: dict[str, int] = {}  # of the kinds used, those that no event has had
        self._seen: dict[str, int] = {}  # kinds that events had, of attributes that were unmet
        self._since: dict[str, int] = {}  # events before an attribute was used
        self._names: dict[str, str] = {}  # attributes of events, by their lower case
        self._until = 0  # collect names until so many events were counted

    # -- filters -----------------------------------------------------------------------------------

    def add(self, filters: FlatFilters | DeferredFilters) -> None:
        """Count in the attributes of filters."""
        if isinstance(filters, DeferredFilters):  # these compare with numbers
            names = pc.unique(pc.struct_field(pc.list_flatten(filters.lists), "attribute"))
            for name in names.to_pylist():
                self._use(name, Kinds.NUMBER)
            return
        for attribute, space in zip(filters.attribute.tolist(), filters.space.tolist(), strict=True):
            self._use(filters.names[attribute], int(_KINDS_OF_SPACES[space]))

    def add_plain(self, tests: Iterable[tuple[str, bool]]) -> None:
        """Count in the attributes of a plain filter: each, and whether it is compared with a text."""
        for name, is_text in tests:
            self._use(name, _TEXT if is_text else _NUMBER)

    def discard(self, name: str) -> None:
        """No filter uses the attribute any more."""
        for known in (self.used, self.unmet, self._since):
            known.pop(name, None)
        self.shown.discard(name)

    def _use(self, name: str, kinds: int) -> None:
        before = self.used.get(name)
        if before is None or kinds & ~before:
            self.used[name] = kinds | (before or 0)
            rest = self.used[name] & ~self._seen.get(name, 0)
            if rest:
                self.unmet[name] = rest
                self._since[name] = self.events
                self._until = self.events + 2 * PATIENCE

    # -- events ------------------------------------------------------------------------------------

    def see(self, event: Mapping[str, Any]) -> None:
        """Count one event; unless something is unmet, that is all."""
        self.events += 1
        if self.unmet and (self.events <= self._until or not self.unmet.keys().isdisjoint(event.keys())):
            self._see(event)

    def _see(self, event: Mapping[str, Any]) -> None:
        """Look at one event; `see` has counted it."""
        if self.events <= self._until:
            self._collect(event)
        for name in self.unmet.keys() & event.keys():
            if event[name] is not None:
                self._meet(name, _kinds_of(event[name], self.unmet[name]))

    def see_rows(self, rows: Rows) -> None:
        """Count a batch of events."""
        self.events += len(rows)
        if not self.unmet or not len(rows):
            return
        if self.events - len(rows) <= self._until:
            self._collect(rows.names)
        for name in [name for name in rows.names if name in self.unmet]:
            for vector in rows.vectors(name):
                if vector.valid.any():
                    self._meet(name, _kinds_of_vector(vector, self.unmet.get(name, 0)))

    def _meet(self, name: str, kinds: int) -> None:
        self._seen[name] = self._seen.get(name, 0) | kinds
        rest = self.unmet.get(name, 0) & ~kinds
        if rest:
            self.unmet[name] = rest
        else:
            self.unmet.pop(name, None)

    def _collect(self, names: Any) -> None:
        if len(self._names) < _MOST_NAMES:
            for name in names:
                if isinstance(name, str):
                    self._names.setdefault(name.lower(), name)

    # -- warnings ----------------------------------------------------------------------------------

    def warning(self, name: str, kinds: int) -> str | None:
        """Why comparing an attribute with values of these kinds is likely a mistake; None if it is not."""
        missing = self.unmet.get(name, 0) & kinds
        if not missing or not self.events:
            return None
        seen = self._seen.get(name, 0)
        if seen:
            return f"{name!r} is compared with {_words(missing)}, but events have {_words(seen)} in it"
        alike = self._near(name)
        if alike is None and self.events - self._since[name] < PATIENCE:
            return None
        hint = f"did you mean {alike!r}?" if alike else nearest(name, self._names.values())
        return f"no event has had {name!r}" + (f": {hint}" if hint else "")

    def warnings(self) -> dict[str, str]:
        """The warning of each attribute that has one."""
        found = {name: self.warning(name, kinds) for name, kinds in self.unmet.items()}
        return {name: text for name, text in found.items() if text}

    def _near(self, name: str) -> str | None:
        """An attribute of events that differs only in case or by one edit."""
        lower = name.lower()
        alike = self._names.get(lower)
        if alike is not None and alike != name:
            return alike
        return next((own for low, own in self._names.items() if is_one_edit(lower, low)), None)


def is_one_edit(a: str, b: str) -> bool:
    """Whether one letter is added, missing, another, or exchanged with the next. Digits tell names apart.

    >>> is_one_edit("price", "prise"), is_one_edit("price", "pirce"), is_one_edit("price", "prices")
    (True, True, True)
    >>> is_one_edit("sensor1", "sensor2"), is_one_edit("price", "size"), is_one_edit("x", "y")
    (False, False, False)
    """
    if abs(len(a) - len(b)) > 1 or min(len(a), len(b)) < 3 or a == b:
        return False
    start = 0
    while start < min(len(a), len(b)) and a[start] == b[start]:
        start += 1
    end = 0
    while end < min(len(a), len(b)) - start and a[-1 - end] == b[-1 - end]:
        end += 1
    x, y = a[start : len(a) - end], b[start : len(b) - end]
    if any(letter.isdigit() for letter in x + y):
        return False
    return (len(x) <= 1 and len(y) <= 1) or (len(x) == 2 and x == y[::-1])


def kind_named(word: str | None) -> int:
    """The kind of a word of `language.ranges.kind_of_literal`."""
    return int(_KIND_OF[word]) if word is not None else 0


def _words(kinds: int) -> str:
    return " and ".join(word for kind, word in _WORDS.items() if kinds & kind)


def _kinds_of(value: Any, wanted: int) -> int:
    """The kind of a value; also TIME for a text that holds one, if that is wanted."""
    kind = _KIND_OF_VALUE.get(type(value))
    if kind is None:
        return int(Kinds.TIME) if isinstance(value, date) else 0
    if kind == Kinds.TEXT and wanted & Kinds.TIME:
        try:
            read_time(Type.TIMESTAMP, value)
        except ValueError:
            return kind
        return kind | Kinds.TIME
    return kind


def _kinds_of_vector(vector: Vector, wanted: int) -> int:
    kind = kind_named(vector.type.kind)
    if kind == Kinds.TEXT and wanted & Kinds.TIME:
        texts = to_arrow(vector.values[vector.valid][:PATIENCE].tolist(), Type.STRING.arrow)
        return kind | (Kinds.TIME if read_times(Type.TIMESTAMP, texts)[1].any() else 0)
    return kind
