"""The values of a column by group, in order: least, greatest, and how many distinct ones.

Values are int64 codes in trees (`_kernels/trees.py`). Texts have labels in their order (`rank/labels.py`);
when there is no gap left between two of them, all labels are assigned again, to the texts in use, which keeps
the order of the trees.

>>> from tocsin.model.schema import Type
>>> values = GroupValues(Type.STRING)
>>> values.reserve(2)
>>> rows = Vector.of(Type.STRING, ["b", "a", "a", None])
>>> before, after = values.change(np.array([1]), np.array([0, 4]), np.ones(4, np.int64), rows)
>>> values.vector(after[0], after[2] > 0).to_list(), values.vector(after[1], after[2] > 0).to_list()
(['a'], ['b'])
>>> after[2].tolist()  # distinct values of group 1
[2]
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.group._kernels.trees import Forest, ValueChanges, change_values
from tocsin.model.columns import Index, Mask, Vector, column_codes, from_codes, longer
from tocsin.model.schema import Type
from tocsin.rank.labels import TextLabels

__all__ = ["GroupValues"]


class GroupValues:
    """Sorted multisets of values of one type, by number of the group."""

    def __init__(self, type: Type) -> None:
        self.type = type
        self._labels = TextLabels() if type is Type.STRING else None
        self._forest = _forest(16, 16)

    def reserve(self, groups: int) -> None:
        """Space for so many groups."""
        have = len(self._forest.root)
        if groups > have:
            size = max(groups, 2 * have)
            root = longer(self._forest.root, size, -1)
            self._forest = self._forest._replace(root=root, size=longer(self._forest.size, size))

    def change(self, group: Index, first: Index, sign: Index, vector: Vector) -> tuple[Any, Any]:
        """Apply rows touch by touch; (least, greatest, number) by touch before and after, as codes."""
        codes = self._codes(vector)
        self._reserve_nodes(len(codes))
        before, after = np.zeros((2, 3, len(group)), np.int64)
        changes = ValueChanges(group, first, sign, codes, vector.valid)
        change_values(self._forest, changes, before, after)
        return before, after

    def vector(self, codes: Index, valid: Mask) -> Vector:
        """The values that have some codes."""
        if self._labels is None:
            return from_codes(self.type, codes, valid)
        return Vector(self.type, np.where(valid, self._labels.texts_of(codes), ""), valid)

    def ends(self, groups: Index) -> tuple[Index, Index, Index]:
        """Least and greatest code and number of values of some groups."""
        out, none = np.zeros((2, 3, len(groups)), np.int64), np.empty(0, np.int64)
        nothing = ValueChanges(groups, np.zeros(len(groups) + 1, np.int64), none, none, none.astype(np.bool_))
        change_values(self._forest, nothing, *out)
        return out[0, 0], out[0, 1], out[0, 2]

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays; texts are not in them."""
        return sum(array.nbytes for array in self._forest)

    @property
    def nodes(self) -> int:
        """How many distinct values there are in all groups."""
        return len(self._forest.key) - int(self._forest.used[0])

    def _codes(self, vector: Vector) -> Index:
        if self._labels is None:
            return column_codes(vector)
        codes = np.zeros(len(vector), np.int64)
        texts = vector.values[vector.valid]
        found = self._labels.find(texts) if len(self._labels) <= 4 * self.nodes + 4096 else None
        if found is None:
            self._relabel(texts)
            found = self._labels.find(texts)
            assert found is not None
        codes[vector.valid] = found
        return codes

    def _relabel(self, texts: NDArray[Any]) -> None:
        """Assign labels again, to texts in use and these; the order of nodes stays."""
        assert self._labels is not None
        used = self._in_use()
        old, inverse = np.unique(self._forest.key[used], return_inverse=True)
        known = self._labels.texts_of(old)
        self._labels.load(np.concatenate([known, texts]))
        fresh = self._labels.find(known)
        assert fresh is not None
        self._forest.key[used] = fresh[inverse]

    def _in_use(self) -> Index:
        used = np.ones(len(self._forest.key), np.bool_)
        used[self._forest.free[: self._forest.used[0]]] = False
        return np.flatnonzero(used)

    def _reserve_nodes(self, count: int) -> None:
        forest, free = self._forest, int(self._forest.used[0])
        if count <= free:
            return
        have = len(forest.key)
        size = max(2 * have, have + count)
        stack = np.empty(size, np.int32)
        stack[:free] = forest.free[:free]
        stack[free : free + size - have] = np.arange(size - 1, have - 1, -1)
        self._forest = Forest(
            longer(forest.key, size), longer(forest.times, size), longer(forest.left, size),
            longer(forest.right, size), _ranks(size), forest.root, forest.size, stack,
            np.array([free + size - have], np.int64),
        )  # fmt: skip

    def _check(self) -> None:
        """Trees are ordered by value and rank; counts are positive; every node is in one tree."""
        forest, seen = self._forest, 0
        for group in np.flatnonzero(forest.root >= 0).tolist():
            values: list[int] = []
            stack: list[tuple[int, bool]] = [(int(forest.root[group]), False)]
            while stack:
                at, opened = stack.pop()
                if at < 0:
                    continue
                if opened:
                    values.append(int(forest.key[at]))
                    continue
                left, right = int(forest.left[at]), int(forest.right[at])
                assert forest.times[at] > 0
                assert left < 0 or forest.rank[left] < forest.rank[at]
                assert right < 0 or forest.rank[right] <= forest.rank[at]
                stack += [(right, False), (at, True), (left, False)]
            assert values == sorted(set(values)) and len(values) == forest.size[group]
            seen += len(values)
        assert seen == self.nodes
        if self._labels is not None:
            self._labels._check()


def _forest(nodes: int, groups: int) -> Forest:
    key, count = np.zeros((2, nodes), np.int64)
    left, right = np.full((2, nodes), -1, np.int32)
    free = np.arange(nodes - 1, -1, -1, dtype=np.int32)
    root, size = np.full(groups, -1, np.int32), np.zeros(groups, np.int64)
    return Forest(key, count, left, right, _ranks(nodes), root, size, free, np.array([nodes], np.int64))


def _ranks(count: int) -> NDArray[np.int8]:
    """Geometric ranks by node: the zeros that a hash of its number ends with; always the same."""
    mixed = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(32)
    lowest = mixed & (~mixed + np.uint64(1))
    return np.where(lowest == 0, 63, np.log2(np.maximum(lowest, 1).astype(np.float64))).astype(np.int8)
