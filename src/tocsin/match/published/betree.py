"""BE-Tree: conjunctions divided by attribute, then by value, then by attribute again.

A leaf holds a few conjunctions. When it is full, the attribute that most of them have and that excludes most
events gets a tree of its own below the leaf, and the conjunctions with it move there. That tree halves the
range of the attribute's values repeatedly, and each conjunction lies at the smallest interval that
covers its test of the attribute; a leaf with too many is divided by the next attribute.

    leaf  D >= 12 AND E <= 9
      A   |1 ............. 50|   A >= 3            an event with A = 2 follows one path from 1..50
          |1 ... 25|26 ... 50|   A <= 8            to the smallest interval that exists, and checks
          |1..13|                A = 2 AND B = 3   every leaf on it

Sadoghi, Jacobsen, "BE-Tree" (SIGMOD 2011), as O14 uses it (section 3): leaves of five. What differs:

    intervals   codes have no small domain: the range of a dimension's operands is halved, and the outer
                intervals reach to the ends of all codes, so that they also cover later operands
    score       the sum over a full leaf of 1 - (share of conjunctions with the attribute) x (share of
                its range that the interval covers); without the paper's counts of false candidates
    leaves      are lists, verified test by test; the paper keeps bitmaps of predicates in them
    deletion    unlinks; empty nodes stay until half of all is deleted, then the tree is rebuilt
    beyond      alternatives over several attributes and IS NULL do not divide, they are only verified
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from tocsin.match.coded import CodedConjunctions, CodedEvents, CodedIndex
from tocsin.match.published._kernels import betree as kernel
from tocsin.model.columns import Index
from tocsin.predicate.codes import GREATEST, LEAST

__all__ = ["BETree", "BETreeConfig"]

Pool = TypeVar("Pool", CodedConjunctions, kernel.Keys)


@dataclass(frozen=True)
class BETreeConfig:
    """How many conjunctions a leaf holds before it is divided."""

    most: int = 5


class BETree(CodedIndex):
    """A tree by attributes and intervals in turn.

    An event follows one path in each tree of its attributes: O(visited leaves). Inserting is O(depth), plus
    dividing full leaves.

    >>> index = BETree()
    >>> index._insert(CodedConjunctions(np.arange(8, dtype=np.int32), np.arange(9), np.zeros(8, np.int32),
    ...     np.arange(8), np.arange(8) + 1, np.zeros(8, np.uint8)))
    >>> events = CodedEvents(np.arange(2), np.zeros(1, np.int32), np.array([3]), np.zeros(1, np.bool_), 1)
    >>> sorted((index._match(events) >> 32).tolist())
    [2, 3]
    >>> index.shape()["attributes"]
    1
    """

    def __init__(self, config: BETreeConfig | None = None) -> None:
        super().__init__()
        self._config = config or BETreeConfig()
        self._clear()

    def _clear(self) -> None:
        none, zero = np.empty(0, np.int64), np.zeros(1, np.int64)
        dims, flags = np.empty(0, np.int32), np.empty(0, np.uint8)
        self._tree = kernel.new_tree(self._config.most)
        self._links = np.empty((0, 3), np.int32)
        self._given = CodedConjunctions(
            dims, zero, dims, none, none, flags
        )  # with spare capacity, as all pools
        self._keys = kernel.Keys(zero, dims, none, none, np.empty(0))
        self._count = self._alive = 0
        self._domain = none, none  # by dimension: least and greatest operand
        self._tests = np.zeros(0)  # by dimension: number of tests

    def _insert(self, added: CodedConjunctions) -> None:
        self._widen(added)
        presence = np.minimum(1, self._tests / (self._count + len(added.slot)))
        keys = kernel.Keys(*kernel.keys_of(added, self._domain, presence))
        first, last = self._count, self._count + len(added.slot)
        links = np.full((len(added.slot), 3), -1, np.int32)
        self._given = _appended(self._given, added, first)
        self._keys = _appended(self._keys, keys, first)
        self._links = _extended(self._links, links, first)
        self._tree = kernel.insert(
            self._tree, self._links, self._keys, self._domain, (first, last), self._config.most
        )
        self._count, self._alive = last, self._alive + len(added.slot)

    def _delete(self, slots: Index) -> None:
        removed = np.isin(self._given.slot[: self._count], slots) & (
            self._links[: self._count, kernel.HOME] >= 0
        )
        kernel.delete(self._tree, self._links, np.flatnonzero(removed))
        self._alive -= int(removed.sum())
        if 2 * self._alive < self._count:
            stay = np.flatnonzero(self._links[: self._count, kernel.HOME] >= 0)
            alive = self._given._replace(start=self._given.start[: self._count + 1]).take(stay)
            self._clear()
            if len(alive.slot):
                self._insert(alive)

    def _match(self, events: CodedEvents) -> Index:
        return kernel.match_tree(self._tree, self._links, self._given, events)

    def _widen(self, added: CodedConjunctions) -> None:
        """Extends the ranges by new dimensions and operands."""
        more = max(0, int(added.dim.max()) + 1 - len(self._tests))
        low = np.append(self._domain[0], np.full(more, GREATEST))
        high = np.append(self._domain[1], np.full(more, LEAST))
        for operand, unbounded in ((added.low, LEAST), (added.high, GREATEST)):
            own = operand != unbounded
            np.minimum.at(low, added.dim[own], operand[own])
            np.maximum.at(high, added.dim[own], operand[own])
        self._domain = low, high
        self._tests = np.append(self._tests, np.zeros(more)) + np.bincount(
            added.dim, minlength=len(self._tests) + more
        )

    # -- inspection -----------------------------------------------------------------------------

    def shape(self) -> dict[str, int]:
        """Nodes, attribute trees, and the fullest leaf."""
        nodes, attributes = self._tree.used.tolist()
        fullest = int(self._tree.node[:nodes, kernel.COUNT].max())
        return {"nodes": nodes, "attributes": attributes, "fullest": fullest}

    def stats(self) -> dict[str, Any]:
        return {**super().stats(), **self.shape()}

    def _check(self) -> None:
        super()._check()
        node, seen = self._tree.node.tolist(), 0
        for n in range(int(self._tree.used[0])):
            row, c, count = node[n], node[n][kernel.HEAD], 0
            path = [n]  # up to the root, whose dimension is -1
            while path[-1] > 0:
                path.append(node[path[-1]][kernel.UP])
            while c >= 0:
                assert self._links[c, kernel.HOME] == n
                if row[kernel.DIM] >= 0:  # it has every attribute on the path, and this interval covers it
                    keys = [self._key(c, node[up][kernel.DIM]) for up in path[:-1]]
                    low, high = keys[0]
                    assert row[kernel.LOW] <= low and high <= row[kernel.HIGH]
                    if row[kernel.LEFT] >= 0:
                        middle = node[row[kernel.LEFT]][kernel.HIGH]
                        assert low <= middle < high, "a half would cover it"
                count, c = count + 1, int(self._links[c, kernel.AFTER])
            assert count == row[kernel.COUNT] <= row[kernel.CAP], "a leaf is over its capacity"
            seen += count
            if row[kernel.LEFT] >= 0:
                left, right = node[row[kernel.LEFT]], node[row[kernel.RIGHT]]
                assert row[kernel.LOW] == left[kernel.LOW] <= left[kernel.HIGH] == right[kernel.LOW] - 1
                assert right[kernel.HIGH] == row[kernel.HIGH]
            dims = [node[up][kernel.DIM] for up in path]
            assert len(dims) == len(set(dims)), "an attribute divides twice on one path"
        assert seen == self._alive == int(np.sum(self._links[: self._count, kernel.HOME] >= 0))

    def _key(self, c: int, dim: int) -> tuple[int, int]:
        own = slice(self._keys.start[c], self._keys.start[c + 1])
        (k,) = np.flatnonzero(self._keys.dim[own] == dim)
        return int(self._keys.low[own][k]), int(self._keys.high[own][k])


def _appended(pool: Pool, more: Pool, count: int) -> Pool:
    """A pool of `count` conjunctions, and their tests or keys, with more appended."""
    parts = int(pool.start[count])
    grown: dict[str, Any] = {}
    for name in pool._fields:
        old, new = getattr(pool, name), getattr(more, name)
        if name == "start":
            grown[name] = _extended(old, new[1:] + parts, count + 1)
        else:
            grown[name] = _extended(old, new, count if name == "slot" else parts)
    return pool._replace(**grown)


def _extended(array: Any, more: Any, used: int) -> Any:
    """Appends after the used part; doubles the capacity if it is full."""
    if used + len(more) > len(array):
        larger = np.empty((max(used + len(more), 2 * len(array)), *array.shape[1:]), array.dtype)
        larger[:used] = array[:used]
        array = larger
    array[used : used + len(more)] = more
    return array
