"""Clients: what a subscriber keeps of the messages it hears, and the content of its join.

    `SemijoinContents`  the rows of both semijoins; discards rows whose last partner has left, by itself
    `SelectionContents` all rows that its ranges select, partner or not
    `PairContents`      the joined rows as they are

A client applies the messages of one change together, in order of `step`. It passes over a GONE of an id that
it does not hold: loss is detected by watermarks, not by content.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

from tocsin.model.message import MessageKind, Messages

__all__ = ["Bodies", "Contents", "Held", "PairContents", "SelectionContents", "SemijoinContents"]

Held = dict[int, tuple[int, Hashable]]
"""Rows by id: key and body."""
Bodies = Mapping[int, Mapping[int, Hashable]]
"""The rows of each side by id, as clients get them with messages."""
_COMES = (MessageKind.ROW, MessageKind.EXPOSE)


class Contents(ABC):
    """What one subscription keeps."""

    @abstractmethod
    def hear(self, messages: Messages, bodies: Bodies) -> None:
        """Apply the messages of one change that are for this client, in order of `step`."""

    @abstractmethod
    def content(self) -> Counter[tuple[Any, Any]]:
        """The joined rows, as a bag of pairs of bodies."""


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


def _rows_of(messages: Messages) -> Iterable[tuple[int, int, int, int]]:
    columns = messages.kind, messages.side, messages.key, messages.row
    return zip(*(column.tolist() for column in columns), strict=True)
