"""The room of sequences: `a FOLLOWED BY b WITHIN '5 minutes'`, of all subscriptions together.

    events ─► indexes over the conditions of nodes ─► pairs (event, node)          chains.py
           ─► in order: chains of keys begin, go on, end                           progress.py, _kernels.py
           ─► subscriptions of the node where a chain ends, in time for them ─► Deltas

An event that ends sequences gives one row to each subscription, that of the sequence that begins last. Rows
come once and are never taken back; there is no content. Time is the engine's clock when events come that a
sequence reads; it does not go back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.language.algebra import Column
from tocsin.language.options import print_span
from tocsin.language.shape import Plan, Shape
from tocsin.model.columns import Index, Rows, Vector
from tocsin.model.delta import NO_DELTAS, Deltas
from tocsin.model.schema import Type
from tocsin.room import Room
from tocsin.sequence._kernels import Ended, Reached
from tocsin.sequence.chains import StepTree, path_of
from tocsin.sequence.progress import Progress
from tocsin.sequence.saved import read_back, written
from tocsin.store.plans import FlatPlans, PlanTable
from tocsin.store.step import Step

__all__ = ["SequenceRoom"]


class _Shown(NamedTuple):
    """An item of an answer: its name; the step, its stream, and the column."""

    name: str
    place: int
    stream: str
    column: str
    type: Type


class _Pairs(NamedTuple):
    """Pairs of an event and a node whose conditions it satisfies, of one stream or several."""

    seq: Index
    stream: Index  # a number
    row: Index
    node: Index
    key: Index
    kept: Index  # where the event is kept, or -1


class SequenceRoom(Room):
    """Sequences by slot."""

    name = "sequence"
    shapes = (Shape.SEQUENCE,)

    def __init__(self) -> None:
        self._plans = PlanTable(keep=True)
        self.tree, self.progress = StepTree(), Progress()
        self.ends: dict[int, int] = {}  # by slot: the node where its sequences end
        self.since: dict[int, int] = {}  # by slot: the last seq before it
        self._shown: dict[int, tuple[_Shown, ...]] = {}  # by slot
        self.clock = self._next_clock = 0
        self.last_seq = self._next_seq = 0

    # -- registering -------------------------------------------------------------------------------

    def add(self, slots: Index, plans: Sequence[Plan] | FlatPlans) -> None:
        assert not isinstance(plans, FlatPlans), "templates of sequences are filled one by one"
        self._plans.add(slots, plans)
        for slot, plan in zip(slots.tolist(), plans, strict=True):
            self.ends[slot], self.since[slot] = self.tree.add(slot, plan), self.last_seq
            for table in plan.query.tables:
                self.progress.need(table.name, {})
            self._shown[slot] = tuple(_shown(plan))
            for item in self._shown[slot]:
                self.progress.need(item.stream, {item.column: item.type})

    def remove(self, slots: Index) -> None:
        self._plans.remove(slots)
        gone: list[int] = []
        for slot in slots.tolist():
            gone += self.tree.remove(slot, self.ends.pop(slot))
            del self.since[slot], self._shown[slot]
        if gone:
            self.progress.prune(self.tree, self.clock, gone)

    def reads(self, stream: str) -> bool:
        return stream in self.tree.indexes

    # -- steps -------------------------------------------------------------------------------------

    def deltas(self, step: Step) -> Deltas:
        streams = [name for name in self.tree.indexes if name in step.events]
        self._next_clock = max(self.clock, step.now) if streams else self.clock
        self._next_seq = int(step.seq[-1]) if len(step.seq) else self.last_seq
        if not streams:
            return NO_DELTAS
        self.progress.begin()
        parts = [self._pairs(number, name, step) for number, name in enumerate(streams)]
        pairs = _Pairs(*(np.concatenate(part) for part in zip(*parts, strict=True)))
        order = np.lexsort((-self.tree.nodes.depth[pairs.node], pairs.seq))
        pairs = _Pairs(*(part[order] for part in pairs))
        time = np.full(len(order), self._next_clock)
        ended = self.progress.follow(self.tree.nodes, Reached(pairs.node, pairs.key, time, pairs.kept))
        found: list[Deltas] = []
        for number, name in enumerate(streams):
            mine = np.flatnonzero(pairs.stream[ended.pair] == number)
            if len(mine):
                found += self._ended(name, pairs, Ended(*(part[mine] for part in ended)), step)
        return Deltas.concat(found) if found else NO_DELTAS

    def _pairs(self, number: int, name: str, step: Step) -> _Pairs:
        """The pairs of a stream's events; those that may begin or continue a sequence are kept."""
        batch = step.events[name]
        rows, seq = batch.rows, np.asarray(batch.seq)
        node, row = self.tree.matches(name, rows)
        key = self._keys(rows, node, row)
        known = np.flatnonzero(key >= 0)
        node, row, key = node[known], row[known], key[known]
        kept = np.full(len(rows), -1, np.int64)
        stays = np.unique(row[self.tree.nodes.continues[node]])
        if len(stays):
            kept[stays] = self.progress.keep(name, rows.take(stays), seq[stays])
        return _Pairs(seq[row], np.full(len(row), number), row, node, key, kept[row])

    def _keys(self, rows: Rows, node: Index, row: Index) -> Index:
        """The number of each pair's key; -1 if it is NULL, or nothing was begun with it."""
        key, forms = np.full(len(node), -1, np.int64), dict[tuple[Any, ...], list[int]]()
        for one in np.unique(node).tolist():
            step = self.tree.steps[one]
            forms.setdefault((step.types, step.columns), []).append(one)
        for (types, columns), alike in forms.items():
            mine = np.flatnonzero(np.isin(node, alike))
            used, at = np.unique(row[mine], return_inverse=True)
            vectors = [_vector(rows, name, type, used) for name, type in zip(columns, types, strict=True)]
            there = np.flatnonzero(np.logical_and.reduce([vector.valid for vector in vectors]))
            own = np.full(len(used), -1, np.int64)
            own[there] = self.progress.number(types, [vector.take(there) for vector in vectors])
            key[mine] = own[at]
        return key

    def _ended(self, name: str, pairs: _Pairs, ended: Ended, step: Step) -> Iterator[Deltas]:
        """Deltas of sequences whose last event is of one stream, by what answers show."""
        batch, events = step.events[name], self.progress.events
        node, row = pairs.node[ended.pair], pairs.row[ended.pair]
        took = self._next_clock - ended.time
        forms: dict[tuple[int, tuple[_Shown, ...]], list[tuple[int, Index]]] = {}
        for one in np.unique(node).tolist():
            mine = np.flatnonzero(node == one)
            first = self.tree.steps[list(self.tree.path(one))[-1]].stream
            since = events[first].seq[ended.event[mine, 0]]
            for slot, span in self.tree.users[one].items():
                own = mine[(took[mine] <= span) & (since > self.since[slot])]
                if len(own):
                    last = int(self.tree.nodes.depth[one])
                    forms.setdefault((last, self._shown[slot]), []).append((slot, own))
        for (last, shown), parts in forms.items():
            slots = np.concatenate([np.full(len(own), slot) for slot, own in parts])
            used, at = np.unique(np.concatenate([own for _, own in parts]), return_inverse=True)
            columns = []
            for item in shown:
                if item.place == last:
                    vector = _vector(batch.rows, item.column, item.type, row[used])
                else:
                    vector = events[item.stream].take(item.column, ended.event[used, item.place])
                columns.append((item.name, vector))
            seq = np.asarray(batch.seq)[row[used]][at]
            yield Deltas.of(seq, slots, 1, Rows(columns, len(used)), at)

    def commit(self) -> None:
        self.clock, self.last_seq = self._next_clock, self._next_seq
        self.progress.commit(self.tree, self.clock)

    def rollback(self) -> None:
        self._next_clock, self._next_seq = self.clock, self.last_seq
        self.progress.rollback()

    def content(self, slot: int, step: Step) -> Rows:
        """Nothing: a sequence is emitted once."""
        return Rows((), 0)

    # -- explanations ------------------------------------------------------------------------------

    def explain_event(self, plan: Plan, place: int, event: Rows, step: Step) -> tuple[bool, tuple[str, ...]]:
        """Whether an event that came now would end a sequence; how many steps its key has so far."""
        path, count = path_of(plan), len(plan.query.tables)
        own = path[place]
        vectors = [
            _vector(event, n, t, np.zeros(1, np.int64)) for n, t in zip(own.columns, own.types, strict=True)
        ]
        if not all(vector.valid[0] for vector in vectors):
            return False, ("its key is NULL",)
        (key,) = self.progress.find(own.types, vectors).tolist()
        node, reached, begun = -1, 0, 0
        for depth, one in enumerate(path[:-1], 1):
            node = self.tree.numbers.get(one._replace(parent=node), -1)
            time = self.progress.begun(node, key) if node >= 0 and key >= 0 else None
            if time is not None and max(self.clock, step.now) - time <= (plan.query.within or 0):
                reached, begun = depth, time
        notes = [f"{reached} of {count} steps so far"]
        if reached:
            left = begun + (plan.query.within or 0) - max(self.clock, step.now)
            notes[0] += f"; the rest in {print_span(left)}" if left else "; the rest now"
        alias = plan.query.tables[place].alias
        ends = place == count - 1 and reached == count - 1
        if place > reached:
            notes.append(f"{alias} is step {place + 1}, and step {reached + 1} comes first")
        elif not ends:
            notes.append(f"as {alias} it is step {place + 1} of {count}")
        return ends, tuple(notes)

    # -- inspection --------------------------------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        kept = {name: events.used for name, events in self.progress.events.items() if events.used}
        return {
            "index": "chains",
            "subscriptions": len(self._plans),
            "steps": len(self.tree.steps),
            "chains": len(self.progress),
            "events": kept,
            "bytes": self.progress.nbytes,
        }

    def saved(self, ids: Index) -> dict[str, Any]:
        return written(self, ids)

    def restore(
        self, tables: Mapping[str, Any], find: Callable[[Index], NDArray[np.int32]], last_seq: int
    ) -> None:
        read_back(self, tables, find, last_seq)

    def _check(self) -> None:
        self._plans._check()
        self.tree._check()
        self.progress._check(self.tree)
        assert self.ends.keys() == self.since.keys() == self._shown.keys() == set(self._plans)


def _shown(plan: Plan) -> Iterator[_Shown]:
    tables = plan.query.tables
    place = {table.alias: n for n, table in enumerate(tables)}
    for item in plan.query.items:
        column = item.expression
        assert isinstance(column, Column) and column.type is not None
        at = place[column.relation]
        yield _Shown(item.name, at, tables[at].name, column.name, column.type)


def _vector(rows: Rows, name: str, type: Type, which: Index) -> Vector:
    """A column of some events; NULL where they lack it."""
    given = rows.vectors(name)
    return given[0].take(which) if given else Vector.blank(type, len(which))
