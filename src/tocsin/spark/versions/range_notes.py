"""The ranges that subscriptions select, read from the plans that an engine's rooms receive.

`check` subscribes everything to a trial engine anyway. Its rank and group rooms note their plans; for each
subscription over one table, `selections` chooses a column and a range that all rows of its answer are in. A
range is a necessary condition, not the whole filter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

import numpy as np

from tocsin.engine import Engine, Rooms
from tocsin.group.room import GroupRoom
from tocsin.language.algebra import Query
from tocsin.language.shape import Plan, Shape
from tocsin.match.room import MatchRoom
from tocsin.model.columns import Index
from tocsin.model.schema import Table, Type
from tocsin.predicate.codes import GREATEST, LEAST
from tocsin.predicate.compile import flatten
from tocsin.predicate.flat import FlatFilters
from tocsin.predicate.verify import selections
from tocsin.rank.room import RankRoom
from tocsin.room import Room
from tocsin.spark.versions.stretches import RangeColumn, RowRanges
from tocsin.store.database import Database
from tocsin.store.plans import FlatPlans

__all__ = ["NotingRooms", "ranges_of"]

_SHAPES = (Shape.TOPK, Shape.EXTREME, Shape.AGGREGATE, Shape.DISTINCT, Shape.GROUP)


class _Noted(NamedTuple):
    """Plans as they reach a room."""

    slots: Index
    plans: Sequence[Plan] | FlatPlans


Notes = list[_Noted]


class _Noting(Room):
    """A room that notes the plans it receives, if somebody wants them."""

    notes: Notes | None = None

    def add(self, slots: Index, plans: Sequence[Plan] | FlatPlans) -> None:
        if self.notes is not None:
            self.notes.append(_Noted(slots, plans))
        super().add(slots, plans)  # type: ignore[safe-super]  # of the room that it is mixed with


class _NotingRanks(_Noting, RankRoom):
    pass


class _NotingGroups(_Noting, GroupRoom):
    pass


@dataclass(frozen=True)
class NotingRooms(Rooms):
    """Rooms of an engine that notes the plans of its own rank and group rooms, for `ranges_of`.

    Rooms for parts of queries note nothing: their slots are others.
    """

    rank: Callable[[], Room] = _NotingRanks
    group: Callable[[], Room] = _NotingGroups
    notes: Notes = field(default_factory=list)

    def of_engine(
        self, match: MatchRoom, database: Database, clock: Callable[[], datetime]
    ) -> tuple[Room, ...]:
        rooms = super().of_engine(match, database, clock)
        for room in rooms:
            if isinstance(room, _Noting):
                room.notes = self.notes
        return rooms


def ranges_of(engine: Engine, notes: Notes, ids: Index) -> RowRanges:
    """The ranges of some subscriptions, by row, from what an engine's rooms noted."""
    order = np.argsort(ids)
    known: dict[RangeColumn, int] = {}
    column = np.full(len(ids), -1, np.int16)
    low, high = np.zeros((2, len(ids)), np.int64)
    for relation, slots, filters in _filters(engine, notes):
        chosen = selections(filters, by_share=True)
        mine = engine.ids_of(slots)
        row = order[np.minimum(np.searchsorted(ids[order], mine), len(ids) - 1)]
        usable = (ids[row] == mine) & ~chosen.never & (chosen.low != LEAST) & (chosen.high != GREATEST)
        for number, name in enumerate(chosen.names):
            here = np.flatnonzero(usable & (chosen.attribute == number))
            column_there = relation.find(name, exact=True)  # none: it is computed, so rows do not have it
            if column_there is not None and len(here) and column_there.type is not Type.BOOLEAN:
                place = RangeColumn(relation.name, name, column_there.type)
                column[row[here]] = known.setdefault(place, len(known))
                low[row[here]], high[row[here]] = chosen.low[here], chosen.high[here]
    return RowRanges(tuple(known), column, low, high)


def _filters(engine: Engine, notes: Notes) -> Iterator[tuple[Table, Index, FlatFilters]]:
    """The filters over one table of the shapes that are placed by ranges, table by table."""
    for slots, plans in notes:
        if isinstance(plans, FlatPlans):
            table = _table_of(engine, plans.query, plans.shape)
            if table is not None:
                yield table, slots, plans.filters[0]
            continue
        by_table: dict[Table, list[int]] = {}
        for n, plan in enumerate(plans):
            table = _table_of(engine, plan.query, plan.shape)
            if table is not None:
                by_table.setdefault(table, []).append(n)
        for table, some in by_table.items():
            yield table, slots[some], flatten([plans[n].filters[0] for n in some])


def _table_of(engine: Engine, query: Query, shape: Shape) -> Table | None:
    if shape not in _SHAPES or len(query.tables) != 1 or query.options:
        return None
    relation = engine.schema(query.tables[0].name)
    return relation if isinstance(relation, Table) else None
