"""Values inside the objects of a JSON text, by paths of names, without a dict per object.

Members whose value is an object are parsed again, all of them at once, as objects of their own, and so on
inwards: each byte is read once for each name above it that a path has.

>>> from tocsin.model.jsonlines._kernels import read_objects
>>> _ = read_objects.compiled()
>>> raw = np.frombuffer(b'{"item": {"brand": "acme", "n": 5}}{"item": 7}', np.uint8)
>>> parsed = parse_objects(raw, [0, 35], [35, 46])
>>> tree = {"item": ("", {"n": ("item.n", {}), "brand": ("item.brand", {})})}
>>> found = values_inside(raw, parsed, np.arange(2), tree)
>>> [(names, part.event.tolist(), part.vector.to_list()) for names, part in found]
[(['item.n', 'item.brand'], [0], [5]), (['item.n', 'item.brand'], [0], ['acme'])]
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.model.columns import Index, TextVector, TypedEntries, Vector
from tocsin.model.jsonlines._kernels import BIGINT, DOUBLE, FALSE, NESTED, TEXT, TRUE, UNUSUAL
from tocsin.model.jsonlines.parse import Parsed, parse_objects
from tocsin.model.schema import Type

__all__ = ["KINDS", "PathTree", "values_inside", "vector_of"]

PathTree = Mapping[str, tuple[str, Any]]  # by name: the attribute that has its value, or "", and names inside
KINDS = {Type.BIGINT: (BIGINT,), Type.DOUBLE: (DOUBLE,), Type.STRING: (TEXT,), Type.BOOLEAN: (FALSE, TRUE)}


def vector_of(p: Parsed, type: Type, at: Index) -> Vector:
    """The values of members that all have the type."""
    value = p.value[at]
    if type is Type.STRING:
        return TextVector(p.data, value, p.end[at])
    valid = np.ones(len(at), np.bool_)
    if type is Type.BIGINT:
        return Vector(type, value, valid)
    return Vector(type, p.kind[at] == TRUE if type is Type.BOOLEAN else value.view(np.float64), valid)


def values_inside(
    raw: NDArray[np.uint8], parsed: Parsed, place: Index, tree: PathTree
) -> list[tuple[list[str], TypedEntries]] | None:
    """Attributes of objects, with their names; `place` is the number of each object's event, or -1.

    None if an object inside is malformed or unusual.
    """
    found: list[tuple[list[str], TypedEntries]] = []
    walk = _Walk(raw, found)
    return found if walk.inwards(parsed, place, tree, top=True) else None


class _Walk:
    def __init__(self, raw: NDArray[np.uint8], found: list[tuple[list[str], TypedEntries]]) -> None:
        self._raw, self._found = raw, found

    def inwards(self, p: Parsed, place: Index, tree: PathTree, *, top: bool = False) -> bool:
        """Find the values of a tree in objects; whether all could be read."""
        numbers = {name: n for n, name in enumerate(p.names)}
        known = {name: what for name, what in tree.items() if name in numbers}
        if not known:
            return True
        event = np.repeat(place, np.diff(p.start))
        if not top:  # values at the top are attributes by themselves
            self._leaves(p, event, {numbers[name]: what[0] for name, what in known.items() if what[0]})
        for name, (_, inner) in known.items():
            if inner and not self._objects(p, event, numbers[name], inner):
                return False
        return True

    def _leaves(self, p: Parsed, event: Index, attributes: Mapping[int, str]) -> None:
        if not attributes:
            return
        names = list(attributes.values())
        own = np.full(len(p.names), -1, np.int32)
        own[list(attributes)] = np.arange(len(names), dtype=np.int32)
        wanted = (own[p.name] >= 0) & (event >= 0)
        for type, kinds in KINDS.items():
            mine = p.kind == kinds[0]
            for kind in kinds[1:]:
                mine |= p.kind == kind
            at = np.flatnonzero(mine & wanted)
            if len(at):
                rank = np.arange(len(at), dtype=np.int64)
                entries = TypedEntries(event[at], rank, own[p.name[at]], vector_of(p, type, at))
                self._found.append((names, entries))

    def _objects(self, p: Parsed, event: Index, number: int, tree: PathTree) -> bool:
        """Go on inside the objects that are the values of a name."""
        at = np.flatnonzero((p.name == number) & (p.kind == NESTED) & (event >= 0))
        at = at[self._raw[p.value[at]] == ord("{")]
        if not len(at):
            return True
        inner = parse_objects(self._raw, p.value[at], p.end[at])
        return not np.any(inner.status == UNUSUAL) and self.inwards(inner, event[at], tree)
