"""Deltas: how answers change, as columns.

A delta is (seq, subscription, +1 or -1, row), and the law is

    content(after) = content(before) + deltas

A `Deltas` holds four parallel arrays, and rows by reference: `sources[source[i]]` is a batch
of rows shared by many deltas and `row[i]` the index in it, so that a row that matches ten
thousand subscriptions is stored once.

>>> from tocsin.model.columns import Rows, Vector
>>> from tocsin.model.schema import Type
>>> rows = Rows.of(x=Vector.of(Type.BIGINT, [7, 7, 8]))
>>> d = Deltas.of([1, 1, 1], [5, 5, 5], [-1, 1, 1], rows, [0, 1, 2])
>>> [(d.seq, d.subscription, d.sign, d.row) for d in d.consolidate()]
[(1, 5, 1, {'x': 8})]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from tocsin.model._kernels import are_ordered
from tocsin.model.buffers import unwritable
from tocsin.model.columns import Index, Mask, Rows
from tocsin.model.json_rows import to_json

__all__ = ["NO_DELTAS", "Delta", "Deltas", "netted", "order_of"]

_FEW = 1024  # fewer rows are sorted faster by columns than by one number


class Delta(NamedTuple):
    """One signed row of one subscription's answer."""

    seq: int
    subscription: int
    sign: int
    row: dict[str, Any]
    subscriber: str | None = None


