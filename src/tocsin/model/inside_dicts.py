"""Values at paths of names inside many events: a list for each place, level by level.

>>> tree = {"item": ("", {"brand": ("item.brand", {}), "price": ("", {"net": ("item.price.net", {})})})}
>>> events = [{"item": {"brand": "acme", "price": {"net": 5}}}, {"item": 3}, {"item": {"price": {"net": 7}}}]
>>> [(names, part.event.tolist(), part.vector.to_list()) for names, part in inside_dicts(events, tree)]
[(['item.brand'], [0], ['acme']), (['item.price.net'], [0, 2], [5, 7])]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tocsin.model.cells import is_unicode
from tocsin.model.columns import TypedEntries, Vector
from tocsin.model.event_source import Inside
from tocsin.model.schema import Type

__all__ = ["inside_dict", "inside_dicts"]

_KINDS = {str: Type.STRING, int: Type.BIGINT, float: Type.DOUBLE, bool: Type.BOOLEAN}
_NO_VALUES = {dict, list, type(None)}
_PLAIN = _KINDS.keys() | _NO_VALUES


def inside_dicts(events: Sequence[Mapping[str, Any]], tree: dict[str, tuple[str, Any]]) -> Inside | None:
    """The values at the paths of a tree, with their attributes; None if some are not plain."""
    found: Inside = []
    if set(map(type, events)) <= {dict} and _walk(events, tree, found):
        return found
    return None


def inside_dict(event: Mapping[str, Any], tree: dict[str, tuple[str, Any]], found: dict[str, Any]) -> bool:
    """Add the values at the paths of a tree in one event; False if some of what is there is not plain."""
    for step, (name, inner) in tree.items():
        value = event.get(step)
        kind = value.__class__
        if kind is dict:
            if inner and not inside_dict(value, inner, found):  # type: ignore[arg-type]
                return False
        elif kind in _KINDS:
            if name:
                found[name] = value
        elif kind not in _NO_VALUES:
            return False
    return True


def _walk(values: Sequence[Any], tree: dict[str, tuple[str, Any]], found: Inside) -> bool:
    """Add what is inside some values, one for each event; False if some of it is not plain."""
    for step, (name, inner) in tree.items():
        own = [value.get(step) if type(value) is dict else None for value in values]
        kinds = set(map(type, own))
        if not kinds <= _PLAIN or (name and not _add(name, own, kinds, found)):
            return False
        if inner and dict in kinds and not _walk(own, inner, found):
            return False
    return True


def _add(name: str, values: list[Any], kinds: set[type], found: Inside) -> bool:
    """Add the values of one attribute, those of each type by themselves."""
    for kind in kinds - _NO_VALUES:
        event = [n for n, value in enumerate(values) if type(value) is kind]
        own: list[Any] = values if len(event) == len(values) else [values[n] for n in event]
        if kind is int and (min(own) < -(2**63) or max(own) >= 2**63):
            return False
        if kind is str and not is_unicode("".join(own)):
            return False
        at = np.array(event, np.int64)
        rank, number = np.zeros(len(at), np.int64), np.zeros(len(at), np.int32)
        found.append(([name], TypedEntries(at, rank, number, Vector.of(_KINDS[kind], own))))
    return True
