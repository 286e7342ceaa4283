"""Choices, drawn from Hypothesis.

All generators of this folder take a `Pick` and make plain choices with it. An example is one string
of bytes, and a choice reads the next one; after the last, every choice is the first
alternative. So drawing is cheap, every example is a new one (Hypothesis varies examples of many
small parts only a little from one to the next), and failures shrink to zero bytes: as the
first alternative is the simplest, to short lists, plain names, small numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from hypothesis import strategies as st

__all__ = ["Pick", "picked"]

T = TypeVar("T")
_LENGTH = 600  # few examples make more choices


class Pick:
    """Small choices; the first alternative is what a failure shrinks to."""

    def __init__(self, drawn: bytes) -> None:
        self._bytes = iter(drawn)

    def between(self, least: int, most: int) -> int:
        """One of at most 256 numbers, nearly all alike."""
        return least if least == most else least + (next(self._bytes, 0) * (most - least + 1) >> 8)

    def one(self, choices: Sequence[T]) -> T:
        return choices[self.between(0, len(choices) - 1)]

    def chance(self, percent: int) -> bool:
        return self.between(0, 99) >= 100 - percent

    def some(self, choices: Sequence[T], least: int, most: int) -> list[T]:
        """Some of the choices, each at most once, in a drawn order."""
        left = list(choices)
        count = self.between(least, min(most, len(left)))
        return [left.pop(self.between(0, len(left) - 1)) for _ in range(count)]


def picked(make: Callable[..., T]) -> Callable[..., st.SearchStrategy[T]]:
    """A strategy from a function of a `Pick` (and more arguments)."""

    @st.composite
    def strategy(draw: Any, *args: Any, **options: Any) -> T:
        return make(Pick(draw(st.binary(min_size=_LENGTH, max_size=_LENGTH))), *args, **options)

    return strategy
