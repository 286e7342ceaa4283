"""Groups by key: each distinct combination of values has a number.

Keys are rows of int64 codes: one for each column, and one for where they are NULL once some are. Numbers,
times and booleans are their own codes (`column_codes`); texts get one when they are first seen, so a look-up
takes no comparison of texts. Numbers of groups that are gone are given again.

>>> from tocsin.model.schema import Type
>>> groups = GroupDirectory([Type.STRING, Type.BIGINT])
>>> keys = [Vector.of(Type.STRING, ["a", None, "a"]), Vector.of(Type.BIGINT, [1, 2, 1])]
>>> groups.number(keys).tolist()
[0, 1, 0]
>>> groups.find([Vector.of(Type.STRING, ["b", "a"]), Vector.of(Type.BIGINT, [1, 1])]).tolist()
[-1, 0]
>>> [vector.to_list() for vector in groups.keys(np.array([1, 0]))]
[[None, 'a'], [2, 1]]
>>> groups.keep(np.array([1])); groups.number([keys[0].take(np.array([2])), Vector.of(Type.BIGINT, [9])])
array([0])
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tocsin.model.columns import Index, Vector, column_codes, from_codes
from tocsin.model.schema import Type
from tocsin.store._kernels.directory import GroupTable, find_groups, place_groups

__all__ = ["GroupDirectory", "TextCodes"]

_NONE = np.empty(0, np.int64)


class TextCodes(dict[str, int]):
    """Codes of texts; a text that is not known gets the next one."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: NDArray[np.object_] = np.full(64, "", object)  # by code
        self._free: list[int] = []

    def __missing__(self, text: str) -> int:
        code = self._free.pop() if self._free else len(self)
        if code >= len(self.texts):
            self.texts = np.concatenate([self.texts, np.full(len(self.texts), "", object)])
        self[text], self.texts[code] = code, text
        return code

    def of(self, texts: Sequence[str]) -> Index:
        """The code of each text."""
        return np.fromiter(map(self.__getitem__, texts), np.int64, len(texts))

    def find(self, texts: Sequence[str]) -> Index:
        """The same; -1 for those that are not known."""
        return np.array([self.get(text, -1) for text in texts], np.int64)

    def keep(self, codes: Index) -> None:
        """Drop all other texts."""
        used = np.zeros(len(self.texts), np.bool_)
        used[codes] = True
        gone = [(text, code) for text, code in self.items() if not used[code]]
        for text, code in gone:
            del self[text]
            self.texts[code] = ""
            self._free.append(code)


