r"""Conditions on whole events that other conditions use: `held('condition')`, in indexes of their own.

    event with its attributes ─► index of conditions that use no others ─► attributes held('...')
                              ─► index of conditions that use those     ─► ...

So a part that is too large for a normal form costs what a filter costs, however many rules have it.

>>> from tocsin.match.index import Auto
>>> held = HeldConditions(Auto)
>>> held.add("\x1fheld('a = 1 OR b > 2')")
['a', 'b']
>>> held.of_event({"b": 3})
["\x1fheld('a = 1 OR b > 2')"]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from tocsin.language.held import fitted, held_condition, is_held
from tocsin.match.base import MatchIndex, unpack
from tocsin.model.columns import Rows, SparseRows
from tocsin.predicate.compile import flatten

__all__ = ["HeldConditions"]


class _Level(NamedTuple):
    """Conditions that use none of this level or a later one; their names by slot."""

    matcher: MatchIndex
    names: list[str]


class HeldConditions:
    """The conditions that filters of one stream use, by attribute."""

    def __init__(self, make_index: Callable[[], MatchIndex]) -> None:
        self._make_index = make_index
        self._levels: list[_Level] = []
        self._places: dict[str, tuple[int, int]] = {}  # level and slot by name
        self._uses: dict[str, list[str]] = {}  # attributes by name

    def __len__(self) -> int:
        return len(self._places)

    def add(self, name: str) -> list[str]:
        """Add a condition, and those that it uses; returns the attributes that it uses."""
        if name in self._places:
            return self._uses[name]
        filters = flatten([fitted(held_condition(name))])
        inner = [used for used in filters.names if is_held(used)]
        for used in inner:
            self.add(used)
        at = max((self._places[used][0] + 1 for used in inner), default=0)
        if at == len(self._levels):
            self._levels.append(_Level(self._make_index(), []))
        level = self._levels[at]
        self._places[name] = at, len(level.names)
        self._uses[name] = list(filters.names)
        level.matcher.add(np.array([len(level.names)], np.int64), filters)
        level.names.append(name)
        return self._uses[name]

    def remove(self, name: str) -> list[str]:
        """Remove a condition; returns the attributes that it used."""
        at, slot = self._places.pop(name)
        self._levels[at].matcher.remove(np.array([slot], np.int64))
        return self._uses.pop(name)

    def of_event(self, event: Mapping[str, Any]) -> list[str]:
        """The conditions that hold for an event; its values are plain."""
        found: list[str] = []
        whole = dict(event)
        for level in self._levels:
            slots = level.matcher.match_one(whole)
            if slots is None:
                slots = unpack(level.matcher.match(SparseRows.read([whole], {})))[0]
            own = [level.names[slot] for slot in slots.tolist()]
            found += own
            whole.update(dict.fromkeys(own, True))
        return found

    def of_rows(self, rows: Rows, extended: Callable[[SparseRows, list[dict[str, Any]]], SparseRows]) -> Rows:
        """Events with what holds for them; `extended` adds attributes."""
        for level in self._levels:
            if not isinstance(rows, SparseRows):
                return rows
            found: list[dict[str, Any]] = [{} for _ in range(len(rows))]
            slots, owners = unpack(level.matcher.match(rows))
            for slot, owner in zip(slots.tolist(), owners.tolist(), strict=True):
                found[owner][level.names[slot]] = True
            rows = extended(rows, found)
        return rows

    def _check(self) -> None:
        for level in self._levels:
            level.matcher._check()
        assert self._uses.keys() == self._places.keys()
