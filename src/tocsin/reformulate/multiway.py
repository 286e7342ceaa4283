"""Select-joins of many tables as messages: one semijoin of two tables for each table of a join.

    change of a table ─► its places ─► forms that have the place as base or as filter ─► Messages ─► contents

Each form (`decompose.py`) is one scheme for two tables (`joins.py`) with the subscriptions that use it,
whatever else they join, and sends what concerns rows of its base: ROW and GONE when the base changes, EXPOSE
when the filtering table does. `side` of a message is the number of its form, and its region has a plane for
each end of the form's edge.

A row of the base leaves a semijoin when its last partner leaves. A client infers that where it holds the
partners, that is where both tables of an edge filter each other. Others need DROP: they are indexed a second
time, by schemes that send nothing else.

    R --0-- S --1-- T     {R: 0, S: 0, T: 1}     R and S filter each other: inferred
                                                 T is filtered by S, S not by T: DROP of rows of T

A change of a table that is joined with itself changes one place after the other, at one seq.

>>> joins = MultiwayJoins(JoinGraph(("r", "s"), ((0, 1),)))
>>> ranges = {0: np.array([[0, 9]]), 1: np.array([[0, 9]])}
>>> joins.subscribe(np.array([3]), frozenset([0]), {0: 0, 1: 0}, ranges)
>>> client = joins.contents(3)
>>> messages = joins.describe([("r", 1, JoinRow(5, (7,))), ("s", 2, JoinRow(6, (7,)))], seq=1)
>>> [MessageKind(kind).name for kind in messages.kind], messages.side.tolist()
(['EXPOSE', 'ROW'], [0, 1])
>>> client.apply(joins.received_by(3, messages), joins.bodies)
>>> [sorted(row.value for row in joined) for joined in client.content()]
[[5, 6]]

J08, section 4; self-joins, and DROP for those only who need it, are ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.model.columns import Index
from tocsin.model.message import MessageKind, Messages
from tocsin.reformulate.base import row_changes
from tocsin.reformulate.contents import JoinKey, JoinRow, MultiwayContents, is_null
from tocsin.reformulate.decompose import Decomposition, JoinGraph, SemijoinForm, Signature
from tocsin.reformulate.joins import DescribedScheme, SemijoinsMerged
from tocsin.stab.groups import Ranges

__all__ = ["JoinRow", "MultiwayJoins", "TableChange"]

TableChange = tuple[str, int, JoinRow | None]
"""A table, the id of a row, and the row as it is now."""
_RANK = np.array([2, 0, 2, 1, 0, 0])  # by kind: GONE, DROP before ROW, EXPOSE
_DROPS = -1  # of a scheme that sends DROP


class _JoinParts(NamedTuple):
    """A subscription: its join, its forms, and its range by place."""

    signature: Signature
    chosen: Decomposition
    ranges: dict[int, tuple[int, int]]


class _PlaceChange(NamedTuple):
    """Which change of a batch it is, the place, the id, the row before and after."""

    number: int
    place: int
    row: int
    old: JoinRow | None
    new: JoinRow | None


class MultiwayJoins:
    """Tables, subscriptions under slots over a graph of joins, and their messages.

    A row has one value by which it is selected (0 with open ranges, where nothing selects), and a key by
    edge; a key of several columns is a tuple. A row whose value is None is in no semijoin, and one whose key
    is None in none over that edge.
    """

    def __init__(self, graph: JoinGraph, scheme: type[DescribedScheme] = SemijoinsMerged) -> None:
        self.graph = graph
        self._scheme = scheme
        self._schemes: dict[tuple[int, int], DescribedScheme] = {}  # by number of the form, and 0 or _DROPS
        self._rows: dict[str, dict[int, JoinRow]] = {table: {} for table in graph.tables}
        self._joined: dict[int, _JoinParts] = {}
        self._codes: dict[tuple[int | None, ...], int] = {}  # of composite keys

    def __len__(self) -> int:
        return len(self._joined)

    @property
    def bodies(self) -> Mapping[int, Mapping[int, JoinRow]]:
        """The rows of each place by id, as clients get them with messages."""
        return {place: self._rows[table] for place, table in enumerate(self.graph.tables)}

    # -- subscriptions -------------------------------------------------------------------------------

    def subscribe(
        self,
        slots: Index,
        signature: Signature,
        chosen: Decomposition,
        ranges: Mapping[int, NDArray[np.int64]],
    ) -> None:
        """Add subscriptions of one join under free slots; by place, the lower and upper ends of each."""
        choices = self.graph.choices(signature)
        if chosen.keys() != choices.keys() or any(chosen[place] not in choices[place] for place in chosen):
            raise ValueError(f"a decomposition has an edge of the join for each place, not {chosen}")
        for place in choices:
            if np.any(ranges[place][:, 0] > ranges[place][:, 1]):
                raise ValueError(f"a range over {self.graph.tables[place]} is empty")
        taken = [slot for slot in slots.tolist() if slot in self._joined]
        if taken:
            raise ValueError(f"slot {taken[0]} is in use")
        for number, kind in self._memberships(chosen):
            one, two = (ranges[place] for place in self.graph.edges[number // 2])
            ends = (two[:, 0], two[:, 1], one[:, 0], one[:, 1])
            scheme = self._scheme_of(number, kind)
            scheme.subscribe(slots, Ranges(*(np.ascontiguousarray(end) for end in ends)))
        by_place = {place: ranges[place].tolist() for place in choices}
        for at, slot in enumerate(slots.tolist()):
            mine = {place: (ends[at][0], ends[at][1]) for place, ends in by_place.items()}
            self._joined[slot] = _JoinParts(signature, chosen, mine)

    def unsubscribe(self, slots: Index) -> None:
        """Remove subscriptions."""
        by_scheme: dict[tuple[int, int], list[int]] = {}
        for slot in slots.tolist():
            for membership in self._memberships(self._joined.pop(slot).chosen):
                by_scheme.setdefault(membership, []).append(slot)
        for membership, some in by_scheme.items():
            self._schemes[membership].unsubscribe(np.array(some, np.int64))

    def _memberships(self, chosen: Decomposition) -> list[tuple[int, int]]:
        """The schemes that a subscription is in."""
        out = []
        for place, edge in chosen.items():
            form = SemijoinForm(place, edge)
            out.append((self.graph.number(form), 0))
            if chosen[self.graph.other(form)] != edge:
                out.append((self.graph.number(form), _DROPS))
        return out

    def _scheme_of(self, number: int, kind: int) -> DescribedScheme:
        """The scheme of a form; a new one gets the rows of both tables."""
        if (number, kind) not in self._schemes:
            side = number % 2
            sends = [MessageKind.DROP] if kind else [MessageKind.ROW, MessageKind.GONE, MessageKind.EXPOSE]
            scheme = self._scheme(sends=[(kind, side) for kind in sends])
            for end, place in enumerate(self.graph.edges[number // 2]):
                rows = [
                    (row, self._code(body.keys[number // 2]), body.value)
                    for row, body in self._rows[self.graph.tables[place]].items()
                    if _is_there(body, number // 2)
                ]
                ids, keys, values = np.array(rows, np.int64).reshape(-1, 3).T
                scheme.load(end, ids, keys, values)
            self._schemes[number, kind] = scheme
        return self._schemes[number, kind]

    def received_by(self, slot: int, messages: Messages) -> Messages:
        """The messages that a subscription gets: those of its forms whose region holds it."""
        joined = self._joined[slot]
        received = np.zeros(len(messages), np.bool_)
        for number, kind in self._memberships(joined.chosen):
            is_drop = messages.kind == MessageKind.DROP
            mine = np.flatnonzero((messages.side == number) & (is_drop == (kind == _DROPS)))
            point = [joined.ranges[place] for place in self.graph.edges[number // 2]]
            received[mine[messages.regions.take(mine).contain(point)]] = True
        return messages.take(np.flatnonzero(received))

    def contents(self, slot: int, residual: Callable[[int, JoinRow], bool] | None = None) -> MultiwayContents:
        """A client of a subscription, with its content as of now.

        `residual`: further conditions on rows of places, which the client verifies.
        """
        joined = self._joined[slot]
        client = MultiwayContents(self.graph, joined.signature, joined.chosen, residual)
        for place, edge in joined.chosen.items():
            partners = {
                body.keys[edge]
                for body in self._selected(joined, self.graph.other(SemijoinForm(place, edge)), edge)
            }
            table = self._rows[self.graph.tables[place]]
            for row, body in table.items():
                if _is_in(body, edge, joined.ranges[place]) and body.keys[edge] in partners:
                    client.put(place, row, self._code(body.keys[edge]), body)
        return client

    def _selected(self, joined: _JoinParts, place: int, edge: int) -> list[JoinRow]:
        rows = self._rows[self.graph.tables[place]].values()
        return [body for body in rows if _is_in(body, edge, joined.ranges[place])]

    # -- changes -------------------------------------------------------------------------------------

    def describe(self, changes: Sequence[TableChange], seq: int) -> Messages:
        """The messages of changes, which get the numbers from `seq` on; the tables then have them.

        `bodies` are then those after all changes: clients are exact at the end of a batch.
        """
        for table, _, _ in changes:
            if table not in self._rows:
                raise ValueError(f"there is no table {table!r} in the graph: {', '.join(self._rows)}")
        places: list[_PlaceChange] = []
        for number, (table, row, new) in enumerate(changes):
            old = self._rows[table].pop(row, None)
            if new is not None:
                self._rows[table][row] = new
            named = [place for place, name in enumerate(self.graph.tables) if name == table]
            places += [_PlaceChange(number, place, row, old, new) for place in named]
        parts, order = [], []
        for (number, _), scheme in sorted(self._schemes.items()):
            messages, at = self._describe_form(scheme, number, places)
            parts.append(messages)
            order.append(at)
        if not parts:
            return self._scheme().describe(row_changes([], [], [], []), seq)
        messages, at = Messages.concat(parts), np.concatenate(order)
        return _ordered(messages, at, np.array([place.number for place in places], np.int64), seq)

    def _describe_form(
        self, scheme: DescribedScheme, number: int, places: Sequence[_PlaceChange]
    ) -> tuple[Messages, Index]:
        """The messages of one form, and of each the number of its change among `places`."""
        edge, ends = number // 2, self.graph.edges[number // 2]
        side, row, old, new, at = [], [], [], [], []
        for position, change in enumerate(places):
            if change.place not in ends or change.old == change.new:
                continue
            before, after = (self._state(body, edge) for body in (change.old, change.new))
            if before[0] or after[0]:
                side.append(ends.index(change.place))
                row.append(change.row)
                old.append(before)
                new.append(after)
                at.append(position)
        messages = scheme.describe(row_changes(side, row, old, new), 0)
        which = np.array(at, np.int64)[messages.seq]
        return replace(messages, side=np.full(len(messages), number, np.int8)), which

    def _state(self, body: JoinRow | None, edge: int) -> tuple[int, int, int]:
        """Whether a row is there for an edge, its key, its value."""
        if body is None or not _is_there(body, edge):
            return 0, 0, 0
        assert body.value is not None
        return 1, self._code(body.keys[edge]), body.value

    def _code(self, key: JoinKey) -> int:
        """A key as one number."""
        assert key is not None
        return key if isinstance(key, int) else self._codes.setdefault(key, len(self._codes))

    def _check(self) -> None:
        """Schemes hold their invariants; they have the subscriptions that use them."""
        expected: dict[tuple[int, int], int] = {}
        for joined in self._joined.values():
            for membership in self._memberships(joined.chosen):
                expected[membership] = expected.get(membership, 0) + 1
        for membership, scheme in self._schemes.items():
            scheme._check()
            assert len(scheme.index) == expected.get(membership, 0)


def _is_there(body: JoinRow, edge: int) -> bool:
    return body.value is not None and not is_null(body.keys[edge])


def _is_in(body: JoinRow, edge: int, ends: tuple[int, int]) -> bool:
    return _is_there(body, edge) and body.value is not None and ends[0] <= body.value <= ends[1]


def _ordered(messages: Messages, at: Index, number: Index, seq: int) -> Messages:
    """By change of a place, then what goes before what comes; steps count within a change."""
    order = np.lexsort((messages.side, _RANK[messages.kind], at))
    messages, at = messages.take(order), at[order]
    change = number[at]
    first = np.flatnonzero(np.diff(change, prepend=-1))
    step = np.arange(len(change)) - np.repeat(first, np.diff(first, append=len(change)))
    return replace(messages, seq=change + seq, step=step)
