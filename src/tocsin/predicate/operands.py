"""Columns of operands as codes: where each lies among the codes of an attribute, without a loop.

An operand's place is the greatest code not above it, and whether that code is its own; with it
every comparison is a closed interval (`codes.interval` says the same of single values).

>>> places = locate_numbers(Type.BIGINT, np.array([2.5, 3.0]))
>>> comparisons(np.array([2, 2]), places)  # n < 2.5, n < 3.0
(array([-9223372036854775808, -9223372036854775808]), array([2, 2]), array([0, 0], dtype=uint8))
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tocsin.model.columns import Index, Mask, double_codes
from tocsin.model.schema import Type
from tocsin.predicate._kernels.flat import comparison_ends
from tocsin.predicate.compile import successor
from tocsin.predicate.flat import as_texts

__all__ = ["COMPARISONS", "Places", "Pool", "betweens", "comparisons", "locate_numbers"]

COMPARISONS = ("=", "!=", "<", "<=", ">", ">=")
Ends = tuple[Index, Index, NDArray[np.uint8]]  # low, high, flags


class Places(NamedTuple):
    """Where operands lie; `fine` is False where only Python's numbers can tell."""

    below: Index
    exact: Mask
    fine: Mask

    def take(self, chosen: Mask) -> Places:
        return Places(self.below[chosen], self.exact[chosen], self.fine[chosen])


def locate_numbers(type: Type, numbers: NDArray[Any]) -> Places:
    """Numbers (int64 or float64) among the codes of a BIGINT or DOUBLE attribute."""
    if numbers.dtype == np.int64:
        if type is Type.BIGINT:
            return Places(numbers, np.ones(len(numbers), np.bool_), np.ones(len(numbers), np.bool_))
        fine = np.abs(numbers) <= 2**53
        return Places(double_codes(numbers.astype(np.float64)), np.ones(len(numbers), np.bool_), fine)
    if type is Type.DOUBLE:
        every = np.ones(len(numbers), np.bool_)
        return Places(double_codes(numbers), every, every)
    fine = np.abs(numbers) < 2.0**63  # neither NaN nor infinite
    floor = np.floor(np.where(fine, numbers, 0.0))
    return Places(floor.astype(np.int64), floor == numbers, fine)


def comparisons(op: NDArray[Any], places: Places) -> Ends:
    """The interval of `attribute op operand`; op is a number in COMPARISONS."""
    low, high = np.empty(len(op), np.int64), np.empty(len(op), np.int64)
    flags = np.empty(len(op), np.uint8)
    comparison_ends(op.astype(np.uint8), places.below, places.exact, low, high, flags)
    return low, high, flags


def betweens(low: Places, high: Places) -> tuple[Index, Index]:
    """The interval of `attribute BETWEEN low AND high`; of no code at all, it is (1, 0)."""
    at_least, at_most = COMPARISONS.index(">="), COMPARISONS.index("<=")
    first = comparisons(np.full(len(low.below), at_least), low)
    last = comparisons(np.full(len(low.below), at_most), high)
    a, z = np.maximum(first[0], last[0]), np.minimum(first[1], last[1])
    empty = a > z
    return np.where(empty, 1, a), np.where(empty, 0, z)


class Pool:
    """Texts of one order, collected from several columns and ranked together at the end.

    >>> pool = Pool()
    >>> at = pool.add(pa.array(["red", "blue"]))
    >>> texts, rank = pool.ranked()
    >>> texts.to_pylist(), (4 * rank[at]).tolist()
    ([b'blue', b'red'], [4, 0])
    """

    def __init__(self) -> None:
        self._parts: list[Any] = []
        self._count = 0

    def add(self, texts: Any) -> Index:
        """The numbers of the texts (an Arrow array without nulls) until they are ranked."""
        coded = texts if pa.types.is_dictionary(texts.type) else texts.dictionary_encode()
        index = coded.indices.to_numpy(zero_copy_only=False).astype(np.int64) + self._count
        self._parts.append(coded.dictionary.cast(pa.large_binary()))
        self._count += len(coded.dictionary)
        return index

    def ranked(self) -> tuple[Any, Index]:
        """All texts in order, and the rank of each number."""
        return as_texts(pa.concat_arrays(self._parts) if self._parts else [])

    def prefixes(self, texts: Any, backwards: bool = False) -> tuple[Index, Index, Mask]:
        """Of each text, its number, that of the first text after all it begins, and whether there is one."""
        coded = texts.dictionary_encode()
        begins = [text.encode() for text in coded.dictionary.to_pylist()]
        begins = [text[::-1] for text in begins] if backwards else begins
        ends = [successor(text) for text in begins]
        first = self.add(pa.array(begins, pa.large_binary()))
        last = self.add(pa.array([end or b"" for end in ends], pa.large_binary()))
        index = coded.indices.to_numpy(zero_copy_only=False)
        bounded = np.array([end is not None for end in ends], np.bool_)
        if not len(index):
            return first, last, bounded
        return first[index], last[index], bounded[index]
