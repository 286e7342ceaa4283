"""Which rooms an engine has: an implementation of each, and refresh groups with rooms of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from tocsin.enrich.room import EnrichRoom
from tocsin.group.room import GroupRoom
from tocsin.join.room import JoinRoom
from tocsin.join.tables import JoinTables
from tocsin.language.shape import Plan
from tocsin.limits.groups import RefreshGroups
from tocsin.limits.streams import StreamJoins
from tocsin.match.base import MatchIndex
from tocsin.match.index import Auto
from tocsin.match.room import MatchRoom
from tocsin.outer.room import OuterRoom
from tocsin.rank.room import RankRoom
from tocsin.room import Room
from tocsin.semi.room import SemiRoom
from tocsin.sequence.room import SequenceRoom
from tocsin.store.database import Database

__all__ = ["Rooms"]


@dataclass(frozen=True)
class Rooms:
    """The implementation of each room; of the match room, the index of a stream or table."""

    match: Callable[[], MatchIndex] = Auto
    join: Callable[[], Room] = JoinRoom
    rank: Callable[[], Room] = RankRoom
    group: Callable[[], Room] = GroupRoom
    enrich: Callable[[], Room] = EnrichRoom
    streams: Callable[[], Room] = StreamJoins
    refresh: Callable[..., RefreshGroups] = RefreshGroups
    semi: Callable[[], Room] = SemiRoom
    outer: Callable[..., Room] = OuterRoom
    sequence: Callable[[], Room] = SequenceRoom

    def over_tables(self, plan_of: Callable[[int], Plan]) -> list[Room]:
        """Rooms for queries over tables, whose plans `plan_of` finds by slot."""
        return [MatchRoom(self.match, plan_of), self.join(), self.rank(), self.group()]

    def of_engine(
        self, match: MatchRoom, database: Database, clock: Callable[[], datetime]
    ) -> tuple[Room, ...]:
        """All rooms of an engine, `match` among them."""
        groups = self.refresh(self.over_tables, database, clock)
        own = match, self.join(), self.rank(), self.group(), self.enrich(), self.streams()
        return *own, groups, self.semi(), self.outer(self.of_parts), self.sequence()

    def of_parts(self, plan_of: Callable[[int], Plan]) -> list[Room]:
        """Rooms for the parts of composed queries, which share what they keep of tables."""
        rooms, tables = [*self.over_tables(plan_of), self.semi(), self.enrich()], JoinTables()
        for room in rooms:
            room.share(tables)
        return rooms
