"""Shorter code means the same: variables in memory or not, arrays read and copied, arguments borrowed."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np
import pytest

from tocsin.compiled import Kernel, kernel


class Both(NamedTuple):
    one: Any
    other: Any
    count: Any


@kernel
def variables(numbers, limit):
    """Set in some iterations, read in later ones; swapped; set on one path only."""
    last, before, seen = 0, 1, 0
    for n in range(len(numbers)):
        number = numbers[n]
        if number > limit:
            twice = number * 2
            last, before = before + twice, last
        elif number < 0:
            seen += 1
            continue
        else:
            before -= number
        if seen > 3:
            break
    return last, before, seen


@kernel
def elements(flat, square, at):
    """Negative, unsigned and mixed indices; elements written and read again."""
    flat[-1] += flat[at] + flat[np.uint64(1)]
    square[at, -1] = flat[-1]
    square[np.uint32(0), at] += 5
    return flat[-1] + square[at, square.shape[1] - 1] + square[0][at] + len(flat) + square.size


@kernel
def reshaped(numbers, flag):
    """A copy to memory that only one path needs."""
    total = numbers[0]
    if flag:
        for row in numbers.reshape(2, -1):
            total += row[0] * row[-1]
    return total


@kernel
def _chosen(both, flag):
    _, other, _ = both
    return both.one if flag else other


@kernel
def passed_on(both, flag):
    """Arguments, their fields and other names for them are returned, replaced and put into tuples."""
    name = both
    array = name.one
    if both.count > 2:
        array = np.zeros(3, np.int64)
    again = Both(_chosen(name, flag), array, name.count + 1)
    return again.one, again.other, Both(again.other, again.one, again.count)


def same(tested: Kernel, *args: Any) -> None:
    """Interpreted and compiled results and effects are equal, and no reference to an array is kept."""
    copies = [arg.copy() if isinstance(arg, np.ndarray) else arg for arg in args]
    held = [part for arg in args for part in (arg if isinstance(arg, tuple) else (arg,))]
    arrays = [part for part in held if isinstance(part, np.ndarray)]
    expected, compiled = tested.py_func(*copies), tested.compiled()
    before = [sys.getrefcount(array) for array in arrays]
    result = compiled(*args)
    np.testing.assert_equal(_plain(result), _plain(expected))
    np.testing.assert_equal(_plain(args), _plain(copies))
    del result
    for _ in range(3):
        compiled(*args)
    assert [sys.getrefcount(array) for array in arrays] == before


def _plain(value: Any) -> Any:
    return [_plain(part) for part in value] if isinstance(value, tuple | list) else np.asarray(value).tolist()


@pytest.mark.parametrize("limit", [-5, 0, 3, 100])
def test_variables(limit: int) -> None:
    same(variables, np.array([3, -1, 7, 0, 2, -4, 9, -1, -1, 5]), limit)


def test_elements() -> None:
    for at in (0, 1, -1):
        same(elements, np.arange(4), np.arange(12).reshape(3, 4), at)


def test_a_copy_on_one_path() -> None:
    for flag in (True, False):
        same(reshaped, np.arange(1, 9), flag)


@pytest.mark.parametrize("count", [1, 5])
def test_borrowed_arguments(count: int) -> None:
    for flag in (True, False):
        same(passed_on, Both(np.arange(3), np.arange(5), count), flag)
