"""Choices, drawn from Hypothesis.

All generators of this folder take a `Pick` and make plain choices with it. Every choice is a small
integer and its first alternative the simplest one, so drawing is cheap and failures shrink to
first alternatives: short lists, plain names, small numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeVar

from hypothesis import strategies as st

__all__ = ["Pick", "picked"]

T = TypeVar("T")
Draw = Callable[[st.SearchStrategy[int]], int]


@cache
def _upto(last: int) -> st.SearchStrategy[int]:
    return st.integers(0, last)


class Pick:
    """Small choices; the first alternative is what a failure shrinks to."""

    def __init__(self, draw: Draw) -> None:
        self._draw = draw

    def between(self, least: int, most: int) -> int:
        return least if least == most else least + self._draw(_upto(most - least))

    def one(self, choices: Sequence[T]) -> T:
        return choices[self.between(0, len(choices) - 1)]

    def chance(self, percent: int) -> bool:
        return self.between(0, 99) >= 100 - percent

    def some(self, choices: Sequence[T], least: int, most: int) -> list[T]:
        """Some of the choices, each at most once, in a drawn order."""
        left = list(choices)
        return [
            left.pop(self.between(0, len(left) - 1)) for _ in range(self.between(least, min(most, len(left))))
        ]


def picked(make: Callable[..., T]) -> Callable[..., st.SearchStrategy[T]]:
    """A strategy from a function of a `Pick` (and more arguments)."""

    @st.composite
    def strategy(draw: Any, *args: Any, **options: Any) -> T:
        return make(Pick(draw), *args, **options)

    return strategy
