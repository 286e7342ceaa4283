"""Clients: what a subscriber keeps of the messages it hears, and the content of its join.

    `SemijoinContents`  the rows of both semijoins; discards rows whose last partner has left, by itself
    `SelectionContents` all rows that its ranges select, partner or not
    `PairContents`      the joined rows as they are
    `TopkContents`      the first k rows of a range or of a box
    `ValueContents`     one value, or none: a minimum or a maximum
    `DistinctContents`  a set of values
    `ExtremeContents`   all rows of a range, of which one has the least or the greatest value

A client applies the messages of one change together, in order of `step`. It passes over a GONE of an id that
it does not hold: loss is detected by watermarks, not by content.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

from tocsin.model.message import MessageKind, Messages

__all__ = [
    *("Bodies", "Contents", "DistinctContents", "ExtremeContents", "Held", "PairContents"),
    *("SelectionContents", "SemijoinContents", "TopkContents", "ValueContents"),
]

Held = dict[int, tuple[int, Hashable]]
"""Rows by id: key and body."""
Bodies = Mapping[int, Mapping[int, Hashable]]
"""The rows of each side by id, as clients get them with messages."""
_COMES = (MessageKind.ROW, MessageKind.EXPOSE)
_NO_BODIES: Bodies = {}


class Contents(ABC):
    """What one subscription keeps."""

    @abstractmethod
    def hear(self, messages: Messages, bodies: Bodies) -> None:
        """Apply the messages of one change that are for this client, in order of `step`."""

    @abstractmethod
    def content(self) -> Any:
        """Of joins the joined rows, as a bag of pairs of bodies."""


class SelectionContents(Contents):
    """Rows by side and id, as messages say."""

    def __init__(self, held: tuple[Held, Held]) -> None:
        self.held = held

    def hear(self, messages: Messages, bodies: Bodies) -> None:
        for kind, side, key, row in _rows_of(messages):
            if kind in _COMES:
                self.held[side][row] = key, bodies[side][row]
            elif kind == MessageKind.GONE:
                self.held[side].pop(row, None)
            elif kind == MessageKind.DROP:
                for gone in [i for i, (other, _) in self.held[side].items() if other == key]:
                    del self.held[side][gone]

    def content(self) -> Counter[tuple[Any, Any]]:
        by_key: dict[int, list[Hashable]] = {}
        for key, body in self.held[1].values():
            by_key.setdefault(key, []).append(body)
        return Counter((body, other) for key, body in self.held[0].values() for other in by_key.get(key, ()))


class SemijoinContents(SelectionContents):
    """As above, and without rows that have no partner."""

    def hear(self, messages: Messages, bodies: Bodies) -> None:
        super().hear(messages, bodies)
        for side in (0, 1):
            keys = {key for key, _ in self.held[1 - side].values()}
            for row in [row for row, (key, _) in self.held[side].items() if key not in keys]:
                del self.held[side][row]


class PairContents(Contents):
    """A bag of joined rows."""

    def __init__(self, pairs: Iterable[tuple[int, int]], bodies: Bodies) -> None:
        self.pairs = {(r, s): (bodies[0][r], bodies[1][s]) for r, s in pairs}

    def hear(self, messages: Messages, bodies: Bodies) -> None:
        for kind, r, s in zip(
            messages.kind.tolist(), messages.row.tolist(), messages.partner.tolist(), strict=True
        ):
            if kind == MessageKind.JOINED:
                self.pairs[r, s] = bodies[0][r], bodies[1][s]
            else:
                self.pairs.pop((r, s), None)

    def content(self) -> Counter[tuple[Any, Any]]:
        return Counter(self.pairs.values())


class TopkContents(Contents):
    """Rows by id with their keys, which are their places in the order: the first k, or all of a range.

    >>> client = TopkContents(2, [(10, 1), (20, 2)])
    >>> client.content()
    [(10, 1), (20, 2)]
    """

    def __init__(self, k: int, rows: Iterable[tuple[int, int]], *, keeps_all: bool = False) -> None:
        self.k = k
        self._limit = None if keeps_all else k
        self._key = {row: key for key, row in rows}
        self._body: dict[int, Hashable] = {}
        self._seq = -1

    def hear(self, messages: Messages, bodies: Bodies = _NO_BODIES) -> None:
        """Of more than k rows the last one is discarded. No change before the last one heard."""
        if len(messages) and messages.seq[0] < self._seq:
            raise ValueError(
                f"event {messages.seq[0]} comes after event {self._seq}: events must be in order"
            )
        for kind, side, key, row in _rows_of(messages):
            self._key.pop(row, None)
            if kind in _COMES:
                self._key[row], self._body[row] = key, bodies.get(side, {}).get(row)
                if self._limit is not None and len(self._key) > self._limit:
                    del self._key[max(self._key, key=self._key.__getitem__)]
        self._seq = int(messages.seq[-1]) if len(messages) else self._seq
        self._body = {row: self._body.get(row) for row in self._key}

    def content(self) -> list[tuple[int, int]]:
        """(key, id) of the first k rows, in order."""
        return sorted((key, row) for row, key in self._key.items())[: self.k]

    def rows(self) -> list[Hashable]:
        """Their bodies, as far as they came with messages."""
        return [self._body.get(row) for _, row in self.content()]


class ValueContents(Contents):
    """The value of the last message heard."""

    def __init__(self, value: int | None) -> None:
        self.value = value

    def hear(self, messages: Messages, bodies: Bodies = _NO_BODIES) -> None:
        if len(messages):
            self.value = None if messages.kind[-1] == MessageKind.GONE else int(messages.key[-1])

    def content(self) -> int | None:
        return self.value


class DistinctContents(Contents):
    """Values that came and have not gone."""

    def __init__(self, values: Iterable[int]) -> None:
        self.values = set(values)

    def hear(self, messages: Messages, bodies: Bodies = _NO_BODIES) -> None:
        for kind, _, value, _ in _rows_of(messages):
            (self.values.discard if kind == MessageKind.GONE else self.values.add)(value)

    def content(self) -> set[int]:
        return self.values


class ExtremeContents(Contents):
    """The values of all rows of a range, by id."""

    def __init__(self, values: dict[int, int], *, largest: bool) -> None:
        self.values, self._pick = values, max if largest else min

    def hear(self, messages: Messages, bodies: Bodies = _NO_BODIES) -> None:
        for kind, _, value, row in _rows_of(messages):
            if kind == MessageKind.GONE:
                del self.values[row]
            else:
                self.values[row] = value

    def content(self) -> int | None:
        return self._pick(self.values.values(), default=None)


def _rows_of(messages: Messages) -> Iterable[tuple[int, int, int, int]]:
    columns = messages.kind, messages.side, messages.key, messages.row
    return zip(*(column.tolist() for column in columns), strict=True)
