"""Machine instructions that kernels may use, with their meaning in Python.

Numba has no name for a prefetch, for counting zeros, for the cycle counter, or for a vector register of eight
words (512 events, one bit each). `intrinsics.py` emits them; interpreted, eight words are a NumPy array.

>>> import numpy as np
>>> rows = np.repeat(np.array([1, 7, 4], np.uint64), 8)
>>> int(count_ones(and_words(between(rows, 8, 0), between(rows, 8, 16))))  # 7 & ~1, 7 & ~4: one bit, 8 words
8
"""

from __future__ import annotations

from typing import Any

from tocsin.compiled.kernel import Instruction

__all__ = [
    "and_words", "between", "but_not", "count_ones", "cycles", "ones", "prefetch", "put_words",
    "trailing_zeros",
]  # fmt: skip


@Instruction
def trailing_zeros(x: Any) -> int:
    """Of a uint64; 64 if it is 0."""
    return (int(x) & -int(x)).bit_length() - 1 if x else 64


@Instruction
def ones(x: Any) -> int:
    """How many bits of a uint64 are set."""
    return int(x).bit_count()


@Instruction
def prefetch(array: Any, offset: Any) -> None:
    """Load the cache line of the flat element `offset` of an array in C order."""


@Instruction
def cycles() -> int:
    """The processor's cycle counter; 0 if it has none, and interpreted."""
    return 0


@Instruction
def between(rows: Any, upto: Any, below: Any) -> Any:
    """Eight words of rows from `upto` on, and not those from `below` on."""
    return rows[int(upto) : int(upto) + 8] & ~rows[int(below) : int(below) + 8]


@Instruction
def and_words(one: Any, other: Any) -> Any:
    """Bits of both."""
    return one & other


@Instruction
def but_not(one: Any, other: Any) -> Any:
    """Bits of the first that the second has not."""
    return one & ~other


@Instruction
def count_ones(words: Any) -> int:
    """How many bits are set."""
    return sum(int(word).bit_count() for word in words)


@Instruction
def put_words(words: Any, out: Any) -> None:
    """Write eight words to the beginning of an array."""
    out[:8] = words