class GroupDirectory:
    """Numbers of groups by the values of their keys."""

    def __init__(self, types: Sequence[Type]) -> None:
        self.types = tuple(types)
        self._texts = {n: TextCodes() for n, type in enumerate(self.types) if type is Type.STRING}
        self._table = GroupTable(_places(128), np.zeros((64, max(1, len(self.types))), np.int64))
        self._has_nulls = False  # then the last code says which columns are NULL
        self._used = 0  # numbers given so far
        self._free: Index = _NONE

    def __len__(self) -> int:
        return self._used - len(self._free)

    @property
    def size(self) -> int:
        """Above all numbers in use."""
        return self._used

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays; texts are not in them."""
        return sum(array.nbytes for array in self._table)

    def number(self, keys: Sequence[Vector], count: int | None = None) -> Index:
        """The group of each row, new ones included. Without keys, `count` rows of one group."""
        codes = self._codes(keys, len(keys[0]) if keys else count or 0, new=True)
        assert codes is not None
        return self._find(codes, new=True)

    def find(self, keys: Sequence[Vector]) -> Index:
        """The group of each row; -1 if there is none."""
        return self._find(self._codes(keys, len(keys[0]), new=False), new=False)

    def keys(self, groups: Index) -> list[Vector]:
        """The values of groups, by column."""
        codes, out = self._table.codes[groups], []
        for n, type in enumerate(self.types):
            valid = (codes[:, -1] >> n) & 1 == 0 if self._has_nulls else np.ones(len(codes), np.bool_)
            if type is Type.STRING:
                out.append(Vector(type, np.where(valid, self._texts[n].texts[codes[:, n]], ""), valid))
            else:
                out.append(from_codes(type, codes[:, n], valid))
        return out

    def keep(self, groups: Index) -> None:
        """Drop all other groups; numbers stay."""
        stays = np.zeros(self._used, np.bool_)
        stays[groups] = True
        self._free = np.flatnonzero(~stays)[::-1].copy()
        for n, texts in self._texts.items():
            texts.keep(self._table.codes[groups, n])
        self._rehash(np.asarray(groups, np.int64))

    def _codes(self, keys: Sequence[Vector], count: int, *, new: bool) -> NDArray[np.int64]:
        if not self._has_nulls and any(not vector.valid.all() for vector in keys):
            self._begin_nulls()
        width = self._table.codes.shape[1]
        codes = np.zeros((count, width), np.int64)
        for n, (vector, type) in enumerate(zip(keys, self.types, strict=True)):
            if type is Type.STRING:
                texts = vector.values.tolist()
                found = self._texts[n].of(texts) if new else self._texts[n].find(texts)
            else:
                found = column_codes(vector)
            codes[:, n] = np.where(vector.valid, found, 0)
            if self._has_nulls:
                codes[:, -1] |= np.where(vector.valid, 0, np.int64(1) << n)
        return codes

    def _begin_nulls(self) -> None:
        """A code more for each group."""
        old = self._table.codes
        codes = np.zeros((len(old), len(self.types) + 1), np.int64)
        codes[:, : len(self.types)] = old[:, : len(self.types)]
        self._has_nulls, self._table = True, self._table._replace(codes=codes)
        self._rehash(np.setdiff1d(np.arange(self._used), self._free))

    def _find(self, codes: NDArray[np.int64], *, new: bool) -> Index:
        count = len(codes)
        fresh = _NONE
        if new:
            most = min(count, len(self._free))
            fresh = np.concatenate([self._free[len(self._free) - most :][::-1], self._numbers(count - most)])
            self._reserve(count)
        out = np.empty(count, np.int64)
        given = find_groups(self._table, _hashes(codes), codes, fresh, out)
        reused = min(given, len(self._free)) if new else 0
        self._free = self._free[: len(self._free) - reused]
        self._used += given - reused
        return out

    def _numbers(self, count: int) -> Index:
        return np.arange(self._used, self._used + count)

    def _reserve(self, count: int) -> None:
        """Space for so many more groups."""
        table, needed = self._table, self._used + count
        if needed > len(table.codes):
            codes = np.zeros((max(needed, 5 * len(table.codes) // 4), table.codes.shape[1]), np.int64)
            codes[: len(table.codes)] = table.codes
            self._table = table._replace(codes=codes)
        if 3 * (len(self) + count) > 2 * len(table.place):
            self._rehash(np.setdiff1d(np.arange(self._used), self._free), count)

    def _rehash(self, groups: Index, more: int = 0) -> None:
        self._table = self._table._replace(place=_places(max(64, 2 * (len(groups) + more))))
        place_groups(self._table, groups, _hashes(self._table.codes[groups]))

    def _check(self) -> None:
        """Each group in use is found by its key."""
        groups = np.setdiff1d(np.arange(self._used), self._free)
        found = np.empty(len(groups), np.int64)
        codes = np.ascontiguousarray(self._table.codes[groups])
        find_groups(self._table, _hashes(codes), codes, _NONE, found)
        assert np.array_equal(found, groups)
        assert np.count_nonzero(self._table.place >= 0) == len(groups)


def _places(size: int) -> NDArray[np.int32]:
    return np.full(1 << (size - 1).bit_length(), -1, np.int32)


def _hashes(codes: NDArray[np.int64]) -> Index:
    """A hash of each row."""
    mixed = np.zeros(len(codes), np.uint64)
    for n in range(codes.shape[1]):
        mixed = (mixed ^ codes[:, n].view(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    return mixed.view(np.int64)
