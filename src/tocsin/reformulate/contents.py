"""Clients: what a subscriber keeps of the messages it receives, and the content of its join.

    `SemijoinContents`  the rows of both semijoins; discards rows whose last partner has left, by itself
    `SelectionContents` all rows that its ranges select, partner or not
    `PairContents`      the joined rows as they are
    `MultiwayContents`  a semijoin for each place of a join of many tables
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
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, NamedTuple

from tocsin.model.message import MessageKind, Messages
from tocsin.reformulate.decompose import Decomposition, JoinGraph, SemijoinForm, Signature

__all__ = [
    *("Bodies", "Contents", "DistinctContents", "ExtremeContents", "Held", "JoinKey", "JoinRow"),
    *("MultiwayContents", "PairContents", "SelectionContents", "SemijoinContents", "TopkContents"),
    *("ValueContents", "is_null", "join_rows"),
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
    def apply(self, messages: Messages, bodies: Bodies) -> None:
        """Apply the messages of one change that are for this client, in order of `step`."""

    @abstractmethod
    def content(self) -> Any:
        """Of joins the joined rows, as a bag of pairs of bodies."""


class SelectionContents(Contents):
    """Rows by side and id, as messages say; `on_change` is called with each one that comes or goes (None)."""

    def __init__(self, held: tuple[Held, Held]) -> None:
        self.held = held
        self.on_change: Callable[[int, int, Hashable | None], None] | None = None
        self._rows: tuple[dict[int, set[int]], dict[int, set[int]]] = ({}, {})  # by side: ids by key
        for side in (0, 1):
            for row, (key, _) in held[side].items():
                self._rows[side].setdefault(key, set()).add(row)

    def apply(self, messages: Messages, bodies: Bodies) -> None:
        for kind, side, key, row in _rows_of(messages):
            if kind in _COMES:
                self._put(side, key, row, bodies[side][row])
            elif kind == MessageKind.GONE:
                self._take(side, row)
            elif kind == MessageKind.DROP:
                for gone in list(self._rows[side].get(key, ())):
                    self._take(side, gone)

    def _put(self, side: int, key: int, row: int, body: Hashable) -> None:
        if row in self.held[side] and self.held[side][row][0] != key:
            self._take(side, row)
        self.held[side][row] = key, body
        self._rows[side].setdefault(key, set()).add(row)
        if self.on_change is not None:
            self.on_change(side, row, body)

    def _take(self, side: int, row: int) -> None:
        """Discard a row, if it is held."""
        if row not in self.held[side]:
            return
        key, _ = self.held[side].pop(row)
        self._rows[side][key].discard(row)
        if not self._rows[side][key]:
            del self._rows[side][key]
        if self.on_change is not None:
            self.on_change(side, row, None)

    def content(self) -> Counter[tuple[Any, Any]]:
        return Counter(
            (body, self.held[1][other][1])
            for key, body in self.held[0].values()
            for other in self._rows[1].get(key, ())
        )


class SemijoinContents(SelectionContents):
    """As above, and without rows that have no partner. O(rows of the keys that a message names)."""

    def __init__(self, held: tuple[Held, Held]) -> None:
        super().__init__(held)
        self._discard({*self._rows[0], *self._rows[1]})

    def apply(self, messages: Messages, bodies: Bodies) -> None:
        keys = {
            key
            for _, side, named, row in _rows_of(messages)
            for key in (named, *self.held[side].get(row, ())[:1])
        }
        super().apply(messages, bodies)
        self._discard(keys)

    def _discard(self, keys: Iterable[int]) -> None:
        """Discard the rows of keys that one side does not have."""
        for key in keys:
            rows = [self._rows[side].get(key, set()) for side in (0, 1)]
            if not all(rows):
                for side in (0, 1):
                    for row in list(rows[side]):
                        self._take(side, row)


class PairContents(Contents):
    """A bag of joined rows."""

    def __init__(self, pairs: Iterable[tuple[int, int]], bodies: Bodies) -> None:
        self.pairs = {(r, s): (bodies[0][r], bodies[1][s]) for r, s in pairs}

    def apply(self, messages: Messages, bodies: Bodies) -> None:
        for kind, r, s in zip(
            messages.kind.tolist(), messages.row.tolist(), messages.partner.tolist(), strict=True
        ):
            if kind == MessageKind.JOINED:
                self.pairs[r, s] = bodies[0][r], bodies[1][s]
            else:
                self.pairs.pop((r, s), None)

    def content(self) -> Counter[tuple[Any, Any]]:
        return Counter(self.pairs.values())


JoinKey = int | tuple[int | None, ...] | None
"""A join key: of one column, or of several."""


class JoinRow(NamedTuple):
    """A row of a graph of joins: what it is selected by, a key by edge (None where it has none), the rest."""

    value: int | None
    keys: tuple[JoinKey, ...]
    payload: Hashable = None


def is_null(key: JoinKey) -> bool:
    """Whether a key joins nothing."""
    return key is None or (isinstance(key, tuple) and None in key)


class MultiwayContents(Contents):
    """By place the rows of a semijoin, each with its key over the edge by which it is filtered.

    Where two places filter each other, rows without a partner are discarded by itself; elsewhere DROP says
    so. A row that fails the residual conditions is kept as a stub there, its id and its key: without it a
    partner would look as if it had none.
    """

    def __init__(
        self,
        graph: JoinGraph,
        signature: Signature,
        chosen: Decomposition,
        residual: Callable[[int, JoinRow], bool] | None = None,
    ) -> None:
        self.graph, self.signature, self.chosen, self._residual = graph, signature, chosen, residual
        self.held: dict[int, dict[int, tuple[int, JoinRow | None]]] = {place: {} for place in chosen}
        forms = [SemijoinForm(place, edge) for place, edge in chosen.items()]
        self._mutual = [(f.base, graph.other(f)) for f in forms if chosen[graph.other(f)] == f.edge]

    def put(self, place: int, row: int, key: int, body: JoinRow) -> None:
        """A row of a semijoin, by the code of its key."""
        if self._residual is None or self._residual(place, body):
            self.held[place][row] = key, body
        elif any(place in pair for pair in self._mutual):
            self.held[place][row] = key, None
        else:
            self.held[place].pop(row, None)

    def apply(self, messages: Messages, bodies: Bodies) -> None:
        for kind, number, key, row in _rows_of(messages):
            place = self.graph.edges[number // 2][number % 2]
            held = self.held[place]
            if kind in _COMES:
                body = bodies[place].get(row)
                if isinstance(body, JoinRow):
                    self.put(place, row, key, body)
                else:  # deleted later in the batch: a partner until then
                    held[row] = key, None
            elif kind == MessageKind.GONE:
                held.pop(row, None)
            else:
                for gone in [i for i, (other, _) in held.items() if other == key]:
                    del held[gone]
        for place, partner in self._mutual:
            keys = {key for key, _ in self.held[partner].values()}
            for row in [row for row, (key, _) in self.held[place].items() if key not in keys]:
                del self.held[place][row]

    def content(self) -> Counter[tuple[JoinRow, ...]]:
        """The joined rows, by place."""
        rows = {
            place: [body for _, body in held.values() if body is not None]
            for place, held in self.held.items()
        }
        return join_rows(self.graph, self.signature, rows)


def join_rows(
    graph: JoinGraph, signature: Signature, rows: Mapping[int, list[JoinRow]]
) -> Counter[tuple[JoinRow, ...]]:
    """The join of some rows by place, as a bag."""
    places, rest = graph.places(signature), set(signature)
    joined: list[dict[int, JoinRow]] = [{places[0]: row} for row in rows[places[0]]]
    done = {places[0]}
    while rest:
        edge = min(edge for edge in rest if done & set(graph.edges[edge]))
        rest.remove(edge)
        here, there = graph.edges[edge] if graph.edges[edge][0] in done else graph.edges[edge][::-1]
        if there in done:  # a cycle
            joined = [one for one in joined if _matches(one[here], one[there], edge)]
            continue
        done.add(there)
        by_key: dict[JoinKey, list[JoinRow]] = {}
        for row in rows[there]:
            if not is_null(row.keys[edge]):
                by_key.setdefault(row.keys[edge], []).append(row)
        joined = [{**one, there: row} for one in joined for row in by_key.get(one[here].keys[edge], ())]
    return Counter(tuple(one[place] for place in places) for one in joined)


def _matches(one: JoinRow, other: JoinRow, edge: int) -> bool:
    return not is_null(one.keys[edge]) and one.keys[edge] == other.keys[edge]


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

    def apply(self, messages: Messages, bodies: Bodies = _NO_BODIES) -> None:
        """Of more than k rows the last one is discarded. No change before the last one received."""
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
    """The value of the last message received."""

    def __init__(self, value: int | None) -> None:
        self.value = value

    def apply(self, messages: Messages, bodies: Bodies = _NO_BODIES) -> None:
        if len(messages):
            self.value = None if messages.kind[-1] == MessageKind.GONE else int(messages.key[-1])

    def content(self) -> int | None:
        return self.value


class DistinctContents(Contents):
    """Values that came and have not gone."""

    def __init__(self, values: Iterable[int]) -> None:
        self.values = set(values)

    def apply(self, messages: Messages, bodies: Bodies = _NO_BODIES) -> None:
        for kind, _, value, _ in _rows_of(messages):
            (self.values.discard if kind == MessageKind.GONE else self.values.add)(value)

    def content(self) -> set[int]:
        return self.values


class ExtremeContents(Contents):
    """The values of all rows of a range, by id."""

    def __init__(self, values: dict[int, int], *, largest: bool) -> None:
        self.values, self._pick = values, max if largest else min

    def apply(self, messages: Messages, bodies: Bodies = _NO_BODIES) -> None:
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
