"""Attributes inside events, and computed ones, for the filters that use them; one index for elements.

    event ─► tree of paths that filters use ─► attributes item.brand, typeof(tags), ...
                  └─ elements of lists ─► events {"e1": element} ─► an index of the conditions of `exists`
                                              matches ─► attributes exists(tags, e1 -> ...)

    columns  ─► expressions that filters use ─► attributes (price * qty), ... each computed once for a batch
    all that ─► conditions that filters share ─► attributes held('...'), by indexes of their own (`held.py`)

So 100,000 conditions on elements cost what 100,000 filters over a stream of elements cost. Parts of events
that no filter uses are never looked at.

>>> from tocsin.match.index import Auto
>>> from tocsin.language.algebra import Column, Compare, Exists
>>> new = Exists("tags", Compare(Column("e1"), "=", "new"), "e1").column.name
>>> inside = NestedAttributes(Auto)
>>> _ = inside.add([MARK + "item.brand", MARK + new])
>>> event = {"item": {"brand": "acme", "size": 3}, "tags": ["new", "red"], "n": 5}
>>> [name.lstrip(MARK) for name in inside.attributes(event)]
['item.brand', "exists(tags, e1 -> e1 = 'new')"]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import numpy as np

from tocsin.language.algebra import And, Column, Compare, exists_of
from tocsin.language.held import fitted, is_held
from tocsin.match.base import MatchIndex, unpack
from tocsin.match.held import HeldConditions
from tocsin.model.columns import Index, Rows, SparseRows, TypedEntries
from tocsin.model.derived import Computed, derived, is_derived
from tocsin.model.expressions.derived import DerivedColumn, NotPlainError, expression_of
from tocsin.model.expressions.tree import is_expression
from tocsin.model.inside_dicts import inside_dict, inside_dicts
from tocsin.model.paths import (
    ALL_VALUES,
    LISTED,
    MARK,
    MISSING,
    Step,
    is_exists,
    is_inside,
    leaves,
    read_path,
    type_name,
)
from tocsin.model.schema import SIMPLE, Type, is_nested
from tocsin.predicate.compile import flatten

__all__ = ["NestedAttributes", "match_computed", "with_expressions"]

_HIDDEN_RANK = 1 << 40  # behind all attributes that an event shows


class _PathNode:
    """A place in events: the attributes that stand for it, and places inside."""

    __slots__ = ("inside", "is_leaf", "items", "name", "typed", "values")

    def __init__(self) -> None:
        self.inside: dict[Step, _PathNode] = {}
        self.name = ""  # of the attribute that has its value
        self.typed = ""  # of the attribute that has its type
        self.items = ""  # the list whose elements are wanted, if it is one
        self.values = ""  # the path with [*] whose values are wanted
        self.is_leaf = True  # whether nothing but its value is wanted

    def at(self, steps: tuple[Step, ...]) -> _PathNode:
        node = self
        for step in steps:
            node.is_leaf = False
            node = node.inside.setdefault(step, _PathNode())
        return node


class NestedAttributes:
    """What filters of one open stream, or of the elements of lists, use inside events.

    Filters are counted by attribute: `remove` takes the names that `add` was given.
    """

    def __init__(self, make_index: Callable[[], MatchIndex], level: int = 1) -> None:
        self._make_index, self._level = make_index, level
        self._element = f"e{level}"
        self._used = Counter[str]()
        self._start()

    def _start(self) -> None:
        self._root = _PathNode()
        self._all_values = False
        self._tree: dict[str, tuple[str, Any]] | None = None  # `_names_only`, once it is known
        self._computed: dict[str, Computed] = {}  # by attribute
        self._expressions: dict[str, DerivedColumn] = {}  # by attribute
        self._types: tuple[Mapping[str, Type], dict[str, Type]] | None = (
            None  # of a declared relation, extended
        )
        self._slots: dict[str, int] = {}  # of conditions on elements, in the index
        self._names: list[str] = []  # by slot
        self._index: MatchIndex | None = None
        self._inner: NestedAttributes | None = None
        self._held = HeldConditions(self._make_index)  # conditions on the whole event

    def __bool__(self) -> bool:
        return bool(self._used)

    # -- filters -----------------------------------------------------------------------------------

    def add(self, names: Iterable[str]) -> list[str]:
        """Use attributes; returns those that stand for something inside events."""
        inside = [name for name in names if is_inside(name) and name != LISTED]
        for name in inside:
            self._used[name] += 1
            if self._used[name] == 1:
                self._enter(name)
                if is_held(name):
                    self.add(self._held.add(name))
        return inside

    def remove(self, names: Iterable[str]) -> None:
        """Use attributes once less; conditions on elements that nobody uses leave their index."""
        leaving = [name for name in names if is_inside(name) and name != LISTED]
        while leaving:
            name = leaving.pop()
            self._used[name] -= 1
            if not self._used[name]:
                del self._used[name]
                self._tree = None
                if is_held(name):
                    leaving += [used for used in self._held.remove(name) if is_inside(used)]
                self._computed.pop(name, None)
                if self._expressions.pop(name, None) is not None:
                    self._types = None
                slot = self._slots.pop(name, None)
                if slot is not None and self._index is not None and self._inner is not None:
                    self._index.remove(np.array([slot], np.int64))
        if len(self._used) * 2 < len(self._names) or not self._used:
            self._rebuild()

    def _rebuild(self) -> None:
        """Start again with what is still used."""
        self._start()
        for name in self._used:
            self._enter(name)

    def _enter(self, name: str) -> None:
        self._tree = None
        text = name.lstrip(MARK)
        if is_exists(name):
            self._enter_condition(name)
        elif is_held(name):
            self._held.add(name)
        elif is_expression(name):
            self._expressions[name] = expression_of(name)
            self._types = None
        elif is_derived(name):
            self._computed[name] = derived(name)
        elif text.startswith("typeof("):
            node = self._root.at(read_path(text[7:-1]).steps)
            node.typed, node.is_leaf = name, False
        else:
            self._root.at(read_path(text).steps).name = name

    def _enter_condition(self, name: str) -> None:
        """Add the condition on elements to their index, and the list to the tree."""
        exists = exists_of(name)
        if self._index is None or self._inner is None:
            self._index = self._make_index()
            self._inner = NestedAttributes(self._make_index, self._level + 1)
        listed = Compare(Column(LISTED), "=", exists.items)
        flat = flatten([fitted(And((listed, exists.where)))])
        slot = self._slots[name] = len(self._names)
        self._names.append(name)
        self._inner.add(flat.names)
        self._index.add(np.array([slot], np.int64), flat)
        if exists.items == ALL_VALUES:
            self._all_values = True
            return
        path = read_path(exists.items)
        node = self._root.at(path.steps)
        node.is_leaf = False
        if path.spreads:
            node.values = exists.items
        else:
            node.items = exists.items

    # -- events ------------------------------------------------------------------------------------

    def attributes(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """The attributes inside one event that are used."""
        found: dict[str, Any] = {}
        elements: list[dict[str, Any]] = []
        tree = self._names_only()
        if tree is None or not inside_dict(event, tree, found):
            found.clear()
            self._walk_event(event, found, elements)
        for name, expression in self._expressions.items():
            if (value := expression.of_event(event)) is not None:
                found[name] = value
        if elements and self._index is not None and self._inner is not None:
            for element in elements:
                slots = self._match_element(element)
                for slot in slots.tolist():
                    found[self._names[slot]] = True
        if self._held:
            plain = {name: value for name, value in event.items() if not is_nested(value)}
            found.update(dict.fromkeys(self._held.of_event(plain | found), True))
        return found

    def computed(self, row: dict[str, Any]) -> dict[str, Any] | None:
        """A row of declared columns with the expressions that are used; None if its values are not plain."""
        found = row.copy()
        for name, expression in self._expressions.items():
            try:
                found[name] = expression.of_plain(row)
            except NotPlainError:
                return None
        return found

    def types(self, types: Mapping[str, Type]) -> dict[str, Type]:
        """The types of declared columns and of expressions; the same dict while these are the same."""
        if self._types is None or self._types[0] is not types:
            more = {name: kind for name, one in self._expressions.items() if (kind := one.kind) is not None}
            self._types = types, {**types, **more}
        return self._types[1]

    def extended(self, rows: Rows) -> Rows:
        """The rows of a batch with the attributes inside them, and computed from them, that are used."""
        if not self._used:
            return rows
        if isinstance(rows, SparseRows) and len(self._used) > len(self._expressions) + len(self._held):
            rows = self._with_inside(rows)
        rows = with_expressions(rows, self._expressions)
        return self._held.of_rows(rows, _with_attributes) if self._held else rows

    def _with_inside(self, rows: SparseRows) -> SparseRows:
        """The events of a batch with the attributes inside them that are used."""
        if (tree := self._names_only()) is not None and (read := _with_paths(rows, tree)) is not None:
            return read
        found: list[dict[str, Any]] = []
        elements: list[dict[str, Any]] = []
        owner: list[int] = []
        for n, event in enumerate(rows.events):
            own: dict[str, Any] = {}
            self._walk_event(event, own, elements)
            found.append(own)
            owner.extend([n] * (len(elements) - len(owner)))
        for n, name in self._met(elements, np.array(owner, np.int64)):
            found[n][name] = True
        return _with_attributes(rows, found)

    def _names_only(self) -> dict[str, tuple[str, Any]] | None:
        """The paths that are used, if all are names inside names and nothing else is used."""
        if self._tree is None:
            simple = self._index is None and not self._computed and not self._all_values
            self._tree = (_tree_of(self._root) if simple else None) or {}
        return self._tree or None

    def _met(self, elements: list[dict[str, Any]], owner: Index) -> Iterable[tuple[int, str]]:
        """(event, attribute) of all conditions that an element meets."""
        if not elements or self._index is None or self._inner is None:
            return
        rows = self._inner.extended(SparseRows.read(elements, {}))
        slot, row = unpack(self._index.match(rows))
        pairs = np.unique((owner[row] << 32) | slot)
        for event, own in zip((pairs >> 32).tolist(), (pairs & 0xFFFFFFFF).tolist(), strict=True):
            yield event, self._names[own]

    def _match_element(self, element: dict[str, Any]) -> Index:
        """The slots of the conditions that one element meets."""
        assert self._index is not None and self._inner is not None
        plain = {name: value for name, value in element.items() if not is_nested(value)}
        if self._inner:
            plain.update(self._inner.attributes(element))
        slots = self._index.match_one(plain)
        if slots is None:
            rows = self._inner.extended(SparseRows.read([element], {}))
            slots = unpack(self._index.match(rows))[0]
        return slots

    def _walk_event(
        self, event: Mapping[str, Any], found: dict[str, Any], elements: list[dict[str, Any]]
    ) -> None:
        for root, node in self._root.inside.items():
            if root in event:
                inner = event[root]  # type: ignore[index]
                if node.is_leaf and type(inner) in SIMPLE:
                    found[node.name] = inner
                else:
                    self._walk(node, inner, found, elements)
        for name, compute in self._computed.items():
            if (value := compute(event)) is not MISSING:
                found[name] = value
        if self._all_values:
            element = self._element
            elements.extend({element: value, LISTED: ALL_VALUES} for value in leaves(event))

    def _walk(
        self, node: _PathNode, value: Any, found: dict[str, Any], elements: list[dict[str, Any]]
    ) -> None:
        if type(value) is dict:
            self._walk_object(node, value, found, elements)
            return
        is_list = isinstance(value, list | tuple | np.ndarray)
        if node.name and not is_list and not isinstance(value, Mapping):
            found[node.name] = value
        if node.typed:
            found[node.typed] = type_name(value)
        if node.items and is_list:
            elements.extend({self._element: element, LISTED: node.items} for element in value)
        if node.values:
            elements.append({self._element: value, LISTED: node.values})
        for step, child in node.inside.items():
            if step is ...:
                self._spread(child, value, found, elements)
            elif is_list:
                if isinstance(step, int) and step < len(value):
                    self._walk(child, value[step], found, elements)
            elif isinstance(step, str) and isinstance(value, Mapping) and step in value:
                self._walk(child, value[step], found, elements)

    def _walk_object(
        self, node: _PathNode, value: dict[Any, Any], found: dict[str, Any], elements: list[dict[str, Any]]
    ) -> None:
        """The same as `_walk` where the value is an object."""
        if node.typed:
            found[node.typed] = "object"
        if node.values:
            elements.append({self._element: value, LISTED: node.values})
        for step, child in node.inside.items():
            if step is ...:
                self._spread(child, value, found, elements)
            elif step in value and type(step) is str:
                inner = value[step]
                if child.is_leaf and type(inner) in SIMPLE:
                    found[child.name] = inner
                else:
                    self._walk(child, inner, found, elements)

    def _spread(
        self, node: _PathNode, value: Any, found: dict[str, Any], elements: list[dict[str, Any]]
    ) -> None:
        """Walk from each element of a list, through lists in it; from any other value itself."""
        if isinstance(value, list | tuple | np.ndarray):
            for element in value:
                self._spread(node, element, found, elements)
        else:
            self._walk(node, value, found, elements)

    def _check(self) -> None:
        assert all(count > 0 for count in self._used.values())
        assert set(self._slots) == {name for name in self._used if is_exists(name)}
        if self._index is not None and self._inner is not None:
            self._index._check()
            self._inner._check()
        self._held._check()


def _tree_of(node: _PathNode) -> dict[str, tuple[str, Any]] | None:
    """The names inside a place, with their attributes; None if it has other steps, or more is wanted."""
    found: dict[str, tuple[str, Any]] = {}
    for step, child in node.inside.items():
        if not isinstance(step, str) or child.typed or child.items or child.values:
            return None
        inner = _tree_of(child)
        if inner is None:
            return None
        found[step] = child.name, inner
    return found


def _with_paths(rows: SparseRows, tree: dict[str, tuple[str, Any]]) -> SparseRows | None:
    """The events with the attributes at paths of names; None if they must be read one by one."""
    if rows.source is None:
        return rows  # nothing is inside
    found = rows.source.inside(tree)
    if found is None:
        found = inside_dicts(rows.events, tree)
    if found is None:
        return None
    numbers = {name: n for n, name in enumerate(rows.names)}
    parts = list(rows.parts)
    for names, part in found:
        own = np.array([numbers.setdefault(name, len(numbers)) for name in names], np.int32)
        parts.append(part._replace(name=own[part.name], rank=part.rank + _HIDDEN_RANK))
    return SparseRows(parts, tuple(numbers), len(rows), rows.source)


def _with_attributes(rows: SparseRows, found: list[dict[str, Any]]) -> SparseRows:
    """The events with more attributes, which have no place among those that they show."""
    bad: dict[int, str] = {}
    more = SparseRows.read(found, bad)
    if bad:  # values that are of no type are as if missing
        for n in bad:
            found[n] = {name: value for name, value in found[n].items() if _is_good(name, value)}
        more = SparseRows.read(found, {})
    base = len(rows.names)
    parts = [
        part._replace(name=part.name + np.int32(base), rank=part.rank + _HIDDEN_RANK) for part in more.parts
    ]
    return SparseRows([*rows.parts, *parts], (*rows.names, *more.names), len(rows), rows.source)


def match_computed(index: MatchIndex, rows: Rows) -> Index:
    """The matches of rows that lack what expressions compute."""
    return index.match(with_expressions(rows, [name for name in index.expressions if name not in rows.names]))


def with_expressions(rows: Rows, names: Collection[str]) -> Rows:
    """The rows of a batch with what expressions compute, column by column."""
    if not names:
        return rows
    if not isinstance(rows, SparseRows):
        more = [(name, rows.vectors(name)[0]) for name in names]
        return Rows([*rows.columns, *more], len(rows), sparse=rows.sparse)
    parts, known = list(rows.parts), list(rows.names)
    for name in names:
        for vector in rows.vectors(name):
            event = np.flatnonzero(vector.valid)
            rank = np.full(len(event), _HIDDEN_RANK, np.int64)
            number = np.full(len(event), len(known), np.int32)
            parts.append(TypedEntries(event, rank, number, vector.take(event)))
        known.append(name)
    return SparseRows(parts, tuple(known), len(rows), rows.source)


def _is_good(name: str, value: Any) -> bool:
    bad: dict[int, str] = {}
    SparseRows.read([{name: value}], bad)
    return not bad
