"""Every join and rank implementation keeps the law, as the engine's room for its shapes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from tests.strategies.cases import Case, cases
from tests.strategies.witness import Witness
from tocsin.engine import Engine, Rooms
from tocsin.lab.discover import implementations
from tocsin.language.shape import Shape
from tocsin.room import Room

NAMES = {
    "match": ["MatchRoom"],
    "join": ["JoinRoom", "JoinScan"],
    "rank": ["RankRoom", "RankScan"],
    "group": ["GroupRoom", "GroupScan"],
    "enrich": ["EnrichRoom", "EnrichScan"],
    "semi": ["SemiRoom", "SemiScan"],
    "outer": ["OuterRoom"],
    "sequence": ["SequenceRoom"],
    "limits": ["RefreshGroups", "StreamJoinScan", "StreamJoins"],
}
_NAMED = {"limits": ("refresh", "streams")}  # rooms that are not named like their package
FOUND = {name: implementations(Room, f"tocsin.{name}") for name in NAMES}
ROOMS = [
    (Rooms(**{name: make}), str(shape))
    for name in ("join", "rank", "group", "semi")  # indexes and rooms of streams have tests of their own
    for make in FOUND[name]
    for shape in make.shapes
]


def test_every_room_is_found() -> None:
    assert {name: sorted(make.__name__ for make in found) for name, found in FOUND.items()} == NAMES
    assert all(make.name in _NAMED.get(name, (name,)) for name, found in FOUND.items() for make in found)
    for engine in (Engine(), *(Engine(rooms=rooms) for rooms, _ in ROOMS)):
        shapes = [shape for room in engine._roster.rooms.values() for shape in room.shapes]
        assert sorted(shapes) == sorted(Shape), "each shape has one room"


@pytest.mark.parametrize(("rooms", "shape"), ROOMS)
def test_keeps_the_law(rooms: Any, shape: str) -> None:
    # test_law_property runs the default rooms for longer
    @settings(max_examples=max(40, settings().max_examples))
    @given(cases(shape))
    def check(case: Case) -> None:
        witness = Witness(case.tables)
        witness.engine = Engine(rooms=rooms)
        for table in case.tables:
            witness.engine.execute(str(table))
        ids = [witness.subscribe(written) for written in case.written]
        for n, step in enumerate(case.steps):
            witness.step(step)
            if n == len(case.steps) // 2:
                witness.unsubscribe(ids.pop())
        witness.engine._check()

    check()
