"""Conjunctions and events in codes, made by hand or at random, for indexes that are fed directly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tocsin.match._kernels.scan import scan
from tocsin.match.coded import CodedConjunctions, CodedEvents, CodedIndex
from tocsin.predicate.codes import GREATEST, LEAST
from tocsin.predicate.flat import ABSENT, NEGATED, OR_NEXT

__all__ = [
    "ABSENT",
    "GREATEST",
    "LEAST",
    "NEGATED",
    "OR_NEXT",
    "check",
    "conjunctions",
    "events",
    "expected",
    "matches",
    "random",
    "random_events",
]

Test = tuple[int, int, int] | tuple[int, int, int, int]  # dimension, low, high, flags


def conjunctions(given: Mapping[int, Sequence[Test]]) -> CodedConjunctions:
    """One conjunction per slot, from lists of (dimension, low, high[, flags])."""
    tests = [(*test, 0)[:4] for own in given.values() for test in own]
    columns = list(zip(*tests, strict=True))
    return CodedConjunctions(
        np.array(list(given), np.int32),
        np.cumsum([0, *map(len, given.values())]).astype(np.int64),
        np.array(columns[0], np.int32),
        np.array(columns[1], np.int64),
        np.array(columns[2], np.int64),
        np.array(columns[3], np.uint8),
    )


def events(given: Sequence[Mapping[int, int]], dims: int) -> CodedEvents:
    """Events from dictionaries of codes by dimension."""
    entries = [entry for event in given for entry in sorted(event.items())]
    return CodedEvents(
        np.cumsum([0, *map(len, given)]).astype(np.int64),
        np.array([dim for dim, _ in entries], np.int32),
        np.array([code for _, code in entries], np.int64),
        np.zeros(len(entries), np.bool_),
        dims,
    )


def matches(packed: np.ndarray) -> list[tuple[int, int]]:
    """Sorted (slot, event)."""
    return sorted((int(pair) >> 32, int(pair) & 0xFFFFFFFF) for pair in packed)


def check(index: CodedIndex, kept: CodedConjunctions) -> None:
    """The invariants of an index that was fed directly, and so does not know its slots."""
    index._used = set(kept.slot.tolist())
    index._batches = [(kept.slot.astype(np.int64), None)]  # type: ignore[list-item]
    index._check()


def expected(of: CodedConjunctions, coded: CodedEvents) -> list[tuple[int, int]]:
    return matches(scan(of, coded))


def random(
    rng: np.random.Generator, slots: Sequence[int], dims: int, one_dimension: bool = False
) -> CodedConjunctions:
    """Tests of every shape over values 0..9; with `one_dimension` none that the k-index rejects."""
    given: dict[int, list[Test]] = {}
    for slot in slots:
        tests: list[Test] = []
        for _ in range(rng.integers(1, 5)):
            dim = int(rng.integers(dims))
            alternatives = int(rng.choice([1, 1, 1, 2, 3]))
            for left in reversed(range(alternatives)):
                a, b = sorted(rng.integers(0, 10, 2).tolist())
                low, high = ((a, a), (LEAST, a), (a, GREATEST), (a, b), (LEAST, GREATEST))[rng.integers(5)]
                flags = int(rng.choice([0, 0, 0, NEGATED] if one_dimension else [0, 0, 0, NEGATED, ABSENT]))
                tests.append((dim, low, high, flags | (OR_NEXT if left else 0)))
                dim = dim if one_dimension else int(rng.integers(dims))
        given[slot] = tests
    return conjunctions(given)


def random_events(rng: np.random.Generator, count: int, dims: int) -> CodedEvents:
    named = [rng.choice(dims, rng.integers(0, dims + 1), replace=False).tolist() for _ in range(count)]
    return events([{dim: int(rng.integers(-1, 11)) for dim in own} for own in named], dims)
