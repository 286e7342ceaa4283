"""Conditions that several rule languages use: paths, folded texts, elements of lists.

>>> print(contains(column("item.name"), "50%", folded=True))
item.name ILIKE '%50\\\\%%'
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tocsin.language.algebra import (
    And,
    Column,
    Compare,
    Exists,
    Ilike,
    Like,
    Or,
    Predicate,
    Truth,
)
from tocsin.model.paths import Path, Step

__all__ = [
    "all_of", "any_of", "column", "contains", "element", "escaped", "exists_in", "like",
]  # fmt: skip


def column(path: str | Sequence[Step]) -> Column:
    """The attribute at a path: names with dots between them, or steps."""
    steps = tuple(path.split(".")) if isinstance(path, str) else tuple(path)
    return Column(Path(steps).name)


def escaped(text: str) -> str:
    """A text as a pattern of LIKE that only it matches."""
    return re.sub(r"([\\%_])", r"\\\1", text)


def like(where: Column, pattern: str, *, folded: bool = False) -> Predicate:
    """The text matches a pattern of LIKE."""
    return Ilike(where, pattern) if folded else Like(where, pattern)


def contains(where: Column, text: str, *, folded: bool = False) -> Predicate:
    """The text contains another."""
    return like(where, f"%{escaped(text)}%", folded=folded)


def any_of(parts: Sequence[Predicate]) -> Predicate:
    """One of the conditions holds."""
    flat = [arg for part in parts for arg in (part.args if isinstance(part, Or) else (part,))]
    return Truth(False) if not flat else flat[0] if len(flat) == 1 else Or(tuple(dict.fromkeys(flat)))


def all_of(parts: Sequence[Predicate]) -> Predicate:
    """All conditions hold."""
    flat = [arg for part in parts for arg in (part.args if isinstance(part, And) else (part,))]
    return Truth(True) if not flat else flat[0] if len(flat) == 1 else And(tuple(dict.fromkeys(flat)))


def element(level: int, steps: Sequence[Step] = ()) -> tuple[Step, ...]:
    """The steps from the element of a condition on elements, at a level of nesting; 0 is the event."""
    return (f"e{level}", *steps) if level else tuple(steps)


def exists_in(steps: Sequence[Step], where: Predicate, level: int) -> Compare:
    """An element of the list there meets a condition, which is about `element(level + 1)`."""
    return Compare(Exists(str(Path(tuple(steps))), where, f"e{level + 1}").column, "=", True)