@dataclass(frozen=True)
class Deltas:
    """Many deltas, columnar. `len` counts signed rows; iterating is for convenience.

    `subscriber` has the name of each delta's subscriber, or None; it is None itself if nobody is named.
    """

    seq: Index
    subscription: Index
    sign: NDArray[np.int8]
    source: NDArray[np.int32]
    row: Index
    sources: tuple[Rows, ...] = ()
    subscriber: NDArray[np.object_] | None = None

    @classmethod
    def of(
        cls, seq: ArrayLike, subscription: ArrayLike, sign: ArrayLike, rows: Rows, row: ArrayLike
    ) -> Deltas:
        """Deltas over one batch of rows; `subscription` and `sign` may be single numbers."""
        at = np.asarray(row, np.int64)
        return cls(
            np.asarray(seq, np.int64),
            np.broadcast_to(np.asarray(subscription, np.int64), at.shape),
            np.broadcast_to(np.asarray(sign, np.int8), at.shape),
            np.zeros(len(at), np.int32),
            at,
            (rows,),
        )

    @classmethod
    def of_one_event(
        cls, seq: int, subscription: Index, rows: Rows, subscriber: NDArray[np.object_] | None = None
    ) -> Deltas:
        """+1 of a single row for each subscription; other arrays are made when they are first read.

        >>> from tocsin.model.one_row import OneEvent
        >>> [*Deltas.of_one_event(7, np.array([3, 5]), OneEvent({"x": 1}))][1]
        Delta(seq=7, subscription=5, sign=1, row={'x': 1}, subscriber=None)
        """
        made = object.__new__(cls)
        fields = made.__dict__
        fields["subscription"], fields["sources"] = subscription, (rows,)
        fields["subscriber"], fields["_seq"] = subscriber, seq
        return made

    def __getattr__(self, name: str) -> Any:
        """An array of `of_one_event` that was not read yet."""
        make = _OF_ONE_EVENT.get(name)
        if make is None:
            raise AttributeError(name, name=name, obj=self)
        made = self.__dict__[name] = make(self)
        return made

    @classmethod
    def none(cls) -> Deltas:
        empty = np.empty(0, np.int64)
        return cls(empty, empty, np.empty(0, np.int8), np.empty(0, np.int32), empty)

    @classmethod
    def concat(cls, parts: Iterable[Deltas]) -> Deltas:
        """Concatenated."""
        parts = [part for part in parts if len(part)]
        if len(parts) <= 1:
            return parts[0] if parts else cls.none()
        base = np.cumsum([0] + [len(part.sources) for part in parts[:-1]])
        return cls(
            np.concatenate([p.seq for p in parts]),
            np.concatenate([p.subscription for p in parts]),
            np.concatenate([p.sign for p in parts]),
            np.concatenate([p.source + np.int32(b) for p, b in zip(parts, base, strict=True)]),
            np.concatenate([p.row for p in parts]),
            tuple(rows for p in parts for rows in p.sources),
            _concatenated_names(parts),
        )

    def __len__(self) -> int:
        return len(self.subscription)

    def __iter__(self) -> Iterator[Delta]:
        rows = self.rows()
        names = repeat(None, len(self)) if self.subscriber is None else self.subscriber.tolist()
        fields = (self.seq.tolist(), self.subscription.tolist(), self.sign.tolist(), rows, names)
        return (Delta(*values) for values in zip(*fields, strict=True))

    def __repr__(self) -> str:
        return f"<{len(self)} deltas>"

    def take(self, index: Index | Mask) -> Deltas:
        return Deltas(
            self.seq[index],
            self.subscription[index],
            self.sign[index],
            self.source[index],
            self.row[index],
            self.sources,
            None if self.subscriber is None else self.subscriber[index],
        )

    def at(self, seq: int) -> Deltas:
        """The same, all at one sequence number."""
        return replace(self, seq=np.full(len(self), seq, np.int64))

    def negated(self) -> Deltas:
        """The deltas that undo these."""
        return replace(self, sign=-self.sign)

    def named(self, ids: Index, subscribers: NDArray[np.object_] | None = None) -> Deltas:
        """With the users' subscription ids in place of slots, and the names of subscribers by slot."""
        names = None if subscribers is None else subscribers[self.subscription]
        made = object.__new__(Deltas)  # arrays that were not read yet stay so
        fields = made.__dict__
        fields.update(self.__dict__)
        fields["subscription"], fields["subscriber"] = ids[self.subscription], names
        fields.pop("_in_order", None)
        return made

    def rows(self) -> list[dict[str, Any]]:
        """The rows as dicts, one per delta."""
        out: list[dict[str, Any]] = [{}] * len(self)
        for where, rows in self._by_source():
            for i, row in zip(where.tolist(), rows.to_dicts(self.row[where]), strict=True):
                out[i] = row
        return out

    def to_arrow(self, rows: bool = False) -> Any:
        """A pyarrow Table with `seq`, `subscription`, `sign`; with `rows`, also `row`: JSON objects as text.

        Without rows it costs nothing: the columns are the arrays of the deltas. With rows, each distinct row
        is written once.

        >>> from tocsin.model.columns import Vector
        >>> from tocsin.model.schema import Type
        >>> rows = Rows.of(x=Vector.of(Type.BIGINT, [7, 8]))
        >>> deltas = Deltas.of([1, 2, 2], [5, 5, 6], [1, -1, 1], rows, [0, 0, 1])
        >>> deltas.to_arrow().column_names
        ['seq', 'subscription', 'sign']
        >>> deltas.to_arrow(rows=True).to_pylist()[1]
        {'seq': 2, 'subscription': 5, 'sign': -1, 'row': '{"x":7}'}
        """
        columns = {
            "seq": pa.array(self.seq),
            "subscription": pa.array(self.subscription),
            "sign": pa.array(self.sign),
        }
        if rows:
            texts, places = [pa.array([], pa.string())], [np.empty(0, np.int64)]
            for where, source in self._by_source():
                unique, inverse = np.unique(self.row[where], return_inverse=True)
                texts.append(to_json(source, unique).take(pa.array(inverse)))
                places.append(where)
            order = np.argsort(np.concatenate(places))
            columns["row"] = pa.concat_arrays(texts).take(pa.array(order))
        return pa.table(columns)

    def consolidate(self) -> Deltas:
        """Equal rows of one (seq, subscription) cancel or add up; -1 before +1, in order of seq.

        O(n log n). Two equal rows that remain stay two deltas.
        """
        if not len(self):
            return self
        if len(self.sources) > 1:
            self = self._with_joined_sources()
        code = np.empty(len(self), np.int64)
        for where, rows in self._by_source():
            unique, inverse = np.unique(self.row[where], return_inverse=True)
            code[where] = rows.take(unique).codes()[inverse]
        order = order_of([self.seq, self.subscription, self.source, code])
        keys = [a[order] for a in (self.seq, self.subscription, self.source, code)]
        fresh = np.ones(len(order), np.bool_)
        fresh[1:] = np.logical_or.reduce([k[1:] != k[:-1] for k in keys])
        first = np.flatnonzero(fresh)
        total = np.add.reduceat(self.sign[order].astype(np.int64), first)
        chosen = np.repeat(order[first], np.abs(total))
        sign = np.repeat(np.sign(total), np.abs(total)).astype(np.int8)
        return replace(self.take(chosen), sign=sign).ordered()

    def cancelled_between(self, part: Index) -> Deltas:
        """Consolidated, where the deltas of each `part` of a subscription are consolidated already.

        So rows are compared only where several parts change at a seq, and something is lost and gained.
        """
        if not len(self):
            return self
        order = order_of([self.seq, self.subscription])
        seq, own, sign, part = self.seq[order], self.subscription[order], self.sign[order], part[order]
        fresh = np.ones(len(order), np.bool_)
        fresh[1:] = (seq[1:] != seq[:-1]) | (own[1:] != own[:-1])
        first, group = np.flatnonzero(fresh), np.cumsum(fresh) - 1
        mixed = np.logical_or.reduceat(part != part[first][group], first)
        mixed &= np.minimum.reduceat(sign, first) != np.maximum.reduceat(sign, first)
        some = mixed[group]
        if not some.any():
            return self
        return Deltas.concat([self.take(order[~some]), self.take(order[some]).consolidate()])

    def _with_joined_sources(self) -> Deltas:
        """The same, with sources of the same columns as one: only rows of one source are compared."""
        groups: dict[Any, list[int]] = {}
        for n, rows in enumerate(self.sources):
            alike = n if rows.sparse else tuple((name, vector.type) for name, vector in rows.columns)
            groups.setdefault(alike, []).append(n)
        if len(groups) == len(self.sources):
            return self
        source, first = np.empty((2, len(self.sources)), np.int64)
        for number, some in enumerate(groups.values()):
            source[some] = number
            first[some] = np.cumsum([0, *(len(self.sources[n]) for n in some[:-1])])
        joined = tuple(Rows.concat([self.sources[n] for n in some]) for some in groups.values())
        own = source[self.source].astype(np.int32)
        return replace(self, source=own, row=self.row + first[self.source], sources=joined)

    def ordered(self) -> Deltas:
        """In order of seq, then subscription, -1 before +1. O(n) if they are already."""
        if "_in_order" in self.__dict__:
            return self
        columns: list[Any] = [self.seq, self.subscription, self.sign]
        if len(self) < 2 or are_ordered(*map(unwritable, columns)):
            return self
        return self.take(order_of([self.seq, self.subscription, self.sign]))

    def in_order(self) -> Deltas:
        """The same, known to be `ordered`."""
        self.__dict__["_in_order"] = True
        return self

    def _by_source(self) -> Iterator[tuple[Index, Rows]]:
        order = np.argsort(self.source, kind="stable")
        cuts: Sequence[int] = np.searchsorted(self.source[order], np.arange(len(self.sources) + 1)).tolist()
        for rows, start, stop in zip(self.sources, cuts[:-1], cuts[1:], strict=True):
            if stop > start:
                yield order[start:stop], rows


