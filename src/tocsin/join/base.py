"""The protocol of join rooms.

A join index holds planned joins (equality, band, multi-way) under dense slots. Given a step it
tells every joined row that comes or goes, for every subscription, with its sequence number;
given the database it tells a subscription's whole content (`room.py`). Every subclass in
this folder is found by the contract tests by itself.
"""

from __future__ import annotations

from typing import ClassVar

from tocsin.language.shape import Shape
from tocsin.room import Room

__all__ = ["JoinIndex"]


class JoinIndex(Room):
    """Joins by slot."""

    shapes: ClassVar[tuple[Shape, ...]] = (Shape.JOIN, Shape.BAND, Shape.MULTIWAY)
