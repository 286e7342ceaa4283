"""The protocol of rank rooms.

A rank index holds planned extremes, aggregates, distincts and top-k under dense slots. Given a
step it tells how every answer changes, change by change; given the database it tells a
subscription's whole content, top-k in order (`room.py`). Every subclass in this folder is
found by the contract tests by itself.
"""

from __future__ import annotations

from typing import ClassVar

from tocsin.language.shape import Shape
from tocsin.room import Room

__all__ = ["RankIndex"]


class RankIndex(Room):
    """Ranks and aggregates by slot."""

    shapes: ClassVar[tuple[Shape, ...]] = (Shape.EXTREME, Shape.AGGREGATE, Shape.DISTINCT, Shape.TOPK)