_OF_ONE_EVENT: dict[str, Callable[[Any], NDArray[Any]]] = {
    "seq": lambda deltas: np.full(len(deltas), deltas.__dict__["_seq"], np.int64),
    "sign": lambda deltas: np.ones(len(deltas), np.int8),
    "source": lambda deltas: np.zeros(len(deltas), np.int32),
    "row": lambda deltas: np.zeros(len(deltas), np.int64),
}


def _concatenated_names(parts: Sequence[Deltas]) -> NDArray[np.object_] | None:
    """The subscribers of all parts; None if no part names any."""
    if all(part.subscriber is None for part in parts):
        return None
    unnamed = (np.full(len(p), None) if p.subscriber is None else p.subscriber for p in parts)
    return np.concatenate(list(unnamed))


NO_DELTAS = Deltas.none()
"""Shared by all changes that change no answer; its arrays cannot be written to."""
for _array in (NO_DELTAS.seq, NO_DELTAS.subscription, NO_DELTAS.sign, NO_DELTAS.source, NO_DELTAS.row):
    _array.flags.writeable = False


# -- orders and cancellation -----------------------------------------------------------------------


def netted(columns: Sequence[Index], sign: NDArray[np.int8]) -> Index:
    """Which signed rows are left when equal ones of opposite sign cancel, ascending in `columns`.

    >>> netted([np.array([1, 1, 1]), np.array([5, 5, 6])], np.array([-1, 1, 1], np.int8)).tolist()
    [2]
    """
    order = order_of(columns)
    fresh = np.logical_or.reduce([column[order][1:] != column[order][:-1] for column in columns])
    begin = np.flatnonzero(np.concatenate([[True], fresh])) if len(order) else np.empty(0, np.int64)
    size = np.diff(np.append(begin, len(order)))
    total = np.add.reduceat(sign[order].astype(np.int64), begin) if len(order) else begin
    # of each run, as many rows of the sign that is left as there are more of it
    run = np.repeat(np.arange(len(begin)), size)
    mine = np.sign(total)[run] == sign[order]
    nth = np.cumsum(mine) - np.concatenate([[0], np.cumsum(mine)])[begin][run]
    return order[mine & (nth <= np.abs(total)[run])]


def order_of(columns: Sequence[NDArray[Any]]) -> Index:
    """The stable order of rows by their columns, the first one first: one sort of one number if they fit."""
    key = None if len(columns[0]) < _FEW else _one_key(columns)
    return np.lexsort(columns[::-1]) if key is None else np.argsort(key, kind="stable")


def _one_key(columns: Sequence[NDArray[Any]]) -> Index | None:
    """Columns as one number per row, of the same order; None if that takes more than an int64."""
    key, width = np.zeros(len(columns[0]), np.int64), 1
    if not len(key):
        return key
    for column in columns:
        least = int(column.min())
        span = int(column.max()) - least + 1
        width *= span
        if width >= 2**63:
            return None
        key = key * span + (column - least)
    return key
